//! The JSON of the OpenAI family: one event of a stream, or one reply. Unused fields are skipped.
//!
//! Values are raw slices of the body: an empty text is detected without decoding, so an event needs no allocation, and a token
//! that is half a surrogate pair still counts.

use crate::accumulator::ContentKind;
use crate::raw_json::{OneOrMany, Raw, has_text};
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
    /// An error under status 200.
    #[serde(borrow)]
    pub error: Raw<'a>,
    /// Times measured by llama.cpp.
    #[serde(borrow)]
    pub timings: Raw<'a>,
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
    refusal: Raw<'a>,
    #[serde(borrow)]
    tool_calls: Raw<'a>,
    #[serde(borrow)]
    function_call: Raw<'a>,
    #[serde(borrow)]
    audio: Raw<'a>,
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

impl<'a> Choice<'a> {
    /// The non-empty generated texts, without tool calls.
    pub fn parts(&self) -> impl Iterator<Item = (ContentKind, &'a RawValue)> {
        let text = self.text.map(|raw| (ContentKind::Answer, raw));
        text.into_iter()
            .chain(self.content().into_iter().flat_map(Message::parts))
            .filter(|(_, raw)| has_text(raw))
    }

    /// The tool calls.
    ///
    /// # Errors The field is not a list of tool calls.
    pub fn calls(&self) -> Result<Option<OneOrMany<ToolCall<'a>>>, serde_json::Error> {
        let raw = self.content().and_then(|message| message.tool_calls);
        raw.map(|raw| serde_json::from_str(raw.get())).transpose()
    }

    /// Whether there is a field for tool calls.
    pub fn has_calls(&self) -> bool {
        self.content()
            .is_some_and(|message| message.tool_calls.is_some())
    }

    fn content(&self) -> Option<&Message<'a>> {
        self.delta.as_ref().or(self.message.as_ref())
    }
}

impl<'a> Message<'a> {
    fn parts(&self) -> impl Iterator<Item = (ContentKind, &'a RawValue)> {
        // Some servers send the same reasoning under both names.
        let reasoning = self
            .reasoning_content
            .filter(|raw| has_text(raw))
            .or(self.reasoning);
        let texts = [
            (ContentKind::Reasoning, reasoning),
            (ContentKind::Answer, self.content),
            (ContentKind::Refusal, self.refusal),
        ];
        let rare = self
            .function_call
            .into_iter()
            .flat_map(function)
            .chain(self.audio.into_iter().flat_map(audio));
        texts
            .into_iter()
            .chain(rare)
            .filter_map(|(part, raw)| Some((part, raw?)))
    }
}

fn function(raw: &RawValue) -> [(ContentKind, Raw<'_>); 2] {
    let (name, arguments) = serde_json::from_str::<Function>(raw.get())
        .map_or((None, None), |function| (function.name, function.arguments));
    [
        (ContentKind::ToolCall, name),
        (ContentKind::ToolCall, arguments),
    ]
}

/// Audio is an object with a transcript, or the data itself.
fn audio(raw: &RawValue) -> [(ContentKind, Raw<'_>); 2] {
    match serde_json::from_str::<Audio>(raw.get()) {
        Ok(audio) => [
            (ContentKind::Answer, audio.transcript),
            (ContentKind::Audio, audio.data),
        ],
        Err(_) => [(ContentKind::Audio, Some(raw)), (ContentKind::Audio, None)],
    }
}

impl<'a> ToolCall<'a> {
    /// The name, if not empty.
    pub fn name(&self) -> Raw<'a> {
        self.tool()
            .and_then(|tool| tool.name)
            .filter(|raw| has_text(raw))
    }

    /// The arguments in this part, if not empty.
    pub fn input(&self) -> Raw<'a> {
        self.tool()
            .and_then(|tool| tool.arguments.or(tool.input))
            .filter(|raw| has_text(raw))
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
        choice
            .parts()
            .map(|(_, raw)| raw)
            .chain(calls)
            .map(|raw| decode_string(raw).into_owned())
            .collect()
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
                vec!["AAAA"],
            ),
            (r#"{"delta":{"audio":"AAAA"}}"#, vec!["AAAA"]),
            (r#"{"delta":{"audio":{"id":"a","expires_at":7}}}"#, vec![]),
        ] {
            assert_eq!(texts(choice), expected, "{choice}");
        }
    }

    #[test]
    fn a_list_of_parts_is_content() {
        assert_eq!(
            texts(r#"{"delta":{"content":[{"type":"text","text":"a"}]}}"#),
            [""]
        );
        assert_eq!(texts(r#"{"delta":{"content":[]}}"#), [""; 0]);
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
