//! OpenAI chat completions.

use super::openai::{self, Events, Options};
use super::{Part, Piece, Protocol, Reply, Said, Times};
use crate::ask::{Ask, Call};
use crate::fields::Refusal;

#[derive(Debug)]
pub(super) struct Chat;

impl Protocol for Chat {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/chat/completions"]
    }

    fn id(&self, number: u64) -> String {
        format!("chatcmpl-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
        let mut prompt = call.prompt();
        call.messages(&mut prompt, call.body)?;
        let options = Options::read(call.body)?;
        let ask = openai::ask(call, prompt, options)?;
        let events = Events::new("chat.completion.chunk", &ask, call.id, options);
        let reply = Answer { id: call.id.to_owned(), events, role_chunk: call.config.faults.role_chunk };
        Ok((ask, Box::new(reply)))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

#[derive(Debug)]
struct Answer {
    id: String,
    events: Events,
    /// The role comes in an event of its own, without text.
    role_chunk: bool,
}

impl Reply for Answer {
    fn open(&mut self, to: &mut Vec<u8>, ask: &Ask) {
        if self.role_chunk {
            for choice in 0..ask.choices as usize {
                let (first, opens, closes, last) = (true, true, false, false);
                let piece = Piece { choice, part: Part::Content, text: "", made: 0, first, opens, closes, last };
                self.events.choice(to, ask, &piece, (",\"delta\":{\"role\":\"assistant\",\"content\":\"", "\"}"));
            }
        }
    }

    fn text(&mut self, to: &mut Vec<u8>, ask: &Ask, piece: &Piece<'_>) {
        let lead = match (piece.part, piece.first && !self.role_chunk) {
            (Part::Content, false) => ",\"delta\":{\"content\":\"",
            (Part::Content, true) => ",\"delta\":{\"role\":\"assistant\",\"content\":\"",
            (Part::Reasoning, false) => ",\"delta\":{\"reasoning_content\":\"",
            (Part::Reasoning, true) => ",\"delta\":{\"role\":\"assistant\",\"reasoning_content\":\"",
        };
        self.events.choice(to, ask, piece, (lead, "\"}"));
    }

    fn finish(&mut self, to: &mut Vec<u8>, ask: &Ask, _times: Times) {
        self.events.finish(to, ask);
    }

    fn fail(&mut self, to: &mut Vec<u8>, _ask: &Ask) {
        self.events.fail(to);
    }

    fn whole(&self, ask: &Ask, said: &[Said], _times: Times) -> String {
        let thoughts = |said: &Said| match ask.reasoning {
            0 => String::new(),
            _ => format!(",\"reasoning_content\":\"{}\"", said.thoughts),
        };
        let message =
            |said: &Said| format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{}\"{}}}", said.text, thoughts(said));
        openai::whole("chat.completion", ask, &self.id, said.iter().map(message))
    }

    fn broken(&self, _ask: &Ask) -> String {
        openai::error(&Refusal::broken())
    }
}
