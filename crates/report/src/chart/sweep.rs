//! The cases of a report as groups over load.

use crate::chart::axis::Axis;
use crate::chart::pick::{CaseNames, evenly_spaced, shown};
use crate::chart::style::{Stroke, category};
use llmscen_core::check::Ruling;
use llmscen_core::label::{Labels, STAGE, describe};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report, Series};

/// The most groups of one chart.
const MAX_GROUPS: usize = 6;

/// The cases on one load axis.
pub struct Sweep<'a> {
    /// `concurrency` or `rate`.
    pub axis: &'static str,
    /// Cases that differ only in load; at most six groups.
    pub groups: Vec<Group<'a>>,
    /// `6 of 20 groups shown`; empty if all are.
    pub remark: String,
}

/// Cases that differ only in load, by rising load.
pub struct Group<'a> {
    /// The values that distinguish the group; empty if it is the only one.
    pub label: String,
    /// All values of the group, the same in every run.
    pub key: String,
    /// The cases.
    pub cases: Vec<&'a CaseReport>,
}

impl<'a> Sweep<'a> {
    /// The sweep on the load axis with the most cases; None with fewer than two loads on it.
    pub fn from_report(report: &'a Report) -> Option<Sweep<'a>> {
        let on = |axis| {
            let is_on_axis = move |case: &&CaseReport| {
                case.load_axis == axis && case.load_value.is_some() && case.counts.ok > 0
            };
            report
                .cases
                .iter()
                .filter(is_on_axis)
                .filter(|case| !case.is_stage() || stages_form_a_line(report, case))
        };
        let axis = ["concurrency", "rate"]
            .into_iter()
            .max_by_key(|axis| (on(*axis).count(), *axis == "concurrency"))?;
        let mut loads: Vec<f64> = on(axis).filter_map(|case| case.load_value).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        if loads.len() < 2 {
            return None;
        }
        let all = group_cases(on(axis));
        let found = all.len();
        let kept = evenly_spaced(found, MAX_GROUPS);
        let groups: Vec<Group> = all
            .into_iter()
            .enumerate()
            .filter(|(index, _)| kept.contains(index))
            .map(|(_, group)| group)
            .collect();
        let remark = shown(groups.len(), found, "groups");
        Some(Sweep {
            axis,
            groups,
            remark,
        })
    }

    /// The horizontal axis.
    pub fn x(&self) -> Axis {
        let title = if self.axis == "rate" {
            "offered rate (req/s)"
        } else {
            "concurrency (requests in flight)"
        };
        let loads: Vec<f64> = self.cases().filter_map(|case| case.load_value).collect();
        Axis::loads(title, &loads)
    }

    /// The shown cases.
    pub fn cases(&self) -> impl Iterator<Item = &'a CaseReport> + '_ {
        self.groups
            .iter()
            .flat_map(|group| group.cases.iter().copied())
    }

    /// The stroke of the line of a group.
    pub fn stroke(&self, index: usize) -> Stroke {
        Stroke::solid(category(index, self.groups.len()))
    }
}

impl Group<'_> {
    /// The index of the highest load up to which every objective passes; None if the lowest load already misses one,
    /// or without objectives.
    pub fn max_load(&self) -> Option<usize> {
        let passes = |case: &&&CaseReport| {
            let mut verdicts = case.verdicts.iter();
            !case.verdicts.is_empty() && verdicts.all(|it| it.ruling == Ruling::Pass)
        };
        self.cases.iter().take_while(passes).count().checked_sub(1)
    }

    /// A value of each case over its load; cases without the value are omitted.
    pub fn points(&self, value: impl Fn(&CaseReport) -> Option<f64>) -> Series {
        self.cases
            .iter()
            .filter_map(|case| Some((case.load_value?, value(case)?)))
            .collect()
    }

    /// A quantile over load.
    pub fn quantile(&self, metric: Metric, share: f64) -> Series {
        self.points(|case| case.distributions.get(&metric)?.quantile(share))
    }
}

/// Whether the stages of this case form a line over load: each has a load, and no two are equal.
fn stages_form_a_line(report: &Report, stage: &CaseReport) -> bool {
    let label = label_without_load(&stage.labels);
    let stages = || {
        report
            .cases
            .iter()
            .filter(|case| case.is_stage() && label_without_load(&case.labels) == label)
    };
    let mut loads: Vec<f64> = stages().filter_map(|case| case.load_value).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads.len() == stages().count()
}

fn group_cases<'a>(cases: impl Iterator<Item = &'a CaseReport>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for case in cases {
        let key = label_without_load(&case.labels);
        match groups.iter_mut().find(|group| group.key == key) {
            Some(group) => group.cases.push(case),
            None => groups.push(Group {
                label: String::new(),
                key,
                cases: vec![case],
            }),
        }
    }
    let firsts: Vec<&CaseReport> = groups
        .iter()
        .filter_map(|group| group.cases.first().copied())
        .collect();
    let names = CaseNames::new(&firsts).without_load();
    for (group, first) in groups.iter_mut().zip(firsts) {
        group.label = Some(names.legend(first))
            .filter(|label| !label.is_empty())
            .unwrap_or_else(|| group.key.clone());
        group.cases.sort_by(|a, b| {
            a.load_value
                .unwrap_or(0.0)
                .total_cmp(&b.load_value.unwrap_or(0.0))
        });
    }
    groups
}

fn label_without_load(labels: &Labels) -> String {
    let others = labels
        .0
        .iter()
        .filter(|(path, _)| path != "load.concurrency" && path != "load.rate" && path != STAGE);
    let short = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    others
        .map(|(path, value)| describe(&short(path), value))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of, sweep};
    use llmscen_core::label::Scalar;

    #[test]
    fn one_load_is_no_sweep() {
        assert!(Sweep::from_report(&sweep(1)).is_none());
        assert!(
            Sweep::from_report(&report_of(vec![case(4), case(4)], Default::default(), 0)).is_none()
        );
        assert!(Sweep::from_report(&report_of(Vec::new(), Default::default(), 0)).is_none());
    }

    #[test]
    fn stages_are_a_line_only_if_each_has_a_different_load() {
        let staged = |loads: &[Option<f64>]| {
            let stage = |(index, load): (usize, &Option<f64>)| {
                let mut stage = case(4);
                stage.labels = Labels(vec![(STAGE.into(), Scalar::Int(index as i64 + 1))]);
                (stage.load_axis, stage.load_value) = ("rate", *load);
                stage
            };
            report_of(
                loads.iter().enumerate().map(stage).collect(),
                Default::default(),
                0,
            )
        };
        let rising = staged(&[Some(10.0), Some(20.0), Some(40.0)]);
        let sweep = Sweep::from_report(&rising).unwrap();
        assert_eq!((sweep.groups.len(), sweep.groups[0].cases.len()), (1, 3));
        assert!(
            Sweep::from_report(&staged(&[Some(40.0), None, Some(200.0)])).is_none(),
            "one has no load"
        );
        assert!(
            Sweep::from_report(&staged(&[Some(40.0), Some(200.0), Some(40.0)])).is_none(),
            "two are equal"
        );
    }

    #[test]
    fn engines_are_groups_with_short_names() {
        let with_url = |url: &str, users: u32| {
            let mut case = case(users);
            case.labels.0.insert(
                0,
                (
                    "target.url".into(),
                    Scalar::Text(format!("http://10.0.0.7:{url}/v1")),
                ),
            );
            case
        };
        let report = report_of(
            [1, 8]
                .iter()
                .flat_map(|users| [with_url("8000", *users), with_url("8001", *users)])
                .collect(),
            Default::default(),
            0,
        );
        let sweep = Sweep::from_report(&report).unwrap();
        let named: Vec<(&str, usize)> = sweep
            .groups
            .iter()
            .map(|group| (group.label.as_str(), group.cases.len()))
            .collect();
        assert_eq!(named, [("10.0.0.7:8000", 2), ("10.0.0.7:8001", 2)]);
        assert_ne!(sweep.stroke(0).color, sweep.stroke(1).color);
    }

    #[test]
    fn cases_are_grouped_by_all_but_their_load() {
        let mut report = sweep(12);
        for (index, case) in report.cases.iter_mut().enumerate() {
            case.labels
                .0
                .push(("request.max_tokens".into(), Scalar::Int(128 << (index % 2))));
        }
        report.cases.reverse();
        let sweep = Sweep::from_report(&report).unwrap();
        let labels: Vec<&str> = sweep
            .groups
            .iter()
            .map(|group| group.label.as_str())
            .collect();
        assert_eq!(
            (labels, sweep.axis),
            (vec!["max_tokens=256", "max_tokens=128"], "concurrency")
        );
        let loads: Vec<f64> = sweep.groups[1]
            .points(|case| case.load_value)
            .iter()
            .map(|(x, _)| *x)
            .collect();
        assert_eq!(loads, [1.0, 4.0, 12.0, 24.0, 48.0, 96.0]);
    }
}
