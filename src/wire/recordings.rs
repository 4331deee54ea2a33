//! The recorded responses of `tests/wire`, parsed: what real servers sent.

use std::collections::BTreeMap;
use std::fs;

/// One recorded response.
pub struct Recording {
    /// The HTTP status.
    pub status: u16,
    /// The `content-type` header.
    pub content_type: String,
    /// The body, freed of its chunked framing.
    pub body: Vec<u8>,
    /// The connection broke before the body's end.
    pub cut: bool,
}

/// All recordings by file name, without `.txt`.
pub fn all() -> BTreeMap<String, Recording> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), parse(&fs::read(&path).unwrap())))
        .collect()
}

/// The request line (`###`), then the response as it came, then curl's exit code (`###`).
fn parse(file: &[u8]) -> Recording {
    let response = if file.starts_with(b"###") { &file[find(file, b"\n").unwrap() + 1..] } else { file };
    let head_end = find(response, b"\r\n\r\n").unwrap();
    let (head, body) = (str::from_utf8(&response[..head_end]).unwrap(), &response[head_end + 4..]);
    let body = &body[..find(body, b"\n### ").unwrap_or(body.len())];
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let (body, cut) = match header("transfer-encoding") {
        Some(_) => unchunk(body),
        None => (body.to_vec(), false),
    };
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Recording { status, content_type: header("content-type").unwrap(), body, cut }
}

/// The data of the chunks, and whether the closing one is missing.
fn unchunk(mut framed: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(end) = find(framed, b"\r\n") {
        let Ok(size) = usize::from_str_radix(str::from_utf8(&framed[..end]).unwrap(), 16) else { break };
        if size == 0 {
            return (body, false);
        }
        body.extend_from_slice(&framed[end + 2..end + 2 + size]);
        framed = &framed[end + 2 + size + 2..];
    }
    (body, true)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
