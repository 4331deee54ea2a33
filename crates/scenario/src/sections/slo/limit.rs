//! A decoded limit, and where its words are.

use crate::fault::Review;
use crate::sections::condition::Condition;
use crate::tree::{Node, Span};
use llmscen_core::check::Check;

/// A decoded limit and its node.
pub(crate) struct Limit<'a> {
    pub check: Check,
    /// The cases that it is for.
    pub condition: Condition,
    pub node: &'a Node,
}

/// The span of a word in a limit, or of the whole limit where its source is escaped.
pub(super) fn word_span(limit: &Limit<'_>, word: &str, review: &Review) -> Span {
    let node = limit.node.get("expr").unwrap_or(limit.node);
    let text = &limit.check.expr;
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_');
    let is_whole_word = |start: &usize| {
        is_edge(text[..*start].chars().next_back())
            && is_edge(text[start + word.len()..].chars().next())
    };
    let found = text
        .match_indices(word)
        .map(|(start, _)| start)
        .find(is_whole_word);
    found.map_or(node.at, |start| {
        review.sources.part(node, text, start..start + word.len())
    })
}
