//! The files that a scenario names: reads them, and reports those that are missing or not text.

use crate::fault::{Mistake, Review};
use crate::parse::parse;
use crate::source::ReadError;
use crate::suggest::nearest;
use crate::tree::{Data, Node, Span};
use std::path::{Path, PathBuf};

/// A kind of mapping that a scenario has in itself or in a file.
pub(crate) struct MappingKind {
    /// The name of its text in errors.
    source: &'static str,
    noun: &'static str,
    help: &'static str,
}

/// The body of a request.
pub(crate) static BODY: MappingKind = MappingKind {
    source: "template",
    noun: "a request body",
    help: "A template is JSON or YAML, such as {\"model\": \"%m\", \"prompt\": \"%p\"}.",
};

/// A JSON Schema.
pub(crate) static SCHEMA: MappingKind = MappingKind {
    source: "schema",
    noun: "a JSON Schema",
    help: "A schema is JSON or YAML, such as {\"type\": \"object\", \"required\": [\"name\"]}.",
};

/// A mapping is used unchanged, a text that starts with `{` is JSON, any other is a file name.
pub(crate) fn mapping(node: &Node, kind: &MappingKind, review: &mut Review) -> Option<Node> {
    let Data::Text(text) = &node.data else {
        return Some(node.clone());
    };
    let file = if text.trim_start().starts_with('{') {
        let name = format!("{} ({})", review.sources.name(node.at.file), kind.source);
        review.sources.add(name, text.as_str(), PathBuf::new())
    } else {
        read(node.at, text, review)?
    };
    let text = review.sources.text(file);
    let body = parse(file, 0, &text, review)?;
    if !matches!(body.data, Data::Map(_)) {
        let mistake = Mistake::new(
            head(&body, &text),
            format!("{} is a mapping", kind.noun),
            format!("this is {}", body.noun()),
        );
        review.push(mistake.help(kind.help));
        return None;
    }
    Some(body)
}

/// The text, or the content of `@file`.
pub(crate) fn at_file(node: &Node, review: &mut Review) -> Option<String> {
    let text = node.text()?;
    match text.strip_prefix('@') {
        None => Some(text.into_owned()),
        Some(named) => {
            read(node.at, named, review).map(|file| review.sources.text(file).to_string())
        }
    }
}

/// The absolute path of a file. Reports a missing one.
pub(crate) fn find_file(at: Span, named: &str, review: &mut Review) -> Option<PathBuf> {
    let found = review.sources.find(at.file, named);
    if found.is_none() {
        review.push(no_file(at, named, review));
    }
    found
}

fn read(at: Span, named: &str, review: &mut Review) -> Option<usize> {
    let path = find_file(at, named, review)?;
    let display_name = review.sources.display_path(at.file, named, &path);
    load(at, &path, &display_name, review)
}

/// Reads a file that is named at `at`.
pub(crate) fn load(at: Span, path: &Path, named: &str, review: &mut Review) -> Option<usize> {
    let mistake = match review.sources.read(path, named) {
        Ok(file) => return Some(file),
        Err(ReadError::Io(error)) => {
            Mistake::new(at, format!("cannot read `{named}`: {error}"), "named here")
        }
        Err(ReadError::NotText(what)) => {
            let help = "Save the file as UTF-8.";
            Mistake::new(
                at,
                format!("`{named}` is {what}, not UTF-8 text"),
                "named here",
            )
            .help(help)
        }
        Err(ReadError::NotUtf8(at)) => {
            let help = "Save the file as UTF-8.";
            Mistake::new(at, "this file is not UTF-8", "the first invalid byte").help(help)
        }
    };
    review.push(mistake);
    None
}

/// The error of a missing file.
pub(crate) fn no_file(at: Span, named: &str, review: &Review) -> Mistake {
    let names = review.sources.siblings(at.file, named);
    let label = match nearest(named, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "no such file".to_owned(),
    };
    let mistake = Mistake::new(at, format!("`{named}` not found"), label);
    review
        .sources
        .looked_in(at.file, named)
        .into_iter()
        .fold(mistake, Mistake::help)
}

/// The first line of a value: a long text is not underlined completely.
fn head(node: &Node, text: &str) -> Span {
    let slice = text.get(node.at.range()).unwrap_or("");
    let length = slice.lines().next().map_or(0, str::len);
    Span {
        end: node.at.start + length,
        ..node.at
    }
}
