//! Converts command lines of other tools to scenarios. Every flag is translated, or listed with the reason why it is not.

mod aiperf;
mod bench_serving;
mod command;
mod draft;
mod evalscope;
mod guidellm;
mod lmdeploy;
mod sglang;
mod vllm;

use crate::import::command::{Command, CommandLine, recognize};
use crate::import::draft::Draft;
use serde_json::Value;

/// A supported tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `evalscope perf`
    Evalscope,
    /// `vllm bench serve`
    Vllm,
    /// `aiperf profile`
    Aiperf,
    /// `guidellm run`, and the older `guidellm benchmark`
    Guidellm,
    /// `python -m sglang.bench_serving`
    Sglang,
    /// LMDeploy's `profile_generation.py`, `profile_throughput.py` and `profile_restful_api.py`
    Lmdeploy,
}

/// The properties of a tool.
struct ToolSpec {
    name: &'static str,
    /// The release whose flags and defaults are implemented.
    version: &'static str,
    /// Programs, modules and scripts that start its command lines.
    programs: &'static [&'static str],
    /// Whether its parser accepts unique prefixes of flags, as Python's argparse does.
    abbreviates: bool,
    commands: &'static [Command],
}

/// In the order of [`Tool`].
static SPECS: [ToolSpec; 6] = [
    ToolSpec {
        name: "evalscope",
        version: "1.14.1",
        programs: &["evalscope"],
        abbreviates: true,
        commands: &[Command::new(&[&["perf"]], evalscope::FLAGS, evalscope::translate)],
    },
    ToolSpec {
        name: "vllm",
        version: "of late 2026",
        programs: &["vllm"],
        abbreviates: true,
        commands: &[Command::new(&[&["bench", "serve"]], vllm::FLAGS, vllm::translate)],
    },
    ToolSpec {
        name: "aiperf",
        version: "0.13",
        programs: &["aiperf"],
        abbreviates: false,
        commands: &[Command::new(&[&["profile"]], aiperf::FLAGS, aiperf::translate)],
    },
    ToolSpec {
        name: "guidellm",
        version: "0.8",
        programs: &["guidellm"],
        abbreviates: false,
        commands: &[Command::new(&[&["benchmark", "run"], &["run"], &["benchmark"]], guidellm::FLAGS, guidellm::translate)],
    },
    ToolSpec {
        name: "sglang",
        version: "0.5.23",
        programs: &["sglang", "sglang.bench_serving", "sglang.benchmark.serving", "bench_serving.py", "serving.py"],
        abbreviates: true,
        commands: &[Command::new(&[&["bench_serving"]], sglang::FLAGS, sglang::translate)],
    },
    ToolSpec { name: "lmdeploy", version: "0.18", programs: &["lmdeploy"], abbreviates: true, commands: lmdeploy::COMMANDS },
];

impl Tool {
    /// Every tool.
    pub const ALL: [Tool; 6] = [Tool::Evalscope, Tool::Vllm, Tool::Aiperf, Tool::Guidellm, Tool::Sglang, Tool::Lmdeploy];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    fn spec(self) -> &'static ToolSpec {
        &SPECS[self as usize]
    }

    /// Its commands, for an error message.
    fn usage(self) -> String {
        let names = self.spec().commands.iter().filter_map(|command| command.names.first());
        names.map(|name| name.join(" ")).collect::<Vec<_>>().join(", ")
    }
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The scenario; comments at its top list the flags and what became of them.
    pub yaml: String,
    /// The flags in the order of the command line.
    pub accounts: Vec<Account>,
}

/// The result for one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The flag with its values, without secrets.
    pub flag: String,
    /// The keys of the scenario that hold its value; empty where none do.
    pub keys: Vec<String>,
    /// Why it has no counterpart, or what differs.
    pub note: Option<String>,
}

/// Why a command line cannot be converted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// The tool has no such flag.
    #[error("`{flag}` is not a flag of {tool}{}", .near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// The tool.
        tool: &'static str,
        /// The flag.
        flag: String,
        /// A similar flag.
        near: Option<&'static str>,
    },
    /// A word that belongs to no flag.
    #[error("`{0}` does not belong to a flag; put a value with spaces in quotes")]
    Stray(String),
    /// A flag without its value.
    #[error("`{0}` has no value")]
    Bare(String),
    /// A value that the flag does not take.
    #[error("`{flag} {value}`: expected {expected}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// The tool has no such command.
    #[error("the command line has no command of {tool}; use one of {known}")]
    Command {
        /// The tool.
        tool: &'static str,
        /// Its commands.
        known: String,
    },
    /// An unclosed quote.
    #[error("the command line has an unclosed quote")]
    Quote,
    /// A required value is missing.
    #[error("the command line has no {0}")]
    Missing(&'static str),
    /// The scenario cannot be written as YAML.
    #[error("the scenario cannot be written: {0}")]
    Write(String),
}

/// Converts a command line of a tool. `args` may start with the tool's name and command: `evalscope perf --url …`.
///
/// # Errors
/// An unknown flag, an invalid value, or a missing required value.
pub fn import(tool: Tool, args: &[String]) -> Result<Imported, ImportError> {
    let invocation = recognize(tool, args)?;
    let mut draft = Draft::new(CommandLine::parse(tool, &invocation)?);
    draft.set("version", 1);
    (invocation.command.translate)(&mut draft)?;
    if draft.get("target/model").is_none() {
        // The tools use the server's first model; a repeatable plan names it.
        draft.set_variable("target/model", "${LLM_MODEL}");
    }
    draft.finish(tool)
}

/// Writes whole numbers without a fraction: `64`, not `64.0`.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { Value::from(value as i64) } else { Value::from(value) }
}

#[cfg(test)]
mod tests;
