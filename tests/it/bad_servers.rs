//! Servers that fail in many ways: each failure has its kind and is counted, and none stops the run or counts as a success.

use crate::lab::*;
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Runs three requests against a server and returns the one kind of failure that all of them must have.
fn three_failures(server: &Server, exit: i32) -> (Lab, String) {
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 3)).expect(exit);
    let case = &lab.results()["cases"][0];
    let failures = case["counts"]["failures"].as_object().unwrap().clone();
    assert_eq!(failures.len(), 1, "{failures:?}");
    let (kind, count) = failures.iter().next().unwrap();
    assert_eq!(count, 3, "{failures:?}");
    assert_eq!(case["counts"]["ok"], 0);
    assert_eq!(case["metrics"]["error_rate"], 1.0);
    let kind = kind.clone();
    (lab, kind)
}

#[test]
fn a_server_that_closes_at_once_is_a_connect_failure() {
    let server = Server::start(|_, _| false);
    assert_eq!(three_failures(&server, 3).1, "connect");
}

#[test]
fn html_is_not_an_answer() {
    let server = Server::start(|s, _| {
        send(
            s,
            &response("200 OK", "text/html", "<html><title>Login</title></html>"),
        )
    });
    let (lab, kind) = three_failures(&server, 3);
    assert_eq!(kind, "decode");
    assert!(lab.text("out/report.md").contains("text/html"));
}

#[test]
fn a_server_that_never_answers_times_out() {
    let server = Server::start(|_, _| {
        std::thread::sleep(Duration::from_secs(20));
        false
    });
    let began = Instant::now();
    assert_eq!(three_failures(&server, 3).1, "timeout_read");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_stream_that_trickles_for_ever_meets_the_total_timeout() {
    let server = Server::start(|s, _| {
        if !send(s, &stream(&[TOKEN], false)) {
            return false;
        }
        let data = format!("data: {TOKEN}\n\n");
        let chunk = format!("{:x}\r\n{data}\r\n", data.len());
        while send(s, chunk.as_bytes()) {
            std::thread::sleep(Duration::from_millis(300));
        }
        false
    });
    let lab = Lab::new();
    let scenario = plain(&server.url(), 1).replace("total: 5s", "total: 2s");
    lab.run(&scenario).expect(3);
    assert_eq!(
        lab.results()["cases"][0]["counts"]["failures"]["timeout_total"],
        1
    );
}

#[test]
fn heartbeats_do_not_keep_a_dead_reply_alive() {
    let content =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}"#;
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let lines = "{\"message\":{\"content\":\"\"},\"done\":false}\n\n";
    for (api, kind, first, beat) in [
        (
            "openai-chat",
            "text/event-stream",
            format!("data: {TOKEN}\n\n"),
            ": ping\n\n",
        ),
        (
            "anthropic",
            "text/event-stream",
            format!("data: {content}\n\n"),
            ping,
        ),
        (
            "ollama",
            "application/x-ndjson",
            "{\"message\":{\"content\":\"hi\"},\"done\":false}\n".to_owned(),
            lines,
        ),
    ] {
        let server = Server::start(move |s, _| {
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{first}"
            );
            let mut is_open = send(s, head.as_bytes());
            while is_open {
                std::thread::sleep(Duration::from_millis(50));
                is_open = send(s, beat.as_bytes());
            }
            false
        });
        let lab = Lab::new();
        let scenario = plain(&server.url(), 1)
            .replace("model: m,", &format!("model: m, api: {api},"))
            .replace("total: 5s", "event: 500ms, total: 20s")
            + "request: { max_tokens: 4 }\n";
        let ran = lab.run(&scenario).expect(3);
        let failure = &lab.results()["cases"][0]["failures"][0];
        assert_eq!(
            (failure["kind"].as_str(), failure["message"].as_str()),
            (
                Some("timeout_read"),
                Some("no event for 500ms (only heartbeats)")
            ),
            "{api}"
        );
        let help = "raise target.timeouts.event (0.5 s) if healthy replies pause that long";
        assert!(
            ran.words().contains(help) || ran.err.contains(help),
            "{}{}",
            ran.out,
            ran.err
        );
    }
}

#[test]
fn a_server_without_stream_options_is_named_and_the_line_of_the_hint_works() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let bodies = seen.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/v1/chat/completions",
        listener.local_addr().unwrap()
    );
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            while let Some((head, body)) = read_head_and_body(&mut socket) {
                let body = String::from_utf8(body).unwrap();
                let reply = match body.contains("stream_options") {
                    _ if head.starts_with("get ") => response("404 Not Found", "text/plain", ""),
                    true => response(
                        "400 Bad Request",
                        "application/json",
                        r#"{"error":{"message":"property 'stream_options' is unsupported","type":"invalid_request_error"}}"#,
                    ),
                    false => stream(&[TOKEN, TOKEN, TOKEN, FINISH, "[DONE]"], true),
                };
                if !body.is_empty() {
                    bodies.lock().unwrap().push(body);
                }
                if !send(&mut socket, &reply) {
                    break;
                }
            }
        }
    });
    let lab = Lab::new();
    let ran = lab.run(&plain(&url, 3)).expect(3);
    let line = "request.extra: { stream_options: null }";
    let help = format!("help: set {line}, and the server no longer gets the field");
    let printed = format!("{} {}", ran.words(), ran.err);
    assert!(printed.contains(&help), "{printed}");
    assert!(lab.text("out/report.md").contains(line));
    seen.lock().unwrap().clear();
    lab.run(&(plain(&url, 3) + "request: { extra: { stream_options: null } }\n"))
        .expect(0);
    let expected = r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}"#;
    assert_eq!(*seen.lock().unwrap(), [expected; 3]);
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["ok"], 3);
    assert_eq!(
        case["metrics"]["output_tokens"]["mean"], 3.0,
        "{}",
        case["metrics"]
    );
}

#[test]
fn a_reply_of_endless_tokens_is_ended_and_its_events_are_bounded() {
    let server = Server::start(|socket, _| {
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let tokens = format!("data: {TOKEN}\n\n").repeat(400);
        let mut going = send(socket, head.as_bytes());
        while going {
            going = send(socket, tokens.as_bytes());
        }
        false
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 2)).expect(3);
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["failures"]["too_long"], 2, "{case:#}");
    let report = lab.text("out/report.md");
    let why = "the reply has more than 200000 token events, so it was ended";
    assert!(report.contains(why), "{report}");
}

#[test]
fn a_hundred_megabytes_in_one_event_do_not_fill_the_memory() {
    let server = Server::start(|s, _| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"";
        if !send(s, head.as_bytes()) {
            return false;
        }
        let megabyte = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            if !send(s, &megabyte) {
                return false;
            }
        }
        let _ = send(s, b"\"}}]}\n\n");
        false
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 1)).expect(3);
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["failures"]["decode"], 1, "{case:#}");
    let manifest = lab.json("out/manifest.json");
    let peak = manifest["parts"][0]["vitals"]["memory_peak"]
        .as_u64()
        .unwrap();
    // A debug build has about 110 MiB; with the event there would be 100 more.
    assert!(peak < 150 << 20, "{} MiB", peak >> 20);
}

#[test]
fn statuses_have_kinds_and_keep_the_message_of_the_server() {
    for (status, kind) in [
        ("400 Bad Request", "http_4xx"),
        ("429 Too Many Requests", "http_429"),
        ("503 Service Unavailable", "http_5xx"),
    ] {
        let server = Server::start(move |s, _| {
            send(
                s,
                &response(
                    status,
                    "application/json",
                    r#"{"error":{"message":"the very reason"}}"#,
                ),
            )
        });
        let (lab, seen) = three_failures(&server, 3);
        assert_eq!(seen, kind);
        assert!(lab.text("out/report.md").contains("the very reason"));
    }
}

#[test]
fn an_error_inside_a_good_status_is_a_failure() {
    let error = r#"{"error":{"message":"engine died","code":500}}"#;
    let server =
        Server::start(move |s, _| send(s, &stream(&[TOKEN, TOKEN, error, "[DONE]"], true)));
    let (lab, kind) = three_failures(&server, 3);
    assert_eq!(kind, "stream_error");
    assert!(lab.text("out/report.md").contains("engine died"));
}

#[test]
fn a_stream_without_its_end_is_truncated() {
    let quiet = Server::start(|s, _| {
        send(s, &stream(&[TOKEN, TOKEN], false));
        false
    });
    assert_eq!(three_failures(&quiet, 3).1, "truncated");
    let polite = Server::start(|s, _| send(s, &stream(&[TOKEN, TOKEN], true)));
    assert_eq!(three_failures(&polite, 3).1, "truncated");
    let no_reason = Server::start(|s, _| send(s, &stream(&[TOKEN, "[DONE]"], true)));
    assert_eq!(three_failures(&no_reason, 3).1, "truncated");
}

#[test]
fn an_answer_without_content_is_empty() {
    let silent = r#"{"choices":[{"message":{"content":""}}]}"#;
    let server =
        Server::start(move |s, _| send(s, &response("200 OK", "application/json", silent)));
    assert_eq!(three_failures(&server, 3).1, "empty");
}

#[test]
fn garbage_instead_of_http_is_named() {
    let server = Server::start(|s, _| {
        send(s, b"SSH-2.0-OpenSSH_9.2\r\n\r\n");
        false
    });
    assert_eq!(three_failures(&server, 3).1, "decode");
}

#[test]
fn one_good_answer_among_failures_is_a_run_with_an_error_rate() {
    let server = Server::start(|s, n| match n % 4 {
        0 => send(s, &stream(&[TOKEN, FINISH, "[DONE]"], true)),
        1 => send(s, &response("500 Oops", "text/plain", "oops")),
        2 => send(s, &stream(&[TOKEN], true)),
        _ => false,
    });
    let lab = Lab::new();
    let scenario =
        plain(&server.url(), 8).replace("model: m,", "model: m, http: { pool: per-request },");
    lab.run(&scenario).expect(0);
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["ok"], 2);
    assert_eq!(case["counts"]["failures"]["http_5xx"], 2);
    assert_eq!(case["counts"]["failures"]["truncated"], 2);
    assert_eq!(case["counts"]["failures"]["connect"], 2);
    assert_eq!(case["metrics"]["error_rate"], 0.75);
}

#[test]
fn a_kept_alive_connection_that_was_closed_is_opened_again_and_counted() {
    // Answers in full and promises to keep the connection, then closes it, as llama-server does.
    let server = Server::start(|s, _| {
        send(s, &stream(&[TOKEN, FINISH, "[DONE]"], true));
        std::thread::sleep(Duration::from_millis(30));
        false
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 5)).expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 5);
}

#[test]
fn an_unreachable_target_fails_in_seconds_and_says_what_was_tried() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let lab = Lab::new();
    let began = Instant::now();
    let ran = lab
        .run(&plain(&format!("http://{free}/v1/chat/completions"), 1000))
        .expect(3);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(
        ran.err.contains(&format!("{free}: connection refused")),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("tried 3 times"), "{}", ran.err);
    let ran = lab
        .run(&plain(
            &format!("http://u:hunter2@{free}/v1/chat/completions?key=sk-12345"),
            1,
        ))
        .expect(3);
    assert!(
        ran.err.contains("http://u:[redacted]@") && ran.err.contains("?key=[redacted]"),
        "{}",
        ran.err
    );
    assert!(
        !ran.err.contains("hunter2") && !ran.err.contains("sk-12345"),
        "{}",
        ran.err
    );
}

#[test]
fn proxy_variables_never_apply_to_loopback() {
    let server = Server::start(|s, _| send(s, &stream(&[TOKEN, FINISH, "[DONE]"], true)));
    let lab = Lab::new();
    lab.file("s.yaml", plain(&server.url(), 2));
    let proxies = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "https_proxy"]
        .map(|name| (name, "http://127.0.0.1:9"));
    let output = lab
        .command(&["run", "s.yaml", "--output", "out"])
        .envs(proxies)
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 2);
}

#[test]
fn a_target_that_accepts_and_says_nothing_is_given_up_after_one_connect_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let lab = Lab::new();
    let url = format!(
        "https://{}/v1/chat/completions",
        silent.local_addr().unwrap()
    );
    let ran = lab
        .run(&plain(&url, 1).replace("connect: 2s", "connect: 1s"))
        .expect(3);
    let why = format!(
        "no connection within 1s: if {} does not support TLS, use http:// (timeout_connect)",
        silent.local_addr().unwrap()
    );
    assert!(ran.err.contains(&why), "{}", ran.err);
    assert!(ran.err.contains("tried 1 time in"), "{}", ran.err);
}
