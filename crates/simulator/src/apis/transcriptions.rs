//! OpenAI transcriptions and translations: random words instead of speech recognition. The audio is the prefill.

use super::{ChoiceText, Piece, Protocol, Reply, Times, openai};
use crate::generation::{Call, Generation, Refusal};
use crate::http::chunk;
use crate::prompt::Prompt;
use serde_json::json;

/// Prompt tokens per second of audio: Whisper's encoder has 1500 positions for 30 s.
const TOKENS_PER_SECOND: u64 = 50;
/// Bytes per second of audio that is no WAV file: 128 kbit/s.
const COMPRESSED_RATE: u64 = 16_000;

#[derive(Debug)]
pub(super) struct Transcriptions;

impl Protocol for Transcriptions {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/audio/transcriptions", "/v1/audio/translations"]
    }

    fn id(&self, number: u64) -> String {
        format!("trsc-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let file = call
            .file
            .ok_or_else(|| call.body.wrong("file", "is missing"))?;
        if !matches!(
            call.body.text("response_format")?,
            None | Some("json" | "verbose_json")
        ) {
            return Err(call
                .body
                .wrong("response_format", "must be `json` or `verbose_json`"));
        }
        let mut prompt = Prompt::new(false);
        prompt.add(tokens(file));
        let limit = call.body.limit("max_completion_tokens")?;
        let generation = Generation {
            reasoning: 0,
            ..call.generation(prompt, limit)?
        };
        Ok((generation, Box::new(Transcript::default())))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

/// Prompt tokens of an audio file.
fn tokens(file: &[u8]) -> u64 {
    let rate = (file.starts_with(b"RIFF") && file.len() > 44)
        .then(|| file.get(28..32)?.try_into().ok().map(u32::from_le_bytes))
        .flatten();
    let (bytes, rate) = match rate.filter(|rate| *rate > 0) {
        Some(rate) => (file.len() as u64 - 44, u64::from(rate)),
        None => (file.len() as u64, COMPRESSED_RATE),
    };
    (bytes * TOKENS_PER_SECOND).div_ceil(rate).max(1)
}

#[derive(Debug, Default)]
struct Transcript {
    text: String,
}

fn usage(generation: &Generation) -> serde_json::Value {
    let (input, output) = (generation.prompt.tokens(), generation.total());
    json!({ "type": "tokens", "input_tokens": input, "output_tokens": output, "total_tokens": input + output })
}

/// An event, or a reply, with the token counts unless a fault disables them.
fn with_usage(mut message: serde_json::Value, generation: &Generation) -> String {
    if generation.usage {
        message["usage"] = usage(generation);
    }
    message.to_string()
}

impl Reply for Transcript {
    fn text(&mut self, to: &mut Vec<u8>, _generation: &Generation, piece: &Piece<'_>) {
        self.text.push_str(piece.text);
        let event = json!({ "type": "transcript.text.delta", "delta": piece.text });
        chunk(to, &[format!("data: {event}\n\n")]);
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        let event = json!({ "type": "transcript.text.done", "text": self.text });
        let event = with_usage(event, generation);
        chunk(to, &[format!("data: {event}\n\n")]);
    }

    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        chunk(to, &[format!("data: {}\n\n", self.broken(generation))]);
    }

    fn full_answer(
        &self,
        generation: &Generation,
        choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let text = choices.first().map_or("", |choice| &choice.text);
        with_usage(json!({ "text": text }), generation)
    }

    fn broken(&self, _generation: &Generation) -> String {
        openai::error(&Refusal::broken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_audio_is_fifty_tokens() {
        let mut wav = vec![0; 44 + 32_000];
        wav[..4].copy_from_slice(b"RIFF");
        wav[28..32].copy_from_slice(&32_000_u32.to_le_bytes());
        assert_eq!(tokens(&wav), 50);
        wav.push(0);
        assert_eq!(tokens(&wav), 51);
        assert_eq!((tokens(b"ID3"), tokens(&[0; 16_000])), (1, 50));
    }
}
