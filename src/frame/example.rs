//! The worked example of docs/metrics.md, recomputed: the page and the code cannot drift apart.

use crate::frame::fixture::{case, facts, failed, outcome, table};
use crate::frame::sample::sample;
use crate::model::load::Shape;
use crate::model::metric::{Metric, Per, Stat};
use crate::model::outcome::{Failure, FailureKind, Outcome, Timeline, Usage};
use crate::model::sample::Sample;
use crate::model::units::Nanos;

const PAGE: &str = include_str!("../../docs/metrics.md");

/// The cells of the table after a marker, its two head lines left out.
fn cells(marker: &str) -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().skip_while(|line| *line != marker).skip(3);
    lines.take_while(|line| line.starts_with('|')).map(|line| line.split('|').skip(1).map(str::trim).collect()).collect()
}

fn request(seq: u64, cells: &[&str]) -> Outcome {
    let stamp = |text: &str| text.parse().ok().map(Nanos::from_millis);
    let timeline = Timeline {
        intended: stamp(cells[0]).unwrap(),
        sent: stamp(cells[1]),
        tokens: cells[2].split_whitespace().filter_map(stamp).collect(),
        end: stamp(cells[3]).unwrap(),
        ..Timeline::default()
    };
    let usage = Usage { prompt: cells[4].parse().ok(), output: cells[5].parse().ok(), ..Usage::default() };
    let end = FailureKind::parse(cells[6]).map_or(outcome(seq).end, |kind| Err(Failure::new(kind, "")));
    Outcome { streamed: true, timeline, usage, end, ..failed(seq, FailureKind::Decode) }
}

/// A figure by its column in cases.csv.
fn figure(sample: &Sample, name: &str) -> Option<f64> {
    if let Some(metric) = Metric::ALL.iter().find(|metric| metric.column() == name) {
        return sample.scalars.get(metric).copied();
    }
    let (column, stat) = name.rsplit_once('_')?;
    let metric = Metric::ALL.iter().find(|metric| metric.column() == column && metric.per() != Per::Case)?;
    let seen = sample.distributions.get(metric)?;
    match Stat::parse(if stat == "n" { "count" } else { stat })? {
        Stat::Quantile(share) => seen.quantile(share),
        Stat::Mean => Some(seen.mean),
        Stat::Min => Some(seen.min),
        Stat::Max => Some(seen.max),
        Stat::Count => Some(seen.n as f64),
        Stat::Sd => seen.sd,
    }
}

#[test]
fn the_page_says_what_the_code_computes() {
    let rows: Vec<Outcome> = (0..).zip(cells("<!-- requests -->")).map(|(seq, cells)| request(seq, &cells)).collect();
    let seen = sample(&table("a", &rows), &facts(&case(Shape::Closed { users: 2 }))).unwrap();
    let results = cells("<!-- results -->");
    assert_eq!((rows.len(), results.len()), (5, 18));
    for result in results {
        let (told, computed) = (result[1].parse::<f64>().unwrap(), figure(&seen, result[0]));
        let close = computed.is_some_and(|value| (value - told).abs() <= 0.002 * told.abs());
        assert!(close, "{}: the page says {told}, the code {computed:?}", result[0]);
    }
}
