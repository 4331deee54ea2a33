//! How long a report of very many tokens takes, and how much memory: `cargo bench --bench report [-- FOLDER [CASES ROUNDS REQUESTS TOKENS]]`.
//!
//! Writes the folder of a run that never was, 8 cases × 3 rounds × 2000 requests of 500 tokens unless told, and lets `llmscen report`
//! make its reports twice. What is printed is the time and the memory of each, and whether both wrote the same bytes.
//!
//! `cargo bench --bench report -- --shards N FOLDER CASES ROUNDS REQUESTS TOKENS` writes the same run as the records of N shards in a
//! store, and lets `llmscen merge` make its report. REQUESTS are those of a round over all shards.

use llmscen::run::sharding::messages::{DeliveredFile, Delivery};
use llmscen_analysis::{Builder, Table, TaggedOutcome};
use llmscen_core::manifest::{Manifest, Part, Vitals};
use llmscen_core::outcome::{Counted, Finish, Outcome, Phase, Timeline, Usage};
use llmscen_core::plan::Plan;
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the run is made of: cases, rounds, requests of a round, tokens of a request.
type Size = [u64; 4];

fn main() {
    let mut args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let shards = args.first().is_some_and(|arg| arg == "--shards").then(|| {
        args.remove(0);
        args.remove(0).parse::<u32>().expect("a number of shards")
    });
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let folder = args
        .first()
        .map_or_else(|| scratch.path().join("run"), PathBuf::from);
    let told: Vec<u64> = args
        .iter()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let size: Size = told.try_into().unwrap_or([8, 3, 2000, 500]);
    match shards {
        Some(shards) => merge_stored(&folder, size, shards),
        None => report_twice(&folder, size),
    }
}

fn report_twice(folder: &Path, size: Size) {
    write(folder, size);
    let rows = std::fs::metadata(folder.join("requests.parquet")).map_or(0, |file| file.len());
    println!(
        "{} token events, requests.parquet {:.0} MB\n",
        size.iter().product::<u64>(),
        rows as f64 / 1e6
    );
    println!(
        "| report | time, s | peak memory, MB | digest of what was written |\n|---|---|---|---|"
    );
    for turn in ["first", "second"] {
        let (took, peak) = measure(["report".as_ref(), folder.as_os_str()]);
        println!(
            "| {turn} | {:.2} | {:.0} | {:016x} |",
            took.as_secs_f64(),
            peak as f64 / 1e6,
            digest(folder)
        );
    }
}

fn merge_stored(folder: &Path, size: Size, shards: u32) {
    let stored = write_shards(&folder.join("store/run"), size, shards);
    let url = format!("file://{}", folder.join("store/run").display());
    let output = folder.join("out");
    let (took, peak) = measure(
        ["merge", &url, "--force", "--output"]
            .map(OsStr::new)
            .into_iter()
            .chain([output.as_os_str()]),
    );
    let [events, rows] = [size.iter().product::<u64>(), size[..3].iter().product()];
    let per = |amount: f64, count: u64| amount / count as f64;
    println!(
        "| token events | requests | shards | Parquet, B/event | time, s | ns/event | peak memory, MB | B/event | B/request |\n\
         |---|---|---|---|---|---|---|---|---|\n| {events} | {rows} | {shards} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} | {:.0} |",
        per(stored as f64, events),
        took.as_secs_f64(),
        per(took.as_nanos() as f64, events),
        peak as f64 / 1e6,
        per(peak as f64, events),
        per(peak as f64, rows),
    );
}

/// Writes what the shards of a run leave in a store. Returns the size of their rows.
fn write_shards(store: &Path, size: Size, shards: u32) -> u64 {
    let put = |key: String, bytes: &[u8]| {
        let path = store.join(key);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    };
    let plan = plan(&store.join("plan.yaml"), size);
    put("plan.yaml".into(), plan.resolved.as_bytes());
    for shard in 0..shards {
        let hello = json!({ "nonce": "", "shards": shards, "version": "bench", "plan_id": plan.id, "digest": "",
            "facts": { "host": format!("node-{shard}"), "cores": 1 }, "clock": { "now": 0, "monotonic_ns": 0, "unix_ns": 0 } });
        put(format!("hello/{shard}"), hello.to_string().as_bytes());
    }
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut number, mut stored) = (0, 0);
    for (index, case) in plan.cases.iter().enumerate() {
        for round in 0..size[1] as u32 {
            let next = json!({ "nonce": "", "round": { "case": index, "round": round } });
            put(format!("next/{number}"), next.to_string().as_bytes());
            for shard in 0..shards {
                let share = [size[0], size[1], size[2] / u64::from(shards), size[3]];
                let mut builder = Builder::default();
                let mut until = 0;
                for mut outcome in requests(1 << index, share, &mut rng) {
                    outcome.seq = outcome.seq * u64::from(shards) + u64::from(shard);
                    until = until.max(outcome.timeline.sent.unwrap_or_default().0);
                    builder.push(&TaggedOutcome {
                        case: &case.id,
                        round,
                        shard,
                        outcome: &outcome,
                    });
                }
                let mut bytes = Vec::new();
                builder
                    .finish()
                    .expect("rows")
                    .write_parquet(&mut bytes)
                    .expect("rows");
                stored += bytes.len() as u64;
                let key = format!("rows/{number}/{shard}.parquet");
                put(key.clone(), &bytes);
                let mut sha256 = String::new();
                Sha256::digest(&bytes)
                    .iter()
                    .for_each(|byte| _ = write!(sha256, "{byte:02x}"));
                let file = DeliveredFile {
                    key,
                    sha256,
                    size: bytes.len() as u64,
                };
                let delivery = Delivery {
                    part: part(&case.id, round, Nanos(until)),
                    row_count: share[2],
                    files: [("rows".to_owned(), file)].into(),
                    ..Delivery::default()
                };
                let delivery = serde_json::to_vec(&delivery).expect("a record");
                put(format!("done/{number}/{shard}"), &delivery);
            }
            number += 1;
        }
    }
    let end = json!({ "nonce": "", "end": { "success": true } });
    put(format!("next/{number}"), end.to_string().as_bytes());
    stored
}

fn write(folder: &Path, size: Size) {
    let plan = plan(&folder.join("plan.yaml"), size);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let (mut rounds, mut parts) = (Vec::new(), Vec::new());
    for (case, users) in plan
        .cases
        .iter()
        .map(|case| case.id.as_str())
        .zip((0..).map(|power| 1 << power))
    {
        for round in 0..size[1] as u32 {
            let rows = requests(users, size, &mut rng);
            let until = rows
                .iter()
                .filter_map(|row| row.timeline.sent)
                .max()
                .unwrap_or_default();
            parts.push(part(case, round, until));
            rounds.push((case, round, rows));
        }
    }
    let tagged = rounds.iter().flat_map(|(case, round, rows)| {
        rows.iter().map(|outcome| TaggedOutcome {
            case,
            round: *round,
            shard: 0,
            outcome,
        })
    });
    let table = Table::build(tagged).expect("rows");
    let mut bytes = Vec::new();
    table.write_parquet(&mut bytes).expect("rows");
    std::fs::write(folder.join("requests.parquet"), bytes).expect("a file");
    let manifest = Manifest {
        run_id: "bar".into(),
        name: "bar".into(),
        elapsed_s: Some(1.0),
        parts,
        ..Manifest::default()
    };
    std::fs::write(
        folder.join("manifest.json"),
        serde_json::to_vec(&manifest).expect("a manifest"),
    )
    .expect("a file");
}

/// The plan of such a run, written to a file.
fn plan(path: &Path, size: Size) -> Plan {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let text = format!(
        "version: 1\nname: bar\ntarget: {{ url: \"http://127.0.0.1:9\", model: m }}\ndataset: {{ kind: prompt, text: x }}\n\
         request: {{ max_tokens: {} }}\nrounds: {}\nload: {{ concurrency: 1, requests: {} }}\n\
         matrix: {{ load.concurrency: {:?} }}\n\
         slo: [\"ttft.p99 < 2s\", \"itl.p99 < 100ms\", \"tpot.mean < 50ms\", \"output_tps > 10\", \"error_rate < 1%\", \
         \"goodput(ttft < 1s, itl < 200ms) >= 90%\"]\n",
        size[3],
        size[1],
        size[2],
        (0..size[0])
            .map(|case| 1 << case.min(20))
            .collect::<Vec<u64>>(),
    );
    std::fs::write(path, &text).expect("a plan");
    let input = Input {
        path,
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
}

/// The record of a round without problems.
fn part(case: &str, round: u32, until: Nanos) -> Part {
    let vitals = Vitals {
        stall_ms_p99: 0.2,
        cpu_shares: vec![0.3],
        events_per_s: 1e4,
        ..Vitals::default()
    };
    Part {
        case: case.into(),
        round,
        sending_until_ns: Some(until.0),
        vitals: Some(vitals),
        ..Part::default()
    }
}

/// A closed loop in which every user waits for a first token, then for the others, each with its own luck.
fn requests(users: u64, size: Size, rng: &mut ChaCha8Rng) -> Vec<Outcome> {
    let mut free = vec![0u64; users as usize];
    let mut luck = |mean: f64| (-mean * (1.0 - rng.random::<f64>()).ln()) as u64;
    let mut one = |seq: u64| {
        let user = (0..free.len())
            .min_by_key(|&user| free[user])
            .expect("a user");
        let sent = free[user] + 20_000;
        let mut at = sent + 80_000_000 + luck(20e6);
        let mut next = || {
            let now = at;
            at += 8_000_000 + luck(2e6);
            Nanos(now)
        };
        let tokens: Vec<Nanos> = (0..size[3]).map(|_| next()).collect();
        let end = Nanos(tokens.last().map_or(sent, |last| last.0) + 100_000);
        let timeline = Timeline {
            intended: Nanos(free[user]),
            sent: Some(Nanos(sent)),
            headers: Some(Nanos(sent + 1_000_000)),
            first_chunk: Some(Nanos(sent + 1_100_000)),
            tokens,
            end,
            ..Timeline::default()
        };
        free[user] = end.0;
        outcome(seq, size[3], timeline)
    };
    (0..size[2]).map(&mut one).collect()
}

fn outcome(seq: u64, tokens: u64, timeline: Timeline) -> Outcome {
    Outcome {
        seq,
        turn: 0,
        turns: 1,
        group: None,
        phase: Phase::Measured,
        model: "m".into(),
        streamed: true,
        timeline,
        status: Some(200),
        reads: tokens as u32,
        bytes_in: 200 * tokens,
        bytes_out: 500,
        reconnects: 0,
        attempts: 1,
        usage: Usage {
            prompt: Some(100 + seq % 400),
            output: Some(tokens),
            ..Usage::default()
        },
        counted: Counted::default(),
        server: Default::default(),
        items: None,
        max_tokens: Some(tokens),
        response_id: Some(format!("r{seq}")),
        request_id: None,
        endpoint: None,
        answer: None,
        cacheable_tokens: None,
        first_turn: 0,
        session_duration: None,
        held_until: None,
        kept_headers: None,
        audio: None,
        end: Ok(Finish {
            reason: "length".into(),
        }),
        reply: Default::default(),
        prompt_hash: None,
    }
}

/// How long a command of llmscen takes, and the most memory that it ever held.
fn measure<'a>(args: impl IntoIterator<Item = &'a OsStr>) -> (Duration, u64) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_llmscen"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("llmscen");
    let mut peak = 0;
    while child.try_wait().expect("a child").is_none() {
        peak = peak.max(resident(child.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    let took = began.elapsed();
    let exit = child.wait().expect("a child").code();
    assert!(
        !matches!(exit, None | Some(2 | 3)),
        "llmscen failed with exit code {exit:?}"
    );
    (took, peak)
}

fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        << 10
}

/// Of the names and bytes of all files in a folder.
fn digest(folder: &Path) -> u64 {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
        {
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(path)
            }
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    files
        .iter()
        .for_each(|file| (file, std::fs::read(file).expect("a file")).hash(&mut hasher));
    hasher.finish()
}
