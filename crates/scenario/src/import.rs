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

impl Tool {
    /// Every tool.
    pub const ALL: [Tool; 6] = [Tool::Evalscope, Tool::Vllm, Tool::Aiperf, Tool::Guidellm, Tool::Sglang, Tool::Lmdeploy];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Evalscope => "evalscope",
            Tool::Vllm => "vllm",
            Tool::Aiperf => "aiperf",
            Tool::Guidellm => "guidellm",
            Tool::Sglang => "sglang",
            Tool::Lmdeploy => "lmdeploy",
        }
    }

    /// The release whose flags and defaults are implemented.
    fn version(self) -> &'static str {
        match self {
            Tool::Evalscope => "1.14.1",
            Tool::Vllm => "of late 2026",
            Tool::Aiperf => "0.13",
            Tool::Guidellm => "0.8",
            Tool::Sglang => "0.5.23",
            Tool::Lmdeploy => "0.18",
        }
    }

    /// Programs, modules and scripts that start its command lines.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Tool::Evalscope => &["evalscope"],
            Tool::Vllm => &["vllm"],
            Tool::Aiperf => &["aiperf"],
            Tool::Guidellm => &["guidellm"],
            Tool::Sglang => &["sglang", "sglang.bench_serving", "sglang.benchmark.serving", "bench_serving.py", "serving.py"],
            Tool::Lmdeploy => &["lmdeploy"],
        }
    }

    /// Whether its parser accepts unique prefixes of flags, as Python's argparse does.
    fn abbreviates(self) -> bool {
        matches!(self, Tool::Evalscope | Tool::Vllm | Tool::Sglang | Tool::Lmdeploy)
    }

    /// Its commands, for an error message.
    fn usage(self) -> String {
        let names = self.commands().iter().filter_map(|command| command.names.first());
        names.map(|name| name.join(" ")).collect::<Vec<_>>().join(", ")
    }

    fn commands(self) -> &'static [Command] {
        match self {
            Tool::Evalscope => {
                &[Command { names: &[&["perf"]], positional: &[], flags: evalscope::FLAGS, translate: evalscope::translate }]
            }
            Tool::Vllm => {
                &[Command { names: &[&["bench", "serve"]], positional: &[], flags: vllm::FLAGS, translate: vllm::translate }]
            }
            Tool::Aiperf => {
                &[Command { names: &[&["profile"]], positional: &[], flags: aiperf::FLAGS, translate: aiperf::translate }]
            }
            Tool::Guidellm => &[Command {
                names: &[&["benchmark", "run"], &["run"], &["benchmark"]],
                positional: &[],
                flags: guidellm::FLAGS,
                translate: guidellm::translate,
            }],
            Tool::Sglang => {
                &[Command { names: &[&["bench_serving"]], positional: &[], flags: sglang::FLAGS, translate: sglang::translate }]
            }
            Tool::Lmdeploy => lmdeploy::COMMANDS,
        }
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
