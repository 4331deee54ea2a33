//! OpenAI text completions. They know no reasoning.

use super::openai::{self, Events, Options};
use super::{Piece, Protocol, Reply, Said, Times};
use crate::ask::{Ask, Call};
use crate::fields::Refusal;
use crate::prompt::Prompt;
use serde_json::Value;

#[derive(Debug)]
pub(super) struct Completions;

impl Protocol for Completions {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/completions"]
    }

    fn id(&self, number: u64) -> String {
        format!("cmpl-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Ask, Box<dyn Reply>), Refusal> {
        let options = Options::read(call.body)?;
        let ask = Ask { reasoning: 0, ..openai::ask(call, prompt(call)?, options)? };
        let events = Events::new("text_completion", &ask, call.id, options);
        Ok((ask, Box::new(Answer { id: call.id.to_owned(), events })))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

/// One text, as it is or in a list, or one list of token ids, as it is or in a list.
fn prompt(call: &Call<'_>) -> Result<Prompt, Refusal> {
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
    read.map(|()| prompt).ok_or_else(|| call.body.wrong("prompt", "must be one text, or one list of token ids"))
}

#[derive(Debug)]
struct Answer {
    id: String,
    events: Events,
}

impl Reply for Answer {
    fn text(&mut self, to: &mut Vec<u8>, ask: &Ask, piece: &Piece<'_>) {
        self.events.choice(to, ask, piece, (",\"text\":\"", "\""));
    }

    fn finish(&mut self, to: &mut Vec<u8>, ask: &Ask, _times: Times) {
        self.events.finish(to, ask);
    }

    fn fail(&mut self, to: &mut Vec<u8>, _ask: &Ask) {
        self.events.fail(to);
    }

    fn whole(&self, ask: &Ask, said: &[Said], _times: Times) -> String {
        openai::whole("text_completion", ask, &self.id, said.iter().map(|said| format!("\"text\":\"{}\"", said.text)))
    }

    fn broken(&self, _ask: &Ask) -> String {
        openai::error(&Refusal::broken())
    }
}
