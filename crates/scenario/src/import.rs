//! Converts command lines of other tools to scenarios. Every flag is translated, or listed with the reason why it is not.

mod aiperf;
mod bench_serving;
mod command;
mod draft;
mod evalscope;
mod flags;
mod guidellm;
mod lmdeploy;
mod sglang;
mod vllm;

use crate::import::command::{Command, ToolSpec, recognize};
use crate::import::draft::Draft;
pub use crate::import::draft::{Account, Imported};
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
    /// `python -m sglang.bench_serving`
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
        programs: &[
            "sglang",
            "sglang.bench_serving",
            "sglang.benchmark.serving",
            "bench_serving.py",
            "serving.py",
        ],
        abbreviates: true,
        commands: &[Command::new(
            &[&["bench_serving"]],
            sglang::FLAGS,
            sglang::translate,
        )],
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
    draft.set("version", 1);
    (invocation.command.translate)(&mut draft)?;
    if draft.get("target/model").is_none() {
        // The tools use the server's first model; a repeatable plan names it.
        draft.set_variable("target/model", "${LLM_MODEL}");
    }
    draft.finish(spec.name, spec.version)
}

#[cfg(test)]
mod tests;
