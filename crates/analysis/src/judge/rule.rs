//! The verdict on one check of one case.

use crate::judge::assessment::Assessment;
use crate::judge::cost::CostLimit;
use crate::judge::counted::{Samples, TOO_SHORT, judge_quantile, judge_share, stricter};
use crate::judge::ends::without_ends;
use crate::judge::evidence::{
    Evidence, estimate, goodput_flags, histogram_bound, point_only_reason,
};
use crate::judge::overload::{self, Queue};
use crate::judge::paired::judge_answers;
use crate::judge::ratio::judge_ratio;
use crate::judge::relative::judge_relative;
use crate::judge::{design_effect, heavy_tail};
use crate::sample::Sample;
use llmscen_core::check::{
    Check, Confidence, NoData, Op, RequestLimit, RequestSet, Ruling, Subject, Verdict,
};
use llmscen_core::early_stop::Aborted;
use llmscen_core::load::Shape;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::stats::quantile::{rank, select_quantile};
use llmscen_core::telemetry::StatValue;
use llmscen_core::units::Unit;

/// The note of a verdict that the self-audit invalidates.
pub const REJECTED: &str = "not judged: the self-audit failed";

/// Servers that report cached tokens only on request.
const NO_CACHED_TOKENS: &str = "no data: no reply reports its cached tokens (vLLM needs \
                                `--enable-prompt-tokens-details`, SGLang `--enable-cache-report`)";

/// The note of a default objective that failed.
const DEFAULT_FAILED: &str = "a default, because no objective in `slo` limits failures; \
    `slo_defaults.error_rate` changes it";

/// A quantile with a tail of at most this share should have [`TAIL_SAMPLES`] samples in it.
const RARE_TAIL: f64 = 0.0100001;
const TAIL_SAMPLES: u64 = 10;

/// Effective samples of the median from which the correlation time of an open loop is short compared with its run.
const SHORT_MEMORY_SAMPLES: f64 = 100.0;

/// The verdict on a check. Where the self-audit failed, every ruling is invalid and the values are kept.
pub fn rule(check: &Check, sample: &Sample, conditions: &Conditions) -> Verdict {
    let assessment = assess(check, sample, conditions);
    let ran = !sample.requests.is_empty() || sample.counts.warmup > 0;
    let valid = conditions.valid || is_about_startup(check) && assessment.observed.is_some();
    let rejected = (!valid).then_some(if ran { REJECTED } else { "did not run" });
    let Assessment {
        ruling,
        observed,
        bound,
        n,
        effective_n,
        need,
        note,
    } = assessment.with_note(rejected);
    let (ruling, need) = if valid {
        (ruling, need)
    } else {
        (Ruling::Invalid, None)
    };
    Verdict {
        check: check.clone(),
        ruling,
        observed,
        bound,
        n,
        effective_n,
        need,
        note,
    }
}

fn assess(check: &Check, sample: &Sample, conditions: &Conditions) -> Assessment {
    if let Some((seen, n)) = histogram_bound(check, sample) {
        return judge_histogram_bound(check, seen, n);
    }
    if let Some(limit) = CostLimit::of(check, sample) {
        return limit.to_cost(assess(&limit.check, sample, conditions));
    }
    let judge = |check: &Check, sample: &Sample| {
        let evidence = Evidence::collect(check, sample);
        match unmeasured(check, sample) {
            0 => assess_evidence(check, sample, conditions, evidence),
            unmeasured => assess_with_unmeasured(check, sample, conditions, evidence, unmeasured),
        }
    };
    let of_rest = |rest: &Sample| judge(check, rest);
    let judged = judge(check, sample);
    let judged = without_ends((check, sample), conditions.load, judged, of_rest);
    let judged = heavy_tail::with_margin(check, sample, judged, |check| judge(check, sample));
    match conditions.overload_note(check) {
        Some(note) => judged.without_pass(note),
        None => judged,
    }
}

/// Requests whose value is unknown: replies of reasoning alone, if the check is on the time to their answer, and
/// replies without a pace, if it is on a goodput that limits it.
fn unmeasured(check: &Check, sample: &Sample) -> usize {
    let requests = sample.requests.iter();
    match &check.subject {
        Subject::Metric {
            metric: Metric::TimeToFirstAnswer,
            tags,
            ..
        } => requests
            .filter(|request| request.reasoning_alone() && request.tags().match_all(tags))
            .count(),
        Subject::Goodput(limits) => requests
            .filter(|request| !request.left() && request.meets(limits).is_none())
            .count(),
        _ => 0,
    }
}

/// Replies that ended within their reasoning would have answered later, at an unknown time, and those without a pace
/// may be good or not. The ruling stands where it is the same with and without them, whatever they are; otherwise the
/// limit is not measured.
fn assess_with_unmeasured(
    check: &Check,
    sample: &Sample,
    conditions: &Conditions,
    evidence: Evidence,
    unmeasured: usize,
) -> Assessment {
    let is_share = matches!(evidence, Evidence::Share { .. });
    let reason = match (is_share, unmeasured) {
        (true, 1) => "1 reply has no pace".to_owned(),
        (true, n) => format!("{n} replies have no pace"),
        (false, 1) => "1 reply is reasoning alone, without an answer".to_owned(),
        (false, n) => format!("{n} replies are reasoning alone, without an answer"),
    };
    // The first one is reported, and the last one of values, or the first share, is without those replies.
    let possible = match evidence {
        Evidence::Share { hits, n } => {
            let more = unmeasured as u64;
            let shares = [(hits, n), (hits, n + more), (hits + more, n + more)];
            shares.map(|(hits, n)| Evidence::Share { hits, n }).to_vec()
        }
        Evidence::Values(values, stat) => {
            // Failed requests are infinite too.
            let mut left = unmeasured;
            let mut answered = values.clone();
            answered.retain(|value| {
                let is_unanswered = value.is_infinite() && left > 0;
                left -= usize::from(is_unanswered);
                !is_unanswered
            });
            [values, answered]
                .map(|values| Evidence::Values(values, stat))
                .to_vec()
        }
        // A mean is not measured.
        other => vec![other],
    };
    let judged: Vec<Assessment> = possible
        .into_iter()
        .map(|evidence| assess_evidence(check, sample, conditions, evidence))
        .collect();
    let known = if is_share {
        judged.first()
    } else {
        judged.last()
    };
    let Some(known) = known.cloned() else {
        return without_data(check, sample);
    };
    let same = judged.iter().all(|other| other.ruling == known.ruling);
    let undecided = known.ruling == Ruling::Inconclusive || known.observed.is_none();
    let stands = match is_share {
        true => same || undecided,
        false => judged.len() > 1 && same && known.observed.is_some(),
    };
    match judged.into_iter().next().filter(|_| stands) {
        Some(reported) => reported,
        None => Assessment {
            ruling: Ruling::Inconclusive,
            bound: None,
            need: None,
            note: Some(format!("not measured: {reason}")),
            ..known
        },
    }
}

fn assess_evidence(
    check: &Check,
    sample: &Sample,
    conditions: &Conditions,
    mut evidence: Evidence,
) -> Assessment {
    let (Some(observed), n) = estimate(&mut evidence) else {
        return without_data(check, sample);
    };
    let on_failed = (observed.is_infinite() && check.of == RequestSet::Scheduled).then_some(
        "this value falls on a failed request; failed requests exceed any limit (`of: scheduled`)",
    );
    if let (Evidence::Ratio(units), Confidence::Level(_)) = (&evidence, check.confidence)
        && let Some(whole) = units.whole
    {
        let note = format!("the value is over {whole}");
        return Assessment {
            ruling: Ruling::Inconclusive,
            ..Assessment::point(false, observed, n)
        }
        .with_note(Some(note));
    }
    if let Some(relative) = &check.relative {
        if let Some(judged) = judge_answers(check, relative, sample, observed) {
            return judged;
        }
        let dependence = design_effect::dependence(check, sample, &evidence, observed);
        return judge_relative(check, relative, evidence, (observed, n, dependence))
            .with_note(on_failed);
    }
    let is_open_loop = conditions.load == LoadKind::Arrivals;
    let long_memory = conditions.queue.has_long_memory && overload::limits_waits(check);
    let samples = |evidence: &Evidence, level| {
        let dependence = design_effect::dependence(check, sample, evidence, observed);
        // The median is searched last: gaps may be millions.
        let queue_is_bounded = match conditions.load {
            LoadKind::FixedUsers | LoadKind::ChangingUsers => has_bounded_queue(check, sample),
            LoadKind::Arrivals => {
                !dependence.long
                    && !long_memory
                    && has_bounded_queue(check, sample)
                    && has_short_memory(check, sample, evidence, level)
            }
            LoadKind::Other => false,
        };
        let too_short = is_open_loop && dependence.long || long_memory;
        Samples {
            queue_is_bounded,
            too_short,
            ..Samples::new(n, dependence, level)
        }
    };
    let point = Assessment::point(check.op.holds(observed, check.limit), observed, n);
    let judged = match (check.confidence, point_only_reason(check, &evidence)) {
        (Confidence::Point, _) => point,
        // A NaN limit fails every comparison.
        _ if check.limit.is_nan() => point,
        (Confidence::Level(_), Some(reason)) => point.with_note(Some(reason)),
        (Confidence::Level(level), None) => match evidence {
            Evidence::Values(_, Stat::Quantile(p)) => {
                let samples = samples(&evidence, level);
                let Evidence::Values(values, _) = evidence else {
                    return point;
                };
                judge_quantile(check, values, p, (samples, level))
            }
            Evidence::Share { hits, .. } => {
                let samples = samples(&evidence, level);
                let strict = samples
                    .margin()
                    .and_then(|margin| strict_hits(check, sample, margin));
                judge_share(check, hits, strict, (samples, level))
            }
            Evidence::Ratio(units) => {
                let judged = judge_ratio(check, &units, observed, level);
                if long_memory {
                    judged.without_pass(TOO_SHORT)
                } else {
                    judged
                }
            }
            Evidence::Values(..) | Evidence::Figure(..) => point,
        },
    };
    let few = few_samples_note(check, &judged);
    let judged = judged.with_note(on_failed.map(str::to_owned).or(few));
    let unasked = check.is_default && judged.ruling == Ruling::Fail;
    judged.with_note(unasked.then_some(DEFAULT_FAILED))
}

/// The note of a verdict on a rare tail with few samples in it.
fn few_samples_note(check: &Check, judged: &Assessment) -> Option<String> {
    let Subject::Metric {
        metric,
        stat: Some(Stat::Quantile(p)),
        ..
    } = check.subject
    else {
        return None;
    };
    let decided = matches!(judged.ruling, Ruling::Pass | Ruling::Fail) && judged.bound.is_some();
    let is_rare = p.min(1.0 - p) <= RARE_TAIL && 0.0 < p && p < 1.0;
    let below = rank(judged.n.max(1) as usize, p) as u64;
    let (tail, what) = match (p > 0.5, metric.unit(), metric.per()) {
        (false, ..) => (below, "lowest value"),
        (true, _, Scope::Gap) => (judged.n - below, "longest gap"),
        (true, Unit::Millis, _) => (judged.n - below, "slowest request"),
        (true, ..) => (judged.n - below, "highest value"),
    };
    (decided && judged.note.is_none() && is_rare && tail < TAIL_SAMPLES).then(|| {
        let quantile = Stat::Quantile(p);
        match tail {
            0 | 1 => format!("{quantile} rests on the {what}"),
            tail => format!("{quantile} rests on the {tail} {what}s"),
        }
    })
}

/// Whether a fixed number of users bounds the queue that correlates the samples of a check. It bounds neither the
/// batch steps that correlate gaps, nor failures.
fn has_bounded_queue(check: &Check, sample: &Sample) -> bool {
    let is_per_gap =
        matches!(&check.subject, Subject::Metric { metric, .. } if metric.per() == Scope::Gap);
    let with_failed =
        matches!(&check.subject, Subject::Goodput(_)) || check.of == RequestSet::Scheduled;
    !is_per_gap
        && (!with_failed
            || sample
                .requests
                .iter()
                .all(|request| request.ok() || request.left()))
}

/// Whether the correlation time of an open loop's queue is a small part of the run. The requests above the median
/// show that better than the few above a high quantile.
fn has_short_memory(check: &Check, sample: &Sample, evidence: &Evidence, level: f64) -> bool {
    let Evidence::Values(values, _) = evidence else {
        return false;
    };
    select_quantile(&mut values.clone(), 0.5).is_some_and(|median| {
        let dependence = design_effect::dependence(check, sample, evidence, median);
        !dependence.long && values.len() as f64 / dependence.effect(level) >= SHORT_MEMORY_SAMPLES
    })
}

/// Requests that meet every limit of a goodput with a margin; None for a check that has no such limits.
fn strict_hits(check: &Check, sample: &Sample, margin: f64) -> Option<u64> {
    let Subject::Goodput(limits) = &check.subject else {
        return None;
    };
    let limits: Vec<RequestLimit> = limits
        .iter()
        .map(|limit| RequestLimit {
            limit: stricter(limit.op, limit.limit, margin),
            ..*limit
        })
        .collect();
    let hits = || {
        goodput_flags(&sample.requests, &limits)
            .into_iter()
            .filter(|good| *good)
            .count() as u64
    };
    (!check.op.is_ceiling()).then(hits)
}

/// Judges a value of which a server's histogram only gives a bound: decided where every possible value gives the same
/// ruling. `n`: the histogram's count.
fn judge_histogram_bound(check: &Check, seen: StatValue, n: u64) -> Assessment {
    let (ruling, bucket) = match seen {
        StatValue::Value(value) => {
            return Assessment::point(check.op.holds(value, check.limit), value, n);
        }
        StatValue::AtMost(most) => (
            ruling_of_bound(check, most, check.op.is_ceiling(), check.limit > most),
            "first",
        ),
        StatValue::AtLeast(least) => (
            ruling_of_bound(check, least, is_floor(check.op), check.limit < least),
            "last",
        ),
    };
    let unit = match &check.subject {
        Subject::Signal { signal, .. } => signal.unit().symbol(),
        _ => "",
    };
    let shown = format!("{}{} {unit}", seen.sign(), seen.number());
    let note = format!(
        "the server's histogram only shows that the value is {} (it falls in the {bucket} bucket)",
        shown.trim_end()
    );
    Assessment {
        ruling,
        observed: None,
        bound: None,
        n,
        effective_n: None,
        need: None,
        note: Some(note),
    }
}

/// `same_side`: the limit and the bound are on the same side of the value, so a limit that the bound meets is met.
/// `out_of_range`: the value cannot equal the limit.
fn ruling_of_bound(check: &Check, bound: f64, same_side: bool, out_of_range: bool) -> Ruling {
    let holds = check.op.holds(bound, check.limit);
    match check.op {
        _ if check.limit.is_nan() => Ruling::Fail,
        Op::Equal if out_of_range => Ruling::Fail,
        Op::Unequal if out_of_range => Ruling::Pass,
        Op::Equal | Op::Unequal => Ruling::Inconclusive,
        _ if same_side && holds => Ruling::Pass,
        _ if !same_side && !holds => Ruling::Fail,
        _ => Ruling::Inconclusive,
    }
}

fn is_floor(op: Op) -> bool {
    matches!(op, Op::More | Op::AtLeast)
}

fn without_data(check: &Check, sample: &Sample) -> Assessment {
    let of_cache = |metric: &Metric| matches!(metric, Metric::CachedShare | Metric::CachedTokens);
    let answered = |tags: &[(String, String)]| {
        let mut requests = sample.requests.iter();
        requests.any(|request| request.ok() && request.tags().match_all(tags))
    };
    let missing = match &check.subject {
        Subject::Metric { metric, tags, .. } if of_cache(metric) && answered(tags) => {
            NO_CACHED_TOKENS
        }
        _ => "no data",
    };
    let (ruling, note) = match check.no_data {
        NoData::Fail => (Ruling::Fail, missing.to_owned()),
        NoData::Inconclusive => (Ruling::Inconclusive, missing.to_owned()),
        NoData::Pass => (
            Ruling::Pass,
            format!("{missing}; passes because the objective sets `no_data: pass`"),
        ),
    };
    Assessment {
        ruling,
        observed: None,
        bound: None,
        n: 0,
        effective_n: None,
        need: None,
        note: Some(note),
    }
}

/// How the load of a case bounds the server's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadKind {
    /// A closed loop: at most one request of each user is in the queue.
    FixedUsers,
    /// The same with a number of users that changes by plan.
    ChangingUsers,
    /// An open loop at one rate: the queue starts empty and may grow without bound.
    Arrivals,
    /// A load that changes with time, or an unknown one.
    #[default]
    Other,
}

impl LoadKind {
    /// The kind of a load shape.
    pub fn of_shape(shape: &Shape) -> LoadKind {
        match shape {
            Shape::Closed { .. } => LoadKind::FixedUsers,
            Shape::Users { .. } => LoadKind::ChangingUsers,
            _ if shape.constant_rate().is_some() => LoadKind::Arrivals,
            Shape::Open { .. }
            | Shape::Burst
            | Shape::Replay { .. }
            | Shape::Rates { .. }
            | Shape::Classes { .. }
            | Shape::Static { .. } => LoadKind::Other,
        }
    }
}

/// The conditions of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// Whether the self-audit accepted the measurement.
    pub valid: bool,
    pub(super) load: LoadKind,
    pub(super) queue: Queue,
}

impl Conditions {
    /// Whether the server's queue grows, so that a check cannot pass.
    pub fn is_overloaded(&self, check: &Check) -> bool {
        self.overload_note(check).is_some()
    }

    fn overload_note(&self, check: &Check) -> Option<String> {
        match check.confidence {
            Confidence::Level(level) => self.queue.overload_note(check, level),
            Confidence::Point => None,
        }
    }

    /// The conditions of a valid measurement, with this sample, under this kind of load.
    pub fn of(sample: &Sample, load: LoadKind) -> Conditions {
        // A load that changes by plan has no one number of requests in flight.
        let queue = (load == LoadKind::Arrivals).then(|| Queue::of(sample));
        Conditions {
            valid: true,
            load,
            queue: queue.unwrap_or_default(),
        }
    }
}

// Cases that were not measured completely.

/// The verdicts as inconclusive because of `why`, whatever the self-audit found; values are kept. A measured startup
/// time keeps its verdict. `has_success`: a request succeeded.
pub fn unmeasured_verdicts(verdicts: Vec<Verdict>, has_success: bool, why: &str) -> Vec<Verdict> {
    let brief = why.split(": ").next().unwrap_or(why);
    let note = match has_success {
        _ if why.contains("not run: ") => why.to_owned(),
        true => format!("not judged: {brief}"),
        false => format!("not measured: {brief}"),
    };
    let inconclusive = |verdict: Verdict| match verdict.observed {
        Some(_) if is_about_startup(&verdict.check) => verdict,
        _ => Verdict {
            ruling: Ruling::Inconclusive,
            need: None,
            note: Some(note.clone()),
            ..verdict
        },
    };
    verdicts.into_iter().map(inconclusive).collect()
}

/// Whether a check is about the startup time of the server, which does not depend on the load or the self-audit.
fn is_about_startup(check: &Check) -> bool {
    matches!(
        check.subject,
        Subject::Metric {
            metric: Metric::Startup,
            ..
        }
    )
}

/// The verdicts of an aborted case: the check that aborted it fails, and the others are inconclusive, since their
/// tests assume a planned number of requests. What the self-audit rejected stays invalid.
pub fn aborted_verdicts(verdicts: Vec<Verdict>, aborted: &Aborted) -> Vec<Verdict> {
    let decided = |(index, verdict): (usize, Verdict)| match verdict.ruling {
        Ruling::Invalid => verdict,
        _ if is_about_startup(&verdict.check) && verdict.observed.is_some() => verdict,
        _ if index == aborted.check as usize => Verdict {
            ruling: Ruling::Fail,
            need: None,
            note: Some(aborted.to_string()),
            ..verdict
        },
        _ => Verdict {
            ruling: Ruling::Inconclusive,
            need: None,
            note: Some(format!(
                "not judged: the case was aborted by `{}`",
                aborted.expr
            )),
            ..verdict
        },
    };
    verdicts.into_iter().enumerate().map(decided).collect()
}

#[cfg(test)]
mod tests;
