//! OpenAI chat and text completions. The latter have no reasoning.

use super::{CREATED, ChoiceText, Part, Piece, Protocol, Reply, Times};
use crate::generation::{Call, Fields, Generation, MOST_CHOICES, Refusal};
use crate::http::chunk;
use crate::prompt::Prompt;
use serde_json::Value;
use std::fmt::Write;

const INDEX: [&str; MOST_CHOICES as usize] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15",
];

/// The fields of `stream_options` of a streaming request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// Usage in a separate event.
    usage: bool,
    /// Usage in every event.
    continuous: bool,
}

impl Options {
    pub(super) fn read(body: Fields<'_>) -> Result<Options, Refusal> {
        let options = body.object("stream_options")?;
        let usage = options.flag("include_usage", false)?;
        Ok(Options {
            usage,
            continuous: options.flag("continuous_usage_stats", false)? && usage,
        })
    }
}

/// The number of choices, `n`.
pub(super) fn choices(body: Fields<'_>) -> Result<u64, Refusal> {
    match body.count("n")?.unwrap_or(1) {
        n @ 1..=MOST_CHOICES => Ok(n),
        n => Err(body.wrong(
            "n",
            format_args!("must be from 1 to {MOST_CHOICES}, not {n}"),
        )),
    }
}

/// Completes the generation with length, choices and whether to report usage.
pub(super) fn generation(
    call: &Call<'_>,
    prompt: Prompt,
    options: Options,
) -> Result<Generation, Refusal> {
    let body = call.body;
    let limit = match body.limit("max_completion_tokens")? {
        Some(limit) => Some(limit),
        None => body.limit("max_tokens")?,
    };
    let least = body.count("min_tokens")?.unwrap_or(0);
    if let Some(limit) = limit.filter(|limit| least > *limit) {
        return Err(body.wrong(
            "min_tokens",
            format_args!("must not exceed the limit of {limit}"),
        ));
    }
    body.flag("ignore_eos", false)?;
    let generation = call.generation(prompt, limit)?;
    let (output, usage) = (
        generation.output.max(least),
        generation.usage && (options.usage || !generation.stream),
    );
    let reasoning = u64::from(call.config.faults.reasoning_tokens).min(output);
    Ok(Generation {
        output,
        reasoning,
        choices: choices(body)?,
        usage,
        ..generation
    })
}

/// The constant parts of a stream's events.
#[derive(Debug)]
pub(super) struct Events {
    /// Up to and including `"choices":[`.
    open: String,
    /// The end of a choice's last event.
    last: String,
    continuous: bool,
    /// The usage of the current event.
    usage: String,
}

impl Events {
    pub(super) fn new(object: &str, generation: &Generation, id: &str, options: Options) -> Events {
        let open = format!("data: {{{},\"choices\":[", envelope(object, generation, id));
        let last = format!(
            ",\"logprobs\":null,\"finish_reason\":\"{}\"}}]",
            generation.finish.word()
        );
        Events {
            open,
            last,
            continuous: options.continuous && generation.usage,
            usage: String::new(),
        }
    }

    /// An event of one choice: `lead`, the text and `close` are its delta.
    pub(super) fn choice(
        &mut self,
        to: &mut Vec<u8>,
        generation: &Generation,
        piece: &Piece<'_>,
        (lead, close): (&str, &str),
    ) {
        self.usage.clear();
        if self.continuous {
            let (prompt, made) = (generation.prompt.tokens(), piece.made);
            let total = prompt + made;
            // Writing to a string cannot fail.
            let _ = write!(
                self.usage,
                ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{total},\"completion_tokens\":{made}}}"
            );
        }
        let index = INDEX.get(piece.choice).copied().unwrap_or_default();
        let end = if piece.last {
            self.last.as_str()
        } else {
            ",\"logprobs\":null,\"finish_reason\":null}]"
        };
        chunk(
            to,
            &[
                &self.open,
                "{\"index\":",
                index,
                lead,
                piece.text,
                close,
                end,
                &self.usage,
                "}\n\n",
            ],
        );
    }

    /// The usage event, if requested, and the end marker.
    pub(super) fn finish(&self, to: &mut Vec<u8>, generation: &Generation) {
        if generation.usage {
            chunk(to, &[&self.open, "]", &usage(generation), "}\n\n"]);
        }
        done(to);
    }

    /// An error event and the end marker.
    pub(super) fn fail(&self, to: &mut Vec<u8>) {
        chunk(to, &["data: ", &error(&Refusal::broken()), "\n\n"]);
        done(to);
    }
}

fn done(to: &mut Vec<u8>) {
    chunk(to, &["data: [DONE]\n\n"]);
}

/// A response without streaming; `choices` has the fields of each choice except index and finish reason.
pub(super) fn full_answer(
    object: &str,
    generation: &Generation,
    id: &str,
    choices: impl Iterator<Item = String>,
) -> String {
    let finish = generation.finish.word();
    let choice = |(index, fields)| {
        format!("{{\"index\":{index},{fields},\"logprobs\":null,\"finish_reason\":\"{finish}\"}}")
    };
    let choices: Vec<String> = choices.enumerate().map(choice).collect();
    format!(
        "{{{},\"choices\":[{}]{}}}",
        envelope(object, generation, id),
        choices.join(","),
        usage(generation)
    )
}

/// An error.
pub(super) fn error(refusal: &Refusal) -> String {
    let kind = match refusal.status {
        404 => "not_found_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    let Refusal {
        status,
        message,
        param,
        code,
    } = refusal;
    let code = code.map_or(Value::from(*status), Value::from);
    serde_json::json!({ "error": { "message": message, "type": kind, "param": param, "code": code } }).to_string()
}

fn envelope(object: &str, generation: &Generation, id: &str) -> String {
    format!(
        "\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{CREATED},\"model\":{}",
        generation.model
    )
}

/// The usage over all choices, after a comma; empty if not requested.
fn usage(generation: &Generation) -> String {
    if !generation.usage {
        return String::new();
    }
    let (prompt, output) = (generation.prompt.tokens(), generation.total());
    let mut text = format!(
        ",\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{},\"completion_tokens\":{output}",
        prompt.saturating_add(output)
    );
    if generation.reasoning > 0 {
        text += &format!(
            ",\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}",
            generation.thoughts()
        );
    }
    if let Some(cached) = generation.cached {
        text += &format!(",\"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}");
    }
    text + "}"
}

#[derive(Debug)]
pub(super) struct Chat;

impl Protocol for Chat {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/chat/completions"]
    }

    fn id(&self, number: u64) -> String {
        format!("chatcmpl-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let mut prompt = call.prompt();
        call.messages(&mut prompt, call.body)?;
        let options = Options::read(call.body)?;
        let generation = generation(call, prompt, options)?;
        let events = Events::new("chat.completion.chunk", &generation, call.id, options);
        let reply = ChatAnswer {
            id: call.id.to_owned(),
            events,
            role_chunk: call.config.faults.role_chunk,
        };
        Ok((generation, Box::new(reply)))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

#[derive(Debug)]
struct ChatAnswer {
    id: String,
    events: Events,
    /// The role is sent in a separate event, without text.
    role_chunk: bool,
}

impl Reply for ChatAnswer {
    fn open(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        if self.role_chunk {
            for choice in 0..generation.choices as usize {
                let (first, opens, closes, last) = (true, true, false, false);
                let piece = Piece {
                    choice,
                    part: Part::Content,
                    text: "",
                    made: 0,
                    first,
                    opens,
                    closes,
                    last,
                };
                self.events.choice(
                    to,
                    generation,
                    &piece,
                    (",\"delta\":{\"role\":\"assistant\",\"content\":\"", "\"}"),
                );
            }
        }
    }

    fn text(&mut self, to: &mut Vec<u8>, generation: &Generation, piece: &Piece<'_>) {
        let lead = match (piece.part, piece.first && !self.role_chunk) {
            (Part::Content, false) => ",\"delta\":{\"content\":\"",
            (Part::Content, true) => ",\"delta\":{\"role\":\"assistant\",\"content\":\"",
            (Part::Reasoning, false) => ",\"delta\":{\"reasoning_content\":\"",
            (Part::Reasoning, true) => {
                ",\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\""
            }
        };
        self.events.choice(to, generation, piece, (lead, "\"}"));
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        self.events.finish(to, generation);
    }

    fn fail(&mut self, to: &mut Vec<u8>, _generation: &Generation) {
        self.events.fail(to);
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let thoughts = |choice: &ChoiceText| match generation.reasoning {
            0 => String::new(),
            _ => format!(",\"reasoning_content\":\"{}\"", choice.thoughts),
        };
        let message = |choice: &ChoiceText| {
            format!(
                "\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"{}}}",
                choice.text,
                thoughts(choice)
            )
        };
        full_answer(
            "chat.completion",
            generation,
            &self.id,
            choices.iter().map(message),
        )
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken())
    }
}

#[derive(Debug)]
pub(super) struct Completions;

impl Protocol for Completions {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/completions"]
    }

    fn id(&self, number: u64) -> String {
        format!("cmpl-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let options = Options::read(call.body)?;
        let generation = Generation {
            reasoning: 0,
            ..generation(call, completion_prompt(call)?, options)?
        };
        let events = Events::new("text_completion", &generation, call.id, options);
        Ok((
            generation,
            Box::new(CompletionAnswer {
                id: call.id.to_owned(),
                events,
            }),
        ))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

/// One text or one list of token ids, possibly inside a list.
fn completion_prompt(call: &Call<'_>) -> Result<Prompt, Refusal> {
    let mut prompt = call.prompt();
    let read = match call.body.need("prompt")? {
        Value::Array(one) => match one.as_slice() {
            [text @ Value::String(_)] => prompt.content(text),
            [Value::Array(ids)] => prompt.ids(ids),
            ids => prompt.ids(ids),
        },
        text @ Value::String(_) => prompt.content(text),
        _ => None,
    };
    read.map(|()| prompt).ok_or_else(|| {
        call.body
            .wrong("prompt", "must be one text, or one list of token ids")
    })
}

#[derive(Debug)]
struct CompletionAnswer {
    id: String,
    events: Events,
}

impl Reply for CompletionAnswer {
    fn text(&mut self, to: &mut Vec<u8>, generation: &Generation, piece: &Piece<'_>) {
        self.events
            .choice(to, generation, piece, (",\"text\":\"", "\""));
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        self.events.finish(to, generation);
    }

    fn fail(&mut self, to: &mut Vec<u8>, _generation: &Generation) {
        self.events.fail(to);
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        full_answer(
            "text_completion",
            generation,
            &self.id,
            choices
                .iter()
                .map(|choice| format!("\"text\":\"{}\"", choice.text)),
        )
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken())
    }
}
