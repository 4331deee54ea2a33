//! The tables of the cases: their main figures, their parts, their failures and retries.

use crate::format::{ABSENT, number, optional, percent, value};
use crate::notes::mark;
use crate::table::{Cell, Column, Emphasis, Row, Screen, Table};
use llmscen_core::check::Ruling;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{CaseReport, GroupReport, Report};
use llmscen_core::sample::Distribution;
use llmscen_core::units::Unit;
use serde_json::json;
use std::collections::BTreeMap;

/// The cases of a report with their indexes.
pub(crate) fn indexed(report: &Report) -> impl Iterator<Item = (usize, &CaseReport)> {
    report.cases.iter().enumerate()
}

/// A number of this metric, marked where its token counts are doubtful; in a terminal with its unit.
pub(crate) fn metric_cell(case: &CaseReport, metric: Metric, found: Option<f64>) -> Cell {
    let Some(number) = found.map(number) else { return Cell::number(None) };
    let mark = mark(case, metric);
    let with_unit = optional(found, metric.unit()).replace(" tok/s", "").replace(" req/s", "").replace(" tok", "");
    Cell::figure(format!("{mark}{number}"), found).in_terminal(format!("{mark}{with_unit}"))
}

/// The figures of a case or of a part of it.
struct Figures<'a> {
    case: &'a CaseReport,
    is_part: bool,
    scalars: &'a BTreeMap<Metric, f64>,
    distributions: &'a BTreeMap<Metric, Distribution>,
}

impl<'a> Figures<'a> {
    fn of_case(case: &'a CaseReport) -> Figures<'a> {
        Figures { case, is_part: false, scalars: &case.scalars, distributions: &case.distributions }
    }

    fn of_part(case: &'a CaseReport, part: &'a GroupReport) -> Figures<'a> {
        Figures { case, is_part: true, scalars: &part.scalars, distributions: &part.distributions }
    }

    fn cell(&self, metric: Metric, value: Option<f64>, stat: &str) -> Cell {
        let cell = metric_cell(self.case, metric, value);
        if self.is_part { cell } else { cell.of(metric.column(), stat) }
    }

    fn scalar(&self, metric: Metric) -> Cell {
        self.cell(metric, self.scalars.get(&metric).copied(), "")
    }

    fn quantile(&self, metric: Metric, share: f64) -> Cell {
        let found = self.distributions.get(&metric).and_then(|own| own.quantile(share));
        self.cell(metric, found, &Stat::Quantile(share).to_string())
    }

    fn mean(&self, metric: Metric) -> Cell {
        self.cell(metric, self.distributions.get(&metric).map(|own| own.mean), "mean")
    }

    /// The window of the case, where a part has none of its own.
    fn window(&self) -> Cell {
        let window = self.scalars.get(&Metric::Window).or_else(|| self.case.scalars.get(&Metric::Window));
        self.cell(Metric::Window, window.copied(), "")
    }

    fn errors(&self) -> Cell {
        let errors = self.scalars.get(&Metric::ErrorRate).copied();
        let cell = Cell::figure(errors.map_or_else(|| ABSENT.to_owned(), percent), errors);
        let cell = if self.is_part { cell } else { cell.of(Metric::ErrorRate.column(), "") };
        if errors.unwrap_or(0.0) > 0.0 { cell.emphasized(Emphasis::Fail) } else { cell }
    }
}

/// Every case, and below it the entries of its mix, which only a terminal and programs get here.
pub(crate) fn cases(report: &Report) -> Table {
    let columns = vec![
        Column::text().key("scenario"),
        Column::text().documents("Case").terminal("CASE", 0).key("case"),
        Column::text().key("entry"),
        Column::text().documents("Load").key("load"),
        Column::text().html("SLOs"),
        Column::number().markdown("ok / scheduled").terminal("OK", 0),
        Column::number().html("ok").key("ok"),
        Column::number().html("Requests").key("scheduled"),
        Column::number().documents("Errors").terminal("ERRORS", 2).key("error_rate_share"),
        Column::number().terminal("TIME", 8),
        Column::number().documents("req/s").terminal("REQ/S", 3).key("requests_per_s"),
        Column::number().documents("Output tok/s").terminal("OUT TOK/S", 0).key("output_tokens_per_s"),
        Column::text().key("token_source"),
        Column::number().terminal("IN TOK", 9),
        Column::number().terminal("OUT TOK", 10),
        Column::number().terminal("TTFT MEAN", 6),
        Column::number().documents("TTFT p50, ms").terminal("TTFT P50", 4).key("ttft_p50_ms"),
        Column::number().html("TTFT p95, ms"),
        Column::number().documents("TTFT p99, ms").terminal("TTFT P99", 0).key("ttft_p99_ms"),
        Column::number().documents("ITL p50, ms").terminal("ITL P50", 11).key("itl_p50_ms"),
        Column::number().documents("ITL p99, ms").terminal("ITL P99", 1).key("itl_p99_ms"),
        Column::number().terminal("TPOT MEAN", 14),
        Column::number().documents("TPOT p50, ms").terminal("TPOT P50", 13).key("tpot_p50_ms"),
        Column::number().terminal("E2E MEAN", 7),
        Column::number().documents("E2E p50, ms").terminal("E2E P50", 12).key("e2e_p50_ms"),
        Column::number().documents("E2E p99, ms").terminal("E2E P99", 5).key("e2e_p99_ms"),
    ];
    let rows = indexed(report).flat_map(|(index, case)| {
        let whole = case_row(report, index, &Figures::of_case(case), None);
        let entries = case.groups.iter().filter(|part| part.entry);
        let entries = entries.map(move |part| case_row(report, index, &Figures::of_part(case, part), Some(part)));
        std::iter::once(whole).chain(entries)
    });
    Table::new(columns, rows.collect()).sortable()
}

/// The same for a document, which has the entries of a mix in a table of their own.
pub(crate) fn cases_without_parts(report: &Report) -> Table {
    let mut table = cases(report);
    table.rows.retain(|row| !row.is_part);
    table
}

fn case_row(report: &Report, index: usize, figures: &Figures<'_>, part: Option<&GroupReport>) -> Row {
    let case = figures.case;
    let (ok, scheduled) = part.map_or((case.counts.ok, case.counts.scheduled), |part| (part.ok, part.scheduled));
    let id = Cell::case(index, &case.id);
    let cells = vec![
        Cell::prose(&report.manifest.name),
        match part {
            Some(part) => id.in_terminal(format!("{}: {}", case.id, part.name)),
            None => id,
        },
        Cell::raw(json!(part.map(|part| &part.name))),
        Cell::prose(&case.load),
        rulings(case),
        Cell::figure(format!("{ok} / {scheduled}"), None::<f64>).in_terminal(format!("{ok}/{scheduled}")),
        Cell::count(ok).of("counts", "ok"),
        Cell::count(scheduled).of("counts", "scheduled"),
        figures.errors(),
        figures.window(),
        figures.scalar(Metric::RequestThroughput),
        figures.scalar(Metric::OutputTps),
        Cell::raw(json!(case.token_source)),
        figures.mean(Metric::PromptTokens),
        figures.mean(Metric::OutputTokens),
        figures.mean(Metric::Ttft),
        figures.quantile(Metric::Ttft, 0.50),
        figures.quantile(Metric::Ttft, 0.95),
        figures.quantile(Metric::Ttft, 0.99),
        figures.quantile(Metric::Itl, 0.50),
        figures.quantile(Metric::Itl, 0.99),
        figures.mean(Metric::Tpot),
        figures.quantile(Metric::Tpot, 0.50),
        figures.mean(Metric::E2e),
        figures.quantile(Metric::E2e, 0.50),
        figures.quantile(Metric::E2e, 0.99),
    ];
    let row = Row::new(cells).case(&case.id);
    if part.is_some() { row.part() } else { row }
}

/// How many objectives of a case pass, in the color of the worst ruling.
fn rulings(case: &CaseReport) -> Cell {
    let all = case.verdicts.len();
    let count = |ruling| case.verdicts.iter().filter(|verdict| verdict.ruling == ruling).count();
    let worst = [Ruling::Invalid, Ruling::Fail, Ruling::Inconclusive].into_iter().find(|ruling| count(*ruling) > 0);
    match all {
        0 => Cell::prose("none"),
        _ => Cell::judgement(&format!("{} / {all}", count(Ruling::Pass)), worst.unwrap_or(Ruling::Pass).into()),
    }
}

/// Every case, one a line, and below it the entries of its mix. `width`: columns of the terminal, None where there is none.
pub fn case_table(report: &Report, width: Option<usize>, color: bool) -> String {
    cases(report).terminal(Screen { width, color })
}

/// The parts of cases: entries of a mix, and groups of the dataset. Arrival rates are shown where a case has an arrival plan.
pub(crate) fn parts<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let all: Vec<_> = cases.flat_map(|(index, case)| case.groups.iter().map(move |part| (index, case, part))).collect();
    let has_rates = all.iter().any(|(.., part)| part.scalars.contains_key(&Metric::RateOffered));
    let mut columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Part"),
        Column::number().markdown("ok / scheduled"),
        Column::number().html("Requests"),
        Column::number().html("ok"),
        Column::number().documents("Errors"),
        Column::number().documents("req/s"),
        Column::number().documents("Output tok/s"),
        Column::number().documents("Prompt tokens"),
        Column::number().documents("Output tokens"),
        Column::number().documents("TTFT p50, ms"),
        Column::number().documents("TTFT p99, ms"),
        Column::number().documents("ITL p50, ms"),
        Column::number().documents("ITL p99, ms"),
        Column::number().markdown("TPOT, ms").html("TPOT p50, ms"),
        Column::number().documents("Decode tok/s"),
        Column::number().documents("tok/s per user"),
        Column::number().documents("E2E p50, ms"),
        Column::number().documents("E2E p99, ms"),
    ];
    if has_rates {
        columns.push(Column::number().documents("Sent / offered, req/s"));
    }
    let row = |(index, case, part): (usize, &CaseReport, &GroupReport)| {
        let figures = Figures::of_part(case, part);
        let rate = |metric| part.scalars.get(&metric).map_or_else(|| ABSENT.to_owned(), |rate| number(*rate));
        let rates = format!("{} / {}", rate(Metric::RateAchieved), rate(Metric::RateOffered));
        let mut cells = vec![
            Cell::case(index, &case.id),
            Cell::code(&part.name),
            Cell::figure(format!("{} / {}", part.ok, part.scheduled), None::<f64>),
            Cell::count(part.scheduled),
            Cell::count(part.ok),
            figures.errors(),
            figures.scalar(Metric::RequestThroughput),
            figures.scalar(Metric::OutputTps),
            figures.quantile(Metric::PromptTokens, 0.50),
            figures.quantile(Metric::OutputTokens, 0.50),
            figures.quantile(Metric::Ttft, 0.50),
            figures.quantile(Metric::Ttft, 0.99),
            figures.quantile(Metric::Itl, 0.50),
            figures.quantile(Metric::Itl, 0.99),
            figures.quantile(Metric::Tpot, 0.50),
            figures.quantile(Metric::DecodeTps, 0.50),
            figures.scalar(Metric::OutputTpsPerUser),
            figures.quantile(Metric::E2e, 0.50),
            figures.quantile(Metric::E2e, 0.99),
        ];
        if has_rates {
            cells.push(Cell::figure(rates, None::<f64>));
        }
        Row::new(cells)
    };
    Table::new(columns, all.into_iter().map(row).collect())
}

/// The steady state of the cases that reached one.
pub(crate) fn steady_states(report: &Report) -> Table {
    let columns = vec![
        Column::text().markdown("Case"),
        Column::number().markdown("From"),
        Column::number().markdown("Until"),
        Column::number().markdown("Output tok/s"),
    ];
    let row = |(index, case): (usize, &CaseReport)| {
        let (from, until) = case.timelines.steady?;
        let instant = |at: f64| Cell::figure(value(at, Unit::Seconds), at);
        let cells = vec![
            Cell::case(index, &case.id),
            instant(from),
            instant(until),
            Figures::of_case(case).scalar(Metric::OutputTpsSteady),
        ];
        Some(Row::new(cells))
    };
    Table::new(columns, indexed(report).filter_map(row).collect())
}

/// Prompt lengths as requested and as counted by the server, of the cases where both are known.
pub(crate) fn prompt_lengths(report: &Report) -> Table {
    let columns = vec![
        Column::text().markdown("Case"),
        Column::number().markdown("n"),
        Column::number().markdown("Requested, mean"),
        Column::number().markdown("Counted by the server, mean"),
        Column::number().markdown("Difference"),
    ];
    let row = |(index, case): (usize, &CaseReport)| {
        let lengths = case.prompt_lengths?;
        let sign = if lengths.difference() > 0.0 { "+" } else { "" };
        let cells = vec![
            Cell::case(index, &case.id),
            Cell::count(lengths.n),
            Cell::number(Some(lengths.requested_mean)),
            Cell::number(Some(lengths.reported_mean)),
            Cell::figure(format!("{sign}{}", percent(lengths.difference())), lengths.difference()),
        ];
        Some(Row::new(cells))
    };
    Table::new(columns, indexed(report).filter_map(row).collect())
}

/// Failures by kind, an example each.
pub(crate) fn failures<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Kind"),
        Column::number().documents("Count"),
        Column::text().documents("First message"),
        Column::text().documents("Where"),
    ];
    let rows = cases.flat_map(|(index, case)| {
        case.failures.iter().map(move |failure| {
            let kind = failure.kind.name();
            let cells = vec![
                Cell::case(index, &case.id),
                Cell::code(kind).emphasized(Emphasis::Fail),
                Cell::count(failure.count).of("failures", kind),
                Cell::code(&failure.message),
                Cell::prose(&failure.at),
            ];
            Row::new(cells).case(&case.id)
        })
    });
    Table::new(columns, rows.collect())
}

/// Retried requests and users who left, of the cases that had any.
pub(crate) fn retries(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::number().documents("Retries"),
        Column::number().documents("Requests tried again"),
        Column::number().documents("Share"),
        Column::number().documents("Abandoned"),
        Column::number().documents("Share"),
        Column::number().html("Requests"),
    ];
    let row = |(index, case): (usize, &CaseReport)| {
        let counts = &case.counts;
        let count = |value: u64, stat: &str| Cell::count(value).of("counts", stat);
        let share = |part: u64| Cell::figure(percent(part as f64 / counts.scheduled.max(1) as f64), None::<f64>);
        let cells = vec![
            Cell::case(index, &case.id),
            count(counts.retries, "retries"),
            count(counts.retried, "retried"),
            share(counts.retried),
            count(counts.abandoned, "abandoned"),
            share(counts.abandoned),
            count(counts.scheduled, "scheduled"),
        ];
        Row::new(cells).case(&case.id)
    };
    let some = indexed(report).filter(|(_, case)| case.counts.retries + case.counts.abandoned > 0);
    Table::new(columns, some.map(row).collect())
}

/// Counts of a case, and its metrics that have one value.
pub(crate) fn single_figures(case: &CaseReport) -> Table {
    let counts = &case.counts;
    let named = [
        ("Requests scheduled", "scheduled", counts.scheduled),
        ("… ok", "ok", counts.ok),
        ("… failed", "failed", counts.failed),
        ("… abandoned by their users", "abandoned", counts.abandoned),
        ("… never sent", "dropped", counts.dropped),
        ("Warm-up requests", "warmup", counts.warmup),
        ("Sent again on a new connection", "reconnects", counts.reconnects),
        ("Retries", "retries", counts.retries),
        ("Requests retried", "retried", counts.retried),
    ];
    let some = named.into_iter().filter(|(_, stat, value)| *value > 0 || matches!(*stat, "scheduled" | "ok" | "failed"));
    let counted = some.map(|(name, stat, value)| vec![Cell::prose(name), Cell::count(value).of("counts", stat)]);
    let lengths = case.prompt_lengths.into_iter().flat_map(|lengths| {
        [("Prompt tokens requested, mean", lengths.requested_mean), ("… counted by the server, mean", lengths.reported_mean)]
    });
    let lengths = lengths.map(|(name, mean)| vec![Cell::prose(name), Cell::number(Some(mean))]);
    let scalars = Metric::ALL.iter().filter_map(|metric| Some((*metric, *case.scalars.get(metric)?)));
    let scalars = scalars.map(|(metric, value)| {
        let text = match metric.unit() {
            Unit::Share => percent(value),
            unit => format!("{}{} {}", mark(case, metric), number(value), unit.symbol()).trim_end().to_owned(),
        };
        vec![Cell::code(metric.name()), Cell::figure(text, value).of(metric.column(), "")]
    });
    let columns = vec![Column::text().html("Figure"), Column::number().html("Value")];
    Table::new(columns, counted.chain(lengths).chain(scalars).map(Row::new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of};
    use llmscen_core::report::{RunVerdict, TokenSource};
    use llmscen_core::sample::Counts;

    #[test]
    fn cases_elsewhere_than_in_a_terminal() {
        let report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(case_table(&report, None, false), @r"
        CASE                 OK  ERRORS    TIME  REQ/S  OUT TOK/S  IN TOK  OUT TOK  TTFT MEAN  TTFT P50  TTFT P99  ITL P50  ITL P99  TPOT MEAN  TPOT P50  E2E MEAN  E2E P50  E2E P99
        concurrency=64  229/240   4.58%  20.8 s   11.5       1475     512      128     728 ms    703 ms    1.33 s  37.0 ms  56.8 ms    38.0 ms   37.0 ms    5.55 s   5.42 s   7.95 s
        base                0/8    100%     n/a    n/a        n/a     n/a      n/a        n/a       n/a       n/a      n/a      n/a        n/a       n/a       n/a      n/a      n/a
        ");
    }

    #[test]
    fn a_wide_terminal_has_means_the_duration_and_tokens_per_request() {
        let report = report_of(vec![failing()], RunVerdict::Fail, 1);
        let heads = |width: usize| {
            let table = case_table(&report, Some(width), false);
            let heads = table.lines().next().unwrap_or_default().split("  ").map(str::trim);
            heads.filter(|head| !head.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        let narrow = ["CASE", "OK", "ERRORS", "REQ/S", "OUT TOK/S", "TTFT P50", "TTFT P99", "ITL P99"];
        assert_eq!(heads(80), narrow);
        let added = ["TIME", "TTFT MEAN", "E2E MEAN"];
        assert!(added.iter().all(|head| heads(120).iter().any(|own| own == head)), "{:?}", heads(120));
        assert_eq!(heads(200).len(), 18);
        let wide = case_table(&report, Some(200), false);
        let case = &report.cases[0];
        let cells = wide.lines().nth(2).unwrap();
        let window = value(case.scalars[&Metric::Window], Unit::Seconds);
        let mean = value(case.distributions[&Metric::Ttft].mean, Unit::Millis);
        assert!(cells.contains(&window) && cells.contains(&mean) && cells.contains("   512      128  "), "{wide}");
    }

    #[test]
    fn every_row_is_as_wide_as_its_table() {
        let report = report_of(vec![case(4), failing(), no_data()], Default::default(), 1);
        let tables = [cases(&report), steady_states(&report), failures(indexed(&report)), parts(indexed(&report))];
        for table in tables {
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()), "{:?}", table.columns);
        }
    }

    #[test]
    fn counted_tokens_are_marked_in_every_table() {
        let counted = CaseReport { token_source: Some(TokenSource::Events), ..case(4) };
        let table = cases(&report_of(vec![counted], Default::default(), 0));
        let text = |head: &str| table.cell(0, head).text.clone();
        assert!(text("Output tok/s").starts_with('~') && text("TPOT p50, ms").starts_with('~'));
        assert!(!text("TTFT p50, ms").starts_with('~') && !text("req/s").starts_with('~'));
    }

    #[test]
    fn only_a_case_with_a_plateau_has_a_steady_state() {
        let mut plain = case(4);
        plain.timelines.steady = Some((1.25, 61.0));
        let table = steady_states(&report_of(vec![no_data(), plain], Default::default(), 1));
        assert_eq!(table.rows.len(), 1);
        assert_eq!((table.cell(0, "From").text.as_str(), table.cell(0, "Until").text.as_str()), ("1.25 s", "61 s"));
    }

    #[test]
    fn every_part_is_a_row_and_what_is_missing_is_not_a_number() {
        let part = GroupReport {
            name: "96".into(),
            scheduled: 3,
            ok: 2,
            entry: true,
            scalars: [(Metric::OutputTpsPerUser, 75.0), (Metric::ErrorRate, 0.25)].into(),
            distributions: case(4).distributions.into_iter().filter(|(metric, _)| *metric == Metric::Ttft).collect(),
        };
        let cells = |part: &GroupReport| {
            let cases = vec![CaseReport { groups: vec![part.clone()], ..case(4) }, case(8)];
            let table = parts(indexed(&report_of(cases, Default::default(), 0)));
            assert_eq!((table.rows.len(), table.markdown_rows()[0].len()), (1, table.markdown_heads().len()));
            table.markdown_rows().remove(0)
        };
        let seen = cells(&part);
        assert_eq!(seen[1..7], ["`96`", "2 / 3", "25%", "n/a", "n/a", "n/a"]);
        assert_eq!((seen[14].as_str(), seen[15].as_str(), seen.len()), ("75", "n/a", 17));
        let scalars = [(Metric::RateOffered, 8.0), (Metric::RateAchieved, 6.0)].into();
        assert_eq!(cells(&GroupReport { scalars, ..part })[17], "6 / 8");
    }

    #[test]
    fn only_cases_with_retries_have_a_row() {
        let mut retried = case(2);
        retried.counts = Counts { scheduled: 200, retries: 7, retried: 5, abandoned: 10, ..Counts::default() };
        let table = retries(&report_of(vec![case(1), retried], RunVerdict::Pass, 0));
        assert_eq!(table.markdown_rows(), [["`concurrency=2`", "7", "5", "2.5%", "10", "5%"]]);
    }
}
