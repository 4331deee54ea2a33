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

use crate::ReportError;
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
/// [`ReportError::Chart`] if drawing fails, which is a bug.
pub fn charts(report: &Report, formats: &[Format]) -> Result<Vec<Chart>, ReportError> {
    if !formats.contains(&Format::Png) && !formats.contains(&Format::Svg) {
        return Ok(Vec::new());
    }
    let figures = figures(report);
    let ribbon = verdict::ribbon(report);
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MAX_WORKERS);
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Result<Chart, ReportError>)> {
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
) -> Result<Chart, ReportError> {
    let failed = |reason| ReportError::Chart {
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
mod tests;
