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
mod tests;
