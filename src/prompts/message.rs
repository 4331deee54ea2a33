//! The words in a chat's messages.

use crate::model::prompt::Prompt;
use crate::token::Tokenizer;
use serde_json::Value;

/// The text of a message: its content, or the text parts of it, a line each.
pub fn content(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// The text of the last message of the user, empty where there is none.
pub fn last_user(messages: &[Value]) -> String {
    let user = |message: &&Value| message.get("role") == Some(&Value::from("user"));
    messages.iter().rev().find(user).map(content).unwrap_or_default()
}

/// The text of a prompt that its tokens are counted over: all messages where there are any.
pub fn words(prompt: &Prompt) -> String {
    let body = prompt.body.as_ref().and_then(|body| body.get("messages")).and_then(Value::as_array);
    match prompt.messages.as_ref().or(body) {
        Some(messages) => messages.iter().map(content).collect::<Vec<_>>().join("\n"),
        None => prompt.text.clone(),
    }
}

/// Tokens of a prompt, the system message in front of it included. None where the tokenizer refuses it.
pub fn tokens_of(prompt: &Prompt, tokenizer: &Tokenizer, system: Option<&str>) -> Option<u64> {
    let is_system = |message: &Value| message.get("role") == Some(&Value::from("system"));
    let own = prompt.body.is_some() || prompt.messages.iter().flatten().any(is_system);
    let system = prompt.system.as_deref().or(system).filter(|_| !own);
    tokenizer.count(&words(prompt)).map(|tokens| tokens + system.and_then(|system| tokenizer.count(system)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_prompt_is_the_last_user_message_and_the_count_is_over_all_of_them() {
        let parts = json!([{ "type": "text", "text": "a" }, { "type": "image_url" }, { "type": "text", "text": "b" }]);
        let list = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": parts }, { "role": "assistant", "content": null }]);
        let messages = list.as_array().unwrap().clone();
        assert_eq!(last_user(&messages), "a\nb");
        assert_eq!(last_user(&messages[..1]), "");
        assert_eq!(words(&Prompt { messages: Some(messages), ..Prompt::default() }), "s\na\nb\n");
        let body = json!({ "messages": list }).as_object().cloned();
        assert_eq!(words(&Prompt { body, ..Prompt::default() }), "s\na\nb\n");
        assert_eq!(words(&Prompt { text: "plain".into(), ..Prompt::default() }), "plain");
    }

    #[test]
    fn a_system_message_counts_unless_the_data_brings_its_own() {
        let (tokenizer, plain) = (Tokenizer::builtin(), Prompt { text: "the sky is blue".into(), ..Prompt::default() });
        let count = |prompt: &Prompt, system| tokens_of(prompt, &tokenizer, system);
        assert_eq!((count(&plain, None), count(&plain, Some("the sea"))), (Some(4), Some(6)));
        assert_eq!(count(&Prompt { system: Some("the".into()), ..plain.clone() }, Some("the sea")), Some(5));
        let list = json!([{ "role": "system", "content": "the" }, { "role": "user", "content": " sky" }]);
        let own = Prompt { messages: list.as_array().cloned(), ..plain };
        assert_eq!(count(&own, Some("the sea")), count(&own, None));
    }
}
