//! One row of a file: its columns, and the session it becomes.

use super::format_detection::{Format, FormatOptions};
use crate::cache::Remote;
use crate::token::Tokenizer;
use crate::{admits, message};
use llmscen_core::dataset::{
    CommandSpec, DatasetSpec, Prompt, Replies, SentHistory, Session, Source,
};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// How the rows of one kind are read.
pub struct Kind {
    /// Its name in a scenario.
    pub name: &'static str,
    /// The formats it reads.
    pub formats: FormatOptions,
    /// Makes prompts of a row.
    pub parse: Parse,
    /// The text whose tokens are counted, where that is not the text of the prompt.
    pub words: Option<fn(&Prompt) -> String>,
    /// The description of a valid row, for errors.
    pub expected: &'static str,
    /// The data of `path: builtin`.
    pub builtin: Option<&'static str>,
    /// The download for a dataset without a path.
    pub remote: Option<Remote>,
}

/// How a row becomes prompts: the turns of a session. The error is the problem with the row.
pub enum Parse {
    /// From an unchanged line.
    Line(fn(&str) -> Result<Prompt, String>),
    /// From columns.
    Row(fn(Row<'_>, &RowParser) -> Result<Vec<Prompt>, String>),
}

/// Makes sessions of rows.
pub struct RowParser {
    pub kind: &'static Kind,
    pub spec: DatasetSpec,
    /// Counts the tokens of prompts.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// The file, for errors.
    pub path: PathBuf,
    /// The format and the CSV header of the file; set before the first row is read.
    pub format: OnceLock<(Format, Vec<String>)>,
}

/// The result of parsing a row.
#[derive(Debug, PartialEq)]
pub enum ParsedRow {
    Usable(Session),
    /// Blank, or outside `prompt_tokens`.
    Excluded,
    Invalid {
        /// Number of lines between the first line of the row and the problem.
        lines_below: usize,
        problem: String,
    },
    /// The offset of the first bad byte in the row.
    NotUtf8(usize),
}

/// A problem with a row, and the number of lines between the first line of the row and the problem.
struct RowProblem {
    lines_below: usize,
    problem: String,
}

impl From<String> for RowProblem {
    fn from(problem: String) -> RowProblem {
        RowProblem {
            lines_below: 0,
            problem,
        }
    }
}

impl RowParser {
    /// The command that prints the rows, of a dataset that has one.
    pub fn command(&self) -> Option<&CommandSpec> {
        if let Source::Command(command) = &self.spec.source {
            Some(command)
        } else {
            None
        }
    }

    /// The session of a row. `tokens` is the length of its prompt, where it was counted before.
    pub fn parse(&self, bytes: &[u8], tokens: Option<u64>) -> ParsedRow {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return ParsedRow::NotUtf8(error.valid_up_to()),
        };
        let mut turns = match self.parse_turns(text) {
            Ok(turns) => turns,
            Err(RowProblem {
                lines_below,
                problem,
            }) => {
                return ParsedRow::Invalid {
                    lines_below,
                    problem,
                };
            }
        };
        if let Some(max) = self.spec.turns.as_ref().and_then(|turns| turns.max) {
            turns.truncate(max as usize);
        }
        let checked = self
            .set_group(&mut turns)
            .and_then(|()| self.check_turns(&turns));
        if let Err(problem) = checked {
            return ParsedRow::Invalid {
                lines_below: 0,
                problem,
            };
        }
        self.make_session(turns, tokens)
            .map_or(ParsedRow::Excluded, ParsedRow::Usable)
    }

    /// Sets the group of every turn to the value of the column `group`.
    fn set_group(&self, turns: &mut [Prompt]) -> Result<(), String> {
        let Some(column) = &self.spec.group else {
            return Ok(());
        };
        for turn in turns {
            let group = match find_value(&turn.fields, column) {
                Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                found => {
                    let what = match found {
                        None => "has no",
                        Some(Value::Null | Value::String(_)) => "has an empty",
                        Some(_) => "has a list or a mapping as",
                    };
                    let names: Vec<&str> = turn.fields.keys().map(String::as_str).collect();
                    return Err(format!(
                        "the row {what} `{column}`, which `dataset.group` names (fields: {})",
                        names.join(", ")
                    ));
                }
            };
            turn.group = Some(group);
        }
        Ok(())
    }

    fn parse_turns(&self, text: &str) -> Result<Vec<Prompt>, RowProblem> {
        match self.kind.parse {
            Parse::Line(parse) => Ok(vec![parse(text)?]),
            Parse::Row(parse) => Ok(parse(self.parse_columns(text)?, self)?),
        }
    }

    fn parse_columns(&self, text: &str) -> Result<Row<'_>, RowProblem> {
        let columns = &self.spec.columns;
        let single_column = |name: &str, value: Value| {
            Row::new(Map::from_iter([(name.to_owned(), value)]), columns)
        };
        match self.format.get() {
            Some((Format::Csv(delimiter), header)) => {
                let record = parse_record(text, *delimiter)?;
                if record.len() != header.len() {
                    return Err(format!(
                        "the record has {} fields, the header has {}",
                        record.len(),
                        header.len()
                    )
                    .into());
                }
                Ok(Row::from_record(header, record.iter(), columns))
            }
            Some((Format::Plain, _)) => Ok(single_column("text", text.into())),
            _ => match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => Ok(Row::new(fields, columns)),
                Ok(Value::String(text)) => Ok(single_column("text", text.into())),
                Ok(list @ Value::Array(_)) if self.kind.formats.bare_lists => Ok(single_column(
                    self.kind
                        .formats
                        .list_columns
                        .first()
                        .unwrap_or(&"messages"),
                    list,
                )),
                Ok(_) => Err("the row is not a JSON object".to_owned().into()),
                Err(error) => Err(RowProblem {
                    lines_below: error.line().saturating_sub(1),
                    problem: json_problem(&error),
                }),
            },
        }
    }

    fn check_turns(&self, turns: &[Prompt]) -> Result<(), String> {
        if self.spec.one_text && !turns.iter().all(message::is_one_text) {
            return Err("the API takes one text per request, and the row has more than one".into());
        }
        let Some(settings) = &self.spec.turns else {
            return Ok(());
        };
        if settings.replies == Replies::Recorded {
            check_replies(turns)?;
        }
        if settings.history == SentHistory::PreviousResponseId {
            check_stored_history(turns)?;
        }
        Ok(())
    }

    /// Counts and filters the first turn, and adds the system message. None: the row is blank or outside
    /// `prompt_tokens`.
    fn make_session(&self, mut turns: Vec<Prompt>, tokens: Option<u64>) -> Option<Session> {
        let first = turns.first_mut()?;
        if first.body.is_none() && first.messages.is_none() && first.text.trim().is_empty() {
            return None;
        }
        // Later turns contain the replies to earlier ones, so only the first can be counted here.
        if let Some(tokenizer) = &self.tokenizer {
            first.tokens = tokens.or_else(|| self.count_tokens(tokenizer, first));
            first.approximate = tokenizer.approximate();
        }
        if !admits(&self.spec, first.tokens) {
            return None;
        }
        let is_system = |message: &Value| message.get("role") == Some(&Value::from("system"));
        if let (Some(system), Some(messages)) = (&self.spec.system, &mut first.messages)
            && !messages.iter().any(is_system)
        {
            messages.insert(0, json!({ "role": "system", "content": system }));
        }
        Some(turns.into())
    }

    fn count_tokens(&self, tokenizer: &Tokenizer, prompt: &Prompt) -> Option<u64> {
        match self.kind.words {
            Some(words) => tokenizer.count_prompt(&words(prompt)),
            None => message::tokens_of(prompt, tokenizer, self.spec.system.as_deref()),
        }
    }
}

/// Whether each turn whose reply becomes part of a later one has a reply in the data.
fn check_replies(turns: &[Prompt]) -> Result<(), String> {
    let used = (0..)
        .zip(turns)
        .flat_map(|(index, turn)| match &turn.links {
            None => Vec::from_iter(u32::checked_sub(index, 1)),
            Some(links) => {
                let replies = links.replies.iter().map(|slot| slot.turn);
                links.continues.into_iter().chain(replies).collect()
            }
        });
    let lacks_reply = |turn: &u32| {
        turns
            .get(*turn as usize)
            .is_none_or(|turn| turn.recorded_reply.is_empty())
    };
    match used.filter(lacks_reply).min() {
        Some(turn) => Err(format!(
            "turn {turn} (0-based) has no reply in the data, which `replies: recorded` sends back"
        )),
        None => Ok(()),
    }
}

/// Whether each turn only adds messages to the history, which the server has stored.
fn check_stored_history(turns: &[Prompt]) -> Result<(), String> {
    if let Some(turn) = turns.iter().position(|turn| turn.body.is_some()) {
        return Err(format!(
            "turn {turn} (0-based) has a complete body, which `history: previous_response_id` cannot shorten"
        ));
    }
    let continues_one = |(index, turn): &(usize, &Prompt)| match &turn.links {
        None => *index > 0,
        Some(links) => links.continues.is_some(),
    };
    let mut later = turns.iter().enumerate().filter(continues_one);
    match later.find(|(_, turn)| turn.system.is_some()) {
        Some((turn, _)) => Err(format!(
            "turn {turn} (0-based) replaces the system message, which `history: previous_response_id` cannot"
        )),
        None => Ok(()),
    }
}

/// The fields of one record of CSV.
pub fn parse_record(text: &str, delimiter: u8) -> Result<csv::StringRecord, String> {
    let mut reader = csv::ReaderBuilder::new();
    reader
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .buffer_capacity(text.len().max(1));
    let mut record = csv::StringRecord::new();
    reader
        .from_reader(text.as_bytes())
        .read_record(&mut record)
        .map_err(|error| error.to_string())?;
    Ok(record)
}

/// A row, and the names of its columns where the scenario gives them.
pub struct Row<'a> {
    fields: Map<String, Value>,
    columns: &'a BTreeMap<String, String>,
    /// The row is a record of CSV, whose cells have no types.
    untyped: bool,
}

impl<'a> Row<'a> {
    /// A row of JSON, Parquet or plain text.
    pub fn new(fields: Map<String, Value>, columns: &'a BTreeMap<String, String>) -> Row<'a> {
        Row {
            fields,
            columns,
            untyped: false,
        }
    }

    /// A record of CSV. A cell is a number where JSON writes the number the same way.
    pub fn from_record<'c>(
        header: &[String],
        cells: impl Iterator<Item = &'c str>,
        columns: &'a BTreeMap<String, String>,
    ) -> Row<'a> {
        let cell = |cell: &str| {
            let number = serde_json::from_str::<Number>(cell)
                .ok()
                .filter(|number| number.to_string() == cell);
            number.map_or_else(|| cell.into(), Value::Number)
        };
        Row {
            fields: header.iter().cloned().zip(cells.map(cell)).collect(),
            columns,
            untyped: true,
        }
    }

    /// The first of these fields that is not null, and its name in the file. Where the scenario names the column of
    /// one of them, only that column counts.
    pub fn get(&self, names: &[&str]) -> Option<(String, &Value)> {
        let find = |path: &str| {
            find_value(&self.fields, path)
                .filter(|value| !value.is_null())
                .map(|value| (path.to_owned(), value))
        };
        match self.configured_column(names) {
            Some(path) => find(path),
            None => names.iter().find_map(|name| find(name)),
        }
    }

    fn configured_column(&self, names: &[&str]) -> Option<&'a String> {
        names.iter().find_map(|name| self.columns.get(*name))
    }

    /// The error of a row without any of these fields.
    pub fn missing_field(&self, names: &[&str]) -> String {
        let missing = self
            .configured_column(names)
            .map_or_else(|| names.join("` or `"), String::clone);
        let present: Vec<&str> = self.fields.keys().map(String::as_str).collect();
        let fields = present.join(", ");
        match find_value(&self.fields, &missing) {
            Some(_) => format!("`{missing}` of the row is null (fields: {fields})"),
            None => format!("the row has no `{missing}` (fields: {fields})"),
        }
    }

    /// A required text, unchanged.
    pub fn text(&self, names: &[&str]) -> Result<String, String> {
        self.text_if(names)?
            .ok_or_else(|| self.missing_field(names))
    }

    /// An optional text.
    pub fn text_if(&self, names: &[&str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((_, Value::Number(number))) if self.untyped => Ok(Some(number.to_string())),
            Some((name, _)) => Err(format!("`{name}` is not a text")),
        }
    }

    /// An optional whole number.
    pub fn count_if(&self, names: &[&str]) -> Result<Option<u64>, String> {
        let Some((name, value)) = self
            .get(names)
            .filter(|(_, value)| !self.is_empty_cell(value))
        else {
            return Ok(None);
        };
        parse_count(value)
            .map(Some)
            .ok_or_else(|| format!("`{name}` is not a whole number"))
    }

    /// An optional list, also as JSON in a text, because CSV has no lists.
    pub fn list_if(&self, names: &[&str]) -> Result<Option<(String, Vec<Value>)>, String> {
        match self
            .get(names)
            .filter(|(_, value)| !self.is_empty_cell(value))
        {
            None => Ok(None),
            Some((name, Value::Array(list))) => Ok(Some((name, list.clone()))),
            Some((name, Value::String(text))) if text.trim_start().starts_with('[') => {
                match serde_json::from_str(text) {
                    Ok(list) => Ok(Some((name, list))),
                    Err(error) => Err(format!("`{name}` is {}", json_problem(&error))),
                }
            }
            Some((name, _)) => Err(format!("`{name}` is not a list")),
        }
    }

    /// Whether a value is an empty cell of a record, which is how CSV writes a missing value.
    fn is_empty_cell(&self, value: &Value) -> bool {
        self.untyped && *value == ""
    }

    /// The fields of the row, and those that the scenario names columns for, under their names.
    pub fn into_fields(mut self) -> Map<String, Value> {
        let named: Vec<(String, Value)> = self
            .columns
            .iter()
            .filter_map(|(name, path)| {
                Some((name.clone(), find_value(&self.fields, path)?.clone()))
            })
            .collect();
        self.fields.extend(named);
        self.fields
    }
}

/// The value at a field name, or at a path of names and list indices separated by dots.
fn find_value<'v>(fields: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    rest.split('.')
        .try_fold(fields.get(head)?, |value, step| match value {
            Value::Array(list) => list.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        })
}

/// A whole number, also one that is written as a text or with a fraction of zero.
pub fn parse_count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            number
                .as_f64()
                .filter(|n| *n >= 0.0 && n.fract() == 0.0)
                .map(|n| n as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The message of serde_json without line and column.
pub fn json_problem(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cut = text.rfind(" at line ").unwrap_or(text.len());
    format!("not JSON ({})", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row<'a>(value: &Value, columns: &'a BTreeMap<String, String>) -> Row<'a> {
        Row::new(value.as_object().unwrap().clone(), columns)
    }

    #[test]
    fn columns_name_fields_by_their_path_and_the_row_keeps_its_own_names() {
        let columns = BTreeMap::from([
            ("prompt".to_owned(), "meta.turns.0.q".to_owned()),
            ("x".to_owned(), "a.b".to_owned()),
        ]);
        let row = row(
            &json!({ "meta": { "turns": [{ "q": " Why? " }] }, "a.b": 3, "prompt": "not this" }),
            &columns,
        );
        assert_eq!(row.text(&["prompt", "text"]).unwrap(), " Why? ");
        assert_eq!(
            row.text(&["question", "prompt"]).unwrap(),
            " Why? ",
            "any of the names may be given a column"
        );
        let fields = row.into_fields();
        assert_eq!(
            (&fields["prompt"], &fields["x"]),
            (&json!(" Why? "), &json!(3))
        );
        assert_eq!(fields["meta"]["turns"][0]["q"], " Why? ");
    }

    #[test]
    fn missing_fields_and_wrong_types_are_errors() {
        let none = BTreeMap::new();
        let unnamed = row(
            &json!({ "id": 1, "query": [], "nil": null, "n": "7", "list": "[1, 2]", "bad": "[1" }),
            &none,
        );
        assert_eq!(
            unnamed.text(&["question"]).unwrap_err(),
            "the row has no `question` (fields: id, query, nil, n, list, bad)"
        );
        assert!(
            unnamed
                .text(&["nil"])
                .unwrap_err()
                .starts_with("`nil` of the row is null")
        );
        assert_eq!(unnamed.text(&["id"]).unwrap_err(), "`id` is not a text");
        assert_eq!(
            unnamed.count_if(&["query"]).unwrap_err(),
            "`query` is not a whole number"
        );
        assert_eq!(
            (unnamed.count_if(&["n"]), unnamed.count_if(&["nil"])),
            (Ok(Some(7)), Ok(None))
        );
        assert_eq!(unnamed.list_if(&["list"]).unwrap().unwrap().1, [1, 2]);
        assert!(
            unnamed
                .list_if(&["bad"])
                .unwrap_err()
                .starts_with("`bad` is not JSON (")
        );
        assert_eq!(unnamed.list_if(&["n"]).unwrap_err(), "`n` is not a list");
        let columns = BTreeMap::from([("question".to_owned(), "q".to_owned())]);
        assert_eq!(
            row(&json!({ "question": "x" }), &columns)
                .text(&["question"])
                .unwrap_err(),
            "the row has no `q` (fields: question)"
        );
    }

    #[test]
    fn cells_are_numbers_where_json_writes_them_so_and_texts_where_a_text_is_needed() {
        let (none, header) = (BTreeMap::new(), ["a", "b", "c", "d"].map(str::to_owned));
        let row = Row::from_record(&header, ["128", "007", "1.5", "1.50"].into_iter(), &none);
        assert_eq!(
            (row.count_if(&["a"]), row.text(&["a"])),
            (Ok(Some(128)), Ok("128".to_owned()))
        );
        let fields = Value::Object(row.into_fields());
        assert_eq!(
            fields,
            json!({ "a": 128, "b": "007", "c": 1.5, "d": "1.50" })
        );
    }

    #[test]
    fn counts_are_whole_numbers_only() {
        let values = [
            json!(3),
            json!(3.0),
            json!(" 3 "),
            json!(3.5),
            json!(-1),
            json!("x"),
            json!(true),
        ];
        assert_eq!(
            values.each_ref().map(parse_count),
            [Some(3), Some(3), Some(3), None, None, None, None]
        );
    }
}
