//! The grammar of SLO limits.
//!
//! ```text
//! assertion := metric [ tags ] [ "." stat ] op ( value [ unit ] | multiple )
//!            | signal "." stat op value [ unit ]                       signal := "server.waiting", "gpu.power", …
//!            | "server" "[" quoted name "]" [ labels ] "." ( "rate" | "mean" | "min" | "max" ) op value
//!            | "goodput" "(" limit { "," limit } ")" op ( percent | multiple )
//!            | "finish" "{" reason { "," tag "=" value } "}" "." "share" op ( percent | multiple )
//! multiple  := [ factor "*" ] ( "baseline" | "reference" | case | value )     with `<`, `<=`, `>` or `>=`
//! case      := "case" "(" path "=" value { "," path "=" value } ")" [ "." value ]
//! value     := metric [ tags ] [ "." stat ] | "goodput" "(" limit { "," limit } ")" | "finish" …
//! limit     := metric op value [ unit ]
//! tags      := "{" tag "=" value { "," tag "=" value } "}"           tag := "model" | "round" | "turn" | "group" | "endpoint" | a kept header with a hyphen
//! labels    := "{" label "=" value { "," label "=" value } "}"       of the page, for example engine=0
//! stat      := "p0" … "p100" ("p99.9" too) | "mean" | "min" | "max" | "count" | "sd"
//! op        := "<" | "<=" | ">" | ">=" | "==" | "!="
//! unit      := "ns" "us" "ms" "s" "m" "h" | "%" | "tok/s" | "req/s" | "tok" | "B" "KB" "MiB" "GiB" "GiB/s" … | "W" | "MHz" | "C"
//! ```
//!
//! Times and shares need a unit, because a bare 500 is ambiguous; throughputs and counts have a single unit.

mod cursor;
mod limit;

use crate::check::cursor::{CheckError, Cursor};
use crate::suggest::{list, meant_or, nearest};
use llmscen_core::check::relative::Relative;
use llmscen_core::check::{Op, PageMetric, PageStat, RequestLimit, Subject};
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::signal::{Form, Signal};
use std::ops::Range;

/// A parsed assertion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assertion {
    pub subject: Subject,
    pub op: Op,
    /// Threshold, in the unit of the left side; 0 where it is relative.
    pub limit: f64,
    /// What it is relative to, without a value yet.
    pub relative: Option<Relative>,
}

/// Parses an assertion.
pub(crate) fn parse(text: &str) -> Result<Assertion, CheckError> {
    let mut cursor = Cursor::new(text);
    let (name, at) = cursor.word();
    let subject = parse_left(&mut cursor, name, at)?;
    let assertion = parse_right(&mut cursor, subject)?;
    cursor.expect_end("limit")?;
    Ok(assertion)
}

fn parse_left(
    cursor: &mut Cursor<'_>,
    name: &str,
    at: Range<usize>,
) -> Result<Subject, CheckError> {
    if name == "goodput" && cursor.peek() == Some('(') {
        return parse_goodput(cursor);
    }
    if name == FINISH {
        return parse_finish(cursor, at);
    }
    if name == "server" && cursor.eat('[') {
        return parse_series(cursor).map(Subject::PageMetric);
    }
    if is_signal_scope(name) {
        return parse_signal(cursor, name, at);
    }
    let metric = parse_metric(name, at.clone(), cursor)?;
    Ok(Subject::Metric {
        metric,
        tags: parse_tags(cursor)?,
        stat: parse_stat(cursor, metric, at.end)?,
    })
}

fn parse_right(cursor: &mut Cursor<'_>, subject: Subject) -> Result<Assertion, CheckError> {
    let op = cursor.op()?;
    let start = *cursor;
    if let Some(relative) = limit::parse_multiple(cursor, op)? {
        if matches!(subject, Subject::Signal { .. } | Subject::PageMetric(_)) {
            return Err(no_multiple(&start, &subject));
        }
        let other = relative
            .case
            .as_ref()
            .and_then(|case| case.subject.as_ref());
        if other == Some(&subject) && relative.is_same_case() {
            let at = start.visible(start.next_range());
            let error = CheckError::new(
                at,
                "a limit that compares a value with itself",
                "the same value",
            );
            return Err(error.help(
                "Compare with other requests: `ttft{group=a}.p95 <= 0.5 * ttft{group=b}.p95`.",
            ));
        }
        if let Some(other) = other.filter(|other| other.unit() != subject.unit()) {
            let at = start.visible(start.next_range());
            let label = format!("`{other}` is no value in the unit of `{subject}`");
            return Err(CheckError::new(
                at,
                "the two metrics have different units",
                label,
            ));
        }
        return Ok(Assertion {
            subject,
            op,
            limit: 0.0,
            relative: Some(relative),
        });
    }
    let limit = limit::parse_limit(cursor, name_of(&subject), subject.unit())?;
    Ok(Assertion {
        subject,
        op,
        limit,
        relative: None,
    })
}

fn name_of(subject: &Subject) -> &str {
    match subject {
        Subject::Metric { metric, .. } => metric.name(),
        Subject::Goodput(_) => "goodput",
        Subject::Finish { .. } => FINISH,
        Subject::Signal { signal, .. } => signal.name(),
        Subject::PageMetric(series) => &series.name,
    }
}

/// Parses a left side alone.
pub(crate) fn parse_subject(text: &str) -> Result<Subject, CheckError> {
    let mut cursor = Cursor::new(text);
    let (name, at) = cursor.word();
    let subject = parse_left(&mut cursor, name, at)?;
    cursor.expect_end("metric")?;
    Ok(subject)
}

/// Parses a value in the unit of its subject.
pub(crate) fn parse_value(text: &str, subject: &Subject) -> Result<f64, CheckError> {
    let mut cursor = Cursor::new(text);
    let value = limit::parse_limit(&mut cursor, name_of(subject), subject.unit())?;
    cursor.expect_end("value")?;
    Ok(value)
}

fn parse_metric(name: &str, at: Range<usize>, cursor: &Cursor<'_>) -> Result<Metric, CheckError> {
    if let Some(metric) = Metric::parse(name) {
        return Ok(metric);
    }
    let exist = "Most limits are on `ttft`, `tpot`, `e2e`, `output_tps`, `error_rate` or \
    `goodput(…)`. All, and signals such as `server.waiting`, are in docs/reference/metrics.md.";
    if name.is_empty() {
        let at = at.start..at.start + cursor.width();
        return Err(
            CheckError::new(at, "a limit begins with a metric", "expected a metric").help(exist),
        );
    }
    if name == "goodput" {
        let error = CheckError::new(at, "`goodput` needs limits", "define a good request");
        return Err(error.help(
            "Write goodput(ttft < 500ms, tpot < 40ms) >= 99%; the rate of good \
        requests is `goodput_rate`.",
        ));
    }
    // Columns carry their unit (`ttft_ms`), metrics do not.
    let column = Metric::ALL
        .iter()
        .find(|metric| metric.column() == name)
        .map(|metric| metric.name());
    let meant = column
        .or_else(|| Metric::of_other_tools(name).map(|metric| metric.name()))
        .or_else(|| nearest(name, Metric::ALL.iter().map(|metric| metric.name())));
    let label = meant_or(meant, "does not exist");
    Err(CheckError::new(at, format!("unknown metric `{name}`"), label).help(exist))
}

/// Tags that a metric can be restricted by.
const TAGS: [&str; 5] = ["model", "round", "turn", "group", "endpoint"];

/// The label and the help of an unknown tag.
fn unknown_tag(tag: &str) -> Option<(String, &'static str)> {
    (!TAGS.contains(&tag) && !tag.contains('-')).then(|| {
        (
            meant_or(nearest(tag, TAGS), "does not exist"),
            "Tags are `model`, `round`, `turn` (1, 2, … or first, later), `group`, `endpoint`, \
            and response headers of `target.keep_headers` whose name has a hyphen. A kept header \
            without a hyphen cannot be a tag.",
        )
    })
}

fn parse_tags(cursor: &mut Cursor<'_>) -> Result<Vec<(String, String)>, CheckError> {
    parse_pairs(cursor, unknown_tag)
}

/// Parses `{tag=value,…}`. `fault`: the label and the help of an unknown tag.
fn parse_pairs(
    cursor: &mut Cursor<'_>,
    fault: impl Fn(&str) -> Option<(String, &'static str)>,
) -> Result<Vec<(String, String)>, CheckError> {
    let mut tags: Vec<(String, String)> = Vec::new();
    if !cursor.eat('{') {
        return Ok(tags);
    }
    loop {
        tags.push(parse_pair(cursor, &fault)?);
        if !cursor.eat(',') {
            cursor.expect('}', "after the tags")?;
            return Ok(tags);
        }
    }
}

/// Parses `tag=value`.
fn parse_pair(
    cursor: &mut Cursor<'_>,
    fault: impl Fn(&str) -> Option<(String, &'static str)>,
) -> Result<(String, String), CheckError> {
    let (tag, at) = cursor.tag();
    if let Some((label, help)) = fault(tag) {
        let error = CheckError::new(cursor.visible(at), format!("unknown tag `{tag}`"), label);
        return Err(error.help(help));
    }
    cursor.expect('=', "between a tag and its value")?;
    let (value, at) = cursor.until(&[',', '}']);
    if value.is_empty() {
        return Err(CheckError::new(
            cursor.visible(at),
            format!("`{tag}` has no value"),
            "expected a value",
        ));
    }
    Ok((tag.to_owned(), value.to_owned()))
}

/// The name of the share of replies with a finish reason.
pub(crate) const FINISH: &str = "finish";

const FINISH_HELP: &str = "Write for example `finish{length}.share <= 5%`; tags such as \
    `group=chat` may follow the reason. A reason is the word that the server sends; `length`, `stop`, \
    `tool_calls` and `content_filter` also match the words of other servers.";

/// Parses what follows `finish`, whose range is `at`: `{length,group=chat}.share`.
fn parse_finish(cursor: &mut Cursor<'_>, at: Range<usize>) -> Result<Subject, CheckError> {
    let wrong = |at: Range<usize>, message: &str, label: &str| {
        CheckError::new(at, message, label).help(FINISH_HELP)
    };
    if !cursor.eat('{') {
        return Err(wrong(at, "`finish` needs a finish reason", "which reason?"));
    }
    let mut reason: Option<&str> = None;
    let mut tags = Vec::new();
    loop {
        let start = *cursor;
        let (word, word_at) = cursor.until(&[',', '}', '=', '<', '>']);
        if cursor.peek() == Some('=') {
            *cursor = start;
            let fault = |tag: &str| unknown_tag(tag).map(|(label, _)| (label, FINISH_HELP));
            tags.push(parse_pair(cursor, fault)?);
        } else if word.is_empty() {
            let at = cursor.visible(word_at);
            return Err(wrong(
                at,
                "`finish{}` has no finish reason",
                "expected a reason",
            ));
        } else if reason.replace(word).is_some() {
            return Err(wrong(
                word_at,
                "two finish reasons in one limit",
                "the second one",
            ));
        }
        if !cursor.eat(',') {
            break;
        }
    }
    cursor.expect('}', "after the finish reason")?;
    let Some(reason) = reason else {
        return Err(wrong(
            at,
            "`finish` needs a finish reason",
            "has tags alone",
        ));
    };
    if !cursor.eat('.') {
        let message = format!("`finish{{{reason}}}` needs `.share`");
        return Err(wrong(
            at,
            &message,
            "the share of the replies with this reason",
        ));
    }
    let (word, word_at) = cursor.stat();
    if word != "share" {
        let message = format!("unknown statistic `{word}`");
        return Err(wrong(cursor.visible(word_at), &message, "expected `share`"));
    }
    Ok(Subject::Finish {
        reason: reason.to_owned(),
        tags,
    })
}

fn parse_goodput(cursor: &mut Cursor<'_>) -> Result<Subject, CheckError> {
    cursor.eat('(');
    let mut limits = Vec::new();
    loop {
        limits.push(parse_request_limit(cursor)?);
        if !cursor.eat(',') {
            break;
        }
    }
    cursor.expect(')', "after the limits")?;
    Ok(Subject::Goodput(limits))
}

fn parse_request_limit(cursor: &mut Cursor<'_>) -> Result<RequestLimit, CheckError> {
    let (name, at) = cursor.word();
    let metric = parse_metric(name, at.clone(), cursor)?;
    if metric.per() == Scope::Case {
        let per_request = Metric::ALL
            .iter()
            .filter(|metric| metric.per() != Scope::Case)
            .map(|metric| metric.name());
        let error = CheckError::new(
            at,
            format!("`{metric}` is one value per case"),
            "a single request has no such value",
        );
        return Err(error.help(format!("A request has {}.", list(per_request, "and"))));
    }
    if cursor.peek() == Some('.') {
        cursor.eat('.');
        let (_, at) = cursor.stat();
        let error = CheckError::new(
            cursor.visible(at),
            "a statistic inside goodput",
            "a single request has no statistics",
        );
        return Err(error.help(format!(
            "Write `{metric}` alone: every request is compared with the limit."
        )));
    }
    let op = cursor.op()?;
    Ok(RequestLimit {
        metric,
        op,
        limit: limit::parse_limit(cursor, metric.name(), metric.unit())?,
    })
}

const EXIST: &str =
    "Statistics are `p0` to `p100` (`p99.9` too), `mean`, `min`, `max`, `count` and `sd`.";

/// Reads the statistic of a metric whose name ends at `end`; None exactly where the metric has one value per case.
fn parse_stat(
    cursor: &mut Cursor<'_>,
    metric: Metric,
    end: usize,
) -> Result<Option<Stat>, CheckError> {
    if !cursor.eat('.') {
        if metric.per() == Scope::Case {
            return Ok(None);
        }
        let at = end - metric.name().len()..end;
        let error = CheckError::new(
            at,
            format!("`{metric}` needs a statistic"),
            format!("for example `{metric}.p95`"),
        );
        return Err(error.help(EXIST));
    }
    let (name, at) = cursor.stat();
    match Stat::parse(name) {
        Some(_) if metric.per() == Scope::Case => {
            let error = CheckError::new(
                at,
                format!("`{metric}` is one value per case"),
                "has no statistics",
            );
            Err(error.help(format!("Write `{metric}` alone.")))
        }
        Some(stat) => Ok(Some(stat)),
        None => Err(unknown_statistic(cursor, name, at)),
    }
}

fn unknown_statistic(cursor: &Cursor<'_>, name: &str, at: Range<usize>) -> CheckError {
    let label = match name {
        "avg" => Some("mean"),
        "median" => Some("p50"),
        _ => nearest(name, ["mean", "min", "max", "count", "sd"]),
    };
    let label = meant_or(label, "does not exist");
    CheckError::new(
        cursor.visible(at),
        format!("unknown statistic `{name}`"),
        label,
    )
    .help(EXIST)
}

/// Whether a word is the first part of a signal's name.
fn is_signal_scope(word: &str) -> bool {
    Signal::ALL.iter().any(|signal| signal.scope() == word)
}

const SERIES_EXAMPLE: &str =
    "Write for example `server[\"vllm:external_prefix_cache_hits\"].rate > 0`.";
const SERIES_STATISTICS: &str =
    "Statistics of a metric of the page are `rate` (increase per second), `mean`, `min` and `max`.";

/// Parses what follows `server[`.
fn parse_series(cursor: &mut Cursor<'_>) -> Result<PageMetric, CheckError> {
    let Some(quote) = cursor.peek().filter(|c| ['"', '\''].contains(c)) else {
        let at = cursor.visible(cursor.next_range());
        let error = CheckError::new(at, "a name without quotes", "expected `\"`");
        return Err(error.help(SERIES_EXAMPLE));
    };
    cursor.eat(quote);
    let (name, at) = cursor.until(&[quote]);
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    if name.is_empty() || !name.chars().all(is_valid) {
        let message = format!("`{name}` is not the name of a metric");
        let error = CheckError::new(cursor.visible(at), message, "letters, digits, `_` and `:`");
        return Err(error.help("Labels follow the bracket: `server[\"x\"]{engine=0}.rate`."));
    }
    let end = at.end;
    cursor.expect(quote, "after the name of a metric")?;
    cursor.expect(']', "after the name of a metric")?;
    let labels = parse_pairs(cursor, |label| {
        label
            .is_empty()
            .then(|| ("expected a label".to_owned(), SERIES_EXAMPLE))
    })?;
    if !cursor.eat('.') {
        let at = end - name.len()..end;
        let error = CheckError::new(at, format!("`{name}` needs a statistic"), "has none");
        return Err(error.help(SERIES_STATISTICS));
    }
    let (word, stat_at) = cursor.stat();
    let stat = PageStat::ALL.into_iter().find(|stat| stat.name() == word);
    let Some(stat) = stat else {
        let names = PageStat::ALL.map(PageStat::name);
        let label = meant_or(nearest(word, names), "does not exist");
        let error = CheckError::new(
            cursor.visible(stat_at),
            format!("unknown statistic `{word}`"),
            label,
        );
        return Err(error.help(SERIES_STATISTICS));
    };
    Ok(PageMetric {
        name: name.to_owned(),
        labels,
        stat,
    })
}

const ROLE_EXAMPLE: &str = "Write for example `server{role=prefill}.waiting.max < 10`.";

/// Parses the role of the workers whose signal is meant: `{role=prefill}`.
fn parse_role(cursor: &mut Cursor<'_>) -> Result<Option<String>, CheckError> {
    let start = *cursor;
    let tags = parse_pairs(cursor, |tag| {
        (tag != "role").then(|| ("expected `role`".to_owned(), ROLE_EXAMPLE))
    })?;
    if tags.len() > 1 {
        let at = start.visible(start.next_range());
        return Err(CheckError::new(at, "two roles", "one is possible").help(ROLE_EXAMPLE));
    }
    Ok(tags.into_iter().next().map(|(_, role)| role))
}

/// Parses what follows the first part of a signal's name.
fn parse_signal(
    cursor: &mut Cursor<'_>,
    scope: &str,
    at: Range<usize>,
) -> Result<Subject, CheckError> {
    let names = || {
        Signal::ALL
            .iter()
            .filter(|signal| signal.scope() == scope)
            .map(|signal| signal.name())
    };
    let exist = || format!("Signals of `{scope}` are {}.", list(names(), "and"));
    let has_roles = ["server", "gpu"].contains(&scope);
    let role = if has_roles { parse_role(cursor)? } else { None };
    if !cursor.eat('.') {
        let error = CheckError::new(
            at,
            format!("`{scope}` has several signals"),
            "name one of them",
        );
        return Err(error.help(exist()));
    }
    let (name, name_at) = cursor.word();
    let full = format!("{scope}.{name}");
    let Some(signal) = Signal::parse(&full) else {
        let short = || names().filter_map(|name| name.split_once('.').map(|(_, name)| name));
        let meant = nearest(name, short())
            .or_else(|| short().find(|candidate| !name.is_empty() && candidate.contains(name)));
        let label = meant.map_or("does not exist".to_owned(), |meant| {
            format!("did you mean `{scope}.{meant}`?")
        });
        return Err(CheckError::new(
            cursor.visible(name_at),
            format!("unknown signal `{full}`"),
            label,
        )
        .help(exist()));
    };
    if cursor.peek() == Some('{') {
        let start = *cursor;
        cursor.until(&['}']);
        let error = CheckError::new(
            start.visible(start.next_range()),
            format!("`{signal}` has no tags"),
            "it applies to the whole case",
        );
        let role = if has_roles {
            format!(" A role follows `{scope}`: `{scope}{{role=prefill}}.{name}`.")
        } else {
            String::new()
        };
        return Err(error.help(format!(
            "Write for example `{signal}.{}`.{role}",
            usual_statistic(signal)
        )));
    }
    if !cursor.eat('.') {
        let error = CheckError::new(
            at.start..name_at.end,
            format!("`{signal}` has many values"),
            "needs a statistic",
        );
        return Err(error.help(format!(
            "Write for example `{signal}.{}`. {}",
            usual_statistic(signal),
            list_statistics(signal)
        )));
    }
    let (word, stat_at) = cursor.stat();
    match Stat::parse(word) {
        Some(stat) if has_statistic(signal, stat) => Ok(Subject::Signal { signal, stat, role }),
        Some(stat) => {
            let error = CheckError::new(
                stat_at,
                format!("`{signal}` has no `{stat}`"),
                "not available for a histogram",
            );
            Err(error.help(list_statistics(signal)))
        }
        None => Err(unknown_statistic(cursor, word, stat_at)),
    }
}

/// Whether a signal has a statistic. A histogram has only counts per bucket and a sum.
fn has_statistic(signal: Signal, stat: Stat) -> bool {
    signal.form() != Form::Histogram || matches!(stat, Stat::Quantile(_) | Stat::Mean | Stat::Count)
}

fn usual_statistic(signal: Signal) -> &'static str {
    if signal.form() == Form::Histogram {
        "p95"
    } else {
        "max"
    }
}

fn list_statistics(signal: Signal) -> String {
    let others = if signal.form() == Form::Histogram {
        "`mean` and `count`"
    } else {
        "`mean`, `min`, `max`, `count` and `sd`"
    };
    format!("Its statistics are `p0` to `p100`, {others}.")
}

/// The error of a relative limit on a value of telemetry.
fn no_multiple(cursor: &Cursor<'_>, subject: &Subject) -> CheckError {
    let at = cursor
        .rest()
        .unwrap_or_else(|| cursor.visible(cursor.next_range()));
    let error = CheckError::new(
        at,
        "a signal cannot have a relative limit",
        format!(
            "`{}` is only compared as a point estimate",
            name_of(subject)
        ),
    );
    error.help("Its samples are correlated, so runs cannot be compared by a test: write a number.")
}

#[cfg(test)]
mod tests;
