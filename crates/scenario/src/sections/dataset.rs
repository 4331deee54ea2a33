//! `dataset`: where the prompts come from.

use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::{
    Block, Default, Kind, Rule, conflicts_with, field, only_with, required_with, unused_with,
};
use crate::secrets::{behind_flags, looks_secret};
use crate::sections::{Draft, local};
use crate::tree::{Node, Part};
use crate::values::command::{COMMAND, command};
use crate::values::number::{QUANTITY, quantity, seed};
use crate::values::target::models;
use crate::values::text::{SIZES, sizes};
use crate::values::time::{DURATION, SPAN, WAIT, duration, wait};
use llmscen_core::api::Api;
use llmscen_core::dataset::{
    AudioSpec, CommandSpec, DatasetSpec, ImagesSpec, Layout, OnExhausted, Order, ShapeMode, Source,
    TextShape, TraceSpec, Turns, VideoSpec,
};
use llmscen_core::redact::Secret;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::is_secret_name;

const MOST: i64 = u32::MAX as i64;

/// The field is read for these kinds only.
const fn only_kinds(kinds: &'static [&'static str]) -> Rule {
    only_with(&["kind"], kinds)
        .reason("has no effect")
        .beside("this kind")
}

static PROMPT_TOKENS: Block = Block {
    doc: "Rows with other lengths are dropped and counted.",
    short: None,
    fields: &[
        field(
            "min",
            Kind::Whole(0, i64::MAX),
            "Minimum number of prompt tokens.",
        )
        .example("16"),
        field(
            "max",
            Kind::Whole(1, i64::MAX),
            "Maximum number of prompt tokens.",
        )
        .example("4096"),
    ],
};

const ORDER: Kind = Kind::Choice(
    &[
        ("sequential", "In the order of the file"),
        ("shuffle", "In an order drawn from the seed"),
    ],
    &[],
);

const ON_EXHAUSTED: Kind = Kind::Choice(
    &[
        ("cycle", "Start again from the first row"),
        (
            "stop",
            "End the round; a run that has objectives and sends fewer requests than `load.requests` is INCONCLUSIVE (exit code 5) instead of PASS",
        ),
        ("fail", "End the run with an error (exit code 3)"),
        ("error", "The same as `fail`"),
    ],
    &[],
);

pub(crate) static DATASET: Block = Block {
    doc: "The source of the prompts. `dataset: openqa` is short for `dataset: { kind: openqa }`.",
    short: Some("kind"),
    fields: &[
        field("kind", KIND, "The type of dataset.").required().example("openqa").rules(&[unused_with(&["target.api"], &["local"]).when("images").message("`api: local` supports text input only").reason("contains images").beside("a local model").help("Use a dataset without images.")]),
        field(
            "path",
            Kind::File,
            "The file: .jsonl, .json, .csv, .parquet or .txt; for `images` a folder, for `audio` and `video` a file or a folder. `builtin` is a small sample that ships with llmscen, for openqa, messages, sharegpt, embeddings, rerank and trace.",
        )
        .example("data/prompts.jsonl").rules(&[only_kinds(&["line_by_line", "openqa", "longalpaca", "rows", "messages", "sharegpt", "trace", "embeddings", "rerank", "images", "audio", "video"]), required_with(&["kind"], &["line_by_line", "rows", "messages", "sharegpt", "trace", "embeddings", "rerank"])]),
        field(
            "command",
            Kind::Leaf(&COMMAND),
            "`command`: the program and its arguments, as text that is split like in a shell, or as a list; no shell runs it. It prints one JSON object per line to stdout, with the columns of `rows`. Any other line, and an exit status other than 0, is an error. It is started once per run, read only as far as requests need rows, and stopped with the run. Warm-up, rounds and cases use its rows one after another like those of a file; `on_exhausted: cycle` sends the printed rows again. `LLMSCEN_SEED` and `LLMSCEN_MODEL` in its environment are `seed` and `target.model`.",
        )
        .example("python3 make_prompts.py --n 100").rules(&[only_kinds(&["command"]), required_with(&["kind"], &["command"])]),
        field("cwd", Kind::File, "`command`: its working directory; `.` is the folder of the scenario.")
            .defaults(Default::Where("kind", &["command"], "."))
            .example("tools").rules(&[only_kinds(&["command"])]),
        field("timeout", Kind::Leaf(&SPAN), "`command`: maximum time until its first row.")
            .defaults(Default::Where("kind", &["command"], "60s"))
            .example("5m").rules(&[only_kinds(&["command"])]),
        field("columns", Kind::Map(&Kind::Text), "The column of the file, or its dotted path, for each field that the kind reads.")
            .example("{ prompt: instruction }").rules(&[only_kinds(&["openqa", "longalpaca", "rows", "command", "messages", "sharegpt", "trace", "embeddings", "rerank"])]),
        field("text", Kind::Text, "`prompt`: the prompt, or `@file`. `images`, `video`: the text next to them. `audio`: the text next to it, none by default.")
            .defaults(Default::Where("kind", &["images", "video"], "Describe what you see."))
            .example("Write a haiku.").rules(&[only_kinds(&["prompt", "images", "audio", "video"]), required_with(&["kind"], &["prompt"])]),
        field("tokens", Kind::Leaf(&QUANTITY), "`random`: prompt length, a number or a distribution. `prefix`: length of the part after the shared prefix.")
            .example("1024").rules(&[only_kinds(&["random", "prefix"]), required_with(&["kind"], &["random", "prefix"])]),
        field("shared_prefix", Kind::Whole(0, MOST), "`random`: length of the prefix that all prompts share, in tokens.")
            .defaults(Default::Where("kind", &["random"], "0"))
            .example("256").rules(&[only_kinds(&["random"])]),
        field("groups", Kind::Whole(1, MOST), "`prefix`: number of groups of prompts with a shared prefix.").example("8").rules(&[only_kinds(&["prefix"]), required_with(&["kind"], &["prefix"])]),
        field("per_group", Kind::Whole(1, MOST), "`prefix`: prompts per group; unlimited by default.").example("50").rules(&[only_kinds(&["prefix"])]),
        field("prefix_tokens", Kind::Whole(1, MOST), "`prefix`: length of the shared prefix, in tokens.").example("2048").rules(&[only_kinds(&["prefix"]), required_with(&["kind"], &["prefix"])]),
        field("trace", Kind::Block(&TRACE), "`trace`: how the log is read.")
            .defaults(Default::Where("kind", &["trace"], "{}"))
            .example("{ layout: mooncake }").rules(&[only_kinds(&["trace"])]),
        field("batch", Kind::Whole(1, MOST), "`embeddings`: texts per request.")
            .defaults(Default::Where("kind", &["embeddings"], "1"))
            .example("16").rules(&[only_kinds(&["embeddings"])]),
        field("documents", Kind::Whole(1, MOST), "`rerank`: documents per request; by default all of the row.")
            .example("10").rules(&[only_kinds(&["rerank"])]),
        field("sizes", Kind::Leaf(&SIZES), "`images`, `video`: width and height of generated images or videos in pixels, used in turn.")
            .example("[512x512, [640, 480]]").rules(&[only_kinds(&["images", "video"]), conflicts_with(&["path"], &[]).reason("generated here").beside("files here").help("Keep one of the two."), required_with(&["kind", "path"], &["images", "video"])]),
        field("seconds", Kind::Number(0.001, 1800.0), "`audio`: duration of a generated sound in seconds, a tone with noise without speech. `video`: duration of a generated video.")
            .defaults(Default::Where("kind", &["video"], "2"))
            .example("5").rules(&[only_kinds(&["audio", "video"]), conflicts_with(&["path"], &[]).reason("generated here").beside("files here").help("Keep one of the two."), required_with(&["kind", "path"], &["audio"])]),
        field("count", Kind::Whole(1, 1000), "`images`: images per request.")
            .defaults(Default::Where("kind", &["images"], "1"))
            .example("2").rules(&[only_kinds(&["images"])]),
        field(
            "tokenizer",
            Kind::Hub,
            "A tokenizer.json, the folder of a model, or its name on the hub. Without it, or with `builtin`, token counts are approximate. With `api: local` the folder of the model is the default.",
        )
        .example("Qwen/Qwen2.5-7B-Instruct"),
        field("prompt_tokens", Kind::Block(&PROMPT_TOKENS), "Filter of prompt lengths.").example("{ min: 16, max: 4096 }"),
        field("shape", Kind::Block(&SHAPE), "Target length of texts.").example("{ tokens: 1024 }").rules(&[only_kinds(&["prompt", "line_by_line", "openqa", "longalpaca", "rows", "command", "messages", "sharegpt", "embeddings"])]),
        field("turns", Kind::Block(&TURNS), "Conversations with several turns; without it every row is one request.")
            .example("{ think_time: 2s }").rules(&[only_kinds(&["messages", "sharegpt", "rows", "command"])]),
        field("order", ORDER, "The order of rows.").default("sequential").example("shuffle").rules(&[conflicts_with(&["kind"], &["command"]).when("shuffle").reason("requires all rows in advance").help("Shuffle in the command: `LLMSCEN_SEED` in its environment is the seed of the run.")]),
        field("on_exhausted", ON_EXHAUSTED, "What happens after the last row.").default("cycle").example("stop"),
        field("strict", Kind::Bool, "An invalid row stops the run; otherwise it is reported, skipped and counted.")
            .default("false")
            .example("true"),
        field(
            "cache_bust",
            Kind::Bool,
            "Prepend a unique string to every prompt to defeat prefix caching, also across runs (`cache_seed`). Prompts of `random`, `prefix` and `speed_benchmark` are drawn again for each run instead, without a shared prefix.",
        )
        .default("false")
        .example("true"),
        field("system", Kind::Text, "A system message before each prompt.").example("You are terse."),
    ],
};

/// The dataset of a case. Reports contradictions.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<DatasetSpec> {
    let kind = draft.text("dataset.kind")?;
    check_protocol(draft, &kind, review);
    let min_tokens = draft.count("dataset.prompt_tokens.min");
    let max_tokens = draft.count("dataset.prompt_tokens.max");
    if let (Some(min), Some(max)) = (min_tokens, max_tokens)
        && min > max
    {
        let at = draft.get("dataset.prompt_tokens.min")?.at;
        review.push(Mistake::new(
            at,
            format!("empty length range: `min` {min} is greater than `max` {max}"),
            "is above `max`",
        ));
    }
    Some(DatasetSpec {
        path: match kind.as_ref() {
            "command" => decode_command(draft, review).map(|command| command.display()),
            _ => draft.file("dataset.path", review),
        },
        tokenizer: decode_tokenizer(draft, review),
        templated: draft.api().is_none_or(Api::takes_messages),
        one_text: draft.get("request.template").is_none()
            && draft.api().is_some_and(Api::takes_one_text),
        min_tokens,
        max_tokens,
        order: if draft.text("dataset.order")? == "shuffle" {
            Order::Shuffle
        } else {
            Order::Sequential
        },
        on_exhausted: match draft.text("dataset.on_exhausted")?.as_ref() {
            "stop" => OnExhausted::Stop,
            "fail" | "error" => OnExhausted::Fail,
            _ => OnExhausted::Cycle,
        },
        system: draft.string("dataset.system"),
        columns: draft
            .get("dataset.columns")
            .into_iter()
            .flat_map(Node::string_pairs)
            .collect(),
        // Accidental output of the program must not be dropped silently.
        strict: draft.flag("dataset.strict")? || kind == "command",
        cache_bust: draft.flag("dataset.cache_bust")?,
        cache_seed: draft.read("cache_seed", seed).map(Seed),
        shape: decode_shape(draft, review),
        token_ids: decode_token_ids(draft, &kind, review),
        turns: decode_turns(draft),
        ..DatasetSpec::new(decode_source(draft, &kind, review)?)
    })
}

/// Whether prompts are sent as token ids. Reports a missing tokenizer: the ids of another one are another text.
fn decode_token_ids(draft: &Draft<'_>, kind: &str, review: &mut Review) -> bool {
    if draft.text("request.prompt").as_deref() != Some("token_ids") {
        return false;
    }
    if kind != "random" && draft.get("dataset.tokenizer").is_none() {
        let mistake = Mistake::new(
            draft.key_span("request.prompt"),
            "`prompt: token_ids` needs the tokenizer of the model",
            "`dataset.tokenizer` is missing",
        );
        review.push(mistake.help(
            "Set `dataset.tokenizer` to the folder or the name of the model, or use `dataset.kind: random`.",
        ));
    }
    true
}

fn decode_command(draft: &Draft<'_>, review: &mut Review) -> Option<CommandSpec> {
    let words = draft.get("dataset.command").and_then(command)?;
    Some(CommandSpec {
        secrets: command_secrets(draft, &words),
        argv: words,
        cwd: draft.file("dataset.cwd", review)?,
        env: command_environment(draft),
        timeout: draft.read("dataset.timeout", duration)?,
    })
}

/// Secrets that error messages of a command must not show: the API key, and secrets in its words.
fn command_secrets(draft: &Draft<'_>, words: &[String]) -> Vec<Secret> {
    let node = draft.get("dataset.command");
    let parts = |node: &Node| {
        node.parts
            .iter()
            .flat_map(|parts| parts.iter().cloned())
            .collect::<Vec<_>>()
    };
    let items = node.map(Node::items).unwrap_or_default();
    let variable = |part: Part| match part {
        Part::Env { name, value } if is_secret_name(&name) => Some(value),
        _ => None,
    };
    let mut found: Vec<String> = node
        .into_iter()
        .chain(items)
        .flat_map(parts)
        .filter_map(variable)
        .collect();
    found.extend(behind_flags(words).into_iter().map(|(_, value)| value));
    found.extend(draft.string("target.api_key"));
    found.retain(|value| looks_secret(value));
    found.sort_by_key(|value| std::cmp::Reverse(value.len()));
    found.into_iter().map(Secret::new).collect()
}

fn decode_source(draft: &Draft<'_>, kind: &str, review: &mut Review) -> Option<Source> {
    let count = |key: &str| draft.count(&format!("dataset.{key}"));
    let tokens = || draft.read("dataset.tokens", quantity);
    let seconds = draft
        .read("dataset.seconds", Node::number)
        .map(Nanos::from_secs_f64);
    Some(match kind {
        "prompt" => Source::Prompt(files::at_file(draft.get("dataset.text")?, review)?),
        "line_by_line" => Source::LineByLine,
        "openqa" => Source::Openqa,
        "longalpaca" => Source::Longalpaca,
        "rows" => Source::Rows,
        "command" => Source::Command(decode_command(draft, review)?),
        "messages" => Source::Messages,
        "sharegpt" => Source::Sharegpt,
        "random" => Source::Random {
            tokens: tokens()?,
            shared_prefix: count("shared_prefix")?,
        },
        "prefix" => Source::Prefix {
            groups: count("groups")?,
            per_group: count("per_group"),
            prefix_tokens: count("prefix_tokens")?,
            tokens: tokens()?,
        },
        "speed_benchmark" => Source::SpeedBenchmark { long: false },
        "speed_benchmark_long" => Source::SpeedBenchmark { long: true },
        "trace" => Source::Trace(decode_log(draft, "dataset.trace", review)),
        "embeddings" => Source::Embeddings {
            batch: count("batch")?,
        },
        "rerank" => Source::Rerank {
            documents: count("documents"),
        },
        "audio" => Source::Audio(AudioSpec {
            duration: seconds,
            text: match draft.get("dataset.text") {
                Some(text) => Some(files::at_file(text, review)?),
                None => None,
            },
        }),
        "video" => Source::Video(VideoSpec {
            sizes: draft.read("dataset.sizes", sizes).unwrap_or_default(),
            duration: seconds.unwrap_or_default(),
            text: files::at_file(draft.get("dataset.text")?, review)?,
        }),
        _ => Source::Images(ImagesSpec {
            sizes: draft.read("dataset.sizes", sizes).unwrap_or_default(),
            count: count("count")?,
            text: files::at_file(draft.get("dataset.text")?, review)?,
        }),
    })
}

/// Environment variables of the command.
fn command_environment(draft: &Draft<'_>) -> Vec<(String, String)> {
    let seed = draft
        .count::<u64>("seed")
        .map(|seed| ("LLMSCEN_SEED".to_owned(), seed.to_string()));
    let model = draft
        .read("target.model", models)
        .and_then(|all| Some(all.into_iter().next()?.name));
    seed.into_iter()
        .chain(model.map(|model| ("LLMSCEN_MODEL".to_owned(), model)))
        .collect()
}

fn decode_tokenizer(draft: &Draft<'_>, review: &Review) -> Option<String> {
    let Some(node) = draft.get("dataset.tokenizer") else {
        return local::tokenizer(draft, review);
    };
    review.sources.find_or_hub(node.at.file, &node.text()?)
}

const KIND: Kind = Kind::Choice(
    &[
        ("prompt", "The same prompt for every request"),
        (
            "line_by_line",
            "A text file, one prompt per line: text, a JSON list of messages, or a JSON object as the whole body. A line of text is sent unchanged, without its line end; blank lines are skipped",
        ),
        (
            "openqa",
            "Rows with a `question`; downloaded once if there is no path",
        ),
        (
            "longalpaca",
            "Rows with an `instruction`; downloaded once if there is no path",
        ),
        ("rows", "Rows of any table, with `columns`"),
        (
            "command",
            "Rows that a command prints, one JSON object per line, like those of `rows`",
        ),
        ("messages", "OpenAI message lists"),
        ("sharegpt", "ShareGPT conversations"),
        ("random", "Random tokens, unique per request"),
        ("prefix", "Groups of prompts with a shared prefix"),
        (
            "speed_benchmark",
            "96, 2048, 6144, 14336 and 30720 prompt tokens, 2048 output tokens",
        ),
        (
            "speed_benchmark_long",
            "63488 and 129024 prompt tokens, 2048 output tokens",
        ),
        ("trace", "Logged requests with their arrival times"),
        ("embeddings", "Texts to embed"),
        ("rerank", "A query with documents to rank"),
        ("images", "Images with a text: generated, or from a folder"),
        (
            "audio",
            "Audio, uploaded or in a message: generated, or files",
        ),
        ("video", "Videos with a text: generated, or files"),
    ],
    &[],
);

/// Kinds that can provide a query with documents.
const RANKS: [&str; 4] = ["rerank", "rows", "command", "line_by_line"];

/// Reports data that the protocol does not support.
fn check_protocol(draft: &Draft<'_>, kind: &str, review: &mut Review) {
    let Some(api) = draft.api() else { return };
    let messages = [("dataset.system", "system"), ("dataset.turns", "turns")];
    let messages = messages
        .into_iter()
        .filter_map(|(path, key)| Some((draft.entry(path)?.key_at, key)));
    let pictures = draft
        .entry("dataset.kind")
        .filter(|_| kind == "images")
        .map(|entry| (entry.value.at, "images"));
    for (at, key) in messages.chain(pictures).filter(|_| !api.takes_messages()) {
        let verb = if key == "system" { "needs" } else { "need" };
        let mistake = Mistake::new(
            at,
            format!("`{key}` {verb} messages"),
            format!("{api} has none"),
        );
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(if key == "system" && api.generates() {
            mistake.help("Write it into `request.template`, before `{{ prompt }}`.")
        } else {
            mistake.help("Protocols with messages are openai-chat, openai-responses, anthropic, dashscope and ollama.")
        });
    }
    check_one_text(draft, kind, api, review);
    check_media(draft, kind, api, review);
    if api == Api::Rerank && draft.get("request.template").is_none() && !RANKS.contains(&kind) {
        let mistake = Mistake::new(
            draft.key_span("dataset.kind"),
            "rerank needs a query and documents",
            "gives prompts",
        );
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(mistake.help(
            "Use `kind: rerank` or `kind: rows`, or write a `request.template` for other data.",
        ));
    }
}

/// Reports audio and videos that the protocol does not take, and missing audio.
fn check_media(draft: &Draft<'_>, kind: &str, api: Api, review: &mut Review) {
    let in_messages = matches!(api, Api::OpenaiChat | Api::Custom);
    let (what, label, help) = match kind {
        "audio" if !in_messages && !api.uploads_audio() => (
            format!("{api} takes no audio"),
            "gives audio",
            "Protocols with audio are openai-transcriptions, openai-translations and openai-chat.",
        ),
        "video" if !in_messages => (
            format!("{api} takes no videos"),
            "gives videos",
            "Use `api: openai-chat`.",
        ),
        _ if kind != "audio" && api.uploads_audio() => (
            format!("{api} needs audio"),
            "gives prompts",
            "For example `dataset: { kind: audio, seconds: 5 }`, or `path` with a file or a folder.",
        ),
        _ => return,
    };
    let mistake = Mistake::new(draft.key_span("dataset.kind"), what, label);
    review.push(draft.also_api(mistake, "this protocol").help(help));
}

/// Reports message lists for protocols with a single text, which would drop all but the last message. A template decides
/// itself.
fn check_one_text(draft: &Draft<'_>, kind: &str, api: Api, review: &mut Review) {
    let columns = |key: &str| {
        draft
            .get("dataset.columns")
            .is_some_and(|columns| columns.entry(key).is_some())
    };
    let table = matches!(kind, "rows" | "command");
    let lists = kind == "messages" || table && columns("messages") && !columns("prompt");
    if !lists
        || api.takes_messages()
        || api == Api::Rerank
        || draft.get("request.template").is_some()
    {
        return;
    }
    let (at, what) = match kind {
        _ if table => (
            draft.key_span("dataset.columns"),
            "rows with `messages` need messages",
        ),
        _ => (
            draft.key_span("dataset.kind"),
            "`kind: messages` needs messages",
        ),
    };
    let mistake = draft.also_api(
        Mistake::new(at, what, format!("{api} takes one text")),
        "this protocol",
    );
    review.push(mistake.help(
        "Protocols with messages are openai-chat, openai-responses, anthropic, dashscope and ollama. In a `request.template`, `%p` is only the last message of the user.",
    ));
}

/// The column names of a log.
pub(crate) const LAYOUT: Kind = Kind::Choice(
    &[
        ("auto", "Detected from the columns"),
        (
            "mooncake",
            "JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`",
        ),
        (
            "azure",
            "CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`",
        ),
        (
            "burstgpt",
            "CSV: `Timestamp` (s), `Model`, `Request tokens`, `Response tokens`",
        ),
        (
            "workload",
            "JSONL: `timestamp`, `body`, `headers` (without those of the connection, and without a key if the target has one)",
        ),
    ],
    &[],
);

static TRACE: Block = Block {
    doc: "`kind: trace`: how the log is read.",
    short: None,
    fields: &[
        field("layout", LAYOUT, "Names of its columns.")
            .default("auto")
            .example("mooncake"),
        field(
            "start",
            Kind::Leaf(&DURATION),
            "Skip requests that arrived earlier than this, relative to the first one.",
        )
        .example("5m"),
        field(
            "end",
            Kind::Leaf(&SPAN),
            "Skip requests that arrived later than this.",
        )
        .example("10m"),
        field(
            "model_mapping",
            Kind::Map(&Kind::Text),
            "Maps model names of the log to names that requests use.",
        )
        .example("{ gpt-4: qwen2.5 }"),
        field(
            "match_output_length",
            Kind::Bool,
            "Request exactly the logged output length: `max_tokens`, `min_tokens`, `ignore_eos`.",
        )
        .default("false")
        .example("true"),
        field(
            "block_tokens",
            Kind::Whole(1, 1 << 20),
            "Tokens of a block of the prompt that has one of the `hash_ids`: 512 in Mooncake's logs, 16 in Bailian's. A log with more or fewer ids per prompt is refused.",
        )
        .default("512")
        .example("16")
        .rules(&[unused_with(
            &["dataset.trace.layout"],
            &["azure", "burstgpt", "workload"],
        )
        .reason("has no effect")
        .beside("this layout has no `hash_ids`")
        .help("Remove it.")]),
    ],
};

static SHAPE: Block = Block {
    doc: "Target length of texts.",
    short: None,
    fields: &[
        field(
            "tokens",
            Kind::Leaf(&QUANTITY),
            "Length in tokens, including the tokenizer's chat template.",
        )
        .required()
        .example("1024"),
        field(
            "mode",
            Kind::Choice(
                &[
                    ("exact", "Cut or extended to exactly that length"),
                    ("cap", "Cut if longer"),
                ],
                &[],
            ),
            "How.",
        )
        .default("exact")
        .example("cap"),
        field(
            "fill_from",
            Kind::File,
            "A text that extends short ones; by default the row's text is repeated.",
        )
        .example("data/book.txt"),
    ],
};

static TURNS: Block = Block {
    doc: "Conversations: the turns of a session are sent one after another, with the server's replies between them.",
    short: None,
    fields: &[
        field(
            "think_time",
            Kind::Leaf(&WAIT),
            "Time between a reply and the next turn, if the dataset does not have it.",
        )
        .example("2s"),
        field(
            "max",
            Kind::Whole(1, u32::MAX as i64),
            "Maximum number of turns of a session.",
        )
        .example("4"),
        field(
            "keep_reasoning",
            Kind::Bool,
            "Include the reasoning in the conversation.",
        )
        .default("false")
        .example("true")
        .rules(&[
            conflicts_with(&["target.api"], &["anthropic", "openai-responses"])
                .when("true")
                .reason("the protocol requires signed reasoning")
                .beside("this protocol")
                .help("Remove `keep_reasoning`: replies are sent back without their reasoning."),
        ]),
    ],
};

/// The trace settings at `path`, of which some keys may be absent. Reports an empty window.
pub(crate) fn decode_log(draft: &Draft<'_>, path: &str, review: &mut Review) -> TraceSpec {
    let node = |key: &str| draft.get(&format!("{path}.{key}"));
    let start = node("start").and_then(duration);
    let end = node("end").and_then(duration);
    if let (Some(from), Some(to), Some(at)) = (start, end, node("end"))
        && from >= to
    {
        let mistake = Mistake::new(
            at.at,
            "this window of the log is empty",
            "ends before it starts",
        );
        review.push(mistake.also(draft.key_span(&format!("{path}.start")), "starts here"));
    }
    TraceSpec {
        layout: match draft.text(&format!("{path}.layout")).as_deref() {
            Some("mooncake") => Layout::Mooncake,
            Some("azure") => Layout::Azure,
            Some("burstgpt") => Layout::Burstgpt,
            Some("workload") => Layout::Workload,
            _ => Layout::Auto,
        },
        start,
        end,
        model_mapping: node("model_mapping")
            .into_iter()
            .flat_map(Node::string_pairs)
            .collect(),
        match_output_length: draft
            .flag(&format!("{path}.match_output_length"))
            .unwrap_or(false),
        block_tokens: node("block_tokens")
            .and_then(Node::integer)
            .and_then(|tokens| u64::try_from(tokens).ok())
            .unwrap_or(TraceSpec::default().block_tokens),
    }
}

fn decode_shape(draft: &Draft<'_>, review: &Review) -> Option<TextShape> {
    Some(TextShape {
        tokens: draft.read("dataset.shape.tokens", quantity)?,
        mode: if draft.text("dataset.shape.mode").as_deref() == Some("cap") {
            ShapeMode::Cap
        } else {
            ShapeMode::Exact
        },
        fill_from: draft.file("dataset.shape.fill_from", review),
    })
}

fn decode_turns(draft: &Draft<'_>) -> Option<Turns> {
    draft.get("dataset.turns")?;
    Some(Turns {
        think_time: draft.read("dataset.turns.think_time", wait),
        max: draft.count("dataset.turns.max"),
        keep_reasoning: draft.flag("dataset.turns.keep_reasoning").unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_rank_exist() {
        let Kind::Choice(words, _) = KIND else {
            panic!("not a choice")
        };
        assert!(
            RANKS
                .iter()
                .all(|kind| words.iter().any(|(word, _)| word == kind))
        );
    }
}
