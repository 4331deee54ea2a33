//! Traffic classes with their own arrivals, headers and limits, and arrivals that are held at `max_in_flight`.

use crate::lab::{Lab, read_head_and_body, response};
use crate::sessions::{Recorder, says};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const AUDIT: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, stalled: 100%, idle: 100%, achieved: 90% }\n";

fn scenario(url: &str, sections: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 5\ntarget: {{ url: \"{url}\", model: m, headers: {{ x-priority: low }} }}\n\
         request: {{ stream: false, max_tokens: 7 }}\ndataset: {{ kind: prompt, text: Hi }}\n{sections}\n{AUDIT}"
    )
}

/// A row of requests.parquet; times in nanoseconds.
#[derive(Debug)]
pub struct Row {
    pub seq: u64,
    pub turn: u32,
    pub group: Option<String>,
    pub intended: u64,
    pub sent: Option<u64>,
    pub held_until: Option<u64>,
    pub end: u64,
    pub outcome: String,
    pub error: Option<String>,
    pub kept_headers: Option<String>,
}

/// The rows of the run in `out`, by number and turn.
pub fn rows(lab: &Lab) -> Vec<Row> {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    let frame: DataFrame = ParquetReader::new(file).finish().unwrap();
    let number = |name: &str, at: usize| frame.column(name).unwrap().u64().unwrap().get(at);
    let text = |name: &str, at: usize| {
        let value = frame.column(name).unwrap().str().unwrap().get(at);
        value.map(str::to_owned)
    };
    let row = |at: usize| Row {
        seq: number("seq", at).unwrap(),
        turn: frame
            .column("turn")
            .unwrap()
            .u32()
            .unwrap()
            .get(at)
            .unwrap(),
        group: text("group", at),
        intended: number("intended_ns", at).unwrap(),
        sent: number("sent_ns", at),
        held_until: number("held_until_ns", at),
        end: number("end_ns", at).unwrap(),
        outcome: text("outcome", at).unwrap(),
        error: text("error", at),
        kept_headers: text("kept_headers", at),
    };
    let mut rows: Vec<Row> = (0..frame.height())
        .filter(|at| text("phase", *at).as_deref() != Some("cooldown"))
        .map(row)
        .collect();
    rows.sort_by_key(|row| (row.seq, row.turn));
    rows
}

#[test]
fn held_requests_leave_in_due_order_and_count_from_their_scheduled_time() {
    let server = Recorder::start(|_, _| {
        std::thread::sleep(Duration::from_millis(30));
        says("ok")
    });
    let lab = Lab::new();
    let load = "load: { rate: 100/s, arrivals: constant, warmup: 1, requests: 11, max_in_flight: { of: 1, then: hold } }";
    lab.run(&scenario(&server.url, load)).expect(0);
    let all = rows(&lab);
    assert_eq!(all.len(), 12);
    assert_eq!(all[0].held_until, Some(all[0].intended), "not held");
    for pair in all.windows(2) {
        let [before, row] = pair else {
            panic!("two rows")
        };
        assert_eq!(row.outcome, "ok");
        assert_eq!(row.intended, 10_000_000 * row.seq, "the scheduled time");
        // The slot is that of the request before it.
        assert!(row.held_until >= Some(before.end), "{before:?} {row:?}");
        assert!(row.sent >= row.held_until, "{row:?}");
    }
    let case = lab.results()["cases"][0].clone();
    assert_eq!(
        (
            &case["counts"]["held"],
            &case["audit"]["held"],
            &case["counts"]["dropped"]
        ),
        (&11.into(), &11.into(), &0.into())
    );
    let metrics = &case["metrics"];
    let max = |name: &str| metrics[name]["max"].as_f64().unwrap();
    // The last of 12 is due after 110 ms, and 11 requests of 30 ms are before it.
    assert_eq!(metrics["held_time_ms"]["n"], 11);
    assert!(
        max("held_time_ms") >= 220.0 && max("e2e_ms") >= 250.0,
        "{metrics}"
    );
    // The time that a request is held is not a delay of the load generator.
    assert!(max("schedule_lag_ms") < max("held_time_ms"), "{metrics}");
    assert!(lab.text("out/report.md").contains("| Held |"));
}

#[test]
fn a_rate_that_the_server_cannot_keep_up_with_is_valid_if_it_is_held() {
    let lab = Lab::new();
    let text = "version: 1\nname: t\ntarget: { url: simulator, simulator: { alpha: 10ms } }\n\
                request: { max_tokens: 3 }\ndataset: { kind: prompt, text: hello }\n\
                load: { rate: 200/s, requests: 60, max_in_flight: { of: 1, then: hold } }\n\
                slo: [{ expr: \"held_time.max > 500ms\", confidence: point }, { expr: \"e2e.max > 500ms\", confidence: point }]\n";
    lab.run(&format!("{text}{AUDIT}")).expect(0);
    let case = lab.results()["cases"][0].clone();
    assert_eq!(case["audit"]["valid"], true, "{:#}", case["audit"]);
    // The start of an open loop is not measured.
    let counts = &case["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(
        count("held") >= 20 && count("ok") == count("scheduled"),
        "{counts}"
    );
}

#[test]
fn requests_that_are_held_until_the_end_are_recorded_and_make_the_case_invalid() {
    let server = Recorder::start(|number, _| {
        let hangs = number > 0;
        std::thread::sleep(Duration::from_secs(if hangs { 20 } else { 0 }));
        says("ok")
    });
    let lab = Lab::new();
    let load = "load: { rate: 50/s, arrivals: constant, duration: 400ms, graceful_stop: 200ms, max_in_flight: { of: 1, then: hold } }";
    lab.run(&scenario(&server.url, load)).expect(4);
    let all = rows(&lab);
    let names: Vec<&str> = all.iter().map(|row| row.outcome.as_str()).collect();
    assert_eq!(names, [&["ok", "cancelled"][..], &["dropped"; 18]].concat());
    for row in &all[2..] {
        let why = "held at max_in_flight of 1 until sending ended";
        assert_eq!(row.error.as_deref(), Some(why));
        assert_eq!(row.sent, None);
        // Arrivals are due every 20 ms; held ones wait for the drain time, too.
        assert_eq!(row.intended, 20_000_000 * row.seq);
        assert!(row.held_until.unwrap() >= 600_000_000);
    }
    let reasons = lab.results()["cases"][0]["audit"]["reasons"].to_string();
    assert!(
        reasons.contains("18 of 20 arrivals were held at `load.max_in_flight` until sending ended"),
        "{reasons}"
    );
}

/// The priority header and the body of each request.
type SeenRequests = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that keeps the priority header and the body of each request, and answers at once.
fn header_server() -> (String, SeenRequests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/v1/chat/completions",
        listener.local_addr().unwrap()
    );
    let seen = SeenRequests::default();
    let kept = seen.clone();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let kept = kept.clone();
            std::thread::spawn(move || {
                while let Some((head, body)) = read_head_and_body(&mut socket) {
                    let of = |line: &str| Some(line.strip_prefix("x-priority: ")?.to_owned());
                    let priorities: Vec<String> = head.lines().filter_map(of).collect();
                    let body = serde_json::from_slice(&body).unwrap();
                    kept.lock().unwrap().push((priorities.join(" and "), body));
                    const ANSWER: &str =
                        r#"{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}"#;
                    let reply = response("200 OK", "application/json", ANSWER);
                    if socket.write_all(&reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
}

#[test]
fn classes_have_their_own_arrivals_and_headers() {
    let (url, seen) = header_server();
    let lab = Lab::new();
    let mix = "mix:\n\
        - { name: chat, rate: 50/s, arrivals: constant, headers: { x-priority: high }, request: { max_tokens: 1 } }\n\
        - { name: batch, stages: [{ rate: 0/s, for: 200ms }, { rate: 100/s, for: 100ms }], arrivals: constant, request: { max_tokens: 2 } }\n\
        load: { duration: 500ms }";
    lab.run(&scenario(&url, mix)).expect(0);
    let due: Vec<(String, u64)> = rows(&lab)
        .iter()
        .map(|row| (row.group.clone().unwrap(), row.intended / 1_000_000))
        .collect();
    let of = |name: &str| -> Vec<u64> {
        let own = due.iter().filter(|(group, _)| group == name);
        own.map(|(_, at)| *at).collect()
    };
    assert_eq!(of("chat"), (0..25).map(|k| 20 * k).collect::<Vec<_>>());
    assert_eq!(
        of("batch"),
        (0..10).map(|k| 200 + 10 * k).collect::<Vec<_>>()
    );
    assert!(due.is_sorted_by_key(|(_, at)| *at));
    let mut counts: BTreeMap<(String, u64), u32> = BTreeMap::new();
    for (priority, body) in seen.lock().unwrap().iter() {
        let key = (priority.clone(), body["max_tokens"].as_u64().unwrap());
        *counts.entry(key).or_default() += 1;
    }
    let known = [(("high".to_owned(), 1), 25), (("low".to_owned(), 2), 10)];
    assert_eq!(counts, known.into_iter().collect());
    // The plan lists the arrivals of each class.
    let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0).words();
    assert!(
        plan.contains("chat 50/s constant, batch 0/s for 200 ms, 100/s for 100 ms, constant"),
        "{plan}"
    );
}

#[test]
fn shards_send_each_arrival_of_each_class_once() {
    let lab = Lab::new();
    let text = "version: 1\nname: t\nseed: 9\ntarget: { url: simulator, simulator: { alpha: 1ms } }\n\
        request: { max_tokens: 1 }\ndataset: { kind: prompt, text: hello }\n\
        mix: [{ name: a, rate: 60/s, arrivals: { gamma: 0.5 } }, { name: b, stages: [{ rate: 40/s -> 0/s, for: 600ms }] }]\n\
        load: { duration: 600ms }\n";
    lab.file("s.yaml", format!("{text}{AUDIT}"));
    let whole = planned(&lab, None);
    assert!(whole.len() > 20);
    let mut parts: Vec<(u64, String, u64)> = (0..3)
        .flat_map(|shard| planned(&lab, Some(&format!("{shard}/3"))))
        .collect();
    parts.sort();
    assert_eq!(parts, whole);
}

/// Number, class and send time of the requests of a shard, from the seeds alone.
fn planned(lab: &Lab, shard: Option<&str>) -> Vec<(u64, String, u64)> {
    use llmscen_core::schedule::Schedule;
    use llmscen_core::schedule::shard::{Shard, Split};
    let path = lab.path().join("s.yaml");
    let input = llmscen_scenario::Input {
        path: &path,
        text: None,
        env: &Default::default(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input).unwrap().plan;
    let case = &plan.cases[0];
    let shard: Shard = shard.map_or(Shard::default(), |text| text.parse().unwrap());
    let split = Split::new(shard, &case.load.shape);
    let schedule = Schedule::for_case(case, plan.seed, None).unwrap();
    let own = schedule.filter(|due| split.owns(due.seq));
    own.map(|due| (due.seq, case.mix[due.entry.unwrap()].name.clone(), due.at.0))
        .collect()
}

#[test]
fn a_limit_compares_two_groups_of_one_run() {
    let server = Recorder::start(|_, body| {
        let slow = body["max_tokens"] == 2;
        std::thread::sleep(Duration::from_millis(if slow { 60 } else { 5 }));
        says("ok")
    });
    let lab = Lab::new();
    let run = |limit: &str| {
        let sections = format!(
            "mix:\n- {{ name: critical, rate: 150/s, request: {{ max_tokens: 1 }} }}\n\
             - {{ name: batch, rate: 150/s, request: {{ max_tokens: 2 }} }}\n\
             load: {{ requests: 900 }}\nslo: [\"{limit}\"]"
        );
        lab.run(&scenario(&server.url, &sections))
    };
    run("e2e_service{group=critical}.p50 <= 0.5 * e2e_service{group=batch}.p50").expect(0);
    let verdict = lab.results()["cases"][0]["slo"][0].clone();
    assert_eq!(verdict["verdict"], "pass", "{verdict:#}");
    run("e2e_service{group=critical}.p50 >= e2e_service{group=batch}.p50").expect(1);
    for (limit, message) in [
        (
            "ttft{group=critical}.p50 <= ttft{group=critical}.p50",
            "compares a value with itself",
        ),
        (
            "e2e{group=critical}.p50 <= 2 * e2e{group=bach}.p50",
            "unknown group `bach`",
        ),
        (
            "e2e{group=critical}.p50 <= 2 * output_tps",
            "different units",
        ),
        (
            "e2e{group=critical}.p50 <= 2 * e2e{group=batch}.max",
            "cannot be tested",
        ),
    ] {
        let told = run(limit).expect(2).err;
        assert!(told.contains(message), "{limit}: {told}");
    }
}
