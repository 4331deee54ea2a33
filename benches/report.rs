//! How long a report of very many tokens takes, and how much memory: `cargo bench --bench report [-- FOLDER [CASES ROUNDS REQUESTS TOKENS]]`.
//!
//! Writes the folder of a run that never was, 8 cases × 3 rounds × 2000 requests of 500 tokens unless told, and lets `llmscen report`
//! make its reports twice. What is printed is the time and the memory of each, and whether both wrote the same bytes.

use llmscen_analysis::{Table, TaggedOutcome};
use llmscen_core::manifest::{Manifest, Part, Vitals};
use llmscen_core::outcome::{Counted, Finish, Outcome, Phase, Timeline, Usage};
use llmscen_core::units::Nanos;
use llmscen_scenario::Input;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the run is made of: cases, rounds, requests of a round, tokens of a request.
type Size = [u64; 4];

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
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
    write(&folder, size);
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
        let (took, peak) = report(&folder);
        println!(
            "| {turn} | {:.2} | {:.0} | {:016x} |",
            took.as_secs_f64(),
            peak as f64 / 1e6,
            digest(&folder)
        );
    }
}

fn write(folder: &Path, size: Size) {
    std::fs::create_dir_all(folder).expect("a folder");
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
    std::fs::write(folder.join("plan.yaml"), &text).expect("a plan");
    let input = Input {
        path: &folder.join("plan.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)));
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
            let vitals = Vitals {
                stall_ms_p99: 0.2,
                cpu_shares: vec![0.3],
                events_per_s: 1e4,
                ..Vitals::default()
            };
            let part = Part {
                case: case.into(),
                round,
                sending_until_ns: Some(until.0),
                vitals: Some(vitals),
                ..Part::default()
            };
            parts.push(part);
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
    let table = Table::build(tagged);
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
        end: Ok(Finish {
            reason: "length".into(),
        }),
    }
}

/// How long `llmscen report` takes, and the most memory that it ever held.
fn report(folder: &Path) -> (Duration, u64) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_llmscen"))
        .arg("report")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("llmscen");
    let mut peak = 0;
    while child.try_wait().expect("a child").is_none() {
        peak = peak.max(resident(child.id()));
        std::thread::sleep(Duration::from_millis(2));
    }
    (began.elapsed(), peak)
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
