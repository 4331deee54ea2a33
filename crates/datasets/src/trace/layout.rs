//! The layouts of logs: how a row is found in each, and what it says.

use llmscen_core::dataset::Layout;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What a log must look like, for errors.
pub const EXPECTED: &str = "a log in the Mooncake (JSONL), Azure LLM (CSV), BurstGPT (CSV) or workload (JSONL) layout";

/// One row of a log.
#[derive(Debug)]
pub struct Entry<'a> {
    /// When it arrived, nanoseconds on the log's own clock.
    pub at: i128,
    /// The model it named, where the layout says so.
    pub model: Option<String>,
    /// What it requested.
    pub ask: Ask<'a>,
}

/// What a logged request requested.
#[derive(Debug)]
pub enum Ask<'a> {
    /// So many tokens for so many.
    Lengths {
        /// Tokens of the prompt.
        input: u64,
        /// Tokens generated.
        output: u64,
        /// Ids of the prompt's blocks of 512 tokens; equal ids are equal text. Empty where the log has none.
        blocks: Vec<u64>,
    },
    /// The request itself.
    Whole {
        /// Its body, a JSON object.
        body: &'a RawValue,
        /// Its headers.
        headers: Vec<(String, String)>,
        /// Tokens generated, where the log says so.
        output: Option<u64>,
    },
}

/// A layout with what the file's head says of it.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// JSONL of lengths.
    Mooncake,
    /// JSONL of bodies.
    Workload,
    /// CSV of lengths, by the places of its columns; the first line is their names.
    Csv(Columns),
}

/// The positions of the columns of a CSV.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    time: usize,
    input: usize,
    output: usize,
    model: Option<usize>,
    /// Times are dates, not seconds.
    dates: bool,
}

impl Form {
    /// The form of a log whose first line this is.
    ///
    /// # Errors
    /// Columns that are not those of the layout, or of any.
    pub fn new(layout: Layout, first: &str) -> Result<Form, String> {
        let json = first.starts_with('{');
        match layout {
            Layout::Mooncake => Ok(Form::Mooncake),
            Layout::Workload => Ok(Form::Workload),
            Layout::Azure => azure(first),
            Layout::Burstgpt => burstgpt(first),
            Layout::Auto if json => {
                let row: Map<String, Value> = serde_json::from_str(first).map_err(|error| error.to_string())?;
                match (row.contains_key("body"), row.contains_key("input_length")) {
                    (true, _) => Ok(Form::Workload),
                    (_, true) => Ok(Form::Mooncake),
                    _ => Err(format!("no known layout has these keys: {}", row.keys().cloned().collect::<Vec<_>>().join(", "))),
                }
            }
            Layout::Auto => {
                azure(first).or_else(|_| burstgpt(first)).map_err(|_| format!("no known layout has these columns: {first}"))
            }
        }
    }

    /// Whether the first line names columns.
    pub fn headed(self) -> bool {
        matches!(self, Form::Csv(_))
    }

    /// One line as an entry.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn entry(self, line: &str) -> Result<Entry<'_>, String> {
        match self {
            Form::Mooncake => mooncake(line),
            Form::Workload => workload(line),
            Form::Csv(columns) => columns.entry(line),
        }
    }
}

/// `TIMESTAMP,ContextTokens,GeneratedTokens`, the time a date.
fn azure(header: &str) -> Result<Form, String> {
    columns(header, ["TIMESTAMP", "ContextTokens", "GeneratedTokens"], true)
}

/// `Timestamp[,Session ID,Elapsed time],Model,Request tokens,Response tokens,Total tokens,Log Type`, the time in seconds.
fn burstgpt(header: &str) -> Result<Form, String> {
    columns(header, ["Timestamp", "Request tokens", "Response tokens"], false)
}

fn columns(header: &str, [time, input, output]: [&str; 3], dates: bool) -> Result<Form, String> {
    let names = cells(header);
    let find = |name: &str| names.iter().position(|own| own.trim().eq_ignore_ascii_case(name));
    let place = |name: &str| find(name).ok_or_else(|| format!("there is no column `{name}` (there are: {header})"));
    let (time, input, output) = (place(time)?, place(input)?, place(output)?);
    Ok(Form::Csv(Columns { time, input, output, model: find("Model"), dates }))
}

impl Columns {
    fn entry(self, line: &str) -> Result<Entry<'_>, String> {
        let cells = cells(line);
        let cell = |place: usize| {
            cells.get(place).map(|cell| cell.trim()).ok_or_else(|| format!("the row has only {} columns", cells.len()))
        };
        let time = cell(self.time)?;
        let at = if self.dates { date(time) } else { decimal(time, 9) }.ok_or_else(|| not_a_time(time))?;
        let length = |place: usize, what: &str| {
            let text = cell(place)?;
            let whole = text.strip_suffix(".0").unwrap_or(text);
            tokens(whole.parse().ok(), what, text)
        };
        let (input, output) = (length(self.input, "prompt")?, length(self.output, "output")?);
        let model = self.model.and_then(|place| cell(place).ok()).map(str::to_owned);
        Ok(Entry { at, model, ask: Ask::Lengths { input, output, blocks: Vec::new() } })
    }
}

/// `{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}`, the time in milliseconds.
fn mooncake(line: &str) -> Result<Entry<'_>, String> {
    #[derive(Deserialize)]
    struct Row {
        timestamp: Value,
        input_length: Value,
        output_length: Value,
        #[serde(default)]
        hash_ids: Vec<u64>,
        model: Option<String>,
    }
    let row: Row = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let time = row.timestamp.to_string();
    let at = decimal(&time, 6).ok_or_else(|| not_a_time(&time))?;
    let input = tokens(row.input_length.as_u64(), "prompt", &row.input_length)?;
    let output = tokens(row.output_length.as_u64(), "output", &row.output_length)?;
    Ok(Entry { at, model: row.model, ask: Ask::Lengths { input, output, blocks: row.hash_ids } })
}

/// `{"timestamp": 12.5, "body": {…}, "headers": {…}}`, the time in seconds or RFC 3339.
fn workload(line: &str) -> Result<Entry<'_>, String> {
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
        Value::String(text) => date(text).or_else(|| decimal(text, 9)),
        number => decimal(&number.to_string(), 9),
    };
    let at = at.ok_or_else(|| not_a_time(&row.timestamp.to_string()))?;
    if !row.body.get().starts_with('{') {
        return Err("`body` is no JSON object".into());
    }
    let text = |value: Value| value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
    let headers = row.headers.unwrap_or_default().into_iter().map(|(name, value)| (name, text(value))).collect();
    Ok(Entry { at, model: None, ask: Ask::Whole { body: row.body, headers, output: row.output_length } })
}

fn not_a_time(text: &str) -> String {
    format!("the time cannot be read: {text}")
}

/// A length in tokens: a request without a prompt cannot be sent, and one without an output failed when it was logged.
fn tokens(count: Option<u64>, what: &str, text: impl std::fmt::Display) -> Result<u64, String> {
    match count {
        Some(0) => Err(format!("the {what} has no tokens")),
        Some(count) => Ok(count),
        None => Err(format!("the tokens of the {what} cannot be read: {text}")),
    }
}

/// The cells of a CSV line; a quoted one may hold commas and doubled quotes.
fn cells(line: &str) -> Vec<Cow<'_, str>> {
    if !line.contains('"') {
        return line.split(',').map(Cow::Borrowed).collect();
    }
    let (mut cells, mut quoted) = (vec![String::new()], false);
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '"' if quoted && chars.peek() == Some(&'"') => {
                cells.last_mut().into_iter().for_each(|cell| cell.extend(chars.next()))
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells.last_mut().into_iter().for_each(|cell| cell.push(other)),
        }
    }
    cells.into_iter().map(Cow::Owned).collect()
}

/// A decimal number in units of 10^-`digits`, every digit of it kept: `1700000000.25` seconds (9) or `12.5` milliseconds
/// (6) as nanoseconds. Digits beyond nanoseconds are cut.
fn decimal(text: &str, digits: usize) -> Option<i128> {
    let text = text.trim();
    let scale = 10i128.pow(u32::try_from(digits).ok()?);
    if text.contains(['e', 'E']) {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && number.abs() < 1e18)?;
        return Some((number * scale as f64).round() as i128);
    }
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(rest) {
        return None;
    }
    let whole = i128::from(whole.parse::<u64>().ok()?);
    let rest: String = rest.chars().chain(std::iter::repeat('0')).take(digits).collect();
    let value = whole * scale + if digits == 0 { 0 } else { rest.parse::<i128>().ok()? };
    Some(if negative { -value } else { value })
}

/// A date with a time of day, RFC 3339 or with a blank for its `T`, since the Unix epoch; UTC where it names no offset.
fn date(text: &str) -> Option<i128> {
    let (day, time) = text.trim().split_once([' ', 'T', 't'])?;
    let zone = if time.contains(['Z', 'z', '+', '-']) { "" } else { "Z" };
    OffsetDateTime::parse(&format!("{day}T{time}{zone}"), &Rfc3339).ok().map(OffsetDateTime::unix_timestamp_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_keep_every_digit() {
        assert_eq!(decimal("1700000000.123456789", 9), Some(1_700_000_000_123_456_789));
        assert_eq!(decimal("27482", 6), Some(27_482_000_000));
        assert_eq!(decimal(" 1.5 ", 6), Some(1_500_000));
        assert_eq!((decimal("-1.5", 9), decimal("1.7e9", 9)), (Some(-1_500_000_000), Some(1_700_000_000_000_000_000)));
        assert_eq!(["", ".", "1,5", "x", "1.2.3", "inf", "1e999", "NaN"].map(|text| decimal(text, 9)), [None; 8]);
    }

    #[test]
    fn dates_of_every_log_are_read() {
        let known = Some(1_700_158_546_680_590_000);
        assert_eq!(date("2023-11-16 18:15:46.6805900"), known);
        assert_eq!(date("2023-11-16T18:15:46.68059Z"), known);
        assert_eq!(date("2023-11-16 20:15:46.680590+02:00"), known);
        assert_eq!(["2023-11-16", "18:15:46", "2023-13-01 00:00:00", ""].map(date), [None; 4]);
    }
}
