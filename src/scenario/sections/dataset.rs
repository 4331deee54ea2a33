//! `dataset`: where the prompts come from.

use crate::model::api::Api;
use crate::model::dataset::{DatasetSpec, OnExhausted, Order, Source};
use crate::scenario::block::{Block, Kind, field, planned};
use crate::scenario::fault::{Mistake, Review};
use crate::scenario::leaf::quantity::{QUANTITY, quantity};
use crate::scenario::near::list;
use crate::scenario::sections::Draft;
use crate::scenario::template;
use crate::scenario::tree::Node;

/// The key that each kind cannot do without, and the keys of other kinds that it has no use for.
const KINDS: [(&str, Option<&str>, &[&str]); 5] = [
    ("prompt", Some("text"), &["path", "tokens"]),
    ("line_by_line", Some("path"), &["text", "tokens"]),
    ("openqa", None, &["text", "tokens"]),
    ("longalpaca", None, &["text", "tokens"]),
    ("random", Some("tokens"), &["text", "path"]),
];

const KIND: Kind = Kind::Choice(
    &[
        ("prompt", "One prompt for every request"),
        ("line_by_line", "A text file, a prompt a line"),
        ("openqa", "Rows with a `question`; without a path downloaded once"),
        ("longalpaca", "Rows with an `instruction`; without a path downloaded once"),
        ("random", "Tokens drawn at random, unique per request"),
    ],
    &["sharegpt", "messages", "prefix", "speed_benchmark", "speed_benchmark_long", "trace", "embeddings", "rerank", "images"],
);

static PROMPT_TOKENS: Block = Block {
    doc: "Rows outside of these lengths are dropped and counted.",
    short: None,
    fields: &[
        field("min", Kind::Whole(0, i64::MAX), "Prompt tokens at the least."),
        field("max", Kind::Whole(1, i64::MAX), "Prompt tokens at the most."),
    ],
};

const ORDER: Kind =
    Kind::Choice(&[("sequential", "As they stand in the file"), ("shuffle", "A permutation drawn from the seed")], &[]);

const ON_EXHAUSTED: Kind = Kind::Choice(
    &[("cycle", "Start again from the first row"), ("stop", "End the case there"), ("error", "End the case there as an error")],
    &[],
);

/// The keys of `dataset`.
pub(crate) static DATASET: Block = Block {
    doc: "Where the prompts come from. `dataset: openqa` is short for `dataset: { kind: openqa }`.",
    short: Some("kind"),
    fields: &[
        field("kind", KIND, "What the data looks like.").required().example("openqa"),
        field("path", Kind::File, "The file: .jsonl, .json or .txt; `builtin` is the small openqa set that ships with the tool.")
            .example("data/prompts.jsonl"),
        field("text", Kind::Text, "`kind: prompt`: the prompt, or `@file`.").example("Write a haiku."),
        field("tokens", Kind::Leaf(&QUANTITY), "`kind: random`: the prompt's length, a number or a distribution.")
            .example("1024"),
        field("tokenizer", Kind::File, "A tokenizer.json, or the folder that holds one; without it counts are approximate."),
        field("prompt_tokens", Kind::Block(&PROMPT_TOKENS), "Which lengths are taken.").example("{ min: 16, max: 4096 }"),
        field("order", ORDER, "In which order rows are taken.").default("sequential"),
        field("on_exhausted", ON_EXHAUSTED, "What happens when the rows run out.").default("cycle"),
        field("system", Kind::Text, "A system message in front of each prompt.").example("You are terse."),
        planned("shape"),
        planned("turns"),
    ],
};

/// The prompts of a case. Files what contradicts itself.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<DatasetSpec> {
    let kind = draft.text("dataset.kind")?;
    fits(draft, &kind, review);
    let (min_tokens, max_tokens) = (length(draft, "min"), length(draft, "max"));
    if let (Some(min), Some(max)) = (min_tokens, max_tokens)
        && min > max
    {
        let at = draft.get("dataset.prompt_tokens.min")?.at;
        review.push(Mistake::new(at, format!("no prompt has {min} tokens or more and {max} or fewer"), "is above `max`"));
    }
    if let Some(entry) =
        draft.entry("dataset.system").filter(|_| draft.text("target.api").as_deref() == Some("openai-completions"))
    {
        let mistake = Mistake::new(entry.key_at, "`system` needs messages", "openai-completions has none");
        review.push(mistake.help("Put it into `request.template`, in front of `{{ prompt }}`."));
    }
    Some(DatasetSpec {
        path: file(draft, "dataset.path", review),
        tokenizer: file(draft, "dataset.tokenizer", review),
        templated: draft.text("target.api").and_then(|api| Api::parse(&api)).is_none_or(Api::takes_messages),
        min_tokens,
        max_tokens,
        order: if draft.text("dataset.order")? == "shuffle" { Order::Shuffle } else { Order::Sequential },
        on_exhausted: match draft.text("dataset.on_exhausted")?.as_ref() {
            "stop" => OnExhausted::Stop,
            "error" => OnExhausted::Error,
            _ => OnExhausted::Cycle,
        },
        system: draft.text("dataset.system").map(|text| text.into_owned()),
        ..DatasetSpec::of(source(draft, &kind, review)?)
    })
}

fn fits(draft: &Draft<'_>, kind: &str, review: &mut Review) {
    let Some((_, needed, others)) = KINDS.iter().find(|(name, ..)| *name == kind) else { return };
    if let Some(key) = needed.filter(|key| draft.get(&format!("dataset.{key}")).is_none()) {
        let help = DATASET.field(key).map_or("", |field| field.doc);
        let at = draft.place("dataset.kind");
        review.push(Mistake::new(at, format!("`kind: {kind}` needs `{key}`"), format!("`{key}` is missing")).help(help));
    }
    for key in others.iter().filter(|_| !draft.swept("dataset.kind")) {
        if let Some(entry) = draft.entry(&format!("dataset.{key}")) {
            let users = KINDS.iter().filter(|(_, _, others)| !others.contains(key)).map(|(name, ..)| *name);
            let mistake = Mistake::new(entry.key_at, format!("`kind: {kind}` has no use for `{key}`"), "is not read");
            review.push(
                mistake.also(draft.place("dataset.kind"), "this kind").help(format!("`{key}` goes with {}.", list(users, "or"))),
            );
        }
    }
}

fn source(draft: &Draft<'_>, kind: &str, review: &mut Review) -> Option<Source> {
    match kind {
        "prompt" => {
            let node = draft.get("dataset.text")?;
            template::at_file(node, review).map(Source::Prompt)
        }
        "line_by_line" => Some(Source::LineByLine),
        "openqa" => Some(Source::Openqa),
        "longalpaca" => Some(Source::Longalpaca),
        _ => draft.get("dataset.tokens").and_then(quantity).map(|tokens| Source::Random { tokens, shared_prefix: 0 }),
    }
}

fn length(draft: &Draft<'_>, end: &str) -> Option<u64> {
    draft.get(&format!("dataset.prompt_tokens.{end}")).and_then(Node::whole).and_then(|n| u64::try_from(n).ok())
}

fn file(draft: &Draft<'_>, path: &str, review: &Review) -> Option<String> {
    let node = draft.get(path)?;
    let found = review.sources.find(node.at.file, &node.text()?)?;
    Some(found.display().to_string())
}
