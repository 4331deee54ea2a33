//! Charts: a report becomes figures (data), a figure becomes SVG, an SVG becomes a PNG.
//!
//! A chart without data is not produced. The same report gives the same bytes.

mod axis;
mod canvas;
mod distribution;
mod draw;
mod figure;
mod font;
mod latency_over_load;
mod layout;
pub(super) mod limit;
mod over_time;
mod pick;
mod raster;
mod search;
mod style;
pub(super) mod sweep;
mod throughput_over_load;

use crate::model::report::Report;
use crate::view::ViewError;
use figure::Figure;

/// One picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// File stem: `ttft_over_time`.
    pub name: &'static str,
    /// Title, for the text around the picture.
    pub title: String,
    /// The picture, two dots to a logical pixel.
    pub png: Vec<u8>,
}

/// Every chart that the report has data for, in the order in which a reader wants them.
///
/// # Errors
/// [`ViewError::Chart`] where drawing fails, which no report should bring about.
pub fn charts(report: &Report) -> Result<Vec<Chart>, ViewError> {
    figures(report).iter().map(render).collect()
}

fn figures(report: &Report) -> Vec<Figure> {
    let first = search::figure(report);
    // Of a search the cases are probes, some of them cut short: those have no rate that a curve could go through.
    let whole = |figure: fn(&Report) -> Option<Figure>| Some(report).filter(|report| report.searches.is_empty()).and_then(figure);
    let over_load = [latency_over_load::figure, throughput_over_load::figure].map(whole);
    let over_time = [over_time::ttft(report), over_time::in_flight(report), over_time::tokens_per_second(report)];
    let over_load = first.into_iter().chain(over_load.into_iter().flatten());
    over_load.chain(distribution::figures(report)).chain(over_time.into_iter().flatten()).collect()
}

fn render(figure: &Figure) -> Result<Chart, ViewError> {
    let png = draw::svg(figure).and_then(|svg| raster::png(&svg));
    let png = png.map_err(|reason| ViewError::Chart { name: figure.name, reason })?;
    Ok(Chart { name: figure.name, title: figure.title.clone(), png })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::{failing, grid, no_data, report_of, sweep};
    use crate::view::probes::tests::searched;

    fn names(report: &Report) -> Vec<&'static str> {
        figures(report).iter().map(|figure| figure.name).collect()
    }

    #[test]
    fn one_case_has_no_chart_over_load() {
        let over_time = ["cdf_ttft", "cdf_itl", "cdf_e2e", "ttft_over_time", "in_flight", "tokens_per_second"];
        assert_eq!(names(&sweep(1)), over_time);
        let all = [["latency_over_load", "throughput_over_load"].as_slice(), &over_time].concat();
        assert_eq!(names(&sweep(2)), all);
    }

    #[test]
    fn no_data_draws_nothing() {
        assert_eq!(names(&report_of(vec![no_data()], Default::default(), 3)), [""; 0]);
        assert_eq!(names(&report_of(Vec::new(), Default::default(), 0)), [""; 0]);
    }

    #[test]
    fn the_same_report_gives_the_same_bytes() {
        let report = report_of(vec![failing()], Default::default(), 1);
        let once = charts(&report).unwrap();
        assert_eq!(once, charts(&report).unwrap());
        assert!(once.iter().all(|chart| chart.png.starts_with(b"\x89PNG") && chart.png.len() > 10_000));
    }

    #[test]
    fn nothing_is_drawn_outside_the_picture() {
        let fontdb = font::database().unwrap();
        let options = resvg::usvg::Options { fontdb, ..Default::default() };
        let failures = report_of(vec![failing()], Default::default(), 1);
        for report in [sweep(1), sweep(5), sweep(100), grid(10), failures, searched()] {
            for figure in figures(&report) {
                let tree = resvg::usvg::Tree::from_str(&draw::svg(&figure).unwrap(), &options).unwrap();
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
    fn odd_values_are_drawn_or_left_out_but_never_fatal() {
        for odd in [0.0, -1.0, 1e-9, 1e12, f64::NAN, f64::INFINITY] {
            let mut report = searched();
            for probe in &mut report.searches[0].probes {
                (probe.load, probe.verdicts[0].observed) = (probe.load * odd, Some(odd));
            }
            for case in &mut report.cases {
                case.load_value = case.load_value.map(|load| load * odd);
                case.distributions.values_mut().for_each(|own| own.quantiles.fill(odd));
                case.cdfs.values_mut().for_each(|points| *points = vec![(odd, 1.0)]);
                case.scalars.values_mut().for_each(|value| *value = odd);
                case.timelines.ttft_ms = vec![(odd, odd)];
                case.timelines.in_flight = vec![(0.0, odd)];
                case.timelines.measured = (odd, odd);
            }
            for figure in figures(&report) {
                let svg = draw::svg(&figure).unwrap();
                assert!(svg.len() < 200_000 && !svg.contains("NaN"), "{} {odd}", figure.name);
            }
        }
    }

    #[test]
    #[ignore = "writes pictures to look at into a temporary folder"]
    fn gallery() {
        let dir = std::env::temp_dir().join("llmscen-gallery");
        let failures = report_of(vec![failing()], Default::default(), 1);
        let sweeps = [("1", sweep(1)), ("2", sweep(2)), ("5", sweep(5)), ("12", sweep(12)), ("100", sweep(100))];
        for (folder, report) in sweeps.into_iter().chain([("failing", failures), ("grid", grid(10)), ("rates", grid(2))]) {
            let dir = dir.join(folder);
            std::fs::create_dir_all(&dir).unwrap();
            for figure in figures(&report) {
                let chart = render(&figure).unwrap();
                std::fs::write(dir.join(format!("{}.png", chart.name)), chart.png).unwrap();
            }
        }
    }
}
