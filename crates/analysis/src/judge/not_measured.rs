//! The verdicts of a case that was not measured to its end.

use llmscen_core::check::{Check, Ruling, Subject, Verdict};
use llmscen_core::metric::Metric;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::fixture::{check, conditions, ok, sample};
    use crate::judge::rule;
    use llmscen_core::check::Op;

    fn notes(valid: bool, some: bool, why: &str) -> Vec<(Ruling, Option<String>)> {
        let mut seen = sample(vec![ok(Metric::Ttft, 1.0); 40]);
        seen.scalars.insert(Metric::Startup, 2.0);
        let wanted = [check(Metric::ErrorRate, None, Op::Less, 0.5), check(Metric::Startup, None, Op::Less, 9.0)];
        let verdicts = wanted.iter().map(|check| rule(check, &seen, &conditions(valid))).collect();
        not_measured(verdicts, some, why).into_iter().map(|verdict| (verdict.ruling, verdict.note)).collect()
    }

    #[test]
    fn nothing_is_decided_but_the_start_of_the_server() {
        let open = |note: &str| (Ruling::Inconclusive, Some(note.to_owned()));
        let start = (Ruling::Pass, Some("compared as a point: the case has one such figure".to_owned()));
        for valid in [true, false] {
            let why = "target lost after 3.1 s: 127.0.0.1:8000: connection refused";
            assert_eq!(notes(valid, true, why), [open("not judged: target lost after 3.1 s"), start.clone()]);
            let why = "stopped after 20 of 5000 requests: every one failed with HTTP 401 (Unauthorized)";
            assert_eq!(notes(valid, false, why), [open("not measured: stopped after 20 of 5000 requests"), start.clone()]);
            assert_eq!(notes(valid, false, "not run: target lost"), [open("not run: target lost"), start.clone()]);
        }
    }
}
