//! A baseline that grows by a run.

use super::{Baseline, BaselineCase, BaselineRun, Figure, KEPT};
use crate::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};

/// The setting in which two runs of one plan may differ.
const SEED: &str = "seed";
/// Differences between plans that are named; further ones are counted.
const SHOWN: usize = 4;

impl Baseline {
    /// The newest run.
    pub fn newest(&self) -> Option<&BaselineRun> {
        self.runs.last()
    }

    /// Where another plan says something else about target, requests, data or load, in words; None where it does not. The seed may
    /// differ: other draws from the same data are another run of the same plan.
    pub fn other_plan(&self, plan: &BTreeMap<String, String>) -> Option<String> {
        let paths: BTreeSet<&String> = self.plan.keys().chain(plan.keys()).filter(|path| *path != SEED).collect();
        let said = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), String::clone);
        let differ = |path: &&String| plan.get(*path) != self.plan.get(*path);
        let line = |path: &String| format!("`{path}` was {}, is {}", said(self.plan.get(path)), said(plan.get(path)));
        let lines: Vec<String> = paths.into_iter().filter(differ).map(line).collect();
        let more = lines.len().saturating_sub(SHOWN);
        let shown = lines.get(..SHOWN.min(lines.len()))?.join("; ");
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!lines.is_empty()).then(|| shown + &more)
    }

    /// With the runs of `added`, each once: the newest [`KEPT`] by their start, the oldest first. The cases are those of `added`, which
    /// has the plan that counts.
    pub fn with(&self, added: Baseline) -> Baseline {
        let known = |run: &&BaselineRun| added.runs.iter().all(|own| own.run_id != run.run_id);
        let mut runs: Vec<BaselineRun> = self.runs.iter().filter(known).chain(&added.runs).cloned().collect();
        runs.sort_by(|a, b| a.started_at.cmp(&b.started_at));
        runs.drain(..runs.len().saturating_sub(KEPT));
        let cases = added.cases.iter().map(|case| {
            let old = self.cases.iter().find(|own| own.labels == case.labels);
            joined((self, old), (&added, case), &runs)
        });
        let cases = cases.collect();
        Baseline { name: added.name.clone(), plan: added.plan.clone(), confidences: added.confidences.clone(), runs, cases }
    }
}

/// A case in both, its figures in the order of the added one.
fn joined(
    (old, before): (&Baseline, Option<&BaselineCase>),
    (added, case): (&Baseline, &BaselineCase),
    runs: &[BaselineRun],
) -> BaselineCase {
    let value = |of: &Baseline, figure: Option<&Figure>, run: &BaselineRun| {
        let place = of.runs.iter().position(|own| own.run_id == run.run_id)?;
        figure?.runs.get(place).copied().flatten()
    };
    let window = before.and_then(|before| before.figure(Metric::ThroughputWindow.name()));
    let figure = |name: &str, own: Option<&Figure>| {
        let past = before.and_then(|before| before.figure(name));
        // Throughputs of earlier versions count the drain.
        let windowed = Metric::WINDOWED.iter().any(|metric| metric.name() == name);
        let same = |run: &BaselineRun| !windowed || value(old, window, run).is_some();
        let of = |run: &BaselineRun| value(added, own, run).or_else(|| value(old, past, run).filter(|_| same(run)));
        let values: Vec<Option<f64>> = runs.iter().map(of).collect();
        let last = runs.iter().zip(&values).rev().find(|(_, value)| value.is_some()).map(|(run, _)| run)?;
        let newest = if value(added, own, last).is_some() { own } else { past };
        newest.map(|newest| (name.to_owned(), Figure { runs: values, ..newest.clone() }))
    };
    let now = case.metrics.iter().filter_map(|(name, own)| figure(name, Some(own)));
    let gone = before.iter().flat_map(|before| &before.metrics).filter(|(name, _)| case.figure(name).is_none());
    let metrics = now.chain(gone.filter_map(|(name, _)| figure(name, None))).collect();
    let newest = runs.last().is_some_and(|last| added.runs.iter().any(|own| own.run_id == last.run_id));
    let counts = before.filter(|_| !newest).unwrap_or(case);
    BaselineCase { metrics, ..counts.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A baseline of one run: its number is its hour.
    fn run(number: u32, figures: &[(&str, f64)]) -> Baseline {
        let figure = |value: f64| Figure { value, n: u64::from(number), runs: vec![Some(value)], ..Figure::default() };
        let metrics = figures.iter().map(|(name, value)| ((*name).to_owned(), figure(*value))).collect();
        let labels = BTreeMap::new();
        let case = BaselineCase { id: "base".into(), labels, rounds: 1, scheduled: 9, ok: 9, metrics };
        let started_at = format!("2026-01-02T{number:02}:00:00Z");
        let own = BaselineRun { run_id: format!("r{number}"), started_at, ..BaselineRun::default() };
        Baseline { runs: vec![own], cases: vec![case], ..Baseline::default() }
    }

    fn ids(of: &Baseline) -> Vec<&str> {
        of.runs.iter().map(|run| run.run_id.as_str()).collect()
    }

    #[test]
    fn runs_are_added_in_their_order_and_each_once() {
        let two = run(1, &[("ttft.p95", 10.0)]).with(run(3, &[("ttft.p95", 12.0)]));
        let three = two.with(run(2, &[("ttft.p95", 11.0)]));
        let figure = three.cases[0].figure("ttft.p95").unwrap();
        assert_eq!((ids(&three), &figure.runs), (vec!["r1", "r2", "r3"], &vec![Some(10.0), Some(11.0), Some(12.0)]));
        assert_eq!((figure.value, figure.n), (12.0, 3), "the bounds are those of the newest run, not of the one that came last");
        assert_eq!(three.with(run(2, &[("ttft.p95", 11.0)])), three, "the same run again changes nothing");
        assert_eq!(three.newest().map(|own| own.run_id.as_str()), Some("r3"));
    }

    #[test]
    fn the_newest_twenty_stay_and_a_figure_may_be_missing() {
        let all =
            (1..=23).fold(run(0, &[("a", 1.0), ("b", 1.0)]), |all, number| all.with(run(number, &[("a", f64::from(number))])));
        assert_eq!((all.runs.len(), ids(&all)[0]), (KEPT, "r4"));
        assert_eq!(all.cases[0].metrics.len(), 1, "no run that is left has `b`");
        let gap = run(1, &[("a", 1.0), ("b", 5.0)]).with(run(2, &[("a", 2.0)])).with(run(3, &[("a", 3.0), ("b", 7.0)]));
        let figure = gap.cases[0].figure("b").unwrap();
        assert_eq!((&figure.runs, figure.value), (&vec![Some(5.0), None, Some(7.0)], 7.0));
    }

    #[test]
    fn plans_are_compared_path_by_path() {
        let plan = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect()
        };
        let own = Baseline { plan: plan(&[("load.requests", "1"), ("seed", "42")]), ..Baseline::default() };
        assert_eq!(own.other_plan(&plan(&[("load.requests", "1"), ("seed", "7")])), None, "another seed is the same plan");
        assert_eq!(own.other_plan(&plan(&[("load.requests", "2")])).as_deref(), Some("`load.requests` was 1, is 2"));
        assert_eq!(own.other_plan(&plan(&[])).as_deref(), Some("`load.requests` was 1, is nothing"));
    }
}
