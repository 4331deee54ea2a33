//! `dataset`: where the prompts come from.

mod kinds;
mod parts;

pub(crate) use parts::{LAYOUT, log};

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Default, Kind, field};
use crate::secret::{behind_flags, looks_secret};
use crate::sections::server::{COMMAND, command};
use crate::sections::{Draft, local};
use crate::template;
use crate::tree::{Node, Part};
use crate::values::duration::{SPAN, duration};
use crate::values::models::models;
use crate::values::quantity::{QUANTITY, quantity};
use crate::values::seed::seed;
use crate::values::sizes::{SIZES, sizes};
use llmscen_core::api::Api;
use llmscen_core::dataset::{CommandSpec, DatasetSpec, ImagesSpec, OnExhausted, Order, Source};
use llmscen_core::seed::Seed;
use llmscen_core::target::Secret;
use llmscen_core::url_secrets::is_secret_name;

const MOST: i64 = u32::MAX as i64;

static PROMPT_TOKENS: Block = Block {
    doc: "Rows outside of these lengths are dropped and counted.",
    short: None,
    fields: &[
        field("min", Kind::Whole(0, i64::MAX), "Prompt tokens at the least.").example("16"),
        field("max", Kind::Whole(1, i64::MAX), "Prompt tokens at the most.").example("4096"),
    ],
};

const ORDER: Kind =
    Kind::Choice(&[("sequential", "As they stand in the file"), ("shuffle", "A permutation drawn from the seed")], &[]);

const ON_EXHAUSTED: Kind = Kind::Choice(
    &[
        ("cycle", "Start again from the first row"),
        (
            "stop",
            "End the round there; a run that has objectives and sends fewer requests than `load.requests` is INCONCLUSIVE (exit code 5) where it would be PASS",
        ),
        ("fail", "End the run there as an error (exit code 3)"),
        ("error", "The same as `fail`"),
    ],
    &[],
);

/// The keys of `dataset`.
pub(crate) static DATASET: Block = Block {
    doc: "Where the prompts come from. `dataset: openqa` is short for `dataset: { kind: openqa }`.",
    short: Some("kind"),
    fields: &[
        field("kind", kinds::KIND, "What the data looks like.").required().example("openqa"),
        field(
            "path",
            Kind::File,
            "The file: .jsonl, .json, .csv, .parquet or .txt; for `images` a folder. `builtin` is a small set that ships with the tool, for openqa, messages, sharegpt, embeddings, rerank and trace.",
        )
        .example("data/prompts.jsonl"),
        field(
            "command",
            Kind::Leaf(&COMMAND),
            "`command`: the program and its arguments, a text that is split as a shell does, or a list; no shell runs it. It prints a JSON object a line on stdout, with the columns of `rows`. A line that is none, and an exit status other than 0, is an error. It is started once for a run, read only as far as requests need rows, and ended with the run; warm-up, rounds and cases take its rows one after another like those of a file, and `on_exhausted: cycle` sends the printed rows again. `LLMSCEN_SEED` and `LLMSCEN_MODEL` in its environment are `seed` and `target.model`.",
        )
        .example("python3 make_prompts.py --n 100"),
        field("cwd", Kind::File, "`command`: its working folder; `.` is the folder of the scenario.")
            .defaults(Default::Where("kind", &["command"], "."))
            .example("tools"),
        field("timeout", Kind::Leaf(&SPAN), "`command`: how long it may take until its first row.")
            .defaults(Default::Where("kind", &["command"], "60s"))
            .example("5m"),
        field("columns", Kind::Map(&Kind::Text), "The file's own column, or dotted path, for each field that the kind reads.")
            .example("{ prompt: instruction }"),
        field("text", Kind::Text, "`prompt`: the prompt, or `@file`. `images`: the text beside the pictures.")
            .defaults(Default::Where("kind", &["images"], "Describe what you see."))
            .example("Write a haiku."),
        field("tokens", Kind::Leaf(&QUANTITY), "`random`: the prompt's length, a number or a distribution. `prefix`: that of the part of its own.")
            .example("1024"),
        field("shared_prefix", Kind::Whole(0, MOST), "`random`: tokens at its beginning that all prompts share.")
            .defaults(Default::Where("kind", &["random"], "0"))
            .example("256"),
        field("groups", Kind::Whole(1, MOST), "`prefix`: groups of prompts that share a beginning.").example("8"),
        field("per_group", Kind::Whole(1, MOST), "`prefix`: prompts of a group; without it there is no end.").example("50"),
        field("prefix_tokens", Kind::Whole(1, MOST), "`prefix`: tokens of the shared beginning.").example("2048"),
        field("trace", Kind::Block(&parts::TRACE), "`trace`: how the log is read.")
            .defaults(Default::Where("kind", &["trace"], "{}"))
            .example("{ layout: mooncake }"),
        field("batch", Kind::Whole(1, MOST), "`embeddings`: texts in one request.")
            .defaults(Default::Where("kind", &["embeddings"], "1"))
            .example("16"),
        field("documents", Kind::Whole(1, MOST), "`rerank`: documents in one request; without it as many as the row has.")
            .example("10"),
        field("sizes", Kind::Leaf(&SIZES), "`images`: width and height in pixels of generated pictures, taken in turn.")
            .example("[512x512, [640, 480]]"),
        field("count", Kind::Whole(1, 1000), "`images`: pictures in one request.")
            .defaults(Default::Where("kind", &["images"], "1"))
            .example("2"),
        field(
            "tokenizer",
            Kind::Hub,
            "A tokenizer.json, the folder of a model, or its name on the hub; without it, or with `builtin`, counts are approximate. A folder that `api: local` names brings its own.",
        )
        .example("Qwen/Qwen2.5-7B-Instruct"),
        field("prompt_tokens", Kind::Block(&PROMPT_TOKENS), "Which lengths are taken.").example("{ min: 16, max: 4096 }"),
        field("shape", Kind::Block(&parts::SHAPE), "The length that texts are brought to.").example("{ tokens: 1024 }"),
        field("turns", Kind::Block(&parts::TURNS), "Conversations turn by turn; without it every row is one request.")
            .example("{ think_time: 2s }"),
        field("order", ORDER, "In which order rows are taken.").default("sequential").example("shuffle"),
        field("on_exhausted", ON_EXHAUSTED, "What happens when the rows run out.").default("cycle").example("stop"),
        field("strict", Kind::Bool, "A row that does not fit stops the run; otherwise it is reported, left out and counted.")
            .default("false")
            .example("true"),
        field(
            "cache_bust",
            Kind::Bool,
            "Put a unique text in front of each prompt, so that no prefix cache knows it, not even from an earlier run (`cache_seed`). Prompts of `random`, `prefix` and `speed_benchmark` are drawn anew for each run instead, and share no beginning.",
        )
        .default("false")
        .example("true"),
        field("system", Kind::Text, "A system message in front of each prompt.").example("You are terse."),
    ],
};

/// The prompts of a case. Files what contradicts itself.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<DatasetSpec> {
    let kind = draft.text("dataset.kind")?;
    kinds::fits(draft, &kind, review);
    kinds::suits(draft, &kind, review);
    let (min_tokens, max_tokens) = (draft.count("dataset.prompt_tokens.min"), draft.count("dataset.prompt_tokens.max"));
    if let (Some(min), Some(max)) = (min_tokens, max_tokens)
        && min > max
    {
        let at = draft.get("dataset.prompt_tokens.min")?.at;
        review.push(Mistake::new(at, format!("no prompt has {min} tokens or more and {max} or fewer"), "is above `max`"));
    }
    let columns = draft.get("dataset.columns").map(Node::entries).unwrap_or_default();
    Some(DatasetSpec {
        path: match kind.as_ref() {
            "command" => printed(draft, review).map(|command| command.shown()),
            _ => draft.file("dataset.path", review),
        },
        tokenizer: tokenizer(draft, review),
        templated: draft.api().is_none_or(Api::takes_messages),
        one_text: draft.get("request.template").is_none() && draft.api().is_some_and(kinds::takes_one_text),
        min_tokens,
        max_tokens,
        order: if draft.text("dataset.order")? == "shuffle" { Order::Shuffle } else { Order::Sequential },
        on_exhausted: match draft.text("dataset.on_exhausted")?.as_ref() {
            "stop" => OnExhausted::Stop,
            "fail" | "error" => OnExhausted::Fail,
            _ => OnExhausted::Cycle,
        },
        system: draft.text("dataset.system").map(|text| text.into_owned()),
        columns: columns.iter().filter_map(|own| Some((own.key.clone(), own.value.text()?.into_owned()))).collect(),
        // What a program prints by accident must not become fewer rows.
        strict: draft.flag("dataset.strict")? || kind == "command",
        cache_bust: draft.flag("dataset.cache_bust")?,
        cache_seed: draft.get("cache_seed").and_then(seed).map(Seed),
        shape: parts::shape(draft, review),
        turns: parts::turns(draft),
        ..DatasetSpec::of(source(draft, &kind, review)?)
    })
}

/// The command that prints rows.
fn printed(draft: &Draft<'_>, review: &mut Review) -> Option<CommandSpec> {
    let words = draft.get("dataset.command").and_then(command)?;
    Some(CommandSpec {
        secrets: secrets(draft, &words),
        words,
        cwd: draft.file("dataset.cwd", review)?,
        env: environment(draft),
        timeout: draft.get("dataset.timeout").and_then(duration)?,
    })
}

/// What a command that fails must not show: the server's key, and the variables and flags of its words that are called secrets.
fn secrets(draft: &Draft<'_>, words: &[String]) -> Vec<Secret> {
    let node = draft.get("dataset.command");
    let parts = |node: &Node| node.parts.iter().flat_map(|parts| parts.iter().cloned()).collect::<Vec<_>>();
    let items = node.map(Node::items).unwrap_or_default();
    let variable = |part: Part| match part {
        Part::Env { name, value } if is_secret_name(&name) => Some(value),
        _ => None,
    };
    let mut found: Vec<String> = node.into_iter().chain(items).flat_map(parts).filter_map(variable).collect();
    found.extend(behind_flags(words).into_iter().map(|(_, value)| value));
    found.extend(draft.text("target.api_key").map(|key| key.into_owned()));
    found.retain(|value| looks_secret(value));
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    found.into_iter().map(Secret::new).collect()
}

fn source(draft: &Draft<'_>, kind: &str, review: &mut Review) -> Option<Source> {
    let count = |key: &str| draft.count(&format!("dataset.{key}"));
    let tokens = || draft.get("dataset.tokens").and_then(quantity);
    Some(match kind {
        "prompt" => Source::Prompt(template::at_file(draft.get("dataset.text")?, review)?),
        "line_by_line" => Source::LineByLine,
        "openqa" => Source::Openqa,
        "longalpaca" => Source::Longalpaca,
        "rows" => Source::Rows,
        "command" => Source::Command(printed(draft, review)?),
        "messages" => Source::Messages,
        "sharegpt" => Source::Sharegpt,
        "random" => Source::Random { tokens: tokens()?, shared_prefix: count("shared_prefix")? },
        "prefix" => Source::Prefix {
            groups: count("groups")?,
            per_group: count("per_group"),
            prefix_tokens: count("prefix_tokens")?,
            tokens: tokens()?,
        },
        "speed_benchmark" => Source::SpeedBenchmark { long: false },
        "speed_benchmark_long" => Source::SpeedBenchmark { long: true },
        "trace" => Source::Trace(log(draft, "dataset.trace", review)),
        "embeddings" => Source::Embeddings { batch: count("batch")? },
        "rerank" => Source::Rerank { documents: count("documents") },
        _ => Source::Images(ImagesSpec {
            sizes: draft.get("dataset.sizes").and_then(sizes).unwrap_or_default(),
            count: count("count")?,
            text: template::at_file(draft.get("dataset.text")?, review)?,
        }),
    })
}

/// What a command can tell runs apart by.
fn environment(draft: &Draft<'_>) -> Vec<(String, String)> {
    let seed = draft.count("seed").map(|seed| ("LLMSCEN_SEED".to_owned(), seed.to_string()));
    let model = draft.get("target.model").and_then(models).and_then(|all| Some(all.into_iter().next()?.name));
    seed.into_iter().chain(model.map(|model| ("LLMSCEN_MODEL".to_owned(), model))).collect()
}

fn tokenizer(draft: &Draft<'_>, review: &Review) -> Option<String> {
    let Some(node) = draft.get("dataset.tokenizer") else { return local::tokenizer(draft, review) };
    review.sources.find_or_hub(node.at.file, &node.text()?)
}
