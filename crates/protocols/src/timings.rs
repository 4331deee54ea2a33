//! What llama.cpp measured itself: the `timings` of its replies.

use llmscen_core::outcome::ServerTimes;
use llmscen_core::units::Nanos;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Timings {
    prompt_ms: Option<f64>,
    predicted_ms: Option<f64>,
}

/// Reads a `timings` object, its times in milliseconds. What cannot be read is absent.
pub fn timings_of(raw: &RawValue) -> ServerTimes {
    let Ok(timings) = serde_json::from_str::<Timings>(raw.get()) else {
        return ServerTimes::default();
    };
    let span = |millis: Option<f64>| millis.filter(|millis| *millis >= 0.0).map(|millis| Nanos::from_secs_f64(millis / 1e3));
    ServerTimes { prefill: span(timings.prompt_ms), decode: span(timings.predicted_ms), ..ServerTimes::default() }
}

/// The longer times of two reports on one request: choices run side by side, and running times never fall.
pub fn longest(one: ServerTimes, other: ServerTimes) -> ServerTimes {
    ServerTimes {
        queue: one.queue.max(other.queue),
        load: one.load.max(other.load),
        prefill: one.prefill.max(other.prefill),
        decode: one.decode.max(other.decode),
        total: one.total.max(other.total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> [Option<u64>; 2] {
        let times = timings_of(serde_json::from_str(json).unwrap());
        [times.prefill, times.decode].map(|span| span.map(|span| span.0))
    }

    #[test]
    fn milliseconds_become_nanoseconds_and_bad_ones_are_absent() {
        assert_eq!(
            read(r#"{"cache_n":14,"prompt_n":1,"prompt_ms":0.676,"predicted_ms":3.105}"#),
            [Some(676_000), Some(3_105_000)]
        );
        assert_eq!(read(r#"{"prompt_ms":null,"predicted_ms":0}"#), [None, Some(0)]);
        assert_eq!(read(r#"{"prompt_ms":-1}"#), [None, None]);
        assert_eq!(read(r#"{"prompt_ms":"1","predicted_ms":2}"#), [None, None]);
        assert_eq!(read("7"), [None, None]);
    }

    #[test]
    fn of_two_choices_the_longer_one_counts() {
        let of = |prefill: Option<u64>, decode: u64| ServerTimes {
            prefill: prefill.map(Nanos),
            decode: Some(Nanos(decode)),
            ..ServerTimes::default()
        };
        assert_eq!(longest(of(Some(7), 1), of(Some(6), 2)), of(Some(7), 2));
        assert_eq!(longest(of(None, 3), of(Some(6), 2)), of(Some(6), 3));
    }
}
