//! The largest load of each configuration that meets its objectives, ranked: of capacity searches, or of ladders of
//! loads.

use crate::format::{ABSENT, capitalize, check_title, counted, percent, value};
use crate::objectives::severity;
use crate::search::{
    fate, found_load, interval, is_confirmed, plain_number, short_name, varied_key,
};
use crate::table::{Cell, Column, Columns, Table};
use llmscen_core::check::{Check, Ruling};
use llmscen_core::label::{Labels, VARIANT};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, Report};
use llmscen_core::schedule::search::MASS;
use llmscen_core::search::{Candidacy, Fate, Goal, SearchReport, Standing};
use std::collections::BTreeMap;

/// The capacities of a report.
pub(super) struct Capacities<'a> {
    /// What is ranked, `maximum concurrency` or `highest goodput`, and its unit.
    pub(super) quantity: String,
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
    /// The largest load that meets the objectives, or the highest goodput; None if there is none.
    pub(super) value: Option<f64>,
    /// It is between these ends, each None where the range or the ladder ends.
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    /// What is known of it, as text.
    range: String,
    /// Whether there is such a load, and the costs there are within their limits.
    is_affordable: bool,
    /// The case at that load, or at any load if none meets the objectives.
    case: Option<&'a CaseReport>,
    pub(super) gpus: Option<f64>,
    /// Its search, if it has one.
    search: Option<&'a SearchReport>,
    /// The number of its work, for ladders: only configurations of the same work are ranked against each other.
    pub(super) work: usize,
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
            return (self.work, 0);
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

    /// The labels that are not those of its group, or all if it has no others.
    fn labels_besides(&self, group: Option<&Labels>) -> Labels {
        let of_group = |label: &_| group.is_some_and(|group| group.0.contains(label));
        let others = self.labels.0.iter().filter(|label| !of_group(*label));
        let others = Labels(others.cloned().collect());
        match others.0.is_empty() {
            true => self.labels.clone(),
            false => others,
        }
    }

    /// `30 to 44 (5 probes)`: the interval after a rung.
    fn describe_standing(&self, rung: usize, unit: &str) -> String {
        let Some(Standing {
            probes,
            interval,
            score,
            ..
        }) = self.standing(rung)
        else {
            return "–".to_owned();
        };
        let search = self.search;
        let (low, high, per) = match search.map(|one| (one.spec.goal, &one.candidacy)) {
            Some((Goal::Goodput, Some(Candidacy { gpus: Some(_), .. }))) => {
                (Some(score.low), score.high, " per GPU")
            }
            Some((Goal::Goodput, _)) => (Some(score.low), score.high, ""),
            _ => (interval.0, interval.1, ""),
        };
        let low = low.map_or_else(|| "0".to_owned(), plain_number);
        format!(
            "{low} to {}{unit}{per} ({})",
            plain_number(high),
            counted(*probes, "probe")
        )
    }

    /// Whether it is a result of the run, and not of a candidate that was dropped.
    pub(super) fn is_final(&self) -> bool {
        let fate = self
            .search
            .and_then(|search| search.candidacy.as_ref()?.fate.as_ref());
        !matches!(fate, Some(Fate::Dropped { .. } | Fate::Failed(_)))
    }
}

/// The configurations of a report, ranked by the capacity per GPU, or by the capacity where the number of GPUs is not
/// known; candidates of a search by how far they came first. None for fewer than two.
pub(super) fn capacities(report: &Report) -> Option<Capacities<'_>> {
    let (quantity, unit, mut ranked) = match report.searches.as_slice() {
        [] => of_ladders(report),
        searches => of_searches(report, searches),
    };
    if ranked.len() < 2
        || ranked
            .iter()
            .all(|one| one.search.is_none() && one.value.is_none())
    {
        return None;
    }
    let per_gpu = ranked.iter().all(|capacity| capacity.gpus.is_some());
    let value = |capacity: &Capacity<'_>| {
        let share = capacity.gpus.filter(|_| per_gpu).unwrap_or(1.0);
        capacity
            .value
            .map_or(f64::NEG_INFINITY, |value| value / share)
    };
    ranked.sort_by(|a, b| {
        a.place()
            .cmp(&b.place())
            .then(b.is_affordable.cmp(&a.is_affordable))
            .then(value(b).total_cmp(&value(a)))
    });
    Some(Capacities {
        quantity,
        unit,
        per_gpu,
        mass: report
            .searches
            .first()
            .map(|one| one.finding.mass.unwrap_or(MASS)),
        ranked,
    })
}

/// How the candidates of a search were ranked; None without `over`.
pub(super) fn method(report: &Report) -> Option<&'static str> {
    let candidates = || report.searches.iter().filter(|one| one.candidacy.is_some());
    candidates().next()?;
    let best = |search: &&SearchReport| search.is_result();
    Some(match candidates().filter(best).all(is_confirmed) {
        true => {
            "Successive halving: each rung has the interval that was known after it, and the \
            probes it took. Only the best candidate is a confirmed result; the others are \
            estimates with fewer probes."
        }
        false => {
            "Successive halving: each rung has the interval that was known after it, and the \
            probes it took. Only the best candidate is a result; the others are estimates with \
            fewer probes."
        }
    })
}

/// The table of the configurations; without rows for fewer than two.
pub(super) fn table(report: &Report) -> Table {
    let Some(Capacities {
        quantity,
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
    let amount = |amount: Option<f64>| {
        let text = amount.map_or_else(
            || ABSENT.to_owned(),
            |amount| format!("{}{unit}", plain_number(amount)),
        );
        Cell::figure(text, amount)
    };
    let groups = group_labels(&ranked);
    // Each capacity with its rank in its group.
    let mut rank = 0;
    let mut group = None;
    let with_ranks: Vec<(&Capacity<'_>, u64)> = ranked
        .iter()
        .map(|capacity| {
            let place = capacity.place().0;
            rank = if group == Some(place) { rank + 1 } else { 1 };
            group = Some(place);
            (capacity, rank)
        })
        .collect();
    let has_groups = groups.len() > 1;
    let of_group = |capacity: &Capacity<'_>| groups.get(&capacity.place().0).filter(|_| has_groups);
    let figure = |metric: Metric| {
        move |(capacity, _): &(&Capacity<'_>, u64)| {
            let known = capacity.scalar(metric).filter(|_| capacity.value.is_some());
            let text = known.map_or_else(|| ABSENT.to_owned(), |known| value(known, metric.unit()));
            Cell::figure(text, known)
        }
    };
    let text = |head: &str, short: &str| Column::text().documents(head).terminal(short, 0);
    let number =
        |head: &str, short: &str, rank| Column::number().documents(head).terminal(short, rank);
    let mut columns = Columns::<(&Capacity<'_>, u64)>::new()
        .add_if(has_groups, text("Group", "GROUP"), |(capacity, _)| {
            Cell::prose(&of_group(capacity).map_or_else(String::new, short_name))
        })
        .add(
            number("Rank", "RANK", 1),
            |(capacity, rank)| match capacity.value {
                Some(_) => Cell::count(*rank),
                None => Cell::prose(ABSENT),
            },
        )
        .add(text("Configuration", "CONFIGURATION"), |(capacity, _)| {
            Cell::prose(&short_name(&capacity.labels_besides(of_group(capacity))))
        })
        .add(
            number(&capitalize(&quantity), "MAXIMUM", 0),
            |(capacity, _)| amount(capacity.value),
        )
        .add(text("Evidence", "EVIDENCE"), |(capacity, _)| {
            Cell::prose(&capacity.range)
        })
        .add_if(per_gpu, number("GPUs", "GPUS", 2), |(capacity, _)| {
            let gpus = capacity.gpus;
            Cell::figure(gpus.map_or_else(|| ABSENT.to_owned(), plain_number), gpus)
        })
        .add_if(per_gpu, number("Per GPU", "PER GPU", 0), |(capacity, _)| {
            let known = capacity.value.zip(capacity.gpus);
            amount(known.map(|(value, gpus)| value / gpus))
        })
        .add_if(
            per_gpu,
            number("Output tok/s per GPU", "TOK/S/GPU", 2),
            figure(Metric::OutputTpsPerGpu),
        )
        .add_if(
            priced,
            number("Cost of 1M output tokens", "COST/1M OUT", 1),
            figure(Metric::CostPerMillionOutputTokens),
        );
    for rung in rungs {
        let column = Column::text().documents(&format!("Rung {rung}"));
        columns = columns.add(column, move |(capacity, _)| {
            Cell::prose(&capacity.describe_standing(rung, unit))
        });
    }
    columns
        .add_if(
            is_halving,
            text("Outcome", "OUTCOME").at_least(24),
            |(capacity, _)| Cell::prose(&capacity.search.map_or_else(String::new, fate)),
        )
        .table(with_ranks)
}

/// The labels that all capacities of a group share, by group.
fn group_labels(capacities: &[Capacity<'_>]) -> BTreeMap<usize, Labels> {
    let mut groups: BTreeMap<usize, Labels> = BTreeMap::new();
    for capacity in capacities {
        let shared = groups
            .entry(capacity.place().0)
            .or_insert_with(|| capacity.labels.clone());
        shared.0.retain(|label| capacity.labels.0.contains(label));
    }
    groups
}

/// What the searches look for, its unit, and what each found.
fn of_searches<'a>(
    report: &'a Report,
    searches: &'a [SearchReport],
) -> (String, &'static str, Vec<Capacity<'a>>) {
    let (name, load_unit) = searches
        .first()
        .map(|search| varied_key(&search.spec))
        .unwrap_or_default();
    let is_goodput = searches
        .first()
        .is_some_and(|search| search.spec.goal == Goal::Goodput);
    let (quantity, unit) = match is_goodput {
        true => ("highest goodput".to_owned(), " req/s"),
        false => (format!("maximum {name}"), load_unit),
    };
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
        let score = match is_goodput {
            true => search.total_score(),
            false => None,
        };
        let ends = match is_goodput {
            true => (score.map(|one| one.low), score.map(|one| one.high)),
            false => (search.finding.interval.0, Some(search.finding.interval.1)),
        };
        let range = match (load, score) {
            _ if !has_load => "no probe".to_owned(),
            (Some(load), Some(score)) => format!(
                "{} CI {} to {}{unit}, at {name} {load}{load_unit}",
                percent(MASS),
                plain_number(score.low),
                plain_number(score.high)
            ),
            _ => interval(search),
        };
        let unmet = search.easier_objectives();
        let unmet = unmet.iter().filter(|one| one.ruling != Ruling::Pass);
        let unmet: Vec<String> = unmet
            .filter(|_| load.is_some())
            .map(|one| not_met_there(&one.check, one.ruling))
            .collect();
        Capacity {
            labels: search.labels.clone(),
            value: match is_goodput {
                true => score.map(|one| one.value).filter(|_| load.is_some()),
                false => load,
            },
            low: ends.0.filter(|_| has_load),
            high: ends.1.filter(|_| has_load),
            range: range + &unmet.concat(),
            is_affordable: load.is_some() && unmet.is_empty(),
            case,
            gpus: gpus.or_else(|| gpus_of(case?)),
            search: Some(search),
            work: 0,
        }
    };
    let is_ranked =
        |search: &&SearchReport| search.spec.goal == Goal::Slo || search.candidacy.is_some();
    let ranked = searches.iter().filter(is_ranked);
    (quantity, unit, ranked.map(capacity).collect())
}

/// `; cost < 2 is not met there`: an objective that more load makes easier to meet, at the capacity.
fn not_met_there(check: &Check, ruling: Ruling) -> String {
    let title = check_title(check);
    match ruling {
        Ruling::Fail => format!("; but {title} is not met there, nor at less load"),
        _ => format!("; {title} is undecided there"),
    }
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
    let none = || (String::new(), "", Vec::new());
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
    let mut works: Vec<Labels> = Vec::new();
    let mut capacities = Vec::new();
    for (labels, cases) in groups {
        let of_work = labels.0.iter().filter(|(path, _)| !names_system(path));
        let of_work = Labels(of_work.cloned().collect());
        let work = works.iter().position(|known| *known == of_work);
        let work = work.unwrap_or(works.len());
        if work == works.len() {
            works.push(of_work);
        }
        capacities.push(of_ladder(labels, cases, unit, work));
    }
    (format!("maximum {axis}"), unit, capacities)
}

/// Whether a swept field is of the system under test and not of the work.
fn names_system(path: &str) -> bool {
    path == VARIANT || path.starts_with("target.") && path != "target.model"
}

/// An open loop serves its rate if its successful requests per second are at least this share of it. Less is no
/// chance of a Poisson process with [`FEWEST`] arrivals (two standard deviations).
const SERVED: f64 = 0.8;
const FEWEST: u64 = 100;

/// Why a case does not pass, as text after its load; None if it does. Objectives that are easier to meet with more
/// load are not among the reasons.
fn obstacle(case: &CaseReport) -> Option<String> {
    let worst = case
        .verdicts
        .iter()
        .filter(|verdict| !verdict.check.is_easier_with_load())
        .map(|verdict| verdict.ruling)
        .min_by_key(|&ruling| severity(ruling));
    let is_short = case.load_axis != "rate" || case.counts.scheduled < FEWEST;
    let served = case.scalars.get(&Metric::RequestThroughput).copied();
    // Requests that the objectives allow to fail were sent too.
    let ended =
        served.map(|served| served * case.counts.scheduled as f64 / case.counts.ok.max(1) as f64);
    let unserved = case
        .load_value
        .zip(ended)
        .filter(|(offered, ended)| !is_short && *ended < SERVED * offered)
        .and(served);
    match (worst, unserved) {
        _ if case.counts.scheduled == 0 => Some("was not measured".to_owned()),
        (Some(Ruling::Fail), _) => Some("does not pass".to_owned()),
        (Some(Ruling::Invalid), _) => Some("is invalid".to_owned()),
        (Some(Ruling::Inconclusive), _) => Some("is inconclusive".to_owned()),
        (_, Some(served)) => Some(format!(
            "was not served: {}",
            value(served, Metric::RequestThroughput.unit())
        )),
        (_, None) => None,
    }
}

/// The largest load of a ladder up to which all cases pass. Objectives that are easier to meet with more load are
/// judged there.
fn of_ladder<'a>(
    labels: Labels,
    mut cases: Vec<&'a CaseReport>,
    unit: &str,
    work: usize,
) -> Capacity<'a> {
    let load = |case: &CaseReport| case.load_value.unwrap_or_default();
    cases.sort_by(|a, b| load(a).total_cmp(&load(b)));
    let unmet = |case: &'a CaseReport| {
        let verdicts = case.verdicts.iter();
        verdicts
            .filter(|verdict| verdict.ruling != Ruling::Pass && verdict.check.is_easier_with_load())
    };
    let passes = |case: &&&'a CaseReport| obstacle(case).is_none();
    let passed = cases.iter().take_while(passes).count();
    let best = passed.checked_sub(1).and_then(|at| cases.get(at)).copied();
    let range = match cases.get(passed) {
        Some(next) => format!(
            "{}{unit} {}",
            plain_number(load(next)),
            obstacle(next).unwrap_or_default()
        ),
        None if cases.iter().all(|case| unmet(case).next().is_none()) => {
            "the whole ladder passes".to_owned()
        }
        None => "the end of the ladder".to_owned(),
    };
    let unmet: Vec<String> = best
        .into_iter()
        .flat_map(unmet)
        .map(|verdict| not_met_there(&verdict.check, verdict.ruling))
        .collect();
    let case = best.or(cases.first().copied());
    Capacity {
        labels,
        value: best.map(load),
        low: best.map(load),
        high: cases.get(passed).map(|next| load(next)),
        range: range + &unmet.concat(),
        is_affordable: best.is_some() && unmet.is_empty(),
        case,
        gpus: case.and_then(gpus_of),
        search: None,
        work,
    }
}

#[cfg(test)]
mod tests;
