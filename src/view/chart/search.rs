//! Each limit's metric over the searched load, as a multiple of its limit; the limit at 1, the answer marked.

use crate::model::report::{Report, Series};
use crate::model::search::SearchReport;
use crate::view::chart::axis::Axis;
use crate::view::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::view::chart::pick::subtitle;
use crate::view::chart::style::{ALARM, MUTED, Stroke, category};
use crate::view::format::title;
use crate::view::search::{axis, sentence};

/// The chart; None where there was no search, or nothing to draw of it.
pub fn figure(report: &Report) -> Option<Figure> {
    let panels: Vec<Panel> = report.searches.iter().filter_map(panel).collect();
    let first = report.searches.first()?;
    let limits = names(first);
    let line = |(index, name): (usize, &String)| Entry::new(name, Swatch::Line(Stroke::solid(category(index, limits.len()))));
    let marks = [("limit", Stroke::dashed(ALARM)), ("answer", Stroke::solid(MUTED))];
    let legend = limits.iter().enumerate().map(line);
    (!panels.is_empty()).then(|| Figure {
        name: "search",
        title: "Capacity search".to_owned(),
        subtitle: subtitle(report, &[]),
        legend: legend.chain(marks.map(|(name, stroke)| Entry::new(name, Swatch::Line(stroke)))).collect(),
        side: Side::Top,
        columns: panels.len().min(3),
        panels,
    })
}

fn names(search: &SearchReport) -> Vec<String> {
    let first = search.probes.first().map(|probe| probe.verdicts.as_slice()).unwrap_or_default();
    first.iter().map(|verdict| title(&verdict.check)).collect()
}

/// The value of one limit at each load: the mean of the probes there, over the limit.
fn points(search: &SearchReport, check: usize) -> Series {
    let seen = search.probes.iter().filter_map(|probe| {
        let verdict = probe.verdicts.get(check)?;
        let ratio = verdict.observed? / verdict.check.limit;
        (ratio.is_finite() && ratio >= 0.0).then_some((probe.load, ratio))
    });
    let mut all: Series = seen.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean = |same: &[(f64, f64)]| same.iter().map(|(_, ratio)| ratio).sum::<f64>() / same.len() as f64;
    all.chunk_by(|a, b| a.0 == b.0).filter_map(|same| Some((same.first()?.0, mean(same)))).collect()
}

fn panel(search: &SearchReport) -> Option<Panel> {
    let lines: Vec<Series> = (0..names(search).len()).map(|check| points(search, check)).collect();
    let loads: Vec<f64> = lines.iter().flatten().map(|(load, _)| *load).collect();
    if loads.is_empty() {
        return None;
    }
    let (name, unit) = axis(&search.spec);
    let ratios = lines.iter().flatten().map(|(_, ratio)| *ratio).chain([1.0]);
    let mut marks = vec![Mark::Level(1.0, Stroke::dashed(ALARM))];
    marks.extend(search.finding.answer.map(|answer| Mark::Upright(answer, Stroke::solid(MUTED))));
    for (index, points) in lines.iter().enumerate() {
        let color = category(index, lines.len());
        marks.extend([Mark::Line(points.clone(), Stroke::solid(color)), Mark::Dots(points.clone(), color, 3.0)]);
    }
    let x = Axis::loads(format!("{name}{unit}"), &loads);
    Some(Panel { title: sentence(search), x, y: Axis::from_zero("value / limit", ratios), marks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::probes::tests::searched;

    #[test]
    fn each_limit_is_a_line_over_its_own_limit_and_the_answer_is_marked() {
        let figure = figure(&searched()).unwrap();
        let marks = &figure.panels[0].marks;
        assert!(matches!(marks[0], Mark::Level(1.0, _)) && matches!(marks[1], Mark::Upright(16.0, _)));
        let Mark::Line(points, _) = &marks[2] else { panic!("{:?}", marks[2]) };
        assert_eq!(points.as_slice(), [(8.0, 0.5), (16.0, 0.75), (32.0, 2.0)], "two probes at 16 are one point");
        assert_eq!(figure.legend.len(), 3);
    }

    #[test]
    fn it_is_not_drawn_without_a_search() {
        assert_eq!(super::figure(&crate::view::fixture::sweep(3)), None);
    }
}
