//! The engine that two of the scripts run inside of themselves: here a server that the run starts.

use crate::import::draft::Draft;
use crate::import::line::{Flag, Takes, left, taken};
use crate::import::{ImportError, number};
use Takes::{Nothing, One};
use serde_json::json;

/// The flags of the engine, and of sampling.
pub(super) const FLAGS: &[Flag] = &[
    taken(&["--top-p"], One),
    taken(&["--top-k"], One),
    taken(&["--temperature", "-temp"], One),
    taken(&["--backend"], One),
    taken(&["--tp"], One),
    taken(&["--session-len"], One),
    taken(&["--cache-max-entry-count"], One),
    taken(&["--cache-block-seq-len"], One),
    taken(&["--enable-prefix-caching"], Nothing),
    taken(&["--dtype"], One),
    taken(&["--eager-mode"], Nothing),
    taken(&["--model-format"], One),
    left(&["--csv"], One, "cases.csv is written anyway; `report.compat: [lmdeploy]` writes the script's own form"),
];

/// The flags that `lmdeploy serve api_server` has by the same name.
const SERVED: [&str; 15] = [
    "--backend",
    "--tp",
    "--dp",
    "--session-len",
    "--cache-max-entry-count",
    "--cache-block-seq-len",
    "--dtype",
    "--model-format",
    "--rope-scaling-factor",
    "--quant-policy",
    "--num-tokens-per-iter",
    "--max-prefill-iters",
    "--communicator",
    "--distributed-executor-backend",
    "--max-batch-size",
];

const SWITCHES: [&str; 2] = ["--enable-prefix-caching", "--eager-mode"];

/// The server, at LMDeploy's own port.
pub(super) fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(model) = draft.text("MODEL_PATH") else { return Err(ImportError::Missing("model path")) };
    draft.put("target/api", "openai-completions");
    draft.put("target/url", "http://127.0.0.1:23333/v1/completions");
    draft.put("target/model", model.as_str());
    draft.put("target/server", json!({ "preset": "lmdeploy" }));
    draft.put("dataset/tokenizer", model);
    draft.account("MODEL_PATH", &["target/model", "target/server", "dataset/tokenizer"]);
    draft.note("MODEL_PATH", "the script runs the engine inside of itself; here a server runs it, over loopback");
    for flag in SERVED {
        let path = format!("target/server/args/{}", flag.trim_start_matches('-').replace('-', "_"));
        match draft.text(flag) {
            Some(text) => match text.parse::<f64>() {
                Ok(value) => draft.put(&path, number(value)),
                Err(_) => draft.put(&path, text),
            },
            None => continue,
        }
        draft.account(flag, &[&path]);
    }
    for flag in SWITCHES.into_iter().filter(|flag| draft.has(flag)).collect::<Vec<_>>() {
        let path = format!("target/server/args/{}", flag.trim_start_matches('-').replace('-', "_"));
        draft.put(&path, true);
        draft.account(flag, &[&path]);
    }
    Ok(())
}

/// Sampling: LMDeploy's own defaults, and every reply as long as it was asked for.
pub(super) fn sampling(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path, default) in
        [("--temperature", "request/temperature", 0.8), ("--top-p", "request/top_p", 0.8), ("--top-k", "request/top_k", 1.0)]
    {
        draft.fill(flag, path, number(default));
        draft.carry_number(flag, path)?;
    }
    draft.put("request/ignore_eos", true);
    Ok(())
}
