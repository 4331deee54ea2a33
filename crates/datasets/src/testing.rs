//! Datasets and a hub for tests.

use super::{CacheDir, Opened, PromptError, Prompts, open};
use llmscen_core::dataset::{DatasetSpec, Prompt, Session, Source, Turns};
use llmscen_core::seed::Seed;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A file of this name in a temporary folder.
pub fn file(name: &str, bytes: impl AsRef<[u8]>) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (dir, path.display().to_string())
}

/// A dataset at a path.
pub fn spec(source: Source, path: &str) -> DatasetSpec {
    DatasetSpec {
        path: Some(path.to_owned()),
        ..DatasetSpec::new(source)
    }
}

/// The same with `dataset.turns`.
pub fn talks(source: Source, path: &str) -> DatasetSpec {
    DatasetSpec {
        turns: Some(Turns::default()),
        ..spec(source, path)
    }
}

/// Opened without a hub.
pub fn opened(spec: &DatasetSpec) -> Result<Opened, PromptError> {
    open(
        spec,
        Seed(42),
        0,
        &CacheDir {
            dir: PathBuf::from("unused"),
            hub: String::new(),
            ..CacheDir::default()
        },
        &|_| (),
    )
}

/// The sessions of a dataset until it ends.
pub fn all(spec: &DatasetSpec) -> Vec<Vec<Prompt>> {
    let spec = DatasetSpec {
        on_exhausted: llmscen_core::dataset::OnExhausted::Stop,
        ..spec.clone()
    };
    let prompts = opened(&spec).unwrap().prompts;
    (0..)
        .map_while(|seq| Some(prompts.session(seq)?.turns))
        .collect()
}

/// The texts of the first turns.
pub fn texts(spec: &DatasetSpec) -> Vec<String> {
    all(spec)
        .into_iter()
        .map(|turns| turns[0].text.clone())
        .collect()
}

/// A hub with this response to each path, and the list of requested paths.
pub fn hub(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    hub_with_heads(move |path, _| answer(path))
}

/// As [`hub`], with the head of each request.
pub fn hub_with_heads(
    answer: impl Fn(&str, &str) -> String + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/datasets/", listener.local_addr().unwrap());
    let requested = Arc::new(Mutex::new(Vec::new()));
    let log = requested.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut request = String::new();
            while stream.read_line(&mut request).unwrap_or(0) > 2 {}
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let reply = answer(&path, &request.to_lowercase());
            log.lock().unwrap().push(path);
            let _ = stream.get_mut().write_all(reply.as_bytes());
        }
    });
    (address, requested)
}

/// A response with a body.
pub fn reply(status: &str, headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// A session with all turns.
pub fn written(prompts: &dyn Prompts, seq: u64) -> Session {
    let mut session = prompts.session(seq).unwrap();
    for turn in session.turns.len() as u32..session.count() {
        session
            .turns
            .push(prompts.turn(seq, turn).unwrap().unwrap());
    }
    session
}
