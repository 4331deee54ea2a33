//! `audio`: one sound per request, uploaded or as part of a user message.
//!
//! Generated sounds differ in every request: a tone of changing pitch with noise, in a WAV file of 16 kHz, which is
//! the rate of speech recognition. They hold no speech. Files are used in the order of their names, or shuffled.

use super::error::PromptError;
use super::media::{MediaFile, MediaFiles, MediaKind};
use super::{Prompts, Setting, audio_format};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmscen_core::bounds;
use llmscen_core::dataset::{AudioFile, AudioSpec, OnExhausted, Prompt, Session};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, json};
use std::sync::Arc;

/// Samples per second of generated sounds.
const RATE: u32 = 16_000;
/// Maximum duration of generated sounds: their file fits into the limit of files.
const MAX_DURATION: Nanos = Nanos::from_millis(1_800_000);
/// Pitches at which a generated tone starts and ends, Hz.
const PITCHES: std::ops::RangeInclusive<u32> = 100..=1000;

const KIND: MediaKind<Option<Nanos>> = MediaKind {
    kind: "audio",
    extensions: &[
        ("wav", "audio/wav"),
        ("mp3", "audio/mpeg"),
        ("flac", "audio/flac"),
        ("ogg", "audio/ogg"),
        ("opus", "audio/ogg"),
        ("m4a", "audio/mp4"),
        ("webm", "audio/webm"),
    ],
    probe: |path| {
        let bytes = bounds::read(path, bounds::MEDIA)
            .map_err(|error| format!("cannot be read: {error}"))?;
        Ok(audio_format::duration(&bytes)?)
    },
};

enum SoundSource {
    /// Generated with this duration.
    Generated(Nanos),
    Files(MediaFiles<Option<Nanos>>),
}

struct Audio {
    source: SoundSource,
    text: Option<String>,
    /// The audio is part of a message.
    in_message: bool,
    /// Samples at this rate, not whole files.
    samples: Option<u32>,
    cycle: bool,
    seed: Seed,
    first: u64,
}

/// Checks the duration, or every file.
pub fn open(
    spec: &AudioSpec,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    let source = match spec.duration {
        Some(duration) if (Nanos::from_millis(1)..=MAX_DURATION).contains(&duration) => {
            SoundSource::Generated(duration)
        }
        Some(_) => return Err(KIND.error("`seconds` must be from 0.001 to 1800".into())),
        None => {
            let (files, rejected) = MediaFiles::list(&KIND, setting)?;
            let not_samples = |file: &MediaFile<_>| {
                let bytes = bounds::read(&file.path, bounds::MEDIA).ok()?;
                let error = audio_format::samples(&bytes, spec.samples?).err()?;
                Some(format!("{} {error}", file.path.display()))
            };
            if let Some(reason) = files.all().iter().find_map(not_samples) {
                return Err(KIND.error(reason));
            }
            if let Some(reason) = rejected.into_iter().next() {
                return Err(KIND.error(format!("{reason}; remove or convert it")));
            }
            let unknown = files.all().iter().filter(|file| file.facts.is_none());
            let unknown = unknown.count();
            if unknown > 0 {
                notes.push(format!(
                    "the duration of {unknown} of {} audio files is not known, so their requests \
                    have no real-time factor; convert them to WAV, MP3, FLAC or Ogg",
                    files.len()
                ));
            }
            SoundSource::Files(files)
        }
    };
    Ok(Audio {
        source,
        text: spec.text.clone(),
        in_message: setting.spec.templated && spec.samples.is_none(),
        samples: spec.samples,
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        seed: setting.seed.child("audio"),
        first: setting.first,
    })
}

impl Audio {
    fn sound(&self, index: u64) -> Option<AudioFile> {
        let file = self.file(index)?;
        let Some(rate) = self.samples else {
            return Some(file);
        };
        let samples = audio_format::samples(&file.bytes, rate).ok()?.to_vec();
        Some(AudioFile {
            media: "audio/pcm",
            bytes: Arc::new(samples),
            ..file
        })
    }

    fn file(&self, index: u64) -> Option<AudioFile> {
        match &self.source {
            SoundSource::Generated(duration) => {
                let rate = self.samples.unwrap_or(RATE);
                let samples = duration.0 as u128 * u128::from(rate) / 1_000_000_000;
                let samples = samples as u32;
                Some(AudioFile {
                    name: format!("{index}.wav"),
                    media: "audio/wav",
                    bytes: Arc::new(generate_wav(samples, rate, self.seed.child(index))),
                    duration: Some(Nanos(u64::from(samples) * 1_000_000_000 / u64::from(rate))),
                })
            }
            SoundSource::Files(files) => {
                let (file, bytes) = files.read(index)?;
                let name = file.path.file_name().unwrap_or_default();
                Some(AudioFile {
                    name: name.to_string_lossy().into_owned(),
                    media: file.media,
                    bytes: Arc::new(bytes),
                    duration: file.facts,
                })
            }
        }
    }

    /// The name of a format in an `input_audio` part.
    fn format(media: &str) -> &str {
        match media {
            "audio/mpeg" => "mp3",
            other => other.strip_prefix("audio/").unwrap_or(other),
        }
    }
}

/// A WAV file with 16-bit samples of one channel. Only integers are used, so that every machine generates the same
/// bytes.
fn generate_wav(samples: u32, rate: u32, seed: Seed) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let [start, end] = [0, 0].map(|_| i64::from(rng.random_range(PITCHES)));
    let data = samples * 2;
    let mut bytes = Vec::with_capacity(44 + data as usize);
    bytes.extend(b"RIFF");
    bytes.extend((36 + data).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate * 2).to_le_bytes());
    bytes.extend(b"\x02\0\x10\0data");
    bytes.extend(data.to_le_bytes());
    let mut noise = vec![0; samples as usize];
    rng.fill_bytes(&mut noise);
    let mut phase = 0_u32;
    for (index, noise) in noise.into_iter().enumerate() {
        let pitch = start + (end - start) * index as i64 / i64::from(samples);
        phase = phase.wrapping_add(((pitch << 32) / i64::from(rate)) as u32);
        // A triangle from -8192 to 8191.
        let tone = (phase as i32).unsigned_abs() / (1 << 17);
        let sample = tone as i16 - 8192 + (i16::from(noise) - 128) * 8;
        bytes.extend(sample.to_le_bytes());
    }
    bytes
}

impl Prompts for Audio {
    fn session(&self, seq: u64) -> Option<Session> {
        if !self.cycle && self.len().is_some_and(|rows| seq >= rows) {
            return None;
        }
        let mut sound = self.sound(self.first.wrapping_add(seq))?;
        let mut fields = Map::from_iter([("file".to_owned(), json!(sound.name))]);
        if let Some(duration) = sound.duration {
            fields.insert("duration".to_owned(), json!(duration.secs()));
        }
        let mut messages = None;
        if self.in_message {
            let bytes = std::mem::take(&mut sound.bytes);
            let audio =
                json!({ "data": STANDARD.encode(&*bytes), "format": Self::format(sound.media) });
            let text = self.text.iter();
            let mut parts: Vec<_> = text
                .map(|text| json!({ "type": "text", "text": text }))
                .collect();
            parts.push(json!({ "type": "input_audio", "input_audio": audio }));
            messages = Some(vec![json!({ "role": "user", "content": parts })]);
        }
        let prompt = Prompt {
            text: self.text.clone().unwrap_or_default(),
            messages,
            audio: Some(sound),
            fields: fields.into(),
            ..Prompt::default()
        };
        Some(vec![prompt].into())
    }

    fn len(&self) -> Option<u64> {
        match &self.source {
            SoundSource::Generated(_) => None,
            SoundSource::Files(files) => Some(files.len()),
        }
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{DatasetSpec, Source};

    fn spec(duration: Option<u64>) -> DatasetSpec {
        DatasetSpec::new(Source::Audio(AudioSpec {
            duration: duration.map(Nanos::from_millis),
            text: Some("What is said?".into()),
            samples: None,
        }))
    }

    fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
        let cache = CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        };
        open_any(spec, Seed(1), first, &cache, &|_| ())
    }

    fn prompt(opened: &Opened, seq: u64) -> Prompt {
        opened.prompts.session(seq).unwrap().turns.remove(0)
    }

    #[test]
    fn generated_sounds_have_their_duration_and_are_all_different() {
        let uploads = DatasetSpec {
            templated: false,
            ..spec(Some(250))
        };
        let (one, later) = (opened(&uploads, 0).unwrap(), opened(&uploads, 2).unwrap());
        let sound = |opened: &Opened, seq| prompt(opened, seq).audio.unwrap();
        let first = sound(&one, 0);
        assert_eq!(first.bytes.len(), 44 + 8000);
        assert_eq!(first.duration, Some(Nanos::from_millis(250)));
        assert_eq!(audio_format::duration(&first.bytes), Ok(first.duration));
        assert_ne!(first.bytes, sound(&one, 1).bytes);
        assert_eq!(sound(&one, 3), sound(&later, 1));
        assert_eq!(prompt(&one, 0).messages, None);
        assert_eq!(prompt(&one, 0).fields["duration"], 0.25);
    }

    #[test]
    fn the_bytes_of_a_sound_do_not_depend_on_the_machine() {
        let bytes = generate_wav(4, RATE, Seed(7));
        let samples = bytes[44..].chunks(2);
        let samples: Vec<i16> = samples
            .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
            .collect();
        assert_eq!(samples, [-8290, -7955, -6563, -6948]);
    }

    #[test]
    fn a_message_holds_the_sound_after_its_text() {
        let prompt = prompt(&opened(&spec(Some(10)), 0).unwrap(), 0);
        let content = &prompt.messages.as_ref().unwrap()[0]["content"];
        assert_eq!(content[0]["text"], "What is said?");
        assert_eq!(content[1]["input_audio"]["format"], "wav");
        let data = content[1]["input_audio"]["data"].as_str().unwrap();
        assert_eq!(STANDARD.decode(data).unwrap().len(), 44 + 320);
        let audio = prompt.audio.unwrap();
        assert_eq!(
            (audio.bytes.len(), audio.duration),
            (0, Some(Nanos::from_millis(10)))
        );
    }

    #[test]
    fn files_are_sent_by_name_and_one_that_is_no_audio_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for (name, samples) in [("b.wav", 1600), ("a.WAV", 3200)] {
            std::fs::write(dir.path().join(name), generate_wav(samples, RATE, Seed(1))).unwrap();
        }
        std::fs::write(dir.path().join("c.m4a"), b"\0\0\0\x20ftypM4A ").unwrap();
        std::fs::write(dir.path().join("notes.txt"), "x").unwrap();
        let mut spec = DatasetSpec {
            path: Some(dir.path().display().to_string()),
            templated: false,
            ..spec(None)
        };
        let folder = opened(&spec, 0).unwrap();
        let sounds = [0, 1, 2, 3].map(|seq| prompt(&folder, seq).audio.unwrap());
        let facts = sounds.each_ref().map(|sound| {
            (
                sound.name.as_str(),
                sound.duration.map(|span| span.millis()),
            )
        });
        assert_eq!(
            facts,
            [
                ("a.WAV", Some(200.0)),
                ("b.wav", Some(100.0)),
                ("c.m4a", None),
                ("a.WAV", Some(200.0))
            ]
        );
        assert!(
            folder.notes[0].starts_with("the duration of 1 of 3 audio files is not known"),
            "{:?}",
            folder.notes
        );
        spec.on_exhausted = OnExhausted::Stop;
        assert!(opened(&spec, 0).unwrap().prompts.session(3).is_none());
        std::fs::write(dir.path().join("d.mp3"), "not sound").unwrap();
        let path = dir.path().join("d.mp3");
        let error = format!(
            "`audio`: {} is not an audio file: it has no header of WAV, MP3, FLAC, Ogg, MP4 or \
            WebM; remove or convert it",
            path.display()
        );
        assert_eq!(opened(&spec, 0).unwrap_err().to_string(), error);
        spec.path = Some(path.display().to_string());
        assert_eq!(opened(&spec, 0).unwrap_err().to_string(), error);
    }
}
