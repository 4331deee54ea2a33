//! Did prompts that are unique in this run come from the server's cache? Then an earlier run has sent them.

use llmscen_analysis::{MeasuredRequest, Sample};
use llmscen_core::dataset::{DatasetSpec, ShapeMode, Source};
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::CACHED;
use llmscen_core::signal::Signal;
use llmscen_report::format::percent;

/// Tokens that all prompts may begin with whatever the data: a chat template's head, rounded up to a block of the cache.
const HEAD: f64 = 64.0;
/// Characters of a token, where nothing better is known.
const CHARACTERS: f64 = 3.0;

/// How much came from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cached {
    /// Share of all prompt tokens.
    pub share: Option<f64>,
    /// Share of those of unique prompts, without what all prompts begin with.
    pub unique: Option<f64>,
}

/// By the usage of the replies; where they report nothing, by the server's metrics.
pub(crate) fn cached(case: &Case, parts: &[&Part], sample: &Sample) -> Cached {
    // Servers leave the count out where it is 0.
    let reported = sample.requests.iter().any(|request| request.ok() && request.value(Metric::CachedTokens).is_some());
    let known = |request: &MeasuredRequest<'_>| reported && request.ok() && request.value(Metric::PromptTokens).is_some();
    let sum = |requests: &[(MeasuredRequest<'_>, f64)]| {
        let cached =
            |(request, head): &(MeasuredRequest<'_>, f64)| (request.value(Metric::CachedTokens).unwrap_or(0.0) - head).max(0.0);
        let total: f64 = requests.iter().filter_map(|(request, _)| request.value(Metric::PromptTokens)).sum();
        (total > 0.0).then(|| requests.iter().map(cached).sum::<f64>() / total)
    };
    let counted: Vec<(MeasuredRequest<'_>, f64)> = sample.requests.iter().filter(known).map(|request| (request, 0.0)).collect();
    let repeats = parts.iter().any(|part| part.rows_repeated > 0);
    let head = |request| head(case, request, repeats);
    let unique: Vec<(MeasuredRequest<'_>, f64)> =
        counted.iter().filter_map(|(request, _)| Some((*request, head(*request)?))).collect();
    if !counted.is_empty() {
        return Cached { share: sum(&counted), unique: sum(&unique) };
    }
    let Some(rate) = sample.signals.get(&Signal::ServerPrefixCacheHitRate).and_then(|own| own.mean) else {
        return Cached::default();
    };
    let heads: Option<Vec<f64>> = sample.requests.iter().map(head).collect();
    let prompts: f64 = sample.requests.values(Metric::PromptTokens).sum();
    let unique = heads.filter(|_| prompts > 0.0).map(|heads| (rate - heads.iter().sum::<f64>() / prompts).max(0.0));
    Cached { share: Some(rate), unique }
}

/// Whether prompts that the plan calls unique are among the requests of a case.
pub(crate) fn is_unique(case: &Case) -> bool {
    match case.mix.as_slice() {
        [] => unique(&case.dataset, false),
        entries => entries.iter().any(|entry| unique(&entry.dataset, false)),
    }
}

/// How many tokens a request's prompt may share with others by design; None where it need not be unique.
fn head(case: &Case, request: MeasuredRequest<'_>, repeats: bool) -> Option<f64> {
    let group = request.group();
    let data = case.entry_of(group).map_or(&case.dataset, |entry| &entry.dataset);
    if request.turn() > 0 || !unique(data, repeats) {
        return None;
    }
    let system = data.system.as_deref().filter(|_| !is_busted(data)).map_or(0.0, tokens);
    // Tools are part of the template's head.
    let extra = &case.request_of(group).extra;
    let extra = if extra.is_empty() { 0.0 } else { tokens(&serde_json::Value::from(extra.clone()).to_string()) };
    Some(HEAD + system + extra)
}

/// About how many tokens a text has, rather too many than too few.
fn tokens(text: &str) -> f64 {
    let (plain, other) =
        text.chars().fold((0u32, 0u32), |(plain, other), c| if c.is_ascii() { (plain + 1, other) } else { (plain, other + 1) });
    f64::from(plain) / CHARACTERS + f64::from(other)
}

/// Whether each prompt begins with words of its own.
fn is_busted(data: &DatasetSpec) -> bool {
    data.cache_bust && !matches!(data.source, Source::Random { .. } | Source::Prefix { .. } | Source::SpeedBenchmark { .. })
}

fn unique(data: &DatasetSpec, repeats: bool) -> bool {
    match &data.source {
        Source::Random { shared_prefix: 0, .. } | Source::SpeedBenchmark { .. } => true,
        _ if data.cache_bust => true,
        Source::Random { .. } | Source::Prefix { .. } | Source::Prompt(_) => false,
        _ => !repeats && data.shape.as_ref().is_some_and(|shape| shape.mode == ShapeMode::Exact),
    }
}

/// Why a case measured the cache and not the server's work, where it did.
pub(crate) fn reason(cached: Cached, limit: f64, case: &Case, seed: u64) -> Option<String> {
    let share = cached.unique.filter(|share| *share > limit)?;
    let data = case.mix.iter().map(|entry| &entry.dataset).chain([&case.dataset]);
    let (of, remedy) = match data.filter(|data| data.cache_bust).find_map(|data| data.cache_seed) {
        Some(own) => (format!("`cache_seed` {}", own.0), "Remove `cache_seed` from the scenario, or restart the server"),
        None => (format!("seed {seed}"), "Set `seed: run`, restart the server, or set `cache_bust: true`"),
    };
    Some(format!(
        "{CACHED}{} of the prompt tokens were cached (limit {}, `audit.cache`), though no two prompts of this run are equal. \
         The server has seen the prompts of {of} before. {remedy}",
        percent(share),
        percent(limit)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::audit::tests::case as plain;
    use llmscen_analysis::RequestFields;
    use llmscen_core::dataset::TextShape;
    use llmscen_core::request::Quantity;
    use llmscen_core::telemetry::SignalStat;

    fn random(shared_prefix: u64) -> Source {
        Source::Random { tokens: Quantity::Fixed(1024), shared_prefix }
    }

    fn case(source: Source) -> Case {
        Case { dataset: DatasetSpec::of(source), ..plain("http://10.0.0.1/v1") }
    }

    /// Adds a request of 1000 prompt tokens.
    fn push(sample: &mut Sample, turn: u32, cached: Option<f64>) {
        let value = |metric| match metric {
            Metric::PromptTokens => Some(1000.0),
            Metric::CachedTokens => cached,
            _ => None,
        };
        sample.requests.push(RequestFields { ok: true, turn, ..RequestFields::default() }, value, []);
    }

    /// Requests of 1000 prompt tokens, of which so many were cached; each the given turn.
    fn rows(cached: &[f64], turn: u32) -> Sample {
        let mut sample = Sample::default();
        for cached in cached {
            push(&mut sample, turn, Some(*cached));
        }
        sample
    }

    fn seen(case: &Case, sample: &Sample) -> (Option<f64>, Option<f64>) {
        let Cached { share, unique } = cached(case, &[], sample);
        (share, unique)
    }

    #[test]
    fn cached_tokens_of_unique_prompts_count_beyond_what_all_begin_with() {
        let random_data = case(random(0));
        assert_eq!(seen(&random_data, &rows(&[992.0, 992.0], 0)), (Some(0.992), Some(0.928)));
        // The head of a chat template, a block of the cache or four.
        assert_eq!(seen(&random_data, &rows(&[64.0, 16.0], 0)), (Some(0.04), Some(0.0)));
        // A system message of 300 characters that the plan puts in front of all.
        let mut with_system = random_data.clone();
        with_system.dataset.system = Some("x".repeat(300));
        assert_eq!(seen(&with_system, &rows(&[164.0], 0)).1, Some(0.0));
        assert_eq!(seen(&with_system, &rows(&[264.0], 0)).1, Some(0.1));
        let reason = |unique| reason(Cached { share: None, unique }, 0.01, &random_data, 42);
        assert_eq!([reason(None), reason(Some(0.01))], [None, None]);
        let said = reason(Some(0.928)).unwrap();
        assert!(said.starts_with(CACHED) && said.contains("92.8% of the prompt tokens"), "{said}");
        assert!(
            ["seed 42", "`seed: run`", "restart the server", "`cache_bust: true`"].iter().all(|part| said.contains(part)),
            "{said}"
        );
    }

    #[test]
    fn data_that_shares_by_design_is_not_unique() {
        let of = |case: &Case| seen(case, &rows(&[992.0], 0)).1.is_some();
        let prefix = || Source::Prefix { groups: 2, per_group: None, prefix_tokens: 900, tokens: Quantity::Fixed(100) };
        let sources = [
            random(0),
            random(512),
            prefix(),
            Source::SpeedBenchmark { long: false },
            Source::Prompt("x".into()),
            Source::Openqa,
        ];
        assert_eq!(sources.clone().map(|source| of(&case(source))), [true, false, false, true, false, false]);
        let busted = sources.map(|source| {
            let mut own = case(source);
            own.dataset.cache_bust = true;
            of(&own)
        });
        assert_eq!(busted, [true; 6]);
        let mut exact = case(Source::Openqa);
        exact.dataset.shape = Some(TextShape { tokens: Quantity::Fixed(1000), mode: ShapeMode::Exact, fill_from: None });
        assert!(of(&exact));
        let repeated = Part { rows_repeated: 3, ..Part::default() };
        assert_eq!(cached(&exact, &[&repeated], &rows(&[992.0], 0)).unique, None, "the data was shorter than the run");
        assert_eq!(seen(&case(random(0)), &rows(&[992.0], 1)).1, None, "a later turn goes on from the one before");
        assert!(is_unique(&case(random(0))) && !is_unique(&case(Source::Openqa)));
    }

    #[test]
    fn the_servers_metrics_serve_where_its_replies_report_nothing() {
        let case = case(random(0));
        let mut silent = rows(&[], 0);
        (0..3).for_each(|_| push(&mut silent, 0, None));
        assert_eq!(seen(&case, &silent), (None, None));
        silent.signals.insert(Signal::ServerPrefixCacheHitRate, SignalStat { n: 5, mean: Some(0.564), ..SignalStat::default() });
        let (share, unique) = seen(&case, &silent);
        assert!(share == Some(0.564) && (unique.unwrap() - 0.5).abs() < 1e-9, "{unique:?}");
        push(&mut silent, 1, None);
        assert_eq!(seen(&case, &silent), (Some(0.564), None), "the rate is of all requests together");
    }
}
