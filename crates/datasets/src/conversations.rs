//! `messages` and `sharegpt`: conversations as turns.
//!
//! A turn consists of the messages between two replies: a message of the user, results of tools, or several of them.
//! Replies in the data are those of `dataset.turns.replies: recorded`; otherwise the replies of the server replace
//! them. A message of the user or a tool may also have `max_tokens` (limit of the reply), `wait` or `delay` (think
//! time or tool latency before the message: seconds, or `2s`) and `system` (the system message from this turn on).
//!
//! A list may have turns instead of messages: objects with `messages`, the same settings, and `id`, `continues` and
//! `after`, which make a graph of the session.

use super::file::{FormatOptions, Kind, Parse, Row, RowParser, parse_count};
use super::graph::{Continues, NamedTurn, link};
use super::message::last_user;
use crate::token::text_of;
use llmscen_core::dataset::{Prompt, Turns};
use llmscen_core::units::{Nanos, parse_duration};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Rows with `messages`, or bare lists of OpenAI messages. With `dataset.turns` a row is a conversation, otherwise
/// one request with everything up to the last message of the user or a tool. `tools` and `tool_choice` become part of
/// the request.
pub const MESSAGES: Kind = Kind {
    name: "messages",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: true,
        list_columns: &["messages", "turns", "conversations", "tools"],
    },
    parse: Parse::Row(parse_messages_row),
    words: None,
    expected: "rows such as `{\"messages\": [{\"role\": \"user\", \"content\": \"…\"}]}` or \
    `{\"turns\": [{\"messages\": […]}]}`, or one list of messages per line",
    builtin: Some(include_str!("../data/messages.jsonl")),
    remote: None,
};

/// Fields of a row that become fields of the request.
const REQUEST_FIELDS: [&str; 2] = ["tools", "tool_choice"];

/// Columns with messages or turns.
const LISTS: [&str; 3] = ["messages", "turns", "conversations"];

fn parse_messages_row(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let (column, list) = row
        .list_if(&LISTS)?
        .ok_or_else(|| row.missing_field(&LISTS[..1]))?;
    messages_prompts(row, &column, &list, parser)
}

/// The prompts of a row whose messages or turns are `list`, from this column.
pub fn messages_prompts(
    row: Row<'_>,
    column: &str,
    list: &[Value],
    parser: &RowParser,
) -> Result<Vec<Prompt>, String> {
    let defaults = RowDefaults::new(&row)?;
    let request_fields = REQUEST_FIELDS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), row.get(&[key])?.1.clone())));
    let sampling: Map<String, Value> = request_fields.collect();
    let mut fields = row.into_fields();
    let turns = if list.first().is_some_and(is_turn) {
        if parser.spec.turns.is_none() {
            return Err(format!(
                "`{column}` is a list of turns; set `dataset.turns: {{}}` to send them"
            ));
        }
        list.iter()
            .enumerate()
            .map(|(index, turn)| parse_turn(index, turn))
            .collect::<Result<Vec<_>, _>>()?
    } else {
        let messages = list
            .iter()
            .map(Message::new)
            .collect::<Result<Vec<_>, _>>()?;
        let turns = if parser.spec.turns.is_some() {
            split(messages)
        } else {
            as_one_turn(messages).into_iter().collect()
        };
        turns.into_iter().map(NamedTurn::from).collect()
    };
    if turns.is_empty() {
        return Err("no message has the role `user`".into());
    }
    if parser.spec.turns.is_some() {
        // A session in progress would hold the conversation twice.
        fields.shift_remove(column);
    }
    let fields = Arc::new(fields);
    let mut prompts = link(turns)?;
    let begins_later = |turns: &Turns| turns.begin.is_some();
    if parser.spec.turns.as_ref().is_some_and(begins_later)
        && prompts.iter().any(|prompt| prompt.links.is_some())
    {
        return Err(
            "the session has branches or sub-agents, and `dataset.turns.begin` needs turns in a \
             line: which history the prefix cache should hold is not defined"
                .into(),
        );
    }
    for (index, prompt) in (0..).zip(&mut prompts) {
        let begins = prompt
            .links
            .as_ref()
            .map_or(index == 0, |links| links.continues.is_none());
        defaults.apply(prompt, begins);
        prompt.fields = fields.clone();
        prompt.sampling = sampling.clone();
    }
    Ok(prompts)
}

/// Whether an entry of a list is a turn and not a message.
fn is_turn(entry: &Value) -> bool {
    entry.get("messages").is_some() && entry.get("role").is_none()
}

/// Parses an entry of a list of turns.
fn parse_turn(index: usize, entry: &Value) -> Result<NamedTurn, String> {
    let mut fields = entry
        .as_object()
        .filter(|_| is_turn(entry))
        .cloned()
        .ok_or_else(|| format!("turn {index} (0-based) has no `messages`"))?;
    let id = take(
        &mut fields,
        &["id"],
        "a turn",
        "a text or a number",
        parse_id,
    )?;
    let named = match &id {
        Some(id) => format!("turn `{id}`"),
        None => format!("turn {index} (0-based)"),
    };
    let parsed = (|| {
        let continues = match fields.shift_remove("continues") {
            None => Continues::Previous,
            Some(Value::Null) => Continues::Nothing,
            Some(value) => Continues::Turn(
                parse_id(&value).ok_or("`continues` is not the id of a turn, or null")?,
            ),
        };
        let after = take(
            &mut fields,
            &["after"],
            "the turn",
            "an id or a list of ids",
            parse_ids,
        )?;
        let Some(Value::Array(list)) = fields.shift_remove("messages") else {
            return Err("`messages` is not a list".to_owned());
        };
        let settings = TurnSettings::take(&mut fields, "the turn")?;
        check_names(&fields)?;
        let messages = list
            .iter()
            .map(Message::new)
            .collect::<Result<Vec<_>, _>>()?;
        let mut turns = split(messages).into_iter();
        let mut turn = match (turns.next(), turns.len()) {
            (Some(turn), 0) => turn,
            (None, _) => return Err("no message has the role `user` or `tool`".to_owned()),
            (_, more) => {
                return Err(format!(
                    "`messages` has {} requests, with replies between them; a turn is one request",
                    more + 1
                ));
            }
        };
        let inner = turn.settings;
        turn.settings = TurnSettings {
            max_tokens: settings.max_tokens.or(inner.max_tokens),
            wait: settings.wait.or(inner.wait),
            system: settings.system.or(inner.system),
        };
        Ok(NamedTurn {
            id: id.clone(),
            continues,
            after: after.unwrap_or_default(),
            ..NamedTurn::from(turn)
        })
    })();
    parsed.map_err(|problem| format!("{named}: {problem}"))
}

/// Reports a field that is nearly one of a turn: its typing mistake would change the session. Other fields are ignored.
fn check_names(fields: &Map<String, Value>) -> Result<(), String> {
    const NAMES: [&str; 8] = [
        "id",
        "continues",
        "after",
        "max_tokens",
        "output_tokens",
        "wait",
        "delay",
        "system",
    ];
    let nearly = |key: &&String| {
        let known = NAMES
            .iter()
            .find(|name| name.len() > 3 && strsim::osa_distance(name, &key.to_lowercase()) <= 2);
        known.map(|name| format!("unknown field `{key}`; did you mean `{name}`?"))
    };
    match fields.keys().find_map(|key| nearly(&key)) {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

/// A name of a turn, which may be a number.
fn parse_id(value: &Value) -> Option<String> {
    match value {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

fn parse_ids(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(ids) => ids.iter().map(parse_id).collect(),
        id => Some(vec![parse_id(id)?]),
    }
}

/// Rows with `conversations` (or `items`, or `messages`) of `{from, value}` or `{role, content}`. Without
/// `dataset.turns` a row is its first question. `item.output_tokens` is the length of the reply in the data, where a
/// tokenizer counts.
pub const SHAREGPT: Kind = Kind {
    name: "sharegpt",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: true,
        list_columns: &["conversations", "items", "messages"],
    },
    parse: Parse::Row(parse_sharegpt_row),
    words: None,
    expected: "rows such as `{\"conversations\": [{\"from\": \"human\", \"value\": \"…\"}]}` or \
    with `role` and `content`",
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
    let (column, list) = row
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
    let mut fields = row.into_fields();
    if !single_request {
        // A session in progress would hold the conversation twice.
        fields.shift_remove(&column);
    }
    let fields = Arc::new(fields);
    let turn_prompt = |(index, turn): (usize, Turn)| {
        let mut fields = fields.clone();
        let reply = turn.reply.first().map(text_of);
        let count = |reply: String| parser.tokenizer.as_ref()?.count(&reply);
        if let Some(tokens) = reply.and_then(count) {
            Arc::make_mut(&mut fields)
                .entry("output_tokens")
                .or_insert_with(|| json!(tokens));
        }
        let mut prompt = Prompt {
            fields,
            ..turn.prompt()
        };
        defaults.apply(&mut prompt, index == 0);
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

    /// Completes the prompt of a turn. `begins`: it begins a history.
    fn apply(&self, prompt: &mut Prompt, begins: bool) {
        prompt.max_tokens = prompt.max_tokens.or(self.max_tokens);
        prompt.system = prompt
            .system
            .take()
            .or_else(|| self.system.clone().filter(|_| begins));
    }
}

/// Settings of a turn, which a message of it or an entry of a list of turns may have.
#[derive(Debug, Default, PartialEq)]
struct TurnSettings {
    max_tokens: Option<u64>,
    wait: Option<Nanos>,
    system: Option<String>,
}

impl TurnSettings {
    /// Removes the settings from the fields of `owner`.
    fn take(fields: &mut Map<String, Value>, owner: &str) -> Result<TurnSettings, String> {
        Ok(TurnSettings {
            max_tokens: take(
                fields,
                &["max_tokens", "output_tokens"],
                owner,
                "a whole number",
                parse_count,
            )?,
            wait: take(
                fields,
                &["wait", "delay"],
                owner,
                "a time such as `2s`, or seconds",
                parse_span,
            )?,
            system: take(fields, &["system"], owner, "a text", |value| {
                value.as_str().map(str::to_owned)
            })?,
        })
    }
}

/// A message, and the settings of its turn.
#[derive(Debug, PartialEq)]
struct Message {
    message: Value,
    settings: TurnSettings,
    /// The turn whose reply is its content.
    reply_of: Option<String>,
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
        let reply_of = take(
            &mut fields,
            &["reply_of"],
            MESSAGE,
            "the id of a turn",
            parse_id,
        )?;
        if reply_of.is_some()
            && fields
                .get("content")
                .is_some_and(|content| !content.is_null())
        {
            return Err("a message has both `content` and `reply_of`".into());
        }
        Ok(Message {
            settings: TurnSettings::take(&mut fields, MESSAGE)?,
            reply_of,
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

/// The owner of a setting, in errors.
const MESSAGE: &str = "a message";

/// Removes a setting, which may have several names.
fn take<T>(
    fields: &mut Map<String, Value>,
    keys: &[&str],
    owner: &str,
    expected: &str,
    parse: fn(&Value) -> Option<T>,
) -> Result<Option<T>, String> {
    let mut found = None;
    for key in keys {
        if let Some(value) = fields.shift_remove(*key).filter(|value| !value.is_null()) {
            found =
                Some(parse(&value).ok_or_else(|| format!("`{key}` of {owner} is not {expected}"))?);
        }
    }
    Ok(found)
}

/// The longest wait before a turn: a year.
pub const MAX_WAIT: Nanos = Nanos::from_millis(366 * 24 * 3600 * 1000);

/// Seconds as a number, or a text with a unit, at most [`MAX_WAIT`].
fn parse_span(value: &Value) -> Option<Nanos> {
    let of_seconds = |seconds: f64| (seconds >= 0.0).then(|| Nanos::from_secs_f64(seconds));
    let span = match value {
        Value::Number(seconds) => of_seconds(seconds.as_f64()?),
        Value::String(text) => match text.trim().parse::<f64>() {
            Ok(seconds) => of_seconds(seconds),
            Err(_) => parse_duration(text),
        },
        _ => None,
    };
    span.filter(|span| *span <= MAX_WAIT)
}

#[derive(Debug, Default, PartialEq)]
struct Turn {
    /// The messages since the previous reply.
    messages: Vec<Value>,
    /// The messages whose content is the reply of another turn, by index, and that turn.
    replies: Vec<(usize, String)>,
    /// The reply in the data.
    reply: Vec<Value>,
    settings: TurnSettings,
}

impl Turn {
    fn add(&mut self, message: Message) {
        let index = self.messages.len();
        self.replies
            .extend(message.reply_of.map(|turn| (index, turn)));
        self.messages.push(message.message);
        let added = message.settings;
        let settings = &mut self.settings;
        settings.max_tokens = added.max_tokens.or(settings.max_tokens);
        settings.wait = settings.wait.or(added.wait);
        settings.system = added.system.or(settings.system.take());
    }

    /// The prompt of the turn.
    fn prompt(self) -> Prompt {
        Prompt {
            text: last_user(&self.messages),
            messages: Some(self.messages),
            recorded_reply: self.reply,
            max_tokens: self.settings.max_tokens,
            wait: self.settings.wait,
            system: self.settings.system,
            ..Prompt::default()
        }
    }
}

impl From<Turn> for NamedTurn {
    fn from(mut turn: Turn) -> NamedTurn {
        NamedTurn {
            replies: std::mem::take(&mut turn.replies),
            prompt: turn.prompt(),
            ..NamedTurn::default()
        }
    }
}

/// The turns of a conversation. Replies before the first turn are part of it; messages after the last turn are left
/// out.
fn split(messages: Vec<Message>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut turn = Turn::default();
    let mut needs_reply = false;
    for message in messages {
        if !message.is_reply() {
            needs_reply |= message.needs_reply();
            turn.add(message);
        } else if needs_reply {
            turn.reply.push(message.message);
            turns.push(std::mem::take(&mut turn));
            needs_reply = false;
        } else {
            match turns.last_mut() {
                // A reply of several messages.
                Some(last) if turn.messages.is_empty() => last.reply.push(message.message),
                Some(_) => {}
                None => turn.add(message),
            }
        }
    }
    turns.extend(needs_reply.then_some(turn));
    turns
}

/// The conversation up to the last message that needs a reply, as one turn.
fn as_one_turn(mut messages: Vec<Message>) -> Option<Turn> {
    let last = messages.iter().rposition(Message::needs_reply)?;
    let reply = messages.get(last + 1).map(|next| next.message.clone());
    messages.truncate(last + 1);
    let wait = messages[last].settings.wait;
    let mut turn = Turn::default();
    messages.into_iter().for_each(|message| turn.add(message));
    turn.reply.extend(reply);
    turn.settings.wait = wait;
    Some(turn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all, file, opened, spec, talks};
    use llmscen_core::dataset::{
        BeginAt, DatasetSpec, Replies, ReplySlot, SentHistory, Source, TurnLinks, Turns,
    };

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
        let replies: Vec<Vec<String>> = turns
            .iter()
            .map(|turn| turn.reply.iter().map(text_of).collect())
            .collect();
        assert_eq!(replies, [vec!["a1", "a1, more"], vec!["a2"], vec![]]);
        assert_eq!(
            turns[1].messages[0],
            json!({ "role": "tool", "content": "t1", "tool_call_id": "x" })
        );
        let prompts: Vec<Prompt> = turns.into_iter().map(Turn::prompt).collect();
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
            (
                turn.messages.len(),
                turn.settings.wait,
                turn.settings.max_tokens
            ),
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

    /// The error of a row that is not sent.
    fn problem(turns: Turns, row: &Value) -> String {
        let (_dir, path) = file("a.jsonl", row.to_string());
        let spec = DatasetSpec {
            strict: true,
            turns: Some(turns),
            ..spec(Source::Messages, &path)
        };
        let error = opened(&spec).unwrap_err().to_string();
        let (_, problem) = error.split_once(":1: ").unwrap();
        problem.split("; expected rows").next().unwrap().to_owned()
    }

    #[test]
    fn a_list_of_turns_is_a_graph() {
        let row = json!({ "model": "m", "turns": [
            { "id": "plan", "messages": [{ "role": "user", "content": "Plan." }] },
            { "id": 1, "continues": null, "after": "plan", "system": "Search.",
                "messages": [{ "role": "user", "content": "Find." }] },
            { "continues": "plan", "after": [1], "wait": "2s", "max_tokens": 9,
              "messages": [{ "role": "tool", "tool_call_id": "x", "reply_of": 1 }, { "role": "assistant",
                  "content": "Done." }] },
        ] });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let turns = all(&talks(Source::Messages, &path)).remove(0);
        let links: Vec<TurnLinks> = turns
            .iter()
            .map(|turn| (**turn.links.as_ref().unwrap()).clone())
            .collect();
        let slot = ReplySlot {
            message: 0,
            turn: 1,
        };
        let known = [
            (None, vec![], vec![]),
            (None, vec![0], vec![]),
            (Some(0), vec![1], vec![slot]),
        ];
        let known = known.map(|(continues, after, replies)| TurnLinks {
            continues,
            after,
            replies,
        });
        assert_eq!(links, known);
        let [plan, search, merge] = &turns[..] else {
            panic!("three turns")
        };
        assert_eq!(plan.text, "Plan.");
        assert_eq!(search.system.as_deref(), Some("Search."));
        assert_eq!(
            json!(merge.messages),
            json!([{ "role": "tool", "tool_call_id": "x" }])
        );
        assert_eq!(
            merge.recorded_reply,
            [json!({ "role": "assistant", "content": "Done." })]
        );
        assert_eq!(
            (merge.wait, merge.max_tokens),
            (Some(Nanos::from_millis(2000)), Some(9))
        );
        assert_eq!(
            Value::Object((*merge.fields).clone()),
            json!({ "model": "m" })
        );
    }

    #[test]
    fn sessions_are_lists_of_turns_that_add_messages() {
        let turn = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
        let session = json!([turn("a"), turn("b")]);
        for (name, text) in [
            (
                "a.json",
                json!({ "conversations": [session, session] }).to_string(),
            ),
            (
                "a.jsonl",
                format!("{0}\n{0}\n", json!({ "conversations": session })),
            ),
        ] {
            let (_dir, path) = file(name, text);
            let sessions = all(&talks(Source::Messages, &path));
            let texts: Vec<Vec<&str>> = sessions
                .iter()
                .map(|turns| turns.iter().map(|turn| turn.text.as_str()).collect())
                .collect();
            assert_eq!(texts, [["a", "b"], ["a", "b"]], "{name}");
            assert!(sessions[0].iter().all(|turn| turn.links.is_none()));
        }
    }

    #[test]
    fn turns_that_cannot_be_sent_are_errors_with_their_names() {
        let user = json!([{ "role": "user", "content": "q" }]);
        let error = |turn: Value| {
            let first = json!({ "id": "plan", "messages": user });
            problem(Turns::default(), &json!({ "turns": [first, turn] }))
        };
        let begin = Turns {
            begin: Some(BeginAt {
                low: 0.5,
                high: 0.5,
            }),
            ..Turns::default()
        };
        let branch = json!({ "continues": "plan", "messages": user });
        let first = json!({ "id": "plan", "messages": user });
        let graph = json!({ "turns": [first, branch, branch] });
        assert!(problem(begin, &graph).contains("`dataset.turns.begin` needs turns in a line"));
        assert_eq!(
            error(json!({ "id": "a", "contines": "plan", "messages": user })),
            "turn `a`: unknown field `contines`; did you mean `continues`?"
        );
        for endless in [json!("inf"), json!(1e300), json!("400d")] {
            assert_eq!(
                error(json!({ "id": "a", "wait": endless, "messages": user })),
                "turn `a`: `wait` of the turn is not a time such as `2s`, or seconds"
            );
        }
        assert_eq!(
            error(json!({ "id": "a", "wait": "-2s", "messages": user })),
            "turn `a`: `wait` of the turn is not a time such as `2s`, or seconds"
        );
        assert_eq!(
            error(json!({ "id": "a", "after": ["b"], "messages": user })),
            "`after` of turn `a` names no turn of the row: `b`"
        );
        assert_eq!(
            error(json!({ "messages": [{ "role": "assistant", "content": "r" }] })),
            "turn 1 (0-based): no message has the role `user` or `tool`"
        );
        assert_eq!(
            error(
                json!({ "messages": [user[0], { "role": "assistant", "content": "r" }, user[0]] })
            ),
            "turn 1 (0-based): `messages` has 2 requests, with replies between them; a turn is one request"
        );
        assert_eq!(
            error(json!({ "messages": [{ "role": "tool", "content": "x", "reply_of": "plan" }] })),
            "turn 1 (0-based): a message has both `content` and `reply_of`"
        );
        assert_eq!(
            error(json!({ "id": "a" })),
            "turn 1 (0-based) has no `messages`"
        );
        let (_dir, path) = file(
            "a.jsonl",
            json!({ "turns": [{ "messages": user }] }).to_string(),
        );
        let single = opened(&DatasetSpec {
            strict: true,
            ..spec(Source::Messages, &path)
        });
        assert!(
            single
                .unwrap_err()
                .to_string()
                .contains("`turns` is a list of turns; set `dataset.turns: {}` to send them")
        );
    }

    #[test]
    fn a_turn_cannot_replace_the_system_message_of_a_stored_history() {
        let stored = Turns {
            history: SentHistory::PreviousResponseId,
            ..Turns::default()
        };
        let turn = |system: &str, fields: Value| {
            let messages = json!([{ "role": "user", "content": "q" }]);
            let mut turn = json!({ "messages": messages, "system": system });
            turn.as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            turn
        };
        let first = turn("a", json!({ "id": "plan" }));
        let sub_agent = turn("b", json!({ "continues": null, "after": ["plan"] }));
        let row = json!({ "turns": [first, sub_agent, turn("c", json!({ "continues": "plan" }))] });
        assert_eq!(
            problem(stored.clone(), &row),
            "turn 2 (0-based) replaces the system message, which `history: previous_response_id` cannot"
        );
        let (_dir, path) = file(
            "a.jsonl",
            json!({ "turns": [first, sub_agent] }).to_string(),
        );
        let spec = DatasetSpec {
            turns: Some(stored),
            ..spec(Source::Messages, &path)
        };
        assert_eq!(all(&spec)[0].len(), 2);
    }

    #[test]
    fn recorded_replies_must_be_in_the_data() {
        let recorded = Turns {
            replies: Replies::Recorded,
            ..Turns::default()
        };
        let row = json!({ "messages": talk() });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let spec = DatasetSpec {
            turns: Some(recorded.clone()),
            ..spec(Source::Messages, &path)
        };
        assert_eq!(
            all(&spec)[0][0].recorded_reply,
            [json!({ "role": "assistant", "content": "a1" })]
        );
        let user = json!({ "role": "user", "content": "q" });
        let turns = json!({ "turns": [{ "messages": [user] }, { "messages": [user] }] });
        assert_eq!(
            problem(recorded.clone(), &turns),
            "turn 0 (0-based) has no reply in the data, which `replies: recorded` sends back"
        );
        let limited = Turns {
            max: Some(1),
            ..recorded
        };
        let (_dir, path) = file("a.jsonl", turns.to_string());
        let spec = DatasetSpec {
            turns: Some(limited),
            ..spec
        };
        let spec = DatasetSpec {
            path: Some(path),
            ..spec
        };
        assert_eq!(
            all(&spec)[0].len(),
            1,
            "the reply to the last turn is not needed"
        );
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
