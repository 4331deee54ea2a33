//! What a client asks for: the bodies of chat and text completions, checked field by field.

use serde_json::{Map, Value};

/// The two generation endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

impl Api {
    /// The endpoint of a path.
    pub(super) fn of(path: &str) -> Option<Api> {
        [Api::Chat, Api::Completions].into_iter().find(|api| api.path() == path)
    }

    /// Its path.
    pub(super) fn path(self) -> &'static str {
        match self {
            Api::Chat => "/v1/chat/completions",
            Api::Completions => "/v1/completions",
        }
    }

    /// The id of response `number`.
    pub(super) fn id(self, number: u64) -> String {
        match self {
            Api::Chat => format!("chatcmpl-sim-{number}"),
            Api::Completions => format!("cmpl-sim-{number}"),
        }
    }
}

/// A request that can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) api: Api,
    /// The model it names, given back as it is; `sim` where it names none.
    pub(super) model: String,
    pub(super) stream: bool,
    /// The answer is to carry its usage: a whole one always, a stream when asked.
    pub(super) usage: bool,
    /// Prompt tokens by the simulator's own rule: bytes of text / 4, rounded up, at least 1; the number of ids where the
    /// prompt is a list of token ids.
    pub(super) prompt: u64,
    /// Output tokens: the limit that it sets, which is always used up, or else the simulator's default.
    pub(super) output: u64,
    /// `length` where it set the limit, else `stop`.
    pub(super) finish: &'static str,
}

/// An answer with an error status, in OpenAI's shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) message: String,
    /// The field that is wrong.
    pub(super) param: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Refusal {
        Refusal { status, message: message.into(), param: None }
    }

    fn field(param: &'static str, message: impl std::fmt::Display) -> Refusal {
        Refusal { status: 400, message: format!("`{param}` {message}"), param: Some(param) }
    }
}

impl Ask {
    /// Reads a body. Fields that the simulator does not know, `stop` among them, are ignored.
    pub(super) fn read(api: Api, body: &[u8], default_output: u64) -> Result<Ask, Refusal> {
        let body: Value =
            serde_json::from_slice(body).map_err(|error| Refusal::new(400, format!("the body is not JSON: {error}")))?;
        let Value::Object(body) = body else { return Err(Refusal::new(400, "the body must be a JSON object")) };
        if whole(&body, "n")?.is_some_and(|n| n != 1) {
            return Err(Refusal::field("n", "must be 1: the simulator gives one choice"));
        }
        flag(&body, "ignore_eos")?;
        let (output, finish) = output(&body, default_output)?;
        let (stream, include_usage) = (flag(&body, "stream")?, include_usage(&body)?);
        Ok(Ask {
            api,
            model: text(&body, "model")?.unwrap_or("sim").to_owned(),
            stream,
            usage: include_usage || !stream,
            prompt: match api {
                Api::Chat => messages(&body)?,
                Api::Completions => prompt(&body)?,
            },
            output,
            finish,
        })
    }
}

fn output(body: &Map<String, Value>, default: u64) -> Result<(u64, &'static str), Refusal> {
    let limit = match whole(body, "max_completion_tokens")? {
        Some(limit) => Some(("max_completion_tokens", limit)),
        None => whole(body, "max_tokens")?.map(|limit| ("max_tokens", limit)),
    };
    let least = whole(body, "min_tokens")?.unwrap_or(0);
    match limit {
        Some((name, 0)) => Err(Refusal::field(name, "must be at least 1")),
        Some((_, limit)) if least > limit => Err(Refusal::field("min_tokens", format!("must not exceed the limit of {limit}"))),
        Some((_, limit)) => Ok((limit, "length")),
        None => Ok((default.max(least).max(1), "stop")),
    }
}

fn include_usage(body: &Map<String, Value>) -> Result<bool, Refusal> {
    match body.get("stream_options") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Object(options)) => flag(options, "include_usage"),
        Some(_) => Err(Refusal::field("stream_options", "must be an object")),
    }
}

fn messages(body: &Map<String, Value>) -> Result<u64, Refusal> {
    let list = match body.get("messages") {
        None | Some(Value::Null) => return Err(Refusal::field("messages", "is missing")),
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(_) => return Err(Refusal::field("messages", "must be a list of at least one message")),
    };
    let bytes: Result<Vec<usize>, Refusal> = list.iter().map(message_bytes).collect();
    Ok(tokens(bytes?.into_iter().sum()))
}

fn message_bytes(message: &Value) -> Result<usize, Refusal> {
    if !message.get("role").is_some_and(Value::is_string) {
        return Err(Refusal::field("messages", "must hold objects with a `role`"));
    }
    match message.get("content") {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) => Ok(text.len()),
        Some(Value::Array(parts)) => Ok(parts.iter().filter_map(|part| part.get("text")?.as_str()).map(str::len).sum()),
        Some(_) => Err(Refusal::field("messages", "must hold contents that are text or lists of parts")),
    }
}

fn prompt(body: &Map<String, Value>) -> Result<u64, Refusal> {
    let wrong = || Refusal::field("prompt", "must be one text, or one list of token ids");
    match body.get("prompt") {
        None | Some(Value::Null) => Err(Refusal::field("prompt", "is missing")),
        Some(Value::String(text)) => Ok(tokens(text.len())),
        Some(Value::Array(ids)) if !ids.is_empty() && ids.iter().all(Value::is_u64) => Ok(ids.len() as u64),
        Some(Value::Array(texts)) => match texts.as_slice() {
            [Value::String(text)] => Ok(tokens(text.len())),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4).max(1) as u64
}

fn whole(body: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            value.as_u64().map(Some).ok_or_else(|| Refusal::field(name, format!("must be a whole number, not {value}")))
        }
    }
}

fn flag(body: &Map<String, Value>, name: &'static str) -> Result<bool, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(value) => Err(Refusal::field(name, format!("must be true or false, not {value}"))),
    }
}

fn text<'b>(body: &'b Map<String, Value>, name: &'static str) -> Result<Option<&'b str>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(value) => Err(Refusal::field(name, format!("must be text, not {value}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(fields: &str) -> Result<Ask, Refusal> {
        Ask::read(Api::Chat, format!(r#"{{"messages":[{{"role":"user","content":"12345"}}]{fields}}}"#).as_bytes(), 64)
    }

    fn prompt_tokens(prompt: &str) -> Option<u64> {
        Ask::read(Api::Completions, format!(r#"{{"prompt":{prompt}}}"#).as_bytes(), 64).ok().map(|ask| ask.prompt)
    }

    #[test]
    fn lengths_follow_the_limits() {
        let length = |fields: &str| chat(fields).map(|ask| (ask.output, ask.finish)).map_err(|refusal| refusal.param);
        assert_eq!(length(""), Ok((64, "stop")));
        assert_eq!(length(r#","min_tokens":90"#), Ok((90, "stop")));
        assert_eq!(length(r#","max_tokens":7,"stop":["x"],"ignore_eos":true"#), Ok((7, "length")));
        assert_eq!(length(r#","max_tokens":7,"max_completion_tokens":3"#), Ok((3, "length")));
        assert_eq!(length(r#","max_tokens":0"#), Err(Some("max_tokens")));
        assert_eq!(length(r#","max_tokens":-1"#), Err(Some("max_tokens")));
        assert_eq!(length(r#","max_tokens":3,"min_tokens":4"#), Err(Some("min_tokens")));
    }

    #[test]
    fn prompts_count_by_bytes_or_ids() {
        assert_eq!(chat("").unwrap().prompt, 2);
        let parts = r#"{"messages":[{"role":"system","content":"1234"},{"role":"user","content":[{"type":"text","text":"123"},{"type":"image_url"}]}]}"#;
        assert_eq!(Ask::read(Api::Chat, parts.as_bytes(), 1).unwrap().prompt, 2);
        let prompts = [r#""""#, r#""123456789""#, "[5,6,7]", r#"["1234"]"#, r#"["a","b"]"#, "[]", "3", "null"];
        let counts = [Some(1), Some(3), Some(3), Some(1), None, None, None, None];
        assert_eq!(prompts.map(prompt_tokens), counts);
    }

    #[test]
    fn wrong_types_name_the_field() {
        let cases = [
            (r#","stream":"yes""#, "stream", "`stream` must be true or false, not \"yes\""),
            (r#","n":2"#, "n", "`n` must be 1: the simulator gives one choice"),
            (r#","model":4"#, "model", "`model` must be text, not 4"),
            (r#","stream_options":true"#, "stream_options", "`stream_options` must be an object"),
        ];
        for (fields, param, message) in cases {
            assert_eq!(chat(fields), Err(Refusal { status: 400, message: message.into(), param: Some(param) }));
        }
        for body in [r#"{}"#, r#"{"messages":[]}"#, r#"{"messages":["hi"]}"#, r#"{"messages":[{"role":"user","content":7}]}"#] {
            assert_eq!(Ask::read(Api::Chat, body.as_bytes(), 1).unwrap_err().param, Some("messages"));
        }
        assert_eq!(Ask::read(Api::Chat, b"[]", 1).unwrap_err().message, "the body must be a JSON object");
        assert!(Ask::read(Api::Chat, b"{\"messages\": [", 1).unwrap_err().message.starts_with("the body is not JSON: EOF"));
    }
}
