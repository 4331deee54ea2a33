//! The kinds of data, and which keys go with which of them.

use crate::fault::{Mistake, Review};
use crate::schema_table::Kind;
use crate::sections::Draft;
use crate::sections::dataset::DATASET;
use crate::suggest::list;
use llmscen_core::api::Api;

/// The kinds.
pub(super) const KIND: Kind = Kind::Choice(
    &[
        ("prompt", "One prompt for every request"),
        (
            "line_by_line",
            "A text file, a prompt per line: text, a JSON list of messages, or a JSON object as the whole body. A line of text \
             is sent unchanged, without its line end; blank lines are skipped",
        ),
        ("openqa", "Rows with a `question`; without a path downloaded once"),
        ("longalpaca", "Rows with an `instruction`; without a path downloaded once"),
        ("rows", "Rows of any table, by `columns`"),
        ("command", "Rows that a command prints, a JSON object a line, read as those of `rows`"),
        ("messages", "OpenAI message lists"),
        ("sharegpt", "ShareGPT conversations"),
        ("random", "Tokens drawn at random, unique per request"),
        ("prefix", "Groups of prompts that share a beginning"),
        ("speed_benchmark", "96, 2048, 6144, 14336 and 30720 prompt tokens, 2048 tokens out"),
        ("speed_benchmark_long", "63488 and 129024 prompt tokens, 2048 tokens out"),
        ("trace", "Requests logged elsewhere, with the instants they arrived"),
        ("embeddings", "Texts to embed"),
        ("rerank", "A query and documents to rank"),
        ("images", "Pictures beside a text: generated, or those of a folder"),
    ],
    &[],
);

/// The keys that only some kinds read, and these kinds.
const KEYS: &[(&str, &[&str])] = &[
    (
        "path",
        &["line_by_line", "openqa", "longalpaca", "rows", "messages", "sharegpt", "trace", "embeddings", "rerank", "images"],
    ),
    ("command", &["command"]),
    ("cwd", &["command"]),
    ("timeout", &["command"]),
    ("columns", &["openqa", "longalpaca", "rows", "command", "messages", "sharegpt", "trace", "embeddings", "rerank"]),
    ("text", &["prompt", "images"]),
    ("tokens", &["random", "prefix"]),
    ("shared_prefix", &["random"]),
    ("groups", &["prefix"]),
    ("per_group", &["prefix"]),
    ("prefix_tokens", &["prefix"]),
    ("trace", &["trace"]),
    ("batch", &["embeddings"]),
    ("documents", &["rerank"]),
    ("sizes", &["images"]),
    ("count", &["images"]),
    ("shape", &["prompt", "line_by_line", "openqa", "longalpaca", "rows", "command", "messages", "sharegpt", "embeddings"]),
    ("turns", TALKS),
];

/// What a kind cannot do without; of keys in one row one is enough.
const NEEDS: &[(&str, &[&[&str]])] = &[
    ("prompt", &[&["text"]]),
    ("line_by_line", &[&["path"]]),
    ("rows", &[&["path"]]),
    ("command", &[&["command"]]),
    ("messages", &[&["path"]]),
    ("sharegpt", &[&["path"]]),
    ("random", &[&["tokens"]]),
    ("prefix", &[&["groups"], &["prefix_tokens"], &["tokens"]]),
    ("trace", &[&["path"]]),
    ("embeddings", &[&["path"]]),
    ("rerank", &[&["path"]]),
    ("images", &[&["sizes", "path"]]),
];

/// The kinds that hold conversations.
const TALKS: &[&str] = &["messages", "sharegpt", "rows", "command"];

/// The kinds that can give a query and documents.
const RANKS: [&str; 4] = ["rerank", "rows", "command", "line_by_line"];

/// Files the keys that a kind needs and has not, and those that it has no use for.
pub(super) fn fits(draft: &Draft<'_>, kind: &str, review: &mut Review) {
    let given = |key: &str| draft.get(&format!("dataset.{key}")).is_some();
    let needs = NEEDS.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, needs)| needs);
    for keys in needs.iter().filter(|keys| !keys.iter().any(|key| given(key))) {
        let names = list(keys.iter().copied(), "or");
        let help = keys.first().and_then(|key| DATASET.field(key)).map_or("", |field| field.doc);
        let at = draft.place("dataset.kind");
        review.push(Mistake::new(at, format!("`kind: {kind}` needs {names}"), format!("{names} is missing")).help(help));
    }
    let strange = KEYS.iter().filter(|(_, kinds)| !kinds.contains(&kind) && !draft.swept("dataset.kind"));
    for (key, kinds) in strange {
        if let Some(entry) = draft.entry(&format!("dataset.{key}")) {
            let mistake = Mistake::new(entry.key_at, format!("`kind: {kind}` has no use for `{key}`"), "is not read");
            let users = list(kinds.iter().copied(), "or");
            review.push(mistake.also(draft.place("dataset.kind"), "this kind").help(format!("`{key}` goes with {users}.")));
        }
    }
    if kind == "command" && draft.text("dataset.order").is_some_and(|order| order == "shuffle") {
        let mistake =
            Mistake::new(draft.place("dataset.order"), "the rows of a command cannot be shuffled", "needs all rows first");
        review.push(mistake.help("Shuffle in the command: `LLMSCEN_SEED` in its environment is the seed of the run."));
    }
    if kind == "images" && given("sizes") && given("path") {
        let at = draft.place("dataset.path");
        let mistake = Mistake::new(at, "two kinds of pictures", "those of a folder here");
        let mistake = mistake.also(draft.place("dataset.sizes"), "generated ones here");
        review.push(mistake.help("Keep one of the two."));
    }
}

/// Files what the case's protocol has no place for.
pub(super) fn suits(draft: &Draft<'_>, kind: &str, review: &mut Review) {
    let Some(api) = draft.api() else { return };
    let messages = [("dataset.system", "system"), ("dataset.turns", "turns")];
    let messages = messages.into_iter().filter_map(|(path, key)| Some((draft.entry(path)?.key_at, key)));
    let pictures = draft.entry("dataset.kind").filter(|_| kind == "images").map(|entry| (entry.value.at, "images"));
    for (at, key) in messages.chain(pictures).filter(|_| !api.takes_messages()) {
        let verb = if key == "system" { "needs" } else { "need" };
        let mistake = Mistake::new(at, format!("`{key}` {verb} messages"), format!("{api} has none"));
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(if key == "system" && api.generates() {
            mistake.help("Put it into `request.template`, in front of `{{ prompt }}`.")
        } else {
            mistake.help("Protocols with messages are openai-chat, openai-responses, anthropic, dashscope and ollama.")
        });
    }
    one_text(draft, kind, api, review);
    if matches!(api, Api::Anthropic | Api::OpenaiResponses)
        && let Some(node) =
            draft.get("dataset.turns.keep_reasoning").filter(|_| draft.flag("dataset.turns.keep_reasoning") == Some(true))
    {
        let mistake =
            Mistake::new(node.at, "reasoning cannot be fed back", format!("{api} takes it only with its own signature"));
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(mistake.help("Leave `keep_reasoning` out: replies go back without their reasoning."));
    }
    if api == Api::Rerank && draft.get("request.template").is_none() && !RANKS.contains(&kind) {
        let mistake = Mistake::new(draft.place("dataset.kind"), "rerank needs a query and documents", "gives prompts");
        let mistake = draft.also_api(mistake, "this protocol");
        review.push(mistake.help("Data with both: `kind: rerank`, or `kind: rows`. For others write a `request.template`."));
    }
}

/// Whether the protocol's own body has a place for one generated text's prompt alone.
pub(super) fn takes_one_text(api: Api) -> bool {
    api.generates() && !api.takes_messages() && api != Api::Custom
}

/// Files lists of messages for a protocol whose own body takes one text: all but the last message would be lost. A body of
/// one's own says what it takes of them.
fn one_text(draft: &Draft<'_>, kind: &str, api: Api, review: &mut Review) {
    let columns = |key: &str| draft.get("dataset.columns").is_some_and(|columns| columns.entry(key).is_some());
    let table = matches!(kind, "rows" | "command");
    let lists = kind == "messages" || table && columns("messages") && !columns("prompt");
    if !lists || api.takes_messages() || api == Api::Rerank || draft.get("request.template").is_some() {
        return;
    }
    let (at, what) = match kind {
        _ if table => (draft.place("dataset.columns"), "rows with `messages` need messages"),
        _ => (draft.place("dataset.kind"), "`kind: messages` needs messages"),
    };
    let mistake = draft.also_api(Mistake::new(at, what, format!("{api} takes one text")), "this protocol");
    review.push(mistake.help(
        "Protocols with messages are openai-chat, openai-responses, anthropic, dashscope and ollama. In a \
         `request.template`, `%p` is the last message of the user alone.",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_speak_of_kinds_and_keys_that_exist() {
        let Kind::Choice(words, _) = KIND else { panic!("not a choice") };
        let kinds = KEYS.iter().flat_map(|(_, kinds)| kinds.iter()).chain(NEEDS.iter().map(|(kind, _)| kind)).chain(&RANKS);
        for kind in kinds {
            assert!(words.iter().any(|(word, _)| word == kind), "{kind}");
        }
        let keys = NEEDS.iter().flat_map(|(_, needs)| needs.iter().copied().flatten()).chain(KEYS.iter().map(|(key, _)| key));
        for key in keys {
            assert!(DATASET.field(key).is_some() && KEYS.iter().any(|(own, _)| own == key), "{key}");
        }
    }
}
