//! Charts of runs side by side. A chart without data is not produced.

mod cdf;
mod curves;
mod forest;
mod pick;

use crate::ViewError;
use crate::chart::figure::Figure;
use crate::chart::{Chart, render};
use llmscen_core::compare::Comparison;
use llmscen_core::plan::Format;

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

#[cfg(test)]
mod tests;
