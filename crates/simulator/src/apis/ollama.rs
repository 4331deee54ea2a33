//! Ollama's own chat and generation: lines of JSON, streamed unless the request says no, the last with times and counts.

use super::{Part, Piece, Protocol, Reply, Said, Times};
use crate::ask::{Ask, Call};
use crate::fields::{Fields, Refusal};
use crate::frame::chunk;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

/// [`super::CREATED`] as Ollama writes it.
const CREATED: &str = "2023-11-14T22:13:20Z";

#[derive(Debug)]
pub(super) struct Ollama;

impl Protocol for Ollama {
    fn paths(&self) -> &'static [&'static str] {
        &["/api/chat", "/api/generate"]
    }

    fn id(&self, number: u64) -> String {
        format!("ollama-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
        let (body, mut prompt) = (call.body, call.prompt());
        let chat = call.path == "/api/chat";
        if chat {
            call.messages(&mut prompt, body)?;
        } else {
            body.text("system")?.into_iter().for_each(|text| prompt.text(text));
            prompt.text(body.text("prompt")?.ok_or_else(|| body.wrong("prompt", "is missing"))?);
            let images = body.get("images").and_then(Value::as_array);
            images.into_iter().flatten().for_each(|image| prompt.media(image));
        }
        let limit = limit(body.object("options")?)?;
        let ask = Ask { stream: body.flag("stream", true)?, ..call.ask(prompt, limit)? };
        let lead = format!("{{\"model\":{},\"created_at\":\"{CREATED}\",", ask.model);
        Ok((ask, Box::new(Answer { lead, chat, admission: call.config.admission })))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

/// `num_predict`; one below 0 sets no limit.
fn limit(options: Fields<'_>) -> Result<Option<u64>, Refusal> {
    match options.get("num_predict").and_then(Value::as_i64) {
        Some(..0) => Ok(None),
        _ => options.limit("num_predict"),
    }
}

fn error(refusal: &Refusal) -> String {
    json!({ "error": refusal.message }).to_string()
}

#[derive(Debug)]
struct Answer {
    /// What every line begins with.
    lead: String,
    /// Texts are messages.
    chat: bool,
    admission: Nanos,
}

impl Answer {
    /// The JSON around a text: what stands before it and behind it.
    fn around(&self, part: Part) -> (&'static str, &'static str) {
        match (self.chat, part) {
            (true, Part::Content) => ("\"message\":{\"role\":\"assistant\",\"content\":\"", "\"}"),
            (true, Part::Reasoning) => ("\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"", "\"}"),
            (false, Part::Content) => ("\"response\":\"", "\""),
            (false, Part::Reasoning) => ("\"response\":\"\",\"thinking\":\"", "\""),
        }
    }

    /// The fields that end an answer. What a request waits before it is queued counts as loading, all else until its first
    /// token as reading the prompt, so that the three parts add up to the whole.
    fn end(&self, ask: &Ask, times: Times) -> String {
        let total = times.newest.since(times.received).0;
        let (load, eval) = (self.admission.0, times.newest.since(times.first).0);
        let prompt = total.saturating_sub(load).saturating_sub(eval);
        let [prompt_count, count] = match ask.usage {
            true => [format!("\"prompt_eval_count\":{},", ask.prompt.tokens()), format!("\"eval_count\":{},", ask.output)],
            false => Default::default(),
        };
        format!(
            ",\"done\":true,\"done_reason\":\"{}\",\"total_duration\":{total},\"load_duration\":{load},{prompt_count}\
             \"prompt_eval_duration\":{prompt},{count}\"eval_duration\":{eval}}}",
            ask.finish.word()
        )
    }
}

impl Reply for Answer {
    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn text(&mut self, to: &mut Vec<u8>, _ask: &Ask, piece: &Piece<'_>) {
        let (before, behind) = self.around(piece.part);
        chunk(to, &[&self.lead, before, piece.text, behind, ",\"done\":false}\n"]);
    }

    /// Lines of JSON know none.
    fn comment(&self, _to: &mut Vec<u8>) {}

    fn finish(&mut self, to: &mut Vec<u8>, ask: &Ask, times: Times) {
        let (before, behind) = self.around(Part::Content);
        chunk(to, &[&self.lead, before, behind, &self.end(ask, times), "\n"]);
    }

    fn fail(&mut self, to: &mut Vec<u8>, ask: &Ask) {
        chunk(to, &[&self.broken(ask), "\n"]);
    }

    fn whole(&self, ask: &Ask, said: &[Said], times: Times) -> String {
        let text: String = said.iter().map(|said| said.text.as_str()).collect();
        let thoughts: String = said.iter().map(|said| said.thoughts.as_str()).collect();
        let thinking = if ask.reasoning > 0 { format!(",\"thinking\":\"{thoughts}\"") } else { String::new() };
        let said = match self.chat {
            true => format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"{thinking}}}"),
            false => format!("\"response\":\"{text}\"{thinking}"),
        };
        format!("{}{said}{}", self.lead, self.end(ask, times))
    }

    fn broken(&self, _ask: &Ask) -> String {
        error(&Refusal::broken())
    }
}
