//! Prompts that are the rows of a file.
//!
//! The file is read only as far as rows are needed, so the first prompts are available early, and memory holds
//! offsets only. Compressed files and Parquet files are unpacked into a temporary file on the way.

mod command;
mod format_detection;
mod prompts;
mod reader;
mod row;
mod row_index;
mod row_splitter;
mod scan;
mod source;
#[cfg(test)]
mod tests;

pub use format_detection::FormatOptions;
pub use prompts::FilePrompts;
pub use row::{Kind, Parse, Row, RowParser, json_problem, parse_count};
pub use source::read_text;

use super::error::PromptError;
use super::{Setting, cache, remote_data};
use llmscen_core::bounds;
use llmscen_core::dataset::CommandSpec;
use source::Origin;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Opens the file of a dataset.
pub fn open(
    kind: &'static Kind,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<FilePrompts, PromptError> {
    let (path, origin) = locate(kind, setting, notes)?;
    let parser = parser(kind, setting, path);
    let prompts = open_origin(parser, origin, setting)?;
    notes.extend(
        prompts
            .member()
            .map(|key| format!("the rows of the dataset are the elements of the list `{key}`")),
    );
    Ok(prompts)
}

/// Starts a command and opens its output.
pub fn open_command(
    kind: &'static Kind,
    spec: &CommandSpec,
    setting: &Setting<'_>,
) -> Result<FilePrompts, PromptError> {
    let name = setting.spec.path.clone().unwrap_or_default();
    let parser = parser(kind, setting, format!("`{name}`").into());
    let (process, output) = command::start(spec, &name)?;
    open_origin(parser, Origin::Printed(process, Box::new(output)), setting)
}

fn open_origin(
    parser: RowParser,
    origin: Origin,
    setting: &Setting<'_>,
) -> Result<FilePrompts, PromptError> {
    FilePrompts::start(parser, origin, setting.first, setting.seed.child("order").0)?
        .open(setting.progress)
}

fn parser(kind: &'static Kind, setting: &Setting<'_>, path: PathBuf) -> RowParser {
    RowParser {
        kind,
        spec: setting.spec.clone(),
        tokenizer: setting.tokenizer.clone(),
        path,
        format: OnceLock::new(),
    }
}

fn locate(
    kind: &Kind,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<(PathBuf, Origin), PromptError> {
    if let Some(data) = &setting.spec.remote {
        let files = remote_data::obtain(data, setting.cache, setting.progress)?;
        notes.extend(files.notes);
        return Ok((files.name, Origin::Files(files.paths)));
    }
    match (setting.spec.path.as_deref(), &kind.remote) {
        (Some("builtin"), _) => {
            let text = kind
                .builtin
                .ok_or(PromptError::NoBuiltin { kind: kind.name })?;
            Ok((PathBuf::from("builtin"), Origin::Fixed(text.as_bytes())))
        }
        (Some(path), _) => open_disk(path.as_ref()),
        (None, Some(remote)) => {
            let cached = cache::obtain(remote, setting.cache, setting.progress)?;
            notes.extend(cached.note);
            open_disk(&cached.path)
        }
        (None, None) => Err(PromptError::NoPath { kind: kind.name }),
    }
}

fn open_disk(path: &Path) -> Result<(PathBuf, Origin), PromptError> {
    Ok((path.to_owned(), Origin::Disk(open_file(path)?)))
}

fn open_file(path: &Path) -> Result<File, PromptError> {
    bounds::open_stream(path).map_err(|source| PromptError::Read {
        path: path.to_owned(),
        source,
    })
}
