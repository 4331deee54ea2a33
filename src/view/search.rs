//! What a search is and what it found, in words.

use crate::model::search::{Extent, Goal, ProbeReport, SearchReport, SearchSpec};
use crate::view::format::percent;

/// The field's last name, and the unit of its values.
pub fn axis(spec: &SearchSpec) -> (&str, &'static str) {
    let name = spec.vary.rsplit('.').next().unwrap_or(&spec.vary);
    (name, if spec.vary == "load.rate" { "/s" } else { "" })
}

/// A search before it runs, in a line.
pub fn planned(spec: &SearchSpec, searches: usize) -> String {
    let SearchSpec { vary, low, high, start, confirm, .. } = spec;
    let goal = match spec.goal {
        Goal::Slo => "the largest value at which every limit holds",
        Goal::Goodput => "the value of the highest goodput",
    };
    let each = if searches > 1 { format!("{searches} searches, each for") } else { "search for".to_owned() };
    let precision = percent(spec.precision);
    format!("{each} {goal}: {vary} from {low} to {high}, first {start}, within {precision}, confirmed {confirm} times\n")
}

/// What was found, in a sentence.
pub fn sentence(search: &SearchReport) -> String {
    let (name, unit) = axis(&search.spec);
    let (finding, range) = (&search.finding, &search.spec);
    let labels: Vec<String> = search.labels.0.iter().map(|(path, value)| format!("{path}={value}")).collect();
    let at = if labels.is_empty() { String::new() } else { format!("{}: ", labels.join(", ")) };
    let found = match (finding.answer, finding.extent, range.goal) {
        (Some(answer), Extent::AtLeast, Goal::Slo) => format!("{name} at least {answer}{unit}, the end of the range"),
        (Some(answer), _, Goal::Slo) => format!("{name} {answer}{unit}"),
        (Some(answer), _, Goal::Goodput) => format!("the highest goodput is at {name} {answer}{unit}"),
        (None, ..) => format!("nothing holds, not even {name} {}{unit}", range.low),
    };
    let least = finding.interval.0.map_or_else(|| format!("below {}", range.low), |low| low.to_string());
    let interval = match finding.mass {
        Some(mass) => format!("{} interval {least} to {}{unit}", percent(mass), finding.interval.1),
        None => format!("between {least} and {}{unit}", finding.interval.1),
    };
    let stands = if finding.settled { String::new() } else { "; NOT SETTLED: the probes did not suffice".to_owned() };
    let contrary = finding.contrary.map_or_else(String::new, |(fails, holds)| {
        format!("; NOT MONOTONE: {fails}{unit} fails and {holds}{unit} holds, so there is more than one edge")
    });
    let requests: u64 = search.probes.iter().map(|probe| probe.requests).sum();
    format!("{at}{found} ({interval}, {} probes, {requests} requests){stands}{contrary}", search.probes.len())
}

/// What a probe came to, in a word.
pub fn verdict(probe: &ProbeReport) -> &'static str {
    match probe.holds {
        None => "invalid",
        Some(_) if probe.hopeless => "fail, stopped early",
        Some(holds) if holds >= 0.95 => "pass",
        Some(holds) if holds <= 0.05 => "fail",
        Some(_) => "open",
    }
}
