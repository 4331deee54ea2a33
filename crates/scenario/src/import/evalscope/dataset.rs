//! The data of `evalscope perf`.

use crate::import::draft::Draft;
use crate::import::text::between;
use crate::import::{ImportError, number};
use serde_json::{Map, Value, json};

const SMALL: &str = "a small set that ships with the tool; give `dataset.path` for your own";
const PICTURES: &str = "generated pictures in place of those of the dataset";
const MADE_UP: &str = "real conversations in place of synthetic ones; their lengths differ";
const DRAWN: &str = "texts of the data in place of random tokens";

/// evalscope's names, the kind that each is here, and what differs.
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
    ("swe_smith", "messages", "write each conversation as a list of messages, a line each"),
    ("trie_agentic_coding", "messages", MADE_UP),
    ("trie_code_qa", "messages", MADE_UP),
    ("trie_office_work", "messages", MADE_UP),
    (
        "speed_benchmark",
        "speed_benchmark",
        "evalscope sends 1, 6144, 14336 and 30720 tokens, each twice; here also 2048, and 96 in place of 1",
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

const EXPECTED: &str = "openqa, longalpaca, line_by_line, custom, random, random_vl, random_multi_turn, flickr8k, kontext_bench, mmmu_multi_image, share_gpt_*, custom_multi_turn, swe_smith, trie_*, speed_benchmark, speed_benchmark_long, embedding, rerank or workload_trace";

/// The name of the dataset.
pub(super) fn wanted(draft: &Draft) -> String {
    draft.text("--dataset").unwrap_or_else(|| "openqa".into())
}

/// Whether requests are the turns of conversations.
pub(super) fn talks(draft: &Draft) -> bool {
    let wanted = wanted(draft);
    let always = wanted.ends_with("_multi_turn") || wanted.starts_with("trie_") || wanted == "swe_smith";
    draft.truth("--multi-turn") || draft.has("--scenario") || always
}

/// The dataset.
pub(super) fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    if draft.has("--scenario") {
        draft.put("dataset", json!({ "kind": "messages", "path": "builtin", "turns": {} }));
        draft.account("--scenario", &["dataset.turns", "load.duration"]);
        draft.note("--scenario", "AgentX runs AIPerf on sessions of its own; here conversations of `dataset.path`");
        draft.note("--dataset", "--scenario takes its place");
        draft.carry("--tokenizer-path", "dataset/tokenizer");
        return Ok(());
    }
    if let Some(prompt) = draft.text("--prompt") {
        draft.put("dataset", json!({ "kind": "prompt" }));
        draft.put("dataset/text", prompt);
        draft.account("--prompt", &["dataset/text"]);
        draft.note("--dataset", "`--prompt` takes its place");
        draft.carry("--tokenizer-path", "dataset/tokenizer");
        return Ok(());
    }
    let wanted = wanted(draft);
    let Some((_, kind, differs)) = DATASETS.iter().find(|(name, ..)| *name == wanted) else {
        return Err(draft.wrong("--dataset", &wanted, EXPECTED));
    };
    draft.fill("--dataset", "dataset/kind", *kind);
    draft.put("dataset/kind", *kind);
    draft.account("--dataset", &["dataset/kind"]);
    if !differs.is_empty() {
        draft.note("--dataset", *differs);
    }
    path(draft, kind)?;
    draft.carry("--tokenizer-path", "dataset/tokenizer");
    if talks(draft) {
        draft.put("dataset/turns", json!({}));
        draft.carry_number("--max-turns", "dataset/turns/max")?;
        draft.account("--multi-turn", &["dataset/turns"]);
    } else {
        draft.note("--max-turns", "it goes with --multi-turn");
    }
    lengths(draft, kind, &wanted)?;
    if *kind == "images" {
        let [width, height] = [draft.number("--image-width")?, draft.number("--image-height")?].map(|side| side.unwrap_or(224.0));
        draft.put("dataset/sizes", json!([format!("{width}x{height}")]));
        draft.account("--image-width", &["dataset/sizes"]);
        draft.account("--image-height", &["dataset/sizes"]);
        draft.carry_number("--image-num", "dataset/count")?;
    }
    arguments(draft, &wanted)
}

fn path(draft: &mut Draft, kind: &str) -> Result<(), ImportError> {
    let takes =
        matches!(kind, "openqa" | "longalpaca" | "line_by_line" | "messages" | "sharegpt" | "trace" | "embeddings" | "rerank");
    match (draft.has("--dataset-path"), kind) {
        (true, _) if takes => draft.carry("--dataset-path", "dataset/path"),
        (true, _) => draft.note("--dataset-path", "this dataset reads no file"),
        (false, "line_by_line" | "trace") => return Err(ImportError::Missing("--dataset-path")),
        (false, "messages" | "sharegpt" | "embeddings" | "rerank") => {
            draft.put("dataset/path", "builtin");
            draft.note("--dataset", SMALL);
        }
        (false, _) => {}
    }
    Ok(())
}

/// `--min-prompt-length` and `--max-prompt-length`: what is drawn, what texts are brought to, or which rows are taken.
fn lengths(draft: &mut Draft, kind: &str, wanted: &str) -> Result<(), ImportError> {
    let (least, most) = (draft.number("--min-prompt-length")?, draft.number("--max-prompt-length")?);
    if kind == "random" {
        return random(draft, least, most);
    }
    for flag in ["--prefix-length", "--prefix-count"] {
        draft.note(flag, "it is about `--dataset random` alone");
    }
    if wanted.starts_with("random_") && kind == "embeddings" && (least.is_some() || most.is_some()) {
        draft.put("dataset/shape/tokens", between(least.unwrap_or(0.0).max(1.0), most.unwrap_or(131_072.0)));
        draft.account("--min-prompt-length", &["dataset/shape"]);
        draft.account("--max-prompt-length", &["dataset/shape"]);
        return Ok(());
    }
    if matches!(kind, "images" | "rerank" | "trace" | "speed_benchmark" | "speed_benchmark_long") || wanted.starts_with("random_")
    {
        let why = if kind == "images" {
            "the text beside the pictures is `dataset.text`"
        } else {
            "the data have lengths of their own"
        };
        draft.note("--min-prompt-length", why);
        draft.note("--max-prompt-length", why);
        return Ok(());
    }
    for (flag, path) in
        [("--min-prompt-length", "dataset/prompt_tokens/min"), ("--max-prompt-length", "dataset/prompt_tokens/max")]
    {
        draft.carry_number(flag, path)?;
        if !draft.has("--tokenizer-path") {
            draft.note(flag, "tokens; evalscope counts characters where it has no tokenizer");
        }
    }
    Ok(())
}

/// evalscope puts the prefix in front of the length: the whole prompt has both.
fn random(draft: &mut Draft, least: Option<f64>, most: Option<f64>) -> Result<(), ImportError> {
    let (least, most) = (least.unwrap_or(0.0).max(1.0), most.unwrap_or(131_072.0));
    let shared = draft.number("--prefix-length")?.unwrap_or(0.0);
    let prefixes = draft.number("--prefix-count")?.unwrap_or(1.0);
    draft.fill("--max-prompt-length", "dataset/tokens", between(least, most));
    draft.put("dataset/tokens", between(least, most));
    draft.account("--min-prompt-length", &["dataset/tokens"]);
    draft.account("--max-prompt-length", &["dataset/tokens"]);
    if prefixes > 1.0 && shared > 0.0 {
        draft.put("dataset/kind", "prefix");
        draft.put("dataset/groups", number(prefixes));
        draft.put("dataset/prefix_tokens", number(shared));
        draft.account("--prefix-count", &["dataset/groups"]);
        draft.account("--prefix-length", &["dataset/prefix_tokens"]);
    } else if shared > 0.0 {
        draft.put("dataset/tokens", between(least + shared, most + shared));
        draft.put("dataset/shared_prefix", number(shared));
        draft.account("--prefix-length", &["dataset/shared_prefix", "dataset/tokens"]);
    } else {
        draft.account("--prefix-length", &["dataset/tokens"]);
    }
    draft.note("--prefix-count", "one prefix that all prompts share, or none");
    Ok(())
}

/// `--dataset-args`, and `--multi-turn-args` of before: what each kind of data takes.
fn arguments(draft: &mut Draft, wanted: &str) -> Result<(), ImportError> {
    for flag in ["--dataset-args", "--multi-turn-args"] {
        let Some(value) = draft.json(flag)? else { continue };
        let Value::Object(mut given) = value else { return Err(draft.wrong(flag, "", "a JSON object")) };
        if wanted == "workload_trace" {
            for (key, path) in [
                ("speed", "load/trace/speed"),
                ("model_mapping", "dataset/trace/model_mapping"),
                ("match_output_length", "dataset/trace/match_output_length"),
            ] {
                move_to(draft, flag, &mut given, key, path);
            }
        }
        move_to(draft, flag, &mut given, "min_images", "dataset/count");
        move_to(draft, flag, &mut given, "target_input_len", "dataset/shape/tokens");
        if draft.get("dataset/shape").is_some() {
            draft.put("dataset/shape/mode", if given.contains_key("prefix_file") { "exact" } else { "cap" });
            move_to(draft, flag, &mut given, "prefix_file", "dataset/shape/fill_from");
            given.retain(|key, value| key != "input_len_mode" || value != "cap");
        }
        if !given.is_empty() {
            let names = given.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            draft.note(flag, format!("no key has {names}"));
        }
    }
    Ok(())
}

fn move_to(draft: &mut Draft, flag: &str, given: &mut Map<String, Value>, key: &str, path: &str) {
    if let Some(value) = given.shift_remove(key) {
        draft.put(path, value);
        draft.account(flag, &[path]);
    }
}
