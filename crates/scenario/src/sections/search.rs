//! `search`: finds the largest value of a field at which all limits are met.

use crate::fault::{Mistake, Review};
use crate::schema_table::{Block, Kind, field};
use crate::suggest::{meant_or, nearest};
use crate::sweep::Setting;
use crate::tree::{Data, Entry, Node};
use crate::validate;
use crate::values::load::{RATE, Rate, rate};
use crate::values::number::{SHARE, share};
use crate::values::time::{DURATION, duration};
use llmscen_core::check::{Check, Subject};
use llmscen_core::plan::Case;
use llmscen_core::search::{Goal, SearchSpec};
use std::collections::BTreeSet;

const GOAL: Kind = Kind::Choice(
    &[
        ("slo", "The largest value that meets all limits of `slo`"),
        (
            "goodput",
            "The value with the most requests per second that meet the limits of `goodput(…)`",
        ),
    ],
    &[],
);
static BOUND: Kind = Kind::Number(f64::MIN_POSITIVE, f64::INFINITY);
/// A finer grid would have differences that no server shows.
const MOST: f64 = 4000.0;

pub(crate) static SEARCH: Block = Block {
    doc: "Finds the largest value of a field that meets all limits of `slo`. Each probe runs the scenario with one value. `load` defines the length of a probe; a closed loop has at least two requests per user, after two per user that are not counted; with a `rate` the time is that at the field's initial value, after a quarter of it that is not counted.",
    short: None,
    fields: &[
        field("vary", Kind::Text, "Path of the field that is varied; any number or rate.").required().example("load.concurrency"),
        field(
            "range",
            Kind::List(&BOUND),
            "Minimum and maximum value; of a rate, per second. The search starts at the field's initial value.",
        )
        .required()
        .example("[1, 1024]"),
        field("precision", Kind::Leaf(&SHARE), "Relative precision of the result.").default("5%").example("2%"),
        field("confirm", Kind::Whole(0, 100), "Probes that confirm the result, the last one four times as long.")
            .default("2")
            .example("3"),
        field("goal", GOAL, "What is searched for.").default("slo").example("goodput"),
        field("drain", Kind::Leaf(&DURATION), "Pause between two probes, after the last request is complete.")
            .default("5s")
            .example("30s"),
    ],
};

/// A search and its grid.
pub(crate) struct Varied {
    pub spec: SearchSpec,
    /// Ascending values.
    pub grid: Vec<f64>,
    /// The values as settings of the field.
    pub settings: Vec<Setting>,
}

/// The path of the searched field.
pub(crate) fn path(root: &Node) -> Option<String> {
    root.get("search.vary").and_then(Node::string)
}

/// Decodes the search. Reports contradictions; `axes` are the paths of the matrix.
pub(crate) fn decode(
    root: &Node,
    table: &'static Block,
    axes: &BTreeSet<String>,
    review: &mut Review,
) -> Option<Varied> {
    let vary = root.entry_at("search.vary")?;
    let path = vary.value.string()?;
    let kind = searchable_kind(vary, &path, table, review)?;
    check_axes(root, vary, &path, axes, review);
    let (low, high) = range(root.entry_at("search.range")?, review)?;
    let unit = if is_rate(kind) { "/s" } else { "" };
    let is_whole = match kind {
        Kind::Whole(..) => true,
        Kind::Number(..) => false,
        _ => unit.is_empty() && [low, high].iter().all(|end| end.integer().is_some()),
    };
    let fits = [low, high].map(|end| check_end(vary, end, kind, unit, review));
    let ends = low
        .number()
        .zip(high.number())
        .filter(|_| fits.iter().all(|fits| *fits))?;
    let precision = root.entry_at("search.precision")?;
    let spec = SearchSpec {
        start: initial_value(root, &path)
            .unwrap_or((ends.0 * ends.1).sqrt())
            .clamp(ends.0, ends.1),
        vary: path,
        low: ends.0,
        high: ends.1,
        integer: is_whole,
        precision: share(&precision.value)?,
        confirm: root
            .get("search.confirm")
            .and_then(Node::integer)
            .and_then(|n| u32::try_from(n).ok())?,
        goal: if root.get("search.goal")?.text()? == "goodput" {
            Goal::Goodput
        } else {
            Goal::Slo
        },
        drain: root.read("search.drain", duration)?,
    };
    let spec = if is_whole {
        SearchSpec {
            start: spec.start.round(),
            ..spec
        }
    } else {
        spec
    };
    if spec.precision <= 0.0 || spec.size() > MOST {
        let mistake = Mistake::new(
            precision.value.at,
            "the precision is too fine for this range",
            "too fine",
        );
        review.push(mistake.help("Take 1 % or more, or a narrower range."));
        return None;
    }
    let grid = spec.grid();
    let setting = |value: &f64| Setting {
        path: spec.vary.clone(),
        path_at: vary.value.at,
        value: Node::new(vary.value.at, grid_value(*value, is_whole, unit)),
    };
    let settings = grid.iter().map(setting).collect();
    Some(Varied {
        spec,
        grid,
        settings,
    })
}

fn is_rate(kind: &Kind) -> bool {
    matches!(kind, Kind::Leaf(leaf) if std::ptr::eq(*leaf, &RATE))
}

fn grid_value(value: f64, is_whole: bool, unit: &str) -> Data {
    match (unit, is_whole) {
        ("", true) => Data::Int(value as i64),
        ("", false) => Data::Float(value),
        (unit, _) => Data::Text(format!("{value}{unit}")),
    }
}

/// The kind of the searched field, if it is numeric.
fn searchable_kind(
    vary: &Entry,
    path: &str,
    table: &'static Block,
    review: &mut Review,
) -> Option<&'static Kind> {
    let paths = || {
        table
            .scalar_paths()
            .into_iter()
            .filter(|(known_path, _)| !known_path.starts_with("search."))
    };
    let kind = table.kind_at(path).filter(|_| !path.starts_with("search."));
    let label = match kind {
        Some(kind @ (Kind::Whole(..) | Kind::Number(..) | Kind::Json | Kind::Leaf(_)))
            if kind.is_scalar() =>
        {
            return Some(kind);
        }
        Some(_) => "is not a number".to_owned(),
        None => {
            let known: Vec<String> = paths().map(|(known_path, _)| known_path).collect();
            meant_or(
                nearest(path, known.iter().map(String::as_str)),
                "does not exist",
            )
        }
    };
    let mistake = Mistake::new(vary.value.at, format!("`{path}` cannot be searched"), label);
    review.push(
        mistake.help("Name the path of a number, such as `load.concurrency` or `load.rate`."),
    );
    None
}

fn check_axes(root: &Node, vary: &Entry, path: &str, axes: &BTreeSet<String>, review: &mut Review) {
    if axes.contains(path) {
        let mistake = Mistake::new(
            vary.value.at,
            format!("`{path}` is searched and swept"),
            "the matrix sets it too",
        );
        let mistake = mistake.also_if(root.entry_at("matrix").map(|matrix| matrix.key_at), "here");
        review.push(mistake.help(
            "Remove it from one of the two; other paths may be swept, with a search per case.",
        ));
    }
    if axes.iter().any(|axis| axis.starts_with("search."))
        && let Some(matrix) = root.entry_at("matrix")
    {
        review.push(Mistake::new(
            matrix.key_at,
            "a search cannot be swept",
            "sets a key of `search`",
        ));
    }
    if let Some(rounds) = root
        .entry_at("rounds")
        .filter(|entry| entry.value.integer().is_some_and(|count| count > 1))
    {
        let mistake = Mistake::new(
            rounds.value.at,
            "a search cannot have rounds",
            "the search decides on the number of probes",
        );
        review.push(
            mistake.help(
                "Remove `rounds`; `confirm` is the number of probes that confirm the result.",
            ),
        );
    }
}

fn range<'a>(entry: &'a Entry, review: &mut Review) -> Option<(&'a Node, &'a Node)> {
    match entry.value.items() {
        [low, high] if low.number() < high.number() => Some((low, high)),
        _ => {
            let mistake = Mistake::new(
                entry.value.at,
                "`range` must be two numbers, the smaller one first",
                "expected two numbers",
            );
            review.push(mistake.help("For example `range: [1, 1024]`."));
            None
        }
    }
}

/// Whether the field allows an end of the range; reports it if not.
fn check_end(
    vary: &Entry,
    end: &Node,
    kind: &'static Kind,
    unit: &str,
    review: &mut Review,
) -> bool {
    let value = match (unit, end.number()) {
        ("", _) => end.clone(),
        (unit, number) => Node::new(
            end.at,
            Data::Text(format!("{}{unit}", number.unwrap_or_default())),
        ),
    };
    let key = vary
        .value
        .text()
        .unwrap_or_default()
        .rsplit('.')
        .next()
        .unwrap_or_default()
        .to_owned();
    let before = review.count();
    validate::value(
        &Entry {
            key,
            key_at: vary.key_at,
            value,
        },
        kind,
        review,
    );
    review.count() == before
}

/// The value of the field in the scenario.
fn initial_value(root: &Node, path: &str) -> Option<f64> {
    let node = root.get(path)?;
    match rate(node) {
        Some(Rate::PerSecond(rate)) => Some(rate),
        _ => node.number(),
    }
}

/// Reports limits that do not fit the search: none for its goal, and those that end a probe early, refer to another run, or are
/// easier to meet with more load.
pub(crate) fn check_limits(root: &Node, cases: &[Case], review: &mut Review) {
    let Some(entry) = root.entry_at("search") else {
        return;
    };
    let checks = || cases.iter().flat_map(|case| &case.checks);
    let is_goodput = root
        .get("search.goal")
        .and_then(Node::text)
        .is_some_and(|goal| goal == "goodput");
    let has_goal = |case: &Case| match is_goodput {
        true => case
            .checks
            .iter()
            .any(|check| matches!(check.subject, Subject::Goodput(_))),
        false => !case.checks.is_empty(),
    };
    if review.is_section_clean("slo") && !cases.iter().all(has_goal) {
        let (message, help) = match is_goodput {
            true => (
                "a search for goodput without a `goodput(…)` limit",
                "Define a good request in `slo`, for example `slo: [\"goodput(ttft < 500ms) >= 90%\"]`.",
            ),
            false => (
                "a search without limits",
                "Add limits to `slo`, for example `slo: [\"ttft.p95 < 500ms\"]`.",
            ),
        };
        review.push(Mistake::new(entry.key_at, message, "nothing to search for").help(help));
    }
    let slo_at = root.entry_at("slo").map_or(entry.key_at, |slo| slo.key_at);
    if let Some(check) = checks().find(|check| !is_goodput && grows_with_load(check)) {
        let message = format!("`{}` in a search for the largest load", check.expr);
        let mistake = Mistake::new(slo_at, message, "throughput increases with the load");
        review.push(mistake.help("Limit a metric that gets worse under load, such as `ttft.p95`, `tpot.p95` or `error_rate`."));
    }
    if checks().any(|check| check.abort.is_some()) {
        let mistake = Mistake::new(
            slo_at,
            "`abort` in a search",
            "a search stops hopeless probes itself",
        );
        review
            .push(mistake.help(
                "Remove it: a probe ends as soon as more requests cannot change its result.",
            ));
    }
    if checks().any(|check| check.relative.is_some()) {
        let mistake = Mistake::new(
            slo_at,
            "a relative limit in a search",
            "the other run had another load",
        );
        review.push(mistake.help("Use limits with numbers, such as `ttft.p95 < 500ms`."));
    }
}

/// Whether a limit is easier to meet with more load, so that there is no largest load.
fn grows_with_load(check: &Check) -> bool {
    matches!(check.subject, Subject::Metric { metric, .. } if metric.is_rate())
        && !check.op.is_ceiling()
}
