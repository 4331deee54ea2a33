//! `messages` and `sharegpt`: conversations as turns.
//!
//! A turn consists of the messages between two replies: a message of the user, results of tools, or several of them. Replies
//! in the data are left out, because the replies of the server replace them. A message of the user or a tool may also have
//! `max_tokens` (limit of the reply), `wait` or `delay` (think time or tool latency before the message: seconds, or `2s`) and
//! `system` (the system message from this turn on).

use super::file::{FormatOptions, Kind, Parse, Row, RowParser, parse_count};
use super::message::last_user;
use crate::token::text_of;
use llmscen_core::dataset::Prompt;
use llmscen_core::units::{Nanos, parse_duration};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Rows with `messages`, or bare lists of OpenAI messages. With `dataset.turns` a row is a conversation, otherwise one request
/// with everything up to the last message of the user or a tool. `tools` and `tool_choice` become part of the request.
pub const MESSAGES: Kind = Kind {
    name: "messages",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: true,
        list_columns: &["messages", "tools"],
    },
    parse: Parse::Row(parse_messages_row),
    words: None,
    expected: "rows such as `{\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}`, or one list of messages per line",
    builtin: Some(include_str!("../data/messages.jsonl")),
    remote: None,
};

/// Fields of a row that become fields of the request.
const REQUEST_FIELDS: [&str; 2] = ["tools", "tool_choice"];

fn parse_messages_row(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let (_, list) = row
        .list_if(&["messages"])?
        .ok_or_else(|| row.missing_field(&["messages"]))?;
    messages_prompts(row, &list, parser)
}

/// The prompts of a row whose messages are `list`.
pub fn messages_prompts(
    row: Row<'_>,
    list: &[Value],
    parser: &RowParser,
) -> Result<Vec<Prompt>, String> {
    let defaults = RowDefaults::new(&row)?;
    let request_fields = REQUEST_FIELDS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), row.get(&[key])?.1.clone())));
    let sampling: Map<String, Value> = request_fields.collect();
    let messages = list
        .iter()
        .map(Message::new)
        .collect::<Result<Vec<_>, _>>()?;
    let turns = if parser.spec.turns.is_some() {
        split(messages)
    } else {
        as_one_turn(messages).into_iter().collect()
    };
    if turns.is_empty() {
        return Err("no message has the role `user`".into());
    }
    let fields = Arc::new(row.into_fields());
    let turn_prompt = |(index, turn): (usize, Turn)| {
        let mut prompt = turn.prompt(fields.clone());
        defaults.apply(&mut prompt, index);
        prompt.sampling = sampling.clone();
        prompt
    };
    Ok(turns.into_iter().enumerate().map(turn_prompt).collect())
}

/// Rows with `conversations` (or `items`, or `messages`) of `{from, value}` or `{role, content}`. Without `dataset.turns` a
/// row is its first question. `item.output_tokens` is the length of the reply in the data, where a tokenizer counts.
pub const SHAREGPT: Kind = Kind {
    name: "sharegpt",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: true,
        list_columns: &["conversations", "items", "messages"],
    },
    parse: Parse::Row(parse_sharegpt_row),
    words: None,
    expected: "rows such as `{\"conversations\": [{\"from\": \"human\", \"value\": \"…\"}]}` or with `role` and `content`",
    builtin: Some(include_str!("../data/sharegpt.jsonl")),
    remote: None,
};

/// Roles with the names of their speakers.
const SPEAKERS: [(&str, &[&str]); 4] = [
    ("user", &["human", "user", "prompter"]),
    (
        "assistant",
        &[
            "gpt",
            "assistant",
            "chatgpt",
            "bing",
            "bard",
            "model",
            "function_call",
        ],
    ),
    ("system", &["system", "developer"]),
    (
        "tool",
        &["tool", "function", "observation", "function_response"],
    ),
];

fn parse_sharegpt_row(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let names = ["conversations", "items", "messages"];
    let (_, list) = row
        .list_if(&names)?
        .ok_or_else(|| row.missing_field(&names))?;
    let defaults = RowDefaults::new(&row)?;
    let messages = list
        .iter()
        .map(|entry| Message::new(&openai_message(entry)?))
        .collect::<Result<Vec<_>, _>>()?;
    let mut turns = split(messages);
    let Some(first) = turns.first() else {
        return Err("the conversation has no message of a human".into());
    };
    let single_request = parser.spec.turns.is_none();
    // A question without other messages stays a text, which every API accepts.
    let is_text =
        single_request && matches!(first.messages.as_slice(), [only] if only["role"] == "user");
    if single_request {
        turns.truncate(1);
    }
    let fields = Arc::new(row.into_fields());
    let turn_prompt = |(index, turn): (usize, Turn)| {
        let mut fields = fields.clone();
        let reply = turn.reply.as_ref().zip(parser.tokenizer.as_ref());
        if let Some(tokens) = reply.and_then(|(reply, tokenizer)| tokenizer.count(reply)) {
            Arc::make_mut(&mut fields)
                .entry("output_tokens")
                .or_insert_with(|| json!(tokens));
        }
        let mut prompt = turn.prompt(fields);
        defaults.apply(&mut prompt, index);
        if is_text {
            prompt.messages = None;
        }
        prompt
    };
    Ok(turns.into_iter().enumerate().map(turn_prompt).collect())
}

/// An entry as an OpenAI message, with the other fields that a message may have.
fn openai_message(entry: &Value) -> Result<Value, String> {
    let mut fields = entry
        .as_object()
        .cloned()
        .ok_or("an entry of the conversation is not a JSON object")?;
    let mut take = |names: [&str; 3]| names.iter().find_map(|name| fields.shift_remove(*name));
    let speaker = take(["from", "role", "speaker"])
        .ok_or("an entry of the conversation has neither `from` nor `role`")?;
    let content = take(["value", "content", "text"])
        .ok_or("an entry of the conversation has neither `value` nor `content`")?;
    let name = speaker.as_str().unwrap_or_default().to_ascii_lowercase();
    let role = SPEAKERS
        .iter()
        .find(|(_, names)| names.contains(&name.as_str()))
        .map(|(role, _)| *role);
    let role =
        role.ok_or_else(|| format!("unknown speaker {speaker} (known: human, gpt, system, tool)"))?;
    let mut message = Map::from_iter([
        ("role".to_owned(), role.into()),
        ("content".to_owned(), content),
    ]);
    for key in [
        "max_tokens",
        "output_tokens",
        "wait",
        "delay",
        "system",
        "tool_call_id",
        "tool_calls",
        "name",
    ] {
        message.extend(
            fields
                .shift_remove(key)
                .map(|value| (key.to_owned(), value)),
        );
    }
    Ok(Value::Object(message))
}

/// Values of a row for turns without their own.
struct RowDefaults {
    max_tokens: Option<u64>,
    system: Option<String>,
}

impl RowDefaults {
    fn new(row: &Row<'_>) -> Result<RowDefaults, String> {
        Ok(RowDefaults {
            max_tokens: row.count_if(&["output_tokens", "max_tokens"])?,
            system: row.text_if(&["system"])?,
        })
    }

    /// Completes the prompt of a turn.
    fn apply(&self, prompt: &mut Prompt, turn: usize) {
        prompt.max_tokens = prompt.max_tokens.or(self.max_tokens);
        prompt.system = prompt
            .system
            .take()
            .or_else(|| self.system.clone().filter(|_| turn == 0));
    }
}

/// A message, and the settings of its turn.
#[derive(Debug, PartialEq)]
struct Message {
    message: Value,
    max_tokens: Option<u64>,
    wait: Option<Nanos>,
    system: Option<String>,
}

impl Message {
    /// Parses a message with a `role`, and removes the settings of the turn from it.
    fn new(message: &Value) -> Result<Message, String> {
        let Some(mut fields) = message
            .as_object()
            .filter(|fields| fields.get("role").is_some_and(Value::is_string))
            .cloned()
        else {
            return Err("a message without a `role`".into());
        };
        Ok(Message {
            max_tokens: take(
                &mut fields,
                &["max_tokens", "output_tokens"],
                "a whole number",
                parse_count,
            )?,
            wait: take(
                &mut fields,
                &["wait", "delay"],
                "a time such as `2s`, or seconds",
                parse_span,
            )?,
            system: take(&mut fields, &["system"], "a text", |value| {
                value.as_str().map(str::to_owned)
            })?,
            message: Value::Object(fields),
        })
    }

    fn role(&self) -> &str {
        self.message
            .get("role")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Whether the server replies to it.
    fn needs_reply(&self) -> bool {
        matches!(self.role(), "user" | "tool" | "function")
    }

    fn is_reply(&self) -> bool {
        self.role() == "assistant"
    }
}

/// Removes a setting, which may have several names.
fn take<T>(
    fields: &mut Map<String, Value>,
    keys: &[&str],
    expected: &str,
    parse: fn(&Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let mut found = None;
    for key in keys {
        if let Some(value) = fields.shift_remove(*key).filter(|value| !value.is_null()) {
            found = Some(
                parse(&value).ok_or_else(|| format!("`{key}` of a message is not {expected}"))?,
            );
        }
    }
    Ok(found)
}

/// Seconds as a number, or a text with a unit.
fn parse_span(value: &Value) -> Option<Nanos> {
    match value {
        Value::Number(seconds) => seconds
            .as_f64()
            .filter(|seconds| *seconds >= 0.0)
            .map(Nanos::from_secs_f64),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(seconds) => (seconds >= 0.0).then(|| Nanos::from_secs_f64(seconds)),
            Err(_) => parse_duration(text),
        },
        _ => None,
    }
}

#[derive(Debug, Default, PartialEq)]
struct Turn {
    /// The messages since the previous reply.
    messages: Vec<Value>,
    /// The reply in the data.
    reply: Option<String>,
    max_tokens: Option<u64>,
    wait: Option<Nanos>,
    system: Option<String>,
}

impl Turn {
    fn add(&mut self, message: Message) {
        self.messages.push(message.message);
        self.max_tokens = message.max_tokens.or(self.max_tokens);
        self.wait = self.wait.or(message.wait);
        self.system = message.system.or(self.system.take());
    }

    /// The prompt of the turn. `fields` are those of the row.
    fn prompt(self, fields: Arc<Map<String, Value>>) -> Prompt {
        let Turn {
            messages,
            max_tokens,
            wait,
            system,
            ..
        } = self;
        Prompt {
            text: last_user(&messages),
            messages: Some(messages),
            max_tokens,
            wait,
            system,
            fields,
            ..Prompt::default()
        }
    }
}

/// The turns of a conversation. Replies before the first turn are part of it; messages after the last turn are left out.
fn split(messages: Vec<Message>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut turn = Turn::default();
    let mut needs_reply = false;
    for message in messages {
        if message.is_reply() && needs_reply {
            turn.reply = Some(text_of(&message.message));
            turns.push(std::mem::take(&mut turn));
            needs_reply = false;
        } else if !message.is_reply() || turns.is_empty() {
            needs_reply |= message.needs_reply();
            turn.add(message);
        }
    }
    turns.extend(needs_reply.then_some(turn));
    turns
}

/// The conversation up to the last message that needs a reply, as one turn.
fn as_one_turn(mut messages: Vec<Message>) -> Option<Turn> {
    let last = messages.iter().rposition(Message::needs_reply)?;
    let mut turn = Turn {
        reply: messages.get(last + 1).map(|next| text_of(&next.message)),
        ..Turn::default()
    };
    messages.truncate(last + 1);
    let wait = messages[last].wait;
    messages.into_iter().for_each(|message| turn.add(message));
    Some(Turn { wait, ..turn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all, file, opened, spec, talks};
    use llmscen_core::dataset::{DatasetSpec, Source, Turns};

    fn read(list: &Value) -> Vec<Message> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|message| Message::new(message).unwrap())
            .collect()
    }

    fn contents(turns: &[Turn]) -> Vec<Vec<&str>> {
        turns
            .iter()
            .map(|turn| {
                turn.messages
                    .iter()
                    .map(|message| message["content"].as_str().unwrap())
                    .collect()
            })
            .collect()
    }

    fn tool_talk() -> Value {
        json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q1", "max_tokens": 5 },
            { "role": "assistant", "content": "a1" },
            { "role": "assistant", "content": "a1, more" },
            { "role": "tool", "content": "t1", "tool_call_id": "x", "wait": "1.5s" },
            { "role": "tool", "content": "t2", "delay": 9 },
            { "role": "assistant", "content": "a2" },
            { "role": "user", "content": "q2", "delay": 2, "system": "s2", "output_tokens": "7" },
            { "role": "system", "content": "late" },
        ])
    }

    #[test]
    fn a_turn_has_the_messages_between_two_replies() {
        let turns = split(read(&tool_talk()));
        assert_eq!(
            contents(&turns),
            [vec!["s", "q1"], vec!["t1", "t2"], vec!["q2", "late"]]
        );
        let replies: Vec<Option<&str>> = turns.iter().map(|turn| turn.reply.as_deref()).collect();
        assert_eq!(replies, [Some("a1"), Some("a2"), None]);
        assert_eq!(
            turns[1].messages[0],
            json!({ "role": "tool", "content": "t1", "tool_call_id": "x" })
        );
        let prompts: Vec<Prompt> = turns
            .into_iter()
            .map(|turn| turn.prompt(Arc::default()))
            .collect();
        assert_eq!(
            prompts
                .iter()
                .map(|prompt| prompt.text.as_str())
                .collect::<Vec<_>>(),
            ["q1", "", "q2"]
        );
        assert_eq!(
            prompts
                .iter()
                .map(|prompt| prompt.max_tokens)
                .collect::<Vec<_>>(),
            [Some(5), None, Some(7)]
        );
        let waits: Vec<Option<f64>> = prompts
            .iter()
            .map(|prompt| prompt.wait.map(Nanos::secs))
            .collect();
        assert_eq!(waits, [None, Some(1.5), Some(2.0)]);
        assert_eq!(prompts[2].system.as_deref(), Some("s2"));
    }

    #[test]
    fn messages_before_the_first_question_and_after_the_last_turn_make_no_turn() {
        let list = json!([
            { "role": "assistant", "content": "Hello." },
            { "role": "user", "content": "q" },
            { "role": "assistant", "content": "a" },
            { "role": "system", "content": "late" },
        ]);
        assert_eq!(contents(&split(read(&list))), [["Hello.", "q"]]);
        assert_eq!(
            split(read(&json!([{ "role": "assistant", "content": "x" }]))),
            []
        );
    }

    #[test]
    fn as_one_request_a_conversation_ends_with_its_last_question() {
        let turn = as_one_turn(read(&tool_talk())).unwrap();
        assert_eq!(turn.messages.last().unwrap()["content"], "q2");
        assert_eq!(
            (turn.messages.len(), turn.wait, turn.max_tokens),
            (8, Some(Nanos::from_millis(2000)), Some(7))
        );
        assert_eq!(
            as_one_turn(read(&json!([{ "role": "system", "content": "x" }]))),
            None
        );
    }

    #[test]
    fn invalid_messages_are_errors() {
        let error = |message: Value| Message::new(&message).unwrap_err();
        assert_eq!(
            error(json!({ "content": "x" })),
            "a message without a `role`"
        );
        assert_eq!(
            error(json!({ "role": "user", "wait": "soon" })),
            "`wait` of a message is not a time such as `2s`, or seconds"
        );
        assert_eq!(
            error(json!({ "role": "user", "max_tokens": 1.5 })),
            "`max_tokens` of a message is not a whole number"
        );
    }

    fn talk() -> Value {
        json!([
            { "role": "system", "content": "s" },
            { "role": "user", "content": "q1" },
            { "role": "assistant", "content": "a1" },
            { "role": "user", "content": "q2", "wait": 2, "max_tokens": 9 },
            { "role": "assistant", "content": "a2" },
        ])
    }

    #[test]
    fn without_turns_a_row_is_one_request_up_to_its_last_question() {
        let row = json!({ "messages": talk(), "tools": [{ "type": "function" }], "id": 7 });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let prompt = all(&spec(Source::Messages, &path)).remove(0).remove(0);
        let mut known = talk().as_array().unwrap()[..4].to_vec();
        known[3] = json!({ "role": "user", "content": "q2" });
        assert_eq!(
            (
                prompt.text.as_str(),
                prompt.messages.unwrap(),
                prompt.max_tokens
            ),
            ("q2", known, Some(9))
        );
        assert_eq!(
            Value::Object(prompt.sampling),
            json!({ "tools": [{ "type": "function" }] })
        );
        assert_eq!(
            (&prompt.fields["id"], &prompt.fields["messages"]),
            (&json!(7), &talk())
        );
    }

    #[test]
    fn with_turns_a_row_is_a_conversation_without_its_replies() {
        let row = json!({ "messages": talk(), "max_tokens": 5, "tools": [{ "type": "function" }] });
        let (_dir, path) = file("a.jsonl", format!("{row}\n{}\n", talk()));
        let mut spec = talks(Source::Messages, &path);
        let turns = all(&spec).remove(0);
        let lists: Vec<Value> = turns
            .iter()
            .map(|turn| turn.messages.clone().unwrap().into())
            .collect();
        assert_eq!(
            lists,
            [
                json!([talk()[0], talk()[1]]),
                json!([{ "role": "user", "content": "q2" }])
            ]
        );
        assert_eq!(
            turns.iter().map(|turn| turn.max_tokens).collect::<Vec<_>>(),
            [Some(5), Some(9)]
        );
        assert_eq!(
            turns
                .iter()
                .map(|turn| turn.wait.map(|wait| wait.secs()))
                .collect::<Vec<_>>(),
            [None, Some(2.0)]
        );
        assert!(turns.iter().all(|turn| turn.sampling.contains_key("tools")));
        assert_eq!(all(&spec)[1].len(), 2, "a bare list is a row too");
        spec.turns = Some(Turns {
            max: Some(1),
            ..Turns::default()
        });
        assert_eq!(all(&spec).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn only_the_first_turn_can_be_counted() {
        let (_dir, path) = file("a.jsonl", json!({ "messages": talk() }).to_string());
        let spec = DatasetSpec {
            tokenizer: Some("builtin".into()),
            ..talks(Source::Messages, &path)
        };
        let tokens: Vec<Option<u64>> = all(&spec)[0].iter().map(|turn| turn.tokens).collect();
        assert!(
            tokens[0].is_some_and(|n| n > 1) && tokens[1].is_none(),
            "{tokens:?}"
        );
    }

    #[test]
    fn rows_without_a_question_are_invalid() {
        let rows = [
            json!({ "messages": [{ "role": "assistant", "content": "x" }] }),
            json!({ "messages": [{ "content": "x" }] }),
            json!({ "messages": "x" }),
            json!({ "talk": [] }),
        ];
        let (_dir, path) = file(
            "a.jsonl",
            format!(
                "{}\n{}\n{}\n{}\n{}\n",
                json!(talk()),
                rows[0],
                rows[1],
                rows[2],
                rows[3]
            ),
        );
        let strict = |rows: &Value| {
            let (_dir, path) = file("a.jsonl", rows.to_string());
            let strict = DatasetSpec {
                strict: true,
                ..spec(Source::Messages, &path)
            };
            opened(&strict)
                .unwrap_err()
                .to_string()
                .replace(&path, "a.jsonl")
        };
        assert_eq!(
            opened(&spec(Source::Messages, &path))
                .unwrap()
                .prompts
                .dropped(),
            4
        );
        let problems = [
            "no message has the role `user`",
            "a message without a `role`",
            "`messages` is not a list",
        ];
        for (row, problem) in rows.iter().zip(problems) {
            assert!(
                strict(row).starts_with(&format!("a.jsonl:1: {problem}; expected")),
                "{}",
                strict(row)
            );
        }
        assert!(
            strict(&rows[3]).starts_with("a.jsonl:1: the row has no `messages` (fields: talk)")
        );
    }

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
        [
            json!({ "conversations": named, "id": "a" }),
            json!({ "items": roles }),
            roles,
        ]
    }

    fn sharegpt_file() -> (tempfile::TempDir, String) {
        file("a.json", json!(shapes()).to_string())
    }

    #[test]
    fn without_turns_a_row_is_its_first_question_with_the_length_of_the_reply() {
        let (_dir, path) = sharegpt_file();
        let counted = DatasetSpec {
            tokenizer: Some("builtin".into()),
            ..spec(Source::Sharegpt, &path)
        };
        let prompts: Vec<Prompt> = all(&counted)
            .into_iter()
            .map(|mut turns| turns.remove(0))
            .collect();
        assert_eq!(
            prompts
                .iter()
                .map(|prompt| prompt.text.as_str())
                .collect::<Vec<_>>(),
            [" q1 ", "q1", "q1"]
        );
        let with_system =
            json!([{ "role": "system", "content": "s" }, { "role": "user", "content": " q1 " }]);
        assert_eq!(json!(prompts[0].messages), with_system);
        assert_eq!((&prompts[1].messages, &prompts[2].messages), (&None, &None));
        assert!(
            prompts
                .iter()
                .all(|prompt| prompt.fields["output_tokens"] == 4 && prompt.max_tokens.is_none())
        );
        assert_eq!(prompts[0].fields["id"], "a");
        let plain = all(&spec(Source::Sharegpt, &path));
        assert!(
            !plain[1][0].fields.contains_key("output_tokens"),
            "nothing counts without a tokenizer"
        );
    }

    #[test]
    fn with_turns_a_sharegpt_row_is_a_conversation() {
        let (_dir, path) = sharegpt_file();
        let sessions = all(&DatasetSpec {
            tokenizer: Some("builtin".into()),
            ..talks(Source::Sharegpt, &path)
        });
        assert_eq!(sessions.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        let [first, second] = &sessions[0][..] else {
            panic!("two turns")
        };
        assert_eq!(
            json!(second.messages),
            json!([{ "role": "user", "content": "q2" }])
        );
        assert_eq!(
            (second.max_tokens, second.wait.map(|wait| wait.millis())),
            (Some(3), Some(250.0))
        );
        assert_eq!(
            (
                &first.fields["output_tokens"],
                &second.fields["output_tokens"]
            ),
            (&json!(4), &json!(2))
        );
        assert_eq!(
            json!(sessions[2][1].messages),
            json!([{ "role": "tool", "content": "42", "tool_call_id": "x" }])
        );
    }

    #[test]
    fn rows_without_a_conversation_are_invalid() {
        let rows = [
            (
                json!({ "conversations": [{ "from": "gpt", "value": "x" }] }),
                "the conversation has no message of a human",
            ),
            (
                json!({ "conversations": [{ "from": "cat", "value": "x" }] }),
                "unknown speaker \"cat\" (known: human, gpt, system, tool)",
            ),
            (
                json!({ "conversations": [{ "value": "x" }] }),
                "an entry of the conversation has neither `from` nor `role`",
            ),
            (
                json!({ "conversations": ["x"] }),
                "an entry of the conversation is not a JSON object",
            ),
            (
                json!({ "talk": [] }),
                "the row has no `conversations` or `items` or `messages`",
            ),
        ];
        for (row, problem) in rows {
            let (_dir, path) = file("a.jsonl", row.to_string());
            let error = opened(&DatasetSpec {
                strict: true,
                ..spec(Source::Sharegpt, &path)
            })
            .unwrap_err()
            .to_string();
            assert!(error.contains(&format!(":1: {problem}")), "{error}");
        }
    }
}
