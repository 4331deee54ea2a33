//! OpenAI embeddings: random vectors of length 1, by the seed. All inputs of a request are one prefill.

use super::{CREATED, ChoiceText, Protocol, Reply, Times, openai};
use crate::generation::{Call, Generation, Refusal};
use crate::prompt::Prompt;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmscen_core::seed::Seed;
use serde_json::Value;
use std::fmt::Write;

/// Default number of dimensions.
const DIMENSIONS: u64 = 64;
/// Maximum number of dimensions.
const MOST_DIMENSIONS: u64 = 16_384;
/// Maximum number of inputs per request, as for OpenAI.
const MOST_INPUTS: usize = 2048;

#[derive(Debug)]
pub(super) struct Embeddings;

impl Protocol for Embeddings {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/embeddings"]
    }

    fn id(&self, number: u64) -> String {
        format!("embd-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let body = call.body;
        let dimensions = body.count("dimensions")?.unwrap_or(DIMENSIONS);
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(body.wrong(
                "dimensions",
                format_args!("must be from 1 to {MOST_DIMENSIONS}"),
            ));
        }
        let base64 = match body.text("encoding_format")? {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(body.wrong("encoding_format", "must be `float` or `base64`")),
        };
        let counts = inputs(call)?;
        let mut prompt = Prompt::new(false);
        counts.iter().for_each(|tokens| prompt.add(*tokens));
        let reply = Vectors {
            id: call.id.to_owned(),
            seed: call.seed,
            inputs: counts.len() as u64,
            dimensions,
            base64,
        };
        Ok((call.pooled(prompt)?, Box::new(reply)))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

/// The tokens of each input: a text, a list of texts, a list of token ids, or a list of such lists.
fn inputs(call: &Call<'_>) -> Result<Vec<u64>, Refusal> {
    let one = |input: &Value| {
        let mut prompt = Prompt::new(false);
        match input {
            Value::String(text) => prompt.text(text),
            Value::Array(ids) => prompt.ids(ids)?,
            _ => return None,
        }
        Some(prompt.tokens())
    };
    let input = call.body.need("input")?;
    let counts = match input {
        Value::Array(list) if list.len() > MOST_INPUTS && !list.iter().all(Value::is_u64) => None,
        Value::Array(list) if list.iter().any(|item| !item.is_u64()) => {
            list.iter().map(one).collect()
        }
        single => one(single).map(|tokens| vec![tokens]),
    };
    let what = "must be a text, a list of token ids, or a list of at most 2048 of either";
    counts.ok_or_else(|| call.body.wrong("input", what))
}

#[derive(Debug)]
struct Vectors {
    id: String,
    seed: Seed,
    inputs: u64,
    dimensions: u64,
    base64: bool,
}

impl Vectors {
    fn vector(&self, input: u64) -> Vec<f32> {
        let seed = self.seed.child("vector").child(input);
        // Odd numbers below 2^24, of either sign: exact as floats, and never 0.
        let number = |index| {
            (2 * (seed.child(index).0 >> 40) as i64 + 1 - (1 << 24)) as f32 / (1 << 24) as f32
        };
        let mut vector: Vec<f32> = (0..self.dimensions).map(number).collect();
        let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|x| *x /= length);
        vector
    }

    fn write(&self, to: &mut String, input: u64) {
        let vector = self.vector(input);
        // Writing to a string cannot fail.
        let _ = write!(
            to,
            "{{\"object\":\"embedding\",\"index\":{input},\"embedding\":"
        );
        if self.base64 {
            let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            let _ = write!(to, "\"{}\"}}", STANDARD.encode(bytes));
            return;
        }
        for (index, x) in vector.iter().enumerate() {
            let _ = write!(to, "{}{x}", if index == 0 { '[' } else { ',' });
        }
        to.push_str("]}");
    }
}

impl Reply for Vectors {
    fn full_answer(
        &self,
        generation: &Generation,
        _choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let mut to = format!(
            "{{\"id\":\"{}\",\"object\":\"list\",\"created\":{CREATED},\"model\":{},\"data\":[",
            self.id, generation.model
        );
        for input in 0..self.inputs {
            to.push_str(if input == 0 { "" } else { "," });
            self.write(&mut to, input);
        }
        to.push(']');
        if generation.usage {
            let tokens = generation.prompt.tokens();
            let _ = write!(
                to,
                ",\"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}"
            );
        }
        to + "}"
    }

    fn broken(&self, _generation: &Generation) -> String {
        openai::error(&Refusal::broken())
    }
}
