//! `load.static`: batches in lockstep.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::sections::load::MOST;
use llmscen_core::load::{Load, Shape, Warmup};

const BARRIER: Kind = Kind::Choice(
    &[
        ("round", "The next batch leaves when all of the last one are back"),
        ("none", "A request follows each that ends, as in a closed loop of `batch` users"),
    ],
    &[],
);

/// The keys of `load.static`.
pub(super) static STATIC: Block = Block {
    doc: "The offline mode: batches of requests, all of which are sent at once. `batch` times `rounds` is the number of requests.",
    short: None,
    fields: &[
        field("batch", Kind::Whole(1, MOST), "Requests that leave together.").required().example("16"),
        field("rounds", Kind::Whole(1, MOST), "How many times.").required().example("10"),
        field("barrier", BARRIER, "What a request waits for.").default("round").example("none"),
    ],
};

/// The shape, and how many requests it measures.
pub(super) fn decode(draft: &Draft<'_>) -> Option<(Shape, u64)> {
    let (batch, rounds) = (draft.count("load.static.batch")?, draft.count("load.static.rounds")?);
    let requests = batch.saturating_mul(rounds);
    let batch = u32::try_from(batch).ok()?;
    match draft.text("load.static.barrier")?.as_ref() {
        "none" => Some((Shape::Closed { users: batch }, requests)),
        _ => Some((Shape::Static { batch }, requests)),
    }
}

/// Files another end beside the rounds, and a warm-up that is no number of whole rounds.
pub(super) fn fits(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    let Some(block) = draft.entry("load.static") else { return };
    for entry in ["requests", "sessions", "duration"].iter().filter_map(|key| draft.entry(&format!("load.{key}"))) {
        let mistake = Mistake::new(entry.key_at, format!("`{}` in a static load", entry.key), "a second end");
        let mistake = mistake.also(block.key_at, "its rounds end it");
        review.push(mistake.help("`batch` times `rounds` is the number of requests; leave this out."));
    }
    let Shape::Static { batch } = load.shape else { return };
    let whole = match load.warmup {
        Warmup::Requests(requests) => requests % u64::from(batch) == 0,
        Warmup::Span(_) => false,
    };
    if !whole {
        let mistake = Mistake::new(draft.place("load.warmup"), "the warm-up is no number of whole rounds", "cuts a round in two");
        review.push(mistake.help(format!("`warmup: 1x` is one round, here {batch} requests, `2x` two.")));
    }
}
