//! Ollama's native chat and generation: NDJSON, streamed by default, with times and counts in the last line.

use super::{ChoiceText, Part, Piece, Protocol, Reply, Times};
use crate::generation::{Call, Fields, Generation, Refusal};
use crate::http::chunk;
use llmscen_core::units::Nanos;
use serde_json::{Value, json};

/// [`super::CREATED`] in Ollama's format.
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

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let (body, mut prompt) = (call.body, call.prompt());
        let chat = call.path == "/api/chat";
        if chat {
            call.messages(&mut prompt, body)?;
        } else {
            body.text("system")?
                .into_iter()
                .for_each(|text| prompt.text(text));
            prompt.text(
                body.text("prompt")?
                    .ok_or_else(|| body.wrong("prompt", "is missing"))?,
            );
            let images = body.get("images").and_then(Value::as_array);
            images
                .into_iter()
                .flatten()
                .for_each(|image| prompt.media(image));
        }
        let limit = limit(body.object("options")?)?;
        let generation = Generation {
            stream: body.flag("stream", true)?,
            ..call.generation(prompt, limit)?
        };
        let lead = format!(
            "{{\"model\":{},\"created_at\":\"{CREATED}\",",
            generation.model
        );
        Ok((
            generation,
            Box::new(Answer {
                lead,
                chat,
                admission: call.config.admission,
            }),
        ))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        error(refusal)
    }
}

/// `num_predict`; a negative value sets no limit.
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
    /// The beginning of every line.
    lead: String,
    /// Whether text is in a message (chat).
    chat: bool,
    admission: Nanos,
}

impl Answer {
    /// The JSON before and after a text.
    fn around(&self, part: Part) -> (&'static str, &'static str) {
        match (self.chat, part) {
            (true, Part::Content) => ("\"message\":{\"role\":\"assistant\",\"content\":\"", "\"}"),
            (true, Part::Reasoning) => (
                "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"",
                "\"}",
            ),
            (false, Part::Content) => ("\"response\":\"", "\""),
            (false, Part::Reasoning) => ("\"response\":\"\",\"thinking\":\"", "\""),
        }
    }

    /// The last fields of a response. Time before queueing counts as model load, and time from then to the first
    /// token as prompt evaluation, so that the three parts add up to the total.
    fn end(&self, generation: &Generation, times: Times) -> String {
        let total = times.newest.since(times.received).0;
        let (load, eval) = (self.admission.0, times.newest.since(times.first).0);
        let prompt = total.saturating_sub(load).saturating_sub(eval);
        let [prompt_count, count] = match generation.usage {
            true => [
                format!("\"prompt_eval_count\":{},", generation.prompt.tokens()),
                format!("\"eval_count\":{},", generation.output),
            ],
            false => Default::default(),
        };
        format!(
            ",\"done\":true,\"done_reason\":\"{}\",\"total_duration\":{total},\"load_duration\":{load},{prompt_count}\
             \"prompt_eval_duration\":{prompt},{count}\"eval_duration\":{eval}}}",
            generation.finish.word()
        )
    }
}

impl Reply for Answer {
    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn text(&mut self, to: &mut Vec<u8>, _generation: &Generation, piece: &Piece<'_>) {
        let (before, behind) = self.around(piece.part);
        chunk(
            to,
            &[&self.lead, before, piece.text, behind, ",\"done\":false}\n"],
        );
    }

    /// NDJSON has no comments.
    fn comment(&self, _to: &mut Vec<u8>) {}

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, times: Times) {
        let (before, behind) = self.around(Part::Content);
        chunk(
            to,
            &[
                &self.lead,
                before,
                behind,
                &self.end(generation, times),
                "\n",
            ],
        );
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        chunk(to, &[&self.broken(generation), "\n"]);
    }

    fn full_answer(&self, generation: &Generation, choices: &[ChoiceText], times: Times) -> String {
        let text: String = choices.iter().map(|choice| choice.text.as_str()).collect();
        let thoughts: String = choices
            .iter()
            .map(|choice| choice.thoughts.as_str())
            .collect();
        let thinking = if generation.reasoning > 0 {
            format!(",\"thinking\":\"{thoughts}\"")
        } else {
            String::new()
        };
        let answer = match self.chat {
            true => {
                format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"{thinking}}}")
            }
            false => format!("\"response\":\"{text}\"{thinking}"),
        };
        format!("{}{answer}{}", self.lead, self.end(generation, times))
    }

    fn broken(&self, _generation: &Generation) -> String {
        error(&Refusal::broken())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::client::{Client, fast, serving, simulator};
    use llmscen_core::simulator::{Faults, Simulator};
    use llmscen_core::units::Nanos;
    use serde_json::{Value, json};

    const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"123456789"}],"options":{"num_predict":3}"#;

    fn line(fields: Value) -> Value {
        let mut line = json!({ "model": "m", "created_at": "2023-11-14T22:13:20Z" });
        line.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        line
    }

    /// Steps of 2 ms, and 1 ms before queueing.
    fn steps() -> Simulator {
        Simulator {
            alpha: Nanos::from_millis(2),
            admission: Nanos::from_millis(1),
            ..fast()
        }
    }

    /// Checks the times of a last line: two steps between three tokens, and the parts add up to the total.
    fn durations(line: &mut Value) {
        let line = line.as_object_mut().unwrap();
        let [total, load, prompt, eval] = ["total", "load", "prompt_eval", "eval"].map(|name| {
            line.remove(&format!("{name}_duration"))
                .unwrap()
                .as_u64()
                .unwrap()
        });
        assert_eq!(
            (load, eval, load + prompt + eval),
            (1_000_000, 4_000_000, total)
        );
        // The engine is idle, so that its first step begins when the request is queued.
        assert_eq!(prompt, 2_000_000);
    }

    #[test]
    fn a_chat_streams_by_default() {
        let server = serving(&steps());
        let answer = Client::connect(&server).post("/api/chat", &format!("{CHAT}}}"));
        assert!(
            answer
                .head
                .contains("content-type: application/x-ndjson\r\n"),
            "{}",
            answer.head
        );
        assert!(
            answer
                .chunks
                .iter()
                .all(|chunk| chunk.ends_with("}\n") && chunk.lines().count() == 1)
        );
        let mut events = answer.events();
        durations(events.last_mut().unwrap());
        let message = |text: &Value| json!({ "role": "assistant", "content": text });
        let third = events[2]["message"]["content"].clone();
        let expected = [
            line(json!({ "message": message(&json!(" is")), "done": false })),
            line(json!({ "message": message(&json!(" by")), "done": false })),
            line(json!({ "message": message(&third), "done": false })),
            line(json!({
                "message": message(&json!("")), "done": true, "done_reason": "length",
                    "prompt_eval_count": 3, "eval_count": 3,
            })),
        ];
        assert_eq!(events, expected);
        assert_eq!(third.as_str().unwrap().matches(' ').count(), 1);
    }

    #[test]
    fn a_generation_is_the_same_with_a_bare_text() {
        let server = serving(&steps());
        let generation = r#"{"model":"m","prompt":"123456789","options":{"num_predict":3}"#;
        let streamed = Client::connect(&server)
            .post("/api/generate", &format!("{generation}}}"))
            .events();
        assert_eq!(
            streamed[0],
            line(json!({ "response": " is", "done": false }))
        );
        assert_eq!(
            (&streamed[3]["response"], &streamed[3]["done"]),
            (&json!(""), &json!(true))
        );
        let server = serving(&steps());
        let mut whole = Client::connect(&server)
            .post(
                "/api/generate",
                &format!(r#"{generation},"stream":false}}"#),
            )
            .json();
        durations(&mut whole);
        let text: String = streamed
            .iter()
            .filter_map(|event| event["response"].as_str())
            .collect();
        let end = json!({ "response": text, "done": true, "done_reason": "length",
            "prompt_eval_count": 3, "eval_count": 3 });
        assert_eq!(whole, line(end));
    }

    #[test]
    fn reasoning_is_thinking_and_comments_do_not_exist() {
        let faults = Faults {
            reasoning_tokens: 1,
            comment_every: 1,
            no_usage: true,
            ..Faults::default()
        };
        let server = simulator(faults);
        let mut client = Client::connect(&server);
        let answer = client.post("/api/chat", &format!("{CHAT}}}"));
        assert_eq!(
            answer.events()[0]["message"],
            json!({ "role": "assistant", "content": "", "thinking": " is" })
        );
        assert_eq!(
            (answer.chunks.len(), answer.body().contains("_count")),
            (4, false)
        );
        let whole = client
            .post("/api/chat", &format!(r#"{CHAT},"stream":false}}"#))
            .json();
        assert_eq!(
            whole["message"]["thinking"]
                .as_str()
                .unwrap()
                .matches(' ')
                .count(),
            1
        );
        assert_eq!(
            whole["message"]["content"]
                .as_str()
                .unwrap()
                .matches(' ')
                .count(),
            2
        );
    }
}
