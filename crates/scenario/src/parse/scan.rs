//! Explains syntax errors of YAML.
//!
//! The parser reports where it stopped, which is often after the cause: a line with one space too many continues the
//! text above it. The surrounding lines show what was meant.

use crate::fault::{Mistake, Review};
use crate::tree::Span;
use granit_parser::{ErrorKind, ScanError};
use serde_json::Value;

/// The error for a parser error in `text`, which starts at byte `shift` of the source `file`.
pub(super) fn mistake(
    error: &ScanError,
    file: usize,
    shift: usize,
    text: &str,
    review: &Review,
) -> Mistake {
    let page = Page {
        file,
        shift,
        text,
        json: review.sources.name(file).ends_with(".json"),
    };
    if let Some(mistake) = page.json_error() {
        return mistake;
    }
    let offset = error.marker().byte_offset().unwrap_or(0).min(text.len());
    page.explain(error.kind(), offset).unwrap_or_else(|| {
        let length = text[offset..].chars().next().map_or(0, char::len_utf8);
        page.mistake(
            offset..offset + length,
            &error.info().replace('\'', "`"),
            "the parser stopped here",
        )
    })
}

struct Page<'t> {
    file: usize,
    shift: usize,
    text: &'t str,
    json: bool,
}

/// A line that is not empty.
#[derive(Clone, Copy)]
struct Line<'t> {
    /// From 1.
    number: usize,
    /// First byte.
    start: usize,
    /// Without the line end.
    text: &'t str,
}

impl<'t> Line<'t> {
    fn indent(&self) -> usize {
        self.text.len() - self.text.trim_start_matches(' ').len()
    }

    /// The text without indentation, list dash and comment.
    fn content(&self) -> &'t str {
        let text = self.text.trim();
        let text = text.strip_prefix("- ").unwrap_or(text).trim_start();
        text.split(" #").next().unwrap_or(text).trim_end()
    }

    /// The key of the line, and what follows the colon.
    fn key(&self) -> Option<(&'t str, &'t str)> {
        let (key, rest) = self.content().split_once(':')?;
        let plain = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        (!key.is_empty() && key.chars().all(plain)).then_some((key, rest))
    }

    fn name(&self) -> &'t str {
        self.key().map_or(self.content(), |(key, _)| key)
    }

    fn at(&self, part: &str) -> std::ops::Range<usize> {
        let start = self.start + (part.as_ptr() as usize - self.text.as_ptr() as usize);
        start..start + part.len()
    }
}

impl<'t> Page<'t> {
    fn mistake(
        &self,
        range: std::ops::Range<usize>,
        what: &str,
        label: impl Into<String>,
    ) -> Mistake {
        let at = Span {
            file: self.file,
            start: self.shift + range.start,
            end: self.shift + range.end,
        };
        Mistake::new(
            at,
            format!(
                "invalid {}: {what}",
                if self.json { "JSON" } else { "YAML" }
            ),
            label,
        )
    }

    /// The error of a bracket too many in JSON, behind which YAML goes on.
    fn json_error(&self) -> Option<Mistake> {
        let error = serde_json::from_str::<Value>(self.text).err();
        let is_end =
            |error: &serde_json::Error| error.to_string().starts_with("trailing characters");
        let error = error.filter(|error| self.json && is_end(error))?;
        let lines = self
            .text
            .split_inclusive('\n')
            .take(error.line().saturating_sub(1));
        let offset = lines.map(str::len).sum::<usize>() + error.column().saturating_sub(1);
        let offset = self.text.floor_char_boundary(offset.min(self.text.len()));
        let length = self.text[offset..].chars().next().map_or(0, char::len_utf8);
        let what = "text after the end of the value";
        let mistake = self.mistake(offset..offset + length, what, "the value has ended");
        Some(mistake.help("Remove a bracket too many before this."))
    }

    /// The lines up to the one of a byte, without empty ones and comments.
    fn lines(&self, offset: usize) -> Vec<Line<'t>> {
        let mut start = 0;
        let mut lines = Vec::new();
        for (index, text) in self.text.split('\n').enumerate() {
            if start > offset {
                break;
            }
            let line = Line {
                number: index + 1,
                start,
                text: text.trim_end_matches('\r'),
            };
            start += text.len() + 1;
            if !line.text.trim().is_empty() && !line.text.trim_start().starts_with('#') {
                lines.push(line);
            }
        }
        lines
    }

    fn explain(&self, kind: &ErrorKind, offset: usize) -> Option<Mistake> {
        let lines = self.lines(offset);
        let line = lines.last().copied();
        if let Some(directive) = line.filter(|line| line.text.starts_with('%')) {
            let mistake = self.mistake(
                directive.at(&directive.text[..1]),
                "a line begins with `%`",
                "starts a directive in YAML",
            );
            return Some(mistake.help("Quote text that begins with `%`."));
        }
        let next = self.text[offset..].chars().next();
        match kind {
            ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation
            | ErrorKind::TabNotAllowed => {
                let tab = line.and_then(|line| Some(line.start + line.text.find('\t')?));
                Some(self.tab(tab.unwrap_or(offset)))
            }
            ErrorKind::UnexpectedCharacter { character } => {
                let at = offset..offset + next.map_or(0, char::len_utf8);
                let mistake = self.mistake(
                    at,
                    &format!("a value begins with `{character}`"),
                    "reserved in YAML",
                );
                Some(mistake.help(format!("Quote text that begins with `{character}`.")))
            }
            ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => {
                let word = self.text[offset..]
                    .split([' ', ',', '\n', '\r', ']', '}'])
                    .next()
                    .unwrap_or("");
                let sign = next.unwrap_or('*');
                let mistake = self.mistake(
                    offset..offset + word.len(),
                    &format!("unknown alias `{word}`"),
                    "no such anchor",
                );
                Some(
                    mistake.help(format!(
                        "Quote text that begins with `{sign}`. An alias `*name` needs an anchor `&name` above it."
                    )),
                )
            }
            // Where `}` closes a `[`, the parser reports the outer bracket.
            ErrorKind::UnclosedFlowCollection { .. }
            | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
                let last = self
                    .open_at(self.text.len())
                    .filter(|(_, sign)| ['{', '['].contains(sign));
                last.or_else(|| self.open_at(offset))
                    .map(|(open, sign)| self.not_closed(open, sign))
            }
            ErrorKind::UnclosedQuotedScalar
            | ErrorKind::DocumentIndicatorInQuotedScalar
            | ErrorKind::InvalidQuotedScalarIndent => {
                let quote = |end| {
                    self.open_at(end)
                        .filter(|(_, sign)| ['"', '\''].contains(sign))
                };
                quote(offset)
                    .or_else(|| quote(self.text.len()))
                    .map(|(open, sign)| self.not_closed(open, sign))
            }
            ErrorKind::InvalidTrailingSingleQuotedScalar
            | ErrorKind::InvalidTrailingDoubleQuotedScalar => self.trailing(offset),
            // A tab is space within a line, so a parser may stop behind it for another reason.
            _ => match line.filter(|line| line.text.starts_with('\t')) {
                Some(line) => Some(self.tab(line.start)),
                None => self.bracket(offset).or_else(|| self.layout(&lines, offset)),
            },
        }
    }

    fn tab(&self, at: usize) -> Mistake {
        self.mistake(at..at + 1, "a tab in the indentation", "a tab")
            .help("Indent with spaces: YAML does not allow tabs there.")
    }

    /// Text after a closing quote. If the quoted text spans lines, the quote of the first line is missing.
    fn trailing(&self, offset: usize) -> Option<Mistake> {
        let close = self.text[..offset].rfind(['"', '\''])?;
        let (open, sign) = self.open_at(close)?;
        if self.text[open..close].contains('\n') {
            return Some(self.not_closed(open, sign));
        }
        let mistake = self.mistake(
            open..close + 1,
            "text after a closing quote",
            "the quoted text ends here",
        );
        Some(mistake.help("Quote the whole value: \"a 'b' c\" or 'a \"b\" c'."))
    }

    fn not_closed(&self, open: usize, sign: char) -> Mistake {
        let (what, close) = match sign {
            '{' => ("unclosed bracket", '}'),
            '[' => ("unclosed bracket", ']'),
            quote => ("unclosed quote", quote),
        };
        self.mistake(open..open + 1, &format!("{what} `{sign}`"), "opened here")
            .help(format!("Add the closing `{close}`."))
    }

    /// The last bracket or quote that is open before `end`.
    fn open_at(&self, end: usize) -> Option<(usize, char)> {
        let mut open: Vec<(usize, char)> = Vec::new();
        let mut before = ' ';
        for (at, c) in self.text[..end].char_indices() {
            let starts = before.is_whitespace() || "{[,:".contains(before);
            match (open.last().map(|(_, sign)| *sign), c) {
                (Some('#'), '\n') => _ = open.pop(),
                (Some('#'), _) => {}
                (Some('"'), '"') if before != '\\' => _ = open.pop(),
                (Some('\''), '\'') => _ = open.pop(),
                (Some('"' | '\''), _) => {}
                (_, '"' | '\'') if starts => open.push((at, c)),
                (_, '#') if before.is_whitespace() => open.push((at, c)),
                (sign, '{' | '[') if sign.is_some() || starts => open.push((at, c)),
                (Some('{'), '}') | (Some('['), ']') => _ = open.pop(),
                _ => {}
            }
            before = c;
        }
        open.retain(|(_, sign)| *sign != '#');
        open.last().copied()
    }

    /// A bracket that is open where the parser stopped: it is never closed, or a comma is missing in it.
    fn bracket(&self, offset: usize) -> Option<Mistake> {
        let (open, sign) = self.open_at(offset)?;
        if self
            .open_at(self.text.len())
            .is_some_and(|(never, _)| never <= open)
        {
            return Some(self.not_closed(open, sign));
        }
        let close = if sign == '{' { '}' } else { ']' };
        let rest = self.text[offset..].lines().next().unwrap_or("");
        let word = rest
            .split([',', '}', ']'])
            .next()
            .unwrap_or(rest)
            .trim_end();
        let length = word
            .len()
            .max(rest.chars().next().map_or(0, char::len_utf8));
        let mistake = self.mistake(
            offset..offset + length,
            "a comma is missing",
            "expected `,` before this",
        );
        Some(mistake.help(format!(
            "Separate entries by `,` and end them with `{close}`; quote \
        text that contains `: ` or `,`."
        )))
    }

    /// Explains an error by the lines before the place where the parser stopped.
    fn layout(&self, lines: &[Line<'t>], offset: usize) -> Option<Mistake> {
        let (current, above) = lines.split_last()?;
        let previous = above.last();
        if let Some(tight) = previous
            .into_iter()
            .chain([current])
            .find(|line| is_tight(line))
        {
            let (key, value) = tight.key()?;
            let mistake = self.mistake(
                tight.at(tight.content()),
                "a space is missing after the colon",
                "read as one text",
            );
            return Some(mistake.help(format!("Write `{key}: {value}`.")));
        }
        if let Some(previous) = previous.filter(|previous| is_misaligned(current, previous, above))
        {
            let spaces = |n: usize| {
                if n == 1 {
                    "1 space".to_owned()
                } else {
                    format!("{n} spaces")
                }
            };
            let here = current.indent();
            let there = previous.indent();
            let label = format!(
                "line {} is indented by {}, line {} by {there}",
                current.number,
                spaces(here),
                previous.number
            );
            let mistake = self.mistake(current.at(current.name()), "unexpected indentation", label);
            let quote = if here > there {
                " (if the line above is not a mapping, quote text that contains `: `)"
            } else {
                ""
            };
            let with = above
                .iter()
                .rev()
                .find(|line| line.indent().abs_diff(here) <= 1)
                .unwrap_or(previous);
            return Some(mistake.help(format!(
                "align `{}` with `{}`{quote}",
                current.name(),
                with.name()
            )));
        }
        let before = self.text.get(current.start..offset)?;
        if before.contains(": ") {
            let at = current.at(current
                .key()
                .map_or(current.content(), |(_, rest)| rest.trim_start()));
            let text = current
                .key()
                .map_or(current.content(), |(_, rest)| rest.trim());
            let mistake = self.mistake(
                at,
                "a second `: ` in one value",
                "the parser reads a mapping here",
            );
            return Some(mistake.help(format!(
                "Quote text that contains `: `: \"{}\".",
                text.replace('"', "\\\"")
            )));
        }
        let bare = previous
            .into_iter()
            .chain([current])
            .find(|line| !line.content().contains(':') && !line.text.trim().starts_with('-'));
        bare.map(|line| {
            let mistake = self.mistake(
                line.at(line.content()),
                "a colon is missing",
                "a key without a value",
            );
            mistake.help(format!(
                "Write `{}: …`, or quote it if it continues the text above.",
                line.content()
            ))
        })
    }
}

/// `concurrency:8` is text, because the space is missing. A URL is not meant.
fn is_tight(line: &Line<'_>) -> bool {
    line.key().is_some_and(|(key, rest)| {
        let word = key.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        word && !rest.is_empty() && !rest.starts_with([' ', '/']) && !rest.contains(": ")
    })
}

/// A line that is indented more than one with a value, or to a column where no block starts.
fn is_misaligned(current: &Line<'_>, previous: &Line<'_>, above: &[Line<'_>]) -> bool {
    let here = current.indent();
    let there = previous.indent();
    here > there || here < there && !above.iter().any(|line| line.indent() == here)
}
