//! Replays of logs, and which rows of its data a run uses.

use crate::lab::Lab;
use crate::sessions::{Recorder, plan, says};
use crate::witness::context;
use llmscen::run::execution::{CompletedRun, run_plan};
use llmscen::run::stop::Stop;
use llmscen_core::dataset::{DatasetSpec, Source, TraceSpec, Turns};
use llmscen_core::load::Shape;
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Plan, TraceFile};
use llmscen_core::units::Nanos;
use polars::prelude::{DataType, ParquetReader, SerReader};
use std::collections::HashSet;
use std::time::Duration;

const LOG: &str = "Timestamp,Model,Request tokens,Response tokens\n\
    100.25,a,3,1\n100,b,4,1\n100.5,a,5,1\n100.5,a,6,1\nbroken,a,1,1\n101,a,7,1\n";

fn run(lab: &Lab, plan: &Plan) -> CompletedRun {
    run_plan(plan, &context(lab.path(), Stop::default())).unwrap()
}

/// `intended` of every row, milliseconds.
fn intended(lab: &Lab) -> Vec<f64> {
    let rows =
        ParquetReader::new(std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap())
            .finish()
            .unwrap();
    let stamps = rows.column("intended_ns").unwrap().u64().unwrap().clone();
    stamps
        .into_no_null_iter()
        .map(|at| at as f64 / 1e6)
        .collect()
}

/// A plan that replays its dataset, a trace.
fn replay(lab: &Lab, url: &str, log: &str, spec: TraceSpec, speed: f64) -> Plan {
    let mut plan = plan(
        url,
        "concurrency: 1, requests: 100",
        "kind: prompt, text: x",
    );
    let path = Some(lab.file("t.log", log).display().to_string());
    plan.cases[0].dataset = DatasetSpec {
        path,
        ..DatasetSpec::new(Source::Trace(spec))
    };
    plan.cases[0].load.shape = Shape::Replay { speed };
    plan
}

#[test]
fn a_replay_leaves_when_the_log_says_and_asks_for_as_much() {
    for (speed, due) in [
        (1.0, [0.0, 250.0, 500.0, 500.0, 1000.0]),
        (2.0, [0.0, 125.0, 250.0, 250.0, 500.0]),
    ] {
        let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
        let conducted = run(
            &lab,
            &replay(&lab, &server.url, LOG, TraceSpec::default(), speed),
        );
        assert_eq!(intended(&lab), due);
        let tokens = |text: &String| llmscen_datasets::token::Tokenizer::builtin().count(text);
        let lengths: HashSet<Option<u64>> = server.asked().iter().map(tokens).collect();
        assert_eq!(lengths, [3, 4, 5, 6, 7].map(Some).into());
        let report = &conducted.report;
        assert_eq!(
            (
                report.cases[0].counts.ok,
                report.manifest.parts[0].rows_dropped
            ),
            (5, 1)
        );
        assert!(
            report
                .manifest
                .notes
                .iter()
                .any(|note| note.contains("t.log:6: invalid time: broken"))
        );
        // Five arrivals span four gaps; the one after the last is as long as they are on average.
        assert_eq!(report.cases[0].scalars[&Metric::RateOffered], 4.0 * speed);
    }
}

#[test]
fn a_session_of_a_log_waits_after_the_ends_that_it_awaited() {
    let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
    let row = |id: u32, parent: i32, at: f64, ids: &str, input: u32| {
        format!(
            "{{\"chat_id\": {id}, \"parent_chat_id\": {parent}, \"timestamp\": {at}, \"input_length\": {input}, \
             \"output_length\": 3, \"hash_ids\": [{ids}]}}\n"
        )
    };
    let log = row(1, -1, 0.0, "1", 16)
        + &row(2, 1, 0.125, "1, 2", 32)
        + &row(3, 1, 0.25, "1, 3", 32)
        + &row(4, 2, 0.5, "1, 2, 4", 40)
        + &row(5, -1, 0.0625, "1, 5", 20);
    let mut plan = replay(&lab, &server.url, &log, TraceSpec::default(), 1.0);
    plan.cases[0].dataset.turns = Some(Turns::default());
    let conducted = run(&lab, &plan);
    assert_eq!(conducted.report.cases[0].counts.ok, 5);
    let rows =
        ParquetReader::new(std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap())
            .finish()
            .unwrap();
    let column = |name: &str| -> Vec<u64> {
        let column = rows.column(name).unwrap().cast(&DataType::UInt64).unwrap();
        column.u64().unwrap().into_no_null_iter().collect()
    };
    let [seq, turn, intended, end] = ["seq", "turn", "intended_ns", "end_ns"].map(column);
    let time = |times: &[u64], session: u64, number: u64| {
        let index = (0..times.len())
            .find(|&row| (seq[row], turn[row]) == (session, number))
            .unwrap();
        times[index]
    };
    let wait = |number, awaited| time(&intended, 0, number) - time(&end, 0, awaited);
    assert_eq!(
        (time(&intended, 0, 0), time(&intended, 1, 0)),
        (0, 62_500_000)
    );
    assert_eq!(
        [wait(1, 0), wait(2, 0), wait(3, 1)],
        [125_000_000, 250_000_000, 375_000_000]
    );
    // A later turn is its logged prompt, not a continuation of the reply.
    let builtin = llmscen_datasets::token::Tokenizer::builtin();
    let mut lengths: Vec<_> = server
        .asked()
        .iter()
        .map(|text| builtin.count(text))
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [16, 20, 32, 32, 40].map(Some));
}

/// Tokens of each message of a request: those of the user by the tokenizer, and the replies.
fn message_lengths(body: &serde_json::Value) -> Vec<u64> {
    let builtin = llmscen_datasets::token::Tokenizer::builtin();
    let messages = body["messages"].as_array().unwrap().iter();
    let content = |message: &serde_json::Value| message["content"].as_str().unwrap().to_owned();
    messages
        .map(|message| builtin.count(&content(message)).unwrap())
        .collect()
}

#[test]
fn rows_that_add_to_the_history_are_sent_with_it() {
    // The server gives as many tokens as it is asked for: "w" is one token.
    let server = Recorder::start(|_, body| {
        let tokens = body["max_tokens"].as_u64().unwrap() as usize;
        says(&vec!["w"; tokens].join(" "))
    });
    let row = |name: &str, at: u64, input: u64, output: u64| {
        format!(
            "{{\"session_id\": \"{name}\", \"timestamp\": {at}, \"input_length\": {input}, \"output_length\": {output}}}\n"
        )
    };
    let deltas = row("a", 0, 500, 50) + &row("a", 5, 300, 40) + &row("a", 9, 300, 30);
    let whole = row("a", 0, 500, 50) + &row("a", 5, 850, 40) + &row("a", 9, 1190, 30);
    let lab = Lab::new();
    let scenario = |rows: &str| {
        format!(
            "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m }}\nrequest: {{ stream: false }}\n\
             dataset: {{ kind: trace, path: t.log, tokenizer: builtin, turns: {{}}, trace: {{ match_output_length: true{rows} }} }}\n\
             load: {{ trace: {{}} }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n",
            server.url
        )
    };
    let sent = |log: &str, rows: &str| {
        lab.file("t.log", log);
        lab.file("s.yaml", scenario(rows));
        let plan = lab.llmscen(&["plan", "s.yaml"]).expect(0).err;
        server.bodies.lock().unwrap().clear();
        lab.run(&scenario(rows)).expect(0);
        let bodies = server.bodies.lock().unwrap();
        let lengths: Vec<Vec<u64>> = bodies.iter().map(message_lengths).collect();
        let rows = ParquetReader::new(
            std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap(),
        )
        .finish()
        .unwrap();
        let counted = |name: &str| -> Vec<u64> {
            let column = rows.column(name).unwrap().cast(&DataType::UInt64).unwrap();
            column.u64().unwrap().into_no_null_iter().collect()
        };
        (
            plan,
            lengths,
            counted("counted_prompt"),
            counted("counted_cacheable"),
        )
    };
    let (plan, lengths, counted, cacheable) = sent(&deltas, "");
    assert!(
        plan.contains("the rows of the log add to the history of their session, which is sent with them: 2 of 2 later rows (line 2: \
                       300 tokens after a prompt of 500)"),
        "{plan}"
    );
    // The line end in front of a message of the user is one of its 300 tokens.
    let known = [vec![500], vec![500, 50, 299], vec![500, 50, 299, 40, 299]];
    assert_eq!(lengths, known);
    // The built-in tokenizer counts the line end in front of each reply, too.
    let totals = [500, 500 + 1 + 50 + 300, 500 + 2 + 50 + 300 + 40 + 300];
    assert_eq!(counted, totals);
    assert_eq!(
        cacheable,
        [0, 500 + 50, 851 + 40],
        "the prompt before, and its reply"
    );
    let (plan, lengths, counted, _) = sent(&whole, "");
    assert!(
        plan.contains(
            "the rows of the log are whole prompts, history included: each later row is long"
        ),
        "{plan}"
    );
    assert_eq!(lengths, [[500], [850], [1190]]);
    assert_eq!(counted, [500, 850, 1190]);
    lab.file("t.log", &deltas);
    lab.file("s.yaml", scenario(", rows: whole"));
    let refused = lab.llmscen(&["plan", "s.yaml"]).err;
    assert!(
        refused.contains("t.log:2: `dataset.trace.rows: whole` does not fit 2 of 2 later rows"),
        "{refused}"
    );
}

#[test]
fn a_window_of_a_log_begins_at_its_own_start() {
    let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
    let [start, end] = [200, 800].map(|at| Some(Nanos::from_millis(at)));
    run(
        &lab,
        &replay(
            &lab,
            &server.url,
            LOG,
            TraceSpec {
                start,
                end,
                ..TraceSpec::default()
            },
            1.0,
        ),
    );
    assert_eq!(intended(&lab), [50.0, 300.0, 300.0]);
}

#[test]
fn arrivals_may_come_from_another_file_than_the_prompts() {
    let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
    let questions = lab.file("q.txt", "one\ntwo\nthree\n").display().to_string();
    let mut plan = plan(
        &server.url,
        "concurrency: 1, requests: 2, warmup: 1",
        &format!("kind: line_by_line, path: {questions}"),
    );
    plan.cases[0].load.shape = Shape::Replay { speed: 0.5 };
    let path = lab.file("t.log", LOG).display().to_string();
    plan.cases[0].trace = Some(TraceFile {
        path,
        spec: TraceSpec::default(),
    });
    let conducted = run(&lab, &plan);
    // The fourth arrival is due with the last measured one: it is sent, with the last row of the
    // data, unless the reply to the measured one is there first.
    let cooldown = conducted.report.cases[0].counts.cooldown as usize;
    assert!(cooldown <= 1, "{cooldown}");
    assert_eq!(intended(&lab), [0.0, 500.0, 1000.0, 1000.0][..3 + cooldown]);
    assert_eq!(
        server.asked(),
        ["one", "two", "three", "three"][..3 + cooldown]
    );
    assert_eq!(
        (
            conducted.report.cases[0].counts.warmup,
            conducted.report.cases[0].counts.ok
        ),
        (1, 2)
    );
}

#[test]
fn another_round_of_a_log_of_lengths_repeats_no_prompt_and_one_of_bodies_says_so() {
    let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
    let mut lengths = replay(&lab, &server.url, LOG, TraceSpec::default(), 10.0);
    lengths.rounds = 2;
    let conducted = run(&lab, &lengths);
    assert_eq!(server.asked().into_iter().collect::<HashSet<_>>().len(), 10);
    assert!(
        !conducted
            .report
            .manifest
            .notes
            .iter()
            .any(|note| note.contains("repeats"))
    );
    let body = |text: &str, at: u32| {
        format!(
            "{{\"timestamp\": {at}, \"body\": {{\"messages\": [{{\"role\": \"user\", \"content\": \"{text}\"}}]}}}}\n"
        )
    };
    let server = Recorder::start(|_, _| says("ok"));
    let log = [body("one", 5), body("two", 6)].concat();
    let mut bodies = replay(&lab, &server.url, &log, TraceSpec::default(), 10.0);
    bodies.rounds = 2;
    let manifest = run(&lab, &bodies).report.manifest;
    assert_eq!(
        server.asked(),
        ["one", "two", "one", "two"],
        "a body stays with its arrival"
    );
    assert_eq!(manifest.notes, [repeat_note("2 of 4", 2)]);
    assert_eq!(
        manifest
            .parts
            .iter()
            .map(|part| part.rows_repeated)
            .collect::<Vec<_>>(),
        [0, 2]
    );
}

#[test]
fn rows_are_taken_once_before_any_is_taken_again() {
    let rows: Vec<String> = (0..7).map(|row| format!("row {row}")).collect();
    let (lab, server) = (Lab::new(), Recorder::start(|_, _| says("ok")));
    let path = lab.file("q.txt", rows.join("\n")).display().to_string();
    for (end, known) in [("cycle", 10), ("stop", 10)] {
        let dataset = format!("kind: line_by_line, path: {path}, on_exhausted: {end}");
        let mut plan = plan(&server.url, "concurrency: 1, requests: 5", &dataset);
        plan.rounds = 2;
        server.bodies.lock().unwrap().clear();
        let manifest = run(&lab, &plan).report.manifest;
        let asked: Vec<String> = (0..known).map(|index| rows[index % 7].clone()).collect();
        assert_eq!(server.asked(), asked, "{end}");
        assert_eq!(manifest.notes, [repeat_note("3 of 10", 7)]);
    }
}

#[test]
fn a_case_of_unknown_length_leaves_the_next_one_its_own_rows() {
    let server = Recorder::start(|_, _| {
        std::thread::sleep(Duration::from_millis(5));
        says("ok")
    });
    let (lab, rows) = (
        Lab::new(),
        (0..500).map(|row| format!("row {row}")).collect::<Vec<_>>(),
    );
    let path = lab.file("q.txt", rows.join("\n")).display().to_string();
    let mut plan = plan(
        &server.url,
        "concurrency: 2, duration: 100ms",
        &format!("kind: line_by_line, path: {path}"),
    );
    plan.rounds = 3;
    let manifest = run(&lab, &plan).report.manifest;
    let asked = server.asked();
    assert!(asked.len() > 6 && asked.len() < 500, "{}", asked.len());
    assert_eq!(
        asked.iter().collect::<HashSet<_>>().len(),
        asked.len(),
        "no row was asked twice"
    );
    assert_eq!((manifest.notes, manifest.parts.len()), (Vec::new(), 3));
}

#[test]
fn a_scenario_replays_a_log() {
    let lab = Lab::new();
    lab.file("t.log", LOG);
    let scenario = "version: 1\nname: t\ntarget: { api: simulator }\n\
        dataset: { kind: trace, path: t.log, trace: { match_output_length: true, model_mapping: { b: big } } }\n\
        load: { trace: { speed: 2.0 } }\naudit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";
    lab.run(scenario).expect(0);
    let outlook = lab.llmscen(&["plan", "s.yaml"]).expect(0).out;
    assert!(
        outlook.contains("requests: 5 (warm-up included)\nexpected time: about 1 s\n"),
        "{outlook}"
    );
    assert!(
        outlook.contains("\"model\": \"big\"") && outlook.contains("\"min_tokens\": 1"),
        "{outlook}"
    );
    assert_eq!(intended(&lab), [0.0, 125.0, 250.0, 250.0, 500.0]);
    let case = &lab.results()["cases"][0];
    assert_eq!(
        (&case["counts"]["ok"], &case["load"]),
        (&5.into(), &"trace at 2x".into()),
        "{case:#}"
    );
}

fn repeat_note(repeated: &str, rows: u64) -> String {
    format!(
        "{repeated} prompts repeat earlier ones (dataset: {rows} rows); a prefix cache may serve them. Set \
         `dataset.cache_bust: true` to prevent that."
    )
}
