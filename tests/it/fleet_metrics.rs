//! Metrics pages of several workers, and queries of a Prometheus server.

use crate::lab::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A worker of the tests: `llmscen simulate` in a process of its own.
struct Worker {
    child: Child,
    port: u16,
}

impl Worker {
    fn start(lab: &Lab) -> Worker {
        let port = port();
        let listen = format!("127.0.0.1:{port}");
        let child = lab.spawn(&["simulate", "--listen", &listen]);
        Worker { child, port }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn page(&self, more: &str) -> String {
        let address = self.address();
        format!("{{ url: 'http://{address}/metrics', interval: 50ms{more} }}")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A scenario whose requests go to a worker. The limits of the self-audit do not depend on the machine.
fn scenario(worker: &Worker, metrics: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: 'http://{}/v1/chat/completions', model: sim, ready: {{ url: /health, timeout: 60s }}, \
         metrics: [{metrics}] }}\n\
         request: {{ max_tokens: 20 }}\ndataset: {{ kind: prompt, text: hi }}\nload: {{ concurrency: 2, requests: 20 }}\n\
         telemetry: {{ gpu: false }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1%, idle: 100%, stalled: 100% }}\n{more}",
        worker.address()
    )
}

fn of(list: &Value, key: &str) -> Vec<Value> {
    let list = list.as_array().unwrap();
    list.iter().map(|item| item[key].clone()).collect()
}

#[test]
fn workers_are_shown_by_role_and_an_idle_one_invalidates_the_case() {
    let lab = Lab::new();
    let [prefill, busy, idle] = [0; 3].map(|_| Worker::start(&lab));
    let pages = [
        busy.page(", role: decode, gpus: 4"),
        idle.page(", role: decode, gpus: 4"),
        prefill.page(", role: prefill, gpus: 2"),
    ];
    let slo = "slo:\n\
        \x20 - server.output_tps.mean > 0\n\
        \x20 - server{role=decode}.running.max <= 2\n\
        \x20 - server{role=prefill}.output_tps.max <= 0\n\
        \x20 - server[\"vllm:num_requests_running\"]{role=decode}.max >= 1\n\
        \x20 - server[\"vllm:num_requests_running\"]{role=prefill}.max < 1\n";
    lab.file("s.yaml", scenario(&busy, &pages.join(", "), slo));
    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(4);
    let case = &lab.results()["cases"][0];
    let telemetry = &case["telemetry"];
    let (workers, roles) = (&telemetry["workers"], &telemetry["roles"]);
    let addresses = [busy.address(), idle.address(), prefill.address()];
    let mut decode = [(addresses[0].as_str(), 400.0), (&addresses[1], 0.0)];
    decode.sort_by_key(|(address, _)| address.to_owned());
    let expected: Vec<Value> = decode.iter().map(|(address, _)| json!(address)).collect();
    assert_eq!(
        of(workers, "worker"),
        [&expected[..], &[json!(addresses[2])]].concat()
    );
    assert_eq!(of(workers, "role"), ["decode", "decode", "prefill"]);
    let generated: Vec<Value> = decode.iter().map(|(_, tokens)| json!(tokens)).collect();
    assert_eq!(
        of(workers, "generated_tokens"),
        [&generated[..], &[json!(0.0)]].concat()
    );
    assert_eq!(of(roles, "role"), ["decode", "prefill"]);
    assert_eq!(of(roles, "workers"), [2, 1]);
    assert_eq!(of(roles, "gpus"), [8, 2]);
    assert_eq!(of(roles, "output_imbalance"), [json!(2.0), Value::Null]);
    let [decode_tps, prefill_tps] = [0, 1].map(|at| roles[at]["output_tps"].as_f64().unwrap());
    assert_eq!(
        telemetry["server.output_tps"]["mean"],
        json!(decode_tps),
        "the sum of all"
    );
    assert_eq!(prefill_tps, 0.0);
    assert_eq!(roles[0]["output_tps_per_gpu"], json!(decode_tps / 8.0));
    assert_eq!(
        case["metrics"]["output_tps_per_gpu"].as_f64().unwrap(),
        case["metrics"]["output_tps"].as_f64().unwrap() / 10.0,
        "the GPUs of all roles"
    );
    let reason = format!(
        "1 of the 2 workers with the role decode generated no token ({})",
        addresses[1]
    );
    let known = case["audit"]["reasons"][0].as_str().unwrap();
    assert!(known.ends_with(&reason), "{known}");
    assert!(
        ran.out.contains("did not measure all of the server"),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .contains("workers  2 decode (imbalance 2), 1 prefill"),
        "{}",
        ran.out
    );
    let observed = |at: usize| case["slo"][at]["observed"].clone();
    assert_eq!(
        [1, 2, 3, 4].map(observed),
        [json!(2.0), json!(0.0), json!(2.0), json!(0.0)]
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("## Workers") && lab.text("out/report.html").contains("<h3>Workers</h3>")
    );
    lab.llmscen(&["report", "out"]).expect(4);
    assert_eq!(lab.text("out/report.md"), report, "computed again");
}

#[test]
fn a_single_page_is_one_server_whatever_its_form() {
    let lab = Lab::new();
    let worker = Worker::start(&lab);
    lab.file("s.yaml", scenario(&worker, &worker.page(""), ""));
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    let telemetry = lab.results()["cases"][0]["telemetry"].clone();
    assert!(telemetry["server.output_tps"]["mean"].is_f64() && telemetry["workers"].is_null());
    assert!(
        telemetry["other"]
            .as_object()
            .unwrap()
            .keys()
            .all(|name| !name.contains("worker="))
    );
    // The addresses of a host name are workers: `localhost` has one or two, of which one listens.
    let page = format!(
        "{{ url: 'http://localhost:{}/metrics', interval: 50ms, addresses: all, role: decode }}",
        worker.port
    );
    lab.file("n.yaml", scenario(&worker, &page, ""));
    lab.llmscen(&["run", "n.yaml", "--output", "out2"])
        .expect(0);
    let results: Value = serde_json::from_str(&lab.text("out2/results.json")).unwrap();
    let telemetry = &results["cases"][0]["telemetry"];
    let workers = telemetry["workers"].as_array().unwrap();
    let listening = workers
        .iter()
        .find(|own| own["worker"] == json!(worker.address()));
    assert_eq!(
        listening.unwrap()["generated_tokens"],
        json!(400.0),
        "{workers:?}"
    );
}

#[test]
fn pages_that_do_not_answer_are_noted_and_do_not_hold_up_the_run() {
    let lab = Lab::new();
    let worker = Worker::start(&lab);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    let closed = port();
    let metrics = format!(
        "{}, {{ url: 'http://{silent_address}/metrics', interval: 50ms }}, {{ url: 'http://127.0.0.1:{closed}/metrics', interval: 50ms }}, \
         {{ url: 'http://no-such-host.invalid/metrics', interval: 50ms, addresses: all }}",
        worker.page("")
    );
    lab.file("s.yaml", scenario(&worker, &metrics, ""));
    let began = Instant::now();
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    assert!(began.elapsed() < Duration::from_secs(120));
    let telemetry = lab.results()["cases"][0]["telemetry"].clone();
    let notes = telemetry["notes"].to_string();
    for expected in [
        format!(
            "http://{silent_address}/metrics: no complete response within 50 ms. Its values are missing in the sums of the target."
        ),
        format!("http://127.0.0.1:{closed}/metrics: Connection refused"),
        "http://no-such-host.invalid/metrics: cannot look up no-such-host.invalid".to_owned(),
    ] {
        assert!(notes.contains(&expected), "{expected}: {notes}");
    }
    let workers = telemetry["workers"].as_array().unwrap();
    let unknown: Vec<&Value> = workers
        .iter()
        .filter(|own| own["generated_tokens"].is_null())
        .collect();
    assert_eq!(
        (workers.len(), unknown.len()),
        (3, 2),
        "no value is invented: {workers:?}"
    );
    assert!(telemetry["server.output_tps"]["mean"].as_f64().unwrap() > 0.0);
    assert!(
        lab.results()["cases"][0]["audit"]["reasons"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

/// The URL of a Prometheus server that knows one query, `rate`, whose value is 7.
fn prometheus() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while let Some((head, body)) = read_head_and_body(&mut stream) {
                    send(&mut stream, &answer_query(&head, &body));
                }
            });
        }
    });
    url
}

fn answer_query(head: &str, body: &[u8]) -> Vec<u8> {
    let form = String::from_utf8_lossy(body);
    let parameter = |name: &str| {
        let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        let mut values = pairs
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned());
        values.next()
    };
    let time = |name: &str| parameter(name).unwrap().parse::<f64>().unwrap();
    let has_key = head.contains("authorization: bearer hush-hush-1");
    let (status, body) = if parameter("query").as_deref() != Some("rate") || !has_key {
        let error =
            json!({ "status": "error", "errorType": "bad_data", "error": "1:4: parse error" });
        ("400 Bad Request", error)
    } else if head.starts_with("post /api/v1/query_range ") {
        let values = json!([[time("start"), "7"], [time("end"), "7"]]);
        let series = json!({ "metric": { "instance": "a" }, "values": values });
        (
            "200 OK",
            json!({ "status": "success", "data": { "resultType": "matrix", "result": [series] } }),
        )
    } else {
        (
            "200 OK",
            json!({ "status": "success", "data": { "resultType": "vector", "result": [] } }),
        )
    };
    response(status, "application/json", &body.to_string())
}

fn query(url: &str, query: &str) -> String {
    format!(
        "{{ prometheus: '{url}', query: '{query}', name: prompt_rate, interval: 100ms, role: decode, \
         headers: {{ Authorization: 'Bearer ${{PROM_TOKEN}}' }} }}"
    )
}

#[test]
fn a_query_of_prometheus_is_checked_first_and_may_be_limited() {
    let lab = Lab::new();
    let worker = Worker::start(&lab);
    let server = prometheus();
    let run = |file: &str, output: &str| {
        let mut command = lab.command(&["run", file, "--output", output]);
        finish(
            command
                .env("PROM_TOKEN", "hush-hush-1")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        )
    };
    let slo = "slo:\n\
        \x20 - server[\"prompt_rate\"].mean == 7\n\
        \x20 - server[\"prompt_rate\"]{role=decode,instance=a}.max < 5\n";
    let metrics = [worker.page(", role: decode"), query(&server, "rate")].join(", ");
    lab.file("s.yaml", scenario(&worker, &metrics, slo));
    let ran = run("s.yaml", "out");
    assert_eq!(ran.code, 1, "{}", ran.err);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        [0, 1].map(|at| case["slo"][at]["verdict"].clone()),
        ["pass", "fail"]
    );
    let name = "prompt_rate{role=\"decode\",instance=\"a\"}";
    assert_eq!(
        case["telemetry"]["other"][name]["mean"], 7.0,
        "{}",
        case["telemetry"]["other"]
    );
    for file in ["out/results.json", "out/report.md", "out/plan.yaml"] {
        assert!(!lab.text(file).contains("hush-hush-1"), "{file}");
    }
    lab.file("wrong.yaml", scenario(&worker, &query(&server, "sum("), ""));
    let refused = run("wrong.yaml", "out3");
    assert_eq!(refused.code, 3, "{}", refused.err);
    let expected = "wrong.yaml:3: the query of `target.metrics` failed: 1:4: parse error";
    assert!(refused.err.contains(expected), "{}", refused.err);
    let gone = query(&format!("http://127.0.0.1:{}", port()), "rate");
    lab.file("gone.yaml", scenario(&worker, &gone, ""));
    let unreachable = run("gone.yaml", "out4");
    assert_eq!(unreachable.code, 3, "{}", unreachable.err);
    assert!(
        unreachable.err.contains("Connection refused"),
        "{}",
        unreachable.err
    );
}

/// Waits until the Prometheus server has values of its target.
fn wait_until_scraped(port: u16) {
    let request = "GET /api/v1/query?query=up HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let answer = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let began = Instant::now();
    while !answer().is_some_and(|text| text.contains(",\"1\"]")) {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "Prometheus reads no page"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_real_prometheus_evaluates_the_query() {
    let is_installed = Command::new("prometheus").arg("--version").output().is_ok();
    if !is_installed {
        let required = std::env::var("LLMSCEN_TEST_TOOLS").as_deref() == Ok("all");
        assert!(!required, "prometheus is not installed");
        return;
    }
    let lab = Lab::new();
    let worker = Worker::start(&lab);
    let port = port();
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs: [{{ job_name: t, static_configs: [{{ targets: ['{}'] }}] }}]\n",
        worker.address()
    );
    let config = lab.file("prometheus.yml", config);
    let mut server = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            lab.path().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let url = format!("http://127.0.0.1:{port}");
    wait_until_scraped(port);
    let metrics = format!(
        "{{ prometheus: '{url}', query: 'max(up)', name: up_now, interval: 500ms }}, \
         {{ prometheus: '{url}', query: 'vllm:num_requests_running', name: running, interval: 500ms }}"
    );
    let text = scenario(
        &worker,
        &metrics,
        "slo: [ 'server[\"running\"]{model_name=sim}.max <= 2', 'server[\"up_now\"].max == 1' ]\n",
    )
    .replace("requests: 20", "duration: 5s")
    .replace(
        "ready: { url: /health",
        &format!("ready: {{ url: [/health, '{url}/-/ready']"),
    );
    lab.file("s.yaml", text);
    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let other = &lab.results()["cases"][0]["telemetry"]["other"];
    assert_eq!(other["up_now"]["max"], 1.0, "{other}");
}
