//! Reasoning in the text of an answer, between markers: a chat template without a parser on the server.
//!
//! ```text
//!            whitespace          opening marker            closing marker
//!   Start ──────────────▶ Start ────────────────▶ Reasoning ──────────────▶ Answer
//!     │ other text                                                            ▲
//!     └──────────▶ Undecided ── closing marker: all before it was reasoning ──┘
//!                      └─────── opening marker: a text about markers ─────────┘
//! ```
//! Harmony (gpt-oss) names the channel of each message:
//! `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…`.

use crate::content_kind::ContentKind;
use llmscen_core::request::ReasoningMarkers;
use std::sync::{Arc, LazyLock};

/// The markers of models, opening and closing.
const KNOWN: [[&str; 2]; 9] = [
    ["<think>", "</think>"],
    ["<thinking>", "</thinking>"],
    ["<thought>", "</thought>"],
    ["<reasoning>", "</reasoning>"],
    ["<mm:think>", "</mm:think>"],
    ["<seed:think>", "</seed:think>"],
    ["[THINK]", "[/THINK]"],
    ["<|START_THINKING|>", "<|END_THINKING|>"],
    ["\u{25c1}think\u{25b7}", "\u{25c1}/think\u{25b7}"],
];
/// Harmony: the beginning of a header, its end, and the ends of a message.
const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
const START: &str = "<|start|>";
const ENDS: [&str; 5] = ["<|end|>", "<|return|>", "<|call|>", START, CHANNEL];
/// Bytes of white space before an opening marker; more are a blank answer.
const MAX_BLANK: usize = 64;
/// Bytes of a Harmony header; a longer one is an answer.
const MAX_HEADER: usize = 256;

/// The markers that a response is searched for, and the bytes that need no search.
#[derive(Clone, Debug)]
pub struct Markers {
    pairs: Arc<[[String; 2]]>,
    harmony: bool,
    bytes: Arc<ByteKinds>,
}

/// What a byte may be, by its value.
#[derive(Debug)]
struct ByteKinds {
    /// In a JSON string: an ASCII character without escape that begins no marker.
    plain: [bool; 256],
    /// In a text: the first byte of a marker.
    begins_marker: [bool; 256],
}

impl Markers {
    /// The markers of a setting.
    pub fn new(setting: &ReasoningMarkers) -> Markers {
        let own = |pair: [&str; 2]| pair.map(str::to_owned);
        let pairs: Vec<[String; 2]> = match setting {
            ReasoningMarkers::Auto => KNOWN.into_iter().map(own).collect(),
            ReasoningMarkers::None => Vec::new(),
            ReasoningMarkers::Pair(pair) => vec![pair.clone()],
        };
        let harmony = *setting == ReasoningMarkers::Auto;
        let mut bytes = ByteKinds {
            plain: [false; 256],
            begins_marker: [false; 256],
        };
        let markers = pairs.iter().flatten().map(String::as_bytes);
        let firsts = markers
            .filter_map(<[u8]>::first)
            .chain(harmony.then_some(&b'<'));
        for first in firsts {
            bytes.begins_marker[usize::from(*first)] = true;
        }
        // RFC 8259, section 7.
        let letters = (0x20..0x7f).filter(|byte| *byte != b'"' && *byte != b'\\');
        for byte in letters {
            // A bracket is frequent. It is searched for after `[THINK]` only, where no text is plain.
            let is_bracket = harmony && byte == b'[';
            let byte = usize::from(byte);
            bytes.plain[byte] = !bytes.begins_marker[byte] || is_bracket;
        }
        Markers {
            pairs: pairs.into(),
            harmony,
            bytes: Arc::new(bytes),
        }
    }

    /// Whether these bytes of a JSON string are their own text, without any marker.
    pub fn is_plain(&self, bytes: &[u8]) -> bool {
        bytes.iter().fold(true, |plain, byte| {
            plain & self.bytes.plain[usize::from(*byte)]
        })
    }

    /// The first place in the text where a marker begins, or where the text ends in the beginning of one.
    fn find<'m>(
        &self,
        text: &str,
        wanted: impl Iterator<Item = &'m str> + Clone,
    ) -> Option<(usize, Place<'m>)> {
        let places = text.bytes().enumerate();
        let mut places = places.filter(|(_, byte)| self.bytes.begins_marker[usize::from(*byte)]);
        places.find_map(|(at, _)| {
            let rest = text.get(at..)?;
            let whole = wanted.clone().filter(|marker| rest.starts_with(marker));
            match whole.max_by_key(|marker| marker.len()) {
                Some(marker) => Some((at, Place::Marker(marker))),
                None => wanted
                    .clone()
                    .any(|marker| marker.starts_with(rest))
                    .then_some((at, Place::Beginning)),
            }
        })
    }
}

impl Default for Markers {
    fn default() -> Markers {
        static AUTO: LazyLock<Markers> = LazyLock::new(|| Markers::new(&ReasoningMarkers::Auto));
        AUTO.clone()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    #[default]
    Start,
    /// No opening marker at the start. A closing marker may follow: the template wrote the opening one into the prompt.
    Undecided,
    /// After the opening marker of this pair.
    Reasoning(usize),
    /// Harmony: in a header, in a message, between two messages.
    Header,
    Body(ContentKind),
    Between,
    /// No marker is searched for.
    Answer,
}

/// What a text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Text of this kind.
    Text(ContentKind, &'a str),
    /// A marker, or a part of a Harmony header.
    Marker,
    /// A closing marker without an opening one: every text before it was reasoning.
    AllWasReasoning,
}

/// Splits the text of one choice at its markers. The result does not depend on how the text is divided into pieces.
#[derive(Clone, Debug, Default)]
pub struct MarkerSplitter {
    state: State,
    /// The end of the text so far, which may be the beginning of a marker.
    held: String,
    /// A marker was found.
    found: bool,
}

impl MarkerSplitter {
    /// Whether the end of the text so far may be the beginning of a marker.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends the search in a text without markers so far.
    pub fn stop(&mut self) {
        if !self.found && self.held.is_empty() {
            self.state = State::Answer;
        }
    }

    /// Whether a marker was found.
    pub fn has_found(&self) -> bool {
        self.found
    }

    /// The kind of a plain text, if it needs no search.
    pub fn kind_of_plain(&self, markers: &Markers) -> Option<ContentKind> {
        let kind = match self.state {
            State::Undecided | State::Answer => ContentKind::Answer,
            State::Reasoning(pair)
                if markers.harmony && markers.pairs.get(pair)?[1].starts_with('[') =>
            {
                return None;
            }
            State::Reasoning(_) => ContentKind::Reasoning,
            State::Body(kind) => kind,
            State::Start | State::Header | State::Between => return None,
        };
        self.held.is_empty().then_some(kind)
    }

    /// Splits a piece of text. A part that may begin a marker is held until the next piece.
    pub fn push(&mut self, markers: &Markers, piece: &str, mut sink: impl FnMut(Found<'_>)) {
        if self.state == State::Answer {
            return sink(Found::Text(ContentKind::Answer, piece));
        }
        if markers.pairs.is_empty() {
            self.state = State::Answer;
            return sink(Found::Text(ContentKind::Answer, piece));
        }
        let joined;
        let mut rest = match self.held.is_empty() {
            true => piece,
            false => {
                self.held.push_str(piece);
                joined = std::mem::take(&mut self.held);
                &joined
            }
        };
        loop {
            match self.step(markers, rest, &mut sink) {
                Step::Continue(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
                Step::Hold(bytes) => {
                    self.held.push_str(rest.get(bytes..).unwrap_or_default());
                    return;
                }
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Ends the text: a beginning of a marker was none.
    pub fn finish(&mut self, mut sink: impl FnMut(Found<'_>)) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            sink(match self.state {
                State::Start | State::Undecided | State::Answer => {
                    Found::Text(ContentKind::Answer, &held)
                }
                State::Reasoning(_) => Found::Text(ContentKind::Reasoning, &held),
                State::Body(kind) => Found::Text(kind, &held),
                State::Header | State::Between => Found::Marker,
            });
        }
    }

    /// Reads up to the next marker.
    fn step(&mut self, markers: &Markers, text: &str, sink: &mut impl FnMut(Found<'_>)) -> Step {
        match self.state {
            State::Start => self.begin(markers, text, sink),
            State::Undecided => {
                let wanted = markers.undecided();
                self.read_text(
                    markers,
                    ContentKind::Answer,
                    text,
                    wanted,
                    sink,
                    |this, marker, sink| {
                        let closes = markers.pairs.iter().any(|pair| pair[1] == marker);
                        if closes {
                            this.found = true;
                            sink(Found::AllWasReasoning);
                            sink(Found::Marker);
                        } else {
                            sink(Found::Text(ContentKind::Answer, marker));
                        }
                        this.state = State::Answer;
                    },
                )
            }
            State::Reasoning(pair) => {
                let wanted = markers
                    .pairs
                    .get(pair)
                    .map(|pair| pair[1].as_str())
                    .into_iter();
                self.read_text(
                    markers,
                    ContentKind::Reasoning,
                    text,
                    wanted,
                    sink,
                    |this, _, sink| {
                        this.state = State::Answer;
                        sink(Found::Marker);
                    },
                )
            }
            State::Body(kind) => self.read_text(
                markers,
                kind,
                text,
                ENDS.into_iter(),
                sink,
                |this, marker, sink| {
                    this.state = match marker {
                        CHANNEL => State::Header,
                        _ => State::Between,
                    };
                    sink(Found::Marker);
                },
            ),
            State::Header => match text.find(MESSAGE) {
                Some(at) if at <= MAX_HEADER => {
                    let name = text.get(..at).unwrap_or_default();
                    self.state = State::Body(match name.trim_start() {
                        analysis if analysis.starts_with("analysis") => ContentKind::Reasoning,
                        call if call.contains(" to=") => ContentKind::ToolCall,
                        _ => ContentKind::Answer,
                    });
                    sink(Found::Marker);
                    Step::Continue(at + MESSAGE.len())
                }
                None if text.len() <= MAX_HEADER + MESSAGE.len() => {
                    sink(Found::Marker);
                    Step::Hold(0)
                }
                _ => {
                    self.state = State::Answer;
                    Step::Continue(0)
                }
            },
            State::Between => {
                sink(Found::Marker);
                match markers.find(text, [CHANNEL].into_iter()) {
                    Some((at, Place::Marker(_))) => {
                        self.state = State::Header;
                        Step::Continue(at + CHANNEL.len())
                    }
                    Some((at, Place::Beginning)) => Step::Hold(at),
                    None => Step::Continue(text.len()),
                }
            }
            State::Answer => {
                sink(Found::Text(ContentKind::Answer, text));
                Step::Continue(text.len())
            }
        }
    }

    /// Reads the beginning of a text: white space and an opening marker, or an answer.
    fn begin(&mut self, markers: &Markers, text: &str, sink: &mut impl FnMut(Found<'_>)) -> Step {
        let marker = text.trim_start();
        let blank = text.len() - marker.len();
        let mut opened = markers
            .openings()
            .filter(|(_, open)| marker.starts_with(open));
        if let Some((state, open)) = opened.next().filter(|_| blank <= MAX_BLANK) {
            self.state = state;
            self.found = true;
            sink(Found::Marker);
            return Step::Continue(blank + open.len());
        }
        let may_open = markers.openings().any(|(_, open)| open.starts_with(marker));
        if may_open && blank <= MAX_BLANK {
            return Step::Hold(0);
        }
        self.state = State::Undecided;
        Step::Continue(0)
    }

    /// Passes on text up to the first of these markers, and calls `at_marker` there.
    fn read_text<'m, S: FnMut(Found<'_>)>(
        &mut self,
        markers: &Markers,
        kind: ContentKind,
        text: &str,
        wanted: impl Iterator<Item = &'m str> + Clone,
        sink: &mut S,
        at_marker: impl FnOnce(&mut MarkerSplitter, &str, &mut S),
    ) -> Step {
        let first = markers.find(text, wanted);
        let end = first.as_ref().map_or(text.len(), |(at, _)| *at);
        match text.get(..end) {
            Some(before) if !before.is_empty() => sink(Found::Text(kind, before)),
            _ => {}
        }
        match first {
            Some((at, Place::Marker(marker))) => {
                at_marker(self, marker, sink);
                Step::Continue(at + marker.len())
            }
            Some((at, Place::Beginning)) => Step::Hold(at),
            None => Step::Continue(end),
        }
    }
}

/// What is at a place of a text.
enum Place<'m> {
    /// This marker.
    Marker(&'m str),
    /// The beginning of a marker, and the end of the text.
    Beginning,
}

enum Step {
    /// This many bytes were read.
    Continue(usize),
    /// The text after this many bytes is held.
    Hold(usize),
}

impl Markers {
    /// The opening markers with the states after them.
    fn openings(&self) -> impl Iterator<Item = (State, &str)> {
        let pairs = (0..).zip(self.pairs.iter());
        let pairs = pairs.map(|(index, pair)| (State::Reasoning(index), pair[0].as_str()));
        let harmony = [(State::Header, CHANNEL), (State::Between, START)];
        pairs.chain(harmony.into_iter().filter(|_| self.harmony))
    }

    /// The markers that decide about a text without an opening one at its start.
    fn undecided(&self) -> impl Iterator<Item = &str> + Clone {
        let all = self.pairs.iter().flatten().map(String::as_str);
        // A bracket is frequent in answers, and no template writes `[THINK]` into the prompt.
        all.filter(|marker| !(self.harmony && marker.starts_with('[')))
    }
}

/// The reasoning and the answer of a complete text; None if it has no markers.
pub fn split_text(markers: &Markers, text: &str) -> Option<(String, String)> {
    let (mut reasoning, mut answer) = (String::new(), String::new());
    let mut splitter = MarkerSplitter::default();
    let mut sink = |found: Found<'_>| match found {
        Found::Text(ContentKind::Reasoning, text) => reasoning.push_str(text),
        Found::Text(_, text) => answer.push_str(text),
        Found::AllWasReasoning => reasoning = std::mem::take(&mut answer),
        Found::Marker => {}
    };
    splitter.push(markers, text, &mut sink);
    splitter.finish(&mut sink);
    splitter
        .has_found()
        .then(|| (reasoning.trim().to_owned(), answer.trim_start().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(setting: &ReasoningMarkers, text: &str) -> Option<(String, String)> {
        split_text(&Markers::new(setting), text)
    }

    fn auto(text: &str) -> Option<(String, String)> {
        split(&ReasoningMarkers::Auto, text)
    }

    fn parts(reasoning: &str, answer: &str) -> Option<(String, String)> {
        Some((reasoning.to_owned(), answer.to_owned()))
    }

    #[test]
    fn known_markers_separate_the_reasoning() {
        for [open, close] in KNOWN {
            for (text, expected) in [
                (format!("{open}hm{close}\n\nyes"), parts("hm", "yes")),
                (
                    format!("\n {open}\nhm\n{close}yes{open}"),
                    parts("hm", &format!("yes{open}")),
                ),
                (
                    format!("hm{close}yes"),
                    parts("hm", "yes").filter(|_| !open.starts_with('[')),
                ),
                (format!("{open}hm"), parts("hm", "")),
                (format!("The tag {open} begins, {close} ends it."), None),
            ] {
                assert_eq!(auto(&text), expected, "{text}");
            }
        }
        for text in ["yes", "", "a < b", "<thin", "  ", "<b>bold</b>"] {
            assert_eq!(auto(text), None, "{text}");
        }
    }

    #[test]
    fn harmony_names_the_channel_of_each_message() {
        let analysis = "<|channel|>analysis<|message|>hm<|end|>";
        let answer = "<|start|>assistant<|channel|>final<|message|>yes<|return|>";
        assert_eq!(auto(&format!("{analysis}{answer}")), parts("hm", "yes"));
        assert_eq!(
            auto(&format!("<|start|>assistant{analysis}{answer}")),
            parts("hm", "yes")
        );
        let call = "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>";
        assert_eq!(auto(&format!("{analysis}{call}")), parts("hm", "{}"));
        assert_eq!(auto(analysis), parts("hm", ""));
    }

    #[test]
    fn a_header_without_end_is_an_answer() {
        let text = format!("<|channel|>{}<|message|>", "x".repeat(1 << 20));
        let markers = Markers::default();
        let mut splitter = MarkerSplitter::default();
        let mut answer = 0;
        for piece in text.as_bytes().chunks(5) {
            splitter.push(&markers, str::from_utf8(piece).unwrap(), |found| {
                if let Found::Text(ContentKind::Answer, text) = found {
                    answer += text.len()
                }
            });
        }
        assert_eq!(answer, text.len() - CHANNEL.len());
    }

    #[test]
    fn a_setting_has_its_own_markers_or_none() {
        let pair = ReasoningMarkers::Pair(["{{".into(), "}}".into()]);
        assert_eq!(split(&pair, "{{hm}}yes"), parts("hm", "yes"));
        assert_eq!(split(&pair, "<think>hm</think>yes"), None);
        assert_eq!(split(&ReasoningMarkers::None, "<think>hm</think>yes"), None);
        assert!(Markers::new(&pair).is_plain(b"a<b") && !Markers::new(&pair).is_plain(b"a{b"));
        assert!(!Markers::default().is_plain(b"a<b") && Markers::default().is_plain(b"a[b"));
    }

    proptest! {
        #[test]
        fn the_division_into_pieces_changes_nothing(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "<think>", "</think>", "<", "think>", " ", "a", "[THINK]", "[/THINK]", "<|channel|>",
                        "analysis", "final",
                    "<|message|>", "<|end|>", "<|start|>", "assistant", "\u{25c1}think\u{25b7}",
                        "\u{25c1}/think\u{25b7}",
                ]),
                0..12,
            ),
            size in 1usize..6,
        ) {
            let text = words.concat();
            let markers = Markers::default();
            let read = |pieces: &[String]| {
                let mut splitter = MarkerSplitter::default();
                let mut texts: Vec<(ContentKind, String)> = Vec::new();
                let mut reset = 0;
                let mut sink = |found: Found<'_>| match found {
                    Found::Text(kind, text) => match texts.last_mut() {
                        Some((last, all)) if *last == kind => all.push_str(text),
                        _ => texts.push((kind, text.to_owned())),
                    },
                    Found::AllWasReasoning => reset += 1,
                    Found::Marker => {}
                };
                pieces.iter().for_each(|piece| splitter.push(&markers, piece, &mut sink));
                splitter.finish(&mut sink);
                (texts, reset, splitter.has_found())
            };
            let characters: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = characters.chunks(size).map(|piece| piece.iter().collect()).collect();
            prop_assert_eq!(read(&pieces), read(&[text]));
        }
    }
}
