use super::*;
use crate::run::audit::tests::case as plain;
use llmscen_core::dataset::TextShape;
use llmscen_core::request::Quantity;
use llmscen_core::telemetry::SignalStat;

fn random(shared_prefix: u64) -> Source {
    Source::Random { tokens: Quantity::Fixed(1024), shared_prefix }
}

fn case(source: Source) -> Case {
    Case { dataset: DatasetSpec::of(source), ..plain("http://10.0.0.1/v1") }
}

/// Requests of 1000 prompt tokens, of which so many were cached; each the given turn.
fn rows(cached: &[f64], turn: u32) -> Sample {
    let row = |cached: &f64| Row {
        ok: true,
        place: (0, turn),
        prompt_tokens: Some(1000.0),
        values: [(Metric::CachedTokens, *cached), (Metric::PromptTokens, 1000.0)].into(),
        ..Row::default()
    };
    Sample { rows: cached.iter().map(row).collect(), ..Sample::default() }
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
    let sources =
        [random(0), random(512), prefix(), Source::SpeedBenchmark { long: false }, Source::Prompt("x".into()), Source::Openqa];
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
    let row = Row { ok: true, prompt_tokens: Some(1000.0), ..Row::default() };
    silent.rows = vec![row; 3];
    assert_eq!(seen(&case, &silent), (None, None));
    silent.signals.insert(Signal::ServerPrefixCacheHitRate, SignalStat { n: 5, mean: Some(0.564), ..SignalStat::default() });
    let (share, unique) = seen(&case, &silent);
    assert!(share == Some(0.564) && (unique.unwrap() - 0.5).abs() < 1e-9, "{unique:?}");
    silent.rows[0].place = (0, 1);
    assert_eq!(seen(&case, &silent), (Some(0.564), None), "the rate is of all requests together");
}
