//! The tables about cases: main metrics, traffic classes, steady state, failures and retries.

use crate::dimensions::{Dimension, dimensions};
use crate::format::{ABSENT, depends_on_output_tokens, number, optional, percent, value};
use crate::table::{Cell, Column, Columns, Emphasis, OfCase, Row, Screen, Table};
use llmscen_core::check::Ruling;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::{
    CaseReport, FailureExample, GroupReport, PromptLengths, Report, TokenSource,
};
use llmscen_core::sample::{Counts, SummaryStatistics};
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
    /// Index of the case.
    index: usize,
    case: &'a CaseReport,
    group: Option<&'a GroupReport>,
    scalars: &'a BTreeMap<Metric, f64>,
    distributions: &'a BTreeMap<Metric, SummaryStatistics>,
}

impl<'a> Metrics<'a> {
    fn of_case(index: usize, case: &'a CaseReport) -> Metrics<'a> {
        Metrics {
            index,
            case,
            group: None,
            scalars: &case.scalars,
            distributions: &case.distributions,
        }
    }

    fn of_group(index: usize, case: &'a CaseReport, group: &'a GroupReport) -> Metrics<'a> {
        Metrics {
            index,
            case,
            group: Some(group),
            scalars: &group.scalars,
            distributions: &group.distributions,
        }
    }

    fn cell(&self, metric: Metric, value: Option<f64>, stat: &str) -> Cell {
        let cell = metric_cell(self.case, metric, value);
        if self.group.is_some() {
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

    fn ok_and_scheduled(&self) -> (u64, u64) {
        let counts = &self.case.counts;
        self.group.map_or((counts.ok, counts.scheduled), |group| {
            (group.ok, group.scheduled)
        })
    }

    fn scheduled(&self) -> Cell {
        Cell::count(self.ok_and_scheduled().1)
    }

    fn ok(&self) -> Cell {
        Cell::count(self.ok_and_scheduled().0)
    }

    fn ok_of_scheduled(&self) -> Cell {
        let (ok, scheduled) = self.ok_and_scheduled();
        Cell::figure(format!("{ok} / {scheduled}"), None::<f64>)
            .in_terminal(format!("{ok}/{scheduled}"))
    }

    /// The name of the group.
    fn name(&self) -> Cell {
        Cell::code(self.group.map_or("", |group| &group.name))
    }

    /// The achieved and the offered arrival rate.
    fn rates(&self) -> Cell {
        let rate = |metric| match self.scalars.get(&metric) {
            Some(rate) => number(*rate),
            None => ABSENT.to_owned(),
        };
        let [sent, offered] = [Metric::RateAchieved, Metric::RateOffered].map(rate);
        Cell::figure(format!("{sent} / {offered}"), None::<f64>)
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
        let cell = if self.group.is_some() {
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

impl OfCase for Metrics<'_> {
    fn case(&self) -> (usize, &CaseReport) {
        (self.index, self.case)
    }
}

fn scalar(metric: Metric) -> impl Fn(&Metrics<'_>) -> Cell {
    move |metrics| metrics.scalar(metric)
}

fn mean(metric: Metric) -> impl Fn(&Metrics<'_>) -> Cell {
    move |metrics| metrics.mean(metric)
}

fn quantile(metric: Metric, share: f64) -> impl Fn(&Metrics<'_>) -> Cell {
    move |metrics| metrics.quantile(metric, share)
}

/// A row for each case, and below it one for each traffic class of its mix.
pub(crate) fn cases(report: &Report) -> Table {
    let text = Column::text;
    let number = Column::number;
    let columns = Columns::<Metrics<'_>>::new()
        .add(text().key("scenario"), |_| {
            Cell::prose(&report.manifest.name)
        })
        .add(
            text().documents("Case").terminal("CASE", 0).key("case"),
            |row| {
                let cell = Cell::case(row.index, &row.case.id);
                match row.group {
                    Some(class) => cell.in_terminal(format!("{}: {}", row.case.id, class.name)),
                    None => cell,
                }
            },
        )
        .add(text().key("entry"), |row| {
            Cell::raw(json!(row.group.map(|class| &class.name)))
        })
        .add(text().documents("Load").key("load"), |row| {
            Cell::prose(&row.case.load)
        })
        .add(text().html("SLOs"), |row| verdict_counts(row.case))
        .add(
            number().markdown("ok / scheduled").terminal("OK", 0),
            Metrics::ok_of_scheduled,
        )
        .add(number().html("ok").rare().key("ok"), |row| {
            row.ok().with_stat("counts", "ok")
        })
        .add(number().html("Requests").rare().key("scheduled"), |row| {
            row.scheduled().with_stat("counts", "scheduled")
        })
        .add(
            number()
                .documents("Errors")
                .terminal("ERRORS", 2)
                .key("error_rate_share"),
            Metrics::errors,
        )
        .add(number().terminal("TIME", 8), Metrics::window)
        .add(
            number()
                .documents("req/s")
                .terminal("REQ/S", 3)
                .key("requests_per_s"),
            scalar(Metric::RequestThroughput),
        )
        .add(
            number()
                .documents("Output tok/s")
                .terminal("OUT TOK/S", 0)
                .key("output_tokens_per_s"),
            scalar(Metric::OutputTps),
        )
        .add(text().key("token_source"), |row| {
            Cell::raw(json!(row.case.token_source))
        })
        .add(number().terminal("IN TOK", 9), mean(Metric::PromptTokens))
        .add(number().terminal("OUT TOK", 10), mean(Metric::OutputTokens))
        .add(number().terminal("TTFT MEAN", 6), mean(Metric::Ttft))
        .add(
            number()
                .documents("TTFT p50, ms")
                .terminal("TTFT P50", 4)
                .key("ttft_p50_ms"),
            quantile(Metric::Ttft, 0.50),
        )
        .add(number().html("TTFT p95, ms"), quantile(Metric::Ttft, 0.95))
        .add(
            number()
                .documents("TTFT p99, ms")
                .rare()
                .terminal("TTFT P99", 0)
                .key("ttft_p99_ms"),
            quantile(Metric::Ttft, 0.99),
        )
        .add(
            number()
                .documents("ITL p50, ms")
                .rare()
                .terminal("ITL P50", 11)
                .key("itl_p50_ms"),
            quantile(Metric::Itl, 0.50),
        )
        .add(
            number()
                .documents("ITL p99, ms")
                .terminal("ITL P99", 1)
                .key("itl_p99_ms"),
            quantile(Metric::Itl, 0.99),
        )
        .add(number().terminal("TPOT MEAN", 14), mean(Metric::Tpot))
        .add(
            number()
                .documents("TPOT p50, ms")
                .terminal("TPOT P50", 13)
                .key("tpot_p50_ms"),
            quantile(Metric::Tpot, 0.50),
        )
        .add(number().terminal("E2E MEAN", 7), mean(Metric::E2e))
        .add(
            number()
                .documents("E2E p50, ms")
                .terminal("E2E P50", 12)
                .key("e2e_p50_ms"),
            quantile(Metric::E2e, 0.50),
        )
        .add(
            number()
                .documents("E2E p99, ms")
                .terminal("E2E P99", 5)
                .key("e2e_p99_ms"),
            quantile(Metric::E2e, 0.99),
        );
    let rows = indexed(report).flat_map(|(index, case)| {
        let of_case = Metrics::of_case(index, case);
        let classes = case.groups.iter().filter(|group| group.entry);
        let of_classes = classes.map(move |class| Metrics::of_group(index, case, class));
        std::iter::once(of_case).chain(of_classes)
    });
    let finish = |item: &Metrics<'_>, row: Row| {
        let row = row.case(&item.case.id);
        match item.group {
            Some(_) => row.group(),
            None => row,
        }
    };
    columns.table_with(rows, finish).sortable()
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
        rows.push(row(&Metrics::of_case(index, case), first, verdict(case)));
        for class in case.groups.iter().filter(|group| group.entry) {
            let mut first = vec![Cell::code(&format!("  {}", class.name))];
            first.extend((0..blank).map(|_| Cell::code("")));
            rows.push(row(
                &Metrics::of_group(index, case, class),
                first,
                Cell::prose(""),
            ));
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
    let all = cases.flat_map(|(index, case)| {
        let groups = case.groups.iter();
        groups.map(move |group| Metrics::of_group(index, case, group))
    });
    let all: Vec<Metrics<'_>> = all.collect();
    let has_rates = all
        .iter()
        .any(|metrics| metrics.scalars.contains_key(&Metric::RateOffered));
    let shown = |head: &str| Column::number().documents(head);
    Columns::new()
        .add_case(Column::text().documents("Case"))
        .add(Column::text().documents("Group"), Metrics::name)
        .add(
            Column::number().markdown("ok / scheduled"),
            Metrics::ok_of_scheduled,
        )
        .add(Column::number().html("Requests"), Metrics::scheduled)
        .add(Column::number().html("ok"), Metrics::ok)
        .add(shown("Errors"), Metrics::errors)
        .add(shown("req/s"), scalar(Metric::RequestThroughput))
        .add(shown("Output tok/s"), scalar(Metric::OutputTps))
        .add(shown("Prompt tokens"), quantile(Metric::PromptTokens, 0.50))
        .add(shown("Output tokens"), quantile(Metric::OutputTokens, 0.50))
        .add(shown("TTFT p50, ms"), quantile(Metric::Ttft, 0.50))
        .add(shown("TTFT p99, ms"), quantile(Metric::Ttft, 0.99))
        .add(shown("ITL p50, ms"), quantile(Metric::Itl, 0.50))
        .add(shown("ITL p99, ms"), quantile(Metric::Itl, 0.99))
        .add(
            Column::number().markdown("TPOT, ms").html("TPOT p50, ms"),
            quantile(Metric::Tpot, 0.50),
        )
        .add(shown("Decode tok/s"), quantile(Metric::DecodeTps, 0.50))
        .add(shown("tok/s per user"), scalar(Metric::OutputTpsPerUser))
        .add(shown("E2E p50, ms"), quantile(Metric::E2e, 0.50))
        .add(shown("E2E p99, ms"), quantile(Metric::E2e, 0.99))
        .add_if(has_rates, shown("Sent / offered, req/s"), Metrics::rates)
        .table(all)
}

/// The URLs of each case whose target has several, and the values of kept response headers.
pub(crate) fn endpoints<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let rows = cases.flat_map(|(index, case)| {
        let all = case.endpoints.iter().chain(&case.headers);
        all.map(move |endpoint| Metrics::of_group(index, case, endpoint))
    });
    let shown =
        |head: &str, short: &str, rank| Column::number().documents(head).terminal(short, rank);
    Columns::new()
        .add_case(Column::text().documents("Case"))
        .add(
            Column::text().documents("Endpoint").terminal("ENDPOINT", 0),
            Metrics::name,
        )
        .add(shown("Requests", "REQUESTS", 0), Metrics::scheduled)
        .add(shown("Share", "SHARE", 4), |row| {
            let share = row.group.and_then(|it| endpoint_share(row.case, it));
            Cell::figure(share.map_or_else(|| ABSENT.to_owned(), percent), share)
        })
        .add(shown("Errors", "ERRORS", 1), Metrics::errors)
        .add(
            shown("TTFT p50, ms", "TTFT P50", 2),
            quantile(Metric::Ttft, 0.50),
        )
        .add(
            shown("TTFT p95, ms", "TTFT P95", 2),
            quantile(Metric::Ttft, 0.95),
        )
        .add(
            shown("Output tok/s", "OUT TOK/S", 3),
            scalar(Metric::OutputTps),
        )
        .add(shown("Tokens ÷ mean", "TOKENS/MEAN", 3), |row| {
            let of_mean = row.group.and_then(|it| {
                let mean = mean_output_tokens(row.case, it)?;
                Some(output_tokens(it) / mean)
            });
            Cell::number(of_mean)
        })
        .table(rows)
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
    let steady =
        indexed(report).filter_map(|(index, case)| Some((index, case, case.timelines.steady?)));
    let instant = |at: f64| Cell::figure(value(at, Unit::Seconds), at);
    Columns::<(usize, &CaseReport, (f64, f64))>::new()
        .add_case(Column::text().markdown("Case"))
        .add(Column::number().markdown("From"), |(.., steady)| {
            instant(steady.0)
        })
        .add(Column::number().markdown("Until"), |(.., steady)| {
            instant(steady.1)
        })
        .add(
            Column::number().markdown("Output tok/s"),
            |(index, case, _)| Metrics::of_case(*index, case).scalar(Metric::OutputTpsSteady),
        )
        .table(steady)
}

/// Prompt lengths as requested and as counted by the server, of each case where both are known.
pub(crate) fn prompt_lengths(report: &Report) -> Table {
    let known =
        indexed(report).filter_map(|(index, case)| Some((index, case, case.prompt_lengths?)));
    Columns::<(usize, &CaseReport, PromptLengths)>::new()
        .add_case(Column::text().markdown("Case"))
        .add(Column::number().markdown("n"), |(.., lengths)| {
            Cell::count(lengths.n)
        })
        .add(
            Column::number().markdown("Requested, mean"),
            |(.., lengths)| Cell::number(Some(lengths.requested_mean)),
        )
        .add(
            Column::number().markdown("Server count, mean"),
            |(.., lengths)| Cell::number(Some(lengths.reported_mean)),
        )
        .add(Column::number().markdown("Difference"), |(.., lengths)| {
            let difference = lengths.difference();
            let sign = if difference > 0.0 { "+" } else { "" };
            Cell::figure(format!("{sign}{}", percent(difference)), difference)
        })
        .table(known)
}

/// Failures by kind, with an example of each.
pub(crate) fn failures<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let failures = cases.flat_map(|(index, case)| {
        let all = case.failures.iter();
        all.map(move |failure| (index, case, failure))
    });
    Columns::<(usize, &CaseReport, &FailureExample)>::new()
        .add_case(Column::text().documents("Case"))
        .add(Column::text().documents("Kind"), |(.., failure)| {
            Cell::code(failure.kind.name()).emphasized(Emphasis::Fail)
        })
        .add(Column::number().documents("Count"), |(.., failure)| {
            Cell::count(failure.count).with_stat("failures", failure.kind.name())
        })
        .add(
            Column::text().documents("First message"),
            |(.., failure)| Cell::code(&failure.message),
        )
        .add(Column::text().documents("Where"), |(.., failure)| {
            Cell::prose(&failure.at)
        })
        .table_by_case(failures)
}

/// Retried requests and requests cancelled by the client, of the cases that had any.
pub(crate) fn retries(report: &Report) -> Table {
    type Indexed<'a> = (usize, &'a CaseReport);
    let count = |stat: &'static str, of: fn(&Counts) -> u64| {
        move |(_, case): &Indexed<'_>| Cell::count(of(&case.counts)).with_stat("counts", stat)
    };
    let share = |of: fn(&Counts) -> u64| {
        move |(_, case): &Indexed<'_>| {
            let part = of(&case.counts) as f64 / case.counts.scheduled.max(1) as f64;
            Cell::figure(percent(part), None::<f64>)
        }
    };
    let some = indexed(report).filter(|(_, case)| case.counts.retries + case.counts.abandoned > 0);
    Columns::<Indexed<'_>>::new()
        .add_case(Column::text().documents("Case"))
        .add(
            Column::number().documents("Retries"),
            count("retries", |counts| counts.retries),
        )
        .add(
            Column::number().documents("Retried requests"),
            count("retried", |counts| counts.retried),
        )
        .add(
            Column::number().documents("Share"),
            share(|counts| counts.retried),
        )
        .add(
            Column::number().documents("Cancelled by client"),
            count("abandoned", |counts| counts.abandoned),
        )
        .add(
            Column::number().documents("Share"),
            share(|counts| counts.abandoned),
        )
        .add(
            Column::number().html("Requests"),
            count("scheduled", |counts| counts.scheduled),
        )
        .table_by_case(some)
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
