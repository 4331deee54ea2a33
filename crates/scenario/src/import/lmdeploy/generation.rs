//! `profile_generation.py`: static batches of random prompts.

use super::engine;
use crate::import::draft::Draft;
use crate::import::line::{Flag, Takes, taken};
use crate::import::{ImportError, number};
use Takes::{Many, One};
use serde_json::{Value, json};

/// Every flag.
pub(super) const FLAGS: &[&[Flag]] = &[
    &[
        taken(&["--concurrency", "-c"], Many),
        taken(&["--prompt-tokens", "-pt"], Many),
        taken(&["--completion-tokens", "-ct"], Many),
        taken(&["--test-round", "-tr"], One),
        taken(&["--warmup-round", "-w"], One),
        taken(&["--rope-scaling-factor"], One),
    ],
    engine::FLAGS,
];

/// The lengths that the script pairs without flags.
const PROMPTS: [f64; 5] = [1.0, 128.0, 128.0, 2048.0, 2048.0];
const REPLIES: [f64; 5] = [128.0, 128.0, 2048.0, 128.0, 2048.0];

/// Puts the scenario together.
pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    draft.put("name", "lmdeploy-generation");
    engine::target(draft)?;
    engine::sampling(draft)?;
    draft.put("dataset/kind", "random");
    let or = |given: Vec<f64>, default: &[f64]| if given.is_empty() { default.to_vec() } else { given };
    let batches = or(draft.numbers("--concurrency")?, &[1.0, 16.0, 32.0, 64.0]);
    let prompts = or(draft.numbers("--prompt-tokens")?, &PROMPTS);
    let replies = or(draft.numbers("--completion-tokens")?, &REPLIES);
    if prompts.len() != replies.len() {
        let replies = replies.len().to_string();
        return Err(draft.wrong("--completion-tokens", &replies, "as many values as --prompt-tokens has"));
    }
    let longest = prompts.iter().zip(&replies).map(|(prompt, reply)| prompt + reply).fold(0.0, f64::max);
    let room = draft.number("--session-len")?.unwrap_or(2048.0).max(longest);
    draft.put("target/server/args/session_len", number(room));
    // The script starts its engine anew for every case; a server keeps it, which changes no case.
    draft.fill("--test-round", "load/static/rounds", 3);
    draft.carry_number("--test-round", "load/static/rounds")?;
    draft.put("load/static/barrier", "none");
    let warmup = draft.number("--warmup-round")?.unwrap_or(1.0);
    draft.fill("--warmup-round", "load/warmup", "1x");
    draft.put("load/warmup", if warmup > 0.0 { json!(format!("{warmup}x")) } else { json!(0) });
    draft.account("--warmup-round", &["load/warmup"]);
    axes(draft, [("dataset.tokens", prompts), ("request.max_tokens", replies)]);
    draft.one_or_axis("load/static/batch", batches.into_iter().map(number).collect());
    draft.account("--concurrency", &["load/static/batch"]);
    draft.account("--prompt-tokens", &["dataset/tokens"]);
    draft.account("--completion-tokens", &["request/max_tokens"]);
    draft.put("pause", "5s");
    Ok(())
}

/// Two lists whose values go together.
fn axes(draft: &mut Draft, lists: [(&str, Vec<f64>); 2]) {
    for (path, values) in lists {
        let values: Vec<Value> = values.into_iter().map(number).collect();
        draft.put(&path.replace('.', "/"), values.first().cloned().unwrap_or_default());
        if values.len() > 1 {
            draft.put(&format!("matrix/zip/{path}"), values);
        }
    }
}
