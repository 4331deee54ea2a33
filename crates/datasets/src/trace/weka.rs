//! The layout `weka`: one JSON object per session of a coding agent, with nested sub-agents.

use super::layout::{
    Entry, LoggedRequest, SessionFields, check_tokens, invalid_time, parse_decimal,
};
use super::sessions::{LogTime, MAX_DEPTH, SessionError, TimedRequest, Unit};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::ops::Range;

/// A session.
#[derive(Deserialize)]
pub struct Session<'a> {
    /// Tokens of a block.
    pub block_size: Option<u64>,
    /// `global`: equal ids in other sessions are equal text. Otherwise each session has its own ids.
    pub hash_id_scope: Option<String>,
    /// Requests and sub-agents.
    #[serde(borrow)]
    pub requests: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Request {
    t: Value,
    model: Option<String>,
    r#in: Value,
    out: Value,
    #[serde(default)]
    hash_ids: Vec<u64>,
    api_time: Option<Value>,
}

/// What requests and sub-agents share.
#[derive(Deserialize)]
struct Member<'a> {
    t: Value,
    /// Of a sub-agent.
    #[serde(borrow)]
    requests: Option<Vec<&'a RawValue>>,
}

/// Parses a request; its time is relative to its session, or to its sub-agent.
pub fn parse_request(text: &str) -> Result<Entry<'_>, String> {
    let request: Request = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let at = seconds(&request.t)?;
    let end = match &request.api_time {
        None | Some(Value::Null) => None,
        Some(time) => Some(at.saturating_add(positive(seconds(time)?, "api_time")?)),
    };
    let input = check_tokens(request.r#in.as_u64(), "prompt", &request.r#in)?;
    let output = check_tokens(request.out.as_u64(), "output", &request.out)?;
    Ok(Entry {
        at: Some(at),
        model: request.model,
        request: LoggedRequest::Lengths {
            input,
            output,
            blocks: request.hash_ids,
        },
        place: SessionFields {
            end,
            ..SessionFields::default()
        },
    })
}

fn seconds(time: &Value) -> Result<LogTime, String> {
    let text = time.to_string();
    parse_decimal(&text, 9).ok_or_else(|| invalid_time(&text))
}

fn positive(time: LogTime, key: &str) -> Result<LogTime, String> {
    match time {
        0.. => Ok(time),
        _ => Err(format!("negative `{key}`: {} s", time as f64 / 1e9)),
    }
}

/// Where the members of a session or of a sub-agent are.
#[derive(Clone, Copy, Default)]
pub struct Level {
    /// The time from which theirs count.
    pub base: LogTime,
    /// Number of sub-agents around them.
    pub depth: u32,
}

/// The requests of a session, or of a sub-agent. `locate` finds a part in the text of the log; `reject` receives
/// requests that are invalid, and stops the reading with an error.
///
/// # Errors
/// A time before that of the member before it, or an error of `reject`.
pub fn units<E: From<SessionError>>(
    members: &[&RawValue],
    Level { base, depth }: Level,
    locate: &dyn Fn(&str) -> Range<usize>,
    reject: &mut dyn FnMut(&str, String) -> Result<(), E>,
) -> Result<Vec<Unit>, E> {
    let mut units = Vec::new();
    let mut latest = LogTime::MIN;
    for member in members {
        let text = member.get();
        let parsed: Result<Member<'_>, _> = serde_json::from_str(text);
        let parsed = parsed
            .map_err(|error| error.to_string())
            .and_then(|member| Ok((seconds(&member.t)?, member.requests)));
        let (at, inner) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => {
                reject(text, problem)?;
                continue;
            }
        };
        if at < latest {
            return Err(SessionError {
                offset: locate(text).start,
                problem: "`t` is earlier than that of the request before it".into(),
            }
            .into());
        }
        latest = at;
        if let Some(inner) = inner {
            if depth >= MAX_DEPTH {
                reject(
                    text,
                    format!("sub-agents are nested in more than {MAX_DEPTH} levels"),
                )?;
                continue;
            }
            // Some logs have times since the beginning of the session here, others since the beginning of the
            // sub-agent.
            let is_relative = first_time(&inner).is_some_and(|first| first < at);
            let base = if is_relative {
                base.saturating_add(at)
            } else {
                base
            };
            let level = Level {
                base,
                depth: depth + 1,
            };
            units.push(Unit::Group(self::units(&inner, level, locate, reject)?));
            continue;
        }
        match parse_request(text) {
            Ok(entry) => units.push(Unit::Request(TimedRequest {
                span: locate(text),
                start: base.saturating_add(at),
                end: entry.place.end.map(|end| base.saturating_add(end)),
            })),
            Err(problem) => reject(text, problem)?,
        }
    }
    Ok(units)
}

fn first_time(members: &[&RawValue]) -> Option<LogTime> {
    let first: Member<'_> = serde_json::from_str(members.first()?.get()).ok()?;
    seconds(&first.t).ok()
}
