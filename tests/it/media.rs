//! Audio in, audio out, images out, and prompts as token ids, against the simulator, whose audio has a known length.

use crate::lab::*;
use serde_json::{Value, json};

const RELAXED: &str = "audit: { lag_p99: 10s, stall_p99: 10s, cpu: 100%, achieved: 1% }\n";

/// The metrics of a run of 4 requests, all of which succeed.
fn metrics(target: &str, rest: &str) -> Value {
    let lab = Lab::new();
    let ran = lab.run(&format!(
        "version: 1\nname: t\nseed: 7\ntarget: {{ {target} }}\n{rest}load: {{ concurrency: 2, requests: 4 }}\n{RELAXED}"
    ));
    ran.expect(0);
    let case = lab.results()["cases"][0].take();
    assert_eq!(case["counts"]["ok"], 4, "{}", case["failures"]);
    case["metrics"].clone()
}

/// The least and the greatest value of a metric of the 4 requests; null if there is none.
fn range(metrics: &Value, column: &str) -> Value {
    let metric = &metrics[column];
    if metric.is_null() {
        return Value::Null;
    }
    assert_eq!(metric["n"], 4, "{column}");
    json!([metric["min"], metric["max"]])
}

fn same(value: f64) -> Value {
    json!([value, value])
}

#[test]
fn a_transcription_has_text_and_the_duration_of_its_audio() {
    for (api, stream) in [
        ("openai-transcriptions", true),
        ("openai-transcriptions", false),
        ("openai-translations", true),
    ] {
        let target = format!("api: {api}, url: simulator, model: m, simulator: {{ alpha: 200us }}");
        let metrics = metrics(
            &target,
            &format!(
                "dataset: {{ kind: audio, seconds: 1.5 }}\nrequest: {{ max_tokens: 5, stream: {stream} }}\n"
            ),
        );
        assert_eq!(range(&metrics, "audio_duration_s"), same(1.5));
        // 50 prompt tokens per second of audio.
        assert_eq!(range(&metrics, "prompt_tokens"), same(75.0));
        assert_eq!(range(&metrics, "output_tokens"), same(5.0));
        let [e2e, rtf, rtfx] = [
            ("e2e_ms", "max"),
            ("rtf", "max"),
            ("rtfx_per_request", "min"),
        ]
        .map(|(column, stat)| metrics[column][stat].as_f64().unwrap());
        assert!((rtf - e2e / 1500.0).abs() < 1e-9, "{rtf} {e2e}");
        assert!((rtfx - 1.0 / rtf).abs() < 1e-6 * rtfx, "{rtfx} {rtf}");
        let [rtfx, per_second] =
            ["rtfx", "request_throughput"].map(|name| metrics[name].as_f64().unwrap());
        assert!((rtfx - 1.5 * per_second).abs() < 1e-6 * rtfx);
        for absent in ["ttfa_ms", "underruns", "underrun_time_ms", "items"] {
            assert_eq!(metrics[absent], Value::Null, "{absent}");
        }
        let events = if stream { same(5.0) } else { Value::Null };
        assert_eq!(range(&metrics, "events_per_reply"), events);
        assert_eq!(metrics["ttft_ms"].is_null(), !stream);
    }
}

#[test]
fn speech_has_a_first_byte_of_audio_a_duration_and_gaps_at_playback() {
    // 40 bytes are 10 tokens of text and 30 tokens of audio of 80 ms.
    let text = "dataset: { kind: prompt, text: abcdefghijabcdefghijabcdefghijabcdefghij }\n";
    let quick = "api: openai-speech, url: simulator, model: m, simulator: { alpha: 200us }";
    for (extra, tokens) in [
        ("{ voice: v }", Value::Null),
        ("{ response_format: wav }", Value::Null),
        ("{ stream_format: sse }", same(30.0)),
        ("{ response_format: wav, stream_format: sse }", same(30.0)),
    ] {
        let metrics = metrics(quick, &format!("{text}request: {{ extra: {extra} }}\n"));
        assert_eq!(range(&metrics, "audio_duration_s"), same(2.4), "{extra}");
        assert_eq!(range(&metrics, "output_tokens"), tokens, "{extra}");
        assert_eq!(metrics["ttft_ms"], Value::Null, "{extra}");
        let [first, end] = ["ttfa_ms", "e2e_ms"].map(|column| &metrics[column]["max"]);
        assert!(first.as_f64() < end.as_f64(), "{first} {end}");
    }
    // Three tokens of audio, one every 600 ms: the listener waits about 520 ms twice.
    let slow = "api: openai-speech, url: simulator, model: m, simulator: { alpha: 600ms }";
    let metrics = metrics(slow, "dataset: { kind: prompt, text: abcd }\n");
    assert_eq!(range(&metrics, "audio_duration_s"), same(0.24));
    assert_eq!(range(&metrics, "underruns"), same(2.0));
    assert!(metrics["underrun_time_ms"]["min"].as_f64() > Some(500.0));
}

#[test]
fn generated_images_are_counted() {
    let metrics = metrics(
        "api: openai-images, url: simulator, model: m, simulator: { alpha: 200us }",
        "dataset: { kind: prompt, text: A lighthouse }\nrequest: { n: 3 }\n",
    );
    assert_eq!(range(&metrics, "items"), same(3.0));
    let [images, requests] =
        ["item_throughput", "request_throughput"].map(|name| metrics[name].as_f64().unwrap());
    assert!((images - 3.0 * requests).abs() < 1e-6 * images);
    assert_eq!(
        (&metrics["output_tokens"], &metrics["ttft_ms"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn chat_takes_audio_and_video() {
    let target = "url: simulator, model: m, simulator: { alpha: 200us }";
    // The simulator counts 256 tokens for each medium, and a quarter of the bytes of the text.
    let audio = "dataset: { kind: audio, seconds: 0.1, text: What? }\nrequest: { max_tokens: 3 }\n";
    let audio = metrics(target, audio);
    assert_eq!(range(&audio, "prompt_tokens"), same(258.0));
    assert_eq!(range(&audio, "audio_duration_s"), same(0.1));
    let video = "dataset: { kind: video, sizes: 32x32, seconds: 1, text: What }\nrequest: { max_tokens: 3 }\n";
    let video = metrics(target, video);
    assert_eq!(range(&video, "prompt_tokens"), same(257.0));
    assert_eq!(video["audio_duration_s"], Value::Null);
}

#[test]
fn token_ids_have_the_exact_length() {
    let target = "api: openai-completions, url: simulator, model: m, simulator: { alpha: 200us }";
    let rest = "dataset: { kind: random, tokens: 777, shared_prefix: 500 }\nrequest: { max_tokens: 3, prompt: token_ids }\n";
    let metrics = metrics(target, rest);
    assert_eq!(range(&metrics, "prompt_tokens"), same(777.0));
    let lab = Lab::new();
    let file = lab.file(
        "t.yaml",
        format!("version: 1\nname: t\ntarget: {{ {target} }}\n{rest}load: {{ concurrency: 1, requests: 2 }}\n"),
    );
    let planned = lab.llmscen(&["plan", file.to_str().unwrap()]).expect(0);
    let (_, body) = planned.out.split_once("\"prompt\": [").unwrap();
    let (ids, _) = body.split_once(']').unwrap();
    let ids: Vec<u32> = ids
        .split(',')
        .map(|id| id.trim().parse().unwrap())
        .collect();
    assert_eq!(ids.len(), 777);
}

#[test]
fn unusable_media_are_errors_before_the_first_request() {
    let lab = Lab::new();
    lab.file("a.wav", "this is text");
    let scenario = |api: &str, rest: &str| {
        format!(
            "version: 1\nname: t\ntarget: {{ api: {api}, url: simulator }}\n{rest}load: {{ concurrency: 1, requests: 1 }}\n"
        )
    };
    let upload = "openai-transcriptions";
    for (api, rest, code, says) in [
        (
            upload,
            "dataset: { kind: audio, path: a.wav }\n",
            3,
            "a.wav is not an audio file: it has no header of WAV, MP3, FLAC, Ogg, MP4 or WebM",
        ),
        (
            upload,
            "dataset: openqa\n",
            2,
            "openai-transcriptions needs audio",
        ),
        (
            upload,
            "dataset: { kind: audio }\n",
            2,
            "`kind: audio` needs `seconds` or `path`",
        ),
        (
            "anthropic",
            "dataset: { kind: audio, seconds: 1 }\nrequest: { max_tokens: 1 }\n",
            2,
            "anthropic takes no audio",
        ),
        (
            "openai-completions",
            "dataset: { kind: video, sizes: 8x8 }\n",
            2,
            "openai-completions takes no videos",
        ),
        (
            "openai-chat",
            "dataset: { kind: random, tokens: 8 }\nrequest: { prompt: token_ids }\n",
            2,
            "Use `api: openai-completions`",
        ),
        (
            "openai-completions",
            "dataset: { kind: prompt, text: x }\nrequest: { prompt: token_ids }\n",
            2,
            "`prompt: token_ids` needs the tokenizer of the model",
        ),
        (
            "openai-chat",
            "dataset: { kind: prompt, text: x }\nslo: [rtf.p95 < 1]\n",
            2,
            "requests have no audio",
        ),
        (
            upload,
            "dataset: { kind: audio, seconds: 1 }\nslo: [underruns.max < 1]\n",
            2,
            "responses are no audio",
        ),
    ] {
        let file = lab.file("t.yaml", scenario(api, rest));
        let ran = lab.llmscen(&["plan", file.to_str().unwrap()]);
        assert!(ran.err.contains(says), "{rest}: {}", ran.err);
        assert_eq!(ran.code, code, "{rest}: {}", ran.err);
    }
}
