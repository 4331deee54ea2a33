//! The tools that a request offers, in the words of each protocol.

use llmscen_core::api::Api;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// A field of the data as the protocol says it: `tools` and `tool_choice` come as chat has them, every other field, and what
/// already is of the protocol's own shape, stays.
pub fn tools<'v>(api: Api, field: &str, value: &'v Value) -> Cow<'v, Value> {
    let turned = match (api, field, value) {
        (Api::Anthropic, "tools", Value::Array(tools)) => tools.iter().map(|tool| offered(tool, schema)).collect(),
        (Api::OpenaiResponses, "tools", Value::Array(tools)) => tools.iter().map(|tool| offered(tool, flat)).collect(),
        (Api::Anthropic, "tool_choice", Value::String(word)) => {
            json!({ "type": if word == "required" { "any" } else { word.as_str() } })
        }
        (Api::Anthropic, "tool_choice", _) => chosen(value, "tool"),
        (Api::OpenaiResponses, "tool_choice", _) => chosen(value, "function"),
        _ => return Cow::Borrowed(value),
    };
    Cow::Owned(turned)
}

fn offered(tool: &Value, turn: impl Fn(Map<String, Value>) -> Value) -> Value {
    tool.get("function").and_then(Value::as_object).map_or_else(|| tool.clone(), |function| turn(function.clone()))
}

fn schema(mut function: Map<String, Value>) -> Value {
    let parameters = function.shift_remove("parameters").unwrap_or_else(|| json!({ "type": "object" }));
    function.shift_remove("strict");
    function.insert("input_schema".into(), parameters);
    Value::Object(function)
}

fn flat(mut function: Map<String, Value>) -> Value {
    function.insert("type".into(), "function".into());
    Value::Object(function)
}

fn chosen(choice: &Value, kind: &str) -> Value {
    let name = choice.get("function").and_then(|function| function.get("name"));
    name.map_or_else(|| choice.clone(), |name| json!({ "type": kind, "name": name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_offered_as_each_protocol_offers_them() {
        let parameters = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
        let own = json!({ "name": "f", "description": "d", "parameters": parameters });
        let chat = json!([{ "type": "function", "function": own }]);
        let say = |api, value: &Value| tools(api, "tools", value).into_owned();
        let anthropic = json!([{ "name": "f", "description": "d", "input_schema": parameters }]);
        let responses = json!([{ "name": "f", "description": "d", "parameters": parameters, "type": "function" }]);
        assert_eq!((say(Api::Anthropic, &chat), say(Api::OpenaiResponses, &chat)), (anthropic.clone(), responses.clone()));
        assert_eq!((say(Api::Anthropic, &anthropic), say(Api::OpenaiResponses, &responses)), (anthropic, responses));
        for api in [Api::OpenaiChat, Api::Dashscope, Api::Ollama] {
            assert_eq!(say(api, &chat), chat, "{api}");
        }
        let bare = json!([{ "type": "function", "function": { "name": "f" } }]);
        assert_eq!(say(Api::Anthropic, &bare), json!([{ "name": "f", "input_schema": { "type": "object" } }]));
    }

    #[test]
    fn a_choice_among_tools_is_said_in_the_protocols_words() {
        let say = |api, value: Value| tools(api, "tool_choice", &value).into_owned();
        let named = json!({ "type": "function", "function": { "name": "f" } });
        assert_eq!(say(Api::Anthropic, named.clone()), json!({ "type": "tool", "name": "f" }));
        assert_eq!(say(Api::OpenaiResponses, named.clone()), json!({ "type": "function", "name": "f" }));
        assert_eq!(say(Api::OpenaiChat, named.clone()), named);
        assert_eq!(say(Api::Anthropic, json!("required")), json!({ "type": "any" }));
        assert_eq!(say(Api::Anthropic, json!("auto")), json!({ "type": "auto" }));
        assert_eq!(say(Api::OpenaiResponses, json!("required")), json!("required"));
    }
}
