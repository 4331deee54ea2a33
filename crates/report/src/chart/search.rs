//! Each limit's metric over the searched load: a sign for each probe, the limit, the edge and the answer.

use crate::chart::axis::{Axis, SpanUnit, scaled};
use crate::chart::figure::{Entry, Figure, Mark, Panel, Side, Swatch};
use crate::chart::pick::{shown, subtitle};
use crate::chart::style::{ALARM, INK, MAIN, MUTED, RANGE, Stroke};
use crate::format::{percent, title};
use crate::search::{Outcome, Standing, answer, axis, outcome, place, sentence, standing};
use llmscen_core::check::{Ruling, Subject, Verdict};
use llmscen_core::report::{Report, Series};
use llmscen_core::search::{Goal, ProbeReport, SearchReport};
use llmscen_core::units::Unit;

/// Limits drawn of one search, and searches, at the most.
const ROOM: (usize, usize) = (4, 6);
/// From this spread on the vertical axis is logarithmic, as in the charts over load.
const SPREAD: f64 = 30.0;

/// The chart; None where there was no search, or nothing to draw of it.
pub fn figure(report: &Report) -> Option<Figure> {
    let rows: Vec<(&SearchReport, Vec<Panel>)> = report.searches.iter().map(|search| (search, panels(report, search))).collect();
    let drawn: Vec<&(&SearchReport, Vec<Panel>)> = rows.iter().filter(|(_, panels)| !panels.is_empty()).collect();
    let searches: Vec<&SearchReport> = drawn.iter().take(ROOM.1).map(|(search, _)| *search).collect();
    let panels: Vec<Panel> = drawn.iter().take(ROOM.1).flat_map(|(_, panels)| panels.iter().cloned()).collect();
    let wide = drawn.first()?.1.len();
    Some(Figure {
        name: "search",
        title: "Capacity search".to_owned(),
        subtitle: subtitle(report, &remarks(report, (&searches, drawn.len()))),
        legend: legend(report, &searches),
        side: Side::Top,
        columns: if searches.len() == 1 { wide.min(2) } else { wide },
        panels,
    })
}

/// What was found, where there is room for it, and what is left out.
fn remarks(report: &Report, (searches, all): (&[&SearchReport], usize)) -> Vec<String> {
    let found = if let [only] = searches { sentence(report, only) } else { shown(searches.len(), all, "searches") };
    let limits = searches.first().map(|search| (subjects(search).len(), wanted(search))).unwrap_or_default();
    let unsound = searches.iter().flat_map(|search| &search.probes).filter(|probe| outcome(probe) == Outcome::Invalid).count();
    let unsound = if unsound > 0 { format!("invalid probes left out: {unsound}") } else { String::new() };
    vec![found, shown(limits.0, limits.1, "limits"), unsound]
}

fn valid(search: &SearchReport) -> impl Iterator<Item = &ProbeReport> {
    search.probes.iter().filter(|probe| outcome(probe) != Outcome::Invalid)
}

/// Whether a limit is about what the search makes large, and so is drawn as that.
fn sought(search: &SearchReport, verdict: &Verdict) -> bool {
    search.spec.goal == Goal::Goodput && matches!(verdict.check.subject, Subject::Goodput(_))
}

fn verdicts(search: &SearchReport) -> impl Iterator<Item = (usize, &Verdict)> {
    let first = search.probes.first().map(|probe| probe.verdicts.as_slice()).unwrap_or_default();
    first.iter().enumerate().filter(|(_, verdict)| !sought(search, verdict))
}

/// How many limits could be drawn.
fn wanted(search: &SearchReport) -> usize {
    verdicts(search).count()
}

/// The limits that are drawn: where there are too many, those that most probes broke.
fn subjects(search: &SearchReport) -> Vec<usize> {
    let broken = |index: usize| {
        let rulings = valid(search).filter_map(|probe| probe.verdicts.get(index));
        rulings.filter(|verdict| verdict.ruling == Ruling::Fail).count()
    };
    let mut all: Vec<usize> = verdicts(search).map(|(index, _)| index).collect();
    all.sort_by_key(|index| std::cmp::Reverse(broken(*index)));
    all.truncate(ROOM.0 - usize::from(search.spec.goal == Goal::Goodput));
    all.sort_unstable();
    all
}

/// One thing over the load: its words, its unit, its limit, and its value at each probe that measured the server.
struct Topic<'a> {
    title: String,
    unit: Unit,
    limit: Option<f64>,
    seen: Vec<(&'a ProbeReport, f64)>,
}

fn topics(search: &SearchReport) -> Vec<Topic<'_>> {
    let seen = |value: &dyn Fn(&ProbeReport) -> Option<f64>| {
        let found = valid(search).filter_map(|probe| Some((probe, value(probe)?)));
        found.filter(|(_, value)| value.is_finite() && *value >= 0.0).collect()
    };
    let goodput = (search.spec.goal == Goal::Goodput).then(|| Topic {
        title: "goodput".to_owned(),
        unit: Unit::RequestsPerSecond,
        limit: None,
        // What ran short of its time has no rate to be held against the others.
        seen: seen(&|probe| probe.goodput.filter(|_| !probe.hopeless)),
    });
    let limit = |index: usize| {
        let verdict = search.probes.first()?.verdicts.get(index)?;
        let seen = seen(&|probe| probe.verdicts.get(index)?.observed);
        Some(Topic { title: title(&verdict.check), unit: verdict.check.subject.unit(), limit: Some(verdict.check.limit), seen })
    };
    goodput.into_iter().chain(subjects(search).into_iter().filter_map(limit)).collect()
}

fn panels(report: &Report, search: &SearchReport) -> Vec<Panel> {
    let topics = topics(search);
    let loads: Vec<f64> = topics.iter().flat_map(|topic| topic.seen.iter().map(|(probe, _)| probe.load)).collect();
    let all: Vec<f64> = loads.iter().copied().chain(answer(report, search)).collect();
    let (name, unit) = axis(&search.spec);
    let name = if unit.is_empty() { name } else { format!("{name} ({unit})") };
    let x = Axis::loads(name, &all);
    let drawn = topics.iter().filter(|topic| !topic.seen.is_empty());
    drawn.map(|topic| panel(report, search, (topic, x.clone()))).collect()
}

fn panel(report: &Report, search: &SearchReport, (topic, x): (&Topic, Axis)) -> Panel {
    let values = || topic.seen.iter().map(|(_, value)| *value).chain(topic.limit);
    let (unit, factor) = match topic.unit {
        Unit::Millis => (SpanUnit::of(values()).name, SpanUnit::of(values()).factor),
        Unit::Share => ("%", 100.0),
        other => (other.symbol(), 1.0),
    };
    let all: Vec<f64> = values().map(|value| value * factor).collect();
    let points = |wanted: &dyn Fn(&ProbeReport) -> bool| -> Series {
        let found = topic.seen.iter().filter(|(probe, _)| wanted(probe)).map(|(probe, value)| (probe.load, *value));
        scaled(&found.collect::<Series>(), 1.0, factor)
    };
    let mut marks = range(report, search, &x).into_iter().collect::<Vec<_>>();
    marks.extend(topic.limit.map(|limit| Mark::Level(limit * factor, Stroke::dashed(ALARM))));
    marks.extend(answer(report, search).map(|answer| Mark::Upright(answer, Stroke::solid(INK).thin())));
    marks.push(Mark::Line(scaled(&latest(topic), 1.0, factor), Stroke::solid(MUTED).thin()));
    for (kind, color) in kinds(search) {
        marks.push(Mark::Dots(points(&|probe| !probe.hopeless && kind.is_none_or(|kind| outcome(probe) == kind)), color, 3.5));
    }
    marks.push(Mark::Saltires(points(&|probe| probe.hopeless), ALARM));
    let [held, failed] = edge(search);
    let ends = [(held, Outcome::Held), (failed, Outcome::Failed)];
    let at_edge = |probe: &ProbeReport| ends.contains(&(Some(probe.load), outcome(probe)));
    marks.push(Mark::Rings(points(&at_edge), INK, 7.0));
    Panel { title: format!("{}{}", place(search), topic.title), x, y: Axis::fit(unit, &all, SPREAD), marks }
}

/// What the dots are told apart by: where the highest goodput is sought, nothing holds or fails.
fn kinds(search: &SearchReport) -> Vec<(Option<Outcome>, plotters::style::RGBColor)> {
    match search.spec.goal {
        Goal::Slo => vec![(Some(Outcome::Open), MUTED), (Some(Outcome::Failed), ALARM), (Some(Outcome::Held), MAIN)],
        Goal::Goodput => vec![(None, MAIN)],
    }
}

/// The latest whole probe of each load, by rising load.
fn latest(topic: &Topic) -> Series {
    let whole = topic.seen.iter().filter(|(probe, _)| !probe.hopeless);
    let mut points: Series = whole.map(|(probe, value)| (probe.load, *value)).rev().collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by_key(|(load, _)| *load);
    points
}

/// The greatest load that held, and the least that failed: of each only those at which no probe says otherwise.
fn edge(search: &SearchReport) -> [Option<f64>; 2] {
    if search.spec.goal == Goal::Goodput {
        return [None, None];
    }
    let only = |wanted: Outcome, other: Outcome| {
        let spoken = move |load: f64| valid(search).any(|probe| probe.load == load && outcome(probe) == other);
        valid(search).filter(move |probe| outcome(probe) == wanted && !spoken(probe.load)).map(|probe| probe.load)
    };
    let held = only(Outcome::Held, Outcome::Failed).reduce(f64::max);
    [held, only(Outcome::Failed, Outcome::Held).reduce(f64::min)]
}

/// The interval, where it has a width, and either a probability or an answer within it.
fn range(report: &Report, search: &SearchReport, x: &Axis) -> Option<Mark> {
    let (low, high) = search.finding.interval;
    let low = low.unwrap_or(x.low);
    let told = search.finding.mass.is_some() || answer(report, search).is_some();
    (told && low < high).then_some(Mark::Band(low, high, RANGE))
}

fn legend(report: &Report, searches: &[&SearchReport]) -> Vec<Entry> {
    let any = |wanted: &dyn Fn(&ProbeReport) -> bool| searches.iter().any(|search| valid(search).any(wanted));
    let of = |kind| any(&|probe| outcome(probe) == kind && !probe.hopeless);
    let edges = searches.iter().any(|search| edge(search).iter().any(Option::is_some));
    let sought = searches.iter().any(|search| search.spec.goal == Goal::Goodput);
    let answers: Vec<f64> = searches.iter().filter_map(|search| answer(report, search)).collect();
    let named = match (answers.as_slice(), searches) {
        ([answer], [only]) => {
            let word = if standing(report, only) == Standing::Settled { "answer" } else { "nearest so far" };
            format!("{word} {answer}{}", axis(&only.spec).1)
        }
        _ => "answer".to_owned(),
    };
    let ranged = searches.iter().any(|search| search.finding.mass.is_some() || answer(report, search).is_some());
    let mass = searches.iter().find_map(|search| search.finding.mass).map(|mass| format!("{} ", percent(mass)));
    let entries = [
        (sought, Entry::new("probe", Swatch::Dot(MAIN))),
        (!sought && of(Outcome::Held), Entry::new("probe that held", Swatch::Dot(MAIN))),
        (!sought && of(Outcome::Failed), Entry::new("that failed", Swatch::Dot(ALARM))),
        (!sought && of(Outcome::Open), Entry::new("undecided", Swatch::Dot(MUTED))),
        (any(&|probe| probe.hopeless), Entry::new("failed, stopped early", Swatch::Cross(ALARM))),
        (edges, Entry::new("edge: greatest load that held, least that failed", Swatch::Ring(INK))),
        (searches.iter().any(|search| wanted(search) > 0), Entry::new("limit", Swatch::Line(Stroke::dashed(ALARM)))),
        (!answers.is_empty(), Entry::new(named, Swatch::Line(Stroke::solid(INK).thin()))),
        (ranged, Entry::new(format!("{}interval", mass.unwrap_or_default()), Swatch::Shade(RANGE))),
    ];
    entries.into_iter().filter(|(there, _)| *there).map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests;
