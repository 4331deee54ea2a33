//! The source text of an error, cut to what a terminal can show.

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};
use std::ops::Range;
use std::sync::Arc;

/// Longest line that is shown in full, in bytes.
const WIDEST: usize = 400;
/// Bytes shown before and after the place in a longer line.
const AROUND: usize = 60;
/// Longest underline, in bytes and lines.
const LONGEST: (usize, usize) = (2000, 20);
/// Longest message, in characters.
const MESSAGE: usize = 400;
/// Longest help in characters; it may list all keys of a section.
const HELP: usize = 4000;

#[derive(Clone, Debug)]
pub(super) struct Page {
    name: String,
    text: Arc<str>,
}

impl Page {
    pub fn new(name: &str, text: Arc<str>) -> Page {
        Page {
            name: name.to_owned(),
            text,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl SourceCode for Page {
    /// Shows only a part of a long line, because miette pads columns with a 16-bit width.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let text = &*self.text;
        let contents = text.read_span(span, before, after)?;
        let mut range = contents.span().offset()..contents.span().offset() + contents.data().len();
        let mut line = contents.line();
        if contents
            .data()
            .split(|byte| *byte == b'\n')
            .any(|line| line.len() > WIDEST)
        {
            let start = span.offset().min(text.len());
            let end = (span.offset() + span.len()).min(text.len());
            let line_start = text.as_bytes()[..start]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let line_end = text.as_bytes()[end..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map_or(text.len(), |at| end + at);
            let from = text
                .floor_char_boundary(start.saturating_sub(AROUND))
                .max(line_start);
            let to = text
                .ceil_char_boundary((end + AROUND).min(text.len()))
                .min(line_end);
            line += text.as_bytes()[range.start.min(from)..from]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            range = from..to;
        }
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            &text.as_bytes()[range.clone()],
            (range.start, range.len()).into(),
            line,
            contents.column(),
            contents.line_count(),
        )))
    }
}

/// The underlined part of a range: where that is too long, the start of its first line.
pub(super) fn clipped(text: &str, range: Range<usize>) -> Range<usize> {
    let Some(part) = text.get(range.clone()) else {
        let at = text.floor_char_boundary(range.start.min(text.len()));
        return at..at;
    };
    let longest = part.split('\n').map(str::len).max().unwrap_or(0);
    if longest <= WIDEST && part.len() <= LONGEST.0 && part.matches('\n').count() < LONGEST.1 {
        return range;
    }
    let first = part
        .split('\n')
        .next()
        .unwrap_or(part)
        .trim_end_matches('\r');
    range.start..range.start + text_end(first, AROUND)
}

/// Whether two places can be shown in one snippet, which must not contain a long line.
pub(super) fn fits_snippet(text: &str, one: Range<usize>, other: Range<usize>) -> bool {
    const LINES: usize = 5;
    let (low, high) = if one.start <= other.start {
        (one, other)
    } else {
        (other, one)
    };
    let end = high.start.clamp(low.end, low.end + LINES * (WIDEST + 1));
    text.as_bytes()[low.end..end]
        .split(|byte| *byte == b'\n')
        .take(LINES)
        .all(|line| line.len() <= WIDEST)
}

fn text_end(text: &str, most: usize) -> usize {
    text.floor_char_boundary(most.min(text.len()))
}

/// Cuts a message that quotes a long text.
pub(super) fn shortened(text: String) -> String {
    cut(text, MESSAGE)
}

/// Cuts a help text.
pub(super) fn shortened_help(text: String) -> String {
    cut(text, HELP)
}

fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
