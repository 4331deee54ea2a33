//! Whether the server answered repeated prompts from a cache of whole answers, which reports no cached tokens.

use crate::request_row::RequestRow;
use llmscen_core::metric::Metric;
use llmscen_core::stats::{quantile, share};
use std::collections::BTreeMap;

/// Prompts that were sent again after their first reply had ended. Each is one pair: its first request, and the
/// medians of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RepeatedPrompts {
    /// The number of pairs.
    pub pairs: u64,
    /// Pairs in which the repeated prompt took at most half of the time, before its first token and after it.
    pub faster: u64,
    /// Median duration of the first requests, in milliseconds.
    pub first_ms: f64,
    /// Median duration of the repeated ones, in milliseconds.
    pub repeated_ms: f64,
}

impl RepeatedPrompts {
    /// The confidence of [`RepeatedPrompts::is_cached`].
    pub const CONFIDENCE: f64 = 0.99;
    /// The least effect: a repeated prompt that takes at most this share of the first one's time counts as faster.
    const FASTER: f64 = 0.5;
    /// The share of a reply's duration after its first token from which on that part is compared.
    const DECODED: f64 = 0.05;

    /// Whether more than half of all prompts are faster when repeated, at this confidence: the exact sign test.
    pub fn is_cached(&self) -> bool {
        share::decisive(self.pairs, 0.5, RepeatedPrompts::CONFIDENCE)
            .is_some_and(|decisive| self.faster >= decisive)
    }
}

/// The times of a reply from its send, in milliseconds.
#[derive(Clone, Copy)]
struct Times {
    /// Until the first token; None for a reply that is not streamed.
    first_token: Option<f64>,
    whole: f64,
    /// Of the part after the first token, for each output token if they are known.
    pace: Option<f64>,
}

impl Times {
    fn of(row: &RequestRow<'_>) -> Option<Times> {
        let first_token = row.metric(Metric::TtftService);
        let whole = row.metric(Metric::E2eService)?;
        // Replies to one prompt may differ in length.
        let tokens = row.metric(Metric::OutputTokens).unwrap_or(1.0).max(1.0);
        let times = Times {
            first_token,
            whole,
            pace: first_token.map(|first| (whole - first) / tokens),
        };
        row.ok().then_some(times)
    }

    /// The median of each part.
    fn median(all: &[Times]) -> Option<Times> {
        let median = |part: &dyn Fn(&Times) -> Option<f64>| {
            let mut values: Vec<f64> = all.iter().filter_map(part).collect();
            quantile::sort(&mut values);
            quantile::quantile(&values, 0.5, quantile::Method::NearestRank)
        };
        Some(Times {
            first_token: median(&|times| times.first_token),
            whole: median(&|times| Some(times.whole))?,
            pace: median(&|times| times.pace),
        })
    }

    /// Whether every part that can be compared takes at most half of that of `first`.
    fn is_faster_than(&self, first: &Times) -> bool {
        let is_half = |own: f64, first: f64| own <= first * RepeatedPrompts::FASTER;
        let (Some(own), Some(of_first)) = (self.first_token, first.first_token) else {
            return is_half(self.whole, first.whole);
        };
        let compared = self.compared_pace(first);
        is_half(own, of_first) && compared.is_none_or(|(own, first)| is_half(own, first))
    }

    /// The pace of this and of `first`, if the latter decodes for long enough.
    fn compared_pace(&self, first: &Times) -> Option<(f64, f64)> {
        let decode = first.whole - first.first_token?;
        let is_long = decode >= first.whole * RepeatedPrompts::DECODED;
        self.pace.zip(first.pace).filter(|_| is_long)
    }
}

/// Compares the measured requests whose prompt was sent before, and whose reply had ended, with the first request of
/// that prompt. A first request before the first reply of its round is left out: it met a cold server, or all users
/// at once. None without any.
pub(super) fn compare_repeated(rows: &[RequestRow<'_>]) -> Option<RepeatedPrompts> {
    let mut first_ends: BTreeMap<u32, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.ok()) {
        let end = first_ends.entry(row.round()).or_insert(row.end());
        *end = row.end().min(*end);
    }
    let mut by_prompt: BTreeMap<_, Vec<&RequestRow<'_>>> = BTreeMap::new();
    for row in rows {
        if let (Some(hash), Some(_)) = (row.prompt_hash(), row.sent()) {
            let key = (row.model(), row.group(), hash);
            by_prompt.entry(key).or_default().push(row);
        }
    }
    let mut pairs = Vec::new();
    for requests in by_prompt.values_mut() {
        requests.sort_by_key(|row| (row.round(), row.sent()));
        let Some((first, later)) = requests.split_first() else {
            continue;
        };
        let is_repeat = |row: &&&RequestRow<'_>| {
            let is_after = row.round() > first.round() || row.sent() >= Some(first.end());
            row.measured() && is_after
        };
        let repeated = || later.iter().filter(is_repeat);
        let repeats: Vec<Times> = repeated().filter_map(|row| Times::of(row)).collect();
        let is_settled = first.sent() >= first_ends.get(&first.round()).copied();
        let pair = Times::of(first).zip(Times::median(&repeats));
        // A prefix cache that the server reports explains a short wait, but no fast decoding.
        let has_cached_prefix = repeated().any(|row| {
            row.metric(Metric::CachedTokens)
                .is_some_and(|tokens| tokens > 0.0)
        });
        let is_clear = |(first, repeated): &(Times, Times)| {
            !has_cached_prefix || repeated.compared_pace(first).is_some()
        };
        pairs.extend(pair.filter(|pair| is_settled && is_clear(pair)));
    }
    let median = |part: fn(&(Times, Times)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(part).collect();
        quantile::sort(&mut values);
        quantile::quantile(&values, 0.5, quantile::Method::NearestRank)
    };
    let faster = pairs
        .iter()
        .filter(|(first, repeated)| repeated.is_faster_than(first));
    Some(RepeatedPrompts {
        pairs: pairs.len() as u64,
        faster: faster.count() as u64,
        first_ms: median(|(first, _)| first.whole)?,
        repeated_ms: median(|(_, repeated)| repeated.whole)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{outcome, stream, table};
    use llmscen_core::outcome::{Outcome, Phase};
    use llmscen_core::units::Nanos;

    /// A stream of a prompt, with its times from its send in milliseconds.
    fn prompt(hash: u64, seq: u64, sent: u64, (first, last): (u64, u64)) -> Outcome {
        Outcome {
            prompt_hash: Some(hash),
            ..stream(seq, sent, &[sent + first, sent + last])
        }
    }

    fn compared(rows: &[Outcome]) -> Option<RepeatedPrompts> {
        compare_repeated(&table("a", rows).rows_of_case("a"))
    }

    /// Eight prompts, each sent twice; the first one is not compared.
    fn seven(first: (u64, u64), again: (u64, u64)) -> RepeatedPrompts {
        let rows: Vec<Outcome> = (0..16)
            .map(|seq| {
                let times = if seq < 8 { first } else { again };
                prompt(seq % 8, seq, seq * 1000, times)
            })
            .collect();
        compared(&rows).unwrap()
    }

    #[test]
    fn answers_that_are_twice_as_fast_in_both_parts_come_from_a_cache() {
        let cached = seven((100, 500), (2, 3));
        let known = RepeatedPrompts {
            pairs: 7,
            faster: 7,
            first_ms: 500.0,
            repeated_ms: 3.0,
        };
        assert_eq!((cached, cached.is_cached()), (known, true));
        assert_eq!(seven((100, 500), (50, 250)).faster, 7, "half");
        // 2⁻⁷ is below 1 %, 8 · 2⁻⁷ is not, and neither is 2⁻⁶.
        for (pairs, faster) in [(7, 6), (6, 6), (0, 0)] {
            let few = RepeatedPrompts {
                pairs,
                faster,
                ..known
            };
            assert!(!few.is_cached(), "{faster} of {pairs}");
        }
    }

    #[test]
    fn a_prefix_cache_does_not_speed_up_decoding() {
        assert_eq!(seven((400, 800), (4, 404)).faster, 0);
        assert_eq!(seven((400, 800), (380, 400)).faster, 0, "and not only that");
        assert_eq!(seven((400, 410), (4, 14)).faster, 7, "too short to compare");
        assert_eq!(
            seven((400, 400), (4, 4)).faster,
            7,
            "the reply arrived at once"
        );
    }

    #[test]
    fn a_pair_is_the_first_request_and_the_median_of_later_ones() {
        let mut rows = vec![
            prompt(1, 0, 10, (100, 500)),
            // Sent before the first reply had ended.
            prompt(1, 1, 499, (100, 500)),
            prompt(1, 2, 1000, (2, 3)),
            prompt(1, 3, 2000, (100, 500)),
            prompt(1, 4, 3000, (2, 5)),
            prompt(2, 5, 0, (5, 10)),
        ];
        let known = RepeatedPrompts {
            pairs: 1,
            faster: 1,
            first_ms: 500.0,
            repeated_ms: 5.0,
        };
        assert_eq!(compared(&rows), Some(known));
        rows[5].timeline.end = Nanos::from_millis(11);
        assert_eq!(compared(&rows), None, "sent before the first reply ended");
        rows[5].timeline.end = Nanos::from_millis(10);
        rows[0].phase = Phase::Warmup;
        assert_eq!(
            compared(&rows),
            Some(known),
            "a prompt of the warm-up was sent"
        );
        rows[2].phase = Phase::Warmup;
        rows[4].phase = Phase::Warmup;
        assert_eq!(
            compared(&rows).unwrap().faster,
            0,
            "repeats are measured ones"
        );
        rows.iter_mut().for_each(|row| row.prompt_hash = None);
        assert_eq!(compared(&rows), None);
    }

    #[test]
    fn replies_that_are_not_streamed_are_compared_as_a_whole() {
        let whole = |seq: u64, took: u64| {
            let mut row = outcome(seq);
            row.prompt_hash = Some(1);
            row.timeline.sent = Some(Nanos::from_millis(seq * 1000));
            row.timeline.end = Nanos::from_millis(seq * 1000 + took);
            row
        };
        let other = |hash: u64, row: Outcome| Outcome {
            prompt_hash: Some(hash),
            ..row
        };
        let faster = |took| {
            let rows = [other(2, whole(0, 100)), whole(1, 100), whole(2, took)];
            compared(&rows).unwrap().faster
        };
        assert_eq!([faster(50), faster(51)], [1, 0]);
    }
}
