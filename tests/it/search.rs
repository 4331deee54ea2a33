//! Capacity searches from the scenario to the report, against the built-in server in real time.

use crate::lab::{Lab, port};
use serde_json::{Value, json};

/// A server whose decode step takes 10 ms and 2 ms more for each user: 17 users are the most at which `tpot` stays under 45 ms.
const SERVER: &str = "version: 1\nname: t\n\
    target: { url: simulator, simulator: { alpha: 10ms, gamma: 2ms, beta: 0ns, delta: 0ns } }\n\
    dataset: { kind: prompt, text: x }\nrequest: { max_tokens: 4 }\nreport: { formats: [md, png, junit] }\n\
    audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

fn scenario(rest: &str) -> String {
    format!("{SERVER}{rest}\n")
}

fn capacity() -> String {
    scenario(
        "load: { concurrency: 8, requests: 60, warmup: 1x }\nslo: [tpot.p90 < 45ms]\n\
         search: { vary: load.concurrency, range: [1, 48], precision: 25%, confirm: 1, drain: 10ms }",
    )
}

#[test]
fn the_capacity_of_a_server_is_found_and_reported_again() {
    let lab = Lab::new();
    let ran = lab.run(&capacity()).expect(0);
    let results = lab.results();
    let search = &results["search"][0];
    let answer = search["answer"].as_f64().unwrap();
    assert!(
        (10.0..=24.0).contains(&answer),
        "17 by the formula, a few more where requests go in step, less where the machine is busy: {search:#}"
    );
    assert_eq!(
        (&search["settled"], &search["extent"], &search["vary"]),
        (&json!(true), &json!("within"), &json!("load.concurrency"))
    );
    let probes = search["probes"].as_array().unwrap();
    let loads: Vec<f64> = probes
        .iter()
        .take(3)
        .map(|probe| probe["load"].as_f64().unwrap())
        .collect();
    assert_eq!(loads[..2], [8.0, 16.0], "from the field's own value up");
    assert!(
        probes.iter().any(|probe| probe["purpose"] == "confirm"),
        "{search:#}"
    );
    let ids: Vec<&Value> = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| &case["id"])
        .collect();
    assert!(
        probes.iter().all(|probe| ids.contains(&&probe["case"])) && ids.len() <= probes.len(),
        "{ids:?}"
    );
    assert!(
        ran.out
            .contains(&format!("PASS  maximum concurrency {answer} (")),
        "{}",
        ran.out
    );
    assert_eq!(
        ran.out.matches("tpot.p90 < 45ms: ").count(),
        probes.len(),
        "each probe is a line: {}",
        ran.out
    );
    let report = lab.text("out/report.md");
    assert!(
        report.contains("## Capacity search") && report.contains("charts/search.png"),
        "{report}"
    );
    assert!(lab.path().join("out/charts/search.png").exists());
    assert!(lab.text("out/junit.xml").contains("converged"));
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(lab.results()["search"][0], *search, "the rows say it all");
}

#[test]
fn a_range_above_the_capacity_has_no_result_and_its_probes_stop_early() {
    let lab = Lab::new();
    let over = scenario(
        "load: { concurrency: 30, requests: 600 }\nslo: [tpot.p90 < 15ms]\n\
         search: { vary: load.concurrency, range: [20, 40], precision: 25%, confirm: 0, drain: 0s }",
    );
    lab.run(&over).expect(1);
    let search = &lab.results()["search"][0];
    assert_eq!(
        (&search["answer"], &search["extent"]),
        (&Value::Null, &json!("nothing"))
    );
    for probe in search["probes"].as_array().unwrap() {
        let n = probe["n"].as_u64().unwrap();
        assert!(
            probe["stopped_early"] == true && n < 150,
            "{n} of 150: {probe:#}"
        );
    }
}

#[test]
fn a_plan_says_what_is_searched() {
    let lab = Lab::new();
    lab.file("s.yaml", capacity());
    let valid = lab.llmscen(&["validate", "s.yaml"]).expect(0).out;
    assert_eq!(
        valid,
        "s.yaml: ok, a search of load.concurrency from 1 to 48 (35 values), 2 assertions\n"
    );
    let planned = lab.llmscen(&["plan", "s.yaml"]).expect(0).out;
    assert!(
        planned.contains(
            "search for the largest value that meets every objective: load.concurrency from 1 to 48"
        ),
        "{planned}"
    );
    assert_eq!(
        planned.matches("concurrency=").count(),
        2,
        "the least load, in the table and as the first request:\n{planned}"
    );
}

/// Candidates whose decode step takes `gamma` longer for each user, on a server that the run starts. 28 users are the most for
/// 1.25 ms, 14 for 2.5 ms, 7 for 5 ms; the last one is not a duration, so its server does not start.
fn candidates(port: u16, rest: &str) -> String {
    format!(
        "version: 1\nname: t\n\
         target: {{ url: \"http://127.0.0.1:{port}/v1/chat/completions\", model: sim, \
         server: {{ preset: simulator, args: {{ alpha: 10ms, beta: 0ns, delta: 0ns }}, ready: {{ interval: 50ms }} }} }}\n\
         dataset: {{ kind: prompt, text: x }}\nrequest: {{ max_tokens: 4 }}\nreport: {{ formats: [md, html, png, junit] }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n\
         load: {{ concurrency: 8, requests: 60, warmup: 1x }}\nslo: [tpot.p90 < 45ms]\n\
         search: {{ vary: load.concurrency, range: [1, 64], precision: 25%, confirm: 1, drain: 0s, {rest} }}\n"
    )
}

#[test]
fn the_best_of_several_ways_to_start_a_server_is_found() {
    let lab = Lab::new();
    let rest = "budget: 48, over: { target.server.args.gamma: [5ms, 1250us, never, 2500us] }";
    lab.file("s.yaml", candidates(port(), rest));
    let planned = lab.llmscen(&["plan", "s.yaml"]).expect(0).out;
    for line in [
        "the best of 4 candidates by successive halving, with 48 probes in 2 rungs:",
        "  rung 1: 4 candidates, 6 probes each",
        "  rung 2: 2 candidates, 12 probes each, full searches with confirmation",
        "server starts: 6, which take as long as the server needs; up to 8 if candidates tie",
    ] {
        assert!(planned.contains(line), "{line}: {planned}");
    }

    let ran = lab.llmscen(&["run", "s.yaml", "--output", "out"]);
    let results = lab.results();
    let searches = results["search"].as_array().unwrap();
    let outcomes: Vec<&Value> = searches
        .iter()
        .map(|search| &search["candidate"]["outcome"])
        .collect();
    assert_eq!(
        (outcomes[1], outcomes[2]),
        (&json!("best"), &json!("failed")),
        "{outcomes:?}"
    );
    let probes: usize = searches
        .iter()
        .map(|search| search["probes"].as_array().unwrap().len())
        .sum();
    assert!(probes <= 48, "{probes}");
    let starts: usize = results["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["startups"].as_array().map_or(0, Vec::len))
        .sum();
    assert!(starts <= 8, "{starts}");
    let best = searches[1]["answer"].as_f64().unwrap();
    assert!((14.0..=40.0).contains(&best), "28 by the formula: {best}");
    let order = |index: usize| searches[index]["answer"].as_f64().unwrap_or_default();
    assert!(order(1) > order(3) && order(3) > order(0), "{searches:#?}");
    assert!(
        ran.out
            .contains("best of 4: gamma=1250us: maximum concurrency"),
        "{}",
        ran.out
    );
    let report = lab.text("out/report.md");
    for text in [
        "## Candidates",
        "| 1 | gamma=1250us |",
        "failed: ",
        "charts/capacity.png",
    ] {
        assert!(report.contains(text), "{text}: {report}");
    }
    lab.llmscen(&["report", "out"]);
    assert_eq!(
        lab.results()["search"],
        results["search"],
        "the rows say it all"
    );
}
