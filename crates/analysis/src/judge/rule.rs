//! One check of one case, ruled.

use crate::judge::counted::{Samples, judge_quantile, judge_share, stricter};
use crate::judge::design_effect;
use crate::judge::evidence::{self, Evidence, goodput_flags};
use crate::judge::point::{estimate, judge_bounded, reason};
use crate::judge::ratio::judge_ratio;
use crate::judge::relative::judge_relative;
use crate::sample::Sample;
use llmscen_core::check::{Check, Confidence, NoData, Of, RequestLimit, Ruling, Subject, Verdict};
use llmscen_core::early_stop::Aborted;
use llmscen_core::load::Shape;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::stats::quantile::select_quantile;
use llmscen_core::stats::quantile_bound::Decision;

/// The note of a verdict that the self-audit invalidates.
pub const REJECTED: &str = "not judged: the self-audit failed";

/// A quantile of a rarer tail than this rests on few samples, and how many are usual for one.
const RARE: (f64, u64) = (0.0100001, 1000);

/// Effective samples of the median from which on the memory of an open loop is short beside its run.
const FORGETS: f64 = 100.0;

/// Rules on a check by a sample. Where the self-audit failed every ruling is invalid, the numbers stay.
pub fn rule(check: &Check, sample: &Sample, conditions: &Conditions) -> Verdict {
    let opinion = opinion(check, sample, conditions);
    let valid = conditions.valid;
    let ran = !sample.requests.is_empty() || sample.counts.warmup > 0;
    let why = if ran { REJECTED } else { "did not run" };
    let valid = valid || is_of_startup(check) && opinion.observed.is_some();
    let audit = (!valid).then_some(why);
    let Opinion { ruling, observed, bound, n, effective_n, need, note } = opinion.noted(audit);
    let (ruling, need) = if valid { (ruling, need) } else { (Ruling::Invalid, None) };
    Verdict { check: check.clone(), ruling, observed, bound, n, effective_n, need, note }
}

fn opinion(check: &Check, sample: &Sample, conditions: &Conditions) -> Opinion {
    if let Some((seen, n)) = evidence::bounded(check, sample) {
        return judge_bounded(check, seen, n);
    }
    let mut evidence = Evidence::of(check, sample);
    let (Some(observed), n) = estimate(&mut evidence) else { return without_data(check, sample) };
    let lost = observed.is_infinite().then_some("the value lies among the failed requests, which break any limit");
    if let Some(own) = &check.relative {
        let dependence = design_effect::dependence(check, sample, &evidence, observed);
        return judge_relative(check, own, evidence, (observed, n, dependence)).noted(lost);
    }
    let samples = |evidence: &Evidence, level| {
        let dependence = design_effect::dependence(check, sample, evidence, observed);
        // Gaps may be millions, and the median is looked for last.
        let bounded = match conditions.load {
            LoadKind::FixedUsers => bounded(check, sample),
            LoadKind::Arrivals => !dependence.long && bounded(check, sample) && forgets(check, sample, evidence, level),
            LoadKind::Other => false,
        };
        let too_short = conditions.load == LoadKind::Arrivals && dependence.long;
        Samples { bounded, too_short, ..Samples::new(n, dependence, level) }
    };
    let compared = Opinion::point(check.op.holds(observed, check.limit), observed, n);
    let judged = match (check.confidence, reason(check, &evidence)) {
        (Confidence::Point, _) => compared,
        // Nothing holds for a limit that is not a number.
        _ if check.limit.is_nan() => compared,
        (Confidence::Level(_), Some(reason)) => compared.noted(Some(reason)),
        (Confidence::Level(level), None) => match evidence {
            Evidence::Values(_, Stat::Quantile(p)) => {
                let samples = samples(&evidence, level);
                let Evidence::Values(values, _) = evidence else { return compared };
                judge_quantile(check, values, p, (samples, level))
            }
            Evidence::Share { hits, .. } => {
                let samples = samples(&evidence, level);
                let strict = samples.margin().and_then(|margin| strict_hits(check, sample, margin));
                judge_share(check, hits, strict, (samples, level))
            }
            Evidence::Ratio(units) => judge_ratio(check, &units, observed, level),
            Evidence::Values(..) | Evidence::Figure(..) => compared,
        },
    };
    let few = few(check, &judged);
    judged.noted(lost.map(str::to_owned).or(few))
}

/// A verdict on a p99 from few samples says so: it is right, and yet no figure to publish.
fn few(check: &Check, opinion: &Opinion) -> Option<String> {
    let Subject::Metric { stat: Some(Stat::Quantile(p)), .. } = check.subject else { return None };
    let (tail, usual) = RARE;
    let decided = matches!(opinion.ruling, Ruling::Pass | Ruling::Fail) && opinion.bound.is_some();
    (decided && opinion.note.is_none() && opinion.n < usual && p.min(1.0 - p) <= tail && 0.0 < p && p < 1.0).then(|| {
        format!("decided by {} samples; draft-gaikwad-llm-benchmarking-methodology asks for at least {usual}", opinion.n)
    })
}

/// Whether users bound what correlates the samples of a check: not the steps of a batch, from which gaps come, and not failures.
fn bounded(check: &Check, sample: &Sample) -> bool {
    let gaps = matches!(&check.subject, Subject::Metric { metric, .. } if metric.per() == Scope::Gap);
    let with_failed = matches!(&check.subject, Subject::Goodput(_)) || check.of == Of::Scheduled;
    !gaps && (!with_failed || sample.requests.iter().all(|request| request.ok() || request.left()))
}

/// Whether the queue of an open loop forgets within a small part of the run. The requests above the median show that better than the
/// few above a high quantile.
fn forgets(check: &Check, sample: &Sample, evidence: &Evidence, level: f64) -> bool {
    let Evidence::Values(values, _) = evidence else { return false };
    let middle = select_quantile(&mut values.clone(), 0.5);
    middle.is_some_and(|middle| {
        let dependence = design_effect::dependence(check, sample, evidence, middle);
        !dependence.long && values.len() as f64 / dependence.effect(level) >= FORGETS
    })
}

/// Requests that meet every limit of a goodput by a margin too; None for a limit that has no such.
fn strict_hits(check: &Check, sample: &Sample, margin: f64) -> Option<u64> {
    let Subject::Goodput(limits) = &check.subject else { return None };
    let limits: Vec<RequestLimit> =
        limits.iter().map(|one| RequestLimit { limit: stricter(one.op, one.limit, margin), ..*one }).collect();
    let hits = || goodput_flags(&sample.requests, &limits).into_iter().filter(|good| *good).count() as u64;
    (!check.op.is_ceiling()).then(hits)
}

fn without_data(check: &Check, sample: &Sample) -> Opinion {
    const NO_WINDOW: &str =
        "sending stopped before any request had succeeded, so there is no throughput: send more requests, or measure for longer";
    let (ruling, note) = match check.no_data {
        NoData::Fail if has_no_window(check, sample) => (Ruling::Inconclusive, NO_WINDOW),
        NoData::Fail => (Ruling::Fail, "no data"),
        NoData::Inconclusive => (Ruling::Inconclusive, "no data"),
        NoData::Pass => (Ruling::Pass, "no data: passes only because of `no_data: pass`"),
    };
    Opinion { ruling, observed: None, bound: None, n: 0, effective_n: None, need: None, note: Some(note.into()) }
}

/// Whether a throughput is missing although requests succeeded.
fn has_no_window(check: &Check, sample: &Sample) -> bool {
    let windowed = matches!(&check.subject, Subject::Metric { metric, .. } if Metric::WINDOWED.contains(metric));
    windowed
        && sample.requests.iter().any(|request| request.ok())
        && !sample.sending.is_empty()
        && sample.sending.iter().all(|own| *own <= 0.0)
}

/// What one kind of evidence says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opinion {
    pub ruling: Ruling,
    pub observed: Option<f64>,
    pub bound: Option<f64>,
    pub n: u64,
    pub effective_n: Option<f64>,
    pub need: Option<u64>,
    pub note: Option<String>,
}

impl Opinion {
    /// Of a point estimate alone.
    pub(super) fn point(holds: bool, observed: f64, n: u64) -> Opinion {
        let ruling = if holds { Ruling::Pass } else { Ruling::Fail };
        Opinion { ruling, observed: Some(observed), bound: None, n, effective_n: None, need: None, note: None }
    }

    /// The same with a note, where there is one.
    pub(super) fn noted(self, note: Option<impl Into<String>>) -> Opinion {
        Opinion { note: note.map(Into::into).or(self.note), ..self }
    }
}

/// A statistical decision as a ruling.
pub(super) fn ruling(decision: Decision) -> Ruling {
    match decision {
        Decision::Holds => Ruling::Pass,
        Decision::Broken => Ruling::Fail,
        Decision::Open => Ruling::Inconclusive,
    }
}

/// How the load of a case bounds the queue of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadKind {
    /// Users who wait for their replies: at most one request of each is in the queue.
    FixedUsers,
    /// Arrivals at one rate: the queue may grow without bound, and begins empty.
    Arrivals,
    /// A load that changes with time, or of which nothing is known.
    #[default]
    Other,
}

impl LoadKind {
    /// The kind of a shape.
    pub fn of(shape: &Shape) -> LoadKind {
        match shape {
            Shape::Closed { .. } | Shape::Users { .. } => LoadKind::FixedUsers,
            Shape::Open { .. } => LoadKind::Arrivals,
            Shape::Burst | Shape::Replay { .. } | Shape::Rates { .. } | Shape::Static { .. } => LoadKind::Other,
        }
    }
}

/// The conditions that a case was measured under.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Whether the self-audit found the measurement sound.
    pub valid: bool,
    /// The kind of its load.
    pub load: LoadKind,
}

// Cases that were not measured to their end.

/// The verdicts with none of them decided, whatever the self-audit found: `why` is the reason, and figures stay. `some`: whether
/// a request succeeded. A startup time that was measured keeps its verdict.
pub fn not_measured(verdicts: Vec<Verdict>, some: bool, why: &str) -> Vec<Verdict> {
    let brief = why.split(": ").next().unwrap_or(why);
    let note = match some {
        _ if why.contains("not run: ") => why.to_owned(),
        true => format!("not judged: {brief}"),
        false => format!("not measured: {brief}"),
    };
    let undecided = |verdict: Verdict| match verdict.observed {
        Some(_) if is_of_startup(&verdict.check) => verdict,
        _ => Verdict { ruling: Ruling::Inconclusive, need: None, note: Some(note.clone()), ..verdict },
    };
    verdicts.into_iter().map(undecided).collect()
}

/// Whether a check is about the start of the server, which the load and its self-audit have no part in.
pub(super) fn is_of_startup(check: &Check) -> bool {
    matches!(check.subject, Subject::Metric { metric: Metric::Startup, .. })
}

/// The verdicts with the lost limit as broken, whatever the requests still in flight made of it, and no other one decided: the
/// sample ended where it did because of what was in it, and no rule for a planned number of requests holds for such a one.
/// What the self-audit rejects stays invalid.
pub fn given_up(verdicts: Vec<Verdict>, lost: &Aborted) -> Vec<Verdict> {
    let decided = |(place, verdict): (usize, Verdict)| match verdict.ruling {
        Ruling::Invalid => verdict,
        _ if is_of_startup(&verdict.check) && verdict.observed.is_some() => verdict,
        _ if place == lost.check as usize => {
            Verdict { ruling: Ruling::Fail, need: None, note: Some(lost.to_string()), ..verdict }
        }
        _ => Verdict {
            ruling: Ruling::Inconclusive,
            need: None,
            note: Some(format!("not decided: the case was given up because of `{}`", lost.expr)),
            ..verdict
        },
    };
    verdicts.into_iter().enumerate().map(decided).collect()
}

#[cfg(test)]
mod tests;
