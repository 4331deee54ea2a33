//! Retries, client cancellations and request ids.

use crate::lab::{FINISH, Lab, Server, TOKEN, send, stream};
use crate::witness::context;
use llmscen::run::execution::run_plan;
use llmscen::run::prepare::prepare_cases;
use llmscen::run::requests::traffic_class::RowStride;
use llmscen::run::round::{RoundInput, prepare_round, run_round};
use llmscen::run::stop::Stop;
use llmscen::run::telemetry::Observer;
use llmscen::store::journal::Writer;
use llmscen::store::{RunDir, RunLocation};
use llmscen_core::artifacts::Bodies;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind, Outcome};
use llmscen_core::plan::Plan;
use llmscen_core::target::TargetLocation;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use llmscen_simulator::truth::End;
use llmscen_simulator::{Running, Truth};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const AUDIT: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

fn plan(target: &str, request: &str, load: &str) -> Plan {
    let text = format!(
        "version: 1\nname: t\nseed: 5\ntarget: {{ model: m, {target} }}\nrequest: {{ {request} }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ {load} }}\n{AUDIT}"
    );
    let input = Input {
        path: Path::new("s.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
}

/// The rows of a round, the second of its case.
fn played(plan: &Plan) -> Vec<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let context = context(folder.path(), Stop::default());
    let bench = prepare_cases(plan, &context).unwrap().remove(0);
    let run = RunDir::create(&RunLocation {
        explicit: Some(&folder.path().join("run")),
        dir: folder.path(),
        name: "t",
        started: "",
        force: false,
    });
    let run = run.unwrap();
    let input = RoundInput {
        case: &plan.cases[0],
        prepared: &bench,
        index: 0,
        round: 1,
        strides: vec![RowStride::default()],
        shard: Default::default(),
        planned: None,
        seed: plan.seed,
        server: None,
        fail_fast: None,
        earlier: Default::default(),
        server_process: None,
        probe: None,
        model: None,
        folder: &run,
        bodies: Bodies::None,
        observer: Arc::new(Observer::new(plan, &context)),
    };
    let prepared = prepare_round(&input, context.stop.child(), &context).unwrap();
    let journal = folder.path().join("journal.bin");
    run_round(
        &input,
        prepared,
        Writer::create(&journal).unwrap(),
        None,
        &context,
    )
    .unwrap();
    crate::lab::outcomes(&journal)
}

/// The only row of one request.
fn send_one(server: &Server, target: &str, request: &str) -> Outcome {
    let mut rows = played(&plan(
        &format!("url: \"{}\"{target}", server.url()),
        request,
        "concurrency: 1, requests: 1",
    ));
    assert_eq!(rows.len(), 1, "a retried request is one row");
    rows.remove(0)
}

/// A simulator with these parameters that logs its writes.
fn simulator(parameters: &str) -> (Running, String) {
    let plan = plan(
        &format!("url: simulator, simulator: {parameters}"),
        "",
        "concurrency: 1, requests: 1",
    );
    let TargetLocation::Simulator { server, .. } = &plan.cases[0].target.location else {
        panic!("a simulator")
    };
    let running = llmscen_simulator::start(
        server,
        plan.seed,
        "127.0.0.1:0".parse().unwrap(),
        Truth::since(Instant::now()),
    )
    .unwrap();
    let url = format!("url: \"http://{}/v1/chat/completions\"", running.addr());
    (running, url)
}

fn refusal(status: &str, after: &str, words: &str) -> Vec<u8> {
    let body = format!("{{\"error\":{{\"message\":\"{words}\"}}}}");
    format!(
        "HTTP/1.1 {status}\r\nretry-after: {after}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn reply() -> Vec<u8> {
    stream(&[TOKEN, TOKEN, FINISH, "[DONE]"], true)
}

/// The beginning of a stream, and then nothing more.
fn and_close(socket: &mut std::net::TcpStream, events: &[&str]) -> bool {
    send(socket, &stream(events, false));
    false
}

fn failure(outcome: &Outcome) -> &Failure {
    outcome.end.as_ref().unwrap_err()
}

#[test]
fn a_refused_request_is_retried_after_its_delay_and_its_latency_includes_the_wait() {
    let server = Server::start(|socket, number| {
        send(
            socket,
            &if number == 0 {
                refusal("429 Too Many Requests", "1", "full")
            } else {
                reply()
            },
        )
    });
    let seen = send_one(&server, "", "retry: { on: [429], wait: 1ms }");
    let line = &seen.timeline;
    assert_eq!(
        (
            seen.outcome_name(),
            seen.attempts,
            seen.status,
            seen.reconnects
        ),
        ("ok", 2, Some(200), 0)
    );
    let second = Nanos::from_millis(1000);
    assert!(
        line.last_sent.unwrap().since(line.sent.unwrap()) >= second,
        "the wait is the server's: {line:?}"
    );
    assert!(line.tokens[0].since(line.intended) >= second && line.headers >= line.last_sent);
    assert_eq!(line.tokens.len(), 2);
}

#[test]
fn a_delay_beyond_the_end_of_the_request_is_not_waited_for() {
    for (after, timeouts) in [("1000000000", ""), ("60", ", timeouts: { total: 300ms }")] {
        let server = Server::start(move |socket, _| {
            send(socket, &refusal("429 Too Many Requests", after, "full"))
        });
        let seen = send_one(&server, timeouts, "retry: { on: [429], wait: 1ms }");
        assert_eq!((seen.outcome_name(), seen.attempts), ("http_429", 1));
        assert!(failure(&seen).message.contains("full"));
    }
}

#[test]
fn the_last_attempt_tells_why_it_failed() {
    let server = Server::start(|socket, number| {
        send(
            socket,
            &refusal("503 Service Unavailable", "0", &format!("try {number}")),
        )
    });
    let seen = send_one(&server, "", "retry: { on: [503], max: 2 }");
    assert_eq!((seen.outcome_name(), seen.attempts), ("http_5xx", 3));
    assert!(
        failure(&seen).message.contains("try 2"),
        "{:?}",
        failure(&seen)
    );
    assert_eq!(server.requests.load(std::sync::atomic::Ordering::SeqCst), 3);
    let once = send_one(&server, "", "retry: { on: [429, connect], max: 2 }");
    assert_eq!(
        (once.outcome_name(), once.attempts, once.timeline.last_sent),
        ("http_5xx", 1, None)
    );
}

#[test]
fn nothing_is_asked_twice_once_content_has_come() {
    let retry = "retry: { on: [truncated, connect], max: 3, wait: 1ms }";
    let cut = Server::start(|socket, _| and_close(socket, &[TOKEN]));
    let seen = send_one(&cut, "", retry);
    assert_eq!(
        (
            seen.outcome_name(),
            seen.attempts,
            seen.timeline.tokens.len()
        ),
        ("truncated", 1, 1)
    );
    let late = Server::start(|socket, number| match number {
        0 => false,
        1 => and_close(socket, &[]),
        _ => send(socket, &reply()),
    });
    let seen = send_one(&late, "", retry);
    assert_eq!(
        (
            seen.outcome_name(),
            seen.attempts,
            seen.timeline.tokens.len()
        ),
        ("ok", 3, 2)
    );
}

#[test]
fn users_leave_after_their_tokens_and_the_server_knows() {
    let (server, url) = simulator("{ alpha: 100ms, beta: 0s, gamma: 0s, delta: 0s }");
    let rows = played(&plan(
        &url,
        "max_tokens: 400, cancel: { share: 100%, tokens: 5 }",
        "concurrency: 2, requests: 4",
    ));
    for row in &rows {
        assert_eq!(
            (row.outcome_name(), row.timeline.tokens.len()),
            ("abandoned", 5)
        );
        assert!(
            failure(row)
                .message
                .contains("cancelled by `request.cancel.tokens` after 5 token events"),
            "{:?}",
            failure(row)
        );
    }
    let deadline = Instant::now() + std::time::Duration::from_secs(10);
    while server
        .truth()
        .all()
        .iter()
        .any(|record| record.end.is_none())
        && Instant::now() < deadline
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let truth = server.truth().all();
    assert_eq!(truth.len(), 4);
    assert!(
        truth
            .iter()
            .all(|record| record.end == Some(End::Disconnected) && record.writes.len() < 400),
        "{truth:?}"
    );
}

#[test]
fn users_leave_by_the_clock_even_before_an_answer() {
    let server = Server::start(|_, _| {
        std::thread::sleep(std::time::Duration::from_secs(20));
        false
    });
    let seen = send_one(&server, "", "cancel: { share: 100%, after: 150ms }");
    assert_eq!(
        (seen.outcome_name(), seen.timeline.headers),
        ("abandoned", None)
    );
    let stayed = seen.timeline.end.since(seen.timeline.sent.unwrap());
    assert!(
        stayed >= Nanos::from_millis(150) && stayed < Nanos::from_millis(15_000),
        "{stayed:?}"
    );
}

#[test]
fn the_same_seed_sends_the_same_users_away() {
    let (_server, url) = simulator("{ alpha: 1ms }");
    let left = |seed: u64| {
        let mut plan = plan(
            &url,
            "max_tokens: 30, cancel: { share: 40%, tokens: 3 }",
            "concurrency: 4, requests: 60",
        );
        plan.seed.0 = seed;
        let rows = played(&plan);
        assert!(
            rows.iter()
                .all(|row| ["ok", "abandoned"].contains(&row.outcome_name()))
        );
        rows.iter()
            .filter(|row| row.outcome_name() == "abandoned")
            .map(|row| row.seq)
            .collect::<Vec<_>>()
    };
    let first = left(1);
    assert!((10..40).contains(&first.len()), "{first:?}");
    assert_eq!(first, left(1));
    assert_ne!(first, left(2));
}

#[test]
fn who_leaves_is_no_error_and_what_was_seen_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, url) = simulator("{ alpha: 5ms }");
    let case = |cancel: &str| {
        let request = format!("max_tokens: 40, cancel: {{ share: 50%, {cancel} }}");
        let report = run_plan(
            &plan(&url, &request, "concurrency: 4, requests: 40"),
            &context(folder.path(), Stop::default()),
        );
        report.unwrap().report.cases.remove(0)
    };
    let by_tokens = case("tokens: 4");
    let counts = &by_tokens.counts;
    assert!(
        counts.abandoned > 5
            && counts.ok + counts.abandoned == 40
            && counts.failed + counts.dropped == 0,
        "{counts:?}"
    );
    assert!(counts.failures.is_empty() && by_tokens.failures.is_empty());
    assert_eq!(by_tokens.scalars[&Metric::ErrorRate], 0.0);
    let n = |case: &llmscen_core::report::CaseReport, metric| case.distributions[&metric].n;
    assert_eq!(
        (n(&by_tokens, Metric::Ttft), n(&by_tokens, Metric::E2e)),
        (40, counts.ok)
    );
    // After a cancellation by time, only early first tokens are observed, so none counts.
    let by_clock = case("after: 60ms");
    assert!(by_clock.counts.abandoned > 5, "{:?}", by_clock.counts);
    assert_eq!(n(&by_clock, Metric::Ttft), by_clock.counts.ok);
}

#[test]
fn every_attempt_carries_an_id_of_its_own() {
    let (server, url) = simulator("{ faults: { error: 100%, error_status: 503 } }");
    let url = format!("{url}, request_id: X-Request-Id, headers: {{ x-team: a }}");
    let plan = plan(
        &url,
        "retry: { on: [http_5xx], max: 1, wait: 1ms }",
        "concurrency: 1, requests: 2",
    );
    let rows = played(&plan);
    let stem = format!("{}-0-1", &plan.id[..8]);
    let ids: Vec<_> = rows
        .iter()
        .map(|row| row.request_id.clone().unwrap())
        .collect();
    assert_eq!(ids, [format!("{stem}-0-0-1"), format!("{stem}-1-0-1")]);
    let heard: Vec<_> = server
        .truth()
        .all()
        .into_iter()
        .map(|record| record.request_id.unwrap())
        .collect();
    assert_eq!(
        heard,
        ["0-0", "0-0-1", "1-0", "1-0-1"].map(|rest| format!("{stem}-{rest}"))
    );
}

#[test]
fn a_user_who_leaves_asks_no_further_turn() {
    let lab = Lab::new();
    let said = |from: &str, text: &str| format!(r#"{{"from":"{from}","value":"{text}"}}"#);
    let talk = ["a", "b", "c"]
        .map(|text| format!("{},{}", said("human", text), said("gpt", "r")))
        .join(",");
    lab.file("talks.json", format!(r#"[{{"conversations":[{talk}]}}]"#));
    lab.run(&format!(
        "version: 1\nname: t\ntarget: {{ url: simulator, simulator: {{ alpha: 20ms }} }}\n\
         request: {{ max_tokens: 40, cancel: {{ share: 100%, tokens: 2 }} }}\n\
         dataset: {{ kind: sharegpt, path: talks.json, turns: {{ max: 3 }} }}\nload: {{ concurrency: 1, sessions: 1 }}\n{AUDIT}"
    ))
    .expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&counts["scheduled"], &counts["abandoned"]),
        (&3.into(), &3.into()),
        "{counts}"
    );
}

#[test]
fn a_report_tells_of_retries_and_of_users_who_left() {
    let lab = Lab::new();
    lab.run(&format!(
        "version: 1\nname: t\nseed: 2\ntarget: {{ url: simulator, simulator: {{ faults: {{ error: 30%, error_status: 503 }} }} }}\n\
         request: {{ max_tokens: 20, retry: {{ on: [503], max: 20, wait: 1ms }}, cancel: {{ share: 20%, tokens: 2 }} }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 4, requests: 60 }}\n{AUDIT}"
    ))
    .expect(0);
    let counts = lab.results()["cases"][0]["counts"].clone();
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!(
        (count("ok") + count("abandoned"), count("failed")),
        (60, 0),
        "{counts}"
    );
    assert!(
        count("retries") >= count("retried") && count("retried") > 3 && count("abandoned") > 3,
        "{counts}"
    );
    let (report, row) = (
        lab.text("out/report.md"),
        format!("| `base` | {} | {} |", count("retries"), count("retried")),
    );
    assert!(
        report.contains("## Retries and client cancellations") && report.contains(&row),
        "{report}"
    );
    assert!(
        lab.text("out/cases.csv")
            .lines()
            .next()
            .unwrap()
            .contains(",abandoned,")
    );
    assert_eq!(counts["failures"], serde_json::json!({}));
    let kind = FailureKind::Abandoned;
    assert!(
        !report.contains(&format!("| `{kind}` |")),
        "no failure is told: {report}"
    );
}
