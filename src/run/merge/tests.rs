use super::*;
use llmscen_analysis::TaggedOutcome;
use llmscen_core::early_stop::{EarlyStop, TargetLost};
use llmscen_core::manifest::{Stall, WorkerStalls};
use llmscen_core::outcome::{Outcome, Phase};
use llmscen_core::request::PreparedRequest;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use proptest::prelude::*;
use std::io::Cursor;
use tempfile::TempDir;

fn plan(load: &str) -> Plan {
    let text = format!(
        "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n{load}\n"
    );
    let input = Input {
        path: Path::new("x.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input).unwrap().plan
}

fn outcome(seq: u64, turn: u32) -> Outcome {
    let mut outcome = PreparedRequest {
        seq,
        turn,
        turns: 2,
        model: "m".into(),
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    outcome.timeline.intended = Nanos(seq * 1000);
    outcome.timeline.tokens = (0..seq % 5).map(|step| Nanos(seq * 1000 + step)).collect();
    outcome.timeline.end = Nanos(seq * 1000 + 9);
    outcome
}

/// A row: shard, case, round, seq, turn.
type Row = (u32, &'static str, u32, u64, u32);

fn table(rows: &[Row]) -> Table {
    let outcomes: Vec<Outcome> = rows
        .iter()
        .map(|(.., seq, turn)| outcome(*seq, *turn))
        .collect();
    let mut builder = Builder::with_cases(["z", "a"]);
    for ((shard, case, round, ..), outcome) in rows.iter().zip(&outcomes) {
        builder.push(&TaggedOutcome {
            case,
            round: *round,
            shard: *shard,
            outcome,
        });
    }
    builder.finish().unwrap()
}

fn bytes(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_parquet(&mut bytes).unwrap();
    bytes
}

fn stored(folder: &TempDir, index: u32, table: &Table) -> ShardRows {
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    let path = folder.path().join(format!("{names}-{index}.parquet"));
    std::fs::write(&path, bytes(table)).unwrap();
    ShardRows { index, path }
}

fn merged(folder: &TempDir, tables: &[Table]) -> Result<Table, MergeError> {
    let files: Vec<ShardRows> = (0..)
        .zip(tables)
        .map(|(index, table)| stored(folder, index, table))
        .collect();
    merge_tables(["z", "a"], &files)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn merging_is_associative_and_gives_the_table_of_one_process(
        keys in prop::collection::btree_set((prop::sample::select(vec!["z", "a"]), 0u32..3, 0u64..40, 0u32..2), 0..60),
        shards in 2u32..5,
    ) {
        let rows: Vec<Row> = keys
            .into_iter()
            .map(|(case, round, seq, turn)| ((seq % u64::from(shards)) as u32, case, round, seq, turn))
            .collect();
        let of_shard = |index: u32| {
            let own: Vec<Row> = rows.iter().copied().filter(|row| row.0 == index).collect();
            table(&own)
        };
        let tables: Vec<Table> = (0..shards).map(of_shard).collect();
        let folder = tempfile::tempdir().unwrap();
        let at_once = bytes(&merged(&folder, &tables).unwrap());
        prop_assert_eq!(&at_once, &bytes(&table(&rows)));
        let mut left = tables[0].clone();
        for next in &tables[1..] {
            left = merged(&folder, &[left, next.clone()]).unwrap();
        }
        prop_assert_eq!(&at_once, &bytes(&left));
        let mut right = tables[tables.len() - 1].clone();
        for next in tables[..tables.len() - 1].iter().rev() {
            right = merged(&folder, &[right, next.clone()]).unwrap();
        }
        prop_assert_eq!(&at_once, &bytes(&right));
    }
}

#[test]
fn a_request_of_two_shards_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        table(&[(0, "z", 0, 4, 0), (0, "a", 1, 6, 1)]),
        table(&[(1, "z", 0, 5, 0)]),
        table(&[(2, "a", 1, 6, 0), (2, "a", 1, 6, 1)]),
    ];
    assert_eq!(
        merged(&folder, &rows).unwrap_err().to_string(),
        "request 6 (turn 2) of round 1 of case `a` is in the rows of both shard 0 and shard 2; \
         each request belongs to one shard: start every shard once, with its own number"
    );
    let twice = [rows[1].clone(), rows[1].clone()];
    assert_eq!(
        merged(&folder, &twice).unwrap_err().to_string(),
        "request 5 of round 0 of case `z` is in the rows of shard 1 twice; each request belongs \
         to one shard: start every shard once, with its own number"
    );
}

#[test]
fn unusable_files_and_foreign_cases_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = stored(&folder, 3, &table(&[(3, "a", 0, 1, 0)]));
    assert_eq!(
        merge_tables(["z"], std::slice::from_ref(&file))
            .unwrap_err()
            .to_string(),
        "the rows of shard 3 have a case `a`, which the plan does not have"
    );
    let whole = std::fs::read(&file.path).unwrap();
    std::fs::write(&file.path, &whole[..whole.len() - 7]).unwrap();
    let error = merge_tables(["a"], std::slice::from_ref(&file))
        .unwrap_err()
        .to_string();
    let path = file.path.display();
    assert!(
        error.starts_with(&format!("cannot read the rows of shard 3: {path}: "))
            && error.ends_with("; copy the file again"),
        "{error}"
    );
    std::fs::remove_file(&file.path).unwrap();
    assert!(matches!(
        merge_tables(["a"], &[file]),
        Err(MergeError::Open { shard: 3, .. })
    ));
}

/// The missing ranges of round 0 of the only case.
fn missing(load: &str, seqs: &[u64], change: impl FnOnce(&mut Part)) -> Vec<(u64, u64)> {
    let plan = plan(load);
    let outcomes: Vec<Outcome> = seqs.iter().map(|seq| outcome(*seq, 0)).collect();
    let rows = outcomes.iter().map(|outcome| TaggedOutcome {
        case: &plan.cases[0].id,
        round: 0,
        shard: 0,
        outcome,
    });
    let mut part = Part {
        case: plan.cases[0].id.clone(),
        ..Part::default()
    };
    change(&mut part);
    let missing = missing_numbers(&plan, &Table::build(rows).unwrap(), &[part]);
    missing
        .into_iter()
        .flat_map(|missing| {
            assert_eq!(
                missing.count(),
                missing
                    .ranges
                    .iter()
                    .map(|(from, until)| until - from)
                    .sum::<u64>()
            );
            missing.ranges
        })
        .collect()
}

#[test]
fn numbers_that_the_plan_has_and_the_rows_do_not_are_missing() {
    // Ten arrivals: 0, 0.1, … 0.9 s.
    let open = "load: { rate: 10/s, arrivals: constant, duration: 1s }";
    assert_eq!(
        missing(open, &[1, 2, 4, 8], |_| ()),
        [(0, 1), (3, 4), (5, 8), (9, 10)]
    );
    assert_eq!(missing(open, &(0..10).collect::<Vec<_>>(), |_| ()), []);
    assert_eq!(missing(open, &[], |_| ()), [(0, 10)]);
    let closed = "load: { concurrency: 2, requests: 5, warmup: 1 }";
    assert_eq!(missing(closed, &[0, 1, 2, 4], |_| ()), [(3, 4), (5, 6)]);
    // Numbers of a round that ends by time depend on the server.
    assert_eq!(
        missing("load: { concurrency: 2, duration: 1s }", &[0, 4], |_| ()),
        []
    );
    let lost = |part: &mut Part| {
        part.ending = Some(EarlyStop::TargetLost(TargetLost::default()));
    };
    assert_eq!(missing(open, &[1], lost), []);
    assert_eq!(
        missing(open, &[1], |part| part.cut_short =
            Some("interrupted".into())),
        []
    );
    assert_eq!(missing(open, &[1], |part| part.dataset_ended = true), []);
}

fn part(index: u32) -> Part {
    let number = u64::from(index);
    let scale = f64::from(index + 1);
    Part {
        case: "a".into(),
        round: 2,
        origin_ns: 100 + number,
        measured_from_ns: 50 - number,
        sending_until_ns: (index != 1).then_some(900 + number),
        cut_short: (index > 0).then(|| "interrupted".to_owned()),
        ending: (index == 2).then(|| EarlyStop::TargetLost(TargetLost::default())),
        rows_dropped: 7,
        rows_repeated: number,
        dataset_ended: index == 1,
        missing_telemetry: vec!["no GPU".into()],
        vitals: Some(Vitals {
            stall_ms_p99: scale,
            stall_ms_max: 10.0 - scale,
            stall_ms_sure: (index != 0).then_some(scale / 2.0),
            stalls: Some(vec![WorkerStalls {
                count: number,
                longest: vec![Stall {
                    from: number,
                    to: 9,
                    busy: 0,
                    after: 0,
                }],
                ..WorkerStalls::default()
            }]),
            cpu_shares: vec![0.1 * scale, 0.2],
            memory_peak: 1000 - number,
            events_per_s: 0.1 * scale,
            bytes_in_per_s: 10.0 * scale,
            bytes_out_per_s: 100.0,
        }),
        ..Part::default()
    }
}

#[test]
fn the_parts_of_the_shards_become_one() {
    let parts = [part(0), part(1), part(2)];
    let merged = merge_parts(&[(2, &parts[2]), (0, &parts[0]), (1, &parts[1])]);
    let vitals = |index: usize| parts[index].vitals.clone().unwrap();
    let expected = Part {
        case: "a".into(),
        round: 2,
        origin_ns: 100,
        measured_from_ns: 48,
        sending_until_ns: Some(902),
        cut_short: Some("interrupted".into()),
        ending: parts[2].ending.clone(),
        rows_dropped: 7,
        rows_repeated: 3,
        dataset_ended: true,
        missing_telemetry: vec!["no GPU".into()],
        vitals: Some(Vitals {
            stall_ms_p99: 3.0,
            stall_ms_max: 9.0,
            stall_ms_sure: Some(1.5),
            stalls: Some(
                (0..3)
                    .flat_map(|index| vitals(index).stalls.unwrap())
                    .collect(),
            ),
            cpu_shares: vec![0.1, 0.2, 0.2, 0.2, 0.1 * 3.0, 0.2],
            memory_peak: 1000,
            events_per_s: 0.1 + 0.2 + 0.1 * 3.0,
            bytes_in_per_s: 60.0,
            bytes_out_per_s: 300.0,
        }),
        shards: (0..3)
            .map(|index| ShardPart {
                index,
                vitals: Some(vitals(index as usize)),
                ..ShardPart::default()
            })
            .collect(),
        ..Part::default()
    };
    assert_eq!(merged, expected);
    let first_two = merge_parts(&[(0, &parts[0]), (1, &parts[1])]);
    let last_two = merge_parts(&[(1, &parts[1]), (2, &parts[2])]);
    assert_eq!(merge_parts(&[(0, &first_two), (2, &parts[2])]), expected);
    assert_eq!(merge_parts(&[(1, &last_two), (0, &parts[0])]), expected);
}

#[test]
fn a_merge_that_does_not_fit_into_memory_uses_the_disk_or_names_a_machine_that_it_fits_on() {
    let size = StoredSize {
        rows: 10_000_000,
        token_events: 1_000_000_000,
    };
    let needed = memory_needed(size.rows, size.token_events);
    assert_eq!(needed, 110_000_000 + 46_000_000_000 + 5_000_000_000);
    let command = "llmscen merge s3://bench/runs/17 --output out";
    let reserve = |usable, opened: io::Result<()>| {
        let reserved = reserve_within(size, usable, Path::new("out"), command, |_, bytes| {
            assert_eq!(bytes, needed + needed / 2);
            opened
        });
        reserved.map_err(|error| error.to_string())
    };
    for enough in [None, Some(needed)] {
        assert_eq!(reserve(enough, Err(io::Error::other("unused"))), Ok(None));
    }
    let scratch = "the merge needs 51.1 GB of memory; this process may use 4.0 GB, so the rest is \
    in a scratch file in out";
    assert_eq!(
        reserve(Some(4_000_000_000), Ok(())),
        Ok(Some(scratch.into()))
    );
    let error = |usable: &str, why: &str| {
        Err(format!(
            "10000000 requests with 1000000000 token events need 51.1 GB of memory, but this \
             process may use {usable}, and a scratch file in out cannot have the rest: {why}\n  \
             help: merge on a machine with 51.1 GB, or choose a folder on a large disk with \
             --output: {command}"
        ))
    };
    let full = "the disk has 3 GB of free space";
    assert_eq!(
        reserve(Some(16_000_000_000), Err(io::Error::other(full))),
        error("16.0 GB", full)
    );
    assert_eq!(
        reserve(Some(50_000_000), Ok(())),
        error("50 MB", "at least 110 MB must be in memory")
    );
}

#[test]
fn the_footer_of_a_file_has_its_size() {
    let table = table(&[(0, "a", 0, 3, 0), (0, "a", 0, 4, 0), (0, "a", 0, 5, 0)]);
    // 3 and 4 events, and none, which counts as one.
    let size = StoredSize::read(Cursor::new(bytes(&table))).unwrap();
    assert_eq!(
        size,
        StoredSize {
            rows: 3,
            token_events: 8
        }
    );
}
