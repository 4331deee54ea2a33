//! Reports for tests: seeded, of any size, with failures, telemetry, searches and hostile text.

pub(crate) mod comparison;

use llmscen_core::check::{Check, Confidence, NoData, Op, RequestSet, Ruling, Subject, Verdict};
use llmscen_core::label::{Labels, Scalar, VARIANT};
use llmscen_core::manifest::{Machine, Manifest};
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::outcome::FailureKind;
use llmscen_core::report::{
    Audit, CaseReport, Cause, ChartData, FailureExample, HeatMap, QuantileBand, Report, RunVerdict,
    Series, Telemetry, TimelineBar, Timelines, TokenSource,
};
use llmscen_core::sample::{Counts, SummaryStatistics};
use llmscen_core::search::{
    Candidacy, Extent, Fate, Finding, Goal, LoadVerdict, ProbeReport, Purpose, Score, SearchReport,
    SearchSpec, Standing,
};
use llmscen_core::seed::Seed;
use llmscen_core::signal::{Form, Signal};
use llmscen_core::telemetry::{OtherStat, SignalStat};
use llmscen_core::units::Nanos;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const REQUESTS: usize = 240;

/// A closed-loop case of `users` users and a server that saturates at about 32.
pub(crate) fn case(users: u32) -> CaseReport {
    let mut random = ChaCha8Rng::seed_from_u64(Seed(42).child(u64::from(users)).0);
    let busy = f64::from(users) / 32.0;
    let mut draw = |median: f64, spread: f64| -> Vec<f64> {
        let normal = |r: &mut ChaCha8Rng| (0..12).map(|_| r.random::<f64>()).sum::<f64>() - 6.0;
        (0..REQUESTS)
            .map(|_| median * (spread * normal(&mut random)).exp())
            .collect()
    };
    let ttft = draw(60.0 + 220.0 * busy * busy.sqrt(), 0.28);
    let gaps = draw(9.0 + 14.0 * busy, 0.22);
    let e2e: Vec<f64> = ttft
        .iter()
        .zip(&gaps)
        .map(|(first, gap)| first + 127.0 * gap)
        .collect();
    let mean_e2e = e2e.iter().sum::<f64>() / REQUESTS as f64;
    let window = REQUESTS as f64 / f64::from(users) * mean_e2e / 1e3;
    let mut case = CaseReport {
        id: format!("concurrency={users}"),
        labels: Labels(vec![(
            "load.concurrency".into(),
            Scalar::Int(i64::from(users)),
        )]),
        load: format!("concurrency {users}"),
        load_value: Some(f64::from(users)),
        load_axis: "concurrency",
        rounds: 1,
        token_source: Some(TokenSource::Usage),
        ..CaseReport::default()
    };
    fill_metrics(&mut case, [&ttft, &gaps, &e2e], window);
    case.timelines = timelines(users, &ttft, window);
    case.chart_data = pictures([&ttft, &gaps, &e2e], window);
    case.audit = audit();
    case.verdicts = vec![verdict(&case, Metric::Ttft, 0.99, 500.0), errors(&case)];
    case
}

fn fill_metrics(case: &mut CaseReport, [ttft, gaps, e2e]: [&[f64]; 3], window: f64) {
    let n = REQUESTS as u64;
    case.counts = Counts {
        scheduled: n,
        ok: n,
        warmup: 16,
        ..Counts::default()
    };
    let users = case.load_value.unwrap_or(1.0);
    let decode: Vec<f64> = gaps.iter().map(|gap| 1e3 / gap).collect();
    let constant = |value: f64| vec![value; REQUESTS];
    for (metric, values) in [
        (Metric::Ttft, ttft.to_vec()),
        (Metric::TtftService, ttft.iter().map(|v| v - 0.4).collect()),
        (Metric::Ttfc, ttft.iter().map(|v| v - 0.5).collect()),
        (Metric::Itl, gaps.to_vec()),
        (Metric::TokensPerEvent, constant(1.0)),
        (Metric::EventsPerReply, constant(128.0)),
        (Metric::Tpot, gaps.to_vec()),
        (Metric::Ntpot, e2e.iter().map(|v| v / 128.0).collect()),
        (Metric::E2e, e2e.to_vec()),
        (Metric::E2eService, e2e.iter().map(|v| v - 0.4).collect()),
        (Metric::ScheduleLag, constant(0.4)),
        (Metric::PromptTokens, constant(512.0)),
        (Metric::OutputTokens, constant(128.0)),
        (Metric::PrefillTps, ttft.iter().map(|v| 512e3 / v).collect()),
        (Metric::DecodeTps, decode),
        (
            Metric::OutputTpsPerRequest,
            e2e.iter().map(|v| 128e3 / v).collect(),
        ),
        (
            Metric::TotalTpsPerRequest,
            e2e.iter().map(|v| 640e3 / v).collect(),
        ),
        (
            Metric::TtftPerPromptToken,
            ttft.iter().map(|v| v / 512.0).collect(),
        ),
    ] {
        case.distributions.insert(metric, distribution(&values));
    }
    for (metric, values) in [
        (Metric::Ttft, ttft),
        (Metric::Itl, gaps),
        (Metric::E2e, e2e),
    ] {
        case.cdfs.insert(metric, cdf(values));
    }
    let per_second = n as f64 / window;
    case.scalars.extend([
        (Metric::RequestThroughput, per_second),
        (Metric::OutputTps, per_second * 128.0),
        (Metric::TotalTps, per_second * 640.0),
        (Metric::OutputTpsPerUser, per_second * 128.0 / users),
        (Metric::OutputTpsSteady, per_second * 130.0),
        (Metric::ConcurrencyMean, users * 0.98),
        (Metric::ConcurrencyMax, users),
        (Metric::RateAchieved, per_second),
        (Metric::ErrorRate, 0.0),
        (Metric::Window, window),
        (Metric::ThroughputWindow, window * 0.96),
        (Metric::RequestThroughputWithDrain, per_second * 0.98),
        (Metric::OutputTpsWithDrain, per_second * 0.98 * 128.0),
        (Metric::TotalTpsWithDrain, per_second * 0.98 * 640.0),
    ]);
}

/// The distribution of some values, quantiles by nearest rank.
pub(crate) fn distribution(values: &[f64]) -> SummaryStatistics {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / n;
    let sd = (sorted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let at = |share: &f64| sorted[((share * n).ceil() as usize).clamp(1, sorted.len()) - 1];
    SummaryStatistics {
        n: sorted.len() as u64,
        mean,
        sd: Some(sd),
        min: sorted[0],
        max: sorted[sorted.len() - 1],
        quantiles: SummaryStatistics::SHARES.iter().map(at).collect(),
    }
}

fn cdf(values: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .iter()
        .enumerate()
        .map(|(index, &v)| (v, (index + 1) as f64 / values.len() as f64))
        .collect()
}

fn timelines(users: u32, ttft: &[f64], window: f64) -> Timelines {
    let warm = window * 0.08;
    let at = |index: usize| warm + window * index as f64 / REQUESTS as f64;
    let level = |index: usize| {
        f64::from(users)
            - if index % 9 == 4 {
                f64::from(users.min(2)) / 2.0
            } else {
                0.0
            }
    };
    let ramp = (0..=users).map(|up| (0.02 * f64::from(up) / f64::from(users), f64::from(up)));
    let tail = (0..=users).map(|down| {
        (
            warm + window * (1.0 + 0.03 * f64::from(down) / f64::from(users)),
            f64::from(users - down),
        )
    });
    Timelines {
        in_flight: ramp
            .chain((0..REQUESTS).map(|i| (at(i), level(i).ceil())))
            .chain(tail)
            .collect(),
        output_tps: (0..60)
            .map(|bin| {
                (
                    f64::from(bin) * window / 55.0,
                    128.0 * REQUESTS as f64 / window * (0.96 + 0.02 * f64::from(bin * 7 % 5)),
                )
            })
            .collect(),
        ttft_ms: ttft
            .iter()
            .enumerate()
            .map(|(index, &v)| (at(index), v))
            .collect(),
        failures: Vec::new(),
        measured: (warm, warm + window),
        steady: Some((warm, warm + window * 0.97)),
    }
}

fn audit() -> Audit {
    Audit {
        valid: true,
        schedule_lag_ms_p50: Some(0.08),
        schedule_lag_ms_p99: Some(0.41),
        schedule_lag_ms_max: Some(1.9),
        stall_ms_p99: Some(0.3),
        stall_ms_max: Some(2.2),
        cpu_share_max: Some(0.17),
        memory_peak: Some(31 << 20),
        events_per_s: Some(5120.0),
        bytes_in_per_s: Some(1_450_000.0),
        bytes_out_per_s: Some(88_000.0),
        ..Audit::default()
    }
}

fn verdict(case: &CaseReport, metric: Metric, share: f64, limit: f64) -> Verdict {
    let observed = case.distributions[&metric].quantile(share);
    let ruling = if observed.is_some_and(|value| value < limit) {
        Ruling::Pass
    } else {
        Ruling::Fail
    };
    let expr = format!("{metric}.p{} < {limit}ms", share * 100.0);
    let subject = Subject::Metric {
        metric,
        stat: Some(Stat::Quantile(share)),
        tags: Vec::new(),
    };
    let bound = observed.map(|value| value * 1.06);
    Verdict {
        check: check(expr, subject, limit),
        ruling,
        observed,
        bound,
        n: case.counts.ok,
        effective_n: None,
        need: None,
        note: None,
    }
}

fn errors(case: &CaseReport) -> Verdict {
    let subject = Subject::Metric {
        metric: Metric::ErrorRate,
        stat: None,
        tags: Vec::new(),
    };
    Verdict {
        check: check("error_rate < 1%".into(), subject, 0.01),
        ruling: Ruling::Inconclusive,
        observed: Some(0.0),
        bound: Some(0.0124),
        n: case.counts.scheduled,
        effective_n: None,
        need: Some(299),
        note: None,
    }
}

fn check(expr: String, subject: Subject, limit: f64) -> Check {
    let (confidence, when) = (Confidence::Level(0.95), Labels::default());
    Check {
        expr,
        subject,
        op: Op::Less,
        limit,
        relative: None,
        confidence,
        when,
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        abort: None,
        is_default: false,
    }
}

/// A case with failed requests whose message contains markup of every format.
pub(crate) fn failing() -> CaseReport {
    let mut case = case(64);
    let kinds = [(FailureKind::Http5xx, 9), (FailureKind::Truncated, 2)];
    case.counts = Counts {
        ok: REQUESTS as u64 - 11,
        failed: 11,
        failures: kinds.into(),
        ..case.counts
    };
    case.scalars
        .insert(Metric::ErrorRate, 11.0 / REQUESTS as f64);
    let end = case.timelines.measured.1;
    case.timelines.failures = (0..11)
        .map(|index| (end * (0.5 + 0.04 * f64::from(index)), 1.0))
        .collect();
    let hostile =
        "a|b `c` <img src=x onerror=alert(1)>\n| row | ]]> \u{1b}[31m\u{0} ``d`` & $x$ \\";
    case.failures = vec![
        FailureExample {
            kind: FailureKind::Http5xx,
            count: 9,
            status: None,
            message: hostile.into(),
            at: "headers".into(),
        },
        FailureExample {
            kind: FailureKind::Truncated,
            count: 2,
            status: None,
            message: String::new(),
            at: "after 12 events".into(),
        },
    ];
    case.verdicts[1].ruling = Ruling::Fail;
    case
}

/// A case without a successful request.
pub(crate) fn no_data() -> CaseReport {
    let mut verdict = verdict(&case(4), Metric::Ttft, 0.99, 500.0);
    verdict = Verdict {
        ruling: Ruling::Fail,
        observed: None,
        bound: None,
        n: 0,
        note: Some("no data".into()),
        ..verdict
    };
    CaseReport {
        id: "base".into(),
        load: "burst".into(),
        load_axis: "concurrency",
        rounds: 1,
        counts: Counts {
            scheduled: 8,
            failed: 8,
            failures: [(FailureKind::Connect, 8)].into(),
            ..Counts::default()
        },
        scalars: [(Metric::ErrorRate, 1.0)].into(),
        audit: Audit {
            valid: false,
            reasons: vec![Cause::LoadGenerator.reason("schedule lag p99 8.1 ms is over 5 ms")],
            ..Audit::default()
        },
        verdicts: vec![verdict],
        failures: vec![FailureExample {
            kind: FailureKind::Connect,
            count: 8,
            status: None,
            message: "connection refused".into(),
            at: "connecting".into(),
        }],
        notes: vec!["every request failed: connect".into()],
        ..CaseReport::default()
    }
}

/// A report of the cases.
pub(crate) fn report_of(cases: Vec<CaseReport>, verdict: RunVerdict, exit_code: u8) -> Report {
    let machine = Machine {
        host: "bench-1".into(),
        os: "Debian 13".into(),
        kernel: "6.12.0".into(),
        cpu: "Some CPU @ 3.0 GHz".into(),
        cores: 16,
        memory: 64 << 30,
        ..Machine::default()
    };
    let manifest = Manifest {
        run_id: "20260102T030405Z-1f2e".into(),
        tool_version: "0.1.0".into(),
        name: "chat".into(),
        plan_id: "5f7c0ffee".into(),
        seed: 42,
        started_at: "2026-01-02T03:04:05Z".into(),
        elapsed_s: Some(83.2),
        machine,
        targets: [(
            "http://127.0.0.1:8000/v1/chat/completions".to_owned(),
            "uvicorn".to_owned(),
        )]
        .into(),
        ..Manifest::default()
    };
    Report {
        description: Some("Interactive chat, nightly gate".into()),
        manifest,
        verdict,
        exit_code,
        cases,
        ..Report::default()
    }
}

/// A sweep of `count` loads: powers of two for up to 12, otherwise every load.
pub(crate) fn sweep(count: u32) -> Report {
    let users = (0..count).map(|index| {
        if count <= 12 {
            1 << index.min(8)
        } else {
            index + 1
        }
    });
    let mut users: Vec<u32> = users.collect();
    if count == 12 {
        users = vec![1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128];
    }
    report_of(
        users.into_iter().map(case).collect(),
        RunVerdict::Inconclusive,
        5,
    )
}

/// An open loop swept over the rate and `lengths` lengths, with ids too long for a legend.
pub(crate) fn grid(lengths: u32) -> Report {
    let cell = |index: u32| {
        let (users, length) = (1 << (index % 6), index / 6);
        let mut case = case(users);
        let slower = 1.0 + f64::from(length) * 0.4;
        for distribution in case.distributions.values_mut() {
            distribution
                .quantiles
                .iter_mut()
                .for_each(|value| *value *= slower);
        }
        case.scalars.values_mut().for_each(|value| *value /= slower);
        case.labels = Labels(vec![
            ("load.rate".into(), Scalar::Text(format!("{users}/s"))),
            ("request.max_tokens".into(), Scalar::Int(128 << length)),
        ]);
        case.id = format!(
            "rate={users}/s,max_tokens={},model=an-organisation/a-long-model-name-70b-instruct",
            128 << length
        );
        (case.load_axis, case.load, case.load_value) =
            ("rate", format!("{users}/s poisson"), Some(f64::from(users)));
        case
    };
    report_of((0..6 * lengths).map(cell).collect(), RunVerdict::Fail, 1)
}

/// Variants on one, two and four GPUs over doubling concurrencies: the later ones are slower for one user and faster
/// for many. Each passes up to another load.
pub(crate) fn variants(count: u32, loads: u32) -> Report {
    let cell = |index: u32| {
        let (variant, users) = (index / loads, 1 << (index % loads));
        let mut case = case(users);
        let slower = 1.0 + f64::from(variant) * 0.4 / f64::from(users).sqrt();
        let name = format!("tp{}-v{variant}", 1 << (variant % 3));
        for distribution in case.distributions.values_mut() {
            let quantiles = distribution.quantiles.iter_mut();
            quantiles.for_each(|value| *value *= slower);
        }
        case.scalars.values_mut().for_each(|value| {
            *value *= (1.0 + 0.1 * f64::from(variant) * f64::from(users).log2()) / slower;
        });
        let gpus = f64::from(1 << (variant % 3));
        for (metric, per_gpu) in [
            (Metric::OutputTps, Metric::OutputTpsPerGpu),
            (Metric::TotalTps, Metric::TotalTpsPerGpu),
        ] {
            let total = case.scalars[&metric];
            case.scalars.insert(per_gpu, total / gpus);
        }
        case.id = format!("{name},concurrency={users}");
        case.labels
            .0
            .insert(0, (VARIANT.to_owned(), Scalar::Text(name)));
        let ruling = match users <= 4 << (variant % 4) {
            true => Ruling::Pass,
            false => Ruling::Fail,
        };
        let verdicts = case.verdicts.iter_mut();
        verdicts.for_each(|verdict| verdict.ruling = ruling);
        case
    };
    report_of((0..loads * count).map(cell).collect(), RunVerdict::Fail, 1)
}

/// Engines under the same load, each slower than the one before.
pub(crate) fn engines(count: u32) -> Report {
    let engine = |index: u32| {
        let mut case = case(8);
        case.id = format!("url=http://10.0.0.7:{}/v1", 8000 + index);
        case.labels = Labels(vec![(
            "target.url".into(),
            Scalar::Text(format!("http://10.0.0.7:{}/v1", 8000 + index)),
        )]);
        for distribution in case.distributions.values_mut() {
            distribution
                .quantiles
                .iter_mut()
                .for_each(|value| *value *= 1.0 + 0.3 * f64::from(index));
        }
        case
    };
    report_of((0..count).map(engine).collect(), Default::default(), 0)
}

/// A search that found 16 users for `ttft.p99 < 500ms`, with probes at 8, twice at 16, and at 32.
pub(crate) fn searched() -> Report {
    let verdict = sweep(1).cases[0].verdicts[0].clone();
    let probe = |(load, observed, purpose): (f64, f64, Purpose)| {
        let ruling = if observed > 500.0 {
            Ruling::Fail
        } else {
            Ruling::Pass
        };
        ProbeReport {
            case: format!("concurrency={load}"),
            round: 0,
            load,
            purpose,
            pass_probability: Some(if observed > 500.0 { 0.0 } else { 0.99 }),
            requests: 100,
            futile: observed > 500.0,
            verdicts: vec![Verdict {
                ruling,
                observed: Some(observed),
                ..verdict.clone()
            }],
            per_user_tps: Some(1000.0 / load),
            total_tps: Some(if load > 16.0 { 500.0 } else { 900.0 }),
            goodput: None,
            dominated: load > 16.0,
        }
    };
    use Purpose::{Bracket, Confirm, Narrow};
    let probes = [
        (8.0, 250.0, Bracket),
        (32.0, 1000.0, Bracket),
        (16.0, 350.0, Narrow),
        (16.0, 400.0, Confirm),
    ];
    let (vary, goal, drain, precision) =
        ("load.concurrency".to_owned(), Goal::Slo, Nanos::ZERO, 0.05);
    let spec = SearchSpec {
        vary,
        low: 1.0,
        high: 64.0,
        start: 8.0,
        integer: true,
        precision,
        confirm: 1,
        goal,
        drain,
    };
    let (answer, interval, extent) = (Some(16.0), (Some(15.0), 17.0), Extent::Within);
    let finding = Finding {
        answer,
        above: Some((32.0, LoadVerdict::Failed)),
        interval,
        mass: Some(0.97),
        extent,
        converged: true,
        confirmed: 1,
        non_monotone: None,
    };
    let search = SearchReport {
        spec,
        labels: Labels::default(),
        finding,
        probes: probes.map(probe).to_vec(),
        candidacy: None,
    };
    Report {
        searches: vec![search],
        ..report_of(sweep(3).cases, RunVerdict::Pass, 0)
    }
}

/// A candidate with the highest goodput at 16 users.
fn candidate(group: usize, labels: [(&str, i64); 2], goodput: f64, fate: Fate) -> SearchReport {
    let mut search = searched().searches.remove(0);
    search.spec.goal = Goal::Goodput;
    search.finding.mass = None;
    search.labels = Labels(
        labels
            .map(|(path, value)| (path.to_owned(), Scalar::Int(value)))
            .to_vec(),
    );
    let score = Score {
        low: goodput - 1.0,
        value: goodput,
        high: goodput + 2.0,
    };
    search.candidacy = Some(Candidacy {
        group,
        standings: vec![Standing {
            rung: 1,
            probes: 4,
            answer: search.finding.answer,
            interval: search.finding.interval,
            score,
        }],
        fate: Some(fate),
        gpus: Some(2.0),
    });
    search
}

/// Two groups of two candidates each, by their context.
pub(crate) fn two_groups() -> Report {
    let worse = || Fate::NotBest { tied: false };
    let labels = |input, seqs| [("dataset.tokens", input), ("args.max_num_seqs", seqs)];
    let mut report = report_of(Vec::new(), RunVerdict::Pass, 1);
    report.searches = vec![
        candidate(0, labels(100, 8), 5.0, worse()),
        candidate(0, labels(100, 16), 9.0, Fate::Best),
        candidate(1, labels(900, 8), 3.0, Fate::Best),
        candidate(1, labels(900, 16), 2.0, worse()),
    ];
    report
}

/// A case of eight users with telemetry; the server counted only its requests.
pub(crate) fn observed() -> CaseReport {
    let mut case = case(8);
    let end = case
        .timelines
        .in_flight
        .last()
        .map_or(60.0, |point| point.0);
    let mut telemetry = Telemetry::default();
    let gib = 1024.0 * 1024.0 * 1024.0;
    for (signal, level, swing) in [
        (Signal::ServerRunning, 7.0, 1.0),
        (Signal::ServerWaiting, 0.8, 0.8),
        (Signal::ServerKvCacheUsage, 0.42, 0.2),
        (Signal::ServerPrefixCacheHitRate, 0.3, 0.1),
        (Signal::ServerOutputTps, 640.0, 60.0),
        (Signal::GpuUtilization, 0.9, 0.08),
        (Signal::GpuMemory, 61.0 * gib, gib),
        (Signal::GpuPower, 540.0, 60.0),
        (Signal::GpuTemperature, 66.0, 4.0),
        (Signal::ProcessCpu, 1.4, 0.3),
        (Signal::ProcessMemory, 6.5 * gib, 0.1 * gib),
        (Signal::ToolCpu, 0.2, 0.05),
        (Signal::ToolMemory, 0.05 * gib, 0.001 * gib),
        (Signal::HostCpu, 0.2, 0.05),
    ] {
        let count = (end * 2.0) as u32 + 1;
        let values: Vec<f64> = (0..count)
            .map(|k| level + swing * (f64::from(k) * 0.7).sin())
            .collect();
        telemetry.series.insert(
            signal,
            values
                .iter()
                .enumerate()
                .map(|(k, v)| (k as f64 / 2.0, *v))
                .collect(),
        );
        telemetry.signals.insert(signal, sampled(values));
    }
    let end = (f64::INFINITY, 240.0);
    for (signal, mean, buckets) in [
        (
            Signal::ServerTtft,
            70.0,
            vec![(56.0, 60.0), (84.0, 220.0), (140.0, 240.0), end],
        ),
        // A coarse histogram: the median is in the first bucket, the tail in the last.
        (
            Signal::ServerQueueTime,
            22.0,
            vec![(300.0, 216.0), (480.0, 232.0), end],
        ),
    ] {
        assert_eq!(signal.form(), Form::Histogram);
        telemetry.signals.insert(
            signal,
            SignalStat {
                n: 240,
                mean: Some(mean),
                buckets,
                ..SignalStat::default()
            },
        );
    }
    telemetry.others.insert(
        "vllm:lora{a=b}".into(),
        OtherStat::Level {
            n: 2,
            mean: Some(1.5),
            min: 1.0,
            max: 2.0,
        },
    );
    telemetry
        .others
        .insert("vllm:corrupted_total".into(), OtherStat::Growth(0.25));
    telemetry.notes =
        vec!["n/a: server.preemptions: the /metrics endpoint does not export it.".into()];
    case.telemetry = telemetry;
    case
}

fn sampled(values: Vec<f64>) -> SignalStat {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    SignalStat {
        n: values.len() as u64,
        mean: Some(mean),
        min: values.iter().copied().reduce(f64::min),
        max: values.iter().copied().reduce(f64::max),
        sd: Some(0.1),
        values,
        buckets: Vec::new(),
    }
}

/// Chart data of TTFT, ITL and E2E values in ms; `window`: duration in seconds.
fn pictures([ttft, gaps, e2e]: [&[f64]; 3], window: f64) -> ChartData {
    let spectra = [
        (Metric::Ttft, ttft),
        (Metric::Itl, gaps),
        (Metric::Tpot, gaps),
        (Metric::E2e, e2e),
    ];
    ChartData {
        spectra: spectra
            .map(|(metric, values)| (metric, spectrum(values)))
            .into(),
        heat: Some(heat(e2e, window)),
        by_token: (0..42).map(|step| band(step, gaps)).collect(),
        prefill: ttft
            .iter()
            .enumerate()
            .map(|(index, first)| prompt(index, *first))
            .collect(),
        waterfall: (0..40)
            .map(|index| bar(index, ttft[index], e2e[index], window))
            .collect(),
    }
}

fn spectrum(values: &[f64]) -> Series {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len() as f64;
    sorted
        .iter()
        .enumerate()
        .map(|(index, &value)| (index as f64 / n, value))
        .collect()
}

fn heat(e2e: &[f64], window: f64) -> HeatMap {
    let (columns, rows) = (31, 15);
    let low = e2e.iter().copied().fold(f64::INFINITY, f64::min);
    let ratio = e2e.iter().copied().fold(0.0, f64::max) / low;
    let mut counts = vec![vec![0; rows]; columns];
    for (index, value) in e2e.iter().enumerate() {
        let row = ((value / low).ln() / ratio.ln() * rows as f64) as usize;
        counts[index * columns / e2e.len()][row.min(rows - 1)] +=
            1 + (index as u32 % 5) * (index as u32 % 7);
    }
    HeatMap {
        times: (0..=columns)
            .map(|edge| window * (0.08 + edge as f64 / columns as f64))
            .collect(),
        levels: (0..=rows)
            .map(|edge| low * ratio.powf(edge as f64 / rows as f64))
            .collect(),
        counts,
    }
}

/// Gaps grow with the output position; few responses reach the last positions.
fn band(step: usize, gaps: &[f64]) -> QuantileBand {
    let from = 2.0 + 3.0 * step as f64;
    let middle = gaps.iter().sum::<f64>() / gaps.len() as f64 * (1.0 + from / 400.0);
    let rough = 1.0 + 0.04 * (step * 7 % 5) as f64;
    QuantileBand {
        from,
        to: from + 2.0,
        n: 720 - 16 * step as u64,
        p50: middle,
        p90: middle * 1.3,
        p99: middle * 1.7 * rough,
    }
}

fn prompt(index: usize, first: f64) -> (f64, f64) {
    let tokens = (64 + index * 1237 % 3800) as f64;
    (tokens, first * 0.5 + tokens * 0.06)
}

fn bar(index: usize, ttft: f64, e2e: f64, window: f64) -> TimelineBar {
    let intended = window * (0.08 + index as f64 / 40.0);
    TimelineBar {
        seq: index as u64,
        turn: 0,
        intended,
        sent: Some(intended),
        first_token: Some(intended + ttft / 1e3),
        end: intended + e2e / 1e3,
        failure: None,
    }
}
