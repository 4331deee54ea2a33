//! Did prompts that are unique in this run come from the server's cache? Then an earlier run has sent them.

use llmscen_core::dataset::{DatasetSpec, ShapeMode, Source};
use llmscen_core::manifest::Part;
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::report::CACHED;
use llmscen_core::sample::{Row, Sample};
use llmscen_core::signal::Signal;
use llmscen_report::format::percent;

/// Tokens that all prompts may begin with whatever the data: a chat template's head, rounded up to a block of the cache.
const HEAD: f64 = 64.0;
/// Characters of a token, where nothing better is known.
const CHARACTERS: f64 = 3.0;

/// How much came from the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cached {
    /// Share of all prompt tokens.
    pub share: Option<f64>,
    /// Share of those of unique prompts, without what all prompts begin with.
    pub unique: Option<f64>,
}

/// By the usage of the replies; where they report nothing, by the server's metrics.
pub(super) fn cached(case: &Case, parts: &[&Part], sample: &Sample) -> Cached {
    // Servers leave the count out where it is 0.
    let reported = sample.rows.iter().any(|row| row.ok && row.values.contains_key(&Metric::CachedTokens));
    let known = |row: &&Row| reported && row.ok && row.prompt_tokens.is_some();
    let sum = |rows: &[(&Row, f64)]| {
        let cached = |(row, head): &(&Row, f64)| (row.values.get(&Metric::CachedTokens).copied().unwrap_or(0.0) - head).max(0.0);
        let total: f64 = rows.iter().filter_map(|(row, _)| row.prompt_tokens).sum();
        (total > 0.0).then(|| rows.iter().map(cached).sum::<f64>() / total)
    };
    let rows: Vec<(&Row, f64)> = sample.rows.iter().filter(known).map(|row| (row, 0.0)).collect();
    let repeats = parts.iter().any(|part| part.rows_repeated > 0);
    let head = |row: &Row| head(case, row, repeats);
    let unique: Vec<(&Row, f64)> = rows.iter().filter_map(|(row, _)| Some((*row, head(row)?))).collect();
    if !rows.is_empty() {
        return Cached { share: sum(&rows), unique: sum(&unique) };
    }
    let Some(rate) = sample.signals.get(&Signal::ServerPrefixCacheHitRate).and_then(|own| own.mean) else {
        return Cached::default();
    };
    let heads: Option<Vec<f64>> = sample.rows.iter().map(head).collect();
    let prompts: f64 = sample.rows.iter().filter_map(|row| row.prompt_tokens).sum();
    let unique = heads.filter(|_| prompts > 0.0).map(|heads| (rate - heads.iter().sum::<f64>() / prompts).max(0.0));
    Cached { share: Some(rate), unique }
}

/// Whether prompts that the plan calls unique are among the requests of a case.
pub(super) fn is_unique(case: &Case) -> bool {
    match case.mix.as_slice() {
        [] => unique(&case.dataset, false),
        entries => entries.iter().any(|entry| unique(&entry.dataset, false)),
    }
}

/// How many tokens a request's prompt may share with others by design; None where it need not be unique.
fn head(case: &Case, row: &Row, repeats: bool) -> Option<f64> {
    let group = row.group.as_deref();
    let data = case.entry_of(group).map_or(&case.dataset, |entry| &entry.dataset);
    if row.place.1 > 0 || !unique(data, repeats) {
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
pub(super) fn reason(cached: Cached, limit: f64, case: &Case, seed: u64) -> Option<String> {
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
mod tests;
