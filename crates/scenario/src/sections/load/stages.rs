//! `load.stages`: a load that changes.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::tree::{Entry, Node};
use crate::values::duration::{SPAN, duration};
use crate::values::rate::arrivals;
use crate::values::stage::{STAGE_RATE, STAGE_USERS, course, users};
use llmscen_core::load::{Load, Shape, Warmup};
use llmscen_core::stage::{RateStage, UserStage};

/// The keys of an entry of `load.stages`.
pub(super) static STAGE: Block = Block {
    doc: "A stage: a rate or a concurrency, and for how long. A step is two stages, a spike is three.",
    short: None,
    fields: &[
        field(
            "rate",
            Kind::Leaf(&STAGE_RATE),
            "Open loop: `8/s` throughout, from one rate to another in a straight line, or a wave around a mean. A stage that stays at `0/s` is a pause: it takes its time, and is not reported as a case or judged.",
        )
        .example("1/s -> 20/s"),
        field(
            "concurrency",
            Kind::Leaf(&STAGE_USERS),
            "Closed loop: so many users, or from one number to another in even steps. Who is to go leaves when a request ends. A stage that stays at 0 is a pause.",
        )
        .example("4 -> 64"),
        field("for", Kind::Leaf(&SPAN), "How long it takes.").required().example("30s"),
    ],
};

/// The stages as a shape. Files lists that mix loops, and entries that are none.
pub(super) fn decode(draft: &Draft<'_>, list: &Entry, review: &mut Review) -> Option<Shape> {
    let items = list.value.items();
    let kinds: Vec<&Entry> = items.iter().filter_map(|item| kind(item, review)).collect();
    if items.is_empty() {
        review.push(
            Mistake::new(list.value.at, "a list without a stage", "is empty").help("For example `[{ rate: 8/s, for: 30s }]`."),
        );
    }
    let first = kinds.first()?;
    if let Some(other) = kinds.iter().find(|entry| entry.key != first.key) {
        let mistake = Mistake::new(other.key_at, "stages of both loops in one list", format!("`{}` here", other.key));
        let mistake = mistake.also(first.key_at, format!("`{}` here", first.key));
        review.push(mistake.help("A rate makes an open loop and a concurrency a closed one: give all stages the same."));
        return None;
    }
    if kinds.len() < items.len() {
        return None;
    }
    let spans = items.iter().map(|item| item.get("for").and_then(duration));
    let shape = if first.key == "rate" {
        let stage = |(entry, span): (&&Entry, _)| Some(RateStage { rate: course(&entry.value)?, span: span? });
        let stages = kinds.iter().zip(spans).map(stage).collect::<Option<Vec<_>>>()?;
        Shape::Rates { stages: stages.into(), arrival: draft.get("load.arrivals").and_then(arrivals)? }
    } else {
        let stage = |(entry, span): (&&Entry, _)| {
            let (from, to) = users(&entry.value)?;
            Some(UserStage { from, to, span: span? })
        };
        let stages = kinds.iter().zip(spans).map(stage).collect::<Option<Vec<_>>>()?;
        Shape::Users { stages: stages.into() }
    };
    if shape.is_pause() {
        review.push(Mistake::new(list.key_at, "these stages send nothing", "all of them are pauses"));
        return None;
    }
    Some(shape)
}

/// The one load of a stage.
fn kind<'a>(item: &'a Node, review: &mut Review) -> Option<&'a Entry> {
    match (item.entry("rate"), item.entry("concurrency")) {
        (Some(rate), Some(concurrency)) => {
            let mistake = Mistake::new(concurrency.key_at, "a stage with two loads", "closed loop here");
            review.push(mistake.also(rate.key_at, "open loop here").help("Keep one of them."));
            None
        }
        (None, None) => {
            let mistake = Mistake::new(item.at, "a stage without a load", "needs rate or concurrency");
            review.push(mistake.help("For example `{ rate: 8/s, for: 30s }`, or `{ concurrency: 8, for: 30s }`."));
            None
        }
        (rate, concurrency) => rate.or(concurrency),
    }
}

/// Files a warm-up that leaves nothing to measure, and warns of stages that a duration cuts off.
pub(super) fn fits(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    let Some(end) = load.shape.end() else { return };
    if let Warmup::Span(span) = load.warmup {
        if span >= end {
            let mistake =
                Mistake::new(draft.place("load.warmup"), "the warm-up takes all of the stages", "leaves nothing to measure");
            review.push(mistake.help("The warm-up is the beginning of the first stages; they are not measured meanwhile."));
        }
        let cut = load.until(Some(span)).unwrap_or(end);
        cut_off(draft, load, cut, review);
    } else if load.warmup == Warmup::Requests(0) {
        cut_off(draft, load, load.lasts().unwrap_or(end), review);
    }
}

fn cut_off(draft: &Draft<'_>, load: &Load, cut: llmscen_core::units::Nanos, review: &mut Review) {
    if let Some(index) = load.shape.stages().iter().position(|stage| stage.0 >= cut) {
        review.warn(
            draft.place("load.duration"),
            format!("stage {} begins after the duration has ended, and is not run", index + 1),
        );
    }
}
