//! The sections of a scenario, a file each: the table of what may stand there, and how it becomes a part of a case.

pub(crate) mod audit;
pub(crate) mod dataset;
pub(crate) mod load;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod scenario;
pub(crate) mod simulator;
pub(crate) mod slo;
pub(crate) mod target;

use crate::model::labels::Labels;
use crate::scenario::tree::{Entry, Node, Span};
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

    /// The text at a path.
    pub fn text(&self, path: &str) -> Option<Cow<'a, str>> {
        self.get(path).and_then(Node::text)
    }

    /// Whether the matrix sets that path, in this case or another: then what belongs to the others may stand beside it.
    pub fn swept(&self, path: &str) -> bool {
        self.axes.contains(path)
    }

    /// Where a section's key stands, or where the scenario begins.
    pub fn place(&self, path: &str) -> Span {
        self.entry(path).map_or(Span { end: self.root.at.start, ..self.root.at }, |entry| entry.key_at)
    }
}
