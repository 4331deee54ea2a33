//! The language of limits.
//!
//! ```text
//! assertion := metric [ tags ] [ "." stat ] op ( value [ unit ] | multiple )
//!            | signal "." stat op value [ unit ]                       signal := "server.waiting", "gpu.power", …
//!            | "goodput" "(" limit { "," limit } ")" op ( percent | multiple )
//! multiple  := [ factor "*" ] ( "baseline" | "reference" )            with `<`, `<=`, `>` or `>=`
//! limit     := metric op value [ unit ]
//! tags      := "{" tag "=" value { "," tag "=" value } "}"           tag := "model" | "round" | "turn" | "group"
//! stat      := "p0" … "p100" ("p99.9" too) | "mean" | "min" | "max" | "count" | "sd"
//! op        := "<" | "<=" | ">" | ">=" | "==" | "!="
//! unit      := "ns" "us" "ms" "s" "m" "h" | "%" | "tok/s" | "req/s" | "tok" | "B" "KB" "MiB" "GiB" "GiB/s" … | "W" | "MHz" | "C"
//! ```
//!
//! A time and a share need their unit, for a bare 500 could be anything; throughputs and counts have but one.

mod cursor;
mod limit;
mod relative;
mod signal;
mod stat;

use crate::suggest::{list, near};
use cursor::Cursor;
use llmscen_core::baseline::Against;
use llmscen_core::check::{Op, RequestLimit, Subject};
use llmscen_core::metric::{Metric, Scope};
use std::ops::Range;

/// What an assertion says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assertion {
    /// Left side.
    pub subject: Subject,
    /// Comparison.
    pub op: Op,
    /// Right side, in the unit of the left one; 0 where it is a multiple.
    pub limit: f64,
    /// What it is a multiple of, and how much.
    pub relative: Option<(Against, f64)>,
}

/// What is wrong with an assertion, and where in its text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckError {
    /// Bytes of the text.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// Words under the underline.
    pub label: String,
    /// What to do.
    pub help: Option<String>,
}

impl CheckError {
    fn new(range: Range<usize>, message: impl Into<String>, label: impl Into<String>) -> CheckError {
        CheckError { range, message: message.into(), label: label.into(), help: None }
    }

    fn help(self, help: impl Into<String>) -> CheckError {
        CheckError { help: Some(help.into()), ..self }
    }
}

/// Reads an assertion.
pub(crate) fn parse(text: &str) -> Result<Assertion, CheckError> {
    let mut cursor = Cursor::new(text);
    let (name, at) = cursor.word();
    let subject = left(&mut cursor, name, at)?;
    let assertion = right(&mut cursor, subject)?;
    match cursor.rest() {
        None => Ok(assertion),
        Some(range) => Err(CheckError::new(range, "text after the end of the limit", "does not belong here")),
    }
}

fn left(cursor: &mut Cursor<'_>, name: &str, at: Range<usize>) -> Result<Subject, CheckError> {
    if name == "goodput" && cursor.peek() == Some('(') {
        return limits(cursor);
    }
    if signal::scope(name) {
        return signal::read(cursor, name, at);
    }
    let metric = metric(name, at.clone(), cursor)?;
    Ok(Subject::Metric { metric, tags: tags(cursor)?, stat: stat::read(cursor, metric, at.end)? })
}

/// The comparison and what follows it.
fn right(cursor: &mut Cursor<'_>, subject: Subject) -> Result<Assertion, CheckError> {
    let op = cursor.op()?;
    let start = *cursor;
    if let Some(multiple) = relative::read(cursor, op)? {
        if let Subject::Signal { signal, .. } = subject {
            return Err(signal::no_multiple(&start, signal));
        }
        return Ok(Assertion { subject, op, limit: 0.0, relative: Some(multiple) });
    }
    let limit = limit::read(cursor, name_of(&subject), subject.unit())?;
    Ok(Assertion { subject, op, limit, relative: None })
}

fn name_of(subject: &Subject) -> &'static str {
    match subject {
        Subject::Metric { metric, .. } => metric.name(),
        Subject::Goodput(_) => "goodput",
        Subject::Signal { signal, .. } => signal.name(),
    }
}

/// Reads a left side alone.
pub(crate) fn parse_subject(text: &str) -> Result<Subject, CheckError> {
    let mut cursor = Cursor::new(text);
    let (name, at) = cursor.word();
    let subject = left(&mut cursor, name, at)?;
    match cursor.rest() {
        None => Ok(subject),
        Some(range) => Err(CheckError::new(range, "text after the end of the metric", "does not belong here")),
    }
}

/// Reads a value of a subject alone, in the subject's own unit.
pub(crate) fn parse_value(text: &str, subject: &Subject) -> Result<f64, CheckError> {
    let mut cursor = Cursor::new(text);
    let value = limit::read(&mut cursor, name_of(subject), subject.unit())?;
    match cursor.rest() {
        None => Ok(value),
        Some(range) => Err(CheckError::new(range, "text after the end of the value", "does not belong here")),
    }
}

fn metric(name: &str, at: Range<usize>, cursor: &Cursor<'_>) -> Result<Metric, CheckError> {
    if let Some(metric) = Metric::parse(name) {
        return Ok(metric);
    }
    let names = Metric::ALL.iter().map(|metric| metric.name()).chain(["goodput(…)"]);
    let exist = format!("Metrics are {}, and signals such as `server.waiting`.", list(names, "and"));
    if name.is_empty() {
        let at = at.start..at.start + cursor.width();
        return Err(CheckError::new(at, "a limit begins with a metric", "expected a metric").help(exist));
    }
    if name == "goodput" {
        let error = CheckError::new(at, "`goodput` needs its limits", "which requests are good?");
        return Err(error.help("Write goodput(ttft < 500ms, tpot < 40ms) >= 99%; the rate of good requests is `goodput_rate`."));
    }
    // Columns carry their unit (`ttft_ms`), metrics do not.
    let column = Metric::ALL.iter().find(|metric| metric.column() == name).map(|metric| metric.name());
    let meant = column.or_else(|| near(name, Metric::ALL.iter().map(|metric| metric.name())));
    let label = meant.map_or("does not exist".to_owned(), |meant| format!("did you mean `{meant}`?"));
    Err(CheckError::new(at, format!("unknown metric `{name}`"), label).help(exist))
}

/// The tags by which rows are told apart.
const TAGS: [&str; 4] = ["model", "round", "turn", "group"];

fn tags(cursor: &mut Cursor<'_>) -> Result<Vec<(String, String)>, CheckError> {
    let mut tags: Vec<(String, String)> = Vec::new();
    if !cursor.eat('{') {
        return Ok(tags);
    }
    loop {
        let (tag, at) = cursor.word();
        if !TAGS.contains(&tag) {
            let label = near(tag, TAGS).map_or("does not exist".to_owned(), |near| format!("did you mean `{near}`?"));
            return Err(CheckError::new(cursor.visible(at), format!("unknown tag `{tag}`"), label)
                .help("Tags are `model`, `round`, `turn` (1, 2, … or first, later) and `group`."));
        }
        cursor.expect('=', "between a tag and its value")?;
        let (value, at) = cursor.until(&[',', '}']);
        if value.is_empty() {
            return Err(CheckError::new(cursor.visible(at), format!("`{tag}` has no value"), "expected a value"));
        }
        tags.push((tag.to_owned(), value.to_owned()));
        if !cursor.eat(',') {
            cursor.expect('}', "after the tags")?;
            return Ok(tags);
        }
    }
}

fn limits(cursor: &mut Cursor<'_>) -> Result<Subject, CheckError> {
    cursor.eat('(');
    let mut limits = Vec::new();
    loop {
        limits.push(request_limit(cursor)?);
        if !cursor.eat(',') {
            break;
        }
    }
    cursor.expect(')', "after the limits")?;
    Ok(Subject::Goodput(limits))
}

fn request_limit(cursor: &mut Cursor<'_>) -> Result<RequestLimit, CheckError> {
    let (name, at) = cursor.word();
    let metric = metric(name, at.clone(), cursor)?;
    if metric.per() == Scope::Case {
        let per_request = Metric::ALL.iter().filter(|metric| metric.per() != Scope::Case).map(|metric| metric.name());
        let error = CheckError::new(at, format!("`{metric}` is one value per case"), "a single request has none");
        return Err(error.help(format!("A request has {}.", list(per_request, "and"))));
    }
    if cursor.peek() == Some('.') {
        cursor.eat('.');
        let (_, at) = cursor.stat();
        let error = CheckError::new(cursor.visible(at), "a statistic inside of goodput", "a single request has no statistics");
        return Err(error.help(format!("Write `{metric}` alone: every request is held against the limit.")));
    }
    let op = cursor.op()?;
    Ok(RequestLimit { metric, op, limit: limit::read(cursor, metric.name(), metric.unit())? })
}

#[cfg(test)]
mod tests;
