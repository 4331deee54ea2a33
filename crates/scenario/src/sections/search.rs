//! `search`: finds the largest value of a field at which all limits are met.

use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::patch_names::are_declared;
use crate::schema_table::{Block, Default, Kind, Leaf, field, requires};
use crate::sections::scenario::SCENARIO;
use crate::suggest::{meant_or, nearest};
use crate::sweep::{self, Setting};
use crate::tree::{Data, Entry, Node};
use crate::values::expect;
use crate::values::load::{Rate, is_rate, rate};
use crate::values::number::{SHARE, share};
use crate::values::time::{DURATION, SPAN, duration};
use crate::{rules, validate};
use llmscen_core::check::{Check, Subject};
use llmscen_core::label::{Labels, rate_text};
use llmscen_core::load::Load;
use llmscen_core::plan::Case;
use llmscen_core::schedule::search::first_probe_length;
use llmscen_core::search::{Budget, Goal, HalvingSpec, SearchSpec};
use llmscen_core::units::Nanos;
use serde_json::json;
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
const KEEP: Kind = Kind::Choice(
    &[
        ("half", "The better half"),
        (
            "third",
            "The better third: fewer rungs, and fewer starts of servers",
        ),
    ],
    &[],
);
const BUDGET_EXPECTED: &str = "a number of probes, or a duration such as `2h`";

/// What the probes of a halving may cost.
static BUDGET: Leaf = Leaf {
    expected: BUDGET_EXPECTED,
    sweepable: false,
    schema: || json!({ "anyOf": [{ "type": "integer", "minimum": 1 }, (SPAN.schema)()] }),
    check: |node, review| {
        if budget(node).is_none() {
            expect(node, BUDGET_EXPECTED, "`60` or `2h`", review);
        }
    },
};

fn budget(node: &Node) -> Option<Budget> {
    match node.integer() {
        Some(count) => u32::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .map(Budget::Probes),
        None => duration(node)
            .filter(|time| *time > Nanos::ZERO)
            .map(Budget::Time),
    }
}

static BOUND: Kind = Kind::Number(f64::MIN_POSITIVE, f64::INFINITY);
/// A finer grid would have differences that no server shows.
const MOST: f64 = 4000.0;

pub(crate) static SEARCH: Block = Block {
    doc: "Finds the largest value of a field that meets all limits of `slo`. Each \
    probe runs the scenario with one value. `load` defines the length of a probe; a \
    closed loop has at least two requests per user, after two per user that are not \
    counted; with a `rate` the time is that at the field's initial value, after a \
    quarter of it that is not counted.",
    short: None,
    fields: &[
        field(
            "vary",
            Kind::Text,
            "Path of the field that is varied; any number or rate.",
        )
        .required()
        .example("load.concurrency"),
        field(
            "range",
            Kind::List(&BOUND),
            "Minimum and maximum value; of a rate, per second. The search starts at \
            the field's initial value.",
        )
        .required()
        .example("[1, 1024]"),
        field(
            "precision",
            Kind::Leaf(&SHARE),
            "Relative precision of the result.",
        )
        .default("5%")
        .example("2%"),
        field(
            "confirm",
            Kind::Whole(0, 100),
            "Probes that confirm the result, the \
        last one four times as long.",
        )
        .default("2")
        .example("3"),
        field(
            "over",
            Kind::Matrix,
            "Candidates, such as arguments of the server: \
        lists of values for any path, as in `matrix`; `variant: all` takes all \
        variants. The best of their product is searched by successive halving: by \
        capacity, or by the goal; per GPU if every candidate has `target.gpus`.",
        )
        .rules(&[requires(&["budget"]).help(
            "Write what the probes of all candidates may \
            cost: `budget: 60`, or a time such as `budget: 2h`.",
        )])
        .example("{ target.server.args.max_num_seqs: [64, 128, 256] }"),
        field(
            "budget",
            Kind::Leaf(&BUDGET),
            "What the probes of all candidates may \
        cost in all: a number of probes, or their time without starts of servers and \
        pauses. Each rung gets the same part; several groups of candidates, one per \
        case of the matrix, share it equally.",
        )
        .rules(&[requires(&["over"]).help(
            "Remove it, or list the candidates: `over: { \
            target.server.args.max_num_seqs: [64, 128] }`.",
        )])
        .example("2h"),
        field(
            "keep",
            KEEP,
            "Candidates that go on from one rung to the next; those with \
        overlapping intervals go on too, where the budget allows it.",
        )
        .defaults(Default::With("over", "half"))
        .rules(&[requires(&["over"]).help(
            "Remove it: without `over` there are no \
            candidates.",
        )])
        .example("third"),
        field("goal", GOAL, "What is searched for.")
            .default("slo")
            .example("goodput"),
        field(
            "drain",
            Kind::Leaf(&DURATION),
            "Pause between two probes, after the \
        last request is complete.",
        )
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

/// Decodes the search. Reports contradictions; `axes` are the paths of the matrix and of `over`.
pub(crate) fn decode(
    root: &Node,
    table: &'static Block,
    axes: &BTreeSet<String>,
    review: &mut Review,
) -> Option<Varied> {
    let draft = Draft {
        root,
        table,
        labels: &Labels::default(),
        axes,
    };
    rules::check(&draft, "search", true, review);
    let vary = root.entry_at("search.vary")?;
    let path = vary.value.string()?;
    let kind = searchable_kind(vary, &path, table, review)?;
    check_axes(root, vary, &path, review);
    check_candidates(root, review);
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
        goal: goal(root),
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

fn grid_value(value: f64, is_whole: bool, unit: &str) -> Data {
    match (unit, is_whole) {
        ("", true) => Data::Int(value as i64),
        ("", false) => Data::Float(value),
        (_, _) => Data::Text(rate_text(value)),
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

fn check_axes(root: &Node, vary: &Entry, path: &str, review: &mut Review) {
    let has_path = |matrix: &str| {
        root.get(matrix)
            .is_some_and(|matrix| sweep::paths_of(matrix).contains(path))
    };
    if let Some(matrix) = sweep::MATRICES.into_iter().find(|matrix| has_path(matrix)) {
        let label = match matrix {
            sweep::OVER => "`over` sets it too",
            _ => "the matrix sets it too",
        };
        let message = format!("`{path}` is searched and swept");
        let mistake = Mistake::new(vary.value.at, message, label);
        let mistake = mistake.also_if(root.entry_at(matrix).map(|matrix| matrix.key_at), "here");
        review.push(mistake.help(
            "Remove it from one of the two; other paths may be swept, with a search per case.",
        ));
    }
    let sets_search = |matrix: &&Entry| {
        let mut paths = sweep::paths_of(&matrix.value).into_iter();
        paths.any(|axis| axis.starts_with("search."))
    };
    let matrices = sweep::MATRICES
        .iter()
        .filter_map(|path| root.entry_at(path));
    for matrix in matrices.filter(sets_search) {
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

/// The axes of `over`, also those of `zip`.
fn candidate_axes(root: &Node) -> Vec<&Entry> {
    let entries = root.get(sweep::OVER).map_or(&[][..], Node::entries);
    let axes = entries.iter().map(|entry| match entry.key.as_str() {
        "zip" => sweep::zip_groups(&entry.value)
            .into_iter()
            .flat_map(Node::entries)
            .collect(),
        _ => vec![entry],
    });
    axes.flatten().collect()
}

/// Reports paths of `over` that the matrix has too.
fn check_candidates(root: &Node, review: &mut Review) {
    let Some(matrix) = root.entry_at("matrix") else {
        return;
    };
    let swept = sweep::paths_of(&matrix.value);
    for axis in candidate_axes(root) {
        if swept.contains(&axis.key) {
            let message = format!("`{}` is in `over` and in the matrix", axis.key);
            let mistake = Mistake::new(axis.key_at, message, "a candidate has one value of it");
            let at = matrix.value.entry(&axis.key).unwrap_or(matrix).key_at;
            review.push(mistake.also(at, "here").help(
                "Keep it in `over` to find its best value, or in `matrix` to find the best \
                candidate for each of its values.",
            ));
        }
    }
}

/// Reports arguments of a server in `over` where the run does not start one.
pub(crate) fn check_server(root: &Node, review: &mut Review) {
    if root.get("target.server").is_some() || are_declared(root) {
        return;
    }
    let is_of_server = |axis: &&Entry| axis.key.starts_with("target.server.");
    if let Some(axis) = candidate_axes(root).into_iter().find(is_of_server) {
        review.section = "target".to_owned();
        let message = format!("`{}` without a server that the run starts", axis.key);
        let mistake = Mistake::new(axis.key_at, message, "needs `target.server`");
        review.push(mistake.help(
            "Add it, for example `target: { server: { preset: vllm } }`: each candidate is then \
            started with its arguments.",
        ));
        review.section.clear();
    }
}

/// The halving over `candidates` in each of `groups`; None without `over`, or where an error was reported. `loads`:
/// of all cases.
pub(crate) fn decode_halving<'a>(
    root: &Node,
    candidates: usize,
    groups: usize,
    mut loads: impl Iterator<Item = &'a Load>,
    review: &mut Review,
) -> Option<HalvingSpec> {
    root.get(sweep::OVER)?;
    let entry = root.entry_at("search.budget")?;
    let total = budget(&entry.value)?;
    let share = groups.max(1);
    let spec = HalvingSpec {
        budget: match total {
            Budget::Probes(count) => Budget::Probes(count / share as u32),
            Budget::Time(time) => Budget::Time(Nanos(time.0 / share as u64)),
        },
        factor: match root.get("search.keep").and_then(Node::text).as_deref() {
            Some("third") => 3,
            _ => 2,
        },
    };
    let rungs = spec.rungs(candidates);
    // The time of a probe is known only where no number of requests ends it.
    let probe = match total {
        Budget::Probes(_) => Some(1.0),
        Budget::Time(_) => loads
            .next()
            .filter(|load| load.requests.or(load.turn_limit).is_none())
            .and_then(|load| Some(load.duration?.secs() * first_probe_length(goal(root)))),
    };
    let first = rungs.first()?;
    if probe.is_none_or(|probe| first.each >= probe) {
        return Some(spec);
    }
    let least = (rungs.len() * candidates * share) as f64 * probe.unwrap_or(1.0);
    let (least, example) = match total {
        Budget::Probes(_) => (format!("{least} probes"), least.to_string()),
        Budget::Time(_) => (format!("{} s", least.ceil()), format!("{}s", least.ceil())),
    };
    let count = candidates * share;
    let message = format!("the budget is too small for one probe of each of {count} candidates");
    let mistake = Mistake::new(entry.value.at, message, format!("{least} are the least"));
    let at = root.entry_at(sweep::OVER).map(|over| over.key_at);
    review.push(mistake.also_if(at, "the candidates").help(format!(
        "Each of the {} rungs gets the same part. Write `budget: {example}` or more, or fewer \
        candidates; ten probes per candidate are usually enough.",
        rungs.len()
    )));
    None
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
        &SCENARIO,
        review,
    );
    review.count() == before
}

fn goal(root: &Node) -> Goal {
    match root.get("search.goal").and_then(Node::text).as_deref() {
        Some("goodput") => Goal::Goodput,
        _ => Goal::Slo,
    }
}

/// The value of the field in the scenario.
fn initial_value(root: &Node, path: &str) -> Option<f64> {
    let node = root.get(path)?;
    match rate(node) {
        Some(Rate::PerSecond(rate)) => Some(rate),
        _ => node.number(),
    }
}

/// Reports limits that do not fit the search: none for its goal, and those that end a probe early, refer to another
/// run, or are easier to meet with more load.
pub(crate) fn check_limits(root: &Node, cases: &[Case], review: &mut Review) {
    let Some(entry) = root.entry_at("search") else {
        return;
    };
    let checks = || cases.iter().flat_map(|case| &case.checks);
    let is_goodput = goal(root) == Goal::Goodput;
    let has_goal = |case: &Case| match is_goodput {
        true => case
            .checks
            .iter()
            .any(|check| matches!(check.subject, Subject::Goodput(_))),
        false => case
            .checks
            .iter()
            .any(|check| !check.is_default && !check.is_easier_with_load()),
    };
    if review.is_section_clean("slo") && !cases.iter().all(has_goal) {
        let (message, help) = match is_goodput {
            true => (
                "a search for goodput without a `goodput(…)` limit",
                "Define a good request in `slo`, for example `slo: [\"goodput(ttft < \
                500ms) >= 90%\"]`.",
            ),
            false if checks().next().is_some() => (
                "a search with limits on costs alone",
                "A cost falls with the load. Add a limit that gets worse under load, for example \
                `slo: [\"ttft.p95 < 500ms\"]`.",
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
        review.push(mistake.help(
            "Limit a metric that gets worse under load, such as `ttft.p95`, \
        `tpot.p95` or `error_rate`.",
        ));
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
