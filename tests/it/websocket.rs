//! Requests as messages on WebSockets: what is sent, on which connections, and how servers fail.
//!
//! The servers read and write frames here, without a library.

use crate::lab::*;
use crate::launch::{is_missing, python_with};
use crate::witness::{quantile, ttft_errors, witness_at};
use polars::prelude::{DataType, ParquetReader, SerReader};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

const CREATED: &str =
    r#"{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}"#;
const DELTA: &str = r#"{"type":"response.output_text.delta","output_index":0,"delta":"hi"}"#;
const COMPLETED: &str = r#"{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":3,"output_tokens":1}}}"#;
const DONE: &str = r#"{"type":"response.done","response":{"id":"r","status":"completed","usage":{"input_tokens":3,"output_tokens":1}}}"#;

/// The server end of a WebSocket.
struct Socket(TcpStream);

impl Socket {
    /// The next message; None at a close frame and at the end of the connection.
    fn read(&mut self) -> Option<Value> {
        loop {
            let (opcode, payload) = self.frame()?;
            match opcode {
                1 => return Some(serde_json::from_slice(&payload).unwrap()),
                8 => return None,
                _ => {}
            }
        }
    }

    /// The next frame: its opcode and its payload. A client masks every frame.
    fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        assert_eq!((head[0] & 0xf0, head[1] & 0x80), (0x80, 0x80), "{head:?}");
        let size = match head[1] & 0x7f {
            126 => 2,
            127 => 8,
            length => {
                return self
                    .payload(usize::from(length))
                    .map(|payload| (head[0] & 15, payload));
            }
        };
        let mut length = [0; 8];
        self.0.read_exact(&mut length[8 - size..]).ok()?;
        let payload = self.payload(u64::from_be_bytes(length) as usize)?;
        Some((head[0] & 15, payload))
    }

    fn payload(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut mask = [0; 4];
        self.0.read_exact(&mut mask).ok()?;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).ok()?;
        let unmasked = payload.iter().zip(mask.iter().cycle());
        Some(unmasked.map(|(byte, mask)| byte ^ mask).collect())
    }

    /// Sends a frame of at most 125 bytes, or of at most 64 KiB.
    fn send(&mut self, opcode: u8, payload: &[u8]) -> bool {
        let mut bytes = vec![0x80 | opcode];
        match u8::try_from(payload.len())
            .ok()
            .filter(|length| *length < 126)
        {
            Some(length) => bytes.push(length),
            None => {
                bytes.push(126);
                bytes.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
            }
        }
        bytes.extend(payload);
        send(&mut self.0, &bytes)
    }

    fn text(&mut self, messages: &[&str]) -> bool {
        messages
            .iter()
            .all(|message| self.send(1, message.as_bytes()))
    }
}

/// What a server received: the head of each handshake, and the messages with the number of their connection.
#[derive(Default)]
struct Seen {
    heads: Vec<String>,
    messages: Vec<(usize, Value)>,
}

/// A server that opens WebSockets. `answer` is called for each message that asks for a response, with the number of the
/// connection, until it returns false.
fn serve(
    answer: impl Fn(&mut Socket, usize) -> bool + Send + Sync + 'static,
) -> (String, Arc<Mutex<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/v1", listener.local_addr().unwrap());
    let seen = Arc::<Mutex<Seen>>::default();
    let (kept, answer) = (seen.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (kept, answer) = (kept.clone(), answer.clone());
            std::thread::spawn(move || {
                let Some(key) = read_handshake(&mut stream, &kept) else {
                    return;
                };
                let number = kept.lock().unwrap().heads.len() - 1;
                let accept = derive_accept_key(key.as_bytes());
                let head = format!(
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
                );
                send(&mut stream, head.as_bytes());
                let mut socket = Socket(stream);
                while let Some(message) = socket.read() {
                    let asks = message["type"] == "response.create";
                    kept.lock().unwrap().messages.push((number, message));
                    if asks && !answer(&mut socket, number) {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
}

/// Reads a handshake and returns its key. A request for the list of models is not one.
fn read_handshake(stream: &mut TcpStream, seen: &Mutex<Seen>) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        (stream.read(&mut byte).ok()? > 0).then(|| head.push(byte[0]))?;
    }
    let head = String::from_utf8(head).unwrap();
    let key = head
        .lines()
        .find_map(|line| line.strip_prefix("sec-websocket-key: "))?
        .to_owned();
    seen.lock().unwrap().heads.push(head);
    Some(key)
}

fn scenario(api: &str, url: &str, rest: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {{ api: {api}, url: \"{url}\", model: m, api_key: sk-secret-1, timeouts: {{ connect: 2s, read: 1s, total: 9s }} }}\n\
         audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n{rest}\n"
    )
}

const ONE: &str = "dataset: { kind: prompt, text: hello }\nload: { concurrency: 1, requests: 1 }";
/// Two sessions of three turns each, one after the other.
const SESSIONS: &str = "dataset: { kind: random, tokens: 4, turns: { count: 3 } }\nload: { concurrency: 1, sessions: 2 }";

fn responses(url: &str, rest: &str) -> String {
    scenario("openai-responses", url, rest)
}

/// A column of the requests.
fn numbers(lab: &Lab, column: &str) -> Vec<i64> {
    let file = std::fs::File::open(lab.path().join("out/requests.parquet")).unwrap();
    let rows = ParquetReader::new(file).finish().unwrap();
    let column = rows.column(column).unwrap().cast(&DataType::Int64).unwrap();
    column.i64().unwrap().iter().map(Option::unwrap).collect()
}

/// The only failure of a run of one request: its kind and its message.
fn failure(lab: &Lab) -> (String, String) {
    let results = lab.results();
    let case = &results["cases"][0];
    let example = &case["failures"][0];
    let text = |key: &str| example[key].as_str().unwrap_or_default().to_owned();
    (text("kind"), text("message"))
}

#[test]
fn a_request_is_one_message_and_requests_share_a_connection() {
    let (url, seen) = serve(|socket, _| socket.text(&[CREATED, DELTA, COMPLETED]));
    let lab = Lab::new();
    let three = "dataset: { kind: prompt, text: hello }\nload: { concurrency: 1, requests: 3 }\nrequest: { max_tokens: 4 }";
    lab.run(&responses(&url, three)).expect(0);
    let seen = seen.lock().unwrap();
    let body = json!({
        "type": "response.create", "model": "m", "input": [{ "role": "user", "content": "hello" }],
        "max_output_tokens": 4,
    });
    let all: Vec<&Value> = seen.messages.iter().map(|(_, message)| message).collect();
    assert_eq!(all, [&body; 3]);
    assert_eq!(seen.heads.len(), 1, "{:?}", seen.heads);
    let head = seen.heads[0].to_lowercase();
    for line in [
        "get /v1/responses http/1.1",
        "authorization: bearer sk-secret-1",
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(!head.contains("content-length"), "{head}");
    let payload = CREATED.len() + DELTA.len() + COMPLETED.len();
    let known = [
        ("status", 101),
        ("bytes_in", payload as i64),
        ("usage_prompt", 3),
        ("usage_output", 1),
        ("reconnects", 0),
    ];
    for (column, value) in known {
        assert_eq!(numbers(&lab, column), [value; 3], "{column}");
    }
}

#[test]
fn a_session_keeps_its_connection_and_realtime_sends_new_messages_only() {
    let (url, seen) = serve(|socket, _| {
        socket.text(&[CREATED, DELTA, DONE, r#"{"type":"rate_limits.updated"}"#])
    });
    let lab = Lab::new();
    lab.run(&scenario("openai-realtime", &url, SESSIONS))
        .expect(0);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.heads.len(), 2);
    assert!(seen.heads[0].starts_with("GET /v1/realtime?model=m HTTP/1.1"));
    for connection in [0, 1] {
        let kinds = seen
            .messages
            .iter()
            .filter(|(number, _)| *number == connection);
        let kinds: Vec<&str> = kinds
            .map(|(_, message)| message["type"].as_str().unwrap())
            .collect();
        let turn = ["conversation.item.create", "response.create"];
        assert_eq!(
            kinds,
            [&["session.update"][..], &turn, &turn, &turn].concat()
        );
    }
    let item = &seen.messages[1].1["item"];
    assert_eq!(
        (&item["type"], &item["role"]),
        (&json!("message"), &json!("user"))
    );
    assert_eq!(item["content"][0]["type"], "input_text");
}

#[test]
fn a_turn_with_another_system_message_updates_a_realtime_session() {
    let (url, seen) = serve(|socket, _| socket.text(&[CREATED, DELTA, DONE]));
    let lab = Lab::new();
    let turn = |system: &str| {
        let said = |role: &str, text: &str| json!({ "role": role, "content": text });
        json!({ "messages": [said("system", system), said("user", "q")] })
    };
    let turns = ["be kind", "be kind", "be brief", "be kind"].map(turn);
    let row = json!({ "turns": turns });
    lab.file("talk.jsonl", row.to_string());
    let talk = "dataset: { kind: messages, path: talk.jsonl, turns: {} }\nload: { concurrency: 1, sessions: 1 }\n";
    lab.run(&scenario("openai-realtime", &url, talk)).expect(0);
    let seen = seen.lock().unwrap();
    let updates: Vec<&Value> = seen
        .messages
        .iter()
        .filter(|(_, message)| message["type"] == "session.update")
        .map(|(_, message)| &message["session"]["instructions"])
        .collect();
    assert_eq!(updates, ["be kind", "be brief", "be kind"]);
}

#[test]
fn a_lost_connection_ends_a_realtime_session_and_not_one_of_responses() {
    // The server closes each connection after its first response.
    let answer = |end: &'static str| {
        move |socket: &mut Socket, _| {
            socket.text(&[CREATED, DELTA, end]);
            socket.send(8, &1001_u16.to_be_bytes());
            false
        }
    };
    let think = SESSIONS.replace("count: 3", "count: 3, think_time: 50ms");
    let (url, seen) = serve(answer(COMPLETED));
    let lab = Lab::new();
    lab.run(&responses(&url, &think)).expect(0);
    assert_eq!(seen.lock().unwrap().heads.len(), 6);
    let (url, seen) = serve(answer(DONE));
    lab.run(&scenario("openai-realtime", &url, &think))
        .expect(0);
    assert_eq!(seen.lock().unwrap().heads.len(), 2);
    let case = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&case["ok"], &case["failures"]),
        (&json!(2), &json!({ "connect": 2, "dropped": 2 }))
    );
}

#[test]
fn heartbeats_do_not_keep_a_dead_reply_alive() {
    // Pings of the protocol, and events without content.
    let (url, _) = serve(|socket, _| {
        let mut is_open = socket.text(&[CREATED, DELTA]);
        while is_open {
            std::thread::sleep(Duration::from_millis(50));
            is_open = socket.send(9, b"") && socket.text(&[r#"{"type":"keepalive"}"#]);
        }
        false
    });
    let lab = Lab::new();
    let scenario = responses(&url, ONE).replace("read: 1s", "read: 5s, event: 500ms");
    lab.run(&scenario).expect(3);
    let expected = ("timeout_read", "no event for 500ms (only heartbeats)");
    assert_eq!(
        failure(&lab),
        (expected.0.to_owned(), expected.1.to_owned())
    );
}

#[test]
fn each_way_to_fail_has_its_kind() {
    type Answer = Box<dyn Fn(&mut Socket, usize) -> bool + Send + Sync>;
    let cases: [(&str, &str, Answer); 8] = [
        (
            "decode",
            "{not json",
            Box::new(|socket, _| socket.text(&[CREATED, "{not json"])),
        ),
        (
            "truncated",
            "the server closed the WebSocket with code 1011: out of memory",
            Box::new(|socket, _| {
                let reason = [&1011_u16.to_be_bytes()[..], b"out of memory"].concat();
                socket.text(&[CREATED, DELTA]) && socket.send(8, &reason)
            }),
        ),
        (
            "truncated",
            "connection closed without a close frame",
            Box::new(|socket, _| {
                socket.text(&[CREATED, DELTA]);
                false
            }),
        ),
        (
            "stream_error",
            "no such tool",
            Box::new(|socket, _| {
                socket
                    .text(&[r#"{"type":"error","status":400,"error":{"message":"no such tool"}}"#])
            }),
        ),
        (
            "timeout_read",
            "no byte for 1s",
            Box::new(|socket, _| socket.text(&[CREATED])),
        ),
        (
            "connect",
            "with code 1013",
            Box::new(|socket, _| socket.send(8, &1013_u16.to_be_bytes())),
        ),
        // A frame of 9 MiB, and one with a reserved opcode.
        (
            "decode",
            "larger than 8 MiB",
            Box::new(|socket, _| {
                let head = [&[0x81, 127][..], &(9_u64 << 20).to_be_bytes()].concat();
                send(&mut socket.0, &head) && send(&mut socket.0, &vec![b'x'; 9 << 20])
            }),
        ),
        (
            "decode",
            "not a message",
            Box::new(|socket, _| socket.send(3, b"x")),
        ),
    ];
    for (kind, message, answer) in cases {
        let (url, seen) = serve(answer);
        let lab = Lab::new();
        lab.run(&responses(&url, ONE)).expect(3);
        let found = failure(&lab);
        assert_eq!(found.0, kind, "{found:?}");
        assert!(found.1.contains(message), "{found:?}");
        assert_eq!(
            seen.lock().unwrap().messages.len(),
            1,
            "{kind}: not sent again"
        );
    }
}

#[test]
fn a_refused_handshake_has_the_status_and_the_message_of_the_server() {
    let body = r#"{"error":{"message":"the very reason"}}"#;
    for (status, kind, message) in [
        ("401 Unauthorized", "http_4xx", "401: the very reason"),
        (
            "503 Service Unavailable",
            "http_5xx",
            "503: the very reason",
        ),
        (
            "200 OK",
            "decode",
            "status 200 OK instead of opening a WebSocket",
        ),
    ] {
        let server = Server::start(move |stream, _| {
            send(stream, &response(status, "application/json", body))
        });
        let lab = Lab::new();
        lab.run(&responses(&format!("ws://{}/v1", server.addr), ONE))
            .expect(3);
        let (found, text) = failure(&lab);
        assert_eq!(found, kind, "{text}");
        assert_eq!(
            numbers(&lab, "status"),
            [status[..3].parse::<i64>().unwrap()]
        );
        assert!(text.contains(message), "{text}");
    }
    // Another key, and no answer at all.
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    let wrong = Server::start(move |stream, _| send(stream, head.as_bytes()));
    let silent = Server::start(|_, _| {
        std::thread::sleep(Duration::from_secs(20));
        false
    });
    for (server, kind) in [(wrong, "decode"), (silent, "timeout_connect")] {
        let lab = Lab::new();
        lab.run(&responses(&format!("ws://{}/v1", server.addr), ONE))
            .expect(3);
        assert_eq!(failure(&lab).0, kind);
    }
}

#[test]
fn pings_are_answered_during_and_between_responses() {
    let pongs = Arc::new(Mutex::new(Vec::new()));
    let kept = pongs.clone();
    let (url, _) = serve(move |socket, _| {
        let mut ping = |mark: &[u8]| {
            assert!(socket.send(9, mark));
            let frame = socket.frame();
            kept.lock().unwrap().push(frame);
        };
        ping(b"during");
        assert!(socket.text(&[CREATED, DELTA, DONE]));
        // The client thinks about its next turn.
        let (mut socket, kept) = (Socket(socket.0.try_clone().unwrap()), kept.clone());
        assert!(socket.send(9, b"between"));
        let frame = socket.frame();
        kept.lock().unwrap().push(frame);
        true
    });
    let rest = SESSIONS.replace("count: 3", "count: 2, think_time: 300ms");
    let rest = rest.replace("sessions: 2", "sessions: 1");
    let lab = Lab::new();
    lab.run(&scenario("openai-realtime", &url, &rest)).expect(0);
    let pong = |mark: &[u8]| Some((10, mark.to_vec()));
    let pongs = pongs.lock().unwrap();
    assert_eq!(
        pongs[..3],
        [pong(b"during"), pong(b"between"), pong(b"during")]
    );
}

#[test]
fn audio_is_sent_at_playback_speed() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let kept = times.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let Some(key) = read_handshake(&mut stream, &Mutex::default()) else {
                continue;
            };
            let accept = derive_accept_key(key.as_bytes());
            let head = format!(
                "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            send(&mut stream, head.as_bytes());
            let mut socket = Socket(stream);
            while let Some(message) = socket.read() {
                let now = std::time::Instant::now();
                if message["type"] == "response.create" {
                    socket.text(&[CREATED, DELTA, DONE]);
                }
                kept.lock().unwrap().push((now, message));
            }
        }
    });
    let lab = Lab::new();
    let rest = "dataset: { kind: audio, seconds: 0.25 }\nload: { concurrency: 1, requests: 1 }";
    lab.run(&scenario("openai-realtime", &url, rest)).expect(0);
    let times = times.lock().unwrap();
    let kinds: Vec<&str> = times
        .iter()
        .map(|(_, message)| message["type"].as_str().unwrap())
        .collect();
    let append = "input_audio_buffer.append";
    assert_eq!(
        kinds,
        [
            "session.update",
            append,
            append,
            append,
            "input_audio_buffer.commit",
            "response.create"
        ]
    );
    assert_eq!(
        times[0].1["session"]["audio"]["input"]["turn_detection"],
        Value::Null
    );
    let lengths = [1, 2, 3].map(|at| times[at].1["audio"].as_str().unwrap().len());
    // 100 ms are 4800 bytes.
    assert_eq!(lengths, [6400, 6400, 3200]);
    // No piece is early: each comes when the audio before it was played.
    let first = times[1].0;
    for (at, played) in [(2, 100), (3, 200), (4, 250), (5, 250)] {
        let after = times[at].0 - first;
        // The first piece itself may be read late.
        assert!(
            after + Duration::from_millis(60) >= Duration::from_millis(played),
            "{at}: {after:?}"
        );
    }
    let to_token = numbers(&lab, "first_token_ns")[0] - numbers(&lab, "sent_ns")[0];
    assert!(to_token >= 250_000_000, "{to_token} ns");
}

#[test]
fn no_stamp_is_before_the_write_of_the_simulator() {
    for (api, path, faults) in [
        ("openai-responses", "/v1/responses", "{ coalesce: 3 }"),
        ("openai-realtime", "/v1/realtime", "{ comment_every: 2 }"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "version: 1\nname: t\ntarget: {{ api: {api}, transport: websocket, url: \"{{url}}\", model: m }}\nrequest: {{ max_tokens: 12 }}\n\
             dataset: {{ kind: prompt, text: hello }}\nload: {{ concurrency: 8, requests: 32 }}\n\
             audit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n"
        );
        let simulator =
            format!("{{ alpha: 10ms, beta: 0s, gamma: 0s, delta: 0s, faults: {faults} }}");
        let (conducted, pairs) = witness_at(folder.path(), &simulator, &text, path);
        assert_eq!((conducted.report.cases[0].counts.ok, pairs.len()), (32, 32));
        for pair in &pairs {
            assert_eq!(pair.seen.len(), 12, "{api}");
            assert!(pair.sent >= pair.intended);
        }
        if faults.contains("comment") {
            for pair in &pairs {
                let mut both = pair.seen.iter().zip(&pair.written);
                assert!(both.all(|(seen, written)| seen >= written), "{api}");
            }
        } else {
            // Three events arrive together.
            let together = |pair: &crate::witness::Pair| pair.seen[0] == pair.seen[2];
            assert!(pairs.iter().all(together), "{api}");
        }
        assert!(quantile(&ttft_errors(&pairs), 0.5) < 20.0);
    }
}

#[test]
fn a_server_on_another_library_understands_every_message() {
    let python = python_with("websockets");
    if is_missing("Python with websockets", python.is_some()) {
        return;
    }
    let mut peer = Command::new(python.unwrap())
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/websocket_peer.py"
        ))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let url = format!("ws://127.0.0.1:{}/v1", line());
    // A think time that several pings fall into.
    let think = SESSIONS.replace("count: 3", "count: 2, think_time: 500ms");
    let turn = ["conversation.item.create", "response.create"];
    let realtime = [&["session.update"][..], &turn, &turn].concat();
    let responses = vec!["response.create"; 2];
    for (api, path, kinds) in [
        ("openai-responses", "/v1/responses", responses),
        ("openai-realtime", "/v1/realtime?model=m", realtime),
    ] {
        let lab = Lab::new();
        lab.run(&scenario(api, &url, &think)).expect(0);
        assert_eq!(numbers(&lab, "usage_output"), [3; 4]);
        let mut connections = Vec::new();
        while connections
            .iter()
            .flat_map(|kinds: &Vec<String>| kinds)
            .count()
            < 2 * kinds.len()
        {
            let (seen, kinds, code): (String, Vec<String>, u16) =
                serde_json::from_str(&line()).unwrap();
            // Closed by the client, not for an error; the first check of the port opens none.
            assert!(code == 1000 || code == 1005, "{code}");
            assert_eq!(seen, path);
            connections.push(kinds);
        }
        let sessions = match api {
            // Sessions of Responses may use the connection of an ended session.
            "openai-responses" => vec![[&kinds[..], &kinds].concat()],
            _ => vec![kinds.clone(), kinds],
        };
        assert_eq!(connections, sessions);
    }
    peer.kill().unwrap();
    peer.wait().unwrap();
}

#[test]
fn settings_that_a_websocket_does_not_have_are_errors() {
    let lab = Lab::new();
    let target = |rest: &str| {
        lab.file(
            "s.yaml",
            format!("version: 1\nname: t\ntarget: {{ model: m, {rest} }}\n{ONE}\n"),
        );
        let ran = lab.llmscen(&["plan", "s.yaml"]).expect(2);
        ran.err.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let ws = "api: openai-responses, url: 'wss://h/v1'";
    for (rest, expected) in [
        (
            "url: 'ws://h/v1'".to_owned(),
            "`api: openai-chat` is not sent over WebSocket",
        ),
        (
            format!("{ws}, transport: http"),
            "`transport: http` for a WebSocket",
        ),
        (
            format!("{ws}, request_id: X-Id"),
            "`request_id` does not work over WebSocket",
        ),
        (
            format!("{ws}, session_id: X-Id"),
            "`session_id` does not work over WebSocket",
        ),
        (
            format!("{ws}, http: {{ version: 2 }}"),
            "`version: 2` does not work over WebSocket",
        ),
        (
            format!("{ws}, http: {{ compression: gzip }}"),
            "`compression` does not work over WebSocket",
        ),
        (
            "api: openai-realtime, url: 'http://h', http: { pool: per-request }".to_owned(),
            "`pool: per-request` does not work with `openai-realtime`",
        ),
        (
            "api: openai-responses, url: ['ws://a/v1', 'ws://b/v1']".to_owned(),
            "Write `balance: session`.",
        ),
    ] {
        let err = target(&rest);
        assert!(err.contains(expected), "{rest}: {err}");
    }
    lab.file(
        "s.yaml",
        scenario(
            "openai-realtime",
            "ws://h",
            &SESSIONS.replace("count: 3", "count: 3, begin: 50%"),
        ),
    );
    let err = lab.llmscen(&["plan", "s.yaml"]).expect(2).err;
    assert!(
        err.contains("`begin` does not work with `openai-realtime`"),
        "{err}"
    );
}
