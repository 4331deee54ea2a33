//! What every decoder must keep, whatever the bytes: no panic, the same in any split, and no more memory than the bytes
//! explain.

use llmscen_core::api::Api;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::request::{Done, Extract, ExtractUsage, Framing, RequestSpec};
use llmscen_protocols::{DecodeOptions, Events, Protocol, Reply, check_path, protocol};
use peak_alloc::PeakAlloc;
use serde_json::json;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Bytes that a decoder may hold at once for each byte it was given, and beside that.
const MEMORY_PER_BYTE: usize = 256;
const MEMORY_BESIDE: usize = 256 << 10;

/// The last bytes of an input say how it is read; before them lies the body, so that a recorded body is a seed.
const CONTROL: usize = 8;

/// How one input is read.
struct Reading {
    framing: Framing,
    keep_text: bool,
    broken: bool,
    cuts: [u8; CONTROL - 1],
}

impl Reading {
    fn new(control: [u8; CONTROL]) -> Reading {
        let [first, cuts @ ..] = control;
        let framing =
            [Framing::Sse, Framing::Ndjson, Framing::Json, Framing::Sse][usize::from(first & 3)];
        Reading {
            framing,
            keep_text: first & 4 == 0,
            broken: first & 8 != 0,
            cuts,
        }
    }

    /// The body in up to eight pieces; a body that is short, in pieces of some bytes each.
    fn pieces<'a>(&self, body: &'a [u8]) -> Vec<&'a [u8]> {
        if self.cuts[0] & 1 == 1 && body.len() < 2048 {
            return body
                .chunks(usize::from(self.cuts[0] >> 1) % 7 + 1)
                .collect();
        }
        let mut places: Vec<usize> = self
            .cuts
            .iter()
            .map(|cut| body.len() * usize::from(*cut) / 255)
            .collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        places
            .windows(2)
            .map(|pair| &body[pair[0]..pair[1]])
            .collect()
    }

    fn decode(&self, protocol: &dyn Protocol, pieces: &[&[u8]]) -> (Events, Reply) {
        let options = DecodeOptions {
            keep_text: self.keep_text,
            ..DecodeOptions::default()
        };
        let (mut decoder, mut events) =
            (protocol.decoder(self.framing, &options), Events::default());
        for piece in pieces {
            let before = events.clone();
            decoder.push(piece, &mut events);
            only_added(&before, &events);
        }
        let before = events.clone();
        let broken = self
            .broken
            .then(|| Failure::new(FailureKind::TimeoutRead, "silence"));
        let reply = decoder.finish(&mut events, broken);
        only_added(&before, &events);
        (events, reply)
    }

    fn sane(&self, (events, reply): &(Events, Reply)) {
        let content = events.content as usize;
        assert!(
            events.choices.is_empty() || events.choices.len() == content,
            "{events:?}"
        );
        assert!(
            events.weights.is_empty() || events.weights.len() == content,
            "{events:?}"
        );
        assert!(events.content == 0 || events.total > 0, "{events:?}");
        assert!(
            self.framing != Framing::Json || *events == Events::default(),
            "a whole reply has no events: {events:?}"
        );
        assert!(
            self.keep_text || (reply.text.is_none() && reply.message.is_none()),
            "{reply:?}"
        );
        if let Err(failure) = &reply.end {
            assert!(
                failure.message.chars().count() <= Failure::MAX_MESSAGE,
                "{failure:?}"
            );
        }
        if self.broken && self.framing == Framing::Json {
            assert!(reply.end.is_err(), "{reply:?}");
        }
    }
}

fn only_added(before: &Events, after: &Events) {
    assert!(
        after.total >= before.total
            && after.content >= before.content
            && (after.done || !before.done)
    );
    // The end sets these for all events at once.
    let told_so_far = |events: &Events| Events {
        weights: Vec::new(),
        reasoning: 0,
        ..events.clone()
    };
    assert!(
        !before.done || told_so_far(before) == told_so_far(after),
        "later bytes change nothing"
    );
    assert!(
        before.choices.is_empty() || after.choices.starts_with(&before.choices),
        "{before:?} {after:?}"
    );
    let told = after.weights.is_empty() || after.weights.starts_with(&before.weights);
    assert!(told, "{before:?} {after:?}");
}

/// Decodes one input whole and in pieces, and holds the decoder to its promises.
pub fn check(protocol: &dyn Protocol, input: &[u8]) {
    bounded(protocol, input, MEMORY_PER_BYTE);
}

fn bounded(protocol: &dyn Protocol, input: &[u8], memory_per_byte: usize) {
    let Some((body, control)) = input.split_last_chunk::<CONTROL>() else {
        return;
    };
    let reading = Reading::new(*control);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let whole = reading.decode(protocol, &[body]);
    let held = MEMORY.peak_usage().saturating_sub(before);
    assert!(
        held <= MEMORY_BESIDE + memory_per_byte * body.len(),
        "{held} bytes held for {}",
        body.len()
    );
    reading.sane(&whole);
    assert_eq!(reading.decode(protocol, &reading.pieces(body)), whole);
}

/// The first line of an input is the JSONPath of all there is to extract, the rest is decoded with it.
pub fn check_with_path(input: &[u8]) {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (path, rest) = (
        String::from_utf8_lossy(&input[..end]).into_owned(),
        &input[end + 1..],
    );
    let maybe = Some(path.clone());
    let usage = ExtractUsage {
        output: maybe.clone(),
        ..ExtractUsage::default()
    };
    let done = Some(Done::Value {
        path: path.clone(),
        equals: Some(json!("[DONE]")),
    });
    let extract = Extract {
        text: vec![path.clone()],
        choice: maybe.clone(),
        usage,
        finish: maybe,
        done,
        ..Extract::default()
    };
    let protocol = protocol(Api::Custom, Some(&custom_request(extract)));
    assert_eq!(protocol.is_ok(), check_path(&path).is_ok());
    if let Ok(protocol) = protocol {
        // A path may select every value, each with its own way of up to 1 KiB.
        bounded(&*protocol, rest, 16 << 10);
    }
}

/// A request of `api: custom` with this extraction.
pub fn custom_request(extract: Extract) -> RequestSpec {
    RequestSpec {
        extract: Some(extract),
        ..RequestSpec::default()
    }
}

/// What the target `custom` extracts: chat completions, and with paths that may match more than once.
pub fn extracts() -> [Extract; 2] {
    let some = |path: &str| Some(path.to_owned());
    let texts = |paths: &[&str]| paths.iter().map(|path| path.to_string()).collect();
    let usage = ExtractUsage {
        prompt: some("$.usage.prompt_tokens"),
        output: some("$.usage.completion_tokens"),
        reasoning: some("$.usage.completion_tokens_details.reasoning_tokens"),
        cached: some("$.usage.prompt_tokens_details.cached_tokens"),
    };
    let chat = Extract {
        text: texts(&[
            "$.choices[*].delta.reasoning",
            "$.choices[*]['delta','message'].content",
            "$.choices[*].text",
        ]),
        choice: some("$.choices[*].index"),
        usage: usage.clone(),
        finish: some("$.choices[*].finish_reason"),
        id: some("$.id"),
        error: some("$.error"),
        done: Some(Done::Data("[DONE]".into())),
        framing: None,
    };
    let loose = Extract {
        text: texts(&["$..text", "$..content", "$.response"]),
        choice: some("$..index"),
        finish: some("$..finish_reason"),
        error: some("$[?@.code != '']"),
        done: Some(Done::Value {
            path: "$.done".into(),
            equals: None,
        }),
        ..chat.clone()
    };
    [chat, loose]
}

/// A fuzz target for one protocol.
#[macro_export]
macro_rules! target {
    ($api:expr) => {
        $crate::target!($api, None);
    };
    ($api:expr, $request:expr) => {
        use llmscen_core::api::Api;
        use llmscen_protocols::{Protocol, protocol};
        use std::sync::{Arc, LazyLock};

        static PROTOCOL: LazyLock<Option<Arc<dyn Protocol>>> =
            LazyLock::new(|| protocol($api, $request).ok());

        libfuzzer_sys::fuzz_target!(|input: &[u8]| {
            if let Some(protocol) = &*PROTOCOL {
                llmscen_fuzz::check(&**protocol, input);
            }
        });
    };
}
