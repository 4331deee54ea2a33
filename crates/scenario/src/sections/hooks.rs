//! `hooks` and `then`: actions around the rounds, beside the load, and after it.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::condition::Condition;
use crate::sections::server::{find_preset, split_origin};
use crate::suggest::list;
use crate::tree::Node;
use crate::values::time::{SPAN, duration};
use llmscen_core::hooks::{Action, Command, Hooks, Method, ProfiledRerun, Repeated, Step};
use llmscen_core::plan::Case;
use llmscen_core::target::Target;
use llmscen_core::units::Nanos;
use std::collections::BTreeSet;

const ACTION_NAME: Kind = Kind::Choice(
    &[
        ("reset_cache", "Empties the prefix cache"),
        ("start_profile", "Starts the profiler of the engine"),
        ("stop_profile", "Stops it and writes the profile"),
    ],
    &[],
);

/// The keys of an action, one of which says what it does.
const STEPS: [&str; 4] = ["action", "run", "post", "get"];

static ACTION: Block = Block {
    doc: "One of `action`, `run`, `post` and `get`. A plain text is an `action`: known by name \
    for the engines of the presets `vllm`, `sglang` and `simulator`.",
    short: Some("action"),
    fields: &[
        field(
            "action",
            ACTION_NAME,
            "An action of the engine, by its own endpoint.",
        )
        .example("reset_cache"),
        field(
            "run",
            Kind::Text,
            "A command for `sh -c`. Its environment has `LLMSCEN_URL`, \
        `LLMSCEN_MODEL`, `LLMSCEN_CASE`, `LLMSCEN_ROUND` and `LLMSCEN_RUN_DIR`; its output is in \
        `hooks.log`.",
        )
        .example("nvidia-smi -lgc 1500"),
        field(
            "post",
            Kind::Text,
            "POST to this URL, or to this path of the target's server, with \
        its key and headers.",
        )
        .example("/v1/load_lora_adapter"),
        field("get", Kind::Text, "GET of this URL or path.").example("/health"),
        field("body", Kind::Json, "The JSON body of `post`.")
            .example("{ lora_name: a, lora_path: /adapters/a }"),
        field("timeout", Kind::Leaf(&SPAN), "Maximum time.")
            .default("1m")
            .example("10m"),
        field(
            "every",
            Kind::Leaf(&SPAN),
            "In `beside`: time from one start to the next; 1s by default.",
        )
        .example("5s"),
        field(
            "when",
            Kind::Map(&Kind::Json),
            "Only for cases with these values, as `when` of an \
        objective.",
        )
        .example("{ variant: lora }"),
    ],
};

const ACTIONS: Kind = Kind::List(&Kind::Block(&ACTION));

pub(crate) static HOOKS: Block = Block {
    doc: "Actions around the load, run by the first shard. An action that fails ends the round, \
    which is then not run.",
    short: None,
    fields: &[
        field(
            "before_run",
            ACTIONS,
            "Before everything else; no managed server runs yet.",
        )
        .example("[{ run: ./lock-clocks.sh }]"),
        field(
            "before_variant",
            ACTIONS,
            "After each start of a managed server, else before the first round of a variant.",
        )
        .example(
            "[{ post: /v1/load_lora_adapter, body: { lora_name: a, lora_path: /adapters/a } }]",
        ),
        field("before_case", ACTIONS, "Before each round of each case.").example("[reset_cache]"),
        field(
            "after_case",
            ACTIONS,
            "After each round of each case. A failure is a note.",
        )
        .example("[{ run: ./collect.sh }]"),
        field(
            "beside",
            ACTIONS,
            "Repeated while requests are sent; the report has their number and their failures.",
        )
        .example("[{ post: /v1/load_lora_adapter, every: 1s }]"),
        field(
            "on_fail",
            Kind::Block(&ON_FAIL),
            "A case whose verdict is FAIL is sent once more \
        with the profiler of the engine. That round is no part of any figure or verdict.",
        )
        .example("rerun_with_profile"),
    ],
};

static ON_FAIL: Block = Block {
    doc: "After the last round on a managed server, and at the end for a server that the run does \
    not start, each case that failed so far is sent once more between the actions of `before` and \
    `after`. A plain text is an `action`.",
    short: Some("action"),
    fields: &[
        field(
            "action",
            Kind::Choice(
                &[(
                    "rerun_with_profile",
                    "Sends the case once more with the profiler",
                )],
                &[],
            ),
            "What happens.",
        )
        .default("rerun_with_profile")
        .example("rerun_with_profile"),
        field(
            "before",
            ACTIONS,
            "Start the profiler; by default `start_profile`.",
        )
        .example("[{ post: /start_profile }]"),
        field(
            "after",
            ACTIONS,
            "Stop it and write the profile; by default `stop_profile`, which may take 10 minutes.",
        )
        .example("[{ post: /stop_profile, timeout: 30m }]"),
        field(
            "max",
            Kind::Whole(1, 1000),
            "Maximum number of cases that are sent again.",
        )
        .default("3")
        .example("1"),
    ],
};

/// Maximum time of the profiler actions by default: an engine writes the profile before it answers.
const PROFILE_TIMEOUT: Nanos = Nanos::from_millis(600_000);

pub(crate) static THEN: Block = Block {
    doc: "A command against the still running server, after its last round. An exit status other \
    than 0 fails the run.",
    short: Some("run"),
    fields: &[
        field(
            "run",
            Kind::Text,
            "A command for `sh -c`, with the environment of `hooks`; its output is in `then.log`.",
        )
        .required()
        .example("lm_eval --model local-completions --tasks gsm8k"),
        field(
            "name",
            Kind::Text,
            "Its name in the report; by default the first word of the command.",
        )
        .example("gsm8k"),
        field("timeout", Kind::Leaf(&SPAN), "Maximum time.")
            .default("1h")
            .example("30m"),
        field(
            "when",
            Kind::Map(&Kind::Json),
            "Only for cases with these values, as `when` of an objective.",
        )
        .example("{ variant: mtp3 }"),
    ],
};

/// The hooks of a case. Reports actions without a server, and those that its engine does not have.
pub(crate) fn decode(draft: &Draft<'_>, target: &Target, review: &mut Review) -> Hooks {
    let actions = |point: &str, review: &mut Review| -> Vec<(Action, Option<&Node>)> {
        let items = draft.items_at(&format!("hooks.{point}"));
        items
            .iter()
            .flat_map(|item| {
                let actions = decode_actions(item, draft, target, point, review);
                let actions = actions.unwrap_or_default().into_iter();
                actions.map(|action| (action, item.get("every")))
            })
            .collect()
    };
    review.section = "hooks".to_owned();
    let plain = |point: &str, review: &mut Review| -> Vec<Action> {
        let found = actions(point, review);
        if let Some(every) = found.iter().find_map(|(_, every)| *every) {
            let mistake = Mistake::new(every.at, "`every` outside of `beside`", "runs once");
            review.push(mistake.help("Move the action to `beside`, or remove `every`."));
        }
        found.into_iter().map(|(action, _)| action).collect()
    };
    let before_run = plain("before_run", review);
    let before_variant = plain("before_variant", review);
    let before_case = plain("before_case", review);
    let after_case = plain("after_case", review);
    let repeated = |(action, every): (Action, Option<&Node>)| Repeated {
        action,
        every: every.and_then(duration).unwrap_or(Nanos::from_millis(1000)),
    };
    let beside = actions("beside", review)
        .into_iter()
        .map(repeated)
        .collect();
    let on_fail = |review: &mut Review| {
        let entry = draft.entry("hooks.on_fail")?;
        if let Some(search) = draft.entry("search") {
            let mistake = Mistake::new(
                entry.key_at,
                "`on_fail` cannot be combined with `search`",
                "has no failed cases",
            )
            .also(search.key_at, "its probes are expected to fail");
            review
                .push(mistake.help("Remove it, or run the load that fails as a case of its own."));
            return None;
        }
        let phase = |key: &str, name: &str, review: &mut Review| {
            if entry.value.get(key).is_some() {
                return Some(plain(&format!("on_fail.{key}"), review));
            }
            let timeout = PROFILE_TIMEOUT;
            let path = engine_path(name, timeout, &entry.value, draft, PROFILER_HELP, review)?;
            let action = |url| Action {
                step: Step::Call {
                    method: Method::Post,
                    url,
                    body: None,
                },
                timeout,
            };
            let urls = urls_of(&path, &entry.value, target, "on_fail", review)?;
            Some(urls.into_iter().map(action).collect())
        };
        // One error where the engine is unknown.
        let before = phase("before", "start_profile", review)?;
        Some(ProfiledRerun {
            before,
            after: phase("after", "stop_profile", review)?,
            max: draft.count("hooks.on_fail.max")?,
        })
    };
    let on_fail = on_fail(review);
    review.section = "then".to_owned();
    let then = draft
        .items_at("then")
        .iter()
        .filter_map(|item| decode_command(item, draft, target, review))
        .collect();
    review.section.clear();
    Hooks {
        before_run,
        before_variant,
        before_case,
        after_case,
        beside,
        then,
        on_fail,
    }
}

const ACTION_HELP: &str = "Write its endpoint, for example `post: /reset_prefix_cache` (vLLM) or \
    `post: /flush_cache` (SGLang).";
const PROFILER_HELP: &str = "Write its endpoints: `on_fail: { before: [{ post: /start_profile }], \
    after: [{ post: /stop_profile }] }`.";

/// The paths of the lists of actions and commands.
pub(crate) const ITEMS: [&str; 8] = [
    "hooks.before_run",
    "hooks.before_variant",
    "hooks.before_case",
    "hooks.after_case",
    "hooks.beside",
    "hooks.on_fail.before",
    "hooks.on_fail.after",
    "then",
];

/// Reports actions and commands that are for no case.
pub(crate) fn check_conditions(
    root: &Node,
    axes: &BTreeSet<String>,
    cases: &[Case],
    review: &mut Review,
) {
    for item in ITEMS.iter().flat_map(|path| root.items_at(path)) {
        let Some(when) = item.entry_at("when") else {
            continue;
        };
        let condition = Condition::decode(item, axes, review);
        let is_met = |condition: &Condition| {
            let mut cases = cases.iter();
            cases.any(|case| condition.is_met(&case.labels, &case.target))
        };
        if let Some(condition) = condition.filter(|condition| !is_met(condition)) {
            condition.report_unmet(when, cases, review);
        }
    }
}

/// Whether the item is for the case of the draft.
fn applies(item: &Node, draft: &Draft<'_>, target: &Target, review: &mut Review) -> bool {
    let swept: BTreeSet<String> = draft
        .labels
        .0
        .iter()
        .map(|(path, _)| path.clone())
        .collect();
    Condition::decode(item, &swept, review).is_some_and(|when| when.is_met(draft.labels, target))
}

/// The actions of an item: one, or one for each server of the target.
fn decode_actions(
    item: &Node,
    draft: &Draft<'_>,
    target: &Target,
    point: &str,
    review: &mut Review,
) -> Option<Vec<Action>> {
    if !applies(item, draft, target, review) {
        return None;
    }
    let steps: Vec<&str> = STEPS
        .into_iter()
        .filter(|key| item.get(key).is_some())
        .collect();
    let [key] = steps.as_slice() else {
        let label = if steps.is_empty() {
            "says nothing to do".to_owned()
        } else {
            format!("has {}", list(steps.iter().copied(), "and"))
        };
        let mistake = Mistake::new(item.at, "an action does one thing", label);
        review.push(mistake.help("Write one of `run`, `post`, `get`, or the name of an action."));
        return None;
    };
    let node = item.get(key)?;
    let text = node.string()?;
    let timeout = item.read("timeout", duration)?;
    let steps = match *key {
        "run" => vec![Step::Run(text)],
        key => {
            let (method, path) = match key {
                "get" => (Method::Get, text),
                "post" => (Method::Post, text),
                _ => (
                    Method::Post,
                    engine_path(&text, timeout, node, draft, ACTION_HELP, review)?,
                ),
            };
            let call = |url| Step::Call {
                method,
                url,
                body: item.get("body").map(Node::json),
            };
            let urls = urls_of(&path, node, target, point, review)?;
            urls.into_iter().map(call).collect()
        }
    };
    let action = |step| Action { step, timeout };
    Some(steps.into_iter().map(action).collect())
}

/// The path of a named action of the engine, with this time limit.
fn engine_path(
    name: &str,
    timeout: Nanos,
    node: &Node,
    draft: &Draft<'_>,
    help: &str,
    review: &mut Review,
) -> Option<String> {
    let preset = draft.text("target.server.preset");
    let path = preset
        .as_deref()
        .and_then(find_preset)
        .and_then(|preset| preset.action(name, timeout));
    if path.is_none() {
        let label = match &preset {
            Some(preset) => format!("`{preset}` has no such endpoint"),
            None => "the engine is unknown without `target.server.preset`".to_owned(),
        };
        let mistake = Mistake::new(node.at, format!("no endpoint for `{name}`"), label);
        review.push(mistake.help(help));
    }
    path
}

/// The URL of a path on each server of the target. Reports a target without one.
fn urls_of(
    path: &str,
    node: &Node,
    target: &Target,
    point: &str,
    review: &mut Review,
) -> Option<Vec<String>> {
    if path.starts_with("http://") || path.starts_with("https://") || review.is_unset(path) {
        return Some(vec![path.to_owned()]);
    }
    if !path.starts_with('/') {
        let mistake = Mistake::new(node.at, "this is not a URL", "expected a path or a URL");
        review.push(mistake.help("Write for example `/reset_prefix_cache`."));
        return None;
    }
    let Some(endpoints) = target.location.endpoints() else {
        let mistake = Mistake::new(
            node.at,
            "this hook has no server",
            "the target is part of llmscen",
        );
        review.push(mistake.help(
            "Write a whole URL, or set `target.url` to that of a server. \
        `target.server: { preset: simulator }` starts the simulator as a server.",
        ));
        return None;
    };
    if point == "before_run" && target.server.is_some() {
        let mistake = Mistake::new(
            node.at,
            "this hook has no server yet",
            "the managed server starts later",
        );
        review.push(mistake.help("Move it to `before_variant`, which runs after each start."));
        return None;
    }
    let url = |url| format!("{}{path}", split_origin(url).0);
    Some(endpoints.urls().map(url).collect())
}

fn decode_command(
    item: &Node,
    draft: &Draft<'_>,
    target: &Target,
    review: &mut Review,
) -> Option<Command> {
    if !applies(item, draft, target, review) {
        return None;
    }
    let command = item.get("run")?.string()?;
    let name = item.get("name").and_then(Node::string);
    let first = || command.split_whitespace().next().unwrap_or_default();
    Some(Command {
        name: name.unwrap_or_else(|| first().rsplit('/').next().unwrap_or_default().to_owned()),
        timeout: item.read("timeout", duration)?,
        command,
    })
}
