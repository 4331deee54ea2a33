//! The swept keys of a report whose values differ between its cases.

use llmscen_core::label::{Scalar, VARIANT, WORKLOAD};
use llmscen_core::report::Report;

/// A swept key, or several that change together, with its values in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dimension {
    /// `concurrency`, or `tokens, max_tokens` where each value of one key goes with one value of the other.
    pub(crate) name: String,
    /// Distinct values, numbers by size.
    pub(crate) values: Vec<String>,
    /// The index of the value of each case; None for a case without the key.
    pub(crate) of_case: Vec<Option<usize>>,
}

impl Dimension {
    /// The value of a case; empty if it has none.
    pub(crate) fn value(&self, case: usize) -> &str {
        let index = self.of_case.get(case).copied().flatten();
        index.map_or("", |index| &self.values[index])
    }
}

/// The upper ends of the steps of the color scale of value ÷ limit; the limit is the end of the fourth step.
pub(crate) const HEAT_STEPS: [f64; 6] = [0.25, 0.5, 0.8, 1.0, 1.25, 2.0];

/// The step of a ratio of value to limit, 0 to 6.
pub(crate) fn heat_step(ratio: f64) -> usize {
    HEAT_STEPS.iter().filter(|end| ratio > **end).count()
}

/// The two keys of a report whose cases differ in exactly two, no two of them at the same place.
pub(crate) fn grid(report: &Report) -> Option<[Dimension; 2]> {
    let [rows, columns] = <[Dimension; 2]>::try_from(dimensions(report)).ok()?;
    let places: Vec<_> = rows.of_case.iter().zip(&columns.of_case).collect();
    let is_grid = report.searches.is_empty()
        && places.iter().enumerate().all(|(at, place)| {
            place.0.is_some() && place.1.is_some() && !places[..at].contains(place)
        });
    is_grid.then_some([rows, columns])
}

/// The index of the case at a place of a grid.
pub(crate) fn case_at(
    [rows, columns]: &[Dimension; 2],
    row: usize,
    column: usize,
) -> Option<usize> {
    let mut places = rows.of_case.iter().zip(&columns.of_case);
    places.position(|(at_row, at_column)| (*at_row, *at_column) == (Some(row), Some(column)))
}

/// The keys whose values differ, in the order of the matrix.
pub(crate) fn dimensions(report: &Report) -> Vec<Dimension> {
    let mut paths: Vec<&str> = Vec::new();
    for (path, _) in report.cases.iter().flat_map(|case| &case.labels.0) {
        if !paths.contains(&path.as_str()) {
            paths.push(path);
        }
    }
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
    let mut found: Vec<Dimension> = Vec::new();
    for path in &paths {
        let is_unique = paths
            .iter()
            .filter(|other| last(other) == last(path))
            .count()
            == 1;
        let name = if is_unique {
            last(path)
        } else {
            (*path).to_owned()
        };
        let Some(dimension) = dimension(report, path, name) else {
            continue;
        };
        // A variant or workload keeps a column of its own, whatever changes with it.
        let is_name = |name: &str| [VARIANT, WORKLOAD].contains(&name);
        let joins = |known: &&mut Dimension| {
            !is_name(&known.name) && !is_name(path) && change_together(known, &dimension)
        };
        match found.iter_mut().find(joins) {
            Some(known) => join(known, dimension),
            None => found.push(dimension),
        }
    }
    found
}

fn dimension(report: &Report, path: &str, name: String) -> Option<Dimension> {
    let mut values: Vec<&Scalar> = Vec::new();
    for value in report.cases.iter().filter_map(|case| case.labels.get(path)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let is_missing = report
        .cases
        .iter()
        .any(|case| case.labels.get(path).is_none());
    if values.len() < 2 && !is_missing {
        return None;
    }
    let is_numeric = values.iter().all(|value| value.number().is_some());
    if is_numeric {
        values.sort_by(|a, b| {
            a.number()
                .partial_cmp(&b.number())
                .unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    let index = |value: &Scalar| values.iter().position(|known| *known == value);
    Some(Dimension {
        name,
        of_case: report
            .cases
            .iter()
            .map(|case| case.labels.get(path).and_then(index))
            .collect(),
        values: values.iter().map(|value| value.to_string()).collect(),
    })
}

/// Whether each value of one goes with exactly one value of the other, as in `zip`.
fn change_together(a: &Dimension, b: &Dimension) -> bool {
    let pairs: Vec<_> = a.of_case.iter().zip(&b.of_case).collect();
    a.values.len() == b.values.len()
        && pairs
            .iter()
            .all(|(x, y)| pairs.iter().all(|(v, w)| (x == v) == (y == w)))
}

fn join(known: &mut Dimension, other: Dimension) {
    known.name = format!("{}, {}", known.name, other.name);
    for (index, value) in known.values.iter_mut().enumerate() {
        let case = known.of_case.iter().position(|of| *of == Some(index));
        *value = format!("{value}, {}", case.map_or("", |case| other.value(case)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};
    use llmscen_core::label::Labels;

    fn report(labels: &[&[(&str, i64)]]) -> Report {
        let labeled = |labels: &&[(&str, i64)]| {
            let mut case = case(1);
            let pair = |(path, value): &(&str, i64)| ((*path).to_owned(), Scalar::Int(*value));
            case.labels = Labels(labels.iter().map(pair).collect());
            case
        };
        report_of(labels.iter().map(labeled).collect(), Default::default(), 0)
    }

    #[test]
    fn the_limit_is_the_end_of_a_color_step() {
        assert_eq!(
            [0.0, 0.25, 0.9, 1.0, 1.01, 2.0, 2.1, f64::INFINITY].map(heat_step),
            [0, 0, 3, 3, 4, 5, 6, 6]
        );
    }

    #[test]
    fn only_keys_whose_values_differ_are_dimensions() {
        let all = dimensions(&report(&[
            &[("load.concurrency", 8), ("request.max_tokens", 16)],
            &[("load.concurrency", 2), ("request.max_tokens", 16)],
        ]));
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].name.as_str(), &all[0].values[..]),
            ("concurrency", &["2".to_owned(), "8".to_owned()][..])
        );
        assert_eq!((all[0].value(0), all[0].value(1)), ("8", "2"));
    }

    #[test]
    fn keys_that_change_together_are_one_dimension() {
        let all = dimensions(&report(&[
            &[
                ("load.concurrency", 1),
                ("dataset.tokens", 64),
                ("request.max_tokens", 16),
            ],
            &[
                ("load.concurrency", 1),
                ("dataset.tokens", 512),
                ("request.max_tokens", 32),
            ],
            &[
                ("load.concurrency", 4),
                ("dataset.tokens", 64),
                ("request.max_tokens", 16),
            ],
            &[
                ("load.concurrency", 4),
                ("dataset.tokens", 512),
                ("request.max_tokens", 32),
            ],
        ]));
        let names: Vec<&str> = all
            .iter()
            .map(|dimension| dimension.name.as_str())
            .collect();
        assert_eq!(names, ["concurrency", "tokens, max_tokens"]);
        assert_eq!(all[1].values, ["64, 16", "512, 32"]);
    }

    #[test]
    fn equal_last_words_keep_their_path_and_a_missing_key_has_no_value() {
        let all = dimensions(&report(&[
            &[("a.tokens", 1), ("b.tokens", 5)],
            &[("a.tokens", 2), ("b.tokens", 5)],
            &[("a.tokens", 2)],
        ]));
        let names: Vec<&str> = all
            .iter()
            .map(|dimension| dimension.name.as_str())
            .collect();
        assert_eq!(names, ["a.tokens", "b.tokens"]);
        assert_eq!(all[1].value(2), "");
    }
}
