//! AIPerf's config files (schema 2.0 of its release 0.13), also inside of an AIPerfJob: each field is a flag of
//! `aiperf profile`.

use crate::import::Tool;
use crate::import::aiperf::translate;
use crate::import::command::Command;
use crate::import::draft::{Draft, number};
use crate::import::files::{Fields, Files, Test, Tests, label, mistake, replace, value_at};
use crate::import::tools::Places;
use llmscen_core::bounds::{self, Template};
use llmscen_scenario::document::{Data, Entry, Mistake, Node};
use minijinja::Value as Jinja;
use minijinja::value::Serde;
use serde_json::{Value, json};

fn command() -> &'static Command {
    &Tool::Aiperf.spec().commands[0]
}

/// The fields of a benchmark that older files have at their root.
const BENCHMARK: [&str; 16] = [
    "model",
    "models",
    "endpoint",
    "dataset",
    "datasets",
    "phases",
    "warmup",
    "profiling",
    "tokenizer",
    "slos",
    "artifacts",
    "runtime",
    "server_metrics",
    "gpu_telemetry",
    "logging",
    "metrics",
];

pub(super) fn recognizes(root: &Node) -> bool {
    let benchmark = |at: &str| root.get(at).is_some_and(|node| !node.entries().is_empty());
    let is_job = ["AIPerfJob", "AIPerfSweep"]
        .iter()
        .any(|kind| root.get("kind").and_then(Node::text).as_deref() == Some(kind));
    let has = |keys: &[&str]| keys.iter().any(|key| root.entry(key).is_some());
    benchmark("benchmark") && root.get("benchmark.endpoint").is_some()
        || benchmark("spec.benchmark")
        || is_job
        || has(&["endpoint"]) && has(&["dataset", "datasets"]) && has(&["phases", "profiling"])
}

/// Whether the fields of a file are flags of `aiperf profile`, among them one of the load.
pub(super) fn is_flat(root: &Node) -> bool {
    let known = |key: &str| {
        let flag = format!("--{}", key.replace('_', "-"));
        let mut flags = command().flags.iter();
        flags.any(|known| known.names().any(|name| name == flag))
    };
    let load = [
        "concurrency",
        "request-rate",
        "request-count",
        "benchmark-duration",
    ];
    let is_load = |key: &str| load.contains(&key.replace('_', "-").as_str());
    let entries = root.entries();
    let of_tool = entries.iter().filter(|entry| known(&entry.key)).count();
    of_tool * 2 > entries.len() && entries.iter().any(|entry| is_load(&entry.key))
}

/// Such a file.
pub(super) fn flat(root: &Node) -> Result<Draft, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    for entry in root.entries() {
        fields.flag(
            command(),
            &format!("--{}", entry.key),
            &entry.key,
            &entry.value,
        );
    }
    fields.translate(translate)
}

pub(super) fn tests(files: &mut Files<'_>, root: &Node) -> Tests {
    // A job of Kubernetes has the file as its `spec`; a sweep of jobs, in a template.
    let spec = ["spec.template.spec", "spec.template", "spec"]
        .iter()
        .find_map(|path| root.get(path));
    for key in ["apiVersion", "kind", "metadata"] {
        if let Some(node) = root.get(key).filter(|_| spec.is_some()) {
            files.drop(key, node, "a resource of Kubernetes");
        }
    }
    let mut file = snake(spec.unwrap_or(root));
    if root.get("spec.template").is_some() {
        let beside = root.get("spec").map(Node::entries).unwrap_or_default();
        for entry in beside.iter().filter(|entry| entry.key != "template") {
            let key = snake_case(&entry.key);
            if file.get(&key).is_none() {
                file.set_key(&key, entry.key_at, snake(&entry.value));
            }
        }
    }
    within_benchmark(&mut file);
    // A job has the fields of the file in `benchmark`.
    if let Some(mut benchmark) = file.get("benchmark").cloned() {
        for key in ["variables", "random_seed", "sweep", "multi_run"] {
            if let Some(entry) = benchmark.remove(key) {
                file.set(key, entry.key_at, entry.value);
            }
        }
        file.set_key("benchmark", benchmark.at, benchmark);
    }
    let mut tests = Vec::new();
    for (name, variant) in variants(files, &file)? {
        let mut variant = variant;
        // Variables may use each other.
        for _ in 0..3 {
            if let Some(variables) = variant.get("variables") {
                let variables = rendered(variables, &variant)?;
                variant.set_key("variables", variables.at, variables);
            }
        }
        let variant = rendered(&variant, &variant)?;
        let mut fields = Fields::new(root.at);
        collect(&mut fields, &variant)?;
        let draft = fields.translate(translate)?;
        tests.push(match name.contains('=') {
            true => Test::unnamed(name, draft),
            false => Test::new(name, draft),
        });
    }
    Ok(tests)
}

/// Moves the fields of a benchmark to it, which older files, and the runs of a sweep, have at their root.
fn within_benchmark(file: &mut Node) {
    for key in BENCHMARK {
        let path = format!("benchmark.{key}");
        if file.get(&path).is_none()
            && let Some(entry) = file.remove(key)
        {
            file.set(&path, entry.key_at, entry.value);
        }
    }
}

/// Keys whose mappings have names that are not AIPerf's.
const FREE: [&str; 4] = ["headers", "extra", "variables", "parameters"];

fn snake_case(key: &str) -> String {
    let letters = key.chars().flat_map(|c| {
        let under = c.is_ascii_uppercase().then_some('_');
        under.into_iter().chain([c.to_ascii_lowercase()])
    });
    letters.collect()
}

/// The tree with `camelCase` keys as `snake_case`: AIPerf accepts both.
fn snake(node: &Node) -> Node {
    let data = match &node.data {
        Data::Map(entries) => Data::Map(
            entries
                .iter()
                .map(|entry| Entry {
                    key: snake_case(&entry.key),
                    key_at: entry.key_at,
                    value: if FREE.contains(&entry.key.as_str()) {
                        entry.value.clone()
                    } else {
                        snake(&entry.value)
                    },
                })
                .collect(),
        ),
        Data::List(items) => Data::List(items.iter().map(snake).collect()),
        other => other.clone(),
    };
    Node::new(node.at, data)
}

/// The runs of a sweep and of several measured phases with their names, each as a file without a sweep.
fn variants(files: &mut Files<'_>, file: &Node) -> Result<Vec<(String, Node)>, Box<Mistake>> {
    let mut variants = Vec::new();
    for (name, variant) in swept(files, file)? {
        for (phase, mut one) in by_phase(&variant) {
            choose_dataset(files, &mut one);
            let parts = [name.as_str(), phase.as_str()];
            let named: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            variants.push((named.join("-"), one));
        }
    }
    Ok(variants)
}

/// One file for each measured phase.
fn by_phase(file: &Node) -> Vec<(String, Node)> {
    let phases = file.items_at("benchmark.more_phases");
    if phases.is_empty() {
        return vec![(String::new(), file.clone())];
    }
    let first = file.get("benchmark.phases.profiling").cloned();
    let all = first.iter().chain(phases).enumerate();
    all.map(|(index, phase)| {
        let mut one = file.clone();
        one.set("benchmark.phases.profiling", phase.at, phase.clone());
        if let Some(mut benchmark) = one.get("benchmark").cloned() {
            benchmark.remove("more_phases");
            one.set_key("benchmark", benchmark.at, benchmark);
        }
        let name = phase.get("name").and_then(Node::string);
        (name.unwrap_or_else(|| format!("phase-{}", index + 1)), one)
    })
    .collect()
}

/// Most points of a grid.
const MAX_POINTS: usize = 10_000;

/// The runs of a sweep.
fn swept(files: &mut Files<'_>, file: &Node) -> Result<Vec<(String, Node)>, Box<Mistake>> {
    let mut base = file.clone();
    normalize(&mut base);
    let Some(sweep) = base.remove("sweep").map(|entry| entry.value) else {
        return Ok(vec![(String::new(), base)]);
    };
    let kind = sweep.get("type").and_then(Node::string).unwrap_or_default();
    files.mark(sweep.get("type"));
    let axes = ["parameters", "variables"]
        .iter()
        .flat_map(|key| sweep.entries_at(key))
        .collect::<Vec<_>>();
    for axis in &axes {
        files.mark(Some(&axis.value));
        files.replaced(&axis.key, value_at(&base, &parameter(&base, &axis.key)));
    }
    if axes.is_empty() && kind != "scenarios" {
        return Err(mistake(
            sweep.at,
            "a sweep without parameters",
            "expected `parameters` or `variables` with lists of values",
        ));
    }
    let product = axes.iter().try_fold(1usize, |product, axis| {
        product.checked_mul(axis.value.items().len())
    });
    if kind == "grid" && product.is_none_or(|points| points > MAX_POINTS) {
        return Err(mistake(
            sweep.at,
            "a grid of too many points",
            format!("expected at most {MAX_POINTS}"),
        ));
    }
    // An index into the values of each axis.
    let points: Vec<Vec<usize>> = match kind.as_str() {
        "grid" => axes.iter().fold(vec![Vec::new()], |points, axis| {
            let values = 0..axis.value.items().len();
            let with = |point: &Vec<usize>| {
                let point = point.clone();
                values
                    .clone()
                    .map(move |value| [point.as_slice(), &[value]].concat())
            };
            points.iter().flat_map(with).collect()
        }),
        "zip" => {
            let lengths = axes.iter().map(|axis| axis.value.items().len());
            let rows = lengths.clone().min();
            if rows != lengths.max() {
                return Err(mistake(
                    sweep.at,
                    "a `zip` of lists of different lengths",
                    "expected as many values in each",
                ));
            }
            (0..rows.unwrap_or(0))
                .map(|row| vec![row; axes.len()])
                .collect()
        }
        "scenarios" => {
            for run in sweep.items_at("runs") {
                files.mark(run.get("name"));
            }
            return Ok(scenarios(files, &base, &sweep));
        }
        _ => {
            return Err(mistake(
                sweep.at,
                format!("a sweep of type `{kind}` has no counterpart"),
                "expected grid, zip or scenarios; see `search` for searches",
            ));
        }
    };
    let variant = |point: &Vec<usize>| {
        let mut tree = base.clone();
        let mut name = Vec::new();
        for (axis, index) in axes.iter().zip(point) {
            let Some(value) = axis.value.items().get(*index) else {
                continue;
            };
            name.extend(label(&axis.key, value));
            let path = parameter(&base, &axis.key);
            replace(&mut tree, &path, axis.key_at, value);
        }
        (name.join(","), tree)
    };
    Ok(points.iter().map(variant).collect())
}

/// The path of a swept parameter: one without a section belongs to the measured phase, and phases have names.
fn parameter(file: &Node, path: &str) -> String {
    let path = path.trim_start_matches("benchmark.");
    let is_named = |phase: Option<&Node>, name: &str| {
        let known = phase
            .and_then(|phase| phase.get("name"))
            .and_then(Node::string);
        known.as_deref() == Some(name)
    };
    match path.split_once('.') {
        None if path == "random_seed" => path.to_owned(),
        None => format!("benchmark.phases.profiling.{path}"),
        Some(("variables", _)) => path.to_owned(),
        Some(("datasets", rest)) if file.get("benchmark.datasets").is_none() => {
            let rest = rest.split_once('.').map_or(rest, |(_, rest)| rest);
            format!("benchmark.dataset.{rest}")
        }
        Some(("phases", rest)) => {
            let (name, field) = rest.split_once('.').unwrap_or((rest, ""));
            let more = file.items_at("benchmark.more_phases");
            let more = more.iter().position(|phase| is_named(Some(phase), name));
            let key = ["profiling", "warmup"]
                .into_iter()
                .find(|key| is_named(file.get(&format!("benchmark.phases.{key}")), name));
            match (key, more) {
                (Some(key), _) => format!("benchmark.phases.{key}.{field}"),
                (None, Some(index)) => format!("benchmark.more_phases[{index}].{field}"),
                (None, None) => format!("benchmark.{path}"),
            }
        }
        Some(_) => format!("benchmark.{path}"),
    }
}

/// Merges a block over another.
fn over(files: &mut Files<'_>, base: &mut Node, node: &Node) {
    for entry in node.entries() {
        let known = base.entry(&entry.key).map(|known| known.value.clone());
        match known {
            Some(mut inner) if is_block(&inner) && is_block(&entry.value) => {
                over(files, &mut inner, &entry.value);
                base.set_key(&entry.key, entry.key_at, inner);
            }
            known => {
                files.replaced(&entry.key, known.as_ref());
                base.set_key(&entry.key, entry.key_at, entry.value.clone());
            }
        }
    }
}

fn is_block(node: &Node) -> bool {
    !node.entries().is_empty()
}

/// Named runs, each merged over the file.
fn scenarios(files: &mut Files<'_>, base: &Node, sweep: &Node) -> Vec<(String, Node)> {
    let mut run = |run: &Node| {
        let mut tree = base.clone();
        let mut own = run.clone();
        let name = own.remove("name").and_then(|entry| entry.value.string());
        within_benchmark(&mut own);
        normalize(&mut own);
        over(files, &mut tree, &own);
        (name.unwrap_or_default(), tree)
    };
    sweep.items_at("runs").iter().map(&mut run).collect()
}

/// Gives a dataset one shape: without `source` and `augment`, and with lengths in `prompts`.
fn shape(dataset: &mut Node) {
    for section in ["source", "augment"] {
        let block = dataset.remove(section).map(|entry| entry.value);
        for entry in block.iter().flat_map(Node::entries) {
            let key = match entry.key.as_str() {
                "type" => "source_type",
                key => key,
            };
            dataset.set_key(key, entry.key_at, entry.value.clone());
        }
    }
    for key in ["isl", "osl"] {
        if let Some(length) = dataset.remove(key) {
            dataset.set(&format!("prompts.{key}"), length.key_at, length.value);
        }
    }
}

/// Gives the benchmark the dataset that its phase names, by default the first.
fn choose_dataset(files: &mut Files<'_>, file: &mut Node) {
    let Some(mut benchmark) = file.remove("benchmark") else {
        return;
    };
    let node = &mut benchmark.value;
    let named = node.remove("datasets").map(|entry| entry.value);
    if let Some(named) = &named {
        let mut chosen = named.entries().first();
        // A name that is not in the list stays, and is reported as not understood.
        if let Some(mut phase) = node.get("phases.profiling").cloned()
            && let Some(entry) = phase.remove("dataset")
            && let Some(own) = named.entry(&entry.value.string().unwrap_or_default())
        {
            files.mark(Some(&entry.value));
            chosen = Some(own);
            node.set("phases.profiling", phase.at, phase);
        }
        if let Some(chosen) = chosen {
            let mut dataset = chosen.value.clone();
            // A run of a sweep may have fields of the only dataset.
            if let Some(own) = node.get("dataset") {
                over(files, &mut dataset, own);
            }
            node.set_key("dataset", chosen.key_at, dataset);
        }
    }
    if let Some(mut dataset) = node.get("dataset").cloned() {
        shape(&mut dataset);
        node.set_key("dataset", dataset.at, dataset);
    }
    file.set_key("benchmark", benchmark.key_at, benchmark.value);
}

/// Gives the benchmark one shape: `datasets` and `phases` as mappings by name.
fn normalize(file: &mut Node) {
    let Some(mut benchmark) = file.remove("benchmark") else {
        return;
    };
    let node = &mut benchmark.value;
    if let Some(entry) = node.remove("datasets") {
        let is_named = |data: &Data| match data {
            Data::Map(entries) => entries
                .iter()
                .all(|entry| !entry.value.entries().is_empty()),
            _ => false,
        };
        let named = match &entry.value.data {
            Data::List(items) => {
                let items = items.iter().enumerate();
                let named = items.map(|(index, item)| Entry {
                    key: item
                        .get("name")
                        .and_then(Node::string)
                        .unwrap_or_else(|| index.to_string()),
                    key_at: item.at,
                    value: item.clone(),
                });
                Some(Node::new(entry.value.at, Data::Map(named.collect())))
            }
            data if is_named(data) => Some(entry.value.clone()),
            _ => None,
        };
        match named {
            Some(mut named) => {
                for entry in named.entries().to_vec() {
                    let mut dataset = entry.value;
                    shape(&mut dataset);
                    named.set_key(&entry.key, entry.key_at, dataset);
                }
                node.set_key("datasets", entry.key_at, named);
            }
            None => node.set_key("dataset", entry.key_at, entry.value),
        }
    }
    if let Some(mut dataset) = node.get("dataset").cloned() {
        shape(&mut dataset);
        node.set_key("dataset", dataset.at, dataset);
    }
    let mut phases = Node::new(node.at, Data::Map(Vec::new()));
    for key in ["warmup", "profiling"] {
        if let Some(entry) = node.remove(key) {
            phases.set_key(key, entry.key_at, entry.value);
        }
    }
    let mut more = Vec::new();
    if let Some(entry) = node.remove("phases") {
        let mut add = |phase: &Node| {
            let excluded = phase.get("exclude_from_results").and_then(Node::flag) == Some(true);
            let named = |key: &str| phase.get(key).and_then(Node::string);
            let warms = excluded || named("kind").or(named("name")).as_deref() == Some("warmup");
            let key = if warms { "warmup" } else { "profiling" };
            match phases.entry(key) {
                None => phases.set_key(key, phase.at, phase.clone()),
                Some(_) if !warms => more.push(phase.clone()),
                Some(_) => {}
            }
        };
        match &entry.value.data {
            Data::List(items) => items.iter().for_each(&mut add),
            // By name.
            Data::Map(entries)
                if entries
                    .iter()
                    .all(|entry| !entry.value.entries().is_empty()) =>
            {
                for entry in entries {
                    let mut phase = entry.value.clone();
                    if phase.entry("name").is_none() {
                        let name = Node::new(entry.key_at, Data::Text(entry.key.clone()));
                        phase.set_key("name", entry.key_at, name);
                    }
                    add(&phase);
                }
            }
            _ => add(&entry.value),
        }
    }
    if !more.is_empty() {
        node.set_key("more_phases", node.at, Node::new(node.at, Data::List(more)));
    }
    if !phases.entries().is_empty() {
        node.set_key("phases", node.at, phases);
    }
    file.set_key("benchmark", benchmark.key_at, benchmark.value);
}

/// Replaces `{{ expression }}` by the file's variables, and `${NAME:default}` by the default.
fn rendered(node: &Node, file: &Node) -> Result<Node, Box<Mistake>> {
    let data = match &node.data {
        Data::Text(text) if text.contains("{{") => {
            let variables = file.get("variables").map(Node::json).unwrap_or_default();
            if let Err((_, why)) = bounds::check_depth(text) {
                return Err(mistake(node.at, "this template cannot be rendered", why));
            }
            let rendered = Template::new(bounds::environment(), text.clone())
                .and_then(|template| template.render(Jinja::from(Serde(&variables))))
                .map_err(|error| {
                    let why = error.detail().unwrap_or("invalid syntax").to_owned();
                    mistake(node.at, "this template cannot be rendered", why)
                })?;
            Data::plain(&rendered)
        }
        Data::Text(text) if text.starts_with("${") && text.ends_with('}') => {
            match text
                .trim_start_matches("${")
                .trim_end_matches('}')
                .split_once(':')
            {
                Some((_, default)) => Data::plain(default.trim_start_matches('-')),
                None => Data::Null,
            }
        }
        Data::Map(entries) => Data::Map(
            entries
                .iter()
                .map(|entry| {
                    Ok(Entry {
                        value: rendered(&entry.value, file)?,
                        ..entry.clone()
                    })
                })
                .collect::<Result<_, Box<Mistake>>>()?,
        ),
        Data::List(items) => Data::List(
            items
                .iter()
                .map(|item| rendered(item, file))
                .collect::<Result<_, Box<Mistake>>>()?,
        ),
        other => other.clone(),
    };
    Ok(Node::new(node.at, data))
}

const SHAPE: &str = "write `dataset.tokens` and `request.max_tokens` as a distribution";
const OUTPUT: &str = "every run is stored in its own folder; see `report`";

/// Durations: `30`, `30s`, `5m`.
const SPANS: [(&str, &str); 6] = [
    (
        "benchmark.phases.profiling.duration",
        "--benchmark-duration",
    ),
    (
        "benchmark.phases.profiling.grace_period",
        "--benchmark-grace-period",
    ),
    (
        "benchmark.phases.profiling.concurrency_ramp",
        "--concurrency-ramp-duration",
    ),
    (
        "benchmark.phases.profiling.rate_ramp",
        "--request-rate-ramp-duration",
    ),
    (
        "benchmark.phases.profiling.prefill_ramp",
        "--prefill-concurrency-ramp-duration",
    ),
    ("benchmark.phases.warmup.duration", "--warmup-duration"),
];

fn collect(fields: &mut Fields, file: &Node) -> Result<(), Box<Mistake>> {
    let places = Places::parse(include_str!("../../../tools/aiperf-config.yaml"));
    add(fields, &places, "", file)?;
    // The type of the phase is AIPerf's arrival pattern, or its replay.
    if let Some(kind) = file.get("benchmark.phases.profiling.type") {
        let path = "benchmark.phases.profiling.type";
        match kind.text().as_deref() {
            Some("poisson" | "gamma" | "constant") => {
                fields.flag(command(), "--arrival-pattern", path, kind);
            }
            Some("fixed_schedule") => {
                let on = Node::new(kind.at, Data::Text("true".into()));
                fields.flag(command(), "--fixed-schedule", path, &on);
            }
            Some("concurrency") => fields.placed(path, kind, "load"),
            _ => {
                return Err(mistake(
                    kind.at,
                    "this type of phase has no counterpart",
                    "expected concurrency, poisson, gamma, constant or fixed_schedule",
                ));
            }
        }
    }
    Ok(())
}

fn add(
    fields: &mut Fields,
    places: &Places,
    prefix: &str,
    node: &Node,
) -> Result<(), Box<Mistake>> {
    for entry in node.entries() {
        let path = format!("{prefix}{}", entry.key);
        let (key, value) = (path.as_str(), &entry.value);
        let place = places.get(&path);
        let inner = !value.entries().is_empty();
        if key == "benchmark.phases.profiling.type" {
            continue;
        }
        if let Some((_, flag)) = SPANS.iter().find(|(known, _)| *known == path) {
            let seconds = value.number().or_else(|| span(&value.text()?));
            let Some(seconds) = seconds else {
                return Err(mistake(
                    value.at,
                    "not a duration",
                    "expected seconds, `30s` or `5m`",
                ));
            };
            fields.flag(
                command(),
                flag,
                key,
                &Node::new(value.at, Data::Float(seconds)),
            );
            continue;
        }
        let is_length = matches!(
            key,
            "benchmark.dataset.prompts.isl" | "benchmark.dataset.prompts.osl"
        );
        if let (true, Some(flag), Some(length)) = (is_length, place, lognormal(value)) {
            let text = Data::Text(length.to_string());
            fields.flag(command(), flag, key, &Node::new(value.at, text));
            continue;
        }
        match (key, place) {
            ("benchmark.endpoint.headers", _) => {
                for header in value.entries() {
                    let text = header.value.string().unwrap_or_default();
                    let pair = Data::Text(format!("{}:{text}", header.key));
                    fields.flag(
                        command(),
                        "--header",
                        key,
                        &Node::new(header.value.at, pair),
                    );
                }
            }
            ("benchmark.slos", _) => {
                for slo in value.entries() {
                    let limit = slo.value.scalar().map(|limit| limit.to_string());
                    let pair = Data::Text(format!("{}:{}", slo.key, limit.unwrap_or_default()));
                    fields.flag(command(), "--goodput", key, &Node::new(slo.value.at, pair));
                }
            }
            ("benchmark.model" | "benchmark.models", _) if value.scalar().is_none() => {
                let strategy = value.get("strategy");
                if let Some(strategy) = strategy {
                    let path = "benchmark.models.strategy";
                    fields.flag(command(), "--model-selection-strategy", path, strategy);
                }
                let weighted = strategy.and_then(Node::text).as_deref() == Some("weighted");
                let items = match value.items_at("items") {
                    [] => value.items(),
                    items => items,
                };
                for item in items {
                    let name = item.get("name").unwrap_or(item);
                    match item.get("weight") {
                        Some(weight) if weighted => {
                            let model = json!({ "name": name.text(), "weight": weight.number() });
                            let text = Data::Text(model.to_string());
                            fields.flag(command(), "--model", key, &Node::new(item.at, text));
                        }
                        _ => fields.flag(command(), "--model", key, name),
                    }
                }
            }
            (_, Some(place))
                if match place {
                    place if place.starts_with('=') => true,
                    place if place.starts_with("--") => !inner || place == "--extra-inputs",
                    _ => !inner || value.get("dir").is_none(),
                } =>
            {
                fields.place(command(), place, key, value);
            }
            _ if inner => add(fields, places, &format!("{path}."), value)?,
            _ if key.contains(".isl.") || key.contains(".osl.") => fields.lost(key, value, SHAPE),
            _ if key.starts_with("benchmark.artifacts.") => fields.dropped(key, value, OUTPUT),
            _ if value.is_null() => {}
            _ => fields.own(command(), key, value),
        }
    }
    Ok(())
}

/// A length with a mean and a median: in a lognormal distribution, exp(σ²/2) is the mean over the median. A run that
/// is merged over another one may have a standard deviation of that.
fn lognormal(length: &Node) -> Option<Value> {
    let known = ["mean", "median", "stddev"];
    let is_known = |entry: &Entry| known.contains(&entry.key.as_str());
    if !length.entries().iter().all(is_known) {
        return None;
    }
    let [mean, median] = ["mean", "median"].map(|key| length.get(key).and_then(Node::number));
    let (mean, median) = mean
        .zip(median)
        .filter(|(mean, median)| *median > 0.0 && median < mean)?;
    let sd = mean * ((mean / median).powi(2) - 1.0).sqrt();
    Some(json!({ "lognormal": { "mean": number(mean), "sd": number(sd.round()) } }))
}

/// Seconds of `30s`, `500ms`, `5m` or `1h`.
fn span(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "s" | "sec" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    digits
        .trim()
        .parse::<f64>()
        .ok()
        .map(|value| value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("30", 30.0), ("30s", 30.0), ("500ms", 0.5), ("5m", 300.0)] {
            assert_eq!(span(text), Some(seconds), "{text}");
        }
        assert_eq!(span("5 days"), None);
    }
}
