//! Compares the client's timestamps with the simulator's log of its writes, on one clock.

use llmscen::run::context::Context;
use llmscen::run::execution::{CompletedRun, run_plan};
use llmscen::run::stop::Stop;
use llmscen_datasets::CacheDir;
use llmscen_scenario::Input;
use llmscen_simulator::Truth;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Instant;

/// One request on both sides, in nanoseconds since the start of the run.
pub struct Pair {
    /// Client timestamps of token events.
    pub seen: Vec<u64>,
    /// Server timestamps before the write of each event.
    pub written: Vec<u64>,
    /// Scheduled and actual send time.
    pub intended: u64,
    pub sent: u64,
}

/// Runs a scenario against a simulator and joins the records of both sides. `{url}` in the text is replaced.
pub fn witness(folder: &Path, simulator: &str, scenario: &str) -> (CompletedRun, Vec<Pair>) {
    witness_at(folder, simulator, scenario, "/v1/chat/completions")
}

/// As [`witness`], with this path in `{url}`.
pub fn witness_at(
    folder: &Path,
    simulator: &str,
    scenario: &str,
    path: &str,
) -> (CompletedRun, Vec<Pair>) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let origin = Instant::now();
    let config = load(
        folder,
        &format!(
            "version: 1\nname: t\ntarget: {{ api: simulator, simulator: {simulator} }}\ndataset: {{ kind: prompt, text: x }}\nload: {{ concurrency: 1, requests: 1 }}\n"
        ),
    );
    let llmscen_core::target::TargetLocation::Simulator { server: config, .. } =
        &config.cases[0].target.location
    else {
        panic!("a simulator")
    };
    let server = llmscen_simulator::start(
        config,
        config_seed(),
        "127.0.0.1:0".parse().unwrap(),
        Truth::since(origin),
    )
    .unwrap();
    let url = format!("http://{}{path}", server.addr());
    let plan = load(folder, &scenario.replace("{url}", &url));
    let context = Context {
        origin,
        ..context(folder, Stop::default())
    };
    let conducted = run_plan(&plan, &context).unwrap();
    let written = server.truth().all().into_iter().map(|record| {
        (
            record.id,
            record.writes.iter().map(|write| write.at.0).collect(),
        )
    });
    let pairs = join(&conducted, written.collect());
    (conducted, pairs)
}

pub fn context(folder: &Path, stop: Stop) -> Context {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Context {
        env: BTreeMap::new(),
        cache: CacheDir {
            dir: folder.join("cache"),
            hub: String::new(),
            ..CacheDir::default()
        },
        tool: env!("CARGO_BIN_EXE_llmscen").into(),
        output: Some(folder.join("out")),
        filter: Default::default(),
        continued: None,
        shard: Default::default(),
        shared: None,
        force: true,
        keep_going: false,
        inconclusive: llmscen_report::Inconclusive::Failure,
        origin: Instant::now(),
        wall_ns: 0,
        stop,
        events: std::sync::mpsc::channel().0,
    }
}

fn config_seed() -> llmscen_core::seed::Seed {
    llmscen_core::seed::Seed(1)
}

fn load(folder: &Path, text: &str) -> llmscen_core::plan::Plan {
    let input = Input {
        path: &folder.join("s.yaml"),
        text: Some(text.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
}

fn join(conducted: &CompletedRun, mut written: HashMap<String, Vec<u64>>) -> Vec<Pair> {
    let file = std::fs::File::open(conducted.folder.join("requests.parquet")).unwrap();
    let rows = ParquetReader::new(file).finish().unwrap();
    let origin = conducted.report.manifest.parts[0].origin_ns;
    let (intended, sent) = (stamps(&rows, "intended_ns"), stamps(&rows, "sent_ns"));
    let ids = rows.column("response_id").unwrap().str().unwrap().clone();
    let events = rows
        .column("token_events_ns")
        .unwrap()
        .list()
        .unwrap()
        .clone();
    let row = |index: usize| {
        let id = ids.get(index).expect("an id").to_owned();
        let list = events.get_as_series(index).expect("token events");
        let seen = list
            .u64()
            .unwrap()
            .into_no_null_iter()
            .map(|at| at + origin)
            .collect();
        let written = written.remove(&id).expect("the server knows the request");
        Pair {
            seen,
            written,
            intended: intended[index] + origin,
            sent: sent[index] + origin,
        }
    };
    (0..rows.height()).map(row).collect()
}

fn stamps(rows: &DataFrame, column: &str) -> Vec<u64> {
    rows.column(column)
        .unwrap()
        .u64()
        .unwrap()
        .into_no_null_iter()
        .collect()
}

/// By how much each first token was stamped after the server began to write it, milliseconds, sorted.
pub fn ttft_errors(pairs: &[Pair]) -> Vec<f64> {
    sorted(pairs.iter().map(|pair| late(pair.seen[0], pair.written[0])))
}

/// Difference of each client-side gap between tokens to the server-side gap, in milliseconds, sorted.
pub fn itl_errors(pairs: &[Pair]) -> Vec<f64> {
    let gap = |stamps: &[u64], index: usize| late(stamps[index + 1], stamps[index]);
    let errors = pairs.iter().flat_map(|pair| {
        (0..pair.seen.len() - 1)
            .map(move |index| (gap(&pair.seen, index) - gap(&pair.written, index)).abs())
    });
    sorted(errors)
}

/// Send delay of each request, in milliseconds, sorted.
pub fn send_lags(pairs: &[Pair]) -> Vec<f64> {
    sorted(pairs.iter().map(|pair| late(pair.sent, pair.intended)))
}

fn late(at: u64, reference: u64) -> f64 {
    (at as f64 - reference as f64) / 1e6
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Nearest rank.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((share * sorted.len() as f64).ceil() as usize).max(1) - 1]
}
