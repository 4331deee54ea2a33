use super::*;
use crate::columns::TaggedOutcome;
use crate::fixture::{case, facts, outcome, sample_case, stream, table, warmup};
use llmscen_core::load::Shape;
use llmscen_core::manifest::Part;
use llmscen_core::metric::Stat;
use llmscen_core::telemetry::{StatValue, TelemetrySample};
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

/// A reading at so many tenths of a second.
fn actual(
    tenths: i64,
    source: Source,
    name: &str,
    (labels, device): (&str, Option<u32>),
    value: f64,
) -> TelemetrySample {
    TelemetrySample {
        at_ns: tenths * SECOND / 10,
        source,
        name: name.into(),
        labels: labels.into(),
        device,
        value,
    }
}

fn server(tenths: i64, signal: Signal, labels: &str, value: f64) -> TelemetrySample {
    actual(
        tenths,
        Source::Prometheus,
        signal.name(),
        (labels, None),
        value,
    )
}

fn gpu(tenths: i64, signal: Signal, device: u32, value: f64) -> TelemetrySample {
    actual(
        tenths,
        Source::Nvml,
        signal.name(),
        ("", Some(device)),
        value,
    )
}

fn recorded(readings: Vec<TelemetrySample>) -> TelemetryRecord {
    TelemetryRecord {
        case: "a".into(),
        round: 0,
        readings,
    }
}

/// Over one round whose window is from 1 s to 4 s.
fn over(readings: Vec<TelemetrySample>) -> Telemetry {
    let recorded = recorded(readings);
    summarize_rounds(&[RoundTelemetry {
        recorded: &recorded,
        window: Window {
            from: SECOND,
            until: 4 * SECOND,
        },
    }])
}

fn figures(stat: &SignalStat) -> (u64, Option<f64>, Option<f64>, Option<f64>) {
    (stat.n, stat.mean, stat.min, stat.max)
}

#[test]
fn a_gauge_is_its_samples_within_the_window_and_its_edges() {
    let seen = over(
        [(9, 50.0), (10, 1.0), (20, 5.0), (40, 3.0), (41, 90.0)]
            .map(|(at, v)| server(at, Signal::ServerWaiting, "", v))
            .into(),
    );
    let stat = &seen.signals[&Signal::ServerWaiting];
    assert_eq!(
        (figures(stat), stat.sd),
        ((3, Some(3.0), Some(1.0), Some(5.0)), Some(2.0))
    );
    assert_eq!(
        [0.5, 0.99].map(|share| stat.at(Stat::Quantile(share))),
        [3.0, 5.0].map(|value| Some(StatValue::Value(value)))
    );
    assert_eq!(
        seen.series[&Signal::ServerWaiting],
        [(0.9, 50.0), (1.0, 1.0), (2.0, 5.0), (4.0, 3.0), (4.1, 90.0)]
    );
    assert_eq!(seen.notes, [""; 0]);
}

#[test]
fn several_gpus_are_one_value_an_instant_and_only_where_all_told() {
    let two = |signal: Signal| {
        let seen = over(vec![
            gpu(20, signal, 0, 0.25),
            gpu(20, signal, 1, 0.75),
            gpu(30, signal, 0, 0.5),
        ]);
        figures(&seen.signals[&signal])
    };
    let once = |value| (1, Some(value), Some(value), Some(value));
    for (signal, value) in [
        (Signal::GpuUtilization, 0.5),
        (Signal::GpuThrottled, 0.5),
        (Signal::GpuPower, 1.0),
        (Signal::GpuMemory, 1.0),
        (Signal::GpuClock, 0.25),
        (Signal::GpuTemperature, 0.75),
    ] {
        assert_eq!(two(signal), once(value), "{signal}");
    }
}

#[test]
fn a_rate_is_growth_over_time_and_a_count_that_falls_begins_anew() {
    let counts = [
        (5, 100.0),
        (10, 200.0),
        (20, 220.0),
        (25, 230.0),
        (30, 4.0),
        (40, 10.0),
        (50, 99.0),
    ];
    let seen = over(
        counts
            .map(|(at, v)| server(at, Signal::ServerOutputTps, "", v))
            .into(),
    );
    let stat = &seen.signals[&Signal::ServerOutputTps];
    // 20 in 1 s, 10 in 0.5 s, 6 in 1 s: 36 in 2.5 s, and not the mean of 20, 20 and 6.
    assert_eq!(figures(stat), (3, Some(14.4), Some(6.0), Some(20.0)));
    assert_eq!(seen.series[&Signal::ServerOutputTps].len(), 5);
}

#[test]
fn counts_of_several_engines_are_added_up_where_none_is_missing() {
    let counts = [
        (10, "e=0", 1.0),
        (10, "e=1", 10.0),
        (20, "e=0", 3.0),
        (30, "e=0", 4.0),
        (30, "e=1", 16.0),
    ];
    let seen = over(
        counts
            .map(|(at, labels, v)| server(at, Signal::ServerPreemptions, labels, v))
            .into(),
    );
    assert_eq!(
        figures(&seen.signals[&Signal::ServerPreemptions]),
        (1, Some(4.5), Some(4.5), Some(4.5))
    );
}

#[test]
fn a_ratio_is_over_the_window_and_pairs_without_growth_have_none() {
    let counts = [
        (10, 5.0, 10.0),
        (20, 6.0, 20.0),
        (30, 6.0, 20.0),
        (40, 36.0, 60.0),
    ];
    let both = |(at, part, whole)| {
        let signal = Signal::ServerPrefixCacheHitRate;
        [
            server(at, signal, "part", part),
            server(at, signal, "whole", whole),
        ]
    };
    let seen = over(counts.into_iter().flat_map(both).collect());
    assert_eq!(
        figures(&seen.signals[&Signal::ServerPrefixCacheHitRate]),
        (2, Some(31.0 / 50.0), Some(0.1), Some(0.75))
    );
    let none = over([both((10, 5.0, 10.0)), both((40, 5.0, 10.0))].concat());
    assert!(none.signals.is_empty());
    assert_eq!(
        none.notes,
        [
            "n/a: server.prefix_cache_hit_rate: its denominator did not increase in the measured windows."
        ]
    );
    let actual = over(vec![server(20, Signal::ServerSpecAcceptRate, "value", 0.5)]);
    assert_eq!(
        figures(&actual.signals[&Signal::ServerSpecAcceptRate]),
        (1, Some(0.5), Some(0.5), Some(0.5))
    );
}

/// A histogram of two finite buckets as it stands at an instant.
fn histogram(tenths: i64, [ten, twenty, all]: [f64; 3], sum: f64) -> Vec<TelemetrySample> {
    let values = [
        ("le=10", ten),
        ("le=20", twenty),
        ("le=+Inf", all),
        ("count", all),
        ("sum", sum),
    ];
    values
        .into_iter()
        .map(|(labels, value)| server(tenths, Signal::ServerTtft, labels, value))
        .collect()
}

#[test]
fn a_histogram_is_what_grew_between_the_readings_around_the_window() {
    let readings = [
        histogram(2, [9.0, 9.0, 9.0], 9.0),
        histogram(8, [10.0, 10.0, 10.0], 50.0),
        histogram(25, [11.0, 13.0, 14.0], 90.0),
        histogram(45, [12.0, 16.0, 18.0], 170.0),
        histogram(55, [50.0, 50.0, 50.0], 999.0),
    ];
    let seen = over(readings.concat());
    let stat = &seen.signals[&Signal::ServerTtft];
    assert_eq!(
        (figures(stat), stat.buckets.clone()),
        (
            (8, Some(15.0), None, None),
            vec![(10.0, 2.0), (20.0, 6.0), (f64::INFINITY, 8.0)]
        )
    );
    let quantiles = [0.5, 0.95].map(|share| stat.at(Stat::Quantile(share)));
    assert_eq!(
        quantiles,
        [Some(StatValue::Value(15.0)), Some(StatValue::AtLeast(20.0))]
    );
    assert!(seen.series.is_empty() && seen.notes.is_empty());
}

#[test]
fn a_histogram_notes_uncovered_windows_and_resets() {
    let short = over(
        [
            histogram(15, [0.0; 3], 0.0),
            histogram(35, [1.0, 2.0, 2.0], 24.0),
        ]
        .concat(),
    );
    assert_eq!(short.signals[&Signal::ServerTtft].mean, Some(12.0));
    assert!(
        short.notes[0]
            .starts_with("server.ttft: covers only the span between the first and the last sample"),
        "{:?}",
        short.notes
    );
    let anew = over(
        [
            histogram(8, [5.0; 3], 5.0),
            histogram(20, [1.0; 3], 1.0),
            histogram(45, [7.0; 3], 9.0),
        ]
        .concat(),
    );
    assert!(anew.signals.is_empty());
    assert_eq!(
        anew.notes,
        ["n/a: server.ttft: a counter of the server was reset during a measured window."]
    );
    let once = over(histogram(20, [1.0; 3], 1.0));
    assert_eq!(
        once.notes,
        ["n/a: server.ttft: fewer than two samples around a measured window."]
    );
    let idle = over([histogram(8, [5.0; 3], 5.0), histogram(45, [5.0; 3], 5.0)].concat());
    assert_eq!(
        (
            figures(&idle.signals[&Signal::ServerTtft]),
            idle.notes.len()
        ),
        ((0, None, None, None), 0)
    );
}

#[test]
fn rounds_pool_and_their_histograms_add_up() {
    let rounds = [[2.0, 4.0, 4.0], [0.0, 0.0, 6.0]].map(|end| {
        let readings = [histogram(0, [0.0; 3], 0.0), histogram(50, end, 30.0)].concat();
        recorded(
            readings
                .into_iter()
                .chain([server(20, Signal::ServerRunning, "", end[2])])
                .collect(),
        )
    });
    let window = Window {
        from: SECOND,
        until: 4 * SECOND,
    };
    let seen = summarize_rounds(
        &rounds
            .each_ref()
            .map(|recorded| RoundTelemetry { recorded, window }),
    );
    let stat = &seen.signals[&Signal::ServerTtft];
    assert_eq!(
        (stat.n, stat.mean, stat.buckets[1]),
        (10, Some(6.0), (20.0, 4.0))
    );
    assert_eq!(
        figures(&seen.signals[&Signal::ServerRunning]),
        (2, Some(5.0), Some(4.0), Some(6.0))
    );
    assert_eq!(
        seen.series[&Signal::ServerRunning],
        [(2.0, 4.0)],
        "the first round's"
    );
}

/// A reading of one of two workers, `a` with the role prefill or `b` with the role decode.
fn of_worker(
    tenths: i64,
    worker: &str,
    signal: Signal,
    label: &str,
    value: f64,
) -> TelemetrySample {
    let role = if worker == "a" { "prefill" } else { "decode" };
    let comma = if label.is_empty() { "" } else { "," };
    let labels = format!("worker=\"{worker}\",role=\"{role}\"{comma}{label}");
    server(tenths, signal, &labels, value)
}

#[test]
fn values_of_workers_are_added_where_all_have_one() {
    use Signal::*;
    let mut readings = Vec::new();
    for (at, [a, b]) in [(10, [1.0, 10.0]), (20, [2.0, 20.0]), (40, [4.0, 40.0])] {
        for (worker, value) in [("a", a), ("b", b)] {
            readings.push(of_worker(at, worker, ServerWaiting, "", value));
            readings.push(of_worker(at, worker, ServerKvCacheUsage, "", value / 100.0));
            readings.push(of_worker(at, worker, ServerOutputTps, "", value * 100.0));
            readings.push(of_worker(
                at,
                worker,
                ServerPrefixCacheHitRate,
                "part",
                value,
            ));
            readings.push(of_worker(
                at,
                worker,
                ServerPrefixCacheHitRate,
                "whole",
                value * 2.0,
            ));
            readings.push(of_worker(
                at,
                worker,
                ServerSpecAcceptRate,
                "value",
                value / 100.0,
            ));
        }
    }
    // The other worker did not answer.
    readings.push(of_worker(30, "a", ServerWaiting, "", 900.0));
    readings.push(of_worker(30, "a", ServerOutputTps, "", 300.0));
    readings.push(of_worker(30, "a", ServerPrefixCacheHitRate, "part", 3.0));
    readings.push(of_worker(30, "a", ServerPrefixCacheHitRate, "whole", 3.0));
    let seen = over(readings.clone());
    let stat = |signal: Signal| figures(&seen.signals[&signal]);
    assert_eq!(
        stat(ServerWaiting),
        (3, Some(77.0 / 3.0), Some(11.0), Some(44.0))
    );
    let [least, greatest] = [0.055, 0.22].map(Some);
    let (n, mean, min, max) = stat(ServerKvCacheUsage);
    assert_eq!((n, min, max), (3, least, greatest));
    assert!((mean.unwrap() - 0.385 / 3.0).abs() < 1e-12, "{mean:?}");
    assert_eq!(
        stat(ServerOutputTps),
        (2, Some(1100.0), Some(1100.0), Some(1100.0))
    );
    assert_eq!(
        stat(ServerPrefixCacheHitRate),
        (2, Some(0.5), Some(0.5), Some(0.5))
    );
    assert_eq!(
        (stat(ServerSpecAcceptRate).0, stat(ServerSpecAcceptRate).3),
        (3, Some(0.22))
    );
    let recorded = recorded(readings);
    let window = Window {
        from: SECOND,
        until: 4 * SECOND,
    };
    let rounds = [RoundTelemetry {
        recorded: &recorded,
        window,
    }];
    let prefill = signals(&rounds, Workers::WithRole(Some("prefill")));
    assert_eq!(prefill[&ServerWaiting].max, Some(900.0));
    assert_eq!(prefill[&ServerOutputTps].mean, Some(100.0));
    assert!(signals(&rounds, Workers::WithRole(None)).is_empty());
    let both = BTreeSet::from(["decode", "prefill"]);
    assert_eq!(roles(&rounds, &both), both);
}

#[test]
fn histograms_of_workers_are_merged_at_their_common_bounds() {
    let of = |worker: &str, tenths: i64, buckets: &[(&str, f64)], sum: f64| {
        let last = buckets.last().unwrap().1;
        let named = buckets
            .iter()
            .copied()
            .chain([("sum", sum), ("count", last)]);
        let readings =
            named.map(|(label, value)| of_worker(tenths, worker, Signal::ServerTtft, label, value));
        readings.collect::<Vec<_>>()
    };
    let a = |tenths, [ten, twenty, all]: [f64; 3], sum| {
        let buckets = [("le=10", ten), ("le=20", twenty), ("le=+Inf", all)];
        of("a", tenths, &buckets, sum)
    };
    let b = |tenths, [twenty, all]: [f64; 2], sum| {
        of("b", tenths, &[("le=20", twenty), ("le=+Inf", all)], sum)
    };
    let readings = [
        a(8, [1.0, 1.0, 1.0], 5.0),
        b(8, [0.0, 0.0], 0.0),
        a(45, [2.0, 4.0, 5.0], 65.0),
        b(45, [3.0, 4.0], 60.0),
    ];
    let seen = over(readings.concat());
    let stat = &seen.signals[&Signal::ServerTtft];
    assert_eq!(
        (figures(stat), stat.buckets.clone()),
        (
            (8, Some(15.0), None, None),
            vec![(20.0, 6.0), (f64::INFINITY, 8.0)]
        )
    );
    // One worker restarted, although the sum of both grew.
    let restarted = [
        a(8, [1.0; 3], 5.0),
        b(8, [9.0, 9.0], 90.0),
        a(45, [99.0; 3], 65.0),
        b(45, [3.0, 4.0], 60.0),
    ];
    assert!(over(restarted.concat()).signals.is_empty());
}

#[test]
fn a_role_has_the_energy_of_its_gpus_and_the_tokens_of_its_workers() {
    use Signal::*;
    let mut readings = Vec::new();
    // The window is from 0 to 2 s.
    for at in [-10, 0, 10, 20, 30] {
        for (worker, power, generated) in [("a", 200.0, 1.0), ("b", 300.0, 6.0)] {
            let gpu = of_worker(at, &format!("gpu-{worker}"), GpuPower, "", power);
            let role = if worker == "a" { "prefill" } else { "decode" };
            readings.push(TelemetrySample {
                labels: format!("worker=\"gpu-{worker}\",role=\"{role}\"").into(),
                device: Some(0),
                ..gpu
            });
            let count = (at + 10) as f64;
            readings.push(of_worker(at, worker, ServerPromptTps, "", count * 2.0));
            readings.push(of_worker(
                at,
                worker,
                ServerOutputTps,
                "",
                count * generated,
            ));
        }
    }
    let mut case = case(Shape::Closed { users: 1 });
    let page = |role: &str, gpus| llmscen_core::telemetry::MetricsSource {
        role: Some(role.to_owned()),
        gpus: Some(gpus),
        ..llmscen_core::telemetry::MetricsSource::page(llmscen_core::telemetry::Scrape {
            url: "http://h/metrics".to_owned(),
            interval: llmscen_core::units::Nanos::from_millis(1000),
            headers: Vec::new(),
        })
    };
    case.target.metrics = vec![page("prefill", 2), page("decode", 4)];
    let table = table("a", &[stream(0, 0, &[500, 2000])]).with_telemetry(vec![recorded(readings)]);
    let summary = summarize(&table, &facts(&case));
    let [decode, prefill] = summary.roles.as_slice() else {
        panic!("{:?}", summary.roles)
    };
    assert_eq!(
        (decode.workers, prefill.workers),
        (1, 1),
        "exporters are no workers"
    );
    // 20 and 60 tokens per second.
    assert_eq!(
        [
            decode.prompt_tps,
            decode.output_tps,
            decode.output_tps_per_gpu
        ],
        [20.0, 60.0, 15.0].map(Some)
    );
    assert_eq!(
        [decode.energy_per_request, decode.energy_per_output_token],
        [600.0, 5.0].map(Some)
    );
    assert_eq!(
        [
            prefill.input_tps_per_gpu,
            prefill.energy_per_request,
            prefill.energy_per_prompt_token
        ],
        [10.0, 400.0, 10.0].map(Some)
    );
    assert_eq!(prefill.output_imbalance, None);
    assert_eq!(summary.workers.len(), 2);
}

#[test]
fn of_two_sources_the_first_is_taken_and_that_is_said() {
    let power = Signal::GpuPower.name();
    let readings = vec![
        actual(20, Source::Nvml, power, ("", Some(0)), 9.0),
        actual(21, Source::Dcgm, power, ("", Some(0)), 300.0),
    ];
    let seen = over(readings);
    assert_eq!(
        figures(&seen.signals[&Signal::GpuPower]),
        (1, Some(300.0), Some(300.0), Some(300.0))
    );
    assert_eq!(
        seen.notes,
        ["gpu.power: reported by dcgm and nvml; the values of dcgm are used."]
    );
}

#[test]
fn what_is_not_there_is_no_zero_and_a_short_window_says_what_to_do() {
    let seen = over(vec![
        server(50, Signal::ServerRunning, "", 1.0),
        server(51, Signal::ServerWaiting, "", f64::NAN),
    ]);
    assert!(seen.signals.is_empty());
    let what = "the longest measured window, 3 s, contains fewer than two samples: lower `target.metrics.interval` or";
    assert_eq!(
        seen.notes,
        [format!(
            "n/a: server.*: {what} `telemetry.interval`, or measure longer."
        )]
    );
    let fell = over(
        [(10, 9.0), (40, 2.0)]
            .map(|(at, v)| server(at, Signal::ServerOutputTps, "", v))
            .into(),
    );
    assert_eq!(
        fell.notes,
        ["n/a: server.output_tps: too few samples in the measured windows."]
    );
    assert_eq!(over(Vec::new()), Telemetry::default());
}

#[test]
fn a_server_that_does_not_speculate_says_nothing_of_it() {
    let both = |at, whole| {
        ["part", "whole"].map(|label| server(at, Signal::ServerSpecAcceptRate, label, whole))
    };
    let none = over([both(10, 0.0), both(40, 0.0)].concat());
    assert_eq!((none.signals.len(), none.notes), (0, Vec::new()));
    let idle = over([both(10, 5.0), both(40, 5.0)].concat());
    assert_eq!(
        idle.notes,
        ["n/a: server.spec_accept_rate: its denominator did not increase in the measured windows."]
    );
}

#[test]
fn a_case_has_the_readings_of_its_rounds_and_a_stage_those_of_its_time() {
    let rows = [
        warmup(outcome(0)),
        stream(1, 1000, &[1500, 2000]),
        stream(2, 3000, &[3500, 4000]),
    ];
    let row = |seq: usize, round| TaggedOutcome {
        case: "a",
        round,
        shard: 0,
        outcome: &rows[seq],
    };
    let waiting = |round, values: [f64; 3]| TelemetryRecord {
        round,
        ..recorded(
            [5, 15, 35]
                .into_iter()
                .zip(values)
                .map(|(at, v)| server(at, Signal::ServerWaiting, "", v))
                .collect(),
        )
    };
    let foreign = TelemetryRecord {
        case: "b".into(),
        ..waiting(0, [70.0; 3])
    };
    let table = Table::build([row(0, 0), row(1, 0), row(1, 1), row(2, 1)]).unwrap();
    let table = table.with_telemetry(vec![
        foreign,
        waiting(0, [90.0, 1.0, 90.0]),
        waiting(1, [90.0, 2.0, 3.0]),
    ]);
    let case = case(Shape::Closed { users: 1 });
    let seen = sample_case(&table, &facts(&case));
    assert_eq!(
        figures(&seen.signals[&Signal::ServerWaiting]),
        (3, Some(2.0), Some(1.0), Some(3.0))
    );
    let alone = crate::sample_round(&table, &facts(&case), 1).unwrap();
    assert_eq!(
        figures(&alone.signals[&Signal::ServerWaiting]),
        (2, Some(2.5), Some(2.0), Some(3.0))
    );
    let parts = [
        Part {
            case: "a".into(),
            missing_telemetry: vec!["no GPU".into()],
            ..Part::default()
        },
        Part {
            case: "a".into(),
            round: 1,
            missing_telemetry: vec!["no GPU".into()],
            ..Part::default()
        },
    ];
    let actual = summarize(
        &table,
        &CaseFacts {
            parts: &parts,
            ..facts(&case)
        },
    );
    assert_eq!(
        (actual.signals, actual.notes),
        (seen.signals, vec!["no GPU".to_owned()])
    );
}

#[test]
fn a_file_gives_the_readings_back_and_a_foreign_one_none() {
    let readings = vec![
        server(-3, Signal::ServerTtft, "le=+Inf", 12.0),
        gpu(7, Signal::GpuPower, 3, 301.25),
        actual(8, Source::Host, "own:name", ("a=\"b\",c=d", None), f64::MAX),
    ];
    let all = vec![
        recorded(readings.clone()),
        TelemetryRecord {
            round: 1,
            ..recorded(readings[..1].to_vec())
        },
        TelemetryRecord {
            case: "b".into(),
            ..recorded(readings)
        },
    ];
    let bytes = write(&all).unwrap();
    assert_eq!(read(bytes).unwrap(), all);
    assert_eq!(read(write(&[]).unwrap()).unwrap(), []);
    let mut rows = Vec::new();
    table("a", &[outcome(0)]).write_parquet(&mut rows).unwrap();
    assert!(read(rows).is_err() && read(&b"nothing"[..]).is_err());
}

#[test]
fn a_file_whose_column_source_has_its_earlier_name_is_read() {
    let all = vec![recorded(vec![gpu(7, Signal::GpuPower, 3, 301.25)])];
    use polars::prelude::{ParquetReader, ParquetWriter, SerReader};
    let mut frame = ParquetReader::new(std::io::Cursor::new(write(&all).unwrap()))
        .finish()
        .unwrap();
    frame.rename("source", "teller".into()).unwrap();
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
    assert_eq!(read(bytes).unwrap(), all);
}

#[test]
fn a_large_file_is_small() {
    let many: Vec<TelemetrySample> = (0..20_000)
        .map(|k| {
            server(
                k / 20,
                Signal::ALL[(k % 20) as usize],
                "engine=0",
                f64::from(k as u32 % 7),
            )
        })
        .collect();
    let size = write(&[recorded(many)]).unwrap().len();
    assert!(size < 200_000, "{size}");
}

proptest! {
    #[test]
    fn the_order_of_the_rows_changes_nothing(values in proptest::collection::vec(0.0f64..100.0, 12),
        seed in any::<u64>()) {
        let mut readings: Vec<TelemetrySample> = values.iter().enumerate().flat_map(|(k, &value)| {
            let at = 5 * k as i64;
            [server(at, Signal::ServerWaiting, "", value), server(at, Signal::ServerOutputTps, "",
                value), gpu(at, Signal::GpuPower, 0, value),
             gpu(at, Signal::GpuPower, 1, value), actual(at, Source::Prometheus, "own", ("", None), value)]
        }).collect();
        let straight = over(readings.clone());
        let mut state = seed | 1;
        for place in (1..readings.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            readings.swap(place, (state >> 33) as usize % (place + 1));
        }
        prop_assert_eq!(over(readings), straight);
    }

    #[test]
    fn the_growth_of_a_histogram_adds_up(steps in proptest::collection::vec((0u8..5, 0u8..5, 0u8..5), 2..20)) {
        let mut stands = [0.0; 3];
        let mut readings = histogram(0, stands, 0.0);
        for (k, (a, b, c)) in steps.iter().map(|(a, b, c)| (f64::from(*a), f64::from(*b), f64::from(*c))).enumerate() {
            stands = [stands[0] + a, stands[1] + a + b, stands[2] + a + b + c];
            readings.extend(histogram(41 + k as i64, stands, stands[2] * 5.0));
        }
        // Only the first step is before the first reading at or after the end of the window.
        let seen = over(readings);
        let stat = &seen.signals[&Signal::ServerTtft];
        let (a, b, c) = steps[0];
        prop_assert_eq!(stat.n, u64::from(a + b + c));
        prop_assert_eq!(stat.buckets.last().map(|own| own.1), Some(f64::from(a + b + c)));
        prop_assert!(stat.buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1));
        prop_assert_eq!(stat.mean, (stat.n > 0).then_some(5.0));
    }
}

/// What vLLM's page says of its queue, in milliseconds.
fn queue(tenths: i64, page: &str) -> Vec<TelemetrySample> {
    let page = std::fs::read_to_string(format!("../../tests/wire/metrics/{page}.txt")).unwrap();
    let lines = page
        .lines()
        .filter_map(|line| line.strip_prefix("vllm:request_queue_time_seconds_"));
    let actual = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        let value: f64 = value.parse().unwrap();
        let label = match name.split_once('{')?.0 {
            "bucket" => match name
                .split("le=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse::<f64>()
                .ok()?
            {
                f64::INFINITY => "le=+Inf".to_owned(),
                bound => format!("le={}", bound * 1000.0),
            },
            "sum" => {
                return Some(server(
                    tenths,
                    Signal::ServerQueueTime,
                    "sum",
                    value * 1000.0,
                ));
            }
            "count" => "count".to_owned(),
            _ => return None,
        };
        Some(server(tenths, Signal::ServerQueueTime, &label, value))
    };
    lines.filter_map(actual).collect()
}

#[test]
fn a_queue_that_was_hardly_there_is_only_known_to_be_within_the_first_bucket() {
    let seen = over([queue(8, "vllm_cpu.idle"), queue(45, "vllm_cpu.after")].concat());
    let stat = &seen.signals[&Signal::ServerQueueTime];
    assert_eq!((stat.n, stat.mean), (12, Some(1.223429004312493 / 12.0)));
    assert_eq!(stat.buckets[0], (300.0, 12.0));
    assert_eq!(
        [0.5, 0.99, 1.0].map(|share| stat.at(Stat::Quantile(share))),
        [Some(StatValue::AtMost(300.0)); 3]
    );
}
