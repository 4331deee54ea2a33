//! `images`: images with a text, as parts of one user message.
//!
//! Generated images differ in every request: a gradient between random colors with noise, which prevents them from
//! compressing to a few bytes. All images of a request have the same size. Images of a folder are used in the order
//! of their names, or shuffled. Their tokens depend on the model, so prompts with images are not counted.

use super::error::PromptError;
use super::media::{MediaFiles, MediaKind};
use super::{Prompts, Setting};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use llmscen_core::bounds;
use llmscen_core::dataset::{ImagesSpec, OnExhausted, Prompt, Session};
use llmscen_core::seed::Seed;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Maximum width and height, in pixels.
const MAX_SIZE: u32 = 16_384;
/// Amplitude of the noise, of 256 levels; a power of two.
const NOISE: u8 = 16;

enum ImageSource {
    /// Generated with these sizes.
    Generated(Vec<(u32, u32)>),
    Files(MediaFiles<(u32, u32)>),
}

struct Images {
    source: ImageSource,
    /// Number of files that are not images.
    dropped: u64,
    count: u64,
    text: String,
    cycle: bool,
    seed: Seed,
    first: u64,
}

const KIND: MediaKind<(u32, u32)> = MediaKind {
    kind: "images",
    extensions: &[
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("webp", "image/webp"),
    ],
    probe: |path| image_size(path).ok_or_else(|| "is not an image".to_owned()),
};

fn image_size(path: &Path) -> Option<(u32, u32)> {
    // `bounds::open` rejects pipes, which would block.
    bounds::open(path).ok()?;
    let size = imagesize::size(path).ok()?;
    Some((size.width.try_into().ok()?, size.height.try_into().ok()?))
}

/// Checks the sizes, or lists the folder.
pub fn open(
    spec: &ImagesSpec,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    if spec.count == 0 {
        return Err(KIND.error("a request needs at least 1 image".into()));
    }
    if let Some((width, height)) = invalid_size(&spec.sizes) {
        return Err(KIND.error(format!(
            "{width}x{height} is not a valid size; width and height must be 1 to {MAX_SIZE}"
        )));
    }
    let mut dropped = 0;
    let source = if spec.sizes.is_empty() {
        let (files, rejected) = MediaFiles::list(&KIND, setting)?;
        let folder = setting.spec.path.as_deref().unwrap_or_default();
        let found = files.len() + rejected.len() as u64;
        if files.len() == 0 {
            return Err(KIND.error(format!("no file in {folder} is an image")));
        }
        dropped = rejected.len() as u64;
        if dropped > 0 {
            notes.push(format!(
                "{dropped} of {found} files in {folder} are not images and were left out"
            ));
        }
        ImageSource::Files(files)
    } else {
        ImageSource::Generated(spec.sizes.clone())
    };
    Ok(Images {
        source,
        dropped,
        count: spec.count,
        text: spec.text.clone(),
        cycle: setting.spec.on_exhausted == OnExhausted::Cycle,
        seed: setting.seed.child("images"),
        first: setting.first,
    })
}

/// The first size that is too small or too large.
pub(super) fn invalid_size(sizes: &[(u32, u32)]) -> Option<(u32, u32)> {
    let is_valid = |side: u32| (1..=MAX_SIZE).contains(&side);
    let mut sizes = sizes.iter().copied();
    sizes.find(|(width, height)| !is_valid(*width) || !is_valid(*height))
}

impl Images {
    /// An image of a request as a data URL, and its size.
    fn image(&self, index: u64, number: u64) -> Option<(String, (u32, u32))> {
        let (media, bytes, size) = match &self.source {
            ImageSource::Generated(sizes) => {
                let size = *sizes.get((index % sizes.len() as u64) as usize)?;
                (
                    "image/png",
                    generate_png(size, self.seed.child(index).child(number))?,
                    size,
                )
            }
            ImageSource::Files(files) => {
                let (file, bytes) = files.read(index % self.rows()? * self.count + number)?;
                (file.media, bytes, file.facts)
            }
        };
        Some((
            format!("data:{media};base64,{}", STANDARD.encode(bytes)),
            size,
        ))
    }

    /// Number of requests until the images of the folder repeat; the last one is filled with the first images.
    fn rows(&self) -> Option<u64> {
        match &self.source {
            ImageSource::Generated(_) => None,
            ImageSource::Files(files) => Some(files.len().div_ceil(self.count)),
        }
    }
}

/// A PNG with 8 bits per channel.
fn generate_png((width, height): (u32, u32), seed: Seed) -> Option<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed.0);
    let corners: [[u8; 3]; 3] = rng.random();
    let mut pixels = vec![0; width as usize * height as usize * 3];
    rng.fill_bytes(&mut pixels);
    for (at, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let (x, y) = (at as u32 % width, at as u32 / width);
        for (channel, value) in pixel.iter_mut().enumerate() {
            let [start, right, down] = corners.map(|corner| u32::from(corner[channel]));
            let shade = (start * (width - x) + right * x) / width / 2
                + (start * (height - y) + down * y) / height / 2;
            *value = (shade.min(255 - u32::from(NOISE)) as u8) + *value % NOISE;
        }
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    let mut writer = encoder.write_header().ok()?;
    writer.write_image_data(&pixels).ok()?;
    writer.finish().ok()?;
    Some(bytes)
}

impl Prompts for Images {
    fn session(&self, seq: u64) -> Option<Session> {
        if !self.cycle && self.rows().is_some_and(|rows| seq >= rows) {
            return None;
        }
        let index = self.first.wrapping_add(seq);
        let images: Vec<_> = (0..self.count)
            .map(|number| self.image(index, number))
            .collect::<Option<_>>()?;
        let (width, height) = images.first()?.1;
        let mut parts = vec![json!({ "type": "text", "text": self.text })];
        let part =
            |(url, _): (String, _)| json!({ "type": "image_url", "image_url": { "url": url } });
        parts.extend(images.into_iter().map(part));
        let prompt = Prompt {
            text: self.text.clone(),
            messages: Some(vec![
                json!({ "role": "user", "content": Value::Array(parts) }),
            ]),
            fields: Map::from_iter([
                ("width".to_owned(), json!(width)),
                ("height".to_owned(), json!(height)),
            ])
            .into(),
            ..Prompt::default()
        };
        Some(vec![prompt].into())
    }

    fn len(&self) -> Option<u64> {
        self.rows()
    }

    fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheDir, Opened, open as open_any};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use std::collections::HashSet;

    fn spec(sizes: &[(u32, u32)], count: u64) -> DatasetSpec {
        DatasetSpec::new(Source::Images(ImagesSpec {
            sizes: sizes.to_vec(),
            count,
            text: "What is this?".into(),
        }))
    }

    fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
        open_any(
            spec,
            Seed(1),
            first,
            &CacheDir {
                dir: "unused".into(),
                hub: String::new(),
                ..CacheDir::default()
            },
            &|_| (),
        )
    }

    fn prompt(opened: &Opened, seq: u64) -> Prompt {
        opened.prompts.session(seq).unwrap().turns.remove(0)
    }

    /// The images of a prompt: media type and bytes.
    fn images(prompt: &Prompt) -> Vec<(String, Vec<u8>)> {
        let content = &prompt.messages.as_ref().unwrap()[0]["content"];
        assert_eq!(
            content[0],
            json!({ "type": "text", "text": "What is this?" })
        );
        let url = |part: &Value| {
            part["image_url"]["url"]
                .as_str()
                .unwrap()
                .strip_prefix("data:")
                .unwrap()
                .to_owned()
        };
        let parts = content.as_array().unwrap()[1..].iter().map(url);
        parts
            .map(|url| {
                url.split_once(";base64,")
                    .map(|(media, data)| (media.to_owned(), STANDARD.decode(data).unwrap()))
                    .unwrap()
            })
            .collect()
    }

    #[test]
    fn drawn_pictures_have_their_size_and_are_all_different() {
        let (one, two) = (
            opened(&spec(&[(40, 30), (64, 16)], 2), 0).unwrap(),
            opened(&spec(&[(40, 30), (64, 16)], 2), 4).unwrap(),
        );
        let mut seen = HashSet::new();
        for seq in 0..6 {
            let prompt = prompt(&one, seq);
            let (width, height) = [(40, 30), (64, 16)][seq as usize % 2];
            assert_eq!(
                Value::Object((*prompt.fields).clone()),
                json!({ "width": width, "height": height })
            );
            assert_eq!(
                (prompt.text.as_str(), prompt.tokens),
                ("What is this?", None)
            );
            let images = images(&prompt);
            assert_eq!(images.len(), 2);
            for (media, bytes) in images {
                let info = png::Decoder::new(std::io::Cursor::new(&bytes))
                    .read_info()
                    .unwrap()
                    .info()
                    .clone();
                assert_eq!(
                    (media.as_str(), info.width, info.height, info.color_type),
                    ("image/png", width, height, png::ColorType::Rgb)
                );
                seen.insert(bytes);
            }
        }
        assert_eq!(seen.len(), 12);
        assert_eq!(
            (prompt(&one, 5), one.prompts.len()),
            (prompt(&two, 1), None)
        );
    }

    #[test]
    fn a_picture_is_neither_flat_nor_mere_noise() {
        let bytes = generate_png((200, 200), Seed(7)).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; 200 * 200 * 3];
        reader.next_frame(&mut pixels).unwrap();
        let share = bytes.len() as f64 / pixels.len() as f64;
        assert!((0.3..0.9).contains(&share), "{share}");
        let row = |y: usize| {
            pixels[y * 600..(y + 1) * 600]
                .iter()
                .map(|value| u32::from(*value))
                .sum::<u32>()
                / 600
        };
        assert!(
            row(0).abs_diff(row(199)) > 10,
            "a gradient from top to bottom: {} to {}",
            row(0),
            row(199)
        );
    }

    #[test]
    fn a_folder_s_pictures_are_taken_by_name_and_come_again() {
        let dir = tempfile::tempdir().unwrap();
        for (name, size) in [("c.PNG", (3, 3)), ("a.png", (5, 4)), ("b.png", (6, 6))] {
            std::fs::write(
                dir.path().join(name),
                generate_png(size, Seed(size.0.into())).unwrap(),
            )
            .unwrap();
        }
        std::fs::write(dir.path().join("note.txt"), "x").unwrap();
        std::fs::write(dir.path().join("torn.jpg"), "x").unwrap();
        let mut spec = DatasetSpec {
            path: Some(dir.path().display().to_string()),
            ..spec(&[], 2)
        };
        let folder = opened(&spec, 0).unwrap();
        let sizes = |opened: &Opened, seq| -> Vec<usize> {
            images(&prompt(opened, seq))
                .iter()
                .map(|(_, bytes)| imagesize::blob_size(bytes).unwrap().width)
                .collect()
        };
        assert_eq!(
            [0, 1, 2].map(|seq| sizes(&folder, seq)),
            [[5, 6], [3, 5], [5, 6]]
        );
        assert_eq!(prompt(&folder, 0).fields["height"], 4);
        assert_eq!(
            (folder.prompts.len(), folder.prompts.dropped()),
            (Some(2), 1)
        );
        assert!(
            folder.notes[0].starts_with("1 of 4 files in "),
            "{:?}",
            folder.notes
        );
        spec.on_exhausted = OnExhausted::Stop;
        assert!(opened(&spec, 0).unwrap().prompts.session(2).is_none());
    }

    #[test]
    fn what_is_no_picture_is_refused() {
        let error = |spec: &DatasetSpec| opened(spec, 0).unwrap_err().to_string();
        assert_eq!(
            error(&spec(&[(0, 4)], 1)),
            "`images`: 0x4 is not a valid size; width and height must be 1 to 16384"
        );
        assert_eq!(
            error(&spec(&[(4, 4)], 0)),
            "`images`: a request needs at least 1 image"
        );
        assert_eq!(error(&spec(&[], 1)), "a `images` dataset needs a `path`");
        let dir = tempfile::tempdir().unwrap();
        let empty = DatasetSpec {
            path: Some(dir.path().display().to_string()),
            ..spec(&[], 1)
        };
        assert_eq!(
            error(&empty),
            format!(
                "`images`: {} has no file with one of the extensions png, jpg, jpeg, webp",
                dir.path().display()
            )
        );
        let gone = DatasetSpec {
            path: Some("/nowhere/images".into()),
            ..spec(&[], 1)
        };
        assert!(error(&gone).starts_with("cannot read the dataset /nowhere/images: No such file"));
    }
}
