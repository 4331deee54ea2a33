//! `vllm bench serve`, after its arguments of late 2026.

use crate::import::bench_serving;
use crate::import::draft::{Draft, api_from_path, between, join, name, number};
use crate::import::flags::ImportError;
use llmscen_scenario::document::is_hub_name;
use serde_json::{Map, Value, json};

pub(super) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    let label = draft.text("--label").unwrap_or_default();
    draft.carry_value("--label", "name", name(&label, "vllm-bench"));
    draft.carry_value(
        "--seed",
        "seed",
        number(draft.number("--seed")?.unwrap_or(0.0).max(0.0)),
    );
    target(draft)?;
    request(draft)?;
    translate_dataset(draft)?;
    load(draft)?;
    bench_serving::goodput(draft, "vLLM")?;
    Ok(())
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let base = bench_serving::base(draft, 8000.0)?;
    let endpoint = draft
        .text("--endpoint")
        .unwrap_or_else(|| "/v1/completions".into());
    let backend = draft.text("--backend").unwrap_or_else(|| "openai".into());
    let url = join(&base, &endpoint);
    let api = match backend.as_str() {
        "vllm" | "openai" | "lmdeploy" | "scalellm" | "sglang" | "openai-chat" | "vllm-chat"
        | "openai-audio" => api_from_path(&url),
        "openai-embeddings" | "openai-embeddings-chat" | "infinity-embeddings" => {
            "openai-embeddings"
        }
        "vllm-rerank" => "rerank",
        "tgi" => "tgi",
        other => {
            return Err(draft.invalid(
                "--backend",
                other,
                "openai, openai-chat, vllm, sglang, lmdeploy, tgi, openai-embeddings or vllm-rerank",
            ));
        }
    };
    draft.carry_value("--backend", "target/api", api);
    draft.carry_value("--endpoint", "target/url", url);
    if draft.has("--lora-modules") {
        draft.account("--lora-assignment", &["target/model"]);
        draft.note(
            "--lora-assignment",
            "each request draws one of them from the seed",
        );
    }
    if draft.has("--request-id-prefix") {
        draft.carry_value("--request-id-prefix", "target/request_id", "X-Request-Id");
        draft.note(
            "--request-id-prefix",
            "ids are unique and stored with every request",
        );
    }
    Ok(())
}

fn request(draft: &mut Draft) -> Result<(), ImportError> {
    if let Some(share) = draft.number("--min-p")? {
        draft.merge_extra(Map::from_iter([("min_p".to_owned(), number(share))]));
        draft.account("--min-p", &["request/extra"]);
    }
    draft.extra("--extra-body")
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    match draft.text("--ramp-up-strategy") {
        Some(strategy) => {
            let amount = bench_serving::requests(draft)?;
            ramp(draft, &strategy, amount)?;
            bench_serving::burstiness(draft)?;
        }
        None => bench_serving::load(draft)?,
    }
    if draft.get("load/arrivals").is_none() {
        draft.note("--burstiness", "1 is Poisson; it only applies to a rate");
    }
    Ok(())
}

fn ramp(draft: &mut Draft, strategy: &str, amount: f64) -> Result<(), ImportError> {
    let ends = (
        draft.number("--ramp-up-start-rps")?,
        draft.number("--ramp-up-end-rps")?,
    );
    let (Some(from), Some(to)) = ends else {
        return Err(ImportError::Missing(
            "--ramp-up-start-rps and --ramp-up-end-rps",
        ));
    };
    // Time in which `amount` requests are due at a linearly increasing rate.
    let span = (2.0 * amount / (from + to).max(1e-9)).ceil();
    draft.set(
        "load/stages",
        json!([{ "rate": format!("{from}/s -> {to}/s"), "for": format!("{span}s") }]),
    );
    draft.account(
        "--ramp-up-strategy --ramp-up-start-rps --ramp-up-end-rps",
        &["load/stages"],
    );
    draft.carry_cap("--max-concurrency")?;
    let differs = match strategy {
        "exponential" => "a linear ramp; several stages approximate an exponential one",
        _ => {
            "a ramp that is linear in time; vLLM's is linear in the number of requests, which takes longer"
        }
    };
    draft.note("--ramp-up-strategy", differs);
    Ok(())
}

/// The value of the first of these flags that was given.
fn first(draft: &mut Draft, flags: &[&str], path: &str) -> Result<Option<f64>, ImportError> {
    for flag in flags {
        if let Some(value) = draft.number(flag)? {
            draft.account(flag, &[path]);
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn translate_dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let dataset = draft
        .text("--dataset-name")
        .unwrap_or_else(|| "random".into());
    let kind = match dataset.as_str() {
        "random" => "random",
        "random-mm" => "images",
        "hf" if draft.has("--backend")
            && draft.text("--backend").as_deref() == Some("openai-audio") =>
        {
            "audio"
        }
        "random-rerank" => "rerank",
        "prefix_repetition" => "prefix",
        "sharegpt" => "sharegpt",
        "burstgpt" => "trace",
        "custom" => "rows",
        "sonnet" => "random",
        "txt-slices" => "line_by_line",
        other => {
            return Err(draft.invalid(
                "--dataset-name",
                other,
                "random, random-mm, \
        random-rerank, prefix_repetition, sharegpt, burstgpt, custom or sonnet; use other \
        datasets as a file with `kind: rows`",
            ));
        }
    };
    draft.carry_value("--dataset-name", "dataset/kind", kind);
    if matches!(kind, "random" | "prefix") {
        tokenizer(draft);
    }
    match kind {
        "random" if dataset == "sonnet" => sonnet(draft)?,
        "random" => random(draft)?,
        "prefix" => prefix(draft)?,
        "images" => pictures(draft)?,
        "rows" => draft.set("dataset/columns/prompt", "prompt"),
        _ => {}
    }
    let flags: &[&str] = match kind {
        "random" if dataset == "sonnet" => &["--sonnet-output-len", "--output-len"],
        "random" | "images" => &["--random-output-len", "--output-len"],
        "prefix" => &["--prefix-repetition-output-len", "--output-len"],
        "sharegpt" => &["--sharegpt-output-len", "--output-len"],
        "rows" | "audio" => &["--custom-output-len", "--hf-output-len", "--output-len"],
        _ => &["--output-len"],
    };
    let default = match (kind, dataset.as_str()) {
        (_, "sonnet") => Some(150.0),
        ("random" | "prefix" | "images", _) | (_, "txt-slices") => Some(128.0),
        ("rows", _) => Some(256.0),
        _ => None,
    };
    if kind == "sharegpt" && !draft.has("--sharegpt-output-len") && !draft.has("--output-len") {
        draft.recorded_output();
        draft.set("dataset/prompt_tokens", json!({ "min": 4, "max": 1024 }));
        let differs =
            "vLLM also skips rows with replies below 4 tokens, and above 2048 tokens together";
        draft.note("--dataset-name", differs);
    }
    for (flags, of) in [
        (
            "--sonnet-input-len --sonnet-prefix-len --sonnet-output-len",
            "sonnet",
        ),
        ("--hf-output-len", "hf"),
        (
            "--random-mm-bucket-config --random-mm-base-items-per-request --random-mm-num-mm-items-range-ratio",
            "random-mm",
        ),
    ] {
        if dataset != of {
            draft.note(flags, format!("only used with `--dataset-name {of}`"));
        }
    }
    if kind == "line_by_line" {
        draft.note(
            "--dataset-name",
            "each line of the file is a prompt; vLLM joins lines until the prompt is long enough",
        );
    }
    let api = draft.get("target/api").and_then(Value::as_str);
    if matches!(api, Some("openai-embeddings" | "rerank")) {
        // Nothing is generated.
        draft.set_unescaped("request", json!({}));
        return rows(draft, kind);
    }
    let length = first(draft, flags, "request/max_tokens")?;
    if length.is_some_and(|length| length < 1.0) {
        // -1: as long as the reply in the row.
        draft.recorded_output();
    } else if let Some(length) = length.or(default) {
        let ratio = if dataset == "random" {
            ratios(draft)?.1
        } else {
            0.0
        };
        draft.set("request/max_tokens", ranged(length, ratio));
    }
    if matches!(dataset.as_str(), "random" | "random-mm") || draft.has("--ignore-eos") {
        draft.carry_value("--ignore-eos", "request/ignore_eos", true);
    }
    rows(draft, kind)
}

/// `length` ± `ratio`, as vLLM draws lengths.
fn ranged(length: f64, ratio: f64) -> Value {
    between(
        (length * (1.0 - ratio)).floor().max(1.0),
        (length * (1.0 + ratio)).ceil(),
    )
}

/// Input and output ratio of `--random-range-ratio`: one number, or `{"input": 0.3, "output": 0.5}`.
fn ratios(draft: &Draft) -> Result<(f64, f64), ImportError> {
    const FLAG: &str = "--random-range-ratio";
    let text = draft.text(FLAG).unwrap_or_default();
    let ratios = if text.trim_start().starts_with('{') {
        let both = draft.json(FLAG)?;
        let of = |key: &str| both.as_ref().and_then(|both| both.get(key)?.as_f64());
        of("input").zip(of("output"))
    } else {
        draft
            .number(FLAG)?
            .or(Some(0.0))
            .map(|ratio| (ratio, ratio))
    };
    let fits = |ratio: f64| (0.0..1.0).contains(&ratio);
    ratios
        .filter(|(input, output)| fits(*input) && fits(*output))
        .ok_or_else(|| {
            draft.invalid(
                FLAG,
                &text,
                "a number from 0 to below 1, or JSON with `input` and `output`",
            )
        })
}

/// vLLM counts tokens with the tokenizer of the model.
fn tokenizer(draft: &mut Draft) {
    let model = draft
        .text("--model")
        .filter(|model| !draft.has("--tokenizer") && is_hub_name(model));
    if let Some(model) = model.filter(|_| !draft.has("--skip-tokenizer-init")) {
        draft.set("dataset/tokenizer", model);
        draft.account("--model", &["target/model", "dataset/tokenizer"]);
    }
}

fn random(draft: &mut Draft) -> Result<(), ImportError> {
    let ratio = ratios(draft)?.0;
    let length = first(
        draft,
        &["--random-input-len", "--input-len"],
        "dataset/tokens",
    )?
    .unwrap_or(1024.0);
    draft.set("dataset/tokens", ranged(length, ratio));
    draft.account(
        "--random-range-ratio",
        &["dataset/tokens", "request/max_tokens"],
    );
    if let Some(shared) = draft
        .number("--random-prefix-len")?
        .filter(|shared| *shared > 0.0)
    {
        draft.set("dataset/shared_prefix", number(shared));
        draft.set(
            "dataset/tokens",
            between(
                (length * (1.0 - ratio)).floor() + shared,
                (length * (1.0 + ratio)).ceil() + shared,
            ),
        );
        draft.account("--random-prefix-len", &["dataset/shared_prefix"]);
    }
    let batch = draft
        .number("--random-batch-size")?
        .filter(|batch| *batch > 1.0);
    if let Some(batch) = batch {
        let tokens = draft.get("dataset/tokens").cloned().unwrap_or_default();
        draft.take("dataset");
        draft.embedded_texts("--dataset-name");
        draft.set("dataset/shape/tokens", tokens);
        draft.carry_value("--random-batch-size", "dataset/batch", number(batch));
    }
    Ok(())
}

/// Lines of a poem, joined until the prompt has its length, after a prefix of lines that all prompts share.
fn sonnet(draft: &mut Draft) -> Result<(), ImportError> {
    let length = first(
        draft,
        &["--sonnet-input-len", "--input-len"],
        "dataset/tokens",
    )?;
    draft.set("dataset/tokens", number(length.unwrap_or(550.0)));
    let shared = draft.number("--sonnet-prefix-len")?.unwrap_or(200.0);
    draft.carry_value(
        "--sonnet-prefix-len",
        "dataset/shared_prefix",
        number(shared),
    );
    draft.withdraw("--dataset-path", "dataset", "path");
    draft.note(
        "--dataset-name --dataset-path",
        "random text with the lengths of vLLM's prompts instead of the lines of the file",
    );
    Ok(())
}

fn prefix(draft: &mut Draft) -> Result<(), ImportError> {
    for (flag, path, default) in [
        ("--prefix-repetition-num-prefixes", "dataset/groups", 10.0),
        (
            "--prefix-repetition-prefix-len",
            "dataset/prefix_tokens",
            256.0,
        ),
        ("--prefix-repetition-suffix-len", "dataset/tokens", 256.0),
    ] {
        draft.carry_value(flag, path, number(draft.number(flag)?.unwrap_or(default)));
    }
    Ok(())
}

/// The sizes and the number of pictures of `random-mm`, which needs a chat.
fn pictures(draft: &mut Draft) -> Result<(), ImportError> {
    const BUCKETS: &str = "--random-mm-bucket-config";
    if draft.get("target/api").and_then(Value::as_str) == Some("openai-completions") {
        let base = bench_serving::base(draft, 8000.0)?;
        draft.set("target/api", "openai-chat");
        draft.set("target/url", join(&base, "v1/chat/completions"));
        draft.note("--dataset-name", "pictures are sent in chats");
    }
    let text = draft.text(BUCKETS).unwrap_or_default();
    // `{(256, 256, 1): 0.5, (720, 1280, 1): 0.5}`: height, width and frames, with a share.
    let mut sizes = Vec::new();
    for bucket in text.split('(').skip(1) {
        let (size, share) = bucket.split_once(')').unwrap_or_default();
        let numbers: Option<Vec<u32>> = size
            .split(',')
            .map(|part| part.trim().parse().ok())
            .collect();
        let share = share.trim_start_matches([':', ' ']);
        let share = share.split([',', '}']).next().unwrap_or_default().trim();
        match (numbers.as_deref(), share.parse::<f64>()) {
            (Some([_, _, _]), Ok(0.0)) => {}
            (Some([height, width, 1]), Ok(share)) => {
                sizes.push((format!("{width}x{height}"), share))
            }
            _ => {
                return Err(draft.invalid(BUCKETS, &text, "(HEIGHT, WIDTH, 1): SHARE of pictures"));
            }
        }
    }
    if sizes.is_empty() {
        // vLLM's own buckets: half 256 x 256, half 720 x 1280.
        sizes = vec![("256x256".to_owned(), 0.5), ("1280x720".to_owned(), 0.5)];
    }
    // The smallest number of pictures of which every share is whole.
    let all: f64 = sizes.iter().map(|(_, share)| *share).sum();
    let counts = |total: f64| sizes.iter().map(move |(_, share)| share / all * total);
    let is_whole =
        |total: &u32| counts(f64::from(*total)).all(|count| (count - count.round()).abs() < 1e-6);
    let total = f64::from((1..=100).find(is_whole).unwrap_or(100));
    let repeated = sizes
        .iter()
        .zip(counts(total))
        .flat_map(|((size, _), count)| {
            std::iter::repeat_n(size.clone(), count.round().max(1.0) as usize)
        });
    draft.carry_or_default(BUCKETS, "dataset/sizes", repeated.collect::<Vec<_>>());
    draft.note(
        BUCKETS,
        "sizes are used in turn, each as often as its share says",
    );
    draft.carry_number("--random-mm-base-items-per-request", "dataset/count")?;
    draft.lose(
        "--random-mm-num-mm-items-range-ratio",
        "each request has the same number of pictures",
    );
    draft.note(
        "--random-input-len",
        "the text next to the pictures is `dataset.text`",
    );
    Ok(())
}

/// The order of rows, and what happens after the last.
fn rows(draft: &mut Draft, kind: &str) -> Result<(), ImportError> {
    let file = matches!(kind, "sharegpt" | "rows" | "line_by_line");
    if file && !draft.has("--dataset-path") {
        return Err(ImportError::Missing("--dataset-path"));
    }
    if file && !draft.has("--disable-shuffle") {
        draft.set("dataset/order", "shuffle");
    }
    draft.account("--disable-shuffle", &["dataset/order"]);
    Ok(())
}
