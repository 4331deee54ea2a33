//! The two framings of a stream behind one face.

use crate::ndjson::Lines;
use crate::sse::{Event, Sse};

/// Splits the bytes of a stream into its events.
#[derive(Debug)]
pub enum Framer {
    /// Server-sent events.
    Sse(Sse),
    /// A JSON document a line; its events have no name.
    Lines(Lines),
}

impl Framer {
    /// Whether the bound on one event was broken. Nothing is decoded or kept after that.
    pub fn over(&self) -> bool {
        match self {
            Framer::Sse(sse) => sse.over(),
            Framer::Lines(lines) => lines.over(),
        }
    }

    /// Takes further bytes and hands each event that they complete to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(Event<'_>)) {
        match self {
            Framer::Sse(sse) => sse.push(bytes, sink),
            Framer::Lines(lines) => lines.push(bytes, |data| sink(Event { name: b"", data })),
        }
    }

    /// Ends the stream: an event that lacks its end is complete now.
    pub fn finish(&mut self, mut sink: impl FnMut(Event<'_>)) {
        match self {
            Framer::Sse(sse) => sse.finish(sink),
            Framer::Lines(lines) => lines.finish(|data| sink(Event { name: b"", data })),
        }
    }
}
