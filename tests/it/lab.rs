//! Shared by the tests: a scratch folder, the binary, and scripted servers.

use llmscen::store::Record;
use llmscen::store::journal::Reader;
use llmscen_core::outcome::Outcome;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A scratch folder to run the binary in.
pub struct Lab {
    folder: tempfile::TempDir,
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// stdout as one line with single spaces.
    pub fn words(&self) -> String {
        self.out.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Panics with everything that was printed unless the exit code is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(
            self.code, code,
            "\n--- stdout\n{}\n--- stderr\n{}",
            self.out, self.err
        );
        self
    }
}

impl Lab {
    pub fn new() -> Lab {
        Lab {
            folder: tempfile::tempdir().expect("a scratch folder"),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the scratch folder.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// The binary in this folder, with a clean environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_llmscen"));
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command
            .env("HOME", self.path())
            .env("PATH", "/usr/bin:/bin");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn llmscen(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().expect("the binary starts"))
    }

    /// Runs a scenario text into the folder `out`.
    pub fn run(&self, scenario: &str) -> Ran {
        self.file("s.yaml", scenario);
        self.llmscen(&["run", "s.yaml", "--output", "out", "--force"])
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().expect("the binary starts")
    }

    /// results.json of the folder `out`.
    pub fn results(&self) -> Value {
        self.json("out/results.json")
    }

    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).expect("JSON")
    }

    pub fn text(&self, name: &str) -> String {
        let path = self.path().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// A free loopback port.
pub fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Waits for a child that a test started.
pub fn finish(child: Child) -> Ran {
    Ran::of(child.wait_with_output().expect("the child ends"))
}

/// A loopback server of raw sockets: `answer` is called with the connection after each complete request, until it
/// returns false or the client disconnects.
pub struct Server {
    pub addr: SocketAddr,
    pub requests: Arc<AtomicUsize>,
}

impl Server {
    pub fn start(answer: impl Fn(&mut TcpStream, usize) -> bool + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            addr: listener.local_addr().unwrap(),
            requests: Arc::default(),
        };
        let (answer, requests) = (Arc::new(answer), server.requests.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, requests) = (answer.clone(), requests.clone());
                std::thread::spawn(move || serve(stream, &*answer, &requests));
            }
        });
        server
    }

    /// A hub: a file for each path, or status 404.
    pub fn start_of_paths(
        file: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server {
            addr: listener.local_addr().unwrap(),
            requests: Default::default(),
        };
        let requests = server.requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                requests.fetch_add(1, Ordering::Relaxed);
                let mut stream = BufReader::new(stream);
                let (mut head, mut line) = (String::new(), String::new());
                while stream.read_line(&mut line).unwrap_or(0) > 2 {
                    head.push_str(&std::mem::take(&mut line));
                }
                let found = file(head.split(' ').nth(1).unwrap_or_default());
                let status = if found.is_some() {
                    "200 OK"
                } else {
                    "404 Not Found"
                };
                let body = found.unwrap_or_default();
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let _ = stream
                    .get_mut()
                    .write_all(&[head.as_bytes(), &body].concat());
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1/chat/completions", self.addr)
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&mut TcpStream, usize) -> bool,
    requests: &AtomicUsize,
) {
    while read_request(&mut stream).is_some() {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        if !answer(&mut stream, number) {
            return;
        }
    }
}

/// The outcomes of a journal, by number and turn.
pub fn outcomes(journal: &Path) -> Vec<Outcome> {
    let records = Reader::open(journal).unwrap().map(Result::unwrap);
    let own = |record| {
        if let Record::Outcome { outcome, .. } = record {
            Some(outcome)
        } else {
            None
        }
    };
    let mut outcomes: Vec<Outcome> = records.filter_map(own).collect();
    outcomes.sort_by_key(|outcome| (outcome.seq, outcome.turn));
    outcomes
}

/// One request's body.
pub fn read_request(stream: &mut impl Read) -> Option<Vec<u8>> {
    Some(read_head_and_body(stream)?.1)
}

/// One request's head in lower case, and its body.
pub fn read_head_and_body(stream: &mut impl Read) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// A response with a length.
pub fn response(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A chunked event stream of these events; `end`: with the last chunk.
pub fn stream(events: &[&str], end: bool) -> Vec<u8> {
    let mut bytes =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for event in events {
        let data = format!("data: {event}\n\n");
        bytes.extend(format!("{:x}\r\n{data}\r\n", data.len()).bytes());
    }
    if end {
        bytes.extend(b"0\r\n\r\n");
    }
    bytes
}

pub const TOKEN: &str =
    r#"{"id":"r","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}"#;
pub const FINISH: &str = r#"{"id":"r","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;

/// Sends the bytes; false if the client has disconnected.
pub fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream
        .write_all(bytes)
        .and_then(|()| stream.flush())
        .is_ok()
}

/// A scenario that sends `n` chat requests to `url`, one after the other.
pub fn plain(url: &str, n: u32) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ url: \"{url}\", model: m, timeouts: {{ connect: 2s, read: 1s, total: 5s }} }}\n\
         dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 1, requests: {n} }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
    )
}

/// Does the same with every item, three at a time: most of the time is waiting.
pub fn each<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let act = std::panic::AssertUnwindSafe(|| act(item));
                    if let Err(panic) = std::panic::catch_unwind(act) {
                        let message = panic.downcast_ref::<String>().cloned();
                        failures.lock().unwrap().push(message.unwrap_or_default());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n---\n"));
}
