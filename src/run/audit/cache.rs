//! Detects that prompts that are unique in this run came from the prefix cache of the server: an earlier run has sent
//! them.

use llmscen_analysis::{MeasuredRequest, RepeatedPrompts, Sample};
use llmscen_core::dataset::{DatasetSpec, ShapeMode, Source};
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::plan::{AuditLimits, Case};
use llmscen_core::report::{Cause, InvalidReason};
use llmscen_core::signal::Signal;
use llmscen_report::format::{millis, percent};

/// Tokens that all prompts may share: the start of a chat template, rounded up to a cache block.
const TEMPLATE_TOKENS: f64 = 64.0;
/// Assumed characters per token.
const CHARACTERS_PER_TOKEN: f64 = 3.0;

/// Cached prompt tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cached {
    /// Share of all prompt tokens.
    pub share: Option<f64>,
    /// Share of the tokens of unique prompts, without those that all prompts share.
    pub unique: Option<f64>,
}

/// Cached tokens from the usage of the replies, else from the metrics of the server.
pub(crate) fn cached(case: &Case, parts: &[&Part], sample: &Sample) -> Cached {
    // Servers omit a count of 0.
    let reported = sample
        .requests
        .iter()
        .any(|request| request.ok() && request.value(Metric::CachedTokens).is_some());
    let known = |request: &MeasuredRequest<'_>| {
        reported && request.ok() && request.value(Metric::PromptTokens).is_some()
    };
    let sum = |requests: &[(MeasuredRequest<'_>, f64)]| {
        let cached = |(request, shared): &(MeasuredRequest<'_>, f64)| {
            (request.value(Metric::CachedTokens).unwrap_or(0.0) - shared).max(0.0)
        };
        let total: f64 = requests
            .iter()
            .filter_map(|(request, _)| request.value(Metric::PromptTokens))
            .sum();
        (total > 0.0).then(|| requests.iter().map(cached).sum::<f64>() / total)
    };
    let counted: Vec<(MeasuredRequest<'_>, f64)> = sample
        .requests
        .iter()
        .filter(known)
        .map(|request| (request, 0.0))
        .collect();
    let repeats = parts.iter().any(|part| part.rows_repeated > 0);
    let shared = |request| shared_tokens(case, request, repeats);
    let unique: Vec<(MeasuredRequest<'_>, f64)> = counted
        .iter()
        .filter_map(|(request, _)| Some((*request, shared(*request)?)))
        .collect();
    if !counted.is_empty() {
        return Cached {
            share: sum(&counted),
            unique: sum(&unique),
        };
    }
    let Some(rate) = sample
        .signals
        .get(&Signal::ServerPrefixCacheHitRate)
        .and_then(|signal| signal.mean)
    else {
        return Cached::default();
    };
    let shared: Option<Vec<f64>> = sample.requests.iter().map(shared).collect();
    let prompts: f64 = sample.requests.values(Metric::PromptTokens).sum();
    let unique = shared
        .filter(|_| prompts > 0.0)
        .map(|shared| (rate - shared.iter().sum::<f64>() / prompts).max(0.0));
    Cached {
        share: Some(rate),
        unique,
    }
}

/// Whether a case has prompts that are unique by plan.
pub(crate) fn has_unique_prompts(case: &Case) -> bool {
    match case.mix.as_slice() {
        [] => is_unique(&case.dataset, false),
        entries => entries.iter().any(|entry| is_unique(&entry.dataset, false)),
    }
}

/// Number of tokens that a prompt may share with others by design; None if it need not be unique.
fn shared_tokens(case: &Case, request: MeasuredRequest<'_>, repeats: bool) -> Option<f64> {
    let group = request.group();
    let data = case
        .entry_for_group(group)
        .map_or(&case.dataset, |entry| &entry.dataset);
    if request.turn() > 0 || !is_unique(data, repeats) {
        return None;
    }
    let system = data
        .system
        .as_deref()
        .filter(|_| !has_unique_start(data))
        .map_or(0.0, tokens);
    // Tools are at the start of the template.
    let extra = &case.request_for_group(group).extra;
    let extra = if extra.is_empty() {
        0.0
    } else {
        tokens(&serde_json::Value::from(extra.clone()).to_string())
    };
    Some(TEMPLATE_TOKENS + system + extra)
}

/// An upper estimate of the number of tokens of a text.
fn tokens(text: &str) -> f64 {
    let ascii = text.chars().filter(char::is_ascii).count();
    let other = text.chars().count() - ascii;
    ascii as f64 / CHARACTERS_PER_TOKEN + other as f64
}

/// Whether each prompt starts with unique text.
fn has_unique_start(data: &DatasetSpec) -> bool {
    data.cache_bust
        && !matches!(
            data.source,
            Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. }
        )
}

fn is_unique(data: &DatasetSpec, repeats: bool) -> bool {
    match &data.source {
        Source::Random {
            shared_prefix: 0, ..
        } if data.generated.system_tokens == 0 => true,
        Source::SpeedBenchmark { .. } => true,
        _ if data.cache_bust => true,
        Source::Random { .. } | Source::Prefix { .. } | Source::Prompt(_) => false,
        _ => {
            !repeats
                && data
                    .shape
                    .as_ref()
                    .is_some_and(|shape| shape.mode == ShapeMode::Exact)
        }
    }
}

/// Why a case measured the cache of the server, if it did.
pub(crate) fn reason(cached: Cached, limit: f64, case: &Case, seed: u64) -> Option<InvalidReason> {
    let share = cached.unique.filter(|share| *share > limit)?;
    let data = case
        .mix
        .iter()
        .map(|entry| &entry.dataset)
        .chain([&case.dataset]);
    let (seed, remedy) = match data
        .filter(|data| data.cache_bust)
        .find_map(|data| data.cache_seed)
    {
        Some(cache_seed) => (
            format!("`cache_seed` {}", cache_seed.0),
            "Remove `cache_seed` from the scenario, or restart the server",
        ),
        None => (
            format!("seed {seed}"),
            "Set `seed: run`, restart the server, or set `cache_bust: true`",
        ),
    };
    Some(Cause::PrefixCache.reason(format_args!(
        "{} of the prompt tokens were cached (limit {}, `audit.cache`), although no two \
         prompts of this run are equal. The prompts of {seed} were sent in an earlier run. {remedy}",
        percent(share),
        percent(limit)
    )))
}

/// Why the latencies of a case are those of a cache of whole answers, if they are.
pub(crate) fn repeated_reason(
    case: &Case,
    sample: &Sample,
    limits: &AuditLimits,
) -> Option<InvalidReason> {
    let has_unique_prompts = match case.mix.as_slice() {
        [] => case.dataset.cache_bust,
        entries => entries.iter().all(|entry| entry.dataset.cache_bust),
    };
    let repeated = sample
        .repeated_prompts
        .filter(|_| !limits.repeats_wanted && !has_unique_prompts)
        .filter(RepeatedPrompts::is_cached)?;
    let RepeatedPrompts {
        pairs,
        faster,
        first_ms,
        repeated_ms,
    } = repeated;
    Some(Cause::AnswerCache.reason(format_args!(
        "{faster} of {pairs} prompts took at most half of the time when they were \
         sent again (median {} instead of {}). Set `dataset.cache_bust: true`, or `audit.repeats: \
         wanted` if the cache is a part of what you measure",
        millis(repeated_ms),
        millis(first_ms)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::audit::tests::{case as plain, sample_of};
    use llmscen_analysis::{RequestFields, RequestsBuilder};
    use llmscen_core::dataset::TextShape;
    use llmscen_core::quantity::Quantity;
    use llmscen_core::telemetry::SignalStat;

    fn random(shared_prefix: u64) -> Source {
        Source::Random {
            tokens: Quantity::fixed(1024),
            shared_prefix,
        }
    }

    fn case(source: Source) -> Case {
        Case {
            dataset: DatasetSpec::new(source),
            ..plain("http://10.0.0.1/v1")
        }
    }

    /// Requests of 1000 prompt tokens, each with its turn and of which so many were cached.
    fn sample(requests: impl IntoIterator<Item = (u32, Option<f64>)>) -> Sample {
        let mut builder = RequestsBuilder::default();
        for (turn, cached) in requests {
            let value = |metric| match metric {
                Metric::PromptTokens => Some(1000.0),
                Metric::CachedTokens => cached,
                _ => None,
            };
            let fields = RequestFields {
                ok: true,
                turn,
                ..RequestFields::default()
            };
            builder.push(fields, value, &[]);
        }
        sample_of(builder)
    }

    fn rows(cached: &[f64], turn: u32) -> Sample {
        sample(cached.iter().map(|cached| (turn, Some(*cached))))
    }

    fn cached_shares(case: &Case, sample: &Sample) -> (Option<f64>, Option<f64>) {
        let Cached { share, unique } = cached(case, &[], sample);
        (share, unique)
    }

    #[test]
    fn cached_tokens_of_unique_prompts_count_beyond_what_all_begin_with() {
        let random_data = case(random(0));
        assert_eq!(
            cached_shares(&random_data, &rows(&[992.0, 992.0], 0)),
            (Some(0.992), Some(0.928))
        );
        // The head of a chat template, a block of the cache or four.
        assert_eq!(
            cached_shares(&random_data, &rows(&[64.0, 16.0], 0)),
            (Some(0.04), Some(0.0))
        );
        // A system message of 300 characters that the plan puts in front of all.
        let mut with_system = random_data.clone();
        with_system.dataset.system = Some("x".repeat(300));
        assert_eq!(cached_shares(&with_system, &rows(&[164.0], 0)).1, Some(0.0));
        assert_eq!(cached_shares(&with_system, &rows(&[264.0], 0)).1, Some(0.1));
        let reason = |unique| {
            reason(
                Cached {
                    share: None,
                    unique,
                },
                0.01,
                &random_data,
                42,
            )
        };
        assert_eq!([reason(None), reason(Some(0.01))], [None, None]);
        let text = reason(Some(0.928)).unwrap();
        assert!(
            text.cause == Cause::PrefixCache && text.text().contains("92.8% of the prompt tokens"),
            "{text}"
        );
        assert!(
            [
                "seed 42",
                "`seed: run`",
                "restart the server",
                "`cache_bust: true`"
            ]
            .iter()
            .all(|part| text.text().contains(part)),
            "{text}"
        );
    }

    #[test]
    fn data_that_shares_by_design_is_not_unique() {
        let of = |case: &Case| cached_shares(case, &rows(&[992.0], 0)).1.is_some();
        let prefix = || Source::Prefix {
            groups: 2,
            per_group: None,
            prefix_tokens: 900,
            tokens: Quantity::fixed(100),
            zipf: None,
        };
        let sources = [
            random(0),
            random(512),
            prefix(),
            Source::SpeedBenchmark { long: false },
            Source::Prompt("x".into()),
            Source::Openqa,
        ];
        assert_eq!(
            sources.clone().map(|source| of(&case(source))),
            [true, false, false, true, false, false]
        );
        let busted = sources.map(|source| {
            let mut busted_case = case(source);
            busted_case.dataset.cache_bust = true;
            of(&busted_case)
        });
        assert_eq!(busted, [true; 6]);
        let mut exact = case(Source::Openqa);
        exact.dataset.shape = Some(TextShape {
            tokens: Quantity::fixed(1000),
            mode: ShapeMode::Exact,
            fill_from: None,
        });
        assert!(of(&exact));
        let repeated = Part {
            rows_repeated: 3,
            ..Part::default()
        };
        assert_eq!(
            cached(&exact, &[&repeated], &rows(&[992.0], 0)).unique,
            None,
            "the data was shorter than the run"
        );
        assert_eq!(
            cached_shares(&case(random(0)), &rows(&[992.0], 1)).1,
            None,
            "a later turn goes on from the one before"
        );
        assert!(has_unique_prompts(&case(random(0))) && !has_unique_prompts(&case(Source::Openqa)));
    }

    #[test]
    fn the_servers_metrics_serve_where_its_replies_report_nothing() {
        let case = case(random(0));
        let mut silent = sample([(0, None); 3]);
        assert_eq!(cached_shares(&case, &silent), (None, None));
        silent.signals.insert(
            Signal::ServerPrefixCacheHitRate,
            SignalStat {
                n: 5,
                mean: Some(0.564),
                ..SignalStat::default()
            },
        );
        let (share, unique) = cached_shares(&case, &silent);
        assert!(
            share == Some(0.564) && (unique.unwrap() - 0.5).abs() < 1e-9,
            "{unique:?}"
        );
        silent.requests = sample([(0, None), (0, None), (0, None), (1, None)]).requests;
        assert_eq!(
            cached_shares(&case, &silent),
            (Some(0.564), None),
            "the rate is of all requests together"
        );
    }
}
