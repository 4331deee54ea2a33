//! `line_by_line`: a text file, a prompt a line.

use super::file::{FormatOptions, Kind, Parse, json_problem};
use super::message::last_user;
use llmscen_core::prompt::Prompt;
use serde_json::{Map, Value};

/// Plain text is a prompt, a JSON array a message list, a JSON object a whole request body.
pub const KIND: Kind = Kind {
    name: "line_by_line",
    formats: FormatOptions { plain_lines: true, bare_lists: false, list_columns: &[] },
    parse: Parse::Line(parse),
    words: None,
    expected: "plain text, a JSON array of messages (`[{\"role\": \"user\", \"content\": \"…\"}]`) or a JSON object (a whole \
               request body), each on one line",
    builtin: None,
    remote: None,
};

fn parse(line: &str) -> Result<Prompt, String> {
    let plain = || Prompt { text: line.to_owned(), ..Prompt::default() };
    let json = line.trim_start();
    if !json.starts_with(['[', '{']) {
        return Ok(plain());
    }
    match serde_json::from_str(json) {
        Ok(Value::Array(list)) => messages(list),
        Ok(Value::Object(body)) => Ok(body_prompt(body)),
        // A sentence may begin with a bracket; what begins like JSON was meant to be JSON.
        Err(error) if meant_as_json(json) => Err(json_problem(&error)),
        _ => Ok(plain()),
    }
}

fn meant_as_json(line: &str) -> bool {
    let rest = line[1..].trim_start();
    if line.starts_with('{') { rest.starts_with('"') } else { rest.starts_with('{') }
}

fn messages(list: Vec<Value>) -> Result<Prompt, String> {
    let is_message = |value: &Value| value.get("role").is_some_and(Value::is_string);
    if list.is_empty() || !list.iter().all(is_message) {
        return Err("a JSON array whose elements are not messages with a `role`".into());
    }
    Ok(Prompt { text: last_user(&list), messages: Some(list), ..Prompt::default() })
}

fn body_prompt(body: Map<String, Value>) -> Prompt {
    let text = match (body.get("messages"), body.get("prompt")) {
        (Some(Value::Array(list)), _) => last_user(list),
        (_, Some(Value::String(text))) => text.clone(),
        _ => String::new(),
    };
    Prompt { text, fields: body.clone().into(), body: Some(body), ..Prompt::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_is_text_messages_or_a_body() {
        let text = parse("Write a \"haiku\" {now}").unwrap();
        assert_eq!((text.text.as_str(), text.messages, text.body), ("Write a \"haiku\" {now}", None, None));
        assert_eq!(parse("  two  words\t").unwrap().text, "  two  words\t");
        assert_eq!(parse(" [sic] ").unwrap().text, " [sic] ");

        let list = json!([{ "role": "system", "content": "Terse." }, { "role": "user", "content": "Hi" }, { "role": "assistant", "content": "Yes?" }]);
        let chat = parse(&format!("  {list} ")).unwrap();
        assert_eq!((chat.text.as_str(), chat.messages), ("Hi", list.as_array().cloned()));

        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }] });
        let whole = parse(&body.to_string()).unwrap();
        assert_eq!((whole.text.as_str(), whole.body.as_ref()), ("a\nb", body.as_object()));
        assert_eq!(parse(r#"{"prompt": "Once"}"#).unwrap().text, "Once");
    }

    #[test]
    fn a_bracket_alone_does_not_make_it_json() {
        for line in ["[1] What is this?", "{name}, hello", "[citation needed]"] {
            assert_eq!(parse(line).unwrap().text, line);
        }
    }

    #[test]
    fn broken_json_is_not_sent_as_text() {
        assert_eq!(parse(r#"{"model": "m""#).unwrap_err(), "not JSON (EOF while parsing an object)");
        assert_eq!(parse(r#"[{"role": "user"]"#).unwrap_err(), "not JSON (expected `,` or `}`)");
        for list in ["[]", "[1, 2]", r#"[{"content": "x"}]"#] {
            assert_eq!(parse(list).unwrap_err(), "a JSON array whose elements are not messages with a `role`");
        }
    }
}
