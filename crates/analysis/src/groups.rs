//! Reports of the parts of a case: the entries of its mix, the groups of its dataset, such as the prompt lengths of a
//! speed benchmark or the groups of a shared prefix, and the URLs of its target.

use crate::measured_requests::{MeasuredRequest, header_value};
use crate::sample::{Sample, distribution, values};
use crate::scalars::{mean_user_tps, request_share, throughput};
use crate::sending::Flow;
use llmscen_core::metric::Metric;
use llmscen_core::mix::is_in_group;
use llmscen_core::plan::Case;
use llmscen_core::report::GroupReport;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum number of dataset groups that are reported; the `group` column contains all.
const MAX_GROUPS: usize = 64;
/// The distributions that are reported of a group.
const METRICS: [Metric; 8] = [
    Metric::PromptTokens,
    Metric::OutputTokens,
    Metric::CachedTokens,
    Metric::Ttft,
    Metric::Itl,
    Metric::Tpot,
    Metric::DecodeTps,
    Metric::E2e,
];

/// Every entry of a mix, each followed by the groups of its dataset: numbers ascending, then names. More than
/// [`MAX_GROUPS`] groups are left out.
pub fn group_reports(case: &Case, sample: &Sample) -> Vec<GroupReport> {
    let by_name = requests_by_group(sample);
    let all: Vec<MeasuredRequest<'_>> = sample.requests.iter().collect();
    let report = |(_, name): &(u64, &str), requests: &[MeasuredRequest<'_>]| {
        group_report(name, requests, sample, &all)
    };
    if case.mix.is_empty() {
        return by_name
            .iter()
            .map(|(key, requests)| report(key, requests))
            .collect();
    }
    let entry_reports = |name: &str| {
        let requests: Vec<MeasuredRequest<'_>> = all
            .iter()
            .copied()
            .filter(|request| {
                request
                    .group()
                    .is_some_and(|group| is_in_group(group, name))
            })
            .collect();
        let entry = GroupReport {
            entry: true,
            ..group_report(name, &requests, sample, &all)
        };
        let groups = by_name
            .iter()
            .filter(|((_, group), _)| is_in_group(group, name) && *group != name);
        std::iter::once(entry)
            .chain(groups.map(|(key, requests)| report(key, requests)))
            .collect::<Vec<_>>()
    };
    case.mix
        .iter()
        .flat_map(|entry| entry_reports(&entry.name))
        .collect()
}

/// The requests of each dataset group, by the number at the end of its name and the name.
fn requests_by_group(sample: &Sample) -> BTreeMap<(u64, &str), Vec<MeasuredRequest<'_>>> {
    let mut found: BTreeMap<(u64, &str), Vec<MeasuredRequest<'_>>> = BTreeMap::new();
    for request in sample.requests.iter() {
        if let Some(name) = request.group() {
            let number = name
                .rsplit('/')
                .next()
                .and_then(|last| last.parse().ok())
                .unwrap_or(u64::MAX);
            found.entry((number, name)).or_default().push(request);
        }
        if found.len() > MAX_GROUPS {
            return BTreeMap::new();
        }
    }
    found
}

fn group_report(
    name: &str,
    requests: &[MeasuredRequest<'_>],
    sample: &Sample,
    all: &[MeasuredRequest<'_>],
) -> GroupReport {
    let names: BTreeSet<Option<&str>> = requests.iter().map(|request| request.group()).collect();
    let is_own = |flow: &Flow| names.contains(&flow.group.as_deref());
    // What arrives is a session; a request that was never sent has no duration.
    let sent = |rows: &[MeasuredRequest<'_>]| {
        rows.iter()
            .filter(|row| row.begins_session() && row.busy_ms() > 0.0)
            .count() as f64
    };
    let arrived = |rows: &[MeasuredRequest<'_>]| {
        rows.iter().filter(|row| row.begins_session()).count() as f64
    };
    let share = |metric: Metric, part: f64, total: f64| {
        Some(sample.scalars.get(&metric)? * part / total).filter(|_| total > 0.0)
    };
    let rates = [
        (
            Metric::RateOffered,
            share(Metric::RateOffered, arrived(requests), arrived(all)),
        ),
        (
            Metric::RateAchieved,
            share(Metric::RateAchieved, sent(requests), sent(all)),
        ),
    ];
    let mut report = part_report(name, requests, sample, is_own);
    let rates = rates.into_iter();
    report
        .scalars
        .extend(rates.filter_map(|(metric, rate)| Some((metric, rate?))));
    report
}

/// A report for each URL of a target with several.
pub fn endpoint_reports(case: &Case, sample: &Sample) -> Vec<GroupReport> {
    let report = |name: &Arc<str>| {
        let requests = sample.requests.iter();
        let requests: Vec<MeasuredRequest<'_>> = requests
            .filter(|request| request.endpoint() == Some(name))
            .collect();
        let is_own = |flow: &Flow| flow.endpoint.as_ref() == Some(name);
        part_report(name, &requests, sample, is_own)
    };
    case.target.endpoint_names().iter().map(report).collect()
}

/// Maximum number of values of a kept header that are reported; the column contains all.
const MAX_VALUES: usize = 64;

/// A report for each value of each header of `target.keep_headers`, named `header: value`. A header with more than
/// [`MAX_VALUES`] values is left out: it names requests, not replicas.
pub fn header_reports(case: &Case, sample: &Sample) -> Vec<GroupReport> {
    let of_header = |header: &String| {
        let value = |lines: Option<&str>| Some(header_value(lines?, header)?.to_owned());
        let mut by_value: BTreeMap<String, Vec<MeasuredRequest<'_>>> = BTreeMap::new();
        for request in sample.requests.iter() {
            if let Some(value) = value(request.kept_headers()) {
                by_value.entry(value).or_default().push(request);
            }
            if by_value.len() > MAX_VALUES {
                return Vec::new();
            }
        }
        let report = |(name, requests): (String, Vec<MeasuredRequest<'_>>)| {
            let is_own = |flow: &Flow| value(flow.kept_headers.as_deref()).as_ref() == Some(&name);
            part_report(&format!("{header}: {name}"), &requests, sample, is_own)
        };
        by_value.into_iter().map(report).collect()
    };
    case.target
        .keep_headers
        .iter()
        .flat_map(of_header)
        .collect()
}

/// The report of some requests, whose arrivals are the flows that `is_own` selects.
fn part_report(
    name: &str,
    requests: &[MeasuredRequest<'_>],
    sample: &Sample,
    is_own: impl Fn(&Flow) -> bool,
) -> GroupReport {
    let distribution_of = |metric: Metric| Some((metric, distribution(values(requests, metric))?));
    let sending = sample.requests_window.total();
    let rate = |metric: Metric| {
        let flows = sample.flows.iter().filter(|flow| is_own(flow));
        throughput(requests, flows, metric, sending)
    };
    let shares = Metric::ALL
        .iter()
        .filter(|metric| metric.is_request_share());
    let shares = shares.map(|share| (*share, request_share(requests, *share)));
    let scalars = [
        (Metric::RequestThroughput, rate(Metric::RequestThroughput)),
        (Metric::OutputTps, rate(Metric::OutputTps)),
        (Metric::OutputTpsPerUser, mean_user_tps(requests)),
    ];
    GroupReport {
        name: name.to_owned(),
        entry: false,
        scheduled: requests.len() as u64,
        ok: requests.iter().filter(|request| request.ok()).count() as u64,
        scalars: scalars
            .into_iter()
            .chain(shares)
            .filter_map(|(metric, value)| Some((metric, value?)))
            .collect(),
        distributions: METRICS.into_iter().filter_map(distribution_of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::case;
    use crate::fixture::{TestRequest, sample_of};
    use crate::sending::{Amounts, Flow, ThroughputWindow};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use llmscen_core::endpoint::{Balance, Endpoints};
    use llmscen_core::load::Shape;
    use llmscen_core::mix::{EntryLoad, MixEntry};
    use llmscen_core::request::RequestSpec;
    use llmscen_core::target::TargetLocation;

    fn row(group: Option<&str>, e2e: f64) -> TestRequest {
        let values = [(Metric::E2e, e2e)].into();
        TestRequest {
            ok: e2e > 0.0,
            group: group.map(Into::into),
            output_tokens: Some(10.0),
            values,
            ..TestRequest::default()
        }
    }

    #[test]
    fn groups_are_ordered_by_number_and_count_failures() {
        let rows = vec![
            row(Some("2048"), 400.0),
            row(Some("96"), 100.0),
            row(Some("96"), 200.0),
            row(Some("96"), 0.0),
            row(None, 1.0),
        ];
        let seen = group_reports(&case(Shape::Burst), &sample_of(rows));
        let actual: Vec<_> = seen
            .iter()
            .map(|group| (group.name.as_str(), group.ok, group.scheduled))
            .collect();
        assert_eq!(actual, [("96", 2, 3), ("2048", 1, 1)]);
        // 10 tokens in 0.1 s and in 0.2 s.
        assert_eq!(seen[0].scalars[&Metric::OutputTpsPerUser], 75.0);
        assert_eq!(
            seen[0].distributions[&Metric::E2e].quantile(0.5),
            Some(100.0)
        );
    }

    #[test]
    fn every_url_is_reported_with_its_requests() {
        let urls = ["http://a:1", "http://b:1", "http://c:1"].map(str::to_owned);
        let endpoints = Endpoints::new(urls.to_vec(), Balance::RoundRobin).unwrap();
        let mut case = case(Shape::Burst);
        case.target.location = TargetLocation::Urls(endpoints);
        let at = |endpoint: Option<&str>, e2e| TestRequest {
            endpoint: endpoint.map(Into::into),
            ..row(None, e2e)
        };
        let rows = [
            at(Some("b:1"), 200.0),
            at(Some("a:1"), 100.0),
            at(Some("a:1"), 300.0),
            at(Some("b:1"), 0.0),
            at(None, 0.0),
        ];
        let flow = |name: &str, requests| Flow {
            endpoint: Some(name.into()),
            bins: [(
                0,
                Amounts {
                    requests,
                    ..Amounts::default()
                },
            )]
            .into(),
            ..Flow::default()
        };
        let seen = endpoint_reports(
            &case,
            &Sample {
                requests_window: ThroughputWindow::of_lengths(vec![0.5]),
                flows: vec![flow("a:1", 2.0), flow("b:1", 1.0)],
                ..sample_of(rows)
            },
        );
        let facts: Vec<_> = seen
            .iter()
            .map(|one| {
                let scalar = |metric| one.scalars.get(&metric).copied();
                (
                    (one.name.as_str(), one.ok, one.scheduled),
                    scalar(Metric::ErrorRate),
                    scalar(Metric::RequestThroughput),
                )
            })
            .collect();
        assert_eq!(
            facts,
            [
                (("a:1", 2, 2), Some(0.0), Some(4.0)),
                (("b:1", 1, 2), Some(0.5), Some(2.0)),
                (("c:1", 0, 0), None, Some(0.0)),
            ]
        );
        assert!(
            endpoint_reports(&crate::fixture::case(Shape::Burst), &Sample::default()).is_empty()
        );
    }

    #[test]
    fn too_many_groups_are_left_out() {
        let many = |count: usize| (0..count).map(|n| row(Some(&format!("prefix-{n}")), 1.0));
        let actual = |count| group_reports(&case(Shape::Burst), &sample_of(many(count))).len();
        assert_eq!((actual(64), actual(65)), (64, 0));
    }

    fn mixed(rows: Vec<TestRequest>) -> Vec<GroupReport> {
        let entry = |name: &str| MixEntry {
            name: name.into(),
            load: EntryLoad::Weight(1.0),
            headers: Vec::new(),
            request: RequestSpec::default(),
            dataset: DatasetSpec::new(Source::Prompt("x".into())),
        };
        let case = Case {
            mix: ["b", "a", "idle"].map(entry).into(),
            ..case(Shape::Burst)
        };
        let scalars = BTreeMap::from([(Metric::RateOffered, 8.0), (Metric::RateAchieved, 6.0)]);
        let flow = |row: &TestRequest| Flow {
            group: row.group.as_deref().map(Into::into),
            bins: [(
                7,
                Amounts {
                    requests: 1.0,
                    output: 10.0,
                    ..Amounts::default()
                },
            )]
            .into(),
            ..Flow::default()
        };
        let flows = rows.iter().filter(|row| row.ok).map(flow).collect();
        group_reports(
            &case,
            &Sample {
                requests_window: ThroughputWindow::of_lengths(vec![1.5, 0.5]),
                flows,
                scalars,
                ..sample_of(rows)
            },
        )
    }

    #[test]
    fn every_entry_of_a_mix_is_reported_with_its_groups() {
        let sent = |group, e2e| TestRequest {
            busy_ms: 1.0,
            ..row(Some(group), e2e)
        };
        let seen = mixed(vec![
            sent("a/20", 1.0),
            sent("b", 100.0),
            sent("b", 0.0),
            sent("a/3", 1.0),
            row(Some("b"), 0.0),
        ]);
        let names: Vec<(&str, u64, u64)> = seen
            .iter()
            .map(|own| (own.name.as_str(), own.ok, own.scheduled))
            .collect();
        assert_eq!(
            names,
            [
                ("b", 1, 3),
                ("a", 2, 2),
                ("a/3", 1, 1),
                ("a/20", 1, 1),
                ("idle", 0, 0)
            ]
        );
        let of = |index: usize, metric| seen[index].scalars.get(&metric).copied();
        assert_eq!(
            (
                of(0, Metric::ErrorRate),
                of(1, Metric::ErrorRate),
                of(4, Metric::ErrorRate)
            ),
            (Some(2.0 / 3.0), Some(0.0), None)
        );
        // One and two requests of ten tokens in two seconds.
        assert_eq!(
            (
                of(0, Metric::RequestThroughput),
                of(1, Metric::RequestThroughput)
            ),
            (Some(0.5), Some(1.0))
        );
        assert_eq!(
            (of(0, Metric::OutputTps), of(1, Metric::OutputTps)),
            (Some(5.0), Some(10.0))
        );
        // Three of five arrivals, of which two of four were sent.
        assert_eq!(
            (of(0, Metric::RateOffered), of(0, Metric::RateAchieved)),
            (Some(8.0 * 3.0 / 5.0), Some(3.0))
        );
    }

    #[test]
    fn entries_are_reported_with_any_number_of_groups() {
        let seen = mixed(
            (0..65)
                .map(|n| row(Some(&format!("a/prefix-{n}")), 1.0))
                .collect(),
        );
        assert_eq!(
            seen.iter()
                .map(|own| (own.name.as_str(), own.scheduled))
                .collect::<Vec<_>>(),
            [("b", 0), ("a", 65), ("idle", 0)]
        );
    }
}
