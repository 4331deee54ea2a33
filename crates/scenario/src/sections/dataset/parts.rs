//! The blocks inside of `dataset`: the log, the length that texts are brought to, the turns.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::tree::Node;
use crate::values::duration::{DURATION, SPAN, duration};
use crate::values::quantity::{QUANTITY, quantity};
use crate::values::wait::{WAIT, wait};
use llmscen_core::dataset::{Layout, ShapeMode, TextShape, TraceSpec, Turns};

/// How the columns of a log are named.
pub(crate) const LAYOUT: Kind = Kind::Choice(
    &[
        ("auto", "By the columns that are there"),
        ("mooncake", "JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`"),
        ("azure", "CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`"),
        ("burstgpt", "CSV: `Timestamp` (s), `Model`, `Request tokens`, `Response tokens`"),
        (
            "workload",
            "JSONL: `timestamp`, `body`, `headers` (all but those of the connection, and of a key where the target has its own)",
        ),
    ],
    &[],
);

pub(super) static TRACE: Block = Block {
    doc: "`kind: trace`: how the log is read.",
    short: None,
    fields: &[
        field("layout", LAYOUT, "How its columns are named.").default("auto").example("mooncake"),
        field("start", Kind::Leaf(&DURATION), "Only what arrived so long after the first request, or later.").example("5m"),
        field("end", Kind::Leaf(&SPAN), "Only what arrived before this.").example("10m"),
        field("model_mapping", Kind::Map(&Kind::Text), "Models of the log by the names that requests shall use.")
            .example("{ gpt-4: qwen2.5 }"),
        field("match_output_length", Kind::Bool, "Ask for exactly the logged output: `max_tokens`, `min_tokens`, `ignore_eos`.")
            .default("false")
            .example("true"),
    ],
};

pub(super) static SHAPE: Block = Block {
    doc: "The length that texts are brought to.",
    short: None,
    fields: &[
        field("tokens", Kind::Leaf(&QUANTITY), "Tokens, the tokenizer's chat template included.").required().example("1024"),
        field(
            "mode",
            Kind::Choice(&[("exact", "Cut or continued to exactly that length"), ("cap", "Cut where it is longer")], &[]),
            "How.",
        )
        .default("exact")
        .example("cap"),
        field("fill_from", Kind::File, "A text that continues what is too short; without it the row's own text again.")
            .example("data/book.txt"),
    ],
};

pub(super) static TURNS: Block = Block {
    doc: "Conversations: a session's turns follow one another, with the server's own replies between them.",
    short: None,
    fields: &[
        field("think_time", Kind::Leaf(&WAIT), "Between a reply and the next turn, where the data does not say.").example("2s"),
        field("max", Kind::Whole(1, u32::MAX as i64), "Turns of a session at the most.").example("4"),
        field("keep_reasoning", Kind::Bool, "Feed the reasoning back too.").default("false").example("true"),
    ],
};

/// The log of a checked block at `path`, which may hold a part of the keys. Files a window without an inside.
pub(crate) fn log(draft: &Draft<'_>, path: &str, review: &mut Review) -> TraceSpec {
    let node = |key: &str| draft.get(&format!("{path}.{key}"));
    let (start, end) = (node("start").and_then(duration), node("end").and_then(duration));
    if let (Some(from), Some(to), Some(at)) = (start, end, node("end"))
        && from >= to
    {
        let mistake = Mistake::new(at.at, "this window of the log is empty", "ends before it starts");
        review.push(mistake.also(draft.place(&format!("{path}.start")), "starts here"));
    }
    let models = node("model_mapping").map(Node::entries).unwrap_or_default();
    TraceSpec {
        layout: match draft.text(&format!("{path}.layout")).as_deref() {
            Some("mooncake") => Layout::Mooncake,
            Some("azure") => Layout::Azure,
            Some("burstgpt") => Layout::Burstgpt,
            Some("workload") => Layout::Workload,
            _ => Layout::Auto,
        },
        start,
        end,
        model_mapping: models.iter().filter_map(|own| Some((own.key.clone(), own.value.text()?.into_owned()))).collect(),
        match_output_length: draft.flag(&format!("{path}.match_output_length")).unwrap_or(false),
    }
}

/// The length that texts are brought to.
pub(super) fn shape(draft: &Draft<'_>, review: &Review) -> Option<TextShape> {
    Some(TextShape {
        tokens: draft.get("dataset.shape.tokens").and_then(quantity)?,
        mode: if draft.text("dataset.shape.mode").as_deref() == Some("cap") { ShapeMode::Cap } else { ShapeMode::Exact },
        fill_from: draft.file("dataset.shape.fill_from", review),
    })
}

/// The turns of conversations.
pub(super) fn turns(draft: &Draft<'_>) -> Option<Turns> {
    draft.get("dataset.turns")?;
    Some(Turns {
        think_time: draft.get("dataset.turns.think_time").and_then(wait),
        max: draft.count("dataset.turns.max").and_then(|n| u32::try_from(n).ok()),
        keep_reasoning: draft.flag("dataset.turns.keep_reasoning").unwrap_or(false),
    })
}
