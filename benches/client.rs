//! llmscen itself under load, in a process of its own: a whole run, with its CPU time and memory told apart from the rest.

use crate::cost::{Cost, Job};
use llmscen::run::context::Context;
use llmscen::run::event::Event;
use llmscen::run::execution::{CompletedRun, run_plan};
use llmscen::run::stop::Stop;
use llmscen_core::report::InvalidReason;
use llmscen_datasets::CacheDir;
use llmscen_scenario::Input;
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

/// The load as the scenario spells it.
fn load(job: &Job) -> String {
    let closed = format!("concurrency: {}, requests: {}", job.streams, job.requests);
    match (job.burst, job.spread_s) {
        (true, _) => format!("rate: burst, requests: {}", job.requests),
        (false, 0) => closed,
        (false, spread) => format!("{closed}, spread: {spread}s"),
    }
}

/// Runs the job and tells what it came to.
pub fn run(job: &Job) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let origin = Instant::now();
    let zero = crate::server::monotonic();
    let (stop, (sender, events)) = (Stop::default(), mpsc::channel());
    let text = format!(
        "version: 1\nname: b\ntarget: {{ url: \"http://{}{}\", model: m, timeouts: {{ connect: 30s, read: 60s, total: 120s }} }}\n\
         request: {{ max_tokens: 100 }}\ndataset: {{ kind: prompt, text: \"{}\" }}\nload: {{ {} }}\nreport: {{ formats: [json] }}\n",
        job.addr,
        job.order.path(),
        "word ".repeat(job.body / 5),
        load(job)
    );
    let input = Input {
        path: &folder.path().join("s.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input)
        .map(|loaded| loaded.plan)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)));
    let context = Context {
        tool: std::path::PathBuf::new(),
        env: BTreeMap::new(),
        cache: CacheDir {
            dir: folder.path().join("cache"),
            hub: String::new(),
            ..CacheDir::default()
        },
        output: Some(folder.path().join("out")),
        filter: Default::default(),
        continued: None,
        shard: Default::default(),
        shared: None,
        force: true,
        keep_going: true,
        inconclusive: llmscen_report::Inconclusive::Failure,
        origin,
        wall_ns: 0,
        stop: stop.clone(),
        events: sender,
    };
    let watching = std::thread::spawn({
        let (idle, streams) = (job.idle, job.streams);
        move || watch(events, idle.then_some(streams), &stop)
    });
    let conducted = run_plan(&plan, &context).expect("a run");
    drop(context);
    let mut told = watching.join().expect("what was seen");
    let whole = Cost::now();
    told["whole_cpu_s"] = json!(whole.cpu_s);
    told["whole_peak"] = json!(whole.peak);
    describe(&mut told, &conducted, job, zero);
    told
}

/// The costs from the start of the case to its end; an idle job is given up once all of its streams stand.
fn watch(events: mpsc::Receiver<Event>, idle: Option<u64>, stop: &Stop) -> Value {
    let (mut began, mut ended) = (Cost::now(), None);
    let (mut steady, mut samples) = (0, Vec::new());
    for event in events {
        match event {
            Event::CaseStarted { .. } => began = Cost::now(),
            Event::Progress(progress) => {
                let now = Cost::now();
                samples.push(json!([progress.done, now.resident]));
                steady = if idle == Some(progress.in_flight) {
                    steady + 1
                } else {
                    0
                };
                if steady == 4 {
                    ended = Some(now);
                    stop.press();
                    stop.press();
                }
            }
            Event::CaseEnded(_) => ended = ended.or(Some(Cost::now())),
            _ => {}
        }
    }
    let ended = ended.unwrap_or_else(Cost::now);
    let mut told = ended.since(&began);
    told["resident"] = json!(ended.resident);
    told["samples"] = json!(samples);
    told
}

/// `zero` is the run's start on the system's monotonic clock.
fn describe(told: &mut Value, conducted: &CompletedRun, job: &Job, zero: u64) {
    let case = &conducted.report.cases[0];
    told["ok"] = json!(case.counts.ok);
    told["failures"] = json!(case.counts.failures);
    told["lag_ms_p99"] = json!(case.audit.schedule_lag_ms_p99);
    told["audit"] = json!(InvalidReason::joined(&case.audit.reasons));
    if job.burst || job.order.stamped {
        spans(
            told,
            &conducted.folder,
            zero + conducted.report.manifest.parts[0].origin_ns,
            job.order.stamped,
        );
    }
}

fn spans(told: &mut Value, folder: &Path, origin: u64, stamped: bool) {
    let file = std::fs::File::open(folder.join("requests.parquet")).expect("the rows");
    let rows = ParquetReader::new(file).finish().expect("a table");
    let sent = stamps(&rows, "sent_ns");
    let spread = sent
        .iter()
        .max()
        .zip(sent.iter().min())
        .map(|(last, first)| (last - first) as f64 / 1e6);
    told["sent_spread_ms"] = json!(spread);
    if !stamped {
        return;
    }
    let ids = rows
        .column("response_id")
        .expect("ids")
        .str()
        .expect("text")
        .clone();
    let events = rows
        .column("token_events_ns")
        .expect("events")
        .list()
        .expect("a list")
        .clone();
    let late = (0..rows.height()).filter_map(|index| {
        let written: u64 = ids.get(index)?.strip_prefix("chatcmpl-")?.parse().ok()?;
        let seen = events.get_as_series(index)?.u64().ok()?.first()? + origin;
        Some((seen as f64 - written as f64) / 1e3)
    });
    let mut late: Vec<f64> = late.collect();
    late.sort_by(f64::total_cmp);
    let at = |share: f64| {
        late.get(((late.len() as f64 * share) as usize).min(late.len().saturating_sub(1)))
    };
    told["late_us"] = json!([at(0.0), at(0.5), at(0.99), at(1.0)]);
}

fn stamps(rows: &DataFrame, column: &str) -> Vec<u64> {
    rows.column(column)
        .expect("a column")
        .u64()
        .expect("numbers")
        .iter()
        .flatten()
        .collect()
}
