//! `prompt` and `line_by_line`: plain prompts.

use super::error::PromptError;
use super::file::{FormatOptions, Kind, Parse, json_problem};
use super::message::{last_user, tokens_of};
use super::{Prompts, Setting};
use llmscen_core::dataset::{Prompt, Session};
use serde_json::{Map, Value};

/// `prompt`: the same prompt for every request.
struct SinglePrompt(Prompt);

/// Uses the text unchanged: the scenario parser has already read the file of an `@file`.
pub fn open_prompt(text: &str, setting: &Setting<'_>) -> Result<impl Prompts + use<>, PromptError> {
    let mut prompt = Prompt {
        text: text.to_owned(),
        ..Prompt::default()
    };
    if let Some(tokenizer) = &setting.tokenizer {
        prompt.tokens = tokens_of(&prompt, tokenizer, setting.spec.system.as_deref());
        prompt.approximate = tokenizer.approximate();
    }
    if !setting.admits(prompt.tokens) {
        return Err(PromptError::Filtered {
            tokens: prompt.tokens.unwrap_or(0),
        });
    }
    Ok(SinglePrompt(prompt))
}

impl Prompts for SinglePrompt {
    fn session(&self, _seq: u64) -> Option<Session> {
        Some(vec![self.0.clone()].into())
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

/// A text file with a prompt per line: plain text, a JSON array of messages, or a JSON object, which is a whole
/// request body.
pub const LINE_BY_LINE: Kind = Kind {
    name: "line_by_line",
    formats: FormatOptions {
        plain_lines: true,
        bare_lists: false,
        list_columns: &[],
    },
    parse: Parse::Line(parse_line),
    words: None,
    expected: "plain text, a JSON array of messages \
               (`[{\"role\": \"user\", \"content\": \"…\"}]`) or a JSON object (a whole request \
               body), each on one line",
    builtin: None,
    remote: None,
};

fn parse_line(line: &str) -> Result<Prompt, String> {
    let plain = || Prompt {
        text: line.to_owned(),
        ..Prompt::default()
    };
    let json = line.trim_start();
    if !json.starts_with(['[', '{']) {
        return Ok(plain());
    }
    match serde_json::from_str(json) {
        Ok(Value::Array(list)) => messages_prompt(list),
        Ok(Value::Object(body)) => Ok(body_prompt(body)),
        // A sentence may begin with a bracket. Only a line that begins like JSON must be JSON.
        Err(error) if looks_like_json(json) => Err(json_problem(&error)),
        _ => Ok(plain()),
    }
}

fn looks_like_json(line: &str) -> bool {
    let rest = line[1..].trim_start();
    if line.starts_with('{') {
        rest.starts_with('"')
    } else {
        rest.starts_with('{')
    }
}

fn messages_prompt(list: Vec<Value>) -> Result<Prompt, String> {
    let is_message = |value: &Value| value.get("role").is_some_and(Value::is_string);
    if list.is_empty() || !list.iter().all(is_message) {
        return Err("a JSON array whose elements are not messages with a `role`".into());
    }
    Ok(Prompt {
        text: last_user(&list),
        messages: Some(list),
        ..Prompt::default()
    })
}

fn body_prompt(body: Map<String, Value>) -> Prompt {
    let text = match (body.get("messages"), body.get("prompt")) {
        (Some(Value::Array(list)), _) => last_user(list),
        (_, Some(Value::String(text))) => text.clone(),
        _ => String::new(),
    };
    Prompt {
        text,
        fields: body.clone().into(),
        body: Some(body),
        ..Prompt::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheDir, Opened, open};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use llmscen_core::seed::Seed;
    use serde_json::json;

    fn opened(text: &str, max_tokens: Option<u64>) -> Result<Opened, PromptError> {
        let spec = DatasetSpec {
            max_tokens,
            ..DatasetSpec::new(Source::Prompt(text.to_owned()))
        };
        open(
            &spec,
            Seed(1),
            0,
            &CacheDir {
                dir: "unused".into(),
                hub: String::new(),
                ..CacheDir::default()
            },
            &|_| (),
        )
    }

    #[test]
    fn every_request_gets_the_same_prompt() {
        let prompts = opened("Write a haiku.", None).unwrap().prompts;
        assert_eq!(prompts.session(0), prompts.session(1_000_000));
        assert_eq!(prompts.session(0).unwrap().turns[0].text, "Write a haiku.");
        assert_eq!((prompts.len(), prompts.dropped()), (None, 0));
    }

    #[test]
    fn a_leading_at_sign_is_text() {
        let prompts = opened("@/nowhere/p.txt", None).unwrap().prompts;
        assert_eq!(prompts.session(0).unwrap().turns[0].text, "@/nowhere/p.txt");
    }

    #[test]
    fn a_prompt_outside_the_filter_is_an_error_not_an_empty_dataset() {
        let error = opened("the sky is blue", Some(3)).unwrap_err().to_string();
        assert_eq!(error, "the prompt has 4 tokens, outside `prompt_tokens`");
        assert_eq!(
            opened("the sky is blue", Some(4))
                .unwrap()
                .prompts
                .session(0)
                .unwrap()
                .turns[0]
                .tokens,
            Some(4)
        );
    }

    #[test]
    fn a_line_is_text_messages_or_a_body() {
        let text = parse_line("Write a \"haiku\" {now}").unwrap();
        assert_eq!(
            (text.text.as_str(), text.messages, text.body),
            ("Write a \"haiku\" {now}", None, None)
        );
        assert_eq!(parse_line("  two  words\t").unwrap().text, "  two  words\t");
        assert_eq!(parse_line(" [sic] ").unwrap().text, " [sic] ");

        let list = json!([{ "role": "system", "content": "Terse." }, { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": "Yes?" }]);
        let chat = parse_line(&format!("  {list} ")).unwrap();
        assert_eq!(
            (chat.text.as_str(), chat.messages),
            ("Hi", list.as_array().cloned())
        );

        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": [{ "type": "text",
            "text": "a" }, { "type": "text", "text": "b" }] }] });
        let whole = parse_line(&body.to_string()).unwrap();
        assert_eq!(
            (whole.text.as_str(), whole.body.as_ref()),
            ("a\nb", body.as_object())
        );
        assert_eq!(parse_line(r#"{"prompt": "Once"}"#).unwrap().text, "Once");
    }

    #[test]
    fn a_bracket_alone_does_not_make_it_json() {
        for line in ["[1] What is this?", "{name}, hello", "[citation needed]"] {
            assert_eq!(parse_line(line).unwrap().text, line);
        }
    }

    #[test]
    fn broken_json_is_not_sent_as_text() {
        assert_eq!(
            parse_line(r#"{"model": "m""#).unwrap_err(),
            "not JSON (EOF while parsing an object)"
        );
        assert_eq!(
            parse_line(r#"[{"role": "user"]"#).unwrap_err(),
            "not JSON (expected `,` or `}`)"
        );
        for list in ["[]", "[1, 2]", r#"[{"content": "x"}]"#] {
            assert_eq!(
                parse_line(list).unwrap_err(),
                "a JSON array whose elements are not messages with a `role`"
            );
        }
    }
}
