//! The largest load of each configuration that meets its objectives, ranked: of capacity searches, or of ladders of loads.

use crate::format::{ABSENT, value};
use crate::search::{fate, found_load, interval, plain_number, short_name, varied_key};
use crate::table::{Cell, Column, Row, Table};
use llmscen_core::check::Ruling;
use llmscen_core::label::Labels;
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::search::{Fate, Goal, SearchReport, Standing};

/// The capacities of a report.
pub(super) struct Capacities<'a> {
    /// The quantity of the load, and its unit.
    pub(super) load_name: String,
    pub(super) unit: &'static str,
    /// Whether they are ranked per GPU: `target.gpus` is known of all.
    pub(super) per_gpu: bool,
    /// Probability of the intervals; None for ladders, whose next load does not pass.
    pub(super) mass: Option<f64>,
    /// The best first.
    pub(super) ranked: Vec<Capacity<'a>>,
}

/// The capacity of one configuration.
pub(super) struct Capacity<'a> {
    /// The swept values besides the load.
    labels: Labels,
    /// The largest load that meets the objectives; None if none does.
    pub(super) load: Option<f64>,
    /// The load between these ends is the largest one, each None where the range or the ladder ends.
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    /// What is known of it, as text.
    range: String,
    /// The case at that load, or at any load if none meets the objectives.
    case: Option<&'a CaseReport>,
    pub(super) gpus: Option<f64>,
    /// Its search, if it has one.
    search: Option<&'a SearchReport>,
}

impl Capacity<'_> {
    pub(super) fn name(&self) -> String {
        short_name(&self.labels)
    }

    fn scalar(&self, metric: Metric) -> Option<f64> {
        self.case?.scalars.get(&metric).copied()
    }

    /// The group of candidates that it belongs to, and where it is in it: by how far it came.
    fn place(&self) -> (usize, usize) {
        let Some(candidacy) = self.search.and_then(|search| search.candidacy.as_ref()) else {
            return (0, 0);
        };
        let rung = candidacy.standings.last().map_or(0, |last| last.rung);
        let place = match &candidacy.fate {
            Some(Fate::Best) => 0,
            Some(Fate::Failed(_)) => usize::MAX,
            _ => usize::MAX - 1 - rung,
        };
        (candidacy.group, place)
    }

    /// The standing after a rung of a successive halving.
    fn standing(&self, rung: usize) -> Option<&Standing> {
        let standings = &self.search?.candidacy.as_ref()?.standings;
        standings.iter().find(|standing| standing.rung == rung)
    }

    /// Whether it is a result of the run, and not of a candidate that was dropped.
    pub(super) fn is_final(&self) -> bool {
        let fate = self
            .search
            .and_then(|search| search.candidacy.as_ref()?.fate.as_ref());
        !matches!(fate, Some(Fate::Dropped { .. } | Fate::Failed(_)))
    }
}

/// The configurations of a report, ranked by the capacity per GPU, or by the capacity where the number of GPUs is not known;
/// candidates of a search by how far they came first. None for fewer than two.
pub(super) fn capacities(report: &Report) -> Option<Capacities<'_>> {
    let (load_name, unit, mut ranked) = match report.searches.as_slice() {
        [] => of_ladders(report),
        searches => of_searches(report, searches),
    };
    if ranked.len() < 2 {
        return None;
    }
    let per_gpu = ranked.iter().all(|capacity| capacity.gpus.is_some());
    let value = |capacity: &Capacity<'_>| {
        let share = capacity.gpus.filter(|_| per_gpu).unwrap_or(1.0);
        capacity.load.map_or(f64::NEG_INFINITY, |load| load / share)
    };
    ranked.sort_by(|a, b| {
        a.place()
            .cmp(&b.place())
            .then(value(b).total_cmp(&value(a)))
    });
    Some(Capacities {
        load_name,
        unit,
        per_gpu,
        mass: report.searches.first().and_then(|one| one.finding.mass),
        ranked,
    })
}

/// How the candidates of a search were ranked; None without `over`.
pub(super) fn method(report: &Report) -> Option<&'static str> {
    let has_candidates = report
        .searches
        .iter()
        .any(|search| search.candidacy.is_some());
    has_candidates.then_some(
        "Successive halving: each rung has the interval of the capacity that was known after it, and the probes it took. Only the best candidate is a confirmed result; the others are estimates with fewer probes.",
    )
}

/// The table of the configurations; without rows for fewer than two.
pub(super) fn table(report: &Report) -> Table {
    let Some(Capacities {
        load_name,
        unit,
        per_gpu,
        ranked,
        ..
    }) = capacities(report)
    else {
        return Table::new(Vec::new(), Vec::new());
    };
    let priced = ranked.iter().any(|capacity| {
        capacity
            .scalar(Metric::CostPerMillionOutputTokens)
            .is_some()
    });
    let mut rungs: Vec<usize> = ranked
        .iter()
        .filter_map(|capacity| capacity.search?.candidacy.as_ref())
        .flat_map(|candidacy| candidacy.standings.iter().map(|standing| standing.rung))
        .collect();
    rungs.sort_unstable();
    rungs.dedup();
    let is_halving = ranked
        .iter()
        .any(|capacity| capacity.search.is_some_and(|one| one.candidacy.is_some()));
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
            .documents(&format!("Maximum {load_name}"))
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
    let rung_column = |rung: &usize| Column::text().documents(&format!("Rung {rung}"));
    columns.extend(rungs.iter().map(rung_column));
    if is_halving {
        columns.push(
            Column::text()
                .documents("Outcome")
                .terminal("OUTCOME", 0)
                .at_least(24),
        );
    }
    let mut rank = 0;
    let mut group = None;
    let mut row = |capacity: &Capacity<'_>| {
        let place = capacity.place().0;
        rank = if group == Some(place) { rank + 1 } else { 1 };
        group = Some(place);
        let at_load = |metric: Metric| capacity.scalar(metric).filter(|_| capacity.load.is_some());
        let figure = |metric: Metric| {
            let known = at_load(metric);
            let text = known.map_or_else(|| ABSENT.to_owned(), |known| value(known, metric.unit()));
            Cell::figure(text, known)
        };
        let mut cells = vec![
            Cell::count(rank),
            Cell::prose(&capacity.name()),
            load(capacity.load),
            Cell::prose(&capacity.range),
        ];
        if per_gpu {
            let gpus = capacity.gpus;
            let share = capacity.load.zip(gpus).map(|(load, gpus)| load / gpus);
            cells.extend([
                Cell::figure(gpus.map_or_else(|| ABSENT.to_owned(), plain_number), gpus),
                load(share),
                figure(Metric::OutputTpsPerGpu),
            ]);
        }
        if priced {
            cells.push(figure(Metric::CostPerMillionOutputTokens));
        }
        let standing =
            |rung: &usize| Cell::prose(&describe_standing(capacity.standing(*rung), unit));
        cells.extend(rungs.iter().map(standing));
        if is_halving {
            cells.push(Cell::prose(&capacity.search.map_or_else(String::new, fate)));
        }
        Row::new(cells)
    };
    let rows = ranked.iter().map(&mut row).collect();
    Table::new(columns, rows)
}

/// `30 to 44 (5 probes)`: the interval after a rung.
fn describe_standing(standing: Option<&Standing>, unit: &str) -> String {
    let Some(Standing {
        probes, interval, ..
    }) = standing
    else {
        return "–".to_owned();
    };
    let low = interval.0.map_or_else(|| "0".to_owned(), plain_number);
    format!(
        "{low} to {}{unit} ({})",
        plain_number(interval.1),
        crate::format::counted(*probes, "probe")
    )
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
    let capacity = |search: &'a SearchReport| {
        let load = found_load(report, search);
        let nearest = search.probes.iter().min_by(|a, b| {
            let distance = |probe_load: f64| (probe_load - load.unwrap_or(0.0)).abs();
            distance(a.load).total_cmp(&distance(b.load))
        });
        let id = nearest.map(|probe| probe.case.as_str());
        let case = report
            .cases
            .iter()
            .find(|case| Some(case.id.as_str()) == id);
        let has_load = !search.probes.is_empty();
        let gpus = search.candidacy.as_ref().and_then(|one| one.gpus);
        Capacity {
            labels: search.labels.clone(),
            load,
            low: search.finding.interval.0.filter(|_| has_load),
            high: Some(search.finding.interval.1).filter(|_| has_load),
            range: match has_load {
                true => interval(search),
                false => "no probe".to_owned(),
            },
            case,
            gpus: gpus.or_else(|| gpus_of(case?)),
            search: Some(search),
        }
    };
    let is_ranked =
        |search: &&SearchReport| search.spec.goal == Goal::Slo || search.candidacy.is_some();
    let ranked = searches.iter().filter(is_ranked);
    (name, unit, ranked.map(capacity).collect())
}

/// `target.gpus`, by which the throughput per GPU is divided.
fn gpus_of(case: &CaseReport) -> Option<f64> {
    let scalar = |metric: Metric| case.scalars.get(&metric).copied();
    let gpus = scalar(Metric::OutputTps)? / scalar(Metric::OutputTpsPerGpu)?;
    Some(gpus.round()).filter(|gpus| *gpus >= 1.0)
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
    let case = best.or(cases.first().copied());
    Capacity {
        labels,
        load: best.map(load),
        low: best.map(load),
        high: cases.get(passed).map(|next| load(next)),
        range,
        case,
        gpus: case.and_then(gpus_of),
        search: None,
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
