//! `matrix`: the product of lists of values, `zip` for parallel lists, `exclude` and `include` as in GitHub Actions,
//! and `only` for the cells of a variant or workload that run.

mod ladder;

use crate::fault::{Mistake, Review};
use crate::patch_names::{PATCHES, PatchNames, kind_of_axis};
use crate::schema_table::{Block, Kind};
use crate::suggest::nearest;
use crate::tree::{Data, Entry, Node, Span, last_segment};
use crate::validate::value;
use crate::values::describe_actual;
use crate::values::load::{is_rate, normalize_rate};
use llmscen_core::label::{Band, Scalar};
use std::collections::{BTreeSet, HashMap};

/// The mappings of `zip`: one, or a list of them.
pub(crate) fn zip_groups(zip: &Node) -> Vec<&Node> {
    match &zip.data {
        Data::List(items) => items.iter().collect(),
        _ => vec![zip],
    }
}

/// The keys of `matrix` that are not axes.
pub(crate) const WORDS: [&str; 4] = ["zip", "include", "exclude", "only"];

/// The candidates of a search, written like a matrix.
pub(crate) const OVER: &str = "search.over";
/// Where values of fields are listed.
pub(crate) const MATRICES: [&str; 2] = ["matrix", OVER];

/// The matrix, or the candidates of a search, to be changed.
pub(crate) fn matrix_mut<'a>(root: &'a mut Node, path: &str) -> Option<&'a mut Node> {
    let mut keys = path.split('.');
    let first = &mut root.entry_mut(keys.next()?)?.value;
    keys.try_fold(first, |node, key| Some(&mut node.entry_mut(key)?.value))
}

/// The paths that the matrix and the candidates of a search set.
pub(crate) fn paths(root: &Node) -> BTreeSet<String> {
    let matrices = MATRICES.iter().filter_map(|path| root.get(path));
    matrices.flat_map(paths_of).collect()
}

/// The paths that a matrix sets.
pub(crate) fn paths_of(matrix: &Node) -> BTreeSet<String> {
    let axes = matrix
        .entries()
        .iter()
        .filter(|entry| !WORDS.contains(&entry.key.as_str()))
        .map(|entry| entry.key.clone());
    let nested = ["zip", "include"]
        .into_iter()
        .filter_map(|word| matrix.entry(word))
        .flat_map(|entry| zip_groups(&entry.value));
    axes.chain(nested.flat_map(|group| group.entries().iter().map(|entry| entry.key.clone())))
        .collect()
}

/// Replaces an axis by the value of a setting of the command line.
pub(crate) fn override_axis(root: &mut Node, path: &str, value: &Node) {
    for matrix in MATRICES {
        if let Some(matrix) = matrix_mut(root, matrix) {
            override_axis_of(matrix, path, value);
        }
    }
}

fn override_axis_of(matrix: &mut Node, path: &str, value: &Node) {
    let only = Node::new(value.at, Data::List(vec![value.clone()]));
    let mut zipped = false;
    let Data::Map(entries) = &mut matrix.data else {
        return;
    };
    for entry in entries.iter_mut() {
        match entry.key.as_str() {
            "zip" => {
                zipped |= each_group(&mut entry.value, &mut |group| group.remove(path).is_some())
            }
            "include" => {
                each_group(&mut entry.value, &mut |group| {
                    let is_present = group.entry(path).is_some();
                    if is_present {
                        group.set_key(path, value.at, value.clone());
                    }
                    is_present
                });
            }
            key if key == path => entry.value = only.clone(),
            _ => {}
        }
    }
    entries.retain(|entry| {
        entry.key != "zip"
            || !zip_groups(&entry.value)
                .iter()
                .all(|group| group.entries().is_empty())
    });
    if zipped {
        entries.push(Entry {
            key: path.to_owned(),
            key_at: value.at,
            value: only,
        });
    }
}

fn each_group(node: &mut Node, act: &mut dyn FnMut(&mut Node) -> bool) -> bool {
    match &mut node.data {
        Data::List(items) => items.iter_mut().fold(false, |any, item| act(item) | any),
        _ => act(node),
    }
}

/// Maximum number of cases.
pub(crate) const MOST: usize = 10_000;

/// One swept value of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub path: String,
    /// The span of its path in the matrix.
    pub path_at: Span,
    pub value: Node,
}

/// The swept values of one case.
pub(crate) type Point = Vec<Setting>;

/// The points of a matrix; one empty point without a matrix.
pub(crate) fn points(matrix: Option<&Node>, review: &mut Review) -> Vec<Point> {
    let Some(matrix) = matrix else {
        return vec![Point::new()];
    };
    let axes: Vec<Vec<Point>> = matrix.entries().iter().flat_map(axis_points).collect();
    let total = axes
        .iter()
        .map(Vec::len)
        .try_fold(1_usize, usize::checked_mul);
    if total.is_none_or(|total| total > MOST) {
        review.push(Mistake::new(
            matrix.at,
            format!("more than {MOST} cases"),
            "the product of these lists",
        ));
        return Vec::new();
    }
    let mut points = if axes.is_empty() {
        Vec::new()
    } else {
        product(&axes)
    };
    for row in parse_rows(matrix, "exclude") {
        let before = points.len();
        points.retain(|point| !is_in_row(point, &row));
        if points.len() == before && !is_overridden(&row, review) {
            let at = row_span(&row);
            review.push(
                Mistake::new(
                    at,
                    "this `exclude` matches no case",
                    "no case has these values",
                )
                .help("Remove it, or compare it with the axes."),
            );
        }
    }
    keep_only(&mut points, &parse_rows(matrix, "only"), review);
    include_rows(&mut points, parse_rows(matrix, "include"));
    if points.is_empty() {
        review.push(Mistake::new(
            matrix.at,
            "no case is left",
            "every case is excluded",
        ));
    }
    check_unique(&points, review);
    points
}

fn axis_points(entry: &Entry) -> Vec<Vec<Point>> {
    if entry.key == "zip" {
        return zip_groups(&entry.value).into_iter().map(zipped).collect();
    }
    if WORDS.contains(&entry.key.as_str()) {
        return Vec::new();
    }
    vec![
        entry
            .value
            .items()
            .iter()
            .map(|value| vec![setting(entry, value)])
            .collect(),
    ]
}

fn zipped(group: &Node) -> Vec<Point> {
    let length = group
        .entries()
        .first()
        .map_or(0, |entry| entry.value.items().len());
    let row = |index: usize| {
        group
            .entries()
            .iter()
            .filter_map(|entry| Some(setting(entry, entry.value.items().get(index)?)))
            .collect()
    };
    (0..length).map(row).collect()
}

fn setting(entry: &Entry, value: &Node) -> Setting {
    Setting {
        path: entry.key.clone(),
        path_at: entry.key_at,
        value: value.clone(),
    }
}

fn product(axes: &[Vec<Point>]) -> Vec<Point> {
    axes.iter().fold(vec![Point::new()], |points, axis| {
        points
            .iter()
            .flat_map(|point| axis.iter().map(|more| [point.as_slice(), more].concat()))
            .collect()
    })
}

fn parse_rows(matrix: &Node, word: &str) -> Vec<Point> {
    let rows = matrix
        .entry(word)
        .map(|entry| entry.value.items())
        .unwrap_or_default();
    rows.iter()
        .map(|row| {
            row.entries()
                .iter()
                .map(|entry| setting(entry, &entry.value))
                .collect()
        })
        .collect()
}

/// Keeps the cases that match one of the rows for their variant and workload. Cases without such a row stay, unless a
/// row has names alone: then the rows list all pairs.
fn keep_only(points: &mut Vec<Point>, rows: &[Point], review: &mut Review) {
    let names = |row: &Point| -> Point {
        let is_name = |setting: &&Setting| kind_of_axis(&setting.path).is_some();
        row.iter().filter(is_name).cloned().collect()
    };
    let rows: Vec<(Point, &Point)> = rows.iter().map(|row| (names(row), row)).collect();
    for (_, row) in &rows {
        if !points.iter().any(|point| is_in_row(point, row)) && !is_overridden(row, review) {
            review.push(
                Mistake::new(
                    row_span(row),
                    "this `only` matches no case",
                    "no case has these values",
                )
                .help("Remove it, or compare it with the axes."),
            );
        }
    }
    let lists_pairs = rows.iter().any(|(names, row)| names.len() == row.len());
    points.retain(|point| {
        let mut own = rows
            .iter()
            .filter(|(names, _)| is_in_row(point, names))
            .peekable();
        own.peek().is_none() && !lists_pairs || own.any(|(_, row)| is_in_row(point, row))
    });
}

/// GitHub's rule: a row extends every case of the product whose values it does not contradict, provided they share an
/// axis or the row has none; values of earlier rows may be replaced. A row that extends no case is a new case.
fn include_rows(points: &mut Vec<Point>, rows: Vec<Point>) {
    let original = points.clone();
    for row in rows {
        let mut used = false;
        for (point, values) in points.iter_mut().zip(&original) {
            let clashes = row.iter().any(|new| {
                values.iter().any(|old| old.path == new.path) && !has_value(values, new)
            });
            if clashes {
                continue;
            }
            used = true;
            for new in row
                .iter()
                .filter(|new| !values.iter().any(|old| old.path == new.path))
            {
                point.retain(|old| old.path != new.path);
                point.push(new.clone());
            }
        }
        if !used {
            points.push(row);
        }
    }
}

fn has_value(point: &Point, expected: &Setting) -> bool {
    point.iter().any(|setting| {
        setting.path == expected.path
            && is_same_value(setting.value.scalar(), expected.value.scalar())
    })
}

/// Whether a case is in a row of `exclude` or `only`, whose values may be bands and patterns.
fn is_in_row(point: &Point, row: &Point) -> bool {
    let meets = |setting: &Setting, expected: &Setting| {
        let condition = expected.value.scalar();
        setting.path == expected.path
            && condition.is_some_and(|condition| {
                setting
                    .value
                    .scalar()
                    .is_some_and(|value| value.meets(&condition))
            })
    };
    row.iter().all(|expected| {
        has_value(point, expected) || point.iter().any(|setting| meets(setting, expected))
    })
}

/// Numbers are compared as numbers, also with text: `0.90` is `0.9`.
fn is_same_value(a: Option<Scalar>, b: Option<Scalar>) -> bool {
    match (&a, &b) {
        (Some(Scalar::Int(_) | Scalar::Float(_)), Some(other))
        | (Some(other), Some(Scalar::Int(_) | Scalar::Float(_)))
            if !matches!(other, Scalar::Bool(_)) =>
        {
            a.and_then(|a| a.number()) == b.and_then(|b| b.number())
        }
        _ => a == b,
    }
}

/// Whether a setting of the command line replaced an axis of the row, so that it may match no case.
fn is_overridden(row: &Point, review: &Review) -> bool {
    row.iter()
        .any(|setting| review.fixed.contains(&setting.path))
}

fn row_span(row: &Point) -> Span {
    let first = row
        .first()
        .map_or(Span::default(), |setting| setting.path_at);
    Span {
        end: row
            .iter()
            .map(|setting| setting.value.at.end)
            .max()
            .unwrap_or(first.end),
        ..first
    }
}

/// A key that equal points share: paths and values, numbers by value.
fn key(point: &Point) -> Vec<(&str, String)> {
    let value = |setting: &Setting| {
        let scalar = setting.value.scalar()?;
        Some(
            scalar
                .number()
                .map_or_else(|| scalar.to_string(), |number| (number + 0.0).to_string()),
        )
    };
    let mut key: Vec<_> = point
        .iter()
        .map(|setting| (setting.path.as_str(), value(setting).unwrap_or_default()))
        .collect();
    key.sort();
    key
}

fn check_unique(points: &[Point], review: &mut Review) {
    // Only points with the same key can be equal.
    let mut known: HashMap<Vec<(&str, String)>, Vec<usize>> = HashMap::new();
    for (index, point) in points.iter().enumerate() {
        let equal = |other: &&Point| {
            other.len() == point.len() && point.iter().all(|setting| has_value(other, setting))
        };
        let same_key = known.entry(key(point)).or_default();
        let first = same_key.iter().map(|at| &points[*at]).find(equal);
        same_key.push(index);
        if let Some(first) = first {
            // In equal cases, values with different spans are the duplicates.
            let again = point
                .iter()
                .zip(first)
                .find(|(setting, other)| setting.value.at != other.value.at)
                .map(|(setting, other)| (setting.value.at, other.value.at));
            let (at, other) = again.unwrap_or((row_span(point), row_span(first)));
            review.push(
                Mistake::new(at, "the same case twice", "the second one").also(other, "first here"),
            );
        }
    }
}

/// Replaces the ladders of the matrix, and of the candidates of a search, by their values, and equal rates by one
/// text. Reports invalid ladders.
pub(crate) fn spell_out(root: &mut Node, table: &'static Block, review: &mut Review) {
    for path in MATRICES {
        if let Some(matrix) = matrix_mut(root, path) {
            review.section = section(path).to_owned();
            spell_out_ladders(matrix, table, review);
            review.section.clear();
        }
    }
}

/// The section of a matrix.
fn section(path: &str) -> &str {
    path.split('.').next().unwrap_or(path)
}

fn spell_out_ladders(matrix: &mut Node, table: &'static Block, review: &mut Review) {
    let Data::Map(entries) = &mut matrix.data else {
        return;
    };
    let normalize = |path: &str, values: &mut [Node]| {
        if table.kind_at(path).is_some_and(is_rate) {
            values.iter_mut().for_each(normalize_rate);
        }
    };
    let mut axis = |entry: &mut Entry| {
        let kind = table.kind_at(&entry.key);
        ladder::spell_out(&entry.key, &mut entry.value, kind, review);
        if let Data::List(values) = &mut entry.value.data {
            normalize(&entry.key, values);
        }
    };
    for entry in entries {
        match (entry.key.as_str(), &mut entry.value.data) {
            ("zip", Data::List(groups)) => groups
                .iter_mut()
                .flat_map(Node::entries_mut)
                .for_each(&mut axis),
            ("zip", _) => entry.value.entries_mut().iter_mut().for_each(&mut axis),
            (word, Data::List(rows)) if WORDS.contains(&word) => {
                let cells = rows.iter_mut().flat_map(Node::entries_mut);
                cells.for_each(|cell| normalize(&cell.key, std::slice::from_mut(&mut cell.value)));
            }
            (word, _) if WORDS.contains(&word) => {}
            _ => axis(entry),
        }
    }
}

/// The variant and the workload of a case.
pub(crate) fn patch_names(point: &Point) -> PatchNames {
    PatchNames(PATCHES.each_ref().map(|kind| {
        let setting = point.iter().find(|setting| setting.path == kind.axis)?;
        setting.value.string()
    }))
}

/// Reports errors of the matrix of a scenario, and of the candidates of its search.
pub(crate) fn check(root: &Node, table: &'static Block, review: &mut Review) {
    for path in MATRICES {
        if let Some(matrix) = root.get(path) {
            review.section = section(path).to_owned();
            check_matrix(path, matrix, root, table, review);
            review.section.clear();
        }
    }
}

fn check_matrix(
    path: &str,
    matrix: &Node,
    root: &Node,
    table: &'static Block,
    review: &mut Review,
) {
    let example = match path {
        OVER => "target.server.args.max_num_seqs: [64, 128, 256]",
        _ => "load.concurrency: [1, 8, 64]",
    };
    let Data::Map(entries) = &matrix.data else {
        return review.push(
            Mistake::new(
                matrix.at,
                format!("`{}` must be a mapping", last_segment(path)),
                describe_actual(matrix, "a mapping"),
            )
            .help(format!("For example `{example}`.")),
        );
    };
    if path == OVER && entries.is_empty() {
        let mistake = Mistake::new(matrix.at, "`over` has no candidates", "is empty");
        review.push(mistake.help(format!("For example `over: {{ {example} }}`.")));
    }
    for entry in entries {
        match entry.key.as_str() {
            "zip" => zip_groups(&entry.value)
                .into_iter()
                .for_each(|group| check_zip(group, root, table, review)),
            "include" | "exclude" | "only" => check_rows(entry, root, table, review),
            _ => check_axis(entry, root, table, review),
        }
    }
    check_axes_once(entries, review);
}

fn check_axis(entry: &Entry, root: &Node, table: &'static Block, review: &mut Review) {
    let names = kind_of_axis(&entry.key);
    let kind = match names {
        Some(_) => &Kind::Text,
        None => match sweepable_kind(entry, table, review) {
            Some(kind) => kind,
            None => return,
        },
    };
    // Errors of a ladder are reported before.
    if ladder::is_ladder(&entry.value) {
        return;
    }
    if !matches!(entry.value.data, Data::List(_)) {
        let mistake = Mistake::new(
            entry.value.at,
            format!("`{}` must be a list of values here", entry.key),
            describe_actual(&entry.value, "a list"),
        );
        return review.push(match entry.value.scalar() {
            Some(one) => mistake.help(format!(
                "For one value set `{}: {one}` in the scenario itself.",
                entry.key
            )),
            None => mistake,
        });
    }
    if entry.value.items().is_empty() {
        review.push(
            Mistake::new(entry.value.at, "an axis without values", "is empty").help(format!(
                "List the values, for example `{}: [1, 2]`, or remove the key.",
                entry.key
            )),
        );
    }
    for item in entry.value.items() {
        let cell = Entry {
            key: entry.key.clone(),
            key_at: entry.key_at,
            value: item.clone(),
        };
        check_cell(&cell, kind, root, table, review);
    }
}

fn sweepable_kind(
    entry: &Entry,
    table: &'static Block,
    review: &mut Review,
) -> Option<&'static Kind> {
    let kind = table.kind_at(&entry.key);
    if let Some(kind) = kind.filter(|kind| kind.is_scalar()) {
        return Some(kind);
    }
    let paths = if review.is_flooded() {
        Vec::new()
    } else {
        table.scalar_paths()
    };
    let paths: Vec<String> = paths.into_iter().map(|(path, _)| path).collect();
    let label = match (
        kind,
        nearest(
            &entry.key,
            paths
                .iter()
                .map(String::as_str)
                .chain(WORDS)
                .chain(PATCHES.each_ref().map(|kind| kind.axis)),
        ),
    ) {
        (Some(_), _) => "cannot be swept: it is not a single value".to_owned(),
        (None, Some(meant)) => format!("did you mean `{meant}`?"),
        (None, None) => "does not exist".to_owned(),
    };
    let help = "A key here is the path of a value, such as `load.concurrency`, or `variant`, \
    `workload`, `zip`, `include`, `exclude`, `only`.";
    review.push(
        Mistake::new(
            entry.key_at,
            format!("`{}` cannot be swept", entry.key),
            label,
        )
        .help(help),
    );
    None
}

fn check_cell(
    entry: &Entry,
    kind: &'static Kind,
    root: &Node,
    table: &'static Block,
    review: &mut Review,
) {
    let names = kind_of_axis(&entry.key);
    match entry.value.data {
        Data::List(_) | Data::Map(_) | Data::Null => {
            let mistake = Mistake::new(
                entry.value.at,
                "a swept value must be text, a number, `true` or `false`",
                describe_actual(&entry.value, "one value"),
            );
            let takes_list = matches!(kind, Kind::Leaf(leaf) if leaf.expected.contains("list"));
            review.push(match entry.value.data {
                Data::List(_) if takes_list => mistake.help(format!(
                    "A list needs a name in `variants`: `variants: {{ two: {{ {}: […] }} }}`.",
                    entry.key
                )),
                _ => mistake,
            });
        }
        _ => match names.zip(entry.value.string()) {
            Some((names, name)) => names.check_name(&name, entry.value.at, root, review),
            None => value(entry, kind, table, review),
        },
    }
}

/// Whether a value of a row of `exclude` or `only` is a band or a pattern.
fn is_condition(node: &Node) -> bool {
    node.text()
        .is_some_and(|text| text.contains('*') || Band::parse(&text).is_some())
}

fn check_zip(group: &Node, root: &Node, table: &'static Block, review: &mut Review) {
    if !matches!(group.data, Data::Map(_)) {
        return review.push(Mistake::new(
            group.at,
            "`zip` must be a mapping, or a list of mappings",
            describe_actual(group, "a mapping"),
        ));
    }
    group
        .entries()
        .iter()
        .for_each(|entry| check_axis(entry, root, table, review));
    let Some(first) = group.entries().first() else {
        return;
    };
    let length = first.value.items().len();
    for other in group
        .entries()
        .iter()
        .skip(1)
        .filter(|other| other.value.items().len() != length)
    {
        let values = |n: usize| {
            if n == 1 {
                "1 value".to_owned()
            } else {
                format!("{n} values")
            }
        };
        let length_here = values(other.value.items().len());
        let mistake = Mistake::new(
            other.value.at,
            "zipped lists of unequal length",
            length_here,
        )
        .also(first.value.at, values(length));
        review.push(mistake.help(
            "Values of lists under `zip` are combined one by one: the first with the first, \
                the second with the second.",
        ));
    }
}

fn check_rows(list: &Entry, root: &Node, table: &'static Block, review: &mut Review) {
    let Data::List(items) = &list.value.data else {
        let message = format!("`{}` must be a list of mappings", list.key);
        return review.push(Mistake::new(
            list.value.at,
            message,
            describe_actual(&list.value, "a list"),
        ));
    };
    for item in items {
        if item.entries().is_empty() {
            review.push(Mistake::new(
                item.at,
                format!("an empty row of `{}`", list.key),
                "expected paths and their values",
            ));
        }
        for entry in item.entries() {
            if list.key != "include" && is_condition(&entry.value) {
                continue;
            }
            let kind = match kind_of_axis(&entry.key) {
                Some(_) => Some(&Kind::Text),
                None => sweepable_kind(entry, table, review),
            };
            if let Some(kind) = kind {
                check_cell(entry, kind, root, table, review);
            }
        }
    }
}

fn check_axes_once(entries: &[Entry], review: &mut Review) {
    let mut paths: BTreeSet<&str> = entries.iter().map(|entry| entry.key.as_str()).collect();
    for group in entries
        .iter()
        .filter(|entry| entry.key == "zip")
        .flat_map(|entry| zip_groups(&entry.value))
    {
        for entry in group
            .entries()
            .iter()
            .filter(|entry| !paths.insert(&entry.key))
        {
            review.push(Mistake::new(
                entry.key_at,
                format!("`{}` is swept twice", entry.key),
                "a second axis with the same path",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn expand(yaml: &str) -> (Vec<String>, Vec<String>) {
        let mut review = Review::default();
        let file = review.sources.add("t", yaml, Default::default());
        let matrix = parse(file, 0, yaml, &mut review).unwrap();
        let show =
            |setting: &Setting| format!("{}={}", setting.path, setting.value.scalar().unwrap());
        let points = points(Some(&matrix), &mut review);
        let points = points
            .iter()
            .map(|point| point.iter().map(show).collect::<Vec<_>>().join(" "))
            .collect();
        (
            points,
            review
                .faults()
                .iter()
                .map(|fault| format!("{}:{} {fault}", fault.line(), fault.column()))
                .collect(),
        )
    }

    #[test]
    fn first_axis_varies_slowest_and_zipped_lists_are_parallel() {
        let (points, faults) = expand("a: [1, 2]\nzip: {b: [3, 4], c: [x, y]}");
        assert_eq!(
            points,
            ["a=1 b=3 c=x", "a=1 b=4 c=y", "a=2 b=3 c=x", "a=2 b=4 c=y"]
        );
        assert!(faults.is_empty());
    }

    #[test]
    fn exclude_and_include_follow_github() {
        // The example in GitHub's documentation of `include`.
        let (points, _) = expand(
            "fruit: [apple, pear]\nanimal: [cat, dog]\ninclude:\n\
            - {color: green}\n- {color: pink, animal: cat}\n\
            - {fruit: apple, shape: circle}\n- {fruit: banana}\n- {fruit: banana, animal: cat}",
        );
        assert_eq!(
            points,
            [
                "fruit=apple animal=cat color=pink shape=circle",
                "fruit=apple animal=dog color=green shape=circle",
                "fruit=pear animal=cat color=pink",
                "fruit=pear animal=dog color=green",
                "fruit=banana",
                "fruit=banana animal=cat"
            ]
        );
        assert_eq!(
            expand("a: [1, 2]\nb: [1, 2]\nexclude: [{a: 1.0}, {a: 2, b: 2}]").0,
            ["a=2 b=1"]
        );
    }

    #[test]
    fn rows_without_a_case_and_duplicate_cases_are_errors() {
        assert_eq!(
            expand("a: [1, 2]\nexclude: [{a: 3}]").1,
            ["2:12 this `exclude` matches no case"]
        );
        assert_eq!(expand("a: [1, 2, 1]").1, ["1:11 the same case twice"]);
        assert_eq!(
            expand("a: [1]\nexclude: [{a: 1}]").1,
            ["1:1 no case is left"]
        );
    }
}
