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
mod incremental_usage_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timings_tests;
