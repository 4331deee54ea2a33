//! What a search is and what it found, in words.

use crate::format::percent;
use llmscen_core::report::Report;
use llmscen_core::search::{CapacitySearch, Extent, Goal, ProbeReport, SearchReport, SearchSpec};

/// The varied field in short, with the entry of a mix that it belongs to, and the unit of its values.
pub fn axis(spec: &SearchSpec) -> (String, &'static str) {
    let parts: Vec<&str> = spec.vary.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let name = match parts.as_slice() {
        ["mix", entry, _, ..] if entry.bytes().all(|byte| byte.is_ascii_digit()) => format!("mix.{entry} {last}"),
        ["mix", entry, _, ..] => format!("{entry} {last}"),
        _ => last.to_owned(),
    };
    (name, if last == "rate" { "/s" } else { "" })
}

/// A search before it runs, in a line.
pub fn planned(quest: &CapacitySearch, searches: usize) -> String {
    let (spec, values) = (&quest.spec, quest.grid.len());
    let SearchSpec { vary, low, high, start, confirm, .. } = spec;
    let goal = match spec.goal {
        Goal::Slo => "the largest value at which every limit holds",
        Goal::Goodput => "the value of the highest goodput",
    };
    let each = if searches > 1 { format!("{searches} searches, each for") } else { "search for".to_owned() };
    let precision = percent(spec.precision);
    format!(
        "{each} {goal}: {vary} from {low} to {high} ({values} values), first {start}, within {precision}, confirmed {confirm} times\n"
    )
}

/// How far a search came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// To its answer.
    Settled,
    /// To the end of what it may probe, without being sure.
    Open,
    /// The run ended before it.
    CutShort,
    /// Nowhere: no probe measured the server.
    Unsound,
}

/// How far this search of a report came.
pub fn standing(report: &Report, search: &SearchReport) -> Standing {
    match search.probes.iter().any(|probe| probe.holds.is_some()) {
        true if search.finding.settled => Standing::Settled,
        _ if report.manifest.interrupted || report.manifest.error.is_some() || search.probes.is_empty() => Standing::CutShort,
        true => Standing::Open,
        false => Standing::Unsound,
    }
}

/// The answer, where it may be told as one: a search that was cut short or saw nothing has none.
pub fn answer(report: &Report, search: &SearchReport) -> Option<f64> {
    let told = matches!(standing(report, search), Standing::Settled | Standing::Open);
    search.finding.answer.filter(|_| told)
}

/// The values that tell this search from the others, with a colon; empty where it is the only one.
pub fn place(search: &SearchReport) -> String {
    let labels: Vec<String> = search.labels.0.iter().map(|(path, value)| format!("{path}={value}")).collect();
    if labels.is_empty() { String::new() } else { format!("{}: ", labels.join(", ")) }
}

/// What was found, in a sentence.
pub fn sentence(report: &Report, search: &SearchReport) -> String {
    let at = place(search);
    let requests: u64 = search.probes.iter().map(|probe| probe.requests).sum();
    let behind = format!("{} probes, {requests} requests", search.probes.len());
    let (found, interval, contrary) = (found(search), interval(search), contrary(search));
    match standing(report, search) {
        Standing::Settled => format!("{at}{found} ({interval}, {behind}){contrary}"),
        Standing::Open => format!("{at}NOT SETTLED, {}; nearest so far: {found} ({interval}, {behind}){contrary}", doubt(search)),
        Standing::Unsound => {
            format!(
                "{at}NO ANSWER: the load generator was the bottleneck, not the server; no probe passed its self-audit ({behind})"
            )
        }
        Standing::CutShort if search.probes.is_empty() => format!("{at}NO ANSWER: the run ended before the first probe"),
        Standing::CutShort => {
            let sound = search.probes.iter().any(|probe| probe.holds.is_some());
            let so_far = search.finding.mass.filter(|_| sound).map(|_| format!("so far {interval}, ")).unwrap_or_default();
            format!("{at}NO ANSWER: the search was interrupted ({so_far}{behind}){contrary}")
        }
    }
}

fn found(search: &SearchReport) -> String {
    let (name, unit) = axis(&search.spec);
    let (finding, range) = (&search.finding, &search.spec);
    match (finding.answer, finding.extent, range.goal) {
        (Some(answer), Extent::AtLeast, Goal::Slo) => format!("{name} at least {answer}{unit}, the end of the range"),
        (Some(answer), _, Goal::Slo) => format!("{name} {answer}{unit}"),
        (Some(answer), _, Goal::Goodput) => format!("the highest goodput is at {name} {answer}{unit}"),
        (None, ..) => format!("nothing holds, not even {name} {}{unit}", range.low),
    }
}

fn interval(search: &SearchReport) -> String {
    let ((low, high), (_, unit)) = (search.finding.interval, axis(&search.spec));
    let least = low.map_or_else(|| format!("below {}", search.spec.low), |low| low.to_string());
    match search.finding.mass {
        Some(mass) => format!("{} interval {least} to {high}{unit}", percent(mass)),
        None => format!("between {least} and {high}{unit}"),
    }
}

fn contrary(search: &SearchReport) -> String {
    let unit = axis(&search.spec).1;
    search.finding.contrary.map_or_else(String::new, |(fails, holds)| {
        format!("; NOT MONOTONE: {fails}{unit} fails and {holds}{unit} holds, so there is more than one edge")
    })
}

/// Why a search that was not cut short is not settled.
fn doubt(search: &SearchReport) -> String {
    match search.probes.iter().filter(|probe| probe.holds.is_none()).count() {
        0 => "the probes did not suffice".to_owned(),
        unsound => format!("{unsound} of {} probes measured the load generator, not the server", search.probes.len()),
    }
}

/// What a probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every limit holds.
    Held,
    /// Some limit does not.
    Failed,
    /// Too little to say.
    Open,
    /// Its self-audit failed.
    Invalid,
}

/// What a probe came to.
pub fn outcome(probe: &ProbeReport) -> Outcome {
    match probe.holds {
        None => Outcome::Invalid,
        Some(_) if probe.hopeless => Outcome::Failed,
        Some(holds) if holds >= 0.95 => Outcome::Held,
        Some(holds) if holds <= 0.05 => Outcome::Failed,
        Some(_) => Outcome::Open,
    }
}

/// The same in words.
pub fn verdict(probe: &ProbeReport) -> String {
    let word = match outcome(probe) {
        Outcome::Held => "pass",
        Outcome::Failed => "fail",
        Outcome::Open => "open",
        Outcome::Invalid => "invalid",
    };
    if probe.hopeless { format!("{word}, stopped early") } else { word.to_owned() }
}
