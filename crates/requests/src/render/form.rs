//! Bodies of `multipart/form-data` (RFC 7578): the fields of a request and its audio file.

use llmscen_core::dataset::AudioFile;
use llmscen_core::seed::Seed;
use serde_json::{Map, Value};

/// The start of the media type of a form, before its boundary.
const MEDIA_TYPE: &str = "multipart/form-data; boundary=";

/// The text between the parts of a form. A random text of 128 bits does not occur in a file.
pub(super) fn boundary(seed: Seed) -> String {
    let halves = [0_u64, 1].map(|half| seed.child(half).0);
    format!("llmscen-{:016x}{:016x}", halves[0], halves[1])
}

/// The `content-type` of a form.
pub(super) fn content_type(boundary: &str) -> String {
    format!("{MEDIA_TYPE}{boundary}")
}

/// The body of a form: the fields in order, and the file as the last part. A list is several fields of one name with
/// `[]`.
pub(super) fn encode(fields: &Map<String, Value>, file: &AudioFile, boundary: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(file.bytes.len() + 1024);
    let mut text = |name: &str, value: &Value| {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let name = escape(name);
        body.extend_from_slice(
            format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .as_bytes(),
        );
    };
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Array(items) => items
                .iter()
                .for_each(|item| text(&format!("{name}[]"), item)),
            value => text(name, value),
        }
    }
    let head = format!(
        "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{}\"\r\ncontent-type: {}\r\n\r\n",
        escape(&file.name),
        file.media
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(&file.bytes);
    body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    body
}

/// A name in quotes, as browsers write it (WHATWG HTML, "multipart form data").
fn escape(name: &str) -> String {
    name.replace('"', "%22")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A form as text, with the length of each file in place of its bytes. None: this `content-type` is no form.
pub fn describe_form(content_type: &str, body: &[u8]) -> Option<String> {
    let boundary = content_type.strip_prefix(MEDIA_TYPE)?;
    let mark = format!("--{boundary}\r\n");
    let mut described = String::new();
    let mut rest = body;
    while let Some(part) = rest.strip_prefix(mark.as_bytes()) {
        let end = find(part, format!("\r\n--{boundary}").as_bytes())?;
        let head_end = find(part, b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(part.get(..head_end)?);
        let content = part.get(head_end + 4..end)?;
        described.push_str(&head.replace("\r\n", "\n"));
        match head.contains("; filename=") {
            true => described.push_str(&format!("\n\n({} bytes)\n\n", content.len())),
            false => {
                let content = String::from_utf8_lossy(content);
                described.push_str(&format!("\n\n{content}\n\n"));
            }
        }
        rest = part.get(end + 2..)?;
    }
    Some(described.trim_end().to_owned())
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_has_its_fields_and_the_file() {
        let fields = json!({ "model": "m", "stream": true, "prompt": null, "include": ["a", "b"], "temperature": 0.5 });
        let file = AudioFile {
            name: "a \"b\".wav".into(),
            media: "audio/wav",
            bytes: b"RIFF\r\n\xff".to_vec().into(),
            duration: None,
        };
        let body = encode(fields.as_object().unwrap(), &file, "x");
        let head = "content-disposition: form-data; name=";
        let expected = [
            &format!("--x\r\n{head}\"model\"\r\n\r\nm\r\n"),
            &format!("--x\r\n{head}\"stream\"\r\n\r\ntrue\r\n"),
            &format!("--x\r\n{head}\"include[]\"\r\n\r\na\r\n"),
            &format!("--x\r\n{head}\"include[]\"\r\n\r\nb\r\n"),
            &format!("--x\r\n{head}\"temperature\"\r\n\r\n0.5\r\n"),
            &format!(
                "--x\r\n{head}\"file\"; filename=\"a %22b%22.wav\"\r\ncontent-type: audio/wav\r\n\r\n"
            ),
        ];
        let expected: Vec<u8> = expected.iter().flat_map(|part| part.bytes()).collect();
        assert_eq!(body, [&expected[..], b"RIFF\r\n\xff\r\n--x--\r\n"].concat());
        let described = describe_form(&content_type("x"), &body).unwrap();
        assert!(
            described.starts_with(&format!("{head}\"model\"\n\nm\n\n{head}\"stream\"\n\ntrue")),
            "{described}"
        );
        assert!(
            described.ends_with("content-type: audio/wav\n\n(7 bytes)"),
            "{described}"
        );
        assert_eq!(describe_form("application/json", &body), None);
    }

    #[test]
    fn the_boundary_is_that_of_the_seed() {
        assert_eq!(boundary(Seed(1)), boundary(Seed(1)));
        assert_ne!(boundary(Seed(1)), boundary(Seed(2)));
        assert_eq!(boundary(Seed(1)).len(), 40);
    }
}
