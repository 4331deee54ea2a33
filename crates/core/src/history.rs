//! The runs of a folder as series per case and metric, with the changes of their level.
//!
//! The rate of false alarms is that of the page: with S series, each is tested for changes at `alpha ÷ 2 ÷ S` and its
//! latest runs at the same level (Bonferroni), so that a page of runs without any change has an alarm with a
//! probability of at most `alpha`.

use crate::baseline::MIN_RUNS_FOR_SPREAD;
use crate::compare::Measure;
use crate::label::Scalar;
use crate::manifest::Machine;
use crate::metric::{Metric, Stat};
use crate::seed::Seed;
use crate::stats::change_points::{ChangePoint, change_points, latest_change};
use crate::stats::moments::mean;
use crate::units::Unit;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The seed of the permutation tests: the same runs give the same page.
const SEED: Seed = Seed(0x6869_7374_6f72_7900);

/// The measures of a history, unless others are asked for. Few, because more series need greater changes.
pub const DEFAULT_MEASURES: [Measure; 6] = [
    quantile(Metric::Ttft, 0.5),
    quantile(Metric::Ttft, 0.95),
    quantile(Metric::Tpot, 0.5),
    quantile(Metric::E2e, 0.95),
    of_case(Metric::OutputTps),
    of_case(Metric::ErrorRate),
];

const fn quantile(metric: Metric, share: f64) -> Measure {
    Measure {
        metric,
        stat: Some(Stat::Quantile(share)),
    }
}

const fn of_case(metric: Metric) -> Measure {
    Measure { metric, stat: None }
}

/// What a history needs of results.json.
#[derive(Clone, Debug, Deserialize)]
pub struct Results {
    /// Name of the scenario.
    pub name: String,
    /// Run id.
    pub run_id: String,
    /// Version of llmscen.
    pub tool_version: String,
    /// Labels of the run.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Start, RFC 3339.
    pub started_at: String,
    /// Verdict of the run.
    pub verdict: String,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// The load generator's machine.
    pub machine: Machine,
    /// What the servers reported about themselves, by URL.
    pub targets: BTreeMap<String, String>,
    /// Absent if throughputs include the drain.
    #[serde(default)]
    pub throughput_definition: Option<String>,
    /// The cases.
    pub cases: Vec<ResultCase>,
}

/// A case of results.json.
#[derive(Clone, Debug, Deserialize)]
pub struct ResultCase {
    /// Case id.
    pub id: String,
    /// Swept values.
    pub labels: BTreeMap<String, Scalar>,
    /// Column → value, or statistics.
    pub metrics: Map<String, Value>,
    /// The self-audit.
    pub audit: CaseAudit,
    /// The objectives.
    #[serde(default)]
    pub slo: Vec<CaseObjective>,
    /// The counts of requests.
    pub counts: CaseCounts,
}

/// The self-audit of a case.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct CaseAudit {
    /// Whether the measurement is valid.
    pub valid: bool,
}

/// An objective of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct CaseObjective {
    /// `ttft.p95 < 500ms`.
    pub expr: String,
    /// Its verdict.
    pub verdict: String,
    /// The confidence bound that decided it.
    #[serde(default)]
    pub bound: Option<f64>,
}

/// The counts of a case.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct CaseCounts {
    /// Requests scheduled.
    pub scheduled: u64,
}

impl ResultCase {
    /// Whether the self-audit accepted the case and each of its objectives.
    fn is_valid(&self) -> bool {
        self.audit.valid
            && self
                .slo
                .iter()
                .all(|objective| objective.verdict != "invalid")
    }

    fn value(&self, measure: Measure) -> Option<f64> {
        let metric = self.metrics.get(measure.metric.column())?;
        let value = match measure.stat {
            Some(stat) => metric.get(stat.to_string())?,
            None => metric,
        };
        value.as_f64().filter(|value| value.is_finite())
    }

    /// The confidence bound of an objective about the measure.
    fn bound(&self, measure: Measure) -> Option<f64> {
        let name = measure.to_string();
        let is_about = |objective: &&CaseObjective| {
            let operator = objective.expr.find(['<', '>', '=']);
            operator.is_some_and(|at| objective.expr[..at].trim() == name)
        };
        self.slo.iter().find(is_about)?.bound
    }
}

/// A run of a history.
#[derive(Clone, Debug)]
pub struct HistoryRun {
    /// Its folder, as it was found.
    pub folder: String,
    /// Link to its report.html, relative to the page; None if there is none.
    pub link: Option<String>,
    /// The results.
    pub results: Results,
    /// plan.yaml; empty if there is none.
    pub plan: String,
    /// The number of its work: runs with the same one did the same work on the same target.
    pub work: usize,
}

impl HistoryRun {
    /// `2026-01-31 02:00`.
    pub fn date(&self) -> String {
        let text = &self.results.started_at;
        text.get(..16).unwrap_or(text).replace('T', " ")
    }
}

/// The rules of a history.
#[derive(Clone, Debug)]
pub struct HistoryOptions {
    /// The measures.
    pub measures: Vec<Measure>,
    /// Probability of any false alarm on the page, at most.
    pub alpha: f64,
    /// Number of runs that count as the latest.
    pub latest: usize,
    /// A change for the worse counts if it is greater than this, as a share of the level before.
    pub max_regression: f64,
}

/// The runs and what became of their metrics.
#[derive(Clone, Debug)]
pub struct History {
    /// The rules.
    pub options: HistoryOptions,
    /// The runs by start time.
    pub runs: Vec<HistoryRun>,
    /// Folders that are left out, with the reason.
    pub left_out: Vec<(String, String)>,
    /// Series by scenario, case and measure.
    pub series: Vec<Series>,
    /// Number of series that are long enough for a test.
    pub tested: usize,
}

/// One metric of one case over the runs.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name of the scenario.
    pub scenario: String,
    /// Case id.
    pub case: String,
    /// The number of its work, see [`HistoryRun::work`].
    pub work: usize,
    /// The case id, with the date of its last run if later runs of the case did other work.
    pub title: String,
    /// Whether later runs did other work, and none of the latest runs did this one.
    pub is_ended: bool,
    /// The measure.
    pub measure: Measure,
    /// The values, one per run that has the metric.
    pub points: Vec<Point>,
    /// The changes, ascending.
    pub changes: Vec<Change>,
}

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Index of the run.
    pub run: usize,
    /// The value, in the metric's unit.
    pub value: f64,
    /// The confidence bound of an objective.
    pub bound: Option<f64>,
    /// Whether it counts.
    pub valid: bool,
    /// Requests scheduled.
    scheduled: u64,
}

/// A change of the level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the last run with the old level.
    pub last: usize,
    /// Index of the first run with the new level.
    pub first: usize,
    /// The level before: the geometric mean, the arithmetic one for shares.
    pub before: f64,
    /// The level since.
    pub after: f64,
    /// p-value.
    pub p: f64,
    /// Whether the change was found by the test of the latest runs.
    pub by_latest: bool,
    /// Whether it is among the latest runs, for the worse, and greater than allowed.
    pub is_regression: bool,
}

impl Change {
    /// The new level ÷ the old one; None if the old one is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.after / self.before)
    }

    /// By how much the level became worse, as a share of the old one; negative: better.
    pub fn worsening(&self, metric: Metric) -> f64 {
        let change = self.ratio().map_or(f64::INFINITY, |ratio| ratio - 1.0);
        if metric.higher_is_better() {
            -change
        } else {
            change
        }
    }
}

impl Series {
    /// The values that count.
    fn valid(&self) -> Vec<Point> {
        self.points.iter().copied().filter(|it| it.valid).collect()
    }

    /// Whether there are enough values for a test.
    pub fn is_tested(&self) -> bool {
        self.valid().len() > MIN_RUNS_FOR_SPREAD
    }

    /// Whether the latest runs are worse.
    pub fn is_regression(&self) -> bool {
        self.changes.iter().any(|change| change.is_regression)
    }

    /// Whether values are compared by their ratio.
    fn is_relative(&self) -> bool {
        self.measure.metric.unit() != Unit::Share && self.points.iter().all(|it| it.value > 0.0)
    }

    /// The level of some values.
    fn level(&self, points: &[Point]) -> f64 {
        let values = points.iter().map(|point| point.value);
        let level = if self.is_relative() {
            mean(&values.map(f64::ln).collect::<Vec<_>>()).map(f64::exp)
        } else {
            mean(&values.collect::<Vec<_>>())
        };
        level.unwrap_or(f64::NAN)
    }

    /// The levels between the changes: first and last run, and level.
    pub fn levels(&self) -> Vec<(usize, usize, f64)> {
        let valid = self.valid();
        let mut levels = Vec::new();
        let mut rest = valid.as_slice();
        let starts = self.changes.iter().map(|change| change.first);
        for until in starts.chain([usize::MAX]) {
            let size = rest.partition_point(|point| point.run < until);
            let (segment, others) = rest.split_at(size);
            if let (Some(first), Some(last)) = (segment.first(), segment.last()) {
                levels.push((first.run, last.run, self.level(segment)));
            }
            rest = others;
        }
        levels
    }

    /// The least standard deviation of a share of requests in the latest run: that of a binomial count with the rate
    /// of all runs. Without it, a first failed request after many runs without any would be a change.
    fn least_noise(&self, valid: &[Point]) -> f64 {
        if !self.measure.metric.is_request_share() {
            return 0.0;
        }
        let scheduled: f64 = valid.iter().map(|point| point.scheduled as f64).sum();
        let failed: f64 = valid
            .iter()
            .map(|point| point.value * point.scheduled as f64)
            .sum();
        let share = (failed + 1.0) / (scheduled + 2.0);
        let n = valid
            .last()
            .map_or(1.0, |point| point.scheduled.max(1) as f64);
        (share * (1.0 - share) / n).sqrt()
    }

    fn find_changes(&mut self, level: f64, options: &HistoryOptions) {
        let valid = self.valid();
        let is_relative = self.is_relative();
        let scale = |point: &Point| {
            if is_relative {
                point.value.ln()
            } else {
                point.value
            }
        };
        let values: Vec<f64> = valid.iter().map(scale).collect();
        let seed = SEED.child(self.scenario.as_str()).child(self.case.as_str());
        let seed = seed.child(self.measure.to_string().as_str());
        let mut found: Vec<(ChangePoint, bool)> = change_points(&values, level, seed)
            .into_iter()
            .map(|change| (change, false))
            .collect();
        let from = found.last().map_or(0, |(change, _)| change.index);
        let segment = values.get(from..).unwrap_or_default();
        let latest = latest_change(
            segment,
            level,
            options.latest,
            MIN_RUNS_FOR_SPREAD,
            self.least_noise(&valid),
        );
        found.extend(latest.map(|change| {
            let index = change.index + from;
            (ChangePoint { index, ..change }, true)
        }));
        let starts: Vec<usize> = found.iter().map(|(change, _)| change.index).collect();
        let change = |(place, (change, by_latest)): (usize, &(ChangePoint, bool))| {
            let from = place.checked_sub(1).and_then(|it| starts.get(it)).copied();
            let until = starts.get(place + 1).copied().unwrap_or(valid.len());
            let old = valid.get(from.unwrap_or(0)..change.index)?;
            let new = valid.get(change.index..until)?;
            let mut change = Change {
                last: old.last()?.run,
                first: new.first()?.run,
                before: self.level(old),
                after: self.level(new),
                p: change.p,
                by_latest: *by_latest,
                is_regression: !self.is_ended && change.index + options.latest >= valid.len(),
            };
            change.is_regression &= change.worsening(self.measure.metric) > options.max_regression;
            Some(change)
        };
        self.changes = found.iter().enumerate().filter_map(change).collect();
    }
}

impl History {
    /// Builds the series of the runs and finds their changes.
    pub fn new(
        mut runs: Vec<HistoryRun>,
        left_out: Vec<(String, String)>,
        options: HistoryOptions,
    ) -> History {
        runs.sort_by(|a, b| {
            let key = |run: &HistoryRun| (run.results.started_at.clone(), run.folder.clone());
            key(a).cmp(&key(b))
        });
        let mut series = collect_series(&runs, &options);
        let tested = series.iter().filter(|series| series.is_tested()).count();
        let level = options.alpha / 2.0 / tested.max(1) as f64;
        for series in &mut series {
            series.find_changes(level, &options);
        }
        History {
            options,
            runs,
            left_out,
            series,
            tested,
        }
    }

    /// Whether the latest runs are tested in any series.
    pub fn tests_latest(&self) -> bool {
        let mut series = self.series.iter();
        series.any(|series| series.is_tested() && !series.is_ended)
    }

    /// Whether the latest runs are worse in any series.
    pub fn is_regression(&self) -> bool {
        self.series.iter().any(Series::is_regression)
    }
}

/// The series, in the order of the newest run of each case. The runs of a series did the same work.
fn collect_series(runs: &[HistoryRun], options: &HistoryOptions) -> Vec<Series> {
    type Key<'a> = (&'a str, String, usize);
    let mut keys: Vec<Key<'_>> = Vec::new();
    let mut cases: BTreeMap<Key<'_>, Vec<(usize, &ResultCase)>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate().rev() {
        for case in &run.results.cases {
            let labels = serde_json::to_string(&case.labels).unwrap_or_default();
            let key = (run.results.name.as_str(), labels, run.work);
            if !cases.contains_key(&key) {
                keys.push(key.clone());
            }
            cases.entry(key).or_default().push((index, case));
        }
    }
    let mut all = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        let found = cases.get(key).map_or(&[][..], Vec::as_slice);
        let Some((last, newest)) = found.first() else {
            continue;
        };
        let is_earlier = |later: &&Key<'_>| (later.0, &later.1) == (key.0, &key.1);
        let has_later = keys.iter().take(place).any(|later| is_earlier(&later));
        let date = runs.get(*last).map(HistoryRun::date).filter(|_| has_later);
        let title = date.map_or_else(
            || newest.id.clone(),
            |date| format!("{} (last run {date})", newest.id),
        );
        let is_ended = has_later && last + options.latest < runs.len();
        for &measure in &options.measures {
            let point = |(run, case): &(usize, &ResultCase)| {
                // Throughputs of earlier versions include the drain and are not comparable.
                let results = &runs.get(*run)?.results;
                let is_comparable = results.throughput_definition.is_some()
                    || !Metric::WINDOWED.contains(&measure.metric);
                Some(Point {
                    run: *run,
                    value: case.value(measure).filter(|_| is_comparable)?,
                    bound: case.bound(measure),
                    valid: case.is_valid(),
                    scheduled: case.counts.scheduled,
                })
            };
            let points: Vec<Point> = found.iter().rev().filter_map(point).collect();
            if !points.is_empty() {
                all.push(Series {
                    scenario: key.0.to_owned(),
                    case: newest.id.clone(),
                    work: key.2,
                    title: title.clone(),
                    is_ended,
                    measure,
                    points,
                    changes: Vec::new(),
                });
            }
        }
    }
    all
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Normal};
    use serde_json::json;

    fn options(measures: &[Measure]) -> HistoryOptions {
        HistoryOptions {
            measures: measures.to_vec(),
            alpha: 0.05,
            latest: 5,
            max_regression: 0.05,
        }
    }

    /// A run with one case; its number is its time.
    fn run(number: usize, ttft: f64, errors: f64) -> HistoryRun {
        let results = json!({
            "name": "chat", "run_id": format!("r{number}"), "tool_version": "1",
            "started_at": format!("2026-01-01T00:{number:03}"), "verdict": "pass", "interrupted": false,
            "machine": Machine::default(), "targets": {}, "throughput_definition": "without_drain",
            "cases": [{ "id": "base", "labels": {}, "audit": { "valid": true }, "counts": { "scheduled": 200 },
                "slo": [{ "expr": "ttft.p50 < 1s", "verdict": "pass", "bound": ttft * 1.1 }],
                "metrics": { "ttft_ms": { "p50": ttft }, "error_rate": errors } }],
        });
        HistoryRun {
            folder: format!("{number}"),
            link: None,
            results: serde_json::from_value(results).unwrap(),
            plan: String::new(),
            work: 0,
        }
    }

    fn noisy(seed: u64, runs: usize) -> Vec<HistoryRun> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let noise = Normal::new(0.0f64, 0.03).unwrap();
        (0..runs)
            .map(|number| run(number, 100.0 * noise.sample(&mut random).exp(), 0.0))
            .collect()
    }

    fn history(runs: Vec<HistoryRun>) -> History {
        History::new(runs, Vec::new(), options(&DEFAULT_MEASURES))
    }

    #[test]
    fn a_regression_of_the_latest_runs_is_one_and_an_old_or_allowed_one_is_none() {
        let shifted = |from: usize, factor: f64| {
            let mut runs = noisy(1, 30);
            for run in &mut runs[from..] {
                let value = run.results.cases[0].metrics["ttft_ms"]["p50"].as_f64();
                run.results.cases[0].metrics["ttft_ms"]["p50"] = json!(value.unwrap() * factor);
            }
            history(runs)
        };
        assert!(!shifted(30, 1.0).is_regression());
        let last = shifted(29, 1.3);
        assert!(last.is_regression());
        let change = last.series[0].changes[0];
        assert_eq!(
            (change.last, change.first, change.by_latest),
            (28, 29, true)
        );
        assert!((change.ratio().unwrap() - 1.3).abs() < 0.1, "{change:?}");
        assert!(shifted(26, 1.2).is_regression());
        let old = shifted(15, 1.2);
        assert!(!old.is_regression() && old.series[0].changes.len() == 1);
        assert_eq!(old.series[0].levels().len(), 2);
        assert!(!shifted(26, 0.8).is_regression(), "lower is better");
        let mut lenient = options(&DEFAULT_MEASURES);
        lenient.max_regression = 0.5;
        let again = History::new(last.runs.clone(), Vec::new(), lenient);
        assert!(!again.is_regression() && !again.series[0].changes.is_empty());
    }

    #[test]
    fn an_invalid_case_is_shown_and_does_not_count() {
        let mut runs = noisy(2, 20);
        let last = &mut runs[19].results.cases[0];
        last.metrics["ttft_ms"] = json!({ "p50": 500.0 });
        assert!(history(runs.clone()).is_regression());
        runs[19].results.cases[0].audit.valid = false;
        let history = history(runs);
        assert!(!history.is_regression());
        let point = history.series[0].points[19];
        assert_eq!(
            (point.value, point.valid, point.bound.is_some()),
            (500.0, false, true)
        );
    }

    #[test]
    fn runs_that_did_other_work_are_another_series() {
        let mut runs = noisy(5, 14);
        for run in &mut runs[7..] {
            run.work = 1;
            run.results.cases[0].metrics["ttft_ms"] = json!({ "p50": 300.0 });
        }
        let history = history(runs);
        let ttft: Vec<&Series> = history
            .series
            .iter()
            .filter(|series| series.measure.metric == Metric::Ttft)
            .collect();
        let titles: Vec<&str> = ttft.iter().map(|series| series.title.as_str()).collect();
        assert_eq!(titles, ["base", "base (last run 2026-01-01 00:00)"]);
        assert!(
            ttft.iter()
                .all(|series| series.points.len() == 7 && series.changes.is_empty())
        );
    }

    #[test]
    fn a_regression_at_the_end_of_other_work_is_none_of_the_latest_runs() {
        let with_later = |later: usize| {
            let mut runs = noisy(6, 20 + later);
            for run in &mut runs[18..20] {
                run.results.cases[0].metrics["ttft_ms"] = json!({ "p50": 150.0 });
            }
            for run in &mut runs[20..] {
                run.work = 1;
            }
            history(runs)
        };
        let is_regression = |later: usize| with_later(later).is_regression();
        assert!(is_regression(0) && is_regression(3), "the latest five runs");
        assert!(!is_regression(6));
        // Five runs of the new work are too few for a test; those of the old one count towards the rate of false
        // alarms.
        let untested = with_later(5);
        assert!(!untested.tests_latest() && untested.tested == 2);
        assert!(with_later(6).tests_latest() && with_later(6).tested == 4);
    }

    #[test]
    fn one_failed_request_after_none_is_no_change_and_many_are() {
        let with_errors = |share: f64| {
            let mut runs = noisy(3, 20);
            runs[19].results.cases[0].metrics["error_rate"] = json!(share);
            history(runs).is_regression()
        };
        assert!(!with_errors(0.005) && with_errors(0.2));
    }

    #[test]
    fn older_throughputs_are_not_compared() {
        let mut runs = noisy(4, 4);
        for run in &mut runs {
            let metrics = &mut run.results.cases[0].metrics;
            metrics.insert("output_tps".into(), json!(5.0));
        }
        runs[0].results.throughput_definition = None;
        let history = history(runs);
        let series = history
            .series
            .iter()
            .find(|series| series.measure.metric == Metric::OutputTps);
        assert_eq!(series.unwrap().points.len(), 3);
    }

    #[test]
    fn pages_without_a_change_have_few_alarms() {
        let alarms = (0..100)
            .filter(|seed| {
                let history = history(noisy(100 + seed, 20));
                history
                    .series
                    .iter()
                    .any(|series| !series.changes.is_empty())
            })
            .count();
        let low = crate::stats::share::lower(alarms as f64, 100.0, 0.999);
        assert!(low <= 0.05, "{alarms} of 100");
    }
}
