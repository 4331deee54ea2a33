//! A capacity search: each objective's metric over load, with the probes, the limit, the pass/fail boundary and the
//! result.

use crate::chart::axis::{Axis, TimeUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{shown, subtitle};
use crate::chart::style::{ALARM, INK, MAIN, MUTED, RANGE, Stroke};
use crate::format::{check_title, percent};
use crate::search::{
    ProbeVerdict, SearchOutcome, found_load, label_prefix, probe_verdict, search_outcome, sentence,
    varied_key,
};
use llmscen_core::check::{Ruling, Subject, Verdict};
use llmscen_core::report::{Report, Series};
use llmscen_core::search::{Fate, Goal, ProbeReport, SearchReport};
use llmscen_core::units::Unit;

/// The most objectives drawn per search.
const MAX_OBJECTIVES: usize = 4;
/// The most searches of a chart.
const MAX_SEARCHES: usize = 6;
/// The vertical axis is logarithmic from this ratio of values on, as in the charts over load.
const LOG_RATIO: f64 = 30.0;

/// The chart; None without a search that has data.
pub fn figure(report: &Report) -> Option<Figure> {
    // Of candidates, those of the last rung.
    let is_shown = |search: &&SearchReport| {
        let fate = search.candidacy.as_ref().map(|one| one.fate.as_ref());
        matches!(
            fate,
            None | Some(None | Some(Fate::Best | Fate::NotBest { .. }))
        )
    };
    let rows: Vec<(&SearchReport, Vec<Panel>)> = report
        .searches
        .iter()
        .filter(is_shown)
        .map(|search| (search, panels(report, search)))
        .collect();
    let drawn: Vec<&(&SearchReport, Vec<Panel>)> = rows
        .iter()
        .filter(|(_, panels)| !panels.is_empty())
        .collect();
    let searches: Vec<&SearchReport> = drawn
        .iter()
        .take(MAX_SEARCHES)
        .map(|(search, _)| *search)
        .collect();
    let panels: Vec<Panel> = drawn
        .iter()
        .take(MAX_SEARCHES)
        .flat_map(|(_, panels)| panels.iter().cloned())
        .collect();
    let wide = drawn.first()?.1.len();
    Some(Figure {
        name: "search",
        title: "Capacity search".to_owned(),
        subtitle: subtitle(report, &remarks(report, &searches, drawn.len())),
        legend: legend(report, &searches),
        side: Side::Top,
        columns: if searches.len() == 1 {
            wide.min(2)
        } else {
            wide
        },
        panels,
    })
}

/// The result of a single search, and what is omitted. `all`: the number of searches with data.
fn remarks(report: &Report, searches: &[&SearchReport], all: usize) -> Vec<String> {
    let result = if let [only] = searches {
        sentence(report, only)
    } else {
        shown(searches.len(), all, "searches")
    };
    let objectives = searches.first().map_or_else(String::new, |search| {
        shown(
            shown_objectives(search).len(),
            other_objectives(search).count(),
            "objectives",
        )
    });
    let invalid = searches
        .iter()
        .flat_map(|search| &search.probes)
        .filter(|probe| probe_verdict(probe) == ProbeVerdict::Invalid)
        .count();
    let invalid = if invalid > 0 {
        format!("invalid probes omitted: {invalid}")
    } else {
        String::new()
    };
    vec![result, objectives, invalid]
}

fn valid_probes(search: &SearchReport) -> impl Iterator<Item = &ProbeReport> {
    search
        .probes
        .iter()
        .filter(|probe| probe_verdict(probe) != ProbeVerdict::Invalid)
}

/// Whether an objective is the goodput that the search maximizes, which has a panel of its own.
fn is_maximized(search: &SearchReport, verdict: &Verdict) -> bool {
    search.spec.goal == Goal::Goodput && matches!(verdict.check.subject, Subject::Goodput(_))
}

fn other_objectives(search: &SearchReport) -> impl Iterator<Item = (usize, &Verdict)> {
    let first = search
        .probes
        .first()
        .map(|probe| probe.verdicts.as_slice())
        .unwrap_or_default();
    first
        .iter()
        .enumerate()
        .filter(|(_, verdict)| !is_maximized(search, verdict))
}

/// The indexes of the objectives that are drawn: if there are too many, those that most probes failed.
fn shown_objectives(search: &SearchReport) -> Vec<usize> {
    let failures = |index: usize| {
        let verdicts = valid_probes(search).filter_map(|probe| probe.verdicts.get(index));
        verdicts
            .filter(|verdict| verdict.ruling == Ruling::Fail)
            .count()
    };
    let mut all: Vec<usize> = other_objectives(search).map(|(index, _)| index).collect();
    all.sort_by_key(|index| std::cmp::Reverse(failures(*index)));
    all.truncate(MAX_OBJECTIVES - usize::from(search.spec.goal == Goal::Goodput));
    all.sort_unstable();
    all
}

/// A quantity over load, with its value at each valid probe.
struct Topic<'a> {
    title: String,
    unit: Unit,
    limit: Option<f64>,
    values: Vec<(&'a ProbeReport, f64)>,
}

fn topics(search: &SearchReport) -> Vec<Topic<'_>> {
    let values = |value: &dyn Fn(&ProbeReport) -> Option<f64>| {
        let found = valid_probes(search).filter_map(|probe| Some((probe, value(probe)?)));
        found
            .filter(|(_, value)| value.is_finite() && *value >= 0.0)
            .collect()
    };
    let goodput = (search.spec.goal == Goal::Goodput).then(|| Topic {
        title: "goodput".to_owned(),
        unit: Unit::RequestsPerSecond,
        limit: None,
        // The rate of a probe that was stopped early is not comparable.
        values: values(&|probe| probe.goodput.filter(|_| !probe.futile)),
    });
    let limit = |index: usize| {
        let verdict = search.probes.first()?.verdicts.get(index)?;
        let values = values(&|probe| probe.verdicts.get(index)?.observed);
        Some(Topic {
            title: check_title(&verdict.check),
            unit: verdict.check.subject.unit(),
            limit: Some(verdict.check.limit),
            values,
        })
    };
    goodput
        .into_iter()
        .chain(shown_objectives(search).into_iter().filter_map(limit))
        .collect()
}

fn panels(report: &Report, search: &SearchReport) -> Vec<Panel> {
    let topics = topics(search);
    let loads: Vec<f64> = topics
        .iter()
        .flat_map(|topic| topic.values.iter().map(|(probe, _)| probe.load))
        .collect();
    let all: Vec<f64> = loads
        .iter()
        .copied()
        .chain(found_load(report, search))
        .collect();
    let (name, unit) = varied_key(&search.spec);
    let name = if unit.is_empty() {
        name
    } else {
        format!("{name} ({unit})")
    };
    let x = Axis::loads(name, &all);
    let drawn = topics.iter().filter(|topic| !topic.values.is_empty());
    drawn
        .map(|topic| panel(report, search, topic, x.clone()))
        .collect()
}

fn panel(report: &Report, search: &SearchReport, topic: &Topic, x: Axis) -> Panel {
    let values = || {
        topic
            .values
            .iter()
            .map(|(_, value)| *value)
            .chain(topic.limit)
    };
    let (unit, factor) = match topic.unit {
        Unit::Millis => (
            TimeUnit::for_values(values()).name,
            TimeUnit::for_values(values()).factor,
        ),
        Unit::Share => ("%", 100.0),
        other => (other.symbol(), 1.0),
    };
    let all: Vec<f64> = values().map(|value| value * factor).collect();
    let points = |is_shown: &dyn Fn(&ProbeReport) -> bool| -> Series {
        let found = topic
            .values
            .iter()
            .filter(|(probe, _)| is_shown(probe))
            .map(|(probe, value)| (probe.load, *value));
        scaled(&found.collect::<Series>(), 1.0, factor)
    };
    let mut marks = interval_mark(report, search, &x)
        .into_iter()
        .collect::<Vec<_>>();
    marks.extend(
        topic
            .limit
            .map(|limit| Mark::HorizontalLine(limit * factor, Stroke::limit())),
    );
    marks.extend(
        found_load(report, search).map(|load| Mark::VerticalLine(load, Stroke::solid(INK).thin())),
    );
    marks.push(Mark::Line(
        scaled(&latest_probes(topic), 1.0, factor),
        Stroke::solid(MUTED).thin(),
    ));
    for (kind, color) in probe_colors(search) {
        marks.push(Mark::Dots(
            points(&|probe| !probe.futile && kind.is_none_or(|kind| probe_verdict(probe) == kind)),
            color,
            3.5,
        ));
    }
    marks.push(Mark::DiagonalCrosses(points(&|probe| probe.futile), ALARM));
    let [passing, failing] = boundary(search);
    let ends = [(passing, ProbeVerdict::Pass), (failing, ProbeVerdict::Fail)];
    let at_boundary =
        |probe: &ProbeReport| ends.contains(&(Some(probe.load), probe_verdict(probe)));
    marks.push(Mark::Rings(points(&at_boundary), INK, 7.0));
    Panel {
        title: format!("{}{}", label_prefix(search), topic.title),
        x,
        y: Axis::fit(unit, &all, LOG_RATIO),
        marks,
    }
}

/// The colors of the probes by verdict. A search for the highest goodput has no pass or fail.
fn probe_colors(search: &SearchReport) -> Vec<(Option<ProbeVerdict>, plotters::style::RGBColor)> {
    match search.spec.goal {
        Goal::Slo => {
            vec![
                (Some(ProbeVerdict::Inconclusive), MUTED),
                (Some(ProbeVerdict::Fail), ALARM),
                (Some(ProbeVerdict::Pass), MAIN),
            ]
        }
        Goal::Goodput => vec![(None, MAIN)],
    }
}

/// The latest complete probe of each load, by rising load.
fn latest_probes(topic: &Topic) -> Series {
    let complete = topic.values.iter().filter(|(probe, _)| !probe.futile);
    let mut points: Series = complete
        .map(|(probe, value)| (probe.load, *value))
        .rev()
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by_key(|(load, _)| *load);
    points
}

/// The highest passing and the lowest failing load, without loads whose probes contradict each other.
fn boundary(search: &SearchReport) -> [Option<f64>; 2] {
    if search.spec.goal == Goal::Goodput {
        return [None, None];
    }
    let loads = |verdict: ProbeVerdict, opposite: ProbeVerdict| {
        let is_contradicted = move |load: f64| {
            valid_probes(search).any(|probe| probe.load == load && probe_verdict(probe) == opposite)
        };
        valid_probes(search)
            .filter(move |probe| probe_verdict(probe) == verdict && !is_contradicted(probe.load))
            .map(|probe| probe.load)
    };
    let passing = loads(ProbeVerdict::Pass, ProbeVerdict::Fail).reduce(f64::max);
    [
        passing,
        loads(ProbeVerdict::Fail, ProbeVerdict::Pass).reduce(f64::min),
    ]
}

/// The interval of the result, if it has a width and either a probability or a result.
fn interval_mark(report: &Report, search: &SearchReport, x: &Axis) -> Option<Mark> {
    let (low, high) = search.finding.interval;
    let low = low.unwrap_or(x.low);
    let has_interval = search.finding.mass.is_some() || found_load(report, search).is_some();
    (has_interval && low < high).then_some(Mark::Band(low, high, RANGE))
}

fn legend(report: &Report, searches: &[&SearchReport]) -> Vec<Entry> {
    let any = |is_kind: &dyn Fn(&ProbeReport) -> bool| {
        searches
            .iter()
            .any(|search| valid_probes(search).any(is_kind))
    };
    let has_verdict = |kind| any(&|probe| probe_verdict(probe) == kind && !probe.futile);
    let has_boundary = searches
        .iter()
        .any(|search| boundary(search).iter().any(Option::is_some));
    let is_goodput = searches
        .iter()
        .any(|search| search.spec.goal == Goal::Goodput);
    let results: Vec<f64> = searches
        .iter()
        .filter_map(|search| found_load(report, search))
        .collect();
    let result_label = match (results.as_slice(), searches) {
        ([load], [only]) => {
            let word = match (search_outcome(report, only), only.spec.goal) {
                (SearchOutcome::Converged, _) => "result",
                (_, Goal::Slo) => "largest that passed",
                (_, Goal::Goodput) => "best estimate",
            };
            format!("{word} {load}{}", varied_key(&only.spec).1)
        }
        _ => "result".to_owned(),
    };
    let has_interval = searches
        .iter()
        .any(|search| search.finding.mass.is_some() || found_load(report, search).is_some());
    let mass = searches
        .iter()
        .find_map(|search| search.finding.mass)
        .map(|mass| format!("{} ", percent(mass)));
    let entries = [
        (is_goodput, Entry::new("probe", Swatch::Dot(MAIN))),
        (
            !is_goodput && has_verdict(ProbeVerdict::Pass),
            Entry::new("passed", Swatch::Dot(MAIN)),
        ),
        (
            !is_goodput && has_verdict(ProbeVerdict::Fail),
            Entry::new("failed", Swatch::Dot(ALARM)),
        ),
        (
            !is_goodput && has_verdict(ProbeVerdict::Inconclusive),
            Entry::new("inconclusive", Swatch::Dot(MUTED)),
        ),
        (
            any(&|probe| probe.futile),
            Entry::new("failed, stopped early", Swatch::Cross(ALARM)),
        ),
        (
            has_boundary,
            Entry::new(
                "boundary: highest passing and lowest failing load",
                Swatch::Ring(INK),
            ),
        ),
        (
            searches
                .iter()
                .any(|search| other_objectives(search).next().is_some()),
            Entry::new("limit", Swatch::Line(Stroke::limit())),
        ),
        (
            !results.is_empty(),
            Entry::new(result_label, Swatch::Line(Stroke::solid(INK).thin())),
        ),
        (
            has_interval,
            Entry::new(
                format!("{}interval", mass.unwrap_or_default()),
                Swatch::Shade(RANGE),
            ),
        ),
    ];
    entries
        .into_iter()
        .filter(|(is_shown, _)| *is_shown)
        .map(|(_, entry)| entry)
        .collect()
}

#[cfg(test)]
mod tests;
