//! Recorded tool results in a replay with live replies.
//!
//! A recorded result has the id of a recorded call, which the server does not know: the history has the calls of its
//! own reply. A history is valid if each result answers a call of the reply before it, and if each call has a result:
//!
//! | recorded result | live call | sent |
//! |---|---|---|
//! | yes | yes, of the same tool or else the next one | the result, with the id of the live call |
//! | yes | no | the recorded call, added to the live reply, and the result |
//! | no | yes | the live call, and [`NO_RESULT`] |
//!
//! The live reply stays in front, so that the prefix cache of the server still has it.

use llmscen_core::dataset::{Prompt, Session};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The result of a live call that the data has none for.
pub const NO_RESULT: &str = "The tool returned no result.";

/// What `llmscen plan` states about data with tool results.
pub const MAPPING: &str = "the data has recorded tool results, and `turns.replies` is `live`: \
     each result is sent for a call of the live reply, by the name of the tool, then by order. A \
     result without a live call is sent with its recorded call. The report counts them.";

/// Tool results of the turns that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolResults {
    /// Recorded results.
    pub recorded: u64,
    /// Those for which the live reply had no call.
    pub without_call: u64,
    /// Live calls for which the data had no result.
    pub unanswered: u64,
}

impl ToolResults {
    /// Adds the counts of other turns.
    pub fn add(&mut self, other: ToolResults) {
        self.recorded += other.recorded;
        self.without_call += other.without_call;
        self.unanswered += other.unanswered;
    }

    /// The note of a case; None if each result had a live call, and each call a result.
    pub fn note(self, case: &str) -> Option<String> {
        let ToolResults {
            recorded,
            without_call,
            unanswered,
        } = self;
        let without = (without_call > 0).then(|| {
            format!(
                "{without_call} of {recorded} tool results had no live call: they were sent with \
                 their recorded calls, added to the live replies"
            )
        });
        let unanswered = (unanswered > 0).then(|| {
            let calls = if unanswered == 1 { "call" } else { "calls" };
            format!("{unanswered} live tool {calls} had no recorded result: `{NO_RESULT}` was sent")
        });
        let found: Vec<String> = without.into_iter().chain(unanswered).collect();
        (!found.is_empty()).then(|| format!("case `{case}`: {}", found.join("; ")))
    }
}

/// The messages of a turn after a live reply.
#[derive(Debug, Default)]
pub struct AnsweredCalls {
    /// The reply with further calls, if it changes.
    pub reply: Option<Value>,
    /// New messages in front of those of the turn, in chat format.
    pub inserted: Vec<Value>,
    /// The messages of the turn.
    pub added: Vec<Value>,
    pub counts: ToolResults,
}

/// Makes the messages `added` by a turn answer the calls of the live `reply`. `recorded`: the reply in the data.
/// `keeps_reply`: the server stores the reply, so that calls are sent as messages of their own.
pub fn answer_calls(
    turn: u32,
    reply: Option<&Value>,
    recorded: &[Value],
    mut added: Vec<Value>,
    keeps_reply: bool,
) -> AnsweredCalls {
    // What follows a reply among the messages belongs to that reply.
    let own_reply = added
        .iter()
        .position(|message| has_role(message, "assistant"));
    let rest = added.split_off(own_reply.unwrap_or(added.len()));
    let (mut answers, others): (Vec<Value>, Vec<Value>) = added.into_iter().partition(is_answer);
    let mut ids = 0;
    let mut new_id = || {
        ids += 1;
        // Some chat templates require 9 letters and digits.
        format!("call{turn:03}{ids:02}")
    };
    let mut reply = reply.cloned();
    let mut changed = false;
    let mut live: Vec<LiveCall> = Vec::new();
    for call in reply.iter_mut().flat_map(calls_mut) {
        if call_id(call).is_none() && !keeps_reply {
            set_call_id(call, &new_id());
            changed = true;
        }
        changed |= !keeps_reply && wrap_arguments(call);
        live.push(LiveCall {
            id: call_id(call).unwrap_or_default().to_owned(),
            name: call_name(call).map(str::to_owned),
        });
    }
    let recorded = recorded_calls(recorded);
    let mut results: Vec<&mut Value> = answers.iter_mut().flat_map(results_mut).collect();
    let answered = |result: &&mut Value| {
        let call = find_recorded(&recorded, result);
        let name = call.and_then(call_name).or(result_name(result));
        (call, name.map(str::to_owned))
    };
    let answered: Vec<(Option<&Value>, Option<String>)> = results.iter().map(answered).collect();
    let names = answered.iter().map(|(_, name)| name.as_deref());
    let (matches, unanswered) = match_calls(&names.collect::<Vec<_>>(), &live);
    let mut missing = Vec::new();
    for ((result, (call, name)), found) in results.iter_mut().zip(&answered).zip(matches) {
        if let Some(LiveCall { id, name }) = found {
            set_result(result, id, name.as_deref());
        } else {
            let id = new_id();
            let mut call = call.map_or_else(|| new_call(name.as_deref()), Value::clone);
            set_call_id(&mut call, &id);
            set_result(result, &id, None);
            missing.push(call);
        }
    }
    let counts = ToolResults {
        recorded: results.len() as u64,
        without_call: missing.len() as u64,
        unanswered: unanswered.len() as u64,
    };
    let mut inserted = Vec::new();
    match reply.as_mut().filter(|_| !keeps_reply) {
        _ if missing.is_empty() => {}
        Some(reply) => {
            add_calls(reply, missing);
            changed = true;
        }
        None => inserted
            .push(json!({ "role": "assistant", "content": Value::Null, "tool_calls": missing })),
    }
    inserted.extend(unanswered.into_iter().map(no_result));
    answers.extend(others);
    answers.extend(rest);
    AnsweredCalls {
        reply: reply.filter(|_| changed),
        inserted,
        added: answers,
        counts,
    }
}

/// A tool call of a live reply.
#[derive(Debug, PartialEq)]
struct LiveCall {
    id: String,
    name: Option<String>,
}

/// Whether a later turn of a session has results of tools.
pub fn has_tool_results(session: &Session) -> bool {
    let answers =
        |prompt: &Prompt| messages_in(prompt).is_some_and(|all| all.iter().any(is_answer));
    session.turns.iter().skip(1).any(answers)
}

/// The messages of a prompt: those of the data, or of its complete body.
pub fn messages_in(prompt: &Prompt) -> Option<&Vec<Value>> {
    let body = || prompt.body.as_ref()?.get("messages")?.as_array();
    prompt.messages.as_ref().or_else(body)
}

/// For each result the live call that it answers, and the calls that none answers: by name, then by order.
fn match_calls<'a>(
    results: &[Option<&str>],
    calls: &'a [LiveCall],
) -> (Vec<Option<&'a LiveCall>>, Vec<&'a LiveCall>) {
    let mut open: Vec<&LiveCall> = calls.iter().collect();
    let mut matches: Vec<Option<&LiveCall>> = Vec::new();
    for name in results {
        let same = |call: &&LiveCall| name.is_some() && call.name.as_deref() == *name;
        matches.push(open.iter().position(same).map(|at| open.remove(at)));
    }
    for found in matches.iter_mut().filter(|found| found.is_none()) {
        *found = (!open.is_empty()).then(|| open.remove(0));
    }
    (matches, open)
}

/// The calls of recorded replies in one form: a chat API had a `function_call` before it had `tool_calls`.
fn recorded_calls(replies: &[Value]) -> Vec<Value> {
    let mut replies = replies.to_vec();
    let calls = replies.iter_mut().flat_map(|reply| {
        let single = reply.get("function_call").filter(|call| call.is_object());
        let single = single.map(|call| json!({ "type": "function", "function": call }));
        let calls: Vec<Value> = calls_mut(reply)
            .into_iter()
            .map(|call| call.take())
            .collect();
        calls.into_iter().chain(single)
    });
    calls.collect()
}

/// The recorded call that a result answers: by its id, else by the name of the tool.
fn find_recorded<'a>(calls: &'a [Value], result: &Value) -> Option<&'a Value> {
    let (id, name) = (result_id(result), result_name(result));
    let by_id = calls
        .iter()
        .find(|call| id.is_some() && call_id(call) == id);
    let by_name = || {
        calls
            .iter()
            .find(|call| name.is_some() && call_name(call) == name)
    };
    by_id.or_else(by_name)
}

/// A call for a result of which the data has no call.
fn new_call(name: Option<&str>) -> Value {
    json!({ "type": "function", "function": { "name": name.unwrap_or("tool"), "arguments": "{}" } })
}

fn no_result(call: &LiveCall) -> Value {
    json!({ "role": "tool", "tool_call_id": call.id, "content": NO_RESULT })
}

fn has_role(message: &Value, role: &str) -> bool {
    message.get("role").is_some_and(|found| found == role)
}

fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message
        .get("content")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn blocks_mut<'a>(
    message: &'a mut Value,
    kind: &'static str,
) -> impl Iterator<Item = &'a mut Value> {
    let content = message.get_mut("content").and_then(Value::as_array_mut);
    let blocks = content.into_iter().flatten();
    blocks.filter(move |block| block.get("type").is_some_and(|found| found == kind))
}

/// Whether a message has results: one of its own, or the blocks of Anthropic.
fn is_answer(message: &Value) -> bool {
    let is_block = |block: &Value| block.get("type").is_some_and(|kind| kind == "tool_result");
    ["tool", "function"]
        .iter()
        .any(|role| has_role(message, role))
        || blocks(message).any(is_block)
}

fn results_mut(message: &mut Value) -> Vec<&mut Value> {
    match has_role(message, "user") {
        true => blocks_mut(message, "tool_result").collect(),
        false => vec![message],
    }
}

/// The calls of an assistant message, in the form of any API.
fn calls_mut(message: &mut Value) -> Vec<&mut Value> {
    match message.get("tool_calls").is_some_and(Value::is_array) {
        true => {
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            calls.into_iter().flatten().collect()
        }
        false => blocks_mut(message, "tool_use").collect(),
    }
}

fn add_calls(reply: &mut Value, calls: Vec<Value>) {
    if reply.get("content").is_some_and(|content| content == "") {
        reply["content"] = Value::Null;
    }
    match reply.get_mut("tool_calls").and_then(Value::as_array_mut) {
        Some(known) => known.extend(calls),
        None => reply["tool_calls"] = Value::Array(calls),
    }
}

fn text<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a str> {
    let found = keys.iter().find_map(|key| value.get(*key)?.as_str());
    found.filter(|text| !text.is_empty())
}

fn call_id(call: &Value) -> Option<&str> {
    text(call, &["call_id", "id"])
}

fn call_name(call: &Value) -> Option<&str> {
    let function = call.get("function").or_else(|| call.get("custom"));
    text(function.unwrap_or(call), &["name"])
}

fn set_call_id(call: &mut Value, id: &str) {
    let key = if call.get("call_id").is_some() {
        "call_id"
    } else {
        "id"
    };
    call[key] = id.into();
}

/// Makes arguments a JSON object where `max_tokens` cut them off: servers parse those of a history. Whether they
/// change.
fn wrap_arguments(call: &mut Value) -> bool {
    let path = match call.get("function") {
        Some(_) => "/function/arguments",
        None => "/arguments",
    };
    let Some(Value::String(written)) = call.pointer_mut(path) else {
        return false;
    };
    let is_object = serde_json::from_str::<Map<String, Value>>(written).is_ok();
    if is_object || written.is_empty() {
        return false;
    }
    *written = json!({ "arguments": written }).to_string();
    true
}

fn result_id(result: &Value) -> Option<&str> {
    text(result, &["tool_call_id", "tool_use_id"])
}

fn result_name(result: &Value) -> Option<&str> {
    text(result, &["name", "tool_name"])
}

/// Makes a result the answer to the call with this id. `name`: of its tool, if it may be another than the recorded one.
fn set_result(result: &mut Value, id: &str, name: Option<&str>) {
    if result.get("type").is_some_and(|kind| kind == "tool_result") {
        result["tool_use_id"] = id.into();
        return;
    }
    result["role"] = "tool".into();
    result["tool_call_id"] = id.into();
    for key in ["name", "tool_name"] {
        if let (Some(old), Some(name)) = (result.get_mut(key), name) {
            *old = name.into();
        }
    }
}

#[cfg(test)]
mod tests;
