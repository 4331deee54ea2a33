//! The size of a probe relative to the scenario, and whether its queue grew.

use llmscen_analysis::{Sample, judge};
use llmscen_core::check::Check;
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::search::{CapacitySearch, Goal};
use llmscen_core::stats::trend::wait_growth;
use llmscen_core::units::Nanos;

/// Minimum number of measured requests per user: with fewer, a probe would end before it reaches its load, or for a
/// goodput, before its throughput window holds three mean durations.
const MEASURED_PER_USER: u64 = 2;
const MEASURED_PER_USER_OF_GOODPUT: u64 = 4;
/// Warm-up requests per user: all users start at once, so their second requests still queue together.
const WARMUP_PER_USER: u64 = 2;
/// Measured requests per warm-up request of an open loop, which starts with an empty server.
const MEASURED_PER_WARMUP: u64 = 4;

/// The requests, or the duration, of a probe as a share of the scenario's: at least `part`, at least what the
/// objectives need to be decided, and at least [`MEASURED_PER_USER`]. A higher rate lasts as long as the scenario's
/// rate would. Loads that list each request, and searches over the number of requests or the duration, are not
/// reduced.
pub(crate) fn share(case: &Case, search: &CapacitySearch, part: f64) -> f64 {
    let share_of = |requests: u64| {
        let all = case.load.requests.or(case.load.turn_limit);
        all.map_or(0.0, |all| requests as f64 / all.max(1) as f64)
    };
    // An objective on a mix entry uses only the requests of that entry.
    let entry_share = |check: &Check| {
        case.entry_for_group(check.group())
            .map_or(1.0, |entry| case.expected_share(entry))
    };
    let needed = |check: &Check| {
        Some((judge::required_samples(check)? as f64 / entry_share(check)).ceil() as u64)
    };
    let decided = share_of(case.checks.iter().filter_map(needed).max().unwrap_or(1)).min(1.0);
    match (&case.load.shape, case.load.shape.constant_rate()) {
        _ if matches!(
            search.spec.vary.as_str(),
            "load.requests" | "load.sessions" | "load.duration"
        ) =>
        {
            1.0
        }
        (Shape::Closed { users }, _) => {
            let per_user = match search.spec.goal {
                Goal::Slo => MEASURED_PER_USER,
                Goal::Goodput => MEASURED_PER_USER_OF_GOODPUT,
            };
            part.max(decided)
                .max(share_of(per_user * u64::from(*users)))
        }
        (_, Some(rate)) => {
            let usual = if search.spec.vary == "load.rate" {
                search.spec.start
            } else {
                rate
            };
            (part * (rate / usual).max(1.0)).max(decided)
        }
        _ => 1.0,
    }
}

/// The case with this share of its requests and its duration, after a warm-up: [`WARMUP_PER_USER`] requests per user,
/// or in an open loop one per [`MEASURED_PER_WARMUP`] measured ones.
pub(crate) fn reduced(case: &Case, share: f64) -> Case {
    let mut probe_case = case.clone();
    let load = &mut probe_case.load;
    for count in [&mut load.requests, &mut load.turn_limit] {
        *count = count.map(|all| ((all as f64 * share).ceil() as u64).max(1));
    }
    // The duration is reduced only if no number of requests bounds the probe.
    let duration_share = if load.requests.or(load.turn_limit).is_some() {
        share.max(1.0)
    } else {
        share
    };
    load.duration = load
        .duration
        .map(|all| Nanos((all.0 as f64 * duration_share) as u64));
    if let Warmup::Requests(warm) = load.warmup {
        let start = match (&load.shape, load.shape.constant_rate()) {
            (Shape::Closed { users }, _) => WARMUP_PER_USER * u64::from(*users),
            (_, Some(rate)) => {
                let by_duration = load
                    .duration
                    .map(|span| (span.0 as f64 / 1e9 * rate) as u64);
                [load.most_measured(), by_duration]
                    .into_iter()
                    .flatten()
                    .min()
                    .unwrap_or_default()
                    / MEASURED_PER_WARMUP
            }
            _ => 0,
        };
        load.warmup = Warmup::Requests(warm.max(start));
    }
    probe_case
}

/// z-score by which the responses of an open loop became slower; None for other loads.
pub(crate) fn slowdown(case: &Case, sample: &Sample) -> Option<f64> {
    let rate = case.load.shape.constant_rate()?;
    let waits: Vec<f64> = sample.requests.values(Metric::E2e).collect();
    wait_growth(&waits, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::audit::tests::sample_of;
    use llmscen_analysis::{RequestFields, RequestsBuilder};
    use llmscen_scenario::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// The case of a probe at the load of this index.
    fn probe_case(load_and_search: &str, mix: &str, limit: &str, index: usize, part: f64) -> Case {
        let text = format!(
            "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x \
             }}\n{load_and_search}\n{mix}\nslo: [\"{limit}\"]\n"
        );
        let input = Input {
            path: Path::new("x.yaml"),
            text: Some(text),
            env: &BTreeMap::new(),
            set: &[],
        };
        let plan = load(&input)
            .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
            .plan;
        let (case, search) = (&plan.cases[index], &plan.searches[0]);
        reduced(case, share(case, search, part))
    }

    #[test]
    fn a_part_is_enough_for_an_objective_on_one_entry() {
        let load = "load: { concurrency: 1, requests: 400 }\nsearch: { vary: load.concurrency, range: [1, 4] }";
        let mix = "mix: [{ name: a, weight: 3 }, { name: b }]";
        let requests = |limit: &str| probe_case(load, mix, limit, 0, 0.05).load.requests;
        // 29 requests decide a p90, and the entry has a quarter of the requests.
        assert_eq!(
            (
                requests("ttft.p90 < 1s"),
                requests("ttft{group=b}.p90 < 1s")
            ),
            (Some(29), Some(116))
        );
        assert_eq!(
            (
                requests("ttft.p50 < 1s"),
                requests("ttft{group=b}.p99 < 1s")
            ),
            (Some(20), Some(400))
        );
    }

    #[test]
    fn a_probe_never_ends_before_it_reaches_its_load() {
        let closed = "load: { concurrency: 4, requests: 40 }\nsearch: { vary: load.concurrency, range: [1, 200] }";
        let last = probe_case(closed, "", "ttft.p50 < 1s", 0, 0.25);
        assert_eq!(
            (last.load.requests, last.load.warmup),
            (Some(10), Warmup::Requests(2))
        );
        let load_at = |index| probe_case(closed, "", "ttft.p50 < 1s", index, 0.25).load;
        let most = (1..400)
            .find(|&index| load_at(index).shape.users() == Some(200))
            .unwrap();
        assert_eq!(
            (load_at(most).requests, load_at(most).warmup),
            (Some(400), Warmup::Requests(400))
        );

        let open =
            "load: { rate: 20/s, requests: 100 }\nsearch: { vary: load.rate, range: [20, 200] }";
        assert_eq!(
            probe_case(open, "", "ttft.p50 < 1s", 0, 0.25).load.requests,
            Some(25)
        );
        let faster = probe_case(open, "", "ttft.p50 < 1s", 40, 0.25).load;
        let Shape::Open { rate, .. } = faster.shape else {
            panic!("{faster:?}")
        };
        assert_eq!(
            faster.requests,
            Some((25.0 * rate / 20.0f64).ceil() as u64),
            "the same time at {rate}/s"
        );

        for load in [
            "load: { rate: burst, requests: 40 }\nsearch: { vary: load.requests, range: [1, 40] }",
            "load: { static: { batch: 4, rounds: 3 } }\nsearch: { vary: load.static.batch, range: [4, 40] }",
        ] {
            let [full, reduced] =
                [1.0, 0.25].map(|part| probe_case(load, "", "ttft.p50 < 1s", 0, part).load);
            assert_eq!(full, reduced, "{load}");
        }
    }

    #[test]
    fn the_start_of_an_open_loop_does_not_count() {
        let warmup = |bounds: &str, part| {
            let load = format!(
                "load: {{ rate: 20/s, {bounds} }}\nsearch: {{ vary: load.rate, range: [20, 200] }}"
            );
            probe_case(&load, "", "ttft.p50 < 1s", 0, part).load.warmup
        };
        assert_eq!(warmup("requests: 100", 1.0), Warmup::Requests(25));
        assert_eq!(warmup("requests: 100", 4.0), Warmup::Requests(100));
        assert_eq!(
            warmup("duration: 40s", 1.0),
            Warmup::Requests(200),
            "800 in 40 s"
        );
        assert_eq!(
            warmup("requests: 100, warmup: 60", 1.0),
            Warmup::Requests(60)
        );
        assert_eq!(
            warmup("requests: 100, warmup: 2s", 1.0),
            Warmup::Span(Nanos(2_000_000_000))
        );
    }

    #[test]
    fn a_growing_queue_is_a_slowdown() {
        let open =
            "load: { rate: 50/s, requests: 300 }\nsearch: { vary: load.rate, range: [50, 51] }";
        let case = probe_case(open, "", "ttft.p50 < 1s", 0, 1.0);
        let sample = |growth: f64| {
            let mut requests = RequestsBuilder::default();
            for i in 0..300 {
                let wait = 100.0 + growth * f64::from(i);
                let fields = RequestFields {
                    ok: true,
                    ..RequestFields::default()
                };
                requests.push(
                    fields,
                    |metric| (metric == Metric::E2e).then_some(wait),
                    &[],
                );
            }
            sample_of(requests)
        };
        // Served at 40/s: each request waits 5 ms longer, 500 ms over a hundred of them.
        assert!((slowdown(&case, &sample(5.0)).unwrap() - 2.5).abs() < 1e-9);
        assert_eq!(slowdown(&case, &sample(0.0)), Some(0.0));
        assert_eq!(slowdown(&case, &Sample::default()), None);
    }
}
