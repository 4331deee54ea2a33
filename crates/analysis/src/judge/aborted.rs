//! The verdicts of a case that was given up because one of its limits was lost.

use crate::judge::not_measured::is_of_startup;
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::early_stop::Aborted;

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
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::Op;
    use llmscen_core::metric::{Metric, Stat};

    fn rulings(valid: bool) -> Vec<(Ruling, Option<String>)> {
        let rows = sample(vec![ok(Metric::Ttft, 1.0); 400]);
        let wanted = check(Metric::Ttft, Some(Stat::Quantile(0.95)), Op::Less, 5.0);
        let verdicts = vec![rule(&wanted, &rows, &conditions(valid)); 2];
        let lost = Aborted { check: 1, expr: "x".into(), after: 400, n: 400, breaking: 60, allowed: 0.05, ..Aborted::default() };
        given_up(verdicts, &lost).into_iter().map(|verdict| (verdict.ruling, verdict.note)).collect()
    }

    #[test]
    fn the_lost_limit_fails_and_no_other_one_is_decided() {
        let known = "aborted after 400 requests: 60 of 400 broke the limit, where 5 % may";
        let other = "not decided: the case was given up because of `x`";
        assert_eq!(rulings(true), [(Ruling::Inconclusive, Some(other.into())), (Ruling::Fail, Some(known.into()))]);
    }

    #[test]
    fn an_unsound_measurement_decides_nothing() {
        assert!(rulings(false).iter().all(|(ruling, note)| *ruling == Ruling::Invalid && note.is_some()));
    }
}
