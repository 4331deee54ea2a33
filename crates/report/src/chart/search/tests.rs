use super::*;
use crate::fixture::searched;
use llmscen_core::check::Op;

fn dots(panel: &Panel, color: plotters::style::RGBColor) -> Series {
    let own = panel.marks.iter().filter_map(|mark| match mark {
        Mark::Dots(points, own, _) if *own == color => Some(points.clone()),
        _ => None,
    });
    own.flatten().collect()
}

fn line(panel: &Panel) -> Series {
    panel.marks.iter().find_map(|mark| if let Mark::Line(points, _) = mark { Some(points.clone()) } else { None }).unwrap()
}

#[test]
fn every_probe_is_a_sign_in_the_units_of_its_limit_and_the_edge_and_the_answer_are_marked() {
    let figure = figure(&searched()).unwrap();
    let [panel] = figure.panels.as_slice() else { panic!("{}", figure.panels.len()) };
    assert_eq!((panel.title.as_str(), panel.y.title.as_str()), ("ttft.p99 < 500ms", "ms"));
    assert_eq!(dots(panel, MAIN), [(8.0, 250.0), (16.0, 350.0), (16.0, 400.0)], "no two are made one");
    assert_eq!(line(panel), [(8.0, 250.0), (16.0, 400.0)], "the latest one, and none that was stopped");
    for mark in [
        Mark::Level(500.0, Stroke::dashed(ALARM)),
        Mark::Upright(16.0, Stroke::solid(INK).thin()),
        Mark::Band(15.0, 17.0, RANGE),
        Mark::Saltires(vec![(32.0, 1000.0)], ALARM),
        Mark::Rings(vec![(32.0, 1000.0), (16.0, 350.0), (16.0, 400.0)], INK, 7.0),
    ] {
        assert!(panel.marks.contains(&mark), "{mark:?} of {:?}", panel.marks);
    }
    let legend: Vec<&str> = figure.legend.iter().map(|entry| entry.label.as_str()).collect();
    let edge = "edge: greatest load that held, least that failed";
    assert_eq!(legend, ["probe that held", "failed, stopped early", edge, "limit", "answer 16", "97% interval"]);
}

#[test]
fn an_invalid_probe_is_left_out_and_an_interrupted_search_has_no_answer() {
    let mut report = searched();
    report.searches[0].probes[3].holds = None;
    report.searches[0].finding.settled = false;
    report.manifest.interrupted = true;
    let figure = figure(&report).unwrap();
    assert_eq!(dots(&figure.panels[0], MAIN), [(8.0, 250.0), (16.0, 350.0)]);
    assert!(!figure.panels[0].marks.iter().any(|mark| matches!(mark, Mark::Upright(..))));
    assert!(
        figure.subtitle.ends_with("invalid probes left out: 1") && figure.subtitle.contains("NO ANSWER"),
        "{}",
        figure.subtitle
    );
    report.searches[0].probes.iter_mut().for_each(|probe| probe.holds = None);
    assert_eq!(super::figure(&report), None);
}

#[test]
fn floors_and_ceilings_have_panels_of_their_own_and_of_many_the_broken_ones_are_drawn() {
    let mut report = searched();
    for probe in &mut report.searches[0].probes {
        let mut floor = probe.verdicts[0].clone();
        (floor.check.op, floor.check.limit, floor.check.expr) = (Op::AtLeast, 300.0, "ttft.p1 >= 300ms".to_owned());
        floor.ruling = Ruling::Pass;
        probe.verdicts = [vec![floor; 4], vec![probe.verdicts[0].clone()]].concat();
    }
    let figure = figure(&report).unwrap();
    let titles: Vec<&str> = figure.panels.iter().map(|panel| panel.title.as_str()).collect();
    assert_eq!(titles, ["ttft.p1 >= 300ms", "ttft.p1 >= 300ms", "ttft.p1 >= 300ms", "ttft.p99 < 500ms"]);
    assert!(figure.panels[0].marks.contains(&Mark::Level(300.0, Stroke::dashed(ALARM))));
    assert!(figure.subtitle.ends_with("4 of 5 limits shown"), "{}", figure.subtitle);
}

#[test]
fn where_the_highest_goodput_is_sought_it_is_what_is_drawn() {
    let mut report = searched();
    (report.searches[0].spec.goal, report.searches[0].finding.mass) = (Goal::Goodput, None);
    report.searches[0].finding.answer = Some(20.0);
    for (probe, goodput) in report.searches[0].probes.iter_mut().zip([5.0, 7.0, 9.0, 9.5]) {
        (probe.goodput, probe.hopeless) = (Some(goodput), false);
        probe.verdicts[0].check.subject = Subject::Goodput(Vec::new());
    }
    let figure = figure(&report).unwrap();
    let [panel] = figure.panels.as_slice() else { panic!("{}", figure.panels.len()) };
    assert_eq!((panel.title.as_str(), panel.y.title.as_str()), ("goodput", "req/s"));
    assert_eq!(line(panel), [(8.0, 5.0), (16.0, 9.5), (32.0, 7.0)]);
    assert!(panel.marks.contains(&Mark::Upright(20.0, Stroke::solid(INK).thin())));
    assert!(panel.marks.contains(&Mark::Rings(Vec::new(), INK, 7.0)), "nothing has an edge");
    assert!(panel.x.ticks.contains(&(20.0, "20".to_owned())), "where no probe was");
    assert!(figure.legend.iter().any(|entry| entry.label == "interval"));
}

#[test]
fn it_is_not_drawn_without_a_search() {
    assert_eq!(super::figure(&crate::fixture::sweep(3)), None);
}
