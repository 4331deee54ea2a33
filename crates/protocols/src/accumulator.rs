//! The account of one response over its messages: texts, events, finish reasons and token counts per choice.
//!
//! A decoder adds the texts of each wire event with [`Accumulator::add_text`] and ends it with
//! [`Accumulator::emit_pending`], which adds at most one token event per choice.

use crate::content_kind::ContentKind;
use crate::markers::{Found, MarkerSplitter, Markers, split_text};
use crate::raw_json::{Raw, decode_string, is_text};
use crate::usage::{
    RunningCounts, has_negative_count, max_counts, merge_latest, parse_usage, sum_choices,
};
use crate::{DecodeOptions, Events, Message, Reply};
use llmscen_core::outcome::{
    Anomaly, AnomalyKind, Failure, FailureKind, Finish, ReplyFacts, ServerTimes, Usage,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum number of choices per response, eight times the limit of OpenAI, so that a faulty server cannot fill the
/// memory.
pub const MAX_CHOICES: usize = 1024;
/// Finish reasons of vLLM and SGLang for an aborted generation.
const ABORTED: [&str; 2] = ["abort", "error"];

/// The texts of one choice, as received.
#[derive(Debug, Default)]
pub struct MessageText {
    /// Reasoning before the answer.
    pub reasoning: String,
    /// The answer, with any reasoning between markers.
    pub content: String,
    /// A refusal to answer.
    pub refusal: String,
    /// Names and arguments of tool calls that are not in `calls`.
    pub call_text: String,
    /// Tool calls, by their index in the events.
    pub calls: BTreeMap<u32, ToolCallText>,
}

/// One tool call.
#[derive(Debug, Default)]
pub struct ToolCallText {
    /// The API's type of the call.
    pub kind: String,
    /// Call id.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments, as generated.
    pub input: String,
}

impl MessageText {
    /// The latest call.
    pub fn latest_call(&self) -> Option<(u32, &ToolCallText)> {
        self.calls
            .last_key_value()
            .map(|(index, call)| (*index, call))
    }

    /// Appends a text; returns its end in the texts of its kind.
    fn push(&mut self, kind: ContentKind, text: &str) -> Option<TextEnd> {
        let all = match kind {
            ContentKind::Reasoning | ContentKind::Summary => &mut self.reasoning,
            ContentKind::Answer => &mut self.content,
            ContentKind::Refusal => &mut self.refusal,
            ContentKind::ToolCall => &mut self.call_text,
            ContentKind::Media => return None,
        };
        all.push_str(text);
        let kind = match kind {
            ContentKind::Summary => ContentKind::Reasoning,
            kind => kind,
        };
        Some(TextEnd {
            kind,
            bytes: all.len(),
        })
    }

    /// Bytes of the texts before those of this kind, in field order.
    fn bytes_before(&self, kind: ContentKind) -> usize {
        let kinds = [
            (ContentKind::Reasoning, &self.reasoning),
            (ContentKind::Answer, &self.content),
            (ContentKind::Refusal, &self.refusal),
        ];
        let before = kinds.iter().take_while(|(own, _)| *own != kind);
        before.map(|(_, text)| text.len()).sum()
    }

    /// Appends all texts to `text`, in field order.
    fn append_to(&self, text: &mut String) {
        [
            &self.reasoning,
            &self.content,
            &self.refusal,
            &self.call_text,
        ]
        .into_iter()
        .for_each(|part| text.push_str(part));
        for call in self.calls.values() {
            text.push_str(&call.name);
            text.push_str(&call.input);
        }
    }

    /// Bytes of all texts.
    fn bytes(&self) -> usize {
        let calls = self.calls.values();
        let calls: usize = calls.map(|call| call.name.len() + call.input.len()).sum();
        let texts = [
            &self.reasoning,
            &self.content,
            &self.refusal,
            &self.call_text,
        ];
        calls + texts.map(String::len).iter().sum::<usize>()
    }

    /// The message for the next turn; `call_json` formats a tool call, or returns None for a call that is not sent
    /// back.
    fn into_message(
        self,
        markers: &Markers,
        call_json: impl Fn(ToolCallText) -> Option<Value>,
    ) -> Message {
        let calls: Vec<Value> = self.calls.into_values().filter_map(call_json).collect();
        let tool_calls = if calls.is_empty() {
            Value::Null
        } else {
            Value::Array(calls)
        };
        let content = if self.content.is_empty() {
            self.refusal
        } else {
            self.content
        };
        let (reasoning, content) = match split_text(markers, &content) {
            Some((reasoning, answer)) => (self.reasoning + &reasoning, answer),
            None => (self.reasoning, content),
        };
        Message {
            content,
            reasoning,
            tool_calls,
        }
    }
}

/// Where the text of an event ends, in all texts of its kind.
#[derive(Clone, Copy, Debug)]
struct TextEnd {
    kind: ContentKind,
    bytes: usize,
}

/// Bytes of a text that are compared with those of a later one.
const COMPARED: usize = 32;
/// From this length on, an event with the whole text so far repeats it; a shorter one may be the next tokens.
const MIN_REPETITION: usize = 16;

/// How much text of one kind was received: enough to recognize a repetition of the whole text.
#[derive(Debug, Default)]
struct ReceivedText {
    bytes: u64,
    pieces: u32,
    beginning: [u8; COMPARED],
}

impl ReceivedText {
    /// Whether this text is all of the text so far, which came in several events. `is_final`: it came with the finish
    /// reason.
    fn is_repeated_by(&self, text: &str, is_final: bool) -> bool {
        let compared = text.as_bytes().get(..COMPARED).unwrap_or(text.as_bytes());
        text.len() as u64 == self.bytes
            && self.beginning.starts_with(compared)
            && self.pieces >= 2
            && (text.len() >= MIN_REPETITION || is_final)
            && !text.trim_start().is_empty()
    }

    fn add(&mut self, text: &str) {
        let free = self
            .beginning
            .get_mut(usize::try_from(self.bytes).unwrap_or(COMPARED)..)
            .unwrap_or_default();
        free.iter_mut()
            .zip(text.as_bytes())
            .for_each(|(free, byte)| *free = *byte);
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        self.pieces = self.pieces.saturating_add(1);
    }

    /// Whether a plain text of this length only adds to `bytes`.
    fn is_plain_addition(&self, length: u64) -> bool {
        self.pieces >= 2 && self.bytes >= COMPARED as u64 && self.bytes != length
    }
}

/// What the current event has of a choice.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    any: bool,
    reasoning: bool,
    answer: bool,
    /// It has text that may begin a marker at the start of the answer, or it shows that earlier text did not.
    held: bool,
    since_held: bool,
    /// Where its text ends, if texts are collected; the inner None: not in one place.
    text_end: Option<Option<TextEnd>>,
}

/// The state of one choice.
#[derive(Debug, Default)]
pub struct ChoiceState {
    index: u32,
    finish_reason: Option<String>,
    usage: Usage,
    /// Its texts, if they are collected.
    pub text: MessageText,
    reasoning: ReceivedText,
    answer: ReceivedText,
    splitter: MarkerSplitter,
    pending: Pending,
    /// Its running count of output tokens in the current event.
    running: Option<u64>,
    /// Number of the first token event whose text may begin a marker, of the token events of all choices.
    held_since: Option<u32>,
    /// Number of its first token event that is not reasoning.
    first_answer: Option<u32>,
    reasoning_received: bool,
    has_calls: bool,
}

impl ChoiceState {
    /// Whether it has received a part of a tool call.
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// Sets the finish reason unless it is empty; the first one is kept.
    pub fn set_finish_reason(&mut self, reason: &str) {
        if self.finish_reason.is_none() && !reason.is_empty() {
            self.finish_reason = Some(reason.to_owned());
        }
    }

    /// The new text of a whole message that begins with the text so far; None if it does not.
    pub fn new_text<'a>(&self, kind: ContentKind, text: &'a str) -> Option<&'a str> {
        let received = match kind {
            ContentKind::Reasoning => &self.reasoning,
            ContentKind::Answer => &self.answer,
            _ => return None,
        };
        let known = usize::try_from(received.bytes).ok()?;
        let compared = received.beginning.get(..known.min(COMPARED))?;
        let new = text.get(known..)?;
        let is_whole = !new.is_empty() || self.finish_reason.is_some();
        (known > 0 && is_whole && text.as_bytes().starts_with(compared)).then_some(new)
    }

    fn add_answer(&mut self, markers: &Markers, text: &str) {
        if self.reasoning.bytes > 0 {
            // The server separates the reasoning itself: a marker in the answer is a part of it.
            self.splitter.stop();
        }
        let was_held = self.splitter.is_holding();
        let pending = &mut self.pending;
        let (mut is_held, mut all_was_reasoning) = (true, false);
        self.splitter.push(markers, text, |found| {
            is_held = false;
            match found {
                Found::Text(ContentKind::Reasoning, _) | Found::Marker => pending.reasoning = true,
                Found::Text(..) => pending.answer = true,
                Found::AllWasReasoning => {
                    all_was_reasoning = true;
                    (pending.reasoning, pending.answer) = (true, false);
                }
            }
        });
        pending.held |= is_held;
        pending.since_held |= was_held && !self.splitter.has_found();
        if all_was_reasoning {
            self.first_answer = None;
        }
    }
}

/// The state of one response.
#[derive(Debug, Default)]
pub struct Accumulator {
    options: DecodeOptions,
    id: Option<String>,
    choices: Vec<ChoiceState>,
    has_content: bool,
    characters: u64,
    replacement_characters: u64,
    anomalies: Vec<Anomaly>,
    /// The choice of each token event and where its text ends, if texts are collected.
    text_ends: Vec<(u32, Option<TextEnd>)>,
    /// Usage reports for the whole request: their number, the latest, and their sum.
    usage_reports: usize,
    latest_usage: Usage,
    summed_usage: Usage,
    /// The greatest count of output tokens that a later report contradicted.
    fallen_from: Option<u64>,
    running_counts: RunningCounts,
    /// What the server measured itself.
    pub server_times: ServerTimes,
}

impl Accumulator {
    /// An accumulator for a new response.
    pub fn new(options: &DecodeOptions) -> Accumulator {
        Accumulator {
            options: options.clone(),
            ..Accumulator::default()
        }
    }

    /// Whether texts are collected.
    pub fn keeps_text(&self) -> bool {
        self.options.keep_text
    }

    /// Whether these bytes of a JSON string are their own text and begin no marker.
    pub fn is_plain(&self, bytes: &[u8]) -> bool {
        self.options.markers.is_plain(bytes)
    }

    /// Whether any content was received.
    pub fn has_content(&self) -> bool {
        self.has_content
    }

    /// Records content that is no text and no token event.
    pub fn receive_content(&mut self) {
        self.has_content = true;
    }

    /// Records an anomaly, once per kind.
    pub fn note(&mut self, kind: AnomalyKind) {
        if self.anomalies.iter().all(|known| known.kind != kind) {
            self.anomalies.push(Anomaly::bare(kind));
        }
    }

    /// Sets the response id; the first non-empty one is kept.
    pub fn set_id(&mut self, raw: Raw<'_>) {
        if let (None, Some(raw)) = (&self.id, raw) {
            self.set_id_text(&decode_string(raw));
        }
    }

    /// Sets the response id; the first non-empty one is kept.
    pub fn set_id_text(&mut self, id: &str) {
        if self.id.is_none() && !id.is_empty() {
            self.id = Some(id.to_owned());
        }
    }

    /// The choice with this index, added if it is new. Choices are sorted by index.
    ///
    /// # Errors
    /// `decode`: there are too many. The same holds for everything else that names a choice.
    pub fn choice(&mut self, index: u32) -> Result<&mut ChoiceState, Failure> {
        choice_in(&mut self.choices, index)
    }

    /// Adds the next event of a choice, if it only has this plain ASCII text, without a running count of tokens.
    /// False if the text needs [`Accumulator::add_text`] and [`Accumulator::emit_pending`] instead.
    pub fn add_plain_event(
        &mut self,
        index: u32,
        kind: ContentKind,
        text: &[u8],
        events: &mut Events,
    ) -> bool {
        // Events of several choices alternate, so that none is like the one before it.
        let Some(choice) = self
            .choices
            .first_mut()
            .filter(|choice| choice.index == index)
        else {
            return false;
        };
        let received = match kind {
            ContentKind::Reasoning => &mut choice.reasoning,
            ContentKind::Answer => {
                match choice.splitter.kind_of_plain(&self.options.markers) {
                    Some(ContentKind::Reasoning) => {}
                    Some(_) if choice.first_answer.is_some() => {}
                    _ => return false,
                }
                &mut choice.answer
            }
            _ => return false,
        };
        let length = text.len() as u64;
        if !received.is_plain_addition(length) {
            return false;
        }
        received.bytes = received.bytes.saturating_add(length);
        if self.options.keep_text {
            // Plain text is ASCII.
            let text = str::from_utf8(text).unwrap_or_default();
            self.text_ends.push((index, choice.text.push(kind, text)));
        }
        self.characters = self.characters.saturating_add(length);
        self.running_counts.add(index, None);
        events.token(index);
        true
    }

    /// Marks that the current event has content of this choice that is no text.
    pub fn mark(&mut self, choice: u32, kind: ContentKind) -> Result<(), Failure> {
        let pending = &mut self.choice(choice)?.pending;
        pending.any = true;
        match kind {
            ContentKind::Reasoning => pending.reasoning = true,
            _ => pending.answer = true,
        }
        self.has_content = true;
        Ok(())
    }

    /// Marks that the current event has this name or these arguments of a tool call.
    pub fn mark_call(&mut self, choice: u32, text: &str) -> Result<(), Failure> {
        self.count_characters(text);
        self.choice(choice)?.has_calls = true;
        self.mark(choice, ContentKind::ToolCall)
    }

    /// Adds text of the current event to a choice. An event that repeats the whole text adds nothing.
    pub fn add_str(&mut self, choice: u32, kind: ContentKind, text: &str) -> Result<(), Failure> {
        match self.receive_text(choice, kind, text)? {
            true => self.keep(choice, kind, text),
            false => Ok(()),
        }
    }

    /// As [`Accumulator::add_str`], without collecting the text; returns whether it is new.
    pub fn receive_text(
        &mut self,
        choice: u32,
        kind: ContentKind,
        text: &str,
    ) -> Result<bool, Failure> {
        if text.is_empty() {
            return Ok(false);
        }
        let state = choice_in(&mut self.choices, choice)?;
        let is_final = state.finish_reason.is_some();
        let received = match kind {
            ContentKind::Reasoning | ContentKind::Summary => Some(&mut state.reasoning),
            ContentKind::Answer => Some(&mut state.answer),
            _ => None,
        };
        if let Some(received) = received {
            if received.is_repeated_by(text, is_final) {
                self.note(AnomalyKind::RepeatedMessage);
                return Ok(false);
            }
            received.add(text);
        }
        match kind {
            ContentKind::Answer => state.add_answer(&self.options.markers, text),
            ContentKind::Reasoning => state.pending.reasoning = true,
            ContentKind::Summary => {}
            _ => state.pending.answer = true,
        }
        state.pending.any = true;
        self.has_content = true;
        self.count_characters(text);
        Ok(true)
    }

    /// Counts the characters of generated text.
    pub fn count_characters(&mut self, text: &str) {
        if text.is_ascii() {
            self.characters = self.characters.saturating_add(text.len() as u64);
            return;
        }
        let replaced = text.matches(char::REPLACEMENT_CHARACTER).count();
        self.characters = self.characters.saturating_add(text.chars().count() as u64);
        self.replacement_characters = self.replacement_characters.saturating_add(replaced as u64);
    }

    /// Adds a non-empty JSON string to the current event of a choice; ignores anything else.
    pub fn add_text(
        &mut self,
        choice: u32,
        kind: ContentKind,
        raw: Raw<'_>,
    ) -> Result<(), Failure> {
        match raw.filter(|raw| is_text(raw)) {
            Some(raw) => self.add_str(choice, kind, &decode_string(raw)),
            None => Ok(()),
        }
    }

    /// Collects text of a choice that is no event of its own.
    pub fn keep(&mut self, choice: u32, kind: ContentKind, text: &str) -> Result<(), Failure> {
        if self.options.keep_text {
            let choice = self.choice(choice)?;
            let end = choice.text.push(kind, text);
            let earlier = choice.pending.text_end.replace(end);
            // Texts of two kinds are in two places.
            if earlier.is_some_and(|earlier| earlier.map(|end| end.kind) != end.map(|end| end.kind))
            {
                choice.pending.text_end = Some(None);
            }
        }
        Ok(())
    }

    /// Ends an event: adds a content event for each choice with content, with its running count of tokens if it has
    /// one.
    pub fn emit_pending(&mut self, events: &mut Events) {
        for choice in &mut self.choices {
            let pending = std::mem::take(&mut choice.pending);
            let running = choice.running.take();
            if !pending.any {
                continue;
            }
            let number = events.content;
            choice.reasoning_received |= pending.reasoning;
            if pending.held {
                choice.held_since.get_or_insert(number);
            }
            if pending.answer {
                let begins = choice.held_since.filter(|_| pending.since_held);
                choice.first_answer.get_or_insert(begins.unwrap_or(number));
            }
            self.running_counts.add(choice.index, running);
            events.token(choice.index);
            if self.options.keep_text {
                self.text_ends
                    .push((choice.index, pending.text_end.flatten()));
            }
        }
    }

    /// Reads a `usage` object: see [`Accumulator::add_usage`].
    pub fn add_usage_json(&mut self, choice: Option<u32>, raw: Raw<'_>) -> Result<(), Failure> {
        let Some(raw) = raw else {
            return Ok(());
        };
        if has_negative_count(raw) {
            self.note(AnomalyKind::InvalidCount);
        }
        self.add_usage(choice, parse_usage(raw))
    }

    /// Adds a usage report. With a single choice it is the running count of that choice; otherwise it is for the
    /// request.
    pub fn add_usage(&mut self, choice: Option<u32>, usage: Usage) -> Result<(), Failure> {
        if usage == Usage::default() {
            return Ok(());
        }
        let Some(choice) = choice else {
            self.usage_reports += 1;
            // Reports of several choices are no running count.
            if self.choices.len() <= 1 {
                let of_choice = self.choices.first().and_then(|choice| choice.usage.output);
                self.note_fall(self.latest_usage.output.max(of_choice), usage.output);
            }
            self.latest_usage = merge_latest(self.latest_usage, usage);
            self.summed_usage = sum_choices(self.summed_usage, usage);
            return Ok(());
        };
        let earlier = self.choice(choice)?.usage.output;
        self.note_fall(earlier, usage.output);
        let choice = self.choice(choice)?;
        choice.usage = merge_latest(choice.usage, usage);
        // A count of 0 beside content is no count.
        choice.running = usage.output.filter(|tokens| *tokens > 0).or(choice.running);
        Ok(())
    }

    /// Notes a running count that falls by more than the stop tokens that a server may take back.
    fn note_fall(&mut self, earlier: Option<u64>, later: Option<u64>) {
        // A 0 after a count is no report.
        if let (Some(earlier), Some(later)) = (earlier, later.filter(|later| *later > 0))
            && later.saturating_add(earlier / 8 + 2) < earlier
        {
            self.fallen_from = self.fallen_from.max(Some(earlier));
        }
    }

    /// Sets the output tokens of a choice so far, for APIs without running usage.
    pub fn set_output_tokens(&mut self, choice: u32, tokens: u64) -> Result<(), Failure> {
        self.choice(choice)?.running = Some(tokens);
        Ok(())
    }

    /// Whether there was no choice.
    pub fn is_empty(&self) -> bool {
        self.choices.is_empty()
    }

    /// A choice without a finish reason.
    pub fn unfinished_choice(&self) -> Option<u32> {
        self.choices
            .iter()
            .find(|choice| choice.finish_reason.is_none())
            .map(|choice| choice.index)
    }

    /// The end of a complete response.
    ///
    /// # Errors `stream_error` if the server aborted, `empty` without content and finish reason.
    pub fn ending(&self) -> Result<Finish, Failure> {
        let mut reasons = self
            .choices
            .iter()
            .filter_map(|choice| choice.finish_reason.as_deref());
        if let Some(reason) = reasons.clone().find(|reason| ABORTED.contains(reason)) {
            return Err(Failure::new(
                FailureKind::StreamError,
                format!("the server finished with `{reason}`"),
            ));
        }
        finish(reasons.next(), self.has_content)
    }

    /// The end of a stream that is complete only with a finish reason for every choice.
    ///
    /// # Errors `truncated` if a reason is missing, and those of [`Accumulator::ending`].
    pub fn ending_with_reasons(&self) -> Result<Finish, Failure> {
        let truncated = |message: String| Err(Failure::new(FailureKind::Truncated, message));
        match self.unfinished_choice() {
            _ if self.is_empty() => truncated("the stream ended before its first choice".into()),
            Some(choice) => truncated(format!(
                "the stream ended without a finish reason for choice {choice}"
            )),
            None => self.ending(),
        }
    }

    /// Completes the events of a stream at its end: the tokens in each, and the number of those with reasoning before
    /// the answer.
    pub fn close(&self, events: &mut Events) {
        let weights = self.running_counts.weights(self.latest_usage.output);
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        // A running count above the final one counts something else.
        if self.usage().output.is_none_or(|total| sum <= total) {
            events.weights = weights;
        }
        let first_answer = |choice: &ChoiceState| match choice.splitter.is_holding() {
            // Text that no marker followed.
            true => choice.first_answer.or(choice.held_since),
            false => choice.first_answer,
        };
        let first = self.choices.iter().filter_map(first_answer).min();
        events.reasoning = first.unwrap_or(events.content);
    }

    /// The output tokens of all reports so far.
    pub fn counted_tokens(&self) -> u64 {
        let choices = self.choices.iter().filter_map(|choice| choice.usage.output);
        choices
            .chain(self.latest_usage.output)
            .fold(0, u64::saturating_add)
    }

    /// The range of each token event's text in the text of the reply; empty if an event has content that is not in
    /// one place of it.
    fn event_texts(&self) -> Vec<Range<u32>> {
        let mut base = 0;
        let mut choices = BTreeMap::new();
        for choice in &self.choices {
            choices.insert(choice.index, (choice, base));
            base += choice.text.bytes();
        }
        // By choice and kind: the bytes before their text, and the end of the latest event.
        let mut reached: Vec<(u32, ContentKind, usize, usize)> = Vec::new();
        let range = |(index, end): &(u32, Option<TextEnd>)| {
            let end = (*end)?;
            let is_same =
                |known: &(u32, ContentKind, usize, usize)| (known.0, known.1) == (*index, end.kind);
            let known = match reached.iter().position(is_same) {
                Some(known) => known,
                None => {
                    let (choice, base) = choices.get(index)?;
                    let before = base + choice.text.bytes_before(end.kind);
                    reached.push((*index, end.kind, before, 0));
                    reached.len() - 1
                }
            };
            let (_, _, before, latest) = reached.get_mut(known)?;
            let from = std::mem::replace(latest, end.bytes);
            let place = |bytes: usize| u32::try_from(*before + bytes).ok();
            Some(place(from)?..place(end.bytes)?)
        };
        let ranges: Option<Vec<Range<u32>>> = self.text_ends.iter().map(range).collect();
        ranges.unwrap_or_default()
    }

    /// The token counts of the request.
    ///
    /// vLLM sends one total after the last choice. llama-server sends one count per choice in separate events, or,
    /// for text completions, with the last text of each choice.
    pub fn usage(&self) -> Usage {
        let join = if self
            .running_counts
            .count_the_request(self.latest_usage.output)
        {
            max_counts
        } else {
            sum_choices
        };
        let choices = self
            .choices
            .iter()
            .map(|choice| choice.usage)
            .fold(Usage::default(), join);
        match self.usage_reports {
            0 => choices,
            reports if reports > 1 && reports == self.choices.len() => {
                merge_latest(choices, self.summed_usage)
            }
            _ => merge_latest(choices, self.latest_usage),
        }
    }

    /// The reply, with this end. `call_json` formats a tool call for the next turn.
    pub fn into_reply(
        mut self,
        end: Result<Finish, Failure>,
        call_json: impl Fn(ToolCallText) -> Option<Value>,
    ) -> Reply {
        let mut usage = self.usage();
        if let Some(reported) = self.fallen_from {
            (usage.output, usage.reasoning) = (None, None);
            self.anomalies.push(Anomaly {
                kind: AnomalyKind::FallingOutput,
                reported,
            });
        }
        if self
            .choices
            .iter()
            .any(|choice| choice.splitter.has_found())
        {
            self.note(AnomalyKind::ReasoningMarkers);
        }
        let facts = ReplyFacts {
            // A reply that is not streamed has no events.
            reasoning_received: self
                .choices
                .iter()
                .any(|choice| choice.reasoning_received || choice.pending.reasoning),
            characters: self.characters,
            replacement_characters: self.replacement_characters,
            anomalies: std::mem::take(&mut self.anomalies),
            weights_counted: false,
        };
        let mut text = None;
        let mut message = None;
        let mut event_texts = Vec::new();
        if self.options.keep_text {
            event_texts = self.event_texts();
            let collected = text.insert(String::new());
            self.choices
                .iter()
                .for_each(|choice| choice.text.append_to(collected));
            message = Some(
                self.choices
                    .into_iter()
                    .next()
                    .unwrap_or_default()
                    .text
                    .into_message(&self.options.markers, call_json),
            );
        }
        Reply {
            end,
            usage,
            id: self.id,
            text,
            event_texts,
            message,
            server: self.server_times,
            items: None,
            silent: !self.has_content,
            facts,
        }
    }

    /// The reply, with this end and these tool calls of the first choice.
    pub fn into_reply_with_calls(self, end: Result<Finish, Failure>, calls: Vec<Value>) -> Reply {
        let mut reply = self.into_reply(end, |_| None);
        if let Some(message) = reply.message.as_mut().filter(|_| !calls.is_empty()) {
            message.tool_calls = Value::Array(calls);
        }
        reply
    }
}

fn choice_in(choices: &mut Vec<ChoiceState>, index: u32) -> Result<&mut ChoiceState, Failure> {
    let place = choices.partition_point(|choice| choice.index < index);
    if choices
        .get(place)
        .is_none_or(|choice| choice.index != index)
    {
        if choices.len() == MAX_CHOICES {
            return Err(Failure::new(
                FailureKind::Decode,
                format!("more than {MAX_CHOICES} choices in one response"),
            ));
        }
        choices.insert(
            place,
            ChoiceState {
                index,
                ..ChoiceState::default()
            },
        );
    }
    Ok(&mut choices[place])
}

/// The end of a complete response. A response without content is successful if it has a finish reason.
///
/// # Errors `empty`: no content and no finish reason.
pub fn finish(reason: Option<&str>, has_content: bool) -> Result<Finish, Failure> {
    match reason.filter(|reason| !reason.is_empty()) {
        None if !has_content => Err(Failure::new(
            FailureKind::Empty,
            "the response is complete, but has neither content nor a finish reason",
        )),
        reason => Ok(Finish {
            reason: reason.unwrap_or_default().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content_kind::ContentKind;

    const KEEP: fn() -> DecodeOptions = || DecodeOptions {
        keep_text: true,
        ..DecodeOptions::default()
    };

    /// Events with content of choice 0 and this running count.
    fn weights(counts: &[Option<u64>]) -> Vec<u32> {
        let (mut accumulator, mut events) = (
            Accumulator::new(&DecodeOptions::default()),
            Events::default(),
        );
        for count in counts {
            accumulator.mark(0, ContentKind::Answer).unwrap();
            accumulator
                .add_usage(
                    Some(0),
                    Usage {
                        output: *count,
                        ..Usage::default()
                    },
                )
                .unwrap();
            accumulator.emit_pending(&mut events);
        }
        assert_eq!(events.content as usize, counts.len());
        accumulator.close(&mut events);
        events.weights
    }

    #[test]
    fn tokens_of_an_event_are_the_increase_of_the_running_count() {
        assert_eq!(weights(&[Some(1), Some(4), Some(5)]), [1, 3, 1]);
        assert_eq!(weights(&[Some(1), None, Some(5)]), [0u32; 0]);
        assert_eq!(weights(&[Some(1), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[Some(2), Some(1)]), [0u32; 0]);
        assert_eq!(weights(&[None]), [0u32; 0]);
    }

    #[test]
    fn a_count_that_falls_is_not_used_and_reports_of_choices_do_not_fall() {
        let of = |choices: u32, of_choice: Option<u32>, counts: &[u64]| {
            let mut accumulator = Accumulator::new(&DecodeOptions::default());
            for choice in 0..choices {
                accumulator.mark(choice, ContentKind::Answer).unwrap();
            }
            for count in counts {
                let usage = Usage {
                    output: Some(*count),
                    ..Usage::default()
                };
                accumulator.add_usage(of_choice, usage).unwrap();
            }
            let reply = accumulator.into_reply(Ok(Finish::default()), |_| None);
            let fallen = reply.facts.anomalies.iter().map(|own| own.reported);
            (reply.usage.output, fallen.collect::<Vec<_>>())
        };
        for of_choice in [None, Some(0)] {
            assert_eq!(of(1, of_choice, &[10, 20, 5]), (None, vec![20]));
            assert_eq!(of(1, of_choice, &[10, 20, 16]), (Some(16), vec![]));
            assert_eq!(of(1, of_choice, &[10, 20, 0]), (Some(20), vec![]));
        }
        assert_eq!(of(2, None, &[20, 5]), (Some(25), vec![]));
    }

    #[test]
    fn the_number_of_choices_is_limited() {
        let mut accumulator = Accumulator::new(&DecodeOptions::default());
        (0..1024).for_each(|choice| accumulator.choice(choice).map(drop).unwrap());
        assert!(accumulator.choice(3).is_ok());
        assert_eq!(
            accumulator.choice(1024).unwrap_err().message,
            "more than 1024 choices in one response"
        );
    }

    #[test]
    fn the_text_is_that_of_all_choices_and_the_message_that_of_the_first() {
        let mut accumulator = Accumulator::new(&KEEP());
        for (choice, kind, text) in [
            (1, ContentKind::Answer, "x"),
            (0, ContentKind::Answer, "b"),
            (0, ContentKind::Reasoning, "a"),
            (0, ContentKind::ToolCall, "f"),
        ] {
            accumulator.keep(choice, kind, text).unwrap();
        }
        let reply = accumulator.into_reply(Ok(Finish::default()), |_| None);
        assert_eq!(reply.text.as_deref(), Some("abfx"));
        let message = Message {
            content: "b".into(),
            reasoning: "a".into(),
            tool_calls: Value::Null,
        };
        assert_eq!(reply.message, Some(message));
    }

    #[test]
    fn texts_are_joined_in_order_and_a_refusal_replaces_missing_content() {
        let mut text = MessageText {
            content: "a".into(),
            reasoning: "r".into(),
            refusal: "no".into(),
            ..MessageText::default()
        };
        text.calls.entry(1).or_default().name = "g".into();
        text.calls.entry(0).or_default().input = "0".into();
        text.calls.entry(1).or_default().input.push('1');
        let mut all = String::new();
        text.append_to(&mut all);
        assert_eq!(all, "rano0g1");
        assert_eq!(
            text.latest_call()
                .map(|(index, call)| (index, call.name.as_str())),
            Some((1, "g"))
        );
        let message = text.into_message(&Markers::default(), |call| {
            (call.name == "g").then_some(Value::String(call.input))
        });
        assert_eq!(
            (message.content.as_str(), message.reasoning.as_str()),
            ("a", "r")
        );
        assert_eq!(message.tool_calls, serde_json::json!(["1"]));
        let refused = MessageText {
            refusal: "no".into(),
            ..MessageText::default()
        }
        .into_message(&Markers::default(), |_| None);
        assert_eq!(
            refused,
            Message {
                content: "no".into(),
                ..Message::default()
            }
        );
    }
}
