//! The words in a chat's messages.

use crate::model::prompt::Prompt;
use serde_json::Value;

/// The text of a message: its content, or the text parts of it, a line each.
fn content(message: &Value) -> String {
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
}
