//! `load`: how hard a case pushes, and for how long.

use crate::model::load::{Load, Shape, Warmup};
use crate::scenario::block::{Block, Default, Kind, field, planned};
use crate::scenario::fault::{Mistake, Review};
use crate::scenario::leaf::duration::{DURATION, SPAN, duration};
use crate::scenario::leaf::rate::{ARRIVALS, RATE, Rate, arrivals, rate};
use crate::scenario::leaf::times::{REQUESTS_LEAF, Times, WARMUP_LEAF, times, warmup};
use crate::scenario::sections::Draft;
use crate::scenario::tree::Node;

const MOST: i64 = 1_000_000;

/// The keys of `load`.
pub(crate) static LOAD: Block = Block {
    doc: "How hard to push, and for how long. Exactly one of `concurrency` and `rate`; `requests`, `duration` or both.",
    short: None,
    fields: &[
        field("concurrency", Kind::Whole(1, MOST), "Closed loop: users, each sending its next request when the last one ended.")
            .example("16"),
        field(
            "rate",
            Kind::Leaf(&RATE),
            "Open loop: requests leave at this mean rate, whatever the server does. `burst`: all at time 0.",
        )
        .example("8/s"),
        field("arrivals", Kind::Leaf(&ARRIVALS), "Open loop: how arrivals are spaced.")
            .defaults(Default::With("rate", "poisson")),
        field("max_in_flight", Kind::Whole(1, MOST), "Open loop: an arrival over it is dropped, and counted."),
        field("requests", Kind::Leaf(&REQUESTS_LEAF), "Measured requests, or `10x` the concurrency.").example("200"),
        field("duration", Kind::Leaf(&SPAN), "Length of the sending phase; the first limit reached ends it.").example("60s"),
        field("warmup", Kind::Leaf(&WARMUP_LEAF), "Sent first and not measured: requests, `1x` the concurrency, or a duration.")
            .default("0"),
        field("graceful_stop", Kind::Leaf(&DURATION), "How long requests in flight may go on after the sending ended.")
            .default("30s"),
        planned("stages"),
        planned("trace"),
        planned("static"),
        planned("cooldown"),
    ],
};

/// The load of a case. Files what contradicts itself.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<Load> {
    let shape = shape(draft, review)?;
    let users = if let Shape::Closed { users } = shape { Some(users) } else { None };
    let requests = draft.get("load.requests");
    for node in requests.into_iter().chain(draft.get("load.warmup")) {
        if users.is_none() && matches!(times(node), Some(Times::Concurrency(_))) {
            let mistake = Mistake::new(node.at, "a multiple of the concurrency, without a concurrency", "an open loop has none");
            review.push(mistake.help("Write a number of requests, or a duration."));
        }
    }
    only_open(draft, &shape, review);
    let load = Load {
        shape,
        requests: requests.and_then(times).and_then(|times| times.of(users)),
        duration: draft.get("load.duration").and_then(duration),
        warmup: warmup(draft.get("load.warmup")?, users)?,
        graceful_stop: draft.get("load.graceful_stop").and_then(duration)?,
        max_in_flight: draft.get("load.max_in_flight").and_then(Node::whole).and_then(|n| u32::try_from(n).ok()),
    };
    ends(draft, &load, review);
    Some(load)
}

fn shape(draft: &Draft<'_>, review: &mut Review) -> Option<Shape> {
    match (draft.entry("load.concurrency"), draft.entry("load.rate")) {
        (Some(users), None) => u32::try_from(users.value.whole()?).ok().map(|users| Shape::Closed { users }),
        (None, Some(entry)) => match rate(&entry.value)? {
            Rate::Burst => Some(Shape::Burst),
            Rate::PerSecond(rate) => Some(Shape::Open { rate, arrival: draft.get("load.arrivals").and_then(arrivals)? }),
        },
        (Some(users), Some(rate)) => {
            let mistake = Mistake::new(rate.key_at, "two load shapes", "open loop here").also(users.key_at, "closed loop here");
            review.push(
                mistake.help("Keep one of them; `concurrency: null` drops an inherited one, `max_in_flight` caps an open loop."),
            );
            None
        }
        (None, None) => {
            let mistake = Mistake::new(draft.place("load"), "no load shape", "needs `concurrency` or `rate`");
            review.push(mistake.help("`concurrency: 8` is a closed loop, `rate: 8/s` an open one."));
            None
        }
    }
}

fn only_open(draft: &Draft<'_>, shape: &Shape, review: &mut Review) {
    let (wrong, because): (&[&str], &str) = match shape {
        _ if draft.swept("load.rate") => return,
        Shape::Closed { .. } => {
            (&["arrivals", "max_in_flight"], "`concurrency` makes a closed loop: requests follow one another")
        }
        Shape::Burst => (&["arrivals"], "`rate: burst` sends everything at time 0"),
        _ => return,
    };
    for entry in wrong.iter().filter_map(|key| draft.entry(&format!("load.{key}"))) {
        let mistake = Mistake::new(entry.key_at, format!("`{}` goes with a rate", entry.key), "has no meaning here");
        review.push(mistake.help(format!("{because}.")));
    }
}

fn ends(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    let burst = load.shape == Shape::Burst;
    if draft.get("load.requests").is_none() && (load.duration.is_none() || burst) {
        let (message, label) = if burst {
            ("a burst needs `requests`", "how many at once?")
        } else {
            ("this load has no end", "needs `requests` or `duration`")
        };
        review.push(
            Mistake::new(draft.place("load"), message, label)
                .help("For example `requests: 200`, `duration: 60s` (not for a burst), or both."),
        );
    }
    if burst && matches!(load.warmup, Warmup::Span(_)) {
        let at = draft.place("load.warmup");
        review.push(
            Mistake::new(at, "a burst has no warm-up span", "everything is due at time 0").help("Write a number of requests."),
        );
    }
}
