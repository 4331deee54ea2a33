use super::*;
use crate::chart::figure::Mark;
use crate::chart::{canvas, draw};
use crate::fixture::comparison::{comparison, doubtful};

fn names(comparison: &Comparison) -> Vec<&'static str> {
    figures(comparison)
        .iter()
        .map(|figure| figure.name)
        .collect()
}

#[test]
fn one_case_has_no_curve_over_load_and_every_run_a_forest_plot() {
    assert_eq!(
        names(&comparison(1, 2)),
        ["forest_b", "compare_ttft", "compare_itl", "compare_e2e"]
    );
    let many = [
        "compare_curves",
        "compare_pareto",
        "forest_b",
        "forest_c",
        "compare_ttft",
        "compare_itl",
        "compare_e2e",
    ];
    assert_eq!(names(&comparison(12, 3)), many);
    assert!(many.iter().all(|name| CHART_NAMES.contains(name)));
}

#[test]
fn the_front_is_that_of_all_runs() {
    // Each run is slower than the one before, at every load.
    let figure = pareto(&comparison(12, 3)).unwrap();
    let is_point = |mark: &&Mark| matches!(mark, Mark::Rings(..) | Mark::Dots(..));
    let count =
        |marks: &[Mark], index: usize| match marks.iter().filter(is_point).nth(index).unwrap() {
            Mark::Rings(points, ..) | Mark::Dots(points, ..) => points.len(),
            mark => panic!("{mark:?}"),
        };
    let marks = &figure.panels[0].marks;
    let front: Vec<usize> = (0..3).map(|run| count(marks, 2 * run + 1)).collect();
    let dominated: Vec<usize> = (0..3).map(|run| count(marks, 2 * run)).collect();
    assert_eq!((&front[1..], &dominated[1..]), (&[0, 0][..], &[12, 12][..]));
    assert!(front[0] > 0 && front[0] + dominated[0] == 12);
    assert_eq!(figure.legend[1].label, "B  chat/20260101T000000Z");
}

#[test]
fn no_data_draws_nothing() {
    let mut empty = comparison(2, 2);
    empty.contrasts.clear();
    empty
        .runs
        .iter_mut()
        .for_each(|run| run.report.cases.clear());
    assert_eq!(names(&empty), [""; 0]);
}

#[test]
fn a_forest_has_a_row_for_each_measure_with_a_ratio() {
    let figure = figures(&comparison(1, 2)).remove(0);
    let panel = &figure.panels[0];
    // Of eleven measures p99 of ttft has too few values, and errors have no ratio.
    assert_eq!(
        (
            panel.y.ticks.len(),
            panel.y.ticks[8].1.as_str(),
            panel.y.ticks[0].1.as_str()
        ),
        (9, "ttft.p50", "output_tps")
    );
    let spans = panel
        .marks
        .iter()
        .filter(|mark| matches!(mark, Mark::Line(..)))
        .count();
    assert_eq!(spans, 9);
    assert!(
        panel
            .x
            .ticks
            .iter()
            .any(|(at, label)| *at == 1.0 && label == "0")
            && panel.x.low < 0.83
            && panel.x.high > 1.21
    );
}

#[test]
fn an_interval_beyond_the_axis_has_an_arrow() {
    let mut changed = comparison(1, 2);
    let spans = [(0.001, 0.002, 0.003), (0.9, 3.0, 9.0), (0.9, 1.0, 1.1)];
    changed.contrasts.truncate(3);
    for (contrast, (low, value, high)) in changed.contrasts.iter_mut().zip(spans) {
        contrast.ratio = Some(llmscen_core::compare::Span { low, value, high });
    }
    let figure = figures(&changed).remove(0);
    let (marks, x) = (&figure.panels[0].marks, &figure.panels[0].x);
    let tips: Vec<f64> = marks
        .iter()
        .filter_map(|mark| {
            if let Mark::Line(points, _) = mark {
                points.get(1).filter(|_| points.len() == 3)
            } else {
                None
            }
        })
        .map(|tip| tip.0)
        .collect();
    assert_eq!(tips, [x.low, x.high]);
    let dots: Vec<f64> = marks
        .iter()
        .filter_map(|mark| {
            if let Mark::Dots(points, ..) = mark {
                Some(points[0].0)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(dots, [3.0, 1.0]);
    assert!(
        figure
            .subtitle
            .contains("arrow: interval extends beyond the axis"),
        "{}",
        figure.subtitle
    );
}

#[test]
fn the_worst_cases_are_among_those_shown() {
    let mut changed = comparison(100, 2);
    for contrast in &mut changed.contrasts {
        contrast.finding = llmscen_core::compare::Finding::Noise;
    }
    changed.contrasts[5 * 11].finding = llmscen_core::compare::Finding::Regression;
    let worst = changed.contrasts[5 * 11].case.clone();
    let forest = forest_figure(&changed, 1).unwrap();
    assert_eq!(forest.panels.len(), 12);
    assert!(
        forest.panels.iter().any(|panel| panel.title == worst)
            && forest.subtitle.contains("12 of 100 cases shown")
    );
}

#[test]
fn distributions_have_a_curve_per_run_and_nearby_limits() {
    let figures = figures(&comparison(12, 3));
    let ttft = figures
        .iter()
        .find(|figure| figure.name == "compare_ttft")
        .unwrap();
    let curves = |marks: &[Mark]| {
        marks
            .iter()
            .filter(|mark| matches!(mark, Mark::Steps(..)))
            .count()
    };
    assert_eq!((ttft.panels.len(), ttft.legend.len()), (12, 4));
    assert!(ttft.panels.iter().all(|panel| curves(&panel.marks) == 3));
    let limited = |marks: &[Mark]| {
        marks
            .iter()
            .any(|mark| matches!(mark, Mark::VerticalLine(at, _) if *at == 0.5))
    };
    let drawn: Vec<bool> = ttft
        .panels
        .iter()
        .map(|panel| limited(&panel.marks))
        .collect();
    assert!(
        drawn[11] && !drawn[1],
        "500 ms, in seconds, where values come near it: {drawn:?}"
    );
}

#[test]
fn nothing_is_drawn_outside_the_picture() {
    let fontdb = canvas::database().unwrap();
    let options = resvg::usvg::Options {
        fontdb,
        ..Default::default()
    };
    for comparison in [
        comparison(1, 2),
        comparison(2, 2),
        comparison(12, 3),
        comparison(100, 2),
        doubtful(),
        comparison(5, 8),
    ] {
        for figure in figures(&comparison) {
            let tree =
                resvg::usvg::Tree::from_str(&draw::svg(&figure, None).unwrap(), &options).unwrap();
            let (ink, size) = (tree.root().abs_stroke_bounding_box(), tree.size());
            let inside = ink.x() >= -2.0
                && ink.y() >= -2.0
                && ink.right() <= size.width() + 2.0
                && ink.bottom() <= size.height() + 2.0;
            assert!(inside, "{} {ink:?} {size:?}", figure.name);
        }
    }
}

#[test]
fn unusual_values_are_drawn_or_omitted_but_never_fatal() {
    for odd in [0.0, -1.0, 1e-9, 1e12, f64::NAN, f64::INFINITY] {
        let mut changed = comparison(2, 2);
        changed.max_regression = odd.abs();
        for contrast in &mut changed.contrasts {
            contrast.ratio = contrast.ratio.map(|span| llmscen_core::compare::Span {
                high: odd,
                low: span.low * odd,
                ..span
            });
        }
        for case in changed
            .runs
            .iter_mut()
            .flat_map(|run| &mut run.report.cases)
        {
            case.distributions
                .values_mut()
                .for_each(|changed| changed.quantiles.fill(odd));
            case.cdfs
                .values_mut()
                .for_each(|points| *points = vec![(odd, 1.0)]);
            case.scalars.values_mut().for_each(|value| *value = odd);
        }
        for figure in figures(&changed) {
            assert!(
                !draw::svg(&figure, None).unwrap().contains("NaN"),
                "{} {odd}",
                figure.name
            );
        }
    }
}

#[test]
#[ignore = "writes pictures to look at into a temporary folder"]
fn gallery() {
    let dir = std::env::temp_dir().join("llmscen-gallery-compare");
    for (folder, comparison) in [
        ("1", comparison(1, 2)),
        ("2", comparison(2, 2)),
        ("12", comparison(12, 3)),
        ("100", comparison(100, 2)),
        ("8runs", comparison(4, 8)),
    ] {
        let dir = dir.join(folder);
        std::fs::create_dir_all(&dir).unwrap();
        let charts = comparison_charts(&comparison).unwrap();
        let page = crate::compare::html(&comparison, &charts).unwrap();
        std::fs::write(dir.join("compare.html"), page).unwrap();
        for chart in charts {
            std::fs::write(dir.join(format!("{}.png", chart.name)), chart.png).unwrap();
        }
    }
}
