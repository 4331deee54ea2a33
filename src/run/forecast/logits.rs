//! What kept logits will take on the disk.

use crate::model::local::Local;
use crate::model::plan::{Case, Plan};
use crate::model::request::Quantity;
use crate::model::target::Place;
use crate::store::npy;
use crate::view::format::bytes;
use serde_json::Value;
use std::path::Path;

/// A line for each case that keeps them: how many files, and their size at the most as far as that is known.
pub fn logits(plan: &Plan) -> Vec<String> {
    plan.cases.iter().filter_map(|case| line(case, plan.rounds)).collect()
}

fn line(case: &Case, rounds: u32) -> Option<String> {
    let Place::Local(Local { logits: true, .. }) = &case.target.place else { return None };
    let files = case.load.planned().map(|planned| planned * u64::from(rounds));
    let of = files.map_or_else(|| "every request".to_owned(), |files| format!("{files} requests"));
    let tokens = match case.request.max_tokens {
        Some(Quantity::Fixed(tokens) | Quantity::Uniform { high: tokens, .. }) => Some(tokens),
        _ => None,
    };
    let vocabulary = case.target.models.first().and_then(|model| vocabulary(Path::new(&model.name)));
    let takes = match (files, tokens, vocabulary) {
        (Some(files), Some(tokens), Some(vocabulary)) => {
            format!("up to {} on the disk", bytes(files as f64 * npy::size(tokens, vocabulary) as f64))
        }
        _ => "4 bytes on the disk for each token and entry of the vocabulary".to_owned(),
    };
    Some(format!("`{}` keeps the logits of {of}: {takes}", case.id))
}

/// The vocabulary of a model in a folder, as its configuration tells it.
fn vocabulary(model: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(model.join("config.json")).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("vocab_size")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Input, load};

    #[test]
    fn the_bytes_are_those_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"vocab_size": 1000}"#).unwrap();
        let of = |model: &str, keep: &str| {
            let yaml = format!(
                "version: 1\nname: t\nrounds: 2\ntarget: {{ api: local, model: \"{model}\" }}\nrequest: {{ max_tokens: 10{keep} }}\n\
                 dataset: {{ kind: prompt, text: x }}\nload: {{ concurrency: 1, requests: 3, warmup: 2 }}\n"
            );
            let input = Input { path: Path::new("t.yaml"), text: Some(yaml), env: &Default::default(), set: &[] };
            logits(&load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan)
        };
        let keep = ", keep: { logits: true }";
        // Two rounds of five requests: 10 rows of 1000 and a header of 128 bytes each.
        let line = "`base` keeps the logits of 10 requests: up to 392 KiB on the disk";
        assert_eq!(of(&folder.path().display().to_string(), keep), [line]);
        assert!(of("random:tiny", keep)[0].ends_with("4 bytes on the disk for each token and entry of the vocabulary"));
        assert!(of("random:tiny", "").is_empty());
    }
}
