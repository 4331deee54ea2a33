//! The worked example of docs/reference/metrics.md, recomputed, so that the page and the code cannot drift apart; and
//! requests of several choices, turns or inputs.

use crate::fixture::sample_case;
use crate::fixture::{
    TestRequest, case, facts, facts as case_facts, failed, frame, outcome, sample_of, stream, table,
};
use crate::{CaseFacts, Sample};
use llmscen_core::check::{Check, Confidence, NoData, Op, RequestLimit, RequestSet, Subject};
use llmscen_core::dataset::Turns;
use llmscen_core::endpoint::{Balance, EndpointSelector, Endpoints};
use llmscen_core::expect::CheckedAnswer;
use llmscen_core::load::{Arrival, Shape};
use llmscen_core::manifest::Part;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::outcome::{
    Audio, Counted, Failure, FailureKind, Outcome, Playback, ReplyFacts, ServerTimes, Timeline,
    Usage,
};
use llmscen_core::seed::Seed;
use llmscen_core::target::{Cost, Startup, TargetLocation};
use llmscen_core::telemetry::{Hardware, Source, TelemetryRecord, TelemetrySample};
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/reference/metrics.md");

/// The cells of the table after a marker, its two head lines left out.
fn cells(marker: &str) -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().skip_while(|line| *line != marker).skip(3);
    lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').skip(1).map(str::trim).collect())
        .collect()
}

fn request(cells: &[&str]) -> Outcome {
    let stamp = |text: &str| text.parse().ok().map(Nanos::from_millis);
    let timeline = Timeline {
        intended: stamp(cells[2]).unwrap(),
        sent: stamp(cells[3]),
        first_chunk: stamp(cells[4]),
        tokens: cells[5].split_whitespace().filter_map(stamp).collect(),
        end: stamp(cells[6]).unwrap(),
        // Each token event of the request that streams its reasoning has one token.
        reasoning: match cells[9].ends_with("hidden") {
            true => 0,
            false => cells[9].parse().unwrap_or_default(),
        },
        ..Timeline::default()
    };
    let count = |place: usize| cells[place].split_whitespace().next()?.parse().ok();
    let mut counted = cells[15]
        .split_whitespace()
        .map(|tokens| tokens.parse().ok());
    let usage = Usage {
        prompt: count(7),
        output: count(8),
        reasoning: count(9),
        cached: count(10),
    };
    let mut facts = cells[12].split_whitespace().map(stamp);
    let audio = facts.next().map(|duration| {
        let first = facts.next().flatten();
        let underruns = cells[12].split_whitespace().nth(2);
        let underruns = underruns.and_then(|count| count.parse().ok());
        let stalled = facts.nth(1).flatten();
        Box::new(Audio {
            duration,
            first,
            playback: underruns
                .zip(stalled)
                .map(|(underruns, stalled)| Playback { underruns, stalled }),
        })
    });
    let mut times = cells[13].split_whitespace().map(stamp).chain([None; 5]);
    let [queue, load, prefill, decode, total] = [(); 5].map(|()| times.next().flatten());
    let end =
        FailureKind::parse(cells[14]).map_or(outcome(0).end, |kind| Err(Failure::new(kind, "")));
    let words: Vec<&str> = cells[17].split_whitespace().collect();
    let result = |yes: &str, no: &str| {
        let found = words.iter().find(|word| [yes, no].contains(word))?;
        Some(*found == yes)
    };
    let answer = CheckedAnswer {
        valid: result("valid", "invalid"),
        matches: result("matches", "differs"),
        length_exact: result("exact", "inexact"),
        ..CheckedAnswer::default()
    };
    let (turn, turns) = cells[1].split_once(" of ").unwrap();
    let (seq, turn) = (
        cells[0].parse::<u64>().unwrap(),
        turn.parse::<u32>().unwrap() - 1,
    );
    let urls = two_urls();
    let url = EndpointSelector::new(Some(&urls), Seed(0)).select(seq, turn);
    Outcome {
        seq,
        turn,
        endpoint: Some(urls.names()[url].clone()),
        kept_headers: Some(format!("x-inference-pod: {}", urls.names()[url]).into()),
        turns: turns.parse().unwrap(),
        streamed: true,
        timeline,
        usage,
        counted: Counted {
            prompt: counted.next().flatten(),
            output: counted.nth(1).flatten(),
            ..Counted::default()
        },
        cacheable_tokens: cells[15]
            .split_whitespace()
            .nth(1)
            .and_then(|count| count.parse().ok()),
        reply: ReplyFacts {
            characters: count(19).unwrap_or_default(),
            replacement_characters: cells[19]
                .split_whitespace()
                .nth(1)
                .map_or(0, |count| count.parse().unwrap()),
            ..ReplyFacts::default()
        },
        session_duration: stamp(cells[16]),
        held_until: stamp(cells[18]),
        items: count(11),
        audio,
        server: ServerTimes {
            queue,
            load,
            prefill,
            decode,
            total,
        },
        answer: Some(Box::new(answer)).filter(|_| end.is_ok()),
        end,
        ..failed(0, FailureKind::Decode)
    }
}

fn two_urls() -> Endpoints {
    let urls = ["http://a:8000", "http://b:8000"].map(str::to_owned);
    Endpoints::new(urls.to_vec(), Balance::RoundRobin).unwrap()
}

/// The requests of the page, in its order.
fn requests() -> Vec<Outcome> {
    cells("<!-- requests -->")
        .iter()
        .map(|cells| request(cells))
        .collect()
}

fn example(shape: Shape) -> Sample {
    let mut case = case(shape);
    case.target.gpus = Some(2);
    case.dataset.turns = Some(Turns::default());
    case.target.location = TargetLocation::Urls(two_urls());
    case.target.keep_headers = vec!["x-inference-pod".into()];
    case.target.cost = Some(Cost {
        per_hour: 1.8,
        per_gpu: true,
        currency: "USD".into(),
    });
    case.target.hardware = Some(Hardware {
        parameters: 1e9,
        weight_bytes: 2e9,
        kv_bytes_per_token: 1e6,
        peak_flops: Some(1e12),
        peak_bandwidth: Some(1e12),
    });
    let limits = vec![RequestLimit {
        metric: Metric::Ttft,
        op: Op::Less,
        limit: 55.0,
    }];
    case.checks.push(Check {
        expr: "goodput(ttft < 55ms) >= 50%".into(),
        subject: Subject::Goodput(limits),
        op: Op::AtLeast,
        limit: 0.5,
        confidence: Confidence::Point,
        when: Default::default(),
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        relative: None,
        abort: None,
        is_default: false,
    });
    let power = |at_ms: i64, value: f64| TelemetrySample {
        at_ns: at_ms * 1_000_000,
        source: Source::Nvml,
        name: "gpu.power".into(),
        labels: "".into(),
        device: Some(0),
        value,
    };
    let recorded = TelemetryRecord {
        case: "a".into(),
        round: 0,
        readings: vec![power(0, 240.0), power(250, 360.0)],
    };
    // Starts of a server, actual by rounds whose requests are others.
    let starts = [2500, 5000].map(|ready| Startup {
        ready: Nanos::from_millis(ready),
        ..Startup::default()
    });
    let parts = starts.map(|startup| Part {
        round: 9,
        startup: Some(startup),
        ..Part::default()
    });
    sample_case(
        &table("a", &requests()).with_telemetry(vec![recorded]),
        &CaseFacts {
            parts: &parts,
            ..facts(&case)
        },
    )
}

fn near(computed: f64, expected: &str) -> bool {
    let expected: f64 = expected.parse().unwrap();
    (computed - expected).abs() <= 0.0001 * expected.abs()
}

/// A figure by its column in cases.csv.
fn figure(sample: &Sample, name: &str) -> Option<f64> {
    if let Some(metric) = Metric::ALL.iter().find(|metric| metric.column() == name) {
        return sample.scalars.get(metric).copied();
    }
    let (column, stat) = name.rsplit_once('_')?;
    let metric = Metric::ALL
        .iter()
        .find(|metric| metric.column() == column && metric.per() != Scope::Case)?;
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
    let open = example(Shape::Open {
        rate: 1.0,
        arrival: Arrival::Constant,
    });
    let results = cells("<!-- results -->");
    assert_eq!((seen.requests.len(), results.len()), (5, 53));
    for result in results {
        let computed = figure(
            if result[0] == "rate_offered" {
                &open
            } else {
                &seen
            },
            result[0],
        );
        let close = computed.is_some_and(|value| near(value, result[1]));
        assert!(
            close,
            "{}: the page says {}, the code {computed:?}",
            result[0], result[1]
        );
    }
}

#[test]
fn the_page_says_what_the_code_computes_of_each_request() {
    let outcomes = requests();
    let actual = cells("<!-- per request -->");
    let per_request = Metric::ALL
        .iter()
        .filter(|metric| metric.per() != Scope::Case);
    assert_eq!(
        actual.iter().map(|line| line[0]).collect::<BTreeSet<_>>(),
        per_request.map(|metric| metric.column()).collect()
    );
    for (place, outcome) in outcomes.iter().enumerate() {
        let table = table("a", std::slice::from_ref(outcome));
        let row = table.rows_of_case("a")[0];
        for line in &actual {
            let metric = Metric::ALL
                .iter()
                .find(|metric| metric.column() == line[0])
                .unwrap();
            let computed = if metric.per() == Scope::Gap {
                row.gaps()
            } else {
                row.metric(*metric).into_iter().collect()
            };
            let words: Vec<&str> = line[place + 1].split_whitespace().collect();
            let close = words.len() == computed.len()
                && computed
                    .iter()
                    .zip(&words)
                    .all(|(value, word)| near(*value, word));
            assert!(
                close,
                "{} of request {}: the page says {words:?}, the code {computed:?}",
                line[0],
                place + 1
            );
        }
    }
}

#[test]
fn every_metric_is_defined_and_worked_out() {
    let (before, after) = PAGE.split_once("### A worked example").unwrap();
    for metric in Metric::ALL {
        let named = [metric.name(), metric.column()]
            .iter()
            .any(|name| before.contains(&format!("`{name}`")));
        assert!(named, "{metric} is not defined");
        let column = format!("| {}", metric.column());
        assert!(
            after.contains(&format!("{column} |")) || after.contains(&format!("{column}_")),
            "{metric} is not worked out"
        );
    }
}

#[test]
fn the_page_matches_the_computed_round_variances() {
    let rows = cells("<!-- rounds -->").into_iter().flat_map(|line| {
        let round = line[0].parse().unwrap();
        let row = move |word: &str| TestRequest {
            round,
            ok: true,
            values: vec![(Metric::E2e, word.parse().unwrap())],
            ..TestRequest::default()
        };
        line[1].split_whitespace().map(row).collect::<Vec<_>>()
    });
    let sample = Sample {
        windows: vec![1.0; 2],
        ..sample_of(rows)
    };
    let seen = &crate::round_variances(&sample, &Shape::Closed { users: 1 })[0];
    let actual = cells("<!-- repeats -->");
    assert!(
        near(seen.within_sd.unwrap(), actual[0][1]) && near(seen.between_sd.unwrap(), actual[1][1]),
        "{seen:?}"
    );
}

// Requests of several choices, of several turns, of several inputs: what each figure takes from them.

/// Two choices whose events interleave: 0 at 50, 70, 90, 1 at 60, 80, 120, three tokens each.
fn two_choices() -> Outcome {
    let mut reply = stream(0, 0, &[50, 60, 70, 80, 90, 120]);
    reply.timeline.choices = vec![0, 1, 0, 1, 0, 1];
    reply
}

fn figures(rows: &[Outcome], shape: Shape) -> Sample {
    sample_case(&table("a", rows), &case_facts(&case(shape)))
}

fn value(sample: &Sample, row: usize, metric: Metric) -> Option<f64> {
    sample.requests.iter().nth(row).unwrap().value(metric)
}

#[test]
fn each_choice_has_its_own_pace() {
    let seen = figures(&[two_choices()], Shape::Closed { users: 1 });
    assert_eq!(
        seen.requests.iter().next().unwrap().gaps(),
        [20.0, 20.0, 20.0, 40.0]
    );
    // 40 + 60 ms over 6 tokens of which 2 were the first of their choice.
    assert_eq!(
        (value(&seen, 0, Metric::Ttft), value(&seen, 0, Metric::Tpot)),
        (Some(50.0), Some(25.0))
    );
    let table = frame(&table("a", &[two_choices(), stream(1, 0, &[9, 19])]));
    let list = |name: &str, row| {
        let column = table
            .column(name)
            .unwrap()
            .list()
            .unwrap()
            .get_as_series(row);
        column.map(|list| list.f64().unwrap().into_no_null_iter().collect::<Vec<_>>())
    };
    assert_eq!(
        (list("choice_ttft_ms", 0), list("choice_ttlt_ms", 0)),
        (Some(vec![50.0, 60.0]), Some(vec![90.0, 120.0]))
    );
    assert_eq!(list("choice_ttft_ms", 1), None);
    let choices = table.column("choices").unwrap().u32().unwrap();
    assert_eq!((choices.get(0), choices.get(1)), (Some(2), Some(1)));
}

#[test]
fn the_servers_own_count_of_an_event_is_its_weight() {
    let mut reply = stream(0, 0, &[100, 200, 300]);
    (reply.usage.output, reply.timeline.weights) = (Some(10), vec![1, 7, 2]);
    let table = table("a", &[reply]);
    let facts = table.rows_of_case("a");
    let tokens = facts[0].event_tokens();
    assert_eq!(
        [0, 1, 2].map(|event| tokens.sum(event..event + 1)),
        [1.0, 7.0, 2.0]
    );
    assert_eq!((tokens.sum(0..2), tokens.sum(0..0)), (8.0, 0.0));
}

#[test]
fn the_tokens_of_the_events_are_those_that_arrived() {
    let each = |reply: Outcome| {
        let table = table("a", &[reply]);
        let tokens = table.rows_of_case("a")[0].event_tokens();
        [0, 1, 2].map(|event| tokens.sum(event..event + 1))
    };
    let mut hidden = stream(0, 0, &[100, 200, 300]);
    (hidden.usage.output, hidden.usage.reasoning) = (Some(1003), Some(1000));
    hidden.timeline.weights = vec![1001, 1, 1];
    assert_eq!(
        each(hidden.clone()),
        [1.0, 1.0, 1.0],
        "hidden reasoning is in the first count"
    );
    hidden.timeline.weights = vec![1, 1, 1];
    assert_eq!(each(hidden.clone()), [1.0, 1.0, 1.0], "or in none");
    let mut trailing = stream(0, 0, &[100, 200, 300]);
    (trailing.usage.output, trailing.timeline.weights) = (Some(5), vec![1, 1, 1]);
    assert_eq!(
        each(trailing),
        [1.0, 1.0, 3.0],
        "tokens without text at the end"
    );
    hidden.timeline.weights = vec![1, 500, 2];
    assert_eq!(each(hidden), [1.0, 1.0, 1.0], "counts that cannot be");
}

#[test]
fn the_window_of_tpot_holds_the_tokens_that_it_is_divided_by() {
    let tpot = |reply: &Outcome| {
        table("a", std::slice::from_ref(reply)).rows_of_case("a")[0].metric(Metric::Tpot)
    };
    // Twenty of forty tokens are in the first event.
    let mut bundled = stream(
        0,
        0,
        &(0..=20).map(|event| 100 + 21 * event).collect::<Vec<_>>(),
    );
    bundled.usage.output = Some(40);
    bundled.timeline.weights = std::iter::once(20).chain([1; 20]).collect();
    assert_eq!(tpot(&bundled), Some(21.0));
    bundled.usage.output = Some(41);
    assert_eq!(
        tpot(&bundled),
        Some(21.0),
        "a token without text after the last event"
    );
    let mut hidden = stream(
        0,
        0,
        &(0..20).map(|event| 100 + 10 * event).collect::<Vec<_>>(),
    );
    (hidden.usage.output, hidden.usage.reasoning) = (Some(1020), Some(1000));
    assert_eq!(tpot(&hidden), Some(10.0));
    let running = std::iter::once(1001).chain([1; 19]).collect::<Vec<_>>();
    hidden.timeline.weights = running;
    assert_eq!(tpot(&hidden), Some(10.0));
    (hidden.timeline.choices, hidden.timeline.weights) = ([0, 1].repeat(10), vec![1; 20]);
    assert_eq!(
        tpot(&hidden),
        Some(20.0),
        "nine tokens of each choice in 180 ms"
    );
}

#[test]
fn a_session_counts_where_every_turn_succeeded_and_arrives_once() {
    let turn = |seq, turn, outcome: Outcome| Outcome {
        seq,
        turn,
        turns: 2,
        ..outcome
    };
    let rows = [
        turn(0, 0, stream(0, 0, &[50, 100])),
        turn(0, 1, stream(0, 120, &[150, 190])),
        turn(1, 0, stream(1, 100, &[130, 140])),
        turn(1, 1, failed(4, FailureKind::Dropped)),
    ];
    let mut own = case(Shape::Open {
        rate: 10.0,
        arrival: Arrival::Constant,
    });
    own.dataset.turns = Some(Turns::default());
    let seen = sample_case(&table("a", &rows), &case_facts(&own));
    let ttft = |metric| {
        seen.distributions
            .get(&metric)
            .map(|spread| (spread.n, spread.max))
    };
    assert_eq!(
        (ttft(Metric::TtftFirstTurn), ttft(Metric::TtftLaterTurns)),
        (Some((2, 50.0)), Some((1, 30.0)))
    );
    // One session is complete; the whole run counts, until the failed turn ended.
    assert_eq!(seen.scalars[&Metric::SessionThroughput], 1.0 / 0.482);
    assert_eq!(
        (
            seen.scalars[&Metric::RateOffered],
            seen.scalars[&Metric::RateAchieved]
        ),
        (10.0, 10.0)
    );
    assert_eq!((seen.counts.scheduled, seen.counts.dropped), (4, 1));
    let lonely = figures(&[stream(0, 0, &[50])], Shape::Closed { users: 1 });
    assert!(
        !lonely.scalars.contains_key(&Metric::SessionThroughput)
            && value(&lonely, 0, Metric::TtftFirstTurn).is_none()
    );
}

#[test]
fn inputs_and_server_times_are_kept_as_reported() {
    let server = ServerTimes {
        load: Some(Nanos(1_500_000)),
        total: Some(Nanos::from_millis(40)),
        ..ServerTimes::default()
    };
    let other = |row: Outcome| Outcome {
        items: Some(8),
        ..row
    };
    let rows = [
        Outcome {
            server,
            ..other(outcome(0))
        },
        other(failed(1, FailureKind::Decode)),
        other(outcome(2)),
    ];
    let seen = figures(&rows, Shape::Closed { users: 1 });
    assert_eq!(
        (
            value(&seen, 0, Metric::Items),
            value(&seen, 1, Metric::Items)
        ),
        (Some(8.0), None)
    );
    // Two replies; the whole run counts.
    assert_eq!(seen.scalars[&Metric::ItemThroughput], 16.0 / 0.282);
    let actual = [
        Metric::ServerLoad,
        Metric::ServerTotal,
        Metric::ServerDecode,
    ]
    .map(|metric| value(&seen, 0, metric));
    assert_eq!(actual, [Some(1.5), Some(40.0), None]);
}

#[test]
fn events_per_reply_are_the_token_events_of_complete_streams() {
    let mut reply = stream(0, 100, &[150, 150, 190]);
    reply.usage.output = Some(12);
    let broken = Outcome {
        seq: 1,
        end: failed(1, FailureKind::Truncated).end,
        ..reply.clone()
    };
    let seen = figures(&[reply, broken, outcome(2)], Shape::Closed { users: 1 });
    let events = [0, 1, 2].map(|row| value(&seen, row, Metric::EventsPerReply));
    assert_eq!(events, [Some(3.0), None, None]);
    assert_eq!(value(&seen, 0, Metric::TokensPerEvent), Some(4.0));
    let spread = &seen.distributions[&Metric::EventsPerReply];
    assert_eq!((spread.n, spread.max), (1, 3.0));
}
