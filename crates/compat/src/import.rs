//! Converts command lines and plan files of other tools to scenarios. Every flag and field is translated, or listed
//! with the reason why it is not.

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
mod tools;
mod vllm;

use crate::import::command::{ToolSpec, recognize};
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

/// Translates the flags of a command to a scenario.
type Translate = fn(&mut Draft) -> Result<(), ImportError>;

/// The translation of this name in a file of `tools`.
fn translation(name: &str) -> Option<Translate> {
    Some(match name {
        "evalscope" => evalscope::translate,
        "vllm" => vllm::translate,
        "aiperf" => aiperf::translate,
        "guidellm" => guidellm::translate,
        "sglang" => sglang::translate,
        "sglang_batch" => sglang::translate_batch,
        "lmdeploy_generation" => lmdeploy::translate_generation,
        "lmdeploy_throughput" => lmdeploy::translate_throughput,
        "lmdeploy_restful" => lmdeploy::translate_restful,
        "inference_perf" => files::translate_inference_perf,
        _ => return None,
    })
}

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
        &self.spec().name
    }

    fn spec(self) -> &'static ToolSpec {
        &tools::tools()[self as usize]
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
    invocation.command.apply(&mut draft)?;
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
