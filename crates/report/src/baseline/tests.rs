use super::*;
use llmscen_core::baseline::LEVELS;
use llmscen_core::check::relative::Answers;
use llmscen_core::label::Scalar;
use std::sync::Arc;

fn sample() -> Baseline {
    let bounds = |value: f64| vec![Some(value * 0.9876543), None, Some(value)];
    let figure = |value: f64| Figure {
        value,
        n: 400,
        low: bounds(value),
        high: bounds(value),
        runs: vec![Some(value)],
    };
    let point = Figure {
        value: 12_345_678.9,
        n: 400,
        runs: vec![Some(12_345_678.9)],
        ..Figure::default()
    };
    let case = |id: &str| BaselineCase {
        id: id.to_owned(),
        labels: [("load.concurrency".to_owned(), Scalar::Int(4))].into(),
        rounds: 1,
        scheduled: 400,
        ok: 399,
        answers: None,
        metrics: vec![
            ("ttft.p95".into(), figure(12.3456789)),
            ("ttft.p5".into(), figure(1.0)),
            ("ttft.max".into(), point.clone()),
        ],
    };
    let run = BaselineRun {
        run_id: "r".into(),
        started_at: "2026-01-02T03:04:05Z".into(),
        tool_version: "0.1.0".into(),
        plan_id: "p".into(),
        seed: u64::MAX,
        machine: "bench-1".into(),
    };
    Baseline {
        name: "chat".into(),
        runs: vec![run],
        plan: [("load.concurrency".to_owned(), "4".to_owned())].into(),
        confidences: LEVELS.to_vec(),
        cases: vec![case("a"), case("b \"quoted\"")],
    }
}

#[test]
fn a_statistic_is_a_line_with_six_significant_digits() {
    let text = baseline(&sample()).unwrap();
    let line = "        \"ttft.p95\": { \"value\": 12.3457, \"n\": 400, \"low\": [12.1933, \
    null, 12.3457], \"high\": [12.1933, null, 12.3457] },\n";
    assert!(text.contains(line), "{text}");
    assert!(
        text.contains("        \"ttft.max\": { \"value\": 12345700.0, \"n\": 400 }\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "  \"confidences\": [0.9, 0.95, 0.99],\n  \"runs\": [\n    {\"run_id\":\"r\","
        ),
        "{text}"
    );
    assert!(text.ends_with("    }\n  ]\n}\n"), "{text}");
}

#[test]
fn it_round_trips_to_the_same_bytes() {
    for made in [
        sample(),
        Baseline {
            cases: Vec::new(),
            ..sample()
        },
    ] {
        let text = baseline(&made).unwrap();
        let read: Baseline = serde_json::from_str(&text).unwrap();
        assert_eq!(baseline(&read).unwrap(), text);
        assert_eq!(read.cases.len(), made.cases.len());
    }
    let mut made = sample();
    let answers = Answers([(7, true), (u64::MAX, false)].into());
    made.cases[0].answers = Some(Arc::new(answers));
    let text = baseline(&made).unwrap();
    let line = r#"      "answers": {"matched":"0000000000000007","missed":"ffffffffffffffff"},"#;
    assert!(text.lines().any(|own| own == line), "{text}");
    let read: Baseline = serde_json::from_str(&text).unwrap();
    assert_eq!(read.cases[0].answers, made.cases[0].answers);
    let names: Vec<&str> = read.cases[1]
        .metrics
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(
        (names, read.runs[0].seed),
        (vec!["ttft.p95", "ttft.p5", "ttft.max"], u64::MAX)
    );
}

#[test]
fn another_run_adds_a_line_and_a_value() {
    let later = |id: &str, start: &str| {
        let mut baseline = sample();
        baseline.runs[0].run_id = id.to_owned();
        baseline.runs[0].started_at = start.to_owned();
        baseline
    };
    let two = sample().with(later("s", "2026-01-03T03:04:05Z"));
    let text = baseline(&two).unwrap();
    assert!(
        text.contains("\"high\": [12.1933, null, 12.3457], \"runs\": [12.3457, 12.3457] },\n"),
        "{text}"
    );
    assert!(
        text.contains("\"ttft.max\": { \"value\": 12345700.0, \"n\": 400, \"runs\": [12345700.0, 12345700.0] }\n"),
        "{text}"
    );
    assert_eq!(
        text.lines().count(),
        baseline(&sample()).unwrap().lines().count() + 1
    );
    let read: Baseline = serde_json::from_str(&text).unwrap();
    assert_eq!((read.runs.len(), baseline(&read).unwrap()), (2, text));
}

#[test]
fn the_main_metrics_and_those_of_the_objectives_are_shown() {
    let figure = |value: f64| Figure {
        value,
        n: 400,
        low: vec![None, Some(value * 0.9), None],
        high: vec![None; 3],
        ..Figure::default()
    };
    let metrics = [
        ("output_tps", 420.0),
        ("ttft.p98", 9.0),
        ("ttft.p95", 12.0),
        ("goodput(ttft < 500ms)", 0.99),
    ];
    let case = BaselineCase {
        id: "concurrency=4".into(),
        labels: Default::default(),
        rounds: 1,
        scheduled: 400,
        ok: 400,
        answers: None,
        metrics: metrics
            .map(|(name, value)| (name.to_owned(), figure(value)))
            .to_vec(),
    };
    let baseline = Baseline {
        confidences: LEVELS.to_vec(),
        cases: vec![case],
        ..Baseline::default()
    };
    insta::assert_snapshot!(baseline_table(&baseline, None, false), @r"
        CASE           METRIC                     VALUE       FROM   TO    N
        concurrency=4  ttft.p95                   12 ms    10.8 ms  n/a  400
        concurrency=4  output_tps             420 tok/s  378 tok/s  n/a  400
        concurrency=4  goodput(ttft < 500ms)        99%      89.1%  n/a  400
        ");
}

fn noises() -> Vec<RunVariation> {
    let ttft = RunVariation {
        case: "concurrency=16,max_tokens=128".into(),
        figure: "ttft.p95".into(),
        share: false,
        runs: 10,
        mean: 213.4,
        sd: 0.0213,
        one: Some(0.068),
        three: Some(0.065),
        five: Some(0.043),
        needed: Some(5),
    };
    let good = RunVariation {
        figure: "goodput(ttft < 500ms)".into(),
        share: true,
        mean: 0.991,
        needed: None,
        ..ttft.clone()
    };
    vec![ttft, good]
}

#[test]
fn the_table_fits_a_narrow_terminal_and_uses_a_wide_one() {
    for width in [80, 160] {
        let text = noise_table(&noises(), Some(width), false);
        assert!(
            text.lines().all(|line| line.chars().count() <= width),
            "{text}"
        );
        assert!(
            text.contains("RUNS FOR 5%") && text.contains("2.1%") && text.contains("> 100"),
            "{text}"
        );
    }
    let wide = noise_table(&noises(), Some(160), false);
    assert!(
        wide.contains("213 ms") && wide.contains("6.80 pp") && wide.contains("5 PER SIDE"),
        "{wide}"
    );
}

#[test]
fn json_has_shares() {
    let text = noise_json(&Baseline::default(), &noises()).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&read["schema"], &read["metrics"][0]["sd"]),
        (&json!(NOISE_SCHEMA), &json!(0.0213))
    );
    assert_eq!(
        (
            &read["metrics"][0]["runs_for_5_percent"],
            &read["metrics"][1]["runs_for_5_percent"]
        ),
        (&json!(5), &json!(null))
    );
}
