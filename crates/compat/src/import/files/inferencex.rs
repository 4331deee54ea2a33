//! Master configs of InferenceX (formerly InferenceMAX), `configs/*-master.yaml` of 2026, in both of their layouts:
//! `scenarios: { fixed-seq-len: [...] }`, and the older `seq-len-configs`.
//!
//! Such a file names deployments and loads. How they are run is defined by its benchmark scripts: random prompts of
//! 80 % to 100 % of the length, ten requests per user, two of them as warm-up; or logged sessions of agents, from a
//! random turn on, an hour long.

use crate::import::draft::{Draft, between, number, seconds};
use crate::import::files::{Fields, Files, Test, Tests, is_hidden, local, mistake};
use crate::import::flags::UNREAD;
use llmscen_scenario::document::{Mistake, Node};
use serde_json::{Value, json};

/// The port of InferenceX's servers.
const PORT: u16 = 8888;
/// Shortest length ÷ the length that the config names.
const SHORTEST: f64 = 0.8;

pub(super) fn recognizes(root: &Node) -> bool {
    let mut entries = root.entries().iter().map(|entry| &entry.value);
    entries.next().is_some_and(|first| {
        first.entry("framework").is_some()
            && (first.entry("scenarios").is_some() || first.entry("seq-len-configs").is_some())
    })
}

/// The log of agents, which the scripts download.
const LOG: &str = "set AGENTX_LOG to the JSON lines of its log of agents (Weka layout)";
/// The scenario of logged sessions.
const AGENTIC: &str = "agentic-coding";
const SCRIPTS: &str = "it selects the script that starts the server";

/// Fields of an entry that are not translated.
const DROPPED: [(&str, &str); 8] = [
    (
        "image",
        "run llmscen in this image, or start the server from it",
    ),
    ("model-prefix", SCRIPTS),
    ("precision", "the model defines it"),
    ("runner", "run the scenario on this machine"),
    ("multinode", "see `target.server`"),
    ("disagg", "see `target.server`"),
    ("kv-p2p-transfer", "see `target.server`"),
    ("router", SCRIPTS),
];

pub(super) fn tests(files: &mut Files<'_>, root: &Node) -> Tests {
    let mut tests = Vec::new();
    for entry in root.entries() {
        let config = &entry.value;
        for scenario in config.entries_at("scenarios") {
            if !["fixed-seq-len", AGENTIC].contains(&scenario.key.as_str()) {
                let path = format!("{}.scenarios.{}", entry.key, scenario.key);
                files.lose(&path, &scenario.value, "not understood");
            }
        }
        let mut found = false;
        let kind = |items: &'static str, is_log: bool| {
            let items = config.items_at(items).iter();
            items.map(move |item| (item, is_log))
        };
        let workloads = kind("seq-len-configs", false)
            .chain(kind("scenarios.fixed-seq-len", false))
            .chain(kind("scenarios.agentic-coding", true));
        for (item, is_log) in workloads {
            for space in item.items_at("search-space") {
                found = true;
                let (parallel, draft) = test(config, item, is_log, space)?;
                let size = |key: &str| item.get(key).and_then(Node::integer).unwrap_or(0);
                let variant = format!("{}-{parallel}", entry.key);
                let variant = variant.trim_end_matches('-').to_owned();
                let workload = match is_log {
                    true => AGENTIC.to_owned(),
                    false => format!("{}-{}", size("isl"), size("osl")),
                };
                let runner = config.get("runner").and_then(Node::string);
                tests.push(Test {
                    // Another runner is another machine.
                    group: runner.unwrap_or_default(),
                    parts: Some([variant.clone(), workload.clone()]),
                    ..Test::new(format!("{variant}-{workload}"), draft)
                });
            }
        }
        if !found {
            files.lose(&entry.key, config, "no search space");
            let known = DROPPED
                .iter()
                .map(|(key, _)| *key)
                .chain(["model", "framework"]);
            known.for_each(|key| files.mark(config.get(key)));
        }
    }
    Ok(tests)
}

/// A deployment at one pair of lengths, or with a log of sessions, and the name of the deployment.
fn test(
    config: &Node,
    workload: &Node,
    is_log: bool,
    space: &Node,
) -> Result<(String, Draft), Box<Mistake>> {
    let mut fields = Fields::new(space.at);
    for entry in config.entries() {
        let dropped = DROPPED.iter().find(|(key, _)| *key == entry.key);
        match (entry.key.as_str(), dropped) {
            (_, Some((key, reason))) => fields.dropped(key, &entry.value, *reason),
            ("model", _) => fields.placed("model", &entry.value, "target/model"),
            ("framework" | "seq-len-configs" | "scenarios", _) => {}
            (key, _) => fields.lost(key, &entry.value, "not understood"),
        }
    }
    let whole = |node: &Node, key: &str| node.get(key).and_then(Node::number);
    let required = |node: &Node, key: &str| {
        whole(node, key).ok_or_else(|| {
            mistake(
                node.at.before(),
                format!("no `{key}`"),
                "expected a whole number",
            )
        })
    };
    let lengths = match is_log {
        true => None,
        false => Some((required(workload, "isl")?, required(workload, "osl")?)),
    };
    if is_log {
        let given = fields.push(&UNREAD, AGENTIC, Vec::new(), workload.at.before());
        given.keys = vec!["dataset".to_owned()];
        given.note = Some(LOG.to_owned());
    }
    for entry in workload.entries() {
        match entry.key.as_str() {
            "search-space" => {}
            "isl" if !is_log => fields.placed("isl", &entry.value, "dataset/tokens"),
            "osl" if !is_log => fields.placed("osl", &entry.value, "request/max_tokens"),
            "duration" if is_log => fields.placed("duration", &entry.value, "load/duration"),
            "dram-utilization" => fields.dropped("dram-utilization", &entry.value, SCRIPTS),
            key => fields.lost(key, &entry.value, "not understood"),
        }
    }
    let levels = concurrency(space)?;
    let framework = config
        .get("framework")
        .and_then(Node::string)
        .unwrap_or_default();
    let is_on = |key: &str| config.get(key).and_then(Node::flag) == Some(true);
    let server = engine(&framework).filter(|_| !is_on("multinode") && !is_on("disagg"));
    if let Some(node) = config.get("framework") {
        match server {
            Some(_) => fields.placed("framework", node, "target/server/preset"),
            None => fields.dropped(
                "framework",
                node,
                "no preset starts it: see `target.server`",
            ),
        }
    }
    let mut args: Vec<(&str, Value)> = Vec::new();
    let mut parallel = String::new();
    for entry in space.entries() {
        let argument = server.and_then(|engine| engine.argument(&entry.key, &entry.value));
        match (entry.key.as_str(), argument) {
            ("conc-start" | "conc-end" | "conc-list", _) => {
                fields.placed(&entry.key, &entry.value, "load/concurrency");
            }
            (key, Some((flag, value))) => {
                fields.placed(key, &entry.value, &format!("target/server/args/{flag}"));
                args.push((flag, value));
            }
            ("tp", None) => fields.placed("tp", &entry.value, "target/gpus"),
            (key, None) => {
                let reason = "set the engine's options in `target.server.args`";
                fields.dropped(key, &entry.value, reason);
            }
        }
        if let Some(size) = entry
            .value
            .scalar()
            .filter(|_| !entry.key.starts_with("conc") && !is_hidden(&entry.key))
        {
            parallel.push_str(&format!("{}{size}", entry.key));
        }
    }
    let mut draft = fields.translate(|_| Ok(()))?;
    if let Some(model) = config.get("model").and_then(Node::string) {
        draft.set("target/model", model);
    }
    let (api, path) = match is_log {
        true => ("openai-chat", "v1/chat/completions"),
        false => ("openai-completions", "v1/completions"),
    };
    draft.set("target/api", api);
    draft.set("target/url", local(PORT, path));
    draft.set("target/gpus", number(gpus(space)));
    if let Some(engine) = server {
        draft.set("target/server/preset", engine.preset);
    }
    for (flag, value) in args {
        draft.set(&format!("target/server/args/{flag}"), value);
    }
    // The benchmark scripts, not the config, define the rest.
    draft.set_default("-", "request/ignore_eos", true);
    if let Some((prompt, reply)) = lengths {
        draft.set("dataset/kind", "random");
        let drawn = |length: f64| between((length * SHORTEST).floor(), length);
        draft.set("dataset/tokens", drawn(prompt));
        draft.set("request/max_tokens", drawn(reply));
        draft.set_default("-", "load/requests", "10x");
        draft.set_default("-", "load/warmup", "2x");
    } else {
        draft.set("dataset/kind", "trace");
        draft.set_variable("dataset/path", "${AGENTX_LOG}");
        draft.set("dataset/trace/layout", "weka");
        let begin = json!({ "uniform": ["25%", "75%"] });
        draft.set_default("-", "dataset/turns/begin", begin);
        draft.set_default("-", "load/max_idle", seconds(10.0));
        match workload.get("duration").and_then(Node::number) {
            Some(span) => draft.set("load/duration", seconds(span)),
            None => draft.set_default("-", "load/duration", seconds(3_600.0)),
        }
    }
    draft.one_or_axis("load/concurrency", levels.into_iter().map(number).collect());
    Ok((parallel, draft))
}

/// `conc-list`, or powers of two times `conc-start` up to `conc-end`, which is included.
fn concurrency(space: &Node) -> Result<Vec<f64>, Box<Mistake>> {
    let listed: Vec<f64> = space
        .items_at("conc-list")
        .iter()
        .filter_map(Node::number)
        .collect();
    if !listed.is_empty() {
        return Ok(listed);
    }
    let ends = ["conc-start", "conc-end"].map(|key| space.get(key).and_then(Node::number));
    let [Some(from), Some(to)] = ends.map(|end| end.filter(|end| *end >= 1.0)) else {
        return Err(mistake(
            space.at,
            "a search space without concurrency",
            "expected `conc-list`, or `conc-start` and `conc-end`",
        ));
    };
    let mut levels: Vec<f64> = std::iter::successors(Some(from), |level| Some(level * 2.0))
        .take_while(|level| *level < to)
        .collect();
    levels.push(to);
    Ok(levels)
}

/// The GPUs of a deployment: those of its workers, if it has several.
fn gpus(space: &Node) -> f64 {
    let size = |node: &Node, key: &str| node.get(key).and_then(Node::number).unwrap_or(1.0);
    let workers: f64 = ["prefill", "decode"]
        .iter()
        .filter_map(|role| space.get(role))
        .map(|role| size(role, "num-worker") * size(role, "tp"))
        .sum();
    if workers > 0.0 {
        workers
    } else {
        size(space, "tp")
    }
}

/// An engine with a preset, and its flags for the fields of a search space.
#[derive(Clone, Copy)]
struct Engine {
    preset: &'static str,
    tensor: &'static str,
}

fn engine(framework: &str) -> Option<Engine> {
    match framework {
        "vllm" => Some(Engine {
            preset: "vllm",
            tensor: "tensor_parallel_size",
        }),
        "sglang" => Some(Engine {
            preset: "sglang",
            tensor: "tp_size",
        }),
        "trt" | "trtllm" | "tensorrt-llm" => Some(Engine {
            preset: "trtllm",
            tensor: "tp_size",
        }),
        "atom" => Some(Engine {
            preset: "atom",
            tensor: "tensor_parallel_size",
        }),
        _ => None,
    }
}

impl Engine {
    fn argument(self, key: &str, value: &Node) -> Option<(&'static str, Value)> {
        let sglang = self.preset == "sglang";
        match key {
            "tp" => Some((self.tensor, value.json())),
            "ep" if sglang => Some(("ep_size", value.json())),
            "ep" if self.preset == "vllm" => {
                Some(("enable_expert_parallel", Value::from(value.number()? > 1.0)))
            }
            "ep" if self.preset == "trtllm" => Some(("ep_size", value.json())),
            "dp-attn" if sglang => Some(("enable_dp_attention", value.json())),
            _ => None,
        }
    }
}
