//! Expands a scenario into a plan: every point of the matrix becomes a case, and every case is decoded separately.

use crate::case_labels::CaseLabels;
use crate::draft::Draft;
use crate::fault::{Mistake, Review};
use crate::patch_names::{PATCHES, PatchNames, are_declared, kind_of_axis};
use crate::rules;
use crate::secrets::by_name;
use crate::sections::baseline::BaselineState;
use crate::sections::scenario::SCENARIO;
use crate::sections::slo::RelativeContext;
use crate::sections::{
    baseline, dataset, hooks, load, mix, report, request, scenario, search, server, slo, target,
    telemetry,
};
use crate::sweep::{MOST, OVER, Point, Setting, patch_names, points};
use crate::tree::{Node, Part, last_segment};
use crate::values::time::duration;
use crate::vars::Variables;
use llmscen_core::dataset::DatasetSpec;
use llmscen_core::label::{Labels, describe};
use llmscen_core::mix::MixEntry;
use llmscen_core::plan::{AuditLimits, Case, Plan, ReportSpec};
use llmscen_core::request::RequestSpec;
use llmscen_core::search::CapacitySearch;
use llmscen_core::seed::Seed;
use llmscen_core::target::Restart;
use llmscen_core::units::Nanos;
use llmscen_core::url_secrets::is_secret_name;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Returns the tree of the cases that have a variant and a workload.
type Combine<'a> = dyn Fn(&PatchNames, &mut Review) -> Node + 'a;

/// Sections without known errors. The others are not decoded: only consequences of known errors could be found.
struct CleanSections {
    target: bool,
    request: bool,
    dataset: bool,
    load: bool,
    mix: bool,
}

impl CleanSections {
    fn new(root: &Node, review: &Review) -> CleanSections {
        let sound = |section: &str| {
            !review.partial && review.is_section_clean(section) && root.get(section).is_some()
        };
        CleanSections {
            target: sound("target"),
            request: sound("request"),
            // With a mix the section may be absent.
            dataset: sound("dataset") || sound("mix") && review.is_section_clean("dataset"),
            load: sound("load"),
            mix: sound("mix"),
        }
    }
}

/// The tree of the cases that have the same variant and workload.
struct CombinedTree {
    root: Node,
    sound: CleanSections,
}

/// The plan without its resolved text, and the baseline. None where an error was reported.
pub(crate) fn plan(
    root: &Node,
    combine: &Combine<'_>,
    env: &BTreeMap<String, String>,
    review: &mut Review,
) -> Option<(Plan, BaselineState)> {
    let mut axes = crate::sweep::paths(root);
    let cells = matrix_points("matrix", root, review);
    let candidates = matrix_points(OVER, root, review);
    let points = product(&cells, &candidates, root, review);
    let case_labels = CaseLabels::new(&points, root, review);
    check_patch_names(root, &points, review);
    let trees = combine_trees(root, &points, combine, review);
    let (points, searches) =
        search_points(root, points, candidates.len(), &axes, &case_labels, review);
    axes.extend(search::path(root));
    mix::check_axes(root, &axes, review);
    review.section = "baseline".to_owned();
    let (baseline, text) = baseline::decode(root, review);
    review.section = "slo".to_owned();
    let limits = slo::decode(root, &axes, review);
    let telemetry = telemetry::decode(&Draft {
        root,
        table: &SCENARIO,
        labels: &Labels::default(),
        axes: &BTreeSet::new(),
    })
    .unwrap_or_default();
    let names = axis_names(&points);
    let given = CaseInputs {
        env,
        case_labels: &case_labels,
        names: &names,
        axes: &axes,
        trees: &trees,
    };
    let drafts = points
        .iter()
        .filter_map(|point| decode_case(point, &given, review));
    let mut cases: Vec<Case> = drafts.collect();
    let rounds = root
        .read("rounds", Node::integer)
        .and_then(|count| u32::try_from(count).ok());
    if cases.len() == points.len() {
        let identities: Vec<(String, Labels)> = cases
            .iter()
            .map(|case| (case.id.clone(), case.labels.clone()))
            .collect();
        let context = RelativeContext {
            root,
            baseline: &baseline,
            telemetry: &telemetry,
            cases: &identities,
        };
        review.section = "target".to_owned();
        server::check_same(&cases, root, &axes, review);
        check_interleaved(&cases, root, rounds, review);
        review.section = "slo".to_owned();
        slo::assign(&limits, &mut cases, rounds.unwrap_or(1), &context, review);
        hooks::check_conditions(root, &axes, &cases, review);
        if !searches.is_empty() {
            review.section = "search".to_owned();
            search::check_limits(root, &cases, review);
        }
    }
    review.section = "search".to_owned();
    let loads = cases.iter().map(|case| &case.load);
    let halving = search::decode_halving(root, candidates.len(), cells.len(), loads, review);
    let shared = decode_shared(root).filter(|_| review.is_clean())?;
    let plan = Plan {
        id: String::new(),
        name: root.get("name")?.string()?,
        description: root.get("description").and_then(Node::string),
        labels: root.get("labels").map_or_else(BTreeMap::new, labels),
        seed: shared.seed,
        cases,
        searches,
        halving,
        rounds: rounds?,
        alternate: root.get("compare").is_some(),
        pause: shared.pause,
        audit: shared.audit,
        telemetry,
        report: shared.report,
        baseline: text,
        resolved: String::new(),
        secrets: Default::default(),
    };
    Some((plan, baseline))
}

/// Minimum number of rounds of interleaved cases: their pairs decide.
const MIN_PAIRS: u32 = 5;

/// Reports interleaved cases that cannot alternate, or that have too few rounds for a decision.
fn check_interleaved(cases: &[Case], root: &Node, rounds: Option<u32>, review: &mut Review) {
    let Some(compare) = root.entry_at("compare") else {
        return;
    };
    if let Some(search) = root.entry_at("search") {
        let mistake = Mistake::new(
            compare.key_at,
            "a capacity search cannot be interleaved",
            "its probes have no counterpart",
        );
        review.push(
            mistake
                .also(search.key_at, "the search")
                .help("Remove one of them."),
        );
    }
    if cases.len() < 2 {
        let mistake = Mistake::new(
            compare.key_at,
            "there is a single case to interleave",
            "needs two or more",
        );
        review.push(mistake.help("Write `variants:` with the two sides, or a matrix."));
    }
    if rounds.is_some_and(|rounds| rounds < MIN_PAIRS) {
        let mistake = Mistake::new(
            compare.key_at,
            format!("interleaved cases need at least {MIN_PAIRS} rounds"),
            "pairs of rounds decide",
        );
        let at = root.entry_at("rounds").map(|entry| entry.key_at);
        review.push(
            mistake
                .also_if(at, "too few")
                .help("Write `rounds: 20`; short rounds are enough."),
        );
    }
    let kept = cases.iter().filter_map(|case| case.target.server.as_ref());
    let kept: Vec<_> = kept
        .filter(|server| matches!(server.restart, Restart::Never | Restart::Variant))
        .collect();
    if kept.iter().any(|server| Some(server) != kept.first()) {
        let mistake = Mistake::new(
            compare.key_at,
            "managed servers cannot alternate without a restart",
            "one managed server runs at a time",
        );
        let at = root.entry_at("target.server").map(|entry| entry.key_at);
        review.push(mistake.also_if(at, "here").help(
            "Write `target.server.restart: round`; or start all servers yourself and give each \
            variant its `target.url`.",
        ));
    }
}

/// Reports cases without a variant or workload where the scenario declares some.
fn check_patch_names(root: &Node, points: &[Point], review: &mut Review) {
    for (index, kind) in PATCHES.iter().enumerate() {
        let lacks = |point: &&Point| patch_names(point).0[index].is_none();
        if kind.names(root).next().is_some()
            && let Some(setting) = points.iter().find(lacks).and_then(|point| point.first())
        {
            let mistake = Mistake::new(
                setting.path_at,
                format!("a case without a {}", kind.axis),
                "this row adds a case",
            );
            review.push(mistake.help(format!(
                "Name the {} in the row, for example `{}: {}`.",
                kind.axis,
                kind.axis,
                kind.names(root).next().unwrap_or_default()
            )));
        }
    }
}

/// The trees of the variants and workloads of these points. None where only consequences of known errors could be
/// found.
fn combine_trees(
    root: &Node,
    points: &[Point],
    combine: &Combine<'_>,
    review: &mut Review,
) -> HashMap<PatchNames, CombinedTree> {
    let mut trees = HashMap::new();
    if are_declared(root) && !review.is_clean() {
        return trees;
    }
    for point in points {
        let names = patch_names(point);
        if let Entry::Vacant(entry) = trees.entry(names) {
            let root = combine(entry.key(), review);
            let sound = CleanSections::new(&root, review);
            entry.insert(CombinedTree { root, sound });
        }
    }
    trees
}

/// The labels of the run. Variables with the name of a secret stay names.
fn labels(node: &Node) -> BTreeMap<String, String> {
    let part = |part: &Part| match part {
        Part::Literal(text) => text.clone(),
        Part::Env { name, value } if !is_secret_name(name) => value.clone(),
        Part::Env { .. } | Part::Ref(_) => by_name(part),
    };
    let value = |node: &Node| match &node.parts {
        Some(parts) => Some(parts.iter().map(part).collect()),
        None => node.string(),
    };
    node.entries()
        .iter()
        .filter_map(|entry| Some((entry.key.clone(), value(&entry.value)?)))
        .collect()
}

/// The points of the matrix, or of the candidates of a search.
fn matrix_points(path: &str, root: &Node, review: &mut Review) -> Vec<Point> {
    let Some(matrix) = root.get(path) else {
        return vec![Point::new()];
    };
    let section = path.split('.').next().unwrap_or(path);
    if !review.is_section_clean(section) {
        return Vec::new();
    }
    review.section = section.to_owned();
    points(Some(matrix), review)
}

/// The product of the cells of the matrix and the candidates of a search.
fn product(cells: &[Point], candidates: &[Point], root: &Node, review: &mut Review) -> Vec<Point> {
    if cells.len() * candidates.len() > MOST
        && let Some(over) = root.entry_at(OVER)
    {
        let message = format!("more than {MOST} candidates");
        let label = "the product of these lists and the matrix";
        review.push(Mistake::new(over.key_at, message, label));
        return Vec::new();
    }
    let pairs = cells
        .iter()
        .flat_map(|cell| candidates.iter().map(move |candidate| (cell, candidate)));
    pairs
        .map(|(cell, candidate)| [cell.as_slice(), candidate].concat())
        .collect()
}

/// Multiplies the points by the values of the searched field. `candidates`: the number of consecutive points that
/// compete.
fn search_points(
    root: &Node,
    points: Vec<Point>,
    candidates: usize,
    axes: &BTreeSet<String>,
    case_labels: &CaseLabels,
    review: &mut Review,
) -> (Vec<Point>, Vec<CapacitySearch>) {
    review.section = "search".to_owned();
    let Some(varied) = Some(root)
        .filter(|_| review.is_section_clean("search"))
        .and_then(|root| search::decode(root, &SCENARIO, axes, review))
    else {
        return (points, Vec::new());
    };
    let search = |(number, point): (usize, &Point)| CapacitySearch {
        group: number / candidates.max(1),
        spec: varied.spec.clone(),
        labels: case_labels.labels(point),
        first: number * varied.grid.len(),
        grid: varied.grid.clone(),
    };
    let searches = points.iter().enumerate().map(search).collect();
    let with = |point: &Point, setting: &Setting| point.iter().chain([setting]).cloned().collect();
    let all = points.iter().flat_map(|point| {
        varied
            .settings
            .iter()
            .map(move |setting| with(point, setting))
    });
    (all.collect(), searches)
}

/// The fields of a plan that all cases share.
struct SharedFields {
    seed: Seed,
    pause: Nanos,
    audit: AuditLimits,
    report: ReportSpec,
}

fn decode_shared(root: &Node) -> Option<SharedFields> {
    let draft = Draft {
        root,
        table: &SCENARIO,
        labels: &Labels::default(),
        axes: &BTreeSet::new(),
    };
    Some(SharedFields {
        seed: Seed(u64::try_from(root.get("seed")?.integer()?).ok()?),
        pause: root.read("pause", duration)?,
        audit: scenario::decode_audit(&draft)?,
        report: report::decode(&draft)?,
    })
}

/// The inputs that all cases share.
struct CaseInputs<'a> {
    env: &'a BTreeMap<String, String>,
    case_labels: &'a CaseLabels,
    names: &'a BTreeMap<String, String>,
    axes: &'a BTreeSet<String>,
    trees: &'a HashMap<PatchNames, CombinedTree>,
}

fn decode_case(point: &Point, given: &CaseInputs<'_>, review: &mut Review) -> Option<Case> {
    let CombinedTree { root, sound } = given.trees.get(&patch_names(point))?;
    let mut tree = root.clone();
    let is_value = |setting: &&Setting| kind_of_axis(&setting.path).is_none();
    for setting in point.iter().filter(is_value) {
        tree.set(&setting.path, setting.path_at, setting.value.clone());
    }
    let tree = Variables::new(given.env, &tree, &BTreeSet::new()).scenario(review);
    let labels = given.case_labels.labels(point);
    let draft = Draft {
        root: &tree,
        table: &SCENARIO,
        labels: &labels,
        axes: given.axes,
    };
    let target = decode_section("target", sound.target, &draft, review, target::decode);
    let asked = if tree.get("mix").is_some() {
        decode_mixed(&draft, sound, review)
    } else {
        decode_plain(&draft, sound, review)
    };
    let load = decode_section("load", sound.load, &draft, review, load::decode);
    let (
        target,
        (load, trace),
        Workload {
            request,
            dataset,
            mix,
        },
    ) = (target?, load?, asked?);
    let hooks = hooks::decode(&draft, &target, review);
    Some(Case {
        id: case_id(&labels, given.names),
        labels,
        hooks,
        target,
        request,
        dataset,
        mix,
        load,
        trace,
        checks: Vec::new(),
        stage_checks: Vec::new(),
    })
}

/// The requests of a case.
struct Workload {
    request: RequestSpec,
    dataset: DatasetSpec,
    mix: Vec<MixEntry>,
}

fn decode_plain(draft: &Draft<'_>, sound: &CleanSections, review: &mut Review) -> Option<Workload> {
    let dataset = decode_section("dataset", sound.dataset, draft, review, dataset::decode);
    let request = decode_section("request", sound.request, draft, review, request::decode);
    Some(Workload {
        request: request?,
        dataset: dataset?,
        mix: Vec::new(),
    })
}

/// With a mix only its entries are decoded; they inherit from the top-level sections.
fn decode_mixed(draft: &Draft<'_>, sound: &CleanSections, review: &mut Review) -> Option<Workload> {
    let sound = sound.mix && sound.request && sound.dataset;
    let mix = decode_section("mix", sound, draft, review, mix::decode)?;
    let first = mix.first()?;
    Some(Workload {
        request: first.request.clone(),
        dataset: first.dataset.clone(),
        mix,
    })
}

fn decode_section<T>(
    section: &str,
    sound: bool,
    draft: &Draft<'_>,
    review: &mut Review,
    act: fn(&Draft<'_>, &mut Review) -> Option<T>,
) -> Option<T> {
    review.section = section.to_owned();
    if !review.partial {
        rules::check(draft, section, sound, review);
    }
    sound.then(|| act(draft, review)).flatten()
}

/// The name of each swept path in case ids: its last segment, or the whole path where last segments collide.
fn axis_names(points: &[Point]) -> BTreeMap<String, String> {
    let paths: BTreeSet<&str> = points
        .iter()
        .flatten()
        .map(|setting| setting.path.as_str())
        .collect();
    let alone = |path: &str| {
        paths
            .iter()
            .filter(|other| last_segment(other) == last_segment(path))
            .count()
            == 1
    };
    paths
        .iter()
        .map(|path| {
            (
                (*path).to_owned(),
                if alone(path) {
                    last_segment(path)
                } else {
                    path
                }
                .to_owned(),
            )
        })
        .collect()
}

fn case_id(labels: &Labels, names: &BTreeMap<String, String>) -> String {
    if labels.0.is_empty() {
        return "base".to_owned();
    }
    let pairs = labels
        .0
        .iter()
        .map(|(path, value)| describe(names.get(path).unwrap_or(path), value));
    pairs.collect::<Vec<_>>().join(",")
}
