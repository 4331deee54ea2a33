//! Request bodies and prompts that stand in files of their own.

use crate::fault::{Mistake, Review};
use crate::parse::parse;
use crate::source::ReadError;
use crate::tree::{Data, Node, Span};
use crate::validate::no_file;
use std::path::{Path, PathBuf};

/// The body that a template names or is: a mapping stays, a text that begins with `{` is JSON, any other names a file.
pub(crate) fn body(node: &Node, review: &mut Review) -> Option<Node> {
    let Data::Text(text) = &node.data else { return Some(node.clone()) };
    let file = if text.trim_start().starts_with('{') {
        let name = format!("{} (template)", review.sources.name(node.at.file));
        review.sources.add(name, text.as_str(), PathBuf::new())
    } else {
        read(node.at, text, review)?
    };
    let text = review.sources.text(file);
    let body = parse(file, 0, &text, review)?;
    if !matches!(body.data, Data::Map(_)) {
        let mistake = Mistake::new(head(&body, &text), "a request body is a mapping", format!("this is {}", body.noun()));
        review.push(mistake.help("A template is JSON or YAML, such as {\"model\": \"%m\", \"prompt\": \"%p\"}."));
        return None;
    }
    Some(body)
}

/// The text itself, or what is in the file that `@file` names.
pub(crate) fn at_file(node: &Node, review: &mut Review) -> Option<String> {
    let text = node.text()?;
    match text.strip_prefix('@') {
        None => Some(text.into_owned()),
        Some(named) => read(node.at, named, review).map(|file| review.sources.text(file).to_string()),
    }
}

fn read(at: Span, named: &str, review: &mut Review) -> Option<usize> {
    let Some(path) = review.sources.find(at.file, named) else {
        let mistake = no_file(at, named, review);
        review.push(mistake);
        return None;
    };
    let shown = review.sources.shown(at.file, named, &path);
    load(at, &path, &shown, review)
}

/// Reads a file that is called `named` at `at`.
pub(crate) fn load(at: Span, path: &Path, named: &str, review: &mut Review) -> Option<usize> {
    let mistake = match review.sources.read(path, named) {
        Ok(file) => return Some(file),
        Err(ReadError::Io(error)) => Mistake::new(at, format!("cannot read `{named}`: {error}"), "named here"),
        Err(ReadError::NotText(what)) => {
            let help = "Save the file as UTF-8.";
            Mistake::new(at, format!("`{named}` is {what}, not UTF-8 text"), "named here").help(help)
        }
        Err(ReadError::NotUtf8(at)) => {
            let help = "Save the file as UTF-8.";
            Mistake::new(at, "this file is not UTF-8", "the first byte that is not").help(help)
        }
    };
    review.push(mistake);
    None
}

/// The first line of a value: a long text is not underlined as a whole.
fn head(node: &Node, text: &str) -> Span {
    let slice = text.get(node.at.range()).unwrap_or("");
    let length = slice.lines().next().map_or(0, str::len);
    Span { end: node.at.start + length, ..node.at }
}
