//! Cases that end before their plan does: a limit that is lost, and a server that only falls behind.

use crate::lab::*;

/// Token steps of 10 ms, four concurrent requests of three tokens: at most about 130 requests/s.
fn scenario(load: &str, slo: &str, more: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {{ alpha: 10ms, max_num_seqs: 4 }} }}\n\
         request: {{ max_tokens: 3 }}\ndataset: {{ kind: prompt, text: hello }}\nload: {load}\nslo: [{slo}]\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100% }}\n{more}"
    )
}

#[test]
fn a_lost_limit_ends_its_case_and_the_next_one_runs() {
    let lab = Lab::new();
    let slo = "\"ttft.p50 < 10s\", { expr: \"e2e.p90 < 5ms\", abort: { min_samples: 40 }, when: { load.concurrency: 4 } }";
    let more = "matrix: { load.concurrency: [4, 2] }\nrounds: 2\n";
    let ran = lab
        .run(
            &scenario("{ concurrency: 4, requests: 60 }", slo, more)
                .replace("requests: 60", "requests: 20x"),
        )
        .expect(1);
    let results = lab.results();
    let (lost, whole) = (&results["cases"][0], &results["cases"][1]);
    let aborted = &lost["aborted"];
    assert_eq!(
        (&aborted["check"], &aborted["n"], &aborted["breaking"]),
        (&1.into(), &40.into(), &40.into()),
        "{aborted}"
    );
    assert_eq!(
        (&aborted["planned"], &aborted["alpha"]),
        (&80.into(), &0.005.into()),
        "two rounds share alpha"
    );
    // Requests in flight may still complete: at most four, and those that ended while the fortieth was counted.
    let scheduled = lost["counts"]["scheduled"].as_u64().unwrap();
    assert!((40..80).contains(&scheduled), "{scheduled}");
    assert_eq!(
        (&lost["rounds"], &lost["audit"]["valid"]),
        (&1.into(), &true.into()),
        "{lost:#}"
    );
    let verdicts: Vec<_> = lost["slo"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slo| slo["verdict"].as_str().unwrap())
        .collect();
    assert_eq!(verdicts, ["inconclusive", "fail", "inconclusive"]);
    let note = lost["slo"][1]["note"].as_str().unwrap();
    let after = aborted["after"].as_u64().unwrap();
    assert_eq!(
        note,
        format!("aborted after {after} of 80 requests: 40 of 40 exceeded the limit (10 % allowed)")
    );
    assert!(
        lost["slo"][0]["note"]
            .as_str()
            .unwrap()
            .contains("the case was aborted by `e2e.p90 < 5ms`")
    );
    assert_eq!(
        (
            &whole["rounds"],
            &whole["counts"]["ok"],
            &whole["slo"][0]["verdict"]
        ),
        (&2.into(), &80.into(), &"pass".into())
    );
    assert!(whole["aborted"].is_null());
    assert!(
        ran.err.contains(note) && ran.out.contains("aborted after"),
        "{}\n{}",
        ran.out,
        ran.err
    );
    assert!(lab.text("out/report.md").contains(note));
    // The report command prints the same.
    lab.llmscen(&["report", "out"]).expect(1);
    assert_eq!(lab.results(), results);
}

#[test]
fn a_met_objective_is_never_aborted() {
    let lab = Lab::new();
    let slo = "{ expr: \"error_rate < 10%\", abort: { min_samples: 1 } }";
    lab.run(&scenario("{ concurrency: 2, requests: 60 }", slo, ""))
        .expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 60);
}

#[test]
fn a_server_that_only_falls_behind_is_left_alone_and_the_tool_not_blamed() {
    let lab = Lab::new();
    let load = "{ rate: 400/s, duration: 60s, stop_when_saturated: true, graceful_stop: 1s }";
    let ran = lab
        .run(&scenario(load, "\"ttft.p95 < 100ms\"", ""))
        .expect(1);
    let case = lab.results()["cases"][0].clone();
    let seen = &case["saturated"];
    let (from, at) = (
        seen["from_s"].as_f64().unwrap(),
        seen["at_s"].as_f64().unwrap(),
    );
    assert!(from < at && at < 50.0, "{seen}");
    assert!(
        seen["in_flight_slope"].as_f64().unwrap() > 0.0
            && seen["ttft_slope"].as_f64().unwrap() > 0.0,
        "{seen}"
    );
    assert_eq!(
        (&case["audit"]["valid"], &case["counts"]["dropped"]),
        (&true.into(), &0.into()),
        "{case:#}"
    );
    assert!(
        case["audit"]["achieved_over_offered"].as_f64().unwrap() > 0.8,
        "{case:#}"
    );
    assert!(ran.err.contains("saturated at "), "{}", ran.err);
    assert!(lab.text("out/report.md").contains("saturated at "));
}

#[test]
fn a_server_that_keeps_up_is_sent_everything() {
    let lab = Lab::new();
    let load = "{ rate: 40/s, requests: 300, stop_when_saturated: true }";
    lab.run(&scenario(load, "", "")).expect(0);
    let case = lab.results()["cases"][0].clone();
    assert!(
        case["saturated"].is_null() && case["counts"]["ok"] == 300,
        "{case:#}"
    );
    let steady = [&case["steady_from_s"], &case["steady_until_s"]].map(|at| at.as_f64().unwrap());
    assert!(
        0.0 <= steady[0] && steady[0] < steady[1] && steady[1] < 30.0,
        "{steady:?}"
    );
    assert!(lab.text("out/report.md").contains("## Steady state"));
}
