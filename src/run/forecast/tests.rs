use super::*;
use llmscen_core::dataset::{TraceSpec, Turns};
use llmscen_core::plan::TraceFile;
use llmscen_scenario::{Input, load};
use std::collections::BTreeMap;
use std::path::Path;

fn plan(load_section: &str, rounds: u32, slo: &[&str]) -> Plan {
    let slo: String = slo
        .iter()
        .map(|expr| {
            format!(
                "\n  - {}",
                if expr.starts_with('{') {
                    expr.to_string()
                } else {
                    format!("{expr:?}")
                }
            )
        })
        .collect();
    let text = format!(
        "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n\
         load: {{ {load_section} }}\nrounds: {rounds}\nslo:{}",
        if slo.is_empty() { " []" } else { &slo }
    );
    load(&Input {
        path: Path::new("x.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    })
    .unwrap()
    .plan
}

fn offline(cache: &CacheDir) -> DataAccess<'_> {
    DataAccess {
        cache,
        progress: &|_| (),
    }
}

#[test]
fn objectives_that_cannot_pass_are_listed() {
    let limits = [
        "ttft.p99 < 1s",
        "decode_tps.p1 > 5",
        "goodput(ttft < 1s) >= 99%",
        "error_rate < 1%",
        "{ expr: ttft.p95 < 1s, confidence: 0.9999 }",
        "ttft{round=1}.p97 < 1s",
        "ttft.p98 < 1s",
        "{ expr: ttft.p99 < 2s, confidence: point }",
        "ttft.max < 1s",
        "error_rate <= 0%",
        "itl.p99 < 1s",
    ];
    let lines = undecidable(&plan("concurrency: 2, requests: 80", 2, &limits));
    let known = [
        "`ttft.p99 < 1s`, `decode_tps.p1 > 5`, `goodput(ttft < 1s) >= 99%`, `error_rate < 1%` \
         cannot pass in `base`: it needs at least 299 requests, at most 160 will be measured",
        "`ttft.p95 < 1s` cannot pass in `base`: it needs at least 180 requests, at most 160 will be measured",
        "`ttft{round=1}.p97 < 1s` cannot pass in `base`: it needs at least 99 requests, at most 80 will be measured",
        "`ttft.p98 < 1s` may stay inconclusive in `base`: 149 independent requests are enough, \
         but consecutive requests are correlated (design effect 2.0, usual for this metric and \
         load); about 298 are needed, at most 160 will be measured",
    ];
    assert_eq!(lines, known);
}

#[test]
fn one_reason_is_one_line_with_its_objectives_and_cases() {
    let text = "version: 1\nname: x\ntarget: { url: simulator }\ndataset: { kind: prompt, text: x }\n\
                load: { requests: 80 }\nmatrix: { load.concurrency: [1, 2, 3, 4, 5, 6] }\n\
                slo: [ttft.p99 < 1s, tpot.p99 < 1s, { expr: e2e.p99 < 1s, when: { load.concurrency: 3 } }]";
    let input = Input {
        path: Path::new("x.yaml"),
        text: Some(text.into()),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = load(&input).unwrap().plan;
    let why = "it needs at least 299 requests, at most 80 will be measured";
    let cases =
        "`concurrency=1`, `concurrency=2`, `concurrency=3`, `concurrency=4` and 2 more cases";
    let known = [
        format!("`ttft.p99 < 1s`, `tpot.p99 < 1s` cannot pass in {cases}: {why}"),
        format!("`e2e.p99 < 1s` cannot pass in `concurrency=3`: {why}"),
    ];
    assert_eq!(undecidable(&plan), known);
}

#[test]
fn arrivals_bound_the_number_too() {
    let count = |load: &str| undecidable(&plan(load, 1, &["ttft.p99 < 1s"])).concat();
    assert!(
        count("rate: 29/s, duration: 10s, arrivals: constant")
            .ends_with("at most 290 will be measured")
    );
    assert!(count("rate: 10/s, duration: 10s").ends_with("at most 140 will be measured"));
    assert!(
        count("rate: 10/s, duration: 10s, arrivals: { gamma: 0.25 }")
            .ends_with("at most 180 will be measured")
    );
    assert!(
        count("rate: 100/s, duration: 10s, requests: 50").ends_with("at most 50 will be measured")
    );
    assert_eq!(count("concurrency: 1, duration: 1s"), "");
    assert_eq!(
        undecidable(&plan(
            "concurrency: 50, requests: 499",
            1,
            &["ttft.p99 < 1s"]
        ))
        .pop()
        .unwrap(),
        "throughputs in `base` may be those of the whole run, start and drain included, and \
         limits on them INCONCLUSIVE: fewer than 10 requests per user"
    );
    assert!(!count("concurrency: 50, requests: 500").contains("throughputs"));
    let correlated = "`ttft.p99 < 1s` may stay inconclusive in `base`: 299 independent requests \
                      are enough, but consecutive requests are correlated (design effect 3.0, \
                      usual for this metric and load); about 897 are needed, at most 359 will be \
                      measured";
    assert_eq!(count("rate: 29/s, duration: 10s"), correlated);
    let tpot = undecidable(&plan(
        "concurrency: 2, requests: 80",
        1,
        &["tpot.p95 < 1s", "ttft.p95 < 1s"],
    ))
    .concat();
    assert!(
        tpot.starts_with("`tpot.p95 < 1s` may stay") && tpot.contains("(design effect 5.0"),
        "{tpot}"
    );
}

fn described(plan: &Plan) -> (String, String) {
    let extents = extents(
        plan,
        &offline(&CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        }),
    )
    .unwrap();
    (
        describe_requests(plan, &extents),
        describe_time(plan, &extents),
    )
}

/// What follows in open loops and with sessions.
const MORE: &str = ", then more until the last one has ended";

#[test]
fn a_random_number_of_requests_is_about() {
    let requests = |plan| described(&plan).0;
    assert_eq!(
        requests(plan("concurrency: 2, requests: 80, warmup: 4", 2, &[])),
        "168 (warm-up included)"
    );
    assert_eq!(
        requests(plan("rate: 10/s, duration: 2s", 1, &[])),
        format!("about 20 (warm-up included){MORE}")
    );
    assert_eq!(
        requests(plan("rate: 10/s, duration: 2s, arrivals: constant", 1, &[])),
        format!("20 (warm-up included){MORE}")
    );
    assert_eq!(
        requests(plan("concurrency: 1, duration: 2s", 1, &[])),
        "as many as the durations allow"
    );
}

#[test]
fn a_replay_is_as_long_as_its_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    std::fs::write(
        &path,
        "Timestamp,Request tokens,Response tokens\n0,1,1\n10,1,1\n60,1,1\n",
    )
    .unwrap();
    let mut plan = plan("concurrency: 1, requests: 9", 2, &[]);
    let path = path.display().to_string();
    plan.cases[0].trace = Some(TraceFile {
        path,
        spec: TraceSpec::default(),
    });
    plan.cases[0].load.shape = Shape::Replay { speed: 2.0 };
    assert_eq!(
        described(&plan),
        (
            format!("6 (warm-up included){MORE}"),
            "about 1 min 0 s".into()
        )
    );
    plan.cases[0].trace = None;
    let none = extents(
        &plan,
        &offline(&CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        }),
    );
    assert!(matches!(none, Err(RunError::NoArrivals)));
}

#[test]
fn every_turn_of_a_conversation_is_measured() {
    let mut plan = plan("concurrency: 2, requests: 80", 2, &["ttft.p99 < 1s"]);
    plan.cases[0].dataset.turns = Some(Turns {
        max: Some(1),
        ..Turns::default()
    });
    assert!(
        undecidable(&plan)
            .concat()
            .ends_with("at most 160 will be measured")
    );
    plan.cases[0].dataset.turns = Some(Turns {
        max: Some(2),
        ..Turns::default()
    });
    let lines = undecidable(&plan);
    assert!(
        lines.len() == 1 && lines[0].contains("about 897 are needed, at most 320 will be measured"),
        "{lines:?}"
    );
    plan.cases[0].dataset.turns = Some(Turns::default());
    assert_eq!(undecidable(&plan), Vec::<String>::new());
    assert_eq!(
        described(&plan).0,
        format!("160 (warm-up included, a conversation counted once){MORE}")
    );
}

#[test]
fn stages_have_requests_and_durations_and_each_is_checked() {
    let stages = "stages: [{ rate: 1/s, for: 30s }, { rate: 1/s -> 20/s, for: 2m }], warmup: 10s";
    let mut staged = plan(stages, 2, &["ttft.p99 < 1s"]);
    assert_eq!(
        described(&staged),
        (
            "about 2580 (warm-up included)".into(),
            "about 5 min 0 s".into()
        )
    );
    let line = "`ttft.p99 < 1s` cannot pass in `base/stage=1`: it needs at least 299 requests, at \
    most 91 will be measured";
    assert_eq!(undecidable(&staged), [line]);
    staged = plan(
        &format!("{stages}, arrivals: constant, requests: 40"),
        1,
        &[],
    );
    assert_eq!(described(&staged).0, "50 (warm-up included)");
    staged = plan("stages: [{ concurrency: 1 -> 9, for: 90s }]", 1, &[]);
    assert_eq!(
        described(&staged),
        (
            "as many as the durations allow".into(),
            "about 1 min 30 s".into()
        )
    );
    assert_eq!(
        described(&plan(
            "static: { batch: 16, rounds: 10 }, warmup: 2x",
            1,
            &[]
        ))
        .0,
        "192 (warm-up included)"
    );
}

fn mixed(mix: &str, load_section: &str, slo: &[&str]) -> Plan {
    let mut plan = String::from(
        "version: 1\nname: x\ntarget: { url: simulator }\ndataset: { kind: prompt, text: x }\n",
    );
    plan += &format!("mix: {mix}\nload: {{ {load_section} }}\nslo: {slo:?}\n");
    load(&Input {
        path: Path::new("x.yaml"),
        text: Some(plan),
        env: &BTreeMap::new(),
        set: &[],
    })
    .unwrap()
    .plan
}

#[test]
fn an_objective_on_an_entry_has_its_share_of_the_requests() {
    let by_weight = "[{ name: chat, weight: 4 }, { name: rare }]";
    let slo = [
        "ttft{group=rare}.p99 < 1s",
        "ttft{group=chat}.p99 < 1s",
        "ttft.p99 < 1s",
    ];
    let lines = undecidable(&mixed(by_weight, "concurrency: 2, requests: 400", &slo));
    // 80 and four times the square root of 64.
    let line = "`ttft{group=rare}.p99 < 1s` cannot pass in `base`: it needs at least 299 \
    requests, at most 112 will be measured";
    assert_eq!((lines[0].as_str(), lines.len()), (line, 3));
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.contains("design effect 3.0")),
        "{lines:?}"
    );
    let by_rate = "[{ name: chat, rate: 40/s }, { name: rare, rate: 10/s }]";
    let lines = undecidable(&mixed(by_rate, "duration: 10s, arrivals: constant", &slo));
    // Of 502: 100.4 and four times the square root of 80.32.
    assert_eq!(lines[0], line.replace("112", "137"));
    assert!(
        lines[1..]
            .iter()
            .all(|line| line.contains("may stay inconclusive")),
        "{lines:?}"
    );
}

#[test]
fn every_entry_shows_its_first_request() {
    let mix =
        "[{ name: chat, request: { max_tokens: 3 } }, { name: sum, request: { max_tokens: 5 } }]";
    let cache = CacheDir {
        dir: "unused".into(),
        hub: String::new(),
        ..CacheDir::default()
    };
    let forecast = forecast(&mixed(mix, "rate: 5/s, requests: 9", &[]), &offline(&cache)).unwrap();
    let lines: Vec<(Option<&str>, bool, bool)> = forecast
        .first_bodies
        .iter()
        .map(|(name, body)| {
            (
                name.as_deref(),
                body.contains("\"max_tokens\": 3"),
                body.contains("\"max_tokens\": 5"),
            )
        })
        .collect();
    assert_eq!(
        lines,
        [(Some("chat"), true, false), (Some("sum"), false, true)]
    );
    assert_eq!(forecast.requests, format!("9 (warm-up included){MORE}"));
}
