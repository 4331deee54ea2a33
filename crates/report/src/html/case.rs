//! The section of one case.

use crate::format::{ABSENT, number, optional, percent};
use crate::html::cells::{Cell, Piece, Row, Table, quantile, rich, shown};
use crate::html::tables::{anchor, audit, count, failures};
use crate::html::telemetry::{beside, signals};
use crate::missing_values;
use crate::{percentiles, repeats, telemetry};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::report::{CaseReport, GroupReport, TokenSource};
use llmscen_core::sample::Distribution;
use llmscen_core::units::Unit;
use serde::Serialize;

/// Everything about one case that needs no script.
#[derive(Serialize)]
pub struct Section {
    anchor: String,
    id: String,
    /// What it was: load, rounds, source of the token counts.
    facts: Vec<String>,
    valid: bool,
    figures: Table,
    low: Table,
    high: Table,
    percentiles: Table,
    groups: Table,
    signals: Table,
    others: String,
    beside: Table,
    failures: Table,
    audit: Table,
    notes: Vec<Vec<Piece>>,
}

/// The section of the case at this place of the report.
pub fn section(index: usize, case: &CaseReport) -> Section {
    let alone = || std::iter::once((index, case));
    Section {
        anchor: anchor(index),
        id: case.id.clone(),
        facts: facts(case),
        valid: !case.is_invalid(),
        figures: figures(case),
        low: tails(case, &LOW, |metric| !metric.higher_is_better()),
        high: tails(case, &HIGH, Metric::higher_is_better),
        percentiles: percentile_table(case),
        groups: groups(case),
        signals: signals(case),
        others: telemetry::others(case),
        beside: beside(case),
        failures: failures(alone()).narrower(),
        audit: audit(alone()).narrower(),
        notes: missing_values::notes(case).iter().map(|note| rich(note)).collect(),
    }
}

fn facts(case: &CaseReport) -> Vec<String> {
    let rounds = repeats::rounds(case);
    let tokens = case.token_source.map(|source| match source {
        TokenSource::Usage => "tokens by the server's usage",
        TokenSource::Tokenizer => "tokens by a local tokenizer",
        TokenSource::Events => "~ tokens counted from events, a lower bound",
    });
    let steady = case.timelines.steady.map(|(from, until)| {
        format!("steady from {} to {}", optional(Some(from), Unit::Seconds), optional(Some(until), Unit::Seconds))
    });
    [case.load.clone(), rounds].into_iter().chain(tokens.map(str::to_owned)).chain(steady).collect()
}

/// Counts and the metrics that have one value.
fn figures(case: &CaseReport) -> Table {
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
    let told = named.into_iter().filter(|(_, stat, value)| *value > 0 || matches!(*stat, "scheduled" | "ok" | "failed"));
    let count = |(name, stat, value)| Row { cells: vec![Cell::prose(name), count(value, "counts", stat)], ..Row::default() };
    let known = Metric::ALL.iter().filter_map(|metric| Some((*metric, *case.scalars.get(metric)?)));
    let scalar = |(metric, value): (Metric, f64)| {
        let unit = metric.unit().symbol();
        let text = match metric.unit() {
            Unit::Share => percent(value),
            _ => format!("{} {unit}", shown(case, metric, Some(value))).trim_end().to_owned(),
        };
        let figure = Cell::figure(text, Some(value)).of(metric.column(), "");
        Row { cells: vec![Cell::code(metric.name()), figure], ..Row::default() }
    };
    let lengths = case.prompt_lengths.into_iter().flat_map(|lengths| {
        [("Prompt tokens requested, mean", lengths.requested_mean), ("… counted by the server, mean", lengths.reported_mean)]
    });
    let length = |(name, mean)| Row { cells: vec![Cell::prose(name), Cell::figure(number(mean), Some(mean))], ..Row::default() };
    Table::new(&["Figure", ">Value"], told.map(count).chain(lengths.map(length)).chain(known.map(scalar)).collect())
}

const LOW: [f64; 5] = [0.50, 0.90, 0.95, 0.99, 0.999];
const HIGH: [f64; 5] = [0.01, 0.05, 0.10, 0.50, 0.90];

/// The distributions whose metric passes `wanted`, their bad tail in full.
fn tails(case: &CaseReport, shares: &[f64], wanted: fn(Metric) -> bool) -> Table {
    let stats: Vec<String> = shares.iter().map(|share| format!(">{}", Stat::Quantile(*share))).collect();
    let heads =
        ["Metric", "Unit", ">n", ">mean", ">sd", ">min"].into_iter().chain(stats.iter().map(String::as_str)).chain([">max"]);
    let known = Metric::ALL.iter().filter(|metric| metric.per() != Scope::Case && wanted(**metric));
    let rows = known.filter_map(|metric| Some(percentile_row(case, *metric, case.distributions.get(metric)?, shares)));
    Table::new(&heads.collect::<Vec<_>>(), rows.collect())
}

fn percentile_row(case: &CaseReport, metric: Metric, of: &Distribution, shares: &[f64]) -> Row {
    let figure = |(stat, raw): (&str, Option<f64>)| Cell::figure(shown(case, metric, raw), raw).of("", stat);
    let first = [("mean", Some(of.mean)), ("sd", of.sd), ("min", Some(of.min))].map(figure);
    let quantiles = shares.iter().map(|share| quantile(case, metric, *share).of("", &Stat::Quantile(*share).to_string()));
    let words = [Cell::code(metric.name()), Cell::prose(metric.unit().symbol()), count(of.n, "", "n")];
    let cells = words.into_iter().chain(first).chain(quantiles).chain([figure(("max", Some(of.max)))]);
    Row { metric: Some(metric.column().to_owned()), cells: cells.collect(), ..Row::default() }
}

/// A row per percentile; empty where the case has no such values.
fn percentile_table(case: &CaseReport) -> Table {
    let columns = percentiles::columns(case);
    let heads: Vec<String> =
        std::iter::once("Percentile".to_owned()).chain(columns.iter().map(|(_, head)| format!(">{head}"))).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let row = |share: &f64| {
        let cells = columns.iter().map(|(metric, _)| quantile(case, *metric, *share));
        Row { cells: std::iter::once(Cell::prose(&Stat::Quantile(*share).to_string())).chain(cells).collect(), ..Row::default() }
    };
    let shares = percentiles::SHARES.iter().filter(|_| !columns.is_empty());
    Table::new(&heads, shares.map(row).collect())
}

/// The entries of its mix and the parts of its data.
fn groups(case: &CaseReport) -> Table {
    let heads = [
        "Part",
        ">Requests",
        ">ok",
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
    Table::new(&heads, case.groups.iter().map(|group| group_row(case, group)).collect())
}

fn group_row(case: &CaseReport, group: &GroupReport) -> Row {
    let scalar = |metric: Metric| {
        let raw = group.scalars.get(&metric).copied();
        Cell::figure(shown(case, metric, raw), raw)
    };
    let at = |(metric, share): (Metric, f64)| {
        let raw = group.distributions.get(&metric).and_then(|seen| seen.quantile(share));
        Cell::figure(shown(case, metric, raw), raw)
    };
    let errors = group.scalars.get(&Metric::ErrorRate).copied();
    let first = [
        Cell::code(&group.name),
        count(group.scheduled, "", ""),
        count(group.ok, "", ""),
        Cell::figure(errors.map_or_else(|| ABSENT.to_owned(), percent), errors),
        scalar(Metric::RequestThroughput),
        scalar(Metric::OutputTps),
    ];
    let quantiles = [
        (Metric::Ttft, 0.50),
        (Metric::Ttft, 0.99),
        (Metric::Itl, 0.50),
        (Metric::Itl, 0.99),
        (Metric::Tpot, 0.50),
        (Metric::E2e, 0.50),
        (Metric::E2e, 0.99),
    ];
    Row { cells: first.into_iter().chain(quantiles.map(at)).collect(), ..Row::default() }
}
