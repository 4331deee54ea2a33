//! `load`: arrival process or concurrency, and length of a case.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::schema_table::{
    Block, Default, Kind, Rule, conflicts_with, field, one_of, planned, requires,
};
use crate::sections::{dataset, mix};
use crate::suggest::list;
use crate::tree::{Data, Entry, Node};
use crate::values::load::{
    ARRIVALS, MAX_IN_FLIGHT, RATE, Rate, STAGE_RATE, STAGE_USERS, arrivals, max_in_flight, rate,
    stage_rate, stage_users,
};
use crate::values::time::{
    DURATION, REQUESTS_LEAF, SPAN, Times, WARMUP_LEAF, duration, times, warmup,
};
use llmscen_core::load::{Arrival, Load, Shape, Warmup};
use llmscen_core::plan::TraceFile;
use llmscen_core::stage::{RateStage, UserStage};

const MOST: i64 = 1_000_000;

const WITH_PATH: Rule = requires(&["path"])
    .reason("there is no file here")
    .help("Without `path`, the log is that of the dataset: set this key in `dataset.trace`.");

static TRACE: Block = Block {
    doc: "Arrivals of a log: that of the dataset if it is a trace, or a separate file.",
    short: None,
    fields: &[
        field(
            "path",
            Kind::File,
            "The log; by default the arrivals of `dataset: { kind: trace }`.",
        )
        .example("data/log.jsonl"),
        field(
            "speed",
            Kind::Number(f64::MIN_POSITIVE, f64::INFINITY),
            "Speed relative to the log.",
        )
        .default("1")
        .example("2"),
        field(
            "layout",
            dataset::LAYOUT,
            "With `path`: names of its columns.",
        )
        .defaults(Default::With("path", "auto"))
        .example("azure")
        .rules(&[WITH_PATH]),
        field(
            "start",
            Kind::Leaf(&DURATION),
            "With `path`: skip requests that arrived earlier than this, relative to \
            the first one.",
        )
        .example("5m")
        .rules(&[WITH_PATH]),
        field(
            "end",
            Kind::Leaf(&SPAN),
            "With `path`: skip requests that arrived later than this.",
        )
        .example("10m")
        .rules(&[WITH_PATH]),
    ],
};

pub(crate) static LOAD: Block = Block {
    doc: "Type and length of the load. Exactly one of `concurrency`, `rate`, \
    `stages`, `trace` and `static`; the first two with `requests`, `duration` or \
    both. If the entries of `mix` have rates, none of the five.",
    short: None,
    fields: &[
        field(
            "concurrency",
            Kind::Whole(1, MOST),
            "Closed loop: number of virtual users. Each \
        sends its next request when the previous one completes.",
        )
        .example("16")
        .rules(&[one_of(&SHAPES, "closed loop here").help(KEEP_ONE)]),
        field(
            "rate",
            Kind::Leaf(&RATE),
            "Open loop: mean arrival rate, independent of server speed. `burst` sends \
            everything at time 0.",
        )
        .example("8/s")
        .rules(&[one_of(&SHAPES, "open loop here").help(KEEP_ONE)]),
        field(
            "arrivals",
            Kind::Leaf(&ARRIVALS),
            "Open loop: arrival process.",
        )
        .defaults(Default::WithIn("rate", "stages", "poisson"))
        .example("{ gamma: 0.5 }"),
        field(
            "stages",
            Kind::List(&Kind::Block(&STAGE)),
            "A load in stages: all with a `rate` (open loop) or all with a `concurrency` (closed \
            loop). Each stage is also reported as a case, the first as `ID/stage=1`; `requests` \
            and `duration` may end it earlier.",
        )
        .example("[{ rate: 1/s, for: 30s }, { rate: 1/s -> 20/s, for: 2m }]")
        .rules(&[
            one_of(&SHAPES, "stages here").help(KEEP_ONE),
            conflicts_with(&["search.vary"], &[])
                .message("a search over a load in stages")
                .reason("a probe has a constant load")
                .help("Use a `concurrency` or a `rate`: the search varies the load."),
        ]),
        field(
            "trace",
            Kind::Block(&TRACE),
            "Open loop: requests are sent at the \
        arrival times of a log. `{}` uses that of the dataset.",
        )
        .example("{ speed: 2 }")
        .rules(&[one_of(&SHAPES, "arrivals of a log here").help(KEEP_ONE)]),
        field(
            "static",
            Kind::Block(&STATIC),
            "Closed loop in lockstep: a number of batches, \
        whose requests are sent together.",
        )
        .example("{ batch: 16, rounds: 10 }")
        .rules(&[one_of(&SHAPES, "batches here").help(KEEP_ONE)]),
        field(
            "spread",
            Kind::Leaf(&SPAN),
            "With `concurrency`: user starts are \
        spread evenly over this time.",
        )
        .example("10s"),
        field(
            "max_idle",
            Kind::Leaf(&DURATION),
            "Closed loop with `dataset.turns`: maximum time \
        without a request in flight. Then the think times of all sessions are shortened by the \
        same time, so that the first turn is due at once. Each shard has its own. The report \
        states the time that was left out.",
        )
        .example("10s")
        .rules(&[requires(&["dataset.turns"])
            .reason("only sessions wait")
            .help("Set `dataset.turns`, or remove `max_idle`.")]),
        field(
            "max_in_flight",
            Kind::Leaf(&MAX_IN_FLIGHT),
            "Open loop: maximum \
        in-flight requests. Further arrivals are dropped and counted. With `{ of: 32, \
        then: hold }` they wait until a request ends, and leave in the order in which \
        they were due: their latencies count from the scheduled time, and `held_time` \
        is the time that they waited.",
        )
        .example("{ of: 32, then: hold }"),
        field(
            "requests",
            Kind::Leaf(&REQUESTS_LEAF),
            "Number of measured requests, \
        or a multiple of the concurrency such as `10x`, also with a minimum: \
        `max(200, 10x)`. With `rate` or `trace`, the arrivals go on until the last \
        measured request has ended; those are not measured. With `dataset.turns`, the \
        requests of all sessions: the sessions in progress end with the last of them, \
        as with a `duration`.",
        )
        .example("200")
        .rules(&[WITHOUT_STATIC]),
        field(
            "sessions",
            Kind::Leaf(&REQUESTS_LEAF),
            "With `dataset.turns`: number of measured \
        conversations, each with all its turns. Further ones, which are not measured, keep the \
        server loaded until the last measured one has ended.",
        )
        .example("50")
        .rules(&[
            WITHOUT_STATIC,
            requires(&["dataset.turns"]).reason("use `requests`").help(
                "Sessions are \
                conversations. Set `dataset.turns`, or use `requests`.",
            ),
        ]),
        field(
            "duration",
            Kind::Leaf(&SPAN),
            "Length of the sending phase; the first limit \
        reached ends it.",
        )
        .example("60s")
        .rules(&[WITHOUT_STATIC]),
        field(
            "warmup",
            Kind::Leaf(&WARMUP_LEAF),
            "Warm-up, excluded from results: a request \
        count, a multiple of the concurrency (`1x`), or a duration.",
        )
        .default("0")
        .example("1x"),
        field(
            "graceful_stop",
            Kind::Leaf(&DURATION),
            "Time allowed for in-flight requests to \
        finish after sending stops.",
        )
        .default("30s")
        .example("10s"),
        field(
            "stop_when_saturated",
            Kind::Bool,
            "Open loop: stop sending once requests in flight and TTFT both increase \
            significantly over time. The case reports the time.",
        )
        .defaults(Default::With("rate", "false"))
        .example("true")
        .rules(&[conflicts_with(&["search.vary"], &[])
            .when("true")
            .message("`stop_when_saturated` in a search")
            .reason("a search stops hopeless probes itself")
            .help(
                "Remove it: a probe ends as soon as more \
            requests cannot change its result.",
            )]),
        planned("cooldown"),
    ],
};

/// The load of a case, and the file of its arrivals. Reports contradictions.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<(Load, Option<TraceFile>)> {
    let (shape, fixed) = decode_shape(draft, review)?;
    let users = shape.users().filter(|_| shape.end().is_none());
    let because = if shape.is_closed_loop() {
        "stages have no single concurrency"
    } else {
        "an open loop has no concurrency"
    };
    let has_sessions = draft.dataset_entry("turns").is_some();
    let is_static = draft.entry("load.static").is_some();
    let counted = |key: &str| draft.get(&format!("load.{key}")).filter(|_| !is_static);
    let (requests, turns) = match has_sessions {
        true => (counted("sessions"), counted("requests")),
        false => (counted("requests").or(counted("sessions")), None),
    };
    for node in requests
        .into_iter()
        .chain(turns)
        .chain(draft.get("load.warmup"))
    {
        if users.is_none() && matches!(times(node), Some(Times::Concurrency { .. })) {
            let mistake = Mistake::new(
                node.at,
                "a multiple of the concurrency, without a concurrency",
                because,
            );
            review.push(mistake.help("Write a number of requests, or a duration."));
        }
    }
    check_keys(draft, &shape, review);
    let trace = decode_trace(draft, review);
    let count = |node: Option<&Node>| node.and_then(times).and_then(|times| times.count(users));
    let load = Load {
        shape,
        requests: fixed.or(count(requests)),
        turn_limit: count(turns),
        duration: draft.read("load.duration", duration),
        warmup: warmup(draft.get("load.warmup")?, users)?,
        graceful_stop: draft.read("load.graceful_stop", duration)?,
        max_in_flight: draft.read("load.max_in_flight", max_in_flight),
        stop_when_saturated: draft.flag("load.stop_when_saturated").unwrap_or(false),
        spread: draft.read("load.spread", duration).unwrap_or_default(),
        max_idle: draft.read("load.max_idle", duration),
    };
    check_end(draft, &load, requests.or(turns).is_some(), review);
    check_turn_limit(draft, &load, review);
    check_stages(draft, &load, review);
    check_static(draft, &load, review);
    Some((load, trace))
}

/// Keys that define the shape, of which only one may be set.
const SHAPES: [&str; 5] = ["concurrency", "rate", "stages", "trace", "static"];
const KEEP_ONE: &str = "Keep one of them. To cap an open loop use `max_in_flight`; to drop an \
    inherited key write `{first}: null`.";
const WITHOUT_STATIC: Rule = conflicts_with(&["static"], &[])
    .reason("a second end")
    .beside("ends after its rounds")
    .help("The number of requests is `batch` times `rounds`; remove this.");

/// The shape, and the number of requests if the shape determines it. Reports a missing one, or one that conflicts
/// with a mix.
fn decode_shape(draft: &Draft<'_>, review: &mut Review) -> Option<(Shape, Option<u64>)> {
    let given: Vec<&Entry> = SHAPES
        .iter()
        .filter_map(|key| draft.entry(&format!("load.{key}")))
        .collect();
    if mix::has_arrivals(draft.root) {
        return mix_shape(draft, &given, review).map(|shape| (shape, None));
    }
    let last = match given.as_slice() {
        [] => {
            let mistake = Mistake::new(
                draft.key_span("load"),
                "no load shape",
                format!("needs {}", list(SHAPES, "or")),
            );
            let help = "`concurrency: 8` is a closed loop, `rate: 8/s` an open loop, `trace: {}` \
            replays the arrivals of a log, `stages` change over time, `static` sends batches.";
            review.push(mistake.help(help));
            return None;
        }
        [one] => one,
        _ => return None,
    };
    let shape = match last.key.as_str() {
        "concurrency" => Shape::Closed {
            users: u32::try_from(last.value.integer()?).ok()?,
        },
        "rate" => match rate(&last.value)? {
            Rate::Burst => Shape::Burst,
            Rate::PerSecond(rate) => Shape::Open {
                rate,
                arrival: draft.read("load.arrivals", arrivals)?,
            },
        },
        "stages" => decode_stages(last, draft.read("load.arrivals", arrivals), review)?,
        "static" => return decode_static(draft).map(|(shape, requests)| (shape, Some(requests))),
        _ => Shape::Replay {
            speed: draft.get("load.trace.speed").and_then(Node::number)?,
        },
    };
    Some((shape, None))
}

/// The open loop of a mix whose entries have their own arrivals. Reports another shape.
fn mix_shape(draft: &Draft<'_>, given: &[&Entry], review: &mut Review) -> Option<Shape> {
    if let Some(entry) = given.last() {
        let mistake = Mistake::new(
            entry.key_at,
            "entries of `mix` have their own arrivals",
            "another load here",
        );
        let mistake = mistake.also(draft.key_span("mix"), "has its own arrivals");
        review.push(mistake.help(format!(
            "Remove `{}` here, or give the entries a `weight` instead of a `rate` or `stages`.",
            entry.key
        )));
        return None;
    }
    let classes = mix::shapes(draft, review)?;
    let first = match classes.first()? {
        Shape::Open { arrival, .. } => Some(*arrival),
        _ => None,
    };
    let rates: Option<Vec<f64>> = classes
        .iter()
        .map(|class| match class {
            Shape::Open { rate, arrival } if Some(*arrival) == first => Some(*rate),
            _ => None,
        })
        .collect();
    Some(match rates.zip(first) {
        Some((rates, arrival)) => Shape::Open {
            rate: rates.iter().sum(),
            arrival,
        },
        None => Shape::Classes {
            classes: classes.into(),
        },
    })
}

/// The file of a replay. Reports a replay without a log.
fn decode_trace(draft: &Draft<'_>, review: &mut Review) -> Option<TraceFile> {
    let block = draft.entry("load.trace")?;
    if let Some(path) = draft.file("load.trace.path", review) {
        return Some(TraceFile {
            path,
            spec: dataset::decode_log(draft, "load.trace", review),
        });
    }
    if let Some(mix) = draft.entry("mix") {
        let mistake = Mistake::new(block.key_at, "a mix has no log", "needs a `path`");
        let mistake = mistake.also(mix.key_at, "the log is ambiguous");
        review.push(
            mistake
                .help("`trace: { path: log.jsonl }` is the log whose arrivals all entries share."),
        );
        return None;
    }
    let kind = draft
        .entry("dataset.kind")
        .filter(|kind| kind.value.text().as_deref() != Some("trace"));
    if let Some(kind) = kind.filter(|_| !draft.is_swept("dataset.kind")) {
        let mistake = Mistake::new(block.key_at, "a replay without a log", "needs a `path`");
        let mistake = mistake.also(kind.value.at, "this dataset has no arrivals");
        review.push(mistake.help(
            "`trace: { path: log.jsonl }` is the log; without a path it is that of \
            `dataset: { kind: trace }`.",
        ));
    }
    None
}

/// Reports keys that belong to another shape.
fn check_keys(draft: &Draft<'_>, shape: &Shape, review: &mut Review) {
    let (wrong, because): (&[&str], &str) = match shape {
        _ if draft.is_swept("load.rate") => return,
        Shape::Closed { .. } if draft.entry("load.static").is_none() => (
            &["arrivals", "max_in_flight"],
            "`concurrency` is a closed loop: each user waits for the previous response",
        ),
        Shape::Closed { .. } | Shape::Static { .. } => (
            &["arrivals", "max_in_flight", "spread", "max_idle"],
            "A static load sends the next requests when the previous ones are complete",
        ),
        Shape::Users { .. } => (
            &["arrivals", "max_in_flight", "spread"],
            "Stages of users are a closed loop, and a ramp spreads their starts",
        ),
        Shape::Burst => (
            &["arrivals", "spread", "max_idle"],
            "`rate: burst` sends everything at time 0",
        ),
        Shape::Replay { .. } => (
            &["arrivals", "spread", "max_idle"],
            "A log has its own arrivals",
        ),
        Shape::Open { .. } | Shape::Rates { .. } | Shape::Classes { .. } => {
            (&["spread", "max_idle"], "An open loop has no users")
        }
    };
    let fills = shape.constant_rate().is_some() || matches!(shape, Shape::Replay { .. });
    if let Some(entry) = draft
        .written("load.stop_when_saturated")
        .filter(|entry| entry.value.data == Data::Bool(true) && !fills)
    {
        let mistake = Mistake::new(
            entry.key_at,
            "`stop_when_saturated` needs an open loop (`rate` or `trace`)",
            "this load has no arrivals over time",
        );
        review.push(
            mistake.help("It stops a `rate` or a `trace` that the server cannot keep up with."),
        );
    }
    for entry in wrong
        .iter()
        .filter_map(|key| draft.entry(&format!("load.{key}")))
    {
        let with = match entry.key.as_str() {
            "spread" | "max_idle" => "concurrency",
            _ => "rate",
        };
        let mistake = Mistake::new(
            entry.key_at,
            format!("`{}` needs a {with}", entry.key),
            "has no effect here",
        );
        review.push(mistake.help(format!("{because}.")));
    }
}

/// Reports a dataset whose end is an error of the run, if requests of sessions are counted: how many sessions they
/// take is only known while they run.
fn check_turn_limit(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    let fails = draft
        .dataset_entry("on_exhausted")
        .filter(|entry| entry.value.text().as_deref() == Some("fail"));
    if let (Some(entry), Some(_)) = (fails, load.turn_limit) {
        let mistake = Mistake::new(
            entry.value.at,
            "`on_exhausted: fail` needs `load.sessions`",
            "how many sessions are needed is not known",
        );
        let mistake = mistake.also(
            draft.key_span("load.requests"),
            "counts the requests of all sessions",
        );
        review.push(mistake.help("Count `sessions`, or set `on_exhausted: stop`."));
    }
}

fn check_end(draft: &Draft<'_>, load: &Load, counted: bool, review: &mut Review) {
    let burst = load.shape == Shape::Burst;
    let replay = matches!(load.shape, Shape::Replay { .. });
    let ends_itself = replay || load.shape.end().is_some() || draft.entry("load.static").is_some();
    if !counted && !ends_itself && (load.duration.is_none() || burst) {
        let count = if draft.dataset_entry("turns").is_some() {
            "sessions"
        } else {
            "requests"
        };
        let (message, label) = if burst {
            (
                format!("a burst needs `{count}`"),
                "how many requests?".to_owned(),
            )
        } else {
            (
                "this load has no end".to_owned(),
                format!("needs `{count}` or `duration`"),
            )
        };
        let help =
            format!("For example `{count}: 200`, `duration: 60s` (not for a burst), or both.");
        review.push(Mistake::new(draft.key_span("load"), message, label).help(help));
    }
    if burst && matches!(load.warmup, Warmup::Span(_)) {
        let at = draft.key_span("load.warmup");
        review.push(
            Mistake::new(
                at,
                "a burst cannot have a warm-up duration",
                "all requests are sent at time 0",
            )
            .help("Write a number of requests."),
        );
    }
}

pub(crate) static STAGE: Block = Block {
    doc: "A stage: a rate or a concurrency, and its length. A step is two stages, a \
    spike is three.",
    short: None,
    fields: &[
        field(
            "rate",
            Kind::Leaf(&STAGE_RATE),
            "Open loop: a constant rate such as `8/s`, a linear ramp, or a sine wave around a \
            mean. A stage at `0/s` is a pause: it takes its time, and is neither reported as a \
            case nor judged.",
        )
        .example("1/s -> 20/s")
        .rules(&[one_of(&["rate", "concurrency"], "open loop here").help("Keep one of them.")]),
        field(
            "concurrency",
            Kind::Leaf(&STAGE_USERS),
            "Closed loop: a number of users, or a ramp in even steps. A user leaves when a \
            request ends. A stage at 0 is a pause.",
        )
        .example("4 -> 64")
        .rules(&[one_of(&["rate", "concurrency"], "closed loop here").help("Keep one of them.")]),
        field("for", Kind::Leaf(&SPAN), "Length of the stage.")
            .required()
            .example("30s"),
    ],
};

/// Decodes stages. Reports a list that mixes rates and concurrencies, and incomplete items.
pub(crate) fn decode_stages(
    list: &Entry,
    arrival: Option<Arrival>,
    review: &mut Review,
) -> Option<Shape> {
    let items = list.value.items();
    let kinds: Vec<&Entry> = items
        .iter()
        .filter_map(|item| stage_load(item, review))
        .collect();
    if items.is_empty() {
        review.push(
            Mistake::new(list.value.at, "a list without stages", "is empty")
                .help("For example `[{ rate: 8/s, for: 30s }]`."),
        );
    }
    let first = kinds.first()?;
    if let Some(other) = kinds.iter().find(|entry| entry.key != first.key) {
        let mistake = Mistake::new(
            other.key_at,
            "stages with both a rate and a concurrency",
            format!("`{}` here", other.key),
        );
        let mistake = mistake.also(first.key_at, format!("`{}` here", first.key));
        review.push(mistake.help(
            "A rate is an open loop and a concurrency a closed one: use one of them \
            in all stages.",
        ));
        return None;
    }
    if kinds.len() < items.len() {
        return None;
    }
    let spans = items.iter().map(|item| item.get("for").and_then(duration));
    let shape = if first.key == "rate" {
        let stage = |(entry, span): (&&Entry, _)| {
            Some(RateStage {
                rate: stage_rate(&entry.value)?,
                span: span?,
            })
        };
        let stages = kinds
            .iter()
            .zip(spans)
            .map(stage)
            .collect::<Option<Vec<_>>>()?;
        Shape::Rates {
            stages: stages.into(),
            arrival: arrival?,
        }
    } else {
        let stage = |(entry, span): (&&Entry, _)| {
            let (from, to) = stage_users(&entry.value)?;
            Some(UserStage {
                from,
                to,
                span: span?,
            })
        };
        let stages = kinds
            .iter()
            .zip(spans)
            .map(stage)
            .collect::<Option<Vec<_>>>()?;
        Shape::Users {
            stages: stages.into(),
        }
    };
    if shape.is_pause() {
        review.push(Mistake::new(
            list.key_at,
            "these stages send no requests",
            "all of them are pauses",
        ));
        return None;
    }
    Some(shape)
}

/// The rate or the concurrency of a stage.
fn stage_load<'a>(item: &'a Node, review: &mut Review) -> Option<&'a Entry> {
    match (item.entry("rate"), item.entry("concurrency")) {
        (Some(_), Some(_)) => None,
        (None, None) => {
            let mistake = Mistake::new(
                item.at,
                "a stage without a load",
                "needs rate or concurrency",
            );
            review.push(
                mistake.help(
                    "For example `{ rate: 8/s, for: 30s }`, or `{ concurrency: 8, for: 30s }`.",
                ),
            );
            None
        }
        (rate, concurrency) => rate.or(concurrency),
    }
}

/// Reports a warm-up as long as the stages; warns of stages after the end of the duration.
fn check_stages(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    let Some(end) = load.shape.end() else { return };
    if let Warmup::Span(span) = load.warmup {
        if span >= end {
            let mistake = Mistake::new(
                draft.key_span("load.warmup"),
                "the warm-up is as long as the stages",
                "leaves nothing to measure",
            );
            review.push(
                mistake.help("The warm-up is the first part of the stages, which is not measured."),
            );
        }
        let cut = load.sending_end(Some(span)).unwrap_or(end);
        warn_cut_off(draft, load, cut, review);
    } else if load.warmup == Warmup::Requests(0) {
        warn_cut_off(draft, load, load.sending_duration().unwrap_or(end), review);
    }
}

fn warn_cut_off(
    draft: &Draft<'_>,
    load: &Load,
    cut: llmscen_core::units::Nanos,
    review: &mut Review,
) {
    if let Some(index) = load.shape.stages().iter().position(|stage| stage.0 >= cut) {
        review.warn(
            draft.key_span("load.duration"),
            format!(
                "stage {} starts after the duration and is not run",
                index + 1
            ),
        );
    }
}

const BARRIER: Kind = Kind::Choice(
    &[
        ("round", "Wait for the whole batch before sending the next"),
        (
            "none",
            "Send a request when one ends, as in a closed loop of `batch` users",
        ),
    ],
    &[],
);

static STATIC: Block = Block {
    doc: "Offline mode: batches of requests that are sent at once. `batch` times \
    `rounds` is the number of requests.",
    short: None,
    fields: &[
        field("batch", Kind::Whole(1, MOST), "Requests per batch.")
            .required()
            .example("16"),
        field("rounds", Kind::Whole(1, MOST), "Number of batches.")
            .required()
            .example("10"),
        field("barrier", BARRIER, "When the next request is sent.")
            .default("round")
            .example("none"),
    ],
};

/// The shape and its number of requests.
fn decode_static(draft: &Draft<'_>) -> Option<(Shape, u64)> {
    let batch: u32 = draft.count("load.static.batch")?;
    let rounds: u64 = draft.count("load.static.rounds")?;
    let requests = u64::from(batch).saturating_mul(rounds);
    match draft.text("load.static.barrier")?.as_ref() {
        "none" => Some((Shape::Closed { users: batch }, requests)),
        _ => Some((Shape::Static { batch }, requests)),
    }
}

/// Reports a warm-up that is not a whole number of rounds.
fn check_static(draft: &Draft<'_>, load: &Load, review: &mut Review) {
    if draft.entry("load.static").is_none() {
        return;
    }
    let Shape::Static { batch } = load.shape else {
        return;
    };
    let is_whole = match load.warmup {
        Warmup::Requests(requests) => requests % u64::from(batch) == 0,
        Warmup::Span(_) => false,
    };
    if !is_whole {
        let mistake = Mistake::new(
            draft.key_span("load.warmup"),
            "the warm-up is not a whole number of rounds",
            "ends within a round",
        );
        review.push(mistake.help(format!(
            "`warmup: 1x` is one round, here {batch} requests; `2x` is two."
        )));
    }
}
