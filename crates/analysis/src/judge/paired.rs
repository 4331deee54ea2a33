//! `match_rate` relative to a baseline, by the prompts that both runs have: most answers are the same, and those that
//! changed decide.

use crate::judge::assessment::Assessment;
use crate::sample::Sample;
use llmscen_core::check::relative::{Answers, Relative};
use llmscen_core::check::{Check, Confidence, Ruling};
use llmscen_core::metric::Metric;
use llmscen_core::stats::paired::Pairs;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Share of the prompts of a run that the baseline must have.
const MIN_SHARE: f64 = 0.9;

/// Whether the first answer to each prompt of a sample was the expected one.
pub fn answers(sample: &Sample) -> Answers {
    let mut answers = BTreeMap::new();
    for request in sample.requests.iter() {
        let known = request.prompt_hash().zip(request.value(Metric::MatchRate));
        if let Some((hash, matched)) = known
            && let Entry::Vacant(first) = answers.entry(hash)
        {
            first.insert(matched > 0.0);
        }
    }
    Answers(answers)
}

/// The verdict on a limit relative to the answers of an earlier run. None if the limit is another one, if the
/// variation between runs is known, or if the runs have few prompts in common.
pub(super) fn judge_answers(
    check: &Check,
    relative: &Relative,
    sample: &Sample,
    observed: f64,
) -> Option<Assessment> {
    let before = relative.answers.as_ref()?;
    let Confidence::Level(level) = check.confidence else {
        return None;
    };
    let is_known = relative.known.is_some_and(|known| known.spread.is_none());
    if !is_known || !check.subject.is_match_rate() {
        return None;
    }
    let now = answers(sample);
    let mut pairs = Pairs::default();
    for (hash, matched) in &now.0 {
        if let Some(before) = before.0.get(hash) {
            pairs.add(*before, *matched);
        }
    }
    if pairs.is_empty() || (pairs.len() as f64) < MIN_SHARE * now.0.len() as f64 {
        return None;
    }
    let (below, above) = (
        pairs.p_below(relative.factor),
        pairs.p_above(relative.factor),
    );
    let (fails, passes) = match check.op.is_ceiling() {
        true => (above, below),
        false => (below, above),
    };
    // Prompts without a pair, and repeated ones, count in the observed share alone.
    let holds = check.op.holds(observed, check.limit);
    let ruling = match () {
        () if fails <= 1.0 - level && !holds => Ruling::Fail,
        () if passes <= 1.0 - level && holds => Ruling::Pass,
        () => Ruling::Inconclusive,
    };
    let Pairs { lost, gained, .. } = pairs;
    let note = format!(
        "of {} prompts of both runs {lost} were answered as expected in the baseline only, and \
        {gained} in this run only",
        pairs.len()
    );
    Some(
        Assessment {
            ruling,
            ..Assessment::point(false, observed, pairs.len())
        }
        .with_note(Some(note)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TestRequest;
    use crate::judge::fixture::{check, ok, sample};
    use crate::judge::{Conditions, LoadKind, rule};
    use llmscen_core::check::relative::{ReferenceKind, ReferenceValue};
    use llmscen_core::check::{Op, Verdict};
    use std::sync::Arc;

    /// Prompts 1 to 300, of which these were answered as expected.
    fn run(matched: impl Fn(u64) -> bool) -> Sample {
        let request = |prompt: u64| TestRequest {
            prompt_hash: Some(prompt),
            ..ok(Metric::MatchRate, f64::from(u8::from(matched(prompt))))
        };
        sample((1..=300).map(request).collect())
    }

    fn against(before: &Sample, now: &Sample, factor: f64) -> Verdict {
        let before = answers(before);
        let right = before.0.values().filter(|matched| **matched).count();
        let value = right as f64 / before.0.len() as f64;
        let known = ReferenceValue {
            value,
            low: Some(value - 0.05),
            high: Some(value + 0.05),
            n: Some(300),
            spread: None,
        };
        let relative = Relative {
            answers: Some(Arc::new(before)),
            ..Relative::new(ReferenceKind::Baseline, factor, Some(known))
        };
        let check = Check {
            limit: relative.limit(),
            relative: Some(relative),
            ..check(Metric::MatchRate, None, Op::AtLeast, 0.0)
        };
        rule(&check, now, &Conditions::of(now, LoadKind::Other))
    }

    #[test]
    fn three_hundred_prompts_show_a_loss_of_five_points() {
        let before = run(|prompt| prompt % 10 != 0);
        // 18 lost and 3 gained: 90 % to 85 %. P[Binomial(21, 1/2) ≤ 3] is below 0.001.
        let worse = run(|prompt| match prompt {
            1..=19 if prompt % 10 != 0 => false,
            20 | 30 | 40 => true,
            _ => prompt % 10 != 0,
        });
        let verdict = against(&before, &worse, 1.0);
        assert_eq!((verdict.ruling, verdict.n), (Ruling::Fail, 300));
        assert_eq!(
            verdict.note.as_deref(),
            Some(
                "of 300 prompts of both runs 18 were answered as expected in the baseline only, \
                and 3 in this run only"
            )
        );
        // A drop that the limit tolerates.
        assert_eq!(against(&before, &worse, 0.96).ruling, Ruling::Inconclusive);
        assert_eq!(against(&before, &worse, 0.9).ruling, Ruling::Pass);
        // Equal answers are no evidence of a gain, but of a loss below 3 %.
        assert_eq!(against(&before, &before, 1.0).ruling, Ruling::Inconclusive);
        assert_eq!(against(&before, &before, 0.97).ruling, Ruling::Pass);
    }

    #[test]
    fn other_prompts_are_not_paired() {
        let before = run(|prompt| prompt % 10 != 0);
        let mut others = run(|prompt| prompt % 10 != 0);
        others.requests = others
            .requests
            .select(|request| request.prompt_hash().is_some_and(|prompt| prompt <= 250));
        let mut fewer = answers(&before);
        fewer.0.retain(|prompt, _| *prompt <= 200);
        let paired = against(&before, &others, 0.9);
        assert_eq!(paired.n, 250, "all of this run are in the baseline");
        let relative = Relative {
            answers: Some(Arc::new(fewer)),
            ..Relative::new(ReferenceKind::Baseline, 0.9, None)
        };
        let own = check(Metric::MatchRate, None, Op::AtLeast, 0.0);
        assert_eq!(judge_answers(&own, &relative, &others, 0.9), None);
    }
}
