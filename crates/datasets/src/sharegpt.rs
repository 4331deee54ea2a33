//! `sharegpt`: conversations between people and assistants, in both common shapes.

use super::file::{FormatOptions, Kind, Parse, Row, RowParser};
use super::turns::{Message, Turn, split};
use llmscen_core::prompt::Prompt;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Rows with `conversations` (or `items`, or `messages`) of `{from, value}` or `{role, content}`. Without `dataset.turns` a
/// row is its first question. `item.output_tokens` is the length of the data's reply, where a tokenizer counts.
pub const KIND: Kind = Kind {
    name: "sharegpt",
    formats: FormatOptions { plain_lines: false, bare_lists: true, list_columns: &["conversations", "items", "messages"] },
    parse: Parse::Row(parse),
    words: None,
    expected: "rows such as `{\"conversations\": [{\"from\": \"human\", \"value\": \"…\"}]}` or with `role` and `content`",
    builtin: Some(include_str!("../data/sharegpt.jsonl")),
    remote: None,
};

/// Speakers, by the names in use.
const SPEAKERS: [(&str, &[&str]); 4] = [
    ("user", &["human", "user", "prompter"]),
    ("assistant", &["gpt", "assistant", "chatgpt", "bing", "bard", "model", "function_call"]),
    ("system", &["system", "developer"]),
    ("tool", &["tool", "function", "observation", "function_response"]),
];

fn parse(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let names = ["conversations", "items", "messages"];
    let (_, list) = row.list_if(&names)?.ok_or_else(|| row.missing_field(&names))?;
    let (max_tokens, system) = (row.count_if(&["output_tokens", "max_tokens"])?, row.text_if(&["system"])?);
    let messages = list.iter().map(|entry| Message::new(&message(entry)?)).collect::<Result<Vec<_>, _>>()?;
    let mut turns = split(messages);
    let Some(first) = turns.first() else { return Err("the conversation holds no message of a human".into()) };
    let alone = parser.spec.turns.is_none();
    let fields = Arc::new(row.into_fields());
    if alone {
        // Where there is nothing but a question, it stays a text, which every protocol can carry.
        let plain = matches!(first.messages.as_slice(), [only] if only["role"] == "user");
        turns.truncate(1);
        let mut prompts = prompts(turns, &fields, (max_tokens, system), parser);
        prompts.iter_mut().filter(|_| plain).for_each(|prompt| prompt.messages = None);
        return Ok(prompts);
    }
    Ok(prompts(turns, &fields, (max_tokens, system), parser))
}

fn prompts(
    turns: Vec<Turn>,
    fields: &Arc<Map<String, Value>>,
    (max_tokens, system): (Option<u64>, Option<String>),
    parser: &RowParser,
) -> Vec<Prompt> {
    let prompt = |(index, turn): (usize, Turn)| {
        let mut fields = fields.clone();
        let reply = turn.reply.as_ref().zip(parser.tokenizer.as_ref());
        if let Some(tokens) = reply.and_then(|(reply, tokenizer)| tokenizer.count(reply)) {
            Arc::make_mut(&mut fields).entry("output_tokens").or_insert_with(|| json!(tokens));
        }
        let mut prompt = turn.prompt(fields);
        prompt.max_tokens = prompt.max_tokens.or(max_tokens);
        prompt.system = prompt.system.or_else(|| system.clone().filter(|_| index == 0));
        prompt
    };
    turns.into_iter().enumerate().map(prompt).collect()
}

/// An entry as a message of the OpenAI shape; what else it holds stays.
fn message(entry: &Value) -> Result<Value, String> {
    let mut own = entry.as_object().cloned().ok_or("an entry of the conversation is not a JSON object")?;
    let mut take = |names: [&str; 3]| names.iter().find_map(|name| own.shift_remove(*name));
    let speaker = take(["from", "role", "speaker"]).ok_or("an entry of the conversation has neither `from` nor `role`")?;
    let content = take(["value", "content", "text"]).ok_or("an entry of the conversation has neither `value` nor `content`")?;
    let word = speaker.as_str().unwrap_or_default().to_ascii_lowercase();
    let role = SPEAKERS.iter().find(|(_, names)| names.contains(&word.as_str())).map(|(role, _)| *role);
    let role = role.ok_or_else(|| format!("{speaker} is nobody who speaks in a conversation (human, gpt, system, tool)"))?;
    let mut message = Map::from_iter([("role".to_owned(), role.into()), ("content".to_owned(), content)]);
    for key in ["max_tokens", "output_tokens", "wait", "delay", "system", "tool_call_id", "tool_calls", "name"] {
        message.extend(own.shift_remove(key).map(|value| (key.to_owned(), value)));
    }
    Ok(Value::Object(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all, file, opened, spec, talks};
    use llmscen_core::dataset::{DatasetSpec, Source};

    fn shapes() -> [Value; 3] {
        let named = json!([
            { "from": "system", "value": "s" },
            { "from": "human", "value": " q1 " },
            { "from": "gpt", "value": "the sky is blue" },
            { "from": "human", "value": "q2", "wait": "250ms", "max_tokens": 3, "weight": 0 },
            { "from": "gpt", "value": "the sky" },
        ]);
        let roles = json!([
            { "role": "user", "content": "q1" },
            { "role": "assistant", "content": "the sky is blue" },
            { "role": "tool", "content": "42", "tool_call_id": "x" },
        ]);
        [json!({ "conversations": named, "id": "a" }), json!({ "items": roles }), roles]
    }

    fn written() -> (tempfile::TempDir, String) {
        file("a.json", json!(shapes()).to_string())
    }

    #[test]
    fn without_turns_a_row_is_its_first_question_and_knows_the_reply() {
        let (_dir, path) = written();
        let counted = DatasetSpec { tokenizer: Some("builtin".into()), ..spec(Source::Sharegpt, &path) };
        let prompts: Vec<Prompt> = all(&counted).into_iter().map(|mut turns| turns.remove(0)).collect();
        assert_eq!(prompts.iter().map(|prompt| prompt.text.as_str()).collect::<Vec<_>>(), [" q1 ", "q1", "q1"]);
        let with_system = json!([{ "role": "system", "content": "s" }, { "role": "user", "content": " q1 " }]);
        assert_eq!(json!(prompts[0].messages), with_system);
        assert_eq!((&prompts[1].messages, &prompts[2].messages), (&None, &None));
        assert!(prompts.iter().all(|prompt| prompt.fields["output_tokens"] == 4 && prompt.max_tokens.is_none()));
        assert_eq!(prompts[0].fields["id"], "a");
        let plain = all(&spec(Source::Sharegpt, &path));
        assert!(!plain[1][0].fields.contains_key("output_tokens"), "nothing counts without a tokenizer");
    }

    #[test]
    fn with_turns_a_row_is_a_conversation() {
        let (_dir, path) = written();
        let sessions = all(&DatasetSpec { tokenizer: Some("builtin".into()), ..talks(Source::Sharegpt, &path) });
        assert_eq!(sessions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        let [first, second] = &sessions[0][..] else { panic!("two turns") };
        assert_eq!(json!(second.messages), json!([{ "role": "user", "content": "q2" }]));
        assert_eq!((second.max_tokens, second.wait.map(|wait| wait.millis())), (Some(3), Some(250.0)));
        assert_eq!((&first.fields["output_tokens"], &second.fields["output_tokens"]), (&json!(4), &json!(2)));
        assert_eq!(json!(sessions[2][1].messages), json!([{ "role": "tool", "content": "42", "tool_call_id": "x" }]));
    }

    #[test]
    fn what_is_no_conversation_is_told() {
        let rows = [
            (json!({ "conversations": [{ "from": "gpt", "value": "x" }] }), "the conversation holds no message of a human"),
            (json!({ "conversations": [{ "from": "cat", "value": "x" }] }), "\"cat\" is nobody who speaks in a conversation"),
            (json!({ "conversations": [{ "value": "x" }] }), "an entry of the conversation has neither `from` nor `role`"),
            (json!({ "conversations": ["x"] }), "an entry of the conversation is not a JSON object"),
            (json!({ "talk": [] }), "the row has no `conversations` or `items` or `messages`"),
        ];
        for (row, problem) in rows {
            let (_dir, path) = file("a.jsonl", row.to_string());
            let error = opened(&DatasetSpec { strict: true, ..spec(Source::Sharegpt, &path) }).unwrap_err().to_string();
            assert!(error.contains(&format!(":1: {problem}")), "{error}");
        }
    }
}
