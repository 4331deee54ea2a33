//! The largest load of each configuration that meets its objectives, ranked: of capacity searches, or of ladders of loads.

use crate::format::{ABSENT, number, value};
use crate::search::{found_load, interval, varied_key};
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::check::Ruling;
use llmscen_core::label::{Labels, describe};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::search::{Goal, SearchReport};

/// The capacity of one configuration.
struct Capacity<'a> {
    /// The swept values besides the load.
    labels: Labels,
    /// The largest load that meets the objectives; None if none does.
    load: Option<f64>,
    /// What is known of it, as text.
    range: String,
    /// The case at that load, or at any load if none meets the objectives.
    case: Option<&'a CaseReport>,
}

impl Capacity<'_> {
    fn scalar(&self, metric: Metric) -> Option<f64> {
        self.case?.scalars.get(&metric).copied()
    }

    /// `target.gpus`, by which the throughput per GPU is divided.
    fn gpus(&self) -> Option<f64> {
        let gpus = self.scalar(Metric::OutputTps)? / self.scalar(Metric::OutputTpsPerGpu)?;
        Some(gpus.round()).filter(|gpus| *gpus >= 1.0)
    }

    fn load_per_gpu(&self) -> Option<f64> {
        Some(self.load? / self.gpus()?)
    }
}

/// The configurations of a report, ranked by the capacity per GPU, or by the capacity where the number of GPUs is not known; empty
/// for fewer than two.
pub(super) fn table(report: &Report) -> Table {
    let (name, unit, mut capacities) = match report.searches.as_slice() {
        [] => of_ladders(report),
        searches => of_searches(report, searches),
    };
    if capacities.len() < 2 {
        capacities.clear();
    }
    let per_gpu = capacities.iter().all(|capacity| capacity.gpus().is_some());
    let rank = |capacity: &Capacity<'_>| {
        let load = if per_gpu {
            capacity.load_per_gpu()
        } else {
            capacity.load
        };
        load.unwrap_or(f64::NEG_INFINITY)
    };
    capacities.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    let priced = capacities.iter().any(|capacity| {
        capacity
            .scalar(Metric::CostPerMillionOutputTokens)
            .is_some()
    });
    let load = |load: Option<f64>| {
        let text = load.map_or_else(
            || ABSENT.to_owned(),
            |load| format!("{}{unit}", plain_number(load)),
        );
        Cell::figure(text, load)
    };
    let mut columns = vec![
        Column::number().documents("Rank").terminal("RANK", 1),
        Column::text()
            .documents("Configuration")
            .terminal("CONFIGURATION", 0),
        Column::number()
            .documents(&format!("Maximum {name}"))
            .terminal("MAXIMUM", 0),
        Column::text().documents("Evidence").terminal("EVIDENCE", 0),
    ];
    if per_gpu {
        columns.extend([
            Column::number().documents("GPUs").terminal("GPUS", 2),
            Column::number().documents("Per GPU").terminal("PER GPU", 0),
            Column::number()
                .documents("Output tok/s per GPU")
                .terminal("TOK/S/GPU", 2),
        ]);
    }
    if priced {
        columns.push(
            Column::number()
                .documents("Cost of 1M output tokens")
                .terminal("COST/1M OUT", 1),
        );
    }
    let row = |(index, capacity): (usize, &Capacity<'_>)| {
        let labels = capacity.labels.0.iter();
        let name: Vec<String> = labels.map(|(path, value)| describe(path, value)).collect();
        let at_load = |metric: Metric| capacity.scalar(metric).filter(|_| capacity.load.is_some());
        let figure = |metric: Metric| {
            let known = at_load(metric);
            let text = known.map_or_else(|| ABSENT.to_owned(), |known| value(known, metric.unit()));
            Cell::figure(text, known)
        };
        let mut cells = vec![
            Cell::count(index as u64 + 1),
            Cell::prose(&name.join(", ")),
            load(capacity.load),
            Cell::prose(&capacity.range),
        ];
        if per_gpu {
            let gpus = capacity.gpus();
            cells.extend([
                Cell::figure(gpus.map_or_else(|| ABSENT.to_owned(), plain_number), gpus),
                load(capacity.load_per_gpu()),
                figure(Metric::OutputTpsPerGpu),
            ]);
        }
        if priced {
            cells.push(figure(Metric::CostPerMillionOutputTokens));
        }
        Row::new(cells)
    };
    Table::new(columns, capacities.iter().enumerate().map(row).collect())
}

/// A whole number as it is, others with three digits.
fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 {
        value.to_string()
    } else {
        number(value)
    }
}

/// The name of the load, its unit, and the capacity that each search found.
fn of_searches<'a>(
    report: &'a Report,
    searches: &'a [SearchReport],
) -> (String, &'static str, Vec<Capacity<'a>>) {
    let (name, unit) = searches
        .first()
        .map(|search| varied_key(&search.spec))
        .unwrap_or_default();
    let capacity = |search: &SearchReport| {
        let load = found_load(report, search);
        let nearest = search.probes.iter().min_by(|a, b| {
            let distance = |probe_load: f64| (probe_load - load.unwrap_or(0.0)).abs();
            distance(a.load).total_cmp(&distance(b.load))
        });
        let id = nearest.map(|probe| probe.case.as_str());
        Capacity {
            labels: search.labels.clone(),
            load,
            range: interval(search),
            case: report
                .cases
                .iter()
                .find(|case| Some(case.id.as_str()) == id),
        }
    };
    let ranked = searches
        .iter()
        .filter(|search| search.spec.goal == Goal::Slo);
    (name, unit, ranked.map(capacity).collect())
}

/// The same of ladders: the cases that differ in their load only, of which all are judged.
fn of_ladders(report: &Report) -> (String, &'static str, Vec<Capacity<'_>>) {
    let axis = report.cases.first().map_or("", |case| case.load_axis);
    let none = || (axis.to_owned(), "", Vec::new());
    let is_judged = |case: &CaseReport| {
        !case.is_stage()
            && case.load_axis == axis
            && case.load_value.is_some()
            && !case.verdicts.is_empty()
    };
    if !report.cases.iter().all(is_judged) {
        return none();
    }
    let mut groups: Vec<(Labels, Vec<&CaseReport>)> = Vec::new();
    for case in &report.cases {
        let others = case
            .labels
            .0
            .iter()
            .filter(|(path, _)| !path.starts_with("load."));
        let labels = Labels(others.cloned().collect());
        match groups.iter_mut().find(|(known, _)| *known == labels) {
            Some((_, cases)) => cases.push(case),
            None => groups.push((labels, vec![case])),
        }
    }
    if groups.iter().any(|(_, cases)| cases.len() < 2) {
        return none();
    }
    let unit = if axis == "rate" { "/s" } else { "" };
    let capacities = groups
        .into_iter()
        .map(|(labels, cases)| of_ladder(labels, cases, unit))
        .collect();
    (axis.to_owned(), unit, capacities)
}

/// The largest load of a ladder up to which all cases pass.
fn of_ladder<'a>(labels: Labels, mut cases: Vec<&'a CaseReport>, unit: &str) -> Capacity<'a> {
    let load = |case: &CaseReport| case.load_value.unwrap_or_default();
    cases.sort_by(|a, b| load(a).total_cmp(&load(b)));
    let passes = |case: &&&CaseReport| {
        case.verdicts
            .iter()
            .all(|verdict| verdict.ruling == Ruling::Pass)
    };
    let passed = cases.iter().take_while(passes).count();
    let best = passed.checked_sub(1).and_then(|at| cases.get(at)).copied();
    let text = |case: Option<&&CaseReport>| {
        case.map_or_else(String::new, |case| {
            format!("{}{unit}", plain_number(load(case)))
        })
    };
    let range = match (best, cases.get(passed)) {
        (None, next) => format!("{} does not pass", text(next)),
        (Some(_), None) => "the whole ladder passes".to_owned(),
        (Some(_), next) => format!("{} does not pass", text(next)),
    };
    Capacity {
        labels,
        load: best.map(load),
        range,
        case: best.or(cases.first().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{observed, report_of};
    use llmscen_core::label::{Scalar, VARIANT};
    use llmscen_core::report::RunVerdict;

    /// A case of a variant on so many GPUs.
    fn case(variant: &str, users: i64, ruling: Ruling, gpus: f64) -> CaseReport {
        let mut case = observed();
        case.id = format!("{variant},concurrency={users}");
        case.labels = Labels(vec![
            (VARIANT.to_owned(), Scalar::Text(variant.to_owned())),
            ("load.concurrency".to_owned(), Scalar::Int(users)),
        ]);
        case.load_value = Some(users as f64);
        case.load_axis = "concurrency";
        case.verdicts.truncate(1);
        case.verdicts
            .iter_mut()
            .for_each(|verdict| verdict.ruling = ruling);
        case.scalars.extend([
            (Metric::OutputTps, 400.0),
            (Metric::OutputTpsPerGpu, 400.0 / gpus),
        ]);
        case
    }

    #[test]
    fn variants_are_ranked_by_what_a_gpu_carries() {
        use Ruling::{Fail, Inconclusive, Pass};
        let report = report_of(
            vec![
                case("tp8", 8, Pass, 8.0),
                case("tp8", 16, Pass, 8.0),
                case("tp2", 8, Pass, 2.0),
                case("tp2", 16, Inconclusive, 2.0),
                case("tp1", 16, Pass, 1.0),
                case("tp1", 8, Fail, 1.0),
            ],
            RunVerdict::Fail,
            1,
        );
        let text = table(&report).markdown();
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip(2)
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(
            rows,
            [
                ["1", "tp2", "8", "16 does not pass", "2", "4", "200 tok/s"],
                [
                    "2",
                    "tp8",
                    "16",
                    "the whole ladder passes",
                    "8",
                    "2",
                    "50 tok/s"
                ],
                ["3", "tp1", "n/a", "8 does not pass", "1", "n/a", "n/a"],
            ],
            "{text}"
        );
    }

    #[test]
    fn one_ladder_is_not_ranked() {
        let report = report_of(
            vec![
                case("a", 8, Ruling::Pass, 1.0),
                case("a", 16, Ruling::Fail, 1.0),
            ],
            RunVerdict::Fail,
            1,
        );
        assert!(table(&report).rows.is_empty());
    }
}
