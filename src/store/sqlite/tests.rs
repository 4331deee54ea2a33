use super::*;
use crate::store::bodies::{Extent, Head, Packed, Spool, spool};
use llmscen_analysis::TaggedOutcome;
use llmscen_core::artifacts::{Bodies, Store};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{Failure, FailureKind, Outcome, Phase, Timeline, Usage};
use llmscen_core::plan::ReportSpec;
use llmscen_core::report::CaseReport;
use llmscen_core::request::PreparedRequest;
use llmscen_core::sample::SummaryStatistics;
use llmscen_core::units::Nanos;
use std::fs;

fn plan() -> Plan {
    Plan {
        id: "p".into(),
        name: "n".into(),
        labels: Default::default(),
        description: None,
        seed: llmscen_core::seed::Seed(1),
        cases: Vec::new(),
        searches: Vec::new(),
        halving: None,
        rounds: 1,
        alternate: false,
        pause: Nanos::ZERO,
        audit: Default::default(),
        telemetry: Default::default(),
        report: ReportSpec {
            formats: Vec::new(),
            dir: "d".into(),
            store: vec![Store::Sqlite],
            bodies: Bodies::All,
            compat: Vec::new(),
            track: Default::default(),
        },
        baseline: None,
        resolved: "version: 1\n".into(),
        secrets: Default::default(),
    }
}

fn outcome(seq: u64, tokens: &[u64], end: Result<(), FailureKind>) -> Outcome {
    let tokens: Vec<Nanos> = tokens
        .iter()
        .map(|millis| Nanos::from_millis(*millis))
        .collect();
    let (sent, last) = (
        Some(Nanos::ZERO),
        tokens.last().copied().unwrap_or_default(),
    );
    let blank = PreparedRequest {
        seq,
        turns: 1,
        streamed: true,
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    let end = end
        .map(|()| Default::default())
        .map_err(|kind| Failure::new(kind, "it's \"so\""));
    Outcome {
        timeline: Timeline {
            sent,
            tokens,
            end: last,
            ..Timeline::default()
        },
        end,
        ..blank
    }
}

fn table(outcomes: &[Outcome]) -> Table {
    Table::build(outcomes.iter().map(|outcome| TaggedOutcome {
        case: "c=1",
        round: 0,
        shard: 0,
        outcome,
    }))
    .unwrap()
}

fn report() -> Report {
    let distribution = SummaryStatistics {
        n: 2,
        mean: 1.5,
        sd: None,
        min: 1.0,
        max: 2.0,
        quantiles: vec![1.0; 13],
    };
    let case = CaseReport {
        id: "c=1".into(),
        scalars: [(Metric::OutputTps, 12.5)].into(),
        distributions: [(Metric::Ttft, distribution)].into(),
        load_axis: "concurrency",
        ..CaseReport::default()
    };
    let part = Part {
        case: "c=1".into(),
        origin_ns: 7,
        ..Part::default()
    };
    let manifest = Manifest {
        run_id: "r".into(),
        seed: u64::MAX,
        parts: vec![part],
        ..Manifest::default()
    };
    Report {
        manifest,
        cases: vec![case],
        ..Report::default()
    }
}

/// A run folder with a database of these outcomes.
fn written(folder: &Path, outcomes: &[Outcome]) -> Connection {
    let run = RunDir::at(folder);
    write(
        &run,
        &Content {
            plan: &plan(),
            table: &table(outcomes),
            report: &report(),
        },
    )
    .unwrap();
    open(&run.file(DATABASE)).unwrap()
}

fn one<T: rusqlite::types::FromSql>(database: &Connection, query: &str) -> T {
    database
        .query_row(query, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{query}: {error}"))
}

#[test]
fn rows_have_their_values_and_lists_are_gaps() {
    let folder = tempfile::tempdir().unwrap();
    let mut greedy = outcome(2, &[5], Ok(()));
    greedy.usage = Usage {
        output: Some(u64::MAX),
        ..Usage::default()
    };
    let database = written(
        folder.path(),
        &[
            outcome(0, &[100, 100, 140], Ok(())),
            outcome(1, &[], Err(FailureKind::Http5xx)),
            greedy,
        ],
    );
    let text = |query: &str| one::<Option<String>>(&database, query);
    assert_eq!(
        text("SELECT group_concat(seq || outcome, ' ') FROM requests").unwrap(),
        "0ok 1http_5xx 2ok"
    );
    assert_eq!(
        one::<f64>(&database, "SELECT ttft_ms FROM requests WHERE seq = 0"),
        100.0
    );
    assert_eq!(
        text("SELECT token_gaps_ns FROM requests WHERE seq = 0").unwrap(),
        "[0,40000000]"
    );
    assert_eq!(
        text("SELECT token_gaps_ns FROM requests WHERE seq = 2").unwrap(),
        "[]",
        "one token event has no gap"
    );
    assert_eq!(
        text("SELECT token_gaps_ns FROM requests WHERE seq = 1"),
        None,
        "without a token event there is no list"
    );
    assert_eq!(
        text("SELECT error FROM requests WHERE seq = 1").unwrap(),
        "it's \"so\""
    );
    assert_eq!(
        one::<Option<i64>>(&database, "SELECT usage_output FROM requests WHERE seq = 2"),
        None
    );
    assert_eq!(
        one::<i64>(
            &database,
            "SELECT count(*) FROM pragma_table_info('requests')"
        ),
        schema::requests().len() as i64
    );
}

#[test]
fn results_are_in_their_tables() {
    let folder = tempfile::tempdir().unwrap();
    let database = written(folder.path(), &[]);
    assert_eq!(
        one::<String>(&database, "SELECT seed || verdict || plan FROM runs"),
        "18446744073709551615passversion: 1\n"
    );
    assert_eq!(
        one::<f64>(
            &database,
            "SELECT value FROM figures WHERE metric = 'output_tps'"
        ),
        12.5
    );
    assert_eq!(
        one::<f64>(
            &database,
            "SELECT p99_9 + max FROM distributions WHERE metric = 'ttft_ms'"
        ),
        3.0
    );
    assert_eq!(one::<i64>(&database, "SELECT origin_ns FROM parts"), 7);
    assert_eq!(one::<String>(&database, "PRAGMA integrity_check"), "ok");
    assert_eq!(one::<String>(&database, "PRAGMA journal_mode"), "delete");
    assert_eq!(
        one::<i64>(
            &database,
            "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND strict = 0 AND type = 'table'"
        ),
        1
    );
}

fn spool(run: &RunDir, seqs: &[u64]) {
    let mut spool = Spool::append(&run.file(spool::FILE)).unwrap();
    for seq in seqs {
        let packed = Packed {
            request: vec![*seq as u8; 3],
            response: Vec::new(),
        };
        let request = Extent {
            length: 3,
            cut: false,
            packed: 3,
        };
        let head = Head {
            case: "c=1".into(),
            seq: *seq,
            measured: true,
            request,
            ..Head::default()
        };
        spool.add(&head, &packed).unwrap();
    }
    spool.flush().unwrap();
}

#[test]
fn bodies_come_from_the_spool_and_stay_the_same_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::at(folder.path());
    spool(&run, &[2, 0, 9]);
    let outcomes = [0, 1, 2].map(|seq| outcome(seq, &[5], Ok(())));
    let database = written(folder.path(), &outcomes);
    let stored = "SELECT group_concat(seq || ':' || hex(request) || ':' || (response IS NULL), ' ') FROM bodies";
    assert_eq!(
        one::<String>(&database, stored),
        "0:000000:1 2:020202:1",
        "a body without its row is left out"
    );
    let first = fs::read(run.file(DATABASE)).unwrap();
    assert!(holds_bodies(&run).unwrap());
    run.remove(spool::FILE).unwrap();
    for _ in 0..2 {
        written(folder.path(), &outcomes);
        assert!(fs::read(run.file(DATABASE)).unwrap() == first);
    }
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing else is left behind"
    );
}

#[test]
fn bodies_of_another_version_are_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::at(folder.path());
    Connection::open(run.file(DATABASE))
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let before = fs::read(run.file(DATABASE)).unwrap();
    let error = write(
        &run,
        &Content {
            plan: &plan(),
            table: &table(&[]),
            report: &report(),
        },
    )
    .unwrap_err()
    .to_string();
    assert!(
        error.ends_with(
            "requests.db: it has version 99, this llmscen reads version 2; move it away, or use \
            the llmscen that wrote it"
        ),
        "{error}"
    );
    assert!(fs::read(run.file(DATABASE)).unwrap() == before);
}
