//! What a baseline says, for a terminal: the figures that people ask for first.

use crate::format::{ABSENT, value};
use crate::noise::unit_of;
use crate::table::{Cell, Column, Screen, Tint, render};
use llmscen_core::baseline::Baseline;
use llmscen_core::baseline::USUAL;

const COLUMNS: [Column; 6] = [
    Column::words("CASE", 0),
    Column::words("FIGURE", 0).at_least(20),
    Column::numbers("VALUE", 0),
    Column::numbers("FROM", 1),
    Column::numbers("TO", 1),
    Column::numbers("N", 2),
];

/// The table, bounds at 95 %. `width`: columns of the terminal, None where there is none.
pub fn baseline_table(of: &Baseline, width: Option<usize>, color: bool) -> String {
    let place = of.level(0.95);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for case in &of.cases {
        let usual = USUAL.iter().filter_map(|name| Some((*name, case.figure(name)?)));
        let own = case.metrics.iter().filter(|(name, _)| name.contains(['(', '{', ' ']));
        for (name, figure) in usual.chain(own.map(|(name, figure)| (name.as_str(), figure))) {
            let (unit, known) = (unit_of(name), figure.known(place));
            let end = |end: Option<f64>| end.map_or_else(|| ABSENT.to_owned(), |end| value(end, unit));
            let cells = [case.id.clone(), name.to_owned(), value(known.value, unit), end(known.low), end(known.high)];
            let n = figure.n.to_string();
            rows.push(cells.into_iter().chain([n]).map(|text| (text, Tint::None)).collect());
        }
    }
    render(&COLUMNS, &rows, Screen { width, color })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::baseline::{BaselineCase, Figure, LEVELS};

    #[test]
    fn the_first_figures_and_those_of_the_limits_are_shown() {
        let figure = |value: f64| Figure {
            value,
            n: 400,
            low: vec![None, Some(value * 0.9), None],
            high: vec![None; 3],
            ..Figure::default()
        };
        let metrics = [("output_tps", 420.0), ("ttft.p98", 9.0), ("ttft.p95", 12.0), ("goodput(ttft < 500ms)", 0.99)];
        let case = BaselineCase {
            id: "concurrency=4".into(),
            labels: Default::default(),
            rounds: 1,
            scheduled: 400,
            ok: 400,
            metrics: metrics.map(|(name, value)| (name.to_owned(), figure(value))).to_vec(),
        };
        let of = Baseline { confidences: LEVELS.to_vec(), cases: vec![case], ..Baseline::default() };
        insta::assert_snapshot!(baseline_table(&of, None, false), @r"
        CASE           FIGURE                     VALUE       FROM   TO    N
        concurrency=4  ttft.p95                   12 ms    10.8 ms  n/a  400
        concurrency=4  output_tps             420 tok/s  378 tok/s  n/a  400
        concurrency=4  goodput(ttft < 500ms)        99%      89.1%  n/a  400
        ");
    }
}
