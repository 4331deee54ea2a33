//! `profile_throughput.py`: prompts of a dataset as fast as the engine takes them.

use super::engine;
use crate::import::bench_serving::{self, Script};
use crate::import::draft::Draft;
use crate::import::line::{Flag, Takes, left, taken};
use crate::import::{ImportError, number};
use Takes::{Nothing, One};

const DIFFUSION: &str = "put it into `target.server.args`";

/// Every flag.
pub(super) const FLAGS: &[&[Flag]] = &[
    &[
        taken(&["--concurrency", "-c"], One),
        taken(&["--num-prompts", "-n"], One),
        taken(&["--no-stream-output"], Nothing),
        left(&["--skip-tokenize", "--skip-detokenize"], Nothing, "the server tokenizes: requests and replies are text"),
        taken(&["--cancel-rate"], One),
        left(&["--use-uvloop"], Nothing, "llmscen is the client"),
        taken(&["--seed"], One),
        taken(&["--distributed-executor-backend"], One),
        taken(&["--dataset-name"], One),
        taken(&["--sharegpt-output-len"], One),
        taken(&["--random-input-len"], One),
        taken(&["--random-output-len"], One),
        taken(&["--random-range-ratio"], One),
        taken(&["--dp"], One),
        taken(&["--quant-policy"], One),
        taken(&["--num-tokens-per-iter"], One),
        taken(&["--max-prefill-iters"], One),
        taken(&["--communicator"], One),
        left(&["--dllm-block-length", "--dllm-unmasking-strategy"], One, DIFFUSION),
        left(&["--dllm-denoising-steps", "--dllm-confidence-threshold"], One, DIFFUSION),
    ],
    engine::FLAGS,
];

const SCRIPT: Script = Script { name: "lmdeploy-throughput", seed: 0, length: None };

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    draft.put("name", SCRIPT.name);
    draft.put("seed", number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)));
    draft.account("--seed", &["seed"]);
    engine::target(draft)?;
    engine::sampling(draft)?;
    if draft.has("--no-stream-output") {
        draft.put("request/stream", false);
        draft.account("--no-stream-output", &["request/stream"]);
    }
    bench_serving::dataset(draft, &SCRIPT, "DATASET")?;
    draft.fill("--concurrency", "load/concurrency", 256);
    draft.carry_number("--concurrency", "load/concurrency")?;
    draft.fill("--num-prompts", "load/requests", 5000);
    draft.carry_number("--num-prompts", "load/requests")?;
    let users = draft.number("--concurrency")?.unwrap_or(256.0);
    let engines = draft.number("--dp")?.unwrap_or(1.0).max(1.0);
    draft.put("target/server/args/max_batch_size", number((users / engines).floor().max(1.0)));
    draft.account("--concurrency", &["target/server/args/max_batch_size"]);
    if let Some(share) = draft.number("--cancel-rate")?.filter(|share| *share > 0.0) {
        draft.put("request/cancel/share", number(share));
        draft.put("request/cancel/tokens", cancelled_after(draft));
        draft.account("--cancel-rate", &["request/cancel"]);
        draft.note("--cancel-rate", "after a uniform number of tokens");
    } else {
        draft.note("--cancel-rate", "0 cancels none");
    }
    Ok(())
}

/// The script stops after a token drawn from the whole length of the reply.
fn cancelled_after(draft: &Draft) -> serde_json::Value {
    use serde_json::{Value, json};
    let longest = match draft.get("request/max_tokens") {
        Some(Value::Object(range)) => range.get("uniform").and_then(|bounds| bounds.get(1)).and_then(Value::as_f64),
        Some(value) => value.as_f64(),
        None => None,
    };
    json!({ "uniform": [1, longest.unwrap_or(256.0) as u64] })
}
