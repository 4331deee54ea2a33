//! `llmscen init`: writes a first scenario, or one of the shipped examples.

use crate::cli::doctor::{identify, request_url};
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::Args;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The first scenario, without its editor line.
const FIRST: &str = include_str!("first.yaml");
/// Where the schema for editors is written, beside the scenario.
const SCHEMA: &str = ".llmscen/scenario.schema.json";
/// Where the shipped scenarios find it.
const SHIPPED_SCHEMA: &str = "../docs/scenario.schema.json";

macro_rules! examples {
    ($($name:literal)*) => {
        /// The shipped scenarios by name.
        const EXAMPLES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../scenarios/", $name, ".yaml"))),)*];
    };
}

examples! {
    "agents" "answers" "anthropic" "capacity" "chat" "conversations" "custom" "dashscope" "embeddings"
    "exact-lengths" "gateway-sessions" "generated-sessions" "groups" "images" "images-out" "lengths" "local"
    "local-speed" "managed" "mixed" "offline-batch" "ollama" "poisson" "prefix-cache" "quickstart" "ramp"
    "realtime" "realtime-audio" "regression" "replay-sessions" "rerank" "responses" "responses-websocket"
    "slo-fail" "speech" "speed-benchmark" "stop-early" "stored-responses" "sweep" "tgi" "trace"
    "traffic-classes" "transcription"
}

/// Files that an example needs: example, path beside it, content.
const COMPANIONS: &[(&str, &str, &str)] = &[
    (
        "answers",
        "data/answers.jsonl",
        include_str!("../../scenarios/data/answers.jsonl"),
    ),
    (
        "agents",
        "data/agents.jsonl",
        include_str!("../../scenarios/data/agents.jsonl"),
    ),
    (
        "regression",
        "baselines/regression.json",
        include_str!("../../scenarios/baselines/regression.json"),
    ),
];

#[derive(Debug, Args)]
pub struct InitArgs {
    /// File to write [default: scenario.yaml, or NAME.yaml]
    pub path: Option<PathBuf>,
    /// Server to test: http://127.0.0.1:8000; asked for its models, with the key in $LLM_API_KEY
    #[arg(long, value_name = "URL", conflicts_with = "example")]
    pub url: Option<String>,
    /// Write this shipped scenario
    #[arg(long, value_name = "NAME")]
    pub example: Option<String>,
    /// List the shipped scenarios
    #[arg(long, conflicts_with_all = ["path", "url", "example"])]
    pub list: bool,
}

/// Writes a scenario.
pub fn init(args: &InitArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    if args.list {
        for (name, text) in EXAMPLES {
            terminal.print(&format!("{name:<16} {}\n", description(text)));
        }
        return Exit::Pass;
    }
    let (name, text, companions) = match (&args.example, &args.url) {
        (Some(name), _) => match EXAMPLES.iter().find(|(known, _)| known == name) {
            Some((name, text)) => {
                let own = COMPANIONS.iter().filter(|(example, ..)| example == name);
                let own: Vec<(&str, &str)> = own.map(|(_, path, text)| (*path, *text)).collect();
                (format!("{name}.yaml"), (*text).to_owned(), own)
            }
            None => {
                let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
                terminal.error(&format!(
                    "no shipped scenario is named `{name}`\n  help: one of {}",
                    names.join(", ")
                ));
                return Exit::Scenario;
            }
        },
        (None, Some(url)) => match scenario_of(url, env, terminal) {
            Ok(text) => ("scenario.yaml".to_owned(), text, Vec::new()),
            Err(exit) => return exit,
        },
        (None, None) => ("scenario.yaml".to_owned(), FIRST.to_owned(), Vec::new()),
    };
    let path = args.path.clone().unwrap_or_else(|| PathBuf::from(name));
    match write_all(&path, &with_schema(&text), &companions) {
        Ok(()) => {
            terminal.status(&format!("wrote {0}. Next: llmscen run {0}", path.display()));
            Exit::Pass
        }
        Err((path, error)) => {
            let path = path.display();
            terminal.error(&match error.kind() {
                ErrorKind::AlreadyExists => {
                    format!("{path} already exists; choose another path or delete it first")
                }
                _ => format!("cannot write {path}: {error}"),
            });
            Exit::Scenario
        }
    }
}

/// The description of a scenario: its key `description`.
fn description(text: &str) -> &str {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("description: "));
    line.unwrap_or_default().trim_matches('"')
}

/// The text with the line that names the schema for editors.
fn with_schema(text: &str) -> String {
    let line = format!("# yaml-language-server: $schema={SCHEMA}\n");
    match text.contains(SHIPPED_SCHEMA) {
        true => text.replace(SHIPPED_SCHEMA, SCHEMA),
        false => line + text,
    }
}

/// Writes the scenario, which must not exist, then its companions that do not exist, and the schema.
fn write_all(
    path: &Path,
    text: &str,
    companions: &[(&str, &str)],
) -> Result<(), (PathBuf, io::Error)> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| (path, error)
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    File::create_new(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(failed(path))?;
    let schema = format!("{:#}\n", llmscen_scenario::json_schema());
    let others = companions
        .iter()
        .map(|(name, text)| (folder.join(name), *text, false))
        .chain([(folder.join(SCHEMA), schema.as_str(), true)]);
    for (path, text, replace) in others {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        if replace || !path.exists() {
            fs::write(&path, text).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// A scenario for the server at a URL, with the models that it serves.
fn scenario_of(
    url: &str,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<String, Exit> {
    let found = identify(url, env, terminal)?;
    let models = found.models.unwrap_or_default();
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (model, comment) = match models.as_slice() {
        [] => {
            terminal.warn("the server lists no models; set `target.model` in the file");
            (quoted("MODEL"), " # the server lists no models".to_owned())
        }
        [only] => (quoted(only), String::new()),
        [first, others @ ..] => (
            quoted(first),
            format!(" # also served: {}", others.join(", ")),
        ),
    };
    let target = format!(
        "target:\n  url: {}\n  model: {model}{comment}\n  api_key: \"${{LLM_API_KEY:-}}\"\n",
        quoted(&request_url(url))
    );
    let (before, rest) = FIRST.split_once("target:\n").unwrap_or((FIRST, ""));
    // The block ends at the next line that is not indented.
    let after: String = rest
        .lines()
        .skip_while(|line| line.starts_with(' '))
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(format!("{before}{target}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_scenario_is_an_example_with_a_description() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut shipped: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned))
            .collect();
        shipped.sort();
        let names: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, shipped);
        for (name, text) in EXAMPLES {
            assert!(!description(text).is_empty(), "{name}");
            assert_eq!(with_schema(text).matches(SCHEMA).count(), 1, "{name}");
        }
    }
}
