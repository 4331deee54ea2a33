//! An estimate beside a baseline of several runs: one more run is compared with how those vary.

use llmscen_core::baseline::{Known, Relative, Spread};
use llmscen_core::stats::interval::Interval;
use llmscen_core::stats::interval::{Compared, against, predicted};

/// What is known of the estimate `own` beside `base`, which lies between the bounds of `known`. `share`: both are shares.
pub(super) fn seen(own: Interval, base: Interval, (known, relative): (Known, Relative), share: bool) -> Compared {
    let by_requests = || against(own, base, relative.factor, share);
    match known.spread {
        // Runs without one failure do not differ, and then their requests say more.
        Some(spread) if share => by_requests().reaching(spread.reach * relative.factor.max(1.0)),
        Some(spread) if own.value > 0.0 && own.value.is_finite() => {
            predicted(own.value, known.value, spread.reach, relative.factor)
        }
        Some(_) | None => by_requests(),
    }
}

/// Why one more run decides nothing.
pub(super) fn vague(spread: Spread, share: bool) -> String {
    let reach = if share { spread.reach } else { spread.reach.exp_m1() };
    format!(
        "one run cannot decide this: the {} runs of the baseline vary so much that a single run shows differences above {}; \
         `llmscen baseline doctor` says how many runs show less",
        spread.runs,
        if share { format!("{:.2} pp", reach * 100.0) } else { format!("{:.1} %", reach * 100.0) }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, failed, goodput, ok, sample};
    use crate::judge::rule;
    use llmscen_core::baseline::Against;
    use llmscen_core::check::{Check, Op, Ruling, Verdict};
    use llmscen_core::metric::{Metric, Stat};
    use llmscen_core::sample::Row;

    fn known(value: f64, reach: f64) -> Known {
        let (low, high) = (value * (-reach).exp(), value * reach.exp());
        Known { value, low: Some(low), high: Some(high), n: Some(400), spread: Some(Spread { runs: 10, reach }) }
    }

    fn ruled(check: Check, factor: f64, known: Known, rows: Vec<Row>) -> Verdict {
        let relative = Relative { to: Against::Baseline, factor, known: Some(known) };
        let check = Check { limit: relative.limit(), relative: Some(relative), ..check };
        rule(&check, &sample(rows), &conditions(true))
    }

    fn waits(value: f64) -> Vec<Row> {
        (0..400).map(|_| ok(Metric::Ttft, value)).collect()
    }

    #[test]
    fn runs_that_vary_decide_and_not_the_requests_of_one() {
        let p50 = || check(Metric::Ttft, Some(Stat::Quantile(0.5)), Op::AtMost, 0.0);
        let of = |value, factor, reach| ruled(p50(), factor, known(100.0, reach), waits(value));
        // 104 · e^0.05 = 109.3 under 1.10 · 100, and 104 · e^−0.05 = 98.9.
        let seen = of(104.0, 1.10, 0.05);
        assert_eq!((seen.ruling, seen.check.limit), (Ruling::Pass, 110.0));
        assert!((seen.bound.unwrap() - 104.0 * 0.05f64.exp()).abs() < 1e-6, "{seen:?}");
        assert_eq!((of(104.0, 1.0, 0.02).ruling, of(104.0, 1.0, 0.05).ruling), (Ruling::Fail, Ruling::Inconclusive));
        let open = of(104.0, 1.0, 0.05);
        assert_eq!(open.need, None);
        let note = open.note.unwrap();
        assert!(
            note.starts_with("one run cannot decide this: the 10 runs of the baseline vary so much") && note.contains("5.1 %"),
            "{note}"
        );
    }

    #[test]
    fn shares_are_decided_by_the_wider_of_both() {
        // Failures far from one another: those in a row carry less information.
        let fails = |i: usize, bad: usize| i * bad / 640 != (i + 1) * bad / 640;
        let rows =
            |bad: usize| (0..640).map(|i| if fails(i, bad) { failed() } else { ok(Metric::Ttft, 1.0) }).collect::<Vec<_>>();
        let share = |reach| Known { low: Some(0.9953), high: Some(1.0), ..known(1.0, reach) };
        let ruling = |reach, bad| ruled(goodput(Vec::new(), Op::AtLeast, 0.0), 0.98, share(reach), rows(bad)).ruling;
        assert_eq!((ruling(0.0, 0), ruling(0.0, 60)), (Ruling::Pass, Ruling::Fail), "as its requests say");
        assert_eq!((ruling(0.03, 0), ruling(0.03, 60)), (Ruling::Inconclusive, Ruling::Fail), "runs vary by more than that");
        assert_eq!(ruling(0.10, 60), Ruling::Inconclusive);
    }
}
