//! What compare.html begins with: the subject, a tile for each main measure, and the changes as a matrix.

use crate::compare::labels;
use crate::compare::pages::compared_cases;
use crate::dimensions::{dimensions, heat_step};
use crate::format::short_folder;
use crate::html::lead::Tile;
use crate::html::matrix::{Cell, Matrix, Row};
use crate::table::case_anchor;
use llmscen_core::compare::{Comparison, Contrast, Finding};
use llmscen_core::report::CaseReport;

/// The measures of the tiles, if they were compared.
const MAIN_MEASURES: [&str; 5] = [
    "ttft.p95",
    "tpot.p95",
    "e2e.p95",
    "output_tps",
    "error_rate",
];

/// The runs that are compared: `base A: chat/20260101T000000Z`, `candidate B: …`.
pub(super) fn subject(comparison: &Comparison) -> Vec<String> {
    let runs = comparison.runs.iter().map(|run| {
        let role = if run.side == 0 { "base" } else { "candidate" };
        format!("{role} {}: {}", run.label, short_folder(&run.folder))
    });
    runs.collect()
}

/// For each main measure, the case with the largest change: a regression, then a change within the tolerance, then an
/// improvement.
pub(super) fn tiles(comparison: &Comparison) -> Vec<Tile> {
    let all = measures(comparison);
    let is_main = |measure: &&String| MAIN_MEASURES.contains(&measure.as_str());
    let mut chosen: Vec<&String> = all.iter().filter(is_main).collect();
    if chosen.is_empty() {
        chosen = all.iter().take(MAIN_MEASURES.len()).collect();
    }
    let cases = compared_cases(comparison);
    let worst = |measure: &&String| {
        let of_measure = |it: &&Contrast| it.measure.to_string() == **measure;
        let contrasts = comparison.contrasts.iter().filter(of_measure);
        contrasts.max_by(|a, b| {
            let size = |it: &Contrast| it.worsening().unwrap_or(0.0).abs();
            let rank = |it: &Contrast| FINDINGS.iter().position(|other| *other == it.finding);
            rank(b).cmp(&rank(a)).then(size(a).total_cmp(&size(b)))
        })
    };
    let tile = |contrast: &Contrast| {
        let (tone, symbol) = mark(contrast.finding);
        let [base, candidate] = labels::values(contrast);
        let of = |parts: [&str; 2]| {
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(", ")
        };
        let side = if comparison.sides.len() > 2 {
            labels::label(comparison, contrast.run)
        } else {
            ""
        };
        let case = if cases.len() > 1 {
            contrast.case.as_str()
        } else {
            ""
        };
        Tile {
            label: labels::measure(contrast),
            value: labels::change(contrast),
            detail: of([&of([side, case]), &format!("{base} → {candidate}")]),
            tone,
            symbol,
            anchor: anchor(&cases, contrast),
            sparkline: String::new(),
        }
    };
    chosen.iter().filter_map(worst).map(tile).collect()
}

/// By how much a finding matters.
const FINDINGS: [Finding; 5] = [
    Finding::Regression,
    Finding::Within,
    Finding::Better,
    Finding::Noise,
    Finding::Unknown,
];

/// The changes of all cases: a row per case and candidate, a column per measure.
pub(super) fn matrix(comparison: &Comparison) -> Matrix {
    let (cases, measures) = (compared_cases(comparison), measures(comparison));
    let swept = comparison.runs.first().map(|run| dimensions(&run.report));
    let swept = swept.unwrap_or_default();
    let values = |id: &str| {
        let is = |case: &CaseReport| case.id == id;
        let base = comparison.runs.first();
        let index = base.and_then(|run| run.report.cases.iter().position(is));
        let values = swept
            .iter()
            .map(|key| index.map_or("", |index| key.value(index)));
        values.map(str::to_owned).collect::<Vec<_>>()
    };
    let has_several = comparison.sides.len() > 2;
    let row = |(id, side): (&str, usize)| {
        let cell = |measure: &String| {
            let mut contrasts = comparison.contrasts.iter();
            let is = |it: &&Contrast| {
                it.case == id && it.run == side && it.measure.to_string() == *measure
            };
            contrasts.find(is).map(|contrast| cell(&cases, contrast))
        };
        let candidate = has_several.then(|| labels::label(comparison, side).to_owned());
        Row {
            anchor: cases
                .iter()
                .position(|it| *it == id)
                .map_or_else(String::new, case_anchor),
            case: id.to_owned(),
            values: match (swept.is_empty(), candidate) {
                (true, None) => Vec::new(),
                (true, Some(side)) => vec![id.to_owned(), side],
                (false, side) => values(id).into_iter().chain(side).collect(),
            },
            cells: measures.iter().map(cell).collect(),
        }
    };
    let keys = match swept.is_empty() {
        true if has_several => vec!["Case".to_owned()],
        true => Vec::new(),
        false => swept.iter().map(|key| key.name.clone()).collect(),
    };
    let sides = 1..comparison.sides.len();
    let rows = cases
        .iter()
        .flat_map(|id| sides.clone().map(move |side| (*id, side)));
    Matrix {
        open: rows.map(row).collect(),
        keys: keys
            .into_iter()
            .chain(has_several.then(|| "Run".to_owned()))
            .collect(),
        objectives: measures,
        ..Matrix::default()
    }
}

/// The compared measures, in their order.
fn measures(comparison: &Comparison) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for contrast in &comparison.contrasts {
        let name = contrast.measure.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn anchor(cases: &[&str], contrast: &Contrast) -> Option<String> {
    let index = cases.iter().position(|id| *id == contrast.case)?;
    Some(case_anchor(index))
}

fn cell(cases: &[&str], contrast: &Contrast) -> Cell {
    let (tone, symbol) = mark(contrast.finding);
    let [base, candidate] = labels::values(contrast);
    let worsening = contrast.worsening().filter(|change| change.is_finite());
    Cell {
        anchor: anchor(cases, contrast).unwrap_or_default(),
        tone,
        symbol,
        name: contrast.finding.name(),
        value: labels::change(contrast),
        factor: String::new(),
        title: format!("{base} → {candidate}, {}", contrast.finding.name()),
        heat: worsening
            .filter(|_| !symbol.is_empty())
            .map(|change| heat_step(1.0 + change)),
        ratio: worsening,
    }
}

/// Tone and symbol; a difference that may be noise has none.
fn mark(finding: Finding) -> (&'static str, &'static str) {
    match finding {
        Finding::Regression => ("fail", "✗"),
        Finding::Better => ("pass", "✓"),
        Finding::Within => ("muted", "·"),
        Finding::Noise | Finding::Unknown => ("muted", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::comparison::comparison;

    #[test]
    fn the_matrix_has_a_row_per_case_and_candidate() {
        let two = matrix(&comparison(3, 2));
        assert_eq!((two.open.len(), two.objectives.len()), (3, 11));
        assert!(
            two.open
                .iter()
                .all(|row| row.cells.iter().all(Option::is_some))
        );
        let three = matrix(&comparison(3, 3));
        assert_eq!(three.open.len(), 6);
        assert_eq!(three.keys.last().map(String::as_str), Some("Run"));
    }

    #[test]
    fn a_tile_has_the_largest_change_of_the_worst_finding() {
        let mut comparison = comparison(3, 2);
        let mut of_ttft = comparison
            .contrasts
            .iter_mut()
            .filter(|it| it.measure.to_string() == "ttft.p95");
        // The first case has the largest value, but no finding.
        let first = of_ttft.next().unwrap();
        first.finding = Finding::Noise;
        first.other.value = first.base.value.map(|value| value * 9.0);
        let tiles = tiles(&comparison);
        assert_eq!(
            (
                tiles[0].label.as_str(),
                tiles[0].value.as_str(),
                tiles[0].tone
            ),
            ("ttft.p95 ↓", "+12.0%", "fail")
        );
    }
}
