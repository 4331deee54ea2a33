//! What kept logits will take on the disk.

use crate::run::forecast::{grouped, named};
use crate::store::npy;
use llmscen_core::bounds;
use llmscen_core::local::Local;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::request::Quantity;
use llmscen_core::target::Place;
use llmscen_datasets::token::Tokenizer;
use llmscen_local::generation_params::LOGITS_AT_ONCE;
use llmscen_report::format::bytes;
use serde_json::Value;
use std::path::Path;

/// A line for the cases that keep the same number of them: how many files, and the upper bound of their size where it is known.
pub fn logits(plan: &Plan) -> Vec<String> {
    let kept = grouped(plan.cases.iter().filter_map(|case| Some((kept(case, plan.rounds)?, case.id.clone()))));
    let line = |(text, cases): (String, Vec<String>)| match cases.len() {
        1 => format!("{} keeps {text}", named(&cases, "cases")),
        _ => format!("{} each keep {text}", named(&cases, "cases")),
    };
    kept.into_iter().map(line).collect()
}

fn kept(case: &Case, rounds: u32) -> Option<String> {
    let Place::Local(Local { logits: true, batch, .. }) = &case.target.place else { return None };
    let files = case.load.planned().map(|planned| planned * u64::from(rounds));
    let of = files.map_or_else(|| "every request".to_owned(), |files| format!("{files} requests"));
    let tokens = match case.request.max_tokens {
        Some(Quantity::Fixed(tokens) | Quantity::Uniform { high: tokens, .. }) => Some(tokens),
        _ => None,
    };
    let vocabulary = case.target.models.first().and_then(|model| vocabulary(&model.name));
    let takes = match (files, tokens, vocabulary) {
        (Some(files), Some(tokens), Some(vocabulary)) => {
            format!("up to {} on the disk", bytes(files as f64 * npy::size(tokens, vocabulary) as f64))
        }
        _ => "4 bytes on the disk for each token and entry of the vocabulary".to_owned(),
    };
    let held = tokens
        .zip(vocabulary)
        .map(|(tokens, vocabulary)| u64::from(*batch).saturating_mul(tokens).saturating_mul(vocabulary).saturating_mul(4));
    let held = held.map_or_else(String::new, |held| match held > LOGITS_AT_ONCE {
        true => format!(
            "; a batch needs {} of memory for them, and fails where it needs more than {}",
            bytes(held as f64),
            bytes(LOGITS_AT_ONCE as f64)
        ),
        false => format!(", and up to {} in memory", bytes(held as f64)),
    });
    Some(format!("the logits of {of}: {takes}{held}"))
}

/// The vocabulary of a model in a folder, as its configuration tells it, or of a random one.
fn vocabulary(model: &str) -> Option<u64> {
    if model.starts_with("random:") {
        return Some(Tokenizer::builtin().vocabulary() as u64);
    }
    let text = bounds::read_text(&Path::new(model).join("config.json"), bounds::CONFIG).ok()?;
    serde_json::from_str::<Value>(&text).ok()?.get("vocab_size")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::{Input, load};

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
        let line = "`base` keeps the logits of 10 requests: up to 392 KiB on the disk, and up to 39.1 KiB in memory";
        assert_eq!(of(&folder.path().display().to_string(), keep), [line]);
        let line = "`base` keeps the logits of 10 requests: up to 3.13 MiB on the disk, and up to 320 KiB in memory";
        assert_eq!(of("random:tiny", keep), [line]);
        std::fs::write(folder.path().join("config.json"), r#"{"vocab_size": 100000000}"#).unwrap();
        let line = of(&folder.path().display().to_string(), keep).remove(0);
        assert!(
            line.ends_with("; a batch needs 3.73 GiB of memory for them, and fails where it needs more than 1 GiB"),
            "{line}"
        );
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let line = of(&folder.path().display().to_string(), keep).remove(0);
        assert!(line.ends_with("10 requests: 4 bytes on the disk for each token and entry of the vocabulary"), "{line}");
        assert!(of("random:tiny", "").is_empty());
    }
}
