//! Servers that violate HTTP, its codings and the APIs. Each trap is a script of bytes and pauses; a call must end in time with
//! the expected outcome, and the program must not crash.

use super::{random, trials};
use crate::lab::{FINISH, Lab, Server, TOKEN, read_request, response};
use crate::transport::{on_worker, send, target};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use llmscen_core::api::Api;
use llmscen_core::outcome::Outcome;
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::{HttpVersion, Timeouts};
use llmscen_core::units::Nanos;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits that every call has, and how much later it may end on a busy machine.
const READ: Duration = Duration::from_millis(1000);
const TOTAL: Duration = Duration::from_millis(2500);
const LATE: Duration = Duration::from_secs(10);
const SSE: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";

/// One step of a trap.
#[derive(Clone)]
enum Step {
    Bytes(Vec<u8>),
    /// Bytes again and again, as fast as they are taken.
    Flood(Vec<u8>),
    /// Byte by byte, with pauses in milliseconds.
    Trickle(Vec<u8>, u64),
    /// Silence.
    Hang,
}

/// A reaction of a server, and the allowed outcomes.
struct Trap {
    name: String,
    api: Api,
    steps: Vec<Step>,
    /// The outcomes that are right; empty: any.
    outcomes: &'static [&'static str],
    /// Token events of a good reply.
    tokens: Option<usize>,
}

fn trap(name: impl Into<String>, steps: Vec<Step>, outcomes: &'static [&'static str]) -> Trap {
    Trap {
        name: name.into(),
        api: Api::OpenaiChat,
        steps,
        outcomes,
        tokens: None,
    }
}

fn bytes(text: impl AsRef<[u8]>) -> Step {
    Step::Bytes(text.as_ref().to_vec())
}

/// A stream of these events that ends with the connection.
fn events(data: &[&str]) -> Vec<u8> {
    data.iter()
        .fold(format!("{SSE}\r\n"), |all, one| {
            format!("{all}data: {one}\n\n")
        })
        .into_bytes()
}

/// A valid stream of tokens.
fn good(tokens: usize) -> Vec<u8> {
    let mut data = vec![TOKEN; tokens];
    data.extend([FINISH, "[DONE]"]);
    events(&data)
}

/// A good stream in chunks.
fn chunked(tokens: usize) -> Vec<u8> {
    let mut data = vec![TOKEN; tokens];
    data.extend([FINISH, "[DONE]"]);
    crate::lab::stream(&data, true)
}

const DECODE: &[&str] = &["decode"];
const OK: &[&str] = &["ok"];
const BROKEN: &[&str] = &["truncated", "decode"];

fn heads(rng: &mut ChaCha8Rng) -> Trap {
    let status = "HTTP/1.1 200 OK\r\n";
    let with = |header: &str, body: &str| bytes(format!("{SSE}{header}\r\n\r\n{body}"));
    let reply = String::from_utf8(good(2)).unwrap();
    let body = reply.split_once("\r\n\r\n").unwrap().1;
    match rng.random_range(0..24) {
        0 => trap(
            "huge head",
            vec![bytes(format!(
                "{status}x: {}\r\n\r\n",
                "x".repeat(rng.random_range(70_000..400_000))
            ))],
            DECODE,
        ),
        1 => trap(
            "endless head",
            vec![bytes(status), Step::Flood(b"a: b\r\n".repeat(100))],
            DECODE,
        ),
        2 => trap(
            "head without its end",
            vec![bytes(format!("{status}content-type: te"))],
            &["truncated"],
        ),
        3 => trap(
            "folded header",
            vec![with("x: a\r\n b", body)],
            &["decode", "ok"],
        ),
        4 => trap("NUL in a header", vec![with("x: a\0b", body)], DECODE),
        5 => trap(
            "bare line feeds",
            vec![bytes(reply.replace('\r', ""))],
            &["ok", "decode"],
        ),
        6 => {
            let line: String = (0..rng.random_range(1..40))
                .map(|_| rng.random_range(' '..='~'))
                .collect();
            trap(
                format!("status line {line:?}"),
                vec![bytes(format!("{line}\r\n\r\n"))],
                &["decode", "truncated"],
            )
        }
        7 => trap(
            "HTTP/0.9",
            vec![bytes("<html>hello</html>\r\n\r\n")],
            DECODE,
        ),
        8 => {
            let before = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(rng.random_range(1..=1000));
            Trap {
                tokens: Some(2),
                ..trap(
                    "many interim responses",
                    vec![bytes([before, good(2)].concat())],
                    OK,
                )
            }
        }
        9 => trap(
            "endless interim responses",
            vec![Step::Flood(b"HTTP/1.1 103 Early\r\n\r\n".repeat(500))],
            &["decode"],
        ),
        10 => trap(
            "negative length",
            vec![with("content-length: -1", body)],
            DECODE,
        ),
        11 => trap(
            "length beyond 64 bits",
            vec![with("content-length: 99999999999999999999", body)],
            DECODE,
        ),
        12 => trap(
            "length of 2^64-1",
            vec![with("content-length: 18446744073709551615", "data: {")],
            &["truncated"],
        ),
        13 => trap(
            "two lengths",
            vec![with("content-length: 5\r\ncontent-length: 7", body)],
            DECODE,
        ),
        14 => {
            let codings = [
                "gzip",
                "identity",
                "chunked, gzip",
                "gzip, chunked",
                "chunked, chunked",
                "\u{1F600}",
                "x",
            ];
            let coding = codings[rng.random_range(0..codings.len())];
            trap(
                format!("transfer coding {coding}"),
                vec![with(&format!("transfer-encoding: {coding}"), body)],
                DECODE,
            )
        }
        15 => trap(
            "length and chunks",
            vec![with(
                "transfer-encoding: chunked\r\ncontent-length: 3",
                "0\r\n\r\n",
            )],
            DECODE,
        ),
        16 => trap(
            "a slow head",
            vec![Step::Trickle(good(1), 4)],
            &["ok", "timeout_total"],
        ),
        17 => trap(
            "a head that never ends",
            vec![Step::Trickle(
                format!("{status}x: {}", "x".repeat(500)).into(),
                50,
            )],
            &["timeout_total"],
        ),
        18 => trap("silence", vec![Step::Hang], &["timeout_read"]),
        19 => {
            let status = rng.random_range(300..1000);
            let words = format!(
                "HTTP/1.1 {status} Odd\r\nretry-after: 99999999999999999999\r\nlocation: /\u{1F600}\r\n\r\n{{\"error\":"
            );
            trap(
                format!("status {status}"),
                vec![bytes(words)],
                &["http_3xx", "http_4xx", "http_429", "http_5xx", "decode"],
            )
        }
        20 => trap(
            "an error that never ends",
            vec![
                bytes("HTTP/1.1 500 Oops\r\n\r\n"),
                Step::Flood(vec![b'x'; 60_000]),
            ],
            &["http_5xx"],
        ),
        21 => trap("nothing", Vec::new(), &["connect"]),
        22 => trap(
            "HTTP/2",
            vec![bytes(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64")],
            &["decode", "truncated"],
        ),
        _ => trap(
            "another protocol",
            vec![bytes("HTTP/1.1 101 Switching Protocols\r\n\r\n")],
            DECODE,
        ),
    }
}

fn framing(rng: &mut ChaCha8Rng) -> Trap {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let first = format!("data: {TOKEN}\n\n");
    let first = format!("{:x}\r\n{first}\r\n", first.len());
    match rng.random_range(0..10) {
        0 => trap(
            "a chunk of 2^64-1",
            vec![bytes(format!("{head}{first}ffffffffffffffff\r\nx"))],
            DECODE,
        ),
        1 => trap(
            "a negative chunk",
            vec![bytes(format!("{head}{first}-1\r\nx"))],
            DECODE,
        ),
        2 => trap(
            "endless chunk size",
            vec![
                bytes(format!("{head}{first}")),
                Step::Flood(b"0".repeat(1000)),
            ],
            DECODE,
        ),
        3 => trap(
            "endless extension",
            vec![
                bytes(format!("{head}{first}5;")),
                Step::Flood(b"x".repeat(1000)),
            ],
            DECODE,
        ),
        4 => trap(
            "endless trailers",
            vec![
                bytes(format!("{head}{first}0\r\n")),
                Step::Flood(b"a: b\r\n".repeat(500)),
            ],
            DECODE,
        ),
        5 => trap(
            "a chunk without its end",
            vec![bytes(format!("{head}{first}5\r\nabcdefgh"))],
            DECODE,
        ),
        6 => {
            let all = chunked(3);
            let at = rng.random_range(0..all.len());
            trap(
                format!("cut at {at}"),
                vec![bytes(&all[..at])],
                &["connect", "truncated", "ok"],
            )
        }
        7 => {
            let after = [chunked(3), chunked(2)].concat();
            Trap {
                tokens: Some(3),
                ..trap("two responses", vec![bytes(after)], OK)
            }
        }
        8 => {
            let length = format!(
                "content-type: text/event-stream\r\ncontent-length: {}",
                first.len() + 1000
            );
            trap(
                "a body shorter than its length",
                vec![bytes(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\n{first}"))],
                BROKEN,
            )
        }
        _ => Trap {
            tokens: Some(4),
            ..trap("one byte at a time", vec![Step::Trickle(chunked(4), 0)], OK)
        },
    }
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn codings(rng: &mut ChaCha8Rng) -> Trap {
    let coded = |name: &str, body: &[u8]| {
        bytes(
            [
                format!("{SSE}content-encoding: {name}\r\n\r\n").as_bytes(),
                body,
            ]
            .concat(),
        )
    };
    let reply = good(3);
    let plain = &reply[SSE.len() + 2..];
    let size: usize = rng.random_range(9..13) << 20;
    let bomb = || vec![b'x'; size];
    match rng.random_range(0..8) {
        0 => trap("gzip bomb", vec![coded("gzip", &gzip(&bomb()))], DECODE),
        1 => trap(
            "zstd bomb",
            vec![coded("zstd", &zstd::bulk::compress(&bomb(), 1).unwrap())],
            DECODE,
        ),
        2 => {
            let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
            zlib.write_all(&bomb()).unwrap();
            trap(
                "deflate bomb",
                vec![coded("deflate", &zlib.finish().unwrap())],
                DECODE,
            )
        }
        3 => {
            let packed = gzip(plain);
            let at = rng.random_range(1..packed.len());
            trap(
                format!("gzip cut at {at}"),
                vec![coded("gzip", &packed[..at])],
                &["truncated", "decode", "ok"],
            )
        }
        4 => {
            let mut packed = gzip(plain);
            let at = rng.random_range(10..packed.len());
            packed[at] ^= 1 << rng.random_range(0..8);
            trap(
                format!("gzip with a flipped bit in {at}"),
                vec![coded("gzip", &packed)],
                &["truncated", "decode", "ok", "stream_error"],
            )
        }
        5 => trap("gzip in name only", vec![coded("gzip", plain)], DECODE),
        6 => trap(
            "a coding nobody knows",
            vec![coded("snappy", plain)],
            DECODE,
        ),
        _ => trap(
            "codings in codings",
            vec![coded("gzip, gzip, gzip, gzip, gzip, gzip", plain)],
            DECODE,
        ),
    }
}

fn texts(rng: &mut ChaCha8Rng) -> Trap {
    let sse = |text: &str| bytes(format!("{SSE}\r\n{text}"));
    let reply = String::from_utf8(good(3)).unwrap();
    let body = reply.split_once("\r\n\r\n").unwrap().1.to_owned();
    let ok = |name: &str, steps: Vec<Step>| Trap {
        tokens: Some(3),
        ..trap(name, steps, OK)
    };
    let choice = |index: &str| {
        format!(
            r#"{{"id":"r","choices":[{{"index":{index},"delta":{{"content":"hi"}},"finish_reason":"stop"}}]}}"#
        )
    };
    match rng.random_range(0..24) {
        0 => trap(
            "endless line",
            vec![sse("data: "), Step::Flood(vec![b'x'; 60_000])],
            DECODE,
        ),
        1 => trap(
            "endless blank lines",
            vec![sse(""), Step::Flood(b"\n".repeat(30_000))],
            &["timeout_total"],
        ),
        2 => trap(
            "endless comments",
            vec![sse(""), Step::Flood(b": ping\n\n".repeat(4000))],
            &["timeout_total"],
        ),
        3 => trap(
            "endless tokens",
            vec![
                Step::Bytes(events(&[])),
                Step::Flood(format!("data: {TOKEN}\n\n").repeat(400).into()),
            ],
            &["timeout_total", "too_long"],
        ),
        4 => ok(
            "split UTF-8",
            vec![Step::Trickle(reply.replace("hi", "h\u{1F600}").into(), 0)],
        ),
        5 => ok("BOM", vec![sse(&format!("\u{FEFF}{body}"))]),
        6 => ok("no space", vec![sse(&body.replace("data: ", "data:"))]),
        7 => ok("CR only", vec![sse(&body.replace('\n', "\r"))]),
        8 => ok("CR LF", vec![sse(&body.replace('\n', "\r\n"))]),
        9 => ok("no blank line at the end", vec![sse(body.trim_end())]),
        10 => ok("two ends", vec![sse(&format!("{body}data: [DONE]\n\n"))]),
        11 => ok(
            "events after the end",
            vec![sse(&format!("{body}data: {TOKEN}\n\ndata: {{\n\n"))],
        ),
        12 => {
            let large = "y".repeat(rng.random_range(1..7) << 20);
            Trap {
                tokens: Some(3),
                ..trap("a large event", vec![sse(&body.replace("hi", &large))], OK)
            }
        }
        13 => trap(
            "an event beyond the bound",
            vec![sse(&body.replace("hi", &"y".repeat(9 << 20)))],
            DECODE,
        ),
        14 => trap("null bytes", vec![sse("data: \0\0\0\n\n")], DECODE),
        15 => trap("no JSON", vec![sse("data: {\"choices\":[{\n\n")], DECODE),
        16 => {
            let (open, close) = [("[", "]"), ("{\"a\":", "}")][rng.random_range(0..2)];
            let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            let place = ["choices", "x", "usage", "error", "timings", "id"][rng.random_range(0..6)];
            let outcomes = &["decode", "stream_error", "ok", "truncated", "empty"];
            trap(
                format!("deep JSON in {place}"),
                vec![sse(&format!("data: {{\"{place}\":{deep}}}\n\n{body}"))],
                outcomes,
            )
        }
        17 => {
            let index = [
                "4294967295",
                "4294967296",
                "-1",
                "1e30",
                "18446744073709551615",
                "\"0\"",
                "null",
            ][rng.random_range(0..7)];
            trap(
                format!("choice {index}"),
                vec![Step::Bytes(events(&[&choice(index), "[DONE]"]))],
                &["ok", "decode"],
            )
        }
        18 => {
            let all: String = (0..5000)
                .map(|index| format!("data: {}\n\n", choice(&(index * 800_000u64).to_string())))
                .collect();
            trap("5000 choices", vec![sse(&all)], DECODE)
        }
        19 => {
            let counts = [
                "18446744073709551615",
                "1000000000000000000",
                "-1",
                "2.5",
                "\"7\"",
                "1e18",
                "null",
                "[]",
                "9999999999999999999999",
            ];
            let mut count = || counts[rng.random_range(0..counts.len())];
            let details = format!(
                r#""completion_tokens_details":{{"reasoning_tokens":{}}},"prompt_tokens_details":{{"cached_tokens":{}}}"#,
                count(),
                count()
            );
            let usage = format!(
                r#"{{"choices":[],"usage":{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},{details}}}}}"#,
                count(),
                count(),
                count()
            );
            let data = [TOKEN, TOKEN, TOKEN, FINISH, &usage, "[DONE]"];
            ok("absurd usage", vec![Step::Bytes(events(&data))])
        }
        20 => {
            let running = |n: u64| {
                TOKEN.replacen(
                    '{',
                    &format!("{{\"usage\":{{\"completion_tokens\":{n}}},"),
                    1,
                )
            };
            let (one, two) = (
                running(rng.random_range(0..u64::MAX)),
                running(rng.random_range(0..u64::from(u32::MAX))),
            );
            ok(
                "absurd running usage",
                vec![Step::Bytes(events(&[&one, &two, TOKEN, FINISH, "[DONE]"]))],
            )
        }
        21 => {
            let calls = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":4294967295,"function":{"name":"f","arguments":"{}"}},{"function":{"arguments":"x"}},{"id":"new","function":{}}]},"finish_reason":"tool_calls"}]}"#;
            trap(
                "absurd tool calls",
                vec![Step::Bytes(events(&[calls, "[DONE]"]))],
                &["ok", "decode"],
            )
        }
        22 => trap(
            "HTML",
            vec![bytes(response("200 OK", "text/html", "<html></html>"))],
            DECODE,
        ),
        _ => {
            let timings = r#"{"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}],"timings":{"prompt_ms":1e300,"predicted_ms":-1e300}}"#;
            trap(
                "absurd timings",
                vec![Step::Bytes(events(&[timings, "[DONE]"]))],
                OK,
            )
        }
    }
}

fn lines(rng: &mut ChaCha8Rng) -> Trap {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n";
    let token = "{\"message\":{\"content\":\"hi\"},\"done\":false}\n";
    let end = |rest: &str| {
        format!(
            "{head}{}{{\"message\":{{\"content\":\"\"}},\"done\":true,\"done_reason\":\"stop\"{rest}}}\n",
            token.repeat(3)
        )
    };
    let made = match rng.random_range(0..8) {
        0 => trap(
            "endless line",
            vec![bytes(head), Step::Flood(vec![b' '; 60_000])],
            DECODE,
        ),
        1 => trap(
            "endless tokens",
            vec![bytes(head), Step::Flood(token.repeat(1000).into())],
            &["timeout_total", "too_long"],
        ),
        2 => trap(
            "no JSON",
            vec![bytes(format!("{head}{token}nothing\n"))],
            DECODE,
        ),
        3 => {
            let numbers = [
                "18446744073709551615",
                "-1",
                "1e300",
                "9223372036854775807",
                "\"x\"",
            ];
            let mut number = || numbers[rng.random_range(0..numbers.len())];
            let rest = format!(
                ",\"total_duration\":{},\"load_duration\":{},\"prompt_eval_count\":{},\"prompt_eval_duration\":{},\"eval_count\":{},\"eval_duration\":{}",
                number(),
                number(),
                number(),
                number(),
                number(),
                number()
            );
            Trap {
                tokens: Some(3),
                ..trap("absurd counts and times", vec![bytes(end(&rest))], OK)
            }
        }
        4 => {
            let whole = end("");
            let at = rng.random_range(head.len()..whole.len() - 1);
            trap(
                format!("cut at {at}"),
                vec![bytes(&whole[..at])],
                &["truncated", "decode", "ok"],
            )
        }
        5 => trap(
            "deep",
            vec![bytes(format!("{head}{}\n", "[".repeat(100_000)))],
            DECODE,
        ),
        6 => trap(
            "an error",
            vec![bytes(format!(
                "{head}{token}{{\"error\":\"{}\"}}\n",
                "\u{202E}\\u001b[2J".repeat(999)
            ))],
            &["stream_error"],
        ),
        _ => Trap {
            tokens: Some(3),
            ..trap(
                "lines after the end",
                vec![bytes(format!("{}{token}{{\n", end("")))],
                OK,
            )
        },
    };
    Trap {
        api: Api::Ollama,
        name: format!("lines: {}", made.name),
        ..made
    }
}

/// A good response with some of its bytes changed.
fn mutated(rng: &mut ChaCha8Rng) -> Trap {
    let mut reply = if rng.random_bool(0.5) {
        good(3)
    } else {
        chunked(3)
    };
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..reply.len());
        match rng.random_range(0..4) {
            0 => reply[at] = rng.random_range(0..=255),
            1 => drop(reply.remove(at)),
            2 => reply.insert(at, rng.random_range(0..=255)),
            _ => {
                let piece = reply[at..(at + 40).min(reply.len())].to_vec();
                reply.splice(at..at, piece);
            }
        }
    }
    trap("mutated", vec![Step::Bytes(reply)], &[])
}

fn generate(seed: u64, count: usize) -> Vec<Trap> {
    let mut rng = random(seed);
    let kinds = [heads, framing, codings, texts, lines, mutated];
    let made = (0..count).map(|place| {
        let made = kinds[place % kinds.len()](&mut rng);
        Trap {
            name: format!("{place}: {}", made.name),
            ..made
        }
    });
    made.collect()
}

/// Springs a trap on a connection; the end of the script closes it.
fn spring(stream: &mut TcpStream, steps: &[Step]) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(TOTAL + LATE));
    let until = Instant::now() + TOTAL + LATE;
    for step in steps {
        let written = match step {
            Step::Bytes(bytes) => stream.write_all(bytes).is_ok(),
            Step::Flood(bytes) => {
                while Instant::now() < until && stream.write_all(bytes).is_ok() {}
                false
            }
            Step::Trickle(bytes, pause) => bytes.iter().all(|byte| {
                std::thread::sleep(Duration::from_millis(*pause));
                stream.write_all(&[*byte]).is_ok()
            }),
            Step::Hang => {
                let _ = stream.set_read_timeout(Some(TOTAL + LATE));
                let _ = stream.read(&mut [0; 16]);
                false
            }
        };
        if !written {
            return;
        }
    }
}

/// A server of these traps: the number after `trap` in a request body selects one.
fn serve(traps: &Arc<Vec<Trap>>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server {
        addr: listener.local_addr().unwrap(),
        requests: Arc::default(),
    };
    let traps = traps.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let traps = traps.clone();
            std::thread::spawn(move || {
                let Some(body) = read_request(&mut stream) else {
                    return;
                };
                let body = String::from_utf8_lossy(&body).into_owned();
                let number = body
                    .split("trap")
                    .nth(1)
                    .unwrap_or_default()
                    .trim_matches(|c: char| !c.is_ascii_digit());
                let number: String = number.chars().take_while(char::is_ascii_digit).collect();
                if let Some(trap) = number
                    .parse()
                    .ok()
                    .and_then(|number: usize| traps.get(number))
                {
                    spring(&mut stream, &trap.steps);
                }
            });
        }
    });
    server
}

fn limits() -> Timeouts {
    let nanos = |span: Duration| Nanos(span.as_nanos() as u64);
    Timeouts {
        connect: nanos(READ + LATE),
        read: nanos(READ),
        event: None,
        total: nanos(TOTAL),
    }
}

/// The error of an unexpected outcome of a trap.
fn fault(trap: &Trap, outcome: &Outcome) -> Option<String> {
    let (word, time) = (
        outcome.outcome_name(),
        outcome
            .timeline
            .end
            .0
            .saturating_sub(outcome.timeline.sent.unwrap_or_default().0),
    );
    let told = || {
        format!(
            "{}: {word} {:?}",
            trap.name,
            outcome.end.as_ref().err().map(|failure| &failure.message)
        )
    };
    if time > (TOTAL + LATE).as_nanos() as u64 {
        return Some(format!("{} after {} ms", told(), time / 1_000_000));
    }
    // A busy machine may take longer than the limits for what needs no time.
    let in_time = trap.outcomes.is_empty()
        || trap.outcomes.contains(&word)
        || ["timeout_total", "timeout_read"].contains(&word);
    let tokens = trap
        .tokens
        .filter(|_| word == "ok")
        .unwrap_or(outcome.timeline.tokens.len());
    if !in_time || tokens != outcome.timeline.tokens.len() {
        return Some(format!(
            "{} with {} tokens",
            told(),
            outcome.timeline.tokens.len()
        ));
    }
    let (usage, weights) = (outcome.usage, &outcome.timeline.weights);
    let counts = [usage.prompt, usage.output, usage.reasoning, usage.cached];
    let absurd = counts
        .into_iter()
        .flatten()
        .chain(weights.iter().map(|weight| u64::from(*weight)))
        .any(|n| n > 100_000_000);
    absurd.then(|| format!("{} with usage {usage:?} and weights {weights:?}", told()))
}

#[test]
fn every_trap_ends_in_time_and_as_what_it_was() {
    let traps = Arc::new(generate(14, trials(30)));
    let server = serve(&traps);
    let (mut faults, mut seen) = (Vec::new(), BTreeMap::<(String, &str), u64>::new());
    for api in [Api::OpenaiChat, Api::Ollama] {
        let mut target = target(&server.url());
        (target.api, target.timeouts) = (api, limits());
        let some: Vec<usize> = (0..traps.len())
            .filter(|place| traps[*place].api == api)
            .collect();
        for some in some.chunks(48) {
            let outcomes = on_worker(&target, async |engine| {
                let sent: Vec<_> = some
                    .iter()
                    .map(|place| {
                        let (engine, body) =
                            (engine.clone(), format!("{{\"trap\":{place}}}").into_bytes());
                        let call = PreparedRequest {
                            seq: *place as u64,
                            body,
                            streamed: true,
                            max_tokens: Some(16),
                            ..PreparedRequest::default()
                        };
                        tokio::task::spawn_local(async move { send(&engine, call).await.outcome })
                    })
                    .collect();
                let mut outcomes = Vec::new();
                for one in sent {
                    outcomes.push(one.await.expect("no call panics"));
                }
                outcomes
            });
            for (place, outcome) in some.iter().zip(&outcomes) {
                let name = traps[*place]
                    .name
                    .split_once(": ")
                    .map_or("", |name| name.1);
                *seen
                    .entry((name.to_owned(), outcome.outcome_name()))
                    .or_default() += 1;
                faults.extend(fault(&traps[*place], outcome));
            }
        }
    }
    seen.iter()
        .for_each(|((name, word), count)| println!("{count} {word}: {name}"));
    assert!(
        faults.is_empty(),
        "{} of {} traps\n{}",
        faults.len(),
        traps.len(),
        faults.join("\n")
    );
}

#[test]
fn a_run_against_every_trap_reports_each_request_once_and_keeps_its_memory() {
    let traps = Arc::new(
        generate(15, trials(24))
            .into_iter()
            .filter(|trap| trap.api == Api::OpenaiChat)
            .collect::<Vec<_>>(),
    );
    let server = serve(&traps);
    let lab = Lab::new();
    let rows: String = (0..traps.len())
        .map(|place| format!("{{\"question\":\"trap {place} \"}}\n"))
        .collect();
    lab.file("traps.jsonl", rows);
    let scenario = format!(
        "version: 1\nname: t\ntarget: {{ url: \"{}\", model: m, timeouts: {{ connect: 10s, read: 1s, total: 2500ms }}, http: {{ pool: per-request }} }}\n\
         dataset: {{ kind: openqa, path: traps.jsonl }}\nload: {{ concurrency: 16, requests: {} }}\nrequest: {{ max_tokens: 16 }}\n\
         report: {{ formats: [md, json] }}\naudit: {{ lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }}\n",
        server.url(),
        traps.len()
    );
    let began = Instant::now();
    let ran = lab.run(&scenario);
    assert!(
        ran.code == 0 && !ran.err.contains("panicked"),
        "{}: {}",
        ran.code,
        ran.err
    );
    assert!(
        began.elapsed() < TOTAL * (traps.len() as u32 / 16 + 1) + LATE * 6,
        "{:?}",
        began.elapsed()
    );
    let case = &lab.results()["cases"][0];
    let failures = case["counts"]["failures"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum::<u64>();
    assert_eq!(
        case["counts"]["ok"].as_u64().unwrap() + failures,
        traps.len() as u64,
        "{case:#}"
    );
    let manifest = lab.json("out/manifest.json");
    let peak = manifest["parts"][0]["vitals"]["memory_peak"]
        .as_u64()
        .unwrap();
    assert!(peak < 400 << 20, "{} MiB", peak >> 20);
}

/// Bytes of a server with broken HTTP/2.
fn frames(rng: &mut ChaCha8Rng) -> (String, Vec<Step>) {
    let settings = b"\0\0\0\x04\0\0\0\0\0".to_vec();
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let with = |more: Vec<u8>| vec![Step::Bytes([settings.clone(), more].concat()), Step::Hang];
    let noise: Vec<u8> = (0..rng.random_range(1..300))
        .map(|_| rng.random_range(0..=255))
        .collect();
    match rng.random_range(0..10) {
        0 => ("noise".into(), vec![Step::Bytes(noise)]),
        1 => ("noise after the settings".into(), with(noise)),
        2 => (
            "GOAWAY".into(),
            with(frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 11])),
        ),
        3 => (
            "a frame of 16 MiB".into(),
            with(b"\xff\xff\xff\0\0\0\0\0\x01".to_vec()),
        ),
        4 => (
            "endless settings".into(),
            vec![
                Step::Bytes(settings.clone()),
                Step::Flood(settings.repeat(500)),
            ],
        ),
        5 => (
            "endless pings".into(),
            vec![
                Step::Bytes(settings.clone()),
                Step::Flood(frame(6, 0, 0, &[0; 8]).repeat(500)),
            ],
        ),
        6 => (
            "no streams allowed".into(),
            vec![Step::Bytes(frame(4, 0, 0, &[0, 3, 0, 0, 0, 0])), Step::Hang],
        ),
        7 => (
            "a head that cannot be unpacked".into(),
            with(frame(1, 4, 1, &noise)),
        ),
        8 => (
            "a window that overflows".into(),
            with(frame(8, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ),
        _ => {
            let open = frame(1, 0, 1, &[0x88]);
            let more = frame(9, 0, 1, &[0x40, 1, b'a', 1, b'b'].repeat(200));
            (
                "endless continuation".into(),
                vec![
                    Step::Bytes([settings.clone(), open].concat()),
                    Step::Flood(more),
                ],
            )
        }
    }
}

#[test]
fn what_only_pretends_to_be_http_2_ends_in_time() {
    let mut rng = random(16);
    let traps: Vec<Trap> = (0..trials(8))
        .map(|_| {
            let (name, steps) = frames(&mut rng);
            trap(name, steps, &[])
        })
        .collect();
    for traps in traps.chunks(16) {
        let run = |trap: &Trap| {
            let steps = trap.steps.clone();
            let server = Server::start(move |stream, _| {
                spring(stream, &steps);
                false
            });
            let mut target = target(&server.url());
            (target.version, target.timeouts) = (HttpVersion::Http2, limits());
            target.timeouts.connect = Nanos(TOTAL.as_nanos() as u64);
            let outcome = on_worker(&target, async |engine| {
                let call = PreparedRequest {
                    body: b"{}".to_vec(),
                    streamed: true,
                    ..PreparedRequest::default()
                };
                send(&engine, call).await.outcome
            });
            assert!(outcome.end.is_err(), "{}", trap.name);
            fault(trap, &outcome)
        };
        let faults: Vec<String> = std::thread::scope(|scope| {
            let running: Vec<_> = traps
                .iter()
                .map(|trap| scope.spawn(move || run(trap)))
                .collect();
            running
                .into_iter()
                .filter_map(|one| one.join().expect("no call panics"))
                .collect()
        });
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
