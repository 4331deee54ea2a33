//! The largest load of each configuration that meets its objectives, ranked, with its interval.

use crate::capacity::{Capacities, Capacity, capacities};
use crate::chart::axis::Axis;
use crate::chart::figure::{Cell, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{shown, subtitle};
use crate::chart::style::{FRAME, INK, MAIN, Stroke};
use crate::format::percent;
use crate::search::plain_number;
use llmscen_core::report::Report;
use plotters::style::RGBColor;

/// The most bars.
const MAX_BARS: usize = 20;
/// Half the thickness of a bar, and of the end of an interval, in rows.
const BAR: f64 = 0.3;
const CAP: f64 = 0.12;

/// The chart; None for fewer than two configurations, or if no load of any is known.
pub fn figure(report: &Report) -> Option<Figure> {
    let Capacities {
        quantity,
        unit,
        per_gpu,
        mass,
        ranked,
    } = capacities(report)?;
    let known: Vec<&Capacity<'_>> = ranked.iter().filter(|one| one.value.is_some()).collect();
    let bars = &known[..known.len().min(MAX_BARS)];
    let rows = bars.len() as f64;
    let height = |index: usize| rows - index as f64 - 0.5;
    let share = |capacity: &Capacity<'_>| capacity.gpus.filter(|_| per_gpu).unwrap_or(1.0);
    let scaled = |capacity: &Capacity<'_>, end: Option<f64>| end.map(|end| end / share(capacity));
    let ends = |capacity: &Capacity<'_>| {
        let load = scaled(capacity, capacity.value).unwrap_or_default();
        let end = |end: Option<f64>| scaled(capacity, end).unwrap_or(load);
        (end(capacity.low), load, end(capacity.high))
    };
    let mut ticks = Vec::new();
    let mut marks = Vec::new();
    let cell = |index: usize, to: f64, color: RGBColor| Cell {
        x: (0.0, to),
        y: (height(index) - BAR, height(index) + BAR),
        color,
    };
    for (index, capacity) in bars.iter().enumerate() {
        let (low, load, high) = ends(capacity);
        let y = height(index);
        let color = if capacity.is_final() { MAIN } else { FRAME };
        marks.push(Mark::Cells(vec![cell(index, load, color)]));
        let line = |points: [(f64, f64); 2]| Mark::Line(points.to_vec(), Stroke::solid(INK).thin());
        marks.push(line([(low, y), (high, y)]));
        marks.extend([low, high].map(|end| line([(end, y - CAP), (end, y + CAP)])));
        let name = capacity.name();
        ticks.push((y, format!("{name}: {}{unit}", plain_number(load))));
    }
    ticks.reverse();
    let first = bars.first()?;
    let gpu = if per_gpu { " per GPU" } else { "" };
    let quantity = format!("{quantity}{gpu}");
    let whisker = match mass {
        Some(mass) => format!("{} interval", percent(mass)),
        None => "up to the next load, which does not pass".to_owned(),
    };
    let unknown = match ranked.len() - known.len() {
        0 => String::new(),
        count => format!("{count} without a result"),
    };
    let mut legend = vec![
        Entry::new("capacity", Swatch::Dot(MAIN)),
        Entry::new(whisker, Swatch::Line(Stroke::solid(INK).thin())),
    ];
    if bars.iter().any(|capacity| !capacity.is_final()) {
        legend.insert(1, Entry::new("dropped, an estimate", Swatch::Dot(FRAME)));
    }
    let is_one_work = ranked.iter().all(|one| one.work == first.work);
    let remark = if first.is_final() && is_one_work {
        "the best first"
    } else {
        ""
    };
    let remarks = [
        remark.to_owned(),
        shown(bars.len(), known.len(), "configurations"),
        unknown,
    ];
    Some(Figure {
        name: "capacity",
        title: format!("Capacity: {quantity}"),
        subtitle: subtitle(report, &remarks),
        legend,
        side: Side::Top,
        columns: 1,
        panels: vec![Panel {
            title: String::new(),
            x: Axis::from_zero(quantity, bars.iter().map(|one| ends(one).2)),
            y: Axis {
                title: String::new(),
                low: 0.0,
                high: rows.max(1.0),
                log: false,
                ticks,
            },
            marks,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::two_groups;

    #[test]
    fn bars_of_the_highest_goodput_are_requests_per_second() {
        let chart = figure(&two_groups()).unwrap();
        assert_eq!(chart.title, "Capacity: highest goodput per GPU");
        let ticks = chart.panels[0].y.ticks.iter().rev();
        assert_eq!(
            ticks.map(|(_, text)| text.as_str()).collect::<Vec<_>>(),
            [
                "tokens=100, max_num_seqs=16: 9 req/s",
                "tokens=100, max_num_seqs=8: 5 req/s",
                "tokens=900, max_num_seqs=8: 3 req/s",
                "tokens=900, max_num_seqs=16: 2 req/s"
            ]
        );
        assert_eq!(chart.legend[1].label, "90% interval");
    }
}
