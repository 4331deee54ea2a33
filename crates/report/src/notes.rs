//! Notes about cases: missing metrics and their reasons, token counts that are a lower bound, correlated samples.

use crate::format::{code, counted, prose};
use crate::{percentiles, telemetry};
use llmscen_core::check::Verdict;
use llmscen_core::metric::{Metric, Requires, Scope};
use llmscen_core::report::{CaseReport, GroupReport, Report};

/// A note names at most this many cases and counts the others.
const NAMED_CASES: usize = 4;

/// The notes of a case, then a line for each reason why metrics are missing.
pub fn notes(case: &CaseReport) -> Vec<String> {
    let mut lines = case.notes.clone();
    lines.extend(silent_endpoints(case));
    lines.extend(correlation_sentence(case));
    lines.extend(notes_besides_findings(case));
    lines
}

/// Notes on telemetry, and a line for each reason why metrics are missing.
fn notes_besides_findings(case: &CaseReport) -> Vec<String> {
    let mut lines = case.telemetry.notes.clone();
    lines.extend(telemetry::remarks(case));
    if case.counts.ok == 0 {
        lines.push("No request succeeded, so most metrics are missing.".to_owned());
        return lines;
    }
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for metric in missing_metrics(case) {
        let why = missing_reason(case, metric);
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(metric.column()),
            None => reasons.push((why, vec![metric.column()])),
        }
    }
    lines.extend(
        reasons
            .into_iter()
            .map(|(why, names)| format!("n/a: {}: {why}.", names.join(", "))),
    );
    lines
}

/// A line for each URL that answered none of its requests, although others did.
pub(crate) fn silent_endpoints(case: &CaseReport) -> impl Iterator<Item = String> {
    let is_silent = |endpoint: &&GroupReport| {
        let errors = endpoint.scalars.get(&Metric::ErrorRate);
        errors.is_some_and(|errors| *errors >= 1.0) && case.counts.ok > 0
    };
    let line = |endpoint: &GroupReport| {
        format!(
            "Endpoint `{}` answered none of its {} successfully.",
            endpoint.name,
            counted(endpoint.scheduled as usize, "request")
        )
    };
    case.endpoints.iter().filter(is_silent).map(line)
}

/// The notes of all cases that are no findings, each once with the ids of its cases.
pub fn grouped_notes(report: &Report) -> Vec<(String, Vec<&str>)> {
    let mut notes_by_text: Vec<(String, Vec<&str>)> = Vec::new();
    for case in &report.cases {
        for note in case
            .notes
            .iter()
            .cloned()
            .chain(notes_besides_findings(case))
        {
            match notes_by_text.iter_mut().find(|(text, _)| *text == note) {
                Some((_, cases)) => cases.push(&case.id),
                None => notes_by_text.push((note, vec![&case.id])),
            }
        }
    }
    notes_by_text
}

/// The notes of the run, then those of the cases, each once with its cases, as Markdown.
pub fn markdown_notes(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report
        .manifest
        .notes
        .iter()
        .map(|note| prose(note))
        .collect();
    for (note, cases) in grouped_notes(report) {
        let applies_to_all = cases.len() == report.cases.len();
        lines.push(if applies_to_all {
            prose(&note)
        } else {
            format!("{}: {}", list_cases(&cases), prose(&note))
        });
    }
    lines
}

fn list_cases(cases: &[&str]) -> String {
    let names: Vec<String> = cases
        .iter()
        .take(NAMED_CASES)
        .map(|case| code(case))
        .collect();
    match cases.len().saturating_sub(NAMED_CASES) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn missing_reason(case: &CaseReport, metric: Metric) -> &'static str {
    match metric.needs() {
        _ if metric == Metric::GoodputRate => "needs a `goodput(…)` objective",
        _ if no_window(case, metric) => {
            "sending stopped before any request succeeded; send more requests"
        }
        Requires::Gpus => "needs `target.gpus`",
        Requires::OpenLoop => "needs an open loop (`load.rate`)",
        Requires::Stream if !case.distributions.contains_key(&Metric::Ttft) => {
            "needs streamed responses"
        }
        Requires::Stream => {
            "too few tokens, unknown number of tokens, or each response arrived in a single read"
        }
        Requires::Reasoning => "needs streamed responses with reasoning",
        Requires::Turns => "needs conversations (`dataset.turns`)",
        Requires::OutputTokenizer => "needs `dataset.tokenizer`, and token counts of the server",
        Requires::Tokenizer => {
            "needs `dataset.tokenizer`, and prompts whose beginning earlier requests contain"
        }
        Requires::Items => "needs requests with several inputs or results",
        Requires::Audio => "needs audio whose duration is known",
        Requires::AudioOutput => "needs responses that are audio",
        Requires::ServerTimes => "not reported by the server",
        Requires::ManagedServer => "needs `target.server`",
        Requires::Power => "no GPU reported its power",
        Requires::Hardware => "needs `target.hardware`",
        Requires::Cost => "needs `target.cost`",
        Requires::KeptHeaders => "no response has the first header of `target.keep_headers`",
        Requires::Held => "needs `load.max_in_flight` with `then: hold`",
        Requires::Endpoints => "needs several URLs in `target.url`",
        Requires::AnswerFormat => "needs a check of the format in `request.expect`",
        Requires::AnswerTruth => "needs a truth in `request.expect`",
        Requires::AnswerLength => {
            "needs requests that ask for a length (`ignore_eos`), or `request.expect.length`, and token counts"
        }
        Requires::Nothing => "not reported by the server, and cannot be counted",
    }
}

/// Whether a throughput is missing because there is no throughput window.
fn no_window(case: &CaseReport, metric: Metric) -> bool {
    use Metric::*;
    let throughputs = [
        ItemThroughput,
        Rtfx,
        SessionThroughput,
        SessionsPerHour,
        SessionsPerHourPerGpu,
        ThroughputWindow,
    ];
    (metric.is_rate() || throughputs.contains(&metric))
        && !case.scalars.contains_key(&ThroughputWindow)
}

/// The main metrics, and those of objectives, that have no value.
fn missing_metrics(case: &CaseReport) -> impl Iterator<Item = Metric> {
    Metric::ALL
        .iter()
        .copied()
        .filter(|metric| {
            [Metric::OutputTps, Metric::RequestThroughput].contains(metric)
                || percentiles::is_main(case, metric.column())
        })
        .filter(|metric| match metric.per() {
            Scope::Case => !case.scalars.contains_key(metric),
            Scope::Request | Scope::Gap => !case.distributions.contains_key(metric),
        })
}

/// Effective sample sizes below this share of the samples are reported.
const CORRELATED_SHARE: f64 = 0.5;

/// `Consecutive requests are correlated: 640 requests carry the information of about 47 in `ttft.p95`.`; None if
/// no samples are.
fn correlation_sentence(case: &CaseReport) -> Option<String> {
    // Sample counts, and the effective sample sizes of the metrics with that count.
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    let mut add = |samples: String, effective: String| match groups
        .iter_mut()
        .find(|(count, _)| *count == samples)
    {
        Some((_, all)) if all.contains(&effective) => {}
        Some((_, all)) => all.push(effective),
        None => groups.push((samples, vec![effective])),
    };
    for verdict in &case.verdicts {
        let Some(effective) = verdict
            .effective_n
            .filter(|effective| *effective < CORRELATED_SHARE * verdict.n as f64)
        else {
            continue;
        };
        let samples = format!(
            "{} {}",
            verdict.n,
            if counts_gaps(verdict) {
                "gaps"
            } else {
                "requests"
            }
        );
        add(
            samples,
            format!("about {effective:.0} in `{}`", verdict.check.figure_name()),
        );
    }
    for repeat in &case.repeats {
        let judged = |verdict: &Verdict| {
            verdict.effective_n.is_some() && verdict.check.subject.metric() == Some(repeat.metric)
        };
        if let Some(effective) = repeat
            .reported_effective_n()
            .filter(|_| !case.verdicts.iter().any(judged))
        {
            add(
                format!("{} requests", repeat.n),
                format!("about {effective:.0} in the mean of `{}`", repeat.metric),
            );
        }
    }
    let clause = |(samples, all): &(String, Vec<String>)| {
        format!("{samples} carry the information of {}", all.join(", "))
    };
    let clauses: Vec<String> = groups.iter().map(clause).collect();
    (!clauses.is_empty()).then(|| {
        format!(
            "Consecutive requests are correlated: {}.",
            clauses.join("; ")
        )
    })
}

/// That sentence for each case with correlated samples, for a terminal.
pub fn correlation_lines(report: &Report) -> Vec<String> {
    let line = |case: &CaseReport| Some(format!("{}: {}", case.id, correlation_sentence(case)?));
    report.cases.iter().filter_map(line).collect()
}

fn counts_gaps(verdict: &Verdict) -> bool {
    let metric = verdict.check.subject.metric();
    metric.is_some_and(|metric| metric.per() == Scope::Gap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::mark;
    use crate::fixture;
    use crate::fixture::sweep;
    use llmscen_core::check::Subject;
    use llmscen_core::metric::Stat;
    use llmscen_core::report::TokenSource;

    #[test]
    fn a_missing_metric_has_a_reason_if_it_was_asked_for() {
        let mut case = fixture::case(4);
        assert_eq!(notes(&case), [""; 0]);
        case.distributions.remove(&Metric::Ttft);
        case.distributions.remove(&Metric::CachedTokens);
        case.verdicts[0].check.subject = Subject::Metric {
            metric: Metric::CachedTokens,
            stat: Some(Stat::Mean),
            tags: Vec::new(),
        };
        assert_eq!(
            notes(&case),
            [
                "n/a: ttft_ms: needs streamed responses.",
                "n/a: cached_tokens: not reported by the server, and cannot be counted.",
            ]
        );
    }

    #[test]
    fn only_metrics_that_depend_on_token_counts_are_marked() {
        let case = CaseReport {
            token_source: Some(TokenSource::Events),
            ..fixture::case(4)
        };
        assert_eq!(
            (mark(&case, Metric::OutputTps), mark(&case, Metric::Ttft)),
            ("~", "")
        );
        assert_eq!(mark(&fixture::case(4), Metric::OutputTps), "");
    }

    #[test]
    fn without_a_success_missing_metrics_are_one_line() {
        assert_eq!(
            notes(&fixture::no_data()),
            [
                "every request failed: connect",
                "No request succeeded, so most metrics are missing."
            ]
        );
    }

    #[test]
    fn correlated_samples_are_one_sentence() {
        let mut case = sweep(1).cases.remove(0);
        assert_eq!(correlation_sentence(&case), None);
        case.verdicts[0] = Verdict {
            n: 640,
            effective_n: Some(47.4),
            ..case.verdicts[0].clone()
        };
        case.verdicts[1] = Verdict {
            n: 640,
            effective_n: Some(320.0),
            ..case.verdicts[1].clone()
        };
        case.repeats.clear();
        let known = "Consecutive requests are correlated: 640 requests carry the information of \
        about 47 in `ttft.p99`.";
        assert_eq!(
            correlation_sentence(&case).as_deref(),
            Some(known),
            "half is not reported"
        );
        case.verdicts[1].effective_n = Some(90.0);
        let known = known.replace("`ttft.p99`", "`ttft.p99`, about 90 in `error_rate`");
        assert_eq!(correlation_sentence(&case), Some(known));
    }
}
