//! Changing loads, user ramps and batches: the plan compared with the records.

use crate::lab::Lab;
use crate::sessions::{Recorder, plan, says};
use crate::witness::context;
use llmscen::run::execution::{CompletedRun, run_plan};
use llmscen::run::stop::Stop;
use llmscen_core::outcome::Phase;
use llmscen_core::plan::Plan;
use llmscen_core::schedule::Schedule;
use polars::prelude::{ParquetReader, SerReader};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Timestamps of one request, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Row {
    seq: u64,
    intended: u64,
    sent: u64,
    end: u64,
    measured: bool,
}

/// The rows of a run by number; all of them were sent.
fn rows(lab: &Lab) -> Vec<Row> {
    let frame =
        ParquetReader::new(std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap())
            .finish()
            .unwrap();
    let column = |name: &str| frame.column(name).unwrap().u64().unwrap().clone();
    let (seq, intended, sent, end) = (
        column("seq"),
        column("intended_ns"),
        column("sent_ns"),
        column("end_ns"),
    );
    let phase = frame.column("phase").unwrap().str().unwrap();
    let row = |at: usize| Row {
        seq: seq.get(at).unwrap(),
        intended: intended.get(at).unwrap(),
        sent: sent.get(at).unwrap(),
        end: end.get(at).unwrap(),
        measured: phase.get(at) == Some("measured"),
    };
    let mut rows: Vec<Row> = (0..frame.height()).map(row).collect();
    rows.sort_by_key(|row| row.seq);
    rows
}

fn run(lab: &Lab, plan: &Plan) -> CompletedRun {
    let conducted = run_plan(plan, &context(lab.path(), Stop::default())).unwrap();
    assert!(conducted.fault.is_none());
    conducted
}

/// A server that takes 10 to 30 ms for a reply, depending on which it is.
fn server() -> Recorder {
    Recorder::start(|number, _| {
        std::thread::sleep(Duration::from_millis(10 + number as u64 * 7 % 20));
        says("ok")
    })
}

const PROMPT: &str = "kind: prompt, text: x";

/// Requests in flight at an instant.
fn in_flight(rows: &[Row], at: u64) -> usize {
    rows.iter()
        .filter(|row| row.sent <= at && at < row.end)
        .count()
}

/// Requests in flight at an instant, and those that are due: a busy machine sends late, and that is no pause of the load.
fn in_flight_or_due(rows: &[Row], at: u64) -> usize {
    rows.iter()
        .filter(|row| row.intended <= at && at < row.end)
        .count()
}

#[test]
fn a_staged_open_loop_leaves_exactly_as_planned_and_tells_its_stages_apart() {
    let lab = Lab::new();
    lab.file(
        "s.yaml",
        "version: 1\nname: t\ntarget: { url: simulator, simulator: { alpha: 200us } }\nrequest: { max_tokens: 2 }\n\
         dataset: { kind: prompt, text: x }\nload:\n  warmup: 100ms\n  stages:\n    - { rate: 40/s -> 160/s, for: 500ms }\n\
         \x20   - { rate: 0/s, for: 200ms }\n    - { rate: { sine: { mean: 100/s, amplitude: 100/s, period: 200ms } }, for: 500ms }\n\
         slo:\n  - error_rate < 50%\n  - { expr: \"ttft.max < 9s\", when: { load.stage: 3 } }\n\
         \x20 - { expr: \"e2e.max < 9s\", when: { load.stage: all } }\n\
         audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n",
    );
    lab.llmscen(&["run", "s.yaml", "--output", "out"]).expect(0);
    let input = llmscen_scenario::Input {
        path: &lab.path().join("s.yaml"),
        text: None,
        env: &Default::default(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input).unwrap().plan;
    let seed = plan.seed.child("base").child(0u64);
    let due: Vec<(u64, bool)> = Schedule::new(&plan.cases[0].load, seed, None)
        .unwrap()
        .map(|due| (due.at.0, due.phase == Phase::Measured))
        .collect();
    let rows = rows(&lab);
    assert_eq!(
        rows.iter()
            .map(|row| (row.intended, row.measured))
            .collect::<Vec<_>>(),
        due
    );
    assert!(rows.iter().all(|row| row.sent >= row.intended));

    let results = lab.results();
    let cases = results["cases"].as_array().unwrap();
    let ids: Vec<&str> = cases
        .iter()
        .map(|case| case["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        ids,
        ["base", "base/stage=1", "base/stage=3"],
        "a pause is no case"
    );
    let within = |from: u64, until: u64, measured: bool| {
        rows.iter()
            .filter(|row| {
                (from * MS..until * MS).contains(&row.intended) && row.measured == measured
            })
            .count()
    };
    for (case, (from, until)) in cases.iter().zip([(0, 1200), (0, 500), (700, 1200)]) {
        assert_eq!(
            case["counts"]["scheduled"],
            within(from, until, true),
            "{}",
            case["id"]
        );
        assert_eq!(
            case["counts"]["warmup"],
            within(from, until, false),
            "{}",
            case["id"]
        );
    }
    assert_eq!(
        (&cases[0]["labels"], &cases[2]["labels"]),
        (
            &serde_json::json!({}),
            &serde_json::json!({ "load.stage": 3 })
        )
    );
    let ruled = |case: usize| -> Vec<&str> {
        cases[case]["slo"]
            .as_array()
            .unwrap()
            .iter()
            .map(|verdict| verdict["expr"].as_str().unwrap())
            .collect()
    };
    assert_eq!(ruled(0), ["error_rate < 50%", "e2e.max < 9s"]);
    assert_eq!(
        (ruled(1), ruled(2)),
        (
            vec!["error_rate < 50%"],
            vec!["error_rate < 50%", "ttft.max < 9s"]
        )
    );
    assert!(lab.text("out/report.md").contains("base/stage=3"));
    assert!(lab.text("out/junit.xml").contains("base/stage=3"));
    assert_eq!(lab.text("out/cases.csv").lines().count(), 4);
}

#[test]
fn a_stage_of_a_run_that_is_not_sound_is_not_sound() {
    let (lab, server) = (Lab::new(), server());
    let mut plan = plan(
        &server.url,
        "stages: [{ rate: 50/s, for: 200ms }, { rate: 20/s, for: 200ms }]",
        PROMPT,
    );
    plan.audit.cpu = 0.0;
    let cases = run(&lab, &plan).report.cases;
    assert_eq!(
        cases
            .iter()
            .map(|case| case.audit.valid)
            .collect::<Vec<_>>(),
        [false; 3]
    );
    assert!(
        cases[2].audit.reasons.contains(&cases[0].audit.reasons[0]),
        "{:?}",
        cases[2].audit.reasons
    );
}

#[test]
fn users_come_at_exact_instants_and_go_when_a_request_ends() {
    let (lab, server) = (Lab::new(), server());
    let stages = "[{ concurrency: 1, for: 300ms }, { concurrency: 2 -> 6, for: 400ms }, { concurrency: 2, for: 300ms }]";
    let conducted = run(
        &lab,
        &plan(&server.url, &format!("stages: {stages}"), PROMPT),
    );
    let rows = rows(&lab);
    for at in [0, 300, 350, 450, 550, 650] {
        assert_eq!(
            rows.iter().filter(|row| row.intended == at * MS).count(),
            1,
            "a user starts at {at} ms"
        );
    }
    // Every other request is due when one ended, never before its user started.
    let most = |from: u64, until: u64| {
        let instants = rows
            .iter()
            .map(|row| row.sent)
            .filter(|at| (from * MS..until * MS).contains(at));
        instants.map(|at| in_flight(&rows, at)).max().unwrap_or(0)
    };
    assert_eq!((most(0, 300), most(0, 700)), (1, 6));
    let last_long = rows
        .iter()
        .filter(|row| row.sent < 700 * MS)
        .map(|row| row.end)
        .max()
        .unwrap();
    assert_eq!(
        most(last_long.div_ceil(MS), 1000),
        2,
        "four of six were not refilled"
    );
    assert!(
        rows.iter()
            .all(|row| row.intended < 1000 * MS && row.measured)
    );
    assert_eq!(conducted.report.cases.len(), 4);
    assert_eq!(
        conducted
            .report
            .cases
            .iter()
            .skip(1)
            .map(|case| case.counts.scheduled)
            .sum::<u64>(),
        rows.len() as u64
    );
    assert_eq!(
        conducted.report.cases[0].counts.failed, 0,
        "nothing was cancelled"
    );
}

#[test]
fn users_start_one_after_another_over_a_spread() {
    let (lab, server) = (Lab::new(), server());
    run(
        &lab,
        &plan(
            &server.url,
            "concurrency: 4, spread: 200ms, requests: 40",
            PROMPT,
        ),
    );
    let rows = rows(&lab);
    assert_eq!(rows.len(), 40);
    for at in [0, 50, 100, 150] {
        assert_eq!(
            rows.iter().filter(|row| row.intended == at * MS).count(),
            1,
            "a user starts at {at} ms"
        );
    }
    assert!(
        rows.iter()
            .filter(|row| row.sent < 50 * MS)
            .all(|row| in_flight(&rows, row.sent) == 1)
    );
}

#[test]
fn a_round_ends_when_nothing_is_left_though_users_were_still_to_come() {
    let (lab, server) = (Lab::new(), server());
    let conducted = run(
        &lab,
        &plan(
            &server.url,
            "concurrency: 2, spread: 60s, requests: 3",
            PROMPT,
        ),
    );
    let sending = conducted.report.manifest.parts[0].sending_until_ns.unwrap();
    assert!(rows(&lab).len() == 3 && sending < 20_000 * MS, "{sending}");
}

/// Events on the server: true for a request, false for its reply.
type Witness = Arc<Mutex<Vec<bool>>>;

fn witness() -> (Recorder, Witness) {
    let seen = Witness::default();
    let log = seen.clone();
    let server = Recorder::start(move |number, _| {
        log.lock().unwrap().push(true);
        std::thread::sleep(Duration::from_millis(5 + number as u64 * 7 % 20));
        log.lock().unwrap().push(false);
        says("ok")
    });
    (server, seen)
}

#[test]
fn no_batch_leaves_before_all_of_the_last_one_are_back() {
    let (lab, (server, seen)) = (Lab::new(), witness());
    let conducted = run(
        &lab,
        &plan(
            &server.url,
            "static: { batch: 6, rounds: 8 }, warmup: 2x",
            PROMPT,
        ),
    );
    let rows = rows(&lab);
    assert_eq!(
        (rows.len(), rows.iter().filter(|row| row.measured).count()),
        (60, 48)
    );
    let rounds: Vec<&[Row]> = rows.chunks(6).collect();
    assert!(rounds[0].iter().all(|row| row.intended == 0));
    for pair in rounds.windows(2) {
        let ended = pair[0].iter().map(|row| row.end).max().unwrap();
        assert!(
            pair[1]
                .iter()
                .all(|row| row.intended == pair[1][0].intended),
            "one reading of the clock a round"
        );
        assert!(
            pair[1]
                .iter()
                .all(|row| row.sent >= row.intended && row.intended >= ended)
        );
        assert!(
            pair[1]
                .iter()
                .all(|row| row.measured == pair[1][0].measured),
            "warm-up is whole rounds"
        );
    }
    // On the server: six requests arrive and complete before the next six.
    let seen = seen.lock().unwrap();
    for round in seen.chunks(12) {
        assert_eq!(round.iter().filter(|came| **came).count(), 6);
    }
    assert_eq!(
        (
            conducted.report.cases[0].load.as_str(),
            conducted.report.cases[0].counts.ok
        ),
        ("batches of 6", 48)
    );
}

#[test]
fn without_a_barrier_as_many_stay_in_flight() {
    let (lab, server) = (Lab::new(), server());
    let conducted = run(
        &lab,
        &plan(
            &server.url,
            "static: { batch: 4, rounds: 10, barrier: none }",
            PROMPT,
        ),
    );
    let rows = rows(&lab);
    assert_eq!(
        (rows.len(), conducted.report.cases[0].load.as_str()),
        (40, "concurrency 4")
    );
    assert!(
        rows.iter()
            .skip(4)
            .all(|row| in_flight_or_due(&rows, row.intended) >= 2),
        "the others are not held back"
    );
}

#[test]
fn data_that_ends_within_a_batch_ends_the_load() {
    let (lab, server) = (Lab::new(), server());
    let lines = lab
        .file(
            "q.txt",
            (0..10)
                .map(|row| format!("row {row}\n"))
                .collect::<String>(),
        )
        .display()
        .to_string();
    let dataset = format!("kind: line_by_line, path: {lines}, on_exhausted: stop");
    run(
        &lab,
        &plan(&server.url, "static: { batch: 4, rounds: 5 }", &dataset),
    );
    assert_eq!(rows(&lab).len(), 10);
}

#[test]
fn measuring_begins_without_a_pause_in_every_shape() {
    for load in [
        "concurrency: 4, requests: 60, warmup: 30",
        "concurrency: 4, duration: 400ms, warmup: 300ms",
        "static: { batch: 4, rounds: 15, barrier: none }, warmup: 8x",
        "stages: [{ concurrency: 4, for: 800ms }], warmup: 30",
        "stages: [{ rate: 200/s, for: 800ms }], arrivals: constant, warmup: 300ms",
        "rate: 200/s, arrivals: constant, duration: 400ms, warmup: 60",
    ] {
        let (lab, server) = (Lab::new(), server());
        run(&lab, &plan(&server.url, load, PROMPT));
        let rows = rows(&lab);
        let first = rows
            .iter()
            .filter(|row| row.measured)
            .map(|row| row.intended)
            .min()
            .unwrap();
        assert!(
            rows.iter().any(|row| !row.measured && row.end > first),
            "{load}: warm-up is still in flight"
        );
        let near = rows
            .iter()
            .filter(|row| row.intended.abs_diff(first) < 50 * MS);
        let least = near.map(|row| in_flight_or_due(&rows, row.end)).min();
        assert!(
            least >= Some(1),
            "{load}: {least:?} in flight or due near {first}"
        );
    }
}
