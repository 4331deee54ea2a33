//! Recorded responses of real servers, replayed over a socket: however the bytes arrive, the outcome is the same.

use crate::lab::{Server, send};
use crate::transport;
use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, Finish, Outcome, Usage};
use llmscen_core::request::PreparedRequest;
use llmscen_core::target::{ModelShare, Pool, Target};
use llmscen_core::units::Nanos;
use llmscen_protocols::protocol;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::Path;

/// The raw responses of all recordings, and of all responses that were written from API descriptions.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut responses: Vec<_> = files("tests/wire", &["txt"])
        .into_iter()
        .map(|(name, file)| (name, response(&file)))
        .collect();
    assert!(responses.len() > 70, "{} recordings", responses.len());
    let spec: Vec<_> = files("tests/wire/spec", &["sse", "ndjson", "json"])
        .into_iter()
        .filter(|(name, _)| has_protocol(name))
        .collect();
    assert!(
        spec.len() > 25,
        "{} responses from descriptions",
        spec.len()
    );
    responses.extend(
        spec.into_iter()
            .map(|(name, body)| (name.clone(), with_head(&name, &body))),
    );
    responses
}

/// The files with these extensions in a folder, by name.
fn files(folder: &str, kinds: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let wanted = paths.filter(|path| {
        path.extension()
            .is_some_and(|kind| kinds.iter().any(|wanted| kind == *wanted))
    });
    wanted
        .map(|path| {
            (
                path.file_name().unwrap().to_string_lossy().into_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect()
}

/// The API of a response: the file name begins with it, or contains the path of a recording.
fn api(name: &str) -> Api {
    let named = name.split('.').next().and_then(Api::parse);
    named.unwrap_or(match name {
        _ if name.contains("completions_") => Api::OpenaiCompletions,
        _ if name.contains("responses_") => Api::OpenaiResponses,
        _ => Api::OpenaiChat,
    })
}

/// `custom` needs a scenario.
fn has_protocol(name: &str) -> bool {
    protocol(api(name), None).is_ok()
}

/// A response with this body.
fn with_head(name: &str, body: &[u8]) -> Vec<u8> {
    let kind = match name.rsplit('.').next() {
        Some("sse") => "text/event-stream",
        Some("ndjson") => "application/x-ndjson",
        _ => "application/json",
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A recording without the `###` lines around it and the line end before the last of them.
fn response(file: &[u8]) -> Vec<u8> {
    let position = |needle: &[u8]| {
        file.windows(needle.len())
            .position(|window| window == needle)
    };
    let start = position(b"HTTP/1.1 ").unwrap();
    let end = file[start..]
        .windows(4)
        .rposition(|window| window == b"### ")
        .map_or(file.len(), |at| start + at);
    let bytes = &file[start..end];
    bytes.strip_suffix(b"\n").unwrap_or(bytes).to_vec()
}

/// The facts that must not depend on how the bytes were split.
#[derive(Debug, PartialEq)]
struct Decoded {
    status: Option<u16>,
    usage: Usage,
    events: usize,
    end: Result<Finish, Failure>,
    id: Option<String>,
    bytes: u64,
}

impl From<Outcome> for Decoded {
    fn from(outcome: Outcome) -> Decoded {
        // Whether a cut connection ends with a reset or an early end of file depends on the kernel.
        let end = outcome.end.map_err(|failure| Failure {
            message: String::new(),
            ..failure
        });
        let (usage, id, bytes) = (outcome.usage, outcome.response_id, outcome.bytes_in);
        Decoded {
            status: outcome.status,
            usage,
            events: outcome.timeline.tokens.len(),
            end,
            id,
            bytes,
        }
    }
}

/// One request to a server that sends `pieces`, each with a separate write, and closes.
fn replay(name: &str, pieces: Vec<Vec<u8>>) -> Outcome {
    let server = Server::start(move |stream, _| {
        stream.set_nodelay(true).unwrap();
        pieces.iter().for_each(|piece| {
            send(stream, piece);
        });
        false
    });
    let api = api(name);
    let models = vec![ModelShare {
        name: "tiny".into(),
        weight: 1.0,
    }];
    let target = Target {
        api,
        models,
        pool: Pool::PerRequest,
        ..transport::target(&server.url())
    };
    let streamed = !name.contains("nonstream") && !name.ends_with(".json");
    let call = PreparedRequest {
        streamed,
        body: b"{}".to_vec(),
        ..PreparedRequest::default()
    };
    let outcome = transport::on_worker(&target, async |client| {
        transport::send(&client, call).await.outcome
    });
    check_order(name, &outcome);
    outcome
}

fn check_order(name: &str, outcome: &Outcome) {
    let line = &outcome.timeline;
    let mut stamps: Vec<Nanos> = vec![line.intended];
    stamps.extend(
        line.sent
            .into_iter()
            .chain(line.headers)
            .chain(line.first_chunk),
    );
    stamps.extend(&line.tokens);
    stamps.push(line.end);
    assert!(stamps.is_sorted(), "{name}: {line:?}");
    assert!(line.headers.is_some(), "{name}");
}

#[test]
fn every_recording_decodes_alike_in_one_piece_and_in_any_split() {
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for (name, bytes) in recordings() {
        let whole: Decoded = replay(&name, vec![bytes.clone()]).into();
        for _ in 0..4 {
            let mut pieces = Vec::new();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(random.random_range(1..=rest.len().min(200)));
                pieces.push(piece.to_vec());
                rest = after;
            }
            let split: Decoded = replay(&name, pieces).into();
            assert_eq!(split, whole, "{name}");
        }
    }
}

#[test]
fn every_recording_decodes_byte_by_byte() {
    for (name, bytes) in recordings()
        .into_iter()
        .filter(|(_, bytes)| bytes.len() < 6000)
    {
        let whole: Decoded = replay(&name, vec![bytes.clone()]).into();
        let single: Decoded = replay(&name, bytes.iter().map(|byte| vec![*byte]).collect()).into();
        assert_eq!(single, whole, "{name}");
    }
}

#[test]
fn recordings_have_the_expected_outcomes() {
    let recordings: BTreeMap<String, Vec<u8>> = recordings().into_iter().collect();
    let outcome = |name: &str| replay(name, vec![recordings[name].clone()]);
    let ends = |name: &str| {
        let outcome = outcome(&format!("{name}.txt"));
        (
            outcome.outcome_name(),
            outcome.timeline.tokens.len(),
            outcome.usage.output,
        )
    };
    assert_eq!(ends("vllm_cpu.chat_stream_usage"), ("ok", 5, Some(5)));
    assert_eq!(ends("vllm_cpu.killed_midstream_term").0, "stream_error");
    assert_eq!(ends("llama_server.killed_midstream_kill9").0, "truncated");
    assert_eq!(ends("llamacpp_python.err_too_long").0, "truncated");
    assert_eq!(ends("vllm_cpu.err_badmodel").0, "http_4xx");
    assert_eq!(ends("transformers_serve.chat_stream_nousage").0, "ok");
    assert_eq!(ends("vllm_cpu.responses_stream"), ("ok", 3, Some(4)));
    assert_eq!(ends("llama_server.responses_stream"), ("ok", 4, Some(4)));
    assert_eq!(
        ends("transformers_serve.responses_stream"),
        ("ok", 4, Some(4))
    );
    assert_eq!(ends("llamacpp_python.responses_stream").0, "http_4xx");
    assert_eq!(ends("llama_server.models").0, "decode");
    let weighed = outcome("openai-chat.running_choices.sse").timeline;
    assert_eq!(
        (weighed.tokens.len(), weighed.choices, weighed.weights),
        (4, vec![0, 1, 0, 1], vec![2, 1, 1, 3])
    );
    let batch = outcome("openai-embeddings.batch.json");
    assert_eq!(
        (
            batch.outcome_name(),
            batch.items,
            batch.usage.prompt,
            batch.usage.output
        ),
        ("ok", Some(3), Some(21), Some(0))
    );
    let timed = outcome("llama_server.chat_stream_usage.txt").server;
    assert_eq!(
        [timed.prefill, timed.decode],
        [Some(Nanos(4_045_000)), Some(Nanos(1_184_000))]
    );
    let tools = outcome("anthropic.tools.sse");
    assert_eq!(
        (
            tools.outcome_name(),
            tools.timeline.tokens.len(),
            tools.usage.cached
        ),
        ("ok", 7, Some(2000))
    );
}
