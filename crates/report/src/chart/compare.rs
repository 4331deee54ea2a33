//! Charts of runs side by side. A chart without data is not produced.

mod cdf;
mod curves;
mod forest;
#[cfg(test)]
mod tests;

use crate::ViewError;
use crate::chart::figure::{Entry, Figure, Swatch};
use crate::chart::pick::{Names, shown, spread};
use crate::chart::style::{Stroke, category};
use crate::chart::{Chart, render};
use crate::compare::ended;
use llmscen_core::compare::{Comparison, Finding};
use llmscen_core::plan::Format;
use llmscen_core::report::CaseReport;
use plotters::style::RGBColor;

/// The names of all charts that a comparison may have.
pub const NAMES: [&str; 11] = [
    "forest_b",
    "forest_c",
    "forest_d",
    "forest_e",
    "forest_f",
    "forest_g",
    "forest_h",
    "compare_curves",
    "compare_ttft",
    "compare_itl",
    "compare_e2e",
];

/// Every chart that the comparison has data for.
///
/// # Errors
/// [`ViewError::Chart`] where drawing fails, which no comparison should bring about.
pub fn comparison_charts(comparison: &Comparison) -> Result<Vec<Chart>, ViewError> {
    figures(comparison).iter().map(|figure| render(figure, None, &[Format::Png, Format::Svg])).collect()
}

fn figures(comparison: &Comparison) -> Vec<Figure> {
    let forests = (1..comparison.sides.len()).filter_map(|run| forest::figure(comparison, run));
    forests.chain(curves::figure(comparison)).chain(cdf::figures(comparison)).collect()
}

/// Cases in one chart at the most.
pub const ROOM: usize = 12;

/// At most `room` of these cases in their order: first those that got worst, then evenly spread; and what is to be said of the rest.
pub fn cases(comparison: &Comparison, ids: &[String], room: usize) -> (Vec<String>, String) {
    let worst = |id: &String| {
        let own = comparison.contrasts.iter().filter(|own| own.case == *id && own.finding == Finding::Regression);
        own.filter_map(|own| own.worsening()).fold(0.0, f64::max)
    };
    let mut worsened: Vec<usize> = (0..ids.len()).filter(|&at| worst(&ids[at]) > 0.0).collect();
    worsened.sort_by(|&a, &b| worst(&ids[b]).total_cmp(&worst(&ids[a])));
    worsened.truncate(room);
    let rest: Vec<usize> = (0..ids.len()).filter(|at| !worsened.contains(at)).collect();
    let others = spread(rest.len(), room - worsened.len()).into_iter().map(|at| rest[at]);
    let mut kept: Vec<usize> = worsened.iter().copied().chain(others).collect();
    kept.sort_unstable();
    (kept.iter().map(|&at| ids[at].clone()).collect(), shown(kept.len(), ids.len(), "cases"))
}

/// The title of a case's panel: the values in which it differs from the others, or its id.
pub fn title(comparison: &Comparison, id: &str) -> String {
    let cases: Vec<&CaseReport> = comparison.runs.first().map(|run| run.report.cases.iter().collect()).unwrap_or_default();
    let own = cases.iter().find(|case| case.id == id).map(|case| Names::of(&cases).title(case));
    own.filter(|title| !title.is_empty()).unwrap_or_else(|| id.to_owned())
}

/// The colour of a run, which is that of its side.
pub fn color(comparison: &Comparison, run: usize) -> RGBColor {
    shade(comparison, comparison.runs.get(run).map_or(run, |run| run.side))
}

fn shade(comparison: &Comparison, side: usize) -> RGBColor {
    category(side, comparison.sides.len())
}

/// A legend entry for each side: `A  before`, or `A  3 runs`.
pub fn legend(comparison: &Comparison) -> Vec<Entry> {
    let entry = |(side, label): (usize, &String)| {
        let own: Vec<_> = comparison.runs.iter().filter(|run| run.side == side).collect();
        let what = if let [run] = own.as_slice() { ended(&run.folder) } else { format!("{} runs", own.len()) };
        Entry::new(format!("{label}  {what}"), Swatch::Line(Stroke::solid(shade(comparison, side))))
    };
    comparison.sides.iter().enumerate().map(entry).collect()
}

/// The line under a title: scenario, and what else must be said.
pub fn subtitle(comparison: &Comparison, remarks: &[String]) -> String {
    let name = comparison.runs.first().map(|run| run.report.manifest.name.clone()).unwrap_or_default();
    let parts = std::iter::once(name).chain(remarks.iter().cloned()).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("  ·  ")
}
