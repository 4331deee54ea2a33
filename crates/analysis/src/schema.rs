//! Column names and types of requests.parquet.

use llmscen_core::metric::{Metric, Scope};
use llmscen_core::units::Unit;
use polars::prelude::DataType;

/// The type of a column; every value may be null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    U32,
    U64,
    F64,
    U32List,
    U64List,
    F64List,
}

impl Kind {
    pub(super) fn dtype(self) -> DataType {
        let list = |items| DataType::List(Box::new(items));
        match self {
            Kind::Text => DataType::String,
            Kind::Flag => DataType::Boolean,
            Kind::U32 => DataType::UInt32,
            Kind::U64 => DataType::UInt64,
            Kind::F64 => DataType::Float64,
            Kind::U32List => list(DataType::UInt32),
            Kind::U64List => list(DataType::UInt64),
            Kind::F64List => list(DataType::Float64),
        }
    }
}

macro_rules! columns {
    ($($name:ident $text:literal $kind:ident;)*) => {
        $(pub(super) const $name: &str = $text;)*
        /// The raw columns, in the order of the file. Timestamps are nanoseconds since the start of the case.
        pub(super) const RAW: &[(&str, Kind)] = &[$(($text, Kind::$kind),)*];
    };
}

columns! {
    CASE_ID "case_id" Text;
    SEQ "seq" U64;
    TURN "turn" U32;
    TURNS "turns" U32;
    FIRST_TURN "first_turn" U32;
    GROUP "group" Text;
    ROUND "round" U32;
    SHARD "shard" U32;
    PHASE "phase" Text;
    STATUS "status" U32;
    MODEL "model" Text;
    ENDPOINT "endpoint" Text;
    KEPT_HEADERS "kept_headers" Text;
    STREAMED "streamed" Flag;
    INTENDED "intended_ns" U64;
    HELD_UNTIL "held_until_ns" U64;
    SENT "sent_ns" U64;
    LAST_SENT "last_sent_ns" U64;
    HEADERS "headers_ns" U64;
    FIRST_CHUNK "first_chunk_ns" U64;
    FIRST_TOKEN "first_token_ns" U64;
    LAST_TOKEN "last_token_ns" U64;
    END "end_ns" U64;
    SESSION_DURATION "session_duration_ns" U64;
    TOKEN_EVENTS "token_events_ns" U64List;
    TOKEN_CHOICES "token_choices" U32List;
    TOKEN_WEIGHTS "token_weights" U32List;
    REASONING_EVENTS "reasoning_events" U32;
    READS "reads" U32;
    BYTES_IN "bytes_in" U64;
    BYTES_OUT "bytes_out" U64;
    RECONNECTS "reconnects" U32;
    ATTEMPTS "attempts" U32;
    USAGE_PROMPT "usage_prompt" U64;
    USAGE_OUTPUT "usage_output" U64;
    USAGE_REASONING "usage_reasoning" U64;
    USAGE_CACHED "usage_cached" U64;
    COUNTED_PROMPT "counted_prompt" U64;
    COUNTED_OUTPUT "counted_output" U64;
    COUNTED_APPROXIMATE "counted_approximate" Flag;
    COUNTED_CACHEABLE "counted_cacheable" U64;
    ITEM_COUNT "item_count" U64;
    AUDIO_DURATION "audio_duration_ns" U64;
    FIRST_AUDIO "first_audio_ns" U64;
    PLAYBACK_UNDERRUNS "playback_underruns" U32;
    PLAYBACK_STALLED "playback_stalled_ns" U64;
    SERVER_QUEUE "server_queue_ns" U64;
    SERVER_LOAD "server_load_ns" U64;
    SERVER_PREFILL "server_prefill_ns" U64;
    SERVER_DECODE "server_decode_ns" U64;
    SERVER_TOTAL "server_total_ns" U64;
    MAX_TOKENS "max_tokens" U64;
    RESPONSE_ID "response_id" Text;
    REQUEST_ID "request_id" Text;
    FINISH_REASON "finish_reason" Text;
    OUTCOME "outcome" Text;
    ERROR "error" Text;
    ERROR_AT "error_at" Text;
    VALID "valid" Flag;
    MATCH "match" Flag;
    LENGTH_EXACT "length_exact" Flag;
    FAILED_CHECK "failed_check" Text;
    FAILED_REASON "failed_reason" Text;
    FAILED_ANSWER "failed_answer" Text;
    REASONING_RECEIVED "reasoning_received" Flag;
    CHARACTERS "characters" U64;
    REPLACEMENT_CHARACTERS "replacement_characters" U64;
    ANOMALIES "anomalies" Text;
    WEIGHTS_COUNTED "token_weights_counted" Flag;
    PROMPT_HASH "prompt_hash" U64;
}

/// Source of the output token count; derived.
pub(super) const TOKEN_SOURCE: &str = "token_source";

/// Number of choices with content; derived.
pub(super) const CHOICES: &str = "choices";
/// Per choice, the first token's time after `intended`; derived, null for fewer than two choices.
pub(super) const CHOICE_TTFT: &str = "choice_ttft_ms";
/// Per choice, the last token's time after `intended`; derived, null for fewer than two choices.
pub(super) const CHOICE_TTLT: &str = "choice_ttlt_ms";

/// The derived columns that are not metrics.
const DERIVED: [(&str, Kind); 4] = [
    (TOKEN_SOURCE, Kind::Text),
    (CHOICES, Kind::U32),
    (CHOICE_TTFT, Kind::F64List),
    (CHOICE_TTLT, Kind::F64List),
];

/// The phase of a row outside of a stage: it only counts towards requests in flight. Files never contain it.
pub(super) const OUTSIDE_STAGE: &str = "beside";

/// The phase of a row in the start of an open loop; it counts as warm-up.
pub(super) const SETTLING: &str = "settling";

/// The column type of a metric; None for a case-level metric.
pub(super) fn metric_kind(metric: Metric) -> Option<Kind> {
    match (metric.per(), metric.unit()) {
        (Scope::Case, _) => None,
        (Scope::Gap, _) => Some(Kind::F64List),
        (Scope::Request, Unit::Tokens) if metric != Metric::TokensPerEvent => Some(Kind::U64),
        (Scope::Request, _) => Some(Kind::F64),
    }
}

/// The columns of metrics. They are derived from the raw columns.
fn metric_columns() -> impl Iterator<Item = (&'static str, Kind)> {
    Metric::ALL
        .iter()
        .filter_map(|&metric| Some((metric.column(), metric_kind(metric)?)))
}

/// Columns that files of earlier versions may lack; they are null then.
pub(super) fn optional_columns() -> impl Iterator<Item = &'static str> {
    metric_columns().map(|(name, _)| name).chain([
        REASONING_EVENTS,
        ENDPOINT,
        HELD_UNTIL,
        KEPT_HEADERS,
        FIRST_TURN,
        COUNTED_CACHEABLE,
        SESSION_DURATION,
        VALID,
        MATCH,
        LENGTH_EXACT,
        FAILED_CHECK,
        FAILED_REASON,
        FAILED_ANSWER,
        AUDIO_DURATION,
        FIRST_AUDIO,
        PLAYBACK_UNDERRUNS,
        PLAYBACK_STALLED,
        REASONING_RECEIVED,
        CHARACTERS,
        REPLACEMENT_CHARACTERS,
        ANOMALIES,
        WEIGHTS_COUNTED,
        PROMPT_HASH,
    ])
}

/// All columns: the raw ones, then the derived ones.
pub(super) fn columns() -> impl Iterator<Item = (&'static str, Kind)> {
    RAW.iter().copied().chain(DERIVED).chain(metric_columns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: Vec<_> = columns().map(|(name, _)| name).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert_eq!(
            (names.first(), names.get(RAW.len()), names.last()),
            (
                Some(&"case_id"),
                Some(&"token_source"),
                Some(&"server_total_ms")
            )
        );
    }

    #[test]
    fn a_stored_column_has_its_type_in_the_file() {
        for stored in crate::columns::STORED {
            assert!(RAW.contains(stored), "{stored:?}");
        }
        assert_eq!(RAW.len(), crate::columns::STORED.len() + 2);
    }

    #[test]
    fn token_counts_are_whole_numbers_and_gaps_are_lists() {
        assert_eq!(metric_kind(Metric::OutputTokens), Some(Kind::U64));
        assert_eq!(metric_kind(Metric::TokensPerEvent), Some(Kind::F64));
        assert_eq!(
            (metric_kind(Metric::Itl), metric_kind(Metric::OutputTps)),
            (Some(Kind::F64List), None)
        );
    }
}
