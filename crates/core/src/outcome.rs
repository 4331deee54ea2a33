//! What happened to one request: raw facts, never derived ones.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Part of a case that a request belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before measuring; left out of every figure.
    Warmup,
    /// Measured.
    #[default]
    Measured,
}

/// Why a request failed. The names are those of the `outcome` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection: name not found, refused, or closed before any byte of an answer.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// No connection within `timeouts.connect`.
    TimeoutConnect,
    /// No byte within `timeouts.read`.
    TimeoutRead,
    /// Not done within `timeouts.total`.
    TimeoutTotal,
    /// A status of 400 to 499, but for 429.
    #[serde(rename = "http_4xx")]
    Http4xx,
    /// Too many requests.
    #[serde(rename = "http_429")]
    Http429,
    /// A status of 500 to 599.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// An error inside a response that began as a success.
    StreamError,
    /// The response ended before its end marker or finish reason, or the connection broke in mid-response.
    Truncated,
    /// A body that is not what the protocol says, or a status that HTTP does not have.
    Decode,
    /// A complete response without any content and without a finish reason.
    Empty,
    /// Given up by this side: the case or the run was over.
    Cancelled,
    /// Never sent: `max_in_flight` was reached, or the case was over.
    Dropped,
    /// Its user left, as the scenario says that some do.
    Abandoned,
    /// A status of 300 to 399: redirects are not followed.
    #[serde(rename = "http_3xx")]
    Http3xx,
    /// A timeout passed while the load generator stalled again and again: what the server did is not known. Last, because
    /// journals store kinds by their number.
    ToolStall,
}

impl FailureKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [FailureKind; 17] = [
        FailureKind::Connect,
        FailureKind::Tls,
        FailureKind::TimeoutConnect,
        FailureKind::TimeoutRead,
        FailureKind::TimeoutTotal,
        FailureKind::Http4xx,
        FailureKind::Http429,
        FailureKind::Http5xx,
        FailureKind::StreamError,
        FailureKind::Truncated,
        FailureKind::Decode,
        FailureKind::Empty,
        FailureKind::Cancelled,
        FailureKind::Dropped,
        FailureKind::Abandoned,
        FailureKind::Http3xx,
        FailureKind::ToolStall,
    ];

    /// The word in columns, reports and journals.
    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Connect => "connect",
            FailureKind::Tls => "tls",
            FailureKind::TimeoutConnect => "timeout_connect",
            FailureKind::TimeoutRead => "timeout_read",
            FailureKind::TimeoutTotal => "timeout_total",
            FailureKind::Http4xx => "http_4xx",
            FailureKind::Http429 => "http_429",
            FailureKind::Http5xx => "http_5xx",
            FailureKind::StreamError => "stream_error",
            FailureKind::Truncated => "truncated",
            FailureKind::Decode => "decode",
            FailureKind::Empty => "empty",
            FailureKind::Cancelled => "cancelled",
            FailureKind::Dropped => "dropped",
            FailureKind::Abandoned => "abandoned",
            FailureKind::Http3xx => "http_3xx",
            FailureKind::ToolStall => "tool_stall",
        }
    }

    /// The kind of that name.
    pub fn parse(name: &str) -> Option<FailureKind> {
        FailureKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The kind of an HTTP status that is not a success.
    pub fn of_status(status: u16) -> FailureKind {
        match status {
            300..=399 => FailureKind::Http3xx,
            429 => FailureKind::Http429,
            400..=499 => FailureKind::Http4xx,
            500..=599 => FailureKind::Http5xx,
            _ => FailureKind::Decode,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A failed request, as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The server's or the system's own words, at most [`Failure::MAX_MESSAGE`] characters, secrets removed.
    pub message: String,
    /// Where it happened: `connecting`, `after 12 events`, …; empty where there is nothing to say.
    pub at: String,
}

impl Failure {
    /// In the message of a connection that this side had no file left for: none of the server's doing.
    pub const NO_FILES: &str = "this process may open no more files";
    /// In the message of a connection that this machine had no port left for.
    pub const NO_PORTS: &str = "this machine has no free port to connect from";
    /// Characters of a message that are kept.
    pub const MAX_MESSAGE: usize = 500;

    /// A failure; the message is cut to its first 500 characters.
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Failure {
        Failure { kind, message: message.as_ref().chars().take(Failure::MAX_MESSAGE).collect(), at: String::new() }
    }

    /// The same failure, with the place where it happened.
    pub fn at(mut self, place: impl Into<String>) -> Failure {
        self.at = place.into();
        self
    }
}

/// Why a good response ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The first choice's finish reason, as the server spelled it.
    pub reason: String,
}

/// Token counts as the server reported them; absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens generated, reasoning among them.
    pub output: Option<u64>,
    /// Tokens of reasoning among the output.
    pub reasoning: Option<u64>,
    /// Prompt tokens that came from the server's cache.
    pub cached: Option<u64>,
}

/// Times that a server measured itself and reported; absent is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTimes {
    /// Waiting before the request was worked on.
    pub queue: Option<Nanos>,
    /// Loading the model.
    pub load: Option<Nanos>,
    /// Working on the prompt.
    pub prefill: Option<Nanos>,
    /// Generating.
    pub decode: Option<Nanos>,
    /// All of it.
    pub total: Option<Nanos>,
}

/// Token counts made here with a tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens of the generated text.
    pub output: Option<u64>,
    /// The tokenizer is a stand-in, not the model's own.
    pub approximate: bool,
}

/// The stamps of one request; see `docs/metrics.md`. Each is read once per socket read, before any parsing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Open loop: when the plan says. Closed loop: when the slot became free.
    pub intended: Nanos,
    /// Just before the request was handed to the HTTP client for the first time; None: never sent.
    pub sent: Option<Nanos>,
    /// The same of its last attempt, where there were several.
    pub last_sent: Option<Nanos>,
    /// Status and headers are here.
    pub headers: Option<Nanos>,
    /// First byte of the body, or first event of a stream.
    pub first_chunk: Option<Nanos>,
    /// Every event that carried generated content, never decreasing. Equal stamps came in one socket read. An event with
    /// content of several choices is here once for each.
    #[serde(with = "stamps_as_gaps")]
    pub tokens: Vec<Nanos>,
    /// The choice of each of them, from 0; empty where all belong to the first.
    pub choices: Vec<u32>,
    /// The tokens in each of them, where the server's running count tells; otherwise empty.
    pub weights: Vec<u32>,
    /// How many of the token events came before the first one with more than reasoning.
    pub reasoning: u32,
    /// The response was complete, or the failure was known.
    pub end: Nanos,
}

/// Stores stamps as gaps: in the journal a gap below 2 ms takes 3 bytes and one below 268 ms takes 4, where a stamp an hour
/// into a run takes 6. Differences wrap, so any list of stamps comes back as it was.
mod stamps_as_gaps {
    use super::Nanos;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(stamps: &[Nanos], serializer: S) -> Result<S::Ok, S::Error> {
        let mut last = 0u64;
        serializer.collect_seq(stamps.iter().map(|stamp| {
            let gap = stamp.0.wrapping_sub(last);
            last = stamp.0;
            gap
        }))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Nanos>, D::Error> {
        let mut last = 0u64;
        let gaps = Vec::<u64>::deserialize(deserializer)?;
        Ok(gaps
            .into_iter()
            .map(|gap| {
                last = last.wrapping_add(gap);
                Nanos(last)
            })
            .collect())
    }
}

/// One finished request. It is never an error: a failed call is an outcome too.
///
/// The journal stores this type and those of its fields, in the order of their fields and without names: any change of them is
/// a new version of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its number in the case, warm-up included, which a session's turns share; the same seed and number give the same request.
    pub seq: u64,
    /// Its turn in the session, from 0.
    pub turn: u32,
    /// Turns of the session.
    pub turns: u32,
    /// The part of the dataset that it belongs to, where the data tells parts apart.
    pub group: Option<String>,
    /// Phase.
    pub phase: Phase,
    /// The model it named.
    pub model: String,
    /// Whether a stream was asked for.
    pub streamed: bool,
    /// Stamps.
    pub timeline: Timeline,
    /// HTTP status, where one arrived.
    pub status: Option<u16>,
    /// Socket reads that held bytes of the response body.
    pub reads: u32,
    /// Bytes of the request body.
    pub bytes_out: u64,
    /// Bytes of the response body.
    pub bytes_in: u64,
    /// Times it was sent once more because a kept-alive connection turned out to be closed before any byte of an answer.
    pub reconnects: u32,
    /// Times that it was tried, 0 where it was never sent; what was seen is of the last.
    pub attempts: u32,
    /// The server's counts.
    pub usage: Usage,
    /// This side's counts.
    pub counted: Counted,
    /// What the server measured itself.
    pub server: ServerTimes,
    /// Inputs worked on, where a request holds several: texts embedded, documents ranked.
    pub items: Option<u64>,
    /// The `max_tokens` that was asked for.
    pub max_tokens: Option<u64>,
    /// The server's id of the response, for joining with its logs.
    pub response_id: Option<String>,
    /// The id that the request carried in a header of its own, for joining with logs of the server.
    pub request_id: Option<String>,
    /// How it ended.
    pub end: Result<Finish, Failure>,
}

impl Outcome {
    /// The word in the `outcome` column: `ok` or the failure's kind.
    pub fn word(&self) -> &'static str {
        match &self.end {
            Ok(_) => "ok",
            Err(failure) => failure.kind.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_match_serde() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::parse(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(FailureKind::parse("ok"), None);
    }

    #[test]
    fn statuses_are_told_apart() {
        let kinds = [400, 404, 429, 500, 503, 599].map(FailureKind::of_status).map(FailureKind::name);
        assert_eq!(kinds, ["http_4xx", "http_4xx", "http_429", "http_5xx", "http_5xx", "http_5xx"]);
        let kinds = [301, 302, 304, 307, 308, 399].map(FailureKind::of_status);
        assert_eq!(kinds, [FailureKind::Http3xx; 6]);
        assert_eq!([101, 600, 999].map(FailureKind::of_status), [FailureKind::Decode; 3]);
    }

    #[test]
    fn a_message_is_cut_by_characters_not_bytes() {
        assert_eq!(Failure::new(FailureKind::Decode, "é".repeat(600)).message.chars().count(), 500);
    }
}
