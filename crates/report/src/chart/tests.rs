use super::*;
use crate::fixture::{failing, grid, no_data, observed, report_of, searched, sweep};
use llmscen_core::report::Cause;

fn names(report: &Report) -> Vec<&'static str> {
    figures(report).iter().map(|figure| figure.name).collect()
}

#[test]
fn one_case_has_no_chart_over_load() {
    let spread = ["cdf_ttft", "cdf_itl", "cdf_e2e", "percentile_spectrum"];
    let over_time = [
        "ttft_over_time",
        "latency_heat",
        "in_flight",
        "tokens_per_second",
        "request_timeline",
        "itl_by_token",
        "ttft_by_prompt",
    ];
    let single_case = [spread.as_slice(), &over_time].concat();
    assert_eq!(names(&sweep(1)), single_case);
    let two = [
        ["latency_over_load", "throughput_over_load"].as_slice(),
        &single_case,
    ]
    .concat();
    assert_eq!(names(&sweep(2)), two);
    let many = [
        "latency_over_load",
        "latency_over_throughput",
        "throughput_over_load",
    ];
    assert_eq!(
        names(&sweep(12))[..4],
        [many.as_slice(), &["pareto"]].concat()
    );
    assert_eq!(
        names(&grid(2))[..5],
        [["matrix"].as_slice(), &many, &["pareto"]].concat()
    );
}

#[test]
fn no_data_draws_nothing() {
    assert_eq!(
        names(&report_of(vec![no_data()], Default::default(), 3)),
        [""; 0]
    );
    assert_eq!(
        names(&report_of(Vec::new(), Default::default(), 0)),
        [""; 0]
    );
}

#[test]
fn the_same_report_gives_the_same_bytes() {
    let report = report_of(vec![failing()], Default::default(), 1);
    let draw = |formats: &[Format]| charts(&report, formats).unwrap();
    let both = draw(&[Format::Png, Format::Svg]);
    assert_eq!(both, draw(&[Format::Svg, Format::Png]));
    assert!(
        both.iter()
            .all(|chart| chart.png.starts_with(b"\x89PNG") && chart.png.len() > 10_000)
    );
    assert_eq!(
        both.iter().map(|chart| chart.name).collect::<Vec<_>>(),
        names(&report)
    );
}

#[test]
fn only_requested_formats_are_drawn() {
    let report = report_of(vec![failing()], Default::default(), 1);
    let svg = charts(&report, &[Format::Svg, Format::Md]).unwrap();
    assert!(svg.iter().all(|chart| chart.png.is_empty()
        && chart.svg.starts_with("<svg ")
        && chart.file().ends_with(".svg")));
    assert_eq!(charts(&report, &[Format::Md, Format::Json]).unwrap(), []);
}

#[test]
fn nothing_is_drawn_outside_the_chart() {
    let fontdb = canvas::database().unwrap();
    let options = resvg::usvg::Options {
        fontdb,
        ..Default::default()
    };
    let failures = report_of(vec![failing()], Default::default(), 1);
    let watched = report_of(vec![observed(), observed()], Default::default(), 0);
    for report in [
        sweep(1),
        sweep(5),
        sweep(100),
        grid(10),
        failures,
        searched(),
        watched,
        crate::fixture::engines(9),
    ] {
        let ribbon = verdict::ribbon(&report);
        for figure in figures(&report) {
            let tree = resvg::usvg::Tree::from_str(
                &draw::svg(&figure, ribbon.as_ref()).unwrap(),
                &options,
            )
            .unwrap();
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
        let mut report = searched();
        for probe in &mut report.searches[0].probes {
            (probe.load, probe.verdicts[0].observed) = (probe.load * odd, Some(odd));
        }
        for case in &mut report.cases {
            case.load_value = case.load_value.map(|load| load * odd);
            case.distributions
                .values_mut()
                .for_each(|values| values.quantiles.fill(odd));
            case.cdfs
                .values_mut()
                .for_each(|points| *points = vec![(odd, 1.0)]);
            case.scalars.values_mut().for_each(|value| *value = odd);
            case.timelines.ttft_ms = vec![(odd, odd)];
            case.timelines.in_flight = vec![(0.0, odd)];
            case.timelines.measured = (odd, odd);
            case.chart_data
                .spectra
                .values_mut()
                .for_each(|points| *points = vec![(0.0, 1.0), (odd, odd)]);
            case.chart_data
                .prefill
                .iter_mut()
                .step_by(3)
                .for_each(|point| *point = (odd, odd));
            case.chart_data
                .by_token
                .iter_mut()
                .for_each(|band| (band.from, band.p99) = (odd, odd));
            if let Some(heat) = &mut case.chart_data.heat {
                (heat.times[1], heat.levels[0]) = (odd, odd);
            }
        }
        for figure in figures(&report) {
            let svg = draw::svg(&figure, None).unwrap();
            assert!(
                svg.len() < 200_000 && !svg.contains("NaN"),
                "{} {odd}",
                figure.name
            );
        }
    }
}

#[test]
#[ignore = "writes pictures to look at into a temporary folder"]
fn gallery() {
    let dir = std::env::temp_dir().join("llmscen-gallery");
    let failures = report_of(vec![failing()], Default::default(), 1);
    let mut reports: Vec<(String, Report)> = [1, 2, 5, 8, 12, 100]
        .map(|count| (count.to_string(), sweep(count)))
        .into();
    reports.extend(
        [
            ("failing", failures),
            ("grid", grid(10)),
            ("rates", grid(2)),
        ]
        .map(|(name, report)| (name.to_owned(), report)),
    );
    let watched = [1, 2].map(|count| {
        (
            format!("watched-{count}"),
            report_of(vec![observed(); count], Default::default(), 0),
        )
    });
    reports.extend(watched);
    let mut invalid = sweep(6);
    invalid.verdict = llmscen_core::report::RunVerdict::Invalid;
    for case in &mut invalid.cases[..2] {
        case.audit.valid = false;
        case.audit.reasons = vec![Cause::LoadGenerator.reason("event-loop stall")];
    }
    reports.extend(
        [
            ("invalid", invalid),
            ("engines", crate::fixture::engines(3)),
        ]
        .map(|(name, report)| (name.to_owned(), report)),
    );
    for variants in [1, 2, 6] {
        let report = crate::fixture::variants(variants, 8);
        reports.push((format!("variants-{variants}"), report));
    }
    reports.extend([("search", searched())].map(|(name, report)| (name.to_owned(), report)));
    for (folder, report) in reports {
        let dir = dir.join(&folder);
        std::fs::create_dir_all(&dir).unwrap();
        let charts = charts(&report, &[Format::Png, Format::Svg]).unwrap();
        for chart in charts {
            std::fs::write(dir.join(format!("{}.png", chart.name)), chart.png).unwrap();
            std::fs::write(dir.join(format!("{}.svg", chart.name)), chart.svg).unwrap();
        }
    }
}
