//! How much less correlated samples say than their number: once per case.

use llmscen_core::check::{Subject, Verdict};
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, Report};

/// Effective samples below this share of all are reported.
const FEW: f64 = 0.5;

/// `Consecutive requests are correlated: 640 requests carry the information of about 47 in `ttft.p95`.`; None where the samples
/// of no objective are.
pub fn sentence(case: &CaseReport) -> Option<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for verdict in &case.verdicts {
        let Some(effective) = verdict.effective_n.filter(|effective| *effective < FEW * verdict.n as f64) else { continue };
        let samples = format!("{} {}", verdict.n, if is_of_gaps(verdict) { "gaps" } else { "requests" });
        let about = format!("about {effective:.0} in `{}`", verdict.check.figure_name());
        match groups.iter_mut().find(|(own, _)| *own == samples) {
            Some((_, all)) if all.contains(&about) => {}
            Some((_, all)) => all.push(about),
            None => groups.push((samples, vec![about])),
        }
    }
    for own in &case.repeats {
        let judged = case.verdicts.iter().any(|verdict| verdict.effective_n.is_some() && metric(verdict) == Some(own.metric));
        if let Some(effective) = own.few().filter(|_| !judged) {
            let (samples, about) =
                (format!("{} requests", own.n), format!("about {effective:.0} in the mean of `{}`", own.metric));
            match groups.iter_mut().find(|(known, _)| *known == samples) {
                Some((_, all)) => all.push(about),
                None => groups.push((samples, vec![about])),
            }
        }
    }
    let words = |(samples, all): &(String, Vec<String>)| format!("{samples} carry the information of {}", all.join(", "));
    let said: Vec<String> = groups.iter().map(words).collect();
    (!said.is_empty()).then(|| format!("Consecutive requests are correlated: {}.", said.join("; ")))
}

/// The same of every case, for a terminal.
pub fn lines(report: &Report) -> Vec<String> {
    let line = |case: &CaseReport| Some(format!("{}: {}", case.id, sentence(case)?));
    report.cases.iter().filter_map(line).collect()
}

fn metric(verdict: &Verdict) -> Option<Metric> {
    match &verdict.check.subject {
        Subject::Metric { metric, .. } => Some(*metric),
        Subject::Goodput(_) | Subject::Signal { .. } => None,
    }
}

fn is_of_gaps(verdict: &Verdict) -> bool {
    metric(verdict).is_some_and(|metric| metric.per() == Scope::Gap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::sweep;

    #[test]
    fn a_case_says_once_which_samples_are_correlated() {
        let mut case = sweep(1).cases.remove(0);
        assert_eq!(sentence(&case), None);
        case.verdicts[0] = Verdict { n: 640, effective_n: Some(47.4), ..case.verdicts[0].clone() };
        case.verdicts[1] = Verdict { n: 640, effective_n: Some(320.0), ..case.verdicts[1].clone() };
        case.repeats.clear();
        let known = "Consecutive requests are correlated: 640 requests carry the information of about 47 in `ttft.p99`.";
        assert_eq!(sentence(&case).as_deref(), Some(known), "half is not few");
        case.verdicts[1].effective_n = Some(90.0);
        let known = known.replace("`ttft.p99`", "`ttft.p99`, about 90 in `error_rate`");
        assert_eq!(sentence(&case), Some(known));
    }
}
