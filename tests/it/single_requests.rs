//! Single requests as a user sees them: texts that arrive unchanged, `try`, and stored bodies.

use crate::lab::*;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A server that keeps the bodies that it receives.
fn recorder() -> (Server, Arc<Mutex<Vec<Vec<u8>>>>) {
    use std::io::{BufRead, BufReader, Read};
    let kept: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        addr: listener.local_addr().unwrap(),
        requests: Arc::default(),
    };
    let bodies = kept.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let bodies = bodies.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut writer = stream;
                loop {
                    let mut length = 0;
                    loop {
                        let mut line = String::new();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        if line == "\r\n" {
                            break;
                        }
                    }
                    let mut body = vec![0; length];
                    reader.read_exact(&mut body).unwrap();
                    // A GET asks for the engine and its version.
                    if !body.is_empty() {
                        bodies.lock().unwrap().push(body);
                    }
                    if !send(&mut writer, &stream_of_one()) {
                        return;
                    }
                }
            });
        }
    });
    (server, kept)
}

fn stream_of_one() -> Vec<u8> {
    stream(&[TOKEN, FINISH, "[DONE]"], true)
}

/// The bodies of requests of this dataset, as received.
fn arrived(lab: &Lab, dataset: &str, requests: u32) -> Vec<Vec<u8>> {
    let (server, kept) = recorder();
    let text = plain(&server.url(), requests).replace("{ kind: prompt, text: hello }", dataset);
    lab.run(&text).expect(0);
    kept.lock().unwrap().clone()
}

/// The body of a chat with one message, byte for byte.
fn chat(template: &[u8], from: &str, to: &str) -> Vec<u8> {
    let quoted = |text: &str| Value::from(text).to_string();
    String::from_utf8(template.to_vec())
        .unwrap()
        .replace(&quoted(from), &quoted(to))
        .into_bytes()
}

#[test]
fn texts_from_files_arrive_byte_for_byte() {
    let lab = Lab::new();
    let template = arrived(&lab, "{ kind: prompt, text: MARK }", 1).remove(0);
    let expected = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| chat(&template, "MARK", text))
            .collect::<Vec<_>>()
    };
    let spaced = [
        "  two  words  ",
        "\ttab\t",
        " {not json",
        "\u{a0}wide\u{3000}",
        "last ",
    ];

    lab.file(
        "lines.txt",
        format!(
            "{}\r\n \n{}\n{}\n\n{}\n{}",
            spaced[0], spaced[1], spaced[2], spaced[3], spaced[4]
        ),
    );
    assert_eq!(
        arrived(&lab, "{ kind: line_by_line, path: lines.txt }", 5),
        expected(&spaced)
    );

    let rows = [" a \n", "\n\nb", "\r\n c\t"];
    for (kind, column) in [
        ("rows", "prompt"),
        ("openqa", "question"),
        ("longalpaca", "instruction"),
    ] {
        lab.file(
            "rows.jsonl",
            rows.map(|text| format!("  {} \r\n", json!({ (column): text })))
                .concat(),
        );
        assert_eq!(
            arrived(&lab, &format!("{{ kind: {kind}, path: rows.jsonl }}"), 3),
            expected(&rows),
            "{kind}"
        );
    }
    lab.file(
        "rows.json",
        json!(rows.map(|text| json!({ "prompt": text }))).to_string(),
    );
    assert_eq!(
        arrived(&lab, "{ kind: rows, path: rows.json }", 3),
        expected(&rows)
    );
    lab.file(
        "rows.csv",
        format!(
            "prompt,id\n\"{}\",1\n\"{}\",2\n plain ,3\n",
            rows[0], rows[1]
        ),
    );
    assert_eq!(
        arrived(&lab, "{ kind: rows, path: rows.csv }", 3),
        expected(&[rows[0], rows[1], " plain "])
    );
    lab.file(
        "talks.jsonl",
        rows.map(|text| {
            format!(
                "{}\n",
                json!({ "conversations": [{ "from": "human", "value": text }] })
            )
        })
        .concat(),
    );
    assert_eq!(
        arrived(&lab, "{ kind: sharegpt, path: talks.jsonl }", 3),
        expected(&rows)
    );

    lab.file("prompt.txt", "\n  a prompt\nof lines \n\n");
    assert_eq!(
        arrived(&lab, "{ kind: prompt, text: \"@prompt.txt\" }", 1),
        expected(&["\n  a prompt\nof lines \n\n"])
    );
}

#[test]
fn a_template_keeps_its_last_line_end() {
    let lab = Lab::new();
    let (server, kept) = recorder();
    let template = "request: { template: { model: \"%m\", messages: [{ role: user, content: \"Q: %p\\n\" }], stream: true } }\n";
    lab.run(&(plain(&server.url(), 1) + template)).expect(0);
    let body: Value = serde_json::from_slice(&kept.lock().unwrap()[0]).unwrap();
    assert_eq!(body["messages"][0]["content"], "Q: hello\n");
}

#[test]
fn try_shows_the_exchange_and_hides_secrets() {
    let lab = Lab::new();
    let server = Server::start(|stream, _| send(stream, &stream_of_one()));
    let target = format!(
        "{{ url: \"{}\", api_key: sk-secret-1, headers: {{ X-Team: red }},",
        server.url()
    );
    let text = plain(&server.url(), 50).replace(&format!("{{ url: \"{}\",", server.url()), &target);
    lab.file("s.yaml", text);
    let ran = lab
        .llmscen(&["try", "s.yaml", "--set", "target.model=other"])
        .expect(0);
    let out = ran.out;
    assert_eq!(
        server.requests.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "one request was sent"
    );
    assert!(
        out.starts_with(&format!("POST {}\n", server.url())),
        "{out}"
    );
    for part in [
        "  authorization: Bearer [redacted]\n",
        "  x-team: [redacted]\n",
        "  content-type: application/json\n",
        "  \"model\": \"other\",\n",
        "HTTP/1.1 200 OK  (after ",
        "  content-type: text/event-stream\n",
        &format!(" ms  data: {TOKEN}\n"),
        " ms  data: [DONE]\n",
        "text:\nhi\n\nok, TTFT ",
        "1 token event in ",
        "finish reason stop\n",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    assert!(
        !out.contains("sk-secret-1") && !out.contains("red\n"),
        "{out}"
    );
    assert!(
        !lab.path().join("reports").exists(),
        "nothing is left behind"
    );
}

#[test]
fn try_reports_a_failure_with_exit_code_3() {
    let lab = Lab::new();
    let refusal = response(
        "404 Not Found",
        "application/json",
        r#"{"error":{"message":"no such model"}}"#,
    );
    let server = Server::start(move |stream, _| send(stream, &refusal));
    lab.file("s.yaml", plain(&server.url(), 3));
    let ran = lab.llmscen(&["try", "s.yaml"]).expect(3);
    assert!(
        ran.out.contains("HTTP/1.1 404 Not Found")
            && ran.out.contains("\"message\": \"no such model\""),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("\nfailed (http_4xx), end "), "{}", ran.out);
    assert!(
        ran.err
            .contains("error: the request failed: 404: no such model"),
        "{}",
        ran.err
    );

    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lab.file(
        "s.yaml",
        plain(&format!("http://{gone}/v1/chat/completions"), 3),
    );
    let ran = lab.llmscen(&["try", "s.yaml"]).expect(3);
    assert!(
        ran.out.contains(&format!("POST http://{gone}/v1"))
            && ran.out.contains("\"content\": \"hello\""),
        "{}",
        ran.out
    );
    assert!(
        ran.out.contains("\nfailed (connect), end ") && !ran.out.contains("HTTP/1.1"),
        "{}",
        ran.out
    );
    assert!(
        ran.err.contains("error: the request failed: "),
        "{}",
        ran.err
    );
}

#[test]
fn try_says_what_to_do_about_a_failure() {
    let lab = Lab::new();
    let page = "<html>log in</html>";
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nlocation: https://u:p4ss@b.example/v1?token=t0k\r\ncontent-length: 0\r\n\r\n";
    let answer = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}"#;
    for (reply, code, words) in [
        (
            response("401 Unauthorized", "application/json", "{}"),
            3,
            "help: the server requires authentication; set target.api_key",
        ),
        (redirect.into(), 3, "help: the server redirects to https://"),
        (
            response("200 OK", "text/html", page),
            3,
            "help: this is a web page, not an API; check host and path in target.url",
        ),
        (
            response("200 OK", "application/json", answer),
            0,
            "note: the server ignored stream: true; TTFT, ITL and TPOT are unavailable",
        ),
    ] {
        let page_came = reply.ends_with(page.as_bytes());
        let server = Server::start(move |stream, _| send(stream, &reply));
        lab.file("s.yaml", plain(&server.url(), 3));
        let ran = lab.llmscen(&["try", "s.yaml"]).expect(code);
        assert!(ran.err.contains(words), "{}", ran.err);
        assert_eq!(
            ran.out.contains(&format!("\n\n{page}\n\n")),
            page_came,
            "{}",
            ran.out
        );
        let both = ran.out + &ran.err;
        assert!(!both.contains("p4ss") && !both.contains("t0k"), "{both}");
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    lab.file(
        "s.yaml",
        plain(&format!("http://{gone}/v1/chat/completions"), 3),
    );
    let err = lab.llmscen(&["try", "s.yaml"]).expect(3).err;
    assert!(
        err.contains(
            "connection refused (connecting)\n  help: start the server, or fix `target.url`"
        ),
        "{err}"
    );
}

#[test]
fn try_names_the_models_that_are_served() {
    let lab = Lab::new();
    let refusal = response(
        "404 Not Found",
        "application/json",
        r#"{"error":{"message":"The model `m` does not exist"}}"#,
    );
    let list = response(
        "200 OK",
        "application/json",
        r#"{"object":"list","data":[{"id":"qwen2.5"}]}"#,
    );
    let server = Server::start(move |stream, number| {
        send(stream, if number == 0 { &refusal } else { &list })
    });
    lab.file("s.yaml", plain(&server.url(), 3));
    let err = lab.llmscen(&["try", "s.yaml"]).expect(3).err;
    assert!(
        err.contains("help: served models: qwen2.5 (from GET /v1/models); set target.model"),
        "{err}"
    );
}

#[test]
fn try_hides_a_key_that_the_reply_repeats() {
    let lab = Lab::new();
    let answer = r#"{"choices":[{"message":{"content":"the key is sk-secret-1","reasoning":"sk-secret-1"},"finish_reason":"stop"}]}"#;
    let server = Server::start(move |stream, _| {
        send(stream, &response("200 OK", "application/json", answer))
    });
    let target = format!("{{ url: \"{}\", api_key: sk-secret-1,", server.url());
    lab.file(
        "s.yaml",
        plain(&server.url(), 3).replace(&format!("{{ url: \"{}\",", server.url()), &target),
    );
    let out = lab.llmscen(&["try", "s.yaml"]).expect(0).out;
    assert!(
        out.contains("text:\nthe key is [redacted]\n") && !out.contains("sk-secret-1"),
        "{out}"
    );
}

#[test]
fn try_works_with_every_protocol_of_the_simulator() {
    let lab = Lab::new();
    for (api, dataset, text) in [
        ("openai-chat", "{ kind: openqa, path: builtin }", true),
        (
            "openai-completions",
            "{ kind: openqa, path: builtin }",
            true,
        ),
        ("openai-responses", "{ kind: openqa, path: builtin }", true),
        ("anthropic", "{ kind: openqa, path: builtin }", true),
        ("dashscope", "{ kind: openqa, path: builtin }", true),
        ("ollama", "{ kind: openqa, path: builtin }", true),
        ("tgi", "{ kind: openqa, path: builtin }", true),
        (
            "openai-embeddings",
            "{ kind: embeddings, path: builtin }",
            false,
        ),
        ("rerank", "{ kind: rerank, path: builtin }", false),
    ] {
        let tokens = if text {
            "request: { max_tokens: 5 }\n"
        } else {
            ""
        };
        lab.file(
            "s.yaml",
            format!(
                "version: 1\nname: t\ntarget: {{ url: simulator, api: {api}, model: m }}\n{tokens}dataset: {dataset}\n\
                 load: {{ concurrency: 1, requests: 2 }}\n"
            ),
        );
        let out = lab.llmscen(&["try", "s.yaml"]).expect(0).out;
        assert!(
            out.contains("HTTP/1.1 200 OK") && out.contains("\nok, "),
            "{api}: {out}"
        );
        assert_eq!(
            out.contains("text:\n") && out.contains("ok, TTFT "),
            text,
            "{api}: {out}"
        );
        if text {
            let streamed = out
                .lines()
                .filter(|line| line.trim_start().split_once(" ms  ").is_some())
                .count();
            assert!(streamed >= 5, "{api}: {out}");
            let out = lab
                .llmscen(&["try", "s.yaml", "--set", "request.stream=false"])
                .expect(0)
                .out;
            assert!(
                out.contains("text:\n") && out.contains("\nok, end ") && !out.contains("TTFT"),
                "{api}: {out}"
            );
        }
    }
}

#[test]
fn try_takes_the_case_that_is_named() {
    let lab = Lab::new();
    let text = "version: 1\nname: t\ntarget: { url: simulator, model: m }\ndataset: { kind: prompt, text: hello }\n\
                load: { concurrency: 1, requests: 2 }\nmatrix: { request.max_tokens: [3, 4] }\n";
    lab.file("s.yaml", text);
    let tokens = |args: &[&str]| {
        let out = lab
            .llmscen(&[&["try", "s.yaml"], args].concat())
            .expect(0)
            .out;
        out.lines()
            .find(|line| line.contains("\"max_"))
            .map(|line| line.trim().to_owned())
            .unwrap()
    };
    assert!(tokens(&[]).ends_with("3,") || tokens(&[]).ends_with('3'));
    assert!(tokens(&["--case", "max_tokens=4"]).contains(": 4"));
    assert!(tokens(&["--only", "=4"]).contains(": 4"));
    let err = lab
        .llmscen(&["try", "s.yaml", "--case", "max_tokens=5"])
        .expect(2)
        .err;
    assert!(
        err.contains("no case has the id `max_tokens=5`; available: max_tokens=3  max_tokens=4"),
        "{err}"
    );
}

#[test]
fn try_starts_and_stops_a_managed_server() {
    let lab = Lab::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let target = |command: &str| {
        format!(
            "version: 1\nname: t\ntarget:\n  url: \"http://127.0.0.1:{port}/v1/chat/completions\"\n  model: m\n  server: \
             {{ command: {command}, ready: {{ url: \"http://127.0.0.1:{port}/health\", timeout: 60s }} }}\nrequest: {{ max_tokens: 4 }}\n\
             dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: 2 }}\n"
        )
    };
    lab.file(
        "s.yaml",
        target(&format!(
            "[llmscen, simulate, --listen, \"127.0.0.1:{port}\"]"
        )),
    );
    let ran = lab.llmscen(&["try", "s.yaml"]).expect(0);
    assert!(
        ran.out.contains("\nok, TTFT ") && ran.err.contains("starting the server"),
        "{}{}",
        ran.out,
        ran.err
    );
    std::net::TcpListener::bind(("127.0.0.1", port)).expect("the server is gone");
    lab.file("s.yaml", target("[sh, -c, \"echo no model; exit 3\"]"));
    let err = lab.llmscen(&["try", "s.yaml"]).expect(3).err;
    assert!(err.contains("no model"), "{err}");
}

#[cfg(feature = "local")]
#[test]
fn try_prints_text_and_times_of_a_local_model() {
    let lab = Lab::new();
    // A static batch would wait for more requests than the one that is sent.
    for load in [
        "concurrency: 1, requests: 8",
        "static: { batch: 4, rounds: 2 }",
    ] {
        lab.file(
            "s.yaml",
            format!(
                "version: 1\nname: own\ntarget: {{ api: local, model: \"random:tiny\", local: {{ dtype: f32, threads: 1 }} }}\n\
                 request: {{ max_tokens: 6, ignore_eos: true }}\ndataset: {{ kind: random, tokens: 24 }}\nload: {{ {load} }}\n"
            ),
        );
        let out = lab.llmscen(&["try", "s.yaml"]).expect(0).out;
        assert!(
            out.contains("text:\n")
                && out.contains("\nok, TTFT ")
                && out.contains("6 token events in "),
            "{out}"
        );
        assert!(
            out.contains("usage: 24 prompt + 6 output tokens") && !out.contains("POST"),
            "{out}"
        );
    }
}

/// A run of which every third request fails, its bodies kept so.
fn kept(lab: &Lab, bodies: &str) {
    let refusal = response(
        "400 Bad Request",
        "application/json",
        r#"{"error":{"message":"bad \u001b[2J"}}"#,
    );
    let server = Server::start(move |stream, number| {
        send(
            stream,
            &if number % 3 == 2 {
                refusal.clone()
            } else {
                stream_of_one()
            },
        )
    });
    lab.run(&format!(
        "{}report: {{ formats: [json], bodies: {bodies} }}\n",
        plain(&server.url(), 9)
    ));
}

#[test]
fn stored_bodies_are_listed_and_printed() {
    let lab = Lab::new();
    kept(&lab, "all");
    let out = lab.llmscen(&["bodies", "out", "--seq", "1"]).expect(0).out;
    assert!(
        out.starts_with("request 1 of `base`, round 0: ok, HTTP 200\nsent at "),
        "{out}"
    );
    assert!(
        out.contains("\nrequest body (")
            && out.contains("\n      \"content\": \"hello\"\n")
            && out.contains("\nresponse body ("),
        "{out}"
    );
    assert!(
        out.contains(&format!(
            "data: {TOKEN}\n\ndata: {FINISH}\n\ndata: [DONE]\n"
        )),
        "{out}"
    );

    let out = lab.llmscen(&["bodies", "out", "--seq", "2"]).expect(0).out;
    assert!(
        out.contains("http_4xx, HTTP 400\nerror: 400: bad ")
            && out.contains("\"message\": \"bad \\u001b[2J\""),
        "{out}"
    );

    let listed = |args: &[&str]| {
        let out = lab.llmscen(&[&["bodies", "out"], args].concat()).expect(0);
        let seqs = out
            .out
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().nth(2).unwrap().to_owned());
        (seqs.collect::<Vec<_>>().join(" "), out.err)
    };
    assert_eq!(listed(&[]).0, "0 1 2 3 4 5 6 7 8");
    assert_eq!(listed(&["--failed"]).0, "2 5 8");
    let (seqs, err) = listed(&["--failed", "--limit", "2"]);
    assert_eq!(
        (seqs.as_str(), err.trim()),
        ("2 5", "1 more; show all with --limit 3")
    );
    let err = lab.llmscen(&["bodies", "out", "--seq", "99"]).expect(2).err;
    assert!(
        err.contains(
            "no bodies of request 99 match the flags in out; list all 9 with: llmscen bodies out"
        ),
        "{err}"
    );
    let err = lab.llmscen(&["bodies", "out", "--case", "x"]).expect(2).err;
    assert!(err.contains("no bodies of case `x`"), "{err}");
    std::fs::remove_file(lab.path().join("out/requests.db")).unwrap();
    let err = lab.llmscen(&["bodies", "out"]).expect(2).err;
    assert!(
        err.contains("no bodies in out: its requests.db is missing or empty"),
        "{err}"
    );
}

#[test]
fn failed_keeps_the_bodies_of_failed_requests_alone() {
    let lab = Lab::new();
    kept(&lab, "failed");
    let out = lab.llmscen(&["bodies", "out"]).expect(0).out;
    let seqs: Vec<&str> = out
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(2).unwrap())
        .collect();
    assert_eq!(seqs, ["2", "5", "8"]);
}

#[test]
fn bodies_says_what_to_do_where_there_are_none() {
    let lab = Lab::new();
    kept(&lab, "none");
    let err = lab.llmscen(&["bodies", "out", "--seq", "1"]).expect(2).err;
    assert!(
        err.contains("no bodies in out; set `report.bodies: failed`"),
        "{err}"
    );
    let err = lab.llmscen(&["bodies", "nowhere"]).expect(2).err;
    assert!(
        err.contains("nowhere is not a run folder: it does not exist"),
        "{err}"
    );
}

#[test]
fn events_per_reply_is_a_metric_of_reports_and_objectives() {
    let lab = Lab::new();
    let server = Server::start(|stream_, _| {
        send(
            stream_,
            &stream(&[TOKEN, TOKEN, TOKEN, FINISH, "[DONE]"], true),
        )
    });
    let slo = "slo: [\"events_per_reply.p50 >= 3\", \"events_per_reply.max <= 3\"]\nreport: { formats: [md, html] }\n";
    lab.run(&(plain(&server.url(), 40) + slo)).expect(0);
    let seen = &lab.results()["cases"][0]["metrics"]["events_per_reply"];
    assert_eq!(
        (&seen["n"], &seen["mean"], &seen["max"]),
        (&json!(40), &json!(3.0), &json!(3.0))
    );
    assert!(lab.text("out/report.md").contains("| `events_per_reply` |"));
}
