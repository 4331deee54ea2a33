//! Token counts and times of servers of the OpenAI family.

use crate::raw_json::{Raw, parse_count};
use llmscen_core::outcome::{ServerTimes, Usage};
use llmscen_core::units::Nanos;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Field names differ: the responses API counts input and output, Realtime has `input_token_details`, DeepSeek
/// reports cached tokens outside of the details, and Moonshot and SGLang report details beside the totals.
#[derive(Deserialize)]
struct Counts<'a> {
    #[serde(borrow)]
    prompt_tokens: Raw<'a>,
    #[serde(borrow)]
    input_tokens: Raw<'a>,
    #[serde(borrow)]
    completion_tokens: Raw<'a>,
    #[serde(borrow)]
    output_tokens: Raw<'a>,
    #[serde(borrow)]
    completion_tokens_details: Option<Details<'a>>,
    #[serde(borrow)]
    output_tokens_details: Option<Details<'a>>,
    #[serde(borrow)]
    prompt_tokens_details: Option<Details<'a>>,
    #[serde(borrow)]
    input_tokens_details: Option<Details<'a>>,
    #[serde(borrow)]
    output_token_details: Option<Details<'a>>,
    #[serde(borrow)]
    input_token_details: Option<Details<'a>>,
    #[serde(borrow)]
    prompt_cache_hit_tokens: Raw<'a>,
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
    #[serde(borrow)]
    total_tokens: Raw<'a>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    reasoning_tokens: Raw<'a>,
    #[serde(borrow)]
    cached_tokens: Raw<'a>,
}

/// Reads a `usage` object. Missing, null and non-integer counts are None: bad counts never fail a response.
pub fn parse_usage(raw: &RawValue) -> Usage {
    let Ok(counts) = serde_json::from_str::<Counts>(raw.get()) else {
        return Usage::default();
    };
    let first = |fields: &[Raw]| fields.iter().find_map(|raw| parse_count(*raw));
    let generated = counts
        .completion_tokens_details
        .or(counts.output_tokens_details)
        .or(counts.output_token_details);
    let prompt = counts
        .prompt_tokens_details
        .or(counts.input_tokens_details)
        .or(counts.input_token_details);
    let reasoning = first(&[
        generated.and_then(|details| details.reasoning_tokens),
        counts.reasoning_tokens,
    ]);
    let prompt_tokens = first(&[counts.prompt_tokens, counts.input_tokens]);
    let output = first(&[counts.completion_tokens, counts.output_tokens]);
    let total = parse_count(counts.total_tokens);
    Usage {
        prompt: prompt_tokens,
        output: with_reasoning(prompt_tokens, output, reasoning, total),
        reasoning,
        cached: first(&[
            prompt.and_then(|details| details.cached_tokens),
            counts.prompt_cache_hit_tokens,
            counts.cached_tokens,
        ]),
    }
}

/// Gemini's counts, in either case.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, alias = "promptTokenCount")]
    prompt_token_count: Raw<'a>,
    #[serde(borrow, alias = "candidatesTokenCount")]
    candidates_token_count: Raw<'a>,
    #[serde(borrow, alias = "thoughtsTokenCount")]
    thoughts_token_count: Raw<'a>,
    #[serde(borrow, alias = "cachedContentTokenCount")]
    cached_content_token_count: Raw<'a>,
}

/// Reads a `usage_metadata` object. Thoughts are billed output that the candidates do not include.
pub fn parse_usage_metadata(raw: &RawValue) -> Usage {
    let Ok(counts) = serde_json::from_str::<Metadata>(raw.get()) else {
        return Usage::default();
    };
    let prompt = parse_count(counts.prompt_token_count);
    let reasoning = parse_count(counts.thoughts_token_count);
    let candidates = parse_count(counts.candidates_token_count);
    Usage {
        prompt,
        output: sum_counts(candidates, reasoning),
        reasoning,
        cached: parse_count(counts.cached_content_token_count),
    }
}

/// Whether a `usage` object has a negative count of tokens. Other numbers, such as costs, may be negative.
pub fn has_negative_count(raw: &RawValue) -> bool {
    fn is_negative(value: &Value) -> bool {
        value.as_object().is_some_and(|fields| {
            fields.iter().any(|(name, value)| {
                let is_below_zero = value.as_f64().is_some_and(|number| number < 0.0);
                name.ends_with("_tokens") && is_below_zero || is_negative(value)
            })
        })
    }
    raw.get().contains('-')
        && serde_json::from_str(raw.get()).is_ok_and(|value: Value| is_negative(&value))
}

/// Output tokens including reasoning. Some servers (xAI) exclude reasoning from the output count, which only the
/// total reveals.
fn with_reasoning(
    prompt: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    total: Option<u64>,
) -> Option<u64> {
    let together = output?.checked_add(reasoning.filter(|&tokens| tokens > 0).unwrap_or(0))?;
    let apart = total.is_some() && prompt.and_then(|prompt| prompt.checked_add(together)) == total;
    if apart { Some(together) } else { output }
}

/// The later of two running counts, or the earlier one if it is None. Counts only grow, so that a 0 after a count is
/// no report.
pub fn latest_count(earlier: Option<u64>, later: Option<u64>) -> Option<u64> {
    later.filter(|count| *count > 0).or(earlier).or(later)
}

/// Merges two running reports, each count by [`latest_count`].
pub fn merge_latest(earlier: Usage, later: Usage) -> Usage {
    Usage {
        prompt: latest_count(earlier.prompt, later.prompt),
        output: latest_count(earlier.output, later.output),
        reasoning: latest_count(earlier.reasoning, later.reasoning),
        cached: latest_count(earlier.cached, later.cached),
    }
}

/// The maximum of two running reports of one request.
pub fn max_counts(one: Usage, other: Usage) -> Usage {
    Usage {
        prompt: one.prompt.max(other.prompt),
        output: one.output.max(other.output),
        reasoning: one.reasoning.max(other.reasoning),
        cached: one.cached.max(other.cached),
    }
}

/// The counts of two choices of one request: outputs are summed, the prompt is shared.
pub fn sum_choices(one: Usage, other: Usage) -> Usage {
    Usage {
        output: sum_counts(one.output, other.output),
        reasoning: sum_counts(one.reasoning, other.reasoning),
        ..merge_latest(one, other)
    }
}

/// The sum of the known counts.
fn sum_counts(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

#[derive(Deserialize)]
struct Timings {
    prompt_ms: Option<f64>,
    predicted_ms: Option<f64>,
}

#[derive(Deserialize)]
struct TimedCounts<'a> {
    #[serde(borrow)]
    prompt_n: Raw<'a>,
    #[serde(borrow)]
    predicted_n: Raw<'a>,
    #[serde(borrow)]
    cache_n: Raw<'a>,
}

/// The token counts in a `timings` object of llama.cpp, which are there without `include_usage`. `prompt_n` excludes
/// cached tokens.
pub fn parse_timed_counts(raw: &RawValue) -> Usage {
    let Ok(counts) = serde_json::from_str::<TimedCounts>(raw.get()) else {
        return Usage::default();
    };
    let cached = parse_count(counts.cache_n);
    Usage {
        // Without the number of cached tokens the prompt may have more tokens than were processed.
        prompt: parse_count(counts.prompt_n)
            .zip(cached)
            .map(|(processed, cached)| processed.saturating_add(cached)),
        output: parse_count(counts.predicted_n),
        reasoning: None,
        cached,
    }
}

/// Reads a `timings` object with times in milliseconds. Invalid times are None.
pub fn parse_timings(raw: &RawValue) -> ServerTimes {
    let Ok(timings) = serde_json::from_str::<Timings>(raw.get()) else {
        return ServerTimes::default();
    };
    let span = |millis: Option<f64>| {
        millis
            .filter(|millis| *millis >= 0.0)
            .map(|millis| Nanos::from_secs_f64(millis / 1e3))
    };
    ServerTimes {
        prefill: span(timings.prompt_ms),
        decode: span(timings.predicted_ms),
        ..ServerTimes::default()
    }
}

/// The maximum times of two reports on one request, whose choices run concurrently.
pub fn max_times(one: ServerTimes, other: ServerTimes) -> ServerTimes {
    ServerTimes {
        queue: one.queue.max(other.queue),
        load: one.load.max(other.load),
        prefill: one.prefill.max(other.prefill),
        decode: one.decode.max(other.decode),
        total: one.total.max(other.total),
    }
}

/// The running token count of each content event, if all have one.
#[derive(Debug, Default)]
pub struct RunningCounts {
    /// Choice and count of each event.
    counts: Vec<(u32, u32)>,
    /// An event had no count, so that tokens per event are unknown.
    broken: bool,
}

impl RunningCounts {
    /// Adds a content event of a choice with its running count.
    pub fn add(&mut self, choice: u32, count: Option<u64>) {
        if self.broken {
            return;
        }
        match count.and_then(|count| u32::try_from(count).ok()) {
            Some(count) => self.counts.push((choice, count)),
            None => {
                *self = RunningCounts {
                    counts: Vec::new(),
                    broken: true,
                }
            }
        }
    }

    /// The tokens in each event; empty if unknown. `total` is the final count of the request.
    ///
    /// Tokens without text, such as half a character, belong to the next event with text; those after the last text
    /// are not counted.
    pub fn weights(&self, total: Option<u64>) -> Vec<u32> {
        let steps = match self.count_the_request(total) {
            true => self.request_steps(),
            false => self.choice_steps(),
        };
        // A count that never rises after its first event is no running count.
        steps
            .filter(|steps| {
                let rising = usize::from(steps.len() > 1);
                steps.iter().skip(rising).any(|step| *step > 0)
            })
            .unwrap_or_default()
    }

    /// Whether the running counts are of the request and not per choice.
    ///
    /// vLLM and SGLang count per choice, others per request. Counts of a request increase with every event; counts of
    /// concurrent choices usually do not. If they do, the final count decides: it is the sum over choices.
    pub fn count_the_request(&self, total: Option<u64>) -> bool {
        let several = self.counts.windows(2).any(|pair| pair[0].0 != pair[1].0);
        if !several || self.request_steps().is_none() {
            return false;
        }
        let last: BTreeMap<u32, u32> = self.counts.iter().copied().collect();
        let sum: u64 = last.values().map(|count| u64::from(*count)).sum();
        total.is_none_or(|total| total < sum) || self.choice_steps().is_none()
    }

    /// The increase of each count over the previous one; None if one does not increase.
    fn request_steps(&self) -> Option<Vec<u32>> {
        let mut before = 0;
        let step = |&(_, count): &(u32, u32)| {
            count
                .checked_sub(std::mem::replace(&mut before, count))
                .filter(|step| *step > 0)
        };
        self.counts.iter().map(step).collect()
    }

    /// The increase of each count over the previous one of its choice; None if one decreases.
    fn choice_steps(&self) -> Option<Vec<u32>> {
        let mut before = BTreeMap::new();
        self.counts
            .iter()
            .map(|&(choice, count)| count.checked_sub(before.insert(choice, count).unwrap_or(0)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> [Option<u64>; 4] {
        let usage = parse_usage(serde_json::from_str(json).unwrap());
        [usage.prompt, usage.output, usage.reasoning, usage.cached]
    }

    fn usage(prompt: u64, output: u64, reasoning: Option<u64>) -> Usage {
        Usage {
            prompt: Some(prompt),
            output: Some(output),
            reasoning,
            cached: None,
        }
    }

    #[test]
    fn absent_is_not_zero() {
        assert_eq!(
            read(
                r#"{"prompt_tokens":15,"completion_tokens":6,"total_tokens":21,
                    "completion_tokens_details":{"reasoning_tokens":0},"prompt_tokens_details":{"cached_tokens":14}}"#
            ),
            [Some(15), Some(6), Some(0), Some(14)]
        );
        assert_eq!(
            read(
                r#"{"prompt_tokens":15,"completion_tokens":0,"completion_tokens_details":null,"prompt_tokens_details":{}}"#
            ),
            [Some(15), Some(0), None, None]
        );
    }

    #[test]
    fn each_way_of_naming_them_is_read() {
        for (json, expected) in [
            (
                r#"{"input_tokens":15,"output_tokens":6,"input_tokens_details":{"cached_tokens":14,"cache_write_tokens":1},
                    "output_tokens_details":{"reasoning_tokens":2}}"#,
                [Some(15), Some(6), Some(2), Some(14)],
            ),
            (
                r#"{"prompt_tokens":15,"completion_tokens":6,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":7,
                    "completion_tokens_details":{"reasoning_tokens":3}}"#,
                [Some(15), Some(6), Some(3), Some(8)],
            ),
            (
                r#"{"prompt_tokens":15,"completion_tokens":6,"cached_tokens":9,"reasoning_tokens":4}"#,
                [Some(15), Some(6), Some(4), Some(9)],
            ),
            (
                r#"{"prompt_tokens":15,"input_tokens":16,"output_tokens":6}"#,
                [Some(15), Some(6), None, None],
            ),
        ] {
            assert_eq!(read(json), expected, "{json}");
        }
    }

    #[test]
    fn reasoning_that_the_output_leaves_out_is_found_by_the_total() {
        let read = |total: u64| {
            read(&format!(
                r#"{{"prompt_tokens":32,"completion_tokens":9,"total_tokens":{total},
                    "completion_tokens_details":{{"reasoning_tokens":94}}}}"#
            ))
        };
        assert_eq!(read(135), [Some(32), Some(103), Some(94), None]);
        assert_eq!(read(41)[1], Some(9), "it is among the output");
    }

    #[test]
    fn thoughts_are_billed_beside_the_candidates() {
        let read = |json: &str| {
            let usage = parse_usage_metadata(serde_json::from_str(json).unwrap());
            [usage.prompt, usage.output, usage.reasoning, usage.cached]
        };
        // With and without a total, which may count tool results too.
        assert_eq!(
            read(
                r#"{"promptTokenCount":32,"candidatesTokenCount":9,"thoughtsTokenCount":94,"totalTokenCount":140}"#
            ),
            [Some(32), Some(103), Some(94), None]
        );
        assert_eq!(
            read(r#"{"candidates_token_count":9,"thoughts_token_count":94}"#)[1],
            Some(103)
        );
        assert_eq!(read(r#"{"thoughtsTokenCount":94}"#)[1], Some(94));
        assert_eq!(read(r#"{"candidatesTokenCount":9}"#)[1], Some(9));
    }

    #[test]
    fn only_counts_of_tokens_are_negative_counts() {
        let negative = |json: &str| has_negative_count(serde_json::from_str(json).unwrap());
        assert!(negative(r#"{"prompt_tokens":-1}"#));
        assert!(negative(
            r#"{"completion_tokens_details":{"reasoning_tokens":-1}}"#
        ));
        assert!(!negative(
            r#"{"prompt_tokens":1,"cost":-0.5,"details":{"balance":-3}}"#
        ));
    }

    #[test]
    fn bad_counts_are_absent() {
        assert_eq!(
            read(r#"{"prompt_tokens":"15","completion_tokens":6}"#),
            [None, Some(6), None, None]
        );
        assert_eq!(
            read(r#"{"prompt_tokens":-1,"completion_tokens":2.5}"#),
            [None; 4]
        );
        assert_eq!(read("[]"), [None; 4]);
        assert_eq!(read("7"), [None; 4]);
    }

    #[test]
    fn running_counts_replace_each_other_and_choices_add_up() {
        assert_eq!(
            merge_latest(usage(15, 1, Some(1)), usage(15, 2, None)),
            usage(15, 2, Some(1))
        );
        assert_eq!(
            sum_choices(usage(15, 3, Some(1)), usage(15, 4, Some(2))),
            usage(15, 7, Some(3))
        );
        assert_eq!(
            sum_choices(Usage::default(), usage(15, 4, None)),
            usage(15, 4, None)
        );
        assert_eq!(
            max_counts(usage(15, 3, Some(1)), usage(15, 4, None)),
            usage(15, 4, Some(1))
        );
    }
}

#[cfg(test)]
mod timings_tests {
    use super::*;

    fn read(json: &str) -> [Option<u64>; 2] {
        let times = parse_timings(serde_json::from_str(json).unwrap());
        [times.prefill, times.decode].map(|span| span.map(|span| span.0))
    }

    #[test]
    fn milliseconds_become_nanoseconds_and_bad_ones_are_absent() {
        assert_eq!(
            read(r#"{"cache_n":14,"prompt_n":1,"prompt_ms":0.676,"predicted_ms":3.105}"#),
            [Some(676_000), Some(3_105_000)]
        );
        assert_eq!(
            read(r#"{"prompt_ms":null,"predicted_ms":0}"#),
            [None, Some(0)]
        );
        assert_eq!(read(r#"{"prompt_ms":-1}"#), [None, None]);
        assert_eq!(read(r#"{"prompt_ms":"1","predicted_ms":2}"#), [None, None]);
        assert_eq!(read("7"), [None, None]);
    }

    #[test]
    fn the_longer_time_of_two_choices_counts() {
        let times = |prefill: Option<u64>, decode: u64| ServerTimes {
            prefill: prefill.map(Nanos),
            decode: Some(Nanos(decode)),
            ..ServerTimes::default()
        };
        assert_eq!(
            max_times(times(Some(7), 1), times(Some(6), 2)),
            times(Some(7), 2)
        );
        assert_eq!(
            max_times(times(None, 3), times(Some(6), 2)),
            times(Some(6), 3)
        );
    }
}

#[cfg(test)]
mod incremental_usage_tests {
    use super::*;

    fn weights(seen: &[(u32, u64)], total: Option<u64>) -> Vec<u32> {
        let mut running = RunningCounts::default();
        seen.iter()
            .for_each(|&(choice, count)| running.add(choice, Some(count)));
        running.weights(total)
    }

    #[test]
    fn an_event_weighs_what_the_count_rose_by() {
        assert_eq!(weights(&[(0, 1), (0, 2), (0, 3)], Some(3)), [1, 1, 1]);
        assert_eq!(weights(&[(0, 2), (0, 2), (0, 7)], Some(9)), [2, 0, 5]);
        assert_eq!(weights(&[(3, 2), (3, 4)], None), [2, 2]);
        assert_eq!(weights(&[], Some(3)), [0; 0]);
    }

    #[test]
    fn counts_per_choice_and_per_request_are_distinguished() {
        let side_by_side = [(0, 1), (1, 1), (0, 2), (1, 3)];
        assert_eq!(weights(&side_by_side, None), [1, 1, 1, 2]);
        let of_the_request = [(0, 1), (1, 3), (0, 4), (1, 6)];
        assert_eq!(weights(&of_the_request, None), [1, 2, 1, 2]);
        assert_eq!(weights(&of_the_request, Some(7)), [1, 2, 1, 2]);
        assert_eq!(
            weights(&of_the_request, Some(10)),
            [1, 3, 3, 3],
            "4 + 6 is the sum of the choices"
        );
        assert_eq!(
            weights(&[(0, 1), (0, 2), (1, 1), (1, 2)], Some(4)),
            [1, 1, 1, 1],
            "one choice after the other"
        );
    }

    #[test]
    fn one_event_without_a_count_or_a_count_that_falls_leaves_all_unknown() {
        assert_eq!(weights(&[(0, 3), (0, 2)], None), [0; 0]);
        assert_eq!(weights(&[(0, 1), (0, u64::MAX)], None), [0; 0]);
        let mut running = RunningCounts::default();
        [Some(1), None, Some(3)]
            .into_iter()
            .for_each(|count| running.add(0, count));
        assert_eq!(running.weights(Some(3)), [0; 0]);
        assert!(!running.count_the_request(Some(3)));
    }
}
