//! `python -m sglang.bench_serving` and `sglang.bench_one_batch_server`, after their arguments of SGLang 0.5.23.

use crate::import::bench_serving::{self, Script};
use crate::import::command::Command;
use crate::import::draft::{Draft, join, name, number};
use crate::import::flags::{FlagGroup, ImportError, Takes, dropped, translated};
use Takes::{Many, Nothing, One, Switch};
use serde_json::{Value, json};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        &[
            &["bench_serving"],
            &["bench_serving.py"],
            &["sglang.bench_serving"],
            &["sglang.benchmark.serving"],
            &["serving.py"],
        ],
        FLAGS,
        translate,
    ),
    Command::new(
        &[
            &["bench_one_batch_server"],
            &["bench_one_batch_server.py"],
            &["sglang.bench_one_batch_server"],
            &["sglang.benchmark.one_batch_server"],
            &["one_batch_server.py"],
        ],
        BATCH_FLAGS,
        translate_batch,
    ),
];

const SCRIPT: Script = Script {
    name: "sglang-bench",
    seed: 42,
    length: Some(1024.0),
};

fn translate(draft: &mut Draft) -> Result<(), ImportError> {
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
            draft.carry_cap("--max-concurrency")?;
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

const PROFILER: &str = "see `hooks`: `profile`";
const KEPT: &str = "see requests.parquet and the report";
const DATA: &str = "of a dataset that is read as a file with `kind: rows`";
const TURNS: &str = "see `dataset.turns`";
const NATIVE: &str = "a field of /generate; set the server's field in `request.extra`";

/// Every batch size × prompt length × output length is a batch that is sent at once.
fn translate_batch(draft: &mut Draft) -> Result<(), ImportError> {
    let tag = draft.text("--run-name").unwrap_or_default();
    draft.carry_value("--run-name", "name", name(&tag, "sglang-one-batch"));
    draft.carry_number_or("--seed", "seed", 42.0)?;
    let backend = draft.text("--backend").unwrap_or_else(|| "sglang".into());
    let base = draft
        .text("--base-url")
        .unwrap_or_else(|| "http://127.0.0.1:30000".into());
    draft.set("target/api", "openai-completions");
    draft.account("--backend", &["target/api"]);
    if backend == "sglang" {
        draft.note(
            "--backend",
            "the server's /v1/completions instead of its /generate",
        );
    }
    draft.carry_value("--base-url", "target/url", join(&base, "v1/completions"));
    // With `--model None` the script uses a server that runs.
    match draft.text("--model") {
        Some(model) if model != "None" => draft.carry("--model", "target/model"),
        _ => draft.note("--model", "the model of the server at --base-url"),
    }
    let adapters = draft.texts("--lora-name");
    if !adapters.is_empty() {
        draft.carry_value("--lora-name", "target/model", adapters);
    }
    draft.carry("--local-tokenizer-path", "dataset/tokenizer");
    draft.carry_number_or("--temperature", "request/temperature", 0.0)?;
    draft.set("request/ignore_eos", !draft.has("--disable-ignore-eos"));
    draft.account("--disable-ignore-eos", &["request/ignore_eos"]);
    draft.carry_switch("--return-logprob", "request/logprobs", true);
    batch_dataset(draft)?;
    draft.set("load/static/rounds", 1);
    draft.set(
        "load/warmup",
        if draft.has("--skip-warmup") {
            json!(0)
        } else {
            json!("1x")
        },
    );
    draft.account("--skip-warmup", &["load/warmup"]);
    for (flag, path, default) in [
        ("--batch-size", "load/static/batch", 1.0),
        ("--output-len", "request/max_tokens", 16.0),
    ] {
        axis(draft, flag, path, default)?;
    }
    Ok(())
}

fn axis(
    draft: &mut Draft,
    flag: &str,
    path: &'static str,
    default: f64,
) -> Result<(), ImportError> {
    draft.set_default(flag, path, number(default));
    let values = draft.numbers(flag)?;
    draft.one_or_axis(path, values.into_iter().map(number).collect());
    draft.account(flag, &[path]);
    Ok(())
}

fn batch_dataset(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(file) = draft.text("--fixed-prompt-file") {
        draft.set("dataset/kind", "prompt");
        draft.carry_value("--fixed-prompt-file", "dataset/text", format!("@{file}"));
        return Ok(());
    }
    let dataset = draft
        .text("--dataset-name")
        .unwrap_or_else(|| "random".into());
    match dataset.as_str() {
        "random" | "random-ids" => {
            draft.set("dataset/kind", "random");
            axis(draft, "--input-len", "dataset/tokens", 1024.0)?;
        }
        "generated-shared-prefix" => {
            draft.set("dataset/kind", "prefix");
            for (flag, path, default) in [
                ("--gsp-num-groups", "dataset/groups", 1.0),
                ("--gsp-system-prompt-len", "dataset/prefix_tokens", 2048.0),
                ("--gsp-question-len", "dataset/tokens", 128.0),
            ] {
                draft.carry_number_or(flag, path, default)?;
            }
            draft.note("--gsp-output-len", "--output-len limits every request");
        }
        "sharegpt" | "custom" => {
            draft.set("dataset/kind", "sharegpt");
            if !draft.has("--dataset-path") {
                return Err(ImportError::Missing("--dataset-path"));
            }
            draft.carry("--dataset-path", "dataset/path");
        }
        other => {
            return Err(draft.invalid(
                "--dataset-name",
                other,
                "random, random-ids, generated-shared-prefix, sharegpt or custom",
            ));
        }
    }
    draft.account("--dataset-name", &["dataset/kind"]);
    Ok(())
}

const BATCH_FLAGS: &[&[FlagGroup]] = &[&[
    translated(Many, "--batch-size --input-len --output-len --lora-name"),
    translated(
        One,
        "--run-name --temperature --base-url --local-tokenizer-path --dataset-path --dataset-name \
             --fixed-prompt-file --gsp-num-groups --gsp-system-prompt-len --gsp-question-len --gsp-output-len \
             --seed --backend --model|--model-path",
    ),
    translated(
        Nothing,
        "--disable-ignore-eos --return-logprob --skip-warmup",
    ),
    dropped(
        One,
        "--client-stream-interval",
        "set the server's field in `request.extra`",
    ),
    dropped(
        One,
        "--input-len-step-percentage --input-len-list",
        "write the lengths as a distribution: `dataset.tokens`",
    ),
    dropped(
        One,
        "--cache-hit-rate",
        "see `dataset.shared_prefix`: a prefix that the warm-up puts into the cache",
    ),
    dropped(
        Nothing,
        "--skip-token-capacity-check --enable-multi-batch",
        "llmscen does not limit a batch by the server's capacity",
    ),
    dropped(
        Nothing,
        "--apply-chat-template",
        "the server applies the template to messages: use `api: openai-chat`",
    ),
    dropped(Nothing, "--profile --profile-by-stage", PROFILER),
    dropped(Many, "--profile-activities", PROFILER),
    dropped(
        One,
        "--profile-start-step --profile-steps --profile-prefix --profile-output-dir",
        PROFILER,
    ),
    dropped(
        Nothing,
        "--parallel-batch",
        "requests of a batch are written together",
    ),
    dropped(
        Nothing,
        "--show-report --no-append-to-github-summary",
        "see `report.formats`",
    ),
    dropped(One, "--result-filename --pydantic-result-filename", KEPT),
    dropped(Many, "--server-args-for-metrics", KEPT),
    dropped(
        Nothing,
        "--fake-prefill",
        "set `bootstrap_host` and `bootstrap_room` in `request.extra`",
    ),
    dropped(
        Nothing,
        "--flush-hicache-storage",
        "see `dataset.cache_bust`",
    ),
    dropped(
        One,
        "--lora-request-distribution --lora-zipf-alpha",
        "each request draws a model from the seed",
    ),
]];

const FLAGS: &[&[FlagGroup]] = &[
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
