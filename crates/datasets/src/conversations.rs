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
mod tests;
