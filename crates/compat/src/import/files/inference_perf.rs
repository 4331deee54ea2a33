//! Config files of inference-perf (kubernetes-sigs), after its configuration reference of 2026.

use crate::import::block::Block;
use crate::import::command::Command;
use crate::import::draft::{
    Draft, about, api_from_path, between, bounded, endpoint, in_seconds, number, per_second,
    seconds, sum,
};
use crate::import::files::{Fields, Files, Test, Tests};
use crate::import::flags::ImportError;
use crate::import::{Tool, tools};
use llmscen_scenario::document::{Mistake, Node};
use serde_json::{Map, Value, json};

pub(super) fn recognizes(root: &Node) -> bool {
    let has = |key: &str| root.get(key).is_some();
    let load = has("load.stages") || has("load.sweep") || has("load.trace");
    load && (has("server") || has("data.type") || has("api"))
}

pub(super) fn tests(_: &mut Files<'_>, root: &Node) -> Tests {
    Ok(vec![Test::new(String::new(), test(root)?)])
}

pub(super) fn test(root: &Node) -> Result<Draft, Box<Mistake>> {
    let mut fields = Fields::new(root.at);
    collect(&mut fields, "", root);
    fields.translate(translate)
}

/// Adds the fields that are known, and blocks field by field.
fn collect(fields: &mut Fields, prefix: &str, node: &Node) {
    for entry in node.entries() {
        let path = format!("{prefix}{}", entry.key);
        let known = command()
            .flags
            .iter()
            .any(|flag| flag.names().any(|name| name == path));
        // Older files have `api: completion`.
        let is_block = !entry.value.entries().is_empty();
        if is_block && (!known || path == "api") {
            collect(fields, &format!("{path}."), &entry.value);
        } else {
            fields.own(command(), &path, &entry.value);
        }
    }
}

/// The fields, as flags.
fn command() -> &'static Command {
    &tools::tools()[Tool::ALL.len()].commands[0]
}

pub(in crate::import) fn translate(draft: &mut Draft) -> Result<(), ImportError> {
    target(draft)?;
    dataset(draft)?;
    load(draft)?;
    goodput(draft)
}

fn target(draft: &mut Draft) -> Result<(), ImportError> {
    let route = match draft.text("api.type").as_deref() {
        None | Some("completion") => "v1/completions",
        Some("chat") => "v1/chat/completions",
        Some("anthropic_messages") => "v1/messages",
        Some("embeddings") => "v1/embeddings",
        Some(other) => {
            return Err(draft.invalid(
                "api.type",
                other,
                "completion, chat, anthropic_messages or embeddings; write others by hand, such \
                as `api: rerank` with its `dataset`",
            ));
        }
    };
    let generates = route != "v1/embeddings";
    let base = draft
        .text("server.base_url")
        .unwrap_or_else(|| "http://127.0.0.1:8000".into());
    let url = endpoint(
        base.trim_end_matches('/').trim_end_matches("/v1"),
        route,
        &[],
    );
    draft.set("target/api", api_from_path(&url));
    draft.carry_value("server.base_url", "target/url", url);
    draft.account("api.type", &["target/api"]);
    if generates {
        draft.set("request/stream", draft.is_on("api.streaming"));
        draft.account("api.streaming", &["request/stream"]);
        // It asks servers to ignore the end of a text unless told otherwise.
        let ignores = !draft.has("server.ignore_eos") || draft.is_on("server.ignore_eos");
        draft.carry_or_default("server.ignore_eos", "request/ignore_eos", ignores);
    } else {
        draft.note("api.streaming server.ignore_eos", "nothing is generated");
    }
    for (name, value) in draft
        .json("api.headers")?
        .iter()
        .filter_map(Value::as_object)
        .flatten()
    {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        draft.header("api.headers", name, &text);
    }
    if draft.has("api.response_format") {
        let mut format = Block::from_flag(draft, "api.response_format", "type")?;
        let kind = format.text("type").unwrap_or_else(|| "json_schema".into());
        let mut value = json!({ "type": kind });
        if let Some(schema) = format.value("json_schema") {
            let name = format.text("name").unwrap_or_else(|| "reply".into());
            value["json_schema"] = json!({ "name": name, "schema": schema });
        }
        draft.merge_extra(Map::from_iter([("response_format".to_owned(), value)]));
        format.done(draft, &["request/extra/response_format"]);
    }
    let mut adapters = Vec::new();
    for mut adapter in Block::all_from_flag(draft, "load.lora_traffic_split", "name")? {
        let name = adapter.text("name");
        let weight = adapter.value("split");
        if let (Some(name), Some(weight)) = (name, weight) {
            adapters.push(json!({ "name": name, "weight": weight }));
        }
        adapter.done(draft, &["target/model"]);
    }
    if !adapters.is_empty() {
        draft.set("target/model", adapters);
    }
    Ok(())
}

fn dataset(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = draft.text("data.type").unwrap_or_else(|| "mock".into());
    let embeds = draft.get("target/api").and_then(Value::as_str) == Some("openai-embeddings");
    match kind.as_str() {
        "random" | "synthetic" if draft.has("data.trace") => {
            replayed(draft, "data.trace", "azure")?;
        }
        "random" | "synthetic" if embeds => {
            draft.embedded_texts("data.type");
            length(draft, "data.input_distribution", "dataset/shape/tokens")?;
            draft.carry_number("api.embeddings.batch_size", "dataset/batch")?;
        }
        "random" | "synthetic" => {
            draft.carry_value("data.type", "dataset/kind", "random");
            length(draft, "data.input_distribution", "dataset/tokens")?;
            length(draft, "data.output_distribution", "request/max_tokens")?;
            if draft.get("dataset/tokens").is_none() {
                return Err(ImportError::Missing("data.input_distribution"));
            }
        }
        "shared_prefix" => {
            draft.carry_value("data.type", "dataset/kind", "prefix");
            for (field, path, default) in [
                ("num_groups", "dataset/groups", 10.0),
                ("num_prompts_per_group", "dataset/per_group", 10.0),
            ] {
                let field = format!("data.shared_prefix.{field}");
                let count = draft.number(&field)?.unwrap_or(default);
                draft.carry_value(&field, path, number(count));
            }
            for (fields, path, default) in [
                (["system_prompt_len", ""], "dataset/prefix_tokens", 100.0),
                (
                    ["question_len", "question_distribution"],
                    "dataset/tokens",
                    50.0,
                ),
                (
                    ["output_len", "output_distribution"],
                    "request/max_tokens",
                    50.0,
                ),
            ] {
                draft.set(path, number(default));
                for field in fields.iter().filter(|field| !field.is_empty()) {
                    length(draft, &format!("data.shared_prefix.{field}"), path)?;
                }
            }
            if draft.get("seed").is_none() {
                draft.carry_number("data.shared_prefix.seed", "seed")?;
            }
        }
        "shareGPT" => {
            draft.carry_value("data.type", "dataset/kind", "sharegpt");
            match draft.text("data.path") {
                Some(_) => draft.carry("data.path", "dataset/path"),
                None => {
                    draft.set("dataset/path", "builtin");
                    draft.note(
                        "data.type",
                        "a small sample that ships with llmscen; set `dataset.path`",
                    );
                }
            }
            // A reply is as long as the recorded one.
            draft.recorded_output();
            bounds(draft, "data.input_distribution", "dataset/prompt_tokens")?;
            if draft.has("data.output_distribution") {
                draft.lose(
                    "data.output_distribution",
                    "rows are not selected by the length of their reply",
                );
            }
        }
        "bimodal" => bimodal(draft)?,
        "conversation_replay" | "synthetic_agentic" | "synthetic_agent_sessions" => {
            conversations(draft, &format!("data.{kind}"))?;
        }
        "otel_trace_replay" => replayed(draft, "data.otel_trace_replay", "otel")?,
        "weka_trace_replay" => replayed(draft, "data.weka_trace_replay", "weka")?,
        "trace" | "azure_trace" | "trace_replay" => replayed(draft, "data.trace", "azure")?,
        "mock" => {
            draft.carry_value("data.type", "dataset/kind", "prompt");
            draft.set("dataset/text", "Mock text");
        }
        other => {
            return Err(draft.invalid(
                "data.type",
                other,
                "random, synthetic, shared_prefix, bimodal, shareGPT, conversation_replay, \
                synthetic_agentic, otel_trace_replay, weka_trace_replay, trace_replay or mock; \
                use other datasets as a file with `kind: rows`",
            ));
        }
    }
    Ok(())
}

/// Sets a length, where it was given.
fn length(draft: &mut Draft, field: &str, path: &str) -> Result<(), ImportError> {
    let Some(text) = draft.text(field) else {
        return Ok(());
    };
    if !text.trim_start().starts_with('{') {
        let value = expression(&text).ok_or_else(|| {
            let expected = "a number, or an expression of Normal, LogNormal, Uniform, Min and Max";
            draft.invalid(field, &text, expected)
        })?;
        draft.carry_value(field, path, value);
        return Ok(());
    }
    let mut block = Block::from_flag(draft, field, "mean")?;
    let value = drawn(draft, field, &mut block)?;
    draft.set(path, value);
    block.done(draft, &[path]);
    Ok(())
}

/// A distribution as an expression: `Min(100, Max(10, Normal(50, 10)))`.
fn expression(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(value) = text.parse::<f64>() {
        return Some(number(value));
    }
    let (name, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?;
    let numbers: Option<Vec<f64>> = inner
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    match (name.trim().to_lowercase().as_str(), numbers.as_deref()) {
        ("normal", Some([mean, sd])) => Some(about(*mean, *sd)),
        ("lognormal", Some([mean, sd])) => {
            Some(json!({ "lognormal": { "mean": number(*mean), "sd": number(*sd) } }))
        }
        ("uniform", Some([low, high])) => Some(between(*low, *high)),
        (bound @ ("min" | "max"), _) => {
            // The bound may be the first or the last argument.
            let first = inner.split_once(',');
            let last = inner.rsplit_once(',').map(|(value, bound)| (bound, value));
            let (bounding, value) =
                [first, last]
                    .into_iter()
                    .flatten()
                    .find_map(|(bounding, value)| {
                        Some((bounding.trim().parse::<f64>().ok()?, value))
                    })?;
            let value = expression(value)?;
            Some(match bound {
                "min" => bounded(value, None, Some(bounding)),
                _ => bounded(value, Some(bounding), None),
            })
        }
        _ => None,
    }
}

/// A distribution with `mean`, `std_dev`, `min` and `max`.
fn drawn(draft: &Draft, field: &str, block: &mut Block) -> Result<Value, ImportError> {
    // The number of values that are drawn in advance.
    block.value("total_count");
    let mut number_of = |key: &str| block.number(draft, key);
    let (mean, min, max) = (number_of("mean")?, number_of("min")?, number_of("max")?);
    let [sd, std, variance] = ["std_dev", "std", "variance"].map(&mut number_of);
    let sd = sd?.or(std?).or(variance?.map(f64::sqrt)).unwrap_or(200.0);
    let mean = mean.unwrap_or(512.0);
    let named = block.text("type").or_else(|| block.text("distribution"));
    let kind = named.unwrap_or_else(|| "normal".into());
    let value = match kind.as_str() {
        // Its skew is named as not understood.
        "skew_normal" => about(mean, sd),
        "fixed" | "constant" => return Ok(number(mean)),
        "uniform" => return Ok(between(min.unwrap_or(10.0), max.unwrap_or(1024.0))),
        "normal" if sd == 0.0 => return Ok(number(mean)),
        "normal" | "lognormal" => {
            json!({ kind.as_str(): { "mean": number(mean), "sd": number(sd) } })
        }
        _ => {
            let expected =
                "a number of tokens, or a distribution of type normal, lognormal, uniform or fixed";
            return Err(draft.invalid(field, &kind, expected));
        }
    };
    Ok(bounded(value, min, max))
}

/// The bounds of a distribution as those of a filter.
fn bounds(draft: &mut Draft, field: &str, path: &str) -> Result<(), ImportError> {
    let mut block = Block::from_flag(draft, field, "max")?;
    for key in ["min", "max"] {
        if let Some(bound) = block.number(draft, key)?.filter(|bound| *bound >= 1.0) {
            draft.set(&format!("{path}/{key}"), number(bound));
        }
    }
    if draft.get(path).is_some() {
        // The lengths are those of the rows.
        for key in ["type", "mean", "std_dev", "std", "variance", "total_count"] {
            block.value(key);
        }
    }
    block.done(draft, &[path]);
    Ok(())
}

/// Two kinds of requests, as the entries of a mixture.
fn bimodal(draft: &mut Draft) -> Result<(), ImportError> {
    const FIELD: &str = "data.bimodal";
    let mut block = Block::from_flag(draft, FIELD, "mode_a_ratio")?;
    let share = block.number(draft, "mode_a_ratio")?.unwrap_or(0.5);
    // The entries have no dataset in common.
    let shared = draft.take("dataset").unwrap_or_else(|| json!({}));
    let mut entries = Vec::new();
    for (mode, weight) in [("a", share), ("b", 1.0 - share)] {
        let mut part = |key: &str| block.number(draft, &format!("mode_{mode}_{key}"));
        let [groups, prefix, prompt, output] = [
            "groups",
            "system_prompt_len",
            "user_prompt_len",
            "output_len",
        ]
        .map(&mut part);
        let (Some(prompt), Some(output)) = (prompt?, output?) else {
            return Err(ImportError::Missing("length of a mode of its data"));
        };
        let mut dataset = shared.clone();
        let groups = groups?.unwrap_or(1.0);
        match prefix?.filter(|prefix| *prefix > 0.0) {
            Some(prefix) => {
                dataset["kind"] = json!("prefix");
                dataset["groups"] = number(groups);
                dataset["prefix_tokens"] = number(prefix);
            }
            None => dataset["kind"] = json!("random"),
        }
        dataset["tokens"] = number(prompt);
        entries.push(json!({
            "name": mode,
            "weight": number((weight * 1e6).round() / 1e6),
            "dataset": dataset,
            "request": { "max_tokens": number(output) },
        }));
    }
    draft.carry_value("data.type", "mix", entries);
    block.done(draft, &["mix"]);
    Ok(())
}

/// Generated sessions, of users or of agents.
fn conversations(draft: &mut Draft, field: &str) -> Result<(), ImportError> {
    draft.carry_value("data.type", "dataset/kind", "random");
    let mut block = Block::from_flag(draft, field, "num_sessions")?;
    let of_agents = !field.ends_with("conversation_replay");
    let mut part = |draft: &Draft, key: &str| -> Result<Option<Value>, ImportError> {
        match block.block(key) {
            Some(mut inner) => {
                let value = drawn(draft, field, &mut inner)?;
                block.keep(key, inner);
                Ok(Some(value))
            }
            None => Ok(block.number(draft, key)?.map(number)),
        }
    };
    let mut turns = None;
    for key in [
        "turns_per_conversation",
        "turns_per_session",
        "rounds_per_session",
    ] {
        turns = turns.or(part(draft, key)?);
    }
    let input = part(draft, "input_tokens_per_turn")?;
    let output = part(draft, "output_tokens_per_turn")?;
    let shared = part(draft, "shared_system_prompt_len")?;
    let own = part(draft, "dynamic_system_prompt_len")?;
    let latency = part(draft, "tool_call_latency_sec")?;
    let wait = match of_agents {
        true => part(draft, "user_think_time_sec")?,
        false => latency,
    };
    let input = input.ok_or(ImportError::Missing("input_tokens_per_turn"))?;
    let mut first = match own {
        Some(own) => sum(own, &input),
        None => input.clone(),
    };
    draft.set("dataset/turns/count", turns.unwrap_or_else(|| number(1.0)));
    draft.set("dataset/turns/tokens", input);
    match shared {
        Some(shared) if shared.as_f64() > Some(0.0) => {
            first = sum(first, &shared);
            draft.set("dataset/shared_prefix", shared);
        }
        Some(Value::Object(_)) => {
            draft.lose(
                field,
                "`shared_system_prompt_len`: `dataset.shared_prefix` is one length",
            );
        }
        _ => {}
    }
    draft.set("dataset/tokens", first);
    if let Some(output) = output {
        draft.set("request/max_tokens", output);
    }
    if let Some(wait) = wait {
        draft.set("dataset/turns/think_time", in_seconds(wait));
    }
    if let Some(seed) = block
        .number(draft, "seed")?
        .filter(|_| draft.get("seed").is_none())
    {
        draft.set("seed", number(seed));
    }
    for key in ["num_conversations", "num_sessions"] {
        if let Some(count) = block.number(draft, key)? {
            draft.set("load/sessions", number(count));
        }
    }
    if of_agents {
        agents(draft, field, &mut block)?;
    }
    if block.value("max_model_len").is_some() {
        draft.lose(
            field,
            "`max_model_len`: a conversation is not cut to the context of the model",
        );
    }
    block.done(draft, &["dataset", "load/sessions"]);
    Ok(())
}

/// The tools and sub-agents of generated sessions, which have no counterpart.
fn agents(draft: &mut Draft, field: &str, block: &mut Block) -> Result<(), ImportError> {
    let mut used = false;
    for key in [
        "fanout_probability",
        "tool_loop_depth",
        "tool_turns_per_loop",
        "tool_catalog_size_per_agent",
        "tool_definitions_per_agent",
    ] {
        used |= match block.block(key) {
            Some(mut inner) => inner.number(draft, "mean")? != Some(0.0),
            None => block.number(draft, key)?.is_some_and(|amount| amount > 0.0),
        };
    }
    if used {
        draft.lose(
            field,
            "tools and sub-agents are in recorded sessions: see `dataset: { kind: trace }`",
        );
    }
    // What only tools and sub-agents use, and the words of the prompts.
    for key in [
        "sub_agents_per_spawn",
        "max_depth",
        "max_events_per_session",
        "theme_mix",
    ] {
        block.value(key);
    }
    Ok(())
}

/// A log that is sent again.
fn replayed(draft: &mut Draft, field: &str, layout: &str) -> Result<(), ImportError> {
    draft.carry_value("data.type", "dataset/kind", "trace");
    let mut block = Block::from_flag(draft, field, "file")?;
    let path = [
        "trace_file",
        "trace_files",
        "trace_directory",
        "file",
        "path",
    ]
    .iter()
    .find_map(|key| block.value(key));
    let path = match path {
        Some(Value::Array(files)) if files.len() == 1 => files.into_iter().next(),
        Some(Value::Array(files)) => {
            draft.lose(field, "one log is replayed: join the files");
            files.into_iter().next()
        }
        other => other,
    };
    let path = path.or_else(|| draft.text("data.path").map(Value::from));
    let path = path.ok_or(ImportError::Missing("path of its trace"))?;
    draft.set("dataset/path", path);
    if block.value("default_max_tokens").is_some() {
        draft.note(field, "a request without an output length is left out");
    }
    // An invalid row is left out unless `dataset.strict` is set, and a request that failed has no output.
    for usual in ["include_errors", "skip_invalid_files"] {
        block.value(usual);
    }
    let model = block.text("static_model_name");
    if let Some(model) =
        model.filter(|_| block.text("use_static_model").as_deref() != Some("false"))
    {
        draft.set("target/model", model);
    }
    let layout = layout_of(&mut block, layout);
    draft.set("dataset/trace/layout", layout);
    if layout != "azure" {
        draft.set("dataset/turns", json!({}));
    }
    block.done(draft, &["dataset/path", "dataset/trace/layout"]);
    draft.account("data.path", &["dataset/path"]);
    Ok(())
}

/// The layout of a log, whose `format` may name another one than the usual.
fn layout_of<'l>(log: &mut Block, usual: &'l str) -> &'l str {
    let format = log.text("format").unwrap_or_default().to_lowercase();
    if format.contains("mooncake") {
        "mooncake"
    } else {
        usual
    }
}

/// A stage of the load: its numbers by name.
struct Stages(Vec<Block>);

impl Stages {
    /// The numbers of one field, if each stage has it.
    fn column(&mut self, draft: &Draft, key: &str) -> Result<Option<Vec<f64>>, ImportError> {
        // A field of some stages alone stays where it is, and is named.
        if !self.0.iter().all(|stage| stage.has(key)) {
            return Ok(None);
        }
        let mut column = Vec::new();
        for stage in &mut self.0 {
            column.extend(stage.number(draft, key)?);
        }
        Ok(Some(column))
    }
}

fn load(draft: &mut Draft) -> Result<(), ImportError> {
    let kind = draft.text("load.type").unwrap_or_else(|| "constant".into());
    let mut stages = Stages(Block::all_from_flag(draft, "load.stages", "rate")?);
    let pause = draft.number("load.interval")?.filter(|pause| *pause > 0.0);
    match kind.as_str() {
        "constant" | "poisson" => {
            draft.carry_value("load.type", "load/arrivals", kind.as_str());
            let [rates, spans] = ["rate", "duration"].map(|key| stages.column(draft, key));
            let (Some(rates), Some(spans)) = (rates?, spans?) else {
                return Err(draft.invalid(
                    "load.stages",
                    "",
                    "a `rate` and a `duration` in every stage",
                ));
            };
            match (rates.as_slice(), spans.as_slice()) {
                ([], _) => sweep(draft)?,
                ([rate], [span]) => {
                    draft.set("load/rate", per_second(*rate));
                    draft.set("load/duration", seconds(*span));
                    draft.account("load.stages", &["load/rate", "load/duration"]);
                }
                _ => {
                    let mut list = Vec::new();
                    for (rate, span) in rates.iter().zip(&spans) {
                        if let Some(pause) = pause.filter(|_| !list.is_empty()) {
                            list.push(json!({ "rate": "0/s", "for": seconds(pause) }));
                        }
                        list.push(json!({ "rate": per_second(*rate), "for": seconds(*span) }));
                    }
                    draft.carry_value("load.stages", "load/stages", list);
                    draft.account("load.interval", &["load/stages"]);
                }
            }
        }
        "concurrent" | "trace_session_replay" | "session_replay" => {
            let mut users = stages.column(draft, "concurrency_level")?;
            if users.is_none() {
                users = stages.column(draft, "concurrent_sessions")?;
            }
            let mut columns = vec![("load.concurrency", users.unwrap_or_default())];
            for (key, path) in [
                ("num_requests", "load.requests"),
                ("num_sessions", "load.sessions"),
                ("duration", "load.duration"),
            ] {
                columns.extend(stages.column(draft, key)?.map(|column| (path, column)));
            }
            // Sessions of the dataset end the load, where a stage has no end of its own.
            if columns.len() == 1 && kind == "concurrent" {
                return Err(draft.invalid(
                    "load.stages",
                    "",
                    "a `concurrency_level` and `num_requests` in every stage",
                ));
            }
            if columns.len() == 1 && draft.get("load/sessions").is_none() {
                // The sessions of the log are sent once.
                draft.set("dataset/on_exhausted", "stop");
                draft.set("load/sessions", 1_000_000);
            }
            if columns.iter().any(|(_, column)| column.is_empty()) {
                return Err(ImportError::Missing("load.stages"));
            }
            for (path, values) in columns {
                let values = values.into_iter().map(|value| match path {
                    "load.duration" => seconds(value),
                    _ => number(value),
                });
                let values: Vec<Value> = values.collect();
                let key = path.replace('.', "/");
                if let Some(first) = values.first() {
                    draft.set(&key, first.clone());
                }
                draft.account("load.type load.stages", &[&key]);
                if values.len() > 1 {
                    draft.set(&format!("matrix/zip/{path}"), values);
                    if let Some(pause) = pause {
                        draft.carry_value("load.interval", "pause", seconds(pause));
                    }
                }
            }
        }
        "trace_replay" => {
            draft.carry_value("load.type", "load/trace", json!({}));
            let mut trace = Block::from_flag(draft, "load.trace", "file")?;
            let path = trace.text("file").or_else(|| trace.text("path"));
            let layout = layout_of(&mut trace, "azure");
            if draft.get("dataset/kind").and_then(Value::as_str) != Some("trace")
                && let Some(path) = path
            {
                draft.set("load/trace", json!({ "path": path, "layout": layout }));
            }
            trace.done(draft, &["load/trace"]);
        }
        other => {
            return Err(draft.invalid(
                "load.type",
                other,
                "constant, poisson, concurrent, trace_replay or trace_session_replay",
            ));
        }
    }
    for stage in stages.0 {
        stage.done(draft, &[]);
    }
    let has_pause = draft.get("pause").is_some() || draft.get("load/stages").is_some();
    if draft.has("load.sweep") {
        draft.note("load.interval", "see `pause`");
    } else if !has_pause {
        draft.note("load.interval", "one stage has no pause before it");
    }
    Ok(())
}

/// inference-perf finds the saturating rate first, so that no two runs have the same plan.
fn sweep(draft: &mut Draft) -> Result<(), ImportError> {
    if !draft.has("load.sweep") {
        return Err(ImportError::Missing("load.stages"));
    }
    draft.set("load/concurrency", 1);
    draft.set(
        "matrix/load.concurrency",
        json!([1, 2, 4, 8, 16, 32, 64, 128]),
    );
    let mut sweep = Block::from_flag(draft, "load.sweep", "type")?;
    let span = sweep.number(draft, "stage_duration")?;
    // How it looks for the rate.
    for key in [
        "type",
        "num_requests",
        "timeout",
        "num_stages",
        "saturation_percentile",
    ] {
        sweep.value(key);
    }
    sweep.done(draft, &[]);
    draft.set("load/duration", seconds(span.unwrap_or(180.0)));
    draft.set_unescaped("load/arrivals", Value::Null);
    draft.account("load.sweep", &["matrix/load.concurrency", "load/duration"]);
    draft.note(
        "load.sweep",
        "a matrix of users: its rates depend on measurements, so no two runs have the same plan; \
        `search` finds the maximum load",
    );
    Ok(())
}

fn goodput(draft: &mut Draft) -> Result<(), ImportError> {
    let mut limits = Vec::new();
    for field in ["report.goodput.constraints", "goodput.constraints"] {
        for (metric, limit) in draft
            .json(field)?
            .iter()
            .filter_map(Value::as_object)
            .flatten()
        {
            let metric = match metric.as_str() {
                "ttft" => "ttft",
                "tpot" => "tpot",
                "request_latency" => "e2e",
                other => {
                    return Err(draft.invalid(field, other, "ttft, tpot or request_latency"));
                }
            };
            let limit = limit.as_f64().unwrap_or_default() * 1e3;
            limits.push(format!("{metric} <= {limit}ms"));
            draft.account(field, &["slo"]);
            draft.note(
                field,
                "no share is required: raise the 0 % to make it a gate",
            );
        }
    }
    if !limits.is_empty() {
        draft.add_limit(format!("goodput({}) >= 0%", limits.join(", ")));
    }
    Ok(())
}
