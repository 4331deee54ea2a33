//! `python -m sglang.bench_serving`, after its arguments of SGLang 0.5.23.

use crate::import::bench_serving::Script;
use crate::import::command::{Flag, Takes, left, taken};
use crate::import::draft::{Draft, name};
use crate::import::{ImportError, bench_serving, number};
use Takes::{Many, Nothing, One, Truth};
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
    bench_serving::goodput(draft, "SGLang")
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
            bench_serving::load(draft)?;
            let count = |path: &str| draft.get(path).and_then(Value::as_f64).unwrap_or(1.0);
            let requests = count("dataset/groups") * count("dataset/per_group");
            draft.put("load/requests", number(requests));
            draft.note("--num-prompts", "this dataset sends groups times prompts of a group");
        }
        _ => {
            draft.fill("--num-prompts", "load/requests", 1000);
            bench_serving::load(draft)?;
        }
    }
    draft.fill("--warmup-requests", "load/warmup", 1);
    draft.carry_number("--warmup-requests", "load/warmup")?;
    draft.note("--warmup-requests", "the tool cuts their replies to 32 tokens");
    Ok(())
}

const PROFILER: &str = "llmscen does not drive the server's profiler";
const KEPT: &str = "requests.parquet and the report have it";
const DATA: &str = "the dataset that it is about is not one that is carried over";
const TURNS: &str = "conversations come from data: `dataset: { kind: sharegpt, turns: {} }`";
const NATIVE: &str = "a field of /generate; put the server's own field into `request.extra`";

/// Every flag.
pub(super) const FLAGS: &[&[Flag]] = &[
    bench_serving::FLAGS,
    &[
        left(&["--ready-check-timeout-sec"], One, "a server that does not answer fails the run at once"),
        left(&["--dataset-offset"], One, DATA),
        left(&["--agentic-max-turns"], One, DATA),
        left(&["--speed-bench-category", "--speed-bench-output-len"], One, DATA),
        taken(&["--served-model-name"], One),
        taken(&["--sharegpt-context-len"], One),
        left(&["--random-image-count"], Nothing, "every request has `dataset.count` pictures"),
        taken(&["--use-trace-timestamps"], Truth),
        taken(&["--max-concurrency"], One),
        left(&["--output-details"], Nothing, KEPT),
        taken(&["--goodput"], Many),
        left(&["--print-requests"], Nothing, "`llmscen plan` shows the first request"),
        taken(&["--return-logprob"], Nothing),
        taken(&["--top-logprobs-num"], One),
        left(&["--token-ids-logprob"], Many, NATIVE),
        left(&["--logprob-start-len"], One, NATIVE),
        left(&["--return-routed-experts"], Nothing, NATIVE),
        left(&["--cache-report"], Nothing, "the report has cached tokens wherever the server counts them"),
        taken(&["--temperature"], One),
        taken(&["--top-p"], One),
        left(&["--apply-chat-template"], Nothing, "the server applies it to messages: take a -chat backend"),
        left(&["--profile", "--profile-by-stage"], Nothing, PROFILER),
        left(&["--plot-throughput"], Nothing, "the report has throughput over time"),
        left(&["--profile-activities", "--profile-stages", "--profile-prefill-url", "--profile-decode-url"], Many, PROFILER),
        left(&["--profile-start-step", "--profile-steps", "--profile-num-steps"], One, PROFILER),
        left(&["--profile-output-dir", "--profile-prefix"], One, PROFILER),
        taken(&["--lora-name"], Many),
        left(&["--lora-request-distribution", "--lora-zipf-alpha"], One, "each request draws one of the models on the seed"),
        left(&["--prompt-suffix"], One, "put it into `request.template`, behind `{{ prompt }}`"),
        left(&["--pd-separated"], Nothing, "it changes the profiler alone"),
        left(&["--flush-cache"], Nothing, "see `dataset.cache_bust`"),
        left(&["--flush-cache-timeout"], One, "see `dataset.cache_bust`"),
        taken(&["--warmup-requests"], One),
        left(&["--tokenize-prompt"], Nothing, "prompts are sent as text"),
        left(&["--fake-prefill"], Nothing, "put `bootstrap_host` and `bootstrap_room` into `request.extra`"),
        taken(&["--tag"], One),
        taken(&["--header"], Many),
        left(&["--rust-client"], Nothing, "llmscen is the client"),
        left(&["--rust-worker-threads"], One, "llmscen is the client"),
    ],
    &[
        taken(&["--gsp-num-groups"], One),
        taken(&["--gsp-prompts-per-group"], One),
        taken(&["--gsp-system-prompt-len"], One),
        taken(&["--gsp-question-len"], One),
        taken(&["--gsp-output-len"], One),
        taken(&["--gsp-range-ratio"], One),
        left(&["--gsp-fast-prepare"], Nothing, "prompts are drawn while the run goes on"),
        left(&["--gsp-send-routing-key"], Nothing, "a header is the same for every request"),
        left(&["--gsp-num-turns"], One, TURNS),
        left(&["--gsp-ordered"], Nothing, "the groups take turns"),
        left(&["--gsp-group-distribution", "--gsp-zipf-alpha"], One, "every group has the same number of prompts"),
        taken(&["--mooncake-slowdown-factor"], One),
        left(&["--mooncake-num-rounds"], One, TURNS),
        left(&["--mooncake-workload"], One, "the trace is the file of --dataset-path"),
    ],
];
