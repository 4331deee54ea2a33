//! Lost targets, and requests that all fail in the same way: the run stops with a reason.

use crate::lab::*;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A simulator in a separate process, killed when dropped.
struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a simulator and waits until it answers.
fn simulator(lab: &Lab, port: u16) -> Simulator {
    let started = Simulator(lab.spawn(&["simulate", "--listen", &format!("127.0.0.1:{port}")]));
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "the simulator does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    started
}

fn scenario(port: u16, load: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: \"http://127.0.0.1:{port}/v1/chat/completions\", model: sim }}\n\
         request: {{ max_tokens: 4 }}\ndataset: {{ kind: prompt, text: hello }}\nload: {{ {load} }}\n\
         slo: [\"ttft.p95 < 10s\"]\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n{more}"
    )
}

/// Starts a run, and waits until requests have succeeded.
fn start(lab: &Lab, scenario: &str) -> Child {
    lab.file("s.yaml", scenario);
    let child = lab.spawn(&["run", "s.yaml", "--output", "out"]);
    let journal = lab.path().join("out/journal.bin");
    let began = Instant::now();
    while !std::fs::metadata(&journal).is_ok_and(|file| file.len() > 3000) {
        assert!(began.elapsed() < Duration::from_secs(60), "no journal");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_lost_target_ends_its_case_and_gets_no_further_request() {
    let (lab, port) = (Lab::new(), port());
    let server = simulator(&lab, port);
    let more = "matrix: { load.concurrency: [4, 2] }\n";
    let run = start(
        &lab,
        &scenario(
            port,
            "concurrency: 4, duration: 100s, graceful_stop: 1s",
            more,
        ),
    );
    drop(server);
    let ran = finish(run).expect(3);
    let results = lab.results();
    assert_eq!(results["verdict"], "error");
    let (lost, other) = (&results["cases"][0], &results["cases"][1]);
    let refused = lost["counts"]["failures"]["connect"].as_u64().unwrap();
    // Four users, each with at most 100 failed connections a minute; a run of a few seconds has a few of each.
    assert!((4..=48).contains(&refused), "{refused}");
    assert!(lost["counts"]["ok"].as_u64().unwrap() > 0);
    assert_eq!(
        (&lost["audit"]["valid"], &lost["slo"][0]["verdict"]),
        (&true.into(), &"inconclusive".into()),
        "{lost:#}"
    );
    assert!(
        lost["slo"][0]["note"]
            .as_str()
            .unwrap()
            .starts_with("not judged: target lost after "),
        "{}",
        lost["slo"][0]
    );
    assert_eq!(other["counts"]["scheduled"], 0);
    assert_eq!(other["slo"][0]["note"], "not run: target lost");
    let verdict = ran
        .out
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("`concurrency=4`: "))
        .unwrap();
    let refusal = format!("s: 127.0.0.1:{port}: connection refused (for ");
    assert!(
        verdict.starts_with("`concurrency=4`: target lost after ") && verdict.contains(&refusal),
        "{verdict}"
    );
    assert!(
        verdict.ends_with("; `concurrency=2`: not run: target lost."),
        "{verdict}"
    );
    assert!(
        !ran.out.contains("INVALID") && !ran.out.contains("load generator"),
        "{}",
        ran.out
    );
    lab.llmscen(&["report", "out"]).expect(3);
    assert_eq!(lab.results(), results);
}

#[test]
fn a_target_lost_shortly_before_the_end_is_noticed() {
    let (lab, port) = (Lab::new(), port());
    let server = simulator(&lab, port);
    let began = Instant::now();
    let load = "rate: 40/s, duration: 8s, graceful_stop: 1s";
    let run = start(&lab, &scenario(port, load, ""));
    // Less than 3 s before the end, unless the machine is slow.
    std::thread::sleep(Duration::from_secs(6).saturating_sub(began.elapsed()));
    drop(server);
    let ran = finish(run).expect(3);
    let case = &lab.results()["cases"][0];
    assert!(case["counts"]["failures"]["connect"].as_u64() > Some(0));
    assert!(ran.out.contains("Target lost after "), "{}", ran.out);
    assert!(ran.out.contains("connection refused"), "{}", ran.out);
}

#[test]
fn an_open_loop_drops_what_would_follow() {
    let (lab, port) = (Lab::new(), port());
    let server = simulator(&lab, port);
    let run = start(
        &lab,
        &scenario(port, "rate: 40/s, duration: 100s, graceful_stop: 1s", ""),
    );
    drop(server);
    let ran = finish(run).expect(3);
    let case = &lab.results()["cases"][0];
    assert!(
        case["counts"]["scheduled"].as_u64().unwrap() < 40 * 60,
        "{}",
        case["counts"]
    );
    assert!(ran.out.contains("Target lost after "), "{}", ran.out);
}

#[test]
fn a_server_that_restarts_ends_no_case() {
    let (lab, port) = (Lab::new(), port());
    let server = simulator(&lab, port);
    let run = start(&lab, &scenario(port, "concurrency: 2, duration: 6s", ""));
    drop(server);
    std::thread::sleep(Duration::from_millis(500));
    let _again = simulator(&lab, port);
    let ran = finish(run);
    let counts = &lab.results()["cases"][0]["counts"];
    assert!(
        !ran.out.contains("target lost") && ran.code != 3,
        "{}",
        ran.out
    );
    assert!(
        counts["failures"]["connect"]
            .as_u64()
            .is_some_and(|refused| refused < 20),
        "{counts}"
    );
}

#[test]
fn twenty_equal_client_errors_stop_a_case() {
    for (status, words) in [
        ("401 Unauthorized", "401 (Unauthorized)"),
        ("404 Not Found", "404 (Not Found)"),
        ("302 Found", "302 (Found)"),
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
        let lab = Lab::new();
        let scenario =
            plain(&server.url(), 5000) + "slo: [\"ttft.p95 < 1s\", \"error_rate < 1%\"]\n";
        let ran = lab.run(&scenario).expect(3);
        let sent = server.requests.load(std::sync::atomic::Ordering::SeqCst);
        // The only user sends no further request while results are collected. After a 404, the models are listed, too.
        assert_eq!(
            sent,
            20 + usize::from(status.starts_with("404")),
            "{status}"
        );
        let said = if words.starts_with('3') {
            " help: the server redirects to "
        } else {
            " Server message: the very reason. help: "
        };
        let headline =
            format!("stopped after 20 of 5000 requests: every one failed with HTTP {words}.{said}");
        let headline = headline.replacen('s', "S", 1);
        assert!(ran.words().contains(&headline), "{}", ran.out);
        assert!(lab.text("out/report.html").contains(&headline), "{status}");
        assert!(lab.text("out/report.md").contains("help: "), "{status}");
        let results = lab.results();
        for objective in results["cases"][0]["slo"].as_array().unwrap() {
            assert_eq!(
                objective["note"],
                "not measured: stopped after 20 of 5000 requests"
            );
        }
    }
}

#[test]
fn a_warm_up_that_fails_stops_the_case_with_the_hint() {
    let body = r#"{"error":{"message":"Unauthorized"}}"#;
    let server =
        Server::start(move |s, _| send(s, &response("401 Unauthorized", "application/json", body)));
    let lab = Lab::new();
    let ran = lab
        .run(&plain(&server.url(), 500).replace("requests: 500", "requests: 500, warmup: 30"))
        .expect(3);
    let known = "Stopped after 20 of 530 requests: every one failed with HTTP 401 (Unauthorized). help: the server requires";
    assert!(ran.words().contains(known), "{}", ran.out);
}

#[test]
fn a_search_with_a_lost_server_names_the_probe() {
    let (lab, port) = (Lab::new(), port());
    let server = simulator(&lab, port);
    let more = "search: { vary: load.concurrency, range: [2, 8] }\n";
    let run = start(
        &lab,
        &scenario(port, "concurrency: 2, requests: 20000", more),
    );
    drop(server);
    let ran = finish(run).expect(3);
    let known = "Target lost after ";
    assert!(ran.words().contains(known), "{}", ran.out);
    let case = &lab.results()["cases"][0];
    assert!(
        case["slo"][0]["note"]
            .as_str()
            .is_some_and(|note| note.starts_with("not judged: target lost after ")),
        "{case:#}"
    );
}

#[test]
fn a_run_may_keep_going() {
    let server =
        Server::start(|s, _| send(s, &response("401 Unauthorized", "application/json", "{}")));
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        plain(&server.url(), 60) + "slo: [\"ttft.p95 < 1s\"]\n",
    );
    let ran = lab
        .llmscen(&["run", "s.yaml", "--output", "out", "--keep-going"])
        .expect(3);
    assert_eq!(
        server.requests.load(std::sync::atomic::Ordering::SeqCst),
        60
    );
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (&case["counts"]["scheduled"], &case["slo"][0]["note"]),
        (&60.into(), &"not measured: no request succeeded".into())
    );
    let verdict = "No request succeeded: 60 of 60 in `base` failed with `http_4xx`: 401: ";
    assert!(
        ran.out.contains(verdict) && ran.out.contains("help: the server requires authentication"),
        "{}",
        ran.out
    );
}

/// Answers everything with 404 but the list of models; notes the heads of the questions for it.
fn without_model() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, asked) = (
        listener.local_addr().unwrap().port(),
        Arc::<Mutex<Vec<String>>>::default(),
    );
    let heads = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let heads = heads.clone();
            std::thread::spawn(move || while answer(&stream, &heads).is_some() {});
        }
    });
    (port, asked)
}

fn answer(mut stream: &TcpStream, heads: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let lines = reader
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.is_empty());
    let head = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())?;
    reader.read_exact(&mut vec![0; length]).ok()?;
    let body = r#"{"object":"list","data":[{"id":"qwen2.5-7b"},{"id":"qwen2.5-72b"}]}"#;
    let missing = r#"{"error":{"message":"The model `m` does not exist."}}"#;
    if head.starts_with("get ") {
        heads.lock().unwrap().push(head);
        return send(
            &mut stream.try_clone().ok()?,
            &response("200 OK", "application/json", body),
        )
        .then_some(());
    }
    std::io::Write::write_all(
        &mut stream,
        &response("404 Not Found", "application/json", missing),
    )
    .ok()
}

#[test]
fn a_404_names_the_models_that_the_same_host_serves() {
    let (port, asked) = without_model();
    let lab = Lab::new();
    let url = format!("http://127.0.0.1:{port}/v1/chat/completions");
    let ran = lab
        .run(&plain(&url, 3).replace("model: m,", "model: m, api_key: sk-12345,"))
        .expect(3);
    let hint =
        "help: served models: qwen2.5-7b, qwen2.5-72b (from GET /v1/models); set target.model";
    assert!(ran.out.contains(hint), "{}", ran.out);
    let heads = asked.lock().unwrap().clone();
    assert_eq!(heads.len(), 1, "asked once");
    assert!(
        heads[0].starts_with("get /v1/models http/1.1")
            && heads[0].contains("authorization: bearer sk-12345"),
        "{heads:?}"
    );
    lab.llmscen(&["report", "out"]).expect(3);
    assert!(
        lab.text("out/report.md")
            .contains("served models: qwen2.5-7b, qwen2.5-72b")
    );
}
