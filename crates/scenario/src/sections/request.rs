//! `request`: content, protocol support, response extraction, retries and cancellations.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::{
    Block, Kind, conflicts_with, field, one_of, only_with, required_with, requires, unused_with,
};
use crate::sections::local::WITHOUT_LOCAL;
use crate::sections::{expect, local};
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Node, Span, last_segment};
use crate::values::distribution::{QUANTITY, WAIT, quantity, wait};
use crate::values::jsonpath::{DONE, PATH, PATHS, done, paths};
use crate::values::number::{SHARE, share};
use crate::values::target::{CAUSES, causes};
use crate::values::text::{FLAG_OR_COUNT, MARKERS, TEXTS, markers};
use crate::values::time::{SPAN, duration};
use llmscen_core::api::Api;
use llmscen_core::expect::Expect;
use llmscen_core::request::{
    Cancel, CancelWhen, Extract, ExtractUsage, Framing, RequestSpec, Retry,
};
use llmscen_requests::render::values;
use llmscen_requests::render::values::{Leaf, LeafError, ROOTS};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The output limit; `Api::place` has its name in each protocol.
const LIMIT: &str = "max_tokens";

const MOST: i64 = u32::MAX as i64;

pub(crate) static REQUEST: Block = Block {
    doc: "The content of requests. The template has priority; the other fields are \
    added where it omits them; `extra` overrides both.",
    short: None,
    fields: &[
        field(
            "template",
            Kind::Template,
            "The body: a JSON or YAML file, or the body itself, with `%m`, `%p` or \
            `{{ … }}` in its texts.",
        )
        .example("templates/openai-chat.json")
        .rules(&[required_with(&["target.api"], &["custom"]).help(
            "The body of a request: a JSON or \
            YAML file, or the body itself.",
        )]),
        field(
            "prompt",
            PROMPT,
            "How the prompt is sent, by default as text. Token ids make the length of `kind: \
            random` exact without a search for a text, and spare the server the tokenizer; other \
            kinds need `dataset.tokenizer`.",
        )
        .example("token_ids")
        .rules(&[
            only_with(&["target.api"], &["openai-completions", "custom"])
                .when("token_ids")
                .reason("takes text only")
                .beside("this protocol")
                .help("Use `api: openai-completions`."),
        ]),
        field(
            "stream",
            Kind::Bool,
            "Request a stream of text. Embeddings, rerank, speech and \
        images have none.",
        )
        .default("true")
        .example("false")
        .rules(&[
            unused_with(&["target.api"], &WITHOUT_STREAM)
                .when("true")
                .reason("no text is generated")
                .beside("this protocol")
                .help("Remove it: the whole response is requested."),
            unused_with(&["target.api"], &["local"])
                .when("false")
                .reason("every token is reported as it is generated")
                .beside("a local model")
                .help("Remove it."),
        ]),
        field(
            "max_tokens",
            Kind::Leaf(&QUANTITY),
            "Maximum output tokens: a number \
        or a distribution.",
        )
        .example("256"),
        field(
            "min_tokens",
            Kind::Whole(0, MOST),
            "Minimum number of output tokens.",
        )
        .example("16"),
        field(
            "temperature",
            Kind::Number(0.0, 100.0),
            "Sampling temperature; 0 is greedy.",
        )
        .example("0"),
        field("top_p", Kind::Number(0.0, 1.0), "Nucleus sampling.").example("0.95"),
        field(
            "top_k",
            Kind::Whole(-1, MOST),
            "Sampling among the k most likely \
        tokens; -1 for all.",
        )
        .example("50"),
        field(
            "min_p",
            Kind::Number(0.0, 1.0),
            "Minimum token probability relative to \
        the most likely token (min-p).",
        )
        .example("0.05"),
        field(
            "frequency_penalty",
            Kind::Number(-2.0, 2.0),
            "Penalty by frequency.",
        )
        .example("0.5"),
        field(
            "presence_penalty",
            Kind::Number(-2.0, 2.0),
            "Penalty by presence.",
        )
        .example("0.5"),
        field(
            "repetition_penalty",
            Kind::Number(f64::MIN_POSITIVE, f64::INFINITY),
            "Penalty for \
        repetition; 1 is none.",
        )
        .example("1.1"),
        field("stop", Kind::Leaf(&TEXTS), "Stop sequences.").example("[\"\\n\\n\"]"),
        field(
            "stop_token_ids",
            Kind::List(&Kind::Whole(0, MOST)),
            "Token ids that end the output.",
        )
        .example("[128001]"),
        field("n", Kind::Whole(1, 1024), "Choices per request.").example("2"),
        field(
            "logprobs",
            Kind::Leaf(&FLAG_OR_COUNT),
            "Request log-probabilities.",
        )
        .example("true"),
        field(
            "seed",
            Kind::Whole(i64::MIN, i64::MAX),
            "Sampling seed of the server.",
        )
        .example("7"),
        field(
            "ignore_eos",
            Kind::Bool,
            "Generate exactly `max_tokens`; ignore the \
        end-of-sequence token.",
        )
        .example("true"),
        field(
            "keep",
            Kind::Block(&local::KEEP),
            "`api: local`: data to store for each request.",
        )
        .example("{ logits: true }")
        .rules(&[only_with(&["target.api"], &["local"])
            .reason("has no effect")
            .beside("this is a server")
            .help("Remove it, or write `api: local`.")]),
        field(
            "extra",
            Kind::Map(&Kind::Json),
            "Merged into the body last, overriding \
        everything; `null` removes a key.",
        )
        .example("{ response_format: { type: json_object } }"),
        field(
            "extract",
            Kind::Block(&EXTRACT),
            "`api: custom`: how responses are read, with JSONPaths (RFC 9535) into each event or \
            into the whole response.",
        )
        .example("{ text: \"$.choices[*].delta.content\", done: \"[DONE]\" }")
        .rules(&[
            only_with(&["target.api"], &["custom"])
                .reason("the protocol defines its responses")
                .beside("this protocol")
                .help("Remove it, or write `api: custom` and a template."),
            required_with(&["target.api"], &["custom"]).help(
                "The path of the text in a response, for example `extract: { \
                text: $.response }`.",
            ),
        ]),
        field(
            "reasoning",
            Kind::Block(&REASONING),
            "How reasoning in the text of an answer is recognized, if the server does \
            not separate it.",
        )
        .example("{ markers: [\"<plan>\", \"</plan>\"] }")
        .rules(&[unused_with(&["target.api"], &WITHOUT_STREAM)
            .reason("nothing is generated")
            .beside("this protocol")
            .help("Remove it.")]),
        field("retry", Kind::Block(&RETRY), "Retries; none by default.")
            .example("{ on: [429, 503], max: 2 }")
            .rules(&[WITHOUT_LOCAL]),
        field(
            "cancel",
            Kind::Block(&CANCEL),
            "Users who cancel before the response \
        is complete; none by default.",
        )
        .example("{ share: 5%, tokens: 20 }")
        .rules(
            &[requires(&["request.cancel.after", "request.cancel.tokens"])
                .help("For example `{ share: 5%, after: 2s }` or `{ share: 5%, tokens: 20 }`.")],
        ),
        field(
            "expect",
            Kind::Block(&expect::EXPECT),
            "Checks of the answers; none by default.",
        )
        .example("{ contains: item.answer, repetition: \"< 30%\" }")
        .rules(&[
            requires(&[
                "request.expect.json_schema",
                "request.expect.regex",
                "request.expect.equals",
                "request.expect.contains",
                "request.expect.tool_call",
                "request.expect.length",
                "request.expect.repetition",
                "request.expect.language",
            ])
            .help("For example `{ contains: item.answer }` or `{ json_schema: schema.json }`."),
            conflicts_with(&["target.api"], &WITHOUT_STREAM)
                .reason("nothing is generated")
                .beside("this protocol")
                .help("Remove it."),
        ]),
    ],
};

const PROMPT: Kind = Kind::Choice(
    &[("text", "As text"), ("token_ids", "As a list of token ids")],
    &[],
);

/// Fields that have a place in the body of some protocols.
pub(crate) const FIELDS: [&str; 15] = [
    "max_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "stop",
    "stop_token_ids",
    "n",
    "logprobs",
    "seed",
    "ignore_eos",
];

/// The request of a case. Reports errors in its templates.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<RequestSpec> {
    let template = match draft.get("request.template") {
        Some(node) => Some(files::mapping(node, &files::BODY, review)?),
        None => None,
    };
    let extra = draft.get("request.extra");
    let mut used = BTreeSet::new();
    for node in template.iter().chain(extra) {
        check_templates(node, draft, &mut used, review);
    }
    check_limit_used(draft, &used, review);
    let api = draft.api();
    if let Some(api) = api {
        check_protocol(draft, api, template.as_ref(), review);
    }
    let section = draft.get("request")?;
    let sampling = FIELDS.into_iter().filter(|name| *name != LIMIT);
    let sampling = sampling
        .filter_map(|name| Some((name.to_owned(), section.get(name)?.json())))
        .collect();
    let stream = draft.flag("request.stream")? && api.is_none_or(Api::generates);
    Some(RequestSpec {
        template: template.map(|node| node.json()),
        stream,
        max_tokens: draft.read("request.max_tokens", |node| quantity(node, review)),
        sampling,
        extra: extra.map(json_object).unwrap_or_default(),
        extract: api.and_then(|api| decode_extract(draft, api)),
        markers: draft
            .read("request.reasoning.markers", markers)
            .unwrap_or_default(),
        retry: decode_retry(draft, review),
        cancel: decode_cancel(draft, review),
        expect: decode_expect(draft, review),
    })
}

fn json_object(node: &Node) -> Map<String, Value> {
    node.entries()
        .iter()
        .map(|entry| (entry.key.clone(), entry.value.json()))
        .collect()
}

/// Reports `max_tokens` of a custom body that does not use it.
fn check_limit_used(draft: &Draft<'_>, used: &BTreeSet<String>, review: &mut Review) {
    let entry = draft
        .entry("request.max_tokens")
        .filter(|_| draft.api() == Some(Api::Custom));
    if let Some(entry) =
        entry.filter(|_| !used.contains("case.max_tokens") && !used.contains("case"))
    {
        let mistake = Mistake::new(
            entry.key_at,
            "`max_tokens` is not used in the body",
            "is not sent",
        );
        let mistake = draft.also_api(mistake, "only the template is sent");
        review.push(
            mistake.help("Write `\"{{ case.max_tokens }}\"` where the server expects the length."),
        );
    }
}

/// Compiles every text of a body, so that errors are found before the first request. Collects the variables.
fn check_templates(
    node: &Node,
    draft: &Draft<'_>,
    used: &mut BTreeSet<String>,
    review: &mut Review,
) {
    node.items()
        .iter()
        .for_each(|item| check_templates(item, draft, used, review));
    node.entries()
        .iter()
        .for_each(|entry| check_templates(&entry.value, draft, used, review));
    let Data::Text(text) = &node.data else { return };
    let wrong = |what: &str, error: LeafError, review: &mut Review| {
        let at = error
            .range
            .map_or(node.at, |range| review.sources.part(node, text, range));
        review.push(Mistake::new(at, what, error.message));
    };
    match values::compile(text) {
        Err(error) => wrong("this template has a syntax error", error, review),
        Ok(leaf) => {
            let before = review.count();
            check_variables(&leaf, node, draft, review);
            if let Some(error) = leaf.trial(text).filter(|_| review.count() == before) {
                wrong("this template cannot be rendered", error, review);
            }
            used.extend(leaf.variables());
        }
    }
}

fn check_variables(leaf: &Leaf, node: &Node, draft: &Draft<'_>, review: &mut Review) {
    let cases: Vec<&str> = std::iter::once("max_tokens")
        .chain(draft.labels.0.iter().map(|(path, _)| last_segment(path)))
        .collect();
    for path in leaf.variables() {
        let (root, rest) = path.split_once('.').unwrap_or((&path, ""));
        let (word, known): (&str, &[&str]) = match (root, rest) {
            ("case", name) if !name.is_empty() && !cases.contains(&name) => (name, &cases),
            (root, _) if !ROOTS.contains(&root) => (root, &ROOTS),
            _ => continue,
        };
        let meant = nearest(word, known.iter().copied().filter(|_| !review.is_flooded()));
        let label = meant_or(meant, "does not exist");
        let written = match &node.data {
            Data::Text(text) => text.as_str(),
            _ => "",
        };
        let found = written
            .find(path.as_str())
            .map(|start| start..start + path.len());
        let at = found.map_or(node.at, |range| review.sources.part(node, written, range));
        let owner = if root == "case" {
            "`case` has"
        } else {
            "A template has"
        };
        review.push(
            Mistake::new(at, format!("unknown variable `{path}`"), label)
                .help(format!("{owner} {}.", list(known.iter().copied(), "and"))),
        );
    }
}

/// Protocols that generate no text.
pub(crate) const WITHOUT_STREAM: [&str; 4] = [
    "openai-embeddings",
    "rerank",
    "openai-speech",
    "openai-images",
];

/// Datasets that define the output length.
const LONG: [&str; 3] = ["speed_benchmark", "speed_benchmark_long", "trace"];

/// Reports fields that the protocol does not have, and required ones that are missing.
pub(crate) fn check_protocol(
    draft: &Draft<'_>,
    api: Api,
    template: Option<&Node>,
    review: &mut Review,
) {
    for field in FIELDS.iter().filter(|field| !supports_field(api, field)) {
        if let Some(entry) = draft.entry(&format!("request.{field}")) {
            review
                .push(draft.also_api(unsupported_field(api, field, entry.key_at), "this protocol"));
        }
    }
    local::check_extra(draft, api, review);
    if matches!(api, Api::Anthropic | Api::Local) {
        check_limit_required(draft, api, template, review);
    }
}

/// Whether the protocol has a field. Custom bodies only have `max_tokens`, which is drawn here.
fn supports_field(api: Api, field: &str) -> bool {
    api.body_path(field).is_some() || api == Api::Custom && field == "max_tokens"
}

fn unsupported_field(api: Api, field: &str, at: Span) -> Mistake {
    if api == Api::Custom {
        let mistake = Mistake::new(
            at,
            format!("`{field}` cannot be used with `api: custom`"),
            "belongs in the template",
        );
        let help = "Write it into `request.template`; only `max_tokens` is drawn, as \
        `{{ case.max_tokens }}`.";
        return mistake.help(help);
    }
    let known: Vec<&str> = FIELDS
        .into_iter()
        .filter(|field| supports_field(api, field))
        .collect();
    let takes = if known.is_empty() {
        "none of these fields".to_owned()
    } else {
        list(known, "and")
    };
    let mistake = Mistake::new(
        at,
        format!("{api} has no `{field}`"),
        "not supported by this protocol",
    );
    mistake.help(format!(
        "It supports {takes}; `extra` adds anything to the body."
    ))
}

fn check_limit_required(draft: &Draft<'_>, api: Api, template: Option<&Node>, review: &mut Review) {
    let key = "max_tokens";
    let has_limit = draft.get("request.max_tokens").is_some()
        || template.is_some_and(|body| body.entry(key).is_some())
        || draft.get("request.extra.max_tokens").is_some()
        || draft.get("dataset.lengths").is_some()
        || draft
            .text("dataset.kind")
            .is_some_and(|kind| LONG.contains(&kind.as_ref()));
    if !has_limit && let Some(entry) = draft.entry("target.api") {
        let mistake = Mistake::new(
            entry.value.at,
            format!("{api} needs `request.{key}`"),
            "`max_tokens` is missing",
        );
        let local = "A reply would use the whole context of the model";
        let why = if api == Api::Local {
            local
        } else {
            "Its servers reject a request without a limit"
        };
        review.push(mistake.help(format!("{why}; for example `max_tokens: 256`.")));
    }
}

const FRAMING: Kind = Kind::Choice(
    &[
        ("sse", "Server-sent events"),
        ("ndjson", "One JSON document per line"),
        ("json", "One JSON document"),
    ],
    &[],
);

static USAGE: Block = Block {
    doc: "JSONPaths of the server's token counts; the last value is used.",
    short: None,
    fields: &[
        field("prompt", Kind::Leaf(&PATH), "Prompt tokens.").example("$.usage.prompt_tokens"),
        field("output", Kind::Leaf(&PATH), "Tokens generated.")
            .example("$.usage.completion_tokens"),
        field(
            "reasoning",
            Kind::Leaf(&PATH),
            "Reasoning tokens, which are part of the output.",
        )
        .example("$.usage.completion_tokens_details.reasoning_tokens"),
        field(
            "cached",
            Kind::Leaf(&PATH),
            "Prompt tokens from the prefix cache.",
        )
        .example("$.usage.prompt_tokens_details.cached_tokens"),
    ],
};

pub(crate) static EXTRACT: Block = Block {
    doc: "How responses of `api: custom` are read: JSONPaths (RFC 9535) into each event of a \
    stream, or into the whole response.",
    short: None,
    fields: &[
        field(
            "framing",
            FRAMING,
            "Framing of the body; from its `content-type` by default.",
        )
        .example("ndjson"),
        field(
            "text",
            Kind::Leaf(&PATHS),
            "Generated text: a path, or a list of them; all \
        selected texts count. Text of a path with `reason` or `think` in it is reasoning.",
        )
        .required()
        .example("$.choices[*].delta.content"),
        field(
            "choice",
            Kind::Leaf(&PATH),
            "Index of the choice that the texts belong to; a single choice by default.",
        )
        .example("$.choices[0].index"),
        field("usage", Kind::Block(&USAGE), "Token counts.")
            .example("{ output: $.usage.completion_tokens }"),
        field("finish", Kind::Leaf(&PATH), "Finish reason.").example("$.choices[0].finish_reason"),
        field("id", Kind::Leaf(&PATH), "Id of the response.").example("$.id"),
        field(
            "error",
            Kind::Leaf(&PATH),
            "An error with a successful status: the selected value \
        is the server's message.",
        )
        .example("$.error.message"),
        field(
            "done",
            Kind::Leaf(&DONE),
            "End marker of a stream: the data of its last event, `{ event: name }`, a JSONPath, \
            or `{ path: …, equals: … }`; the end of the body by default.",
        )
        .example("\"[DONE]\""),
    ],
};

/// None where the protocol defines its responses.
fn decode_extract(draft: &Draft<'_>, api: Api) -> Option<Extract> {
    if api != Api::Custom {
        return None;
    }
    let text = |path: &str| draft.string(&format!("request.extract.{path}"));
    Some(Extract {
        framing: text("framing").map(|word| match word.as_str() {
            "ndjson" => Framing::Ndjson,
            "json" => Framing::Json,
            _ => Framing::Sse,
        }),
        text: draft.get("request.extract.text").map(paths)?,
        choice: text("choice"),
        usage: ExtractUsage {
            prompt: text("usage.prompt"),
            output: text("usage.output"),
            reasoning: text("usage.reasoning"),
            cached: text("usage.cached"),
        },
        finish: text("finish"),
        id: text("id"),
        error: text("error"),
        done: draft.read("request.extract.done", done),
    })
}

pub(super) static RETRY: Block = Block {
    doc: "Retry policy. A request is retried only before its first token; its latency and total \
    timeout include all attempts.",
    short: None,
    fields: &[
        field(
            "on",
            Kind::Leaf(&CAUSES),
            "Statuses and kinds of failure to retry.",
        )
        .default("[429, 503]")
        .example("[429, 503, connect, timeout_connect]"),
        field(
            "honor",
            Kind::Choice(
                &[
                    (
                        "retry-after",
                        "As long as the `Retry-After` header of the response",
                    ),
                    ("nothing", "`wait` alone"),
                ],
                &[],
            ),
            "Whether `Retry-After` replaces the wait.",
        )
        .default("retry-after")
        .example("nothing"),
        field(
            "max",
            Kind::Whole(1, 100),
            "Maximum number of attempts after the first.",
        )
        .default("2")
        .example("5"),
        field(
            "wait",
            Kind::Leaf(&SPAN),
            "Wait before the second attempt. It doubles with every further one; the actual wait \
            is drawn from the seed, between half and all of it.",
        )
        .default("1s")
        .example("250ms"),
    ],
};

static REASONING: Block = Block {
    doc: "Reasoning between markers in the text of an answer. It counts as reasoning, and \
    `expect` does not check it. Later turns leave it out unless `dataset.turns.keep_reasoning` \
    includes it.",
    short: None,
    fields: &[field(
        "markers",
        Kind::Leaf(&MARKERS),
        "`auto` knows `<think>`, `<thinking>`, `<thought>`, `<reasoning>`, \
        `<mm:think>`, `<seed:think>`, `[THINK]`, `<|START_THINKING|>`, `◁think▷` and \
        the channels of Harmony. They count at the beginning of the answer. A closing \
        marker alone ends reasoning that the chat template began. `none`: the whole \
        text is the answer.",
    )
    .default("auto")
    .example("[\"<plan>\", \"</plan>\"]")],
};

pub(super) static CANCEL: Block = Block {
    doc: "Client cancellations: the connection is closed mid-stream. Counted as \
    `abandoned`, not as errors.",
    short: None,
    fields: &[
        field(
            "share",
            Kind::Leaf(&SHARE),
            "Share of the requests, drawn from the seed.",
        )
        .required()
        .example("5%"),
        field(
            "after",
            Kind::Leaf(&WAIT),
            "Time from send to cancellation: a duration or a distribution.",
        )
        .example("2s")
        .rules(&[one_of(&["after", "tokens"], "after a time here").help("Keep one of them.")]),
        field(
            "tokens",
            Kind::Leaf(&QUANTITY),
            "Token events before cancellation: a number or a distribution.",
        )
        .example("20")
        .rules(&[
            one_of(&["after", "tokens"], "after a number of tokens here").help("Keep one of them."),
            conflicts_with(&["request.stream"], &["false"])
                .reason("a response without streaming has no token events")
                .beside("not streamed")
                .help("Use `after`, or `stream: true`."),
            conflicts_with(&["target.api"], &WITHOUT_STREAM)
                .reason("a response without streaming has no token events")
                .beside("not streamed")
                .help("Use `after`."),
        ]),
    ],
};

/// Whether a block is complete: one that only the matrix sets has no defaults. Reports an incomplete one.
fn check_complete(draft: &Draft<'_>, path: &str, key: &str, review: &mut Review) -> Option<()> {
    draft.get(path)?;
    if draft.get(&format!("{path}.{key}")).is_none() {
        let mistake = Mistake::new(
            draft.key_span("matrix"),
            format!("`matrix` sweeps `{path}`, which the scenario does not set"),
            "sweeps it",
        );
        review.push(mistake.help("Write it into `request`, with the values that all cases share."));
        return None;
    }
    Some(())
}

pub(super) fn decode_retry(draft: &Draft<'_>, review: &mut Review) -> Option<Retry> {
    check_complete(draft, "request.retry", "on", review)?;
    let (statuses, kinds) = draft.read("request.retry.on", causes)?;
    Some(Retry {
        statuses,
        kinds,
        honor: draft.text("request.retry.honor").as_deref() == Some("retry-after"),
        max: draft.count("request.retry.max")?,
        wait: draft.read("request.retry.wait", duration)?,
    })
}

fn decode_cancel(draft: &Draft<'_>, review: &mut Review) -> Option<Cancel> {
    check_complete(draft, "request.cancel", "share", review)?;
    let when = match (
        draft.get("request.cancel.after"),
        draft.get("request.cancel.tokens"),
    ) {
        (Some(after), None) => CancelWhen::After(wait(after, review)?),
        (None, Some(tokens)) => CancelWhen::Tokens(quantity(tokens, review)?),
        _ => return None,
    };
    Some(Cancel {
        share: draft.read("request.cancel.share", share)?,
        when,
    })
}

fn decode_expect(draft: &Draft<'_>, review: &mut Review) -> Option<Expect> {
    check_complete(draft, "request.expect", "keep", review)?;
    expect::decode(draft, review)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_a_sampling_field_or_has_its_own_block() {
        let others = [
            "template",
            "prompt",
            "stream",
            "keep",
            "extra",
            "extract",
            "reasoning",
            "retry",
            "cancel",
            "expect",
        ];
        let placed = REQUEST.names().filter(|name| !others.contains(name));
        assert_eq!(placed.collect::<Vec<_>>(), FIELDS);
    }
}
