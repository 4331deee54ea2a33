//! The recorded responses of real servers in `tests/wire`, parsed. `tests/wire/spec` has bodies written from API
//! documentation, for servers that could not be recorded; their kind is the file extension.

use llmscen_core::api::Api;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// One recorded response.
pub struct Recording {
    /// The API of the request.
    pub api: Api,
    /// The HTTP status.
    pub status: u16,
    /// The `content-type` header.
    pub content_type: Option<String>,
    /// The body, without chunked encoding.
    pub body: Vec<u8>,
    /// The connection broke before the body's end.
    pub cut: bool,
}

/// All recordings by file name, without `.txt`.
pub fn all() -> BTreeMap<String, Recording> {
    files(
        "tests/wire",
        |name| name.ends_with(".txt"),
        |name, file| (name.trim_end_matches(".txt").to_owned(), parse(name, file)),
    )
}

/// The responses written from the documentation of these APIs, by file name: `API.CASE.KIND`.
pub fn spec(apis: &[Api]) -> BTreeMap<String, Recording> {
    let api_of = |name: &str| Api::parse(name.split('.').next()?).filter(|api| apis.contains(api));
    let made = |name: &str, body: &[u8]| {
        let content_type = match name.rsplit('.').next() {
            Some("sse") => "text/event-stream",
            Some("ndjson") => "application/x-ndjson",
            _ => "application/json",
        };
        let (api, content_type) = (api_of(name).unwrap(), Some(content_type.to_owned()));
        (
            name.to_owned(),
            Recording {
                api,
                status: 200,
                content_type,
                body: body.to_vec(),
                cut: false,
            },
        )
    };
    files("tests/wire/spec", |name| api_of(name).is_some(), made)
}

fn files(
    folder: &str,
    include: impl Fn(&str) -> bool,
    read: impl Fn(&str, &[u8]) -> (String, Recording),
) -> BTreeMap<String, Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(folder);
    let names = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| include(name))
        .map(|name| read(&name, &fs::read(folder.join(&name)).unwrap()))
        .collect()
}

/// The API of a recording, by its name.
fn api_of_name(name: &str) -> Api {
    match name {
        _ if name.contains("completions_") => Api::OpenaiCompletions,
        _ if name.contains("responses_") => Api::OpenaiResponses,
        _ => Api::OpenaiChat,
    }
}

/// Parses the request line (`###`), the raw response, and curl's exit code (`###`).
fn parse(name: &str, file: &[u8]) -> Recording {
    let response = if file.starts_with(b"###") {
        &file[find(file, b"\n").unwrap() + 1..]
    } else {
        file
    };
    let head_end = find(response, b"\r\n\r\n").unwrap();
    let (head, body) = (
        str::from_utf8(&response[..head_end]).unwrap(),
        &response[head_end + 4..],
    );
    let body = &body[..find(body, b"\n### ").unwrap_or(body.len())];
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines
            .find(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
    };
    let (body, cut) = match header("transfer-encoding") {
        Some(_) => unchunk(body),
        None => (body.to_vec(), false),
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Recording {
        api: api_of_name(name),
        status,
        content_type: header("content-type"),
        body,
        cut,
    }
}

/// The data of the chunks, and whether the last chunk is missing.
fn unchunk(mut framed: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = find(framed, b"\r\n") {
        let Ok(size) = usize::from_str_radix(str::from_utf8(&framed[..end]).unwrap(), 16) else {
            break;
        };
        if size == 0 {
            return (body, false);
        }
        body.extend_from_slice(&framed[end + 2..end + 2 + size]);
        framed = &framed[end + 2 + size + 2..];
    }
    (body, true)
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes
        .windows(pattern.len())
        .position(|window| window == pattern)
}
