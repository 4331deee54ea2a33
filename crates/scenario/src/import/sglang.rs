//! `python -m sglang.bench_serving`, after its arguments of SGLang 0.5.23.

mod flags;

pub(super) use flags::FLAGS;

use super::bench_serving::{self, Script};
use super::draft::Draft;
use super::text::name;
use super::{ImportError, number, serving};
use serde_json::Value;

const SCRIPT: Script = Script { name: "sglang-bench", seed: 42, length: Some(1024.0) };

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let tag = draft.text("--tag").unwrap_or_default();
    draft.put("name", name(&tag, SCRIPT.name));
    draft.account("--tag", &["name"]);
    bench_serving::target(draft)?;
    bench_serving::request(draft, &SCRIPT)?;
    logprobs(draft)?;
    bench_serving::dataset(draft, &SCRIPT, "--dataset-path")?;
    load(draft)?;
    serving::goodput(draft, "SGLang")
}

fn logprobs(draft: &mut Draft) -> Result<(), ImportError> {
    if draft.has("--return-logprob") {
        match draft.number("--top-logprobs-num")?.filter(|count| *count > 0.0) {
            Some(count) => draft.put("request/logprobs", number(count)),
            None => draft.put("request/logprobs", true),
        }
        draft.account("--return-logprob", &["request/logprobs"]);
        draft.account("--top-logprobs-num", &["request/logprobs"]);
    } else {
        draft.note("--top-logprobs-num", "it goes with --return-logprob");
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    match draft.get("dataset/kind").and_then(Value::as_str) {
        Some("trace") => {
            draft.fill("--num-prompts", "load/requests", 1000);
            draft.carry_number("--num-prompts", "load/requests")?;
            draft.note("--request-rate", "the trace says when its requests arrive");
            draft.note("--max-concurrency", "an open loop sends when a request is due");
        }
        Some("prefix") => {
            serving::load(draft)?;
            let count = |path: &str| draft.get(path).and_then(Value::as_f64).unwrap_or(1.0);
            let requests = count("dataset/groups") * count("dataset/per_group");
            draft.put("load/requests", number(requests));
            draft.note("--num-prompts", "this dataset sends groups times prompts of a group");
        }
        _ => {
            draft.fill("--num-prompts", "load/requests", 1000);
            serving::load(draft)?;
        }
    }
    draft.fill("--warmup-requests", "load/warmup", 1);
    draft.carry_number("--warmup-requests", "load/warmup")?;
    draft.note("--warmup-requests", "the tool cuts their replies to 32 tokens");
    Ok(())
}
