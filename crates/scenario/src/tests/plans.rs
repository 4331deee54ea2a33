//! How fields of a scenario are decoded.

use super::{load_with, messages, plan, reloaded};
use llmscen_core::api::Api;
use llmscen_core::dataset::{
    BeginAt, DatasetSpec, ImagesSpec, Layout, Replies, ShapeMode, Source, TextShape, TraceRows,
    TraceSpec, Turns,
};
use llmscen_core::distribution::Distribution;
use llmscen_core::load::{Arrival, AtLimit, MaxInFlight, Shape, Warmup};
use llmscen_core::plan::{Case, TraceFile};
use llmscen_core::quantity::Quantity;
use llmscen_core::request::{Done, Extract, ExtractUsage, Framing};
use llmscen_core::stage::{RateProfile, RateStage, UserStage};
use llmscen_core::target::{Compression, HttpVersion, TargetLocation};
use llmscen_core::units::Nanos;
use serde_json::json;

/// The single case of a scenario with these sections; its resolved text gives the same plan again.
fn case(target: &str, request: &str, dataset: &str, load: &str) -> Case {
    let plan = plan(&text(target, request, dataset, load));
    assert_eq!(plan, reloaded(&plan, &[]));
    plan.cases.into_iter().next().unwrap()
}

fn text(target: &str, request: &str, dataset: &str, load: &str) -> String {
    format!(
        "version: 1\nname: t\ntarget: {target}\nrequest: {request}\ndataset: {dataset}\nload: {load}\n"
    )
}

const ASK: &str = "{concurrency: 1, requests: 1}";

fn dataset(dataset: &str) -> DatasetSpec {
    case("{url: simulator}", "{}", dataset, ASK).dataset
}

fn seconds(n: u64) -> Nanos {
    Nanos::from_millis(n * 1000)
}

#[test]
fn every_protocol_works_with_the_simulator() {
    for api in Api::ALL.into_iter().filter(|api| *api != Api::Local) {
        let request = match api {
            Api::Anthropic => "{max_tokens: 5}",
            Api::Custom => "{template: {q: '%p'}, extract: {text: $.a}}",
            _ => "{}",
        };
        let path = if api == Api::Custom { "/v1/x" } else { "" };
        let data = match api {
            Api::Rerank => "{kind: rerank, path: builtin}",
            _ if api.uploads_audio() => "{kind: audio, seconds: 1}",
            _ => "openqa",
        };
        let case = case(
            &format!("{{api: {api}, url: simulator{path}}}"),
            request,
            data,
            ASK,
        );
        let TargetLocation::Simulator { path: found, .. } = &case.target.location else {
            panic!("{api}")
        };
        assert_eq!(
            (case.target.api, found.as_deref().unwrap_or("")),
            (api, path)
        );
        assert_eq!(case.request.stream, api.generates(), "{api}");
    }
}

#[test]
fn simulator_url_may_have_a_path_and_come_from_a_variable() {
    let case_of = |target: &str, env: &[(&str, &str)]| {
        let plan = load_with(&text(target, "{}", "openqa", ASK), env, &[])
            .unwrap()
            .plan;
        assert_eq!(plan, reloaded(&plan, &[]));
        plan.cases[0].target.clone()
    };
    let named = case_of(
        "{api: simulator, url: simulator/v1/x, simulator: {alpha: 1ms}}",
        &[],
    );
    let TargetLocation::Simulator { server, path } = named.location else {
        panic!()
    };
    assert_eq!(
        (named.api, server.alpha, path.as_deref()),
        (Api::OpenaiChat, Nanos::from_millis(1), Some("/v1/x"))
    );
    let either = "{url: \"${LLM_URL:-simulator}\", model: m, simulator: {alpha: 1ms}}";
    assert!(
        matches!(case_of(either, &[]).location, TargetLocation::Simulator { server,
            .. } if server.alpha == Nanos::from_millis(1))
    );
    let real = case_of(either, &[("LLM_URL", "http://h/v1/chat/completions")]);
    assert_eq!(
        real.location,
        TargetLocation::url("http://h/v1/chat/completions"),
        "the block was for the other case"
    );
}

#[test]
fn http_options_are_decoded() {
    let http = |http: &str| {
        let target = case(
            &format!("{{url: simulator, http: {http}}}"),
            "{}",
            "openqa",
            ASK,
        )
        .target;
        (target.version, target.compression)
    };
    assert_eq!(http("{}"), (HttpVersion::Auto, Compression::None));
    assert_eq!(
        http("{version: 2, compression: any}"),
        (HttpVersion::Http2, Compression::Any)
    );
    assert_eq!(
        http("{version: 1.1, compression: zstd}"),
        (HttpVersion::Http1, Compression::Zstd)
    );
    assert_eq!(
        http("{version: '2', compression: gzip}"),
        (HttpVersion::Http2, Compression::Gzip)
    );
}

#[test]
fn warning_shows_the_usual_path_of_the_protocol() {
    let yaml = text(
        "{api: ollama, url: \"http://h:1/v1\", model: a}",
        "{}",
        "openqa",
        ASK,
    );
    let warnings = load_with(&yaml, &[], &[]).unwrap().warnings;
    let want =
        "requests are posted to this URL unchanged; the usual path of `api: ollama` is /api/chat";
    assert_eq!(
        warnings
            .iter()
            .map(|warning| warning.message.as_str())
            .collect::<Vec<_>>(),
        [want]
    );
}

#[test]
fn extract_is_decoded() {
    let request = "{template: {q: '%p'}, extract: {framing: ndjson, text: [$.a, \"$['b']\"], \
    choice: $.i, usage: {prompt: $.p, output: $.o, reasoning: $.r, cached: $.c}, finish: $.f, id: \
    $.id, error: $.e, done: {path: $.done, equals: true}}}";
    let text = |text: &str| Some(text.to_owned());
    let extract = Extract {
        framing: Some(Framing::Ndjson),
        text: vec!["$.a".into(), "$['b']".into()],
        choice: text("$.i"),
        usage: ExtractUsage {
            prompt: text("$.p"),
            output: text("$.o"),
            reasoning: text("$.r"),
            cached: text("$.c"),
        },
        finish: text("$.f"),
        id: text("$.id"),
        error: text("$.e"),
        done: Some(Done::Value {
            path: "$.done".into(),
            equals: Some(json!(true)),
        }),
    };
    assert_eq!(
        case("{api: custom, url: simulator/x}", request, "openqa", ASK)
            .request
            .extract,
        Some(extract)
    );
}

#[test]
fn protocols_without_generation_are_not_streamed() {
    let yaml = text(
        "{url: simulator}",
        "{}",
        "{kind: embeddings, path: builtin}",
        ASK,
    );
    let swept = yaml + "matrix: {target.api: [openai-chat, openai-embeddings]}\n";
    let streams = |yaml: &str| {
        plan(yaml)
            .cases
            .iter()
            .map(|case| case.request.stream)
            .collect::<Vec<_>>()
    };
    assert_eq!(streams(&swept), [true, false]);
    assert_eq!(
        streams(&plan(&swept).resolved),
        [true, false],
        "the default that is spelled out there is no wish"
    );
    assert_eq!(
        messages(load_with(
            &swept.replace("request: {}", "request: {seed: 1}"),
            &[],
            &[]
        )),
        ["t.yaml:4:11 openai-embeddings has no `seed`"]
    );
}

#[test]
fn every_dataset_kind_is_decoded() {
    let tokens = Quantity::fixed(64);
    for (yaml, source) in [
        ("{kind: rows, path: builtin}", Source::Rows),
        ("{kind: messages, path: builtin}", Source::Messages),
        ("{kind: sharegpt, path: builtin}", Source::Sharegpt),
        (
            "{kind: random, tokens: 64}",
            Source::Random {
                tokens: tokens.clone(),
                shared_prefix: 0,
            },
        ),
        (
            "{kind: random, tokens: 64, shared_prefix: 16}",
            Source::Random {
                tokens: tokens.clone(),
                shared_prefix: 16,
            },
        ),
        (
            "{kind: prefix, groups: 4, per_group: 9, prefix_tokens: 512, tokens: 64}",
            Source::Prefix {
                groups: 4,
                per_group: Some(9),
                prefix_tokens: 512,
                tokens,
                zipf: None,
            },
        ),
        ("speed_benchmark", Source::SpeedBenchmark { long: false }),
        (
            "speed_benchmark_long",
            Source::SpeedBenchmark { long: true },
        ),
        (
            "{kind: trace, path: builtin}",
            Source::Trace(TraceSpec::default()),
        ),
        (
            "{kind: embeddings, path: builtin, batch: 8}",
            Source::Embeddings { batch: 8 },
        ),
        (
            "{kind: embeddings, path: builtin}",
            Source::Embeddings { batch: 1 },
        ),
        (
            "{kind: rerank, path: builtin, documents: 5}",
            Source::Rerank { documents: Some(5) },
        ),
        (
            "{kind: images, sizes: [512x512, [640, 480]], count: 2, text: What?}",
            Source::Images(ImagesSpec {
                sizes: vec![(512, 512), (640, 480)],
                count: 2,
                text: "What?".into(),
            }),
        ),
        (
            "{kind: images, path: ../../scenarios}",
            Source::Images(ImagesSpec {
                sizes: vec![],
                count: 1,
                text: "Describe what you see.".into(),
            }),
        ),
    ] {
        assert_eq!(dataset(yaml).source, source, "{yaml}");
    }
}

#[test]
fn the_rows_of_a_log_may_be_deltas() {
    let rows = |text: &str| {
        let load = "{concurrency: 1, sessions: 1}";
        match case("{url: simulator}", "{}", text, load).dataset.source {
            Source::Trace(TraceSpec { rows, .. }) => rows,
            other => panic!("{other:?}"),
        }
    };
    let trace = |settings: &str| format!("{{kind: trace, path: builtin, {settings}}}");
    assert_eq!(
        ["trace: {rows: whole}", "trace: {rows: delta}", "trace: {}"]
            .map(|settings| rows(&trace(&format!("turns: {{}}, {settings}")))),
        [Some(TraceRows::Whole), Some(TraceRows::Delta), None]
    );
}

#[test]
fn dataset_options_are_decoded() {
    let spec = dataset(
        "{kind: trace, path: builtin, strict: true, cache_bust: true, columns: {prompt: a.b}, \
         tokenizer: Qwen/Qwen2.5-7B, trace: {layout: burstgpt, start: 5s, end: 1m, model_mapping: \
         {a: b}, match_output_length: true}}",
    );
    let trace = TraceSpec {
        layout: Layout::Burstgpt,
        start: Some(seconds(5)),
        end: Some(seconds(60)),
        model_mapping: [("a".to_owned(), "b".to_owned())].into(),
        match_output_length: true,
        ignores_output: false,
        block_tokens: None,
        rows: None,
    };
    assert_eq!(
        (spec.source, spec.strict, spec.cache_bust),
        (Source::Trace(trace), true, true)
    );
    assert_eq!(
        (spec.columns, spec.tokenizer.as_deref()),
        (
            [("prompt".to_owned(), "a.b".to_owned())].into(),
            Some("Qwen/Qwen2.5-7B")
        )
    );
    let spec = dataset(
        "{kind: openqa, shape: {tokens: {uniform: [5, 9]}, mode: cap, fill_from: ../../README.md}}",
    );
    let shape = spec.shape.unwrap();
    assert!(
        shape
            .fill_from
            .as_deref()
            .is_some_and(|path| path.ends_with("/README.md")),
        "{shape:?}"
    );
    let tokens = Quantity::uniform(5, 9);
    assert_eq!(
        TextShape {
            fill_from: None,
            ..shape
        },
        TextShape {
            tokens,
            mode: ShapeMode::Cap,
            fill_from: None
        }
    );
    let plain = dataset("{kind: openqa, shape: {tokens: 5}}").shape.unwrap();
    assert_eq!(
        (plain.mode, dataset("openqa").turns),
        (ShapeMode::Exact, None)
    );
    let logged = |request: &str| {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator }}\ndataset: {{ kind: trace, path: \
            builtin }}\n{request}load: {{ trace: {{}} }}\n"
        );
        match plan(&text).cases[0].dataset.source.clone() {
            Source::Trace(trace) => trace.ignores_output,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        [logged(""), logged("request: { max_tokens: 5 }\n")],
        [false, true]
    );
}

#[test]
fn sessions_count_conversations() {
    let of = |turns: &str, load: &str| {
        case(
            "{url: simulator}",
            "{}",
            &format!("{{kind: sharegpt, path: builtin, turns: {turns}}}"),
            load,
        )
    };
    let all = of(
        "{think_time: {uniform: [1s, 3s]}, max: 4, keep_reasoning: true, max_idle: 2s}",
        "{concurrency: 2, sessions: 3x, warmup: 1x}",
    );
    let waits = of(
        "{think_time: 60s}",
        "{concurrency: 2, sessions: 4, max_idle: 10s}",
    );
    assert_eq!(waits.load.max_idle, Some(seconds(10)));
    let turns = Turns {
        think_time: Some(Distribution::uniform(seconds(1).0, seconds(3).0)),
        max: Some(4),
        keep_reasoning: true,
        max_idle: Some(seconds(2)),
        ..Turns::default()
    };
    assert_eq!(
        (all.dataset.turns, all.load.requests, all.load.warmup),
        (Some(turns), Some(6), Warmup::Requests(2))
    );
    let begun = |begin: &str| {
        let turns = format!("{{replies: recorded, begin: {begin}}}");
        of(&turns, "{concurrency: 1, sessions: 1}").dataset.turns
    };
    let recorded = |low, high| {
        Some(Turns {
            replies: Replies::Recorded,
            begin: Some(BeginAt { low, high }),
            ..Turns::default()
        })
    };
    assert_eq!(begun("{uniform: [25%, 75%]}"), recorded(0.25, 0.75));
    assert_eq!(begun("0.5"), recorded(0.5, 0.5));
    let timed = of("{}", "{rate: 2/s, duration: 5s}");
    assert_eq!(
        (timed.dataset.turns, timed.load.requests),
        (Some(Turns::default()), None)
    );
}

#[test]
fn a_limit_of_requests_in_flight_drops_or_holds() {
    let limit = |value: &str| {
        let load = format!("{{rate: 1/s, duration: 9s, max_in_flight: {value}}}");
        case("{url: simulator}", "{}", "openqa", &load)
            .load
            .max_in_flight
    };
    let dropping = Some(MaxInFlight {
        of: 9,
        then: AtLimit::Drop,
    });
    assert_eq!(
        [limit("9"), limit("{of: 9}"), limit("{of: 9, then: drop}")],
        [dropping; 3]
    );
    let holding = MaxInFlight {
        of: 9,
        then: AtLimit::Hold,
    };
    assert_eq!(limit("{of: 9, then: hold}"), Some(holding));
    for bad in [
        "0",
        "[9]",
        "{then: hold}",
        "{of: 9, then: wait}",
        "{of: 9, than: hold}",
    ] {
        let scenario = format!(
            "version: 1\nname: t\ntarget: {{url: simulator}}\ndataset: openqa\n\
             load: {{rate: 1/s, duration: 9s, max_in_flight: {bad}}}\n"
        );
        let found = messages(load_with(&scenario, &[], &[]));
        assert!(
            found[0].contains("`max_in_flight` must be a number of requests"),
            "{bad}: {found:?}"
        );
    }
}

#[test]
fn replay_uses_the_arrivals_of_the_dataset_or_of_a_file() {
    let own = case(
        "{url: simulator}",
        "{}",
        "{kind: trace, path: builtin}",
        "{trace: {}, max_in_flight: 9}",
    );
    assert_eq!(
        (own.load.shape, own.trace, own.load.requests),
        (Shape::Replay { speed: 1.0 }, None, None)
    );
    let load =
        "{trace: {path: Cargo.toml, speed: 2, layout: azure, start: 1s, end: 9s}, requests: 5}";
    let file = case("{url: simulator}", "{}", "openqa", load);
    assert_eq!(
        (file.load.shape, file.load.requests),
        (Shape::Replay { speed: 2.0 }, Some(5))
    );
    let Some(TraceFile { path, spec }) = file.trace else {
        panic!("no file")
    };
    let window = TraceSpec {
        layout: Layout::Azure,
        start: Some(seconds(1)),
        end: Some(seconds(9)),
        ..TraceSpec::default()
    };
    assert!(path.ends_with("/Cargo.toml"), "{path}");
    assert_eq!(spec, window);
}

#[test]
fn stages_and_batches_are_decoded() {
    let of = |load: &str| case("{url: simulator}", "{}", "openqa", load).load;
    let open = of(
        "{stages: [{rate: 0/s -> 8/s, for: 9s}, {rate: {sine: {mean: 60/m, amplitude: 1/s, \
        period: 3s}}, for: 1s}], arrivals: constant, requests: 7}",
    );
    let ramp = RateStage {
        rate: RateProfile::Ramp { from: 0.0, to: 8.0 },
        span: seconds(9),
    };
    let wave = RateStage {
        rate: RateProfile::Sine {
            mean: 1.0,
            amplitude: 1.0,
            period: seconds(3),
        },
        span: seconds(1),
    };
    assert_eq!(
        open.shape,
        Shape::Rates {
            stages: [ramp, wave].into(),
            arrival: Arrival::Constant
        }
    );
    assert_eq!(
        (open.requests, open.duration, open.sending_duration()),
        (Some(7), None, Some(seconds(10)))
    );
    let closed =
        of("{stages: [{concurrency: 4, for: 9s}, {concurrency: 4 -> 64, for: 1s}], duration: 5s}");
    let stages = [(4, 4, 9), (4, 64, 1)].map(|(from, to, secs)| UserStage {
        from,
        to,
        span: seconds(secs),
    });
    assert_eq!(
        (closed.shape, closed.duration),
        (
            Shape::Users {
                stages: stages.into()
            },
            Some(seconds(5))
        )
    );
    let batches = of("{static: {batch: 16, rounds: 10}, warmup: 2x}");
    assert_eq!(
        (batches.shape, batches.requests, batches.warmup),
        (Shape::Static { batch: 16 }, Some(160), Warmup::Requests(32))
    );
    let flowing = of("{static: {batch: 16, rounds: 10, barrier: none}, warmup: 5s}");
    assert_eq!(
        (flowing.shape, flowing.requests),
        (Shape::Closed { users: 16 }, Some(160))
    );
    assert_eq!(
        of("{concurrency: 4, spread: 10s, requests: 1x}").spread,
        seconds(10)
    );
}

#[test]
fn pause_is_not_a_case_but_takes_its_time() {
    let of = |load: &str| case("{url: simulator}", "{}", "openqa", load);
    let stages = |load: &str| -> Vec<(String, u64, u64)> {
        let stages = of(load).stages().into_iter();
        stages
            .map(|stage| {
                (
                    stage.case.id,
                    stage.from.0 / 1_000_000_000,
                    stage.until.0 / 1_000_000_000,
                )
            })
            .collect()
    };
    let known = [
        ("base/stage=1".to_owned(), 0, 2),
        ("base/stage=3".to_owned(), 5, 6),
    ];
    assert_eq!(
        stages("{stages: [{rate: 8/s, for: 2s}, {rate: 0/s, for: 3s}, {rate: 1/s, for: 1s}]}"),
        known
    );
    assert_eq!(
        stages(
            "{stages: [{concurrency: 8, for: 2s}, {concurrency: 0, for: 3s}, {concurrency: 1, for: 1s}]}"
        ),
        known
    );
}

#[test]
fn command_dataset_has_seed_and_model_in_its_environment() {
    let source = case(
        "{url: simulator, model: m}",
        "{}",
        "{kind: command, command: \"gen --n 5\"}",
        "{concurrency: 1, requests: 1}",
    )
    .dataset;
    let Source::Command(command) = &source.source else {
        panic!("{source:?}")
    };
    assert_eq!(command.argv, ["gen", "--n", "5"]);
    assert_eq!(
        command.env,
        [
            ("LLMSCEN_SEED".to_owned(), "42".to_owned()),
            ("LLMSCEN_MODEL".to_owned(), "m".to_owned())
        ]
    );
    assert_eq!(
        (command.timeout, source.strict, source.path.as_deref()),
        (seconds(60), true, Some("gen --n 5"))
    );
}

#[test]
fn labels_are_values_of_the_run_and_not_of_its_plan() {
    let base = text("{url: simulator}", "{}", "openqa", ASK);
    let with = |labels: &str, commit: &str| {
        let env = [("GIT_COMMIT", commit), ("API_KEY", "sk-hush-hush")];
        let loaded = load_with(&format!("{base}labels: {labels}\n"), &env, &[]);
        loaded.unwrap_or_else(|faults| panic!("{}", faults.render(false, 100)))
    };
    let labels = "{ commit: \"${GIT_COMMIT}\", image: a b, key: \"k ${API_KEY}\" }";
    let numbers = with(labels, "0012345").plan;
    let own: Vec<(&str, &str)> = numbers
        .labels
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        own,
        [
            ("commit", "0012345"),
            ("image", "a b"),
            ("key", "k ${API_KEY}")
        ]
    );
    let again = reloaded(&numbers, &[("API_KEY", "other")]);
    assert_eq!(again.labels, numbers.labels);
    assert!(!numbers.resolved.contains("hush"));
    assert_eq!(
        [&numbers.id, &with(labels, "8a1b2c3").plan.id],
        [&plan(&base).id; 2]
    );
    let several = messages(load_with(
        &format!("{base}labels: {{ a: [1, 2] }}\n"),
        &[],
        &[],
    ));
    assert!(several[0].ends_with("`a` must be text"), "{several:?}");
}
