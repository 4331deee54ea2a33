//! Charts of a report: figures as data are drawn as SVG and rendered to PNG.
//!
//! A chart without data is omitted. The same report gives the same bytes.

mod axis;
mod by_length;
mod canvas;
mod capacity;
mod compare;
mod distribution;
mod draw;
mod engines;
mod figure;
pub(super) mod heat;
mod layout;
mod matrix;
mod over_load;
mod over_time;
mod pick;
mod search;
mod style;
pub(super) mod sweep;
pub(super) mod telemetry;
mod timeline;
mod tradeoff;
pub(super) mod verdict;

use crate::ViewError;
pub use compare::{CHART_NAMES as COMPARISON_CHARTS, comparison_charts};
use figure::Figure;
use llmscen_core::plan::Format;
use llmscen_core::report::Report;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use verdict::Ribbon;

/// The largest number of drawing threads.
const MAX_WORKERS: usize = 8;

/// A drawn chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// File stem: `ttft_over_time`.
    pub name: &'static str,
    /// Title, for headings and alternative text.
    pub title: String,
    /// The PNG with two dots per logical pixel; empty if the format was not requested.
    pub png: Vec<u8>,
    /// The SVG file; empty if the format was not requested.
    pub svg: String,
}

impl Chart {
    /// The name of the file that a report links to: `ttft_over_time.png`.
    pub fn file(&self) -> String {
        format!(
            "{}.{}",
            self.name,
            if self.png.is_empty() { "svg" } else { "png" }
        )
    }
}

/// Every chart that the report has data for, in the order of report.md, as PNG and SVG if `formats` contains them.
///
/// # Errors
/// [`ViewError::Chart`] if drawing fails, which is a bug.
pub fn charts(report: &Report, formats: &[Format]) -> Result<Vec<Chart>, ViewError> {
    if !formats.contains(&Format::Png) && !formats.contains(&Format::Svg) {
        return Ok(Vec::new());
    }
    let figures = figures(report);
    let ribbon = verdict::ribbon(report);
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_WORKERS);
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<Chart, ViewError>)> {
        let take = || {
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, figures.get(at)?)))
        };
        std::iter::from_fn(take)
            .map(|(at, figure)| (at, render(figure, ribbon.as_ref(), formats)))
            .collect()
    };
    // Threads draw independent figures, which are sorted afterwards.
    let mut drawn = std::thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut drawn = work();
        for other in others {
            drawn.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        drawn
    });
    drawn.sort_by_key(|(at, _)| *at);
    drawn.into_iter().map(|(_, chart)| chart).collect()
}

fn figures(report: &Report) -> Vec<Figure> {
    let capacity = capacity::figure(report);
    let mut all: Vec<Figure> = capacity.into_iter().chain(search::figure(report)).collect();
    // The cases of a search are probes, some of them stopped early, so they form no curve over load.
    if report.searches.is_empty() {
        let over_load: [fn(&Report) -> Option<Figure>; 6] = [
            matrix::figure,
            over_load::latency_over_load,
            tradeoff::latency_over_throughput,
            over_load::throughput_over_load,
            engines::figure,
            tradeoff::pareto,
        ];
        all.extend(over_load.iter().filter_map(|figure| figure(report)));
    }
    all.extend(distribution::cumulative_figures(report));
    all.extend(distribution::percentile_plot(report));
    let over_time = [
        over_time::ttft(report),
        heat::figure(report),
        over_time::in_flight(report),
        over_time::tokens_per_second(report),
        timeline::figure(report),
    ];
    let by_length = [
        by_length::itl_by_position(report),
        by_length::ttft_by_prompt_length(report),
    ];
    all.extend(over_time.into_iter().chain(by_length).flatten());
    all.extend(telemetry::figures(report));
    all
}

fn render(
    figure: &Figure,
    ribbon: Option<&Ribbon>,
    formats: &[Format],
) -> Result<Chart, ViewError> {
    let failed = |reason| ViewError::Chart {
        name: figure.name,
        reason,
    };
    let drawn = draw::svg(figure, ribbon).map_err(failed)?;
    let png = if formats.contains(&Format::Png) {
        canvas::png(&drawn).map_err(failed)?
    } else {
        Vec::new()
    };
    let svg = formats
        .contains(&Format::Svg)
        .then(|| canvas::svg_file(&drawn).ok_or_else(|| failed("the drawing has no size".into())));
    Ok(Chart {
        name: figure.name,
        title: figure.title.clone(),
        png,
        svg: svg.transpose()?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, grid, no_data, observed, report_of, searched, sweep};

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
            case.audit.reasons = vec!["event-loop stall".to_owned()];
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
}
