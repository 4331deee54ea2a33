//! The comparison in a terminal.

use crate::compare::labels;
use crate::table::{Cell, Column, Screen, Tint, render};
use llmscen_core::compare::{Comparison, Contrast, Finding};

const RUNS: [Column; 5] = [
    Column::words("RUN", 0),
    Column::words("FOLDER", 0).at_least(24),
    Column::words("STARTED", 2),
    Column::words("VERDICT", 0),
    Column::words("SCENARIO", 1),
];

const COLUMNS: [Column; 10] = [
    Column::words("FINDING", 0),
    Column::words("CASE", 0),
    Column::words("METRIC", 0).at_least(14),
    Column::words("RUN", 3),
    Column::numbers("BASE", 0),
    Column::numbers("RUN'S", 0),
    Column::numbers("CHANGE", 0),
    Column::numbers("INTERVAL", 1),
    Column::numbers("P ADJ.", 4),
    Column::words("EFFECT", 2),
];

/// The place of the column that tells the runs apart.
const RUN: usize = 3;

/// The runs, every measure of every case, and what it comes to. `width`: columns of the terminal, None where there is none.
pub fn table(comparison: &Comparison, width: Option<usize>, color: bool) -> String {
    let screen = Screen { width, color };
    let runs: Vec<Vec<Cell>> = comparison
        .runs
        .iter()
        .map(|run| {
            let (manifest, plain) = (&run.report.manifest, |text: &str| (text.to_owned(), Tint::None));
            let tint = if run.unsound() { Tint::Yellow } else { Tint::None };
            let verdict = (labels::of_run(run).to_owned(), tint);
            vec![plain(&run.label), plain(&run.folder), plain(&manifest.started_at), verdict, plain(&manifest.name)]
        })
        .collect();
    let rows: Vec<Vec<Cell>> = comparison.contrasts.iter().map(|contrast| row(comparison, contrast)).collect();
    let mut columns = COLUMNS;
    if comparison.sides.len() > 2 {
        // Of several runs a row says nothing without its own.
        columns[RUN].rank = 0;
    }
    let tint = match labels::verdict(comparison) {
        "NO REGRESSION" => Tint::Green,
        "INVALID" | "INCONCLUSIVE" => Tint::Yellow,
        _ => Tint::Red,
    };
    let verdict = if color { tint.wrap(labels::verdict(comparison)) } else { labels::verdict(comparison).to_owned() };
    let blank = if rows.is_empty() { "" } else { "\n" };
    format!(
        "{}\n{}{blank}{verdict}: {}.\n{}.\n",
        render(&RUNS, &runs, screen),
        render(&columns, &rows, screen),
        labels::counts(comparison),
        labels::rule(comparison)
    )
}

fn row(comparison: &Comparison, contrast: &Contrast) -> Vec<Cell> {
    let tint = match contrast.finding {
        Finding::Regression => Tint::Red,
        Finding::Within | Finding::Unknown => Tint::Yellow,
        Finding::Better => Tint::Green,
        Finding::Noise => Tint::Dim,
    };
    let [base, other] = labels::values(contrast);
    let plain = |text: String| (text, Tint::None);
    vec![
        (contrast.finding.name().to_owned(), tint),
        plain(contrast.case.clone()),
        plain(labels::measure(contrast)),
        plain(labels::label(comparison, contrast.run).to_owned()),
        plain(base),
        plain(other),
        (labels::change(contrast), tint),
        plain(labels::interval(contrast)),
        plain(labels::probability(contrast.p_adjusted)),
        plain(labels::effect(contrast.effect)),
    ]
}
