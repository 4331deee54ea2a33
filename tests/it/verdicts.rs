//! Exit codes: each of them from a real run.

use crate::lab::*;

fn sim(load: &str, slo: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {{ alpha: 2ms }} }}\nrequest: {{ max_tokens: 3 }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {load}\nslo: [{slo}]\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

fn ruling(lab: &Lab, index: usize) -> String {
    lab.results()["cases"][0]["slo"][index]["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn pass_is_0_fail_is_1_inconclusive_is_5() {
    let lab = Lab::new();
    lab.run(&sim(
        "{ concurrency: 4, requests: 400 }",
        r#""ttft.p50 < 10s", "goodput(e2e < 10s) >= 90%""#,
    ))
    .expect(0);
    assert_eq!([ruling(&lab, 0), ruling(&lab, 1)], ["pass", "pass"]);
    // A median needs few independent requests: a busy machine correlates them.
    lab.run(&sim(
        "{ concurrency: 16, requests: 1600 }",
        r#""ttft.p50 < 10s", "ttft.p50 < 1us""#,
    ))
    .expect(1);
    assert_eq!([ruling(&lab, 0), ruling(&lab, 1)], ["pass", "fail"]);
    lab.run(&sim(
        "{ concurrency: 4, requests: 100 }",
        r#""ttft.p99 < 10s""#,
    ))
    .expect(5);
    let slo = &lab.results()["cases"][0]["slo"][0];
    assert_eq!(
        (
            slo["verdict"].as_str(),
            slo["n"].as_u64(),
            slo["need"].as_u64()
        ),
        (Some("inconclusive"), Some(100), Some(299))
    );
    assert!(
        lab.text("out/junit.xml").contains("<failure"),
        "CI must not turn green unasked"
    );
    let mapped = lab.llmscen(&["report", "out", "--inconclusive", "pass"]);
    assert!(
        !lab.text("out/junit.xml").contains("<failure"),
        "what the exit code forgives is no failure to a CI either"
    );
    mapped.expect(0);
}

#[test]
fn a_gate_over_two_requests_decides_nothing() {
    let lab = Lab::new();
    lab.run(&sim(
        "{ concurrency: 1, requests: 2 }",
        r#""ttft.p95 < 10s", "error_rate < 1%""#,
    ))
    .expect(5);
    assert_eq!(
        [ruling(&lab, 0), ruling(&lab, 1)],
        ["inconclusive", "inconclusive"]
    );
    let point = r#"{ expr: "ttft.p95 < 10s", confidence: point }"#;
    lab.run(&sim("{ concurrency: 1, requests: 2 }", point))
        .expect(0);
}

#[test]
fn no_data_fails_and_is_never_a_silent_pass() {
    let lab = Lab::new();
    lab.run(&sim(
        "{ concurrency: 1, requests: 3 }",
        r#""cached_tokens.p50 < 1""#,
    ))
    .expect(1);
    let slo = lab.results()["cases"][0]["slo"][0].clone();
    assert_eq!(
        (slo["verdict"].as_str(), slo["n"].as_u64()),
        (Some("fail"), Some(0))
    );
    assert!(slo["observed"].is_null());
}

#[test]
fn a_verdict_that_the_load_generator_could_have_flipped_is_4_and_others_stay() {
    let lab = Lab::new();
    let objectives = r#""ttft.p95 < 10s", "output_tps >= 1", "error_rate < 20%""#;
    lab.run(
        &sim("{ concurrency: 2, requests: 100 }", objectives).replace("cpu: 100%", "cpu: 0.001%"),
    )
    .expect(4);
    assert_eq!(
        [0, 1, 2].map(|index| ruling(&lab, index)),
        ["pass", "invalid", "pass"]
    );
    let case = &lab.results()["cases"][0];
    let note = case["slo"][1]["note"].as_str().unwrap();
    assert!(note.contains("(limit 0.001%, `audit.cpu`)"), "{note}");
    assert_eq!(
        case["audit"]["objectives"][1]["measured"], "pass",
        "{case:#}"
    );
    assert!(
        lab.text("out/junit.xml").matches("<error").count() == 1,
        "{}",
        lab.text("out/junit.xml")
    );
    // A case without an objective has nothing else to be judged by.
    let bare = sim("{ concurrency: 2, requests: 100 }", "").replace("cpu: 100%", "cpu: 0.001%");
    lab.run(&bare).expect(4);
    assert_eq!(lab.results()["cases"][0]["audit"]["valid"], false);
}

#[test]
fn a_tiny_max_in_flight_drops_counts_and_invalidates() {
    let lab = Lab::new();
    let scenario = sim("{ rate: 300/s, requests: 150, max_in_flight: 1 }", "")
        .replace("achieved: 1%", "achieved: 98%")
        .replace("alpha: 2ms", "alpha: 20ms");
    lab.run(&scenario).expect(4);
    let case = &lab.results()["cases"][0];
    let dropped = case["counts"]["dropped"].as_u64().unwrap();
    assert!(dropped > 50, "{case:#}");
    assert_eq!(case["counts"]["failures"]["dropped"], dropped);
    assert_eq!(case["counts"]["scheduled"], 150);
    assert_eq!(case["counts"]["ok"].as_u64().unwrap() + dropped, 150);
}

#[test]
fn when_picks_its_cases_and_rounds_are_pooled() {
    let lab = Lab::new();
    let scenario = sim(
        "{ concurrency: 1, requests: 10 }",
        r#"{ expr: "e2e.p50 < 1us", when: { load.concurrency: 2 }, confidence: point }"#,
    ) + "matrix: { load.concurrency: [1, 2] }\nrounds: 2\n";
    lab.run(&scenario).expect(1);
    let results = lab.results();
    let cases = results["cases"].as_array().unwrap();
    assert_eq!(
        cases
            .iter()
            .map(|case| case["id"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["concurrency=1", "concurrency=2"]
    );
    assert_eq!(cases[0]["slo"].as_array().unwrap().len(), 0);
    assert_eq!(cases[1]["slo"][0]["verdict"], "fail");
    for case in cases {
        assert_eq!(
            (
                case["counts"]["scheduled"].as_u64(),
                case["rounds"].as_u64()
            ),
            (Some(20), Some(2))
        );
    }
    let order: Vec<(String, u64)> = lab.json("out/manifest.json")["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| {
            (
                part["case"].as_str().unwrap().to_owned(),
                part["round"].as_u64().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("concurrency=1", 0),
        ("concurrency=2", 0),
        ("concurrency=1", 1),
        ("concurrency=2", 1),
    ];
    assert_eq!(
        order,
        wanted.map(|(case, round)| (case.to_owned(), round)),
        "rounds are interleaved"
    );
}
