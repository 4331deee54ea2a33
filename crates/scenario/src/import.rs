//! Converts command lines and plan files of other tools to scenarios. Every flag and field is translated, or listed with the
//! reason why it is not.

mod aiperf;
mod bench_serving;
mod block;
mod command;
mod draft;
mod evalscope;
mod files;
mod flags;
mod guidellm;
mod lmdeploy;
mod sglang;
mod vllm;

use crate::import::command::{Command, ToolSpec, recognize};
pub use crate::import::draft::{Account, Imported};
use crate::import::draft::{Draft, Head};
pub use crate::import::files::{FileError, FileFormat, ImportedFile, NamedScenario, import_file};
pub use crate::import::flags::ImportError;

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
    /// `python -m sglang.bench_serving`, and `sglang.bench_one_batch_server`
    Sglang,
    /// LMDeploy's `profile_generation.py`, `profile_throughput.py` and `profile_restful_api.py`
    Lmdeploy,
}

/// In the order of [`Tool`].
static SPECS: [ToolSpec; 6] = [
    ToolSpec {
        name: "evalscope",
        version: "1.14.1",
        programs: &["evalscope"],
        abbreviates: true,
        commands: &[Command::new(
            &[&["perf"]],
            evalscope::FLAGS,
            evalscope::translate,
        )],
    },
    ToolSpec {
        name: "vllm",
        version: "of late 2026",
        programs: &["vllm"],
        abbreviates: true,
        commands: &[Command::new(
            &[&["bench", "serve"]],
            vllm::FLAGS,
            vllm::translate,
        )],
    },
    ToolSpec {
        name: "aiperf",
        version: "0.13",
        programs: &["aiperf"],
        abbreviates: false,
        commands: &[Command::new(
            &[&["profile"]],
            aiperf::FLAGS,
            aiperf::translate,
        )],
    },
    ToolSpec {
        name: "guidellm",
        version: "0.8",
        programs: &["guidellm"],
        abbreviates: false,
        commands: &[Command::new(
            &[&["benchmark", "run"], &["run"], &["benchmark"]],
            guidellm::FLAGS,
            guidellm::translate,
        )],
    },
    ToolSpec {
        name: "sglang",
        version: "0.5.23",
        programs: &["sglang"],
        abbreviates: true,
        commands: sglang::COMMANDS,
    },
    ToolSpec {
        name: "lmdeploy",
        version: "0.18",
        programs: &["lmdeploy"],
        abbreviates: true,
        commands: lmdeploy::COMMANDS,
    },
];

impl Tool {
    /// Every tool.
    pub const ALL: [Tool; 6] = [
        Tool::Evalscope,
        Tool::Vllm,
        Tool::Aiperf,
        Tool::Guidellm,
        Tool::Sglang,
        Tool::Lmdeploy,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    fn spec(self) -> &'static ToolSpec {
        &SPECS[self as usize]
    }
}

/// Converts a command line of a tool. `args` may start with the tool's name and command: `evalscope perf --url …`.
///
/// # Errors
/// An unknown flag, an invalid value, or a missing required value.
pub fn import(tool: Tool, args: &[String]) -> Result<Imported, ImportError> {
    let spec = tool.spec();
    let invocation = recognize(spec, args)?;
    let mut draft = Draft::new(invocation.parse(spec)?);
    (invocation.command.translate)(&mut draft)?;
    let converted = draft.complete();
    let head = Head {
        source: &format!("a command line of {}", spec.name),
        unit: "flag",
        release: &format!("{} {}", spec.name, spec.version),
        accounts: &converted.accounts,
        defaults: &converted.defaults,
    };
    Ok(Imported {
        yaml: draft::write(&head.text(), converted.tree)?,
        accounts: converted.accounts,
    })
}

#[cfg(test)]
mod tests;
