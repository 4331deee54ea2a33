//! What the parser cannot read, in words that say what to type.

use crate::scenario::fault::{Mistake, Review};
use crate::scenario::tree::Span;
use granit_parser::{ErrorKind, ScanError};

/// The mistake behind a parser's error in `text`, which begins at byte `shift` of the source `file`.
pub(super) fn mistake(error: &ScanError, (file, shift, text): (usize, usize, &str), review: &Review) -> Mistake {
    let offset = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let length = text[offset..].chars().next().map_or(0, char::len_utf8);
    let at = Span { file, start: shift + offset, end: shift + offset + length };
    let language = if review.sources.name(file).ends_with(".json") { "JSON" } else { "YAML" };
    let mistake = Mistake::new(at, format!("this is not {language}: {}", error.info()), "the reader stopped here");
    match error.kind() {
        ErrorKind::TabInBlockIndentation => mistake.help("Indent with spaces; YAML does not allow tabs there."),
        ErrorKind::UnexpectedCharacter { character } => mistake.help(format!("Quote text that begins with `{character}`.")),
        ErrorKind::MappingValueNotAllowed => mistake.help("Quote text that holds `: `."),
        ErrorKind::UnknownAnchor => mistake.help("An alias `*name` needs an anchor `&name` above it."),
        ErrorKind::UnclosedFlowCollection { .. } => mistake.help("Close this bracket."),
        _ => mistake,
    }
}
