//! Files of other formats, read as trees whose values have places, with errors that point into them; and the keys of
//! a scenario.

pub use crate::fault::Mistake;
pub use crate::source::is_hub_name;
pub use crate::suggest::nearest;
pub use crate::tree::{Data, Entry, Node, Span};

use crate::fault::{Faults, Review};
use crate::parse::parse;
use crate::schema_table::Kind;
use crate::sections::patch::PATCH;
use crate::sections::scenario::SCENARIO;
use llmscen_core::bounds;
use std::io;
use std::path::Path;

/// YAML and JSON files, and the errors in them.
#[derive(Debug, Default)]
pub struct Documents(Review);

impl Documents {
    /// Parses a file. None where it is neither YAML nor JSON: see [`Documents::faults`].
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&mut self, path: &Path) -> io::Result<Option<Node>> {
        let mut text = bounds::read_text(path, bounds::TEXT)?;
        if text.trim_start().starts_with(['{', '[']) {
            // In JSON tabs are blanks; YAML does not accept them as indentation.
            text = text.replace('\t', " ");
        }
        let name = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let file = self.0.sources.add(name, text.as_str(), folder);
        Ok(parse(file, 0, &text, &mut self.0).filter(|_| self.0.is_clean()))
    }

    /// The errors so far.
    pub fn faults(self) -> Faults {
        self.0.faults()
    }

    /// The errors so far, and this one.
    pub fn faults_with(mut self, mistake: Mistake) -> Faults {
        self.0.push(mistake);
        self.0.faults()
    }
}

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Keys of its own.
    Block,
    /// A single value, which a matrix can vary.
    Scalar,
    /// A list, or a value of several forms.
    Other,
}

/// The kind of a key of a scenario, by its dotted path. None: a scenario has no such key.
pub fn key_kind(path: &str) -> Option<KeyKind> {
    let kind = SCENARIO.kind_at(path)?;
    Some(match kind {
        Kind::Block(_) | Kind::OneOrMore(_) | Kind::Over(_) | Kind::Map(_) => KeyKind::Block,
        kind if kind.is_scalar() => KeyKind::Scalar,
        _ => KeyKind::Other,
    })
}

/// The position of a key among the keys of its block, in the order of the reference. None: there is no such key.
pub fn key_position(path: &str) -> Option<usize> {
    let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
    let block = match parent {
        "" => &SCENARIO,
        _ => match SCENARIO.kind_at(parent)? {
            Kind::Block(block) => block,
            _ => return None,
        },
    };
    block.fields.iter().position(|field| field.name == key)
}

/// Whether variants and workloads can set a section of a scenario.
pub fn is_patchable(section: &str) -> bool {
    PATCH.names().any(|name| name == section)
}
