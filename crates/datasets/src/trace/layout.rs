//! The layouts of logs, and the parsers of their rows.

use super::sessions::LogTime;
use super::{otel, weka};
use llmscen_core::dataset::Layout;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The supported layouts, for errors.
pub const EXPECTED: &str = "a log in the Mooncake (JSONL), Bailian (JSONL), Weka (JSON), \
     OpenTelemetry (JSONL), Azure LLM (CSV), BurstGPT (CSV), ServeGen (CSV) or workload (JSONL) \
     layout";

/// One row of a log.
#[derive(Debug)]
pub struct Entry<'a> {
    /// Arrival time in nanoseconds on the clock of the log.
    pub at: Option<LogTime>,
    /// The requested model, where the layout has it.
    pub model: Option<String>,
    pub request: LoggedRequest<'a>,
    pub place: SessionFields,
}

/// What a row states of its session.
#[derive(Debug, Default)]
pub struct SessionFields {
    /// End of the request in nanoseconds on the clock of the log.
    pub end: Option<LogTime>,
    /// Nanoseconds since the end of the request before it in its session.
    pub delay: Option<LogTime>,
    /// The session's name.
    pub session: Option<String>,
    /// The request's name, which its children state as their parent.
    pub id: Option<String>,
    pub parent: Option<String>,
}

#[derive(Debug)]
pub enum LoggedRequest<'a> {
    Lengths {
        /// Tokens of the prompt.
        input: u64,
        /// Tokens generated.
        output: u64,
        /// Ids of the prompt's blocks of tokens; equal ids are equal text. Empty where the log has none.
        blocks: Vec<u64>,
    },
    Body {
        /// A JSON object.
        body: &'a RawValue,
        headers: Vec<(String, String)>,
        /// Tokens generated, where the log has them.
        output: Option<u64>,
    },
}

/// A layout with the columns of the file.
#[derive(Clone, Copy, Debug)]
pub enum LogFormat {
    /// JSONL of lengths.
    Mooncake,
    /// JSONL of lengths with parents.
    Bailian,
    /// JSON objects of sessions.
    Weka,
    /// JSONL of spans.
    Otel,
    /// JSONL of bodies.
    Workload,
    /// CSV of lengths with a header.
    Csv(Columns),
}

/// The positions of the columns of a CSV.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    time: usize,
    input: usize,
    output: usize,
    model: Option<usize>,
    session: Option<usize>,
    /// Time from the arrival to the end.
    elapsed: Option<usize>,
    /// Times are dates, not seconds.
    dates: bool,
}

impl LogFormat {
    /// The format of a log, whose first row is at the start of `text`.
    ///
    /// # Errors
    /// The columns do not match the layout, or any layout.
    pub fn new(layout: Layout, text: &str) -> Result<LogFormat, String> {
        let first = text.lines().next().unwrap_or_default();
        match layout {
            Layout::Mooncake => Ok(LogFormat::Mooncake),
            Layout::Bailian => Ok(LogFormat::Bailian),
            Layout::Weka => Ok(LogFormat::Weka),
            Layout::Otel => Ok(LogFormat::Otel),
            Layout::Workload => Ok(LogFormat::Workload),
            Layout::Azure => azure_columns(first),
            Layout::Burstgpt => burstgpt_columns(first),
            Layout::Servegen => servegen_columns(first),
            Layout::Auto if first.starts_with('{') => detect_json(text),
            Layout::Auto => azure_columns(first)
                .or_else(|_| burstgpt_columns(first))
                .or_else(|_| servegen_columns(first))
                .map_err(|_| format!("no known layout has these columns: {first}")),
        }
    }

    /// Tokens of a block that has an id, unless the log or the scenario states it.
    pub fn block_tokens(self) -> u64 {
        match self {
            LogFormat::Bailian => 16,
            LogFormat::Weka => 64,
            _ => 512,
        }
    }

    /// Whether rows name their session.
    pub fn names_sessions(self) -> bool {
        match self {
            LogFormat::Mooncake => true,
            LogFormat::Csv(columns) => columns.session.is_some(),
            _ => false,
        }
    }

    /// Whether the first line is a header.
    pub fn has_header(self) -> bool {
        matches!(self, LogFormat::Csv(_))
    }

    /// Parses a line.
    pub fn parse_entry(self, line: &str) -> Result<Entry<'_>, String> {
        match self {
            LogFormat::Mooncake => parse_mooncake(line),
            LogFormat::Bailian => parse_bailian(line),
            LogFormat::Weka => weka::parse_request(line),
            LogFormat::Otel => {
                otel::parse_request(line)?.ok_or_else(|| "the span is no request".to_owned())
            }
            LogFormat::Workload => parse_workload(line),
            LogFormat::Csv(columns) => columns.parse_entry(line),
        }
    }
}

/// The layout of the first JSON object.
fn detect_json(text: &str) -> Result<LogFormat, String> {
    type Keys = BTreeMap<String, IgnoredAny>;
    let first = serde_json::Deserializer::from_str(text)
        .into_iter::<Keys>()
        .next();
    let keys = first
        .unwrap_or_else(|| Ok(Keys::new()))
        .map_err(|error| error.to_string())?;
    let known = [
        ("body", LogFormat::Workload),
        ("chat_id", LogFormat::Bailian),
        ("input_length", LogFormat::Mooncake),
        ("requests", LogFormat::Weka),
        ("resourceSpans", LogFormat::Otel),
        ("attributes", LogFormat::Otel),
    ];
    let found = known.into_iter().find(|(key, _)| keys.contains_key(*key));
    found.map(|(_, format)| format).ok_or_else(|| {
        let keys: Vec<&str> = keys.keys().map(String::as_str).collect();
        format!("no known layout has these keys: {}", keys.join(", "))
    })
}

/// `TIMESTAMP,ContextTokens,GeneratedTokens`, the time a date.
fn azure_columns(header: &str) -> Result<LogFormat, String> {
    find_columns(
        header,
        ["TIMESTAMP", "ContextTokens", "GeneratedTokens"],
        true,
    )
}

/// `Timestamp[,Session ID,Elapsed time],Model,Request tokens,Response tokens,Total tokens,Log Type`, the time in
/// seconds.
fn burstgpt_columns(header: &str) -> Result<LogFormat, String> {
    find_columns(
        header,
        ["Timestamp", "Request tokens", "Response tokens"],
        false,
    )
}

/// `request_id,timestamp,input_tokens,output_tokens`, the time in seconds.
fn servegen_columns(header: &str) -> Result<LogFormat, String> {
    find_columns(
        header,
        ["timestamp", "input_tokens", "output_tokens"],
        false,
    )
}

fn find_columns(
    header: &str,
    [time, input, output]: [&str; 3],
    dates: bool,
) -> Result<LogFormat, String> {
    let names = parse_cells(header);
    let find = |name: &str| {
        names
            .iter()
            .position(|column| column.trim().eq_ignore_ascii_case(name))
    };
    let require =
        |name: &str| find(name).ok_or_else(|| format!("no column `{name}` (columns: {header})"));
    let (time, input, output) = (require(time)?, require(input)?, require(output)?);
    Ok(LogFormat::Csv(Columns {
        time,
        input,
        output,
        model: find("Model"),
        session: find("Session ID"),
        elapsed: find("Elapsed time"),
        dates,
    }))
}

impl Columns {
    fn parse_entry(self, line: &str) -> Result<Entry<'_>, String> {
        let cells = parse_cells(line);
        let cell = |index: usize| {
            cells
                .get(index)
                .map(|cell| cell.trim())
                .ok_or_else(|| format!("the row has only {} columns", cells.len()))
        };
        let time = cell(self.time)?;
        let at = if self.dates {
            parse_date(time)
        } else {
            parse_decimal(time, 9)
        }
        .ok_or_else(|| invalid_time(time))?;
        let length = |index: usize, what: &str| {
            let text = cell(index)?;
            let whole = text.strip_suffix(".0").unwrap_or(text);
            check_tokens(whole.parse().ok(), what, text)
        };
        let input = length(self.input, "prompt")?;
        let output = length(self.output, "output")?;
        let optional = |index: Option<usize>| {
            let text = cell(index?).ok()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let end = match optional(self.elapsed) {
            None => None,
            Some(elapsed) => match parse_decimal(&elapsed, 9) {
                Some(elapsed @ 0..) => Some(at + elapsed),
                _ => return Err(format!("invalid elapsed time: {elapsed}")),
            },
        };
        Ok(Entry {
            at: Some(at),
            model: optional(self.model),
            request: LoggedRequest::Lengths {
                input,
                output,
                blocks: Vec::new(),
            },
            place: SessionFields {
                end,
                session: optional(self.session),
                ..SessionFields::default()
            },
        })
    }
}

/// `{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}`, with `session_id` and
/// `delay` in logs of sessions; times in milliseconds.
fn parse_mooncake(line: &str) -> Result<Entry<'_>, String> {
    #[derive(Deserialize)]
    struct Row {
        timestamp: Option<Value>,
        input_length: Value,
        output_length: Value,
        #[serde(default)]
        hash_ids: Vec<u64>,
        model: Option<String>,
        session_id: Option<Value>,
        delay: Option<Value>,
    }
    let row: Row = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let time = |value: Option<Value>| {
        let text = value.map(|value| value.to_string());
        let parse = |text: String| parse_decimal(&text, 6).ok_or_else(|| invalid_time(&text));
        text.map(parse).transpose()
    };
    Ok(Entry {
        at: time(row.timestamp)?,
        model: row.model,
        request: lengths(&row.input_length, &row.output_length, row.hash_ids)?,
        place: SessionFields {
            delay: time(row.delay)?,
            session: row.session_id.as_ref().map(text_of),
            ..SessionFields::default()
        },
    })
}

/// `{"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521, "output_length": 132, "type":
/// "text", "turn": 2, "hash_ids": [1089, 1090]}`, the time in seconds; the parent of a first request is -1.
fn parse_bailian(line: &str) -> Result<Entry<'_>, String> {
    #[derive(Deserialize)]
    struct Row {
        chat_id: Value,
        parent_chat_id: Option<Value>,
        timestamp: Value,
        input_length: Value,
        output_length: Value,
        #[serde(default)]
        hash_ids: Vec<u64>,
    }
    let row: Row = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let time = row.timestamp.to_string();
    let at = parse_decimal(&time, 9).ok_or_else(|| invalid_time(&time))?;
    let parent = row.parent_chat_id.as_ref().map(text_of);
    Ok(Entry {
        at: Some(at),
        model: None,
        request: lengths(&row.input_length, &row.output_length, row.hash_ids)?,
        place: SessionFields {
            id: Some(text_of(&row.chat_id)),
            parent: parent.filter(|parent| parent != "-1"),
            ..SessionFields::default()
        },
    })
}

fn lengths<'a>(
    input: &Value,
    output: &Value,
    blocks: Vec<u64>,
) -> Result<LoggedRequest<'a>, String> {
    Ok(LoggedRequest::Lengths {
        input: check_tokens(input.as_u64(), "prompt", input)?,
        output: check_tokens(output.as_u64(), "output", output)?,
        blocks,
    })
}

/// A text without its quotes, any other value as JSON.
pub fn text_of(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// `{"timestamp": 12.5, "body": {…}, "headers": {…}}`, the time in seconds or RFC 3339.
fn parse_workload(line: &str) -> Result<Entry<'_>, String> {
    #[derive(Deserialize)]
    struct Row<'a> {
        timestamp: Value,
        #[serde(borrow)]
        body: &'a RawValue,
        #[serde(default)]
        headers: Option<Map<String, Value>>,
        output_length: Option<u64>,
    }
    let row: Row<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let at = match &row.timestamp {
        Value::String(text) => parse_date(text).or_else(|| parse_decimal(text, 9)),
        number => parse_decimal(&number.to_string(), 9),
    };
    let at = at.ok_or_else(|| invalid_time(&row.timestamp.to_string()))?;
    if !row.body.get().starts_with('{') {
        return Err("`body` is not a JSON object".into());
    }
    let headers = row
        .headers
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| (name, text_of(&value)))
        .collect();
    Ok(Entry {
        at: Some(at),
        model: None,
        request: LoggedRequest::Body {
            body: row.body,
            headers,
            output: row.output_length,
        },
        place: SessionFields::default(),
    })
}

pub fn invalid_time(text: &str) -> String {
    format!("invalid time: {text}")
}

/// Maximum length of a prompt or a reply in a log, tokens. The text of a prompt and its request body are in memory.
const MAX_ROW_TOKENS: u64 = 4_000_000;

/// Checks a length: a request without prompt cannot be sent, and one without output had failed when it was logged.
pub fn check_tokens(
    count: Option<u64>,
    what: &str,
    text: impl std::fmt::Display,
) -> Result<u64, String> {
    match count {
        Some(0) => Err(format!("the {what} has no tokens")),
        Some(count) if count > MAX_ROW_TOKENS => Err(format!(
            "the {what} has {count} tokens, more than {MAX_ROW_TOKENS}"
        )),
        Some(count) => Ok(count),
        None => Err(format!("invalid token count of the {what}: {text}")),
    }
}

/// The cells of a CSV line. A quoted cell may contain commas and doubled quotes.
fn parse_cells(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(Cow::Borrowed).collect();
    }
    let mut cells = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => cells
                .last_mut()
                .into_iter()
                .for_each(|cell| cell.extend(chars.next())),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells
                .last_mut()
                .into_iter()
                .for_each(|cell| cell.push(other)),
        }
    }
    cells.into_iter().map(Cow::Owned).collect()
}

/// Parses a decimal number in units of 10^-`digits` without rounding: `1700000000.25` seconds (9) or `12.5`
/// milliseconds (6) as nanoseconds. Digits beyond nanoseconds are cut.
pub fn parse_decimal(text: &str, digits: usize) -> Option<LogTime> {
    let text = text.trim();
    let scale = 10i128.pow(u32::try_from(digits).ok()?);
    if text.contains(['e', 'E']) {
        let number = text
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite() && number.abs() < 1e18)?;
        return in_range((number * scale as f64).round() as i128);
    }
    let (negative, text) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(rest) {
        return None;
    }
    let whole = i128::from(whole.parse::<u64>().ok()?);
    let rest: String = rest
        .chars()
        .chain(std::iter::repeat('0'))
        .take(digits)
        .collect();
    let value = whole * scale
        + if digits == 0 {
            0
        } else {
            rest.parse::<i128>().ok()?
        };
    in_range(if negative { -value } else { value })
}

/// A time within 146 years of the origin of its clock, so that no difference of two overflows.
fn in_range(time: i128) -> Option<LogTime> {
    const MAX: i128 = 1 << 62;
    (-MAX..=MAX).contains(&time).then_some(time as LogTime)
}

/// Nanoseconds from the Unix epoch to a date in RFC 3339, or with a blank instead of `T`; UTC where it has no offset.
pub fn parse_date(text: &str) -> Option<LogTime> {
    let (day, time) = text.trim().split_once([' ', 'T', 't'])?;
    let zone = if time.contains(['Z', 'z', '+', '-']) {
        ""
    } else {
        "Z"
    };
    OffsetDateTime::parse(&format!("{day}T{time}{zone}"), &Rfc3339)
        .ok()
        .and_then(|date| in_range(date.unix_timestamp_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_every_digit() {
        assert_eq!(
            parse_decimal("1700000000.123456789", 9),
            Some(1_700_000_000_123_456_789)
        );
        assert_eq!(parse_decimal("27482", 6), Some(27_482_000_000));
        assert_eq!(parse_decimal(" 1.5 ", 6), Some(1_500_000));
        assert_eq!(
            (parse_decimal("-1.5", 9), parse_decimal("1.7e9", 9)),
            (Some(-1_500_000_000), Some(1_700_000_000_000_000_000))
        );
        assert_eq!(
            [
                "",
                ".",
                "1,5",
                "x",
                "1.2.3",
                "inf",
                "1e999",
                "NaN",
                "1e12",
                "18446744073709551615"
            ]
            .map(|text| parse_decimal(text, 9)),
            [None; 10]
        );
    }

    #[test]
    fn dates_of_every_log_are_read() {
        let known = Some(1_700_158_546_680_590_000);
        assert_eq!(parse_date("2023-11-16 18:15:46.6805900"), known);
        assert_eq!(parse_date("2023-11-16T18:15:46.68059Z"), known);
        assert_eq!(parse_date("2023-11-16 20:15:46.680590+02:00"), known);
        assert_eq!(
            ["2023-11-16", "18:15:46", "2023-13-01 00:00:00", ""].map(parse_date),
            [None; 4]
        );
    }
}
