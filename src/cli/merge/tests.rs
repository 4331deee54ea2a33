use crate::cli::{Exit, World, main};
use crate::run::sharding::messages::{DeliveredFile, Delivery, Hello, Next};
use crate::run::sharding::{NextRound, RunEnd, StopReason};
use crate::store::checksums::sha256;
use crate::store::shared_store::{Objects, SharedStore};
use llmscen_analysis::{Builder, Table, TaggedOutcome};
use llmscen_core::manifest::{Manifest, Part, Vitals};
use llmscen_core::outcome::{Finish, Outcome, Phase, Timeline};
use llmscen_core::plan::Plan;
use llmscen_core::request::PreparedRequest;
use llmscen_core::schedule::shard::Shard;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SHARDS: u32 = 3;
/// Arrivals of the plan.
const REQUESTS: u64 = 20;
const ROUND: u32 = 0;

/// A run of three shards in a store, with one round.
struct StoredShards {
    folder: TempDir,
    plan: Plan,
    store: SharedStore,
}

impl StoredShards {
    fn new() -> StoredShards {
        let text = "version: 1\nname: split\ntarget: { url: \"http://127.0.0.1:9\", model: m }\n\
                    dataset: { kind: prompt, text: x }\nload: { rate: 10/s, arrivals: constant, duration: 2s }\n\
                    slo: [\"ttft.max < 1s\"]\nreport: { formats: [md] }\n";
        let input = Input {
            path: Path::new("split.yaml"),
            text: Some(text.into()),
            env: &BTreeMap::new(),
            set: &[],
        };
        let plan = llmscen_scenario::load(&input).unwrap().plan;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().join("store").display());
        fs::create_dir(folder.path().join("store")).unwrap();
        let store = SharedStore::open(&url, "run-1", &BTreeMap::new()).unwrap();
        let stored = StoredShards {
            folder,
            plan,
            store,
        };
        stored.put("plan.yaml", stored.plan.resolved.as_bytes());
        for index in 0..SHARDS {
            stored.put_json(&format!("hello/{index}"), &stored.hello(index));
        }
        let round = NextRound {
            case: 0,
            round: ROUND,
            ..NextRound::default()
        };
        stored.put_json(
            "next/0",
            &Next {
                round: Some(round),
                ..Next::default()
            },
        );
        let end = RunEnd {
            success: true,
            ..RunEnd::default()
        };
        stored.put_json(
            "next/1",
            &Next {
                end: Some(end),
                ..Next::default()
            },
        );
        (0..SHARDS).for_each(|index| stored.deliver(index, &stored.rows(&[index])));
        stored
    }

    fn hello(&self, index: u32) -> Hello {
        let mut hello = Hello {
            shards: SHARDS,
            version: "1".into(),
            plan_id: self.plan.id.clone(),
            digest: "d".into(),
            ..Hello::default()
        };
        hello.facts.host = format!("node-{index}");
        hello
    }

    fn put(&self, key: &str, bytes: &[u8]) {
        self.store.put(key, bytes).unwrap();
    }

    fn put_json(&self, key: &str, value: &impl Serialize) {
        self.put(key, &serde_json::to_vec(value).unwrap());
    }

    /// The rows of some shards.
    fn rows(&self, shards: &[u32]) -> Table {
        let mut builder = Builder::default();
        for seq in 0..REQUESTS {
            let shard = (seq % u64::from(SHARDS)) as u32;
            if shards.contains(&shard) {
                builder.push(&TaggedOutcome {
                    case: &self.plan.cases[0].id,
                    round: ROUND,
                    shard,
                    outcome: &outcome(seq),
                });
            }
        }
        builder.finish().unwrap()
    }

    fn part(&self, index: u32) -> Part {
        Part {
            case: self.plan.cases[0].id.clone(),
            round: ROUND,
            sending_until_ns: Some(2_000_000_000 + u64::from(index)),
            vitals: Some(Vitals {
                stall_ms_p99: 0.1 * f64::from(index + 1),
                stalls: Some(Vec::new()),
                cpu_shares: vec![0.1],
                ..Vitals::default()
            }),
            ..Part::default()
        }
    }

    /// Stores rows and record of a shard.
    fn deliver(&self, index: u32, rows: &Table) {
        let path = self.folder.path().join("rows.parquet");
        rows.write_parquet(File::create(&path).unwrap()).unwrap();
        let key = format!("rows/0/{index}.parquet");
        self.store.upload(&key, &path).unwrap();
        let file = DeliveredFile {
            key,
            sha256: sha256(File::open(&path).unwrap()).unwrap(),
            size: fs::metadata(&path).unwrap().len(),
        };
        self.put_json(
            &format!("done/0/{index}"),
            &Delivery {
                host: format!("node-{index}"),
                part: self.part(index),
                row_count: rows.len() as u64,
                files: [("rows".to_owned(), file)].into(),
                ..Delivery::default()
            },
        );
    }

    fn object(&self, key: &str) -> PathBuf {
        self.folder.path().join("store/run-1").join(key)
    }

    fn output(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Merges to the output folder; the exit and stderr.
    fn merge(&self, more: &[&str]) -> (Exit, String) {
        let output = self.output();
        let url = self.store.url();
        let mut args = vec!["merge", &url, "--output", output.to_str().unwrap()];
        args.extend(more);
        run(&args)
    }

    fn manifest(&self) -> Manifest {
        serde_json::from_slice(&fs::read(self.output().join("manifest.json")).unwrap()).unwrap()
    }
}

fn run(args: &[&str]) -> (Exit, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let args = std::iter::once("llmscen").chain(args.iter().copied());
    let exit = main(World {
        args: args.map(str::to_owned).collect(),
        env: BTreeMap::new(),
        out: &mut out,
        err: &mut err,
        terminals: (false, false),
    });
    (exit, String::from_utf8(err).unwrap())
}

fn outcome(seq: u64) -> Outcome {
    let due = seq * 100_000_000;
    let mut outcome = PreparedRequest {
        seq,
        turns: 1,
        model: "m".into(),
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    outcome.streamed = true;
    outcome.timeline = Timeline {
        intended: Nanos(due),
        sent: Some(Nanos(due + 1000)),
        tokens: (1..9)
            .map(|step| Nanos(due + step * (5_000_000 + seq)))
            .collect(),
        end: Nanos(due + 60_000_000),
        ..Timeline::default()
    };
    outcome.end = Ok(Finish {
        reason: "stop".into(),
    });
    outcome
}

fn bytes(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write_parquet(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_report_of_a_stored_run_is_that_of_its_merged_rows() {
    let stored = StoredShards::new();
    let (exit, errors) = stored.merge(&[]);
    assert_eq!(exit, Exit::Pass, "{errors}");
    let output = stored.output();
    let all: Vec<u32> = (0..SHARDS).collect();
    assert_eq!(
        fs::read(output.join("requests.parquet")).unwrap(),
        bytes(&stored.rows(&all))
    );
    let manifest = stored.manifest();
    assert_eq!(
        (manifest.interrupted, manifest.error, manifest.shard),
        (false, None, None)
    );
    let [part] = manifest.parts.as_slice() else {
        panic!("one part")
    };
    let shards: Vec<(u32, &str, u64, Option<&str>)> = part
        .shards
        .iter()
        .map(|shard| {
            (
                shard.index,
                shard.host.as_str(),
                shard.requests,
                shard.lost.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        shards,
        [
            (0, "node-0", 7, None),
            (1, "node-1", 7, None),
            (2, "node-2", 6, None)
        ]
    );
    assert_eq!(part.sending_until_ns, Some(2_000_000_002));
    // The folder is one that other commands read, with the same result.
    let results = fs::read(output.join("results.json")).unwrap();
    let (again, errors) = run(&["report", output.to_str().unwrap()]);
    assert_eq!(again, exit, "{errors}");
    assert_eq!(fs::read(output.join("results.json")).unwrap(), results);
    let left: Vec<String> = fs::read_dir(&output)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, [] as [String; 0], "nothing temporary is left");
    // A second merge does not overwrite the report.
    let (exit, errors) = stored.merge(&[]);
    assert!(
        exit == Exit::Error && errors.contains("--force"),
        "{errors}"
    );
    assert_eq!(stored.merge(&["--force"]).0, Exit::Pass);
}

#[test]
fn what_was_altered_or_is_not_of_the_run_is_refused() {
    type Damage = fn(&StoredShards);
    let cases: [(Damage, &str); 7] = [
        (
            |stored| {
                let path = stored.object("rows/0/1.parquet");
                let mut bytes = fs::read(&path).unwrap();
                bytes[40] ^= 1;
                fs::write(path, bytes).unwrap();
            },
            "was altered or truncated: its SHA-256 differs from that in done/0/1",
        ),
        (
            |stored| {
                let path = stored.object("rows/0/2.parquet");
                let bytes = fs::read(&path).unwrap();
                fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
            },
            "was altered or truncated: its size differs from that in done/0/2",
        ),
        (
            |stored| stored.deliver(2, &stored.rows(&[1])),
            "is in the rows of shard 1 twice",
        ),
        (
            |stored| {
                let digest = "other".into();
                stored.put_json(
                    "hello/2",
                    &Hello {
                        digest,
                        ..stored.hello(2)
                    },
                );
            },
            "the shards differ in the first requests: d on shards 0 (node-0), 1 (node-1); other on shard 2 (node-2)",
        ),
        (
            |stored| {
                let plan_id = "other".into();
                stored.put_json(
                    "hello/0",
                    &Hello {
                        plan_id,
                        ..stored.hello(0)
                    },
                );
            },
            "the shards differ in the plan: ",
        ),
        (
            |stored| fs::remove_file(stored.object("done/0/1")).unwrap(),
            "shard 1 did not finish to store round 0: rows/0/1.parquet at ",
        ),
        (
            |stored| fs::remove_dir_all(stored.object("hello")).unwrap(),
            "has no run: hello/0 does not exist",
        ),
    ];
    for (damage, message) in cases {
        let stored = StoredShards::new();
        damage(&stored);
        let (exit, errors) = stored.merge(&[]);
        assert_eq!(exit, Exit::Error, "{message}: {errors}");
        assert!(errors.contains(message), "{message}: {errors}");
        assert!(!stored.output().join("results.json").exists(), "{message}");
    }
}

#[test]
fn a_shard_that_could_not_store_its_rows_is_read_from_its_folder() {
    let stored = StoredShards::new();
    stored.merge(&[]);
    let results = fs::read(stored.output().join("requests.parquet")).unwrap();
    fs::remove_file(stored.object("done/0/1")).unwrap();
    let local = stored.folder.path().join("local");
    fs::create_dir(&local).unwrap();
    fs::write(local.join("plan.yaml"), &stored.plan.resolved).unwrap();
    fs::write(local.join("requests.parquet"), bytes(&stored.rows(&[1]))).unwrap();
    let write_manifest = |shard, plan_id: &str, attempt: &str| {
        let mut manifest = Manifest {
            plan_id: plan_id.to_owned(),
            shard,
            attempt: Some(attempt.to_owned()),
            parts: vec![stored.part(1)],
            ..Manifest::default()
        };
        manifest.machine.host = "node-1".into();
        fs::write(
            local.join("manifest.json"),
            serde_json::to_vec(&manifest).unwrap(),
        )
        .unwrap();
    };
    // A shard that could not store its rows names the folder of the round.
    let of_round = local.join("shards/0");
    fs::create_dir_all(&of_round).unwrap();
    let merge = || stored.merge(&["--force", "--rows", of_round.to_str().unwrap()]);
    let shard = Shard::new(1, SHARDS).unwrap();
    let attempt = stored.hello(1).nonce;
    write_manifest(None, &stored.plan.id, &attempt);
    assert!(
        merge()
            .1
            .contains("(--rows) has no records of a single shard")
    );
    write_manifest(Some(shard), "other", &attempt);
    assert!(
        merge()
            .1
            .contains("(--rows) has the records of another plan")
    );
    write_manifest(Some(shard), &stored.plan.id, "earlier");
    assert!(
        merge()
            .1
            .contains("(--rows) has the records of another attempt")
    );
    write_manifest(Some(shard), &stored.plan.id, &attempt);
    let (exit, errors) = merge();
    assert_eq!(exit, Exit::Pass, "{errors}");
    assert_eq!(
        fs::read(stored.output().join("requests.parquet")).unwrap(),
        results
    );
    let hosts: Vec<String> = stored.manifest().parts[0]
        .shards
        .iter()
        .map(|shard| shard.host.clone())
        .collect();
    assert_eq!(hosts, ["node-0", "node-1", "node-2"]);
}

#[test]
fn a_lost_shard_and_its_missing_requests_are_recorded() {
    let stored = StoredShards::new();
    fs::remove_file(stored.object("done/0/1")).unwrap();
    fs::remove_file(stored.object("rows/0/1.parquet")).unwrap();
    stored.put_json(
        "stop/0/0",
        &StopReason {
            lost: Some(1),
            reason: "shard 1 was lost 1 s into the round".into(),
            ..StopReason::default()
        },
    );
    let (_, errors) = stored.merge(&[]);
    let lost = |manifest: &Manifest| manifest.parts[0].shards[1].lost.clone();
    assert_eq!(
        lost(&stored.manifest()).as_deref(),
        Some("shard 1 was lost 1 s into the round; 7 of its planned requests are missing"),
        "{errors}"
    );
    // A shard that delivered only a part of its requests is found by their numbers.
    let stored = StoredShards::new();
    let mut rows = Builder::default();
    rows.push(&TaggedOutcome {
        case: &stored.plan.cases[0].id,
        round: ROUND,
        shard: 1,
        outcome: &outcome(4),
    });
    stored.deliver(1, &rows.finish().unwrap());
    stored.merge(&[]);
    assert_eq!(
        lost(&stored.manifest()).as_deref(),
        Some("shard 1: 6 of its planned requests are missing")
    );
    // Shard 0 stored no end of the run, but every shard stored all of its requests.
    let stored = StoredShards::new();
    fs::remove_file(stored.object("next/1")).unwrap();
    let (exit, errors) = stored.merge(&[]);
    assert_eq!(exit, Exit::Pass, "{errors}");
    let notes = stored.manifest().notes.join("; ");
    assert!(notes.contains("shard 0 ended before the run"), "{notes}");
}
