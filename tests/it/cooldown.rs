//! The load goes on, unmeasured, until the last measured request has ended.

use crate::lab::Lab;
use crate::sessions::{Recorder, says};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::collections::BTreeSet;
use std::time::Duration;

/// A request: round, number, whether it was measured, scheduled send and end in nanoseconds.
type Row = (u32, u64, bool, u64, u64);

fn rows(lab: &Lab) -> Vec<Row> {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    let frame: DataFrame = ParquetReader::new(file).finish().unwrap();
    let column = |name: &str| frame.column(name).unwrap().u64().unwrap().clone();
    let (seq, intended, end) = (column("seq"), column("intended_ns"), column("end_ns"));
    let rounds = frame.column("round").unwrap().u32().unwrap().clone();
    let phases = frame.column("phase").unwrap().str().unwrap().clone();
    let row = |at: usize| {
        let phase = phases.get(at).unwrap();
        assert!(["measured", "cooldown"].contains(&phase), "{phase}");
        (
            rounds.get(at).unwrap(),
            seq.get(at).unwrap(),
            phase == "measured",
            intended.get(at).unwrap(),
            end.get(at).unwrap(),
        )
    };
    (0..frame.height()).map(row).collect()
}

fn server(reply: Duration) -> Recorder {
    Recorder::start(move |_, _| {
        std::thread::sleep(reply);
        says("ok")
    })
}

fn scenario(url: &str, dataset: &str, load: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: \"{url}\", model: m }}\ndataset: {dataset}\nload: {load}\nrequest: {{ stream: false }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

#[test]
fn arrivals_go_on_with_other_rows_until_the_last_measured_reply() {
    let server = server(Duration::from_millis(200));
    let lab = Lab::new();
    let lines: Vec<String> = (0..70).map(|row| format!("row {row}")).collect();
    lab.file("rows.txt", lines.join("\n"));
    let dataset = "{ kind: line_by_line, path: rows.txt }";
    let load = "{ rate: 50/s, arrivals: constant, requests: 20 }\nrounds: 2";
    lab.run(&scenario(&server.url, dataset, load)).expect(0);
    let all = rows(&lab);
    let (mut measured, mut others) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..2 {
        let of_round = || all.iter().filter(|row| row.0 == round);
        let last = of_round()
            .filter(|row| row.2)
            .map(|row| row.3)
            .max()
            .unwrap();
        let end = of_round()
            .filter(|row| row.2)
            .map(|row| row.4)
            .max()
            .unwrap();
        let more: Vec<&Row> = of_round().filter(|row| !row.2).collect();
        assert_eq!(of_round().filter(|row| row.2).count(), 20);
        // One is due every 20 ms, and the last measured reply takes 200 ms. There are at most as many as were measured.
        assert!((9..=20).contains(&more.len()), "{}", more.len());
        assert!(more.iter().all(|row| last < row.3 && row.3 <= end));
        measured.extend((0..20).map(|row| format!("row {}", row + 20 * round)));
        others.extend((0..more.len()).map(|place| format!("row {}", 69 - place)));
    }
    let asked: Vec<String> = server.asked();
    assert_eq!(asked.len(), all.len());
    let sent: BTreeSet<String> = asked.iter().cloned().collect();
    assert_eq!(sent, measured.union(&others).cloned().collect());
    assert!(measured.is_disjoint(&others));
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["scheduled"], 40);
    assert_eq!(case["counts"]["cooldown"], all.len() - 40);
    assert_eq!(case["counts"]["warmup"], 0);
    assert!(lab.text("out/report.html").contains("Cool-down requests"));
}

#[test]
fn users_with_sessions_are_busy_until_the_last_measured_session_has_ended() {
    let server = server(Duration::from_millis(25));
    let lab = Lab::new();
    // The sessions are of one turn up to eight, so that they end one by one.
    let dataset = "{ kind: random, tokens: 16, turns: { count: { uniform: [1, 8] } } }";
    let load = "{ concurrency: 4, sessions: 8 }";
    lab.run(&scenario(&server.url, dataset, load)).expect(0);
    let all = rows(&lab);
    let end = all
        .iter()
        .filter(|row| row.2)
        .map(|row| row.4)
        .max()
        .unwrap();
    let numbers = |measured: bool| -> BTreeSet<u64> {
        all.iter()
            .filter(|row| row.2 == measured)
            .map(|row| row.1)
            .collect()
    };
    assert_eq!(numbers(true), (0..8).collect());
    let more = numbers(false);
    assert!((1..=8).contains(&more.len()), "{more:?}");
    assert!(more.iter().all(|number| *number >= 8));
    let begins = |number: u64| {
        all.iter()
            .filter(|row| row.1 == number)
            .map(|row| row.3)
            .min()
    };
    // A user may become free while the end of the last measured session is noticed.
    let late = more.iter().filter(|number| begins(**number) > Some(end));
    assert!(late.count() < 4);
    // No user is idle for long while a measured session is in progress.
    const PAUSE: u64 = 100_000_000;
    let spans: Vec<(u64, u64)> = (0..=*more.last().unwrap())
        .map(|number| {
            let own = || all.iter().filter(|row| row.1 == number);
            (
                own().map(|row| row.3).min().unwrap(),
                own().map(|row| row.4).max().unwrap(),
            )
        })
        .collect();
    // A user that becomes free in the last moments may begin no further session.
    for at in (0..end.saturating_sub(PAUSE)).step_by(5_000_000) {
        let busy = spans
            .iter()
            .filter(|span| span.0 <= at + PAUSE && at < span.1)
            .count();
        assert!(busy >= 4, "at {at} of {end}: {spans:?}");
    }
}

#[test]
fn other_loads_send_what_is_measured_and_nothing_else() {
    let text = "{ kind: prompt, text: x }";
    let turns = "{ kind: random, tokens: 16, turns: { count: 20 } }";
    for (dataset, load) in [
        (text, "{ concurrency: 4, requests: 16 }"),
        (text, "{ rate: burst, requests: 16 }"),
        (text, "{ static: { batch: 4, rounds: 4 } }"),
        (
            text,
            "{ stages: [{ rate: 40/s, for: 400ms }], arrivals: constant }",
        ),
        (
            text,
            "{ rate: 100/s, arrivals: constant, requests: 16, max_in_flight: { of: 1, then: hold } }",
        ),
        (turns, "{ concurrency: 2, duration: 200ms }"),
    ] {
        let server = server(Duration::from_millis(20));
        let lab = Lab::new();
        lab.run(&scenario(&server.url, dataset, load)).expect(0);
        let all = rows(&lab);
        assert!(all.iter().all(|row| row.2), "{load}");
        let sent = server.asked().len();
        assert_eq!(all.len(), sent, "{load}");
        if dataset == text {
            assert_eq!(sent, 16, "{load}");
        }
    }
}
