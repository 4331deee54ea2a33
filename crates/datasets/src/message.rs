//! The text of chat messages, and their number of tokens.

use crate::token::{MARK, Slot, TokenError, Tokenizer, text_of};
use llmscen_core::dataset::Prompt;
use serde_json::{Map, Value, json};

/// The text of the last message of the user, empty where there is none.
pub fn last_user(messages: &[Value]) -> String {
    messages
        .iter()
        .rev()
        .find(|message| is_user(message))
        .map(text_of)
        .unwrap_or_default()
}

fn is_user(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "user")
}

/// The messages of a request body: `messages` or `input.messages`.
fn messages_in(body: &Map<String, Value>) -> Option<&Vec<Value>> {
    body.get("messages")
        .or_else(|| body.get("input")?.get("messages"))
        .and_then(Value::as_array)
}

fn messages_in_mut(body: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    let key = if body.contains_key("messages") {
        "messages"
    } else {
        "input"
    };
    let value = body.get_mut(key)?;
    if key == "messages" {
        value.as_array_mut()
    } else {
        value.get_mut("messages")?.as_array_mut()
    }
}

/// The messages of the request of a prompt: those of the data, or the text as one, after the system message unless
/// the data has one. None for a request body without messages.
pub fn request_messages(prompt: &Prompt, system: Option<&str>) -> Option<Vec<Value>> {
    if let Some(body) = &prompt.body {
        return messages_in(body).cloned();
    }
    let user = || vec![json!({ "role": "user", "content": prompt.text })];
    let mut messages = prompt.messages.clone().unwrap_or_else(user);
    let has_system = messages
        .first()
        .and_then(|first| first.get("role"))
        .is_some_and(|role| role == "system");
    if let Some(system) = prompt.system.as_deref().or(system).filter(|_| !has_system) {
        messages.insert(0, json!({ "role": "system", "content": system }));
    }
    Some(messages)
}

/// Number of tokens of a prompt as the model reads it: with the chat template, the system message and the `tools` of
/// a body. None where it is unknown: the template rejects the messages, or they contain images or audio.
pub fn tokens_of(prompt: &Prompt, tokenizer: &Tokenizer, system: Option<&str>) -> Option<u64> {
    let Some(messages) = request_messages(prompt, system) else {
        let body = prompt.body.as_ref()?;
        return tokenizer.count_prompt(
            ["prompt", "input", "inputs"]
                .iter()
                .find_map(|key| body.get(*key)?.as_str())?,
        );
    };
    let tools = prompt.body.as_ref().and_then(|body| body.get("tools"));
    if !messages.iter().all(is_text_only) {
        return None;
    }
    tokenizer.count_prompt(&tokenizer.chat(&messages, tools).ok()?)
}

/// Whether a prompt is a single text of the user, or a request body.
pub fn is_one_text(prompt: &Prompt) -> bool {
    let is_single = |messages: &Vec<Value>| {
        matches!(messages.as_slice(),
        [only] if is_user(only) && is_text_only(only))
    };
    prompt.body.is_some()
        || prompt.system.is_none() && prompt.messages.as_ref().is_none_or(is_single)
}

/// Whether a message has no images or audio.
fn is_text_only(message: &Value) -> bool {
    let parts = message.get("content").and_then(Value::as_array);
    parts.is_none_or(|parts| parts.iter().all(|part| part.get("text").is_some()))
}

/// The place of the last user message in what the model reads.
///
/// # Errors
/// The chat template rejects the messages.
pub fn prompt_slot(
    prompt: &Prompt,
    tokenizer: &Tokenizer,
    system: Option<&str>,
) -> Result<Slot, TokenError> {
    let mut marked = prompt.clone();
    replace_last_user(&mut marked, MARK);
    match request_messages(&marked, system) {
        Some(messages) => tokenizer.slot(&messages),
        None => Ok(tokenizer.plain_text_slot()),
    }
}

/// The text of a prompt that [`replace_last_user`] replaces: that of its last user message where there are messages.
/// None: there is no such text, or the messages contain images.
pub fn replaceable_text(prompt: &Prompt) -> Option<String> {
    let body = prompt.body.as_ref();
    if let Some(text) = body
        .and_then(|body| body.get("prompt"))
        .and_then(Value::as_str)
    {
        return Some(text.to_owned());
    }
    let messages = match body {
        Some(body) => Some(messages_in(body)?),
        None => prompt.messages.as_ref(),
    };
    let Some(messages) = messages else {
        return Some(prompt.text.clone());
    };
    let last = messages.iter().rev().find(|message| is_user(message))?;
    messages.iter().all(is_text_only).then(|| text_of(last))
}

/// Replaces the text of a prompt: in its last user message, in the `prompt` of a body, and in `%p`.
pub fn replace_last_user(prompt: &mut Prompt, text: &str) {
    let old = std::mem::replace(&mut prompt.text, text.to_owned());
    let body = prompt.body.as_mut();
    let messages = match (&mut prompt.messages, body) {
        (_, Some(body)) if body.get("prompt").is_some_and(Value::is_string) => {
            body.insert("prompt".into(), text.into());
            None
        }
        (_, Some(body)) => messages_in_mut(body),
        (messages, None) => messages.as_mut(),
    };
    let Some(message) =
        messages.and_then(|messages| messages.iter_mut().rev().find(|message| is_user(message)))
    else {
        return;
    };
    // The `%p` of a list may be another text than its last message.
    if text_of(message) != old {
        prompt.text = old;
    }
    if let Some(content) = message.get_mut("content") {
        *content = text.into();
    }
}

/// Inserts `words` before everything that the model reads, and before `%p`.
pub fn prepend(prompt: &mut Prompt, words: &str, system: Option<&str>) {
    let prepended = |text: &str| format!("{words}\n{text}");
    if prompt.body.is_none()
        && (prompt.messages.is_some() || prompt.system.as_deref().or(system).is_some())
    {
        prompt.messages = request_messages(prompt, system);
    }
    prompt.text = prepended(&prompt.text);
    let messages = match (&mut prompt.messages, &mut prompt.body) {
        (_, Some(body)) => {
            if let Some(Value::String(text)) = body.get_mut("prompt") {
                *text = prepended(text);
            }
            messages_in_mut(body)
        }
        (messages, None) => messages.as_mut(),
    };
    let first = messages
        .and_then(|messages| messages.first_mut())
        .and_then(|first| first.get_mut("content"));
    match first {
        Some(Value::Array(parts)) => parts.insert(0, json!({ "type": "text", "text": words })),
        Some(content) => *content = prepended(content.as_str().unwrap_or_default()).into(),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::trained::{CHATML, MISTRAL};
    use std::sync::Arc;

    fn list(value: Value) -> Vec<Value> {
        value.as_array().cloned().unwrap()
    }

    #[test]
    fn the_prompt_is_the_last_user_message() {
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "image_url" }, { "type": "text", "text": "b" }]);
        let list = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": parts },
            { "role": "assistant", "content": null }]);
        let messages = list.as_array().unwrap().clone();
        assert_eq!(last_user(&messages), "a\nb");
        assert_eq!(last_user(&messages[..1]), "");
    }

    #[test]
    fn a_prompt_is_counted_as_the_model_reads_it() {
        let tokenizer = CHATML.over("byte-level");
        let count = |prompt: &Prompt, system| tokens_of(prompt, &tokenizer, system);
        let both =
            list(json!([{ "role": "system", "content": "s" }, { "role": "user", "content": "u" }]));
        let text = Prompt {
            text: "u".into(),
            ..Prompt::default()
        };
        let whole = tokenizer.count_messages(&both);
        assert_eq!(
            (count(&text, Some("s")), count(&text, None)),
            (whole, tokenizer.count_messages(&both[1..]))
        );
        let with_system = Prompt {
            messages: Some(both.clone()),
            ..Prompt::default()
        };
        assert_eq!(
            count(&with_system, Some("another")),
            whole,
            "the data's own system message stays"
        );
        let later = Prompt {
            system: Some("s".into()),
            ..text.clone()
        };
        assert_eq!(count(&later, Some("another")), whole);
        let body = |value: Value| Prompt {
            body: value.as_object().cloned(),
            ..Prompt::default()
        };
        assert_eq!(count(&body(json!({ "messages": both })), Some("x")), whole);
        assert_eq!(
            count(&body(json!({ "input": { "messages": both } })), None),
            whole
        );
        assert_eq!(
            count(&body(json!({ "prompt": "u and u" })), None),
            tokenizer.count("u and u")
        );
        assert_eq!(count(&body(json!({ "other": 1 })), None), None, "unknown");
        let builtin = Tokenizer::builtin();
        assert_eq!(tokens_of(&text, &builtin, Some("s")), builtin.count("s\nu"));
    }

    #[test]
    fn images_and_rejected_messages_are_not_counted() {
        let picture = list(
            json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "image_url" }] }]),
        );
        let prompt = Prompt {
            messages: Some(picture),
            ..Prompt::default()
        };
        assert_eq!(
            (
                tokens_of(&prompt, &Tokenizer::builtin(), None),
                replaceable_text(&prompt)
            ),
            (None, None)
        );
        let twice =
            list(json!([{ "role": "user", "content": "a" }, { "role": "user", "content": "b" }]));
        let prompt = Prompt {
            messages: Some(twice),
            ..Prompt::default()
        };
        assert_eq!(tokens_of(&prompt, &MISTRAL.over("byte-level"), None), None);
    }

    #[test]
    fn many_threads_count_with_one_tokenizer() {
        let tokenizer = Arc::new(CHATML.over("byte-level"));
        let count = |tokenizer: &Tokenizer, n: u64| {
            let prompt = Prompt {
                text: format!("the sky is blue {n}"),
                ..Prompt::default()
            };
            tokens_of(&prompt, tokenizer, Some("Be terse."))
        };
        let alone: Vec<Option<u64>> = (0..200).map(|n| count(&tokenizer, n)).collect();
        let work = |_| {
            let tokenizer = tokenizer.clone();
            std::thread::spawn(move || (0..200).map(|n| count(&tokenizer, n)).collect::<Vec<_>>())
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        assert!(
            threads
                .into_iter()
                .all(|thread| thread.join().unwrap() == alone)
        );
    }

    #[test]
    fn the_last_text_is_replaced() {
        let both = list(
            json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" },
                { "role": "user", "content": "c" }]),
        );
        let mut prompt = Prompt {
            text: "c".into(),
            messages: Some(both),
            ..Prompt::default()
        };
        replace_last_user(&mut prompt, "new");
        let messages = prompt.messages.unwrap();
        assert_eq!(
            (
                prompt.text.as_str(),
                &messages[0]["content"],
                &messages[2]["content"]
            ),
            ("new", &json!("a"), &json!("new"))
        );
        let mut body = Prompt {
            text: "c".into(),
            body: json!({ "prompt": "c" }).as_object().cloned(),
            ..Prompt::default()
        };
        replace_last_user(&mut body, "new");
        assert_eq!(
            (body.text.as_str(), &body.body.unwrap()["prompt"]),
            ("new", &json!("new"))
        );
    }
}
