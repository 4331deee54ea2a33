//! OpenAI speech: silence, a piece with each token. The text is the prefill.

use super::{ChoiceText, Piece, Protocol, Reply, Times, openai};
use crate::generation::{Call, Generation, Refusal};
use crate::http::chunk;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// Bytes per second: 24 kHz, 16 bit, one channel.
const RATE: u32 = 48_000;
/// Bytes of audio per token: 80 ms.
const TOKEN_BYTES: usize = 3840;
/// Tokens of audio per token of text: 0.24 s.
const TOKENS_PER_TEXT_TOKEN: u64 = 3;

#[derive(Debug)]
pub(super) struct Speech;

impl Protocol for Speech {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/audio/speech"]
    }

    fn id(&self, number: u64) -> String {
        format!("speech-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let body = call.body;
        let input = body
            .text("input")?
            .ok_or_else(|| body.wrong("input", "is missing"))?;
        body.text("voice")?
            .ok_or_else(|| body.wrong("voice", "is missing"))?;
        let wav = match body.text("response_format")? {
            Some("pcm") => false,
            Some("wav") => true,
            _ => return Err(body.wrong("response_format", "must be `pcm` or `wav`")),
        };
        let events = match body.text("stream_format")? {
            None | Some("audio") => false,
            Some("sse") => true,
            Some(_) => return Err(body.wrong("stream_format", "must be `audio` or `sse`")),
        };
        let mut prompt = call.prompt();
        prompt.text(input);
        let output = prompt.tokens() * TOKENS_PER_TEXT_TOKEN;
        let generation = Generation {
            stream: true,
            reasoning: 0,
            ..call.generation(prompt, Some(output))?
        };
        let reply = Sound {
            wav,
            events,
            made: 0,
        };
        Ok((generation, Box::new(reply)))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

#[derive(Debug)]
struct Sound {
    wav: bool,
    /// The audio is sent in events.
    events: bool,
    /// Tokens sent.
    made: u64,
}

impl Sound {
    fn send(&self, to: &mut Vec<u8>, audio: &[u8]) {
        if !self.events {
            return chunk(to, &[audio]);
        }
        let event = json!({ "type": "speech.audio.delta", "audio": STANDARD.encode(audio) });
        chunk(to, &[format!("data: {event}\n\n")]);
    }
}

/// The header of a WAV file of unknown length.
fn wav_header() -> Vec<u8> {
    let mut header = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
    header.extend((RATE / 2).to_le_bytes());
    header.extend(RATE.to_le_bytes());
    header.extend(b"\x02\0\x10\0data\xff\xff\xff\xff");
    header
}

impl Reply for Sound {
    fn content_type(&self) -> &'static str {
        match (self.events, self.wav) {
            (true, _) => "text/event-stream; charset=utf-8",
            (false, true) => "audio/wav",
            (false, false) => "audio/pcm",
        }
    }

    fn open(&mut self, to: &mut Vec<u8>, _generation: &Generation) {
        if self.wav {
            self.send(to, &wav_header());
        }
    }

    fn text(&mut self, to: &mut Vec<u8>, _generation: &Generation, piece: &Piece<'_>) {
        let tokens = piece.made - self.made;
        self.made = piece.made;
        self.send(to, &vec![0; tokens as usize * TOKEN_BYTES]);
    }

    fn comment(&self, to: &mut Vec<u8>) {
        if self.events {
            crate::http::comment(to);
        }
    }

    fn finish(&mut self, to: &mut Vec<u8>, generation: &Generation, _times: Times) {
        if !self.events {
            return;
        }
        let mut event = json!({ "type": "speech.audio.done" });
        if generation.usage {
            let (input, output) = (generation.prompt.tokens(), generation.total());
            event["usage"] = json!({ "input_tokens": input, "output_tokens": output, "total_tokens": input + output });
        }
        chunk(to, &[format!("data: {event}\n\n")]);
    }

    /// The format has no errors: a body of audio just ends.
    fn fail(&mut self, to: &mut Vec<u8>, generation: &Generation) {
        if self.events {
            chunk(to, &[format!("data: {}\n\n", self.broken(generation))]);
        }
    }

    fn full_answer(
        &self,
        _generation: &Generation,
        _choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        String::new()
    }

    fn broken(&self, _generation: &Generation) -> String {
        openai::error(&Refusal::broken())
    }
}
