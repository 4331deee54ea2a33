//! Mixed traffic: requests, send times and results of each class.

use crate::lab::{Lab, response};
use crate::sessions::{Recorder, says};
use llmscen_core::schedule::mix::MixAssigner;
use llmscen_core::seed::Seed;
use polars::prelude::{ParquetReader, SerReader};
use serde_json::Value;
use std::collections::BTreeMap;

const AUDIT: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

/// A scenario against this server with these sections.
fn scenario(url: &str, sections: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 5\ntarget: {{ url: \"{url}\", model: m, timeouts: {{ connect: 5s, read: 20s, total: 30s }} }}\n\
         request: {{ stream: false, max_tokens: 7 }}\n{sections}\n{AUDIT}"
    )
}

/// The last message and the token limit of each request, in order of arrival.
fn asked(server: &Recorder) -> Vec<(String, u64)> {
    let limits: Vec<u64> = server
        .bodies
        .lock()
        .unwrap()
        .iter()
        .map(|body| body["max_tokens"].as_u64().unwrap())
        .collect();
    server.asked().into_iter().zip(limits).collect()
}

/// A part of the only case of results.json.
fn group<'a>(results: &'a Value, name: &str) -> &'a Value {
    let groups = results["cases"][0]["groups"].as_array().unwrap();
    groups
        .iter()
        .find(|group| group["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {groups:?}"))
}

/// The entry and the due time of every request, by number; milliseconds.
fn rows(lab: &Lab) -> Vec<(String, f64)> {
    let frame =
        ParquetReader::new(std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap())
            .finish()
            .unwrap();
    let (seq, due) = (
        frame.column("seq").unwrap().u64().unwrap(),
        frame.column("intended_ns").unwrap().u64().unwrap(),
    );
    let groups = frame.column("group").unwrap().str().unwrap();
    let row = |at: usize| {
        (
            seq.get(at).unwrap(),
            groups.get(at).unwrap().to_owned(),
            due.get(at).unwrap() as f64 / 1e6,
        )
    };
    let phases = frame.column("phase").unwrap().str().unwrap();
    let mut rows: Vec<(u64, String, f64)> = (0..frame.height())
        .filter(|row| phases.get(*row) != Some("cooldown"))
        .map(row)
        .collect();
    rows.sort_by_key(|row| row.0);
    rows.into_iter()
        .map(|(_, group, due)| (group, due))
        .collect()
}

/// Chats beside questions from a file, one request after another.
fn chats_and_questions(lab: &Lab, weight: u32) -> Vec<(String, u64)> {
    lab.file("q.txt", "q0\nq1\nq2\nq3\nq4\n");
    let server = Recorder::start(|_, _| says("ok"));
    let mix = format!(
        "mix:\n  - {{ name: chat, weight: {weight}, dataset: {{ kind: prompt, text: Hi }} }}\n\
         \x20 - {{ name: ask, request: {{ max_tokens: {{ uniform: [100, 200] }} }}, dataset: {{ kind: line_by_line, path: q.txt }} }}\n\
         load: {{ concurrency: 1, requests: 40, warmup: 4 }}"
    );
    lab.run(&scenario(&server.url, &mix)).expect(0);
    asked(&server)
}

#[test]
fn every_class_has_its_requests_and_its_results_add_up() {
    let lab = Lab::new();
    let seen = chats_and_questions(&lab, 2);
    let plan = llmscen_scenario::load(&llmscen_scenario::Input {
        path: &lab.path().join("s.yaml"),
        text: None,
        env: &Default::default(),
        set: &[],
    });
    let mut deal = MixAssigner::new(
        &plan.unwrap().plan.cases[0].mix,
        Seed(5).child("base").child(0u64),
    );
    let mut places = Vec::new();
    for (text, limit) in &seen {
        let place @ (entry, number) = deal.next(None);
        let known = if entry == 0 {
            ("Hi".to_owned(), 7..8)
        } else {
            (format!("q{}", number % 5), 100..201)
        };
        assert_eq!(
            (text, known.1.contains(limit)),
            (&known.0, true),
            "{limit} at {place:?}"
        );
        places.push(place);
    }
    assert_eq!(places.len(), 44);

    let entries = |lab: &Lab| {
        rows(lab)
            .into_iter()
            .map(|row| row.0)
            .collect::<Vec<String>>()
    };
    let known: Vec<&str> = places
        .iter()
        .map(|place| if place.0 == 0 { "chat" } else { "ask" })
        .collect();
    assert_eq!(entries(&lab), known);
    let results = lab.results();
    let measured = |entry: usize| {
        places
            .iter()
            .skip(4)
            .filter(|place| place.0 == entry)
            .count()
    };
    let (chat, ask) = (group(&results, "chat"), group(&results, "ask"));
    assert_eq!(
        (&chat["scheduled"], &ask["scheduled"]),
        (&measured(0).into(), &measured(1).into())
    );
    assert_eq!(
        (
            measured(0) + measured(1),
            &results["cases"][0]["counts"]["scheduled"]
        ),
        (40, &40.into())
    );
    let sum =
        chat["request_throughput"].as_f64().unwrap() + ask["request_throughput"].as_f64().unwrap();
    let all = results["cases"][0]["metrics"]["request_throughput"]
        .as_f64()
        .unwrap();
    assert!((sum - all).abs() < 1e-9 * all, "{sum} {all}");
    assert_eq!(
        (&chat["error_rate"], &chat["entry"], &chat["rate_offered"]),
        (&0.0.into(), &true.into(), &Value::Null)
    );
    assert_eq!(
        results["cases"][0]["load"],
        "concurrency 1; chat 66.67%, ask 33.33%"
    );
    let questions = places.iter().filter(|place| place.0 == 1).count();
    let note = format!(
        "{} of {questions} prompts repeat earlier ones (dataset: 5 rows); a prefix cache may serve them. Set \
         `dataset.cache_bust: true` to prevent that.",
        questions - 5
    );
    assert!(lab.text("out/report.md").contains(&note), "{note}");

    lab.llmscen(&[
        "run",
        "s.yaml",
        "--output",
        "out",
        "--force",
        "--set",
        "load.concurrency=6",
    ])
    .expect(0);
    assert_eq!(entries(&lab), known, "whatever lane sends them");
    assert_eq!(
        chats_and_questions(&Lab::new(), 2),
        seen,
        "the same seed asks the same"
    );
    let questions = |seen: &[(String, u64)]| -> Vec<(String, u64)> {
        seen.iter()
            .filter(|own| own.0 != "Hi")
            .take(6)
            .cloned()
            .collect()
    };
    assert_eq!(
        questions(&chats_and_questions(&Lab::new(), 1)),
        questions(&seen),
        "whatever the others do"
    );
}

#[test]
fn a_limit_on_an_entry_is_judged_by_its_requests_alone() {
    let lab = Lab::new();
    let refused = |body: &Value| body["max_tokens"] == 9;
    let server = Recorder::start(move |_, body| match refused(body) {
        true => response("503 Service Unavailable", "application/json", "{}"),
        false => says("ok"),
    });
    let sections = "dataset: { kind: prompt, text: x }\nmix:\n  - { name: good, weight: 2 }\n\
                    \x20 - { name: bad, request: { max_tokens: 9, retry: { on: [503], max: 1, wait: 1ms, honor: nothing } } }\n\
                    load: { concurrency: 4, requests: 120 }\n\
                    slo: [\"error_rate{group=good} < 10%\", \"error_rate{group=bad} < 10%\", \"e2e{group=good}.p50 < 60s\", \"request_throughput{group=bad} > 0\"]";
    lab.run(&scenario(&server.url, sections)).expect(1);
    let results = lab.results();
    let (good, bad) = (
        &group(&results, "good")["scheduled"],
        &group(&results, "bad")["scheduled"],
    );
    assert_eq!(good.as_u64().unwrap() + bad.as_u64().unwrap(), 120);
    let slo = results["cases"][0]["slo"].as_array().unwrap();
    let ruled: Vec<(&str, &Value)> = slo
        .iter()
        .map(|own| (own["verdict"].as_str().unwrap(), &own["n"]))
        .collect();
    assert_eq!(
        ruled,
        [("pass", good), ("fail", bad), ("pass", good), ("fail", bad)]
    );
    assert_eq!(
        (
            &group(&results, "bad")["error_rate"],
            &group(&results, "good")["error_rate"]
        ),
        (&1.0.into(), &0.0.into())
    );
    let tries = server
        .bodies
        .lock()
        .unwrap()
        .iter()
        .filter(|body| refused(body))
        .count() as u64;
    assert_eq!(
        Some(tries),
        bad.as_u64().map(|n| 2 * n),
        "only the entry that says so tries again"
    );
    for name in ["good", "bad"] {
        assert!(
            lab.text("out/report.md")
                .contains(&format!("| `base` | `{name}` |"))
        );
    }
}

#[test]
fn entries_with_rates_leave_each_at_its_own() {
    let lab = Lab::new();
    let sections = "dataset: { kind: prefix, groups: 2, prefix_tokens: 4, tokens: 4 }\n\
                    mix:\n  - { name: chat, rate: 40/s, dataset: { kind: prompt, text: Hi } }\n  - { name: long, rate: 10/s }\n\
                    load: { duration: 2s, arrivals: constant }\nslo: [\"error_rate{group=long/prefix-1} < 99%\"]";
    let text = scenario("simulator", sections).replace("model: m", "model: sim");
    lab.run(&text).expect(0);
    let rows = rows(&lab);
    assert!(rows.is_sorted_by_key(|row| row.1));
    let due = |name: &str| -> Vec<f64> {
        rows.iter()
            .filter(|row| row.0.split('/').next() == Some(name))
            .map(|row| row.1)
            .collect()
    };
    let evenly = |n: u32, gap: f64| -> Vec<f64> { (0..n).map(|k| f64::from(k) * gap).collect() };
    assert_eq!(
        (due("chat"), due("long")),
        (evenly(80, 25.0), evenly(20, 100.0))
    );
    let counts = rows
        .iter()
        .fold(BTreeMap::new(), |mut counts: BTreeMap<&str, u32>, row| {
            *counts.entry(row.0.as_str()).or_default() += 1;
            counts
        });
    assert_eq!(
        counts.into_iter().collect::<Vec<_>>(),
        [("chat", 80), ("long/prefix-0", 10), ("long/prefix-1", 10)]
    );
    let results = lab.results();
    let of = |name: &str, key: &str| group(&results, name)[key].as_f64().unwrap();
    assert_eq!(
        (of("chat", "rate_offered"), of("long", "rate_offered")),
        (40.0, 10.0)
    );
    assert!((of("chat", "rate_achieved") / of("long", "rate_achieved") - 4.0).abs() < 1e-9);
    let told = |name: &str| {
        (
            group(&results, name)["entry"].as_bool(),
            group(&results, name)["scheduled"].as_u64(),
        )
    };
    assert_eq!(
        (told("long"), told("long/prefix-1")),
        ((Some(true), Some(20)), (Some(false), Some(10)))
    );
    assert!(
        group(&results, "long")["metrics"]["ttft_ms"].is_null(),
        "not streamed"
    );
    assert_eq!(results["cases"][0]["slo"][0]["n"], 10);
    let table = |out: &str| -> Vec<String> {
        let lines = out.lines().filter(|line| line.starts_with("base"));
        lines
            .map(|line| {
                line.split_whitespace()
                    .take_while(|word| !word.ends_with('%'))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    };
    let known = ["base 100/100", "base: chat 80/80", "base: long 20/20"];
    let again = lab.llmscen(&["report", "out", "--verbose"]).expect(0);
    assert_eq!(
        table(&again.out),
        known,
        "parts of the data are left to the report"
    );
    assert!(
        lab.text("out/report.md")
            .contains("| E2E p99, ms | Sent / offered, req/s |")
    );
}

#[test]
fn conversations_mix_with_single_requests() {
    let lab = Lab::new();
    let user = |text: &str| format!("{{\"role\":\"user\",\"content\":\"{text}\"}}");
    let talk = |n: u32| {
        format!(
            "{{\"messages\":[{},{{\"role\":\"assistant\",\"content\":\"x\"}},{}]}}\n",
            user(&format!("a{n}")),
            user(&format!("b{n}"))
        )
    };
    lab.file("talks.jsonl", (0..4).map(talk).collect::<String>());
    let server = Recorder::start(|number, _| says(&format!("reply {number}")));
    let sections = "mix:\n  - { name: one, dataset: { kind: prompt, text: Hi } }\n\
                    \x20 - { name: talk, request: { max_tokens: 9 }, dataset: { kind: messages, path: talks.jsonl, turns: {} } }\n\
                    load: { concurrency: 1, sessions: 12 }";
    lab.run(&scenario(&server.url, sections)).expect(0);
    let bodies = server.bodies.lock().unwrap().clone();
    let mut talks = 0;
    for (number, body) in bodies.iter().enumerate() {
        let messages = body["messages"].as_array().unwrap();
        let said: Vec<&str> = messages
            .iter()
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        let known = match said.as_slice() {
            ["Hi"] => 7,
            [first] => {
                assert_eq!(*first, format!("a{}", talks % 4));
                9
            }
            all => {
                let (n, reply) = (talks % 4, format!("reply {}", number - 1));
                assert_eq!(*all, [format!("a{n}"), reply, format!("b{n}")]);
                talks += 1;
                9
            }
        };
        assert_eq!(body["max_tokens"], known);
    }
    assert!(
        (2..=10).contains(&talks) && bodies.len() == 12 + talks,
        "{talks} talks in {} requests",
        bodies.len()
    );
    let results = lab.results();
    assert_eq!(group(&results, "talk")["scheduled"], 2 * talks);
    assert_eq!(group(&results, "one")["scheduled"], 12 - talks);
}
