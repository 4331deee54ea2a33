//! What HTTP, TLS and proxies do that is neither a good reply nor a plain failure, and the words for it.

use crate::lab::*;
use crate::tls::serve_tls;
use rcgen::{CertificateParams, date_time_ymd};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// The failures of the one case, by kind, and the message of the most frequent one.
fn failures(lab: &Lab) -> (serde_json::Value, String) {
    let case = &lab.results()["cases"][0];
    (
        case["counts"]["failures"].clone(),
        case["failures"][0]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    )
}

#[test]
fn a_redirect_is_a_failure_and_is_not_followed() {
    let second = TcpListener::bind("127.0.0.1:0").unwrap();
    second.set_nonblocking(true).unwrap();
    let address = second.local_addr().unwrap();
    let first = Server::start(move |s, _| {
        let location = format!("http://user:hunter2@{address}/v1/chat/completions?token=t0k3n");
        send(s, format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").as_bytes())
    });
    let lab = Lab::new();
    lab.run(&plain(&first.url(), 3).replace("model: m,", "model: m, api_key: sk-12345678,"))
        .expect(3);
    let (kinds, message) = failures(&lab);
    assert_eq!(kinds, serde_json::json!({ "http_3xx": 3 }));
    let location = format!("http://[redacted]@{address}/v1/chat/completions?[redacted]");
    assert_eq!(
        message,
        format!("307: the server redirects to {location}; redirects are not followed")
    );
    assert!(lab.text("out/report.md").contains("http_3xx"));
    assert_eq!(
        second.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "the second server was contacted"
    );
}

#[test]
fn a_status_that_http_does_not_have_is_unreadable() {
    let server = Server::start(|s, _| {
        send(
            s,
            &response("600 Odd", "application/json", r#"{"error":"the reason"}"#),
        )
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 1)).expect(3);
    let (kinds, message) = failures(&lab);
    assert_eq!(
        (kinds["decode"].as_u64(), message.as_str()),
        (Some(1), "600 is not an HTTP status: the reason")
    );
}

/// A server that keeps the first line of each request.
fn noting() -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, lines) = (
        listener.local_addr().unwrap(),
        Arc::new(Mutex::new(Vec::new())),
    );
    let kept = lines.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut line = Vec::new();
            let mut byte = [0];
            while !line.ends_with(b"\r\n")
                && std::io::Read::read(&mut socket, &mut byte).is_ok_and(|read| read > 0)
            {
                line.push(byte[0]);
            }
            if line.is_empty() || read_request(&mut socket).is_none() {
                continue;
            }
            kept.lock()
                .unwrap()
                .push(String::from_utf8(line).unwrap().trim_end().to_owned());
            let close = stream(&[TOKEN, FINISH, "[DONE]"], true);
            send(&mut socket, &close);
        }
    });
    (address, lines)
}

#[test]
fn a_base_url_is_completed_and_every_place_shows_the_result() {
    let (address, lines) = noting();
    let lab = Lab::new();
    let scenario = plain(&format!("http://{address}/v1/"), 1);
    let whole = format!("http://{address}/v1/chat/completions");
    let note = format!("target.url completed to {whole}");
    let ran = lab.run(&scenario).expect(0);
    // After the measurement the server is asked for its engine and version.
    assert_eq!(
        *lines.lock().unwrap(),
        [
            "POST /v1/chat/completions HTTP/1.1",
            "GET /v1/models HTTP/1.1",
            "GET /version HTTP/1.1",
            "GET /api/version HTTP/1.1",
        ]
    );
    for err in [
        ran.err,
        lab.llmscen(&["validate", "s.yaml"]).expect(0).err,
        lab.llmscen(&["plan", "s.yaml"]).expect(0).err,
    ] {
        assert_eq!(err.matches(&note).count(), 1, "{err}");
        assert!(err.contains("note: s.yaml:3:"), "{err}");
    }
    assert_eq!(lab.results()["targets"], serde_json::json!({ &whole: "" }));
    assert!(
        lab.text("out/report.md").contains(&whole) && lab.text("out/plan.yaml").contains(&whole)
    );
    assert!(
        !lab.llmscen(&["report", "out"])
            .expect(0)
            .err
            .contains("completed")
    );
}

#[test]
fn a_stream_that_the_server_ignores_is_noted_once_and_no_ttft_is_invented() {
    let body = r#"{"choices":[{"message":{"content":"hi there"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
    let server = Server::start(move |s, _| send(s, &response("200 OK", "application/json", body)));
    let lab = Lab::new();
    let matrix = "matrix: { load.concurrency: [1, 2] }\n";
    let ran = lab.run(&(plain(&server.url(), 4) + matrix)).expect(0);
    let note = "the server ignored stream: true; TTFT, ITL and TPOT are unavailable";
    assert_eq!(
        ran.err.matches(&format!("note: {note}")).count(),
        1,
        "{}",
        ran.err
    );
    assert_eq!(lab.text("out/report.md").matches(note).count(), 1);
    let results = lab.results();
    assert_eq!(
        results["notes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|told| *told == note)
            .count(),
        1
    );
    for case in results["cases"].as_array().unwrap() {
        assert_eq!(case["counts"]["ok"], 4);
        for metric in ["ttft_ms", "tpot_ms", "itl_ms"] {
            assert!(
                case["metrics"][metric].is_null(),
                "{metric}: {}",
                case["metrics"]
            );
        }
        assert_eq!(case["metrics"]["output_tokens"]["mean"], 2.0);
    }
    let unasked = plain(&server.url(), 2) + "request: { stream: false }\n";
    assert!(!lab.run(&unasked).expect(0).err.contains("ignored"));
}

#[test]
fn an_instant_stop_is_a_success_without_tokens() {
    let silent = r#"{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}"#;
    let server = Server::start(move |s, n| match n {
        0 => send(s, &response("200 OK", "application/json", silent)),
        1..4 => send(s, &stream(&[FINISH, "[DONE]"], true)),
        _ => send(s, &stream(&[TOKEN, FINISH, "[DONE]"], true)),
    });
    let lab = Lab::new();
    let ran = lab.run(&plain(&server.url(), 5)).expect(0);
    let note = "note: 4 replies had no content (finish reason: stop)";
    assert_eq!(ran.err.matches(note).count(), 1, "{}", ran.err);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (
            case["counts"]["ok"].as_u64(),
            case["counts"]["failed"].as_u64()
        ),
        (Some(5), Some(0))
    );
    let tokens = &case["metrics"]["output_tokens"];
    assert_eq!(
        (&tokens["n"], &tokens["min"], &tokens["max"]),
        (&5.into(), &0.0.into(), &1.0.into())
    );
    assert_eq!(case["metrics"]["ttft_ms"]["n"], 1);
    assert!(case["metrics"]["tpot_ms"].is_null());
}

#[test]
fn certificates_are_refused_in_words() {
    let lab = Lab::new();
    let names = |names: &[&str]| {
        CertificateParams::new(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap()
    };
    let mut expired = names(&["localhost"]);
    expired.not_after = date_time_ymd(2001, 1, 1);
    for (params, tls, words) in [
        (
            names(&["localhost"]),
            "insecure: false",
            "is signed by an unknown authority: set target.tls.ca",
        ),
        (
            expired,
            "ca: ca.pem",
            "has expired: renew it, or check the clock of this host",
        ),
        (
            names(&["other.example"]),
            "ca: ca.pem",
            "names other.example, not localhost: use a name of the certificate in target.url",
        ),
    ] {
        let address = serve_tls(&lab, params, 9);
        let url = format!("https://localhost:{}/v1/chat/completions", address.port());
        let ran = lab
            .run(&plain(&url, 1).replace("model: m,", &format!("model: m, tls: {{ {tls} }},")))
            .expect(3);
        assert!(
            ran.err
                .contains(&format!("the certificate of localhost {words} (tls)")),
            "{}",
            ran.err
        );
    }
}

#[test]
fn plain_http_and_tls_at_the_wrong_port_are_named() {
    let lab = Lab::new();
    let address = serve_tls(
        &lab,
        CertificateParams::new(vec!["localhost".into()]).unwrap(),
        9,
    );
    lab.run(&plain(&format!("http://{address}/v1/chat/completions"), 2))
        .expect(3);
    assert_eq!(
        failures(&lab),
        (
            serde_json::json!({ "tls": 2 }),
            format!("{address} uses TLS: use https://")
        )
    );
    let answering = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = answering.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in answering.incoming().flatten() {
            let _ = std::io::Read::read(&mut socket, &mut [0; 64]);
            send(
                &mut socket,
                &response("400 Bad Request", "text/plain", "no"),
            );
        }
    });
    let ran = lab
        .run(&plain(&format!("https://{address}/v1/chat/completions"), 1))
        .expect(3);
    assert!(
        ran.err.contains(&format!(
            "{address} does not support TLS: use http:// (tls)"
        )),
        "{}",
        ran.err
    );
}

#[test]
fn a_server_that_closes_without_an_answer_is_not_taken_for_tls() {
    let server = Server::start(|_, _| false);
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 2)).expect(3);
    let (kinds, message) = failures(&lab);
    assert_eq!(kinds, serde_json::json!({ "connect": 2 }));
    assert!(
        message.starts_with("the server closed the connection before it responded"),
        "{message}"
    );
}

#[test]
fn a_dead_proxy_is_named_and_not_the_target() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let lab = Lab::new();
    lab.file("s.yaml", plain("http://llm.example/v1/chat/completions", 1));
    let mut command = lab.command(&["run", "s.yaml", "--output", "out"]);
    let ran = Ran::of(
        command
            .env("HTTP_PROXY", format!("http://user:hunter2@{free}"))
            .output()
            .unwrap(),
    )
    .expect(3);
    let words =
        format!("cannot connect to the proxy http://{free} (from HTTP_PROXY): connection refused");
    assert!(
        ran.err.contains(&words) && !ran.err.contains("hunter2"),
        "{}",
        ran.err
    );
}
