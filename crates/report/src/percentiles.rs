//! The percentile table: a row per percentile, a column per metric, in the layout of evalscope's.

use crate::sheet::{Sheet, marked};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::CaseReport;

/// The percentiles that have a row; all of them are exact, by nearest rank.
pub const SHARES: [f64; 10] = [0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99];

/// The metrics that have a column, with its head.
const COLUMNS: [(Metric, &str); 8] = [
    (Metric::Ttft, "TTFT, ms"),
    (Metric::Itl, "ITL, ms"),
    (Metric::Tpot, "TPOT, ms"),
    (Metric::E2e, "Latency, ms"),
    (Metric::PromptTokens, "Input tokens"),
    (Metric::OutputTokens, "Output tokens"),
    (Metric::OutputTpsPerRequest, "Output tok/s per request"),
    (Metric::TotalTpsPerRequest, "Total tok/s per request"),
];

/// The columns of a case: those whose metric it has values of.
pub fn columns(case: &CaseReport) -> Vec<(Metric, &'static str)> {
    COLUMNS.into_iter().filter(|(metric, _)| case.distributions.contains_key(metric)).collect()
}

/// The table of a case; None where it has no such values.
pub fn sheet(case: &CaseReport) -> Option<Sheet> {
    let columns = columns(case);
    let heads: Vec<String> =
        std::iter::once("Percentile".to_owned()).chain(columns.iter().map(|(_, head)| format!(">{head}"))).collect();
    let row = |share: &f64| {
        let cell = |(metric, _): &(Metric, &str)| {
            marked(case, *metric, case.distributions.get(metric).and_then(|seen| seen.quantile(*share)))
        };
        std::iter::once(Stat::Quantile(*share).to_string()).chain(columns.iter().map(cell)).collect()
    };
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    (!columns.is_empty()).then(|| Sheet::new(&heads, SHARES.iter().map(row).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, distribution, no_data};

    #[test]
    fn a_row_per_percentile_and_a_column_per_metric() {
        let mut own = case(4);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        own.distributions.insert(Metric::OutputTpsPerRequest, distribution(&hundred));
        let sheet = sheet(&own).unwrap();
        let heads = ["Percentile", "TTFT, ms", "ITL, ms", "TPOT, ms", "Latency, ms", "Input tokens", "Output tokens"];
        assert_eq!(sheet.head[..7], heads);
        let column = |place: usize| sheet.rows.iter().map(|row| row[place].as_str()).collect::<Vec<_>>();
        assert_eq!(column(0), ["p10", "p25", "p50", "p66", "p75", "p80", "p90", "p95", "p98", "p99"]);
        assert_eq!(sheet.head[7], "Output tok/s per request");
        assert_eq!(column(7), ["10", "25", "50", "66", "75", "80", "90", "95", "98", "99"]);
        assert!(sheet.rows.iter().all(|row| row.len() == sheet.head.len()));
    }

    #[test]
    fn metrics_without_values_have_no_column() {
        let mut own = case(4);
        own.distributions.retain(|metric, _| matches!(metric, Metric::E2e | Metric::PromptTokens));
        assert_eq!(sheet(&own).unwrap().head, ["Percentile", "Latency, ms", "Input tokens"]);
        assert_eq!(sheet(&no_data()), None);
    }
}
