//! The verdicts of the cases as a matrix: cases by objectives, or for two swept keys a grid of their values per
//! objective.

use crate::dimensions::{Dimension, case_at, dimensions, grid, heat_step};
use crate::findings::{factor, limit_ratio};
use crate::format::{against, check_title};
use crate::objectives::{limit_text, subject_mark, titles};
use crate::table::{Emphasis, case_anchor};
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::{CaseReport, Report};
use serde::Serialize;

/// With more cases, those that passed every objective are folded.
const MAX_UNFOLDED_CASES: usize = 24;
/// A grid with fewer rows or columns is no better than a list.
const LEAST_GRID: usize = 3;

/// The matrix of a report.
#[derive(Default, Serialize)]
pub(crate) struct Matrix {
    /// The swept keys of a list; without any, the case id is shown.
    pub(crate) keys: Vec<String>,
    /// The objectives of a list, or the measures of a comparison.
    pub(crate) objectives: Vec<String>,
    /// Cases that did not pass every objective, or all if they are few.
    pub(crate) open: Vec<Row>,
    /// The others.
    pub(crate) passed: Vec<Row>,
    /// A grid per objective instead of a list.
    pub(crate) grids: Vec<Grid>,
}

#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) anchor: String,
    pub(crate) case: String,
    /// The values of the swept keys.
    pub(crate) values: Vec<String>,
    pub(crate) cells: Vec<Option<Cell>>,
}

#[derive(Serialize)]
pub(crate) struct Grid {
    objective: String,
    counts: String,
    row_key: String,
    column_key: String,
    columns: Vec<String>,
    rows: Vec<GridRow>,
}

#[derive(Serialize)]
struct GridRow {
    value: String,
    cells: Vec<Option<Cell>>,
}

/// A verdict, or a change.
#[derive(Serialize)]
pub(crate) struct Cell {
    pub(crate) anchor: String,
    pub(crate) tone: &'static str,
    pub(crate) symbol: &'static str,
    /// The ruling, for readers who do not know the symbol.
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) factor: String,
    /// What the pointer shows.
    pub(crate) title: String,
    /// The step of the color scale of value ÷ limit, 0 to 6.
    pub(crate) heat: Option<usize>,
    /// For sorting.
    pub(crate) ratio: Option<f64>,
}

/// The matrix of the objectives of all cases.
pub(crate) fn matrix(report: &Report) -> Matrix {
    let titles = titles(report);
    let is_large = |[rows, columns]: &[Dimension; 2]| {
        rows.values.len().min(columns.values.len()) >= LEAST_GRID
    };
    if let Some(grid) = grid(report).filter(is_large) {
        let grids = titles.iter().map(|title| grid_of(report, title, &grid));
        return Matrix {
            grids: grids.collect(),
            ..Matrix::default()
        };
    }
    let dimensions = dimensions(report);
    let row = |(index, case): (usize, &CaseReport)| Row {
        anchor: case_anchor(index),
        case: case.id.clone(),
        values: dimensions
            .iter()
            .map(|dimension| dimension.value(index).to_owned())
            .collect(),
        cells: titles
            .iter()
            .map(|title| cell(index, case, title))
            .collect(),
    };
    let has_passed = |case: &CaseReport| {
        let mut verdicts = case.verdicts.iter();
        verdicts.all(|verdict| verdict.ruling == Ruling::Pass)
    };
    let is_folded = |case: &CaseReport| report.cases.len() > MAX_UNFOLDED_CASES && has_passed(case);
    let cases = || report.cases.iter().enumerate();
    Matrix {
        keys: dimensions.iter().map(|it| it.name.clone()).collect(),
        open: cases()
            .filter(|(_, case)| !is_folded(case))
            .map(row)
            .collect(),
        passed: cases()
            .filter(|(_, case)| is_folded(case))
            .map(row)
            .collect(),
        objectives: titles,
        grids: Vec::new(),
    }
}

fn grid_of(report: &Report, title: &str, grid: &[Dimension; 2]) -> Grid {
    let [rows, columns] = grid;
    let at = |row: usize, column: usize| {
        let index = case_at(grid, row, column)?;
        cell(index, report.cases.get(index)?, title)
    };
    let row = |index: usize| GridRow {
        value: rows.values[index].clone(),
        cells: (0..columns.values.len())
            .map(|column| at(index, column))
            .collect(),
    };
    let rulings = report.cases.iter().flat_map(|case| &case.verdicts);
    let rulings = rulings.filter(|verdict| check_title(&verdict.check) == title);
    Grid {
        objective: title.to_owned(),
        counts: count_rulings(rulings),
        row_key: rows.name.clone(),
        column_key: columns.name.clone(),
        columns: columns.values.clone(),
        rows: (0..rows.values.len()).map(row).collect(),
    }
}

/// `4 invalid, 8 failed, 3 inconclusive, 21 passed`, without what does not occur.
pub fn count_rulings<'a>(verdicts: impl Iterator<Item = &'a Verdict> + Clone) -> String {
    let count = |ruling| verdicts.clone().filter(|it| it.ruling == ruling).count();
    [
        (Ruling::Invalid, "invalid"),
        (Ruling::Fail, "failed"),
        (Ruling::Inconclusive, "inconclusive"),
        (Ruling::Pass, "passed"),
    ]
    .into_iter()
    .map(|(ruling, name)| (count(ruling), name))
    .filter(|(count, _)| *count > 0)
    .map(|(count, name)| format!("{count} {name}"))
    .collect::<Vec<_>>()
    .join(", ")
}

fn cell(index: usize, case: &CaseReport, title: &str) -> Option<Cell> {
    let mut verdicts = case.verdicts.iter();
    let verdict = verdicts.find(|verdict| check_title(&verdict.check) == title)?;
    let tone = Emphasis::from(verdict.ruling);
    let ratio = limit_ratio(verdict);
    let value = against(
        verdict.observed,
        verdict.check.limit,
        verdict.check.subject.unit(),
    );
    let mark = verdict.observed.map_or("", |_| subject_mark(case, verdict));
    Some(Cell {
        anchor: case_anchor(index),
        tone: tone.class(),
        symbol: tone.symbol(),
        name: verdict.ruling.name(),
        value: format!("{mark}{value}"),
        factor: ratio
            .filter(|ratio| *ratio > 0.0)
            .and_then(factor)
            .unwrap_or_default(),
        title: format!("{value}, limit {}", limit_text(verdict)),
        heat: ratio.map(heat_step),
        ratio: ratio.filter(|ratio| ratio.is_finite()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, grid as grid_report, report_of, sweep};

    #[test]
    fn a_long_list_folds_the_cases_that_passed() {
        let mut report = sweep(100);
        for case in &mut report.cases {
            case.verdicts.truncate(1);
        }
        let matrix = matrix(&report);
        assert_eq!(matrix.open.len() + matrix.passed.len(), 100);
        assert!(!matrix.open.is_empty() && !matrix.passed.is_empty());
        let all_failed = |row: &Row| row.cells.iter().flatten().all(|cell| cell.name == "fail");
        assert!(matrix.open.iter().all(all_failed));
        assert_eq!(matrix.keys, ["concurrency"]);
    }

    #[test]
    fn two_swept_keys_are_a_grid_per_objective() {
        let report = grid_report(4);
        let matrix = matrix(&report);
        assert_eq!((matrix.grids.len(), matrix.open.len()), (2, 0));
        let grid = &matrix.grids[0];
        let cells = grid
            .rows
            .iter()
            .flat_map(|row| &row.cells)
            .flatten()
            .count();
        assert_eq!(cells, report.cases.len());
        assert_eq!(
            (grid.row_key.as_str(), grid.column_key.as_str()),
            ("rate", "max_tokens")
        );
    }

    #[test]
    fn a_cell_has_value_and_ratio() {
        let report = report_of(vec![case(4), case(64)], Default::default(), 1);
        let matrix = matrix(&report);
        let texts: Vec<(&str, &str)> = matrix
            .open
            .iter()
            .filter_map(|row| row.cells[0].as_ref())
            .map(|cell| (cell.symbol, cell.factor.as_str()))
            .collect();
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0].0, "✓");
        assert!(texts[1].0 == "✗" && texts[1].1.ends_with('x'), "{texts:?}");
    }

    #[test]
    fn rulings_are_counted_by_severity() {
        assert_eq!(
            count_rulings(sweep(2).cases.iter().flat_map(|case| &case.verdicts)),
            "2 inconclusive, 2 passed"
        );
    }
}
