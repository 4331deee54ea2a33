//! Mistakes with several places, and those with none.

use super::{Fault, Mistake};
use crate::source::Sources;
use crate::tree::Span;
use std::collections::HashMap;

/// A variable without a value is one mistake, however many places use it.
pub(super) fn join_variables(mistakes: Vec<Mistake>) -> Vec<Mistake> {
    let mut joined: Vec<Mistake> = Vec::new();
    let mut first: HashMap<String, usize> = HashMap::new();
    for mistake in mistakes {
        match mistake.variable.as_ref().and_then(|name| first.get(name)) {
            Some(index) => joined[*index].again.push(mistake.at),
            None => {
                first.extend(mistake.variable.clone().map(|name| (name, joined.len())));
                joined.push(mistake);
            }
        }
    }
    joined
}

/// Where a mistake with several places is: lines of its own file, other files with their lines.
pub(super) fn repeated(mistake: &Mistake, sources: &Sources) -> String {
    let spans: Vec<Span> = std::iter::once(mistake.at).chain(mistake.again.iter().copied()).collect();
    let place = |at: &Span| {
        let line = sources.place(*at).0;
        if at.file == mistake.at.file { format!("line {line}") } else { format!("{}:{line}", sources.name(at.file)) }
    };
    let mut places: Vec<String> = spans.iter().map(place).collect();
    places.dedup();
    format!("Used in {} places: {}.", spans.len(), places.join(", "))
}

/// The message and the help of a fault of the command line, which has no text to point at.
pub(super) fn plain(fault: &Fault, color: bool) -> String {
    let word = if color { "\u{1b}[1;31merror\u{1b}[0m" } else { "error" };
    let help = fault.help.iter().flat_map(|help| help.lines()).map(|line| format!("  help: {line}\n"));
    format!("{word}: {}\n{}", fault.message, help.collect::<String>())
}
