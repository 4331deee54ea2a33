//! Distributions of lengths and times, which share one notation, and tables of values in a scenario or a file.

use crate::fault::{Mistake, Review};
use crate::files;
use crate::schema_table::Leaf;
use crate::suggest::{list, meant_or, nearest};
use crate::tree::{Data, Entry, Node, Span};
use crate::values::time::{DURATION, duration};
use crate::values::{expect, object_schema};
use llmscen_core::distribution::{
    Bin, Distribution, DistributionError, Family, MAX_TOKENS, Measure, Weighted,
};
use llmscen_core::quantity::Quantity;
use llmscen_core::units::parse_duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LENGTH_EXPECTED: &str = "a number of tokens, or a distribution of it";
const LENGTH_EXAMPLES: &str = "256, `{ uniform: [64, 256] }`, `{ normal: { mean: 128, sd: 32 } \
}`, `lognormal` likewise, `{ from: item.output_tokens }`";
const TIME_EXPECTED: &str = "a duration, or a distribution of it";
const TIME_EXAMPLES: &str = "`2s`, `{ uniform: [1s, 3s] }` or `{ exponential: 2s }`";

/// The families, and how each is written.
const FAMILIES: [(&str, &str); 9] = [
    ("uniform", "`[low, high]`"),
    ("normal", "`{ mean: …, sd: … }`"),
    ("lognormal", "`{ mean: …, sd: … }`"),
    ("exponential", "its mean"),
    ("gamma", "`{ mean: …, cv: … }`"),
    ("pareto", "`{ min: …, alpha: … }`"),
    ("mixture", "`[{ weight: …, of: … }, …]`"),
    ("histogram", "`[[low, high, weight], …]`"),
    ("values", "`[value, …]` or `[[value, weight], …]`"),
];
/// A length from the rows of the dataset.
const FROM: &str = "from";
const FILE: &str = "file";
const BOUNDS: [&str; 2] = ["min", "max"];
/// The family of a mapping that is a distribution.
pub(crate) fn family_of(entries: &[Entry]) -> Option<&str> {
    let is_option = |entry: &&Entry| {
        BOUNDS.contains(&entry.key.as_str())
            || ["column", "input", "output"].contains(&entry.key.as_str())
    };
    let mut families = entries.iter().filter(|entry| !is_option(entry));
    let (first, None) = (families.next()?, families.next()) else {
        return None;
    };
    let mut known = FAMILIES.iter().map(|(name, _)| *name);
    let is_known =
        known.any(|name| name == first.key) || [FROM, FILE, "pairs"].contains(&first.key.as_str());
    is_known.then_some(first.key.as_str())
}

/// Maximum number of rows of a table: each is a line of the stored plan.
const MAX_ROWS: usize = 50_000;

/// A length, which may be a distribution.
pub(crate) static QUANTITY: Leaf = Leaf {
    expected: LENGTH_EXPECTED,
    sweepable: true,
    schema: || schema(Measure::Tokens),
    check: |node, review| {
        quantity(node, review);
    },
};

/// A duration, which may be a distribution.
pub(crate) static WAIT: Leaf = Leaf {
    expected: TIME_EXPECTED,
    sweepable: true,
    schema: || schema(Measure::Time),
    check: |node, review| {
        wait(node, review);
    },
};

/// The length. Reports an invalid one.
pub(crate) fn quantity(node: &Node, review: &mut Review) -> Option<Quantity> {
    if let [only] = node.entries()
        && only.key == FROM
    {
        let text = only.value.text();
        let name = text.as_deref().and_then(|text| text.strip_prefix("item."));
        let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
        if name.is_none() {
            let takes = "`from` needs a field of the dataset's rows, such as `item.output_tokens`";
            review.push(Mistake::new(only.value.at, takes, "invalid value"));
        }
        return name.map(Quantity::Item);
    }
    distribution(node, Measure::Tokens, review).map(Quantity::Drawn)
}

/// The distribution of times, in nanoseconds. Reports an invalid one.
pub(crate) fn wait(node: &Node, review: &mut Review) -> Option<Distribution> {
    distribution(node, Measure::Time, review)
}

fn distribution(node: &Node, measure: Measure, review: &mut Review) -> Option<Distribution> {
    let drawn = with(Distribution::new, node, measure, review)?;
    if measure == Measure::Tokens && drawn.mean_length() > MAX_TOKENS as f64 {
        let label = format!("the mean is above {MAX_TOKENS}");
        review.push(Mistake::new(node.at, "longer than any context", label).help("Add a `max`."));
        return None;
    }
    Some(drawn)
}

/// The distribution that `construct` makes of the family and its bounds.
fn with(
    construct: fn(Family, Option<f64>, Option<f64>) -> Result<Distribution, DistributionError>,
    node: &Node,
    measure: Measure,
    review: &mut Review,
) -> Option<Distribution> {
    let Data::Map(entries) = &node.data else {
        let fixed = constant(node, measure);
        if fixed.is_none() {
            report_constant(node, measure, review);
        }
        return fixed.map(Distribution::fixed);
    };
    let is_option = |entry: &&Entry| BOUNDS.contains(&entry.key.as_str()) || entry.key == "column";
    let families: Vec<&Entry> = entries.iter().filter(|entry| !is_option(entry)).collect();
    let [only] = families.as_slice() else {
        let (expected, examples) = words(measure);
        expect(node, expected, examples, review);
        return None;
    };
    if let Some(column) = node.entry("column").filter(|_| only.key != FILE) {
        let label = format!("`{}` has no columns", only.key);
        review.push(Mistake::new(column.key_at, "`column` needs `file`", label));
        return None;
    }
    let family = family(node, only, measure, review)?;
    let [min, max] = BOUNDS.map(|name| node.get(name));
    let mut bound = |node: Option<&Node>, least: f64| match node {
        Some(node) if number(node, measure).is_none_or(|number| number < least) => {
            let noun = match measure {
                Measure::Tokens => format!("a number of tokens from {least} to {MAX_TOKENS}"),
                Measure::Time => "a duration such as `2s`".to_owned(),
            };
            review.push(Mistake::new(
                node.at,
                format!("a bound must be {noun}"),
                "invalid value",
            ));
            None
        }
        node => Some(node.and_then(|node| number(node, measure))),
    };
    // A length is at least one token, a time may be 0.
    let least = if measure == Measure::Tokens { 1.0 } else { 0.0 };
    let (low, high) = (bound(min, 0.0)?, bound(max, least)?);
    // Much of the mean of a Pareto distribution may lie in lengths that no context has.
    let cap = matches!(family, Family::Pareto { .. }) && measure == Measure::Tokens;
    let capped = |drawn: Distribution| match high {
        None if cap && drawn.check_mean().is_ok() => {
            Distribution::new(family.clone(), low, Some(MAX_TOKENS as f64))
        }
        _ => Ok(drawn),
    };
    construct(family.clone(), low, high)
        .and_then(capped)
        .map_err(|error| review.push(mistake(error, only, [min, max], measure)))
        .ok()
}

/// The error of a distribution that does not exist, at the key that causes it.
fn mistake(
    error: DistributionError,
    family: &Entry,
    [min, max]: [Option<&Node>; 2],
    measure: Measure,
) -> Mistake {
    let bounds = min
        .zip(max)
        .filter(|(min, max)| number(min, measure) > number(max, measure));
    match (error, bounds) {
        (DistributionError::Empty, Some((min, max))) => Mistake::new(
            min.at,
            "empty range: `min` is greater than `max`",
            "is above `max`",
        )
        .also(max.at, "is below `min`"),
        (DistributionError::Empty, None) => Mistake::new(
            max.or(min).map_or(family.value.at, |node| node.at),
            "no value of this distribution is within its bounds",
            format!("excludes almost all of `{}`", family.key),
        )
        .help("The bounds must contain at least a share of 1e-9 of the distribution."),
        (DistributionError::InfiniteMean(alpha), _) => Mistake::new(
            family.value.at,
            "this distribution has no mean",
            format!("the mean is infinite for `alpha` {alpha}"),
        )
        .help("Add a `max`, or write an `alpha` above 1."),
        (DistributionError::Parameters, _) => Mistake::new(
            family.value.at,
            takes(&family.key, measure),
            "invalid value",
        ),
    }
}

fn words(measure: Measure) -> (&'static str, &'static str) {
    match measure {
        Measure::Tokens => (LENGTH_EXPECTED, LENGTH_EXAMPLES),
        Measure::Time => (TIME_EXPECTED, TIME_EXAMPLES),
    }
}

fn report_constant(node: &Node, measure: Measure, review: &mut Review) {
    match measure {
        Measure::Tokens if node.number().is_some() => expect(
            node,
            "a whole number of tokens from 1 to 10000000",
            "",
            review,
        ),
        Measure::Time if node.number().is_some() => (DURATION.check)(node, review),
        measure => {
            let (expected, examples) = words(measure);
            expect(node, expected, examples, review);
        }
    }
}

/// A value on its own: a whole number of tokens above 0, or a duration.
fn constant(node: &Node, measure: Measure) -> Option<f64> {
    match measure {
        Measure::Tokens => node
            .integer()
            .filter(|tokens| (1..=MAX_TOKENS as i64).contains(tokens))
            .map(|tokens| tokens as f64),
        Measure::Time => number(node, measure),
    }
}

/// A parameter: a number of tokens, from 0 to [`MAX_TOKENS`], or a duration.
fn number(node: &Node, measure: Measure) -> Option<f64> {
    match measure {
        Measure::Tokens => node
            .number()
            .filter(|number| (0.0..=MAX_TOKENS as f64).contains(number)),
        Measure::Time => duration(node).map(|span| span.0 as f64),
    }
}

/// A number without a unit, above 0.
fn factor(node: &Node) -> Option<f64> {
    node.number()
        .filter(|number| *number > 0.0 && number.is_finite())
}

/// The parameters of a mapping that has exactly these two.
fn pair<'n>(node: &'n Node, names: [&str; 2]) -> Option<[&'n Node; 2]> {
    let [first, second] = names.map(|name| node.get(name));
    first
        .zip(second)
        .filter(|_| node.entries().len() == 2)
        .map(|(a, b)| [a, b])
}

fn family(node: &Node, only: &Entry, measure: Measure, review: &mut Review) -> Option<Family> {
    let value = &only.value;
    let family = match only.key.as_str() {
        "uniform" => uniform(value, measure),
        "normal" => moments(value, measure).map(|(mean, sd)| Family::Normal { mean, sd }),
        "lognormal" => moments(value, measure).map(|(mean, sd)| Family::Lognormal { mean, sd }),
        "exponential" => number(value, measure).map(|mean| Family::Exponential { mean }),
        "gamma" => pair(value, ["mean", "cv"]).and_then(|[mean, cv]| {
            Some(Family::Gamma {
                mean: number(mean, measure)?,
                cv: factor(cv)?,
            })
        }),
        "pareto" => pair(value, ["min", "alpha"]).and_then(|[low, alpha]| {
            Some(Family::Pareto {
                low: number(low, measure)?,
                alpha: factor(alpha)?,
            })
        }),
        "mixture" => return mixture(value, measure, review),
        "histogram" => histogram(value, measure),
        "values" => table(value, measure),
        FILE => return file(node, value, measure, review).and_then(bins),
        key => {
            let names = FAMILIES.iter().map(|(name, _)| *name).chain([FILE, FROM]);
            let known: Vec<&str> = names
                .filter(|name| measure == Measure::Tokens || *name != FROM)
                .collect();
            let label = meant_or(nearest(key, known.iter().copied()), "does not exist");
            let mistake = Mistake::new(only.key_at, format!("unknown distribution `{key}`"), label);
            review.push(mistake.help(format!(
                "Distributions are {}. For example {}.",
                list(known.iter().copied(), "and"),
                words(measure).1
            )));
            return None;
        }
    };
    if family.is_none() {
        review.push(Mistake::new(
            value.at,
            takes(&only.key, measure),
            "invalid value",
        ));
    }
    family
}

/// What a family needs, in words.
fn takes(family: &str, measure: Measure) -> String {
    let is_time = measure == Measure::Time;
    let form = FAMILIES
        .iter()
        .find(|(name, _)| *name == family)
        .map_or("", |(_, form)| form);
    let about = match (family, is_time) {
        ("uniform", false) => "two whole numbers above 0 with low ≤ high",
        ("uniform", true) => "two durations with low ≤ high",
        ("normal" | "lognormal", false) => {
            return format!(
                "this needs {form}, a mean above 0 and a standard deviation of 0 or more"
            );
        }
        ("normal" | "lognormal", true) => {
            return format!(
                "this needs {form}, two durations: a mean above zero and a standard deviation"
            );
        }
        ("exponential", false) => "a number of tokens above 0",
        ("exponential", true) => "a duration above zero",
        ("gamma", false) => {
            "a mean and a coefficient of variation (standard deviation divided by \
            mean), both above 0"
        }
        ("gamma", true) => {
            "a duration above zero and a coefficient of variation (standard deviation \
            divided by mean) above 0"
        }
        ("pareto", false) => "a minimum and a tail index, both above 0",
        ("pareto", true) => "a duration above zero and a tail index above 0",
        ("mixture", _) => "two or more distributions with weights of 0 or more, not all 0",
        ("histogram", false) => {
            "ranges of tokens with low < high and weights of 0 or more, not all 0"
        }
        ("histogram", true) => {
            "ranges of durations with low < high and weights of 0 or more, not all 0"
        }
        (_, false) => "numbers of tokens, 1 or more, and weights of 0 or more, not all 0",
        (_, true) => "durations, and weights of 0 or more, not all 0",
    };
    format!("`{family}` needs {form}, {about}")
}

fn uniform(node: &Node, measure: Measure) -> Option<Family> {
    let [low, high] = node.items() else {
        return None;
    };
    let (low, high) = (constant(low, measure)?, constant(high, measure)?);
    (low <= high).then_some(Family::Uniform { low, high })
}

fn moments(node: &Node, measure: Measure) -> Option<(f64, f64)> {
    let [mean, sd] = pair(node, ["mean", "sd"])?;
    let (mean, sd) = (number(mean, measure)?, number(sd, measure)?);
    (mean > 0.0).then_some((mean, sd))
}

fn mixture(node: &Node, measure: Measure, review: &mut Review) -> Option<Family> {
    let before = review.count();
    let mut part = |item: &Node| {
        let [weight, of] = pair(item, ["weight", "of"])?;
        let weight = weight.number().filter(|weight| *weight >= 0.0)?;
        if let Some(inner) = of.entry("mixture") {
            let mistake = Mistake::new(
                inner.key_at,
                "a mixture within a mixture",
                "not allowed here",
            );
            review.push(
                mistake
                    .help("Write its parts in the outer mixture, with their weights multiplied."),
            );
            return None;
        }
        Some((weight, with(Distribution::part, of, measure, review)?))
    };
    let parts: Option<Vec<(f64, Distribution)>> = node.items().iter().map(&mut part).collect();
    let family = parts.and_then(Weighted::new).map(Family::Mixture);
    if family.is_none() && review.count() == before {
        review.push(Mistake::new(
            node.at,
            takes("mixture", measure),
            "invalid value",
        ));
    }
    family
}

fn histogram(node: &Node, measure: Measure) -> Option<Family> {
    let bin = |item: &Node| {
        let [low, high, weight] = item.items() else {
            return None;
        };
        let (low, high) = (number(low, measure)?, number(high, measure)?);
        (low < high).then_some((weight.number()?, Bin { low, high }))
    };
    bins(node.items().iter().map(bin).collect::<Option<_>>()?)
}

fn table(node: &Node, measure: Measure) -> Option<Family> {
    let row = |item: &Node| {
        let (value, weight) = match item.items() {
            [] => (item, 1.0),
            [value, weight] => (value, weight.number()?),
            _ => return None,
        };
        let value =
            number(value, measure).filter(|value| measure == Measure::Time || *value >= 1.0)?;
        Some((
            weight,
            Bin {
                low: value,
                high: value,
            },
        ))
    };
    bins(node.items().iter().map(row).collect::<Option<_>>()?)
}

fn bins(rows: Vec<(f64, Bin)>) -> Option<Family> {
    Weighted::new(rows).map(Family::Table)
}

/// The values of a column of a file, with their numbers of rows.
fn file(
    node: &Node,
    named: &Node,
    measure: Measure,
    review: &mut Review,
) -> Option<Vec<(f64, Bin)>> {
    let rows = read_columns(named, &[node.get("column")], measure, review)?;
    let row = |(values, count): (Vec<f64>, u64)| {
        let value = values[0];
        (
            count as f64,
            Bin {
                low: value,
                high: value,
            },
        )
    };
    Some(rows.into_iter().map(row).collect())
}

/// A distribution or a table of pairs with the rows of its files in place of their names, so that the stored plan is
/// complete. None without a file.
pub(crate) fn inline_files(node: &Node, leaf: &Leaf, review: &mut Review) -> Option<Value> {
    if std::ptr::eq(leaf, &PAIRS) {
        node.entry(FILE)?;
        let pairs = pairs_of_file(node, review)?;
        let rows: Vec<Value> = pairs
            .into_iter()
            .map(|(weight, (input, output))| json!([input, output, weight]))
            .collect();
        return Some(json!({ "pairs": rows }));
    }
    let measure = if std::ptr::eq(leaf, &QUANTITY) {
        Measure::Tokens
    } else if std::ptr::eq(leaf, &WAIT) {
        Measure::Time
    } else {
        return None;
    };
    inline_distribution(node, measure, review)
}

fn inline_distribution(node: &Node, measure: Measure, review: &mut Review) -> Option<Value> {
    if let Some(named) = node.get(FILE) {
        let rows = file(node, named, measure, review)?;
        let text = |value: f64| match measure {
            Measure::Tokens => json!(value),
            Measure::Time => json!(format!("{value}ns")),
        };
        let rows: Vec<Value> = rows
            .into_iter()
            .map(|(weight, bin)| json!([text(bin.low), weight]))
            .collect();
        let mut inlined = serde_json::Map::from_iter([("values".to_owned(), Value::Array(rows))]);
        inlined.extend(
            BOUNDS
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), node.get(name)?.json()))),
        );
        return Some(Value::Object(inlined));
    }
    let parts = node.get("mixture")?.items();
    if !parts
        .iter()
        .any(|part| part.get("of").is_some_and(|of| of.entry(FILE).is_some()))
    {
        return None;
    }
    let mut inlined = node.json();
    for (index, part) in parts.iter().enumerate() {
        if let Some(of) = part
            .get("of")
            .and_then(|of| inline_distribution(of, measure, review))
        {
            inlined["mixture"][index]["of"] = of;
        }
    }
    Some(inlined)
}

/// The distinct rows of some columns of a CSV file, with their counts, in ascending order. A column without a name is
/// the only one of the file, or that at the same position if the file has as many columns as are read. Reports what
/// is invalid.
fn read_columns(
    named: &Node,
    columns: &[Option<&Node>],
    measure: Measure,
    review: &mut Review,
) -> Option<Vec<(Vec<f64>, u64)>> {
    let Some(name) = named.text() else {
        review.push(Mistake::new(
            named.at,
            "`file` needs the name of a file",
            "invalid value",
        ));
        return None;
    };
    let path = files::find_file(named.at, &name, review)?;
    let shown = review.sources.display_path(named.at.file, &name, &path);
    let file = files::load(named.at, &path, &shown, review)?;
    let text = review.sources.text(file);
    let mut lines = rows(&text, file).peekable();
    let Some((_, first)) = lines.peek().cloned() else {
        review.push(Mistake::new(
            named.at,
            format!("`{shown}` has no rows"),
            "an empty file",
        ));
        return None;
    };
    let first: Vec<&str> = first.iter().collect();
    let has_names = columns.iter().any(Option::is_some)
        || first.first().is_some_and(|cell| {
            cell.parse::<f64>().is_err() && parse_cell(cell, measure).is_none()
        });
    let mut places = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        places.push(match column {
            None if first.len() == columns.len() => index,
            None => {
                let keys = if columns.len() == 1 {
                    "`column`"
                } else {
                    "`input` and `output`"
                };
                let mistake = Mistake::new(
                    named.at,
                    format!("`{shown}` has {} columns", first.len()),
                    "which one is read?",
                );
                let names = match has_names {
                    true => format!(" The columns are {}.", list(first.iter().copied(), "and")),
                    false => " The file has no line with names.".to_owned(),
                };
                review.push(mistake.help(format!("Name it with {keys}.{names}")));
                return None;
            }
            Some(node) => {
                let wanted = node.text().unwrap_or_default();
                let Some(place) = first.iter().position(|cell| *cell == wanted) else {
                    let label = meant_or(
                        nearest(&wanted, first.iter().copied()),
                        "not in its first line",
                    );
                    let mistake = Mistake::new(
                        node.at,
                        format!("`{shown}` has no column `{wanted}`"),
                        label,
                    );
                    review.push(mistake.help(format!(
                        "Its columns are {}.",
                        list(first.iter().copied(), "and")
                    )));
                    return None;
                };
                place
            }
        });
    }
    let mut counts: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
    for (at, cells) in lines.skip(usize::from(has_names)) {
        if cells.iter().skip(first.len()).any(|cell| !cell.is_empty()) {
            let mistake = Mistake::new(
                at,
                format!(
                    "a row of {} cells, where the first has {}",
                    cells.len(),
                    first.len()
                ),
                "this row",
            );
            let mistake = mistake.also(named.at, "the file is named here");
            review.push(mistake.help("A comma separates cells. Write 1000 for `1,000`."));
            return None;
        }
        let row = places.iter().map(|place| {
            let cell = cells.get(*place).unwrap_or_default();
            parse_cell(cell, measure).ok_or(cell)
        });
        match row.collect::<Result<Vec<f64>, &str>>() {
            // Bits of numbers that are not negative have the order of the numbers.
            Ok(row) => {
                *counts
                    .entry(row.into_iter().map(f64::to_bits).collect())
                    .or_default() += 1
            }
            Err(cell) => {
                let noun = match measure {
                    Measure::Tokens => "a number of tokens from 1 to 10000000",
                    Measure::Time => "a time up to a year: seconds, or a duration such as `250ms`",
                };
                let mistake = Mistake::new(at, format!("`{cell}` is not {noun}"), "this row");
                review.push(mistake.also(named.at, "the file is named here"));
                return None;
            }
        }
    }
    let problem = match counts.len() {
        0 => Some(("has no rows", "no value below the names")),
        1..=MAX_ROWS => None,
        _ => Some((
            "has too many distinct rows",
            "at most 50000 are stored with the plan",
        )),
    };
    if let Some((message, label)) = problem {
        let mistake = Mistake::new(named.at, format!("`{shown}` {message}"), label);
        review.push(match counts.is_empty() {
            true => mistake,
            false => mistake.help(
                "Round the values, take a sample of the rows, or write a \
                `histogram`.",
            ),
        });
        return None;
    }
    let row =
        |(bits, count): (Vec<u64>, u64)| (bits.into_iter().map(f64::from_bits).collect(), count);
    Some(counts.into_iter().map(row).collect())
}

/// Longest time in a file, seconds: a year.
const LONGEST_TIME: f64 = 31_536_000.0;

/// A cell: a number of tokens, from 1 to [`MAX_TOKENS`], or a time in seconds or with a unit.
fn parse_cell(cell: &str, measure: Measure) -> Option<f64> {
    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
    match measure {
        Measure::Tokens => number.filter(|tokens| (1.0..=MAX_TOKENS as f64).contains(tokens)),
        Measure::Time => match number {
            Some(seconds) => (0.0..=LONGEST_TIME)
                .contains(&seconds)
                .then(|| (seconds * 1e9).round()),
            None => parse_duration(cell)
                .map(|span| span.0 as f64)
                .filter(|span| *span <= LONGEST_TIME * 1e9),
        },
    }
}

/// The rows of a CSV file that are not blank, with their spans. Tabs separate the cells if its first line has one.
fn rows(text: &str, file: usize) -> impl Iterator<Item = (Span, csv::StringRecord)> {
    let first = text.trim_start().lines().next().unwrap_or_default();
    let separator = if first.contains('\t') { b'\t' } else { b',' };
    let records = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .delimiter(separator)
        .from_reader(text.as_bytes())
        .into_records();
    // Records of text in memory, of any number of cells, have no errors.
    records.flatten().filter_map(move |record| {
        let start = record.position()?.byte() as usize;
        let rest = text.get(start..)?;
        let start = start + (rest.len() - rest.trim_start().len());
        let line = text.get(start..)?.lines().next()?;
        let end = start + line.trim_end().len();
        let is_blank = record.iter().all(str::is_empty);
        (!is_blank).then_some((Span { file, start, end }, record))
    })
}

const PAIRS_EXPECTED: &str = "a table of prompt and output lengths";
const PAIRS_EXAMPLES: &str = "`{ pairs: [[100, 20], [4000, 300]] }`, `{ pairs: [[100, 20, 3], \
    [4000, 300, 1]] }` with weights, or `{ file: pairs.csv, input: ContextTokens, output: \
    GeneratedTokens }`";

/// Pairs of prompt and output lengths.
pub(crate) static PAIRS: Leaf = Leaf {
    expected: PAIRS_EXPECTED,
    sweepable: true,
    schema: || {
        let row = json!({ "type": "array", "items": { "type": "number", "minimum": 0 }, "minItems": 2, "maxItems": 3 });
        let text = json!({ "type": "string" });
        json!({ "oneOf": [
            object_schema(json!({ "pairs": { "type": "array", "items": row, "minItems": 1 } }), &["pairs"]),
            object_schema(json!({ FILE: text, "input": text, "output": text }), &[FILE]),
        ] })
    },
    check: |node, review| {
        pairs(node, review);
    },
};

/// The pairs of prompt and output lengths. Reports invalid ones.
pub(crate) fn pairs(node: &Node, review: &mut Review) -> Option<Weighted<(u64, u64)>> {
    let rows = match node.entries() {
        [only] if only.key == "pairs" => {
            let length = |node: &Node| {
                u64::try_from(node.integer()?)
                    .ok()
                    .filter(|length| (1..=MAX_TOKENS).contains(length))
            };
            let row = |item: &Node| match item.items() {
                [input, output] => Some((1.0, (length(input)?, length(output)?))),
                [input, output, weight] => {
                    Some((weight.number()?, (length(input)?, length(output)?)))
                }
                _ => None,
            };
            let bad = only.value.items().iter().find(|item| row(item).is_none());
            if let Some(bad) = bad {
                let message = "a pair is `[input, output]` or `[input, output, weight]`, with \
                whole numbers of tokens from 1 to 10000000";
                review.push(Mistake::new(bad.at, message, "invalid pair"));
                return None;
            }
            only.value.items().iter().filter_map(row).collect()
        }
        entries
            if node.entry(FILE).is_some()
                && entries
                    .iter()
                    .all(|entry| [FILE, "input", "output"].contains(&entry.key.as_str())) =>
        {
            pairs_of_file(node, review)?
        }
        _ => {
            expect(node, PAIRS_EXPECTED, PAIRS_EXAMPLES, review);
            return None;
        }
    };
    let pairs = Weighted::new(rows);
    if pairs.is_none() {
        let message = "the table needs a pair with a weight above 0, and no negative weight";
        review.push(
            Mistake::new(node.at, message, "has none")
                .help(format!("For example {PAIRS_EXAMPLES}.")),
        );
    }
    pairs
}

fn pairs_of_file(node: &Node, review: &mut Review) -> Option<Vec<(f64, (u64, u64))>> {
    let columns = ["input", "output"].map(|name| node.get(name));
    let rows = read_columns(node.get(FILE)?, &columns, Measure::Tokens, review)?;
    let row = |(row, count): (Vec<f64>, u64)| {
        (count as f64, (row[0].round() as u64, row[1].round() as u64))
    };
    Some(rows.into_iter().map(row).collect())
}

const POPULARITY_EXPECTED: &str = "`{ zipf: exponent }`, with an exponent above 0";

/// How often each group is used.
pub(crate) static POPULARITY: Leaf = Leaf {
    expected: POPULARITY_EXPECTED,
    sweepable: true,
    schema: || {
        object_schema(
            json!({ "zipf": { "type": "number", "exclusiveMinimum": 0 } }),
            &["zipf"],
        )
    },
    check: |node, review| {
        if zipf(node).is_none() {
            expect(node, POPULARITY_EXPECTED, "`{ zipf: 1.1 }`", review);
        }
    },
};

/// The exponent of a Zipf distribution.
pub(crate) fn zipf(node: &Node) -> Option<f64> {
    let [only] = node.entries() else { return None };
    (only.key == "zipf").then(|| factor(&only.value)).flatten()
}

fn schema(measure: Measure) -> Value {
    let one = match measure {
        Measure::Tokens => json!({ "type": "integer", "minimum": 1 }),
        Measure::Time => (DURATION.schema)(),
    };
    let number = match measure {
        Measure::Tokens => json!({ "type": "number", "minimum": 0 }),
        Measure::Time => (DURATION.schema)(),
    };
    let above = json!({ "type": "number", "exclusiveMinimum": 0 });
    let positive = match measure {
        Measure::Tokens => above.clone(),
        Measure::Time => number.clone(),
    };
    let text = json!({ "type": "string" });
    let weight = json!({ "type": "number", "minimum": 0 });
    let list = |items: Value| json!({ "type": "array", "items": items, "minItems": 1 });
    let tuple = |items: Value, count: usize| {
        json!({ "type": "array", "items": items, "minItems": count,
        "maxItems": count })
    };
    let moments = object_schema(json!({ "mean": positive, "sd": number }), &["mean", "sd"]);
    let form = |name: &str, value: Value| {
        object_schema(
            json!({ name: value, "min": number, "max": number }),
            &[name],
        )
    };
    let mut forms = vec![
        one.clone(),
        form("uniform", tuple(one, 2)),
        form("normal", moments.clone()),
        form("lognormal", moments),
        form("exponential", positive.clone()),
        form(
            "gamma",
            object_schema(json!({ "mean": positive, "cv": above }), &["mean", "cv"]),
        ),
        form(
            "pareto",
            object_schema(
                json!({ "min": positive, "alpha": above }),
                &["min", "alpha"],
            ),
        ),
        form(
            "histogram",
            list(
                json!({ "type": "array", "prefixItems": [number, number, weight], "minItems": 3, "maxItems": 3 }),
            ),
        ),
        form(
            "values",
            list(
                json!({ "anyOf": [number, { "type": "array", "prefixItems": [number, weight],
                    "minItems": 2, "maxItems": 2 }] }),
            ),
        ),
        object_schema(
            json!({ FILE: text, "column": text, "min": number, "max": number }),
            &[FILE],
        ),
    ];
    let part = object_schema(
        json!({ "weight": weight, "of": { "anyOf": forms } }),
        &["weight", "of"],
    );
    forms.push(form("mixture", list(part)));
    if measure == Measure::Tokens {
        let item = json!({ "type": "string", "pattern": "^item\\..+" });
        forms.push(object_schema(json!({ FROM: item }), &[FROM]));
    }
    json!({ "anyOf": forms })
}

#[cfg(test)]
mod tests;
