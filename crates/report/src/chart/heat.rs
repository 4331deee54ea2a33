//! Latency over time as a heat map: how many requests took how long, when.

use crate::chart::axis::{Axis, SpanUnit};
use crate::chart::figure::{Cell, Entry, Figure, Mark, Side, Swatch};
use crate::chart::pick::{Picture, columns, multiples, sizes, subtitle};
use crate::chart::style::ramp;
use llmscen_core::chart_data::Heat;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};

/// Colours at the most.
const SHADES: usize = 6;
/// Panels up to which each cell is drawn; in smaller ones, two by two are.
const LARGE: usize = 2;

/// The chart; None without data.
pub fn figure(report: &Report) -> Option<Figure> {
    let maps = |case: &CaseReport| case.pictures.heat.as_ref().is_some_and(|heat| heat.counts.iter().flatten().any(|n| *n > 0));
    let fullest = |panels: usize| {
        let counts = report.cases.iter().filter_map(|case| case.pictures.heat.as_ref()).map(|heat| coarse(heat, panels));
        counts.flat_map(|heat| heat.counts.into_iter().flatten()).max().unwrap_or(1)
    };
    let found = report.cases.iter().filter(|case| maps(case)).count();
    let edges = edges(fullest(found));
    let (panels, remark) = multiples(report, "E2E", maps, |case, panels| picture(case, panels, &edges));
    let (remarks, own) =
        (sizes(report.cases.iter(), Metric::E2e), if panels.len() > 1 { "each panel has its own axes" } else { "" });
    (!panels.is_empty()).then(|| Figure {
        name: "latency_heat",
        title: "End-to-end latency over time".to_owned(),
        subtitle: subtitle(report, &[remark, "first round".to_owned(), own.to_owned(), remarks]),
        legend: legend(&edges),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

fn picture(case: &CaseReport, panels: usize, edges: &[u32]) -> Option<Picture> {
    let heat = coarse(case.pictures.heat.as_ref()?, panels);
    let unit = SpanUnit::of(heat.levels.iter().copied());
    let levels: Vec<f64> = heat.levels.iter().map(|level| level * unit.factor).collect();
    // Nothing else can stand on a logarithmic axis.
    let (low, high) = (*levels.first()?, *levels.last()?);
    if !(low > 0.0 && high > low && high.is_finite()) {
        return None;
    }
    let (from, to) = (*heat.times.first()?, *heat.times.last()?);
    let cells = heat.counts.iter().zip(heat.times.windows(2)).flat_map(|(counts, times)| column(counts, times, &levels, edges));
    let x = Axis { low: from, high: to, ..Axis::from_zero("seconds since the start of the case", [to]) }.trimmed();
    let x = if x.ticks.len() > 1 { x } else { x.with_even_ticks() };
    Some(Picture { x, y: Axis::log(unit.name, low, high), marks: vec![Mark::Cells(cells.collect())] })
}

/// The cells of one column; those of one colour in a row are one.
fn column(counts: &[u32], times: &[f64], levels: &[f64], edges: &[u32]) -> Vec<Cell> {
    let shades: Vec<usize> = counts.iter().map(|count| edges.partition_point(|edge| edge <= count)).collect();
    let mut cells = Vec::new();
    let mut low = 0;
    for run in shades.chunk_by(|a, b| a == b) {
        let high = low + run.len();
        if let (Some(shade), [from, to], Some(&bottom), Some(&top)) =
            (run.first().and_then(|shade| shade.checked_sub(1)), times, levels.get(low), levels.get(high))
        {
            let color = ramp(edges.len() - 1 - shade, edges.len());
            cells.push(Cell { x: (*from, *to), y: (bottom, top), color });
        }
        low = high;
    }
    cells
}

/// The least count of each shade, in equal steps of the logarithm up to the greatest count.
fn edges(most: u32) -> Vec<u32> {
    let mut edges = vec![1];
    for step in 1..SHADES {
        let edge = (f64::from(most) + 1.0).powf(step as f64 / SHADES as f64).round() as u32;
        let last = edges.last().copied().unwrap_or(1);
        if edge.max(last + 1) <= most {
            edges.push(edge.max(last + 1));
        }
    }
    edges
}

/// Two by two cells as one, where panels are small.
fn coarse(heat: &Heat, panels: usize) -> Heat {
    if panels <= LARGE {
        return heat.clone();
    }
    let every_other = |edges: &[f64]| -> Vec<f64> {
        let last = edges.last().filter(|_| edges.len().is_multiple_of(2));
        edges.iter().step_by(2).chain(last).copied().collect()
    };
    let pooled = |pair: &[Vec<u32>]| -> Vec<u32> {
        let rows = pair.first().map_or(0, Vec::len);
        let count = |row: usize| pair.iter().filter_map(|column| column.get(row)).sum::<u32>();
        (0..rows).step_by(2).map(|row| count(row) + if row + 1 < rows { count(row + 1) } else { 0 }).collect()
    };
    let counts = heat.counts.chunks(2).map(pooled).collect();
    Heat { times: every_other(&heat.times), levels: every_other(&heat.levels), counts }
}

fn legend(edges: &[u32]) -> Vec<Entry> {
    let words = |index: usize, from: u32| {
        let to = edges.get(index + 1).map(|next| next - 1);
        let range = match to {
            Some(to) if to == from => from.to_string(),
            Some(to) => format!("{from}–{to}"),
            None => format!("{from} or more"),
        };
        match (index, range.as_str()) {
            (0, "1") => "1 request due then".to_owned(),
            (0, _) => format!("{range} requests due then"),
            _ => range,
        }
    };
    let shade = |index: usize| Swatch::Shade(ramp(edges.len() - 1 - index, edges.len()));
    edges.iter().enumerate().map(|(index, from)| Entry::new(words(index, *from), shade(index))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn shades_are_steps_of_the_logarithm() {
        assert_eq!(edges(1), [1]);
        assert_eq!(edges(4), [1, 2, 3, 4]);
        assert_eq!(edges(10_000), [1, 5, 22, 100, 464, 2155]);
        let words: Vec<String> = legend(&edges(40)).into_iter().map(|entry| entry.label).collect();
        assert_eq!(words, ["1 request due then", "2", "3–5", "6–11", "12–21", "22 or more"]);
    }

    #[test]
    fn cells_of_a_colour_in_a_row_are_one_and_empty_ones_none() {
        let cells = column(&[0, 3, 3, 0, 1], &[0.0, 1.0], &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0], &[1, 2]);
        assert_eq!(cells.iter().map(|cell| cell.y).collect::<Vec<_>>(), [(2.0, 8.0), (16.0, 32.0)]);
        assert_ne!(cells[0].color, cells[1].color);
    }

    #[test]
    fn small_panels_pool_cells_and_lose_none() {
        let heat = Heat { times: vec![0.0, 1.0, 2.0, 3.0], levels: vec![1.0, 2.0, 4.0, 8.0], counts: vec![vec![1, 2, 3]; 3] };
        let pooled = coarse(&heat, 3);
        assert_eq!((pooled.times, pooled.levels), (vec![0.0, 2.0, 3.0], vec![1.0, 4.0, 8.0]));
        assert_eq!(pooled.counts, [[6, 6], [3, 3]]);
        assert_eq!(coarse(&heat, 2), heat);
    }

    #[test]
    fn a_panel_a_case_and_none_without_data() {
        assert_eq!(figure(&sweep(5)).unwrap().panels.len(), 5);
        assert!(figure(&sweep(100)).unwrap().subtitle.contains("12 of 100 cases shown"));
        assert_eq!(figure(&report_of(vec![no_data()], Default::default(), 3)), None);
    }
}
