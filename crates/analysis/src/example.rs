//! The worked example of docs/metrics.md, recomputed: the page and the code cannot drift apart.

use crate::CaseFacts;
use crate::fixture::{case, facts, failed, outcome, table};
use crate::sample::sample;
use llmscen_core::check::{Check, Confidence, NoData, Of, Op, RequestLimit, Subject};
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::manifest::Part;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::outcome::{Failure, FailureKind, Outcome, ServerTimes, Timeline, Usage};
use llmscen_core::sample::{Row, Sample};
use llmscen_core::server::Startup;
use llmscen_core::telemetry::{Hardware, Reading, Recorded, Teller};
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/metrics.md");

/// The cells of the table after a marker, its two head lines left out.
fn cells(marker: &str) -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().skip_while(|line| *line != marker).skip(3);
    lines.take_while(|line| line.starts_with('|')).map(|line| line.split('|').skip(1).map(str::trim).collect()).collect()
}

fn request(cells: &[&str]) -> Outcome {
    let stamp = |text: &str| text.parse().ok().map(Nanos::from_millis);
    let timeline = Timeline {
        intended: stamp(cells[2]).unwrap(),
        sent: stamp(cells[3]),
        first_chunk: stamp(cells[4]),
        tokens: cells[5].split_whitespace().filter_map(stamp).collect(),
        end: stamp(cells[6]).unwrap(),
        // Each token event of the request with reasoning holds one token.
        reasoning: cells[9].parse().unwrap_or_default(),
        ..Timeline::default()
    };
    let count = |place: usize| cells[place].parse().ok();
    let usage = Usage { prompt: count(7), output: count(8), reasoning: count(9), cached: count(10) };
    let mut times = cells[12].split_whitespace().map(stamp).chain([None; 5]);
    let [queue, load, prefill, decode, total] = [(); 5].map(|()| times.next().flatten());
    let end = FailureKind::parse(cells[13]).map_or(outcome(0).end, |kind| Err(Failure::new(kind, "")));
    let (turn, turns) = cells[1].split_once(" of ").unwrap();
    Outcome {
        seq: cells[0].parse().unwrap(),
        turn: turn.parse::<u32>().unwrap() - 1,
        turns: turns.parse().unwrap(),
        streamed: true,
        timeline,
        usage,
        items: count(11),
        server: ServerTimes { queue, load, prefill, decode, total },
        end,
        ..failed(0, FailureKind::Decode)
    }
}

/// The requests of the page, in its order.
fn requests() -> Vec<Outcome> {
    cells("<!-- requests -->").iter().map(|cells| request(cells)).collect()
}

fn example(shape: Shape) -> Sample {
    let mut case = case(shape);
    case.target.gpus = Some(2);
    case.target.hardware = Some(Hardware {
        parameters: 1e9,
        weight_bytes: 2e9,
        kv_bytes_per_token: 1e6,
        peak_flops: Some(1e12),
        peak_bandwidth: Some(1e12),
    });
    let limits = vec![RequestLimit { metric: Metric::Ttft, op: Op::Less, limit: 55.0 }];
    case.checks.push(Check {
        expr: "goodput(ttft < 55ms) >= 50%".into(),
        subject: Subject::Goodput(limits),
        op: Op::AtLeast,
        limit: 0.5,
        confidence: Confidence::Point,
        when: Default::default(),
        of: Of::Ok,
        no_data: NoData::Fail,
        relative: None,
        abort: None,
    });
    let power = |at_ms: i64, value: f64| Reading {
        at_ns: at_ms * 1_000_000,
        teller: Teller::Nvml,
        name: "gpu.power".into(),
        labels: "".into(),
        device: Some(0),
        value,
    };
    let recorded = Recorded { case: "a".into(), round: 0, readings: vec![power(0, 240.0), power(250, 360.0)] };
    // Starts of a server, told by rounds whose requests are others.
    let starts = [2500, 5000].map(|ready| Startup { ready: Nanos::from_millis(ready), ..Startup::default() });
    let parts = starts.map(|startup| Part { round: 9, startup: Some(startup), ..Part::default() });
    sample(&table("a", &requests()).beside(vec![recorded]), &CaseFacts { parts: &parts, ..facts(&case) })
}

fn near(computed: f64, told: &str) -> bool {
    let told: f64 = told.parse().unwrap();
    (computed - told).abs() <= 0.0001 * told.abs()
}

/// A figure by its column in cases.csv.
fn figure(sample: &Sample, name: &str) -> Option<f64> {
    if let Some(metric) = Metric::ALL.iter().find(|metric| metric.column() == name) {
        return sample.scalars.get(metric).copied();
    }
    let (column, stat) = name.rsplit_once('_')?;
    let metric = Metric::ALL.iter().find(|metric| metric.column() == column && metric.per() != Scope::Case)?;
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
fn the_page_says_what_the_code_computes_of_a_case() {
    let seen = example(Shape::Closed { users: 2 });
    let open = example(Shape::Open { rate: 1.0, arrival: Arrival::Constant });
    let results = cells("<!-- results -->");
    assert_eq!((seen.rows.len(), results.len()), (5, 33));
    for result in results {
        let computed = figure(if result[0] == "rate_offered" { &open } else { &seen }, result[0]);
        let close = computed.is_some_and(|value| near(value, result[1]));
        assert!(close, "{}: the page says {}, the code {computed:?}", result[0], result[1]);
    }
}

#[test]
fn the_page_says_what_the_code_computes_of_each_request() {
    let outcomes = requests();
    let told = cells("<!-- per request -->");
    let per_request = Metric::ALL.iter().filter(|metric| metric.per() != Scope::Case);
    assert_eq!(told.iter().map(|line| line[0]).collect::<BTreeSet<_>>(), per_request.map(|metric| metric.column()).collect());
    for (place, outcome) in outcomes.iter().enumerate() {
        let table = table("a", std::slice::from_ref(outcome));
        let fact = table.rows_of_case("a")[0];
        for line in &told {
            let metric = Metric::ALL.iter().find(|metric| metric.column() == line[0]).unwrap();
            let computed = if metric.per() == Scope::Gap { fact.gaps() } else { fact.metric(*metric).into_iter().collect() };
            let words: Vec<&str> = line[place + 1].split_whitespace().collect();
            let close = words.len() == computed.len() && computed.iter().zip(&words).all(|(value, word)| near(*value, word));
            assert!(close, "{} of request {}: the page says {words:?}, the code {computed:?}", line[0], place + 1);
        }
    }
}

#[test]
fn every_metric_is_defined_and_worked_out() {
    let (before, after) = PAGE.split_once("### A worked example").unwrap();
    for metric in Metric::ALL {
        let named = [metric.name(), metric.column()].iter().any(|name| before.contains(&format!("`{name}`")));
        assert!(named, "{metric} is not defined");
        let column = format!("| {}", metric.column());
        assert!(after.contains(&format!("{column} |")) || after.contains(&format!("{column}_")), "{metric} is not worked out");
    }
}

#[test]
fn the_page_says_what_the_code_computes_of_rounds() {
    let rows = cells("<!-- rounds -->").into_iter().flat_map(|line| {
        let round = line[0].parse().unwrap();
        let row =
            move |word: &str| Row { round, ok: true, values: [(Metric::E2e, word.parse().unwrap())].into(), ..Row::default() };
        line[1].split_whitespace().map(row).collect::<Vec<_>>()
    });
    let sample = Sample { rows: rows.collect(), windows: vec![1.0; 2], ..Sample::default() };
    let seen = &crate::repeats(&sample, &Shape::Closed { users: 1 })[0];
    let told = cells("<!-- repeats -->");
    assert!(near(seen.within_sd.unwrap(), told[0][1]) && near(seen.between_sd.unwrap(), told[1][1]), "{seen:?}");
}
