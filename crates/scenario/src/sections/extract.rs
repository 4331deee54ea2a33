//! `request.extract`: how the responses of `api: custom` are read.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::sections::Draft;
use crate::values::jsonpath::{DONE, PATH, PATHS, done, paths};
use llmscen_core::api::Api;
use llmscen_core::request::{Extract, ExtractUsage, Framing};

const FRAMING: Kind =
    Kind::Choice(&[("sse", "Server-sent events"), ("ndjson", "A JSON document a line"), ("json", "One JSON document")], &[]);

static USAGE: Block = Block {
    doc: "JSONPaths of the server's own token counts; the last value that was seen holds.",
    short: None,
    fields: &[
        field("prompt", Kind::Leaf(&PATH), "Tokens of the prompt.").example("$.usage.prompt_tokens"),
        field("output", Kind::Leaf(&PATH), "Tokens generated.").example("$.usage.completion_tokens"),
        field("reasoning", Kind::Leaf(&PATH), "Reasoning tokens among them.")
            .example("$.usage.completion_tokens_details.reasoning_tokens"),
        field("cached", Kind::Leaf(&PATH), "Prompt tokens from the server's cache.")
            .example("$.usage.prompt_tokens_details.cached_tokens"),
    ],
};

/// The keys of `request.extract`.
pub(crate) static EXTRACT: Block = Block {
    doc: "How the responses of `api: custom` are read: JSONPaths (RFC 9535) into each event of a stream, or into the whole response.",
    short: None,
    fields: &[
        field("framing", FRAMING, "How the body is framed; without it as its `content-type` says.").example("ndjson"),
        field("text", Kind::Leaf(&PATHS), "Generated text: a path, or a list of them; every text that they select counts.")
            .required()
            .example("$.choices[*].delta.content"),
        field("choice", Kind::Leaf(&PATH), "Number of the choice that the texts belong to; without it all belong to one.")
            .example("$.choices[0].index"),
        field("usage", Kind::Block(&USAGE), "Token counts.").example("{ output: $.usage.completion_tokens }"),
        field("finish", Kind::Leaf(&PATH), "Why it ended.").example("$.choices[0].finish_reason"),
        field("id", Kind::Leaf(&PATH), "Id of the response.").example("$.id"),
        field("error", Kind::Leaf(&PATH), "An error under a good status: what it selects is the server's message.")
            .example("$.error.message"),
        field(
            "done",
            Kind::Leaf(&DONE),
            "The end marker of a stream: the data of its last event, `{ event: name }`, a JSONPath, or `{ path: …, equals: … }`; without it the end of the body.",
        )
        .example("\"[DONE]\""),
    ],
};

/// How the responses of a case are read; None for a protocol that knows. Files what is missing, or has no use.
pub(crate) fn decode(draft: &Draft<'_>, api: Api, review: &mut Review) -> Option<Extract> {
    let entry = draft.entry("request.extract");
    if api != Api::Custom {
        if let Some(entry) = entry.filter(|_| !draft.swept("target.api")) {
            let mistake = Mistake::new(entry.key_at, "`extract` goes with `api: custom`", format!("{api} knows its responses"));
            review.push(draft.also_api(mistake, "this protocol").help("Remove it, or write `api: custom` and a template."));
        }
        return None;
    }
    needed(draft, review);
    let text = |path: &str| draft.text(&format!("request.extract.{path}")).map(|text| text.into_owned());
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
        done: draft.get("request.extract.done").and_then(done),
    })
}

fn needed(draft: &Draft<'_>, review: &mut Review) {
    let missing = |key: &str| draft.get(&format!("request.{key}")).is_none();
    let wants = [
        ("template", "The body of a request: a JSON or YAML file, or the body itself."),
        ("extract", "Where the text is in a response, for example `extract: { text: $.response }`."),
    ];
    for (key, help) in wants.into_iter().filter(|(key, _)| missing(key)) {
        let at = draft.entry("target.api").map_or(draft.place("target"), |entry| entry.value.at);
        let mistake = Mistake::new(at, format!("`api: custom` needs `request.{key}`"), format!("`{key}` is missing"));
        review.push(mistake.help(help));
    }
}
