mod point {
    use super::super::*;
    use crate::judge::fixture::check;
    use llmscen_core::metric::Metric;

    #[test]
    fn every_statistic_of_a_few_values() {
        let of = |stat| statistic(&mut [3.0, 1.0, 2.0, 6.0], stat);
        let stats = [Stat::Quantile(0.5), Stat::Quantile(1.0), Stat::Mean, Stat::Min, Stat::Max, Stat::Count];
        assert_eq!(stats.map(of), [2.0, 6.0, 3.0, 1.0, 6.0, 4.0].map(Some));
        let lost = [Stat::Mean, Stat::Sd, Stat::Max].map(|stat| statistic(&mut [1.0, f64::INFINITY], stat));
        assert_eq!(lost, [Some(f64::INFINITY); 3]);
        assert_eq!((statistic(&mut [1.0], Stat::Sd), statistic(&mut [], Stat::Count)), (None, None));
    }

    #[test]
    fn only_what_has_a_bound_is_judged_by_one() {
        let judged = |op, limit, evidence: &Evidence| reason(&check(Metric::ErrorRate, None, op, limit), evidence).is_none();
        let (share, quantile) = (Evidence::Share { hits: 0, n: 9 }, Evidence::Values(vec![1.0], Stat::Quantile(0.9)));
        assert!(judged(Op::Less, 0.01, &share) && judged(Op::Less, 5.0, &quantile));
        assert!(!judged(Op::AtMost, 0.0, &share) && !judged(Op::AtLeast, 1.0, &share) && !judged(Op::Equal, 5.0, &quantile));
        assert!(!judged(Op::Less, 5.0, &Evidence::Values(vec![1.0], Stat::Max)));
        assert!(!judged(Op::Less, 5.0, &Evidence::Figure(Some(1.0), 1)));
    }
}

mod bounded {
    use super::super::*;
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
