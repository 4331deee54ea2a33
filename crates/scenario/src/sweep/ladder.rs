//! Ladders: an axis of numbers as `{ doubling: [1, 256] }`, `{ linear: [10, 100, 10] }` or `{ log: [1, 1000, 4] }`.

use crate::fault::{Mistake, Review};
use crate::schema_table::Kind;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Node};
use llmscen_core::label::{per_second, rate_text};

/// The words of a ladder, and what follows each.
const FORMS: [(&str, &str, usize); 3] = [
    ("doubling", "[FROM, TO]", 2),
    ("linear", "[FROM, TO, COUNT]", 3),
    ("log", "[FROM, TO, COUNT]", 3),
];

/// Maximum number of values of a ladder.
const MOST: f64 = 1000.0;

/// Whether an axis is written as a ladder.
pub(super) fn is_ladder(node: &Node) -> bool {
    matches!(&node.data, Data::Map(entries) if !entries.is_empty())
}

/// The values of a ladder, ascending. Whole numbers are rounded, and equal ones are left out.
pub(super) fn values(path: &str, node: &Node, kind: &Kind) -> Result<Vec<Node>, Box<Mistake>> {
    let Form {
        word,
        ends: [from, to],
        count,
        per_second,
    } = parse(path, node)?;
    let steps = match word {
        "doubling" => (to / from).log2().floor() + 1.0,
        _ => count,
    };
    let value = |step: f64| match word {
        "doubling" => from * step.exp2(),
        _ if steps == 1.0 => from,
        "linear" => from + (to - from) * step / (steps - 1.0),
        _ => from * (to / from).powf(step / (steps - 1.0)),
    };
    let whole = matches!(kind, Kind::Whole(..));
    let mut numbers: Vec<f64> = (0..steps as usize)
        .map(|step| value(step as f64))
        .map(|number| {
            if whole {
                number.round()
            } else {
                six_digits(number)
            }
        })
        .collect();
    numbers.dedup();
    let scalar = |number: f64| match (per_second, number.fract() == 0.0) {
        (true, _) => Data::Text(rate_text(number)),
        (false, true) => Data::Int(number as i64),
        (false, false) => Data::Float(number),
    };
    Ok(numbers
        .into_iter()
        .map(|number| Node::new(node.at, scalar(number)))
        .collect())
}

fn six_digits(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}

struct Form {
    word: &'static str,
    ends: [f64; 2],
    count: f64,
    /// Whether the ends are rates such as `1/s`.
    per_second: bool,
}

fn parse(path: &str, node: &Node) -> Result<Form, Box<Mistake>> {
    let help = format!(
        "For example `{path}: {{ doubling: [1, 64] }}`, `{{ linear: [10, 50, 5] }}` or `{{ log: [1, 1000, 4] }}`."
    );
    let wrong = |at, message: &str, label: String| {
        Box::new(Mistake::new(at, message, label).help(help.clone()))
    };
    let [entry] = node.entries() else {
        return Err(wrong(
            node.at,
            "a ladder has one key",
            "has several".to_owned(),
        ));
    };
    let Some((word, form, length)) = FORMS.iter().find(|(word, ..)| *word == entry.key) else {
        let words = || FORMS.iter().map(|(word, ..)| *word);
        let label = meant_or(nearest(&entry.key, words()), "does not exist");
        return Err(wrong(
            entry.key_at,
            &format!("an axis is a list, or a ladder: {}", list(words(), "or")),
            label,
        ));
    };
    let items = entry.value.items();
    let numbers: Vec<f64> = items
        .iter()
        .filter_map(|item| item.scalar()?.number())
        .collect();
    let bad_form = |label: &str| {
        wrong(
            entry.value.at,
            &format!("`{word}` needs {form}"),
            label.to_owned(),
        )
    };
    if items.len() != *length || numbers.len() != *length {
        return Err(bad_form("not these numbers"));
    }
    let count = numbers.get(2).copied().unwrap_or(1.0);
    if numbers[0] > numbers[1] {
        return Err(wrong(
            entry.value.at,
            "an empty ladder",
            "starts above its end".to_owned(),
        ));
    }
    if *word != "linear" && numbers[0] <= 0.0 {
        return Err(bad_form("must start above 0"));
    }
    if count.fract() != 0.0 || !(1.0..=MOST).contains(&count) || !numbers[1].is_finite() {
        return Err(bad_form("the count is a whole number from 1 to 1000"));
    }
    Ok(Form {
        word,
        ends: [numbers[0], numbers[1]],
        count,
        per_second: items[0]
            .text()
            .is_some_and(|text| per_second(&text).is_some()),
    })
}

/// Replaces the ladders of a matrix by their values, where they are valid.
pub(super) fn spell_out(
    path: &str,
    node: &mut Node,
    kind: Option<&'static Kind>,
    review: &mut Review,
) {
    if is_ladder(node)
        && let Some(kind) = kind
    {
        match values(path, node, kind) {
            Ok(values) => node.data = Data::List(values),
            Err(mistake) => review.push(*mistake),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse as parse_yaml;

    fn ladder(yaml: &str, kind: &Kind) -> String {
        let mut review = Review::default();
        let file = review.sources.add("t", yaml, Default::default());
        let node = parse_yaml(file, 0, yaml, &mut review).unwrap();
        match values("x", &node, kind) {
            Ok(values) => values
                .iter()
                .map(|value| value.scalar().unwrap().to_string())
                .collect::<Vec<_>>()
                .join(" "),
            Err(mistake) => {
                review.push(*mistake);
                review.faults().iter().next().unwrap().to_string()
            }
        }
    }

    #[test]
    fn ladders_are_lists_of_numbers() {
        let whole = Kind::Whole(1, 1_000_000);
        for (yaml, expected) in [
            ("{doubling: [4, 1024]}", "4 8 16 32 64 128 256 512 1024"),
            ("{doubling: [3, 20]}", "3 6 12"),
            ("{doubling: [8, 8]}", "8"),
            ("{linear: [1, 10, 4]}", "1 4 7 10"),
            ("{linear: [1, 3, 5]}", "1 2 3"),
            ("{log: [1, 1000, 4]}", "1 10 100 1000"),
            ("{log: [5, 9, 1]}", "5"),
        ] {
            assert_eq!(ladder(yaml, &whole), expected, "{yaml}");
        }
        let number = Kind::Number(0.0, f64::INFINITY);
        assert_eq!(ladder("{linear: [0, 1, 5]}", &number), "0 0.25 0.5 0.75 1");
        assert_eq!(
            ladder("{doubling: [1/s, 8/s]}", &Kind::Text),
            "1/s 2/s 4/s 8/s"
        );
        assert_eq!(
            ladder("{doubling: [15/m, 1.0/s]}", &Kind::Text),
            "0.25/s 0.5/s 1/s"
        );
    }

    #[test]
    fn wrong_ladders_are_errors() {
        let whole = Kind::Whole(1, 1_000_000);
        for (yaml, expected) in [
            ("{doubling: [8, 4]}", "an empty ladder"),
            ("{doubling: [0, 4]}", "`doubling` needs [FROM, TO]"),
            ("{doubling: [1]}", "`doubling` needs [FROM, TO]"),
            ("{linear: [1, 8]}", "`linear` needs [FROM, TO, COUNT]"),
            ("{log: [1, 8, 0]}", "`log` needs [FROM, TO, COUNT]"),
            ("{log: [1, x, 2]}", "`log` needs [FROM, TO, COUNT]"),
            (
                "{dubling: [1, 8]}",
                "an axis is a list, or a ladder: `doubling`, `linear` or `log`",
            ),
            (
                "{log: [1, 2, 2], linear: [1, 2, 2]}",
                "a ladder has one key",
            ),
        ] {
            assert_eq!(ladder(yaml, &whole), expected, "{yaml}");
        }
    }
}
