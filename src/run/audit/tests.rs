use super::*;
use llmscen_analysis::telemetry::EngineTokens;
use llmscen_analysis::{RequestFields, RequestsBuilder, TaggedOutcome};
use llmscen_client::http::dropped_outcome;
use llmscen_core::check::{
    Check, Confidence, NoData, Op, RequestLimit, RequestSet, Ruling, Subject,
};
use llmscen_core::dataset::{DatasetSpec, Source};
use llmscen_core::label::Labels;
use llmscen_core::load::{Load, Shape};
use llmscen_core::manifest::Stall;
use llmscen_core::metric::Stat;
use llmscen_core::outcome::{Finish, Outcome, Phase, Usage};
use llmscen_core::request::{PreparedRequest, RequestSpec};
use llmscen_core::sample::{Counts, SummaryStatistics};
use llmscen_core::signal::Signal;
use llmscen_core::target::Target;
use llmscen_core::telemetry::SignalStat;
use llmscen_core::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

pub(crate) fn texts(reasons: &[InvalidReason]) -> Vec<&str> {
    reasons.iter().map(InvalidReason::text).collect()
}

pub(crate) fn case(url: &str) -> Case {
    let _ms = Nanos::from_millis;
    let target = Target::chat(url);
    Case {
        id: "a".into(),
        labels: Labels::default(),
        target,
        request: RequestSpec {
            stream: true,
            ..RequestSpec::default()
        },
        dataset: DatasetSpec::new(Source::Prompt("x".into())),
        mix: Vec::new(),
        load: Load::new(Shape::Closed { users: 1 }),
        hooks: Default::default(),
        trace: None,
        checks: Vec::new(),
        stage_checks: Vec::new(),
    }
}

pub(crate) fn check(metric: Metric, stat: Option<Stat>, op: Op, limit: f64) -> Check {
    of_subject(
        Subject::Metric {
            metric,
            stat,
            tags: Vec::new(),
        },
        op,
        limit,
    )
}

pub(crate) fn of_subject(subject: Subject, op: Op, limit: f64) -> Check {
    Check {
        expr: "x".into(),
        subject,
        op,
        limit,
        confidence: Confidence::Level(0.95),
        when: Labels::default(),
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        relative: None,
        abort: None,
        is_default: false,
    }
}

pub(crate) fn sample_of(requests: RequestsBuilder) -> Sample {
    Sample {
        requests: requests.finish().unwrap(),
        ..Sample::default()
    }
}

/// Requests with these send delays, busy for 100 ms each.
fn sample(lags: &[f64]) -> Sample {
    let mut requests = RequestsBuilder::default();
    for lag in lags {
        let fields = RequestFields {
            busy_ms: 100.0,
            ..RequestFields::default()
        };
        let value = |metric| (metric == Metric::ScheduleLag).then_some(*lag);
        requests.push(fields, value, &[]);
    }
    sample_of(requests)
}

/// A sample of `count` sessions with `turns` successful turns each.
fn sessions(count: u64, turns: u64) -> Sample {
    let mut requests = RequestsBuilder::default();
    for session in (0..count).flat_map(|session| (0..turns).map(move |_| session)) {
        let fields = RequestFields {
            busy_ms: 100.0,
            session,
            ok: true,
            ..RequestFields::default()
        };
        let lag = |metric| (metric == Metric::ScheduleLag).then_some(0.1);
        requests.push(fields, lag, &[]);
    }
    sample_of(requests)
}

/// A part whose only worker stalled over these spans, ms, and these shares of the time.
fn part(stalls: &[(u64, u64)], shut: f64, frozen_ms: f64) -> Part {
    let longest: Vec<Stall> = stalls
        .iter()
        .map(|(from, to)| [from * MS, to * MS, 0, 0].into())
        .collect();
    let worker = WorkerStalls {
        frozen_ms,
        shut,
        ticks: 1000,
        count: longest.len() as u64,
        longest,
    };
    let vitals = Vitals {
        stalls: Some(vec![worker]),
        cpu_shares: vec![0.2],
        ..Vitals::default()
    };
    Part {
        case: "a".into(),
        vitals: Some(vitals),
        ..Part::default()
    }
}

/// What is found with these parts and this sample.
fn found(parts: &[&Part], sample: &Sample) -> Audit {
    found_of(parts, sample, &AuditLimits::default())
}

fn found_of(parts: &[&Part], sample: &Sample, limits: &AuditLimits) -> Audit {
    let audited = Audited {
        case: &case("http://10.0.0.1/v1"),
        parts,
        rounds: parts.len() as u32,
        sample,
        limits,
        seed: Seed(42),
        shards: &ShardAudit::default(),
    };
    audited.examine().0
}

#[test]
fn a_healthy_run_is_valid() {
    let audit = found(&[&part(&[], 0.0, 0.0)], &sample(&[0.1, 0.2, 0.9]));
    assert!(audit.valid, "{:?}", audit.reasons);
    assert_eq!(
        (audit.schedule_lag_ms_p50, audit.schedule_lag_ms_max),
        (Some(0.2), Some(0.9))
    );
    assert_eq!(
        (audit.cpu_share_max, audit.stalls, audit.stalled, audit.idle),
        (Some(0.2), Some(0), Some(0.0), Some(0.0))
    );
}

#[test]
fn every_condition_gives_its_own_reason() {
    let mut slow = part(&[(100, 160)], 0.08, 1.0);
    slow.vitals.as_mut().unwrap().cpu_shares = vec![0.95];
    slow.cut_short = Some("interrupted".into());
    let open = Sample {
        scalars: [(Metric::RateOffered, 100.0), (Metric::RateAchieved, 90.0)].into(),
        ..sample(&[6.0])
    };
    let known = [
        "the run did not happen as planned: interrupted",
        "achieved 90% of the offered rate (limit 98%, `audit.achieved`)",
        "one worker thread was stalled for 8% of the time (limit 5%, `audit.stalled`)",
        "one worker thread used 95% of a CPU core (limit 90%, `audit.cpu`)",
    ];
    assert_eq!(texts(&found(&[&slow], &open).reasons), known);
    // 12 ms of delay and 2 × 1 ms in a cycle of 112 ms.
    let closed = found(&[&part(&[(100, 160)], 0.02, 1.0)], &sample(&[12.0]));
    assert_eq!(closed.idle, Some(0.125));
    assert_eq!(
        texts(&closed.reasons),
        ["users waited for the load generator for 12.5% of their time (limit 10%, `audit.idle`)"]
    );
}

#[test]
fn what_is_accepted_does_not_count() {
    let (part, late) = (part(&[(100, 160)], 0.5, 30.0), sample(&[40.0; 9]));
    assert_eq!(found(&[&part], &late).reasons.len(), 2);
    let ms = Nanos::from_millis;
    let of = |lag, stall| {
        found_of(
            &[&part],
            &late,
            &AuditLimits {
                lag_p99: ms(lag),
                stall_p99: ms(stall),
                ..AuditLimits::default()
            },
        )
    };
    assert_eq!(texts(&of(40, 60).reasons), [""; 0]);
    assert_eq!(
        (of(40, 59).reasons.len(), of(39, 60).reasons.len()),
        (2, 1),
        "one is enough to make users wait"
    );
}

#[test]
fn one_bad_round_is_not_averaged_away() {
    let (good, bad) = (part(&[], 0.0, 0.0), part(&[(0, 500)], 0.3, 0.0));
    assert_eq!(found(&[&good, &bad], &sample(&[0.0])).stalled, Some(0.3));
    assert!(!found(&[&good, &bad], &sample(&[0.0])).valid);
    let mut short = bad;
    short.vitals.as_mut().unwrap().stalls.as_mut().unwrap()[0].ticks = 3;
    assert!(
        found(&[&short], &sample(&[0.0])).valid,
        "one of three ticks says little"
    );
}

#[test]
fn a_case_that_never_ran_is_not_valid() {
    let (case, none, limits) = (case("http://x"), sample(&[]), AuditLimits::default());
    let audited = Audited {
        case: &case,
        parts: &[],
        rounds: 1,
        sample: &none,
        limits: &limits,
        seed: Seed(42),
        shards: &ShardAudit::default(),
    };
    assert_eq!(
        texts(&audited.examine().0.reasons),
        ["the run did not happen as planned: 0 of 1 rounds ran"]
    );
}

#[test]
fn dropped_arrivals_are_no_delay_of_the_load_generator() {
    let mut full = sample(&[0.1]);
    full.scalars = BTreeMap::from([(Metric::RateOffered, 100.0), (Metric::RateAchieved, 60.0)]);
    full.counts = Counts {
        scheduled: 200,
        dropped: 80,
        ..Counts::default()
    };
    let reason =
        |sample: &Sample| InvalidReason::joined(&found(&[&part(&[], 0.0, 0.0)], sample).reasons);
    let known = "achieved 60% of the offered rate (limit 98%, `audit.achieved`); 80 of 200 arrivals were dropped at \
                 `load.max_in_flight`";
    assert_eq!(reason(&full), Cause::OffPlan.reason(known).text());
    full.counts.dropped = 40;
    assert!(
        reason(&full).starts_with("achieved 60% of the offered rate"),
        "{}",
        reason(&full)
    );
}

#[test]
fn an_engine_that_served_nothing_invalidates_the_case() {
    let reasons = |tokens: &[f64], count: u64, turns: u64| {
        let mut sample = sessions(count, turns);
        let engine = |(index, tokens): (usize, &f64)| EngineTokens {
            role: None,
            worker: None,
            engine: Some(format!("engine={index}")),
            tokens: *tokens,
        };
        sample.engine_tokens = tokens.iter().enumerate().map(engine).collect();
        InvalidReason::joined(&found(&[&part(&[], 0.0, 0.0)], &sample).reasons)
    };
    assert_eq!(
        reasons(&[500.0, 0.0, 400.0, 0.0], 100, 1),
        "a part of the server was idle: 2 of the 4 engines of the server generated no token (engine=1, engine=3)"
    );
    for (tokens, count, turns) in [
        (&[500.0, 1.0][..], 100, 1),
        // 2 (1 - 1/2)^7 is above 1 %.
        (&[500.0, 0.0], 7, 1),
        // The turns of a session may go to one engine.
        (&[500.0, 0.0], 7, 20),
        (&[0.0, 0.0], 100, 1),
        (&[], 100, 1),
    ] {
        assert_eq!(reasons(tokens, count, turns), "", "{tokens:?}");
    }
    assert_eq!(
        reasons(&[500.0, 0.0], 8, 1)
            .matches(Cause::IdleServer.prefix())
            .count(),
        1
    );
}

#[test]
fn workers_are_compared_with_those_of_their_role() {
    let reasons = |tokens: &[(&str, &str, f64)]| {
        let mut sample = sessions(100, 1);
        let worker = |(role, worker, tokens): &(&str, &str, f64)| EngineTokens {
            role: Some((*role).to_owned()),
            worker: Some((*worker).to_owned()),
            engine: None,
            tokens: *tokens,
        };
        sample.engine_tokens = tokens.iter().map(worker).collect();
        InvalidReason::joined(&found(&[&part(&[], 0.0, 0.0)], &sample).reasons)
    };
    assert_eq!(
        reasons(&[
            ("decode", "a:1", 90.0),
            ("decode", "b:1", 0.0),
            ("prefill", "c:1", 0.0),
            ("prefill", "d:1", 0.0),
        ]),
        "a part of the server was idle: 1 of the 2 workers with the role decode generated no token (b:1)"
    );
    assert_eq!(
        reasons(&[("decode", "a:1", 90.0), ("prefill", "c:1", 0.0)]),
        ""
    );
}

#[test]
fn a_local_model_takes_its_own_timestamps() {
    let mut local_part = part(&[(0, 500)], 0.5, 50.0);
    local_part.vitals.as_mut().unwrap().cpu_shares = vec![0.99];
    local_part.local = Some(Default::default());
    assert_eq!(
        texts(&found(&[&local_part], &sample(&[0.1])).reasons),
        [""; 0]
    );
    assert_eq!(
        found(&[&local_part], &sample(&[20.0])).reasons.len(),
        1,
        "when requests left counts as ever"
    );
}

#[test]
fn requests_without_a_file_and_timeouts_in_stalls_are_the_load_generators() {
    let mut short = Sample {
        without_file: 3,
        ..sample(&[0.1])
    };
    short.counts.failures =
        BTreeMap::from([(FailureKind::ToolStall, 2), (FailureKind::TimeoutRead, 1)]);
    let reasons = found(&[&part(&[], 0.0, 0.0)], &short).reasons;
    assert!(
        reasons[0]
            .text()
            .starts_with("3 requests failed: this process may open no more files")
            && reasons[0].text().contains("ulimit -n")
    );
    assert!(reasons[1].text().starts_with(
        "2 requests reached a timeout while the load generator stalled repeatedly (`tool_stall`);"
    ));
    assert_eq!(reasons.len(), 2);
}

#[test]
fn the_cause_is_what_telemetry_shows() {
    let of = |url: &str, host: f64| {
        let mean = |value| SignalStat {
            n: 3,
            mean: Some(value),
            ..SignalStat::default()
        };
        let signals = [(Signal::HostCpu, mean(host)), (Signal::ToolCpu, mean(0.07))].into();
        lateness_cause(
            &case(url),
            &Sample {
                signals,
                ..Sample::default()
            },
        )
        .unwrap()
    };
    assert_eq!(
        of("http://10.0.0.1/v1", 1.0),
        "host CPU was 100%, llmscen used 7% of one core: other processes"
    );
    let shared = "the server and the load generator share the cores of this machine";
    assert_eq!(
        of("http://127.0.0.1:8000/v1", 1.0),
        format!("host CPU was 100%, llmscen used 7% of one core; {shared}")
    );
    assert_eq!(
        of("http://[::1]:8000/v1", 0.2),
        "host CPU was 20%, llmscen used 7% of one core"
    );
    assert_eq!(
        lateness_cause(&case("http://localhost/v1"), &Sample::default()).as_deref(),
        Some(shared)
    );
    assert_eq!(
        lateness_cause(&case("http://10.0.0.1/v1"), &Sample::default()),
        None
    );
}

#[test]
fn a_stored_run_without_a_list_of_stalls_keeps_its_rule() {
    let five = Nanos::from_millis(5);
    let limits = AuditLimits {
        lag_p99: five,
        stall_p99: five,
        ..AuditLimits::default()
    };
    let old = |vitals: Vitals| Part {
        case: "a".into(),
        vitals: Some(vitals),
        ..Part::default()
    };
    let busy = old(Vitals {
        stall_ms_p99: 9.0,
        cpu_shares: vec![0.95],
        ..Vitals::default()
    });
    let starts: Vec<String> = found_of(&[&busy], &sample(&[6.0]), &limits)
        .reasons
        .iter()
        .map(|why| why.text()[..12].to_owned())
        .collect();
    assert_eq!(starts, ["send delay w", "event loop s", "one worker t"]);
    let of = |sure| {
        old(Vitals {
            stall_ms_p99: 30.0,
            stall_ms_sure: sure,
            ..Vitals::default()
        })
    };
    let audit_of = |sure| found_of(&[&of(sure)], &sample(&[0.1]), &limits);
    assert_eq!(
        (audit_of(Some(4.0)).valid, audit_of(Some(4.0)).stall_ms_p99),
        (true, Some(30.0))
    );
    let known = "event loop stalled for 30 ms (limit 5 ms) at p99; latencies may be overstated by up to that much";
    assert_eq!(
        [audit_of(Some(6.0)), audit_of(None)].map(|audit| InvalidReason::joined(&audit.reasons)),
        [known; 2]
    );
    // One hiccup does not decide a short case, and lasting lateness does.
    let late = |late: usize, n: usize| {
        let lags: Vec<f64> = (0..n)
            .map(|index| if index < late { 30.0 } else { 0.1 })
            .collect();
        found_of(&[&old(Vitals::default())], &sample(&lags), &limits)
            .reasons
            .len()
    };
    assert_eq!(
        [late(1, 14), late(2, 14), late(2, 50), late(15, 1000)],
        [0; 4]
    );
    assert_eq!(
        [
            late(1, 1),
            late(2, 2),
            late(3, 14),
            late(3, 50),
            late(16, 1000),
            late(14, 14)
        ],
        [1; 6]
    );
    // Its verdicts fall together.
    let mut case = case("http://x");
    case.checks = vec![check(Metric::ErrorRate, None, Op::Less, 0.5)];
    let mut requests = RequestsBuilder::default();
    let ok = RequestFields {
        ok: true,
        ..RequestFields::default()
    };
    (0..40).for_each(|_| requests.push(ok, |_| None, &[]));
    let sample = sample_of(requests);
    let audited = Audited {
        case: &case,
        parts: &[&busy],
        rounds: 1,
        sample: &sample,
        limits: &limits,
        seed: Seed(1),
        shards: &ShardAudit::default(),
    };
    let facts = CaseFacts {
        case: &case,
        parts: std::slice::from_ref(&busy),
        until: None,
    };
    let (verdicts, objectives) = audited
        .verdicts(&Table::default(), &facts, &audited.examine().1)
        .unwrap();
    assert_eq!((verdicts[0].ruling, objectives.len()), (Ruling::Invalid, 0));
    assert!(
        verdicts[0]
            .note
            .as_deref()
            .unwrap()
            .starts_with("not judged: the self-audit failed (event loop stalled"),
        "{verdicts:?}"
    );
}

#[test]
fn a_stall_is_named_where_spans_are_short() {
    let gaps = |p99| {
        let itl = SummaryStatistics {
            n: 9,
            mean: p99,
            sd: None,
            min: p99,
            max: p99,
            quantiles: vec![p99; 13],
        };
        Sample {
            distributions: BTreeMap::from([(Metric::Itl, itl)]),
            ..Sample::default()
        }
    };
    let stalled = |stall| Audit {
        valid: true,
        stall_ms_p99: Some(stall),
        ..Audit::default()
    };
    let note = note_stall(&stalled(3.8), &gaps(8.0)).unwrap();
    assert!(
        note.starts_with("Event-loop stalls reached 3.80 ms at p99, 47.5% of `itl` p99"),
        "{note}"
    );
    assert_eq!(
        [
            note_stall(&stalled(0.9), &gaps(1.0)),
            note_stall(&stalled(3.8), &gaps(20.0))
        ],
        [None, None]
    );
}

/// One user's requests in the order in which they are sent: what a server does, seen by a load generator with stalls.
struct Simulated {
    outcomes: Vec<Outcome>,
    stalls: Vec<(u64, u64)>,
}

/// Times are in microseconds. The stalls come `per_s` times a second and take up to `most` ms. Each request takes 20
/// ms and a drawn time until its first token, on average 20 ms, and then has ten gaps of 2 ms and a drawn time of 3
/// ms on average.
fn simulate(seed: u64, per_s: f64, most: f64) -> Simulated {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = |mean: f64| -(1.0 - rng.random_range(0.0..1.0f64)).ln() * mean;
    let mut stalls: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < 60_000_000 {
        at += (drawn(1e6 / per_s)) as u64 + 1;
        let length = ((drawn(most / 3.0)).clamp(1.0, most) * 1000.0) as u64;
        stalls.push((at, at + length));
        at += length;
    }
    let after_stall = |at: u64| {
        stalls
            .iter()
            .find(|(from, to)| (*from..*to).contains(&at))
            .map_or(at, |(_, to)| *to)
    };
    let nanos = |at: u64| Nanos(at * 1000);
    let mut intended = 1000;
    let outcomes = (0..150).map(|seq| {
        let sent = after_stall(intended);
        let mut truly = sent + 20_000 + drawn(20_000.0) as u64;
        let mut tokens = vec![nanos(after_stall(truly))];
        for _ in 0..10 {
            truly += 2000 + drawn(3000.0) as u64;
            tokens.push(nanos(after_stall(truly)));
        }
        let mut outcome = dropped_outcome(
            &PreparedRequest {
                seq,
                turns: 1,
                streamed: true,
                ..PreparedRequest::default()
            },
            Phase::Measured,
            nanos(intended),
            "",
        );
        intended = after_stall(truly);
        (outcome.timeline.sent, outcome.timeline.end) = (Some(nanos(sent)), nanos(intended));
        outcome.timeline.first_chunk = tokens.first().copied();
        (outcome.timeline.tokens, outcome.streamed, outcome.attempts) = (tokens, true, 1);
        (outcome.status, outcome.end) = (
            Some(200),
            Ok(Finish {
                reason: "stop".into(),
            }),
        );
        outcome.usage = Usage {
            prompt: Some(10),
            output: Some(11),
            ..Usage::default()
        };
        outcome
    });
    Simulated {
        outcomes: outcomes.collect(),
        stalls,
    }
}

/// The verdicts of each objective, and those as measured.
fn judged(simulated: &Simulated, checks: &[Check]) -> Vec<(Verdict, ObjectiveAudit)> {
    let spans: Vec<Stall> = simulated
        .stalls
        .iter()
        .map(|(from, to)| [from * 1000, to * 1000, 0, 0].into())
        .collect();
    let wall = simulated.outcomes.last().unwrap().timeline.end.0 as f64;
    let within = || {
        spans
            .iter()
            .filter(|stall| (stall.to as f64) < wall)
            .map(|stall| (stall.to - stall.from) as f64)
    };
    let (shut, frozen) = (
        within().sum::<f64>() / wall,
        within().map(|length| length * length / 2.0).sum::<f64>() / wall / 1e6,
    );
    let ticks = (wall / 1e7) as u64;
    let worker = WorkerStalls {
        frozen_ms: frozen,
        shut,
        ticks,
        count: spans.len() as u64,
        longest: spans,
    };
    let vitals = Vitals {
        stalls: Some(vec![worker]),
        cpu_shares: vec![0.2],
        ..Vitals::default()
    };
    let parts = [Part {
        case: "a".into(),
        vitals: Some(vitals),
        ..Part::default()
    }];
    let case = Case {
        checks: checks.to_vec(),
        ..case("http://10.0.0.1/v1")
    };
    let table = Table::build(simulated.outcomes.iter().map(|outcome| TaggedOutcome {
        case: "a",
        round: 0,
        shard: 0,
        outcome,
    }))
    .unwrap();
    let facts = CaseFacts {
        case: &case,
        parts: &parts,
        until: None,
    };
    let sample = llmscen_analysis::sample_case(&table, &facts).unwrap();
    let limits = AuditLimits::default();
    let audited = Audited {
        case: &case,
        parts: &[&parts[0]],
        rounds: 1,
        sample: &sample,
        limits: &limits,
        seed: Seed(7),
        shards: &ShardAudit::default(),
    };
    let (verdicts, objectives) = audited
        .verdicts(&table, &facts, &audited.examine().1)
        .unwrap();
    verdicts.into_iter().zip(objectives).collect()
}

/// Objectives at `times` what the server truly does.
fn at_the_truth(times: f64) -> Vec<Check> {
    let p90 = Some(Stat::Quantile(0.9));
    // The 90 % point of an exponential with mean 1 is ln 10.
    let (wait, gap) = (20.0 + 20.0 * 10f64.ln(), 2.0 + 3.0 * 10f64.ln());
    let goodput = |limit| {
        Subject::Goodput(vec![RequestLimit {
            metric: Metric::Ttft,
            op: Op::Less,
            limit,
        }])
    };
    vec![
        check(Metric::Ttft, p90, Op::Less, wait * times),
        check(Metric::TtftService, p90, Op::Less, wait * times),
        check(
            Metric::E2e,
            Some(Stat::Quantile(0.5)),
            Op::Less,
            90.0 * times,
        ),
        check(Metric::Itl, p90, Op::Less, gap * times),
        check(
            Metric::Tpot,
            Some(Stat::Quantile(0.5)),
            Op::Less,
            4.9 * times,
        ),
        of_subject(goodput(wait * times), Op::AtLeast, 0.9),
        // A request takes 90 ms, of which the load generator may not take any.
        check(
            Metric::RequestThroughput,
            None,
            Op::AtLeast,
            1000.0 / 90.0 / times,
        ),
    ]
}

#[test]
fn no_stall_turns_a_server_that_is_too_slow_into_a_pass() {
    let (mut invalid, mut all) = (0, 0);
    for seed in 0..10 {
        // From rare long stalls to a worker that is stalled for half of the time.
        for (per_s, most) in [(1.0, 60.0), (5.0, 30.0), (20.0, 100.0)] {
            let simulated = simulate(seed, per_s, most);
            for (verdict, audit) in judged(&simulated, &at_the_truth(0.75)) {
                assert_ne!(
                    verdict.ruling,
                    Ruling::Pass,
                    "{seed} {per_s} {verdict:?} {audit:?}"
                );
                (invalid, all) = (
                    invalid + u32::from(verdict.ruling == Ruling::Invalid),
                    all + 1,
                );
            }
        }
    }
    assert!(
        invalid * 10 < all * 9,
        "{invalid} of {all}: a check that can only say INVALID proves nothing"
    );
}

#[test]
fn no_stall_turns_a_server_that_is_fast_enough_into_a_failure() {
    let (mut failed, mut passed, mut all) = (0, 0, 0);
    for seed in 0..10 {
        for (per_s, most) in [(1.0, 60.0), (5.0, 30.0), (8.0, 300.0)] {
            let simulated = simulate(seed, per_s, most);
            for (index, (verdict, audit)) in judged(&simulated, &at_the_truth(1.25))
                .into_iter()
                .enumerate()
            {
                assert_ne!(
                    verdict.ruling,
                    Ruling::Fail,
                    "{seed} {per_s} {verdict:?} {audit:?}"
                );
                failed += u32::from(audit.measured == Ruling::Fail);
                // Rare stalls leave the verdicts on latencies as they are.
                if per_s < 2.0 && index < 3 {
                    (passed, all) = (passed + u32::from(verdict.ruling == Ruling::Pass), all + 1);
                }
            }
        }
    }
    assert!(failed > 10, "{failed}: as measured, it would");
    assert!(passed * 4 > all * 3, "{passed} of {all}");
}
