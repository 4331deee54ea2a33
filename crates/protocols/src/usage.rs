//! Token counts, as the servers of the OpenAI family report them.

use crate::chunk::Raw;
use llmscen_core::outcome::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The names differ: the responses API counts input and output, DeepSeek names the cached tokens outside of the details, and
/// Moonshot and SGLang put what others detail beside the totals.
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

/// Reads a `usage` object. What is missing, null or no whole number is absent: bad counts never fail a good response.
pub fn usage_of(raw: &RawValue) -> Usage {
    let Ok(counts) = serde_json::from_str::<Counts>(raw.get()) else {
        return Usage::default();
    };
    let generated = counts.completion_tokens_details.or(counts.output_tokens_details);
    let prompt = counts.prompt_tokens_details.or(counts.input_tokens_details);
    let reasoning = generated.and_then(|details| number(details.reasoning_tokens));
    let cached = prompt.and_then(|details| number(details.cached_tokens));
    let reasoning = reasoning.or(number(counts.reasoning_tokens));
    let prompt_tokens = number(counts.prompt_tokens).or(number(counts.input_tokens));
    let output = number(counts.completion_tokens).or(number(counts.output_tokens));
    Usage {
        prompt: prompt_tokens,
        output: with_reasoning(prompt_tokens, output, reasoning, number(counts.total_tokens)),
        reasoning,
        cached: cached.or(number(counts.prompt_cache_hit_tokens)).or(number(counts.cached_tokens)),
    }
}

/// Tokens generated, reasoning among them: some servers (xAI) leave it out of their output count, and only the total tells.
fn with_reasoning(prompt: Option<u64>, output: Option<u64>, reasoning: Option<u64>, total: Option<u64>) -> Option<u64> {
    let together = output?.checked_add(reasoning.filter(|&tokens| tokens > 0).unwrap_or(0))?;
    let apart = total.is_some() && prompt.and_then(|prompt| prompt.checked_add(together)) == total;
    if apart { Some(together) } else { output }
}

/// A count, if it is a whole number from 0.
pub fn number(raw: Raw) -> Option<u64> {
    raw?.get().parse().ok()
}

/// What the later report says, and the earlier one where the later is silent: running counts replace each other.
pub fn latest(earlier: Usage, later: Usage) -> Usage {
    Usage {
        prompt: later.prompt.or(earlier.prompt),
        output: later.output.or(earlier.output),
        reasoning: later.reasoning.or(earlier.reasoning),
        cached: later.cached.or(earlier.cached),
    }
}

/// The larger of two counts of one request: running counts never fall.
pub fn most(one: Usage, other: Usage) -> Usage {
    Usage {
        prompt: one.prompt.max(other.prompt),
        output: one.output.max(other.output),
        reasoning: one.reasoning.max(other.reasoning),
        cached: one.cached.max(other.cached),
    }
}

/// The counts of two choices of one request together: what they generated adds up, their prompt is the same one.
pub fn together(one: Usage, other: Usage) -> Usage {
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    Usage { output: sum(one.output, other.output), reasoning: sum(one.reasoning, other.reasoning), ..latest(one, other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> [Option<u64>; 4] {
        let usage = usage_of(serde_json::from_str(json).unwrap());
        [usage.prompt, usage.output, usage.reasoning, usage.cached]
    }

    fn usage(prompt: u64, output: u64, reasoning: Option<u64>) -> Usage {
        Usage { prompt: Some(prompt), output: Some(output), reasoning, cached: None }
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
            read(r#"{"prompt_tokens":15,"completion_tokens":0,"completion_tokens_details":null,"prompt_tokens_details":{}}"#),
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
            (r#"{"prompt_tokens":15,"input_tokens":16,"output_tokens":6}"#, [Some(15), Some(6), None, None]),
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
    fn bad_counts_are_absent() {
        assert_eq!(read(r#"{"prompt_tokens":"15","completion_tokens":6}"#), [None, Some(6), None, None]);
        assert_eq!(read(r#"{"prompt_tokens":-1,"completion_tokens":2.5}"#), [None; 4]);
        assert_eq!(read("[]"), [None; 4]);
        assert_eq!(read("7"), [None; 4]);
    }

    #[test]
    fn running_counts_replace_each_other_and_choices_add_up() {
        assert_eq!(latest(usage(15, 1, Some(1)), usage(15, 2, None)), usage(15, 2, Some(1)));
        assert_eq!(together(usage(15, 3, Some(1)), usage(15, 4, Some(2))), usage(15, 7, Some(3)));
        assert_eq!(together(Usage::default(), usage(15, 4, None)), usage(15, 4, None));
        assert_eq!(most(usage(15, 3, Some(1)), usage(15, 4, None)), usage(15, 4, Some(1)));
    }
}
