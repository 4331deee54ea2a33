//! `target.server`: a server that the run starts and stops, and presets of known servers.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Default, Kind, field, one_of};
use crate::source::Sources;
use crate::tree::{Data, Node};
use crate::values::command::{ARGUMENT, COMMAND, SIMULATOR_SETTING, argument, command};
use crate::values::time::{SPAN, duration};
use crate::{patch_names, sweep};
use llmscen_core::endpoint::UrlParts;
use llmscen_core::plan::Case;
use llmscen_core::redact::Secret;
use llmscen_core::target::{ManagedServer, ModelShare, Readiness, Restart, TargetLocation};
use llmscen_core::telemetry::Scrape;
use llmscen_core::units::Nanos;
use std::borrow::Cow;
use std::collections::BTreeSet;

const PRESET: Kind = Kind::Choice(
    &[
        ("vllm", "`vllm serve`"),
        ("lmdeploy", "`lmdeploy serve api_server`"),
        ("sglang", "`python3 -m sglang.launch_server`"),
        ("llama-server", "llama.cpp's `llama-server`"),
        ("transformers", "`transformers serve`"),
        ("ollama", "`ollama serve`"),
        ("tgi", "`text-generation-launcher`"),
        ("trtllm", "`trtllm-serve`"),
        ("dynamo", "`python3 -m dynamo.frontend`, without workers"),
        ("atom", "`python3 -m atom.entrypoints.openai_server`"),
        (
            "simulator",
            "`llmscen simulate`; `args` are settings of `target.simulator`",
        ),
    ],
    &[],
);

/// How an argument's name becomes a flag: engines disagree on dashes and underscores.
const STYLE: Kind = Kind::Choice(
    &[
        ("kebab", "`tp_size` is `--tp-size`"),
        ("snake", "`tp-size` is `--tp_size`, as in `trtllm-serve`"),
        (
            "as_is",
            "`tp_size` is `--tp_size`, `tp-size` is `--tp-size`",
        ),
    ],
    &[],
);

const RESTART: Kind = Kind::Choice(
    &[
        (
            "never",
            "One start for the run; an error if cases need different servers",
        ),
        (
            "variant",
            "One start for each command and environment; it serves all rounds of its cases, one \
            server after the other",
        ),
        (
            "round",
            "A start for each round, so that rounds include the variation between starts; the \
            cases with the same server share it",
        ),
        ("case", "A start for each round of each case"),
    ],
    &[],
);

static READY: Block = Block {
    doc: "When the server is ready: one of `url` and `log`; a `preset` has a default.",
    short: None,
    fields: &[
        field(
            "url",
            Kind::Text,
            "A GET of this URL returns a status from 200 to 299.",
        )
        .example("http://127.0.0.1:8000/health")
        .rules(&[one_of(&["url", "log"], "a URL here")
            .help("Keep the later one: the measurement starts then.")]),
        field("log", Kind::Text, "The log contains this text.")
            .example("Application startup complete")
            .rules(&[one_of(&["url", "log"], "a text of the log here")
                .help("Keep the later one: the measurement starts then.")]),
        field("timeout", Kind::Leaf(&SPAN), "Maximum startup time.")
            .default("30m")
            .example("5m"),
        field(
            "interval",
            Kind::Leaf(&SPAN),
            "Polling interval of the URL; shorter at first.",
        )
        .default("1s")
        .example("250ms"),
    ],
};

static STOP: Block = Block {
    doc: "How the server is stopped.",
    short: None,
    fields: &[field(
        "grace",
        Kind::Leaf(&SPAN),
        "Time from SIGTERM to SIGKILL, for the server and its child processes.",
    )
    .default("10s")
    .example("30s")],
};

pub(crate) static SERVER: Block = Block {
    doc: "The server under test, started before the first request and stopped at the end of the \
    run, also after an error.",
    short: None,
    fields: &[
        field(
            "preset",
            PRESET,
            "A known server: its command, readiness and metrics endpoint, for \
        `target.model` on the host and port of `target.url`. Where an objective is on cached \
        tokens, `vllm` and `sglang` get the argument that adds these to replies. Other keys \
        override it.",
        )
        .example("vllm"),
        field(
            "command",
            Kind::Leaf(&COMMAND),
            "The program and its arguments: text that is split \
        like in a shell, or a list. No shell runs it.",
        )
        .example("\"vllm serve {{ target.model }} --port 8000\""),
        field(
            "args",
            Kind::Map(&Kind::Leaf(&ARGUMENT)),
            "Further arguments: `max_num_seqs: 64` \
        is `--max-num-seqs 64`, `true` the flag alone, a list several values. A matrix may vary \
        each.",
        )
        .example("{ max_num_seqs: 64, enforce_eager: true }"),
        field(
            "args_style",
            STYLE,
            "How names in `args` become flags; by default as the preset's \
        engine wants them, else `kebab`. A name that starts with a dash is used unchanged.",
        )
        .example("snake"),
        field(
            "env",
            Kind::Map(&Kind::Secret),
            "Environment variables in addition to those of \
        llmscen; never printed, never stored.",
        )
        .example("{ HF_TOKEN: \"${HF_TOKEN}\" }"),
        field(
            "cwd",
            Kind::File,
            "Its working directory; that of llmscen by default.",
        )
        .example("."),
        field("ready", Kind::Block(&READY), "When it is ready.")
            .defaults(Default::Empty)
            .example("{ url: \"http://127.0.0.1:8000/health\" }"),
        field(
            "log",
            Kind::Text,
            "Log file in the run folder; a second start writes `server-2.log`.",
        )
        .default("server.log")
        .example("vllm.log"),
        field(
            "restart",
            RESTART,
            "When it is started again. By default one start serves all \
        rounds of the cases with the same command and environment.",
        )
        .default("variant")
        .example("round"),
        field("stop", Kind::Block(&STOP), "How it is stopped.")
            .defaults(Default::Empty)
            .example("{ grace: 30s }"),
    ],
};

const SERVER_PATH: &str = "target.server";

/// Converts values that a program receives to the text as written: all values of `env`, and numbers in `command` and
/// `args` that would be formatted differently.
pub(crate) fn normalize(root: &mut Node, sources: &Sources) {
    normalize_tree(root, sources);
    patch_names::each_patch(root, |_, patch| normalize_tree(&mut patch.value, sources));
    for path in sweep::MATRICES {
        if let Some(matrix) = sweep::matrix_mut(root, path) {
            spell_swept(matrix, sources);
        }
    }
}

/// The same for a scenario or a patch, without the matrix.
fn normalize_tree(root: &mut Node, sources: &Sources) {
    for (path, every) in WORDS {
        if let Some(mut entry) = root.entry_at(path).cloned() {
            spell(&mut entry.value, every, sources);
            root.set(path, entry.key_at, entry.value);
        }
    }
}

/// Paths of values that a program receives, and whether booleans are converted too.
const WORDS: [(&str, bool); 4] = [
    ("target.server.command", false),
    ("target.server.args", false),
    ("target.server.env", true),
    ("dataset.command", false),
];

/// The same for values of a matrix, also in `zip`, `include` and `exclude`.
fn spell_swept(node: &mut Node, sources: &Sources) {
    let every = |path: &str| {
        let own = |own: &str| {
            path == own
                || path
                    .strip_prefix(own)
                    .is_some_and(|rest| rest.starts_with('.'))
        };
        WORDS
            .iter()
            .find(|(word, _)| own(word))
            .map(|(_, every)| *every)
    };
    match &mut node.data {
        Data::List(items) => items.iter_mut().for_each(|item| spell_swept(item, sources)),
        Data::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| match every(&entry.key) {
                Some(every) => spell(&mut entry.value, every, sources),
                None => spell_swept(&mut entry.value, sources),
            }),
        _ => {}
    }
}

fn spell(node: &mut Node, every: bool, sources: &Sources) {
    match &mut node.data {
        Data::List(items) => items
            .iter_mut()
            .for_each(|item| spell(item, every, sources)),
        Data::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| spell(&mut entry.value, every, sources)),
        Data::Bool(_) if !every => {}
        _ if node.parts.is_some() => {}
        _ => {
            let plain = node.json().to_string();
            if let Some(text) = sources.written(node).filter(|text| every || *text != plain) {
                node.data = Data::Text(text);
            }
        }
    }
}

/// The managed server, and the metrics endpoint of its preset. None where there is no server, or an error.
pub(crate) fn decode(
    draft: &Draft<'_>,
    place: Option<&TargetLocation>,
    models: Option<&[ModelShare]>,
    review: &mut Review,
) -> (Option<ManagedServer>, Option<Scrape>) {
    if draft.get(SERVER_PATH).is_none() {
        return (None, None);
    }
    let Some(endpoints) = place.and_then(TargetLocation::endpoints) else {
        return (None, None);
    };
    let preset = draft
        .text("target.server.preset")
        .and_then(|name| find_preset(&name));
    let (root, host, port) = split_origin(endpoints.first());
    let model = models
        .and_then(<[ModelShare]>::first)
        .map_or("", |share| share.name.as_str());
    let on = Endpoint { model, host, port };
    let metrics = preset.and_then(|preset| preset.metrics).map(|path| Scrape {
        url: format!("{root}{path}"),
        interval: Nanos::from_millis(1000),
        headers: Vec::new(),
    });
    let command = command_words(draft, preset, &on, review);
    let ready = decode_ready(draft, preset, root, review);
    let (env, cwd, log) = (
        decode_env(draft, preset, &on, review),
        draft.file("target.server.cwd", review),
        decode_log(draft, review),
    );
    let server = || {
        Some(ManagedServer {
            command: command?,
            env,
            cwd,
            ready: ready?,
            timeout: draft.read("target.server.ready.timeout", duration)?,
            interval: draft.read("target.server.ready.interval", duration)?,
            log: log?,
            restart: match draft.text("target.server.restart")?.as_ref() {
                "never" => Restart::Never,
                "round" => Restart::Round,
                "case" => Restart::Case,
                _ => Restart::Variant,
            },
            grace: draft.read("target.server.stop.grace", duration)?,
        })
    };
    (server(), metrics)
}

/// `http://HOST:PORT`, the host without brackets, and the port of a URL.
pub(crate) fn split_origin(url: &str) -> (String, &str, &str) {
    let parts = UrlParts::of(url);
    let origin = format!("{}://{}", parts.scheme, parts.authority);
    (origin, parts.host, parts.port_or_usual())
}

fn command_words(
    draft: &Draft<'_>,
    preset: Option<&Preset>,
    on: &Endpoint<'_>,
    review: &mut Review,
) -> Option<Vec<String>> {
    let program = match (draft.get("target.server.command"), preset) {
        (Some(node), _) => command(node)?,
        (None, Some(preset)) => preset.command(on),
        (None, None) => return None,
    };
    let args = draft.entries_at("target.server.args");
    for entry in args.iter().filter(|entry| {
        entry.key.trim_matches('-').is_empty() || entry.key.contains(char::is_whitespace)
    }) {
        let mistake = Mistake::new(
            entry.key_at,
            "this is not the name of an argument",
            "is empty or contains a space",
        );
        review.push(mistake.help(
            "`max_num_seqs` is `--max-num-seqs`; write arguments without a flag into `command`.",
        ));
    }
    let style = match draft.text("target.server.args_style") {
        Some(style) => style,
        None => Cow::Borrowed(preset.map_or("kebab", |preset| preset.style)),
    };
    let is_given = |name: &str| {
        let plain = |word: &str| word.trim_start_matches('-').replace('-', "_");
        args.iter().any(|entry| plain(&entry.key).ends_with(name))
    };
    // A command of the scenario may be a script.
    let cached_tokens = preset
        .and_then(|preset| preset.cached_tokens)
        .filter(|_| draft.get("target.server.command").is_none())
        .filter(|name| judges_cached_tokens(draft) && !is_given(name));
    let flag = cached_tokens.map(|name| format!("--{}", name.replace('_', "-")));
    let all: Vec<String> = program
        .iter()
        .cloned()
        .chain(flag)
        .chain(args.iter().flat_map(|entry| argument(entry, &style)))
        .collect();
    if all.iter().any(|word| word.contains('\0')) {
        review.push(Mistake::new(
            draft.key_span(SERVER_PATH),
            "the command contains a zero byte",
            "no program accepts that",
        ));
    }
    Some(all)
}

/// Whether an objective is on the cached tokens of replies.
fn judges_cached_tokens(draft: &Draft<'_>) -> bool {
    let objectives = draft.get("slo").map(|node| node.json().to_string());
    objectives.is_some_and(|text| {
        ["cached_share", "cached_tokens"]
            .iter()
            .any(|name| text.contains(name))
    })
}

fn decode_ready(
    draft: &Draft<'_>,
    preset: Option<&Preset>,
    root: String,
    review: &mut Review,
) -> Option<Readiness> {
    let url = draft.entry("target.server.ready.url");
    let log = draft.entry("target.server.ready.log");
    match (url, log, preset) {
        (Some(_), Some(_), _) => None,
        (Some(entry), None, _) => {
            let url = entry.value.text()?;
            let host = url
                .strip_prefix("http://")
                .or_else(|| url.strip_prefix("https://"));
            let is_url = host.is_some_and(|host| !host.is_empty() && !host.starts_with(['/', ':']))
                && !url.contains(char::is_whitespace);
            if !is_url && !review.is_unset(&url) {
                let mistake = Mistake::new(
                    entry.value.at,
                    "this is not a URL",
                    "expected `http://…` or `https://…`",
                );
                review.push(mistake.help(format!("For example {root}/health.")));
                return None;
            }
            Some(Readiness::Url(url.into_owned()))
        }
        (None, Some(entry), _) => {
            let text = entry.value.text()?;
            if text.is_empty() || text.contains('\n') {
                review.push(Mistake::new(
                    entry.value.at,
                    "`log` must be one line of text",
                    "would match at once, or never",
                ));
                return None;
            }
            Some(Readiness::Log(text.into_owned()))
        }
        (None, None, Some(preset)) => Some(Readiness::Url(format!("{root}{}", preset.ready))),
        (None, None, None) => {
            let mistake = Mistake::new(
                draft.key_span(SERVER_PATH),
                "`server` needs `ready`",
                "how is the server known to be ready?",
            );
            let help = format!(
                "For example `ready: {{ url: \"{root}/health\" }}`, or `ready: {{ log: \"startup \
                complete\" }}`; a `preset` has a default."
            );
            review.push(mistake.help(help));
            None
        }
    }
}

/// The environment of the preset, overridden by the scenario.
fn decode_env(
    draft: &Draft<'_>,
    preset: Option<&Preset>,
    on: &Endpoint<'_>,
    review: &mut Review,
) -> Vec<(String, Secret)> {
    let entries = draft.entries_at("target.server.env");
    for entry in entries {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            let mistake = Mistake::new(
                entry.key_at,
                format!("`{}` is not the name of an environment variable", entry.key),
                "is empty or contains `=`",
            );
            review.push(mistake.help("For example `env: { HF_TOKEN: \"${HF_TOKEN}\" }`."));
        }
        if entry.value.text().is_some_and(|value| value.contains('\0')) {
            review.push(Mistake::new(
                entry.value.at,
                "this value contains a zero byte",
                "no program accepts that",
            ));
        }
    }
    let configured = draft
        .get("target.server.env")
        .into_iter()
        .flat_map(Node::string_pairs);
    let preset = preset.map(|preset| preset.env(on)).unwrap_or_default();
    let preset = preset
        .into_iter()
        .filter(|(name, _)| entries.iter().all(|entry| entry.key != *name));
    preset
        .chain(configured)
        .map(|(name, value)| (name, Secret::new(value)))
        .collect()
}

fn decode_log(draft: &Draft<'_>, review: &mut Review) -> Option<String> {
    let entry = draft.entry("target.server.log")?;
    let name = entry.value.string()?;
    if name.contains(['/', '\\', '\0']) || !name.ends_with(".log") || name.len() == 4 {
        let mistake = Mistake::new(
            entry.value.at,
            "`log` must be a file name that ends with `.log`",
            "not a file name in the run folder",
        );
        review
            .push(mistake.help("For example `log: server.log`; it is written to the run folder."));
        return None;
    }
    Some(name)
}

/// Reports servers that differ between cases although one start serves the run.
pub(crate) fn check_same(
    cases: &[Case],
    root: &Node,
    axes: &BTreeSet<String>,
    review: &mut Review,
) {
    let servers: Vec<&ManagedServer> = cases
        .iter()
        .filter_map(|case| case.target.server.as_ref())
        .collect();
    let Some(first) = servers.first() else { return };
    if servers.iter().all(|server| server == first)
        || servers
            .iter()
            .all(|server| server.restart != Restart::Never)
    {
        return;
    }
    let axis_under = |prefix: &str| axes.iter().find(|path| path.starts_with(prefix));
    let path = axis_under("target.server.")
        .or_else(|| axis_under("target."))
        .or_else(|| axes.first());
    let server = root
        .entry_at(SERVER_PATH)
        .map_or(root.at, |entry| entry.key_at);
    let axis = path
        .and_then(|path| {
            let mut matrices = sweep::MATRICES.iter().filter_map(|name| root.get(name));
            matrices.find_map(|matrix| matrix.entry(path))
        })
        .map_or(server, |entry| entry.key_at);
    let what = path.map_or("the matrix", String::as_str);
    let mistake = Mistake::new(
        axis,
        format!("`{what}` varies the server, which is started once"),
        "requires another server per case",
    );
    review.push(mistake.also(server, "this one").help(
        "Write `restart: variant` there: each server is started once and serves all its cases.",
    ));
}

/// Values that presets insert.
struct Endpoint<'a> {
    /// The model name.
    model: &'a str,
    /// The host of the target's URL, without brackets.
    host: &'a str,
    port: &'a str,
}

impl Endpoint<'_> {
    /// Host and port as in a URL.
    fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A known server.
pub(crate) struct Preset {
    name: &'static str,
    /// Its command; `MODEL`, `HOST` and `PORT` are replaced.
    command: &'static str,
    /// The environment; the same words are replaced.
    env: &'static [(&'static str, &'static str)],
    /// The `args_style`, unless the scenario has one.
    style: &'static str,
    /// Path that returns 200 when it is ready.
    ready: &'static str,
    /// Path of its metrics.
    metrics: Option<&'static str>,
    /// The argument that adds cached tokens to replies.
    cached_tokens: Option<&'static str>,
    /// Paths of its actions, by name, for POST; `SECONDS` is half of the action's time limit.
    actions: &'static [(&'static str, &'static str)],
}

/// The actions of vLLM; `reset_cache` needs `VLLM_SERVER_DEV_MODE=1`, the profiler `VLLM_TORCH_PROFILER_DIR`.
const VLLM_ACTIONS: &[(&str, &str)] = &[
    ("reset_cache", "/reset_prefix_cache"),
    ("start_profile", "/start_profile"),
    ("stop_profile", "/stop_profile"),
];
const SGLANG_ACTIONS: &[(&str, &str)] = &[
    // The server waits until it is idle; without the parameter it refuses at once (400).
    ("reset_cache", "/flush_cache?timeout=SECONDS"),
    ("start_profile", "/start_profile"),
    ("stop_profile", "/stop_profile"),
];

/// The preset of this name.
pub(crate) fn find_preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

const fn preset(
    name: &'static str,
    command: &'static str,
    metrics: Option<&'static str>,
) -> Preset {
    Preset {
        name,
        command,
        env: &[],
        style: "kebab",
        ready: "/health",
        metrics,
        cached_tokens: None,
        actions: &[],
    }
}

static PRESETS: [Preset; 11] = [
    Preset {
        cached_tokens: Some("enable_prompt_tokens_details"),
        actions: VLLM_ACTIONS,
        ..preset(
            "vllm",
            "vllm serve MODEL --host HOST --port PORT",
            Some("/metrics"),
        )
    },
    preset(
        "lmdeploy",
        "lmdeploy serve api_server MODEL --server-name HOST --server-port PORT",
        Some("/metrics"),
    ),
    Preset {
        cached_tokens: Some("enable_cache_report"),
        actions: SGLANG_ACTIONS,
        ..preset(
            "sglang",
            "python3 -m sglang.launch_server --model-path MODEL --host HOST --port \
            PORT --enable-metrics",
            Some("/metrics"),
        )
    },
    preset(
        "llama-server",
        "llama-server -m MODEL --host HOST --port PORT --metrics",
        Some("/metrics"),
    ),
    preset(
        "transformers",
        "transformers serve MODEL --host HOST --port PORT",
        None,
    ),
    Preset {
        env: &[("OLLAMA_HOST", "HOST:PORT")],
        ready: "/api/version",
        ..preset("ollama", "ollama serve", None)
    },
    preset(
        "tgi",
        "text-generation-launcher --model-id MODEL --hostname HOST --port PORT",
        Some("/metrics"),
    ),
    Preset {
        style: "snake",
        ..preset("trtllm", "trtllm-serve MODEL --host HOST --port PORT", None)
    },
    preset(
        "dynamo",
        "python3 -m dynamo.frontend --http-host HOST --http-port PORT",
        Some("/metrics"),
    ),
    // Some of its flags have dashes, others underscores.
    Preset {
        style: "as_is",
        ..preset(
            "atom",
            "python3 -m atom.entrypoints.openai_server --model MODEL --host HOST \
            --server-port PORT",
            Some("/metrics"),
        )
    },
    Preset {
        style: SIMULATOR_SETTING,
        actions: VLLM_ACTIONS,
        ..preset(
            "simulator",
            "llmscen simulate --listen HOST:PORT",
            Some("/metrics"),
        )
    },
];

impl Preset {
    /// The path of an action with this time limit, if the engine has it.
    pub fn action(&self, name: &str, timeout: Nanos) -> Option<String> {
        let (_, path) = self.actions.iter().find(|(own, _)| *own == name)?;
        Some(path.replace("SECONDS", &(timeout.secs() / 2.0).to_string()))
    }

    fn command(&self, on: &Endpoint<'_>) -> Vec<String> {
        let word = |word| match word {
            "MODEL" => on.model.to_owned(),
            "HOST" => on.host.to_owned(),
            "PORT" => on.port.to_owned(),
            "HOST:PORT" => on.address(),
            word => word.to_owned(),
        };
        self.command.split(' ').map(word).collect()
    }

    fn env(&self, on: &Endpoint<'_>) -> Vec<(String, String)> {
        let value = |value: &str| value.replace("HOST:PORT", &on.address());
        self.env
            .iter()
            .map(|(name, template)| ((*name).to_owned(), value(template)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
