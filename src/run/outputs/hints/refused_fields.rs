//! The hint on fields of the request body that a server does not accept: the lines to write.

use llmscen_core::plan::Case;
use llmscen_protocols::protocol;
use serde_json::{Map, Value, json};

/// Words of a server that refuses a field, in lower case.
const REFUSALS: [&str; 13] = [
    "unsupported",
    "not support",
    "n't support",
    "unknown",
    "unexpected",
    "unrecogni",
    "not recogni",
    "not permitted",
    "not allowed",
    "forbidden",
    "extra ",
    "extraneous",
    "cannot find field",
];
/// The fields after these words are accepted.
const ALTERNATIVES: [&str; 9] = [
    " expected",
    "did you mean",
    " use ",
    "allowed:",
    "supported:",
    "allowed parameters",
    "supported parameters",
    "valid parameters",
    "valid fields",
];
/// Fields that every request needs. Their names are also words of other messages.
const REQUIRED: [&str; 12] = [
    "model",
    "messages",
    "system",
    "prompt",
    "input",
    "inputs",
    "query",
    "documents",
    "items",
    "session",
    "response",
    "voice",
];
/// Settings of `request` that rows of a dataset may set, too: exact output lengths.
const OF_ROWS: [&str; 3] = [MAX_TOKENS, "min_tokens", "ignore_eos"];
const MAX_TOKENS: &str = "max_tokens";
/// The newer name in OpenAI's chat API.
const NEW_LIMIT: &str = "max_completion_tokens";

/// A field of the body, by its dotted path.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    path: String,
    /// The key of the scenario that adds the field; None: llmscen or the dataset adds it.
    key: Option<String>,
}

/// The hint for a message, in lower case, that refuses fields of the body; None for other messages.
pub(super) fn hint(message: &str, case: &Case) -> Option<String> {
    let classes = case.traffic_classes();
    let refused = |refusal: &str| {
        let of_class = |class: &Case| refused_fields(refusal, sent_fields(class));
        let mut fields = classes.iter().map(of_class);
        fields.find(|fields| !fields.is_empty()).unwrap_or_default()
    };
    let sentences = message.split(['\n', ';']).flat_map(|part| part.split(". "));
    let mut fields: Vec<Field> = sentences.filter_map(refusal).flat_map(refused).collect();
    if fields.is_empty() {
        fields = refused(refusal(message)?);
    }
    (!fields.is_empty()).then(|| remedy(&fields, message))
}

/// The part of a text that refuses something; None if it refuses nothing.
fn refusal(text: &str) -> Option<&str> {
    let first = |words: &[&str], text: &str| words.iter().filter_map(|word| text.find(word)).min();
    let start = first(&REFUSALS, text)?;
    let end = first(&ALTERNATIVES, text.get(start + 1..)?).map(|end| start + 1 + end);
    text.get(..end.unwrap_or(text.len()))
}

/// The fields that the requests of a traffic class may have.
fn sent_fields(class: &Case) -> Vec<Field> {
    let (api, request) = (class.target.api, &class.request);
    let mut fields = Vec::new();
    if let Ok(protocol) = protocol(api, Some(request)) {
        // A template gets the fields of a stream, too.
        let own = protocol.body(request.stream);
        add_fields(&own, "", None, &mut fields);
    }
    if let Some(template) = &request.template {
        fields.retain(|field| field.path.starts_with("stream"));
        add_fields(template, "", None, &mut fields);
    }
    for name in OF_ROWS {
        let key = || format!("request.{name}");
        let is_set = name == MAX_TOKENS && request.max_tokens.is_some();
        if let Some(path) = api.body_path(name) {
            let (path, key) = (path.into_owned(), is_set.then(key));
            fields.push(Field { path, key });
        }
    }
    for (name, value) in &request.sampling {
        for (path, _) in api.body_fields(name, value) {
            fields.retain(|field| field.path != *path);
            let (path, key) = (path.into_owned(), Some(format!("request.{name}")));
            fields.push(Field { path, key });
        }
    }
    let extra = Value::Object(request.extra.clone());
    add_fields(&extra, "", Some("request.extra"), &mut fields);
    fields
}

/// Adds the fields of a value, outer ones first. A null of `request.extra` removes a field.
fn add_fields(value: &Value, path: &str, key: Option<&str>, fields: &mut Vec<Field>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let below = |path: &str| format!("{path}{}{name}", if path.is_empty() { "" } else { "." });
        let (path, key) = (below(path), key.map(below));
        if value.is_null() && key.is_some() {
            fields.retain(|field| field.path != path && !is_within(&field.path, &path));
            continue;
        }
        if !fields.iter().any(|field| field.path == path) {
            let (path, key) = (path.clone(), key.clone());
            fields.push(Field { path, key });
        }
        add_fields(value, &path, key.as_deref(), fields);
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| rest.starts_with('.'))
}

/// The fields that a refusal names. Of a mapping and its fields, the whole mapping if nothing else of it is sent.
fn refused_fields(refusal: &str, mut fields: Vec<Field>) -> Vec<Field> {
    fields.retain(|field| !REQUIRED.contains(&field.path.as_str()));
    let is_named = |field: &Field| {
        let name = field.path.rsplit('.').next().unwrap_or_default();
        names(refusal, name)
    };
    let inner = |outer: &Field| {
        let inner = fields
            .iter()
            .filter(|field| is_within(&field.path, &outer.path));
        let (named, other): (Vec<_>, Vec<_>) = inner.partition(|field| is_named(field));
        (named.len(), other.len())
    };
    let is_refused = |field: &Field| match inner(field) {
        (0, _) => is_named(field),
        (_, other) => other == 0,
    };
    let refused: Vec<&Field> = fields.iter().filter(|field| is_refused(field)).collect();
    let is_outer = |field: &Field| {
        let mut outer = refused.iter();
        !outer.any(|outer| is_within(&field.path, &outer.path))
    };
    let outer = refused.iter().filter(|field| is_outer(field));
    outer.map(|field| (*field).clone()).collect()
}

/// Whether a text in lower case has this name of a field. A name that is also a word must be marked as a name.
fn names(text: &str, field: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_quote = |c: char| "'\"`".contains(c);
    let is_name = |(at, _): (usize, &str)| {
        let before = text.get(..at).unwrap_or_default();
        let after = text.get(at + field.len()..).unwrap_or_default();
        let is_first = before.trim().is_empty() || before.ends_with(": ");
        let is_last = after.is_empty() || after.starts_with([',', '.', ';']);
        !before.ends_with(is_part)
            && !after.starts_with(is_part)
            && (field.contains('_')
                || before.ends_with('.')
                || before.ends_with(is_quote) && after.starts_with(is_quote)
                || after.starts_with(" is ")
                || after.starts_with(" does")
                || is_first && (is_last || after.starts_with(':')))
    };
    text.match_indices(field).any(is_name)
}

/// The lines that keep these fields from the server.
fn remedy(fields: &[Field], message: &str) -> String {
    let (mut keys, mut extra) = (Vec::new(), Map::new());
    let mut steps = Vec::new();
    for field in fields {
        match &field.key {
            _ if field.path == "stream" => steps.push("set request.stream: false".to_owned()),
            _ if field.path == MAX_TOKENS && names(message, NEW_LIMIT) => {
                extra.insert(MAX_TOKENS.to_owned(), Value::Null);
                extra.insert(NEW_LIMIT.to_owned(), json!("{{ case.max_tokens }}"));
            }
            Some(key) => keys.push(key.as_str()),
            None => set_null(&mut extra, &field.path),
        }
    }
    if !keys.is_empty() {
        steps.push(format!("remove {}", keys.join(" and ")));
    }
    if !extra.is_empty() {
        steps.push(format!("set request.extra: {}", flow_mapping(&extra)));
    }
    let objects = if fields.len() == 1 { "field" } else { "fields" };
    let steps = steps.join(", and ");
    format!("{steps}, and the server no longer gets the {objects}")
}

fn set_null(body: &mut Map<String, Value>, path: &str) {
    match path.split_once('.') {
        None => _ = body.insert(path.to_owned(), Value::Null),
        Some((head, rest)) => {
            let inner = body.entry(head).or_insert_with(|| json!({}));
            if let Value::Object(inner) = inner {
                set_null(inner, rest);
            }
        }
    }
}

/// A mapping in YAML on one line.
fn flow_mapping(fields: &Map<String, Value>) -> String {
    let entry = |(name, value): (&String, &Value)| match value {
        Value::Object(inner) => format!("{name}: {}", flow_mapping(inner)),
        value => format!("{name}: {value}"),
    };
    let entries: Vec<String> = fields.iter().map(entry).collect();
    format!("{{ {} }}", entries.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    fn case(api: &str, rest: &str) -> Case {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ api: {api}, url: 'http://127.0.0.1:8000', model: m }}\n\
             load: {{ concurrency: 1, requests: 9 }}\n{rest}\n"
        );
        let input = Input {
            path: Path::new("t.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let loaded = load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)));
        loaded.plan.cases[0].clone()
    }

    fn chat(request: &str) -> Case {
        let data = "dataset: { kind: prompt, text: x }";
        case("openai-chat", &format!("{data}\nrequest: {request}"))
    }

    fn of(message: &str, case: &Case) -> String {
        hint(&format!("400: {message}").to_lowercase(), case).unwrap_or_default()
    }

    const NO_USAGE: &str =
        "set request.extra: { stream_options: null }, and the server no longer gets the field";

    #[test]
    fn the_messages_of_servers_lead_to_the_line() {
        let plain = chat("{}");
        for message in [
            "property 'stream_options' is unsupported",
            "property 'stream_options' is unsupported, did you mean 'stream'?",
            "body.stream_options: Extra inputs are not permitted",
            "[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options'), 'msg': 'Extra inputs \
            are not permitted', 'input': {'include_usage': True}}]",
            "Unexpected fields in the request: {'stream_options'}",
            "Unknown parameter: 'stream_options'.",
            "Unrecognized request argument supplied: stream_options",
            "unknown field `stream_options`, expected one of `model`, `messages`, `stream`, `temperature`",
            "Extra parameters ['stream_options'] are not allowed when extra-parameters is not set \
            or set to be 'error'.",
            "Additional properties are not allowed ('stream_options' was unexpected)",
            "Invalid JSON payload received. Unknown name \"stream_options\": Cannot find field.",
            "create_completion() got an unexpected keyword argument 'stream_options'",
            "extraneous key [stream_options] is not permitted",
            "body.stream_options.include_usage: Extra inputs are not permitted",
            "The request has an unknown field. Field: stream_options",
        ] {
            assert_eq!(of(message, &plain), NO_USAGE, "{message}");
        }
    }

    #[test]
    fn a_field_with_a_key_of_its_own_is_removed_there() {
        let case = chat(
            "{ temperature: 0, top_k: 5, seed: 1, min_tokens: 4, stop: [a], extra: { foo: 1, \
            stream_options: { continuous_usage_stats: true } } }",
        );
        for (message, expected) in [
            (
                "Unsupported value: 'temperature' does not support 0 with this model. Only the \
                default (1) value is supported.",
                "remove request.temperature, and the server no longer gets the field",
            ),
            (
                "top_k is not supported with this model",
                "remove request.top_k, and the server no longer gets the field",
            ),
            (
                "Unexpected fields in the request: {'min_tokens', 'seed', 'ignore_eos'}",
                "remove request.min_tokens and request.seed, and set request.extra: { ignore_eos: \
                null }, and the server no longer gets the fields",
            ),
            (
                "body.foo: Extra inputs are not permitted; body.stop: Extra inputs are not permitted",
                "remove request.extra.foo and request.stop, and the server no longer gets the fields",
            ),
            (
                "unknown field: continuous_usage_stats",
                "remove request.extra.stream_options.continuous_usage_stats, and the server no longer gets the field",
            ),
            (
                "unknown field: include_usage",
                "set request.extra: { stream_options: { include_usage: null } }, and the server \
                no longer gets the field",
            ),
            (
                "Unsupported value: 'stream' does not support true with this model.",
                "set request.stream: false, and the server no longer gets the field",
            ),
        ] {
            assert_eq!(of(message, &case), expected, "{message}");
        }
    }

    #[test]
    fn the_limit_has_a_newer_name() {
        let message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use \
        'max_completion_tokens' instead.";
        let line = "set request.extra: { max_tokens: null, max_completion_tokens: \"{{ \
        case.max_tokens }}\" }, and the server no longer gets the field";
        assert_eq!(of(message, &chat("{ max_tokens: 9 }")), line);
        let of_rows = case(
            "openai-chat",
            "dataset: { kind: random, lengths: { pairs: [[8, 4]] } }",
        );
        assert_eq!(of(message, &of_rows), line);
        let unknown = "unknown field: max_tokens";
        assert_eq!(
            of(unknown, &of_rows),
            "set request.extra: { max_tokens: null }, and the server no longer gets the field"
        );
        assert_eq!(
            of(unknown, &chat("{ max_tokens: 9 }")),
            "remove request.max_tokens, and the server no longer gets the field"
        );
        let newer = chat("{ extra: { max_completion_tokens: 9 } }");
        assert_eq!(
            of(
                "Unknown parameter: 'max_completion_tokens'. Use 'max_tokens'.",
                &newer
            ),
            "remove request.extra.max_completion_tokens, and the server no longer gets the field"
        );
    }

    #[test]
    fn other_protocols_have_other_bodies() {
        let data = "dataset: { kind: prompt, text: x }";
        for (api, request, message, expected) in [
            (
                "ollama",
                "{ max_tokens: 4 }",
                "unknown option num_predict",
                "remove request.max_tokens",
            ),
            (
                "tgi",
                "{ max_tokens: 4 }",
                "unknown field `details`, expected one of `inputs`, `max_new_tokens`",
                "set request.extra: { parameters: { details: null } }",
            ),
            (
                "openai-responses",
                "{ max_tokens: 4 }",
                "Unsupported parameter: 'max_output_tokens'",
                "remove request.max_tokens",
            ),
            (
                "anthropic",
                "{ max_tokens: 4, top_k: 3 }",
                "top_k: Extra inputs are not permitted",
                "remove request.top_k",
            ),
        ] {
            let case = case(api, &format!("{data}\nrequest: {request}"));
            let expected = format!("{expected}, and the server no longer gets the field");
            assert_eq!(of(message, &case), expected, "{api}");
        }
    }

    #[test]
    fn other_messages_have_no_hint() {
        let case = chat("{ temperature: 0, max_tokens: 9, n: 2, stop: [a], seed: 1 }");
        for message in [
            "no such sampler",
            "The model `m` is not supported",
            "Unexpected error: stream closed",
            "an unknown error in stream: closed, the engine will stop",
            "'messages.0.reasoning' is unsupported",
            "role 'system' is not supported by this model",
            "max_tokens must be at least 1",
            "Unknown parameter: 'foo'. Supported parameters: temperature, max_tokens, seed.",
            "unknown field `foo`, expected one of `temperature`, `stop`",
        ] {
            assert_eq!(of(message, &case), "", "{message}");
        }
        let removed = chat("{ extra: { stream_options: null } }");
        assert_eq!(of("property 'stream_options' is unsupported", &removed), "");
    }
}
