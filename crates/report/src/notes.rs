//! Notes of the cases: metrics without values and why, doubtful token counts, and correlated samples.

use crate::format::{code, counts_output, prose};
use crate::telemetry;
use llmscen_core::check::{Subject, Verdict};
use llmscen_core::metric::{Metric, Requires, Scope};
use llmscen_core::report::{CaseReport, Report, TokenSource};

/// Cases that a note names before it only counts them.
const NAMED_CASES: usize = 4;

/// The case's own notes, and after them a line for every reason that leaves metrics without a value.
pub fn notes(case: &CaseReport) -> Vec<String> {
    let told = case.telemetry.notes.iter().cloned().chain(telemetry::remarks(case));
    let mut lines: Vec<String> = case.notes.iter().cloned().chain(correlation_sentence(case)).chain(told).collect();
    if case.counts.ok == 0 {
        lines.push("No request succeeded, so most figures do not exist.".to_owned());
        return lines;
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for metric in missing(case) {
        let why = reason(case, metric);
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(metric.column()),
            None => reasons.push((why, vec![metric.column()])),
        }
    }
    lines.extend(reasons.into_iter().map(|(why, names)| format!("n/a: {}: {why}.", names.join(", "))));
    lines
}

/// The notes of all cases, each once with the ids of the cases it is about.
pub fn grouped(report: &Report) -> Vec<(String, Vec<&str>)> {
    let mut about: Vec<(String, Vec<&str>)> = Vec::new();
    for case in &report.cases {
        for note in notes(case) {
            match about.iter_mut().find(|(known, _)| *known == note) {
                Some((_, cases)) => cases.push(&case.id),
                None => about.push((note, vec![&case.id])),
            }
        }
    }
    about
}

/// The run's notes, then the cases', each once with the cases it is about.
pub fn told(report: &Report) -> Vec<String> {
    let whole = report.cases.len();
    let line = |(note, cases): (String, Vec<&str>)| {
        if cases.len() == whole { prose(&note) } else { format!("{}: {}", named(&cases), prose(&note)) }
    };
    report.manifest.notes.iter().map(|note| prose(note)).chain(grouped(report).into_iter().map(line)).collect()
}

fn named(cases: &[&str]) -> String {
    let names: Vec<String> = cases.iter().take(NAMED_CASES).map(|case| code(case)).collect();
    match cases.len().saturating_sub(NAMED_CASES) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn reason(case: &CaseReport, metric: Metric) -> &'static str {
    match metric.needs() {
        _ if metric == Metric::GoodputRate => "needs a `goodput(…)` limit",
        _ if no_window(case, metric) => "sending stopped before any request had succeeded; send more requests",
        Requires::Gpus => "needs `target.gpus`",
        Requires::OpenLoop => "needs an open loop (`load.rate`)",
        Requires::Stream if !case.distributions.contains_key(&Metric::Ttft) => "needs streamed responses",
        Requires::Stream => "too few tokens, their number not known, or each reply in a single read",
        Requires::Reasoning => "needs streamed responses with reasoning",
        Requires::Turns => "needs conversations (`dataset.turns`)",
        Requires::Items => "needs requests of several inputs",
        Requires::ServerTimes => "not reported by the server",
        Requires::ManagedServer => "needs `target.server`",
        Requires::Power => "no GPU told its power",
        Requires::Hardware => "needs `target.hardware`",
        Requires::Nothing => "not reported by the server, and not countable",
    }
}

/// Whether a throughput is missing for want of a time to take it over.
fn no_window(case: &CaseReport, metric: Metric) -> bool {
    use Metric::*;
    let throughputs =
        [RequestThroughput, OutputTps, TotalTps, OutputTpsPerGpu, ItemThroughput, SessionThroughput, ThroughputWindow];
    throughputs.contains(&metric) && !case.scalars.contains_key(&ThroughputWindow)
}

fn missing(case: &CaseReport) -> impl Iterator<Item = Metric> {
    // Whole families that most cases have no use for are not listed one by one.
    let family = |metric: &Metric| {
        use Requires::{Hardware, Items, ManagedServer, Power, Reasoning, ServerTimes, Turns};
        matches!(metric.needs(), Reasoning | Turns | Items | ServerTimes | ManagedServer | Power | Hardware)
    };
    Metric::ALL.iter().copied().filter(move |metric| !family(metric)).filter(|metric| match metric.per() {
        Scope::Case => !case.scalars.contains_key(metric),
        Scope::Request | Scope::Gap => !case.distributions.contains_key(metric),
    })
}

/// `~` in front of a figure of this metric, where its output tokens were only counted from events.
pub fn mark(case: &CaseReport, metric: Metric) -> &'static str {
    if case.token_source == Some(TokenSource::Events) && counts_output(metric) { "~" } else { "" }
}

/// Effective samples below this share of all are reported.
const FEW: f64 = 0.5;

/// `Consecutive requests are correlated: 640 requests carry the information of about 47 in `ttft.p95`.`; None where the samples
/// of no objective are.
fn correlation_sentence(case: &CaseReport) -> Option<String> {
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
pub fn correlation_lines(report: &Report) -> Vec<String> {
    let line = |case: &CaseReport| Some(format!("{}: {}", case.id, correlation_sentence(case)?));
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
    use crate::fixture;
    use crate::fixture::sweep;

    #[test]
    fn every_absent_metric_is_accounted_for() {
        let case = fixture::case(4);
        assert_eq!(
            notes(&case),
            [
                "n/a: reasoning_tokens, cached_tokens: not reported by the server, and not countable.",
                "n/a: output_tps_per_gpu: needs `target.gpus`.",
                "n/a: rate_offered: needs an open loop (`load.rate`).",
                "n/a: goodput_rate: needs a `goodput(…)` limit.",
            ]
        );
    }

    #[test]
    fn counted_events_mark_only_what_rests_on_them() {
        let case = CaseReport { token_source: Some(TokenSource::Events), ..fixture::case(4) };
        assert_eq!((mark(&case, Metric::OutputTps), mark(&case, Metric::Ttft)), ("~", ""));
        assert_eq!(mark(&fixture::case(4), Metric::OutputTps), "");
    }

    #[test]
    fn without_a_success_one_line_says_it_all() {
        assert_eq!(
            notes(&fixture::no_data()),
            ["every request failed: connect", "No request succeeded, so most figures do not exist."]
        );
    }

    #[test]
    fn a_case_says_once_which_samples_are_correlated() {
        let mut case = sweep(1).cases.remove(0);
        assert_eq!(correlation_sentence(&case), None);
        case.verdicts[0] = Verdict { n: 640, effective_n: Some(47.4), ..case.verdicts[0].clone() };
        case.verdicts[1] = Verdict { n: 640, effective_n: Some(320.0), ..case.verdicts[1].clone() };
        case.repeats.clear();
        let known = "Consecutive requests are correlated: 640 requests carry the information of about 47 in `ttft.p99`.";
        assert_eq!(correlation_sentence(&case).as_deref(), Some(known), "half is not few");
        case.verdicts[1].effective_n = Some(90.0);
        let known = known.replace("`ttft.p99`", "`ttft.p99`, about 90 in `error_rate`");
        assert_eq!(correlation_sentence(&case), Some(known));
    }
}
