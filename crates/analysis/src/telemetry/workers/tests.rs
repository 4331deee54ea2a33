use super::super::Window;
use super::*;
use llmscen_core::telemetry::TelemetryRecord;

const SECOND: i64 = 1_000_000_000;

/// The engines over one round with readings of a time in seconds, name, labels and value.
fn engines(readings: &[(i64, &str, &str, f64)]) -> Vec<EngineTokens> {
    let recorded = recorded(readings);
    engine_tokens(&[of_round(&recorded)])
}

fn recorded(readings: &[(i64, &str, &str, f64)]) -> TelemetryRecord {
    let sample = |&(at, name, labels, value): &(i64, &str, &str, f64)| TelemetrySample {
        at_ns: at * SECOND,
        source: Source::Prometheus,
        name: name.into(),
        labels: labels.into(),
        device: None,
        value,
    };
    TelemetryRecord {
        case: "a".into(),
        round: 0,
        readings: readings.iter().map(sample).collect(),
    }
}

/// With a window from 0 to 4 s.
fn of_round(recorded: &TelemetryRecord) -> RoundTelemetry<'_> {
    RoundTelemetry {
        recorded,
        window: Window {
            from: 0,
            until: 4 * SECOND,
        },
    }
}

const RAW: &str = "vllm:generation_tokens_total";
const SIGNAL: &str = "server.output_tps";

#[test]
fn tokens_are_counted_by_engine_from_the_window_on() {
    let (first, second) = (
        "engine=\"0\",model_name=\"m\"",
        "engine=\"1\",model_name=\"m\"",
    );
    let tokens = engines(&[
        (0, RAW, first, 10.0),
        (2, RAW, first, 15.0),
        (6, RAW, first, 18.0),
        // It only served the warm-up.
        (-3, RAW, second, 2.0),
        (-1, RAW, second, 9.0),
        (2, RAW, "model_name=\"m\"", 5.0),
        (0, SIGNAL, "", 10.0),
        (6, SIGNAL, "", 20.0),
    ]);
    let engine = |engine: &str, tokens| EngineTokens {
        role: None,
        worker: None,
        engine: Some(engine.to_owned()),
        tokens,
    };
    assert_eq!(tokens, [engine("engine=0", 8.0), engine("engine=1", 0.0)]);
}

#[test]
fn a_worker_counts_as_its_engines_or_as_one() {
    let prefill = "worker=\"p:1\",role=\"prefill\"";
    let decode = "worker=\"d:1\",role=\"decode\"";
    let engine = |index: u8| format!("{decode},engine=\"{index}\"");
    let tokens = engines(&[
        (0, SIGNAL, prefill, 1.0),
        (5, SIGNAL, prefill, 4.0),
        (0, SIGNAL, decode, 0.0),
        (5, SIGNAL, decode, 7.0),
        (0, RAW, &engine(0), 0.0),
        (5, RAW, &engine(0), 7.0),
        (0, RAW, &engine(1), 0.0),
    ]);
    let found: Vec<_> = tokens
        .iter()
        .map(|own| (own.worker.as_deref(), own.engine.as_deref(), own.tokens))
        .collect();
    assert_eq!(
        found,
        [
            (Some("d:1"), Some("engine=0"), 7.0),
            (Some("d:1"), Some("engine=1"), 0.0),
            (Some("p:1"), None, 3.0),
        ]
    );
}

#[test]
fn the_tokens_of_a_page_that_stops_answering_are_unknown() {
    let (a, b) = ("worker=\"a:1\"", "worker=\"b:1\"");
    let engine = |index: u8| format!("{b},engine=\"{index}\"");
    let of_a = |name, from| {
        [
            (-2, "up", a, 1.0),
            (-2, name, a, 5.0),
            (from, name, a, 9.0),
            (6, name, a, 9.0),
        ]
    };
    let tokens = |of_b: &[(i64, &str, &str, f64)]| {
        let recorded = recorded(&[&of_a(SIGNAL, 2), of_b].concat());
        let rounds = [of_round(&recorded)];
        let workers = summarize_workers(&rounds);
        let engines = engine_tokens(&rounds);
        (
            workers[1].generated_tokens,
            engines.iter().map(EngineTokens::name).collect::<Vec<_>>(),
        )
    };
    let read = [(-2, "up", b, 1.0), (-2, SIGNAL, b, 3.0)];
    let until = |last: i64, failed: i64| {
        let more = [(last, SIGNAL, b, 4.0), (failed, "up", b, 0.0)];
        tokens(&[&read[..], &more[..]].concat())
    };
    let only_a = vec!["a:1".to_owned()];
    let both = vec!["a:1".to_owned(), "b:1".to_owned()];
    assert_eq!(until(-1, 0), (None, only_a.clone()), "before the window");
    assert_eq!(until(2, 3), (None, only_a.clone()), "in the window");
    assert_eq!(until(4, 5), (Some(1.0), both), "after the window");
    // Counters that are no signals are recorded when they change.
    let raw = |last: &[(i64, &str, &str, f64)]| {
        let (first, second) = (engine(0), engine(1));
        let counters = [(-2, RAW, &*first, 0.0), (-2, RAW, &*second, 7.0)];
        let (_, engines) = tokens(&[&read[..], &counters[..], last].concat());
        engines
    };
    let idle = ["a:1", "engine=0 of b:1", "engine=1 of b:1"].map(str::to_owned);
    assert_eq!(raw(&[(6, SIGNAL, b, 3.0)]), idle);
    assert_eq!(raw(&[(3, "up", b, 0.0)]), only_a);
}

#[test]
fn the_tokens_of_a_page_that_fails_in_one_round_are_unknown() {
    let b = "worker=\"b:1\"";
    let first = recorded(&[(0, "up", b, 1.0), (0, SIGNAL, b, 3.0), (4, SIGNAL, b, 8.0)]);
    let failed = recorded(&[(0, "up", b, 0.0), (4, SIGNAL, "worker=\"a:1\"", 3.0)]);
    let without = recorded(&[(4, SIGNAL, "worker=\"a:1\"", 3.0)]);
    let tokens = |second| {
        let workers = summarize_workers(&[of_round(&first), of_round(second)]);
        let worker = workers.iter().find(|worker| worker.worker == "b:1");
        worker.unwrap().generated_tokens
    };
    assert_eq!(tokens(&failed), None);
    assert_eq!(tokens(&without), Some(5.0), "its host has no such address");
}

#[test]
fn workers_are_the_pages_of_servers_and_those_that_never_answered() {
    let (a, b, c, gpu) = (
        "worker=\"a:1\"",
        "worker=\"b:1\",role=\"decode\"",
        "worker=\"c:1\"",
        "worker=\"gpu:9400\"",
    );
    let recorded = recorded(&[
        (0, "up", a, 1.0),
        (0, "server.prompt_tps", a, 5.0),
        (4, "server.prompt_tps", a, 25.0),
        (1, "server.waiting", a, 3.0),
        (3, "server.waiting", a, 5.0),
        (1, "server.running", a, 2.0),
        (3, "server.running", a, 4.0),
        (0, "up", b, 1.0),
        (1, "server.kv_cache_usage", b, 0.5),
        (0, "up", c, 0.0),
        (0, "up", gpu, 1.0),
        (0, "gpu.power", gpu, 300.0),
    ]);
    let workers = summarize_workers(&[of_round(&recorded)]);
    let expected = [
        WorkerReport {
            worker: "a:1".to_owned(),
            prompt_tokens: Some(20.0),
            running_mean: Some(3.0),
            waiting_max: Some(5.0),
            ..WorkerReport::default()
        },
        WorkerReport {
            worker: "c:1".to_owned(),
            ..WorkerReport::default()
        },
        WorkerReport {
            worker: "b:1".to_owned(),
            role: Some("decode".to_owned()),
            kv_cache_max: Some(0.5),
            ..WorkerReport::default()
        },
    ];
    assert_eq!(workers, expected);
}

#[test]
fn labels_of_a_series_are_no_role_of_the_target() {
    let recorded = recorded(&[
        (0, "up", "", 1.0),
        (0, "router_load", "worker=\"a\",role=\"b\"", 1.0),
        (0, "router_load", "worker=\"a\",role=\"decode\"", 1.0),
    ]);
    let rounds = [of_round(&recorded)];
    assert_eq!(roles(&rounds, &BTreeSet::new()), BTreeSet::new());
    let decode = BTreeSet::from(["decode"]);
    assert_eq!(roles(&rounds, &decode), decode);
}

#[test]
fn imbalance_is_the_maximum_by_the_mean() {
    let of = |tokens: &[f64]| imbalance(tokens.iter().map(|tokens| Some(*tokens)));
    assert_eq!(of(&[10.0, 20.0, 30.0]), Some(1.5));
    assert_eq!(of(&[10.0, 10.0]), Some(1.0));
    assert_eq!(of(&[10.0, 0.0]), Some(2.0));
    assert_eq!([of(&[10.0]), of(&[0.0, 0.0]), of(&[])], [None; 3]);
    assert_eq!(imbalance([Some(1.0), None].into_iter()), None);
}
