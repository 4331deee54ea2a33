//! OpenAI speech: the response is the audio itself, or a stream of events with pieces of it.

use crate::decoder::{Assembly, decoder_for};
use crate::error::error_text;
use crate::framing::Event;
use crate::raw_json::{Raw, decode_failure, decode_string, is_error};
use crate::usage::parse_usage;
use crate::{AudioReceived, DecodeOptions, Decoder, Events, Protocol, Reply};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmscen_core::outcome::{Failure, FailureKind, Finish, Usage};
use llmscen_core::request::{Framing, RequestSpec};
use serde::Deserialize;
use serde_json::{Value, json};

/// Sample rate of `response_format: pcm`, which has no header: 16-bit samples of one channel
/// (<https://platform.openai.com/docs/guides/text-to-speech>).
const PCM_RATE: u32 = 24_000;
/// Bytes per sample.
const SAMPLE_BYTES: u32 = 2;
/// The format of the default body: its duration is known, and its audio starts with the first byte.
const PCM: &str = "pcm";

/// `POST /v1/audio/speech`.
pub struct Speech {
    /// The request asks for samples without a header.
    requests_pcm: bool,
}

impl Speech {
    /// The API for these requests.
    pub fn new(request: Option<&RequestSpec>) -> Speech {
        let default = json!({ "response_format": PCM });
        let extra = request.and_then(|request| request.extra.get("response_format"));
        let template = request.and_then(|request| request.template.as_ref());
        let format = extra.or_else(|| template.unwrap_or(&default).get("response_format"));
        Speech {
            requests_pcm: format.is_some_and(|format| format == PCM),
        }
    }

    fn samples_rate(&self) -> Option<u32> {
        self.requests_pcm.then_some(PCM_RATE * SAMPLE_BYTES)
    }
}

impl Protocol for Speech {
    fn body(&self, _stream: bool) -> Value {
        json!({ "model": "{{ model }}", "input": "{{ prompt }}", "voice": "alloy", "response_format": PCM })
    }

    fn framing(&self, content_type: Option<&str>, _asked_stream: bool) -> Result<Framing, Failure> {
        let samples_rate = self.samples_rate();
        let Some(given) = content_type else {
            return Ok(Framing::Audio { samples_rate });
        };
        let mut parts = given.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let number = |name: &str| {
            let mut values = parts.clone().filter_map(|part| part.split_once('='));
            let (_, value) = values.find(|(key, _)| key.trim().eq_ignore_ascii_case(name))?;
            value.trim().trim_matches('"').parse::<u32>().ok()
        };
        match essence.as_str() {
            "text/event-stream" => Ok(Framing::Sse),
            // Both names take the parameters of RFC 2586.
            "audio/pcm" | "audio/l16" => {
                let rate = number("rate").unwrap_or(PCM_RATE);
                let channels = number("channels").unwrap_or(1);
                let samples_rate = rate.saturating_mul(channels).saturating_mul(SAMPLE_BYTES);
                Ok(Framing::Audio {
                    samples_rate: Some(samples_rate),
                })
            }
            "application/octet-stream" => Ok(Framing::Audio { samples_rate }),
            _ if essence.starts_with("audio/") => Ok(Framing::Audio { samples_rate: None }),
            _ => Err(Failure::new(
                FailureKind::Decode,
                format!(
                    "the response is `{given}`, not audio or `text/event-stream`; check `target.url`"
                ),
            )),
        }
    }

    fn has_fixed_framing(&self) -> bool {
        true
    }

    fn decoder(&self, shape: Framing, _options: &DecodeOptions) -> Box<dyn Decoder> {
        match shape {
            Framing::Audio { samples_rate } => Box::new(AudioBody(AudioFormat::new(samples_rate))),
            _ => decoder_for(
                shape,
                AudioEvents {
                    audio: AudioFormat::new(self.samples_rate()),
                    usage: Usage::default(),
                    complete: false,
                },
            ),
        }
    }
}

/// Maximum size of the header of a WAV file, bytes.
const MAX_WAV_HEADER: usize = 64 << 10;

/// Counts the bytes of audio after the header, whose format it detects.
#[derive(Debug)]
struct AudioFormat {
    samples_rate: Option<u32>,
    /// The first bytes, until the format is known.
    header: Option<Vec<u8>>,
    received: AudioReceived,
}

impl AudioFormat {
    /// `samples_rate`: bytes per second, unless the audio has a header.
    fn new(samples_rate: Option<u32>) -> AudioFormat {
        AudioFormat {
            samples_rate,
            header: Some(Vec::new()),
            received: AudioReceived::default(),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let Some(header) = &mut self.header else {
            self.received.bytes += bytes.len() as u64;
            return;
        };
        header.extend_from_slice(bytes);
        let start = header.get(..MAX_WAV_HEADER).unwrap_or(header);
        let (audio_at, rate) = match parse_wav_header(start) {
            WavHeader::Partial if header.len() < MAX_WAV_HEADER => return,
            WavHeader::Partial => (0, None),
            WavHeader::Other => (0, self.samples_rate),
            WavHeader::Complete { length, rate } => (length, Some(rate)),
        };
        self.received = AudioReceived {
            bytes: (header.len() - audio_at) as u64,
            bytes_per_second: rate,
        };
        self.header = None;
    }

    fn received(&self) -> Option<AudioReceived> {
        Some(self.received).filter(|received| received.bytes > 0)
    }

    fn ending(&self) -> Result<Finish, Failure> {
        match self.received() {
            Some(_) => Ok(Finish::default()),
            None => Err(Failure::new(
                FailureKind::Empty,
                "the response is complete, but has no audio",
            )),
        }
    }
}

/// The header of a WAV file.
#[derive(Debug, PartialEq, Eq)]
enum WavHeader {
    /// It may continue.
    Partial,
    /// It is no WAV file.
    Other,
    Complete {
        /// Bytes before the samples.
        length: usize,
        /// Bytes per second.
        rate: u32,
    },
}

/// Parses the chunks before the samples. Their length is not used: it is unknown to a server that streams.
fn parse_wav_header(bytes: &[u8]) -> WavHeader {
    let field = |at: usize| {
        let bytes = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let is = |at: usize, name: &[u8; 4]| {
        let found = bytes.get(at.min(bytes.len())..(at + 4).min(bytes.len()));
        name.starts_with(found.unwrap_or_default())
    };
    if !is(0, b"RIFF") || !is(8, b"WAVE") {
        return WavHeader::Other;
    }
    let mut rate = None;
    let mut at = 12;
    while let Some(size) = field(at + 4) {
        if is(at, b"data") {
            return match rate {
                Some(rate) => WavHeader::Complete {
                    length: at + 8,
                    rate,
                },
                None => WavHeader::Other,
            };
        }
        if is(at, b"fmt ") {
            match field(at + 16) {
                Some(found) => rate = Some(found),
                None => return WavHeader::Partial,
            }
        }
        // Chunks are padded to an even length.
        at = at.saturating_add(8 + size as usize + (size % 2) as usize);
    }
    WavHeader::Partial
}

/// A body of audio.
struct AudioBody(AudioFormat);

impl Decoder for AudioBody {
    fn push(&mut self, bytes: &[u8], events: &mut Events) {
        self.0.push(bytes);
        events.audio = self.0.received();
    }

    fn finish(self: Box<Self>, _events: &mut Events, broken: Option<Failure>) -> Reply {
        let end = match broken {
            Some(failure) => Err(failure),
            None => self.0.ending(),
        };
        Reply::without_text(end, Usage::default())
    }
}

/// The events of `stream_format: sse`.
#[derive(Debug)]
struct AudioEvents {
    audio: AudioFormat,
    usage: Usage,
    complete: bool,
}

#[derive(Deserialize)]
struct AudioEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    audio: Raw<'a>,
    #[serde(borrow)]
    usage: Raw<'a>,
    #[serde(borrow)]
    error: Raw<'a>,
}

impl Assembly for AudioEvents {
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure> {
        if event.data == b"[DONE]" {
            events.done = true;
            return Ok(());
        }
        let text = String::from_utf8_lossy(event.data);
        let part: AudioEvent =
            serde_json::from_str(&text).map_err(|error| decode_failure(&error, event.data))?;
        let name = String::from_utf8_lossy(event.name);
        let kind = part.kind.map_or(name, decode_string);
        if is_error(part.error) || kind == "error" {
            return Err(Failure::new(
                FailureKind::StreamError,
                error_text(event.data),
            ));
        }
        match &*kind {
            "speech.audio.delta" => {
                let encoded = part.audio.map(decode_string).unwrap_or_default();
                let bytes = STANDARD.decode(&*encoded).map_err(|error| {
                    Failure::new(
                        FailureKind::Decode,
                        format!("the audio is not base64: {error}"),
                    )
                })?;
                self.audio.push(&bytes);
                events.audio = self.audio.received();
            }
            "speech.audio.done" => {
                self.usage = part.usage.map(parse_usage).unwrap_or_default();
                self.complete = true;
                events.done = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn document(&mut self, body: &[u8]) -> Result<(), Failure> {
        Err(Failure::new(FailureKind::Decode, error_text(body)))
    }

    fn ending(&self, _streamed: bool) -> Result<Finish, Failure> {
        match self.complete {
            true => self.audio.ending(),
            false => Err(Failure::new(
                FailureKind::Truncated,
                "the stream ended before its final event",
            )),
        }
    }

    fn reply(self, end: Result<Finish, Failure>) -> Reply {
        Reply::without_text(end, self.usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::decode;
    use llmscen_core::api::Api;
    use llmscen_core::units::Nanos;

    const PCM_BODY: Framing = Framing::Audio {
        samples_rate: Some(48_000),
    };
    const OTHER_BODY: Framing = Framing::Audio { samples_rate: None };

    /// Decodes a body in one piece and byte by byte.
    fn run(framing: Framing, body: &[u8]) -> (Events, Reply) {
        let decoded = decode(Api::OpenaiSpeech, framing, [body], None);
        let bytes = decode(Api::OpenaiSpeech, framing, body.chunks(1), None);
        assert_eq!(bytes, decoded);
        decoded
    }

    fn audio(framing: Framing, body: &[u8]) -> Option<AudioReceived> {
        run(framing, body).0.audio
    }

    /// A WAV file of 8 kHz, 16 bit and one channel, with a chunk of odd length before its samples.
    fn wav(samples: &[u8]) -> Vec<u8> {
        let mut bytes = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
        bytes.extend(8_000_u32.to_le_bytes());
        bytes.extend(16_000_u32.to_le_bytes());
        bytes.extend(b"\x02\0\x10\0LIST\x03\0\0\0abc\0data\0\0\0\0");
        bytes.extend(samples);
        bytes
    }

    #[test]
    fn the_duration_is_that_of_the_samples() {
        let received = audio(PCM_BODY, &[1; 4800]).unwrap();
        assert_eq!(received.duration(), Some(Nanos::from_millis(100)));
        for framing in [PCM_BODY, OTHER_BODY] {
            let received = audio(framing, &wav(&[1; 1600])).unwrap();
            assert_eq!(received.bytes, 1600);
            assert_eq!(received.duration(), Some(Nanos::from_millis(100)));
        }
        let received = audio(OTHER_BODY, b"ID3\x04 and so on").unwrap();
        assert_eq!((received.bytes, received.duration()), (14, None));
    }

    #[test]
    fn a_body_without_audio_is_empty() {
        for body in [&[][..], &wav(&[]), b"RIF"] {
            let (events, reply) = run(PCM_BODY, body);
            assert_eq!(events.audio, None);
            assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty);
        }
        let reset = Failure::new(FailureKind::Truncated, "reset");
        let (events, reply) = decode(
            Api::OpenaiSpeech,
            PCM_BODY,
            [&[1; 9][..]],
            Some(reset.clone()),
        );
        assert_eq!((events.audio.unwrap().bytes, reply.end), (9, Err(reset)));
    }

    #[test]
    fn events_hold_pieces_of_the_audio() {
        let piece = STANDARD.encode([1; 480]);
        let delta = format!("data: {{\"type\":\"speech.audio.delta\",\"audio\":\"{piece}\"}}\n\n");
        let done = "data: {\"type\":\"speech.audio.done\",\"usage\":{\"input_tokens\":3,\"output_tokens\":9,\"total_tokens\":12}}\n\n";
        let (events, reply) = run(Framing::Sse, format!("{delta}{delta}{done}").as_bytes());
        assert_eq!(
            events.audio.unwrap().duration(),
            Some(Nanos::from_millis(20))
        );
        assert_eq!((events.content, events.done), (0, true));
        assert_eq!((reply.usage.prompt, reply.usage.output), (Some(3), Some(9)));
        let end = |body: &str| run(Framing::Sse, body.as_bytes()).1.end.unwrap_err().kind;
        assert_eq!(end(&delta), FailureKind::Truncated);
        assert_eq!(end(done), FailureKind::Empty);
        let bad = "data: {\"type\":\"speech.audio.delta\",\"audio\":\"%\"}\n\n";
        assert_eq!(end(bad), FailureKind::Decode);
    }

    #[test]
    fn the_type_may_be_in_the_event_line_alone() {
        let piece = STANDARD.encode([1; 480]);
        let stream = format!(
            "event: speech.audio.delta\ndata: {{\"audio\":\"{piece}\",\"error\":null}}\n\n\
             event: speech.audio.done\ndata: {{\"usage\":{{\"output_tokens\":9}}}}\n\n"
        );
        let (events, reply) = run(Framing::Sse, stream.as_bytes());
        assert_eq!((events.audio.unwrap().bytes, events.done), (480, true));
        assert_eq!(
            (reply.end, reply.usage.output),
            (Ok(Finish::default()), Some(9))
        );
    }

    #[test]
    fn the_content_type_names_the_format() {
        let framing = |content_type: Option<&str>| {
            protocol_for(None)
                .framing(content_type, false)
                .map_err(|failure| failure.kind)
        };
        let samples = |samples_rate| Ok(Framing::Audio { samples_rate });
        assert_eq!(framing(Some("audio/pcm")), samples(Some(48_000)));
        assert_eq!(
            framing(Some("audio/L16; rate=16000; channels=2")),
            samples(Some(64_000))
        );
        assert_eq!(framing(Some("audio/mpeg")), samples(None));
        assert_eq!(
            framing(Some("application/octet-stream")),
            samples(Some(48_000))
        );
        assert_eq!(framing(None), samples(Some(48_000)));
        assert_eq!(framing(Some("text/event-stream")), Ok(Framing::Sse));
        assert_eq!(framing(Some("text/html")), Err(FailureKind::Decode));
        let wav = protocol_for(Some("wav"));
        assert_eq!(wav.framing(None, false), Ok(OTHER_BODY));
    }

    fn protocol_for(format: Option<&str>) -> Speech {
        let mut request = RequestSpec::default();
        if let Some(format) = format {
            request
                .extra
                .insert("response_format".into(), format.into());
        }
        Speech::new(Some(&request))
    }
}
