//! The default objective, finish reasons and output lengths, against servers that refuse, stop early or cut replies.

use crate::lab::*;
use serde_json::{Value, json};
use std::fs;

/// A scenario with 100 requests of 64 tokens to this server.
fn scenario(server: &Server, sections: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\ndataset: {{ kind: prompt, text: hello }}\n\
         load: {{ concurrency: 2, requests: 100 }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, idle: 100%, stalled: 100% }}\n{sections}\n",
        server.url()
    )
}

const LATENCY: &str = "slo: [{ expr: ttft.p95 < 60s, confidence: point }]";

/// A server that refuses every second request.
fn refusing() -> Server {
    Server::start(|s, number| {
        let reply = match number % 2 {
            0 => stream(&[TOKEN, FINISH, "[DONE]"], true),
            _ => response("429 Too Many Requests", "application/json", "{}"),
        };
        send(s, &reply)
    })
}

/// A server whose replies have these numbers of tokens and finish reasons, by the number of the request.
fn replying(reply: impl Fn(usize) -> (u64, &'static str) + Send + Sync + 'static) -> Server {
    Server::start(move |s, number| {
        let (tokens, reason) = reply(number);
        let end = FINISH.replace("stop", reason);
        let usage = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":5,"completion_tokens":{tokens},"total_tokens":9}}}}"#
        );
        let mut events = vec![TOKEN; tokens as usize];
        events.extend([end.as_str(), &usage, "[DONE]"]);
        send(s, &stream(&events, true))
    })
}

fn first_case(lab: &Lab) -> Value {
    lab.results()["cases"][0].clone()
}

#[test]
fn a_run_that_limits_latency_alone_fails_if_requests_fail() {
    let (lab, server) = (Lab::new(), refusing());
    let ran = lab.run(&scenario(&server, LATENCY));
    let ran = ran.expect(1);
    assert!(ran.out.contains("error_rate < 1% (default)"), "{}", ran.out);
    let case = first_case(&lab);
    let found = case["slo"].as_array().unwrap().iter();
    let found: Vec<Value> = found
        .map(|slo| json!([slo["expr"], slo["default"], slo["verdict"], slo["observed"]]))
        .collect();
    assert_eq!(
        (&found[0].as_array().unwrap()[..3], &found[1]),
        (
            &[json!("ttft.p95 < 60s"), json!(false), json!("pass")][..],
            &json!(["error_rate < 1%", true, "fail", 0.5])
        )
    );
    let note = "`slo_defaults.error_rate` changes it";
    for file in ["report.md", "report.html", "junit.xml"] {
        let text = lab.text(&format!("out/{file}"));
        assert!(text.contains("(default)"), "{file}: {text}");
    }
    assert!(lab.text("out/junit.xml").contains(note));
    // A run folder of an earlier version has no such key, and keeps its verdicts.
    let plan = lab.text("out/plan.yaml");
    let old = plan.replace("slo_defaults:\n  error_rate: 1%\n", "");
    assert_ne!(plan, old);
    let path = lab.path().join("out");
    fs::write(path.join("plan.yaml"), old).unwrap();
    fs::remove_file(path.join("checksums.sha256")).unwrap();
    lab.llmscen(&["report", "out"]).expect(0);
    assert!(!lab.text("out/report.md").contains("(default)"));
}

#[test]
fn the_default_is_shown_by_plan_and_removed_by_one_key() {
    let (lab, server) = (Lab::new(), refusing());
    lab.file("s.yaml", scenario(&server, LATENCY));
    let shown = lab.llmscen(&["plan", "s.yaml"]).expect(0).out;
    assert!(
        shown.contains("  error_rate < 1% (default), point estimate only\n"),
        "{shown}"
    );
    let off = ["--set", "slo_defaults.error_rate=off"];
    let run = [&["run", "s.yaml", "--output", "out"][..], &off].concat();
    lab.llmscen(&run).expect(0);
    let slo = first_case(&lab)["slo"].clone();
    assert_eq!(slo.as_array().map(Vec::len), Some(1), "{slo:#}");
    let looser = ["--set", "slo_defaults.error_rate=60%", "--force"];
    let run = [&["run", "s.yaml", "--output", "out"][..], &looser].concat();
    lab.llmscen(&run).expect(0);
}

#[test]
fn a_small_healthy_run_passes_with_the_default() {
    let server = replying(|_| (1, "stop"));
    let lab = Lab::new();
    let few = scenario(
        &server,
        "slo: [{ expr: ttft.max < 60s, confidence: point }]",
    )
    .replace("requests: 100", "requests: 3");
    lab.run(&few).expect(0);
    let slo = &first_case(&lab)["slo"][1];
    assert_eq!(
        (&slo["verdict"], &slo["n"], &slo["note"]),
        (&json!("pass"), &json!(3), &Value::Null)
    );
}

#[test]
fn finish_reasons_are_counted_and_judged() {
    // Servers have different words for the limit of the length.
    let server = replying(|number| match number % 10 {
        0 => (4, "length"),
        1 => (4, "max_tokens"),
        _ => (2, "stop"),
    });
    let lab = Lab::new();
    let slo = "slo:\n- finish{length}.share <= 60%\n- finish{length}.share <= 5%\n- finish{max_tokens}.share <= 60%\n\
               - finish{stop,model=m}.share >= 95%\n- error_rate < 5%";
    lab.run(&scenario(
        &server,
        &format!("request: {{ max_tokens: 4 }}\n{slo}"),
    ))
    .expect(1);
    let case = first_case(&lab);
    let judged = |index: usize| {
        let slo = &case["slo"][index];
        json!([slo["verdict"], slo["observed"], slo["n"], slo["unit"]])
    };
    assert_eq!(judged(0), json!(["pass", 0.2, 100, "share"]));
    assert_eq!(judged(1), json!(["fail", 0.2, 100, "share"]));
    assert_eq!(judged(2), json!(["pass", 0.1, 100, "share"]));
    assert_eq!(judged(3), json!(["fail", 0.8, 100, "share"]));
    assert_eq!(
        case["finish_reasons"],
        json!([
            { "reason": "stop", "count": 80 },
            { "reason": "length", "count": 10 },
            { "reason": "max_tokens", "count": 10 }
        ])
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("| `base` | `stop` | 80 | 80% |"),
        "{report}"
    );
    assert_eq!(case["output_lengths"], Value::Null);
}

#[test]
fn a_share_of_finish_reasons_ends_a_hopeless_case_early() {
    let server = replying(|_| (2, "length"));
    let lab = Lab::new();
    let slo = "slo: [{ expr: 'finish{length}.share <= 5%', abort: { min_samples: 10 } }]";
    let text = scenario(&server, slo).replace("requests: 100", "requests: 5000");
    lab.run(&text).expect(1);
    let case = first_case(&lab);
    assert_eq!(case["aborted"]["expr"], "finish{length}.share <= 5%");
    assert!(case["counts"]["scheduled"].as_u64().unwrap() < 1000);
}

#[test]
fn replies_that_are_shorter_than_requested_are_reported() {
    let server = replying(|number| {
        if number % 100 < 8 {
            (16, "length")
        } else {
            (4, "stop")
        }
    });
    let lab = Lab::new();
    let sections = "request: { max_tokens: 16, ignore_eos: true }\n\
                    slo: [length_exact >= 99%, error_rate < 5%]";
    lab.run(&scenario(&server, sections)).expect(1);
    let case = first_case(&lab);
    assert_eq!(
        case["output_lengths"],
        json!({ "n": 100, "requested_mean": 16.0, "received_mean": 4.96, "is_minimum": false, "shorter": 92 })
    );
    let slo = &case["slo"][0];
    assert_eq!(
        (&slo["verdict"], &slo["observed"]),
        (&json!("fail"), &json!(0.08))
    );
    let note = "92 of 100 replies have fewer output tokens than requested: 4.0 of 16.0 on average. Their finish reasons are `stop` \
                (92). The server may ignore `ignore_eos`.";
    let notes = case["notes"].as_array().unwrap();
    assert!(notes.contains(&json!(note)), "{notes:#?}");
    let report = lab.text("out/report.md");
    assert!(
        report.contains("| `base` | 100 | 16 | 4.96 | 92 | 92% |"),
        "{report}"
    );
}

#[test]
fn replies_that_are_cut_before_the_limit_are_reported() {
    let server = replying(|number| {
        if number % 4 == 0 {
            (5, "length")
        } else {
            (3, "stop")
        }
    });
    let lab = Lab::new();
    lab.run(&scenario(&server, "request: { max_tokens: 16 }"))
        .expect(0);
    let note = "25 of 100 replies ended for their length well before `max_tokens`: at 5.0 of 16.0 tokens on average. The server has \
                another limit, such as its context length.";
    let notes = first_case(&lab)["notes"].clone();
    assert!(
        notes.as_array().unwrap().contains(&json!(note)),
        "{notes:#}"
    );
}
