//! A plan before it runs: its cases and its objectives.

use crate::format::{check_title, millis, value};
use crate::objectives::multiple;
use crate::search::describe_search;
use crate::table::{Cell, Column, Row, Screen, Table};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::load::{Load, Warmup};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::units::Unit;

/// More objectives are only counted: a sweep with limits relative to a baseline has one for each case.
const MAX_OBJECTIVES: usize = 24;

/// The cases of a plan, one per line; of a search, only the case with the lowest load. `width`: of the terminal in characters;
/// None: not a terminal.
pub fn plan_table(plan: &Plan, width: Option<usize>, color: bool) -> String {
    let columns = vec![
        Column::text().terminal("CASE", 0),
        Column::text().terminal("LOAD", 0),
        Column::number().terminal("REQUESTS", 0),
        Column::number().terminal("WARM-UP", 1),
        Column::number().terminal("SLOS", 2),
    ];
    let is_shown = |index: &usize| {
        plan.searches.is_empty() || plan.searches.iter().any(|quest| quest.first == *index)
    };
    let rows = (0..plan.cases.len())
        .filter(is_shown)
        .filter_map(|index| Some(plan_row(plan.cases.get(index)?)));
    let table = Table::new(columns, rows.collect()).terminal(Screen { width, color });
    match plan.searches.first() {
        Some(quest) => table + &describe_search(quest, plan.searches.len()),
        None => table,
    }
}

fn plan_row(case: &Case) -> Row {
    let load = [Some(describe_load(&case.load)), case.describe_mix()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("; ");
    Row::new(vec![
        Cell::prose(&case.id),
        Cell::prose(&load),
        Cell::figure(measured_extent(&case.load), None::<f64>),
        Cell::figure(warmup(&case.load), None::<f64>),
        Cell::count(case.checks.len() as u64),
    ])
}

fn describe_load(load: &Load) -> String {
    let cap = load
        .max_in_flight
        .map(|cap| format!(", at most {cap} in flight"))
        .unwrap_or_default();
    let spread = if load.spread.0 == 0 {
        String::new()
    } else {
        format!(", started over {}", millis(load.spread.millis()))
    };
    format!("{}{spread}{cap}", load.shape)
}

/// How much is measured: a number of requests, a duration, or whichever ends first.
fn measured_extent(load: &Load) -> String {
    let count = load.requests.map(|count| count.to_string());
    let span = load.sending_duration().map(|span| millis(span.millis()));
    count
        .into_iter()
        .chain(span)
        .collect::<Vec<_>>()
        .join(" or ")
}

fn warmup(load: &Load) -> String {
    match load.warmup {
        Warmup::Requests(count) => count.to_string(),
        Warmup::Span(span) => value(span.secs(), Unit::Seconds),
    }
}

/// The distinct objectives, one per line, under a heading; empty if there are none.
pub fn plan_limits(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for case in &plan.cases {
        for check in case.checks.iter().chain(&case.stage_checks) {
            let prefix = check
                .relative
                .map(|_| format!("{}: ", case.id))
                .unwrap_or_default();
            let line = format!("  {prefix}{}", describe_check(check));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let more = lines.len().saturating_sub(MAX_OBJECTIVES);
    lines.truncate(MAX_OBJECTIVES);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if lines.is_empty() {
        String::new()
    } else {
        format!("objectives:\n{}\n", lines.join("\n"))
    }
}

fn describe_check(check: &Check) -> String {
    let confidence = match check.confidence {
        Confidence::Point => ", point estimate only".to_owned(),
        Confidence::Level(level) => format!(" at {}% confidence", (level * 1e4).round() / 1e2),
    };
    let multiple = multiple(check)
        .map(|text| format!(", {text}"))
        .unwrap_or_default();
    format!("{}{confidence}{multiple}", check_title(check))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::load::{Arrival, Shape};
    use llmscen_core::units::Nanos;

    #[test]
    fn a_load_is_described_with_its_extent() {
        let shape = Shape::Open {
            rate: 8.0,
            arrival: Arrival::Poisson,
        };
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
            (describe_load(&load), measured_extent(&load), warmup(&load)),
            (
                "8/s poisson, at most 64 in flight".into(),
                "200 or 60 s".into(),
                "5 s".into()
            )
        );
        let closed = Load {
            shape: Shape::Burst,
            duration: None,
            warmup: Warmup::Requests(16),
            max_in_flight: None,
            ..load
        };
        assert_eq!(
            (
                describe_load(&closed),
                measured_extent(&closed),
                warmup(&closed)
            ),
            ("burst".into(), "200".into(), "16".into())
        );
    }
}
