//! The words in a chat's messages, and how many tokens they are.

use crate::token::{MARK, Slot, TokenError, Tokenizer, text_of};
use llmscen_core::prompt::Prompt;
use serde_json::{Map, Value, json};

/// The text of the last message of the user, empty where there is none.
pub fn last_user(messages: &[Value]) -> String {
    messages.iter().rev().find(|message| is_user(message)).map(text_of).unwrap_or_default()
}

fn is_user(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "user")
}

/// The messages of a request body, at the places where protocols have them.
fn messages_in(body: &Map<String, Value>) -> Option<&Vec<Value>> {
    body.get("messages").or_else(|| body.get("input")?.get("messages")).and_then(Value::as_array)
}

fn messages_in_mut(body: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    let key = if body.contains_key("messages") { "messages" } else { "input" };
    let value = body.get_mut(key)?;
    if key == "messages" { value.as_array_mut() } else { value.get_mut("messages")?.as_array_mut() }
}

/// The messages that the request of a prompt carries: those of the data, or the text as one; the system message goes in
/// front unless the data brings its own. None for a whole body without messages.
pub fn assembled(prompt: &Prompt, system: Option<&str>) -> Option<Vec<Value>> {
    if let Some(body) = &prompt.body {
        return messages_in(body).cloned();
    }
    let user = || vec![json!({ "role": "user", "content": prompt.text })];
    let mut messages = prompt.messages.clone().unwrap_or_else(user);
    let own = messages.first().and_then(|first| first.get("role")).is_some_and(|role| role == "system");
    if let Some(system) = prompt.system.as_deref().or(system).filter(|_| !own) {
        messages.insert(0, json!({ "role": "system", "content": system }));
    }
    Some(messages)
}

/// Tokens of a prompt as the model reads it: the chat template applied where the tokenizer has one, the system message
/// and a body's `tools` included. None where they cannot be told: the template refuses the messages, or there are
/// pictures or sounds among them.
pub fn tokens_of(prompt: &Prompt, tokenizer: &Tokenizer, system: Option<&str>) -> Option<u64> {
    let Some(messages) = assembled(prompt, system) else {
        let body = prompt.body.as_ref()?;
        return tokenizer.count_prompt(["prompt", "input", "inputs"].iter().find_map(|key| body.get(*key)?.as_str())?);
    };
    let tools = prompt.body.as_ref().and_then(|body| body.get("tools"));
    messages.iter().all(is_words).then(|| tokenizer.chat(&messages, tools).ok())?.and_then(|whole| tokenizer.count_prompt(&whole))
}

/// Whether a prompt is one text of the user's, or a whole body, and nothing besides.
pub fn is_one_text(prompt: &Prompt) -> bool {
    let alone = |messages: &Vec<Value>| matches!(messages.as_slice(), [only] if is_user(only) && is_words(only));
    prompt.body.is_some() || prompt.system.is_none() && prompt.messages.as_ref().is_none_or(alone)
}

/// Whether a message is nothing but words.
fn is_words(message: &Value) -> bool {
    let parts = message.get("content").and_then(Value::as_array);
    parts.is_none_or(|parts| parts.iter().all(|part| part.get("text").is_some()))
}

/// The place of the prompt's last user message in what the model reads.
///
/// # Errors
/// The chat template does not take the messages.
pub fn slot_of(prompt: &Prompt, tokenizer: &Tokenizer, system: Option<&str>) -> Result<Slot, TokenError> {
    let mut marked = prompt.clone();
    replace_last_user(&mut marked, MARK);
    match assembled(&marked, system) {
        Some(messages) => tokenizer.slot(&messages),
        None => Ok(tokenizer.place_of_plain_text()),
    }
}

/// The text of a prompt that may be another one: of its last user message where there are messages. None: there is no
/// such text, or pictures stand in it.
pub fn shapeable(prompt: &Prompt) -> Option<String> {
    let body = prompt.body.as_ref();
    if let Some(text) = body.and_then(|body| body.get("prompt")).and_then(Value::as_str) {
        return Some(text.to_owned());
    }
    let messages = match body {
        Some(body) => Some(messages_in(body)?),
        None => prompt.messages.as_ref(),
    };
    let Some(messages) = messages else { return Some(prompt.text.clone()) };
    let last = messages.iter().rev().find(|message| is_user(message))?;
    messages.iter().all(is_words).then(|| text_of(last))
}

/// Another text for the prompt: in its last user message, in the prompt of a whole body, and as `%p`.
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
    let Some(message) = messages.and_then(|messages| messages.iter_mut().rev().find(|message| is_user(message))) else {
        return;
    };
    // `%p` of a list may hold more than its last message says.
    if text_of(message) != old {
        prompt.text = old;
    }
    if let Some(content) = message.get_mut("content") {
        *content = text.into();
    }
}

/// Puts `words` in front of all that the model reads, and of `%p`.
pub fn put_in_front(prompt: &mut Prompt, words: &str, system: Option<&str>) {
    let led = |text: &str| format!("{words}\n{text}");
    if prompt.body.is_none() && (prompt.messages.is_some() || prompt.system.as_deref().or(system).is_some()) {
        prompt.messages = assembled(prompt, system);
    }
    prompt.text = led(&prompt.text);
    let messages = match (&mut prompt.messages, &mut prompt.body) {
        (_, Some(body)) => {
            if let Some(Value::String(text)) = body.get_mut("prompt") {
                *text = led(text);
            }
            messages_in_mut(body)
        }
        (messages, None) => messages.as_mut(),
    };
    let first = messages.and_then(|messages| messages.first_mut()).and_then(|first| first.get_mut("content"));
    match first {
        Some(Value::Array(parts)) => parts.insert(0, json!({ "type": "text", "text": words })),
        Some(content) => *content = led(content.as_str().unwrap_or_default()).into(),
        None => {}
    }
}

#[cfg(test)]
mod tests;
