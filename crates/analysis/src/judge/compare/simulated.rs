//! What the comparison is worth: 200 pairs of runs, or 800 in rounds, without a difference, with one of 5 % and with
//! one of 10 %, as `docs/explanation/comparing-runs.md` has it.

use super::*;
use crate::fixture::{TestRequest, sample_of};
use crate::sample::Sample;
use crate::sending::{Amounts, Flow, ThroughputWindow};
use llmscen_core::seed::Seed;
use llmscen_core::stats::share::at_least;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

const USERS: usize = 8;
const GAPS: usize = 16;
/// Correlation of the queue that successive requests find.
const QUEUE: f64 = 0.3;
const SHIFTS: [f64; 3] = [1.0, 1.05, 1.10];

/// How long a run is: rounds, and requests of each.
#[derive(Clone, Copy)]
struct Length(u32, usize);

impl Length {
    /// Rounds are compared for their means, whose test is exact: more pairs, which need no gaps, tell 5 % from more.
    fn pairs(self) -> u64 {
        if self.0 > 1 { 800 } else { 200 }
    }

    fn gaps(self) -> usize {
        if self.0 > 1 { 0 } else { GAPS }
    }
}

/// A closed loop of eight users: first tokens log-normal around 200 ms with a queue that clings, one in fifty four
/// times as slow, 64 to 256 tokens, each request at a pace of its own around 20 ms, each of several rounds with 1 %
/// of luck. Everything takes `scale` times as long.
fn run(seed: Seed, length: Length, scale: f64) -> Sample {
    let Length(rounds, size) = length;
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let (mut queue, mut rows, mut sending, mut flows) = (0.0, Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let luck: f64 = if rounds > 1 {
            StandardNormal.sample(&mut rng)
        } else {
            0.0
        };
        let scale = scale * (0.01 * luck).exp();
        let own: Vec<TestRequest> = (0..size)
            .map(|_| request(&mut rng, &mut queue, (round, length.gaps()), scale))
            .collect();
        let (seconds, flow) = played(&own, round);
        sending.push(seconds);
        flows.push(flow);
        rows.extend(own);
    }
    Sample {
        requests_window: ThroughputWindow::of_lengths(sending),
        flows,
        ..sample_of(rows)
    }
}

/// The requests of a round by eight users, from the first end until a user finds nothing more to send; tokens arrive
/// evenly.
fn played(rows: &[TestRequest], round: u32) -> (f64, Flow) {
    let mut free = [0.0f64; USERS];
    let mut spans = Vec::new();
    for row in rows {
        let user = (0..USERS)
            .min_by(|a, b| free[*a].total_cmp(&free[*b]))
            .unwrap();
        let (start, ttft) = (free[user], row.value(Metric::Ttft).unwrap() / 1e3);
        free[user] = start + row.busy_ms / 1e3;
        spans.push((start + ttft, free[user], row.output_tokens.unwrap()));
    }
    let from = spans
        .iter()
        .map(|span| span.1)
        .fold(f64::INFINITY, f64::min);
    let until = free.into_iter().fold(f64::INFINITY, f64::min);
    let (width, mut bins) = ((until - from) / 240.0, [Amounts::default(); 240]);
    for (first, last, tokens) in spans {
        let parts = ((first - from) / width).max(0.0) as u16
            ..((last - from) / width).ceil().clamp(0.0, 240.0) as u16;
        for part in parts {
            let (start, end) = (
                from + width * f64::from(part),
                from + width * f64::from(part + 1),
            );
            let within = (end.min(last) - start.max(first)).max(0.0) / (last - first);
            let ended = f64::from(u8::from(last > start && last <= end));
            let bin = &mut bins[usize::from(part)];
            (bin.ended, bin.output) = (bin.ended + ended, bin.output + tokens * within);
        }
    }
    (
        until - from,
        Flow {
            round,
            bins: (0..).zip(bins).collect(),
            ..Flow::default()
        },
    )
}

fn request(
    rng: &mut ChaCha8Rng,
    queue: &mut f64,
    (round, gaps): (u32, usize),
    scale: f64,
) -> TestRequest {
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    *queue = QUEUE * *queue + (1.0 - QUEUE * QUEUE).sqrt() * normal();
    let pace = scale * 20.0 * (0.15 * normal()).exp();
    let gaps: Vec<f64> = (0..gaps).map(|_| pace * (0.4 * normal()).exp()).collect();
    let slow = if rng.random_range(0.0..1.0) < 0.02 {
        4.0
    } else {
        1.0
    };
    let tokens = f64::from(rng.random_range(64..=256u32));
    let ttft = scale * 200.0 * slow * (0.4 * *queue).exp();
    let e2e = ttft + pace * (tokens - 1.0);
    let values = [
        (Metric::Ttft, ttft),
        (Metric::Tpot, pace),
        (Metric::E2e, e2e),
    ]
    .into();
    TestRequest {
        round,
        ok: true,
        values,
        gaps,
        output_tokens: Some(tokens),
        busy_ms: e2e,
        ..TestRequest::default()
    }
}

/// Of each measure alone, and of any of them after Holm's correction.
type Alarms = (Vec<bool>, bool);

/// Alarms of one pair at 5 %, for each shift.
fn pair(index: u64, length: Length, measures: &[Measure]) -> [Alarms; 3] {
    let of = |run_seed: Seed, scale| {
        vec![summarize_side(
            "a",
            &run(run_seed, length, scale),
            measures,
            0.975,
            Seed(index),
        )]
    };
    let base = of(Seed(17).child(index).child("base"), 1.0);
    SHIFTS.map(|scale| {
        let runs = [
            base.clone(),
            of(Seed(17).child(index).child("other"), scale),
        ];
        let mut all = compare_sides(&runs, measures, 0.975);
        // A p99 whose requests depend on one another much is not tested.
        let tested = decide_findings(&mut all, Correction::Holm, 0.05, 0.0);
        assert!(
            all.len() == measures.len() && tested + 1 >= measures.len(),
            "{tested} tested"
        );
        let any = all.iter().any(|own| own.finding != Finding::Noise);
        (
            all.iter()
                .map(|own| own.p.is_some_and(|p| p < 0.05))
                .collect(),
            any,
        )
    })
}

/// Rows of the table of the docs, and the alarms without a difference: of each measure alone, and of any.
fn table(length: Length, measures: &[Measure]) -> (String, Vec<u64>, u64) {
    let chunk = length.pairs() / 4;
    let n = if length.0 > 1 {
        format!("{} × {}", length.0, length.1)
    } else {
        length.1.to_string()
    };
    let pairs: Vec<_> = std::thread::scope(|scope| {
        let work = |part: u64| {
            scope.spawn(move || {
                (part * chunk..(part + 1) * chunk)
                    .map(|index| pair(index, length, measures))
                    .collect()
            })
        };
        let parts: Vec<_> = (0..4).map(work).collect();
        parts
            .into_iter()
            .flat_map(|part| -> Vec<_> { part.join().unwrap() })
            .collect()
    });
    let count = |shift: usize, which: &dyn Fn(&Alarms) -> bool| {
        pairs.iter().filter(|pair| which(&pair[shift])).count() as u64
    };
    let percent = |count: u64| format!("{:.1} %", count as f64 * 100.0 / length.pairs() as f64);
    let row = |name: String, counts: [u64; 3]| {
        format!("| {name} | {n} | {} |\n", counts.map(percent).join(" | "))
    };
    let alone = |at: usize| [0, 1, 2].map(|shift| count(shift, &|own| own.0[at]));
    let any = [0, 1, 2].map(|shift| count(shift, &|own| own.1));
    let mut text: String = measures
        .iter()
        .enumerate()
        .map(|(at, measure)| row(format!("`{measure}`"), alone(at)))
        .collect();
    if measures.len() > 1 {
        text += &row(format!("any of these {}, after Holm", measures.len()), any);
    }
    (
        text,
        (0..measures.len()).map(|at| alone(at)[0]).collect(),
        any[0],
    )
}

/// The rows of the table, their rates of false alarms proven.
fn proven(length: Length, measures: &[Measure]) -> String {
    let (text, alone, any) = table(length, measures);
    // A rate of 5 % would bring about as many or more once in a hundred times; of the mean over measures, which go
    // together, too.
    let chance = |alarms: f64| at_least(length.pairs() as f64, 0.05, alarms) > 0.01;
    let mean = (alone.iter().sum::<u64>() as f64 / measures.len() as f64).round();
    assert!(
        alone.iter().all(|&alarms| chance(alarms as f64)) && chance(mean) && chance(any as f64),
        "{text}"
    );
    text
}

/// That the page has these rows, and no others in their place.
fn actual(text: &str) {
    assert!(
        include_str!("../../../../../docs/explanation/comparing-runs.md").contains(text),
        "docs/explanation/comparing-runs.md has other figures than\n{text}"
    );
}

#[test]
fn quantiles_raise_no_more_false_alarms_than_they_may() {
    let of = |metric, p| Measure {
        metric,
        stat: Some(Stat::Quantile(p)),
    };
    let measures = [
        (Metric::Ttft, 0.5),
        (Metric::Ttft, 0.95),
        (Metric::Ttft, 0.99),
        (Metric::Itl, 0.5),
        (Metric::Itl, 0.99),
    ];
    let more = [
        (Metric::Tpot, 0.5),
        (Metric::Tpot, 0.95),
        (Metric::E2e, 0.5),
        (Metric::E2e, 0.95),
        (Metric::E2e, 0.99),
    ];
    actual(&proven(
        Length(1, 1000),
        &measures
            .into_iter()
            .chain(more)
            .map(|(metric, p)| of(metric, p))
            .collect::<Vec<_>>(),
    ));
}

#[test]
fn means_and_throughputs_raise_no_more_false_alarms_than_they_may() {
    let of = |metric, stat| Measure { metric, stat };
    let measures = [
        (Metric::Ttft, Some(Stat::Mean)),
        (Metric::E2e, Some(Stat::Mean)),
        (Metric::OutputTps, None),
    ];
    let measures = measures.map(|(metric, stat)| of(metric, stat));
    let text = [Length(10, 100), Length(5, 100)]
        .map(|length| proven(length, &measures))
        .concat();
    actual(&text);
}
