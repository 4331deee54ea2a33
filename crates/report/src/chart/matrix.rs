//! The verdicts over two swept keys: a panel per objective, colored by value ÷ limit.

use crate::chart::axis::Axis;
use crate::chart::figure::{Cell, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{columns, shown, subtitle};
use crate::chart::style::{HEAT, INK, MISSING};
use crate::dimensions::{Dimension, HEAT_STEPS, case_at, grid, heat_step};
use crate::findings::{factor, limit_ratio};
use crate::format::check_title;
use crate::objectives::titles;
use llmscen_core::check::{Ruling, Verdict};
use llmscen_core::report::Report;

/// The most panels.
const MAX_PANELS: usize = 6;
/// With more columns in all panels of a row, a cell has room for its symbol only.
const MAX_WIDE_COLUMNS: usize = 12;

/// The chart; None unless exactly two keys vary and there are objectives.
pub fn figure(report: &Report) -> Option<Figure> {
    let mut grid = grid(report)?;
    // The load is on the horizontal axis.
    let is_load = |dimension: &Dimension| matches!(dimension.name.as_str(), "concurrency" | "rate");
    if is_load(&grid[0]) {
        grid.reverse();
    }
    let mut titles = titles(report);
    let all = titles.len();
    let fails = |title: &String| {
        let mut verdicts = report.cases.iter().flat_map(|case| &case.verdicts);
        verdicts.any(|it| it.ruling == Ruling::Fail && check_title(&it.check) == *title)
    };
    titles.sort_by_key(|title| !fails(title));
    titles.truncate(MAX_PANELS);
    let in_row = columns(titles.len());
    let is_wide = grid[1].values.len() * in_row <= MAX_WIDE_COLUMNS;
    let panels: Vec<Panel> = titles
        .iter()
        .map(|title| panel(report, title, &grid, is_wide))
        .collect();
    let remark = match shown(panels.len(), all, "objectives") {
        remark if remark.is_empty() => remark,
        remark => format!("{remark}, failed ones first"),
    };
    (!panels.is_empty()).then(|| Figure {
        name: "matrix",
        title: "Value ÷ limit of the objectives".to_owned(),
        subtitle: subtitle(report, &[remark]),
        legend: legend(report),
        side: Side::Top,
        columns: in_row,
        panels,
    })
}

fn panel(report: &Report, title: &str, grid: &[Dimension; 2], is_wide: bool) -> Panel {
    let (mut cells, mut texts) = (Vec::new(), Vec::new());
    for row in 0..grid[0].values.len() {
        for column in 0..grid[1].values.len() {
            let case = case_at(grid, row, column).and_then(|index| report.cases.get(index));
            let verdicts = case.iter().flat_map(|case| &case.verdicts);
            let Some(verdict) = verdicts
                .into_iter()
                .find(|verdict| check_title(&verdict.check) == title)
            else {
                continue;
            };
            let (x, y) = (column as f64, row as f64);
            let ratio = limit_ratio(verdict);
            cells.push(Cell {
                x: (x, x + 1.0),
                y: (y, y + 1.0),
                color: ratio.map_or(MISSING, |ratio| HEAT[heat_step(ratio)]),
            });
            texts.push((x + 0.5, y + 0.5, text(verdict, ratio, is_wide)));
        }
    }
    Panel {
        title: title.to_owned(),
        x: Axis::categories(&grid[1].name, &grid[1].values),
        y: Axis::categories(&grid[0].name, &grid[0].values),
        marks: vec![Mark::Cells(cells), Mark::Texts(texts, INK)],
    }
}

/// A symbol that the font of the pictures has.
fn symbol(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Pass => "✓",
        Ruling::Fail => "✗",
        Ruling::Inconclusive => "?",
        Ruling::Invalid => "!",
    }
}

fn text(verdict: &Verdict, ratio: Option<f64>, is_wide: bool) -> String {
    let symbol = symbol(verdict.ruling);
    match ratio
        .filter(|ratio| is_wide && *ratio > 0.0)
        .and_then(factor)
    {
        Some(factor) => format!("{symbol} {factor}"),
        None => symbol.to_owned(),
    }
}

fn legend(report: &Report) -> Vec<Entry> {
    let ends = HEAT_STEPS.iter().map(|end| format!("up to {end}"));
    let ends = ends.chain(["more".to_owned()]);
    let shades = ends
        .zip(HEAT)
        .map(|(end, color)| Entry::new(end, Swatch::Shade(color)));
    let has = |ruling| {
        let mut verdicts = report.cases.iter().flat_map(|case| &case.verdicts);
        verdicts.any(|verdict| verdict.ruling == ruling)
    };
    let rulings = [
        (Ruling::Pass, "passed"),
        (Ruling::Fail, "failed"),
        (Ruling::Inconclusive, "inconclusive"),
        (Ruling::Invalid, "invalid"),
    ];
    let symbols = rulings.into_iter().filter(|(ruling, _)| has(*ruling));
    let symbols =
        symbols.map(|(ruling, name)| Entry::new(name, Swatch::Symbol(symbol(ruling), INK)));
    shades.chain(symbols).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid as grid_report, sweep};

    #[test]
    fn two_keys_are_a_panel_per_objective() {
        let report = grid_report(3);
        let figure = figure(&report).unwrap();
        let titles: Vec<&str> = figure
            .panels
            .iter()
            .map(|panel| panel.title.as_str())
            .collect();
        assert_eq!(titles, ["ttft.p99 < 500ms", "error_rate < 1%"]);
        let panel = &figure.panels[0];
        assert_eq!(
            (panel.x.title.as_str(), panel.y.title.as_str()),
            ("rate", "max_tokens")
        );
        let Mark::Texts(texts, _) = &panel.marks[1] else {
            panic!("{:?}", panel.marks[1])
        };
        assert_eq!(texts.len(), report.cases.len());
        assert!(
            texts.iter().all(|(.., text)| text.starts_with('✓')),
            "{texts:?}"
        );
    }

    #[test]
    fn one_key_is_no_matrix() {
        assert_eq!(figure(&sweep(12)), None);
    }
}
