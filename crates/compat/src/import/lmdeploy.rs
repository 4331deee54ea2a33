//! LMDeploy's benchmark scripts, after its release 0.18.

use crate::import::bench_serving::{self, Script};
use crate::import::draft::{Draft, number, per_second};
use crate::import::flags::ImportError;
use serde_json::{Value, json};

const RESTFUL_SCRIPT: Script = Script {
    name: "lmdeploy-restful",
    seed: 1,
    length: None,
};

pub(super) fn translate_restful(draft: &mut Draft) -> Result<(), ImportError> {
    draft.set("name", RESTFUL_SCRIPT.name);
    bench_serving::target(draft)?;
    bench_serving::request(draft, &RESTFUL_SCRIPT)?;
    bench_serving::dataset(draft, &RESTFUL_SCRIPT, "--dataset-path")?;
    if draft.has("--tokenizer") {
        draft.note("--model-path", "overridden by `--tokenizer`");
    } else {
        draft.carry("--model-path", "dataset/tokenizer");
    }
    draft.set_default("--num-prompts", "load/requests", 1000);
    bench_serving::load(draft)?;
    if draft.has("--multi") {
        let rates = rates(draft)?;
        draft.one_or_axis("load/rate", rates.into_iter().map(per_second).collect());
        draft.account("--multi --request-rate-range", &["matrix/load.rate"]);
        draft.note(
            "--request-rate",
            "overridden by the rates of --request-rate-range with `--multi`",
        );
    } else {
        draft.note("--request-rate-range", "only used with --multi");
    }
    draft.set_default("--disable-warmup", "load/warmup", 1);
    draft.account("--disable-warmup", &["load/warmup"]);
    Ok(())
}

/// `START,STOP,STEP` without the stop, or a list of rates.
fn rates(draft: &Draft) -> Result<Vec<f64>, ImportError> {
    let given = draft.numbers("--request-rate-range")?;
    Ok(
        match if given.is_empty() {
            vec![2.0, 34.0, 2.0]
        } else {
            given
        }
        .as_slice()
        {
            [start, stop, step] if *step > 0.0 => {
                std::iter::successors(Some(*start), |rate| Some(rate + step))
                    .take_while(|rate| rate < stop)
                    .collect()
            }
            list => list.to_vec(),
        },
    )
}

/// The script's default pairs of prompt and output lengths.
const PROMPTS: [f64; 5] = [1.0, 128.0, 128.0, 2048.0, 2048.0];
const REPLIES: [f64; 5] = [128.0, 128.0, 2048.0, 128.0, 2048.0];

pub(super) fn translate_generation(draft: &mut Draft) -> Result<(), ImportError> {
    draft.set("name", "lmdeploy-generation");
    target(draft)?;
    sampling(draft)?;
    draft.set("dataset/kind", "random");
    let or = |given: Vec<f64>, default: &[f64]| {
        if given.is_empty() {
            default.to_vec()
        } else {
            given
        }
    };
    let batches = or(draft.numbers("--concurrency")?, &[1.0, 16.0, 32.0, 64.0]);
    let prompts = or(draft.numbers("--prompt-tokens")?, &PROMPTS);
    let replies = or(draft.numbers("--completion-tokens")?, &REPLIES);
    if prompts.len() != replies.len() {
        let replies = replies.len().to_string();
        return Err(draft.invalid(
            "--completion-tokens",
            &replies,
            "as many values as --prompt-tokens has",
        ));
    }
    let longest = prompts
        .iter()
        .zip(&replies)
        .map(|(prompt, reply)| prompt + reply)
        .fold(0.0, f64::max);
    let room = draft
        .number("--session-len")?
        .unwrap_or(2048.0)
        .max(longest);
    draft.set("target/server/args/session_len", number(room));
    // The script restarts its engine for every case; a server stays, which does not change the cases.
    draft.carry_number_or("--test-round", "load/static/rounds", 3.0)?;
    draft.set("load/static/barrier", "none");
    let warmup = draft.number("--warmup-round")?.unwrap_or(1.0);
    draft.set_default("--warmup-round", "load/warmup", "1x");
    draft.carry_value(
        "--warmup-round",
        "load/warmup",
        if warmup > 0.0 {
            json!(format!("{warmup}x"))
        } else {
            json!(0)
        },
    );
    axes(
        draft,
        [("dataset.tokens", prompts), ("request.max_tokens", replies)],
    );
    draft.one_or_axis(
        "load/static/batch",
        batches.into_iter().map(number).collect(),
    );
    draft.account("--concurrency", &["load/static/batch"]);
    draft.account("--prompt-tokens", &["dataset/tokens"]);
    draft.account("--completion-tokens", &["request/max_tokens"]);
    draft.set("pause", "5s");
    Ok(())
}

/// Two zipped lists.
fn axes(draft: &mut Draft, lists: [(&str, Vec<f64>); 2]) {
    for (path, values) in lists {
        let values: Vec<Value> = values.into_iter().map(number).collect();
        draft.set(
            &path.replace('.', "/"),
            values.first().cloned().unwrap_or_default(),
        );
        if values.len() > 1 {
            draft.set(&format!("matrix/zip/{path}"), values);
        }
    }
}

const THROUGHPUT_SCRIPT: Script = Script {
    name: "lmdeploy-throughput",
    seed: 0,
    length: None,
};

pub(super) fn translate_throughput(draft: &mut Draft) -> Result<(), ImportError> {
    draft.set("name", THROUGHPUT_SCRIPT.name);
    draft.carry_value(
        "--seed",
        "seed",
        number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)),
    );
    target(draft)?;
    sampling(draft)?;
    draft.carry_switch("--no-stream-output", "request/stream", false);
    bench_serving::dataset(draft, &THROUGHPUT_SCRIPT, "DATASET")?;
    draft.carry_number_or("--concurrency", "load/concurrency", 256.0)?;
    draft.carry_number_or("--num-prompts", "load/requests", 5000.0)?;
    let users = draft.number("--concurrency")?.unwrap_or(256.0);
    let engines = draft.number("--dp")?.unwrap_or(1.0).max(1.0);
    draft.carry_value(
        "--concurrency",
        "target/server/args/max_batch_size",
        number((users / engines).floor().max(1.0)),
    );
    if let Some(share) = draft.number("--cancel-rate")?.filter(|share| *share > 0.0) {
        draft.set("request/cancel/share", number(share));
        draft.set("request/cancel/tokens", cancelled_after(draft));
        draft.account("--cancel-rate", &["request/cancel"]);
        draft.note("--cancel-rate", "after a uniform number of tokens");
    } else {
        draft.note("--cancel-rate", "0 cancels no requests");
    }
    Ok(())
}

/// The script cancels after a random number of tokens up to the output length.
fn cancelled_after(draft: &Draft) -> serde_json::Value {
    use serde_json::{Value, json};
    let longest = match draft.get("request/max_tokens") {
        Some(Value::Object(range)) => range
            .get("uniform")
            .and_then(|bounds| bounds.get(1))
            .and_then(Value::as_f64),
        Some(value) => value.as_f64(),
        None => None,
    };
    json!({ "uniform": [1, longest.unwrap_or(256.0) as u64] })
}

/// Flags that `lmdeploy serve api_server` has under the same name.
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

/// The server, at LMDeploy's default port.
fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(model) = draft.text("MODEL_PATH") else {
        return Err(ImportError::Missing("model path"));
    };
    draft.set("target/api", "openai-completions");
    draft.set("target/url", "http://127.0.0.1:23333/v1/completions");
    draft.set("target/model", model.as_str());
    draft.set("target/server", json!({ "preset": "lmdeploy" }));
    draft.set("dataset/tokenizer", model);
    draft.account(
        "MODEL_PATH",
        &["target/model", "target/server", "dataset/tokenizer"],
    );
    draft.note(
        "MODEL_PATH",
        "the script runs the engine in its process; llmscen runs a server, over loopback",
    );
    for flag in SERVED {
        let path = format!(
            "target/server/args/{}",
            flag.trim_start_matches('-').replace('-', "_")
        );
        match draft.text(flag) {
            Some(text) => match text.parse::<f64>() {
                Ok(value) => draft.set(&path, number(value)),
                Err(_) => draft.set(&path, text),
            },
            None => continue,
        }
        draft.account(flag, &[&path]);
    }
    for flag in SWITCHES
        .into_iter()
        .filter(|flag| draft.has(flag))
        .collect::<Vec<_>>()
    {
        let path = format!(
            "target/server/args/{}",
            flag.trim_start_matches('-').replace('-', "_")
        );
        draft.set(&path, true);
        draft.account(flag, &[&path]);
    }
    Ok(())
}

/// LMDeploy's sampling defaults, and outputs of exactly the requested length.
fn sampling(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path, default) in [
        ("--temperature", "request/temperature", 0.8),
        ("--top-p", "request/top_p", 0.8),
        ("--top-k", "request/top_k", 1.0),
    ] {
        draft.carry_number_or(flag, path, default)?;
    }
    draft.set("request/ignore_eos", true);
    Ok(())
}
