//! Checks of answers: shares, reasons, stored texts and verdicts.

use crate::lab::Lab;
use crate::sessions::{Recorder, says};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use serde_json::{Value, json};

const AUDIT: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

/// A scenario with these sections against a simulator with these answers.
fn scenario(answers: &str, sections: &str) -> String {
    format!(
        "version: 1\nname: t\nseed: 5\n\
         target: {{ url: simulator, simulator: {{ alpha: 100us, beta: 1us, answers: {answers} }} }}\n\
         {sections}\n{AUDIT}"
    )
}

fn case(lab: &Lab) -> Value {
    lab.results()["cases"][0].clone()
}

fn requests(lab: &Lab) -> DataFrame {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    ParquetReader::new(file).finish().unwrap()
}

/// The values of a column of flags: true, false, null.
fn counts(frame: &DataFrame, column: &str) -> (usize, usize, usize) {
    let values = frame.column(column).unwrap().bool().unwrap().clone();
    let count = |wanted: Option<bool>| values.iter().filter(|value| *value == wanted).count();
    (count(Some(true)), count(Some(false)), count(None))
}

#[test]
fn wrong_answers_are_counted_listed_and_judged() {
    let lab = Lab::new();
    lab.file(
        "q.jsonl",
        "{\"prompt\": \"Say one two three four five six.\", \"truth\": \"five\"}\n\
         {\"prompt\": \"Say seven eight nine ten eleven twelve.\", \"truth\": [\"ten\", \"x\"]}\n",
    );
    let sections = "dataset: { kind: rows, path: q.jsonl }\n\
        request: { max_tokens: 32, expect: { contains: item.truth, regex: '^Say', repetition: \"< 50%\", keep: 2 } }\n\
        load: { concurrency: 4, requests: 200, warmup: 10 }\n\
        slo: [ 'valid_rate >= 80%', 'match_rate >= 80%', 'match_rate >= 99%', 'valid_rate < 80%' ]";
    let ran = lab.run(&scenario("{ kind: echo, wrong: 10% }", sections));
    ran.expect(1);
    let case = case(&lab);
    let frame = requests(&lab);
    let measured = frame
        .column("phase")
        .unwrap()
        .str()
        .unwrap()
        .iter()
        .map(|phase| phase == Some("measured"))
        .collect::<Vec<_>>();
    assert_eq!(measured.iter().filter(|measured| **measured).count(), 200);
    let shares = case["answers"]["shares"].as_array().unwrap();
    let passed = shares[0]["passed"].as_u64().unwrap();
    assert_eq!(
        shares,
        &[
            json!({ "metric": "valid_rate", "passed": passed, "checked": 200 }),
            json!({ "metric": "match_rate", "passed": passed, "checked": 200 }),
        ]
    );
    assert!((170..=190).contains(&passed), "{passed}");
    // Warm-up requests are checked too, but only counted in the file.
    let (good, bad, none) = counts(&frame, "valid");
    assert_eq!((good + bad, none), (210, 0));
    assert_eq!(counts(&frame, "match"), (good, bad, none));
    assert_eq!(counts(&frame, "length_exact"), (0, 0, 210));
    assert_eq!(case["metrics"]["valid_rate"], json!(passed as f64 / 200.0));
    assert_eq!(case["metrics"]["length_exact"], Value::Null);
    assert_eq!(
        case["answers"]["failed_checks"],
        json!([{ "check": "regex", "count": 200 - passed, "reason": "no match" }])
    );
    let failed = case["answers"]["failed_answers"].as_array().unwrap();
    assert_eq!(failed.len(), 2, "`keep` limits the stored texts");
    for answer in failed {
        assert_eq!(answer["text"], " the".repeat(6), "{answer}");
        assert_eq!(
            (&answer["check"], &answer["reason"]),
            (&json!("regex"), &json!("no match"))
        );
    }
    let stored = frame
        .column("failed_answer")
        .unwrap()
        .str()
        .unwrap()
        .clone();
    assert_eq!(stored.iter().flatten().count(), 2);
    let rulings: Vec<&str> = case["slo"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slo| slo["verdict"].as_str().unwrap())
        .collect();
    // The last one is the default limit on failures.
    assert_eq!(rulings, ["pass", "pass", "fail", "fail", "pass"]);
    for report in ["report.md", "report.html"] {
        let text = lab.text(&format!("out/{report}"));
        assert!(
            text.contains("Match the truth") && text.contains("no match"),
            "{report}"
        );
    }
}

#[test]
fn documents_lengths_and_classes_have_their_own_shares() {
    let lab = Lab::new();
    lab.file(
        "schema.json",
        "{\"type\": \"object\", \"required\": [\"answer\"], \"properties\": {\"answer\": {\"type\": \"string\"}}}",
    );
    let sections = "mix:\n\
        \x20 - { name: chat, request: { max_tokens: 8, expect: { length: exact } } }\n\
        \x20 - { name: json, request: { max_tokens: 64, expect: { json_schema: schema.json } } }\n\
        \x20 - { name: free }\n\
        dataset: { kind: prompt, text: 'Give me \"quoted\" words' }\n\
        load: { concurrency: 4, requests: 90 }\n\
        slo: [ 'valid_rate{group=json} >= 100%', 'length_exact{group=chat} >= 100%' ]";
    for api in ["openai-chat", "anthropic", "ollama"] {
        let text = scenario("{ kind: json }", sections)
            .replace("url: simulator", &format!("url: simulator, api: {api}"))
            .replace("dataset:", "request: { max_tokens: 16 }\ndataset:");
        lab.run(&text).expect(1);
        let case = case(&lab);
        let rulings: Vec<(&str, f64)> = case["slo"]
            .as_array()
            .unwrap()
            .iter()
            .map(|slo| {
                (
                    slo["verdict"].as_str().unwrap(),
                    slo["observed"].as_f64().unwrap(),
                )
            })
            .collect();
        // `{"answer": "Give me "quoted" words"}` has five words, not eight.
        let expected = [("pass", 1.0), ("fail", 0.0), ("pass", 0.0)];
        assert_eq!(rulings, expected, "{api}");
        let group = |name: &str| {
            let groups = case["groups"].as_array().unwrap();
            let scheduled = groups.iter().find(|group| group["name"] == name).unwrap();
            scheduled["scheduled"].as_u64().unwrap()
        };
        let shares = json!([
            { "metric": "valid_rate", "passed": group("json"), "checked": group("json") },
            { "metric": "length_exact", "passed": 0, "checked": group("chat") },
        ]);
        assert_eq!(case["answers"]["shares"], shares, "{api}");
        let check = &case["answers"]["failed_checks"][0];
        assert_eq!(
            (&check["check"], &check["reason"]),
            (&json!("length"), &json!("5 of 8 tokens")),
            "{api}"
        );
    }
}

#[test]
fn reasoning_is_not_part_of_the_answer_and_has_its_time() {
    let lab = Lab::new();
    let sections = "dataset: { kind: prompt, text: one two three }\n\
        request: { max_tokens: 16, expect: { equals: one two three } }\n\
        load: { concurrency: 1, requests: 20 }\n\
        slo: [ 'match_rate >= 100%' ]";
    let text = scenario("{ kind: echo }", sections).replace(
        "alpha: 100us",
        "alpha: 2ms, faults: { reasoning_tokens: 5 }",
    );
    lab.run(&text).expect(0);
    let metrics = &case(&lab)["metrics"];
    // Five steps of at least 2 ms lie between the first reasoning token and the answer. A late timestamp of the token makes the
    // time of one request shorter, but not that of all.
    let time = &metrics["reasoning_time_ms"];
    assert_eq!(time["n"], 20);
    assert!(time["max"].as_f64().unwrap() >= 10.0, "{time}");
    let answer = metrics["time_to_first_answer_ms"]["max"].as_f64().unwrap();
    assert!(time["max"].as_f64().unwrap() < answer, "{time}");
}

#[test]
fn a_field_that_the_data_lacks_is_an_error_of_the_plan() {
    let lab = Lab::new();
    lab.file("q.jsonl", "{\"prompt\": \"x\", \"answer\": null}\n");
    let sections = "dataset: { kind: rows, path: q.jsonl }\n\
        request: { expect: { equals: item.answer } }\n\
        load: { concurrency: 1, requests: 2 }";
    lab.file("s.yaml", scenario("{ kind: echo }", sections));
    let planned = lab.llmscen(&["plan", "s.yaml"]).expect(2);
    assert!(
        planned
            .err
            .contains("the first row of the data has no text `answer`")
            && planned.err.contains("s.yaml:"),
        "{}",
        planned.err
    );
}

/// A server that answers question k with `ak`, but for the questions that `wrong` selects.
fn answering(wrong: fn(u64) -> bool) -> Recorder {
    Recorder::start(move |_, body| {
        let question = body["messages"][0]["content"].as_str().unwrap();
        let number: u64 = question.rsplit(' ').next().unwrap().parse().unwrap();
        match wrong(number) {
            true => says("no"),
            false => says(&format!("a{number}")),
        }
    })
}

#[test]
fn a_loss_of_five_points_shows_in_the_prompts_of_both_runs() {
    let lab = Lab::new();
    let row = |k: u64| format!("{{\"prompt\": \"question {k}\", \"truth\": \"a{k}\"}}\n");
    lab.file("q.jsonl", (0..300).map(row).collect::<String>());
    let scenario = |url: &str, limit: &str| {
        format!(
            "version: 1\nname: t\ntarget: {{ url: \"{url}\", model: m }}\ndataset: {{ kind: rows, path: q.jsonl }}\n\
             request: {{ stream: false, expect: {{ equals: item.truth }} }}\nload: {{ concurrency: 4, requests: 300 }}\n\
             baseline: {{ path: base.json, if_missing: inconclusive }}\nslo: [ '{limit}' ]\n{AUDIT}"
        )
    };
    let before = answering(|k| k % 10 == 0);
    let limit = "match_rate >= 1.0 * baseline";
    lab.run(&scenario(&before.url, limit)).expect(5);
    lab.llmscen(&["baseline", "update", "out", "--to", "base.json"])
        .expect(0);
    // 18 answers that were right are wrong, and 3 that were wrong are right.
    let after = answering(|k| k < 20 || k % 10 == 0 && !(40..=60).contains(&k));
    let note = || case(&lab)["slo"][0]["note"].clone();
    lab.run(&scenario(&after.url, limit)).expect(1);
    let counted = "of 300 prompts of both runs 18 were answered as expected in the baseline only, and 3 in this run only";
    assert_eq!(note(), counted);
    assert!(lab.text("out/report.md").contains(counted));
    // The drop is within what the limit tolerates.
    lab.run(&scenario(&after.url, "match_rate >= 0.9 * baseline"))
        .expect(0);
    // The stored plan has the answers, too.
    lab.llmscen(&["report", "out"]).expect(0);
    assert_eq!(note(), counted);
    let equal = lab.run(&scenario(&before.url, limit)).expect(5);
    assert!(equal.out.contains("INCONCLUSIVE"), "{}", equal.out);
}
