//! The dataset and the load of `evalscope perf`, and its SLA search.

use crate::import::draft::{Draft, between, number, per_second, seconds};
use crate::import::flags::ImportError;
use serde_json::{Map, Value, json};

pub(super) fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let rates = draft.numbers("--rate")?;
    let users = draft.numbers("--parallel")?;
    if draft.get("dataset/kind").and_then(Value::as_str) == Some("trace") {
        return replay(draft);
    }
    if let Some(wrong) = rates.iter().find(|rate| **rate <= 0.0 && **rate != -1.0) {
        return Err(draft.invalid(
            "--rate",
            &wrong.to_string(),
            "a rate above 0, or -1 for no rate limit",
        ));
    }
    let open = draft.is_on("--open-loop") || rates.iter().any(|rate| *rate > 0.0);
    let counts = draft.numbers("--number")?;
    let amount = if is_conversation(draft) {
        "load.sessions"
    } else {
        "load.requests"
    };
    let (dial, levels): (&str, Vec<Value>) = if open {
        if let Some(wrong) = rates.iter().find(|rate| **rate <= 0.0) {
            return Err(draft.invalid(
                "--rate",
                &wrong.to_string(),
                "a rate above 0 for an open loop",
            ));
        }
        (
            "load.rate",
            rates.iter().map(|rate| per_second(*rate)).collect(),
        )
    } else {
        (
            "load.concurrency",
            users.iter().map(|users| number(*users)).collect(),
        )
    };
    if open && levels.is_empty() {
        return Err(ImportError::Missing("--rate, which an open loop needs"));
    }
    let levels = if levels.is_empty() {
        vec![json!(1)]
    } else {
        levels
    };
    let counts: Vec<Value> = counts.into_iter().map(number).collect();
    let several = counts.len() > 1;
    if several && counts.len() != levels.len() {
        return Err(draft.invalid(
            "--number",
            &counts.len().to_string(),
            "one number, or as many numbers as loads",
        ));
    }
    if several && counts.windows(2).any(|pair| pair.first() != pair.last()) {
        for (path, values) in [(dial, levels), (amount, counts)] {
            draft.set(
                &path.replace('.', "/"),
                values.first().cloned().unwrap_or_default(),
            );
            draft.set(&format!("matrix/zip/{path}"), values);
        }
    } else {
        draft.one_or_axis(&dial.replace('.', "/"), levels);
        draft.one_or_axis(
            &amount.replace('.', "/"),
            counts.into_iter().take(1).collect(),
        );
    }
    if draft.has("--scenario") {
        agentx(draft)?;
    } else if amount == "load.sessions" {
        draft.set_default("--number", "load/sessions", 1000);
    } else {
        draft.set_default("--number", "load/requests", 1000);
    }
    if !open {
        draft.set_default("--parallel", "load/concurrency", 1);
    }
    account_load(draft, open, dial, amount)?;
    bounds(draft)
}

fn account_load(
    draft: &mut Draft,
    open: bool,
    dial: &str,
    amount: &str,
) -> Result<(), ImportError> {
    draft.account("--number", &[amount]);
    if open {
        draft.account("--rate --open-loop", &[dial]);
        if draft.has("--open-loop") {
            draft.note("--parallel", "evalscope does not limit an open loop");
        } else {
            draft.carry_cap("--parallel")?;
            draft.note("--parallel", "an open loop sends requests on schedule");
            draft.note(
                "--rate",
                "an open loop: evalscope delays requests beyond --parallel, and \
            does not report the delay",
            );
        }
    } else {
        draft.account("--parallel --rate", &[dial]);
        draft.note(
            "--rate",
            "no rate limit: evalscope submits all requests at once and keeps --parallel of them \
            in flight, a closed loop",
        );
    }
    Ok(())
}

/// `--dataset workload_trace`: requests are sent at the timestamps of the log.
fn replay(draft: &mut Draft) -> Result<(), ImportError> {
    draft.set("dataset/trace/layout", "workload");
    if draft.get("load/trace").is_none() {
        draft.set("load/trace", json!({}));
    }
    draft.carry_number("--number", "load/requests")?;
    draft.account("--open-loop", &["load/trace"]);
    draft.note("--rate --parallel", "the log determines the arrivals");
    bounds(draft)
}

/// AgentX runs end after 30 minutes, or 1 minute in smoke mode.
fn agentx(draft: &mut Draft) -> Result<(), ImportError> {
    let smoke = draft
        .text("--scenario")
        .is_some_and(|scenario| scenario.contains("\"smoke\""));
    if !draft.has("--number") {
        draft.set_default(
            "--duration",
            "load/duration",
            if smoke { "60s" } else { "1800s" },
        );
    }
    Ok(())
}

fn bounds(draft: &mut Draft) -> Result<(), ImportError> {
    draft.carry_seconds("--duration", "load/duration")?;
    match draft.number("--warmup-num")? {
        Some(share) if share > 0.0 && share < 1.0 => {
            let number_of = draft
                .numbers("--number")?
                .first()
                .copied()
                .unwrap_or(1000.0);
            draft.carry_value(
                "--warmup-num",
                "load/warmup",
                number((share * number_of).floor().max(1.0)),
            );
            draft.note("--warmup-num", "a share of the first --number");
        }
        Some(count) => {
            draft.carry_value(
                "--warmup-num",
                "load/warmup",
                number(count.max(0.0).floor()),
            );
        }
        None => {}
    }
    draft.set_default("--sleep-interval", "pause", "5s");
    draft.carry_seconds("--sleep-interval", "pause")
}

/// `--sla-auto-tune`: a capacity search.
pub(super) fn search(draft: &mut Draft) -> Result<(), ImportError> {
    let rate = draft
        .text("--sla-variable")
        .is_some_and(|variable| variable == "rate");
    let vary = if rate {
        "load.rate"
    } else {
        "load.concurrency"
    };
    let start = draft
        .numbers(if rate { "--rate" } else { "--parallel" })?
        .first()
        .copied()
        .filter(|start| *start > 0.0);
    let high = draft.number("--sla-upper-bound")?.unwrap_or(65_536.0);
    let low = draft.number("--sla-lower-bound")?.unwrap_or(high.min(1.0));
    if high < low {
        return Err(draft.invalid(
            "--sla-upper-bound",
            &high.to_string(),
            "a number not below --sla-lower-bound",
        ));
    }
    let start = start.unwrap_or(low).clamp(low, high);
    draft.set(
        &vary.replace('.', "/"),
        if rate {
            per_second(start)
        } else {
            number(start)
        },
    );
    let multiplier = draft.number("--sla-number-multiplier")?.unwrap_or(2.0);
    match rate {
        // N requests per unit of rate take N seconds.
        true => draft.set("load/duration", seconds(multiplier.max(1.0))),
        false => draft.set("load/requests", format!("{}x", multiplier.ceil().max(1.0))),
    }
    draft.account(
        "--sla-number-multiplier",
        &[if rate {
            "load/duration"
        } else {
            "load/requests"
        }],
    );
    draft.set("search/vary", vary);
    draft.carry_or_default(
        "--sla-upper-bound",
        "search/range",
        json!([number(low), number(high)]),
    );
    draft.set_default("--sla-num-runs", "search/confirm", 2);
    draft.set(
        "search/confirm",
        number((draft.number("--sla-num-runs")?.unwrap_or(3.0) - 1.0).max(0.0)),
    );
    draft.account("--sla-auto-tune", &["search"]);
    draft.account("--sla-variable", &["search/vary"]);
    draft.account(if rate { "--rate" } else { "--parallel" }, &["load"]);
    draft.note(
        if rate { "--rate" } else { "--parallel" },
        "the start of the search",
    );
    draft.note("--number", "the length of a probe depends on its load");
    draft.account("--sla-lower-bound --sla-upper-bound", &["search/range"]);
    draft.account("--sla-num-runs", &["search/confirm"]);
    criteria(draft)?;
    bounds(draft)
}

/// The criteria, such as `[{"p99_ttft": "<=2s"}]`.
fn criteria(draft: &mut Draft) -> Result<(), ImportError> {
    let Some(groups) = draft.json("--sla-params")? else {
        return Err(ImportError::Missing(
            "--sla-params, which an SLA search needs",
        ));
    };
    let groups = match groups {
        Value::Array(groups) => groups,
        one => vec![one],
    };
    let many = groups.len() > 1;
    let mut aims = Vec::new();
    for group in groups.iter().take(1) {
        let Value::Object(criteria) = group else {
            return Err(draft.invalid("--sla-params", &group.to_string(), "an object of criteria"));
        };
        for (metric, limit) in criteria {
            let limit = limit.as_str().unwrap_or_default().trim().to_owned();
            match (subject(metric), limit.as_str()) {
                (Some(_), "max" | "min") => aims.push(metric.clone()),
                (Some((subject, unit)), limit) => {
                    draft.add_point_limit(expression(draft, &subject, unit, limit)?);
                    if unit == "ms" && limit.ends_with(|last: char| last.is_ascii_digit()) {
                        draft.note(
                            "--sla-params",
                            "a bare ttft or tpot is in milliseconds; before evalscope 1.14 it was in seconds",
                        );
                    }
                }
                (None, _) => {
                    return Err(draft.invalid(
                        "--sla-params",
                        metric,
                        "avg_ or p99_ of latency, ttft or tpot, or rps or tps",
                    ));
                }
            }
        }
    }
    draft.account("--sla-params", &["slo"]);
    if many {
        draft.note(
            "--sla-params",
            "only the first group: search each further one with its own file",
        );
    } else if !aims.is_empty() {
        draft.note(
            "--sla-params",
            format!(
                "{} has no threshold to search for; the search finds the largest load without \
            errors",
                aims.join(" and ")
            ),
        );
    }
    // A probe with a failed request does not meet the criteria.
    draft.add_point_limit("error_rate <= 0%".into());
    Ok(())
}

/// The metric in our notation, and the unit of a bare value.
fn subject(metric: &str) -> Option<(String, &'static str)> {
    match metric {
        "rps" => return Some(("request_throughput".into(), "req/s")),
        "tps" => return Some(("output_tps".into(), "tok/s")),
        _ => {}
    }
    let (stat, metric) = metric.split_once('_')?;
    let stat = match stat {
        "avg" => "mean",
        "p50" | "p90" | "p99" => stat,
        _ => return None,
    };
    let (metric, unit) = match metric {
        "latency" => ("e2e", "s"),
        "ttft" => ("ttft", "ms"),
        "tpot" => ("tpot", "ms"),
        _ => return None,
    };
    Some((format!("{metric}.{stat}"), unit))
}

fn expression(
    draft: &Draft,
    subject: &str,
    unit: &str,
    limit: &str,
) -> Result<String, ImportError> {
    let op = ["<=", ">=", "<", ">"]
        .into_iter()
        .find(|op| limit.starts_with(op));
    let Some(op) = op else {
        return Err(draft.invalid("--sla-params", limit, "a limit such as <=2s"));
    };
    let value = limit.trim_start_matches(op).trim();
    let bare = value.parse::<f64>().is_ok();
    Ok(if bare {
        format!(
            "{subject} {op} {value}{}{unit}",
            if unit.contains('/') { " " } else { "" }
        )
    } else {
        format!("{subject} {op} {value}")
    })
}

const SMALL: &str = "a small sample that ships with llmscen; set `dataset.path` for your own file";
const PICTURES: &str = "generated images instead of those of the dataset";
const MADE_UP: &str = "real conversations instead of synthetic ones; their lengths differ";
const DRAWN: &str = "texts of the dataset instead of random tokens";

/// evalscope's name, our kind, and what differs.
const DATASETS: &[(&str, &str, &str)] = &[
    ("openqa", "openqa", ""),
    ("longalpaca", "longalpaca", ""),
    ("line_by_line", "line_by_line", ""),
    ("custom", "line_by_line", ""),
    ("random", "random", ""),
    ("random_vl", "images", ""),
    ("flickr8k", "images", PICTURES),
    ("kontext_bench", "images", PICTURES),
    ("mmmu_multi_image", "images", PICTURES),
    ("share_gpt_zh", "sharegpt", ""),
    ("share_gpt_en", "sharegpt", ""),
    ("share_gpt_zh_multi_turn", "sharegpt", ""),
    ("share_gpt_en_multi_turn", "sharegpt", ""),
    ("custom_multi_turn", "messages", ""),
    ("random_multi_turn", "messages", MADE_UP),
    (
        "swe_smith",
        "messages",
        "convert each conversation to a list of messages, one per line",
    ),
    ("trie_agentic_coding", "messages", MADE_UP),
    ("trie_code_qa", "messages", MADE_UP),
    ("trie_office_work", "messages", MADE_UP),
    (
        "speed_benchmark",
        "speed_benchmark",
        "evalscope sends 1, 6144, 14336 and 30720 tokens, each twice; llmscen also sends 2048, and 96 instead of 1",
    ),
    ("speed_benchmark_long", "speed_benchmark_long", ""),
    ("embedding", "embeddings", ""),
    ("embed", "embeddings", ""),
    ("embedding_batch", "embeddings", ""),
    ("batch_embedding", "embeddings", ""),
    ("random_embedding", "embeddings", DRAWN),
    ("random_embedding_batch", "embeddings", DRAWN),
    ("random_batch_embedding", "embeddings", DRAWN),
    ("rerank", "rerank", ""),
    ("random_rerank", "rerank", DRAWN),
    ("workload_trace", "trace", ""),
];

const EXPECTED: &str = "openqa, longalpaca, line_by_line, custom, random, random_vl, \
    random_multi_turn, flickr8k, kontext_bench, mmmu_multi_image, share_gpt_*, custom_multi_turn, \
    swe_smith, trie_*, speed_benchmark, speed_benchmark_long, embedding, rerank or workload_trace";

pub(super) fn dataset_name(draft: &Draft) -> String {
    draft.text("--dataset").unwrap_or_else(|| "openqa".into())
}

/// Whether requests are turns of conversations.
pub(super) fn is_conversation(draft: &Draft) -> bool {
    let dataset = dataset_name(draft);
    let always =
        dataset.ends_with("_multi_turn") || dataset.starts_with("trie_") || dataset == "swe_smith";
    draft.is_on("--multi-turn") || draft.has("--scenario") || always
}

pub(super) fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    if draft.has("--scenario") {
        draft.set("dataset/kind", "messages");
        draft.set("dataset/path", "builtin");
        draft.set("dataset/turns", json!({}));
        draft.account("--scenario", &["dataset.turns", "load.duration"]);
        draft.note(
            "--scenario",
            "AgentX runs AIPerf with its own sessions; llmscen uses the \
        conversations of `dataset.path`",
        );
        draft.note("--dataset", "--scenario takes its place");
        return Ok(());
    }
    if let Some(prompt) = draft.text("--prompt") {
        draft.set("dataset/kind", "prompt");
        draft.carry_value("--prompt", "dataset/text", prompt);
        draft.note("--dataset", "overridden by `--prompt`");
        return Ok(());
    }
    let dataset = dataset_name(draft);
    let Some((_, kind, differs)) = DATASETS.iter().find(|(name, ..)| *name == dataset) else {
        return Err(draft.invalid("--dataset", &dataset, EXPECTED));
    };
    draft.carry_or_default("--dataset", "dataset/kind", *kind);
    if !differs.is_empty() {
        draft.note("--dataset", *differs);
    }
    path(draft, kind)?;
    if is_conversation(draft) {
        draft.set("dataset/turns", json!({}));
        draft.carry_number("--max-turns", "dataset/turns/max")?;
        draft.account("--multi-turn", &["dataset/turns"]);
    } else {
        draft.note("--max-turns", "only used with --multi-turn");
    }
    lengths(draft, kind, &dataset)?;
    if *kind == "images" {
        let [width, height] = [
            draft.number("--image-width")?,
            draft.number("--image-height")?,
        ]
        .map(|side| side.unwrap_or(224.0));
        draft.carry_value(
            "--image-width",
            "dataset/sizes",
            json!([format!("{width}x{height}")]),
        );
        draft.account("--image-height", &["dataset/sizes"]);
        draft.carry_number("--image-num", "dataset/count")?;
    }
    arguments(draft, &dataset)
}

fn path(draft: &mut Draft, kind: &str) -> Result<(), ImportError> {
    let takes = matches!(
        kind,
        "openqa"
            | "longalpaca"
            | "line_by_line"
            | "messages"
            | "sharegpt"
            | "trace"
            | "embeddings"
            | "rerank"
    );
    match (draft.has("--dataset-path"), kind) {
        (true, _) if takes => draft.carry("--dataset-path", "dataset/path"),
        (true, _) => draft.note("--dataset-path", "this dataset does not read a file"),
        (false, "line_by_line" | "trace") => return Err(ImportError::Missing("--dataset-path")),
        (false, "messages" | "sharegpt" | "embeddings" | "rerank") => {
            draft.set("dataset/path", "builtin");
            draft.note("--dataset", SMALL);
        }
        (false, _) => {}
    }
    Ok(())
}

/// `--min-prompt-length` and `--max-prompt-length`: generated lengths, shaped lengths, or a filter of rows.
fn lengths(draft: &mut Draft, kind: &str, dataset: &str) -> Result<(), ImportError> {
    let least = draft.number("--min-prompt-length")?;
    let most = draft.number("--max-prompt-length")?;
    if kind == "random" {
        return random(draft, least, most);
    }
    draft.note(
        "--prefix-length --prefix-count",
        "only used with `--dataset random`",
    );
    if dataset.starts_with("random_") && kind == "embeddings" && (least.is_some() || most.is_some())
    {
        draft.set(
            "dataset/shape/tokens",
            between(least.unwrap_or(0.0).max(1.0), most.unwrap_or(131_072.0)),
        );
        draft.account(
            "--min-prompt-length --max-prompt-length",
            &["dataset/shape"],
        );
        return Ok(());
    }
    if matches!(
        kind,
        "images" | "rerank" | "trace" | "speed_benchmark" | "speed_benchmark_long"
    ) || dataset.starts_with("random_")
    {
        let why = if kind == "images" {
            "the text next to the images is `dataset.text`"
        } else {
            "the dataset determines the lengths"
        };
        draft.note("--min-prompt-length", why);
        draft.note("--max-prompt-length", why);
        return Ok(());
    }
    for (flag, path) in [
        ("--min-prompt-length", "dataset/prompt_tokens/min"),
        ("--max-prompt-length", "dataset/prompt_tokens/max"),
    ] {
        draft.carry_number(flag, path)?;
        if !draft.has("--tokenizer-path") {
            draft.note(
                flag,
                "in tokens; evalscope counts characters without a tokenizer",
            );
        }
    }
    Ok(())
}

/// evalscope adds the prefix to the length; here the length includes it.
fn random(draft: &mut Draft, least: Option<f64>, most: Option<f64>) -> Result<(), ImportError> {
    let least = least.unwrap_or(0.0).max(1.0);
    let most = most.unwrap_or(131_072.0);
    let shared = draft.number("--prefix-length")?.unwrap_or(0.0);
    let prefixes = draft.number("--prefix-count")?.unwrap_or(1.0);
    draft.set_default(
        "--max-prompt-length",
        "dataset/tokens",
        between(least, most),
    );
    draft.carry_value(
        "--min-prompt-length",
        "dataset/tokens",
        between(least, most),
    );
    draft.account("--max-prompt-length", &["dataset/tokens"]);
    if shared > 0.0 {
        draft.shared_prefix(prefixes, shared, between(least + shared, most + shared));
    }
    if prefixes > 1.0 && shared > 0.0 {
        draft.account("--prefix-count", &["dataset/groups"]);
        draft.account("--prefix-length", &["dataset/prefix_tokens"]);
    } else if shared > 0.0 {
        draft.account(
            "--prefix-length",
            &["dataset/shared_prefix", "dataset/tokens"],
        );
    } else {
        draft.account("--prefix-length", &["dataset/tokens"]);
    }
    draft.note("--prefix-count", "all prompts share one prefix, or none");
    Ok(())
}

/// `--dataset-args`, and the older `--multi-turn-args`.
fn arguments(draft: &mut Draft, dataset: &str) -> Result<(), ImportError> {
    for flag in ["--dataset-args", "--multi-turn-args"] {
        let Some(value) = draft.json(flag)? else {
            continue;
        };
        let Value::Object(mut given) = value else {
            return Err(draft.invalid(flag, "", "a JSON object"));
        };
        if dataset == "workload_trace" {
            for (key, path) in [
                ("speed", "load/trace/speed"),
                ("model_mapping", "dataset/trace/model_mapping"),
                ("match_output_length", "dataset/trace/match_output_length"),
            ] {
                move_to(draft, flag, &mut given, key, path);
            }
        }
        move_to(draft, flag, &mut given, "min_images", "dataset/count");
        move_to(
            draft,
            flag,
            &mut given,
            "target_input_len",
            "dataset/shape/tokens",
        );
        if draft.get("dataset/shape").is_some() {
            draft.set(
                "dataset/shape/mode",
                if given.contains_key("prefix_file") {
                    "exact"
                } else {
                    "cap"
                },
            );
            move_to(
                draft,
                flag,
                &mut given,
                "prefix_file",
                "dataset/shape/fill_from",
            );
            given.retain(|key, value| key != "input_len_mode" || value != "cap");
        }
        if !given.is_empty() {
            let names = given
                .keys()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(", ");
            draft.note(flag, format!("no counterpart for {names}"));
        }
    }
    Ok(())
}

fn move_to(draft: &mut Draft, flag: &str, given: &mut Map<String, Value>, key: &str, path: &str) {
    if let Some(value) = given.shift_remove(key) {
        draft.carry_value(flag, path, value);
    }
}
