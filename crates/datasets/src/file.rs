//! Prompts that are the rows of a file.
//!
//! The file is read as far as its rows are needed, so the first prompts are there early, and only offsets are held in memory.
//! What is compressed, or is no text, is unpacked into a temporary file on the way.

mod command;
mod format_detection;
mod row;
mod row_splitter;
mod scan;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub use format_detection::FormatOptions;
pub use row::{Kind, Parse, Row, RowParser, count, reason};
pub use source::read_text;
pub use table::Table;

use super::error::PromptError;
use super::{Setting, cache};
use llmscen_core::bounds;
use llmscen_core::dataset::CommandSpec;
use source::Origin;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Opens the file of a kind.
pub fn open(kind: &'static Kind, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<Table, PromptError> {
    let (path, origin) = locate(kind, setting, notes)?;
    let parser = parser(kind, setting, path);
    let table = Table::start(parser, origin, setting.first, setting.seed.child("order").0)?.open(setting.progress)?;
    notes.extend(table.member().map(|key| format!("the dataset's rows are those of the list `{key}`")));
    Ok(table)
}

/// Starts a command and opens what it prints.
pub fn open_command(kind: &'static Kind, spec: &CommandSpec, setting: &Setting<'_>) -> Result<Table, PromptError> {
    let name = setting.spec.path.clone().unwrap_or_default();
    let parser = parser(kind, setting, format!("`{name}`").into());
    let origin = command::start(spec, &name)?;
    Table::start(parser, origin, setting.first, setting.seed.child("order").0)?.open(setting.progress)
}

fn parser(kind: &'static Kind, setting: &Setting<'_>, path: PathBuf) -> RowParser {
    RowParser { kind, spec: setting.spec.clone(), tokenizer: setting.tokenizer.clone(), path, format: OnceLock::new() }
}

fn locate(kind: &Kind, setting: &Setting<'_>, notes: &mut Vec<String>) -> Result<(PathBuf, Origin), PromptError> {
    match (setting.spec.path.as_deref(), &kind.remote) {
        (Some("builtin"), _) => {
            let text = kind.builtin.ok_or(PromptError::NoBuiltin { kind: kind.name })?;
            Ok((PathBuf::from("builtin"), Origin::Fixed(text.as_bytes())))
        }
        (Some(path), _) => disk(path.as_ref()),
        (None, Some(remote)) => {
            let cached = cache::obtain(remote, setting.cache, setting.progress)?;
            notes.extend(cached.note);
            disk(&cached.path)
        }
        (None, None) => Err(PromptError::NoPath { kind: kind.name }),
    }
}

fn disk(path: &Path) -> Result<(PathBuf, Origin), PromptError> {
    let file = bounds::open_stream(path).map_err(|source| PromptError::Read { path: path.to_owned(), source })?;
    Ok((path.to_owned(), Origin::Disk(file)))
}
