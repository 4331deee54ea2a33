//! `python -m sglang.bench_serving`, after its arguments of SGLang 0.5.23.

use crate::import::bench_serving::{self, Script};
use crate::import::draft::{Draft, name, number};
use crate::import::flags::{FlagGroup, ImportError, Takes, dropped, translated};
use Takes::{Many, Nothing, One, Switch};
use serde_json::Value;

const SCRIPT: Script = Script {
    name: "sglang-bench",
    seed: 42,
    length: Some(1024.0),
};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let tag = draft.text("--tag").unwrap_or_default();
    draft.carry_value("--tag", "name", name(&tag, SCRIPT.name));
    bench_serving::target(draft)?;
    bench_serving::request(draft, &SCRIPT)?;
    logprobs(draft)?;
    bench_serving::dataset(draft, &SCRIPT, "--dataset-path")?;
    load(draft)?;
    bench_serving::goodput(draft, "SGLang")
}

fn logprobs(draft: &mut Draft) -> Result<(), ImportError> {
    if draft.has("--return-logprob") {
        match draft
            .number("--top-logprobs-num")?
            .filter(|count| *count > 0.0)
        {
            Some(count) => draft.set("request/logprobs", number(count)),
            None => draft.set("request/logprobs", true),
        }
        draft.account("--return-logprob --top-logprobs-num", &["request/logprobs"]);
    } else {
        draft.note("--top-logprobs-num", "only used with --return-logprob");
    }
    Ok(())
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    match draft.get("dataset/kind").and_then(Value::as_str) {
        Some("trace") => {
            draft.carry_number_or("--num-prompts", "load/requests", 1000.0)?;
            draft.note("--request-rate", "the trace determines the arrivals");
            draft.note(
                "--max-concurrency",
                "an open loop sends requests on schedule",
            );
        }
        Some("prefix") => {
            bench_serving::load(draft)?;
            let count = |path: &str| draft.get(path).and_then(Value::as_f64).unwrap_or(1.0);
            let requests = count("dataset/groups") * count("dataset/per_group");
            draft.set("load/requests", number(requests));
            draft.note(
                "--num-prompts",
                "this dataset sends groups × prompts per group",
            );
        }
        _ => {
            draft.set_default("--num-prompts", "load/requests", 1000);
            bench_serving::load(draft)?;
        }
    }
    draft.carry_number_or("--warmup-requests", "load/warmup", 1.0)?;
    draft.note(
        "--warmup-requests",
        "the tool limits their replies to 32 tokens",
    );
    Ok(())
}

const PROFILER: &str = "llmscen does not control the server's profiler";
const KEPT: &str = "see requests.parquet and the report";
const DATA: &str = "its dataset is not supported";
const TURNS: &str = "use a dataset with conversations: `dataset: { kind: sharegpt, turns: {} }`";
const NATIVE: &str = "a field of /generate; set the server's field in `request.extra`";

pub(super) const FLAGS: &[&[FlagGroup]] = &[
    bench_serving::FLAGS,
    &[
        translated(
            One,
            "--served-model-name --sharegpt-context-len --max-concurrency --top-logprobs-num --temperature --top-p \
             --warmup-requests --tag --gsp-num-groups --gsp-prompts-per-group --gsp-system-prompt-len \
             --gsp-question-len --gsp-output-len --gsp-range-ratio --mooncake-slowdown-factor",
        ),
        translated(Switch, "--use-trace-timestamps"),
        translated(Many, "--goodput --lora-name --header"),
        translated(Nothing, "--return-logprob"),
        dropped(
            One,
            "--ready-check-timeout-sec",
            "an unreachable server is reported immediately",
        ),
        dropped(
            One,
            "--dataset-offset --agentic-max-turns --speed-bench-category --speed-bench-output-len",
            DATA,
        ),
        dropped(
            Nothing,
            "--random-image-count",
            "every request has `dataset.count` images",
        ),
        dropped(Nothing, "--output-details", KEPT),
        dropped(
            Nothing,
            "--print-requests",
            "`llmscen plan` shows the first request",
        ),
        dropped(Many, "--token-ids-logprob", NATIVE),
        dropped(One, "--logprob-start-len", NATIVE),
        dropped(Nothing, "--return-routed-experts", NATIVE),
        dropped(
            Nothing,
            "--cache-report",
            "the report shows cached tokens if the server counts them",
        ),
        dropped(
            Nothing,
            "--apply-chat-template",
            "the server applies the template to messages: use a -chat backend",
        ),
        dropped(Nothing, "--profile --profile-by-stage", PROFILER),
        dropped(
            Nothing,
            "--plot-throughput",
            "the report shows throughput over time",
        ),
        dropped(
            Many,
            "--profile-activities --profile-stages --profile-prefill-url --profile-decode-url",
            PROFILER,
        ),
        dropped(
            One,
            "--profile-start-step --profile-steps --profile-num-steps --profile-output-dir --profile-prefix",
            PROFILER,
        ),
        dropped(
            One,
            "--lora-request-distribution --lora-zipf-alpha",
            "each request draws a model from the seed",
        ),
        dropped(
            One,
            "--prompt-suffix",
            "append it to `request.template`, after `{{ prompt }}`",
        ),
        dropped(Nothing, "--pd-separated", "it only affects the profiler"),
        dropped(Nothing, "--flush-cache", "see `dataset.cache_bust`"),
        dropped(One, "--flush-cache-timeout", "see `dataset.cache_bust`"),
        dropped(Nothing, "--tokenize-prompt", "prompts are sent as text"),
        dropped(
            Nothing,
            "--fake-prefill",
            "set `bootstrap_host` and `bootstrap_room` in `request.extra`",
        ),
        dropped(Nothing, "--rust-client", "llmscen is the client"),
        dropped(One, "--rust-worker-threads", "llmscen is the client"),
        dropped(
            Nothing,
            "--gsp-fast-prepare",
            "prompts are generated during the run",
        ),
        dropped(
            Nothing,
            "--gsp-send-routing-key",
            "a header is the same for every request",
        ),
        dropped(One, "--gsp-num-turns --mooncake-num-rounds", TURNS),
        dropped(Nothing, "--gsp-ordered", "the groups alternate"),
        dropped(
            One,
            "--gsp-group-distribution --gsp-zipf-alpha",
            "every group has the same number of prompts",
        ),
        dropped(
            One,
            "--mooncake-workload",
            "the trace is the file of --dataset-path",
        ),
    ],
];
