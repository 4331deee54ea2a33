//! Estimates the size of stored logits.

use crate::run::forecast::{group_by_key, list_names};
use crate::store::npy;
use llmscen_core::bounds;
use llmscen_core::local::Local;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::quantity::Quantity;
use llmscen_core::target::TargetLocation;
use llmscen_datasets::token::Tokenizer;
use llmscen_local::generation_params::LOGITS_AT_ONCE;
use llmscen_report::format::bytes;
use serde_json::Value;
use std::path::Path;

/// One line per group of cases with the same size of logits: number of files, and the maximum size if known.
pub fn describe_logits(plan: &Plan) -> Vec<String> {
    let groups = group_by_key(
        plan.cases
            .iter()
            .filter_map(|case| Some((logits_of_case(case, plan.rounds)?, case.id.clone()))),
    );
    let line = |(text, cases): (String, Vec<String>)| match cases.len() {
        1 => format!("{} keeps {text}", list_names(&cases, "cases")),
        _ => format!("{} each keep {text}", list_names(&cases, "cases")),
    };
    groups.into_iter().map(line).collect()
}

fn logits_of_case(case: &Case, rounds: u32) -> Option<String> {
    let TargetLocation::Local(Local {
        logits: true,
        batch,
        ..
    }) = &case.target.location
    else {
        return None;
    };
    let files = case
        .load
        .planned()
        .map(|planned| planned * u64::from(rounds));
    let requests = files.map_or_else(
        || "every request".to_owned(),
        |files| format!("{files} requests"),
    );
    let tokens = case.request.max_tokens.as_ref().and_then(Quantity::max);
    let vocabulary = case
        .target
        .models
        .first()
        .and_then(|model| vocabulary(&model.name));
    let size = match (files, tokens, vocabulary) {
        (Some(files), Some(tokens), Some(vocabulary)) => {
            format!(
                "up to {} on disk",
                bytes(files as f64 * npy::file_size(tokens, vocabulary) as f64)
            )
        }
        _ => "4 bytes on disk for each token and entry of the vocabulary".to_owned(),
    };
    let memory = tokens.zip(vocabulary).map(|(tokens, vocabulary)| {
        u64::from(*batch)
            .saturating_mul(tokens)
            .saturating_mul(vocabulary)
            .saturating_mul(4)
    });
    let memory = memory.map_or_else(String::new, |memory| match memory > LOGITS_AT_ONCE {
        true => format!(
            "; a batch needs {} of memory for them, and fails where it needs more than {}",
            bytes(memory as f64),
            bytes(LOGITS_AT_ONCE as f64)
        ),
        false => format!(", and up to {} in memory", bytes(memory as f64)),
    });
    Some(format!("the logits of {requests}: {size}{memory}"))
}

/// The vocabulary size of a local model, from its configuration, or of a random one.
fn vocabulary(model: &str) -> Option<u64> {
    if model.starts_with("random:") {
        return Some(Tokenizer::builtin().vocabulary() as u64);
    }
    let text = bounds::read_text(&Path::new(model).join("config.json"), bounds::CONFIG).ok()?;
    serde_json::from_str::<Value>(&text)
        .ok()?
        .get("vocab_size")?
        .as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::{Input, load};

    #[test]
    fn the_size_is_that_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), r#"{"vocab_size": 1000}"#).unwrap();
        let describe = |model: &str, keep: &str| {
            let yaml = format!(
                "version: 1\nname: t\nrounds: 2\ntarget: {{ api: local, model: \"{model}\" \
                 }}\nrequest: {{ max_tokens: 10{keep} }}\ndataset: {{ kind: prompt, text: x \
                 }}\nload: {{ concurrency: 1, requests: 3, warmup: 2 }}\n"
            );
            let input = Input {
                path: Path::new("t.yaml"),
                text: Some(yaml),
                env: &Default::default(),
                set: &[],
            };
            describe_logits(
                &load(&input)
                    .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
                    .plan,
            )
        };
        let keep = ", keep: { logits: true }";
        // Two rounds of five requests: 10 rows of 1000 and a header of 128 bytes each.
        let line = "`base` keeps the logits of 10 requests: up to 392 KiB on disk, and up to 39.1 KiB in memory";
        assert_eq!(describe(&folder.path().display().to_string(), keep), [line]);
        let line = "`base` keeps the logits of 10 requests: up to 3.13 MiB on disk, and up to 320 KiB in memory";
        assert_eq!(describe("random:tiny", keep), [line]);
        std::fs::write(
            folder.path().join("config.json"),
            r#"{"vocab_size": 100000000}"#,
        )
        .unwrap();
        let line = describe(&folder.path().display().to_string(), keep).remove(0);
        assert!(
            line.ends_with("; a batch needs 3.73 GiB of memory for them, and fails where it needs more than 1 GiB"),
            "{line}"
        );
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        let line = describe(&folder.path().display().to_string(), keep).remove(0);
        assert!(
            line.ends_with(
                "10 requests: 4 bytes on disk for each token and entry of the vocabulary"
            ),
            "{line}"
        );
        assert!(describe("random:tiny", "").is_empty());
    }
}
