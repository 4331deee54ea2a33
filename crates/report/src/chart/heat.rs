//! Latency over time as a heat map of request counts.

use crate::chart::axis::{Axis, TimeUnit};
use crate::chart::figure::{Cell, Entry, Figure, Mark, Side, Swatch};
use crate::chart::pick::{
    MAX_PANELS, PanelContent, SHARED_SCALE, columns, sample_sizes, select_cases, small_multiples,
    subtitle,
};
use crate::chart::style::ramp;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, HeatMap, Report};

/// The most colors.
const MAX_SHADES: usize = 6;
/// With more panels, two by two cells are drawn as one.
const MAX_LARGE_PANELS: usize = 2;

/// The least requests of a heat map: with fewer, most cells have one.
const MIN_REQUESTS: u32 = 200;

/// Whether a heat map has enough requests to be drawn.
pub fn has_enough(heat: &HeatMap) -> bool {
    heat.counts.iter().flatten().sum::<u32>() >= MIN_REQUESTS
}

fn has_map(case: &CaseReport) -> bool {
    case.chart_data.heat.as_ref().is_some_and(has_enough)
}

/// The chart; None without data.
pub fn figure(report: &Report) -> Option<Figure> {
    let max_count = |panels: usize| {
        let counts = report
            .cases
            .iter()
            .filter_map(|case| case.chart_data.heat.as_ref())
            .map(|heat| pool_cells(heat, panels));
        counts
            .flat_map(|heat| heat.counts.into_iter().flatten())
            .max()
            .unwrap_or(1)
    };
    let found = report.cases.iter().filter(|case| has_map(case)).count();
    let edges = shade_edges(max_count(found));
    let y = latency_axis(report)?;
    let (panels, remark) = small_multiples(report, "E2E", MAX_PANELS, has_map, |case, panels| {
        heat_map(case, panels, &edges, &y)
    });
    let sizes = sample_sizes(report.cases.iter(), Metric::E2e);
    let scales = if panels.len() > 1 { SHARED_SCALE } else { "" };
    (!panels.is_empty()).then(|| Figure {
        name: "latency_heat",
        title: "End-to-end latency over time".to_owned(),
        subtitle: subtitle(
            report,
            &[remark, "first round".to_owned(), scales.to_owned(), sizes],
        ),
        legend: legend(&edges),
        side: Side::Top,
        columns: columns(panels.len()),
        panels,
    })
}

/// The latencies of all shown cases, on a logarithmic axis, which needs positive, finite ends.
fn latency_axis(report: &Report) -> Option<(Axis, TimeUnit)> {
    let (picked, _) = select_cases(report, MAX_PANELS, has_map);
    let heats = picked
        .iter()
        .filter_map(|shown| shown.case.chart_data.heat.as_ref());
    let levels: Vec<f64> = heats.flat_map(|heat| heat.levels.iter().copied()).collect();
    let unit = TimeUnit::for_values(levels.iter().copied());
    let low = levels.iter().copied().reduce(f64::min)? * unit.factor;
    let high = levels.iter().copied().reduce(f64::max)? * unit.factor;
    let is_range = low > 0.0 && high > low && high.is_finite();
    is_range.then(|| (Axis::log(unit.name, low, high), unit))
}

fn heat_map(
    case: &CaseReport,
    panels: usize,
    edges: &[u32],
    (y, unit): &(Axis, TimeUnit),
) -> Option<PanelContent> {
    let heat = pool_cells(case.chart_data.heat.as_ref()?, panels);
    let levels: Vec<f64> = heat
        .levels
        .iter()
        .map(|level| level * unit.factor)
        .collect();
    let (from, to) = (*heat.times.first()?, *heat.times.last()?);
    let cells = heat
        .counts
        .iter()
        .zip(heat.times.windows(2))
        .flat_map(|(counts, times)| column_cells(counts, times, &levels, edges));
    let x = Axis {
        low: from,
        high: to,
        ..Axis::from_zero("time since start of case (s)", [to])
    }
    .trimmed();
    let x = if x.ticks.len() > 1 {
        x
    } else {
        x.with_even_ticks()
    };
    Some(PanelContent {
        x,
        y: y.clone(),
        marks: vec![Mark::Cells(cells.collect())],
    })
}

/// The cells of one column; adjacent cells of one color are joined.
fn column_cells(counts: &[u32], times: &[f64], levels: &[f64], edges: &[u32]) -> Vec<Cell> {
    let shades: Vec<usize> = counts
        .iter()
        .map(|count| edges.partition_point(|edge| edge <= count))
        .collect();
    let mut cells = Vec::new();
    let mut low = 0;
    for run in shades.chunk_by(|a, b| a == b) {
        let high = low + run.len();
        if let (Some(shade), [from, to], Some(&bottom), Some(&top)) = (
            run.first().and_then(|shade| shade.checked_sub(1)),
            times,
            levels.get(low),
            levels.get(high),
        ) {
            let color = ramp(edges.len() - 1 - shade, edges.len());
            cells.push(Cell {
                x: (*from, *to),
                y: (bottom, top),
                color,
            });
        }
        low = high;
    }
    cells
}

/// The least count of each shade, in logarithmic steps up to the greatest count.
fn shade_edges(most: u32) -> Vec<u32> {
    let mut edges = vec![1];
    for step in 1..MAX_SHADES {
        let edge = (f64::from(most) + 1.0)
            .powf(step as f64 / MAX_SHADES as f64)
            .round() as u32;
        let last = edges.last().copied().unwrap_or(1);
        if edge.max(last + 1) <= most {
            edges.push(edge.max(last + 1));
        }
    }
    edges
}

/// Joins two by two cells if panels are small.
fn pool_cells(heat: &HeatMap, panels: usize) -> HeatMap {
    if panels <= MAX_LARGE_PANELS {
        return heat.clone();
    }
    let every_other = |edges: &[f64]| -> Vec<f64> {
        let last = edges.last().filter(|_| edges.len().is_multiple_of(2));
        edges.iter().step_by(2).chain(last).copied().collect()
    };
    let pooled = |pair: &[Vec<u32>]| -> Vec<u32> {
        let rows = pair.first().map_or(0, Vec::len);
        let count = |row: usize| {
            pair.iter()
                .filter_map(|column| column.get(row))
                .sum::<u32>()
        };
        (0..rows)
            .step_by(2)
            .map(|row| count(row) + if row + 1 < rows { count(row + 1) } else { 0 })
            .collect()
    };
    let counts = heat.counts.chunks(2).map(pooled).collect();
    HeatMap {
        times: every_other(&heat.times),
        levels: every_other(&heat.levels),
        counts,
    }
}

fn legend(edges: &[u32]) -> Vec<Entry> {
    let label = |index: usize, from: u32| {
        let to = edges.get(index + 1).map(|next| next - 1);
        let range = match to {
            Some(to) if to == from => from.to_string(),
            Some(to) => format!("{from}–{to}"),
            None => format!("{from} or more"),
        };
        match (index, range.as_str()) {
            (0, "1") => "1 request".to_owned(),
            (0, _) => format!("{range} requests"),
            _ => range,
        }
    };
    let shade = |index: usize| Swatch::Shade(ramp(edges.len() - 1 - index, edges.len()));
    edges
        .iter()
        .enumerate()
        .map(|(index, from)| Entry::new(label(index, *from), shade(index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{no_data, report_of, sweep};

    #[test]
    fn shades_are_steps_of_the_logarithm() {
        assert_eq!(shade_edges(1), [1]);
        assert_eq!(shade_edges(4), [1, 2, 3, 4]);
        assert_eq!(shade_edges(10_000), [1, 5, 22, 100, 464, 2155]);
        let labels: Vec<String> = legend(&shade_edges(40))
            .into_iter()
            .map(|entry| entry.label)
            .collect();
        assert_eq!(
            labels,
            ["1 request", "2", "3–5", "6–11", "12–21", "22 or more"]
        );
    }

    #[test]
    fn adjacent_cells_of_a_color_are_joined_and_empty_cells_omitted() {
        let cells = column_cells(
            &[0, 3, 3, 0, 1],
            &[0.0, 1.0],
            &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            &[1, 2],
        );
        assert_eq!(
            cells.iter().map(|cell| cell.y).collect::<Vec<_>>(),
            [(2.0, 8.0), (16.0, 32.0)]
        );
        assert_ne!(cells[0].color, cells[1].color);
    }

    #[test]
    fn small_panels_pool_cells_without_loss() {
        let heat = HeatMap {
            times: vec![0.0, 1.0, 2.0, 3.0],
            levels: vec![1.0, 2.0, 4.0, 8.0],
            counts: vec![vec![1, 2, 3]; 3],
        };
        let pooled = pool_cells(&heat, 3);
        assert_eq!(
            (pooled.times, pooled.levels),
            (vec![0.0, 2.0, 3.0], vec![1.0, 4.0, 8.0])
        );
        assert_eq!(pooled.counts, [[6, 6], [3, 3]]);
        assert_eq!(pool_cells(&heat, 2), heat);
    }

    #[test]
    fn a_panel_per_case_and_none_without_data() {
        assert_eq!(figure(&sweep(5)).unwrap().panels.len(), 5);
        assert!(
            figure(&sweep(100))
                .unwrap()
                .subtitle
                .contains("12 of 100 cases shown")
        );
        assert_eq!(
            figure(&report_of(vec![no_data()], Default::default(), 3)),
            None
        );
    }
}
