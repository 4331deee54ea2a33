//! The tools, and what becomes of each of their flags: the data in `tools/*.yaml`.

use crate::import::command::{Command, ToolSpec};
use crate::import::flags::{Carried, Flag, Takes};
use crate::import::{Translate, translation};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The files of [`crate::import::Tool`] in its order, then that of inference-perf, which has no command line.
const FILES: [&str; 7] = [
    include_str!("../../tools/evalscope.yaml"),
    include_str!("../../tools/vllm.yaml"),
    include_str!("../../tools/aiperf.yaml"),
    include_str!("../../tools/guidellm.yaml"),
    include_str!("../../tools/sglang.yaml"),
    include_str!("../../tools/lmdeploy.yaml"),
    include_str!("../../tools/inference-perf.yaml"),
];

/// Sets of flags that several tools have.
const SHARED: &str = include_str!("../../tools/bench_serving.yaml");

/// The tools in the order of their files.
pub(super) fn tools() -> &'static [ToolSpec] {
    static TOOLS: OnceLock<Vec<ToolSpec>> = OnceLock::new();
    // A test reads every file.
    TOOLS.get_or_init(|| FILES.map(|text| parse(text).unwrap_or_default()).into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFile {
    tool: String,
    version: String,
    programs: Vec<String>,
    abbreviates: bool,
    commands: Vec<CommandFile>,
    sets: BTreeMap<String, FlagSet>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandFile {
    /// Spellings, of which each may have several words.
    names: Vec<String>,
    #[serde(default)]
    positional: Vec<String>,
    /// The name of its translation.
    translate: String,
    sets: Vec<String>,
}

/// Flags, separated by spaces. The spellings of one flag are separated by `|`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlagSet {
    /// Flag → key, or `{ KIND: KEY }`.
    #[serde(default)]
    carried: Map<String, Value>,
    #[serde(default)]
    translated: BTreeMap<Takes, String>,
    /// Reason → flags.
    #[serde(default)]
    dropped: BTreeMap<String, BTreeMap<Takes, String>>,
    #[serde(default)]
    lost: BTreeMap<String, BTreeMap<Takes, String>>,
}

fn parse(text: &str) -> Result<ToolSpec, String> {
    let mut file: ToolFile = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let shared: BTreeMap<String, FlagSet> =
        serde_yaml::from_str(SHARED).map_err(|error| error.to_string())?;
    file.sets.extend(shared);
    let command = |command: &CommandFile| {
        let mut flags: Vec<Flag> = Vec::new();
        let positional = command.positional.iter();
        flags.extend(positional.map(|name| Flag::new(name, Takes::One)));
        for name in &command.sets {
            let set = file
                .sets
                .get(name)
                .ok_or_else(|| format!("no set {name}"))?;
            flags.extend(set.flags()?);
        }
        for (position, flag) in flags.iter_mut().enumerate() {
            flag.position = position;
        }
        let translate: Translate = translation(&command.translate)
            .ok_or_else(|| format!("no translation {}", command.translate))?;
        let words = |name: &String| name.split(' ').map(str::to_owned).collect();
        Ok(Command {
            names: command.names.iter().map(words).collect(),
            positional: command.positional.len(),
            flags,
            translate,
        })
    };
    Ok(ToolSpec {
        commands: file
            .commands
            .iter()
            .map(command)
            .collect::<Result<_, String>>()?,
        name: file.tool,
        version: file.version,
        programs: file.programs,
        abbreviates: file.abbreviates,
    })
}

impl FlagSet {
    fn flags(&self) -> Result<Vec<Flag>, String> {
        let mut flags = Vec::new();
        for (names, place) in &self.carried {
            let carried = Carried::parse(place)
                .ok_or_else(|| format!("{names}: {place} is not a key or `{{ KIND: KEY }}`"))?;
            flags.push(Flag {
                carried: Some(carried.clone()),
                ..Flag::new(names, carried.kind.takes())
            });
        }
        for (takes, names) in &self.translated {
            flags.extend(
                names
                    .split_whitespace()
                    .map(|names| Flag::new(names, *takes)),
            );
        }
        for (reasons, loses_load) in [(&self.dropped, false), (&self.lost, true)] {
            for (reason, groups) in reasons {
                // The flags of one reason are one flag with many names.
                flags.extend(groups.iter().map(|(takes, names)| Flag {
                    names: names.split_whitespace().collect::<Vec<_>>().join(" "),
                    reason: reason.clone(),
                    loses_load,
                    ..Flag::new(names, *takes)
                }));
            }
        }
        Ok(flags)
    }
}

/// What becomes of the fields of a plan file, by their paths: a flag of the tool's command that means the same,
/// `=KEY` of the scenario, or the reason why they have no counterpart, after a `!` where the load without them is
/// another one. A path that is not listed is itself the name of a flag.
#[derive(Default)]
pub(super) struct Places(BTreeMap<String, String>);

impl Places {
    /// Reads a file of `tools`, in which a line may have several paths.
    pub fn parse(text: &str) -> Places {
        let lines: BTreeMap<String, String> = serde_yaml::from_str(text).unwrap_or_default();
        let paths = |(paths, place): (String, String)| {
            let paths: Vec<String> = paths.split_whitespace().map(str::to_owned).collect();
            paths.into_iter().map(move |path| (path, place.clone()))
        };
        Places(lines.into_iter().flat_map(paths).collect())
    }

    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::document::{KeyKind, key_kind};

    const PLACES: [&str; 3] = [
        include_str!("../../tools/aiperf-config.yaml"),
        include_str!("../../tools/guidellm-spec.yaml"),
        include_str!("../../tools/guidellm-flat.yaml"),
    ];

    /// Sections of a scenario that reasons name.
    const SECTIONS: [&str; 14] = [
        "target",
        "request",
        "dataset",
        "load",
        "matrix",
        "search",
        "slo",
        "report",
        "mix",
        "hooks",
        "telemetry",
        "rounds",
        "pause",
        "labels",
    ];

    /// The dotted paths of a scenario that a text has in backticks: `a.b`, `a.b: value`, `a: { b: {} }`.
    fn keys(text: &str) -> Vec<String> {
        let quoted = text.split('`').skip(1).step_by(2);
        let key = |quoted: &str| {
            let written = |c: char| c.is_ascii_alphanumeric() || "_.".contains(c);
            let mut path = String::new();
            for part in quoted.split([':', '{', ' ', '[', ']']) {
                match part.trim() {
                    "" => {}
                    part if part.chars().all(written) && path.is_empty() => path = part.to_owned(),
                    // A value, or a key of the block.
                    part if part.chars().all(written)
                        && quoted.contains(&format!("{{ {part}:")) =>
                    {
                        path = format!("{path}.{part}");
                    }
                    _ => {}
                }
            }
            path
        };
        let is_key = |path: &String| SECTIONS.contains(&path.split('.').next().unwrap_or_default());
        quoted.map(key).filter(is_key).collect()
    }

    /// Whether a scenario has a key, or one around it whose values have several forms.
    fn exists(key: &str) -> bool {
        let parent = key.rsplit_once('.').map(|(parent, _)| key_kind(parent));
        key_kind(key).is_some() || matches!(parent, Some(Some(KeyKind::Other | KeyKind::Scalar)))
    }

    #[test]
    fn the_keys_of_a_text_are_found() {
        assert_eq!(
            keys("see `load.trace` and `dataset: { kind: audio }`, `--quiet` or `kind: video`"),
            ["load.trace", "dataset.kind"]
        );
    }

    #[test]
    fn every_key_that_a_mapping_names_is_a_key_of_a_scenario() {
        for text in FILES {
            let tool = parse(text).unwrap();
            let flags = tool.commands.iter().flat_map(|command| &command.flags);
            for flag in flags {
                let carried = flag.carried.iter().map(|carried| carried.key.clone());
                for key in carried.chain(keys(&flag.reason)) {
                    assert!(exists(&key), "{}: {}: {key}", tool.name, flag.names);
                }
            }
        }
        for text in PLACES {
            let lines: BTreeMap<String, String> = serde_yaml::from_str(text).unwrap();
            for (path, place) in lines {
                let carried = place.strip_prefix('=').map(str::to_owned);
                for key in carried.into_iter().chain(keys(&place)) {
                    assert!(exists(&key), "{path}: {key}");
                }
                let mut flags = tools()
                    .iter()
                    .flat_map(|tool| &tool.commands)
                    .flat_map(|command| &command.flags);
                let mut is_flag = || flags.any(|flag| flag.names().any(|name| name == place));
                assert!(!place.starts_with("--") || is_flag(), "{path}: {place}");
            }
        }
    }

    #[test]
    fn no_flag_is_listed_twice() {
        for text in FILES {
            let tool = parse(text).unwrap();
            for command in &tool.commands {
                let mut names: Vec<&str> = command.flags.iter().flat_map(Flag::names).collect();
                let all = names.len();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), all, "{} {:?}", tool.name, command.names);
            }
        }
    }
}
