//! The workers of a target with several metrics pages, and their roles.

use crate::format::{number, optional};
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::report::{CaseReport, Report, RoleReport, WorkerReport};
use llmscen_core::units::Unit;

/// A column of numbers: its head, value and unit.
type Figure<T> = (&'static str, fn(&T) -> Option<f64>, Unit);

const WORKER_FIGURES: [Figure<WorkerReport>; 5] = [
    ("Prompt tokens", |own| own.prompt_tokens, Unit::Count),
    ("Generated tokens", |own| own.generated_tokens, Unit::Count),
    ("Running, mean", |own| own.running_mean, Unit::Count),
    ("Waiting, max", |own| own.waiting_max, Unit::Count),
    ("KV cache, max", |own| own.kv_cache_max, Unit::Share),
];

const ROLE_FIGURES: [Figure<RoleReport>; 10] = [
    ("GPUs", |own| own.gpus.map(f64::from), Unit::Count),
    ("Prompt tok/s", |own| own.prompt_tps, Unit::Count),
    ("Generated tok/s", |own| own.output_tps, Unit::Count),
    ("Prompt tok/s/GPU", |own| own.input_tps_per_gpu, Unit::Count),
    (
        "Generated tok/s/GPU",
        |own| own.output_tps_per_gpu,
        Unit::Count,
    ),
    ("Imbalance, prompt", |own| own.prompt_imbalance, Unit::Count),
    (
        "Imbalance, generated",
        |own| own.output_imbalance,
        Unit::Count,
    ),
    ("J per request", |own| own.energy_per_request, Unit::Count),
    (
        "J per prompt token",
        |own| own.energy_per_prompt_token,
        Unit::Count,
    ),
    (
        "J per generated token",
        |own| own.energy_per_output_token,
        Unit::Count,
    ),
];

/// A row per worker of each case; only the columns that a page has.
pub(crate) fn workers<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let rows = cases.flat_map(|(index, case)| {
        let first = move |worker: &WorkerReport| {
            let role = worker.role.as_deref().unwrap_or_default();
            vec![
                Cell::case(index, &case.id),
                Cell::prose(role),
                Cell::code(&worker.worker),
            ]
        };
        let workers = case.telemetry.workers.iter();
        workers.map(move |worker| (first(worker), worker))
    });
    table(&["Case", "Role", "Worker"], rows.collect(), &WORKER_FIGURES)
}

/// A row per role of each case; only the columns that a role has.
pub(crate) fn roles<'a>(cases: impl Iterator<Item = (usize, &'a CaseReport)>) -> Table {
    let rows = cases.flat_map(|(index, case)| {
        let first = move |role: &RoleReport| {
            vec![
                Cell::case(index, &case.id),
                Cell::prose(role.role.as_deref().unwrap_or("(none)")),
                Cell::count(role.workers),
            ]
        };
        case.telemetry
            .roles
            .iter()
            .map(move |role| (first(role), role))
    });
    table(&["Case", "Role", "Workers"], rows.collect(), &ROLE_FIGURES)
}

fn table<T>(heads: &[&str], rows: Vec<(Vec<Cell>, &T)>, figures: &[Figure<T>]) -> Table {
    let has_values = |(_, value, _): &&Figure<T>| rows.iter().any(|(_, own)| value(own).is_some());
    let figures: Vec<&Figure<T>> = figures.iter().filter(has_values).collect();
    let columns = heads
        .iter()
        .map(|head| Column::text().documents(head))
        .chain(
            figures
                .iter()
                .map(|(head, ..)| Column::number().documents(head)),
        );
    let columns = columns.collect();
    let row = |(mut cells, own): (Vec<Cell>, &T)| {
        cells.extend(figures.iter().map(|(_, value, unit)| {
            let value = value(own);
            Cell::figure(optional(value, *unit), value)
        }));
        Row::new(cells)
    };
    Table::new(columns, rows.into_iter().map(row).collect())
}

/// One line for a terminal: the workers of each role, and the greatest imbalance of a case. Empty without workers.
pub(crate) fn terminal_line(report: &Report) -> String {
    let cases = || report.cases.iter().filter(|case| !case.is_stage());
    let Some(first) = cases().find(|case| !case.telemetry.roles.is_empty()) else {
        return String::new();
    };
    let describe = |role: &RoleReport| {
        let same = |other: &&RoleReport| other.role == role.role;
        let all = cases().filter_map(|case| case.telemetry.roles.iter().find(same));
        let imbalance = all
            .filter_map(|role| role.output_imbalance)
            .reduce(f64::max);
        let imbalance =
            imbalance.map_or(String::new(), |max| format!(" (imbalance {})", number(max)));
        let name = role
            .role
            .as_deref()
            .map_or(String::new(), |role| format!(" {role}"));
        format!("{}{name}{imbalance}", role.workers)
    };
    let roles: Vec<String> = first.telemetry.roles.iter().map(describe).collect();
    format!("{:<8} {}\n", "workers", roles.join(", "))
}
