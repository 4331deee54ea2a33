//! `video`: one video with a text, as parts of a user message.
//!
//! Generated videos differ in every request: a gradient that moves, in an AVI file of uncompressed frames, which
//! decoders read without a codec. Files are used in the order of their names, or shuffled. Their tokens depend on the
//! model.

use super::error::PromptError;
use super::images::invalid_size;
use super::media::{MediaFiles, MediaKind};
use super::{Prompts, Setting};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmscen_core::bounds;
use llmscen_core::dataset::{OnExhausted, Prompt, Session, VideoSpec};
use llmscen_core::seed::Seed;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, json};

/// Frames per second of generated videos.
const FRAME_RATE: u32 = 4;
const GENERATED: &str = "video/x-msvideo";

const KIND: MediaKind<()> = MediaKind {
    kind: "video",
    extensions: &[
        ("mp4", "video/mp4"),
        ("mov", "video/quicktime"),
        ("webm", "video/webm"),
        ("mkv", "video/x-matroska"),
        ("avi", GENERATED),
    ],
    probe: |path| {
        let bytes = bounds::read(path, bounds::MEDIA)
            .map_err(|error| format!("cannot be read: {error}"))?;
        let is_video = bytes.get(4..8) == Some(b"ftyp")
            || bytes.starts_with(&[0x1a, 0x45, 0xdf, 0xa3])
            || bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"AVI ");
        is_video
            .then_some(())
            .ok_or_else(|| "is not a video: it has no header of MP4, WebM or AVI".to_owned())
    },
};

enum VideoSource {
    /// Generated with these sizes and this number of frames.
    Generated(Vec<(u32, u32)>, u32),
    Files(MediaFiles<()>),
}

struct Videos {
    source: VideoSource,
    text: String,
    cycle: bool,
    seed: Seed,
    first: u64,
}

/// Checks the sizes, or every file.
pub fn open(spec: &VideoSpec, setting: &Setting<'_>) -> Result<impl Prompts + use<>, PromptError> {
    let source = if spec.sizes.is_empty() {
        let (files, rejected) = MediaFiles::list(&KIND, setting)?;
        if let Some(reason) = rejected.into_iter().next() {
            return Err(KIND.error(format!("{reason}; remove or convert it")));
        }
        VideoSource::Files(files)
    } else {
        let frames = (spec.duration.secs() * f64::from(FRAME_RATE))
            .ceil()
            .max(1.0) as u32;
        let longest = spec
            .sizes
            .iter()
            .map(|size| video_bytes(*size, frames))
            .max();
        if let Some((width, height)) = invalid_size(&spec.sizes) {
            return Err(KIND.error(format!("{width}x{height} is not a valid size")));
        }
        if longest > Some(bounds::MEDIA) {
            return Err(KIND.error(format!(
                "an uncompressed video of this size and duration has more than {} MiB; lower `sizes` or `seconds`",
                bounds::MEDIA >> 20
            )));
        }
        VideoSource::Generated(spec.sizes.clone(), frames)
    };
    Ok(Videos {
        source,
        text: spec.text.clone(),
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        seed: setting.seed.child("video"),
        first: setting.first,
    })
}

/// Bytes of a row of pixels: 3 per pixel, padded to a multiple of 4.
fn row_bytes(width: u32) -> u64 {
    (u64::from(width) * 3).next_multiple_of(4)
}

/// Bytes of all frames.
fn video_bytes((width, height): (u32, u32), frames: u32) -> u64 {
    (row_bytes(width) * u64::from(height)).saturating_mul(u64::from(frames))
}

impl Videos {
    /// The media type and the bytes of the video of a request.
    fn video(&self, index: u64) -> Option<(&'static str, Vec<u8>)> {
        match &self.source {
            VideoSource::Generated(sizes, frames) => {
                let size = *sizes.get((index % sizes.len() as u64) as usize)?;
                Some((
                    GENERATED,
                    generate_avi(size, *frames, self.seed.child(index)),
                ))
            }
            VideoSource::Files(files) => {
                let (file, bytes) = files.read(index)?;
                Some((file.media, bytes))
            }
        }
    }
}

/// A RIFF chunk: its name, its length and its content, which has an even length.
fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_le_bytes();
    [&name[..], &length, content].concat()
}

fn list(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    chunk(b"LIST", &[&name[..], content].concat())
}

fn words(fields: &[u32]) -> Vec<u8> {
    fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect()
}

/// An AVI file with one stream of uncompressed frames, 24 bits per pixel.
fn generate_avi((width, height): (u32, u32), frames: u32, seed: Seed) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let color: [u8; 3] = rng.random();
    let row = row_bytes(width) as usize;
    let size = row as u32 * height;
    let main = words(&[
        1_000_000 / FRAME_RATE,
        size * FRAME_RATE,
        0,
        0x10,
        frames,
        0,
        1,
        size,
        width,
        height,
        0,
        0,
        0,
        0,
    ]);
    let mut stream = b"vidsDIB ".to_vec();
    stream.extend(words(&[0, 0, 0, 1, FRAME_RATE, 0, frames, size, 0, 0, 0]));
    stream.extend([width as u16, height as u16].map(u16::to_le_bytes).concat());
    let mut format = words(&[40, width, height]);
    format.extend([1_u16, 24].map(u16::to_le_bytes).concat());
    format.extend(words(&[0, size, 0, 0, 0, 0]));
    let stream = [chunk(b"strh", &stream), chunk(b"strf", &format)].concat();
    let header = [chunk(b"avih", &main), list(b"strl", &stream)].concat();
    let (mut movie, mut index) = (Vec::new(), Vec::new());
    for frame in 0..frames {
        index.extend(b"00db");
        index.extend(words(&[0x10, 4 + movie.len() as u32, size]));
        let mut pixels = Vec::with_capacity(size as usize);
        for y in 0..height {
            for x in 0..width {
                let shade = (x + y + frame * 8) as u8;
                pixels.extend(color.map(|channel| channel.wrapping_add(shade)));
            }
            pixels.resize(row * (y as usize + 1), 0);
        }
        movie.extend(chunk(b"00db", &pixels));
    }
    let content = [
        list(b"hdrl", &header),
        list(b"movi", &movie),
        chunk(b"idx1", &index),
    ]
    .concat();
    chunk(b"RIFF", &[b"AVI ", &content[..]].concat())
}

impl Prompts for Videos {
    fn session(&self, seq: u64) -> Option<Session> {
        if !self.cycle && self.len().is_some_and(|rows| seq >= rows) {
            return None;
        }
        let (media, bytes) = self.video(self.first.wrapping_add(seq))?;
        let url = format!("data:{media};base64,{}", STANDARD.encode(&bytes));
        let content = json!([
            { "type": "text", "text": self.text },
            { "type": "video_url", "video_url": { "url": url } },
        ]);
        let prompt = Prompt {
            text: self.text.clone(),
            messages: Some(vec![json!({ "role": "user", "content": content })]),
            fields: Map::new().into(),
            ..Prompt::default()
        };
        Some(vec![prompt].into())
    }

    fn len(&self) -> Option<u64> {
        match &self.source {
            VideoSource::Generated(..) => None,
            VideoSource::Files(files) => Some(files.len()),
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
    use llmscen_core::units::Nanos;

    fn opened(sizes: &[(u32, u32)], path: Option<String>) -> Result<Opened, PromptError> {
        let spec = DatasetSpec {
            path,
            ..DatasetSpec::new(Source::Video(VideoSpec {
                sizes: sizes.to_vec(),
                duration: Nanos::from_millis(1000),
                text: "What happens?".into(),
            }))
        };
        let cache = CacheDir {
            dir: "unused".into(),
            hub: String::new(),
            ..CacheDir::default()
        };
        open_any(&spec, Seed(1), 0, &cache, &|_| ())
    }

    fn video(opened: &Opened, seq: u64) -> Vec<u8> {
        let prompt = opened.prompts.session(seq).unwrap().turns.remove(0);
        let content = prompt.messages.unwrap().remove(0)["content"].take();
        assert_eq!(content[0]["text"], "What happens?");
        let url = content[1]["video_url"]["url"].as_str().unwrap();
        let data = url.strip_prefix("data:video/x-msvideo;base64,").unwrap();
        STANDARD.decode(data).unwrap()
    }

    #[test]
    fn generated_videos_are_avi_files_of_their_length_and_all_different() {
        let opened = opened(&[(6, 4)], None).unwrap();
        let first = video(&opened, 0);
        assert_ne!(first, video(&opened, 1));
        assert_eq!(
            first.len(),
            8 + u32::from_le_bytes(first[4..8].try_into().unwrap()) as usize
        );
        // Four frames of 4 rows of 20 bytes.
        let at = first.windows(4).position(|name| name == b"movi").unwrap();
        assert_eq!(&first[at + 4..at + 12], b"00db\x50\0\0\0");
        let frames = first.windows(4).filter(|name| *name == b"00db");
        assert_eq!(frames.count(), 2 * 4);
    }

    #[test]
    fn what_is_no_video_is_refused() {
        let error = |sizes: &[(u32, u32)], path| opened(sizes, path).unwrap_err().to_string();
        assert_eq!(
            error(&[(4096, 4096)], None),
            "`video`: an uncompressed video of this size and duration has more than 64 MiB; lower \
            `sizes` or `seconds`"
        );
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.mp4"), "x").unwrap();
        let folder = Some(dir.path().display().to_string());
        assert!(error(&[], folder).ends_with(
            "a.mp4 is not a video: it has no header of MP4, WebM or AVI; remove or convert it"
        ));
    }
}
