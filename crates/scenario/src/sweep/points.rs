//! The points of a checked matrix, in the order in which their cases run: the first axis turns slowest.

use super::{WORDS, groups};
use crate::fault::{Mistake, Review};
use crate::tree::{Entry, Node, Span};
use llmscen_core::labels::Scalar;
use std::collections::HashMap;

/// More cases than anybody waits for.
const MOST: usize = 10_000;

/// One swept value of a case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Path of the field.
    pub path: String,
    /// Where the matrix names it.
    pub path_at: Span,
    /// Value.
    pub value: Node,
}

/// The swept values of one case.
pub(crate) type Point = Vec<Setting>;

/// The points of a matrix; the empty point where there is none.
pub(crate) fn points(matrix: Option<&Node>, review: &mut Review) -> Vec<Point> {
    let Some(matrix) = matrix else { return vec![Point::new()] };
    let axes: Vec<Vec<Point>> = matrix.entries().iter().flat_map(axes).collect();
    let total = axes.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul);
    if total.is_none_or(|total| total > MOST) {
        review.push(Mistake::new(matrix.at, format!("more than {MOST} cases"), "the product of these lists"));
        return Vec::new();
    }
    let mut points = if axes.is_empty() { Vec::new() } else { product(&axes) };
    for row in rows(matrix, "exclude") {
        let before = points.len();
        points.retain(|point| !row.iter().all(|wanted| holds(point, wanted)));
        if points.len() == before && !settled(&row, review) {
            let at = whole(&row);
            review.push(
                Mistake::new(at, "this `exclude` matches no case", "no case has these values")
                    .help("Remove it, or compare it with the axes above."),
            );
        }
    }
    include(&mut points, rows(matrix, "include"));
    if points.is_empty() {
        review.push(Mistake::new(matrix.at, "no case is left", "every case is excluded"));
    }
    unique(&points, review);
    points
}

fn axes(entry: &Entry) -> Vec<Vec<Point>> {
    if entry.key == "zip" {
        return groups(&entry.value).into_iter().map(zipped).collect();
    }
    if WORDS.contains(&entry.key.as_str()) {
        return Vec::new();
    }
    vec![entry.value.items().iter().map(|value| vec![setting(entry, value)]).collect()]
}

fn zipped(group: &Node) -> Vec<Point> {
    let length = group.entries().first().map_or(0, |entry| entry.value.items().len());
    let row =
        |index: usize| group.entries().iter().filter_map(|entry| Some(setting(entry, entry.value.items().get(index)?))).collect();
    (0..length).map(row).collect()
}

fn setting(entry: &Entry, value: &Node) -> Setting {
    Setting { path: entry.key.clone(), path_at: entry.key_at, value: value.clone() }
}

fn product(axes: &[Vec<Point>]) -> Vec<Point> {
    axes.iter().fold(vec![Point::new()], |points, axis| {
        points.iter().flat_map(|point| axis.iter().map(|more| [point.as_slice(), more].concat())).collect()
    })
}

fn rows(matrix: &Node, word: &str) -> Vec<Point> {
    let rows = matrix.entry(word).map(|entry| entry.value.items()).unwrap_or_default();
    rows.iter().map(|row| row.entries().iter().map(|entry| setting(entry, &entry.value)).collect()).collect()
}

/// GitHub's rule: a row extends every case of the product whose own values it does not contradict, where it shares an axis with
/// it or has none; values that rows added may be replaced. A row that extends no case is a case of its own.
fn include(points: &mut Vec<Point>, rows: Vec<Point>) {
    let original = points.clone();
    for row in rows {
        let mut used = false;
        for (point, own) in points.iter_mut().zip(&original) {
            let clashes = row.iter().any(|new| own.iter().any(|old| old.path == new.path) && !holds(own, new));
            if clashes {
                continue;
            }
            used = true;
            for new in row.iter().filter(|new| !own.iter().any(|old| old.path == new.path)) {
                point.retain(|old| old.path != new.path);
                point.push(new.clone());
            }
        }
        if !used {
            points.push(row);
        }
    }
}

fn holds(point: &Point, wanted: &Setting) -> bool {
    point.iter().any(|own| own.path == wanted.path && same(own.value.scalar(), wanted.value.scalar()))
}

/// Numbers compare as numbers, also with one that is kept as it is written: `0.90` is `0.9`.
fn same(a: Option<Scalar>, b: Option<Scalar>) -> bool {
    match (&a, &b) {
        (Some(Scalar::Int(_) | Scalar::Float(_)), Some(other)) | (Some(other), Some(Scalar::Int(_) | Scalar::Float(_)))
            if !matches!(other, Scalar::Bool(_)) =>
        {
            a.and_then(|a| a.number()) == b.and_then(|b| b.number())
        }
        _ => a == b,
    }
}

/// Whether a setting of the command line replaced one of its axes, so that a row may well have lost its cases.
fn settled(row: &Point, review: &Review) -> bool {
    row.iter().any(|setting| review.fixed.contains(&setting.path))
}

fn whole(row: &Point) -> Span {
    let first = row.first().map_or(Span { file: 0, start: 0, end: 0 }, |setting| setting.path_at);
    Span { end: row.iter().map(|setting| setting.value.at.end).max().unwrap_or(first.end), ..first }
}

/// What equal points have in common: their paths and values, numbers by their value.
fn key(point: &Point) -> Vec<(&str, String)> {
    let value = |setting: &Setting| {
        let scalar = setting.value.scalar()?;
        Some(scalar.number().map_or_else(|| scalar.to_string(), |number| (number + 0.0).to_string()))
    };
    let mut key: Vec<_> = point.iter().map(|own| (own.path.as_str(), value(own).unwrap_or_default())).collect();
    key.sort();
    key
}

fn unique(points: &[Point], review: &mut Review) {
    // Only points with the same key can be equal.
    let mut known: HashMap<Vec<(&str, String)>, Vec<usize>> = HashMap::new();
    for (index, point) in points.iter().enumerate() {
        let equal = |other: &&Point| other.len() == point.len() && point.iter().all(|setting| holds(other, setting));
        let alike = known.entry(key(point)).or_default();
        let first = alike.iter().map(|at| &points[*at]).find(equal);
        alike.push(index);
        if let Some(first) = first {
            // Of equal cases the values that stand elsewhere are the ones that were written twice.
            let again = point
                .iter()
                .zip(first)
                .find(|(own, other)| own.value.at != other.value.at)
                .map(|(own, other)| (own.value.at, other.value.at));
            let (at, other) = again.unwrap_or((whole(point), whole(first)));
            review.push(Mistake::new(at, "the same case twice", "this value again").also(other, "first here"));
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
        let show = |setting: &Setting| format!("{}={}", setting.path, setting.value.scalar().unwrap());
        let points = points(Some(&matrix), &mut review);
        let points = points.iter().map(|point| point.iter().map(show).collect::<Vec<_>>().join(" ")).collect();
        (points, review.faults().iter().map(|fault| format!("{}:{} {fault}", fault.line(), fault.column())).collect())
    }

    #[test]
    fn the_first_axis_turns_slowest_and_zipped_lists_go_in_step() {
        let (points, faults) = expand("a: [1, 2]\nzip: {b: [3, 4], c: [x, y]}");
        assert_eq!(points, ["a=1 b=3 c=x", "a=1 b=4 c=y", "a=2 b=3 c=x", "a=2 b=4 c=y"]);
        assert!(faults.is_empty());
    }

    #[test]
    fn rows_are_excluded_and_included_as_on_github() {
        // The example of GitHub's documentation of `include`.
        let (points, _) = expand(
            "fruit: [apple, pear]\nanimal: [cat, dog]\ninclude:\n- {color: green}\n- {color: pink, animal: cat}\n- {fruit: apple, shape: circle}\n- {fruit: banana}\n- {fruit: banana, animal: cat}",
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
        assert_eq!(expand("a: [1, 2]\nb: [1, 2]\nexclude: [{a: 1.0}, {a: 2, b: 2}]").0, ["a=2 b=1"]);
    }

    #[test]
    fn rows_without_a_case_and_cases_without_a_difference_are_faults() {
        assert_eq!(expand("a: [1, 2]\nexclude: [{a: 3}]").1, ["2:12 this `exclude` matches no case"]);
        assert_eq!(expand("a: [1, 2, 1]").1, ["1:11 the same case twice"]);
        assert_eq!(expand("a: [1]\nexclude: [{a: 1}]").1, ["1:1 no case is left"]);
    }
}
