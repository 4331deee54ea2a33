//! What the searches of a run found, in tables.

use crate::format::{ABSENT, against, number, title, unit_of};
use crate::html::cells::{Cell, Piece, Row, Table, rich};
use crate::html::tables::count;
use crate::probes::likely;
use crate::search::{Outcome, axis, outcome, sentence, verdict};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::Report;
use llmscen_core::search::{ProbeReport, SearchReport};
use serde::Serialize;

/// One search on the page.
#[derive(Serialize)]
pub struct Told {
    sentence: Vec<Piece>,
    probes: Table,
}

/// Every search of a report.
pub fn told(report: &Report) -> Vec<Told> {
    let one = |search| Told { sentence: rich(&sentence(report, search)), probes: probes(search) };
    report.searches.iter().map(one).collect()
}

fn probes(search: &SearchReport) -> Table {
    let checks = search.probes.first().map(|probe| probe.verdicts.as_slice()).unwrap_or_default();
    let limits: Vec<String> = checks.iter().map(|verdict| format!(">{}", title(&verdict.check))).collect();
    let (name, unit) = axis(&search.spec);
    let load = format!(">{name}");
    let first = [">#", &load, "For", ">n", "Verdict", ">P(all hold)"].into_iter().chain(limits.iter().map(String::as_str));
    let heads = first.chain([">Decode tok/s per user", ">Output tok/s in all", ">Goodput, req/s", "Note"]);
    let row = |(index, probe): (usize, &ProbeReport)| Row { cells: cells(index, probe, unit), ..Row::default() };
    Table::new(&heads.collect::<Vec<_>>(), search.probes.iter().enumerate().map(row).collect()).sorting()
}

fn cells(index: usize, probe: &ProbeReport, unit: &str) -> Vec<Cell> {
    let figure = |raw: Option<f64>| Cell::figure(raw.map_or_else(|| ABSENT.to_owned(), number), raw);
    let first = [
        count(index as u64 + 1, "", ""),
        Cell::figure(format!("{}{unit}", probe.load), Some(probe.load)).of("probe", "load"),
        Cell::prose(probe.purpose.name()),
        count(probe.requests, "probe", "n"),
        Cell::prose(&verdict(probe)).toned(tone(outcome(probe))),
        Cell::figure(probe.holds.map_or_else(|| ABSENT.to_owned(), likely), probe.holds).of("probe", "holds"),
    ];
    let speeds = [probe.per_user_tps, probe.total_tps, probe.goodput].map(figure);
    let note = Cell::prose(if probe.dominated { "dominated" } else { "" });
    first.into_iter().chain(probe.verdicts.iter().map(observed)).chain(speeds).chain([note]).collect()
}

fn observed(verdict: &Verdict) -> Cell {
    let cell = Cell::figure(against(verdict.observed, verdict.check.limit, unit_of(verdict)), verdict.observed);
    if verdict.ruling == Ruling::Fail { cell.toned("fail") } else { cell }
}

/// The class of what a probe came to.
pub fn tone(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "pass",
        Outcome::Failed => "fail",
        Outcome::Open => "inconclusive",
        Outcome::Invalid => "invalid",
    }
}
