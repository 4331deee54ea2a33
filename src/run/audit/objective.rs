//! One objective under the self-audit: could what the load generator did have flipped its verdict?

use crate::run::audit::Findings;
use llmscen_core::check::{Check, Confidence, Op, Ruling, Subject, Verdict};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::ObjectiveAudit;
use llmscen_report::format::{against, millis};

/// By what a value is shifted where the load generator is late, and which conditions a claim on it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// From the scheduled time: late timestamps and send delays make it longer, never shorter.
    Latency,
    /// From the actual send time: send delays hide from it.
    Service,
    /// Between tokens: a late timestamp makes one gap longer and the next one shorter.
    Pace,
    /// The share of failed requests.
    Errors,
    /// Counts per second.
    Throughput,
    /// A figure of the case as a whole, or a signal.
    Figure,
    /// What no timestamp and no load has a part in.
    Fixed,
}

/// The kind of an objective's subject, and whether low values of it are good.
fn kind(check: &Check) -> (Kind, bool) {
    let metric = match &check.subject {
        Subject::Goodput(_) => return (Kind::Latency, false),
        Subject::Signal { .. } => return (Kind::Figure, true),
        Subject::Metric { metric, .. } => *metric,
    };
    let kind = match metric {
        Metric::Ttft
        | Metric::TimeToFirstAnswer
        | Metric::TtftFirstTurn
        | Metric::TtftLaterTurns
        | Metric::TtftPerPromptToken
        | Metric::E2e => Kind::Latency,
        Metric::OutputTpsPerRequest | Metric::TotalTpsPerRequest | Metric::OutputTpsPerUser | Metric::Ntpot => Kind::Latency,
        Metric::TtftService | Metric::E2eService | Metric::Ttfc | Metric::PrefillTps => Kind::Service,
        Metric::Itl | Metric::Tpot | Metric::DecodeTps => Kind::Pace,
        Metric::ErrorRate => Kind::Errors,
        Metric::RequestThroughput | Metric::ItemThroughput | Metric::SessionThroughput | Metric::OutputTps => Kind::Throughput,
        Metric::TotalTps | Metric::OutputTpsPerGpu | Metric::OutputTpsSteady | Metric::GoodputRate => Kind::Throughput,
        Metric::ConcurrencyMean | Metric::ConcurrencyMax | Metric::EnergyPerToken | Metric::Mfu | Metric::Mbu => Kind::Figure,
        _ => Kind::Fixed,
    };
    (kind, !metric.higher_is_better())
}

/// Whether an objective needs the sample at both ends even where no timestamp was late.
pub(super) fn is_throughput(check: &Check) -> bool {
    kind(check).0 == Kind::Throughput
}

/// What a verdict claims of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It is as fast as it must be, or better.
    Good,
    /// It is not.
    Bad,
    /// Its value is, or is not, a certain one; or no such claim can be made, as if the server were to blame.
    Either,
}

fn claim(check: &Check, ruling: Ruling, low_is_good: bool) -> Option<Claim> {
    let passes = match ruling {
        Ruling::Pass => true,
        Ruling::Fail => false,
        Ruling::Inconclusive => return Some(Claim::Either),
        Ruling::Invalid => return None,
    };
    Some(match check.op {
        Op::Equal | Op::Unequal => Claim::Either,
        op if passes == (op.is_ceiling() == low_is_good) => Claim::Good,
        _ => Claim::Bad,
    })
}

/// The verdict that stands: the one on the values as measured, or INVALID where something that the load generator did could have
/// flipped it. `ends`: the verdicts with the server as slow, and as fast, as the measurement allows.
pub(super) fn audited(measured: Verdict, ends: Option<[Verdict; 2]>, findings: &Findings) -> (Verdict, ObjectiveAudit) {
    let check = &measured.check;
    let mut reasons = conditions(&measured, findings);
    let flipped = ends.as_ref().and_then(|ends| flip(&measured, ends));
    if flipped.is_some() && findings.own_failures {
        let more: Vec<String> = findings.not_offered.iter().filter(|why| !reasons.contains(why)).cloned().collect();
        reasons.extend(more);
    }
    reasons.extend(flipped);
    let [slow, fast] = ends.map_or([None, None], |ends| ends.map(Some));
    let observed = [Some(&measured), slow.as_ref(), fast.as_ref()].map(|own| own.and_then(|own| own.observed));
    let ruling = |own: &Option<Verdict>| own.as_ref().map(|own| own.ruling);
    let audit = ObjectiveAudit {
        expr: check.expr.clone(),
        measured: measured.ruling,
        slow: ruling(&slow),
        fast: ruling(&fast),
        observed,
        reasons,
    };
    if audit.reasons.is_empty() {
        return (measured, audit);
    }
    let cause = findings.cause.as_ref().filter(|_| !findings.own_failures).into_iter();
    let note = audit.reasons.iter().chain(cause).cloned().collect::<Vec<_>>().join("; ");
    (Verdict { ruling: Ruling::Invalid, need: None, note: Some(note), ..measured }, audit)
}

/// The conditions of its claim that do not hold.
fn conditions(measured: &Verdict, findings: &Findings) -> Vec<String> {
    let check = &measured.check;
    let (kind, low_is_good) = kind(check);
    let Some(claim) = claim(check, measured.ruling, low_is_good).filter(|_| kind != Kind::Fixed) else {
        return Vec::new();
    };
    if measured.observed.is_none() {
        // Without data it may be the load generator that gave none.
        return if measured.ruling == Ruling::Pass { Vec::new() } else { findings.not_offered.clone() };
    }
    let mut reasons = Vec::new();
    let (good, bad) = (claim != Claim::Bad, claim != Claim::Good);
    if good && kind != Kind::Throughput {
        reasons.extend(findings.not_offered.iter().cloned());
    }
    if good && kind == Kind::Service && check.op.is_ceiling() {
        reasons.extend(hidden(check, findings));
    }
    let shut = match kind {
        Kind::Latency | Kind::Service => bad || !is_ordered(check),
        Kind::Figure => true,
        Kind::Pace | Kind::Errors => !is_ordered(check),
        Kind::Throughput | Kind::Fixed => false,
    };
    if shut {
        reasons.extend(findings.stalled.iter().cloned());
    }
    if bad || kind == Kind::Throughput {
        reasons.extend(findings.busy.iter().cloned());
    }
    reasons
}

/// Whether later timestamps can only move the compared value one way.
fn is_ordered(check: &Check) -> bool {
    let moves = |stat: &Option<Stat>| !matches!(stat, Some(Stat::Sd | Stat::Count));
    let ordered = |subject: &Subject| if let Subject::Metric { stat, .. } = subject { moves(stat) } else { true };
    !matches!(check.op, Op::Equal | Op::Unequal) && ordered(&check.subject)
}

/// What happens before the actual send time is not in a service latency: where delays are not small beside it, a queue may hide.
fn hidden(check: &Check, findings: &Findings) -> Option<String> {
    let delay = findings.delay_p99.filter(|delay| *delay > check.limit / 10.0)?;
    let limit = millis(check.limit / 10.0);
    Some(format!("send delay p99 was {}, over a tenth of the limit ({limit}): waiting may hide before the send", millis(delay)))
}

/// The end that rules otherwise.
fn flip(measured: &Verdict, [slow, fast]: &[Verdict; 2]) -> Option<String> {
    if kind(&measured.check).0 == Kind::Fixed || measured.ruling == Ruling::Invalid {
        return None;
    }
    let other = [
        (slow, "with every stall counted against the server"),
        (fast, "without the load generator's stalls, delays and failures"),
    ];
    let (other, how) = other.into_iter().find(|(own, _)| own.ruling != measured.ruling)?;
    let check = &measured.check;
    let said = |own: &Verdict| {
        let bound = matches!(check.confidence, Confidence::Level(_)).then_some(own.bound).flatten();
        let bound = bound.map(|bound| format!(", bound {}", against(Some(bound), check.limit, check.subject.unit())));
        format!(
            "{} ({}{})",
            own.ruling.name().to_uppercase(),
            against(own.observed, check.limit, check.subject.unit()),
            bound.unwrap_or_default()
        )
    };
    Some(format!("{} as measured, {} {how}", said(measured), said(other)))
}

#[cfg(test)]
mod tests;
