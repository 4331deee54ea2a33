//! The messages of one request, and the system message among them.

use super::speech::spoken;
use llmscen_core::api::Api;
use llmscen_core::prompt::Prompt;
use serde_json::{Value, json};

/// Who says what in one request.
pub(super) struct Dialog<'a> {
    prompt: &'a Prompt,
    system: Option<&'a str>,
    api: Api,
}

impl<'a> Dialog<'a> {
    /// The dialog of a prompt in the words of a protocol; `system` is the dataset's.
    pub fn new(prompt: &'a Prompt, system: Option<&'a str>, api: Api) -> Dialog<'a> {
        Dialog { prompt, system, api }
    }

    /// The data's messages, or the prompt as one. In front stands the prompt's own system message, or else the one that the
    /// messages begin with, or else the dataset's.
    pub fn messages(&self) -> Value {
        Value::Array(spoken(self.api, self.list()))
    }

    fn list(&self) -> Vec<Value> {
        let user = || vec![json!({ "role": "user", "content": self.prompt.text })];
        let mut messages = self.prompt.messages.clone().unwrap_or_else(user);
        let own = messages.first().is_some_and(is_system);
        if own && self.prompt.system.is_some() {
            messages.remove(0);
        }
        let system = self.prompt.system.as_deref().or(self.system.filter(|_| !own));
        if let Some(system) = system {
            messages.insert(0, json!({ "role": "system", "content": system }));
        }
        messages
    }

    /// The text of the system messages, null where there is none.
    pub fn system(&self) -> Value {
        let texts: Vec<String> = self.list().iter().filter(|message| is_system(message)).filter_map(text).collect();
        if texts.is_empty() { Value::Null } else { Value::String(texts.join("\n\n")) }
    }

    /// The messages without the system's.
    pub fn others(&self) -> Value {
        let mut messages = self.list();
        messages.retain(|message| !is_system(message));
        Value::Array(spoken(self.api, messages))
    }
}

/// OpenAI's newer name for the system is the developer.
fn is_system(message: &Value) -> bool {
    message.get("role").is_some_and(|role| role == "system" || role == "developer")
}

/// The text of a message; of one in parts, that of its texts.
fn text(message: &Value) -> Option<String> {
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: Api = Api::OpenaiChat;

    fn said(role: &str, content: Value) -> Value {
        json!({ "role": role, "content": content })
    }

    #[test]
    fn the_nearest_system_message_wins() {
        let texts = |prompt: &Prompt| (Dialog::new(prompt, Some("set"), CHAT).system(), Dialog::new(prompt, None, CHAT).system());
        let plain = Prompt { text: "hi".into(), ..Prompt::default() };
        assert_eq!(texts(&plain), (json!("set"), Value::Null));
        let own = vec![said("developer", json!([{ "type": "text", "text": "own" }])), said("user", json!("hi"))];
        let listed = Prompt { messages: Some(own), ..Prompt::default() };
        assert_eq!(texts(&listed), (json!("own"), json!("own")));
        let turned = Prompt { system: Some("turn".into()), ..listed.clone() };
        assert_eq!(texts(&turned), (json!("turn"), json!("turn")));
        let all = json!([said("system", json!("turn")), said("user", json!("hi"))]);
        assert_eq!(Dialog::new(&turned, Some("set"), CHAT).messages(), all, "it takes the place of the messages' own");
    }

    #[test]
    fn the_dialog_has_no_system_messages() {
        let messages = vec![said("system", json!("a")), said("user", json!("b")), said("system", json!("c"))];
        let prompt = Prompt { messages: Some(messages), ..Prompt::default() };
        let dialog = Dialog::new(&prompt, None, CHAT);
        assert_eq!((dialog.system(), dialog.others()), (json!("a\n\nc"), json!([said("user", json!("b"))])));
    }

    #[test]
    fn each_protocol_is_told_in_its_own_words() {
        let picture = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } });
        let prompt = Prompt { messages: Some(vec![said("user", json!([picture]))]), ..Prompt::default() };
        let shown = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBO" } });
        let dialog = Dialog::new(&prompt, Some("s"), Api::Anthropic);
        assert_eq!((dialog.system(), dialog.others()), (json!("s"), json!([said("user", json!([shown]))])));
        let listed = json!([said("system", json!("s")), { "role": "user", "content": "", "images": ["iVBO"] }]);
        assert_eq!(Dialog::new(&prompt, Some("s"), Api::Ollama).messages(), listed);
    }
}
