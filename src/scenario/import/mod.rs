//! Other tools' command lines as scenarios: every flag is translated, or named with the reason why nothing stands for it.

mod aiperf;
mod draft;
mod evalscope;
mod guidellm;
mod line;
mod text;
mod vllm;

use draft::Draft;
use line::{Flag, Line};
use serde_json::Value;

/// A tool whose command lines are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `evalscope perf`
    Evalscope,
    /// `vllm bench serve`
    Vllm,
    /// `aiperf profile`
    Aiperf,
    /// `guidellm run`, and `guidellm benchmark` of before
    Guidellm,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Tool; 4] = [Tool::Evalscope, Tool::Vllm, Tool::Aiperf, Tool::Guidellm];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Tool::Evalscope => "evalscope",
            Tool::Vllm => "vllm",
            Tool::Aiperf => "aiperf",
            Tool::Guidellm => "guidellm",
        }
    }

    /// The words with which its commands begin, itself left out; longer ones first.
    fn commands(self) -> &'static [&'static [&'static str]] {
        match self {
            Tool::Evalscope => &[&["perf"]],
            Tool::Vllm => &[&["bench", "serve"]],
            Tool::Aiperf => &[&["profile"]],
            Tool::Guidellm => &[&["benchmark", "run"], &["run"], &["benchmark"]],
        }
    }

    fn flags(self) -> &'static [&'static [Flag]] {
        match self {
            Tool::Evalscope => evalscope::FLAGS,
            Tool::Vllm => vllm::FLAGS,
            Tool::Aiperf => aiperf::FLAGS,
            Tool::Guidellm => guidellm::FLAGS,
        }
    }

    fn translate(self, draft: &mut Draft) -> Result<(), ImportError> {
        match self {
            Tool::Evalscope => evalscope::translate(draft),
            Tool::Vllm => vllm::translate(draft),
            Tool::Aiperf => aiperf::translate(draft),
            Tool::Guidellm => guidellm::translate(draft),
        }
    }
}

/// A command line as a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The scenario, with the command line and what became of each flag as comments at its head.
    pub yaml: String,
    /// What became of each flag, in the order of the command line.
    pub accounts: Vec<Account>,
}

/// What became of one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The flag with its values, secrets left out.
    pub flag: String,
    /// The keys of the scenario that say it now; empty where none do.
    pub keys: Vec<String>,
    /// Why nothing stands for it, or what differs.
    pub note: Option<String>,
}

/// Why a command line cannot be taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ImportError {
    /// A flag that the tool is not known to have.
    #[error("`{flag}` is no flag of {tool}{}", .near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    Unknown {
        /// The tool.
        tool: &'static str,
        /// The flag.
        flag: String,
        /// One that it has.
        near: Option<&'static str>,
    },
    /// A word that belongs to no flag.
    #[error("`{0}` belongs to no flag; a value with spaces stands in quotes")]
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
    /// Something that no scenario can do without.
    #[error("the command line has no {0}")]
    Missing(&'static str),
    /// The scenario cannot be written as YAML.
    #[error("the scenario cannot be written: {0}")]
    Write(String),
}

/// Translates a tool's command line. `args` may begin with the tool's own name and command: `evalscope perf --url …`.
///
/// # Errors
/// A flag that the tool does not have, a value that it does not take, or a command line that asks for nothing.
pub fn import(tool: Tool, args: &[String]) -> Result<Imported, ImportError> {
    let args = without_command(tool, args);
    let mut draft = Draft::new(Line::parse(tool, args)?);
    draft.put("version", 1);
    tool.translate(&mut draft)?;
    if draft.get("target/model").is_none() {
        // The tools ask the server for its first model; a plan that others shall repeat names it.
        draft.refer("target/model", "${LLM_MODEL}");
    }
    draft.finish(tool)
}

fn without_command(tool: Tool, args: &[String]) -> &[String] {
    let rest = args.strip_prefix(&[tool.name().to_owned()]).unwrap_or(args);
    let begins = |words: &&&[&str]| rest.len() >= words.len() && rest.iter().zip(words.iter()).all(|(own, word)| own == word);
    let words = tool.commands().iter().find(begins).map_or(0, |words| words.len());
    rest.get(words..).unwrap_or_default()
}

/// A whole number as such, anything else as it is: `64` and not `64.0`.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { Value::from(value as i64) } else { Value::from(value) }
}

#[cfg(test)]
mod tests;
