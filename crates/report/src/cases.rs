//! The tables about cases: main metrics, traffic classes, steady state, failures and retries.

use crate::dimensions::{Dimension, dimensions};
use crate::format::depends_on_output_tokens;
use crate::format::{ABSENT, number, optional, percent, value};
use crate::table::{Cell, Column, Emphasis, Row, Screen, Table};
use llmscen_core::check::Ruling;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::TokenSource;
use llmscen_core::report::{CaseReport, GroupReport, Report};
use llmscen_core::sample::SummaryStatistics;
use llmscen_core::units::Unit;
use serde_json::json;
use std::collections::BTreeMap;

/// The cases of a report with their indexes.
pub(crate) fn indexed(report: &Report) -> impl Iterator<Item = (usize, &CaseReport)> {
    report.cases.iter().enumerate()
}

/// `~` before a value whose output tokens were only counted from streamed events: it is a lower bound.
pub fn mark(case: &CaseReport, metric: Metric) -> &'static str {
    if case.token_source == Some(TokenSource::Events) && depends_on_output_tokens(metric) {
        "~"
    } else {
        ""
    }
}

/// A value of a metric, marked if its token counts are a lower bound; in a terminal with its unit.
pub(crate) fn metric_cell(case: &CaseReport, metric: Metric, value: Option<f64>) -> Cell {
    let Some(number) = value.map(number) else {
        return Cell::number(None);
    };
    let mark = mark(case, metric);
    let with_unit = optional(value, metric.unit())
        .replace(" tok/s", "")
        .replace(" req/s", "")
        .replace(" tok", "");
    Cell::figure(format!("{mark}{number}"), value).in_terminal(format!("{mark}{with_unit}"))
}

/// The metrics of a case, or of one of its groups of requests.
struct Metrics<'a> {
    case: &'a CaseReport,
    is_group: bool,
    scalars: &'a BTreeMap<Metric, f64>,
    distributions: &'a BTreeMap<Metric, SummaryStatistics>,
}

impl<'a> Metrics<'a> {
    fn of_case(case: &'a CaseReport) -> Metrics<'a> {
        Metrics {
            case,
            is_group: false,
            scalars: &case.scalars,
            distributions: &case.distributions,
        }
    }

    fn of_group(case: &'a CaseReport, group: &'a GroupReport) -> Metrics<'a> {
        Metrics {
            case,
            is_group: true,
            scalars: &group.scalars,
            distributions: &group.distributions,
        }
    }

    fn cell(&self, metric: Metric, value: Option<f64>, stat: &str) -> Cell {
        let cell = metric_cell(self.case, metric, value);
        if self.is_group {
            cell
        } else {
            cell.with_stat(metric.column(), stat)
        }
    }

    fn scalar(&self, metric: Metric) -> Cell {
        self.cell(metric, self.scalars.get(&metric).copied(), "")
    }

    fn quantile(&self, metric: Metric, share: f64) -> Cell {
        let value = self
            .distributions
            .get(&metric)
            .and_then(|distribution| distribution.quantile(share));
        self.cell(metric, value, &Stat::Quantile(share).to_string())
    }

    fn mean(&self, metric: Metric) -> Cell {
        self.cell(
            metric,
            self.distributions
                .get(&metric)
                .map(|distribution| distribution.mean),
            "mean",
        )
    }

    /// The measured window; a group without one shows that of its case.
    fn window(&self) -> Cell {
        let window = self
            .scalars
            .get(&Metric::Window)
            .or_else(|| self.case.scalars.get(&Metric::Window));
        self.cell(Metric::Window, window.copied(), "")
    }

    fn errors(&self) -> Cell {
        let errors = self.scalars.get(&Metric::ErrorRate).copied();
        let cell = Cell::figure(errors.map_or_else(|| ABSENT.to_owned(), percent), errors);
        let cell = if self.is_group {
            cell
        } else {
            cell.with_stat(Metric::ErrorRate.column(), "")
        };
        if errors.unwrap_or(0.0) > 0.0 {
            cell.emphasized(Emphasis::Fail)
        } else {
            cell
        }
    }
}

/// A row for each case, and below it one for each traffic class of its mix.
pub(crate) fn cases(report: &Report) -> Table {
    let columns = vec![
        Column::text().key("scenario"),
        Column::text()
            .documents("Case")
            .terminal("CASE", 0)
            .key("case"),
        Column::text().key("entry"),
        Column::text().documents("Load").key("load"),
        Column::text().html("SLOs"),
        Column::number()
            .markdown("ok / scheduled")
            .terminal("OK", 0),
        Column::number().html("ok").rare().key("ok"),
        Column::number().html("Requests").rare().key("scheduled"),
        Column::number()
            .documents("Errors")
            .terminal("ERRORS", 2)
            .key("error_rate_share"),
        Column::number().terminal("TIME", 8),
        Column::number()
            .documents("req/s")
            .terminal("REQ/S", 3)
            .key("requests_per_s"),
        Column::number()
            .documents("Output tok/s")
            .terminal("OUT TOK/S", 0)
            .key("output_tokens_per_s"),
        Column::text().key("token_source"),
        Column::number().terminal("IN TOK", 9),
        Column::number().terminal("OUT TOK", 10),
        Column::number().terminal("TTFT MEAN", 6),
        Column::number()
            .documents("TTFT p50, ms")
            .terminal("TTFT P50", 4)
            .key("ttft_p50_ms"),
        Column::number().html("TTFT p95, ms"),
        Column::number()
            .documents("TTFT p99, ms")
            .rare()
            .terminal("TTFT P99", 0)
            .key("ttft_p99_ms"),
        Column::number()
            .documents("ITL p50, ms")
            .rare()
            .terminal("ITL P50", 11)
            .key("itl_p50_ms"),
        Column::number()
            .documents("ITL p99, ms")
            .terminal("ITL P99", 1)
            .key("itl_p99_ms"),
        Column::number().terminal("TPOT MEAN", 14),
        Column::number()
            .documents("TPOT p50, ms")
            .terminal("TPOT P50", 13)
            .key("tpot_p50_ms"),
        Column::number().terminal("E2E MEAN", 7),
        Column::number()
            .documents("E2E p50, ms")
            .terminal("E2E P50", 12)
            .key("e2e_p50_ms"),
        Column::number()
            .documents("E2E p99, ms")
            .terminal("E2E P99", 5)
            .key("e2e_p99_ms"),
    ];
    let mut rows = Vec::new();
    for (index, case) in indexed(report) {
        rows.push(case_row(report, index, &Metrics::of_case(case), None));
        for class in case.groups.iter().filter(|group| group.entry) {
            rows.push(
                case_row(report, index, &Metrics::of_group(case, class), Some(class)).group(),
            );
        }
    }
    Table::new(columns, rows).sortable()
}

/// The same for Markdown, which shows traffic classes in a table of their own.
pub(crate) fn cases_without_groups(report: &Report) -> Table {
    let mut table = cases(report);
    table.rows.retain(|row| !row.is_group);
    table
}

/// The same for HTML: the swept keys are columns in place of the id and the load.
pub(crate) fn cases_by_key(report: &Report) -> Table {
    let mut table = cases_without_groups(report);
    let keys = dimensions(report);
    if keys.is_empty() {
        return table;
    }
    table = table.without("Case").without("Load");
    for (index, row) in table.rows.iter_mut().enumerate() {
        let first = |at| (at == 0).then_some(index);
        let cell = |(at, key): (usize, &Dimension)| Cell::key(key.value(index), first(at));
        row.cells.splice(0..0, keys.iter().enumerate().map(cell));
    }
    let columns = keys.iter().map(|key| Column::text().html(&key.name));
    table.columns.splice(0..0, columns);
    table
}

fn case_row(
    report: &Report,
    index: usize,
    metrics: &Metrics<'_>,
    class: Option<&GroupReport>,
) -> Row {
    let case = metrics.case;
    let (ok, scheduled) = class.map_or((case.counts.ok, case.counts.scheduled), |class| {
        (class.ok, class.scheduled)
    });
    let id = Cell::case(index, &case.id);
    let cells = vec![
        Cell::prose(&report.manifest.name),
        match class {
            Some(class) => id.in_terminal(format!("{}: {}", case.id, class.name)),
            None => id,
        },
        Cell::raw(json!(class.map(|class| &class.name))),
        Cell::prose(&case.load),
        verdict_counts(case),
        Cell::figure(format!("{ok} / {scheduled}"), None::<f64>)
            .in_terminal(format!("{ok}/{scheduled}")),
        Cell::count(ok).with_stat("counts", "ok"),
        Cell::count(scheduled).with_stat("counts", "scheduled"),
        metrics.errors(),
        metrics.window(),
        metrics.scalar(Metric::RequestThroughput),
        metrics.scalar(Metric::OutputTps),
        Cell::raw(json!(case.token_source)),
        metrics.mean(Metric::PromptTokens),
        metrics.mean(Metric::OutputTokens),
        metrics.mean(Metric::Ttft),
        metrics.quantile(Metric::Ttft, 0.50),
        metrics.quantile(Metric::Ttft, 0.95),
        metrics.quantile(Metric::Ttft, 0.99),
        metrics.quantile(Metric::Itl, 0.50),
        metrics.quantile(Metric::Itl, 0.99),
        metrics.mean(Metric::Tpot),
        metrics.quantile(Metric::Tpot, 0.50),
        metrics.mean(Metric::E2e),
        metrics.quantile(Metric::E2e, 0.50),
        metrics.quantile(Metric::E2e, 0.99),
    ];
    Row::new(cells).case(&case.id)
}

/// The main metrics of some cases for a screen: the values of `keys` as columns, or the case id without keys, then
/// metrics that a case has, and the verdict.
pub(crate) fn short_table(
    report: &Report,
    shown: &[usize],
    keys: &[Dimension],
    verdict: impl Fn(&CaseReport) -> Cell,
) -> Table {
    let has = |metric: Metric| {
        let cases = || shown.iter().map(|index| &report.cases[*index]);
        cases().any(|case| {
            case.scalars.contains_key(&metric) || case.distributions.contains_key(&metric)
        })
    };
    let quantiles = [
        (Metric::Ttft, "TTFT", 1),
        (Metric::Ttfa, "TTFA", 1),
        (Metric::Rtf, "RTF", 2),
        (Metric::Tpot, "TPOT", 2),
        (Metric::E2e, "E2E", 4),
    ];
    let quantiles: Vec<_> = quantiles
        .into_iter()
        .filter(|(metric, ..)| has(*metric))
        .collect();
    let throughputs = [
        (Metric::RequestThroughput, "REQ/S", 3),
        (Metric::OutputTps, "TOK/S", 0),
        (Metric::ItemThroughput, "ITEMS/S", 0),
        (Metric::Rtfx, "RTFX", 0),
    ];
    let throughputs: Vec<_> = throughputs
        .into_iter()
        .filter(|(metric, ..)| *metric == Metric::RequestThroughput || has(*metric))
        .collect();
    let mut columns: Vec<Column> = match keys {
        [] => vec![Column::text().terminal("CASE", 0)],
        keys => keys
            .iter()
            .map(|key| {
                Column::text()
                    .terminal(&key.name.to_uppercase(), 0)
                    .at_least(key.name.len())
            })
            .collect(),
    };
    for (_, name, rank) in &throughputs {
        columns.push(Column::number().terminal(name, *rank));
    }
    for (_, name, rank) in &quantiles {
        columns.push(Column::number().terminal(&format!("{name} P50"), *rank));
        columns.push(Column::number().terminal(&format!("{name} P95"), *rank));
    }
    columns.push(Column::number().terminal("ERRORS", 1));
    columns.push(Column::text().terminal("VERDICT", 0));
    let row = |metrics: &Metrics<'_>, first: Vec<Cell>, verdict: Cell| {
        let mut cells = first;
        for (metric, ..) in &throughputs {
            cells.push(metrics.scalar(*metric));
        }
        for (metric, ..) in &quantiles {
            cells.extend([0.5, 0.95].map(|share| metrics.quantile(*metric, share)));
        }
        cells.extend([metrics.errors(), verdict]);
        Row::new(cells)
    };
    let mut rows = Vec::new();
    for &index in shown {
        let case = &report.cases[index];
        let first: Vec<Cell> = match keys {
            [] => vec![Cell::code(&case.id)],
            keys => keys
                .iter()
                .map(|key| Cell::code(key.value(index)))
                .collect(),
        };
        let blank = first.len() - 1;
        rows.push(row(&Metrics::of_case(case), first, verdict(case)));
        for class in case.groups.iter().filter(|group| group.entry) {
            let mut first = vec![Cell::code(&format!("  {}", class.name))];
            first.extend((0..blank).map(|_| Cell::code("")));
            rows.push(row(&Metrics::of_group(case, class), first, Cell::prose("")));
        }
    }
    Table::new(columns, rows)
}

/// How many objectives of a case pass, in the color of the worst verdict.
fn verdict_counts(case: &CaseReport) -> Cell {
    let all = case.verdicts.len();
    let count = |ruling| {
        case.verdicts
            .iter()
            .filter(|verdict| verdict.ruling == ruling)
            .count()
    };
    let worst = [Ruling::Invalid, Ruling::Fail, Ruling::Inconclusive]
        .into_iter()
        .find(|ruling| count(*ruling) > 0);
    match all {
        0 => Cell::prose("none"),
        _ => Cell::verdict(
            &format!("{} / {all}", count(Ruling::Pass)),
            worst.unwrap_or(Ruling::Pass).into(),
        ),
    }
}

/// The cases and the traffic classes of their mixes. `width`: of the terminal in characters; None: not a terminal.
pub fn case_table(report: &Report, width: Option<usize>, color: bool) -> String {
    cases(report).terminal(Screen { width, color })
}

/// The groups of requests within cases: traffic classes of a mix, and groups of the dataset. Arrival rates are shown
/// if any case has an arrival plan.
pub(crate) fn groups<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let all: Vec<_> = cases
        .flat_map(|(index, case)| case.groups.iter().map(move |group| (index, case, group)))
        .collect();
    let has_rates = all
        .iter()
        .any(|(.., group)| group.scalars.contains_key(&Metric::RateOffered));
    let mut columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Group"),
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
    let row = |(index, case, group): (usize, &CaseReport, &GroupReport)| {
        let metrics = Metrics::of_group(case, group);
        let rate = |metric| {
            group
                .scalars
                .get(&metric)
                .map_or_else(|| ABSENT.to_owned(), |rate| number(*rate))
        };
        let rates = format!(
            "{} / {}",
            rate(Metric::RateAchieved),
            rate(Metric::RateOffered)
        );
        let mut cells = vec![
            Cell::case(index, &case.id),
            Cell::code(&group.name),
            Cell::figure(format!("{} / {}", group.ok, group.scheduled), None::<f64>),
            Cell::count(group.scheduled),
            Cell::count(group.ok),
            metrics.errors(),
            metrics.scalar(Metric::RequestThroughput),
            metrics.scalar(Metric::OutputTps),
            metrics.quantile(Metric::PromptTokens, 0.50),
            metrics.quantile(Metric::OutputTokens, 0.50),
            metrics.quantile(Metric::Ttft, 0.50),
            metrics.quantile(Metric::Ttft, 0.99),
            metrics.quantile(Metric::Itl, 0.50),
            metrics.quantile(Metric::Itl, 0.99),
            metrics.quantile(Metric::Tpot, 0.50),
            metrics.quantile(Metric::DecodeTps, 0.50),
            metrics.scalar(Metric::OutputTpsPerUser),
            metrics.quantile(Metric::E2e, 0.50),
            metrics.quantile(Metric::E2e, 0.99),
        ];
        if has_rates {
            cells.push(Cell::figure(rates, None::<f64>));
        }
        Row::new(cells)
    };
    Table::new(columns, all.into_iter().map(row).collect())
}

/// The URLs of each case whose target has several, and the values of kept response headers.
pub(crate) fn endpoints<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::text().documents("Endpoint").terminal("ENDPOINT", 0),
        Column::number()
            .documents("Requests")
            .terminal("REQUESTS", 0),
        Column::number().documents("Share").terminal("SHARE", 4),
        Column::number().documents("Errors").terminal("ERRORS", 1),
        Column::number()
            .documents("TTFT p50, ms")
            .terminal("TTFT P50", 2),
        Column::number()
            .documents("TTFT p95, ms")
            .terminal("TTFT P95", 2),
        Column::number()
            .documents("Output tok/s")
            .terminal("OUT TOK/S", 3),
        Column::number()
            .documents("Tokens ÷ mean")
            .terminal("TOKENS/MEAN", 3),
    ];
    let rows = cases.flat_map(|(index, case)| {
        let all = case.endpoints.iter().chain(&case.headers);
        all.map(move |endpoint| {
            let metrics = Metrics::of_group(case, endpoint);
            let share = endpoint_share(case, endpoint);
            let mean = mean_output_tokens(case, endpoint);
            let load = mean.map(|mean| output_tokens(endpoint) / mean);
            Row::new(vec![
                Cell::case(index, &case.id),
                Cell::code(&endpoint.name),
                Cell::count(endpoint.scheduled),
                Cell::figure(share.map_or_else(|| ABSENT.to_owned(), percent), share),
                metrics.errors(),
                metrics.quantile(Metric::Ttft, 0.50),
                metrics.quantile(Metric::Ttft, 0.95),
                metrics.scalar(Metric::OutputTps),
                Cell::number(load),
            ])
        })
    });
    Table::new(columns, rows.collect())
}

/// What an endpoint is compared with: the URLs of the case, or the values of the same kept header.
fn siblings<'a>(case: &'a CaseReport, endpoint: &GroupReport) -> Vec<&'a GroupReport> {
    let is_endpoint = case.endpoints.iter().any(|one| one.name == endpoint.name);
    let header = |one: &GroupReport| one.name.split_once(": ").map(|(name, _)| name.to_owned());
    if is_endpoint {
        return case.endpoints.iter().collect();
    }
    let all = case.headers.iter();
    all.filter(|one| header(one) == header(endpoint)).collect()
}

/// Requests of an endpoint by those of all endpoints of the case, or of all values of the same header.
pub(crate) fn endpoint_share(case: &CaseReport, endpoint: &GroupReport) -> Option<f64> {
    let all = siblings(case, endpoint);
    let sent: u64 = all.iter().map(|one| one.scheduled).sum();
    (sent > 0).then(|| endpoint.scheduled as f64 / sent as f64)
}

/// Output tokens of all successful requests.
fn output_tokens(endpoint: &GroupReport) -> f64 {
    let tokens = endpoint.distributions.get(&Metric::OutputTokens);
    tokens.map_or(0.0, |tokens| tokens.mean * tokens.n as f64)
}

/// The mean of the output tokens over the endpoints, or over the values of the same header; None for a single one,
/// and without tokens.
fn mean_output_tokens(case: &CaseReport, endpoint: &GroupReport) -> Option<f64> {
    let all = siblings(case, endpoint);
    let sum: f64 = all.iter().map(|one| output_tokens(one)).sum();
    (all.len() > 1 && sum > 0.0).then(|| sum / all.len() as f64)
}

/// The steady state of each case that reached one.
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
            Metrics::of_case(case).scalar(Metric::OutputTpsSteady),
        ];
        Some(Row::new(cells))
    };
    Table::new(columns, indexed(report).filter_map(row).collect())
}

/// Prompt lengths as requested and as counted by the server, of each case where both are known.
pub(crate) fn prompt_lengths(report: &Report) -> Table {
    let columns = vec![
        Column::text().markdown("Case"),
        Column::number().markdown("n"),
        Column::number().markdown("Requested, mean"),
        Column::number().markdown("Server count, mean"),
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
            Cell::figure(
                format!("{sign}{}", percent(lengths.difference())),
                lengths.difference(),
            ),
        ];
        Some(Row::new(cells))
    };
    Table::new(columns, indexed(report).filter_map(row).collect())
}

/// Failures by kind, with an example of each.
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
                Cell::count(failure.count).with_stat("failures", kind),
                Cell::code(&failure.message),
                Cell::prose(&failure.at),
            ];
            Row::new(cells).case(&case.id)
        })
    });
    Table::new(columns, rows.collect())
}

/// Retried requests and requests cancelled by the client, of the cases that had any.
pub(crate) fn retries(report: &Report) -> Table {
    let columns = vec![
        Column::text().documents("Case"),
        Column::number().documents("Retries"),
        Column::number().documents("Retried requests"),
        Column::number().documents("Share"),
        Column::number().documents("Cancelled by client"),
        Column::number().documents("Share"),
        Column::number().html("Requests"),
    ];
    let row = |(index, case): (usize, &CaseReport)| {
        let counts = &case.counts;
        let count = |value: u64, stat: &str| Cell::count(value).with_stat("counts", stat);
        let share = |count: u64| {
            Cell::figure(
                percent(count as f64 / counts.scheduled.max(1) as f64),
                None::<f64>,
            )
        };
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

/// The counts of a case, and its metrics with one value per case.
pub(crate) fn case_metrics(case: &CaseReport) -> Table {
    let counts = &case.counts;
    let named = [
        ("Requests scheduled", "scheduled", counts.scheduled),
        ("… ok", "ok", counts.ok),
        ("… failed", "failed", counts.failed),
        ("… cancelled by client", "abandoned", counts.abandoned),
        ("… dropped (at max_in_flight)", "dropped", counts.dropped),
        ("Held at max_in_flight", "held", counts.held),
        ("Warm-up requests", "warmup", counts.warmup),
        ("Cool-down requests", "cooldown", counts.cooldown),
        (
            "Resent on a new connection",
            "reconnects",
            counts.reconnects,
        ),
        ("Retries", "retries", counts.retries),
        ("Requests retried", "retried", counts.retried),
    ];
    let some = named
        .into_iter()
        .filter(|(_, stat, value)| *value > 0 || matches!(*stat, "scheduled" | "ok" | "failed"));
    let counted = some.map(|(name, stat, value)| {
        vec![
            Cell::prose(name),
            Cell::count(value).with_stat("counts", stat),
        ]
    });
    let lengths = case.prompt_lengths.into_iter().flat_map(|lengths| {
        [
            ("Prompt tokens requested, mean", lengths.requested_mean),
            ("… counted by the server, mean", lengths.reported_mean),
        ]
    });
    let lengths = lengths.map(|(name, mean)| vec![Cell::prose(name), Cell::number(Some(mean))]);
    let scalars = Metric::ALL
        .iter()
        .filter_map(|metric| Some((*metric, *case.scalars.get(metric)?)));
    let scalars = scalars.map(|(metric, value)| {
        let text = match metric.unit() {
            Unit::Share => percent(value),
            unit => format!("{}{} {}", mark(case, metric), number(value), unit.symbol())
                .trim_end()
                .to_owned(),
        };
        vec![
            Cell::code(metric.name()),
            Cell::figure(text, value).with_stat(metric.column(), ""),
        ]
    });
    let columns = vec![
        Column::text().html("Metric"),
        Column::number().html("Value"),
    ];
    Table::new(
        columns,
        counted
            .chain(lengths)
            .chain(scalars)
            .map(Row::new)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of};
    use llmscen_core::report::{RunVerdict, TokenSource};
    use llmscen_core::sample::Counts;

    #[test]
    fn a_table_without_a_terminal_width_has_all_columns() {
        let report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(case_table(&report, None, false), @r"
        CASE                 OK  ERRORS    TIME  REQ/S  OUT TOK/S  IN TOK  OUT TOK  TTFT MEAN  TTFT P50  TTFT P99  ITL P50  ITL P99  TPOT MEAN  TPOT P50  E2E MEAN  E2E P50  E2E P99
        concurrency=64  229/240   4.58%  20.8 s   11.5       1475     512      128     728 ms    703 ms    1.33 s  37.0 ms  56.8 ms    38.0 ms   37.0 ms    5.55 s   5.42 s   7.95 s
        base                0/8    100%     n/a    n/a        n/a     n/a      n/a        n/a       n/a       n/a      n/a      n/a        n/a       n/a       n/a      n/a      n/a
        ");
    }

    #[test]
    fn a_wide_terminal_shows_means_duration_and_tokens_per_request() {
        let report = report_of(vec![failing()], RunVerdict::Fail, 1);
        let heads = |width: usize| {
            let table = case_table(&report, Some(width), false);
            let heads = table
                .lines()
                .next()
                .unwrap_or_default()
                .split("  ")
                .map(str::trim);
            heads
                .filter(|head| !head.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let narrow = [
            "CASE",
            "OK",
            "ERRORS",
            "REQ/S",
            "OUT TOK/S",
            "TTFT P50",
            "TTFT P99",
            "ITL P99",
        ];
        assert_eq!(heads(80), narrow);
        let added = ["TIME", "TTFT MEAN", "E2E MEAN"];
        assert!(
            added
                .iter()
                .all(|head| heads(120).iter().any(|shown| shown == head)),
            "{:?}",
            heads(120)
        );
        assert_eq!(heads(200).len(), 18);
        let wide = case_table(&report, Some(200), false);
        let case = &report.cases[0];
        let cells = wide.lines().nth(2).unwrap();
        let window = value(case.scalars[&Metric::Window], Unit::Seconds);
        let mean = value(case.distributions[&Metric::Ttft].mean, Unit::Millis);
        assert!(
            cells.contains(&window) && cells.contains(&mean) && cells.contains("   512      128  "),
            "{wide}"
        );
    }

    #[test]
    fn every_row_is_as_wide_as_its_table() {
        let report = report_of(vec![case(4), failing(), no_data()], Default::default(), 1);
        let tables = [
            cases(&report),
            steady_states(&report),
            failures(indexed(&report)),
            groups(indexed(&report)),
            endpoints(indexed(&report)),
        ];
        for table in tables {
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
        assert_eq!(
            (
                table.cell(0, "From").text.as_str(),
                table.cell(0, "Until").text.as_str()
            ),
            ("1.25 s", "61 s")
        );
    }

    #[test]
    fn every_group_is_a_row_and_missing_values_are_n_a() {
        let group = GroupReport {
            name: "96".into(),
            scheduled: 3,
            ok: 2,
            entry: true,
            scalars: [(Metric::OutputTpsPerUser, 75.0), (Metric::ErrorRate, 0.25)].into(),
            distributions: case(4)
                .distributions
                .into_iter()
                .filter(|(metric, _)| *metric == Metric::Ttft)
                .collect(),
        };
        let cells = |group: &GroupReport| {
            let cases = vec![
                CaseReport {
                    groups: vec![group.clone()],
                    ..case(4)
                },
                case(8),
            ];
            let table = groups(indexed(&report_of(cases, Default::default(), 0)));
            assert_eq!(
                (table.rows.len(), table.markdown_rows()[0].len()),
                (1, table.markdown_heads().len())
            );
            table.markdown_rows().remove(0)
        };
        let row = cells(&group);
        assert_eq!(row[1..7], ["`96`", "2 / 3", "25%", "n/a", "n/a", "n/a"]);
        assert_eq!(
            (row[14].as_str(), row[15].as_str(), row.len()),
            ("75", "n/a", 17)
        );
        let scalars = [(Metric::RateOffered, 8.0), (Metric::RateAchieved, 6.0)].into();
        assert_eq!(cells(&GroupReport { scalars, ..group })[17], "6 / 8");
    }

    #[test]
    fn only_cases_with_retries_have_a_row() {
        let mut retried = case(2);
        retried.counts = Counts {
            scheduled: 200,
            retries: 7,
            retried: 5,
            abandoned: 10,
            ..Counts::default()
        };
        let table = retries(&report_of(vec![case(1), retried], RunVerdict::Pass, 0));
        assert_eq!(
            table.markdown_rows(),
            [["`concurrency=2`", "7", "5", "2.5%", "10", "5%"]]
        );
    }
}
