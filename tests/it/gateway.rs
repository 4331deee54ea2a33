//! Sessions behind a gateway: ids and tokens of sessions, and response headers that name the replica.

use crate::classes::rows;
use crate::lab::{Lab, read_head_and_body};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

const AUDIT: &str =
    "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, stalled: 100%, idle: 100%, achieved: 1% }\n";

/// A request: its session id, its token, and the number of its connection.
type Received = (String, Option<String>, usize);

/// The requests in the order of arrival.
type Seen = Arc<Mutex<Vec<Received>>>;

/// A chat server whose response number n has the token `t-n`, and is of the replica `a` if n is even, else of `b`.
fn gateway() -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/v1/chat/completions",
        listener.local_addr().unwrap()
    );
    let seen = Seen::default();
    let kept = seen.clone();
    std::thread::spawn(move || {
        for (connection, mut socket) in listener.incoming().flatten().enumerate() {
            let kept = kept.clone();
            std::thread::spawn(move || {
                while let Some((head, _)) = read_head_and_body(&mut socket) {
                    let value = |name: &str| {
                        let mut lines = head.lines();
                        lines.find_map(|line| Some(line.strip_prefix(name)?.to_owned()))
                    };
                    let number = {
                        let mut kept = kept.lock().unwrap();
                        let id = value("x-session-id: ").unwrap();
                        kept.push((id, value("x-route: "), connection));
                        kept.len() - 1
                    };
                    let body = r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":3}}"#;
                    let pod = if number.is_multiple_of(2) { "a" } else { "b" };
                    let reply = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nX-Inference-Pod: {pod}\r\nX-Session-Token: t-{number}\r\n\
                         content-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if socket.write_all(reply.as_bytes()).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (url, seen)
}

fn talks(lab: &Lab) {
    let said = |from: &str, text: &str| format!(r#"{{"from":"{from}","value":"{text}"}}"#);
    let talk = ["a", "b", "c"].map(|text| format!("{},{}", said("human", text), said("gpt", "r")));
    let talk = format!(r#"{{"conversations":[{}]}}"#, talk.join(","));
    lab.file("talks.json", format!("[{talk},{talk}]"));
}

fn scenario(url: &str, target: &str, slo: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 5\ntarget: {{ url: \"{url}\", model: m, {target} }}\nrequest: {{ stream: false, max_tokens: 7 }}\n\
         dataset: {{ kind: sharegpt, path: talks.json, turns: {{ max: 3 }} }}\nload: {{ concurrency: 1, sessions: 2 }}\n\
         slo: [{slo}]\n{AUDIT}"
    )
}

const HEADERS: &str = "session_id: X-Session-ID, session_token: { from: x-session-token, to: X-Route }, keep_headers: [X-Inference-Pod]";

#[test]
fn a_session_keeps_its_id_and_sends_the_latest_token_back() {
    let (url, seen) = gateway();
    let lab = Lab::new();
    talks(&lab);
    let slo = r#""error_rate{x-inference-pod=a} <= 50%", { expr: "e2e{x-inference-pod=b}.count == 3", confidence: point }, "replica_imbalance < 1.1""#;
    lab.run(&scenario(&url, HEADERS, slo)).expect(5);
    let first = seen.lock().unwrap().clone();
    let ids: Vec<&str> = first.iter().map(|(id, ..)| id.as_str()).collect();
    assert!(ids[..3].iter().all(|id| *id == ids[0]) && ids[3..].iter().all(|id| *id == ids[3]));
    assert_ne!(ids[0], ids[3]);
    let tokens: Vec<Option<&str>> = first.iter().map(|(_, token, _)| token.as_deref()).collect();
    assert_eq!(
        tokens,
        [
            None,
            Some("t-0"),
            Some("t-1"),
            None,
            Some("t-3"),
            Some("t-4")
        ]
    );
    let connections: BTreeSet<usize> = first.iter().map(|(.., connection)| *connection).collect();
    assert_eq!(connections.len(), 1, "one user needs one connection");
    let all = rows(&lab);
    let kept: Vec<&str> = all
        .iter()
        .map(|row| row.kept_headers.as_deref().unwrap())
        .collect();
    let [a, b] = ["x-inference-pod: a", "x-inference-pod: b"];
    assert_eq!(kept, [a, b, a, b, a, b]);
    let case = lab.results()["cases"][0].clone();
    let of = |name: &str| -> Value {
        let headers = case["headers"].as_array().unwrap();
        headers
            .iter()
            .find(|one| one["name"] == name)
            .unwrap()
            .clone()
    };
    for name in [a, b] {
        assert_eq!(
            (&of(name)["requests"], &of(name)["share"]),
            (&3.into(), &0.5.into())
        );
    }
    assert_eq!(case["metrics"]["replica_imbalance"], 1.0);
    let verdicts: Vec<&str> = (0..3)
        .map(|index| case["slo"][index]["verdict"].as_str().unwrap())
        .collect();
    // Three requests cannot decide a share.
    assert_eq!(verdicts, ["inconclusive", "pass", "pass"]);
    assert!(
        lab.text("out/report.md").contains(a),
        "the report names the replicas"
    );
    // The ids depend on the plan alone.
    lab.run(&scenario(&url, HEADERS, slo)).expect(5);
    let again: Vec<String> = seen.lock().unwrap()[6..]
        .iter()
        .map(|(id, ..)| id.clone())
        .collect();
    assert_eq!(again, ids);
}

#[test]
fn headers_with_credentials_cannot_be_kept_and_names_must_not_collide() {
    let lab = Lab::new();
    talks(&lab);
    for (target, slo, message) in [
        (
            "keep_headers: [Set-Cookie]",
            "",
            "the header `set-cookie` cannot be kept",
        ),
        (
            "keep_headers: [x-session-token]",
            "",
            "may contain credentials",
        ),
        (
            "keep_headers: [x-pod, X-Pod]",
            "",
            "`x-pod` is listed twice",
        ),
        ("keep_headers: [\"a b\"]", "", "is not a header name"),
        ("session_id: Authorization", "", "has a fixed meaning"),
        ("session_id: X-Id, request_id: x-id", "", "has two values"),
        (
            "session_id: X-Id, headers: { x-id: a }",
            "",
            "has two values",
        ),
        ("session_token: { from: x-a }", "", "`to`"),
        (
            "keep_headers: [x-pod]",
            "\"e2e{x-pot=a}.p50 < 1s\"",
            "did you mean `x-pod`?",
        ),
        (
            "session_id: X-Id",
            "\"replica_imbalance < 2\"",
            "no response header is kept",
        ),
    ] {
        lab.file("s.yaml", scenario("http://127.0.0.1:9/v1", target, slo));
        let told = lab.llmscen(&["plan", "s.yaml"]).expect(2).err;
        assert!(told.contains(message), "{target}: {told}");
    }
}

#[test]
fn the_simulator_sends_the_turns_of_a_session_to_one_replica() {
    let lab = Lab::new();
    talks(&lab);
    let target = format!("simulator: {{ replicas: 2, prefix_cache: true }}, {HEADERS}")
        .replace("X-Route", "x-session-token");
    let text = scenario("simulator", &target, "")
        .replace("concurrency: 1, sessions: 2", "concurrency: 2, sessions: 8");
    lab.run(&text).expect(0);
    let mut pods: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for row in rows(&lab) {
        let pod = row.kept_headers.unwrap();
        pods.entry(row.seq).or_default().insert(pod);
    }
    assert!(
        pods.len() == 8 && pods.values().all(|own| own.len() == 1),
        "{pods:?}"
    );
    let used: BTreeSet<&String> = pods.values().flatten().collect();
    assert_eq!(used.len(), 2, "both replicas answered");
}
