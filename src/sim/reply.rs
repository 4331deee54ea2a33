//! The JSON of the answers and the framing of their streams, built from pieces that are fixed per request.

use crate::model::seed::Seed;
use crate::sim::ask::{Api, Ask, Refusal};

/// `created` of every response: the simulator does not read the wall clock, and its answers are the same on every run.
const CREATED: u64 = 1_700_000_000;

const WORDS: [&str; 32] = [
    " the", " of", " and", " to", " in", " is", " that", " it", " was", " for", " on", " are", " with", " as", " at", " be",
    " this", " from", " or", " had", " by", " not", " word", " but", " what", " some", " we", " can", " out", " other", " all",
    " when",
];

/// Token `index` of answer `number`: one short word with a space in front.
pub(super) fn word(seed: Seed, number: u64, index: u64) -> &'static str {
    WORDS[(seed.child(number).child(index).0 % WORDS.len() as u64) as usize]
}

/// What an event's text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Reasoning text.
    Reasoning,
    /// The answer itself.
    Content,
}

/// The parts of a stream's events that do not change from one to the next. Every event is one HTTP chunk.
#[derive(Debug)]
pub(super) struct Frames {
    api: Api,
    /// Up to and with `"choices":[`.
    open: String,
    finish: String,
}

impl Frames {
    pub(super) fn new(ask: &Ask, id: &str) -> Frames {
        let object = match ask.api {
            Api::Chat => "chat.completion.chunk",
            Api::Completions => "text_completion",
        };
        let close = closing(ask.api);
        Frames {
            api: ask.api,
            open: format!("data: {{{},\"choices\":[", envelope(object, ask, id)),
            finish: format!("{close},\"logprobs\":null,\"finish_reason\":\"{}\"}}]}}\n\n", ask.finish),
        }
    }

    /// The event that carries the role and no text.
    pub(super) fn role(&self, to: &mut Vec<u8>) {
        let choice =
            "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";
        chunk(to, &[&self.open, choice]);
    }

    /// An event that carries text; `role` puts the role beside it, `last` the finish reason.
    pub(super) fn text(&self, to: &mut Vec<u8>, (part, text): (Part, &str), role: bool, last: bool) {
        let lead = match (self.api, part, role) {
            (Api::Completions, _, _) => "{\"index\":0,\"text\":\"",
            (Api::Chat, Part::Content, false) => "{\"index\":0,\"delta\":{\"content\":\"",
            (Api::Chat, Part::Content, true) => "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"",
            (Api::Chat, Part::Reasoning, false) => "{\"index\":0,\"delta\":{\"reasoning_content\":\"",
            (Api::Chat, Part::Reasoning, true) => "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"",
        };
        match last {
            true => chunk(to, &[&self.open, lead, text, &self.finish]),
            false => chunk(to, &[&self.open, lead, text, closing(self.api), ",\"logprobs\":null,\"finish_reason\":null}]}\n\n"]),
        }
    }

    /// The event that carries the usage and no choice.
    pub(super) fn usage(&self, to: &mut Vec<u8>, ask: &Ask, reasoning: u64) {
        chunk(to, &[&self.open, "],", &usage(ask, reasoning), "}\n\n"]);
    }
}

/// The end marker of the protocol.
pub(super) fn done(to: &mut Vec<u8>) {
    chunk(to, &["data: [DONE]\n\n"]);
}

/// A comment, which clients have to skip.
pub(super) fn comment(to: &mut Vec<u8>) {
    chunk(to, &[": keep-alive\n\n"]);
}

/// An error in mid-stream.
pub(super) fn stream_error(to: &mut Vec<u8>) {
    chunk(to, &["data: ", &error(&broken()), "\n\n"]);
}

/// The end of the HTTP body.
pub(super) fn last_chunk(to: &mut Vec<u8>) {
    to.extend_from_slice(b"0\r\n\r\n");
}

/// The error that a struck request reports inside its answer.
pub(super) fn broken() -> Refusal {
    Refusal::new(500, "the simulator broke this answer on purpose")
}

/// A whole answer.
pub(super) fn whole(ask: &Ask, id: &str, reasoning: (&str, u64), content: &str) -> String {
    let (thoughts, tokens) = reasoning;
    let thoughts = if tokens > 0 { format!(",\"reasoning_content\":\"{thoughts}\"") } else { String::new() };
    let (object, choice) = match ask.api {
        Api::Chat => ("chat.completion", format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{content}\"{thoughts}}}")),
        Api::Completions => ("text_completion", format!("\"text\":\"{content}\"")),
    };
    let (envelope, finish) = (envelope(object, ask, id), ask.finish);
    let usage = if ask.usage { format!(",{}", usage(ask, tokens)) } else { String::new() };
    format!("{{{envelope},\"choices\":[{{\"index\":0,{choice},\"logprobs\":null,\"finish_reason\":\"{finish}\"}}]{usage}}}")
}

/// An error in OpenAI's shape.
pub(super) fn error(refusal: &Refusal) -> String {
    let kind = match refusal.status {
        404 => "not_found_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let Refusal { status, message, param } = refusal;
    serde_json::json!({ "error": { "message": message, "type": kind, "param": param, "code": status } }).to_string()
}

/// The list of models: any name is served, this one is shown.
pub(super) fn models() -> String {
    format!(
        "{{\"object\":\"list\",\"data\":[{{\"id\":\"sim\",\"object\":\"model\",\"created\":{CREATED},\"owned_by\":\"llmscen\"}}]}}"
    )
}

fn envelope(object: &str, ask: &Ask, id: &str) -> String {
    let model = serde_json::Value::from(ask.model.as_str());
    format!("\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{CREATED},\"model\":{model}")
}

fn usage(ask: &Ask, reasoning: u64) -> String {
    let (prompt, output) = (ask.prompt, ask.output);
    let details = match reasoning {
        0 => String::new(),
        tokens => format!(",\"completion_tokens_details\":{{\"reasoning_tokens\":{tokens}}}"),
    };
    let total = prompt + output;
    format!("\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{total},\"completion_tokens\":{output}{details}}}")
}

fn closing(api: Api) -> &'static str {
    match api {
        Api::Chat => "\"}",
        Api::Completions => "\"",
    }
}

/// One HTTP chunk of the given pieces.
fn chunk(to: &mut Vec<u8>, pieces: &[&str]) {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    to.extend_from_slice(format!("{length:x}\r\n").as_bytes());
    pieces.iter().for_each(|piece| to.extend_from_slice(piece.as_bytes()));
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ask(api: Api) -> Ask {
        Ask { api, model: "a\"b".into(), stream: true, usage: true, prompt: 3, output: 5, finish: "length" }
    }

    #[test]
    fn whole_answers_are_valid_json() {
        let chat: Value = serde_json::from_str(&whole(&ask(Api::Chat), "x", (" so", 1), " the")).unwrap();
        assert_eq!(chat["model"], "a\"b");
        assert_eq!(chat["choices"][0]["message"], json!({ "role": "assistant", "content": " the", "reasoning_content": " so" }));
        let counts = json!({ "prompt_tokens": 3, "total_tokens": 8, "completion_tokens": 5, "completion_tokens_details": { "reasoning_tokens": 1 } });
        assert_eq!(chat["usage"], counts);
        let text: Value = serde_json::from_str(&whole(&ask(Api::Completions), "x", ("", 0), " the")).unwrap();
        assert_eq!((&text["choices"][0]["text"], &text["choices"][0]["finish_reason"]), (&json!(" the"), &json!("length")));
        assert_eq!(serde_json::from_str::<Value>(&models()).unwrap()["data"][0]["id"], "sim");
    }

    #[test]
    fn errors_have_openais_shape() {
        let refusal = Refusal { status: 400, message: "say \"please\"".into(), param: Some("n") };
        let expected = json!({ "message": "say \"please\"", "type": "invalid_request_error", "param": "n", "code": 400 });
        assert_eq!(serde_json::from_str::<Value>(&error(&refusal)).unwrap()["error"], expected);
    }

    #[test]
    fn words_depend_on_seed_number_and_index() {
        let text = |seed, number| (0..50).map(|index| word(Seed(seed), number, index)).collect::<String>();
        assert_eq!(text(1, 2), text(1, 2));
        assert_ne!(text(1, 2), text(1, 3));
        assert_ne!(text(1, 2), text(2, 2));
    }

    #[test]
    fn a_chunk_is_its_length_in_hex_and_its_bytes() {
        let mut bytes = Vec::new();
        done(&mut bytes);
        last_chunk(&mut bytes);
        assert_eq!(bytes, b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    }
}
