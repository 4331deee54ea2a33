//! A plan before it runs: its cases and its limits.

use crate::format::{millis, title, value};
use crate::objectives::multiple;
use crate::search::planned;
use crate::table::{Cell, Column, Row, Screen, Table};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::load::{Load, Warmup};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::units::Unit;

/// Limits that are listed: a sweep against a baseline has one of its own for each case.
const MAX_LIMITS: usize = 24;

/// The cases of a plan, one a line; of a search, the one with the least load. `width`: columns of the terminal, None where there is none.
pub fn plan_table(plan: &Plan, width: Option<usize>, color: bool) -> String {
    let columns = vec![
        Column::text().terminal("CASE", 0),
        Column::text().terminal("LOAD", 0),
        Column::number().terminal("REQUESTS", 0),
        Column::number().terminal("WARM-UP", 1),
        Column::number().terminal("SLOS", 2),
    ];
    let begins = |index: &usize| plan.quests.is_empty() || plan.quests.iter().any(|quest| quest.first == *index);
    let rows = (0..plan.cases.len()).filter(begins).filter_map(|index| Some(plan_row(plan.cases.get(index)?)));
    let table = Table::new(columns, rows.collect()).terminal(Screen { width, color });
    match plan.quests.first() {
        Some(quest) => table + &planned(quest, plan.quests.len()),
        None => table,
    }
}

fn plan_row(case: &Case) -> Row {
    let load = [Some(load_words(&case.load)), case.mix_words()].into_iter().flatten().collect::<Vec<_>>().join("; ");
    Row::new(vec![
        Cell::prose(&case.id),
        Cell::prose(&load),
        Cell::figure(extent(&case.load), None::<f64>),
        Cell::figure(warmup(&case.load), None::<f64>),
        Cell::count(case.checks.len() as u64),
    ])
}

fn load_words(load: &Load) -> String {
    let cap = load.max_in_flight.map(|cap| format!(", at most {cap} in flight")).unwrap_or_default();
    let spread = if load.spread.0 == 0 { String::new() } else { format!(", started over {}", millis(load.spread.millis())) };
    format!("{}{spread}{cap}", load.shape)
}

/// How much is measured: a count, a span, or the first of both.
fn extent(load: &Load) -> String {
    let count = load.requests.map(|count| count.to_string());
    let span = load.lasts().map(|span| millis(span.millis()));
    count.into_iter().chain(span).collect::<Vec<_>>().join(" or ")
}

fn warmup(load: &Load) -> String {
    match load.warmup {
        Warmup::Requests(count) => count.to_string(),
        Warmup::Span(span) => value(span.secs(), Unit::Seconds),
    }
}

/// Every different limit on a line of its own, under a heading; empty where there is none.
pub fn plan_limits(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for case in &plan.cases {
        for check in case.checks.iter().chain(&case.stage_checks) {
            let of = check.relative.map(|_| format!("{}: ", case.id)).unwrap_or_default();
            let line = format!("  {of}{}", limit_words(check));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let more = lines.len().saturating_sub(MAX_LIMITS);
    lines.truncate(MAX_LIMITS);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if lines.is_empty() { String::new() } else { format!("limits:\n{}\n", lines.join("\n")) }
}

fn limit_words(check: &Check) -> String {
    let sure = match check.confidence {
        Confidence::Point => ", compared as a point".to_owned(),
        Confidence::Level(level) => format!(" at {}% confidence", (level * 1e4).round() / 1e2),
    };
    let multiple = multiple(check).map(|words| format!(", {words}")).unwrap_or_default();
    format!("{}{sure}{multiple}", title(check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::units::Nanos;

    #[test]
    fn a_load_says_how_much_and_how_long() {
        let shape = Shape::Open { rate: 8.0, arrival: Arrival::Poisson };
        let load = Load {
            shape,
            requests: Some(200),
            duration: Some(Nanos::from_millis(60_000)),
            warmup: Warmup::Span(Nanos::from_millis(5000)),
            graceful_stop: Nanos::ZERO,
            max_in_flight: Some(64),
            stop_when_saturated: false,
            spread: Nanos::ZERO,
        };
        assert_eq!(
            (load_words(&load), extent(&load), warmup(&load)),
            ("8/s poisson, at most 64 in flight".into(), "200 or 60 s".into(), "5 s".into())
        );
        let closed = Load { shape: Shape::Burst, duration: None, warmup: Warmup::Requests(16), max_in_flight: None, ..load };
        assert_eq!((load_words(&closed), extent(&closed), warmup(&closed)), ("burst".into(), "200".into(), "16".into()));
    }
}
