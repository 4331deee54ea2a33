//! OpenAI image generation: images of one pixel after the denoising steps. Each image is a sequence, each step a token.

use super::{CREATED, ChoiceText, Protocol, Reply, Times, openai};
use crate::generation::{Call, Generation, Refusal};
use serde_json::{Value, json};

/// Maximum number of images per request, as for OpenAI.
const MOST_IMAGES: u64 = 10;
/// A PNG of one pixel in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[derive(Debug)]
pub(super) struct Images;

impl Protocol for Images {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/images/generations"]
    }

    fn id(&self, number: u64) -> String {
        format!("img-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let body = call.body;
        let text = body
            .text("prompt")?
            .ok_or_else(|| body.wrong("prompt", "is missing"))?;
        let choices = match body.count("n")?.unwrap_or(1) {
            n @ 1..=MOST_IMAGES => n,
            _ => return Err(body.wrong("n", format_args!("must be from 1 to {MOST_IMAGES}"))),
        };
        let url = match body.text("response_format")? {
            None | Some("b64_json") => false,
            Some("url") => true,
            Some(_) => return Err(body.wrong("response_format", "must be `b64_json` or `url`")),
        };
        let mut prompt = call.prompt();
        prompt.text(text);
        let generation = Generation {
            stream: false,
            reasoning: 0,
            choices,
            ..call.generation(prompt, None)?
        };
        Ok((generation, Box::new(Pictures { url })))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

#[derive(Debug)]
struct Pictures {
    url: bool,
}

impl Reply for Pictures {
    fn full_answer(
        &self,
        _generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let image = |_: &ChoiceText| match self.url {
            true => json!({ "url": format!("data:image/png;base64,{PNG}") }),
            false => json!({ "b64_json": PNG }),
        };
        let data: Vec<Value> = choices.iter().map(image).collect();
        json!({ "created": CREATED, "data": data }).to_string()
    }

    fn broken(&self, _generation: &Generation) -> String {
        openai::error(&Refusal::broken())
    }
}
