//! Framing: server-sent events by the WHATWG HTML standard (section 9.2.6), and lines of JSON, from bytes split
//! anywhere.

use memchr::{memchr, memchr2};
use serde_json::Value;
use std::mem;

const BOM: &[u8] = b"\xEF\xBB\xBF";
/// Bytes of text outside of events that are kept for a message.
const MAX_STRAY: usize = 8 << 10;
/// White space before a body; more is no beginning of a framing.
const MAX_SPACE: usize = 1 << 10;

/// Bytes of the first line of a body; a longer one is no line of a stream.
const MAX_FIRST_LINE: usize = 64 << 10;

/// What the first bytes of a body show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// A field or a comment of server-sent events.
    Events,
    /// A JSON object or list.
    Json,
    /// Anything else.
    Other,
}

/// What the first bytes of a body show; None if more bytes are needed.
pub fn sniff(bytes: &[u8]) -> Option<Beginning> {
    let text = bytes.strip_prefix(BOM).unwrap_or(bytes).trim_ascii_start();
    let fields = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"];
    match text {
        [b'{' | b'[', ..] => Some(Beginning::Json),
        _ if fields.iter().any(|field| text.starts_with(field)) => Some(Beginning::Events),
        _ if BOM.starts_with(bytes) => None,
        _ if fields.iter().any(|field| field.starts_with(text)) && bytes.len() <= MAX_SPACE => None,
        _ => Some(Beginning::Other),
    }
}

/// Whether the first line of a body is a JSON object that others follow, by its `"done": false`; None if more bytes
/// are needed.
pub fn is_first_of_lines(bytes: &[u8]) -> Option<bool> {
    let text = bytes.strip_prefix(BOM).unwrap_or(bytes).trim_ascii_start();
    match memchr2(b'\n', b'\r', text) {
        Some(end) => {
            let line: Option<Value> = serde_json::from_slice(text.get(..end)?).ok();
            Some(line.is_some_and(|line| line["done"] == false))
        }
        None if text.len() <= MAX_FIRST_LINE => None,
        None => Some(false),
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The `event:` field; may be empty.
    pub name: &'a [u8],
    /// The `data:` lines, joined by line feeds.
    pub data: &'a [u8],
}

/// Splits a byte stream into events. An event within one push is not copied.
///
/// The standard drops a last event without its blank line; [`Sse::finish`] returns it, because servers omit the last
/// line ends. Fields other than `data` and `event` are for reconnecting and are ignored.
#[derive(Debug)]
pub struct Sse {
    limit: usize,
    /// The incomplete current line.
    line: Vec<u8>,
    /// The data lines of the incomplete current event.
    data: Option<Vec<u8>>,
    spare: Vec<u8>,
    name: Vec<u8>,
    begun: bool,
    /// The last byte was a CR, so that a following LF belongs to it.
    after_cr: bool,
    overflowed: bool,
    /// The beginning of the lines that are no part of an event, such as an error that a proxy writes into the stream.
    stray: Vec<u8>,
}

impl Sse {
    /// A splitter for events and lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Sse {
        Sse {
            limit,
            line: Vec::new(),
            data: None,
            spare: Vec::new(),
            name: Vec::new(),
            begun: false,
            after_cr: false,
            overflowed: false,
            stray: Vec::new(),
        }
    }

    /// Whether the limit was broken. Nothing is decoded or kept after that.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Adds bytes and passes each completed event to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(Event<'_>)) {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while !self.overflowed && !rest.is_empty() {
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                return self.keep_partial(rest);
            };
            let (line, tail) = rest.split_at(end);
            self.after_cr = tail == b"\r";
            rest = tail
                .strip_prefix(b"\r\n")
                .unwrap_or(tail.get(1..).unwrap_or_default());
            self.complete_line(line, rest, &mut sink);
        }
    }

    /// Ends the stream: an event without its blank line is complete.
    pub fn finish(&mut self, mut sink: impl FnMut(Event<'_>)) {
        if !self.line.is_empty() && !self.overflowed {
            self.complete_line(b"", b"", &mut sink);
        }
        if !self.overflowed {
            self.dispatch(&mut sink);
        }
    }

    /// Keeps an incomplete line.
    fn keep_partial(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > self.limit {
            return self.mark_overflowed();
        }
        self.line.extend_from_slice(part);
    }

    /// Reads the line that ends with `part`, after the part kept before.
    fn complete_line(&mut self, part: &[u8], rest: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        if self.line.len() + part.len() > self.limit {
            return self.mark_overflowed();
        }
        if self.line.is_empty() {
            return self.read(part, rest, sink);
        }
        self.line.extend_from_slice(part);
        let mut line = mem::take(&mut self.line);
        self.read(&line, rest, sink);
        line.clear();
        self.line = line;
    }

    /// Reads one line; `rest` is what follows it in this push.
    fn read(&mut self, line: &[u8], rest: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        let first = !mem::replace(&mut self.begun, true);
        let line = line.strip_prefix(BOM).filter(|_| first).unwrap_or(line);
        if line.is_empty() {
            return self.dispatch(sink);
        }
        let (field, value) = line.split_at(memchr(b':', line).unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" if self.data.is_none() && matches!(rest.first(), Some(b'\n' | b'\r')) => {
                sink(Event {
                    name: &self.name,
                    data: value,
                });
                self.name.clear();
            }
            b"data" => self.append(value),
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"" | b"id" | b"retry" => {}
            _ => {
                let free = MAX_STRAY.saturating_sub(self.stray.len());
                self.stray.extend(line.iter().chain(b"\n").take(free));
            }
        }
    }

    fn append(&mut self, value: &[u8]) {
        let Some(data) = &mut self.data else {
            let mut data = mem::take(&mut self.spare);
            data.extend_from_slice(value);
            self.data = Some(data);
            return;
        };
        if data.len() + 1 + value.len() > self.limit {
            return self.mark_overflowed();
        }
        data.push(b'\n');
        data.extend_from_slice(value);
    }

    /// A blank line: passes on the current event, if it has data.
    fn dispatch(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if let Some(mut data) = self.data.take() {
            sink(Event {
                name: &self.name,
                data: &data,
            });
            data.clear();
            self.spare = data;
        }
        self.name.clear();
    }

    fn mark_overflowed(&mut self) {
        *self = Sse {
            overflowed: true,
            ..Sse::new(self.limit)
        };
    }
}

/// Splits a byte stream into its non-blank lines. A line within one push is not copied.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    /// The incomplete current line.
    line: Vec<u8>,
    overflowed: bool,
}

impl Lines {
    /// A splitter for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Lines {
        Lines {
            limit,
            line: Vec::new(),
            overflowed: false,
        }
    }

    /// Whether the limit was broken. Nothing is decoded or kept after that.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Adds bytes and passes each completed line to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !self.overflowed && !rest.is_empty() {
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (part, tail) = rest.split_at(end);
            if self.line.len() + part.len() > self.limit {
                self.overflowed = true;
                self.line = Vec::new();
                return;
            }
            match (tail.split_first(), self.line.is_empty()) {
                (None, _) => return self.line.extend_from_slice(part),
                (Some((_, after)), true) => {
                    emit_line(part, &mut sink);
                    rest = after;
                }
                (Some((_, after)), false) => {
                    self.line.extend_from_slice(part);
                    emit_line(&self.line, &mut sink);
                    self.line.clear();
                    rest = after;
                }
            }
        }
    }

    /// Ends the stream: a line without its end is complete.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        emit_line(&self.line, &mut sink);
        self.line.clear();
    }
}

fn emit_line(line: &[u8], sink: &mut impl FnMut(&[u8])) {
    let line = line
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(line)
        .trim_ascii();
    if !line.is_empty() {
        sink(line);
    }
}

/// Splits a byte stream into events, in either framing.
#[derive(Debug)]
pub enum Framer {
    /// Server-sent events.
    Sse(Sse),
    /// One JSON document per line; events have no name.
    Lines(Lines),
}

impl Framer {
    /// The beginning of the text that is no part of an event.
    pub fn stray_text(&self) -> &[u8] {
        match self {
            Framer::Sse(sse) => &sse.stray,
            Framer::Lines(_) => b"",
        }
    }

    /// Whether the size limit of an event was exceeded. Nothing is decoded or kept after that.
    pub fn overflowed(&self) -> bool {
        match self {
            Framer::Sse(sse) => sse.overflowed(),
            Framer::Lines(lines) => lines.overflowed(),
        }
    }

    /// Adds bytes and passes each completed event to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(Event<'_>)) {
        match self {
            Framer::Sse(sse) => sse.push(bytes, sink),
            Framer::Lines(lines) => lines.push(bytes, |data| sink(Event { name: b"", data })),
        }
    }

    /// Ends the stream: an event without its end is complete.
    pub fn finish(&mut self, mut sink: impl FnMut(Event<'_>)) {
        match self {
            Framer::Sse(sse) => sse.finish(sink),
            Framer::Lines(lines) => lines.finish(|data| sink(Event { name: b"", data })),
        }
    }
}

#[cfg(test)]
mod ndjson_tests;
#[cfg(test)]
mod tests;
