//! The sections of a scenario, a file each: the table of what may stand there, and how it becomes a part of a case.

pub(crate) mod baseline;
pub(crate) mod dataset;
pub(crate) mod load;
pub(crate) mod local;
pub(crate) mod mix;
pub(crate) mod reference;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod scenario;
pub(crate) mod search;
pub(crate) mod server;
pub(crate) mod simulator;
pub(crate) mod slo;
pub(crate) mod target;
pub(crate) mod telemetry;

use crate::fault::{Mistake, Review};
use crate::tree::{Entry, Node, Span};
use llmscen_core::api::Api;
use llmscen_core::labels::Labels;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// A case before it is decoded: the scenario with the values of one point of its matrix in place.
pub(crate) struct Draft<'a> {
    /// The scenario.
    pub root: &'a Node,
    /// The values of the point.
    pub labels: &'a Labels,
    /// The paths that the matrix sets, in this point or another.
    pub axes: &'a BTreeSet<String>,
}

impl<'a> Draft<'a> {
    /// The value at a path.
    pub fn get(&self, path: &str) -> Option<&'a Node> {
        self.root.get(path)
    }

    /// The entry at a path.
    pub fn entry(&self, path: &str) -> Option<&'a Entry> {
        self.root.entry_at(path)
    }

    /// The value at a path, as `parse` reads it.
    pub fn read<T>(&self, path: &str, parse: impl FnOnce(&'a Node) -> Option<T>) -> Option<T> {
        self.get(path).and_then(parse)
    }

    /// The entries at a path; none where there is no mapping.
    pub fn entries_at(&self, path: &str) -> &'a [Entry] {
        self.root.entries_at(path)
    }

    /// The items at a path; none where there is no list.
    pub fn items_at(&self, path: &str) -> &'a [Node] {
        self.root.items_at(path)
    }

    /// The text at a path.
    pub fn text(&self, path: &str) -> Option<Cow<'a, str>> {
        self.read(path, Node::text)
    }

    /// The text at a path, owned.
    pub fn string(&self, path: &str) -> Option<String> {
        self.read(path, Node::string)
    }

    /// `true` or `false` at a path.
    pub fn flag(&self, path: &str) -> Option<bool> {
        self.read(path, Node::flag)
    }

    /// The whole number at a path, where it fits the type.
    pub fn count<T: TryFrom<i64>>(&self, path: &str) -> Option<T> {
        self.read(path, Node::whole).and_then(|number| T::try_from(number).ok())
    }

    /// The file that is named at a path.
    pub fn file(&self, path: &str, review: &Review) -> Option<String> {
        let node = self.get(path)?;
        let found = review.sources.find(node.at.file, &node.text()?)?;
        Some(found.display().to_string())
    }

    /// The entry at a path, where somebody wrote it; a default is none.
    pub fn written(&self, path: &str) -> Option<&'a Entry> {
        self.entry(path).filter(|entry| entry.is_written())
    }

    /// The protocol.
    pub fn api(&self) -> Option<Api> {
        let name = self.text("target.api")?;
        // Here it only remains where the matrix sets it; what the built-in server speaks then is chat.
        if name == target::SIMULATOR { Some(Api::OpenaiChat) } else { Api::parse(&name) }
    }

    /// The mistake, and the place of the protocol where one was written.
    pub fn also_api(&self, mistake: Mistake, label: &str) -> Mistake {
        mistake.also_if(self.written("target.api").map(|entry| entry.value.at), label)
    }

    /// Whether the matrix sets that path, in this case or another: then what belongs to the others may stand beside it.
    pub fn swept(&self, path: &str) -> bool {
        self.axes.contains(path)
    }

    /// The entry of a key of `dataset`, which may be that of an entry of the mix.
    pub fn dataset_entry(&self, key: &str) -> Option<&'a Entry> {
        let own = self.root.get("dataset").and_then(|data| data.entry_at(key));
        match self.get("mix").map(Node::items) {
            None | Some([]) => own,
            Some(mix) => mix.iter().find_map(|item| match item.get("dataset") {
                Some(data) => data.entry_at(key),
                None => own,
            }),
        }
    }

    /// Where a section's key stands, or where the scenario begins.
    pub fn place(&self, path: &str) -> Span {
        self.entry(path).map_or(self.root.at.before(), |entry| entry.key_at)
    }
}
