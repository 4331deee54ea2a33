//! The outcome of one request: raw facts only, no derived values.

use crate::expect::CheckedAnswer;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The phase of a case that a request belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Warm-up; excluded from every metric.
    Warmup,
    /// Measured.
    #[default]
    Measured,
    /// Sent after the measured ones, so that the server keeps its load until the last of them has ended; excluded
    /// from every metric.
    Cooldown,
}

impl Phase {
    /// The name, as in the `phase` column.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Warmup => "warmup",
            Phase::Measured => "measured",
            Phase::Cooldown => "cooldown",
        }
    }
}

/// Why a request failed. The names are those of the `outcome` column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// No connection: name not found, refused, or closed before the first byte of a response.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// No connection within `timeouts.connect`.
    TimeoutConnect,
    /// No byte within `timeouts.read`, or no event within `timeouts.event`.
    TimeoutRead,
    /// Not done within `timeouts.total`.
    TimeoutTotal,
    /// A status of 400 to 499 except 429.
    #[serde(rename = "http_4xx")]
    Http4xx,
    /// Too many requests.
    #[serde(rename = "http_429")]
    Http429,
    /// A status of 500 to 599.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// An error event inside a response with a success status.
    StreamError,
    /// The response ended before its end marker or finish reason, or the connection broke.
    Truncated,
    /// A body that the API does not allow, or an invalid HTTP status.
    Decode,
    /// A complete response without any content and without a finish reason.
    Empty,
    /// Cancelled by the load generator: the case or the run ended.
    Cancelled,
    /// Never sent: `max_in_flight` was reached, or the case ended.
    Dropped,
    /// Cancelled by the client, as set by `request.cancel`.
    Abandoned,
    /// A status of 300 to 399: redirects are not followed.
    #[serde(rename = "http_3xx")]
    Http3xx,
    /// A timeout elapsed while the load generator stalled repeatedly, so the cause is unknown.
    ToolStall,
    /// More token events than any reply to the request can have. Last, because journals store kinds by index.
    TooLong,
}

impl FailureKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [FailureKind; 18] = [
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
        FailureKind::TooLong,
    ];

    /// The name in columns, reports and journals.
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
            FailureKind::TooLong => "too_long",
        }
    }

    /// Parses [`FailureKind::name`].
    pub fn parse(name: &str) -> Option<FailureKind> {
        FailureKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// The failure kind of an HTTP status that is not a success.
    pub fn from_status(status: u16) -> FailureKind {
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

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind.
    pub kind: FailureKind,
    /// The error message of the server or the system, at most [`Failure::MAX_MESSAGE`] characters, secrets removed.
    pub message: String,
    /// The phase in which it happened: `connecting`, `after 12 events`, …; may be empty.
    pub at: String,
}

impl Failure {
    /// The place of a failure of a request that cannot be sent.
    pub const BEFORE_SENDING: &str = "before sending";

    /// Message of a connection error caused by the open-file limit of this process.
    pub const NO_FILES: &str = "this process may open no more files";
    /// Message of a connection error caused by a lack of free local ports.
    pub const NO_PORTS: &str = "this machine has no free port to connect from";
    /// Maximum length of a message, characters.
    pub const MAX_MESSAGE: usize = 500;

    /// A failure; the message is cut to its first 500 characters.
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Failure {
        Failure {
            kind,
            message: message
                .as_ref()
                .chars()
                .take(Failure::MAX_MESSAGE)
                .collect(),
            at: String::new(),
        }
    }

    /// Whether this machine lacked open files or local ports, so that the server is not at fault.
    pub fn is_own_shortage(&self) -> bool {
        Failure::states_own_shortage(&self.message)
    }

    /// The same for a message.
    pub fn states_own_shortage(message: &str) -> bool {
        let shortages = [Failure::NO_FILES, Failure::NO_PORTS];
        shortages.iter().any(|shortage| message.contains(shortage))
    }

    /// Sets where the failure happened.
    pub fn at(mut self, place: impl Into<String>) -> Failure {
        self.at = place.into();
        self
    }
}

/// Why a successful response ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    /// The finish reason of the first choice, as sent by the server.
    pub reason: String,
}

/// Token counts reported by the server; None is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens generated, reasoning among them.
    pub output: Option<u64>,
    /// Reasoning tokens among the output.
    pub reasoning: Option<u64>,
    /// Prompt tokens from the server's prefix cache.
    pub cached: Option<u64>,
}

/// Something about a reply that is not as its API describes it. Counts that cannot be true are corrected: none is
/// stored as reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyKind {
    /// Zero output tokens beside content: not used.
    ZeroOutput,
    /// Zero prompt tokens beside content: not used.
    ZeroPrompt,
    /// More reasoning tokens than output tokens: all output tokens count as reasoning.
    ReasoningAboveOutput,
    /// More output tokens than the request allows or the reply can hold, or fewer than it needs: not used.
    ImpossibleOutput,
    /// More prompt tokens than the request can hold: not used.
    ImpossiblePrompt,
    /// More cached tokens than prompt tokens: not used.
    CachedAbovePrompt,
    /// Times of the server that are longer than the request took: not used. The reported value is in nanoseconds.
    ImpossibleTimes,
    /// A count that is negative or no whole number: not used.
    InvalidCount,
    /// A final event that repeats the whole text: not counted as a token event.
    RepeatedMessage,
    /// A body whose `content-type` is not that of its framing: read by its first bytes.
    ContentType,
    /// Reasoning in the text of the answer, separated from it at its markers.
    ReasoningMarkers,
    /// A running count of output tokens that fell by more than an eighth: not used. The reported value is the greatest.
    FallingOutput,
}

impl AnomalyKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [AnomalyKind; 12] = [
        AnomalyKind::ZeroOutput,
        AnomalyKind::ZeroPrompt,
        AnomalyKind::ReasoningAboveOutput,
        AnomalyKind::ImpossibleOutput,
        AnomalyKind::ImpossiblePrompt,
        AnomalyKind::CachedAbovePrompt,
        AnomalyKind::ImpossibleTimes,
        AnomalyKind::InvalidCount,
        AnomalyKind::RepeatedMessage,
        AnomalyKind::ContentType,
        AnomalyKind::ReasoningMarkers,
        AnomalyKind::FallingOutput,
    ];

    /// The name in columns and reports.
    pub fn name(self) -> &'static str {
        match self {
            AnomalyKind::ZeroOutput => "zero_output",
            AnomalyKind::ZeroPrompt => "zero_prompt",
            AnomalyKind::ReasoningAboveOutput => "reasoning_above_output",
            AnomalyKind::ImpossibleOutput => "impossible_output",
            AnomalyKind::ImpossiblePrompt => "impossible_prompt",
            AnomalyKind::CachedAbovePrompt => "cached_above_prompt",
            AnomalyKind::ImpossibleTimes => "impossible_times",
            AnomalyKind::InvalidCount => "invalid_count",
            AnomalyKind::RepeatedMessage => "repeated_message",
            AnomalyKind::ContentType => "content_type",
            AnomalyKind::ReasoningMarkers => "reasoning_markers",
            AnomalyKind::FallingOutput => "falling_output",
        }
    }

    /// Parses [`AnomalyKind::name`].
    pub fn parse(name: &str) -> Option<AnomalyKind> {
        AnomalyKind::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// An anomaly of one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anomaly {
    /// The kind.
    pub kind: AnomalyKind,
    /// The value that the server reported; 0 for kinds that have none.
    pub reported: u64,
}

/// The name and, where there is one, the reported value: `impossible_output=4294967299`.
impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reported {
            0 => f.write_str(self.kind.name()),
            reported => write!(f, "{}={reported}", self.kind.name()),
        }
    }
}

impl Anomaly {
    /// An anomaly without a reported value.
    pub fn bare(kind: AnomalyKind) -> Anomaly {
        Anomaly { kind, reported: 0 }
    }

    /// Parses its text form.
    pub fn parse(text: &str) -> Option<Anomaly> {
        let (name, reported) = text.split_once('=').unwrap_or((text, "0"));
        Some(Anomaly {
            kind: AnomalyKind::parse(name)?,
            reported: reported.parse().ok()?,
        })
    }
}

/// Facts about the text of a reply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyFacts {
    /// Any reasoning arrived, other than a summary of it.
    pub reasoning_received: bool,
    /// Characters of the generated text.
    pub characters: u64,
    /// U+FFFD among them, which replace bytes that are no text.
    pub replacement_characters: u64,
    /// What was not as the API describes it.
    pub anomalies: Vec<Anomaly>,
    /// The tokens in each event are counted by the local tokenizer, not by the server.
    pub weights_counted: bool,
}

/// Times measured and reported by the server; None is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerTimes {
    /// Queue time.
    pub queue: Option<Nanos>,
    /// Model load time.
    pub load: Option<Nanos>,
    /// Prefill time.
    pub prefill: Option<Nanos>,
    /// Decode time.
    pub decode: Option<Nanos>,
    /// Total time.
    pub total: Option<Nanos>,
}

/// Token counts by the local tokenizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Tokens of the prompt.
    pub prompt: Option<u64>,
    /// Tokens of the generated text.
    pub output: Option<u64>,
    /// The tokenizer is the built-in approximate one, not the model's.
    pub approximate: bool,
}

/// The audio of a request: what it transcribes, or what its response contains. None is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audio {
    /// Duration of the audio of the response or, if that has none, of the request. None: the format does not reveal it.
    pub duration: Option<Nanos>,
    /// First byte of audio in the response.
    pub first: Option<Nanos>,
    /// Playback of the response at normal speed from its first byte of audio; None: the duration is not known.
    pub playback: Option<Playback>,
}

/// Under-runs of a playback: the audio received so far was played before more arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Playback {
    /// Number of under-runs.
    pub underruns: u32,
    /// Their total length.
    pub stalled: Nanos,
}

/// The timestamps of one request; see `docs/reference/metrics.md`. Taken once per socket read, before any parsing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Open loop: the scheduled time. Closed loop: when the user became free.
    pub intended: Nanos,
    /// Just before the first attempt was written to an open connection, or before a connection was opened for it;
    /// None: never sent.
    pub sent: Option<Nanos>,
    /// The same for the last attempt, if there were several.
    pub last_sent: Option<Nanos>,
    /// Status and headers received.
    pub headers: Option<Nanos>,
    /// First byte of the body, or first event of a stream.
    pub first_chunk: Option<Nanos>,
    /// Every event with generated content, never decreasing. Equal timestamps are of bytes that arrived together. An
    /// event with content of several choices is listed once per choice.
    #[serde(with = "stamps_as_gaps")]
    pub tokens: Vec<Nanos>,
    /// The choice index of each event; empty if all belong to choice 0.
    pub choices: Vec<u32>,
    /// The number of tokens in each event, by the running count of the server or by the local tokenizer; empty if
    /// neither is known.
    pub weights: Vec<u32>,
    /// Number of token events before the first one with non-reasoning content.
    pub reasoning: u32,
    /// The response was complete, or the failure was detected.
    pub end: Nanos,
}

/// Stores timestamps as differences: in the journal a gap below 2 ms takes 3 bytes and one below 268 ms takes 4,
/// while a timestamp an hour into a run takes 6. Differences wrap, so any list is restored exactly.
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

/// One finished request, successful or failed.
///
/// The journal stores this type and its field types by field order, without names: any change needs a new journal
/// version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Request number in the case, warm-up included, shared by the turns of a session; seed and number determine the
    /// request.
    pub seq: u64,
    /// Turn in the session, from 0.
    pub turn: u32,
    /// Number of turns in the session.
    pub turns: u32,
    /// The group within the dataset or mix, if there are several.
    pub group: Option<String>,
    /// Phase.
    pub phase: Phase,
    /// The requested model.
    pub model: String,
    /// Whether a stream was requested.
    pub streamed: bool,
    /// Timestamps.
    pub timeline: Timeline,
    /// HTTP status, if one was received.
    pub status: Option<u16>,
    /// Number of socket reads with bytes of the response body.
    pub reads: u32,
    /// Bytes of the request body.
    pub bytes_out: u64,
    /// Bytes of the response body.
    pub bytes_in: u64,
    /// Number of times it was resent because a kept-alive connection was closed before the first byte of a response.
    pub reconnects: u32,
    /// Number of attempts, 0 if never sent; the other fields describe the last one.
    pub attempts: u32,
    /// Token counts of the server.
    pub usage: Usage,
    /// Token counts of the local tokenizer.
    pub counted: Counted,
    /// Times reported by the server.
    pub server: ServerTimes,
    /// Number of inputs or results of a request with several: texts embedded, documents ranked, images generated.
    pub items: Option<u64>,
    /// The requested `max_tokens`.
    pub max_tokens: Option<u64>,
    /// The response id, for joining with server logs.
    pub response_id: Option<String>,
    /// The id sent in the request-id header, for joining with server logs.
    pub request_id: Option<String>,
    /// Success or failure.
    pub end: Result<Finish, Failure>,
    /// The name of the URL that it was sent to; None if the target has one URL, or if it was not sent. Journals of
    /// version 6 end before it.
    pub endpoint: Option<Arc<str>>,
    /// When `max_in_flight` let it pass, if that holds requests: `intended` if it was not held; of a request that was
    /// never sent, when it stopped to wait. None: requests are not held. Journals of version 7 end before it.
    pub held_until: Option<Nanos>,
    /// The response headers of `target.keep_headers`, each as a line `name: value`; None without any of them.
    pub kept_headers: Option<Arc<str>>,
    /// The first measured turn of its session: the turns before it are only history.
    pub first_turn: u32,
    /// Tokens at the start of the prompt that earlier requests contain, by the local tokenizer.
    pub cacheable_tokens: Option<u64>,
    /// Of the turn that ends a session whose turns all succeeded: the time from the first send of a measured turn to
    /// the last end.
    pub session_duration: Option<Nanos>,
    /// What the checks of `request.expect` found; None if there are none, or if the request failed.
    pub answer: Option<Box<CheckedAnswer>>,
    /// The audio of its request or response. Journals of version 8 end after it.
    pub audio: Option<Box<Audio>>,
    /// Facts about the text of the reply.
    pub reply: ReplyFacts,
    /// Equal for equal prompts. Journals of version 9 end before it.
    pub prompt_hash: Option<u64>,
}

impl Outcome {
    /// Whether it is the first measured turn of its session.
    pub fn begins_session(&self) -> bool {
        self.turn == self.first_turn
    }

    /// The value of the `outcome` column: `ok` or the failure's kind.
    pub fn outcome_name(&self) -> &'static str {
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
    fn anomalies_parse_back() {
        for kind in AnomalyKind::ALL {
            assert_eq!(AnomalyKind::parse(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            for reported in [0, u64::MAX] {
                let anomaly = Anomaly { kind, reported };
                assert_eq!(Anomaly::parse(&anomaly.to_string()), Some(anomaly));
            }
        }
        assert_eq!(Anomaly::parse("zero_output=x"), None);
    }

    #[test]
    fn each_status_has_a_kind() {
        let kinds = [400, 404, 429, 500, 503, 599]
            .map(FailureKind::from_status)
            .map(FailureKind::name);
        assert_eq!(
            kinds,
            [
                "http_4xx", "http_4xx", "http_429", "http_5xx", "http_5xx", "http_5xx"
            ]
        );
        let kinds = [301, 302, 304, 307, 308, 399].map(FailureKind::from_status);
        assert_eq!(kinds, [FailureKind::Http3xx; 6]);
        assert_eq!(
            [101, 600, 999].map(FailureKind::from_status),
            [FailureKind::Decode; 3]
        );
    }

    #[test]
    fn a_message_is_cut_by_characters_not_bytes() {
        assert_eq!(
            Failure::new(FailureKind::Decode, "é".repeat(600))
                .message
                .chars()
                .count(),
            500
        );
    }
}
