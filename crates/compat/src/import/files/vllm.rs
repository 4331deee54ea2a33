//! vLLM's serving tests (`.buildkite/performance-benchmarks/tests/serving-tests*.json` of late 2026), and the
//! workloads of its perf-eval (`workloads/*.yaml` of 2026).

use crate::import::Tool;
use crate::import::command::Command;
use crate::import::draft::{Draft, number};
use crate::import::files::merge::NAMED;
use crate::import::files::{Fields, Files, Test, Tests, is_hidden, mistake, scalar, values};
use crate::import::flags::{UNREAD, variable};
use crate::import::vllm::translate;
use llmscen_scenario::document::{Data, Entry, Mistake, Node, nearest};
use serde_json::{Map, Value, json};

/// `vllm bench serve`.
pub(super) fn bench_serve() -> &'static Command {
    &Tool::Vllm.spec().commands[0]
}

pub(super) fn is_serving_tests(root: &Node) -> bool {
    let first = root.items().iter().chain(root.items_at("tests")).next();
    first.is_some_and(|test| {
        test.entry("client_parameters").is_some() || test.entry("server_parameters").is_some()
    })
}

/// The fields of a test.
const FIELDS: [&str; 6] = [
    "test_name",
    "qps_list",
    "max_concurrency_list",
    "server_parameters",
    "server_environment_variables",
    "client_parameters",
];

pub(super) fn serving_tests(files: &mut Files<'_>, root: &Node) -> Tests {
    let defaults = root.get("defaults");
    let mut tests = Vec::new();
    for (index, test) in root
        .items()
        .iter()
        .chain(root.items_at("tests"))
        .enumerate()
    {
        for key in [
            "server_parameters",
            "client_parameters",
            "server_environment_variables",
        ] {
            // The values that the test overrides, which are shared with other tests.
            for entry in defaults
                .filter(|_| index == 0)
                .map(|node| node.entries_at(key))
                .unwrap_or_default()
            {
                files.mark(Some(&entry.value));
            }
        }
        for key in ["qps_list", "max_concurrency_list"] {
            files.mark(defaults.and_then(|node| node.get(key)));
        }
        let named = test.get("test_name").and_then(Node::string);
        let Some(name) = named else {
            return Err(mistake(
                test.at.before(),
                "a test without `test_name`",
                "here",
            ));
        };
        let one = |key: &str| test.get(key).or_else(|| defaults?.get(key));
        let rates = match one("qps_list").map(values) {
            Some(rates) if !rates.is_empty() => rates,
            _ => vec!["inf".to_owned()],
        };
        let users = one("max_concurrency_list").map(values).unwrap_or_default();
        for rate in &rates {
            // At a rate, each number of users is a limit of its own.
            let caps: Vec<Option<&str>> = match rate.as_str() {
                "inf" => vec![None],
                _ if users.is_empty() => vec![None],
                _ => users.iter().map(|users| Some(users.as_str())).collect(),
            };
            for cap in caps {
                let draft = serving_test(test, defaults, rate, cap)?;
                // One ladder cannot have both users and rates.
                let closed = draft.get("load/concurrency").is_some();
                tests.push(Test {
                    group: if closed { "concurrency" } else { "rate" }.to_owned(),
                    ..Test::new(name.clone(), draft)
                });
            }
        }
    }
    Ok(tests)
}

/// `cap`: the requests in flight of an open loop.
fn serving_test(
    test: &Node,
    defaults: Option<&Node>,
    rate: &str,
    cap: Option<&str>,
) -> Result<Draft, Box<Mistake>> {
    let command = bench_serve();
    let one = |key: &str| test.get(key).or_else(|| defaults?.get(key));
    let mut fields = Fields::new(test.at);
    for entry in test.entries() {
        match entry.key.as_str() {
            "test_name" => fields.placed("test_name", &entry.value, NAMED),
            key if FIELDS.contains(&key) => {}
            key => {
                let near = nearest(key, FIELDS).map(|near| format!("; did you mean `{near}`?"));
                let reason = format!("unknown field{}", near.unwrap_or_default());
                fields.dropped(key, &entry.value, reason);
            }
        }
    }
    for entry in merged("client_parameters", defaults, test) {
        let path = format!("client_parameters.{}", entry.key);
        fields.flag(command, &format!("--{}", entry.key), &path, &entry.value);
    }
    if let Some(rates) = one("qps_list") {
        let flag = command
            .flags
            .iter()
            .find(|flag| flag.is_among("--request-rate"));
        if let Some(flag) = flag {
            fields.push(flag, "qps_list", vec![rate.to_owned()], rates.at);
        }
    }
    let users = one("max_concurrency_list");
    let limit = command
        .flags
        .iter()
        .find(|flag| flag.is_among("--max-concurrency"));
    match (users, cap, limit) {
        (Some(users), Some(cap), Some(flag)) => {
            fields.push(flag, "max_concurrency_list", vec![cap.to_owned()], users.at);
        }
        (Some(users), ..) => {
            fields.flag(command, "--max-concurrency", "max_concurrency_list", users);
        }
        _ => {}
    }
    let server = merged("server_parameters", defaults, test);
    for entry in &server {
        let key = match entry.key.as_str() {
            "model" => "target/model".to_owned(),
            key => format!("target/server/args/{key}"),
        };
        fields.placed(
            &format!("server_parameters.{}", entry.key),
            &entry.value,
            &key,
        );
    }
    let env = merged("server_environment_variables", defaults, test);
    for entry in &env {
        let path = format!("server_environment_variables.{}", entry.key);
        fields.placed(
            &path,
            &entry.value,
            &format!("target/server/env/{}", entry.key),
        );
    }
    let mut draft = fields.translate(translate)?;
    let args = server
        .iter()
        .filter(|entry| entry.key != "model")
        .map(|entry| (entry.key.clone(), argument(&entry.value)))
        .collect();
    let model = server
        .iter()
        .find(|entry| entry.key == "model")
        .and_then(|entry| entry.value.string());
    serve(&mut draft, model, args);
    environment(&mut draft, &env);
    if rate == "inf"
        && users.is_some()
        && let Ok(levels) = draft.numbers("--max-concurrency")
    {
        draft.one_or_axis("load/concurrency", levels.into_iter().map(number).collect());
        draft.account("--max-concurrency", &["load/concurrency"]);
    }
    Ok(draft)
}

/// The entries of a mapping of a test, and those of the defaults that it does not override.
fn merged<'a>(key: &str, defaults: Option<&'a Node>, test: &'a Node) -> Vec<&'a Entry> {
    let own = test.entries_at(key);
    let shared = defaults
        .map(|node| node.entries_at(key))
        .unwrap_or_default();
    shared
        .iter()
        .filter(|entry| own.iter().all(|own| own.key != entry.key))
        .chain(own)
        .collect()
}

/// A flag's value in `target.server.args`; an empty one is the flag alone.
fn argument(node: &Node) -> Value {
    match &node.data {
        Data::Text(text) if text.is_empty() => Value::Bool(true),
        _ => scalar(node),
    }
}

/// The managed server of a test.
fn serve(draft: &mut Draft, model: Option<String>, args: Map<String, Value>) {
    draft.set("target/server/preset", "vllm");
    if let Some(model) = model.filter(|_| draft.get("target/model").is_none()) {
        draft.set("target/model", model);
    }
    let size = |names: [&str; 2]| {
        let value = names.iter().find_map(|name| args.get(*name))?;
        value.as_f64()
    };
    let tensor = size(["tensor_parallel_size", "tensor-parallel-size"]);
    let pipeline = size(["pipeline_parallel_size", "pipeline-parallel-size"]);
    let data = size(["data_parallel_size", "data-parallel-size"]);
    if tensor.or(pipeline).or(data).is_some() {
        let gpus = tensor.unwrap_or(1.0) * pipeline.unwrap_or(1.0) * data.unwrap_or(1.0);
        draft.set("target/gpus", number(gpus));
    }
    for (name, value) in args {
        let path = format!("target/server/args/{name}");
        if is_hidden(&name) {
            draft.set_variable(&path, &format!("${{{}}}", variable(&name)));
        } else {
            draft.set(&path, value);
        }
    }
}

fn environment(draft: &mut Draft, env: &[&Entry]) {
    for entry in env {
        let path = format!("target/server/env/{}", entry.key);
        if is_hidden(&entry.key) {
            draft.set_variable(&path, &format!("${{{}}}", variable(&entry.key)));
        } else {
            draft.set(&path, values(&entry.value).concat());
        }
    }
}

pub(super) fn is_perf_eval(root: &Node) -> bool {
    root.get("vllm").is_some()
        && ["vllm_bench", "lm_eval", "bfcl"]
            .iter()
            .any(|key| root.get(key).is_some())
}

const GRADED: &str = "see `request.expect` and `match_rate`";
const RUNNER: &str = "a setting of the pipeline that starts the workload";

pub(super) fn perf_eval(files: &mut Files<'_>, root: &Node) -> Tests {
    // Workloads of several models have the same name.
    let model = root
        .get("vllm.model")
        .and_then(Node::string)
        .unwrap_or_default();
    files.title = model.rsplit('/').next().unwrap_or_default().to_owned();
    for node in [root.get("name"), root.get("vllm")] {
        files.mark(node.filter(|node| node.entries().is_empty()));
    }
    let configs = root.items_at("vllm_bench.configs");
    if configs.is_empty() {
        return Err(mistake(
            root.at.before(),
            "the workload measures no performance: it has no `vllm_bench.configs`",
            "accuracy alone",
        ));
    }
    let sweep = ["attention_backends", "moe_backends"]
        .into_iter()
        .find_map(|key| Some((key, root.get(&format!("vllm.{key}"))?)));
    let backends = sweep.map_or_else(|| vec![String::new()], |(_, node)| values(node));
    let mut tests = Vec::new();
    for backend in &backends {
        for config in configs {
            let name = config
                .get("name")
                .and_then(Node::string)
                .unwrap_or_default();
            // `default` leaves the choice to vLLM.
            let flag = sweep
                .and_then(|(key, _)| key.strip_suffix('s'))
                .filter(|_| backend != "default");
            let draft = perf_eval_config(root, config, flag.map(|flag| (flag, backend.as_str())))?;
            let full = format!("{name}-{backend}");
            tests.push(Test {
                parts: Some([backend.clone(), name]),
                ..Test::new(full.trim_end_matches('-'), draft)
            });
        }
    }
    Ok(tests)
}

fn perf_eval_config(
    root: &Node,
    config: &Node,
    backend: Option<(&str, &str)>,
) -> Result<Draft, Box<Mistake>> {
    let command = bench_serve();
    let mut fields = Fields::new(config.at);
    for entry in root.entries() {
        match entry.key.as_str() {
            "name" | "vllm" | "vllm_bench" => {}
            "num_gpus" => fields.placed("num_gpus", &entry.value, "target/gpus"),
            "lm_eval" | "bfcl" => fields.dropped(&entry.key, &entry.value, GRADED),
            key => fields.dropped(key, &entry.value, RUNNER),
        }
    }
    for entry in root.entries_at("vllm") {
        let path = format!("vllm.{}", entry.key);
        match entry.key.as_str() {
            "model" => fields.flag(command, "--model", &path, &entry.value),
            "serve_args" => {
                // Not its text, which may contain a key.
                let given = fields.push(&UNREAD, &path, Vec::new(), entry.value.at);
                given.keys = vec!["target.server.args".to_owned()];
            }
            "attention_backends" | "moe_backends" => {
                fields.placed(&path, &entry.value, "target/server/args");
            }
            "env" => fields.placed(&path, &entry.value, "target/server/env"),
            "image" => fields.dropped(&path, &entry.value, "run llmscen in this image"),
            _ => fields.dropped(&path, &entry.value, RUNNER),
        }
    }
    for entry in root.entries_at("vllm_bench") {
        let path = format!("vllm_bench.{}", entry.key);
        match entry.key.as_str() {
            "configs" => {}
            "metadata" => {
                let reason = "a label of perf-eval's dashboard; see `labels`";
                fields.dropped(&path, &entry.value, reason);
            }
            "repetitions" => fields.placed(&path, &entry.value, "rounds"),
            _ => fields.lost(&path, &entry.value, "not understood"),
        }
    }
    for entry in config.entries() {
        let path = format!("vllm_bench.configs.{}", entry.key);
        let flag = match entry.key.as_str() {
            "name" => {
                fields.placed(&path, &entry.value, NAMED);
                continue;
            }
            "args" => {
                for arg in entry.value.entries() {
                    let name = format!("--{}", arg.key.trim_start_matches('-'));
                    fields.flag(command, &name, &format!("{path}.{}", arg.key), &arg.value);
                }
                continue;
            }
            "repetitions" => {
                fields.placed(&path, &entry.value, "rounds");
                continue;
            }
            "dataset" => "--dataset-name",
            "input_len" => "--random-input-len",
            "output_len" => "--random-output-len",
            key => &format!("--{key}"),
        };
        fields.flag(command, flag, &path, &entry.value);
    }
    let mut draft = fields.translate(translate)?;
    let rounds = config
        .get("repetitions")
        .or_else(|| root.get("vllm_bench.repetitions"));
    if let Some(rounds) = rounds.and_then(Node::integer) {
        draft.set("rounds", rounds);
    }
    if config
        .get("backend")
        .is_some_and(|backend| backend.text().as_deref() == Some("openai-chat"))
    {
        draft.set("target/api", "openai-chat");
        draft.set("target/url", super::local(8000, "v1/chat/completions"));
    }
    let words = root.get("vllm.serve_args").and_then(Node::string);
    let mut args = arguments(&words.unwrap_or_default());
    if let Some((flag, backend)) = backend {
        args.insert(flag.to_owned(), json!(backend));
    }
    serve(&mut draft, None, args);
    if let Some(gpus) = root.get("num_gpus").and_then(Node::integer) {
        draft.set("target/gpus", gpus);
    }
    let env: Vec<&Entry> = root.entries_at("vllm.env").iter().collect();
    environment(&mut draft, &env);
    Ok(draft)
}

/// The arguments of a command line as a mapping: `--a 1 --b=x --c`.
fn arguments(line: &str) -> Map<String, Value> {
    let mut args: Map<String, Value> = Map::new();
    let mut last: Option<String> = None;
    for word in shell_words::split(line).unwrap_or_default() {
        let Some(flag) = word
            .strip_prefix('-')
            .filter(|rest| rest.starts_with(|c: char| c == '-' || c.is_alphabetic()))
        else {
            if let Some(value) = last.as_ref().and_then(|flag| args.get_mut(flag)) {
                let word = serde_json::from_str(&word)
                    .ok()
                    .filter(Value::is_number)
                    .unwrap_or_else(|| Value::from(word));
                match value {
                    Value::Bool(_) => *value = word,
                    Value::Array(items) => items.push(word),
                    first => *first = json!([first.clone(), word]),
                }
            }
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Value::from(value)),
            None => (flag, Value::Bool(true)),
        };
        // A short flag keeps its dash: `-dp 8`.
        let name = name
            .strip_prefix('-')
            .map_or_else(|| format!("-{name}"), str::to_owned);
        args.insert(name.clone(), value);
        last = Some(name);
    }
    args
}
