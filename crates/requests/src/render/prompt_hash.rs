//! The hash by which equal prompts of a run, and of two runs, are found.

use llmscen_core::dataset::AudioFile;
use llmscen_core::seed::Seed;
use serde_json::{Map, Value};

/// Fields that are no part of the prompt. Numbers and flags, such as lengths and sampling, are not either.
const SETTINGS: [&str; 3] = ["model", "stream_options", "stop"];

/// The hash of the texts, lists and objects of a body, and of its audio: 63 bits, which every database stores.
pub(super) fn of(body: &Map<String, Value>, audio: Option<&AudioFile>) -> u64 {
    let fields = body.iter().filter(|(name, value)| {
        let has_text = value.is_string() || value.is_array() || value.is_object();
        has_text && !SETTINGS.contains(&name.as_str())
    });
    let fields = fields.fold(Seed(0), |hash, (name, value)| {
        add_value(add_bytes(hash, name.as_bytes()), value)
    });
    let audio = audio.iter();
    let all = audio.fold(fields, |hash, audio| add_bytes(hash, &audio.bytes));
    all.0 >> 1
}

fn add_value(hash: Seed, value: &Value) -> Seed {
    match value {
        Value::String(text) => add_bytes(hash.child("text"), text.as_bytes()),
        Value::Array(values) => values
            .iter()
            .fold(hash.child("list"), add_value)
            .child("end"),
        Value::Object(fields) => fields
            .iter()
            .fold(hash.child("object"), |hash, (name, value)| {
                add_value(add_bytes(hash, name.as_bytes()), value)
            })
            .child("end"),
        other => match other.as_u64() {
            Some(number) => hash.child("number").child(number),
            // A null, a flag, or another number.
            None => add_bytes(hash, other.to_string().as_bytes()),
        },
    }
}

/// The length ends each text.
fn add_bytes(hash: Seed, bytes: &[u8]) -> Seed {
    let word = |part: &[u8]| {
        let mut word = [0; 8];
        word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(word)
    };
    let words = bytes.chunks(8).map(word);
    words.fold(hash, Seed::child).child(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hash(body: Value) -> u64 {
        of(body.as_object().unwrap(), None)
    }

    #[test]
    fn settings_do_not_change_the_hash_of_a_prompt() {
        let prompt = json!([{ "role": "user", "content": "Hello" }]);
        let known = hash(json!({ "model": "a", "messages": prompt, "max_tokens": 16 }));
        let other = json!({ "model": "b", "messages": prompt, "stream": true, "seed": 7,
            "stream_options": { "include_usage": true } });
        assert_eq!(hash(other), known);
    }

    #[test]
    fn any_change_of_the_prompt_changes_its_hash() {
        let bodies = [
            json!({ "prompt": "12345678" }),
            json!({ "prompt": "12345678\u{0}" }),
            json!({ "prompt": "12345679" }),
            json!({ "prompt": ["1234", "5678"] }),
            json!({ "prompt": ["12345678"] }),
            json!({ "prompt": [[1, 2], 3] }),
            json!({ "prompt": [1, [2, 3]] }),
            json!({ "input": "12345678" }),
            json!({ "messages": [{ "content": "a" }, { "content": "b" }] }),
            json!({ "messages": [{ "content": "ab" }, { "content": "" }] }),
        ];
        let mut hashes: Vec<u64> = bodies.into_iter().map(hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 10);
        // Stored: the same on every machine and in every version.
        assert_eq!(hash(json!({ "prompt": "12345678" })), 0x79a3_d7fa_8f5f_8e3c);
    }

    #[test]
    fn audio_is_a_part_of_the_prompt() {
        let audio = |byte| AudioFile {
            name: "a.wav".into(),
            media: "audio/wav",
            bytes: vec![byte; 9].into(),
            duration: None,
        };
        assert_ne!(
            of(&Map::new(), Some(&audio(1))),
            of(&Map::new(), Some(&audio(2)))
        );
    }
}
