//! A page of Prometheus text: its series, line by line.
//!
//! The text format of Prometheus and that of OpenMetrics are read alike. A line that is neither costs only itself. Timestamps
//! and exemplars are passed over: what counts is when the page was asked for.

use std::borrow::Cow;
use std::collections::HashMap;

/// What a `# TYPE` line says of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that grows.
    Counter,
    /// Cumulated buckets.
    Histogram,
    /// Quantiles that the server worked out.
    Summary,
    /// Anything else.
    Other,
}

/// One value of a page, with the text that it was read from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample<'a> {
    /// Its whole name, `_total` and `_bucket` included.
    pub name: &'a str,
    /// What stands between the braces, as it was written.
    pub labels: &'a str,
    /// The value; it may be infinite or no number.
    pub value: f64,
}

impl<'a> Sample<'a> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<Cow<'a, str>> {
        pairs(self.labels).find(|(own, _)| *own == name).map(|(_, value)| value)
    }
}

/// A page that was read.
#[derive(Debug, Default)]
pub struct Page<'a> {
    /// Its values, in order.
    pub samples: Vec<Sample<'a>>,
    /// The first line that is none of the format, and how many there are.
    pub unread: Option<(&'a str, usize)>,
    kinds: HashMap<&'a str, Kind>,
    places: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Page<'a> {
    /// Reads a page. Its last line counts only with its line feed: without, it may be cut short.
    pub fn read(text: &'a str) -> Page<'a> {
        let mut page = Page::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest.as_bytes());
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            let line = line.trim_matches([' ', '\t', '\r']);
            rest = after.get(1..).unwrap_or_default();
            match line.strip_prefix('#') {
                Some(comment) if comment.trim() == "EOF" => break,
                Some(comment) => page.comment(comment),
                None if line.is_empty() => {}
                None => match sample(line).filter(|_| end.is_some()) {
                    Some(sample) => page.keep(sample),
                    None => page.unread = Some(page.unread.map_or((line, 1), |(first, count)| (first, count + 1))),
                },
            }
        }
        page
    }

    /// The places of all series of that name among the samples.
    pub fn places(&self, name: &str) -> &[usize] {
        self.places.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a name begins so.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        self.places.keys().any(|name| name.starts_with(prefix))
    }

    /// Whether the series only says since when another is counted.
    pub fn is_birthday(&self, name: &str) -> bool {
        let counted = |base: &str| matches!(self.kinds.get(base), Some(Kind::Counter | Kind::Histogram | Kind::Summary));
        name.strip_suffix("_created").is_some_and(|base| counted(base) || counted(&format!("{base}_total")))
    }

    fn comment(&mut self, comment: &'a str) {
        let mut words = comment.split_ascii_whitespace();
        if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
            let kind = match kind {
                "counter" => Kind::Counter,
                "histogram" => Kind::Histogram,
                "summary" => Kind::Summary,
                _ => Kind::Other,
            };
            self.kinds.insert(name, kind);
        }
    }

    fn keep(&mut self, sample: Sample<'a>) {
        self.places.entry(sample.name).or_default().push(self.samples.len());
        self.samples.push(sample);
    }
}

/// `name{label="value",…} value [timestamp] [# exemplar]`; the name may be the first thing in the braces, in quotes.
fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find([' ', '\t', '{'])?;
    let (mut name, rest) = line.split_at(end);
    let rest = rest.trim_start_matches([' ', '\t']);
    let (mut labels, values) = match rest.strip_prefix('{') {
        Some(inner) => {
            let close = closing(inner)?;
            (inner.get(..close)?.trim(), inner.get(close + 1..)?)
        }
        None => ("", rest),
    };
    if name.is_empty() {
        let quoted = labels.strip_prefix('"')?;
        let end = quoted.find('"')?;
        name = quoted.get(..end)?;
        labels = quoted.get(end + 1..)?.trim_start_matches([' ', '\t', ',']);
    }
    let strange = |c: char| matches!(c, '=' | '"' | ',' | '}' | '#' | '\\');
    if name.is_empty() || name.contains(strange) || name.starts_with(|c: char| c.is_ascii_digit()) || !whole(labels) {
        return None;
    }
    let mut words = values.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    let after = words.next();
    let stamped = after.is_none_or(|word| word.starts_with('#') || word.parse::<f64>().is_ok_and(|at| at.is_finite()));
    let exemplar = after.is_some_and(|word| word.starts_with('#')) || words.next().is_none_or(|word| word.starts_with('#'));
    (stamped && exemplar).then_some(Sample { name, labels, value })
}

/// Where the braces close, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    text.bytes().position(|byte| {
        let closes = byte == b'}' && !quoted;
        quoted ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped && quoted;
        closes
    })
}

/// Whether nothing is left over when the labels are read.
fn whole(labels: &str) -> bool {
    let mut rest = labels;
    while !rest.is_empty() {
        match pair(rest) {
            Some((_, _, after)) => rest = after,
            None => return false,
        }
    }
    true
}

/// The labels between braces: each name with its value, its escapes undone.
pub fn pairs(labels: &str) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
    let mut rest = labels;
    std::iter::from_fn(move || {
        let (name, value, after) = pair(rest)?;
        rest = after;
        Some((name, unescaped(value)))
    })
}

/// The first label, its value as it was written, and what comes after its comma.
fn pair(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim().trim_matches('"');
    let value = rest.trim_start().strip_prefix('"')?;
    let mut escaped = false;
    let end = value.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    let after = value.get(end + 1..)?.trim_start();
    let next = match after.strip_prefix(',') {
        Some(next) => next.trim_start(),
        None if after.is_empty() => after,
        None => return None,
    };
    (!name.is_empty() && !name.contains([',', '"', '{', '}'])).then_some((name, value.get(..end)?, next))
}

fn unescaped(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            (c, false) => text.push(c),
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests;
