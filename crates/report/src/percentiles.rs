//! The percentiles of a case: a row per metric, and a table with a row per percentile in the layout of EvalScope.

use crate::cases::metric_cell;
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::check::{Subject, Verdict};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::report::CaseReport;
use llmscen_core::sample::SummaryStatistics;

/// The quantiles of metrics whose low values are better. `true`: Markdown shows it.
const LOW_IS_BETTER: [(f64, bool); 5] = [
    (0.50, true),
    (0.90, true),
    (0.95, true),
    (0.99, true),
    (0.999, true),
];
/// The quantiles of metrics whose high values are better.
const HIGH_IS_BETTER: [(f64, bool); 5] = [
    (0.01, true),
    (0.05, true),
    (0.10, true),
    (0.50, true),
    (0.90, false),
];

/// The distributions of metrics whose low values are better, with high percentiles.
pub(crate) fn low_is_better(case: &CaseReport) -> Table {
    distributions(case, &LOW_IS_BETTER, |metric| !metric.higher_is_better())
}

/// The distributions of metrics whose high values are better, with low percentiles.
pub(crate) fn high_is_better(case: &CaseReport) -> Table {
    distributions(case, &HIGH_IS_BETTER, Metric::higher_is_better)
}

/// Whether a metric is a main latency, or limited by an objective; by the name of its column.
pub(crate) fn is_main(case: &CaseReport, column: &str) -> bool {
    let judged = |verdict: &Verdict| match &verdict.check.subject {
        Subject::Metric { metric, .. } => metric.column() == column,
        Subject::Goodput(limits) => limits.iter().any(|limit| limit.metric.column() == column),
        _ => false,
    };
    [Metric::Ttft, Metric::Itl, Metric::Tpot, Metric::E2e]
        .iter()
        .any(|metric| metric.column() == column)
        || case.verdicts.iter().any(judged)
}

fn distributions(
    case: &CaseReport,
    quantiles: &[(f64, bool)],
    is_shown: fn(Metric) -> bool,
) -> Table {
    let texts = ["Metric", "Unit"].map(|head| Column::text().documents(head));
    let moments = ["n", "mean", "sd", "min"].map(|head| Column::number().documents(head));
    let quantile = |(share, in_markdown): &(f64, bool)| {
        let head = Stat::Quantile(*share).to_string();
        if *in_markdown {
            Column::number().documents(&head)
        } else {
            Column::number().html(&head)
        }
    };
    let columns = texts
        .into_iter()
        .chain(moments)
        .chain(quantiles.iter().map(quantile));
    let columns = columns.chain([Column::number().documents("max")]).collect();
    let row = |metric: &Metric| {
        let distribution: &SummaryStatistics = case.distributions.get(metric)?;
        let figure =
            |value: Option<f64>, stat: &str| metric_cell(case, *metric, value).with_stat("", stat);
        let mut cells = vec![
            Cell::code(metric.name()),
            Cell::prose(metric.unit().symbol()),
            Cell::count(distribution.n).with_stat("", "n"),
            figure(Some(distribution.mean), "mean"),
            figure(distribution.sd, "sd"),
            figure(Some(distribution.min), "min"),
        ];
        let shares = quantiles.iter().map(|(share, _)| *share);
        cells.extend(shares.map(|share| {
            figure(
                distribution.quantile(share),
                &Stat::Quantile(share).to_string(),
            )
        }));
        cells.push(figure(Some(distribution.max), "max"));
        Some(Row::new(cells).metric(metric.column()))
    };
    let known = Metric::ALL
        .iter()
        .filter(|metric| metric.per() != Scope::Case && is_shown(**metric));
    Table::new(columns, known.filter_map(row).collect())
}

/// The percentiles with a row, by nearest rank.
const ROWS: [f64; 10] = [0.10, 0.25, 0.50, 0.66, 0.75, 0.80, 0.90, 0.95, 0.98, 0.99];

/// The metrics with a column, and its head.
const COLUMNS: [(Metric, &str); 10] = [
    (Metric::Ttft, "TTFT, ms"),
    (Metric::Ttfa, "TTFA, ms"),
    (Metric::Rtf, "RTF"),
    (Metric::Itl, "ITL, ms"),
    (Metric::Tpot, "TPOT, ms"),
    (Metric::E2e, "Latency, ms"),
    (Metric::PromptTokens, "Input tokens"),
    (Metric::OutputTokens, "Output tokens"),
    (Metric::OutputTpsPerRequest, "Output tok/s per request"),
    (Metric::TotalTpsPerRequest, "Total tok/s per request"),
];

/// A row per percentile and a column per metric with values; no rows if there are none.
pub(crate) fn percentile_table(case: &CaseReport) -> Table {
    let known: Vec<_> = COLUMNS
        .into_iter()
        .filter(|(metric, _)| case.distributions.contains_key(metric))
        .collect();
    let columns = known
        .iter()
        .map(|(_, head)| Column::number().documents(head));
    let columns = std::iter::once(Column::text().documents("Percentile"))
        .chain(columns)
        .collect();
    let row = |share: &f64| {
        let stat = Stat::Quantile(*share).to_string();
        let cell = |(metric, _): &(Metric, &str)| {
            let value = case
                .distributions
                .get(metric)
                .and_then(|distribution| distribution.quantile(*share));
            metric_cell(case, *metric, value).with_stat(metric.column(), &stat)
        };
        Row::new(
            std::iter::once(Cell::prose(&stat))
                .chain(known.iter().map(cell))
                .collect(),
        )
    };
    Table::new(
        columns,
        ROWS.iter().filter(|_| !known.is_empty()).map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, distribution, no_data};
    use llmscen_core::report::TokenSource;

    #[test]
    fn a_row_per_percentile_and_a_column_per_metric() {
        let mut case = case(4);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        case.distributions
            .insert(Metric::OutputTpsPerRequest, distribution(&hundred));
        let table = percentile_table(&case);
        let shown_heads = table.markdown_heads();
        let heads = [
            "Percentile",
            "TTFT, ms",
            "ITL, ms",
            "TPOT, ms",
            "Latency, ms",
            "Input tokens",
            "Output tokens",
        ];
        assert_eq!(shown_heads[..7], heads);
        let column = |index: usize| {
            table
                .rows
                .iter()
                .map(|row| row.cells[index].text.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            column(0),
            [
                "p10", "p25", "p50", "p66", "p75", "p80", "p90", "p95", "p98", "p99"
            ]
        );
        assert_eq!(shown_heads[7], "Output tok/s per request");
        assert_eq!(
            column(7),
            ["10", "25", "50", "66", "75", "80", "90", "95", "98", "99"]
        );
        assert!(
            table
                .rows
                .iter()
                .all(|row| row.cells.len() == table.columns.len())
        );
    }

    #[test]
    fn metrics_without_values_have_no_column() {
        let mut case = case(4);
        case.distributions
            .retain(|metric, _| matches!(metric, Metric::E2e | Metric::PromptTokens));
        assert_eq!(
            percentile_table(&case).markdown_heads(),
            ["Percentile", "Latency, ms", "Input tokens"]
        );
        assert!(percentile_table(&no_data()).rows.is_empty());
    }

    #[test]
    fn metrics_are_in_the_table_of_their_direction() {
        let low = low_is_better(&case(4));
        let high = high_is_better(&case(4));
        let names = |table: &Table| {
            table
                .rows
                .iter()
                .map(|row| row.cells[0].text.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(
            names(&low).starts_with("ttft ttft_service ttfc itl"),
            "{}",
            names(&low)
        );
        assert_eq!(
            names(&high),
            "events_per_reply prompt_tokens output_tokens prefill_tps decode_tps \
            output_tps_per_request total_tps_per_request"
        );
        assert!(low_is_better(&no_data()).rows.is_empty());
        for table in [low, high] {
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.cells.len() == table.columns.len()),
                "{:?}",
                table.columns
            );
        }
    }

    #[test]
    fn token_counts_from_events_are_marked() {
        let counted = CaseReport {
            token_source: Some(TokenSource::Events),
            ..case(4)
        };
        let tokens = high_is_better(&counted);
        assert_eq!(
            (
                tokens.cell(1, "p50").text.as_str(),
                tokens.cell(2, "p50").text.as_str()
            ),
            ("512", "~128")
        );
    }
}
