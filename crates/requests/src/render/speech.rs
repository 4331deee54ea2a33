//! Converts messages to the format of each protocol. Datasets have messages in chat completions format, and replies
//! have tool calls in the format of their protocol; what already has the target format is left unchanged. So is a
//! part that the protocol does not support: the server rejects it, and nothing is lost silently.

use llmscen_core::api::Api;
use llmscen_core::dataset::Prompt;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::HashMap;

/// Converts the messages of a request to the format of the protocol.
///
/// | Protocol | Parts | Tool calls and results |
/// |---|---|---|
/// | `anthropic` | `image` | blocks of their messages; consecutive results are one user message |
/// | `openai-responses` | `input_text`, `output_text`, `input_image` | separate items |
/// | `openai-realtime` | the same, always as a list | separate items |
/// | `dashscope` | `text`, `image` | as in chat |
/// | `ollama` | texts joined, images in `images` | as in chat, arguments as a mapping, results with `tool_name` |
///
/// Anthropic rejects messages without content and unknown keys of a message, so an assistant message without text and
/// calls is omitted, and so are keys other than role and content. Reasoning is sent back where the protocol accepts
/// it without a signature: chat, dashscope, ollama.
pub fn spoken(api: Api, messages: Vec<Value>) -> Vec<Value> {
    match api {
        Api::Anthropic => anthropic(messages),
        Api::OpenaiResponses => responses(messages),
        Api::OpenaiRealtime => responses(messages).into_iter().map(typed_item).collect(),
        Api::Dashscope => messages
            .into_iter()
            .map(|message| parts(message, dashscope))
            .collect(),
        Api::Ollama => {
            let mut names = HashMap::new();
            let converted = messages
                .into_iter()
                .map(|message| ollama(message, &mut names));
            converted.collect()
        }
        _ => messages,
    }
}

fn anthropic(messages: Vec<Value>) -> Vec<Value> {
    let mut converted: Vec<Value> = Vec::new();
    let mut results = Vec::new();
    for message in messages {
        if has(&message, "role", "tool") {
            results.push(result(message));
            continue;
        }
        converted.extend(answered(&mut results));
        converted.extend(blocks(message));
    }
    converted.extend(answered(&mut results));
    converted
}

/// The tool results so far as one message; the protocol requires those of one reply together.
fn answered(results: &mut Vec<Value>) -> Option<Value> {
    (!results.is_empty()).then(|| json!({ "role": "user", "content": std::mem::take(results) }))
}

fn result(message: Value) -> Value {
    let mut message = parts(message, block);
    let id = take(&mut message, "tool_call_id");
    let content = take(&mut message, "content");
    json!({ "type": "tool_result", "tool_use_id": id, "content": content })
}

/// A message with its tool calls as content blocks. None where it is empty.
fn blocks(message: Value) -> Option<Value> {
    let mut message = parts(message, block);
    let calls = calls(&mut message);
    retain(&mut message, &["role", "content"]);
    if calls.is_empty() {
        return (!(has(&message, "role", "assistant") && is_silent(&message))).then_some(message);
    }
    let mut content = match take(&mut message, "content") {
        Value::Array(blocks) => blocks,
        Value::String(text) if !text.is_empty() => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    };
    content.extend(calls.into_iter().map(|call| match function(&call) {
        Some((id, name, arguments)) => {
            json!({ "type": "tool_use", "id": id, "name": name, "input": input(arguments) })
        }
        None => call,
    }));
    message["content"] = Value::Array(content);
    Some(message)
}

/// Arguments parsed to a mapping; what is not a mapping is wrapped in one.
fn input(arguments: &Value) -> Value {
    let spelled = match arguments {
        Value::Null => return json!({}),
        Value::String(text) if text.trim().is_empty() => return json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| arguments.clone()),
        other => other.clone(),
    };
    if spelled.is_object() {
        spelled
    } else {
        json!({ "arguments": spelled })
    }
}

fn block(part: Value) -> Value {
    let Some(url) = picture(&part) else {
        return part;
    };
    let source = match inline(&url) {
        Some((media, data)) => json!({ "type": "base64", "media_type": media, "data": data }),
        None => json!({ "type": "url", "url": url }),
    };
    recast(part, "image_url", Some("image"), "source", source)
}

fn responses(messages: Vec<Value>) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for message in messages {
        if has(&message, "role", "tool") {
            let output = output(message, &items);
            items.push(output);
            continue;
        }
        let mut message = parts(message, |part| item(part, "input_text"));
        if has(&message, "role", "assistant") {
            join(&mut message);
        }
        let calls = calls(&mut message);
        if message.get("role").is_some() {
            retain(&mut message, &["type", "id", "status", "role", "content"]);
        }
        if calls.is_empty() || !is_silent(&message) {
            items.push(message);
        }
        items.extend(calls.into_iter().map(|call| match function(&call) {
            Some((id, name, arguments)) => {
                let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
                json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
            }
            None => call,
        }));
    }
    items
}

/// An item of Realtime: a message has a type, and its content is a list.
fn typed_item(mut item: Value) -> Value {
    let Some(role) = item.get("role").and_then(Value::as_str).map(str::to_owned) else {
        return item;
    };
    item["type"] = "message".into();
    if let Some(text) = item.get("content").and_then(Value::as_str) {
        let kind = if role == "assistant" {
            "output_text"
        } else {
            "input_text"
        };
        item["content"] = json!([{ "type": kind, "text": text }]);
    }
    item
}

/// Joins the texts of an assistant message: separate parts would need annotations.
fn join(message: &mut Value) {
    let texts = |parts: &Vec<Value>| {
        let text = |part: &Value| {
            part.get("text")?
                .as_str()
                .map(str::to_owned)
                .filter(|_| has(part, "type", "input_text"))
        };
        parts.iter().map(text).collect::<Option<Vec<String>>>()
    };
    if let Some(texts) = message
        .get("content")
        .and_then(Value::as_array)
        .and_then(texts)
    {
        message["content"] = texts.join("\n").into();
    }
}

/// A tool result; custom tools have a type of their own.
fn output(message: Value, items: &[Value]) -> Value {
    let mut message = parts(message, |part| item(part, "input_text"));
    let id = take(&mut message, "tool_call_id");
    let output = take(&mut message, "content");
    let custom = items
        .iter()
        .any(|item| has(item, "type", "custom_tool_call") && item.get("call_id") == Some(&id));
    let kind = if custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    json!({ "type": kind, "call_id": id, "output": output })
}

fn item(mut part: Value, text: &str) -> Value {
    if has(&part, "type", "text") {
        part["type"] = text.into();
    }
    let Some(url) = picture(&part) else {
        return part;
    };
    let detail = part.pointer("/image_url/detail").cloned();
    let mut part = recast(
        part,
        "image_url",
        Some("input_image"),
        "image_url",
        url.into(),
    );
    // Some servers require the default.
    part["detail"] = detail.unwrap_or_else(|| "auto".into());
    part
}

fn dashscope(part: Value) -> Value {
    match picture(&part) {
        Some(url) => recast(part, "image_url", None, "image", url.into()),
        None if has(&part, "type", "text") => {
            let mut part = part;
            take(&mut part, "type");
            part
        }
        None => part,
    }
}

/// Splits parts into text and images. Images that are URLs are sent as such; the server rejects them. `names`: of the
/// tools of earlier calls, by id.
fn ollama(mut message: Value, names: &mut HashMap<Value, Value>) -> Value {
    if has(&message, "role", "tool") && message.get("tool_name").is_none() {
        let called = message.get("tool_call_id").and_then(|id| names.get(id));
        if let Some(name) = called.or(message.get("name")).cloned() {
            message["tool_name"] = name;
        }
    }
    if message.get("reasoning_content").is_some() {
        message["thinking"] = take(&mut message, "reasoning_content");
    }
    for call in message
        .get_mut("tool_calls")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some((id, name, _)) = function(call) {
            names.insert(id.clone(), name.clone());
        }
        if let Some(arguments) = call.pointer_mut("/function/arguments") {
            *arguments = input(arguments);
        }
    }
    let Some(parts) = message.get("content").and_then(Value::as_array) else {
        return message;
    };
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for part in parts {
        match (
            picture(part),
            part.get("text")
                .and_then(Value::as_str)
                .filter(|_| has(part, "type", "text")),
        ) {
            (Some(url), _) => images.push(Value::from(
                inline(&url).map_or(url.as_str(), |(_, data)| data),
            )),
            (None, Some(text)) => texts.push(text),
            (None, None) => return message,
        }
    }
    message["content"] = texts.join("\n").into();
    if !images.is_empty() {
        message["images"] = Value::Array(images);
    }
    message
}

/// Converts each part of a message's content.
fn parts(mut message: Value, turn: impl Fn(Value) -> Value) -> Value {
    if let Some(Value::Array(parts)) = message.get_mut("content") {
        *parts = std::mem::take(parts).into_iter().map(turn).collect();
    }
    message
}

fn has(value: &Value, key: &str, word: &str) -> bool {
    value.get(key).is_some_and(|found| found == word)
}

fn take(value: &mut Value, key: &str) -> Value {
    value
        .as_object_mut()
        .and_then(|map: &mut Map<String, Value>| map.shift_remove(key))
        .unwrap_or_default()
}

/// Keeps only these keys of a message.
fn retain(message: &mut Value, keys: &[&str]) {
    if let Some(map) = message.as_object_mut() {
        map.retain(|key, _| keys.contains(&key.as_str()));
    }
}

/// Removes the tool calls from a message.
fn calls(message: &mut Value) -> Vec<Value> {
    match take(message, "tool_calls") {
        Value::Array(calls) => calls,
        _ => Vec::new(),
    }
}

/// Id, name and arguments of a call in chat format.
fn function(call: &Value) -> Option<(&Value, &Value, &Value)> {
    let function = call.get("function")?;
    Some((
        call.get("id").unwrap_or(&Value::Null),
        function.get("name")?,
        function.get("arguments").unwrap_or(&Value::Null),
    ))
}

/// Whether a message has no content.
fn is_silent(message: &Value) -> bool {
    match message.get("content") {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(parts)) => parts.is_empty(),
        Some(_) => false,
    }
}

/// The URL of an image in chat format.
fn picture(part: &Value) -> Option<String> {
    let image = part
        .get("image_url")
        .filter(|_| has(part, "type", "image_url"))?;
    image
        .as_str()
        .or_else(|| image.get("url")?.as_str())
        .map(str::to_owned)
}

/// Media type and base64 data of a data URL.
fn inline(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media = head.strip_suffix(";base64")?;
    Some((media.split(';').next().unwrap_or(media), data))
}

/// Changes the type of a part (None removes it) and replaces the key `old` by `key`.
fn recast(mut part: Value, old: &str, kind: Option<&str>, key: &str, value: Value) -> Value {
    take(&mut part, old);
    match kind {
        Some(kind) => part["type"] = kind.into(),
        None => _ = take(&mut part, "type"),
    }
    part[key] = value;
    part
}

/// Converts `tools` and `tool_choice` from chat format to that of the protocol; all else is unchanged.
pub fn tools<'v>(api: Api, field: &str, value: &'v Value) -> Cow<'v, Value> {
    let turned = match (api, field, value) {
        (Api::Anthropic, "tools", Value::Array(tools)) => {
            tools.iter().map(|tool| offered(tool, schema)).collect()
        }
        (Api::OpenaiResponses | Api::OpenaiRealtime, "tools", Value::Array(tools)) => {
            tools.iter().map(|tool| offered(tool, flat)).collect()
        }
        (Api::Anthropic, "tool_choice", Value::String(word)) => {
            json!({ "type": if word == "required" { "any" } else { word.as_str() } })
        }
        (Api::Anthropic, "tool_choice", _) => chosen(value, "tool"),
        (Api::OpenaiResponses | Api::OpenaiRealtime, "tool_choice", _) => chosen(value, "function"),
        _ => return Cow::Borrowed(value),
    };
    Cow::Owned(turned)
}

fn offered(tool: &Value, turn: impl Fn(Map<String, Value>) -> Value) -> Value {
    tool.get("function")
        .and_then(Value::as_object)
        .map_or_else(|| tool.clone(), |function| turn(function.clone()))
}

fn schema(mut function: Map<String, Value>) -> Value {
    let parameters = function
        .shift_remove("parameters")
        .unwrap_or_else(|| json!({ "type": "object" }));
    function.shift_remove("strict");
    function.insert("input_schema".into(), parameters);
    Value::Object(function)
}

fn flat(mut function: Map<String, Value>) -> Value {
    function.insert("type".into(), "function".into());
    Value::Object(function)
}

fn chosen(choice: &Value, kind: &str) -> Value {
    let name = choice
        .get("function")
        .and_then(|function| function.get("name"));
    name.map_or_else(
        || choice.clone(),
        |name| json!({ "type": kind, "name": name }),
    )
}

/// The messages of one request.
pub(super) struct Dialog<'a> {
    prompt: &'a Prompt,
    system: Option<&'a str>,
    api: Api,
}

impl<'a> Dialog<'a> {
    /// The messages of a prompt in the format of a protocol; `system` is that of the dataset.
    pub fn new(prompt: &'a Prompt, system: Option<&'a str>, api: Api) -> Dialog<'a> {
        Dialog {
            prompt,
            system,
            api,
        }
    }

    /// The row's messages, or the prompt as one message. The system message is that of the row, else the first of the
    /// messages, else the dataset's.
    pub fn messages(&self) -> Value {
        self.new_messages(|_| true)
    }

    /// These messages, without those that the server has stored.
    fn new_messages(&self, is_sent: impl Fn(&Value) -> bool) -> Value {
        let mut messages = self.list();
        // A system message in front of those of the prompt is stored with the first turn.
        let count = self.prompt.messages.as_ref().map_or(0, Vec::len);
        let stored = self.prompt.previous_response.as_ref().map(|previous| {
            let new = count.saturating_sub(previous.messages);
            messages[..messages.len().saturating_sub(new)]
                .iter()
                .filter(|message| is_sent(message))
                .cloned()
                .collect()
        });
        messages.retain(is_sent);
        // All of them are converted: the form of a tool result depends on its call, which may be stored.
        let mut items = spoken(self.api, messages);
        if let Some(stored) = stored {
            items.drain(..spoken(self.api, stored).len().min(items.len()));
        }
        Value::Array(items)
    }

    fn list(&self) -> Vec<Value> {
        let user = || vec![json!({ "role": "user", "content": self.prompt.text })];
        let mut messages = self.prompt.messages.clone().unwrap_or_else(user);
        let has_system = messages.first().is_some_and(is_system);
        if has_system && self.prompt.system.is_some() {
            messages.remove(0);
        }
        let system = self
            .prompt
            .system
            .as_deref()
            .or(self.system.filter(|_| !has_system));
        if let Some(system) = system {
            messages.insert(0, json!({ "role": "system", "content": system }));
        }
        messages
    }

    /// The text of the system messages; null without any.
    pub fn system(&self) -> Value {
        let texts: Vec<String> = self
            .list()
            .iter()
            .filter(|message| is_system(message))
            .filter_map(text)
            .collect();
        if texts.is_empty() {
            Value::Null
        } else {
            Value::String(texts.join("\n\n"))
        }
    }

    /// The messages without the system messages.
    pub fn others(&self) -> Value {
        self.new_messages(|message| !is_system(message))
    }
}

/// `developer` is OpenAI's newer name of the role.
pub(super) fn is_system(message: &Value) -> bool {
    message
        .get("role")
        .is_some_and(|role| role == "system" || role == "developer")
}

/// The text of a message; texts of parts are concatenated.
fn text(message: &Value) -> Option<String> {
    match message.get("content")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(
            parts
                .iter()
                .filter_map(|part| part.get("text")?.as_str())
                .collect(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
