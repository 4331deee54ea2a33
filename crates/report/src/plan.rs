//! A plan before it runs: its cases and its objectives.

use crate::format::{check_title, counted, millis, number, value};
use crate::objectives::multiple;
use crate::search::describe_search;
use crate::table::{Cell, Column, Row, Screen, Table};
use llmscen_core::check::{Check, Confidence};
use llmscen_core::dataset::Source;
use llmscen_core::distribution::{Family, Measure};
use llmscen_core::label::{Scalar, VARIANT, WORKLOAD};
use llmscen_core::load::{AtLimit, Load, MaxInFlight, Shape, Warmup};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::quantity::Quantity;
use llmscen_core::request::CancelWhen;
use llmscen_core::schedule::search::SearchState;
use llmscen_core::search::{Budget, HalvingSpec, groups};
use llmscen_core::units::Unit;
use std::collections::BTreeMap;

/// More objectives or distributions are only counted: a sweep with limits relative to a baseline has one for each case.
const MAX_LINES: usize = 24;

/// Plans with more cases are shown as a table of ladders, if their cases differ in the load.
const MAX_LISTED: usize = 24;

/// Ladders with more values are shown by their ends and their number.
const MAX_VALUES: usize = 3;

/// The cases of a plan, one per line; of a search, only the case with the lowest load; of a large sweep, one line per
/// ladder of loads. `width`: of the terminal in characters; None: not a terminal.
pub fn plan_table(plan: &Plan, width: Option<usize>, color: bool) -> String {
    if plan.searches.is_empty()
        && plan.cases.len() > MAX_LISTED
        && let Some((_, load)) = plan.cases.first().and_then(load_label)
    {
        let screen = Screen { width, color };
        // A table of variants and workloads that does not fit in either direction has a line for each pair instead.
        let axes = [Some(WORKLOAD), Some(VARIANT), None];
        let tables = axes.map(|axis| ladder_table(plan, axis));
        let is_longer = |line: &str| width.is_some_and(|width| line.chars().count() > width);
        let fits = |table: &Table| {
            let color = false;
            let text = table.terminal(Screen { width, color });
            !text.contains('…') && !text.lines().any(is_longer)
        };
        if let Some(table) = tables.into_iter().flatten().find(fits) {
            let text = table.terminal(screen);
            return format!(
                "{} cases by {load}, with the number of values:\n\n{text}",
                plan.cases.len()
            );
        }
    }
    let columns = vec![
        Column::text().terminal("CASE", 0),
        Column::text().terminal("LOAD", 0),
        Column::number().terminal("REQUESTS", 0),
        Column::number().terminal("WARM-UP", 1),
        Column::number().terminal("SLOS", 2),
    ];
    let is_shown = |index: &usize| {
        plan.searches.is_empty() || plan.searches.iter().any(|search| search.first == *index)
    };
    let rows = (0..plan.cases.len())
        .filter(is_shown)
        .filter_map(|index| Some(plan_row(plan.cases.get(index)?)));
    let table = Table::new(columns, rows.collect()).terminal(Screen { width, color });
    match plan.searches.first() {
        Some(search) => {
            let halving = plan.halving.map(|halving| describe_halving(plan, halving));
            table + &describe_search(search, plan.searches.len()) + &halving.unwrap_or_default()
        }
        None => table,
    }
}

/// What a successive halving will do, a line for each rung.
fn describe_halving(plan: &Plan, halving: HalvingSpec) -> String {
    let groups = groups(&plan.searches);
    let Some(first) = groups.first() else {
        return String::new();
    };
    let budget = |amount: f64| match halving.budget {
        Budget::Probes(_) => counted(amount as usize, "probe"),
        Budget::Time(_) => millis(amount * 1e3),
    };
    let each = match groups.len() {
        1 => String::new(),
        many => format!("{many} times, each "),
    };
    let rungs = halving.rungs(first.len());
    let search = plan.searches.get(first.start);
    let confirms = search.is_some_and(|search| search.spec.confirm > 0);
    let mut lines = vec![format!(
        "{each}the best of {} by successive halving, with {} in {}:",
        counted(first.len(), "candidate"),
        budget(halving.budget.amount()),
        counted(rungs.len(), "rung")
    )];
    for (index, rung) in rungs.iter().enumerate() {
        let last = match index + 1 == rungs.len() {
            true if confirms => ", full searches with confirmation",
            true => ", full searches",
            false => "",
        };
        lines.push(format!(
            "  rung {}: {}, {} each{last}",
            index + 1,
            counted(rung.candidates, "candidate"),
            budget(rung.each)
        ));
    }
    if rungs.len() > 1 {
        lines.push(
            "  candidates whose intervals overlap go on too, while the budget allows it".into(),
        );
    }
    let full = search.map(|one| SearchState::new(&one.spec, &one.grid).probes_of_a_full_search());
    if let (Some(full), Budget::Probes(_)) = (full, halving.budget) {
        let probes: f64 = rungs.iter().map(|rung| rung.each).sum();
        if probes < full as f64 {
            let enough = (full as f64 / probes * halving.budget.amount()).ceil();
            lines.push(format!(
                "  the last rung will hardly converge: a candidate has {probes} probes in all, \
                and a full search takes about {full}; with `budget: {}` it has as many",
                enough * groups.len() as f64
            ));
        }
    }
    lines.join("\n") + "\n"
}

/// A label of a load, which a ladder varies.
fn is_load(path: &str) -> bool {
    path.starts_with("load.")
}

/// A line of a table of ladders.
struct LadderRow {
    /// Its labels except for the load, and for the axis that has columns.
    labels: Vec<(String, String)>,
    /// The loads by column.
    ladders: BTreeMap<usize, Vec<Scalar>>,
}

/// A line for each combination of values except for the load; with an `axis` it has a column for each of its values
/// instead.
fn ladder_table(plan: &Plan, axis: Option<&str>) -> Option<Table> {
    let (_, load) = load_label(plan.cases.first()?)?;
    let others = |case: &Case| -> Vec<(String, String)> {
        let labels = case.labels.0.iter().filter(|(path, _)| !is_load(path));
        labels
            .map(|(path, value)| (path.clone(), value.to_string()))
            .collect()
    };
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<LadderRow> = Vec::new();
    for case in &plan.cases {
        let (value, path) = load_label(case)?;
        if path != load {
            return None;
        }
        let mut key = others(case);
        let column = match axis {
            Some(axis) => key
                .iter()
                .position(|(path, _)| path == axis)
                .map(|at| key.remove(at).1)?,
            None => last_segment(load).to_owned(),
        };
        let column = find_or_push(&mut columns, column);
        let row = match rows.iter().position(|row| row.labels == key) {
            Some(row) => row,
            None => {
                rows.push(LadderRow {
                    labels: key,
                    ladders: BTreeMap::new(),
                });
                rows.len() - 1
            }
        };
        let ladders = &mut rows[row].ladders;
        ladders.entry(column).or_default().push(value.clone());
    }
    let names = rows.first()?.labels.iter();
    let names = names.map(|(path, _)| last_segment(path));
    let head: Vec<Column> = names
        .chain(columns.iter().map(String::as_str))
        .map(|name| Column::text().terminal(&name.to_uppercase(), 0))
        .collect();
    let row = |LadderRow { labels, ladders }: &LadderRow| {
        let names = labels.iter().map(|(_, value)| value.clone());
        let ladders = (0..columns.len()).map(|column| {
            ladders
                .get(&column)
                .map_or("–".to_owned(), |values| ladder(values))
        });
        Row::new(
            names
                .chain(ladders)
                .map(|text| Cell::prose(&text))
                .collect(),
        )
    };
    Some(Table::new(head, rows.iter().map(row).collect()))
}

/// The swept load of a case, and its path; None without one, or with several.
fn load_label(case: &Case) -> Option<(&Scalar, &str)> {
    let mut loads = case.labels.0.iter().filter(|(path, _)| is_load(path));
    let (path, value) = loads.next()?;
    loads.next().is_none().then_some((value, path.as_str()))
}

fn find_or_push(names: &mut Vec<String>, name: String) -> usize {
    let known = names.iter().position(|known| *known == name);
    known.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    })
}

fn last_segment(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// `4, 8, 16`, or `4..1024 (9)`.
fn ladder(values: &[Scalar]) -> String {
    match values {
        [first, .., last] if values.len() > MAX_VALUES => {
            format!("{first}..{last} ({})", values.len())
        }
        _ => values
            .iter()
            .map(Scalar::to_string)
            .collect::<Vec<_>>()
            .join(", "),
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
        .map(|MaxInFlight { of, then }| match then {
            AtLimit::Drop => format!(", at most {of} in flight"),
            AtLimit::Hold => format!(", at most {of} in flight, others are held"),
        })
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
    let turns = load
        .turn_limit
        .map(|count| format!("{count} of all sessions"));
    let span = load.sending_duration().map(|span| millis(span.millis()));
    let ends: Vec<String> = count.into_iter().chain(turns).chain(span).collect();
    match ends.is_empty() && matches!(load.shape, Shape::Replay { .. }) {
        true => "whole log".to_owned(),
        false => ends.join(" or "),
    }
}

fn warmup(load: &Load) -> String {
    match load.warmup {
        Warmup::Requests(count) => count.to_string(),
        Warmup::Span(span) => value(span.secs(), Unit::Seconds),
    }
}

/// The distinct lists of URLs with their balance, one per line; empty without a target that has several.
pub fn plan_endpoints(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for endpoints in plan
        .cases
        .iter()
        .filter_map(|case| case.target.location.endpoints())
    {
        let names: Vec<&str> = endpoints.names().iter().map(|name| &**name).collect();
        let line = format!(
            "target: {} URLs, {}: {}\n",
            names.len(),
            endpoints.balance.name(),
            names.join(", ")
        );
        if !names.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// The distinct objectives, one per line, under a heading; empty if there are none.
pub fn plan_limits(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for case in &plan.cases {
        for check in case.checks.iter().chain(&case.stage_checks) {
            let prefix = check
                .relative
                .as_ref()
                .map(|_| format!("{}: ", case.id))
                .unwrap_or_default();
            let line = format!("  {prefix}{}", describe_check(check));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    list_under("objectives", lines)
}

/// The distributions of the plan with their means as drawn, one per line, under a heading; empty if there are none.
pub fn plan_distributions(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for case in &plan.cases {
        for (index, class) in case.traffic_classes().iter().enumerate() {
            let entry = case.mix.get(index).map(|entry| entry.name.as_str());
            for (key, text) in distributions(class) {
                let entry = entry.map_or_else(String::new, |entry| format!("{entry}: "));
                let line = format!("  {entry}{key}: {text}");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
    }
    list_under("distributions", lines)
}

/// The first lines under a heading, and the number of the others; empty without lines.
fn list_under(heading: &str, mut lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    format!("{heading}:\n{}\n", lines.join("\n"))
}

/// The distributions of a case without a mix, by key.
fn distributions(case: &Case) -> Vec<(&'static str, String)> {
    let data = &case.dataset;
    let generated = &data.generated;
    let sessions = generated.sessions.as_ref();
    let tokens = match &data.source {
        Source::Random { tokens, .. } | Source::Prefix { tokens, .. } => Some(tokens),
        _ => None,
    };
    let cancel = case.request.cancel.as_ref().map(|cancel| &cancel.when);
    let lengths = [
        (
            "dataset.tokens",
            tokens.filter(|_| generated.pairs.is_none()),
        ),
        ("dataset.context_tokens", generated.context_tokens.as_ref()),
        (
            "dataset.shape.tokens",
            data.shape.as_ref().map(|shape| &shape.tokens),
        ),
        (
            "dataset.turns.count",
            sessions.map(|sessions| &sessions.count),
        ),
        (
            "dataset.turns.tokens",
            sessions
                .map(|sessions| &sessions.tokens)
                .filter(|later| Some(*later) != tokens),
        ),
        ("request.max_tokens", case.request.max_tokens.as_ref()),
        (
            "request.cancel.tokens",
            cancel.and_then(|when| match when {
                CancelWhen::Tokens(tokens) => Some(tokens),
                CancelWhen::After(_) => None,
            }),
        ),
    ];
    let times = [
        (
            "dataset.turns.think_time",
            data.turns
                .as_ref()
                .and_then(|turns| turns.think_time.as_ref()),
        ),
        (
            "request.cancel.after",
            cancel.and_then(|when| match when {
                CancelWhen::After(time) => Some(time),
                CancelWhen::Tokens(_) => None,
            }),
        ),
    ];
    let drawn = lengths
        .into_iter()
        .filter_map(|(key, quantity)| match quantity {
            Some(Quantity::Drawn(drawn)) => Some((key, drawn, Measure::Tokens)),
            _ => None,
        });
    let times = times
        .into_iter()
        .filter_map(|(key, time)| Some((key, time?, Measure::Time)));
    let varied = drawn
        .chain(times)
        .filter(|(_, drawn, _)| !matches!(drawn.family(), Family::Fixed(_)))
        .map(|(key, drawn, scale)| (key, drawn.describe(scale)));
    let pairs = generated.pairs.as_ref().map(|pairs| {
        let mean = |length: fn(&(u64, u64)) -> u64| {
            let sum: f64 = pairs
                .shares()
                .map(|(share, pair)| share * length(pair) as f64)
                .sum();
            number(sum)
        };
        let (count, input, output) = (
            pairs.shares().count(),
            mean(|pair| pair.0),
            mean(|pair| pair.1),
        );
        (
            "dataset.lengths",
            format!("table of {count} pairs (mean {input} in, {output} out)"),
        )
    });
    varied.chain(pairs).collect()
}

/// What happens with cases that fail, in one line; empty if nothing does.
pub fn plan_reruns(plan: &Plan) -> String {
    let on_fail = plan
        .cases
        .iter()
        .find_map(|case| case.hooks.on_fail.as_ref());
    on_fail.map_or_else(String::new, |on_fail| {
        let cases = match on_fail.max {
            1 => "1 case".to_owned(),
            max => format!("{max} cases"),
        };
        format!("a case that fails is sent once more with the profiler (at most {cases})\n")
    })
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
    use llmscen_core::load::Arrival;
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
            turn_limit: None,
            duration: Some(Nanos::from_millis(60_000)),
            warmup: Warmup::Span(Nanos::from_millis(5000)),
            graceful_stop: Nanos::ZERO,
            max_in_flight: Some(MaxInFlight {
                of: 64,
                then: AtLimit::Hold,
            }),
            stop_when_saturated: false,
            spread: Nanos::ZERO,
            max_idle: None,
        };
        assert_eq!(
            (describe_load(&load), measured_extent(&load), warmup(&load)),
            (
                "8/s poisson, at most 64 in flight, others are held".into(),
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
