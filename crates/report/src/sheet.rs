//! The tables of a report as text cells, before any of them is laid out.

use crate::doubt;
use crate::escape::{code, prose};
use crate::format::{ABSENT, against, bytes, number, optional, percent, title, unit_of};
use crate::missing_values::mark;
use crate::relative;
use llmscen_core::check::{Ruling, Subject, Verdict};
use llmscen_core::metric::{Metric, Scope};
use llmscen_core::report::{CaseReport, FailureExample, Report};
use llmscen_core::sample::Distribution;
use llmscen_core::units::Unit;
use serde::Serialize;

/// A Markdown table: heads, alignment marks, and rows of safe cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sheet {
    /// Column heads.
    pub head: Vec<String>,
    /// `---` or `---:` for each column.
    pub rule: Vec<&'static str>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// A table whose heads tell the alignment: those that begin with `>` stand over numbers.
    pub fn new(heads: &[&str], rows: Vec<Vec<String>>) -> Sheet {
        Sheet {
            head: heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect(),
            rule: heads.iter().map(|head| if head.starts_with('>') { "---:" } else { "---" }).collect(),
            rows,
        }
    }
}

/// The rulings that pass `wanted`.
pub fn slo(report: &Report, wanted: impl Fn(&Verdict) -> bool) -> Sheet {
    let heads = ["Case", "SLO", "Verdict", ">Observed", ">Bound", ">Limit", ">n", "Note"];
    let all = report.cases.iter().flat_map(|case| case.verdicts.iter().map(move |verdict| (case, verdict)));
    Sheet::new(&heads, all.filter(|(_, verdict)| wanted(verdict)).map(|(case, verdict)| slo_row(case, verdict)).collect())
}

fn slo_row(case: &CaseReport, verdict: &Verdict) -> Vec<String> {
    let (limit, unit) = (verdict.check.limit, unit_of(verdict));
    let mark = subject_mark(case, verdict);
    let figure =
        |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), |_| format!("{mark}{}", against(value, limit, unit)));
    vec![
        code(&case.id),
        code(&title(&verdict.check)),
        format!("{} {}", symbol(verdict.ruling), verdict.ruling.name()),
        figure(verdict.observed),
        figure(verdict.bound),
        prose(&relative::limit(verdict)),
        verdict.n.to_string(),
        prose(&remark(verdict)),
    ]
}

/// `~` where the verdict rests on counted events.
pub fn subject_mark(case: &CaseReport, verdict: &Verdict) -> &'static str {
    match &verdict.check.subject {
        Subject::Metric { metric, .. } => mark(case, *metric),
        Subject::Goodput(limits) => limits.iter().map(|limit| mark(case, limit.metric)).max().unwrap_or(""),
        Subject::Signal { .. } => "",
    }
}

fn symbol(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Pass => "✅",
        Ruling::Fail => "❌",
        Ruling::Inconclusive => "❔",
        Ruling::Invalid => "⚠️",
    }
}

/// What is missing for a decision, and the verdict's own note.
pub fn remark(verdict: &Verdict) -> String {
    let need = verdict.need.map(|need| format!("needs {need} samples"));
    need.into_iter().chain(verdict.note.clone()).collect::<Vec<_>>().join("; ")
}

/// One row per case.
pub fn cases(report: &Report) -> Sheet {
    let heads = [
        "Case",
        "Load",
        ">ok / scheduled",
        ">Errors",
        ">req/s",
        ">Output tok/s",
        ">TTFT p50, ms",
        ">TTFT p99, ms",
        ">ITL p50, ms",
        ">ITL p99, ms",
        ">TPOT p50, ms",
        ">E2E p50, ms",
        ">E2E p99, ms",
    ];
    Sheet::new(&heads, report.cases.iter().map(case_row).collect())
}

/// From where to where each case was in its steady state, of those that were.
pub fn steady(report: &Report) -> Sheet {
    let heads = ["Case", ">From", ">Until", ">Output tok/s"];
    let row = |case: &CaseReport| {
        let (from, until) = case.timelines.steady?;
        let tps = marked(case, Metric::OutputTpsSteady, case.scalars.get(&Metric::OutputTpsSteady).copied());
        Some(vec![code(&case.id), optional(Some(from), Unit::Seconds), optional(Some(until), Unit::Seconds), tps])
    };
    Sheet::new(&heads, report.cases.iter().filter_map(row).collect())
}

/// Prompt lengths as requested and as counted by the server, of the cases where both are known.
pub fn prompt_lengths(report: &Report) -> Sheet {
    let heads = ["Case", ">n", ">Requested, mean", ">Counted by the server, mean", ">Difference"];
    let row = |case: &CaseReport| {
        let lengths = case.prompt_lengths?;
        let sign = if lengths.difference() > 0.0 { "+" } else { "" };
        let difference = format!("{sign}{}", percent(lengths.difference()));
        let means = [lengths.requested_mean, lengths.reported_mean].map(number);
        Some([code(&case.id), lengths.n.to_string()].into_iter().chain(means).chain([difference]).collect())
    };
    Sheet::new(&heads, report.cases.iter().filter_map(row).collect())
}

fn case_row(case: &CaseReport) -> Vec<String> {
    let scalar = |metric| marked(case, metric, case.scalars.get(&metric).copied());
    let quantile = |metric, share| marked(case, metric, case.distributions.get(&metric).and_then(|d| d.quantile(share)));
    let mut row = vec![code(&case.id), prose(&case.load), format!("{} / {}", case.counts.ok, case.counts.scheduled)];
    row.push(case.scalars.get(&Metric::ErrorRate).map_or_else(|| ABSENT.to_owned(), |share| percent(*share)));
    row.extend([scalar(Metric::RequestThroughput), scalar(Metric::OutputTps)]);
    row.extend([
        quantile(Metric::Ttft, 0.50),
        quantile(Metric::Ttft, 0.99),
        quantile(Metric::Itl, 0.50),
        quantile(Metric::Itl, 0.99),
    ]);
    row.extend([quantile(Metric::Tpot, 0.50), quantile(Metric::E2e, 0.50), quantile(Metric::E2e, 0.99)]);
    row
}

/// A figure of a case in a cell.
pub fn marked(case: &CaseReport, metric: Metric, value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{}{}", mark(case, metric), number(value)))
}

/// The distributions of which less is better, their high tail in full; None where there are none.
pub fn low_is_better(case: &CaseReport) -> Option<Sheet> {
    let heads = ["Metric", "Unit", ">n", ">mean", ">sd", ">min", ">p50", ">p90", ">p95", ">p99", ">p99.9", ">max"];
    let shares = [0.50, 0.90, 0.95, 0.99, 0.999];
    percentiles(case, &heads, |metric| !metric.higher_is_better(), &shares)
}

/// The distributions of which more is better, their low tail in full; None where there are none.
pub fn high_is_better(case: &CaseReport) -> Option<Sheet> {
    let heads = ["Metric", "Unit", ">n", ">mean", ">sd", ">min", ">p1", ">p5", ">p10", ">p50", ">max"];
    percentiles(case, &heads, Metric::higher_is_better, &[0.01, 0.05, 0.10, 0.50])
}

fn percentiles(case: &CaseReport, heads: &[&str], wanted: fn(Metric) -> bool, shares: &[f64]) -> Option<Sheet> {
    let known = Metric::ALL.iter().filter(|metric| metric.per() != Scope::Case && wanted(**metric));
    let rows: Vec<Vec<String>> =
        known.filter_map(|metric| Some(percentile_row(case, *metric, case.distributions.get(metric)?, shares))).collect();
    (!rows.is_empty()).then(|| Sheet::new(heads, rows))
}

fn percentile_row(case: &CaseReport, metric: Metric, of: &Distribution, shares: &[f64]) -> Vec<String> {
    let mut row = vec![code(metric.name()), metric.unit().symbol().to_owned(), of.n.to_string()];
    let quantiles = shares.iter().map(|share| of.quantile(*share));
    let figures = [Some(of.mean), of.sd, Some(of.min)].into_iter().chain(quantiles).chain([Some(of.max)]);
    row.extend(figures.map(|figure| marked(case, metric, figure)));
    row
}

/// Failures by kind, an example each.
pub fn failures(report: &Report) -> Sheet {
    let heads = ["Case", "Kind", ">Count", "First message", "Where"];
    let row = |case: &CaseReport| {
        let id = code(&case.id);
        let row = move |failure: &FailureExample| {
            vec![id.clone(), code(failure.kind.name()), failure.count.to_string(), code(&failure.message), prose(&failure.at)]
        };
        case.failures.iter().map(row).collect::<Vec<_>>()
    };
    Sheet::new(&heads, report.cases.iter().flat_map(row).collect())
}

/// The heads of the self-audit.
pub const AUDIT: [&str; 15] = [
    "Case",
    "Verdicts",
    ">Send delay p50",
    ">Send delay p99",
    ">Send delay max",
    ">Achieved / offered",
    ">Users idle",
    ">Workers stalled",
    ">Stall max",
    ">CPU of a core",
    ">Memory",
    ">Events/s",
    ">In/s",
    ">Dropped",
    "Reasons",
];

/// The objectives that the load generator could have flipped.
pub fn doubts(report: &Report) -> Sheet {
    let row = |own: doubt::Doubt<'_>| {
        let [measured, slow, fast] = own.ends;
        vec![code(&own.case.id), code(&own.objective), measured, slow, fast, prose(&own.why)]
    };
    Sheet::new(&doubt::HEADS, doubt::doubts(report).into_iter().map(row).collect())
}

/// The self-audit of every case.
pub fn audit(report: &Report) -> Sheet {
    Sheet::new(&AUDIT, report.cases.iter().map(audit_row).collect())
}

fn audit_row(case: &CaseReport) -> Vec<String> {
    let audit = &case.audit;
    let span = |value| optional(value, Unit::Millis);
    let share = |value| optional(value, Unit::Share);
    let size = |value: Option<f64>| value.map_or_else(|| ABSENT.to_owned(), bytes);
    vec![
        code(&case.id),
        match doubt::standing(case) {
            (text, false) => text,
            (text, true) => format!("**{text}**"),
        },
        span(audit.schedule_lag_ms_p50),
        span(audit.schedule_lag_ms_p99),
        span(audit.schedule_lag_ms_max),
        share(audit.achieved_over_offered),
        share(audit.idle),
        share(audit.stalled),
        span(audit.stall_ms_max),
        share(audit.cpu_share_max),
        size(audit.memory_peak.map(|memory| memory as f64)),
        audit.events_per_s.map_or_else(|| ABSENT.to_owned(), number),
        size(audit.bytes_in_per_s),
        audit.dropped.to_string(),
        prose(&audit.reasons.join("; ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of};
    use llmscen_core::report::TokenSource;

    fn column(sheet: &Sheet, row: usize, head: &str) -> String {
        sheet.rows[row][sheet.head.iter().position(|own| own == head).unwrap()].clone()
    }

    #[test]
    fn every_row_is_as_wide_as_its_head() {
        let report = report_of(vec![case(4), failing(), no_data()], Default::default(), 1);
        let tables = [slo(&report, |_| true), cases(&report), steady(&report), failures(&report), audit(&report)];
        let of_cases = report.cases.iter().flat_map(|case| [low_is_better(case), high_is_better(case)]).flatten();
        for sheet in tables.into_iter().chain(of_cases) {
            assert!(sheet.rows.iter().all(|row| row.len() == sheet.head.len()), "{:?}", sheet.head);
        }
    }

    #[test]
    fn metrics_stand_in_the_table_of_their_bad_tail() {
        let (low, high) = (low_is_better(&case(4)).unwrap(), high_is_better(&case(4)).unwrap());
        let names = |sheet: &Sheet| sheet.rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>().join(" ");
        assert!(names(&low).starts_with("`ttft` `ttft_service` `ttfc` `itl`"), "{}", names(&low));
        assert_eq!(
            names(&high),
            "`events_per_reply` `prompt_tokens` `output_tokens` `prefill_tps` `decode_tps` `output_tps_per_request` `total_tps_per_request`"
        );
        assert_eq!(low_is_better(&no_data()), None);
    }

    #[test]
    fn counted_tokens_are_marked_in_every_table() {
        let counted = CaseReport { token_source: Some(TokenSource::Events), ..case(4) };
        let sheet = cases(&report_of(vec![counted.clone()], Default::default(), 0));
        assert!(column(&sheet, 0, "Output tok/s").starts_with('~') && column(&sheet, 0, "TPOT p50, ms").starts_with('~'));
        assert!(!column(&sheet, 0, "TTFT p50, ms").starts_with('~') && !column(&sheet, 0, "req/s").starts_with('~'));
        let tokens = high_is_better(&counted).unwrap();
        assert_eq!((column(&tokens, 1, "p50"), column(&tokens, 2, "p50")), ("512".to_owned(), "~128".to_owned()));
    }

    #[test]
    fn only_a_case_with_a_plateau_has_a_steady_state() {
        let mut plain = case(4);
        plain.timelines.steady = Some((1.25, 61.0));
        let sheet = steady(&report_of(vec![no_data(), plain], Default::default(), 1));
        assert_eq!(sheet.rows.len(), 1);
        assert_eq!((column(&sheet, 0, "From"), column(&sheet, 0, "Until")), ("1.25 s".to_owned(), "61 s".to_owned()));
    }

    #[test]
    fn no_data_reads_as_such() {
        let sheet = slo(&report_of(vec![no_data()], Default::default(), 1), |_| true);
        let row = ["`base`", "`ttft.p99 < 500ms`", "❌ fail", "n/a", "n/a", "500 ms", "0", "no data"];
        assert_eq!(sheet.rows, [row.map(str::to_owned).to_vec()]);
    }
}
