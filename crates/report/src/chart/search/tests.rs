use super::*;
use crate::fixture::searched;
use llmscen_core::check::Op;

fn dots(panel: &Panel, color: plotters::style::RGBColor) -> Series {
    let dots = panel.marks.iter().filter_map(|mark| match mark {
        Mark::Dots(points, dot_color, _) if *dot_color == color => Some(points.clone()),
        _ => None,
    });
    dots.flatten().collect()
}

fn line(panel: &Panel) -> Series {
    panel
        .marks
        .iter()
        .find_map(|mark| {
            if let Mark::Line(points, _) = mark {
                Some(points.clone())
            } else {
                None
            }
        })
        .unwrap()
}

#[test]
fn probes_limit_boundary_and_result_are_marked() {
    let figure = figure(&searched()).unwrap();
    let [panel] = figure.panels.as_slice() else {
        panic!("{}", figure.panels.len())
    };
    assert_eq!(
        (panel.title.as_str(), panel.y.title.as_str()),
        ("ttft.p99 < 500ms", "ms")
    );
    assert_eq!(
        dots(panel, MAIN),
        [(8.0, 250.0), (16.0, 350.0), (16.0, 400.0)],
        "no probes are merged"
    );
    assert_eq!(
        line(panel),
        [(8.0, 250.0), (16.0, 400.0)],
        "the latest probe of each load, without stopped ones"
    );
    for mark in [
        Mark::HorizontalLine(500.0, Stroke::limit()),
        Mark::VerticalLine(16.0, Stroke::solid(INK).thin()),
        Mark::Band(15.0, 17.0, RANGE),
        Mark::DiagonalCrosses(vec![(32.0, 1000.0)], ALARM),
        Mark::Rings(vec![(32.0, 1000.0), (16.0, 350.0), (16.0, 400.0)], INK, 7.0),
    ] {
        assert!(panel.marks.contains(&mark), "{mark:?} of {:?}", panel.marks);
    }
    let legend: Vec<&str> = figure
        .legend
        .iter()
        .map(|entry| entry.label.as_str())
        .collect();
    let boundary = "boundary: highest passing and lowest failing load";
    assert_eq!(
        legend,
        [
            "passed",
            "failed, stopped early",
            boundary,
            "limit",
            "result 16",
            "97% interval"
        ]
    );
}

#[test]
fn an_invalid_probe_is_omitted_and_an_interrupted_search_has_no_result() {
    let mut report = searched();
    report.searches[0].probes[3].pass_probability = None;
    report.searches[0].finding.converged = false;
    report.manifest.interrupted = true;
    let figure = figure(&report).unwrap();
    assert_eq!(dots(&figure.panels[0], MAIN), [(8.0, 250.0), (16.0, 350.0)]);
    assert!(
        !figure.panels[0]
            .marks
            .iter()
            .any(|mark| matches!(mark, Mark::VerticalLine(..)))
    );
    assert!(
        figure.subtitle.ends_with("invalid probes omitted: 1")
            && figure.subtitle.contains("no result"),
        "{}",
        figure.subtitle
    );
    report.searches[0]
        .probes
        .iter_mut()
        .for_each(|probe| probe.pass_probability = None);
    assert_eq!(super::figure(&report), None);
}

#[test]
fn each_objective_has_a_panel_and_of_many_the_failed_ones_are_drawn() {
    let mut report = searched();
    for probe in &mut report.searches[0].probes {
        let mut floor = probe.verdicts[0].clone();
        (floor.check.op, floor.check.limit, floor.check.expr) =
            (Op::AtLeast, 300.0, "ttft.p1 >= 300ms".to_owned());
        floor.ruling = Ruling::Pass;
        probe.verdicts = [vec![floor; 4], vec![probe.verdicts[0].clone()]].concat();
    }
    let figure = figure(&report).unwrap();
    let titles: Vec<&str> = figure
        .panels
        .iter()
        .map(|panel| panel.title.as_str())
        .collect();
    assert_eq!(
        titles,
        [
            "ttft.p1 >= 300ms",
            "ttft.p1 >= 300ms",
            "ttft.p1 >= 300ms",
            "ttft.p99 < 500ms"
        ]
    );
    assert!(
        figure.panels[0]
            .marks
            .contains(&Mark::HorizontalLine(300.0, Stroke::limit()))
    );
    assert!(
        figure.subtitle.ends_with("4 of 5 objectives shown"),
        "{}",
        figure.subtitle
    );
}

#[test]
fn a_search_for_the_highest_goodput_draws_the_goodput() {
    let mut report = searched();
    (
        report.searches[0].spec.goal,
        report.searches[0].finding.mass,
    ) = (Goal::Goodput, None);
    report.searches[0].finding.answer = Some(20.0);
    for (probe, goodput) in report.searches[0]
        .probes
        .iter_mut()
        .zip([5.0, 7.0, 9.0, 9.5])
    {
        (probe.goodput, probe.futile) = (Some(goodput), false);
        probe.verdicts[0].check.subject = Subject::Goodput(Vec::new());
    }
    let figure = figure(&report).unwrap();
    let [panel] = figure.panels.as_slice() else {
        panic!("{}", figure.panels.len())
    };
    assert_eq!(
        (panel.title.as_str(), panel.y.title.as_str()),
        ("goodput", "req/s")
    );
    assert_eq!(line(panel), [(8.0, 5.0), (16.0, 9.5), (32.0, 7.0)]);
    assert!(
        panel
            .marks
            .contains(&Mark::VerticalLine(20.0, Stroke::solid(INK).thin()))
    );
    assert!(
        panel.marks.contains(&Mark::Rings(Vec::new(), INK, 7.0)),
        "no boundary"
    );
    assert!(
        panel.x.ticks.contains(&(20.0, "20".to_owned())),
        "a load without a probe"
    );
    assert!(figure.legend.iter().any(|entry| entry.label == "interval"));
}

#[test]
fn no_search_has_no_chart() {
    assert_eq!(super::figure(&crate::fixture::sweep(3)), None);
}
