//! `dataset`: where the prompts come from.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::{
    Block, Default, Kind, Rule, conflicts_with, field, one_of, only_with, required_with, requires,
    unused_with,
};
use crate::secrets::{behind_flags, looks_secret};
use crate::sections::{local, remote_data};
use crate::tree::{Node, Part};
use crate::values::command::{COMMAND, command};
use crate::values::distribution::{PAIRS, POPULARITY, QUANTITY, WAIT, pairs, quantity, wait, zipf};
use crate::values::number::{SHARE_RANGE, seed, share_range};
use crate::values::target::models;
use crate::values::text::{ITEM, SIZES, item, sizes};
use crate::values::time::{DURATION, SPAN, duration};
use llmscen_core::api::{Api, SPEECH_RATE};
use llmscen_core::dataset::{
    AtLimit, AudioSpec, BeginAt, CommandSpec, ContextLimit, DatasetSpec, Generated,
    GeneratedSessions, ImagesSpec, Layout, OnExhausted, Order, Replies, SentHistory, ShapeMode,
    Source, TextShape, TraceRows, TraceSpec, Turns, VideoSpec,
};
use llmscen_core::distribution::{Bin, Distribution, Family, Weighted};
use llmscen_core::quantity::Quantity;
use llmscen_core::redact::Secret;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::is_secret_name;

const MOST: i64 = u32::MAX as i64;

/// Mean turns of a generated session: all of them are planned before its first request.
const MAX_TURNS: f64 = 100_000.0;

/// Kinds that read data of the hub.
const HUB_KINDS: [&str; 8] = [
    "line_by_line",
    "openqa",
    "longalpaca",
    "rows",
    "messages",
    "sharegpt",
    "embeddings",
    "rerank",
];

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
            "End the round; a run that has objectives and sends fewer requests than \
            `load.requests` is INCONCLUSIVE (exit code 5) instead of PASS",
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
        field("kind", KIND, "The type of dataset.")
            .required()
            .example("openqa")
            .rules(&[unused_with(&["target.api"], &["local"])
                .when("images")
                .message("`api: local` supports text input only")
                .reason("contains images")
                .beside("a local model")
                .help("Use a dataset without images.")]),
        field(
            "path",
            Kind::Data,
            "The file: .jsonl, .json, .csv, .parquet or .txt; for `images` a folder, \
            for `audio` and `video` a file or a folder. `hub:org/name/file.parquet` \
            is a file of a dataset on the Hugging Face hub, `hub:org/name` its rows \
            by `subset` and `split`. A URL is a file that is downloaded once; the \
            stored plan has its checksum. `builtin` is a small sample that ships with \
            llmscen, for openqa, messages, sharegpt, embeddings, rerank and trace.",
        )
        .example("data/prompts.jsonl")
        .rules(&[
            only_kinds(&[
                "line_by_line",
                "openqa",
                "longalpaca",
                "rows",
                "messages",
                "sharegpt",
                "trace",
                "embeddings",
                "rerank",
                "images",
                "audio",
                "video",
            ]),
            required_with(
                &["kind"],
                &[
                    "line_by_line",
                    "rows",
                    "messages",
                    "sharegpt",
                    "trace",
                    "embeddings",
                    "rerank",
                ],
            ),
        ]),
        field(
            "subset",
            Kind::Text,
            "`path: hub:org/name`: the subset (configuration) of the \
        dataset; by default the one that the dataset declares as default, or the only one.",
        )
        .example("main")
        .rules(&[only_kinds(&HUB_KINDS)]),
        field(
            "split",
            Kind::Text,
            "`path: hub:org/name`: the split; by default the only one.",
        )
        .example("test")
        .rules(&[only_kinds(&HUB_KINDS)]),
        field(
            "revision",
            Kind::Text,
            "`path: hub:…`: branch, tag or commit; by default `main`. \
        The stored plan has the commit and the checksum of each file.",
        )
        .example("v1.0")
        .rules(&[only_kinds(&HUB_KINDS)]),
        field(
            "group",
            Kind::Leaf(&ITEM),
            "The column of the row, or its dotted path, \
        after `item.`: its value is the `group` of the request, for results per group \
        and objectives such as `ttft{group=math}.p95 < 500ms`. A row without a value \
        there is invalid (`strict`).",
        )
        .example("item.category")
        .rules(&[only_kinds(&[
            "openqa",
            "longalpaca",
            "rows",
            "command",
            "messages",
            "sharegpt",
            "rerank",
        ])]),
        field(
            "command",
            Kind::Leaf(&COMMAND),
            "`command`: the program and its arguments, as text that is split like in \
            a shell, or as a list; no shell runs it. It prints one JSON object per \
            line to stdout, with the columns of `rows`. Any other line, and an exit \
            status other than 0, is an error. It is started once per run, read only \
            as far as requests need rows, and stopped with the run. Warm-up, rounds \
            and cases use its rows one after another like those of a file; \
            `on_exhausted: cycle` sends the printed rows again. `LLMSCEN_SEED` and \
            `LLMSCEN_MODEL` in its environment are `seed` and `target.model`.",
        )
        .example("python3 make_prompts.py --n 100")
        .rules(&[
            only_kinds(&["command"]),
            required_with(&["kind"], &["command"]),
        ]),
        field(
            "cwd",
            Kind::File,
            "`command`: its working directory; `.` is the folder \
        of the scenario.",
        )
        .defaults(Default::Where("kind", &["command"], "."))
        .example("tools")
        .rules(&[only_kinds(&["command"])]),
        field(
            "timeout",
            Kind::Leaf(&SPAN),
            "`command`: maximum time until its first row.",
        )
        .defaults(Default::Where("kind", &["command"], "60s"))
        .example("5m")
        .rules(&[only_kinds(&["command"])]),
        field(
            "columns",
            Kind::Map(&Kind::Text),
            "The column of the file, or its \
        dotted path, for each field that the kind reads.",
        )
        .example("{ prompt: instruction }")
        .rules(&[only_kinds(&[
            "openqa",
            "longalpaca",
            "rows",
            "command",
            "messages",
            "sharegpt",
            "trace",
            "embeddings",
            "rerank",
        ])]),
        field(
            "text",
            Kind::Text,
            "`prompt`: the prompt, or `@file`. `images`, `video`: the text \
        next to them. `audio`: the text next to it, none by default.",
        )
        .defaults(Default::Where(
            "kind",
            &["images", "video"],
            "Describe what you see.",
        ))
        .example("Write a haiku.")
        .rules(&[
            only_kinds(&["prompt", "images", "audio", "video"]),
            required_with(&["kind"], &["prompt"]),
        ]),
        field(
            "tokens",
            Kind::Leaf(&QUANTITY),
            "`random`: prompt length, a number or a \
        distribution. `prefix`: length of the part after the shared prefix.",
        )
        .example("1024")
        .rules(&[
            only_kinds(&["random", "prefix"]),
            required_with(&["kind", "lengths"], &["random", "prefix"]),
            one_of(&["tokens", "lengths"], "a length here").help("Keep one of them."),
        ]),
        field(
            "lengths",
            Kind::Leaf(&PAIRS),
            "`random`, `prefix`: a table of prompt \
        and output lengths that belong together, in place of `tokens` and \
        `request.max_tokens`. Each request draws a row: `pairs: [[input, output], \
        …]`, with a third number as weight, or a CSV `file` with its columns `input` \
        and `output`.",
        )
        .example("{ pairs: [[100, 20], [4000, 300]] }")
        .rules(&[
            only_kinds(&["random", "prefix"]),
            one_of(&["tokens", "lengths"], "pairs of lengths here").help("Keep one of them."),
            conflicts_with(&["request.max_tokens"], &[])
                .reason("sets the output length of each request")
                .beside("has no effect")
                .help("Remove `request.max_tokens`."),
        ]),
        field(
            "system_tokens",
            Kind::Whole(1, MOST),
            "`random`, `prefix`: length of a generated \
        system message that all sessions share.",
        )
        .example("800")
        .rules(&[
            only_kinds(&["random", "prefix"]),
            conflicts_with(&["system"], &[])
                .reason("a generated system message here")
                .beside("a system message here")
                .help("Keep one of them."),
            conflicts_with(&["cache_bust"], &["true"])
                .reason("all sessions share this message")
                .beside("no two prompts share their start")
                .help("Keep one of them."),
        ]),
        field(
            "context_tokens",
            Kind::Leaf(&QUANTITY),
            "`random`, `prefix`: tokens in front of \
        the first user message, of each session its own, such as documents or code. They add to \
        `tokens`.",
        )
        .example("{ lognormal: { mean: 8000, sd: 6000 }, max: 60000 }")
        .rules(&[only_kinds(&["random", "prefix"])]),
        field(
            "shared_prefix",
            Kind::Whole(0, MOST),
            "`random`: length of the prefix that all \
        prompts share, in tokens.",
        )
        .defaults(Default::Where("kind", &["random"], "0"))
        .example("256")
        .rules(&[only_kinds(&["random"])]),
        field(
            "groups",
            Kind::Whole(1, MOST),
            "`prefix`: number of groups of prompts with a \
        shared prefix.",
        )
        .example("8")
        .rules(&[
            only_kinds(&["prefix"]),
            required_with(&["kind"], &["prefix"]),
        ]),
        field(
            "per_group",
            Kind::Whole(1, MOST),
            "`prefix`: prompts per group; unlimited by \
        default.",
        )
        .example("50")
        .rules(&[only_kinds(&["prefix"])]),
        field(
            "popularity",
            Kind::Leaf(&POPULARITY),
            "`prefix`: how often each group \
        is used. `{ zipf: s }` draws the group of each prompt with probability \
        proportional to 1 / rank^s; by default the groups alternate.",
        )
        .example("{ zipf: 1.1 }")
        .rules(&[
            only_kinds(&["prefix"]),
            conflicts_with(&["per_group"], &[])
                .reason("groups have different numbers of prompts")
                .beside("the same number per group")
                .help("Keep one of them."),
            conflicts_with(&["order"], &["shuffle"])
                .reason("the groups are drawn")
                .beside("has no effect")
                .help("Remove `order`."),
        ]),
        field(
            "prefix_tokens",
            Kind::Whole(1, MOST),
            "`prefix`: length of the shared prefix, in \
        tokens.",
        )
        .example("2048")
        .rules(&[
            only_kinds(&["prefix"]),
            required_with(&["kind"], &["prefix"]),
        ]),
        field(
            "trace",
            Kind::Block(&TRACE),
            "`trace`: how the log is read.",
        )
        .defaults(Default::Where("kind", &["trace"], "{}"))
        .example("{ layout: mooncake }")
        .rules(&[only_kinds(&["trace"])]),
        field(
            "batch",
            Kind::Whole(1, MOST),
            "`embeddings`: texts per request.",
        )
        .defaults(Default::Where("kind", &["embeddings"], "1"))
        .example("16")
        .rules(&[only_kinds(&["embeddings"])]),
        field(
            "documents",
            Kind::Whole(1, MOST),
            "`rerank`: documents per request; by \
        default all of the row.",
        )
        .example("10")
        .rules(&[only_kinds(&["rerank"])]),
        field(
            "sizes",
            Kind::Leaf(&SIZES),
            "`images`, `video`: width and height of generated \
        images or videos in pixels, used in turn.",
        )
        .example("[512x512, [640, 480]]")
        .rules(&[
            only_kinds(&["images", "video"]),
            conflicts_with(&["path"], &[])
                .reason("generated here")
                .beside("files here")
                .help("Keep one of the two."),
            required_with(&["kind", "path"], &["images", "video"]),
        ]),
        field(
            "seconds",
            Kind::Number(0.001, 1800.0),
            "`audio`: duration of a generated sound in \
        seconds, a tone with noise without speech. `video`: duration of a generated video.",
        )
        .defaults(Default::Where("kind", &["video"], "2"))
        .example("5")
        .rules(&[
            only_kinds(&["audio", "video"]),
            conflicts_with(&["path"], &[])
                .reason("generated here")
                .beside("files here")
                .help("Keep one of the two."),
            required_with(&["kind", "path"], &["audio"]),
        ]),
        field(
            "count",
            Kind::Whole(1, 1000),
            "`images`: images per request.",
        )
        .defaults(Default::Where("kind", &["images"], "1"))
        .example("2")
        .rules(&[only_kinds(&["images"])]),
        field(
            "tokenizer",
            Kind::Hub,
            "A tokenizer.json, the folder of a model, or its name on the hub. Without \
            it, or with `builtin`, token counts are approximate. With `api: local` \
            the folder of the model is the default.",
        )
        .example("Qwen/Qwen2.5-7B-Instruct"),
        field(
            "prompt_tokens",
            Kind::Block(&PROMPT_TOKENS),
            "Filter of prompt lengths.",
        )
        .example("{ min: 16, max: 4096 }"),
        field("shape", Kind::Block(&SHAPE), "Target length of texts.")
            .example("{ tokens: 1024 }")
            .rules(&[only_kinds(&[
                "prompt",
                "line_by_line",
                "openqa",
                "longalpaca",
                "rows",
                "command",
                "messages",
                "sharegpt",
                "embeddings",
            ])]),
        field(
            "turns",
            Kind::Block(&TURNS),
            "Conversations with several turns; without it every \
        row is one request. `trace`: requests of a session are its turns; each has its whole \
        logged prompt and is sent after the requests that it awaited in the log. With \
        `openai-completions` and `tgi` a conversation is one text, whose messages are separated \
        by line breaks.",
        )
        .example("{ think_time: 2s }")
        .rules(&[only_kinds(&[
            "messages", "sharegpt", "rows", "command", "random", "prefix", "trace",
        ])]),
        field("order", ORDER, "The order of rows.")
            .default("sequential")
            .example("shuffle")
            .rules(&[conflicts_with(&["kind"], &["command"])
                .when("shuffle")
                .reason("requires all rows in advance")
                .help(
                    "Shuffle in the command: `LLMSCEN_SEED` in its environment is the \
            seed of the run.",
                )]),
        field(
            "on_exhausted",
            ON_EXHAUSTED,
            "What happens after the last row.",
        )
        .default("cycle")
        .example("stop"),
        field(
            "strict",
            Kind::Bool,
            "An invalid row stops the run; otherwise it is \
        reported, skipped and counted.",
        )
        .default("false")
        .example("true"),
        field(
            "cache_bust",
            Kind::Bool,
            "Prepend a unique string to every prompt to defeat prefix caching, also across runs \
            (`cache_seed`). Prompts of `random`, `prefix` and `speed_benchmark` are drawn again \
            for each run instead, without a shared prefix.",
        )
        .default("false")
        .example("true"),
        field("system", Kind::Text, "A system message before each prompt.")
            .example("You are terse."),
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
    let remote = remote_data::decode(draft, &kind, review);
    Some(DatasetSpec {
        path: match kind.as_ref() {
            "command" => decode_command(draft, review).map(|command| command.display()),
            _ => remote
                .as_ref()
                .map(|data| data.reference.to_string())
                .or_else(|| draft.file("dataset.path", review)),
        },
        remote,
        group: draft.read("dataset.group", item),
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
        turns: decode_turns(draft, review),
        generated: decode_generated(draft, &kind, review)?,
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
            "Set `dataset.tokenizer` to the folder or the name of the model, or use \
            `dataset.kind: random`.",
        ));
    }
    for key in ["turns", "system_tokens", "context_tokens"] {
        if let Some(entry) = draft.entry(&format!("dataset.{key}")) {
            let mistake = Mistake::new(
                entry.key_at,
                format!("`{key}` has no effect with `prompt: token_ids`"),
                "a prompt of token ids is one text",
            );
            review.push(mistake.help(format!("Remove `{key}`, or send the prompt as text.")));
        }
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
            tokens: prompt_lengths(draft, review)?,
            shared_prefix: count("shared_prefix")?,
        },
        "prefix" => Source::Prefix {
            groups: count("groups")?,
            per_group: count("per_group"),
            prefix_tokens: count("prefix_tokens")?,
            tokens: prompt_lengths(draft, review)?,
            zipf: draft.read("dataset.popularity", zipf),
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
            samples: draft
                .api()
                .filter(|api| api.streams_audio())
                .map(|_| SPEECH_RATE),
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

/// The distribution of prompt lengths: `tokens`, or the first lengths of the pairs.
fn prompt_lengths(draft: &Draft<'_>, review: &mut Review) -> Option<Quantity> {
    let Some(node) = draft.get("dataset.lengths") else {
        return quantity(draft.get("dataset.tokens")?, review);
    };
    let input = |(weight, (input, _)): (f64, &(u64, u64))| {
        let tokens = *input as f64;
        (
            weight,
            Bin {
                low: tokens,
                high: tokens,
            },
        )
    };
    let inputs = Weighted::new(pairs(node, review)?.shares().map(input).collect())?;
    let drawn = Distribution::new(Family::Table(inputs), None, None).ok()?;
    Some(Quantity::Drawn(drawn))
}

/// What `random` and `prefix` generate. Reports conversations without a number of turns.
fn decode_generated(draft: &Draft<'_>, kind: &str, review: &mut Review) -> Option<Generated> {
    if !matches!(kind, "random" | "prefix") {
        return Some(Generated::default());
    }
    let mut lengths = |path: &str| {
        let node = draft.get(path)?;
        quantity(node, review)
    };
    let context_tokens = lengths("dataset.context_tokens");
    let max_tokens = lengths("request.max_tokens");
    let count = lengths("dataset.turns.count");
    if let (Some(Quantity::Drawn(drawn)), Some(node)) = (&count, draft.get("dataset.turns.count"))
        && drawn.mean_length() > MAX_TURNS
    {
        let mistake = Mistake::new(
            node.at,
            format!("a session of more than {MAX_TURNS} turns"),
            "number of turns",
        );
        review.push(mistake.help("Write fewer turns and more sessions."));
        return None;
    }
    let later = lengths("dataset.turns.tokens");
    let limit = draft.count("dataset.turns.context_limit");
    let at_limit = match draft.text("dataset.turns.at_limit").as_deref() {
        Some("truncate") => AtLimit::Truncate,
        _ => AtLimit::End,
    };
    let sessions = match (draft.entry("dataset.turns"), count) {
        (Some(entry), None) => {
            let mistake = Mistake::new(
                entry.key_at,
                "generated conversations need `count`",
                "how many turns has a session?",
            );
            review.push(mistake.help("For example `turns: { count: { uniform: [5, 40] } }`."));
            return None;
        }
        (None, _) => None,
        (Some(_), Some(count)) => Some(GeneratedSessions {
            count,
            tokens: match later {
                Some(later) => later,
                None => prompt_lengths(draft, review)?,
            },
            max_tokens,
            limit: limit.map(|tokens| ContextLimit { tokens, at_limit }),
        }),
    };
    Some(Generated {
        pairs: draft.read("dataset.lengths", |node| pairs(node, review)),
        system_tokens: draft.count("dataset.system_tokens").unwrap_or(0),
        context_tokens,
        sessions,
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
            "A text file, one prompt per line: text, a JSON list of messages, or a \
            JSON object as the whole body. A line of text is sent unchanged, without \
            its line end; blank lines are skipped",
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
    let messages = [
        ("dataset.system", "system"),
        ("dataset.system_tokens", "system_tokens"),
        ("dataset.turns", "turns"),
    ];
    let messages = messages
        .into_iter()
        .filter_map(|(path, key)| Some((draft.entry(path)?.key_at, key)));
    let pictures = draft
        .entry("dataset.kind")
        .filter(|_| kind == "images")
        .map(|entry| (entry.value.at, "images"));
    for (at, key) in messages.chain(pictures).filter(|_| !api.takes_messages()) {
        if key == "turns" && api.continues_text() {
            continue;
        }
        let verb = if key == "turns" { "need" } else { "needs" };
        let mistake = Mistake::new(
            at,
            format!("`{key}` {verb} messages"),
            format!("{api} has none"),
        );
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(if key == "system" && api.generates() {
            mistake.help("Write it into `request.template`, before `{{ prompt }}`.")
        } else {
            mistake.help(
                "Protocols with messages are openai-chat, openai-responses, \
            openai-realtime, anthropic, dashscope and ollama.",
            )
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
        "audio" if !in_messages && !api.uploads_audio() && !api.streams_audio() => (
            format!("{api} takes no audio"),
            "gives audio",
            "Protocols with audio are openai-transcriptions, openai-translations, \
            openai-realtime and openai-chat.",
        ),
        "video" if !in_messages => (
            format!("{api} takes no videos"),
            "gives videos",
            "Use `api: openai-chat`.",
        ),
        _ if kind != "audio" && api.uploads_audio() => (
            format!("{api} needs audio"),
            "gives prompts",
            "For example `dataset: { kind: audio, seconds: 5 }`, or `path` with a \
            file or a folder.",
        ),
        _ => return,
    };
    let mistake = Mistake::new(draft.key_span("dataset.kind"), what, label);
    review.push(draft.also_api(mistake, "this protocol").help(help));
}

/// Reports message lists for protocols with a single text, which would drop all but the last message. A template
/// decides itself.
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
        "Protocols with messages are openai-chat, openai-responses, openai-realtime, anthropic, \
        dashscope and ollama. In a `request.template`, `%p` is only the last message of the user.",
    ));
}

/// The column names of a log.
pub(crate) const LAYOUT: Kind = Kind::Choice(
    &[
        ("auto", "Detected from the columns"),
        (
            "mooncake",
            "JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids`, `model`; for \
            sessions `session_id`, `delay` (ms)",
        ),
        (
            "bailian",
            "JSONL: `timestamp` (s), `chat_id`, `parent_chat_id` (-1 in a first request), \
            `input_length`, `output_length`, `hash_ids`",
        ),
        (
            "weka",
            "One JSON object per session: `block_size`, `hash_id_scope`, and `requests` with `t` \
            (s), `model`, `in`, `out`, `hash_ids`, `api_time` (s); members with `requests` of \
            their own are sub-agents. It needs `turns`",
        ),
        (
            "otel",
            "JSON lines of OpenTelemetry spans, of the OTLP file exporter or one span per line: \
            ids, parent, start and end; `gen_ai.operation.name`, `gen_ai.usage.input_tokens`, \
            `gen_ai.usage.output_tokens`, `gen_ai.request.model`, `gen_ai.conversation.id`",
        ),
        (
            "azure",
            "CSV: `TIMESTAMP`, `ContextTokens`, `GeneratedTokens`",
        ),
        (
            "burstgpt",
            "CSV: `Timestamp` (s), `Model`, `Request tokens`, `Response tokens`; for sessions \
            `Session ID`, `Elapsed time` (s)",
        ),
        (
            "servegen",
            "CSV: `timestamp` (s), `input_tokens`, `output_tokens`",
        ),
        (
            "workload",
            "JSONL: `timestamp` (s, or RFC 3339), `body`, `headers` (without those of the \
            connection, and without a key if the target has one)",
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
            "Request exactly the logged output length: `max_tokens`, `min_tokens`, `ignore_eos`. \
            Without it, the logged length is the `max_tokens` of a request, unless \
            `request.max_tokens` is set.",
        )
        .default("false")
        .example("true"),
        field(
            "block_tokens",
            Kind::Whole(1, 1 << 20),
            "Tokens of a block of the prompt that has one of the `hash_ids`. By \
            default 16 for `bailian`, the log's `block_size` or 64 for `weka`, \
            otherwise 512. A log with more or fewer ids per prompt is refused.",
        )
        .example("16")
        .rules(&[unused_with(
            &["dataset.trace.layout"],
            &["azure", "burstgpt", "servegen", "otel", "workload"],
        )
        .reason("has no effect")
        .beside("this layout has no `hash_ids`")
        .help("Remove it.")]),
        field(
            "rows",
            Kind::Choice(
                &[
                    ("whole", "Each is a whole prompt, history included"),
                    (
                        "delta",
                        "Each has what is new since the reply before it: it is sent with the \
                        prompts and replies of its session so far, and its `hash_ids` are those \
                        of the new part",
                    ),
                ],
                &[],
            ),
            "What the rows of a session are. By default detected from lengths and `hash_ids` in \
            `mooncake`, which `llmscen plan` states; the other layouts have whole prompts.",
        )
        .example("delta")
        .rules(&[
            requires(&["dataset.turns"])
                .reason("concerns sessions")
                .help("Set `dataset.turns: {}`."),
            unused_with(
                &["dataset.trace.layout"],
                &["bailian", "weka", "azure", "servegen", "otel", "workload"],
            )
            .reason("has no effect")
            .beside("this layout has whole prompts")
            .help("Remove it."),
        ]),
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

/// The field is about generated conversations.
const GENERATED: Rule = only_with(&["dataset.kind"], &["random", "prefix"])
    .reason("has no effect")
    .beside("the turns are in the data")
    .help("Remove it.");

/// The value of `history` for which the server stores responses.
const STORED: &str = "previous_response_id";

static TURNS: Block = Block {
    doc: "Conversations: the turns of a session are sent one after another, or as a graph, with \
    the replies between them.",
    short: None,
    fields: &[
        field(
            "count",
            Kind::Leaf(&QUANTITY),
            "`random`, `prefix`: number of turns of a session.",
        )
        .example("{ uniform: [5, 40] }")
        .rules(&[GENERATED]),
        field(
            "tokens",
            Kind::Leaf(&QUANTITY),
            "`random`, `prefix`: tokens of the user in each turn after the first; by \
            default as `dataset.tokens`.",
        )
        .example("{ lognormal: { mean: 200, sd: 150 } }")
        .rules(&[
            GENERATED,
            conflicts_with(&["dataset.lengths"], &[])
                .reason("the table has the lengths of all turns")
                .beside("lengths of all turns")
                .help("Keep one of them."),
        ]),
        field(
            "context_limit",
            Kind::Whole(1, MOST),
            "`random`, `prefix`: maximum tokens of a turn's prompt and output \
            together. Earlier replies count with their requested length, so the turns \
            of a session do not depend on the server. A turn that alone exceeds the \
            limit is drawn again.",
        )
        .example("32768")
        .rules(&[
            GENERATED,
            requires(&["request.max_tokens", "dataset.lengths"]).help(
                "The output counts against the limit, for example `request: { \
                max_tokens: 256 }`.",
            ),
        ]),
        field(
            "at_limit",
            Kind::Choice(
                &[
                    (
                        "end",
                        "The session ends before the turn that exceeds the limit",
                    ),
                    (
                        "truncate",
                        "The oldest turns are removed from the conversation, \
                    except the system message",
                    ),
                ],
                &[],
            ),
            "What happens at `context_limit`.",
        )
        .defaults(Default::With("context_limit", "end"))
        .example("truncate")
        .rules(&[requires(&["context_limit"])]),
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
            unused_with(&["dataset.trace.rows"], &["whole"])
                .when("true")
                .reason("concerns the replies of the server")
                .help("Remove it: the rows are whole prompts."),
            unused_with(&["replies"], &["recorded"])
                .when("true")
                .reason("concerns the replies of the server")
                .help("Remove `keep_reasoning`, or set `replies: live`."),
        ]),
        field(
            "replies",
            Kind::Choice(
                &[
                    ("live", "Those of the server"),
                    (
                        "recorded",
                        "Those in the data, whole with their tool calls, whatever the \
                        server replies",
                    ),
                ],
                &[],
            ),
            "Which replies become the history of later turns.",
        )
        .default("live")
        .example("recorded")
        .rules(&[only_with(
            &["dataset.kind"],
            &["messages", "sharegpt", "rows", "command", "line_by_line"],
        )
        .when("recorded")
        .reason("takes the replies from the data")
        .beside("has no replies")
        .help("Remove `replies`, and `begin`, which needs recorded replies.")]),
        field(
            "history",
            Kind::Choice(
                &[
                    ("resend", "All messages before the turn are sent again"),
                    (
                        "previous_response_id",
                        "`openai-responses`: only the new items are sent, with the id of the \
                        response that the turn continues; the server must store responses",
                    ),
                ],
                &[],
            ),
            "How a turn refers to the turns before it.",
        )
        .default("resend")
        .example("previous_response_id")
        .rules(&[
            only_with(&["target.api"], &["openai-responses"])
                .when(STORED)
                .reason("the other APIs have no stored responses")
                .help("Remove `history`: each turn sends all messages before it."),
            conflicts_with(&["replies"], &["recorded"])
                .when(STORED)
                .reason("continues the replies of the server")
                .beside("the history is in the data")
                .help("Set `replies: live`, or remove `history`."),
            conflicts_with(&["at_limit"], &["truncate"])
                .when(STORED)
                .reason("the server has the whole history")
                .beside("removes turns from the history")
                .help("Set `at_limit: end`, or remove `history`."),
            conflicts_with(&["request.extra.store"], &["false"])
                .when(STORED)
                .reason("needs responses that the server stores")
                .beside("the server stores none")
                .help("Remove `store: false`, or remove `history`."),
            conflicts_with(&["request.template.store"], &["false"])
                .when(STORED)
                .reason("needs responses that the server stores")
                .beside("the server stores none")
                .help("Remove `store: false`, or remove `history`."),
        ]),
        field(
            "begin",
            Kind::Leaf(&SHARE_RANGE),
            "Where a session begins, as a share of its turns, drawn for each session. The turns \
            before are history: with their recorded replies (`replies: recorded`), or as a part \
            of the whole prompts of a log (`kind: trace`). The last of them is sent first, with \
            `max_tokens: 1`, to fill the prefix cache; it counts as warm-up.",
        )
        .example("{ uniform: [25%, 75%] }"),
        field(
            "max_idle",
            Kind::Leaf(&DURATION),
            "Maximum time between a turn and the turns that it awaits: longer think \
            and tool times are cut to it.",
        )
        .example("30s"),
    ],
};

/// The trace settings at `path`, of which some keys may be absent. Reports an empty window.
pub(crate) fn decode_log(draft: &Draft<'_>, path: &str, review: &mut Review) -> TraceSpec {
    let node = |key: &str| draft.get(&format!("{path}.{key}"));
    let start = node("start").and_then(duration);
    let end = node("end").and_then(duration);
    if let (Some(from), Some(to), Some(at)) = (start, end, node("end"))
        && from > to
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
            Some("bailian") => Layout::Bailian,
            Some("weka") => Layout::Weka,
            Some("otel") => Layout::Otel,
            Some("burstgpt") => Layout::Burstgpt,
            Some("servegen") => Layout::Servegen,
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
        ignores_output: draft.get("request.max_tokens").is_some()
            && draft.flag(&format!("{path}.match_output_length")) != Some(true),
        block_tokens: node("block_tokens")
            .and_then(Node::integer)
            .and_then(|tokens| u64::try_from(tokens).ok()),
        rows: match draft.text(&format!("{path}.rows")).as_deref() {
            Some("whole") => Some(TraceRows::Whole),
            Some("delta") => Some(TraceRows::Delta),
            _ => None,
        },
    }
}

fn decode_shape(draft: &Draft<'_>, review: &mut Review) -> Option<TextShape> {
    Some(TextShape {
        tokens: draft.read("dataset.shape.tokens", |node| quantity(node, review))?,
        mode: if draft.text("dataset.shape.mode").as_deref() == Some("cap") {
            ShapeMode::Cap
        } else {
            ShapeMode::Exact
        },
        fill_from: draft.file("dataset.shape.fill_from", review),
    })
}

fn decode_turns(draft: &Draft<'_>, review: &mut Review) -> Option<Turns> {
    draft.get("dataset.turns")?;
    let history = match draft.text("dataset.turns.history").as_deref() {
        Some(STORED) => SentHistory::PreviousResponseId,
        _ => SentHistory::Resend,
    };
    let urls = draft.items_at("target.url").len();
    if history == SentHistory::PreviousResponseId
        && urls > 1
        && draft.text("target.balance").as_deref() != Some("session")
        && let Some(entry) = draft.entry("dataset.turns.history")
    {
        let mistake = Mistake::new(
            entry.value.at,
            "`history: previous_response_id` needs `target.balance: session`",
            "a server has its own responses only",
        );
        review.push(
            mistake
                .also(
                    draft.key_span("target.url"),
                    "the turns of a session go to different servers",
                )
                .help("Set `target.balance: session`."),
        );
    }
    let begin = draft.read("dataset.turns.begin", share_range);
    let replies = match draft.text("dataset.turns.replies").as_deref() {
        Some("recorded") => Replies::Recorded,
        _ => Replies::Live,
    };
    let is_log = draft.text("dataset.kind").as_deref() == Some("trace");
    if let Some(entry) = draft.entry("dataset.turns.begin")
        && replies == Replies::Live
        && !is_log
        && !draft.is_swept("dataset.kind")
        && !draft.is_swept("dataset.turns.replies")
    {
        let mistake = Mistake::new(
            entry.key_at,
            "`begin` needs `replies: recorded`",
            "the history needs the replies in the data",
        );
        review.push(mistake.help("Set `replies: recorded`, or remove `begin`."));
    }
    Some(Turns {
        history,
        think_time: draft.read("dataset.turns.think_time", |node| wait(node, review)),
        max: draft.count("dataset.turns.max"),
        keep_reasoning: draft.flag("dataset.turns.keep_reasoning").unwrap_or(false),
        replies,
        begin: begin.map(|(low, high)| BeginAt { low, high }),
        max_idle: draft.read("dataset.turns.max_idle", duration),
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
