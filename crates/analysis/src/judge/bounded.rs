//! Limits on a figure of which a server's histogram knows a bound alone.

use crate::judge::assessment::Opinion;
use llmscen_core::check::{Check, Op, Ruling, Subject};
use llmscen_core::telemetry::Seen;

/// What holds whatever the figure is within its bound, and what is broken whatever it is; all else is open. `n`: what the
/// histogram counted.
pub(super) fn judge(check: &Check, seen: Seen, n: u64) -> Opinion {
    let (ruling, place) = match seen {
        Seen::Value(value) => return Opinion::point(check.op.holds(value, check.limit), value, n),
        Seen::AtMost(most) => (ruling(check, most, check.op.is_ceiling(), check.limit > most), "first"),
        Seen::AtLeast(least) => (ruling(check, least, is_floor(check.op), check.limit < least), "last"),
    };
    let unit = match &check.subject {
        Subject::Signal { signal, .. } => signal.unit().symbol(),
        Subject::Metric { .. } | Subject::Goodput(_) => "",
    };
    let known = format!("{}{} {unit}", seen.sign(), seen.number());
    let note = format!("known only to be {}: it lies in the {place} bucket of the server's histogram", known.trim_end());
    Opinion { ruling, observed: None, bound: None, n, effective_n: None, need: None, note: Some(note) }
}

/// `towards`: the limit bounds the figure on the side on which its bound lies, so that what holds for the bound holds for all.
/// `beyond`: the limit lies where the figure cannot be.
fn ruling(check: &Check, bound: f64, towards: bool, beyond: bool) -> Ruling {
    let holds = check.op.holds(bound, check.limit);
    match check.op {
        _ if check.limit.is_nan() => Ruling::Fail,
        Op::Equal if beyond => Ruling::Fail,
        Op::Unequal if beyond => Ruling::Pass,
        Op::Equal | Op::Unequal => Ruling::Inconclusive,
        _ if towards && holds => Ruling::Pass,
        _ if !towards && !holds => Ruling::Fail,
        _ => Ruling::Inconclusive,
    }
}

fn is_floor(op: Op) -> bool {
    matches!(op, Op::More | Op::AtLeast)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use Ruling::{Fail, Inconclusive, Pass};
    use llmscen_core::check::{Confidence, Verdict};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::signal::Signal;
    use llmscen_core::telemetry::SignalStat;

    /// Of ten, six up to 300 ms, and four beyond 10 s.
    fn ruled(share: f64, op: Op, limit: f64) -> Verdict {
        let subject = Subject::Signal { signal: Signal::ServerQueueTime, stat: Stat::Quantile(share) };
        let confidence = Confidence::Level(0.95);
        let wanted = Check { subject, confidence, ..check(Metric::Ttft, Some(Stat::Quantile(0.99)), op, limit) };
        let mut seen = sample(vec![ok(Metric::Ttft, 1.0)]);
        let buckets = vec![(300.0, 6.0), (10_000.0, 6.0), (f64::INFINITY, 10.0)];
        seen.signals.insert(Signal::ServerQueueTime, SignalStat { n: 10, buckets, ..SignalStat::default() });
        rule(&wanted, &seen, &conditions(true))
    }

    #[test]
    fn in_the_first_bucket_only_what_holds_for_all_of_it_is_decided() {
        for (op, limit, ruling) in [
            (Op::Less, 300.0, Inconclusive),
            (Op::Less, 300.1, Pass),
            (Op::AtMost, 300.0, Pass),
            (Op::AtMost, 299.9, Inconclusive),
            (Op::More, 300.0, Fail),
            (Op::More, 299.9, Inconclusive),
            (Op::AtLeast, 300.0, Inconclusive),
            (Op::AtLeast, 300.1, Fail),
            (Op::Equal, 300.0, Inconclusive),
            (Op::Equal, 300.1, Fail),
            (Op::Unequal, 300.1, Pass),
            (Op::Unequal, 1.0, Inconclusive),
            (Op::Less, f64::NAN, Fail),
        ] {
            let seen = ruled(0.5, op, limit);
            assert_eq!((seen.ruling, seen.observed, seen.n), (ruling, None, 10), "{op} {limit}");
        }
        let note = ruled(0.5, Op::Less, 300.0).note.unwrap();
        assert_eq!(note, "known only to be ≤ 300 ms: it lies in the first bucket of the server's histogram");
    }

    #[test]
    fn in_the_last_bucket_it_is_the_mirror() {
        for (op, limit, ruling) in [
            (Op::More, 10_000.0, Inconclusive),
            (Op::More, 9999.0, Pass),
            (Op::AtLeast, 10_000.0, Pass),
            (Op::AtLeast, 10_001.0, Inconclusive),
            (Op::Less, 10_000.0, Fail),
            (Op::Less, 10_001.0, Inconclusive),
            (Op::AtMost, 10_000.0, Inconclusive),
            (Op::AtMost, 9999.0, Fail),
            (Op::Equal, 9999.0, Fail),
            (Op::Unequal, 9999.0, Pass),
            (Op::Equal, 10_000.0, Inconclusive),
        ] {
            assert_eq!(ruled(0.9, op, limit).ruling, ruling, "{op} {limit}");
        }
        let note = ruled(0.9, Op::Less, 1.0).note.unwrap();
        assert_eq!(note, "known only to be ≥ 10000 ms: it lies in the last bucket of the server's histogram");
    }
}
