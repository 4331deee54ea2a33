//! `request`: what each request says.

use crate::fault::{Mistake, Review};
use crate::render::values::{self, Leaf, LeafError, ROOTS};
use crate::schema_table::{Block, Kind, field};
use crate::sections::{Draft, extract, local, protocol_support, retry};
use crate::suggest::{list, near};
use crate::template;
use crate::tree::{Data, Node};
use crate::values::quantity::{QUANTITY, quantity};
use crate::values::word::{FLAG_OR_COUNT, TEXTS};
use llmscen_core::api::Api;
use llmscen_core::request::RequestSpec;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The field that limits the output; what protocols call it, `Api::place` knows.
const LIMIT: &str = "max_tokens";

const MOST: i64 = u32::MAX as i64;

/// The keys of `request`.
pub(crate) static REQUEST: Block = Block {
    doc: "What each request says. What the template says wins; the other fields fill in what it leaves out; `extra` wins over all.",
    short: None,
    fields: &[
        field(
            "template",
            Kind::Template,
            "The body: a JSON or YAML file, or the body itself, with `%m`, `%p` or `{{ … }}` in its texts.",
        )
        .example("templates/openai-chat.json"),
        field("stream", Kind::Bool, "Ask for a stream. Embeddings and rerank have none.").default("true").example("false"),
        field("max_tokens", Kind::Leaf(&QUANTITY), "Output tokens allowed: a number or a distribution.").example("256"),
        field("min_tokens", Kind::Whole(0, MOST), "Output tokens at the least.").example("16"),
        field("temperature", Kind::Number(0.0, 100.0), "Sampling temperature; 0 is greedy.").example("0"),
        field("top_p", Kind::Number(0.0, 1.0), "Nucleus sampling.").example("0.95"),
        field("top_k", Kind::Whole(-1, MOST), "Sampling among the k likeliest tokens; -1 for all.").example("50"),
        field("min_p", Kind::Number(0.0, 1.0), "Sampling among tokens at least so likely, as a share of the likeliest.")
            .example("0.05"),
        field("frequency_penalty", Kind::Number(-2.0, 2.0), "Penalty by frequency.").example("0.5"),
        field("presence_penalty", Kind::Number(-2.0, 2.0), "Penalty by presence.").example("0.5"),
        field("repetition_penalty", Kind::Number(f64::MIN_POSITIVE, f64::INFINITY), "Penalty for repetition; 1 is none.")
            .example("1.1"),
        field("stop", Kind::Leaf(&TEXTS), "Texts that end the output.").example("[\"\\n\\n\"]"),
        field("stop_token_ids", Kind::List(&Kind::Whole(0, MOST)), "Tokens that end the output.").example("[128001]"),
        field("n", Kind::Whole(1, 1024), "Choices per request.").example("2"),
        field("logprobs", Kind::Leaf(&FLAG_OR_COUNT), "Ask for log-probabilities.").example("true"),
        field("seed", Kind::Whole(i64::MIN, i64::MAX), "The server's own sampling seed.").example("7"),
        field("ignore_eos", Kind::Bool, "Go on to `max_tokens` whatever the model says.").example("true"),
        field("keep", Kind::Block(&local::KEEP), "`api: local`: what is kept of each request besides its row.")
            .example("{ logits: true }"),
        field("extra", Kind::Map(&Kind::Json), "Merged into the body last, over everything; `null` removes a key.")
            .example("{ response_format: { type: json_object } }"),
        field(
            "extract",
            Kind::Block(&extract::EXTRACT),
            "`api: custom`: how the responses are read, by JSONPaths (RFC 9535) into each event or into the whole response.",
        )
        .example("{ text: \"$.choices[*].delta.content\", done: \"[DONE]\" }"),
        field("retry", Kind::Block(&retry::RETRY), "What is tried once more; nothing without it.")
            .example("{ on: [429, 503], max: 2 }"),
        field("cancel", Kind::Block(&retry::CANCEL), "Users who leave before their answer is complete; nobody without it.")
            .example("{ share: 5%, tokens: 20 }"),
    ],
};

/// The fields that a protocol gives a place in the body, or has none for.
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

/// The request of a case. Files what is wrong with its templates.
pub(crate) fn decode(draft: &Draft<'_>, review: &mut Review) -> Option<RequestSpec> {
    let template = match draft.get("request.template") {
        Some(node) => Some(template::body(node, review)?),
        None => None,
    };
    let extra = draft.get("request.extra");
    let mut used = BTreeSet::new();
    for node in template.iter().chain(extra) {
        leaves(node, draft, &mut used, review);
    }
    unused(draft, &used, review);
    let api = draft.api();
    if let Some(api) = api {
        protocol_support::check(draft, api, template.as_ref(), review);
    }
    let section = draft.get("request")?;
    let sampling = FIELDS.into_iter().filter(|name| *name != LIMIT);
    let sampling = sampling.filter_map(|name| Some((name.to_owned(), section.get(name)?.json()))).collect();
    let stream = draft.flag("request.stream")? && api.is_none_or(Api::generates);
    Some(RequestSpec {
        template: template.map(|node| node.json()),
        stream,
        max_tokens: draft.get("request.max_tokens").and_then(quantity),
        sampling,
        extra: extra.map(object).unwrap_or_default(),
        extract: api.and_then(|api| extract::decode(draft, api, review)),
        retry: retry::retry(draft, review),
        cancel: retry::cancel(draft, stream, review),
    })
}

fn object(node: &Node) -> Map<String, Value> {
    node.entries().iter().map(|entry| (entry.key.clone(), entry.value.json())).collect()
}

/// In a body of one's own the length goes where the template says, so it must say so.
fn unused(draft: &Draft<'_>, used: &BTreeSet<String>, review: &mut Review) {
    let entry = draft.entry("request.max_tokens").filter(|_| draft.api() == Some(Api::Custom));
    if let Some(entry) = entry.filter(|_| !used.contains("case.max_tokens") && !used.contains("case")) {
        let mistake = Mistake::new(entry.key_at, "`max_tokens` is nowhere in the body", "is not sent");
        let mistake = draft.also_api(mistake, "the template alone says what is sent");
        review.push(mistake.help("Write `\"{{ case.max_tokens }}\"` where the server expects the length."));
    }
}

/// Compiles every text of a body once, so that a mistake in it is known before the first request; gathers its variables.
fn leaves(node: &Node, draft: &Draft<'_>, used: &mut BTreeSet<String>, review: &mut Review) {
    node.items().iter().for_each(|item| leaves(item, draft, used, review));
    node.entries().iter().for_each(|entry| leaves(&entry.value, draft, used, review));
    let Data::Text(text) = &node.data else { return };
    let wrong = |what: &str, error: LeafError, review: &mut Review| {
        let at = error.range.map_or(node.at, |range| review.sources.part(node, text, range));
        review.push(Mistake::new(at, what, error.message));
    };
    match values::compile(text) {
        Err(error) => wrong("this template does not parse", error, review),
        Ok(leaf) => {
            let before = review.count();
            variables(&leaf, node, draft, review);
            if let Some(error) = leaf.trial(text).filter(|_| review.count() == before) {
                wrong("this template cannot be rendered", error, review);
            }
            used.extend(leaf.variables());
        }
    }
}

fn variables(leaf: &Leaf, node: &Node, draft: &Draft<'_>, review: &mut Review) {
    let cases: Vec<&str> = std::iter::once("max_tokens").chain(draft.labels.0.iter().map(|(path, _)| last(path))).collect();
    for path in leaf.variables() {
        let (root, rest) = path.split_once('.').unwrap_or((&path, ""));
        let (word, known): (&str, &[&str]) = match (root, rest) {
            ("case", name) if !name.is_empty() && !cases.contains(&name) => (name, &cases),
            (root, _) if !ROOTS.contains(&root) => (root, &ROOTS),
            _ => continue,
        };
        let meant = near(word, known.iter().copied().filter(|_| !review.is_flooded()));
        let label = meant.map_or("does not exist".to_owned(), |meant| format!("did you mean `{meant}`?"));
        let written = match &node.data {
            Data::Text(text) => text.as_str(),
            _ => "",
        };
        let found = written.find(path.as_str()).map(|start| start..start + path.len());
        let at = found.map_or(node.at, |range| review.sources.part(node, written, range));
        let owner = if root == "case" { "`case` has" } else { "A template knows" };
        review.push(
            Mistake::new(at, format!("unknown variable `{path}`"), label)
                .help(format!("{owner} {}.", list(known.iter().copied(), "and"))),
        );
    }
}

/// The last segment of a dotted path.
pub(crate) fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_either_placed_by_the_protocol_or_one_of_the_blocks_own() {
        let own = ["template", "stream", "keep", "extra", "extract", "retry", "cancel"];
        let placed = REQUEST.names().filter(|name| !own.contains(name));
        assert_eq!(placed.collect::<Vec<_>>(), FIELDS);
    }
}
