//! From the bytes of a reply to its figures, with exact times: streams that real servers send.

use crate::lab::*;
use llmscen_analysis::with_live_request;
use llmscen_core::api::Api;
use llmscen_core::metric::Metric;
use llmscen_core::outcome::{AnomalyKind, Outcome, Phase};
use llmscen_core::request::{Framing, PreparedRequest, ReasoningMarkers};
use llmscen_core::units::Nanos;
use llmscen_datasets::token::Tokenizer;
use llmscen_protocols::{
    DecodeOptions, Events, Markers, Message, correct_counts, protocol, sniff_framing,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A body in pieces, each with the time of its arrival in milliseconds.
#[derive(Clone, Default)]
struct Body {
    now: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

impl Body {
    /// `gap` milliseconds later, these bytes arrive.
    fn bytes(mut self, gap: u64, bytes: impl AsRef<[u8]>) -> Body {
        self.now += gap;
        self.pieces.push((self.now, bytes.as_ref().to_vec()));
        self
    }

    fn event(self, gap: u64, event: &Value) -> Body {
        self.bytes(gap, format!("data: {event}\n\n"))
    }

    fn delta(self, gap: u64, delta: Value) -> Body {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        self.event(gap, &json!({ "id": "r", "choices": [choice] }))
    }

    fn deltas(self, count: usize, gap: u64, delta: &Value) -> Body {
        (0..count).fold(self, |body, _| body.delta(gap, delta.clone()))
    }

    fn texts(self, gap: u64, texts: &[&str]) -> Body {
        let text = |body: Body, text: &&str| body.delta(gap, json!({ "content": text }));
        texts.iter().fold(self, text)
    }

    fn finish(self, reason: &str) -> Body {
        let choice = json!({ "index": 0, "delta": {}, "finish_reason": reason });
        self.event(0, &json!({ "id": "r", "choices": [choice] }))
    }

    fn usage(self, usage: Value) -> Body {
        self.event(0, &json!({ "choices": [], "usage": usage }))
            .bytes(0, "data: [DONE]\n\n")
    }

    fn end(self, prompt: u64, output: u64) -> Body {
        self.finish("stop").usage(usage(prompt, output))
    }
}

fn usage(prompt: u64, output: u64) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
}

/// A reply as the client records it.
struct Read {
    outcome: Outcome,
    text: Option<String>,
    message: Option<Message>,
}

fn read_as(api: Api, content_type: &str, body: &Body, markers: &ReasoningMarkers) -> Read {
    let protocol = protocol(api, None).unwrap();
    let declared = protocol.framing(Some(content_type), true);
    let whole: Vec<u8> = body
        .pieces
        .iter()
        .flat_map(|(_, bytes)| bytes.clone())
        .collect();
    let framing = sniff_framing(&declared, &whole, false).unwrap_or(declared.clone());
    let options = DecodeOptions {
        keep_text: true,
        markers: Markers::new(markers),
    };
    let mut outcome = PreparedRequest {
        body: vec![b' '; 200],
        ..PreparedRequest::default()
    }
    .outcome(Phase::Measured);
    outcome.streamed = matches!(framing, Ok(Framing::Sse | Framing::Ndjson));
    let mut decoder = protocol.decoder(framing.unwrap(), &options);
    let mut events = Events::default();
    let timeline = &mut outcome.timeline;
    timeline.sent = Some(Nanos::ZERO);
    for (at, bytes) in &body.pieces {
        decoder.push(bytes, &mut events);
        timeline
            .tokens
            .resize(events.content as usize, Nanos::from_millis(*at));
        timeline.end = Nanos::from_millis(*at);
    }
    let reply = decoder.finish(&mut events, None);
    timeline
        .tokens
        .resize(events.content as usize, timeline.end);
    (timeline.choices, timeline.weights) = (events.choices, events.weights);
    timeline.reasoning = events.reasoning;
    (outcome.usage, outcome.reply, outcome.end) = (reply.usage, reply.facts, reply.end);
    outcome.bytes_in = whole.len() as u64;
    correct_counts(&mut outcome, false);
    if let (true, Some(text)) = (outcome.timeline.weights.is_empty(), &reply.text) {
        // As the collector, with a tokenizer of the model.
        let weights = Tokenizer::builtin().count_ranges(text, &reply.event_texts);
        outcome.timeline.weights = weights.map(|(_, weights)| weights).unwrap_or_default();
        outcome.reply.weights_counted = !outcome.timeline.weights.is_empty();
    }
    Read {
        outcome,
        text: reply.text,
        message: reply.message,
    }
}

fn read(body: &Body) -> Read {
    read_as(
        Api::OpenaiChat,
        "text/event-stream",
        body,
        &ReasoningMarkers::Auto,
    )
}

/// Without the weights of a tokenizer.
fn bare(body: &Body) -> Outcome {
    without_tokenizer(read(body).outcome)
}

fn without_tokenizer(mut outcome: Outcome) -> Outcome {
    if outcome.reply.weights_counted {
        outcome.timeline.weights.clear();
        outcome.reply.weights_counted = false;
    }
    outcome
}

fn figures<const N: usize>(outcome: &Outcome, metrics: [Metric; N]) -> [Option<f64>; N] {
    with_live_request(outcome, 0, None, |request| {
        metrics.map(|metric| request.value(metric))
    })
}

fn anomalies(outcome: &Outcome) -> Vec<AnomalyKind> {
    outcome
        .reply
        .anomalies
        .iter()
        .map(|anomaly| anomaly.kind)
        .collect()
}

const TIMES: [Metric; 3] = [Metric::Ttft, Metric::TimeToFirstAnswer, Metric::Tpot];
const COUNTS: [Metric; 3] = [
    Metric::OutputTokens,
    Metric::BilledTokens,
    Metric::HiddenTokens,
];

#[test]
fn reasoning_details_are_reasoning() {
    for entry in [
        json!({ "type": "reasoning.text", "index": 0, "text": "hm " }),
        json!({ "type": "reasoning.summary", "index": 0, "summary": "hm " }),
    ] {
        let reasoning = json!({ "role": "assistant", "content": "", "reasoning_details": [entry] });
        let body = Body::default()
            .deltas(20, 10, &reasoning)
            .delta(1000, json!({ "content": "x" }))
            .texts(10, &["x"; 4])
            .end(5, 25);
        assert_eq!(
            figures(&bare(&body), TIMES),
            [Some(10.0), Some(1200.0), Some(1230.0 / 24.0)]
        );
    }
    let encrypted =
        json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": "eA==" }] });
    let body = Body::default()
        .delta(10, encrypted)
        .texts(10, &["x", "y"])
        .end(5, 2);
    assert_eq!(figures(&bare(&body), TIMES), [Some(20.0), None, Some(10.0)]);
}

#[test]
fn parts_of_a_list_are_reasoning_or_the_answer() {
    let thinking = json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] }] });
    let text = json!({ "content": [{ "type": "text", "text": "x" }] });
    let body = Body::default()
        .delta(0, json!({ "content": "" }))
        .deltas(10, 10, &thinking)
        .delta(800, text)
        .texts(10, &["x"; 4])
        .end(5, 15);
    assert_eq!(
        figures(&bare(&body), TIMES),
        [Some(10.0), Some(900.0), Some(930.0 / 14.0)]
    );
}

#[test]
fn hidden_reasoning_is_in_no_window() {
    let details = json!({ "reasoning_tokens": 1000 });
    let mut total = usage(9, 1020);
    total["completion_tokens_details"] = details;
    let body = Body::default()
        .bytes(1000, "")
        .texts(10, &["x"; 20])
        .finish("stop")
        .usage(total);
    let outcome = bare(&body);
    assert_eq!(
        figures(&outcome, TIMES),
        [Some(1010.0), Some(1010.0), Some(10.0)]
    );
    assert_eq!(
        figures(&outcome, COUNTS),
        [Some(20.0), Some(1020.0), Some(1000.0)]
    );
}

#[test]
fn impossible_counts_are_corrected() {
    let mut total = usage(9, 20);
    total["completion_tokens_details"] = json!({ "reasoning_tokens": 21 });
    let body = Body::default()
        .deltas(17, 10, &json!({ "reasoning_content": "hm" }))
        .texts(10, &["x"; 3])
        .finish("stop")
        .usage(total);
    let outcome = bare(&body);
    assert_eq!(
        (outcome.usage.reasoning, anomalies(&outcome)),
        (Some(20), vec![AnomalyKind::ReasoningAboveOutput])
    );
    assert_eq!(
        figures(&outcome, COUNTS),
        [Some(20.0), Some(20.0), Some(0.0)]
    );
    let zeros = Body::default().texts(10, &["a "; 10]).end(0, 0);
    let outcome = bare(&zeros);
    assert_eq!(
        anomalies(&outcome),
        [AnomalyKind::ZeroOutput, AnomalyKind::ZeroPrompt]
    );
    assert_eq!(
        figures(&outcome, [Metric::OutputTokens, Metric::PromptTokens]),
        [Some(10.0), None]
    );
    let negative = Body::default()
        .texts(10, &["a "; 10])
        .finish("stop")
        .usage(json!({ "prompt_tokens": 9, "completion_tokens": -1 }));
    let outcome = bare(&negative);
    assert_eq!(anomalies(&outcome), [AnomalyKind::InvalidCount]);
    assert_eq!(figures(&outcome, COUNTS), [Some(10.0), Some(10.0), None]);
}

#[test]
fn an_error_outside_of_events_is_the_failure() {
    let error = r#"{"error":{"message":"queue full","code":503}}"#;
    let pretty = "{\n  \"error\": {\n    \"message\": \"queue full\"\n  }\n}\n";
    for error in [error, pretty] {
        for body in [
            Body::default().bytes(10, error),
            Body::default().texts(10, &["a "; 5]).bytes(10, error),
            Body::default().bytes(10, ": ping\n\n").bytes(10, error),
        ] {
            let failure = read(&body).outcome.end.unwrap_err();
            assert_eq!(
                (failure.kind.name(), failure.message.as_str()),
                ("stream_error", "queue full")
            );
        }
    }
    let plain = Body::default()
        .texts(10, &["a"])
        .bytes(10, "upstream timed out");
    let failure = read(&plain).outcome.end.unwrap_err();
    assert_eq!(failure.kind.name(), "truncated");
    assert!(
        failure
            .message
            .ends_with("; the server sent: upstream timed out")
    );
}

#[test]
fn the_first_bytes_decide_where_the_content_type_is_wrong() {
    let body = Body::default().texts(10, &["a", "b", "c"]).end(9, 3);
    let expected = figures(&read(&body).outcome, TIMES);
    for content_type in [
        "text/plain; charset=utf-8",
        "application/octet-stream",
        "application/json",
    ] {
        let read = read_as(
            Api::OpenaiChat,
            content_type,
            &body,
            &ReasoningMarkers::Auto,
        );
        assert_eq!(
            read.outcome.end.as_ref().unwrap().reason,
            "stop",
            "{content_type}"
        );
        assert_eq!(figures(&read.outcome, TIMES), expected, "{content_type}");
    }
    let document = json!({ "choices": [{ "message": { "content": "hi" }, "finish_reason": "stop" }], "usage": usage(9, 1) });
    let body = Body::default().bytes(10, document.to_string());
    assert_eq!(
        read(&body).text.as_deref(),
        Some("hi"),
        "a document under `text/event-stream`"
    );
}

#[test]
fn reasoning_between_markers_is_no_answer() {
    let harmony = ["<|channel|>", "analysis", "<|message|>"];
    let answer = [
        "<|end|>",
        "<|start|>",
        "assistant",
        "<|channel|>",
        "final",
        "<|message|>",
        "yes",
    ];
    let think = [&["<think>"][..], &["hm "; 20], &["</think>", "yes"]].concat();
    let split = [
        &["<", "think", ">"][..],
        &["hm "; 18],
        &["</th", "ink>", "yes"],
    ]
    .concat();
    let closed = [&["hm "; 20][..], &["</think>", "yes"]].concat();
    let harmony = [&harmony[..], &["hm "; 20], &answer].concat();
    for texts in [think, split, closed, harmony] {
        let count = texts.len() as u64;
        let read = read(&Body::default().texts(10, &texts).end(9, count));
        let outcome = without_tokenizer(read.outcome);
        let last = 10.0 * count as f64;
        assert_eq!(
            figures(&outcome, TIMES),
            [Some(10.0), Some(last), Some(10.0)],
            "{texts:?}"
        );
        assert_eq!(anomalies(&outcome), [AnomalyKind::ReasoningMarkers]);
        let message = read.message.unwrap();
        assert_eq!(
            (
                message.content.as_str(),
                message.reasoning.starts_with("hm hm")
            ),
            ("yes", true),
            "{texts:?}"
        );
        assert_eq!(
            read.text,
            Some(texts.concat()),
            "the tokenizer counts the markers"
        );
    }
    let body = Body::default()
        .texts(10, &["<think>", "hm", "</think>", "yes"])
        .end(9, 4);
    let none = read_as(
        Api::OpenaiChat,
        "text/event-stream",
        &body,
        &ReasoningMarkers::None,
    );
    assert_eq!(figures(&none.outcome, [Metric::TimeToFirstAnswer]), [None]);
    assert_eq!(none.message.unwrap().content, "<think>hm</think>yes");
    for api in [Api::Ollama, Api::Tgi] {
        let lines: Vec<Value> = ["<think>", "hm", "</think>", "yes"]
            .iter()
            .map(|text| match api {
                Api::Ollama => json!({ "message": { "content": text }, "done": *text == "yes", "done_reason": "stop" }),
                _ => json!({ "token": { "text": text }, "generated_text": (*text == "yes").then_some("yes"), "details": { "finish_reason": "stop" } }),
            })
            .collect();
        let body = match api {
            Api::Ollama => lines.iter().fold(Body::default(), |body, line| {
                body.bytes(10, format!("{line}\n"))
            }),
            _ => lines
                .iter()
                .fold(Body::default(), |body, line| body.event(10, line)),
        };
        let content_type = if api == Api::Ollama {
            "application/x-ndjson"
        } else {
            "text/event-stream"
        };
        let read = read_as(api, content_type, &body, &ReasoningMarkers::Auto);
        assert_eq!(
            figures(&read.outcome, [Metric::TimeToFirstAnswer]),
            [Some(40.0)],
            "{api:?}"
        );
    }
}

#[test]
fn the_tokens_of_the_first_event_are_in_no_window() {
    let counted = |gap: u64, tokens: u64, text: &str| {
        let choice = json!({ "index": 0, "delta": { "content": text }, "finish_reason": null });
        (
            gap,
            json!({ "choices": [choice], "usage": usage(9, tokens) }),
        )
    };
    let first = counted(10, 20, &"x ".repeat(20));
    let rest = (21..=40).map(|tokens| counted(21, tokens, "x "));
    let body = std::iter::once(first)
        .chain(rest)
        .fold(Body::default(), |body, (gap, event)| {
            body.event(gap, &event)
        });
    let outcome = bare(&body.clone().end(9, 40));
    assert_eq!(figures(&outcome, [Metric::Tpot]), [Some(21.0)]);
    // A stop token without text after the last event.
    assert_eq!(
        figures(&bare(&body.end(9, 41)), [Metric::Tpot]),
        [Some(21.0)]
    );
    // The same without running usage, where the tokenizer counts the first event: " the" is one token.
    let texts = [" the".repeat(20)]
        .into_iter()
        .chain((0..20).map(|_| " the".to_owned()));
    let body = texts.fold(Body::default(), |body, text| {
        body.delta(21, json!({ "content": text }))
    });
    let counted = read(&body.clone().end(9, 40)).outcome;
    assert_eq!(counted.timeline.weights, [&[20][..], &[1; 20]].concat());
    assert_eq!(figures(&counted, [Metric::Tpot]), [Some(21.0)]);
}

#[test]
fn a_reply_of_reasoning_alone_has_no_answer() {
    let body = Body::default()
        .deltas(20, 10, &json!({ "reasoning": "hm " }))
        .finish("length")
        .usage(usage(9, 20));
    assert_eq!(figures(&bare(&body), TIMES), [Some(10.0), None, Some(10.0)]);
}

#[test]
fn a_repetition_of_the_whole_text_is_no_event() {
    let texts = ["The sky", " is blue", " because", " of scattering."];
    let whole = texts.concat();
    let body = || Body::default().texts(10, &texts);
    let expected = [Some(10.0), None, Some(10.0)];
    let message = json!({ "index": 0, "message": { "role": "assistant", "content": whole }, "finish_reason": "stop" });
    let delta = json!({ "index": 0, "delta": { "content": whole }, "finish_reason": "stop" });
    let apart = json!({ "index": 0, "delta": { "content": whole }, "finish_reason": null });
    for last in [message, delta, apart] {
        let read = read(&body().event(500, &json!({ "choices": [last] })).end(9, 4));
        let outcome = without_tokenizer(read.outcome);
        assert_eq!(figures(&outcome, TIMES), expected, "{last}");
        assert_eq!(
            anomalies(&outcome),
            [AnomalyKind::RepeatedMessage],
            "{last}"
        );
        assert_eq!(read.text.as_deref(), Some(whole.as_str()), "{last}");
    }
    // Equal tokens are no repetition.
    let read = read(&Body::default().texts(10, &["ha", "ha", "ha"]).end(9, 3));
    assert_eq!(
        (read.text.as_deref(), anomalies(&read.outcome)),
        (Some("hahaha"), vec![])
    );
}

#[test]
fn the_type_of_an_event_may_stand_in_its_name_alone() {
    let event = |name: &str, data: Value| format!("event: {name}\ndata: {data}\n\n");
    let anthropic = [
        event(
            "message_start",
            json!({ "message": { "id": "m", "usage": { "input_tokens": 9 } } }),
        ),
        event(
            "content_block_delta",
            json!({ "index": 0, "delta": { "text": "hi" } }),
        ),
        event(
            "message_delta",
            json!({ "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 1 } }),
        ),
        event("message_stop", json!({})),
    ];
    let responses = [
        event("response.created", json!({ "response": { "id": "r" } })),
        event("response.output_text.delta", json!({ "delta": "hi" })),
        event(
            "response.completed",
            json!({ "response": { "status": "completed", "usage": { "input_tokens": 9, "output_tokens": 1 } } }),
        ),
    ];
    for (api, events) in [
        (Api::Anthropic, &anthropic[..]),
        (Api::OpenaiResponses, &responses[..]),
    ] {
        let body = events
            .iter()
            .fold(Body::default(), |body, event| body.bytes(10, event));
        let read = read_as(api, "text/event-stream", &body, &ReasoningMarkers::Auto);
        assert!(read.outcome.end.is_ok(), "{api:?}: {:?}", read.outcome.end);
        assert_eq!(
            (
                read.text.as_deref(),
                read.outcome.usage.output,
                figures(&read.outcome, [Metric::Ttft])
            ),
            (Some("hi"), Some(1), [Some(20.0)]),
            "{api:?}"
        );
    }
}

/// Where a server reports its counts.
#[derive(Clone, Copy, Debug)]
enum Place {
    Top,
    WithFinish,
    Choice,
    Message,
    Groq,
    Metadata,
    Running,
}

/// Which field has the reasoning.
#[derive(Clone, Copy, Debug)]
enum Field {
    ReasoningContent,
    Reasoning,
    Both,
    Details,
    Parts,
    Markers,
}

/// A reply of `reasoning` and `answer` events, with its counts and its reasoning in these places.
fn reply(reasoning: usize, answer: usize, place: Place, field: Field) -> Body {
    let mut body = Body::default();
    let total = (reasoning + answer) as u64;
    for number in 0..reasoning + answer {
        let text = format!("w{number} ");
        let is_first = number == 0;
        let delta = match (number < reasoning, field) {
            (false, Field::Parts) => json!({ "content": [{ "type": "text", "text": text }] }),
            (false, Field::Markers) if number == reasoning && reasoning > 0 => {
                json!({ "content": format!("</think>{text}") })
            }
            (false, _) => json!({ "content": text }),
            (true, Field::ReasoningContent) => {
                json!({ "reasoning_content": text, "content": null })
            }
            (true, Field::Reasoning) => json!({ "reasoning": text, "content": "" }),
            (true, Field::Both) => json!({ "reasoning": text, "reasoning_content": text }),
            (true, Field::Details) => {
                json!({ "reasoning_details": [{ "type": "reasoning.text", "text": text }] })
            }
            (true, Field::Parts) => {
                json!({ "content": [{ "type": "thinking", "thinking": text }] })
            }
            (true, Field::Markers) if is_first => json!({ "content": format!("<think>{text}") }),
            (true, Field::Markers) => json!({ "content": text }),
        };
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        let mut event = json!({ "choices": [choice] });
        if let Place::Running = place {
            event["usage"] = usage(9, number as u64 + 1);
        }
        body = body.event(10 + number as u64, &event);
    }
    let mut choice = json!({ "index": 0, "delta": {}, "finish_reason": "stop" });
    let counts = usage(9, total);
    let metadata = json!({ "promptTokenCount": 9, "candidatesTokenCount": total, "totalTokenCount": 9 + total });
    let last = match place {
        Place::Top | Place::Running => return body.end(9, total),
        Place::WithFinish => json!({ "choices": [choice], "usage": counts }),
        Place::Groq => json!({ "choices": [choice], "x_groq": { "id": "q", "usage": counts } }),
        Place::Metadata => json!({ "choices": [choice], "usageMetadata": metadata }),
        Place::Choice => {
            choice["usage"] = counts;
            json!({ "choices": [choice] })
        }
        Place::Message => {
            choice["delta"] = json!({ "usage": counts });
            json!({ "choices": [choice] })
        }
    };
    body.event(0, &last).bytes(0, "data: [DONE]\n\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn figures_do_not_depend_on_the_form_of_the_reply(
        reasoning in 0usize..6,
        answer in 1usize..8,
        place in prop::sample::select(vec![Place::Top, Place::WithFinish, Place::Choice, Place::Message, Place::Groq, Place::Metadata, Place::Running]),
        field in prop::sample::select(vec![Field::ReasoningContent, Field::Reasoning, Field::Both, Field::Details, Field::Parts, Field::Markers]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let all = [Metric::Ttft, Metric::TimeToFirstAnswer, Metric::ReasoningTime, Metric::Tpot, Metric::OutputTokens, Metric::BilledTokens, Metric::HiddenTokens, Metric::PromptTokens];
        let expected = figures(&bare(&reply(reasoning, answer, Place::Top, Field::ReasoningContent)), all);
        let body = reply(reasoning, answer, place, field);
        prop_assert_eq!(figures(&bare(&body), all), expected);
        // Each piece in parts that arrive at the same time.
        let mut split = Body { now: body.now, pieces: Vec::new() };
        for (at, bytes) in &body.pieces {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            ends.extend([0, bytes.len()]);
            ends.sort_unstable();
            split.pieces.extend(ends.windows(2).map(|pair| (*at, bytes[pair[0]..pair[1]].to_vec())));
        }
        prop_assert_eq!(figures(&bare(&split), all), expected);
    }
}

#[test]
fn a_stream_under_another_content_type_is_read_by_the_program() {
    let server = Server::start(|s, number| {
        let content_type =
            ["text/plain", "application/octet-stream", "application/json"][number % 3];
        let reply = stream(&[TOKEN, TOKEN, FINISH, "[DONE]"], true);
        let reply = String::from_utf8(reply).unwrap();
        send(
            s,
            reply.replace("text/event-stream", content_type).as_bytes(),
        )
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 3)).expect(0);
    let case = &lab.results()["cases"][0];
    assert_eq!(case["counts"]["ok"], 3, "{case:#}");
    assert_eq!(case["metrics"]["ttft_ms"]["n"], 3, "{case:#}");
    assert_eq!(
        case["replies"]["anomalies"],
        json!({ "content_type": { "replies": 3, "largest": 0 } })
    );
    let note = "3 replies had no `content-type`, or one that does not fit the body.";
    assert_eq!(lab.text("out/report.md").matches(note).count(), 1);
}

#[test]
fn a_page_under_a_good_status_is_still_no_reply() {
    let server = Server::start(|s, _| {
        send(s, b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>")
    });
    let lab = Lab::new();
    lab.run(&plain(&server.url(), 3)).expect(3);
    let failures = &lab.results()["cases"][0]["failures"][0];
    assert_eq!(
        (&failures["kind"], &failures["count"]),
        (&json!("decode"), &json!(3))
    );
    let message = failures["message"].as_str().unwrap();
    assert!(
        message.starts_with("the response is `text/html`"),
        "{message}"
    );
}
