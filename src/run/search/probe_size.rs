//! How much of the scenario a probe is, and whether its load was too much whatever its limits say.

use llmscen_analysis::{Sample, judge};
use llmscen_core::check::Check;
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::metric::Metric;
use llmscen_core::plan::Case;
use llmscen_core::search::CapacitySearch;
use llmscen_core::stats::trend::slower;
use llmscen_core::units::Nanos;

/// Measured requests of each user at the least: with fewer, a probe would be over before its load was on.
const EACH_USER: u64 = 2;
/// Requests of each user before those: the users all begin at once, and their second requests still meet in one queue.
const SETTLES: u64 = 2;
/// An open loop begins with an empty server: so many measured requests for each one before them.
const START: u64 = 4;
/// The requests of a probe, or its time, over those of the scenario: the part that is asked for, and as much more as the load
/// needs to be on. Never fewer requests than the limits need to be decided, or [`EACH_USER`] for each user; a higher rate goes
/// on for as long as the scenario's own would. What is varied itself, and loads that say each request, are never cut.
pub(crate) fn share(case: &Case, quest: &CapacitySearch, part: f64) -> f64 {
    let of_all = |requests: u64| case.load.requests.map_or(0.0, |all| requests as f64 / all.max(1) as f64);
    // Of an entry of a mix only its share is about the limit.
    let own = |check: &Check| case.entry_of(check.group()).map_or(1.0, |entry| case.share_of(entry));
    let all_for = |check: &Check| Some((judge::required_samples(check)? as f64 / own(check)).ceil() as u64);
    let decided = of_all(case.checks.iter().filter_map(all_for).max().unwrap_or(1)).min(1.0);
    match case.load.shape {
        _ if matches!(quest.spec.vary.as_str(), "load.requests" | "load.sessions" | "load.duration") => 1.0,
        Shape::Closed { users } => part.max(decided).max(of_all(EACH_USER * u64::from(users))),
        Shape::Open { rate, .. } => {
            let usual = if quest.spec.vary == "load.rate" { quest.spec.start } else { rate };
            (part * (rate / usual).max(1.0)).max(decided)
        }
        _ => 1.0,
    }
}

/// A case with this share of its requests and its time, after a start that is not measured: [`SETTLES`] requests of each user. An open loop
/// sends one request before every [`START`] measured ones.
pub(crate) fn reduced(case: &Case, share: f64) -> Case {
    let mut own = case.clone();
    let load = &mut own.load;
    load.requests = load.requests.map(|all| ((all as f64 * share).ceil() as u64).max(1));
    // A span is cut only where no number of requests says what is enough.
    let of_span = if load.requests.is_some() { share.max(1.0) } else { share };
    load.duration = load.duration.map(|all| Nanos((all.0 as f64 * of_span) as u64));
    if let Warmup::Requests(warm) = load.warmup {
        let start = match load.shape {
            Shape::Closed { users } => SETTLES * u64::from(users),
            Shape::Open { rate, .. } => {
                let of_span = load.duration.map(|span| (span.0 as f64 / 1e9 * rate) as u64);
                [load.requests, of_span].into_iter().flatten().min().unwrap_or_default() / START
            }
            _ => 0,
        };
        load.warmup = Warmup::Requests(warm.max(start));
    }
    own
}

/// By how many scores the replies of an open loop got slower; None of other loads.
pub(crate) fn outrun(case: &Case, sample: &Sample) -> Option<f64> {
    let Shape::Open { rate, .. } = case.load.shape else { return None };
    let waits: Vec<f64> = sample.requests.values(Metric::E2e).collect();
    slower(&waits, rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_analysis::RequestFields;
    use llmscen_scenario::{Input, load};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// The requests of a probe at the searched value of this place.
    fn requests(load_and_search: &str, mix: &str, limit: &str, (place, part): (usize, f64)) -> Case {
        let text = format!(
            "version: 1\nname: x\ntarget: {{ url: simulator }}\ndataset: {{ kind: prompt, text: x }}\n{load_and_search}\n{mix}\n\
             slo: [\"{limit}\"]\n"
        );
        let input = Input { path: Path::new("x.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        let plan = load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan;
        let (case, quest) = (&plan.cases[place], &plan.quests[0]);
        reduced(case, share(case, quest, part))
    }

    #[test]
    fn a_part_of_a_sample_is_enough_for_a_limit_on_one_entry() {
        let load = "load: { concurrency: 1, requests: 400 }\nsearch: { vary: load.concurrency, range: [1, 4] }";
        let mix = "mix: [{ name: a, weight: 3 }, { name: b }]";
        let requests = |limit: &str| requests(load, mix, limit, (0, 0.05)).load.requests;
        // 29 requests decide a p90, and one in four is an entry's of a quarter.
        assert_eq!((requests("ttft.p90 < 1s"), requests("ttft{group=b}.p90 < 1s")), (Some(29), Some(116)));
        assert_eq!((requests("ttft.p50 < 1s"), requests("ttft{group=b}.p99 < 1s")), (Some(20), Some(400)));
    }

    #[test]
    fn a_probe_is_never_over_before_its_load_is_on() {
        let closed = "load: { concurrency: 4, requests: 40 }\nsearch: { vary: load.concurrency, range: [1, 200] }";
        let last = requests(closed, "", "ttft.p50 < 1s", (0, 0.25));
        assert_eq!((last.load.requests, last.load.warmup), (Some(10), Warmup::Requests(2)));
        let plenty = |place| requests(closed, "", "ttft.p50 < 1s", (place, 0.25)).load;
        let at = (1..400).find(|&place| plenty(place).shape.users() == Some(200)).unwrap();
        assert_eq!((plenty(at).requests, plenty(at).warmup), (Some(400), Warmup::Requests(400)));

        let open = "load: { rate: 20/s, requests: 100 }\nsearch: { vary: load.rate, range: [20, 200] }";
        assert_eq!(requests(open, "", "ttft.p50 < 1s", (0, 0.25)).load.requests, Some(25));
        let faster = requests(open, "", "ttft.p50 < 1s", (40, 0.25)).load;
        let Shape::Open { rate, .. } = faster.shape else { panic!("{faster:?}") };
        assert_eq!(faster.requests, Some((25.0 * rate / 20.0f64).ceil() as u64), "the same time at {rate}/s");

        for load in [
            "load: { rate: burst, requests: 40 }\nsearch: { vary: load.requests, range: [1, 40] }",
            "load: { static: { batch: 4, rounds: 3 } }\nsearch: { vary: load.static.batch, range: [4, 40] }",
        ] {
            let [whole, glance] = [1.0, 0.25].map(|part| requests(load, "", "ttft.p50 < 1s", (0, part)).load);
            assert_eq!(whole, glance, "{load}");
        }
    }

    #[test]
    fn the_start_of_an_open_loop_does_not_count() {
        let warmup = |bounds: &str, part| {
            let load = format!("load: {{ rate: 20/s, {bounds} }}\nsearch: {{ vary: load.rate, range: [20, 200] }}");
            requests(&load, "", "ttft.p50 < 1s", (0, part)).load.warmup
        };
        assert_eq!(warmup("requests: 100", 1.0), Warmup::Requests(25));
        assert_eq!(warmup("requests: 100", 4.0), Warmup::Requests(100));
        assert_eq!(warmup("duration: 40s", 1.0), Warmup::Requests(200), "800 in 40 s");
        assert_eq!(warmup("requests: 100, warmup: 60", 1.0), Warmup::Requests(60));
        assert_eq!(warmup("requests: 100, warmup: 2s", 1.0), Warmup::Span(Nanos(2_000_000_000)));
    }

    #[test]
    fn a_queue_that_only_grows_is_no_capacity() {
        let open = "load: { rate: 50/s, requests: 300 }\nsearch: { vary: load.rate, range: [50, 51] }";
        let case = requests(open, "", "ttft.p50 < 1s", (0, 1.0));
        let of = |growth: f64| {
            let mut sample = Sample::default();
            for i in 0..300 {
                let wait = 100.0 + growth * f64::from(i);
                let fields = RequestFields { ok: true, ..RequestFields::default() };
                sample.requests.push(fields, |metric| (metric == Metric::E2e).then_some(wait), []);
            }
            sample
        };
        // Served at 40/s: each request waits 5 ms longer, 500 ms over a hundred of them.
        assert!((outrun(&case, &of(5.0)).unwrap() - 2.5).abs() < 1e-9);
        assert_eq!(outrun(&case, &of(0.0)), Some(0.0));
        assert_eq!(outrun(&case, &Sample::default()), None);
    }
}
