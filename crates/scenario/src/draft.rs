//! A case before it is decoded.

use crate::fault::{Mistake, Review};
use crate::schema_table::Block;
use crate::tree::{Entry, Node, Span};
use crate::values::target::{SIMULATOR, check_header_name};
use llmscen_core::api::Api;
use llmscen_core::label::Labels;
use llmscen_core::redact::Secret;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Headers. Reports invalid ones.
pub(crate) fn headers(entries: &[Entry], review: &mut Review) -> Vec<(String, Secret)> {
    for entry in entries {
        check_header_name(&entry.key, entry.key_at, review);
        if entry
            .value
            .text()
            .is_some_and(|value| value.chars().any(char::is_control))
        {
            review.push(Mistake::new(
                entry.value.at,
                "this header value contains control characters",
                "must be one line",
            ));
        }
    }
    entries
        .iter()
        .filter_map(|entry| Some((entry.key.clone(), Secret::new(entry.value.text()?))))
        .collect()
}

/// A case before it is decoded: the scenario with the values of one point of the matrix.
pub(crate) struct Draft<'a> {
    pub root: &'a Node,
    /// The table of its keys.
    pub table: &'static Block,
    /// The values of the point.
    pub labels: &'a Labels,
    /// All paths that the matrix sets.
    pub axes: &'a BTreeSet<String>,
}

impl<'a> Draft<'a> {
    pub fn get(&self, path: &str) -> Option<&'a Node> {
        self.root.get(path)
    }

    pub fn entry(&self, path: &str) -> Option<&'a Entry> {
        self.root.entry_at(path)
    }

    pub fn read<T>(&self, path: &str, parse: impl FnOnce(&'a Node) -> Option<T>) -> Option<T> {
        self.get(path).and_then(parse)
    }

    pub fn entries_at(&self, path: &str) -> &'a [Entry] {
        self.root.entries_at(path)
    }

    pub fn items_at(&self, path: &str) -> &'a [Node] {
        self.root.items_at(path)
    }

    pub fn text(&self, path: &str) -> Option<Cow<'a, str>> {
        self.read(path, Node::text)
    }

    pub fn string(&self, path: &str) -> Option<String> {
        self.read(path, Node::string)
    }

    pub fn flag(&self, path: &str) -> Option<bool> {
        self.read(path, Node::flag)
    }

    /// The whole number at a path, if it fits the type.
    pub fn count<T: TryFrom<i64>>(&self, path: &str) -> Option<T> {
        self.read(path, Node::integer)
            .and_then(|number| T::try_from(number).ok())
    }

    /// The absolute path of a file.
    pub fn file(&self, path: &str, review: &Review) -> Option<String> {
        let node = self.get(path)?;
        let found = review.sources.find(node.at.file, &node.text()?)?;
        Some(found.display().to_string())
    }

    /// The headers at a path. Reports invalid ones.
    pub fn headers(&self, path: &str, review: &mut Review) -> Vec<(String, Secret)> {
        headers(self.entries_at(path), review)
    }

    /// The entry at a path, unless it is a default.
    pub fn written(&self, path: &str) -> Option<&'a Entry> {
        self.entry(path).filter(|entry| entry.is_written())
    }

    pub fn api(&self) -> Option<Api> {
        let name = self.text("target.api")?;
        // `simulator` only remains where the matrix sets it; its default protocol is chat.
        if name == SIMULATOR {
            Some(Api::OpenaiChat)
        } else {
            Api::parse(&name)
        }
    }

    /// Adds the place of `target.api`, where it is written.
    pub fn also_api(&self, mistake: Mistake, label: &str) -> Mistake {
        mistake.also_if(
            self.written("target.api").map(|entry| entry.value.at),
            label,
        )
    }

    /// Whether the matrix sets a path: then keys for its other values may be present.
    pub fn is_swept(&self, path: &str) -> bool {
        self.axes.contains(path)
    }

    /// The entry of a key of `dataset`, or of that of a mix entry.
    pub fn dataset_entry(&self, key: &str) -> Option<&'a Entry> {
        let common = self.root.get("dataset").and_then(|data| data.entry_at(key));
        match self.get("mix").map(Node::items) {
            None | Some([]) => common,
            Some(mix) => mix.iter().find_map(|item| match item.get("dataset") {
                Some(data) => data.entry_at(key),
                None => common,
            }),
        }
    }

    /// The span of a key, or the start of the scenario.
    pub fn key_span(&self, path: &str) -> Span {
        self.entry(path)
            .map_or(self.root.at.before(), |entry| entry.key_at)
    }
}
