//! The speed of one user against that of all: the cases that no other one dominates.

use crate::chart::axis::Axis;
use crate::chart::figure::{Corner, Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{sizes, subtitle, token_remark};
use crate::chart::style::{FRAME, INK, Stroke};
use crate::chart::sweep::{Group, Sweep};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};

/// Fewer cases have no front.
const FEWEST: usize = 3;

/// The chart, where cases differ in more than their load: of one line of loads, the curve over throughput says as much.
pub fn figure(report: &Report) -> Option<Figure> {
    let sweep = Sweep::of(report).filter(|sweep| sweep.groups.len() > 1)?;
    let per_gpu = sweep.cases().all(|case| case.scalars.contains_key(&Metric::OutputTpsPerGpu));
    let total = if per_gpu { Metric::OutputTpsPerGpu } else { Metric::OutputTps };
    let point = |case: &CaseReport| {
        let speed = |metric| case.scalars.get(&metric).copied().filter(|speed: &f64| speed.is_finite());
        speed(Metric::OutputTpsPerUser).zip(speed(total))
    };
    let all: Series = sweep.cases().filter_map(point).collect();
    if all.len() < FEWEST {
        return None;
    }
    let front = front(&all);
    let marks = marks(&sweep, &front, point);
    let y = if per_gpu { "tok/s per GPU" } else { "tok/s" };
    let title = if per_gpu { "Output tokens of all users, per GPU" } else { "Output tokens of all users" };
    let panel = Panel {
        title: title.to_owned(),
        x: Axis::from_zero("output tokens per second of one user, mean", all.iter().map(|point| point.0)),
        y: Axis::from_zero(y, all.iter().map(|point| point.1)),
        marks,
    };
    let told = format!("{} of {} cases are not dominated", front.len(), all.len());
    let remarks = [sweep.remark.clone(), told, sizes(sweep.cases(), Metric::E2e), token_remark(report)];
    Some(Figure {
        name: "pareto",
        title: "Pareto front: speed of one user against that of all".to_owned(),
        subtitle: subtitle(report, &remarks),
        legend: legend(&sweep),
        side: Side::Right,
        panels: vec![panel],
        columns: 1,
    })
}

/// The points that no other one equals or beats in both, by rising first coordinate; of equal ones, one.
fn front(points: &[(f64, f64)]) -> Series {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut best = f64::NEG_INFINITY;
    sorted.retain(|point| {
        let stands = point.1 > best;
        best = best.max(point.1);
        stands
    });
    sorted.reverse();
    sorted
}

/// Dots of the front in their group's colour, rings for those that are beaten, and the load of each that is not.
fn marks(sweep: &Sweep, front: &Series, point: impl Fn(&CaseReport) -> Option<(f64, f64)>) -> Vec<Mark> {
    let mut marks = vec![Mark::Line(front.clone(), Stroke::solid(FRAME).thin())];
    let mut words = Vec::new();
    for (index, group) in sweep.groups.iter().enumerate() {
        let placed = |group: &Group| -> Vec<(f64, (f64, f64))> {
            group.cases.iter().filter_map(|case| Some((case.load_value?, point(case)?))).collect()
        };
        let (on, beaten): (Vec<_>, Vec<_>) = placed(group).into_iter().partition(|(_, point)| front.contains(point));
        let color = sweep.stroke(index).color;
        marks.push(Mark::Rings(beaten.iter().map(|(_, point)| *point).collect(), color, 3.0));
        marks.push(Mark::Dots(on.iter().map(|(_, point)| *point).collect(), color, 4.5));
        words.extend(on.iter().map(|(load, (x, y))| (*x, *y, load.to_string())));
    }
    marks.push(Mark::Words(words, Corner::Above));
    marks
}

fn legend(sweep: &Sweep) -> Vec<Entry> {
    let groups = sweep.groups.iter().enumerate();
    let groups = groups.map(|(index, group)| Entry::new(&group.label, Swatch::Dot(sweep.stroke(index).color)));
    let load = if sweep.axis == "rate" { "Pareto front, at its offered rates" } else { "Pareto front, at its concurrencies" };
    let key = [Entry::new(load, Swatch::Line(Stroke::solid(FRAME).thin())), Entry::new("dominated", Swatch::Ring(INK))];
    groups.chain(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{grid, sweep};

    #[test]
    fn the_front_holds_what_nothing_beats() {
        let points = [(1.0, 9.0), (2.0, 8.0), (1.5, 7.0), (3.0, 8.0), (3.0, 1.0), (1.0, 9.0)];
        assert_eq!(front(&points), [(1.0, 9.0), (3.0, 8.0)]);
        assert_eq!(front(&[]), []);
    }

    #[test]
    fn it_is_drawn_of_sweeps_over_more_than_load() {
        let figure = figure(&grid(2)).unwrap();
        assert!(figure.subtitle.contains(" of 12 cases are not dominated"), "{}", figure.subtitle);
        assert_eq!(figure.panels[0].y.title, "tok/s");
        assert_eq!(super::figure(&sweep(12)), None);
        let mut gpus = grid(2);
        gpus.cases.iter_mut().for_each(|case| case.scalars.extend([(Metric::OutputTpsPerGpu, 7.0)]));
        assert_eq!(super::figure(&gpus).unwrap().panels[0].y.title, "tok/s per GPU");
    }
}
