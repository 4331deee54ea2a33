//! The JSON of the OpenAI family: one event of a stream, or one reply. Unused fields are skipped.
//!
//! Values are raw slices of the body: an empty text is detected without decoding, so an event needs no allocation,
//! and a token that is half a surrogate pair still counts.

use crate::content_kind::ContentKind;
use crate::raw_json::{OneOrMany, Raw, is_filled, is_text};
use serde::Deserialize;
use serde_json::value::RawValue;

/// One event, or one reply.
#[derive(Deserialize)]
pub struct Chunk<'a> {
    /// Response id.
    #[serde(borrow)]
    pub id: Raw<'a>,
    /// `error` for an error of older vLLM versions.
    #[serde(borrow)]
    pub object: Raw<'a>,
    /// The choices; absent in an event that only has usage.
    #[serde(borrow)]
    pub choices: Option<OneOrMany<Choice<'a>>>,
    /// Token counts.
    #[serde(borrow)]
    pub usage: Raw<'a>,
    /// Token counts of Gemini, in either case.
    #[serde(borrow, alias = "usageMetadata")]
    pub usage_metadata: Raw<'a>,
    /// Token counts or an error of Groq.
    #[serde(borrow)]
    pub x_groq: Option<Groq<'a>>,
    /// An error under status 200.
    #[serde(borrow)]
    pub error: Raw<'a>,
    /// Times and token counts of llama.cpp.
    #[serde(borrow)]
    pub timings: Raw<'a>,
}

/// What Groq adds to an event.
#[derive(Deserialize)]
pub struct Groq<'a> {
    /// Token counts.
    #[serde(borrow)]
    pub usage: Raw<'a>,
    /// An error.
    #[serde(borrow)]
    pub error: Raw<'a>,
}

/// One of `n` choices.
#[derive(Deserialize)]
pub struct Choice<'a> {
    /// Index.
    pub index: Option<u32>,
    /// Chat, streamed.
    #[serde(borrow)]
    delta: Option<Message<'a>>,
    /// Chat, not streamed.
    #[serde(borrow)]
    message: Option<Message<'a>>,
    /// Text completions.
    #[serde(borrow)]
    text: Raw<'a>,
    /// Finish reason; absent, null or empty before the end.
    #[serde(borrow)]
    pub finish_reason: Raw<'a>,
    /// Token counts of Moonshot.
    #[serde(borrow)]
    usage: Raw<'a>,
    /// An error of OpenRouter.
    #[serde(borrow)]
    pub error: Raw<'a>,
}

/// Rare fields stay raw to keep the struct small, because every event moves it.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    reasoning_content: Raw<'a>,
    #[serde(borrow)]
    reasoning: Raw<'a>,
    #[serde(borrow)]
    reasoning_details: Raw<'a>,
    #[serde(borrow)]
    reasoning_text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    refusal: Raw<'a>,
    #[serde(borrow)]
    tool_calls: Raw<'a>,
    #[serde(borrow)]
    function_call: Raw<'a>,
    #[serde(borrow)]
    audio: Raw<'a>,
    #[serde(borrow)]
    images: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
}

/// A tool call, or a part of one.
#[derive(Deserialize)]
pub struct ToolCall<'a> {
    /// Index among the calls of its choice; some servers omit it.
    pub index: Option<u32>,
    /// Call id, in the first part only.
    #[serde(borrow)]
    pub id: Raw<'a>,
    /// `function` or `custom`, in the first part only.
    #[serde(borrow, rename = "type")]
    pub kind: Raw<'a>,
    #[serde(borrow)]
    function: Option<Function<'a>>,
    #[serde(borrow)]
    custom: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
}

#[derive(Deserialize)]
struct Audio<'a> {
    #[serde(borrow)]
    transcript: Raw<'a>,
    #[serde(borrow)]
    data: Raw<'a>,
}

/// A part of a list of contents or of reasoning details. A signature or encrypted reasoning is no token.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    summary: Raw<'a>,
    /// A text, or a list of parts.
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    refusal: Raw<'a>,
}

/// A piece of generated content.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// Its kind.
    pub kind: ContentKind,
    /// Its text, a non-empty JSON string; None: content that is no text.
    pub text: Raw<'a>,
}

impl<'a> Choice<'a> {
    /// Passes each piece of generated content to `sink`, without tool calls. The same text in two fields is passed
    /// once.
    pub fn pieces(&self, sink: &mut dyn FnMut(Piece<'a>)) {
        match self.content() {
            Some(message) => message.pieces(self.text, sink),
            None => texts(ContentKind::Answer, self.text, sink),
        }
    }

    /// The text of the choice, if it has one string of content or of reasoning and nothing else.
    pub fn only_text(&self) -> Option<(ContentKind, &'a RawValue)> {
        let mut pieces = 0;
        let mut only = None;
        self.pieces(&mut |piece| {
            pieces += 1;
            only = Some(piece);
        });
        let piece = only.filter(|_| pieces == 1 && !self.has_calls() && self.usage().is_none())?;
        let fields = [
            self.text,
            self.content().and_then(|message| message.content),
            self.content().and_then(Message::reasoning_text),
        ];
        // A text in a list of parts, or one that another field repeats, is not alone.
        let mut fields = fields.into_iter().flatten().filter(|raw| is_filled(raw));
        let text = piece.text?;
        let alone = fields
            .next()
            .is_some_and(|field| std::ptr::eq(field.get(), text.get()))
            && fields.next().is_none();
        alone.then_some((piece.kind, text))
    }

    /// Whether it has a whole message in place of an addition to one.
    pub fn has_whole_message(&self) -> bool {
        self.delta.is_none() && self.message.is_some()
    }

    /// The tool calls.
    ///
    /// # Errors The field is not a list of tool calls.
    pub fn calls(&self) -> Result<Option<OneOrMany<ToolCall<'a>>>, serde_json::Error> {
        let raw = self.content().and_then(|message| message.tool_calls);
        raw.map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// The token counts in the choice or in its message.
    pub fn usage(&self) -> Raw<'a> {
        let messages = [&self.delta, &self.message].into_iter().flatten();
        let mut places = [self.usage]
            .into_iter()
            .chain(messages.map(|message| message.usage));
        places.find_map(|usage| usage.filter(|raw| is_filled(raw)))
    }

    fn has_calls(&self) -> bool {
        self.content()
            .is_some_and(|message| message.tool_calls.is_some())
    }

    fn content(&self) -> Option<&Message<'a>> {
        self.delta.as_ref().or(self.message.as_ref())
    }
}

impl<'a> Message<'a> {
    /// Servers send the same reasoning under several names.
    fn reasoning_text(&self) -> Raw<'a> {
        [
            self.reasoning_content,
            self.reasoning,
            self.reasoning_text,
            self.thinking,
        ]
        .into_iter()
        .flatten()
        .find(|raw| is_text(raw))
    }

    fn pieces(&self, completion: Raw<'a>, sink: &mut dyn FnMut(Piece<'a>)) {
        let reasoning = self.reasoning_text();
        match (reasoning, self.reasoning_details) {
            (Some(_), _) => texts(ContentKind::Reasoning, reasoning, sink),
            (None, details) => parts(ContentKind::Reasoning, details, sink),
        }
        let answer = self.content.filter(|raw| is_filled(raw)).or(completion);
        let same = |raw: &RawValue| reasoning.is_some_and(|other| other.get() == raw.get());
        // A copy of the reasoning is no answer.
        texts(ContentKind::Answer, answer.filter(|raw| !same(raw)), sink);
        texts(ContentKind::Refusal, self.refusal, sink);
        if let Some(raw) = self.function_call {
            function(raw, sink);
        }
        if let Some(raw) = self.audio {
            audio(raw, sink);
        }
        if self.images.is_some_and(is_filled) {
            sink(Piece {
                kind: ContentKind::Media,
                text: None,
            });
        }
    }
}

/// Passes on a non-empty text, or those of a list of parts.
fn texts<'a>(kind: ContentKind, raw: Raw<'a>, sink: &mut dyn FnMut(Piece<'a>)) {
    match raw {
        Some(raw) if is_text(raw) => sink(Piece {
            kind,
            text: Some(raw),
        }),
        Some(raw) if raw.get().starts_with('[') => parts(kind, Some(raw), sink),
        _ => {}
    }
}

/// Passes on the contents of a list of parts. A list that cannot be read has none.
fn parts<'a>(kind: ContentKind, raw: Raw<'a>, sink: &mut dyn FnMut(Piece<'a>)) {
    let Some(list) = raw.and_then(|raw| serde_json::from_str::<OneOrMany<Part>>(raw.get()).ok())
    else {
        return;
    };
    for part in list.iter() {
        let name = part.kind.map(RawValue::get).unwrap_or_default();
        let kind = match name {
            r#""thinking""# | r#""reasoning""# => ContentKind::Reasoning,
            _ => kind,
        };
        // A part of reasoning has text or a list of texts in its own field.
        let thinking = part.thinking.filter(|raw| is_filled(raw));
        match thinking {
            Some(raw) if raw.get().starts_with('[') => {
                parts(ContentKind::Reasoning, Some(raw), sink);
            }
            Some(_) => string(ContentKind::Reasoning, thinking, sink),
            None => {}
        }
        string(kind, part.text, sink);
        string(ContentKind::Summary, part.summary, sink);
        string(ContentKind::Refusal, part.refusal, sink);
        if ["image", "audio", "video"]
            .iter()
            .any(|media| name.contains(media))
        {
            sink(Piece {
                kind: ContentKind::Media,
                text: None,
            });
        }
    }
}

fn string<'a>(kind: ContentKind, raw: Raw<'a>, sink: &mut dyn FnMut(Piece<'a>)) {
    if let Some(raw) = raw.filter(|raw| is_text(raw)) {
        sink(Piece {
            kind,
            text: Some(raw),
        });
    }
}

fn function<'a>(raw: &'a RawValue, sink: &mut dyn FnMut(Piece<'a>)) {
    if let Ok(function) = serde_json::from_str::<Function>(raw.get()) {
        string(ContentKind::ToolCall, function.name, sink);
        string(ContentKind::ToolCall, function.arguments, sink);
    }
}

/// Audio is an object with a transcript, or the data itself.
fn audio<'a>(raw: &'a RawValue, sink: &mut dyn FnMut(Piece<'a>)) {
    let (transcript, data) = match serde_json::from_str::<Audio>(raw.get()) {
        Ok(audio) => (audio.transcript, audio.data),
        Err(_) => (None, Some(raw)),
    };
    string(ContentKind::Answer, transcript, sink);
    if data.is_some_and(is_text) {
        sink(Piece {
            kind: ContentKind::Media,
            text: None,
        });
    }
}

impl<'a> ToolCall<'a> {
    /// The name, if not empty.
    pub fn name(&self) -> Raw<'a> {
        self.tool()
            .and_then(|tool| tool.name)
            .filter(|raw| is_text(raw))
    }

    /// The arguments in this part, if not empty: a text, or the object itself.
    pub fn input(&self) -> Raw<'a> {
        self.tool()
            .and_then(|tool| tool.arguments.or(tool.input))
            .filter(|raw| is_text(raw) || raw.get().starts_with('{'))
    }

    fn tool(&self) -> Option<&Function<'a>> {
        self.function.as_ref().or(self.custom.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_json::decode_string;

    fn texts(choice: &str) -> Vec<String> {
        let choice: Choice = serde_json::from_str(choice).unwrap();
        let calls = choice.calls().unwrap();
        let calls = calls
            .iter()
            .flat_map(OneOrMany::iter)
            .flat_map(|call| [call.name(), call.input()])
            .flatten();
        let mut texts = Vec::new();
        choice.pieces(&mut |piece| {
            texts.push(
                piece
                    .text
                    .map_or("-".into(), |raw| decode_string(raw).into_owned()),
            )
        });
        texts.extend(calls.map(|raw| decode_string(raw).into_owned()));
        texts
    }

    #[test]
    fn every_kind_of_generated_content_counts_and_empty_ones_do_not() {
        for (choice, expected) in [
            (r#"{"delta":{"role":"assistant","content":""}}"#, vec![]),
            (
                r#"{"delta":{"content":null,"reasoning":null,"tool_calls":null,"audio":null}}"#,
                vec![],
            ),
            (
                r#"{"delta":{}, "logprobs":{"content":[{"token":"x"}]}}"#,
                vec![],
            ),
            (r#"{"delta":null,"text":""}"#, vec![]),
            (r#"{"delta":{"content":" "}}"#, vec![" "]),
            (r#"{"delta":{"reasoning":"a"}}"#, vec!["a"]),
            (
                r#"{"delta":{"reasoning_content":"a","reasoning":"a"}}"#,
                vec!["a"],
            ),
            (
                r#"{"delta":{"reasoning_content":"","reasoning":"a","content":"b"}}"#,
                vec!["a", "b"],
            ),
            (r#"{"message":{"refusal":"no"}}"#, vec!["no"]),
            (r#"{"text":"a"}"#, vec!["a"]),
            (
                r#"{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}"#,
                vec!["f"],
            ),
            (
                r#"{"delta":{"tool_calls":[{"function":{"arguments":"{\"a\""}},{"function":{"arguments":"1"}}]}}"#,
                vec!["{\"a\"", "1"],
            ),
            (
                r#"{"message":{"tool_calls":[{"type":"custom","custom":{"name":"f","input":"a"}}]}}"#,
                vec!["f", "a"],
            ),
            (
                r#"{"delta":{"function_call":{"name":"f","arguments":"{}"}}}"#,
                vec!["f", "{}"],
            ),
            (
                r#"{"delta":{"tool_calls":[{"index":0,"function":null}]}}"#,
                vec![],
            ),
            (
                r#"{"delta":{"audio":{"id":"a","transcript":"hi"}}}"#,
                vec!["hi"],
            ),
            (
                r#"{"delta":{"audio":{"data":"AAAA","transcript":""}}}"#,
                vec!["-"],
            ),
            (r#"{"delta":{"audio":"AAAA"}}"#, vec!["-"]),
            (
                r#"{"delta":{"content":null,"images":[{"type":"image_url"}]}}"#,
                vec!["-"],
            ),
            (r#"{"text":"a","delta":{"content":"a"}}"#, vec!["a"]),
            (r#"{"delta":{"audio":{"id":"a","expires_at":7}}}"#, vec![]),
        ] {
            assert_eq!(texts(choice), expected, "{choice}");
        }
    }

    #[test]
    fn reasoning_has_several_fields_and_counts_once() {
        let kinds = |delta: &str| {
            let json = format!(r#"{{"delta":{delta}}}"#);
            let choice: Choice = serde_json::from_str(&json).unwrap();
            let mut kinds = Vec::new();
            choice.pieces(&mut |piece| {
                kinds.push((piece.kind, decode_string(piece.text.unwrap()).into_owned()))
            });
            kinds
        };
        let reasoning = || (ContentKind::Reasoning, "hm".to_owned());
        let answer = || (ContentKind::Answer, "yes".to_owned());
        for delta in [
            r#"{"reasoning_content":"hm"}"#,
            r#"{"reasoning":"hm","reasoning_details":[{"type":"reasoning.text","text":"hm"}]}"#,
            r#"{"content":"","reasoning_details":[{"type":"reasoning.text","index":0,"text":"hm"}]}"#,
            r#"{"thinking":"hm"}"#,
            r#"{"reasoning_text":"hm","content":"hm"}"#,
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#,
            r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":""}]}"#,
            r#"{"content":[{"type":"reasoning","text":"hm"}]}"#,
        ] {
            assert_eq!(kinds(delta), [reasoning()], "{delta}");
        }
        let summary = r#"{"reasoning_details":[{"type":"reasoning.summary","summary":"hm"},{"type":"reasoning.encrypted","data":"eA=="}]}"#;
        assert_eq!(kinds(summary), [(ContentKind::Summary, "hm".to_owned())]);
        let list =
            r#"{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"yes"}]}"#;
        assert_eq!(kinds(list), [reasoning(), answer()]);
        for nothing in [
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"eA=="}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"","signature":"s"}]}"#,
            r#"{"content":[]}"#,
            r#"{"content":[{"type":"reference","reference_ids":[1]}]}"#,
        ] {
            assert_eq!(kinds(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn only_a_text_of_one_field_is_a_pattern() {
        let only = |choice: &str| {
            let choice: Choice = serde_json::from_str(choice).unwrap();
            choice
                .only_text()
                .map(|(kind, raw)| (kind, decode_string(raw).into_owned()))
        };
        for alone in [r#"{"text":"a"}"#, r#"{"delta":{"content":"a"}}"#] {
            assert_eq!(only(alone), Some((ContentKind::Answer, "a".into())));
        }
        for other in [
            r#"{"delta":{"content":[{"type":"text","text":"a"}]}}"#,
            r#"{"text":"a","delta":{"content":"a"}}"#,
            r#"{"delta":{"content":"a","reasoning":"b"}}"#,
            r#"{"delta":{"content":"a"},"usage":{"completion_tokens":1}}"#,
            r#"{"delta":{"content":"a","tool_calls":[]}}"#,
        ] {
            assert_eq!(only(other), None, "{other}");
        }
    }

    #[test]
    fn escapes_are_decoded_and_half_a_surrogate_pair_is_still_text() {
        assert_eq!(
            texts(r#"{"text":"\n\u00e9 \ud83d\ude00"}"#),
            ["\n\u{e9} \u{1F600}"]
        );
        assert_eq!(texts(r#"{"text":"\ud83d"}"#), [r"\ud83d"]);
    }
}
