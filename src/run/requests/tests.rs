//! The requests of all shards together are those of a single process.

use super::*;
use crate::run::context::Context;
use crate::run::prepare::DatasetCache;
use crate::run::requests::row_usage::RowUsage;
use crate::run::requests::traffic_class::strided_prompts;
use llmscen_core::plan::Plan;
use llmscen_core::schedule::quota::Quota;
use llmscen_datasets::CacheDir;
use llmscen_scenario::Input;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use tempfile::TempDir;

/// Rows of the files.
const ROWS: u64 = 37;
/// Where a plan without end is cut.
const LAST: u64 = 150;

/// A prepared case, and the folder of its files.
struct Lab {
    plan: Plan,
    prepared: PreparedCase,
    _folder: TempDir,
}

/// A request, and its phase if its user is free at time zero.
type Sent = (PreparedRequest, Option<Phase>);

impl Lab {
    fn new(sections: &str) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, row: &dyn Fn(u64) -> String| {
            let rows: Vec<String> = (0..ROWS).map(row).collect();
            std::fs::write(folder.path().join(name), rows.join("\n")).unwrap();
        };
        file("rows.txt", &|row| format!("Prompt {row}."));
        file("talks.jsonl", &|row| {
            let turns = ["user", "assistant"].repeat(1 + row as usize % 3);
            let said = |role: &&str| format!(r#"{{"role": "{role}", "content": "{role} {row}"}}"#);
            let said: Vec<String> = turns.iter().map(said).collect();
            format!(r#"{{"messages": [{}]}}"#, said.join(", "))
        });
        file("log.jsonl", &|row| {
            let at = row * row * 5;
            format!(
                r#"{{"timestamp": {at}, "input_length": 9, "output_length": 3, "hash_ids": [{row}]}}"#
            )
        });
        let text = format!(
            "version: 1\nname: t\nseed: 7\ntarget: {{ url: \
            [\"http://127.0.0.1:9\", \"http://127.0.0.1:10\"], balance: random, model: m \
            }}\n{sections}\n"
        );
        let input = Input {
            path: &folder.path().join("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let plan = llmscen_scenario::load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let context = context(folder.path());
        let prepared = DatasetCache::default().prepare_case(0, &plan.cases[0], &plan, &context);
        let prepared = prepared.unwrap();
        // The lengths of the files are known once they are read.
        for class in &prepared.classes {
            class.prompts.session(ROWS);
        }
        Lab {
            plan,
            prepared,
            _folder: folder,
        }
    }

    fn generator(&self, shard: Shard) -> RequestGenerator {
        let case = &self.plan.cases[0];
        let strides = RowUsage::default().strides(case, &self.prepared);
        let prompts = strided_prompts(&self.prepared.classes, &strides);
        RequestGenerator::new(case, &self.prepared, &prompts, Seed(11), shard)
    }

    /// The requests of a shard up to number [`LAST`], and the number of its sessions before the end of the dataset.
    fn sent(&self, shard: Shard) -> (Vec<Sent>, Option<u64>) {
        let mut generator = self.generator(shard);
        let quota = Quota::new(&self.plan.cases[0].load, shard);
        let mut sent = Vec::new();
        while let Some(call) = generator.render_next().unwrap() {
            if call.seq >= LAST {
                break;
            }
            let phase = match call.due {
                Some((_, phase)) => Some(phase),
                None => quota.admit(call.seq, Nanos::ZERO).or(Some(Phase::Cooldown)),
            };
            sent.push((call, phase));
        }
        (sent, generator.data_ended)
    }
}

/// A context without environment, for a run in this folder.
pub(crate) fn context(folder: &Path) -> Context {
    Context {
        env: BTreeMap::new(),
        cache: CacheDir {
            dir: folder.join("cache"),
            hub: String::new(),
            ..CacheDir::default()
        },
        tool: "".into(),
        output: None,
        filter: Default::default(),
        continued: None,
        shard: Shard::default(),
        shared: None,
        force: false,
        keep_going: false,
        inconclusive: llmscen_report::Inconclusive::Failure,
        origin: Instant::now(),
        wall_ns: 0,
        stop: Stop::default(),
        events: mpsc::channel().0,
    }
}

const PLAIN: &str = "";
const WEIGHTS: &str = "mix: [{ name: a, weight: 3 }, { name: b, request: { max_tokens: 7 } }, \
    { name: c, dataset: { kind: random, tokens: 9 } }]\n";
const RATES: &str = "mix: [{ name: a, rate: 40/s }, { name: b, rate: 25/s, request: { max_tokens: 7 } }, \
    { name: c, rate: 9/s, dataset: { kind: random, tokens: 9 } }]\n";

/// Every shape of load with every limit and warm-up, and the mixes that fit.
fn loads() -> Vec<(&'static str, String)> {
    let mut loads = Vec::new();
    let mut add = |mixes: &[&'static str], shape: &str, limits: &[&str], warmups: &[&str]| {
        for (mix, limit, warmup) in combinations(mixes, limits, warmups) {
            let keys: Vec<&str> = [shape, limit, warmup]
                .into_iter()
                .filter(|key| !key.is_empty())
                .collect();
            loads.push((mix, format!("load: {{ {} }}\n", keys.join(", "))));
        }
    };
    let shared = [PLAIN, WEIGHTS];
    let warmups = ["", "warmup: 11", "warmup: 300ms"];
    let closed = ["requests: 53", "requests: 53, duration: 5s", "duration: 5s"];
    add(&shared, "concurrency: 17", &closed, &warmups);
    add(&shared, "concurrency: 23, spread: 2s", &closed, &warmups);
    let users = "stages: [{ concurrency: 4 -> 19, for: 2s }, { concurrency: 19, for: 1s }]";
    add(&shared, users, &["", "requests: 53"], &warmups);
    let open = [
        "requests: 53",
        "duration: 900ms",
        "requests: 40, duration: 800ms",
    ];
    for arrivals in ["poisson", "constant", "{ gamma: 0.4 }"] {
        let rate = format!("rate: 70/s, arrivals: {arrivals}");
        add(&shared, &rate, &open, &warmups);
    }
    add(&[RATES], "", &open, &warmups);
    let rates = "stages: [{ rate: 20/s -> 60/s, for: 1s }, { rate: 30/s, for: 1s }]";
    add(&shared, rates, &["", "requests: 31"], &warmups);
    add(
        &shared,
        "rate: burst",
        &["requests: 40"],
        &["", "warmup: 11"],
    );
    add(
        &shared,
        "trace: { path: log.jsonl, speed: 2 }",
        &["", "requests: 20"],
        &warmups,
    );
    loads
}

/// All combinations of one item of each list.
fn combinations<'a, 'b>(
    mixes: &'a [&'static str],
    limits: &'a [&'b str],
    warmups: &'a [&'b str],
) -> impl Iterator<Item = (&'static str, &'b str, &'b str)> + use<'a, 'b> {
    mixes.iter().flat_map(move |mix| {
        limits
            .iter()
            .flat_map(move |limit| warmups.iter().map(move |warmup| (*mix, *limit, *warmup)))
    })
}

const DATASETS: [&str; 6] = [
    "dataset: { kind: line_by_line, path: rows.txt }\n",
    "dataset: { kind: line_by_line, path: rows.txt, order: shuffle, cache_bust: true }\n",
    "dataset: { kind: line_by_line, path: rows.txt, on_exhausted: stop }\n",
    "dataset: { kind: messages, path: talks.jsonl, order: shuffle, turns: { think_time: 10ms } }\n",
    "dataset: { kind: messages, path: talks.jsonl, on_exhausted: stop, turns: { max: 2 } }\n",
    "dataset: { kind: random, tokens: { uniform: [5, 50] } }\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_union_of_all_shards_is_the_plan(
        (mix, load) in select(loads()),
        dataset in select(&DATASETS[..]),
        count in 1u32..=16,
    ) {
        let load = if dataset.contains("turns") { load.replace("requests:", "sessions:") } else { load };
        let request = "request: { max_tokens: { uniform: [1, 1000] }, cancel: { share: 30%, after: 1s } }\n";
        let sections = format!("{mix}{load}{dataset}{request}");
        let lab = Lab::new(&sections);
        let (whole, data_ended) = lab.sent(Shard::default());
        prop_assert!(whole.len() > 15 && whole.iter().all(|(_, phase)| phase.is_some()), "{}", sections);
        prop_assert!(whole.iter().map(|(call, _)| call.seq).eq(0..whole.len() as u64));
        let mut union = Vec::new();
        for index in 0..count {
            let shard = Shard { index, count };
            let (sent, ended) = lab.sent(shard);
            let split = Split::new(shard, &lab.plan.cases[0].load.shape);
            prop_assert!(sent.iter().all(|(call, _)| split.owns(call.seq)));
            prop_assert!(ended.is_none_or(|ended| ended == sent.len() as u64));
            prop_assert_eq!(ended.is_some(), data_ended.is_some(), "{} of {}: {}", index, count, sections);
            union.extend(sent);
        }
        union.sort_by_key(|(call, _)| call.seq);
        prop_assert!(union == whole, "{count} shards: {sections}{}", difference(&union, &whole));
    }
}

/// The first differing requests.
fn difference(union: &[Sent], whole: &[Sent]) -> String {
    let mut text = format!("{} requests instead of {}", union.len(), whole.len());
    if let Some((own, other)) = union.iter().zip(whole).find(|(own, other)| own != other) {
        let _ = write!(text, "\n{own:?}\n{other:?}");
    }
    text
}

#[test]
fn the_workers_of_a_shard_get_equal_queues() {
    let lab = Lab::new("load: { rate: 70/s, requests: 90 }\ndataset: { kind: prompt, text: x }");
    for count in 1..=16 {
        for workers in [1, 2, 3, 8, 16] {
            let mut total = 0;
            for index in 0..count {
                let generator = lab.generator(Shard { index, count });
                let queue =
                    RequestQueue::start(generator, workers, &Stop::default(), |_| {}).unwrap();
                let lengths: Vec<usize> = queue
                    .queues
                    .iter()
                    .map(|queue| std::iter::from_fn(|| queue.recv_blocking().ok()).count())
                    .collect();
                let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
                assert!(most - least <= 1, "{index}/{count}: {lengths:?}");
                total += lengths.iter().sum::<usize>();
                assert_eq!(queue.finish().unwrap(), None);
            }
            assert_eq!(total, 180, "as many again for the cool-down");
        }
    }
}

#[test]
fn requests_to_compare_are_those_of_the_plan() {
    for (dataset, known) in [(DATASETS[0], 5), (DATASETS[2], 4)] {
        let lab = Lab::new(&format!(
            "{WEIGHTS}load: {{ rate: 70/s, requests: 60 }}\n{dataset}"
        ));
        let (whole, _) = lab.sent(Shard::default());
        let mut generator = lab.generator(Shard::default());
        // The last one would be after the cool-down.
        let numbers = [0, 1, 2, 25, 59, 120];
        let compared = render_numbers(&mut generator, &numbers, &Stop::default()).unwrap();
        let expected = numbers.iter().filter_map(|&seq| whole.get(seq as usize));
        assert!(compared.iter().eq(expected.map(|(call, _)| call)));
        assert_eq!(compared.len(), known, "{dataset}");
    }
}

#[test]
fn a_shard_without_requests_sends_nothing() {
    let lab = Lab::new("load: { rate: burst, requests: 3 }\ndataset: { kind: prompt, text: x }");
    let start = |lab: &Lab, index| {
        let generator = lab.generator(Shard { index, count: 5 });
        RequestQueue::start(generator, 2, &Stop::default(), |_| {})
    };
    let sent: Vec<usize> = (0..5)
        .map(|index| {
            let queues = start(&lab, index).unwrap().queues;
            let count = |queue: &Receiver<PreparedRequest>| {
                std::iter::from_fn(|| queue.recv_blocking().ok()).count()
            };
            queues.iter().map(count).sum()
        })
        .collect();
    assert_eq!(sent, [1, 1, 1, 0, 0]);
}

/// Endless sessions of which each takes a while.
struct Slow;

impl Prompts for Slow {
    fn session(&self, _seq: u64) -> Option<llmscen_core::dataset::Session> {
        std::thread::sleep(Duration::from_millis(5));
        Some(vec![llmscen_core::dataset::Prompt::default(); 3].into())
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[test]
fn a_round_starts_before_its_queue_is_full() {
    for (load, least) in [
        ("{ concurrency: 3, duration: 1h }", 3),
        ("{ concurrency: 200, duration: 1h }", 200),
        ("{ rate: 2/s, duration: 1h }", 2),
    ] {
        let lab = Lab::new(&format!(
            "load: {load}\ndataset: {{ kind: random, tokens: 9, turns: {{ count: 3 }} }}"
        ));
        let prompts: Vec<Arc<dyn Prompts>> = vec![Arc::new(Slow)];
        let case = &lab.plan.cases[0];
        let seed = lab.plan.seed;
        let generator =
            RequestGenerator::new(case, &lab.prepared, &prompts, seed, Shard::default());
        let queue = RequestQueue::start(generator, 1, &Stop::default(), |_| {}).unwrap();
        let queued = queue.queues[0].len();
        // A full queue would have 4096.
        assert!((least..2000).contains(&queued), "{load}: {queued}");
        queue.finish().unwrap();
    }
}

#[test]
fn long_bodies_fill_a_queue_by_their_bytes() {
    // Two queues: each has at least 8 requests, and at most 32 MiB beyond.
    let mut sizes = QueuedSizes::new(2);
    for queued in 0..8 {
        assert!(!sizes.is_full(queued, 8 << 20));
        sizes.add(8 << 20);
    }
    assert!(sizes.is_full(8, 1));
    for _ in 0..4 {
        sizes.add(1);
    }
    // Eleven were taken: 1 byte is left.
    assert!(!sizes.is_full(1, 8 << 20));
    assert_eq!((sizes.bodies.len(), sizes.bytes), (1, 1));
}
