//! The right side of a comparison: a number with its unit, converted to the unit of the metric, or a multiple of
//! another run.

use crate::check::cursor::{CheckError, Cursor};
use crate::check::parse_left;
use crate::suggest::{meant_or, nearest};
use crate::values::number::{SIZE_UNITS, factor, percent};
use llmscen_core::check::relative::{CaseReference, ReferenceKind, Relative};
use llmscen_core::check::{Op, Subject};
use llmscen_core::metric::Metric;
use llmscen_core::units::{Unit, to_percent};
use std::ops::Range;

/// Time units: name, power of ten in seconds, factor.
const TIMES: [(&str, i32, f64); 7] = [
    ("ns", -9, 1.0),
    ("us", -6, 1.0),
    ("µs", -6, 1.0),
    ("ms", -3, 1.0),
    ("s", 0, 1.0),
    ("m", 0, 60.0),
    ("h", 0, 3600.0),
];

/// Parses a value for `subject`, which is measured in `unit`.
pub(super) fn parse_limit(
    cursor: &mut Cursor<'_>,
    subject: &str,
    unit: Unit,
) -> Result<f64, CheckError> {
    let (text, at) = cursor.number();
    if text.is_empty() {
        return Err(no_number(cursor, at.start, subject, unit));
    }
    let number = at.clone();
    let (word, unit_at) = cursor.unit();
    if cursor.peek() == Some('*') {
        return Err(product_error(cursor, at.start));
    }
    let bad = |_| {
        CheckError::new(
            number.clone(),
            format!("`{text}` is not a number"),
            "expected a number",
        )
    };
    let value: f64 = text.parse().map_err(bad)?;
    let value_at = at.start..if word.is_empty() { at.end } else { unit_at.end };
    let limit = match convert_unit(text, value, word, unit) {
        Some(limit) => limit,
        None if word.is_empty() => {
            let label = match unit {
                Unit::Millis | Unit::Seconds => format!("write `{text}ms` or `{text}s`"),
                Unit::Share if value >= 1.0 => format!("write `{text}%`"),
                Unit::Share => format!("write `{}%`", to_percent(value)),
                _ => format!("write `{}`", example_value(text, unit)),
            };
            return Err(CheckError::new(at, "missing unit", label)
                .help(format!("`{subject}` is measured in {}.", unit_noun(unit))));
        }
        None => {
            if let Some(meant) = guess_unit(word, unit) {
                let kind = if matches!(unit, Unit::Millis | Unit::Seconds) {
                    "time unit"
                } else {
                    "unit"
                };
                return Err(CheckError::new(
                    unit_at,
                    format!("unknown {kind} `{word}`"),
                    format!("did you mean `{meant}`?"),
                ));
            }
            let message = format!("`{word}` is not a unit for `{subject}`");
            let error = CheckError::new(unit_at, message, format!("expected {}", list_units(unit)));
            return Err(error.help(format!("`{subject}` is measured in {}.", unit_noun(unit))));
        }
    };
    match unit {
        _ if limit < 0.0 => Err(CheckError::new(
            value_at,
            "a limit below zero",
            format!("`{subject}` is never negative"),
        )),
        Unit::Share if limit > 1.0 => Err(CheckError::new(
            value_at,
            "a share above 100 %",
            "expected 0 % to 100 %",
        )),
        _ => Ok(limit),
    }
}

/// The unit that was probably meant: a longer name of a time unit, or a similar symbol.
fn guess_unit(word: &str, unit: Unit) -> Option<&'static str> {
    let begins = [
        ("n", "ns"),
        ("mic", "us"),
        ("us", "us"),
        ("ms", "ms"),
        ("mil", "ms"),
        ("min", "m"),
        ("s", "s"),
        ("h", "h"),
    ];
    let word = word.to_lowercase();
    match unit {
        Unit::Millis | Unit::Seconds if !word.chars().all(char::is_alphabetic) => None,
        Unit::Millis | Unit::Seconds => begins
            .iter()
            .find(|(begin, _)| word.starts_with(begin))
            .map(|(_, unit)| *unit),
        _ => nearest(&word, Some(unit.symbol()).filter(|symbol| symbol.len() > 1)),
    }
}

/// The error of a product where a number is expected.
fn product_error(cursor: &mut Cursor<'_>, start: usize) -> CheckError {
    cursor.eat('*');
    let (word, at) = cursor.word();
    let range = start..at.end.max(start + 1);
    if parse_against(word).is_some() {
        return inside_goodput(range);
    }
    let error = CheckError::new(range, "a limit is one number", "this is a product");
    error.help("Only `baseline`, `reference` and `case(…)` can be multiplied.")
}

/// The error of a relative limit inside of goodput.
fn inside_goodput(range: Range<usize>) -> CheckError {
    let error = CheckError::new(
        range,
        "a relative limit inside goodput",
        "a single request has no counterpart",
    );
    error.help("Write for example goodput(ttft < 500ms) >= 0.98 * baseline.")
}

fn no_number(cursor: &mut Cursor<'_>, start: usize, subject: &str, unit: Unit) -> CheckError {
    let (word, at) = cursor.word();
    if parse_against(word).is_some() {
        return inside_goodput(at);
    }
    let range = cursor.visible(start..at.end);
    CheckError::new(
        range,
        "the limit is missing",
        format!(
            "expected a number{}",
            if unit.symbol().is_empty() {
                ""
            } else {
                " with its unit"
            }
        ),
    )
    .help(format!(
        "For example `{}` for `{subject}`.",
        example_value("500", unit)
    ))
}

fn convert_unit(text: &str, value: f64, word: &str, unit: Unit) -> Option<f64> {
    let spelled = |power: i32| format!("{text}e{power}").parse::<f64>().ok();
    match unit {
        Unit::Millis | Unit::Seconds => {
            let target_power = if unit == Unit::Millis { 3 } else { 0 };
            let (_, power, factor) = TIMES.iter().find(|(name, ..)| *name == word)?;
            // Shifting the decimal point in the text keeps 0.3s exactly 300 ms.
            spelled(power + target_power).map(|scaled| scaled * factor)
        }
        Unit::Bytes => spelled(0)
            .zip(factor(&SIZE_UNITS, word))
            .map(|(value, factor)| value * factor),
        Unit::BytesPerSecond => spelled(0)
            .zip(factor(&SIZE_UNITS, word.strip_suffix("/s")?))
            .map(|(value, factor)| value * factor),
        Unit::Share => (word == "%").then(|| percent(text)).flatten(),
        Unit::Celsius => ["", "C", unit.symbol()].contains(&word).then_some(value),
        _ => (word.is_empty() || word == unit.symbol()).then_some(value),
    }
}

fn unit_noun(unit: Unit) -> &'static str {
    match unit {
        Unit::Millis | Unit::Seconds => "time",
        Unit::Share => "percent",
        Unit::TokensPerSecond => "tokens per second",
        Unit::RequestsPerSecond => "requests per second",
        Unit::ItemsPerSecond => "items per second",
        Unit::SessionsPerSecond => "sessions per second",
        Unit::SessionsPerHour => "sessions per hour",
        Unit::Tokens => "tokens",
        Unit::Count => "plain numbers",
        Unit::PerSecond => "events per second",
        Unit::Bytes => "bytes",
        Unit::BytesPerSecond => "bytes per second",
        Unit::Watts => "watts",
        Unit::Joules => "joules",
        Unit::Cost => "plain numbers, in the currency of `target.cost`",
        Unit::Megahertz => "megahertz",
        Unit::Celsius => "degrees Celsius",
    }
}

fn list_units(unit: Unit) -> String {
    match unit {
        Unit::Millis | Unit::Seconds => "`ns`, `us`, `ms`, `s`, `m` or `h`".to_owned(),
        Unit::Count | Unit::Cost => "no unit".to_owned(),
        Unit::Celsius => "`C` or `°C`".to_owned(),
        Unit::Bytes => "`B`, `MB`, `GB`, `MiB` or `GiB`".to_owned(),
        Unit::BytesPerSecond => "`B/s`, `MB/s`, `GB/s`, `MiB/s` or `GiB/s`".to_owned(),
        _ => format!("`{}`", unit.symbol()),
    }
}

fn example_value(number: &str, unit: Unit) -> String {
    match unit {
        Unit::Share => "1%".to_owned(),
        Unit::Tokens | Unit::Count => number.to_owned(),
        _ if unit.symbol().contains('/') => format!("{number} {}", unit.symbol()),
        _ => format!("{number}{}", unit.symbol()),
    }
}

const WORDS: [ReferenceKind; 3] = [
    ReferenceKind::Baseline,
    ReferenceKind::Reference,
    ReferenceKind::Case,
];
const FORM: &str = "Write for example `1.10 * baseline`, `0.95 * reference`, `1.5 * \
    case(variant=base)`, `0.5 * ttft{group=batch}.p95`, or `baseline` alone.";

fn parse_against(word: &str) -> Option<ReferenceKind> {
    WORDS.into_iter().find(|against| against.name() == word)
}

/// A parsed `1.10 * baseline`.
struct Multiple {
    to: ReferenceKind,
    factor: f64,
    at: Range<usize>,
    /// The value of the same case, where it is the reference.
    subject: Option<Subject>,
}

/// Whether a word begins a value of the same case.
fn is_metric(word: &str) -> bool {
    word == "goodput" || Metric::parse(word).is_some()
}

/// Parses a value of the same case as the reference, after its first word.
fn parse_same_case(
    cursor: &mut Cursor<'_>,
    (word, at): (&str, Range<usize>),
    factor: f64,
) -> Result<Multiple, CheckError> {
    Ok(Multiple {
        to: ReferenceKind::Case,
        factor,
        at: at.clone(),
        subject: Some(parse_left(cursor, word, at)?),
    })
}

/// Parses `1.10 * baseline`. Where there is none, the cursor stays.
pub(super) fn parse_multiple(
    cursor: &mut Cursor<'_>,
    op: Op,
) -> Result<Option<Relative>, CheckError> {
    let start = *cursor;
    let (number, number_at) = cursor.number();
    let (unit, unit_at) = cursor.unit();
    let times = cursor.peek() == Some('*');
    let found = match (number.is_empty(), times) {
        (true, false) => match parse_against(unit) {
            Some(to) => Some(Multiple {
                to,
                factor: 1.0,
                at: unit_at,
                subject: None,
            }),
            None => {
                *cursor = start;
                let (word, at) = cursor.word();
                if is_metric(word) {
                    Some(parse_same_case(cursor, (word, at), 1.0)?)
                } else {
                    None
                }
            }
        },
        (true, true) if parse_against(unit).is_some() => {
            let error = CheckError::new(
                unit_at,
                "the factor must be first",
                "move it before this word",
            );
            return Err(error.help(FORM));
        }
        (false, true) => Some(parse_product(cursor, number, number_at, unit, unit_at)?),
        (false, false) if parse_against(unit).is_some() => {
            let error = CheckError::new(
                unit_at,
                format!("`*` is missing before `{unit}`"),
                "expected `*`",
            );
            return Err(error.help(FORM));
        }
        _ => None,
    };
    let Some(Multiple {
        to,
        factor,
        at,
        subject,
    }) = found
    else {
        *cursor = start;
        return Ok(None);
    };
    if matches!(op, Op::Equal | Op::Unequal) {
        let error = CheckError::new(
            at,
            format!("`{op}` cannot have a relative limit"),
            "two runs are never exactly equal",
        );
        return Err(error.help("Relative limits use `<`, `<=`, `>` or `>=`."));
    }
    let case = match to {
        ReferenceKind::Case if subject.is_some() => Some(CaseReference {
            subject,
            ..CaseReference::default()
        }),
        ReferenceKind::Case => Some(parse_case(cursor)?),
        ReferenceKind::Baseline | ReferenceKind::Reference => None,
    };
    Ok(Some(Relative {
        case,
        ..Relative::new(to, factor, None)
    }))
}

/// Parses what follows `case`: `(variant=base)`, or `(variant=base).ttft.p50`.
fn parse_case(cursor: &mut Cursor<'_>) -> Result<CaseReference, CheckError> {
    cursor.expect('(', "after `case`")?;
    let mut labels = Vec::new();
    loop {
        let (path, path_at) = cursor.stat();
        if path.is_empty() {
            let error = CheckError::new(
                cursor.visible(path_at),
                "another case is named by a swept value",
                "expected for example `variant=base`",
            );
            return Err(error.help(FORM));
        }
        cursor.expect('=', "between a path and its value")?;
        let (value, at) = cursor.until(&[',', ')']);
        if value.is_empty() {
            let at = cursor.visible(at);
            return Err(CheckError::new(
                at,
                format!("`{path}` has no value"),
                "expected a value",
            ));
        }
        labels.push((path.to_owned(), value.to_owned()));
        if !cursor.eat(',') {
            break;
        }
    }
    cursor.expect(')', "after the other case")?;
    let subject = if cursor.eat('.') {
        let (name, at) = cursor.word();
        Some(parse_left(cursor, name, at)?)
    } else {
        None
    };
    Ok(CaseReference {
        labels,
        subject,
        id: String::new(),
    })
}

/// Parses the part behind the factor of `1.10 * baseline`; `unit` is what follows the factor.
fn parse_product(
    cursor: &mut Cursor<'_>,
    factor: &str,
    at: Range<usize>,
    unit: &str,
    unit_at: Range<usize>,
) -> Result<Multiple, CheckError> {
    cursor.eat('*');
    let (word, word_at) = cursor.word();
    let to = parse_against(word);
    if to.is_none() && !is_metric(word) {
        let meant = nearest(word, WORDS.iter().map(|against| against.name()));
        let label = meant_or(
            meant,
            "expected `baseline`, `reference`, `case(…)` or a metric",
        );
        return Err(CheckError::new(
            cursor.visible(word_at),
            "a product must refer to another run, case or metric",
            label,
        )
        .help(FORM));
    }
    if !unit.is_empty() {
        return Err(
            CheckError::new(unit_at, "a factor has no unit", "expected a plain number").help(FORM),
        );
    }
    match factor.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor.is_finite() => match to {
            Some(to) => Ok(Multiple {
                to,
                factor,
                at: at.start..word_at.end,
                subject: None,
            }),
            None => parse_same_case(cursor, (word, word_at), factor),
        },
        Ok(_) => Err(CheckError::new(
            at,
            "the factor must be above 0",
            format!("not a multiple of the {word}"),
        )
        .help(FORM)),
        Err(_) => Err(CheckError::new(
            at,
            format!("`{factor}` is not a number"),
            "expected a factor such as 1.10",
        )
        .help(FORM)),
    }
}
