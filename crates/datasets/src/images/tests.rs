use super::*;
use crate::{CacheDir, Opened, open as open_any};
use llmscen_core::dataset::{DatasetSpec, Source};
use std::collections::HashSet;

fn spec(sizes: &[(u32, u32)], count: u64) -> DatasetSpec {
    DatasetSpec::of(Source::Images(ImagesSpec { sizes: sizes.to_vec(), count, text: "What is this?".into() }))
}

fn opened(spec: &DatasetSpec, first: u64) -> Result<Opened, PromptError> {
    open_any(spec, Seed(1), first, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ())
}

fn prompt(opened: &Opened, seq: u64) -> Prompt {
    opened.prompts.session(seq).unwrap().turns.remove(0)
}

/// The pictures of a prompt: media type and bytes.
fn pictures(prompt: &Prompt) -> Vec<(String, Vec<u8>)> {
    let content = &prompt.messages.as_ref().unwrap()[0]["content"];
    assert_eq!(content[0], json!({ "type": "text", "text": "What is this?" }));
    let url = |part: &Value| part["image_url"]["url"].as_str().unwrap().strip_prefix("data:").unwrap().to_owned();
    let parts = content.as_array().unwrap()[1..].iter().map(url);
    parts
        .map(|url| url.split_once(";base64,").map(|(media, data)| (media.to_owned(), STANDARD.decode(data).unwrap())).unwrap())
        .collect()
}

#[test]
fn drawn_pictures_have_their_size_and_are_all_different() {
    let (one, two) = (opened(&spec(&[(40, 30), (64, 16)], 2), 0).unwrap(), opened(&spec(&[(40, 30), (64, 16)], 2), 4).unwrap());
    let mut seen = HashSet::new();
    for seq in 0..6 {
        let prompt = prompt(&one, seq);
        let (width, height) = [(40, 30), (64, 16)][seq as usize % 2];
        assert_eq!(Value::Object((*prompt.fields).clone()), json!({ "width": width, "height": height }));
        assert_eq!((prompt.text.as_str(), prompt.tokens), ("What is this?", None));
        let pictures = pictures(&prompt);
        assert_eq!(pictures.len(), 2);
        for (media, bytes) in pictures {
            let info = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap().info().clone();
            assert_eq!(
                (media.as_str(), info.width, info.height, info.color_type),
                ("image/png", width, height, png::ColorType::Rgb)
            );
            seen.insert(bytes);
        }
    }
    assert_eq!(seen.len(), 12);
    assert_eq!((prompt(&one, 5), one.prompts.len()), (prompt(&two, 1), None));
}

#[test]
fn a_picture_is_neither_flat_nor_mere_noise() {
    let bytes = drawn((200, 200), Seed(7)).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
    let mut pixels = vec![0; 200 * 200 * 3];
    reader.next_frame(&mut pixels).unwrap();
    let share = bytes.len() as f64 / pixels.len() as f64;
    assert!((0.3..0.9).contains(&share), "{share}");
    let row = |y: usize| pixels[y * 600..(y + 1) * 600].iter().map(|value| u32::from(*value)).sum::<u32>() / 600;
    assert!(row(0).abs_diff(row(199)) > 10, "a gradient from top to bottom: {} to {}", row(0), row(199));
}

#[test]
fn a_folder_s_pictures_are_taken_by_name_and_come_again() {
    let dir = tempfile::tempdir().unwrap();
    for (name, size) in [("c.PNG", (3, 3)), ("a.png", (5, 4)), ("b.png", (6, 6))] {
        std::fs::write(dir.path().join(name), drawn(size, Seed(size.0.into())).unwrap()).unwrap();
    }
    std::fs::write(dir.path().join("note.txt"), "x").unwrap();
    std::fs::write(dir.path().join("torn.jpg"), "x").unwrap();
    let mut spec = DatasetSpec { path: Some(dir.path().display().to_string()), ..spec(&[], 2) };
    let folder = opened(&spec, 0).unwrap();
    let sizes = |opened: &Opened, seq| -> Vec<usize> {
        pictures(&prompt(opened, seq)).iter().map(|(_, bytes)| imagesize::blob_size(bytes).unwrap().width).collect()
    };
    assert_eq!([0, 1, 2].map(|seq| sizes(&folder, seq)), [[5, 6], [3, 5], [5, 6]]);
    assert_eq!(prompt(&folder, 0).fields["height"], 4);
    assert_eq!((folder.prompts.len(), folder.prompts.dropped()), (Some(2), 1));
    assert!(folder.notes[0].starts_with("1 of 4 files in "), "{:?}", folder.notes);
    spec.on_exhausted = OnExhausted::Stop;
    assert!(opened(&spec, 0).unwrap().prompts.session(2).is_none());
}

#[test]
fn what_is_no_picture_is_refused() {
    let tell = |spec: &DatasetSpec| opened(spec, 0).unwrap_err().to_string();
    assert_eq!(tell(&spec(&[(0, 4)], 1)), "`images`: 0x4 is no size; width and height go from 1 to 16384");
    assert_eq!(tell(&spec(&[(4, 4)], 0)), "`images`: a request needs at least one picture");
    assert_eq!(tell(&spec(&[], 1)), "a `images` dataset needs a `path`");
    let dir = tempfile::tempdir().unwrap();
    let empty = DatasetSpec { path: Some(dir.path().display().to_string()), ..spec(&[], 1) };
    assert_eq!(tell(&empty), format!("`images`: {} holds no png, jpg or webp picture", dir.path().display()));
    let gone = DatasetSpec { path: Some("/nowhere/pictures".into()), ..spec(&[], 1) };
    assert!(tell(&gone).starts_with("cannot read the dataset /nowhere/pictures: No such file"));
}
