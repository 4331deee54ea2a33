//! One row: its columns, and the session that it makes.

use super::format_detection::{Format, FormatOptions};
use crate::cache::Remote;
use crate::token::Tokenizer;
use crate::{admits, message};
use llmscen_core::dataset::{CommandSpec, DatasetSpec, Source};
use llmscen_core::prompt::{Prompt, Session};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// How the rows of one kind are read.
pub struct Kind {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Which formats it reads.
    pub formats: FormatOptions,
    /// One row as prompts, or what is wrong with it.
    pub parse: Parse,
    /// The text that tokens are counted over, where that is not the prompt's own.
    pub words: Option<fn(&Prompt) -> String>,
    /// What a row must look like, for errors.
    pub expected: &'static str,
    /// The copy behind `path: builtin`.
    pub builtin: Option<&'static str>,
    /// The copy on a hub, for a dataset without a path.
    pub remote: Option<Remote>,
}

/// One row as prompts: the turns of a session, or one alone.
pub enum Parse {
    /// From an unchanged line.
    Line(fn(&str) -> Result<Prompt, String>),
    /// From columns.
    Row(fn(Row<'_>, &RowParser) -> Result<Vec<Prompt>, String>),
}

/// What reading a row needs.
pub struct RowParser {
    /// The kind.
    pub kind: &'static Kind,
    /// The dataset.
    pub spec: DatasetSpec,
    /// Counts the prompts.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// The file, for errors.
    pub path: PathBuf,
    /// Its format and, of CSV, its header; set before the first row is read.
    pub format: OnceLock<(Format, Vec<String>)>,
}

/// What becomes of a row.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// It is sent.
    Usable(Session),
    /// It is blank or outside `prompt_tokens`.
    Outside,
    /// It does not fit.
    Misfit {
        /// Lines behind its first one.
        below: usize,
        /// What is wrong.
        problem: String,
    },
    /// It is not UTF-8 from this byte on.
    NotUtf8(usize),
}

impl RowParser {
    /// The command that prints the rows, where one does. It is read only as far as rows are needed.
    pub fn command(&self) -> Option<&CommandSpec> {
        if let Source::Command(command) = &self.spec.source { Some(command) } else { None }
    }

    /// The session of a row. `tokens` is its count where it was counted before.
    pub fn parse(&self, bytes: &[u8], tokens: Option<u64>) -> Verdict {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Verdict::NotUtf8(error.valid_up_to()),
        };
        let turns = match self.parsed(text) {
            Ok(turns) => turns,
            Err((below, problem)) => return Verdict::Misfit { below, problem },
        };
        if self.spec.one_text && !turns.iter().all(message::is_one_text) {
            let problem = "the row is more than one text, which is all that the protocol takes".into();
            return Verdict::Misfit { below: 0, problem };
        }
        self.finished(turns, tokens).map_or(Verdict::Outside, Verdict::Usable)
    }

    fn parsed(&self, text: &str) -> Result<Vec<Prompt>, (usize, String)> {
        let parse = match self.kind.parse {
            Parse::Line(parse) => return parse(text).map(|prompt| vec![prompt]).map_err(|problem| (0, problem)),
            Parse::Row(parse) => parse,
        };
        parse(self.row(text)?, self).map_err(|problem| (0, problem))
    }

    fn row(&self, text: &str) -> Result<Row<'_>, (usize, String)> {
        let columns = &self.spec.columns;
        let alone = |name: &str, value: Value| Ok(Row::new(Map::from_iter([(name.to_owned(), value)]), columns));
        match self.format.get() {
            Some((Format::Csv(delimiter), header)) => self.record(text, *delimiter, header).map_err(|problem| (0, problem)),
            Some((Format::Plain, _)) => alone("text", text.into()),
            _ => match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => Ok(Row::new(fields, columns)),
                Ok(Value::String(text)) => alone("text", text.into()),
                Ok(list @ Value::Array(_)) if self.kind.formats.bare_lists => {
                    alone(self.kind.formats.list_columns.first().unwrap_or(&"messages"), list)
                }
                Ok(_) => Err((0, "the row is not a JSON object".into())),
                Err(error) => Err((error.line().saturating_sub(1), reason(&error))),
            },
        }
    }

    fn record(&self, text: &str, delimiter: u8, header: &[String]) -> Result<Row<'_>, String> {
        let record = record(text, delimiter)?;
        if record.len() != header.len() {
            return Err(format!("the record has {} fields, the header has {}", record.len(), header.len()));
        }
        Ok(Row::of_record(header, record.iter(), &self.spec.columns))
    }

    /// Counts, filters, and puts the system message in front; None where there is nothing to send.
    fn finished(&self, mut turns: Vec<Prompt>, tokens: Option<u64>) -> Option<Session> {
        if let Some(most) = self.spec.turns.as_ref().and_then(|turns| turns.max) {
            turns.truncate(most as usize);
        }
        let first = turns.first_mut()?;
        if first.body.is_none() && first.messages.is_none() && first.text.trim().is_empty() {
            return None;
        }
        // What a later turn holds depends on the replies before it, so that only the first one can be counted here.
        if let Some(tokenizer) = &self.tokenizer {
            first.tokens = tokens.or_else(|| self.count(tokenizer, first));
            first.approximate = tokenizer.approximate();
        }
        if !admits(&self.spec, first.tokens) {
            return None;
        }
        let role = |message: &Value| message.get("role") == Some(&Value::from("system"));
        if let (Some(system), Some(messages)) = (&self.spec.system, &mut first.messages)
            && !messages.iter().any(role)
        {
            messages.insert(0, json!({ "role": "system", "content": system }));
        }
        Some(Session { turns })
    }

    fn count(&self, tokenizer: &Tokenizer, prompt: &Prompt) -> Option<u64> {
        match self.kind.words {
            Some(words) => tokenizer.count_prompt(&words(prompt)),
            None => message::tokens_of(prompt, tokenizer, self.spec.system.as_deref()),
        }
    }
}

/// The fields of one record of CSV.
pub fn record(text: &str, delimiter: u8) -> Result<csv::StringRecord, String> {
    let mut reader = csv::ReaderBuilder::new();
    reader.has_headers(false).flexible(true).delimiter(delimiter).buffer_capacity(text.len().max(1));
    let mut record = csv::StringRecord::new();
    reader.from_reader(text.as_bytes()).read_record(&mut record).map_err(|error| error.to_string())?;
    Ok(record)
}

/// A row, and the names of its columns where the scenario gives them.
pub struct Row<'a> {
    fields: Map<String, Value>,
    columns: &'a BTreeMap<String, String>,
    /// The table knows texts only: what looks like a number may be meant as a text.
    loose: bool,
}

impl<'a> Row<'a> {
    /// A row of JSON, Parquet or plain text.
    pub fn new(fields: Map<String, Value>, columns: &'a BTreeMap<String, String>) -> Row<'a> {
        Row { fields, columns, loose: false }
    }

    /// A record of CSV. A cell that is written as JSON would write a number is one.
    pub fn of_record<'c>(
        header: &[String],
        cells: impl Iterator<Item = &'c str>,
        columns: &'a BTreeMap<String, String>,
    ) -> Row<'a> {
        let cell = |cell: &str| {
            let number = serde_json::from_str::<Number>(cell).ok().filter(|number| number.to_string() == cell);
            number.map_or_else(|| cell.into(), Value::Number)
        };
        Row { fields: header.iter().cloned().zip(cells.map(cell)).collect(), columns, loose: true }
    }

    /// The first of these fields that is there and not null, and its name in the file. The scenario may name the column of
    /// any of them; then nothing else is looked at.
    pub fn get(&self, names: &[&str]) -> Option<(String, &Value)> {
        let own = self.named(names);
        let hit = |path: &str| at(&self.fields, path).filter(|value| !value.is_null()).map(|value| (path.to_owned(), value));
        own.map_or_else(|| names.iter().find_map(|name| hit(name)), |path| hit(path))
    }

    fn named(&self, names: &[&str]) -> Option<&'a String> {
        names.iter().find_map(|name| self.columns.get(*name))
    }

    /// What is said of a row without any of these fields.
    pub fn lacks(&self, names: &[&str]) -> String {
        let own = self.named(names);
        let wanted = own.map_or_else(|| names.join("` or `"), String::clone);
        let seen: Vec<&str> = self.fields.keys().map(String::as_str).collect();
        let null = if at(&self.fields, &wanted).is_some() { "nothing in " } else { "no " };
        format!("the row has {null}`{wanted}` (it has: {})", seen.join(", "))
    }

    /// A text that must be there, unchanged.
    pub fn text(&self, names: &[&str]) -> Result<String, String> {
        self.text_if(names)?.ok_or_else(|| self.lacks(names))
    }

    /// A text that may be there.
    pub fn text_if(&self, names: &[&str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((_, Value::Number(number))) if self.loose => Ok(Some(number.to_string())),
            Some((name, _)) => Err(format!("`{name}` is not a text")),
        }
    }

    /// A whole number that may be there.
    pub fn count_if(&self, names: &[&str]) -> Result<Option<u64>, String> {
        let Some((name, value)) = self.get(names).filter(|(_, value)| !self.is_empty_cell(value)) else { return Ok(None) };
        count(value).map(Some).ok_or_else(|| format!("`{name}` is not a whole number"))
    }

    /// A list that may be there, or a text that holds one as JSON: some tables cannot hold lists.
    pub fn list_if(&self, names: &[&str]) -> Result<Option<(String, Vec<Value>)>, String> {
        match self.get(names).filter(|(_, value)| !self.is_empty_cell(value)) {
            None => Ok(None),
            Some((name, Value::Array(list))) => Ok(Some((name, list.clone()))),
            Some((name, Value::String(text))) if text.trim_start().starts_with('[') => match serde_json::from_str(text) {
                Ok(list) => Ok(Some((name, list))),
                Err(error) => Err(format!("`{name}` is {}", reason(&error))),
            },
            Some((name, _)) => Err(format!("`{name}` is not a list")),
        }
    }

    /// Whether a value is an empty cell of a record, which has no other way to say that there is none.
    fn is_empty_cell(&self, value: &Value) -> bool {
        self.loose && *value == ""
    }

    /// The row as it is, and the fields that the scenario gives columns by their own names.
    pub fn into_fields(mut self) -> Map<String, Value> {
        let named: Vec<(String, Value)> =
            self.columns.iter().filter_map(|(name, path)| Some((name.clone(), at(&self.fields, path)?.clone()))).collect();
        self.fields.extend(named);
        self.fields
    }
}

/// The value in a column: by the whole name, or step by step along the dots.
fn at<'v>(fields: &'v Map<String, Value>, path: &str) -> Option<&'v Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    rest.split('.').try_fold(fields.get(head)?, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    })
}

/// A whole number, also one that is written as a text or with a fraction of zero.
pub fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as u64))
        }
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// What serde_json says, without its own line and column.
pub fn reason(error: &serde_json::Error) -> String {
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
        let columns = BTreeMap::from([("prompt".to_owned(), "meta.turns.0.q".to_owned()), ("x".to_owned(), "a.b".to_owned())]);
        let row = row(&json!({ "meta": { "turns": [{ "q": " Why? " }] }, "a.b": 3, "prompt": "not this" }), &columns);
        assert_eq!(row.text(&["prompt", "text"]).unwrap(), " Why? ");
        assert_eq!(row.text(&["question", "prompt"]).unwrap(), " Why? ", "any of the names may be given a column");
        let fields = row.into_fields();
        assert_eq!((&fields["prompt"], &fields["x"]), (&json!(" Why? "), &json!(3)));
        assert_eq!(fields["meta"]["turns"][0]["q"], " Why? ");
    }

    #[test]
    fn what_is_missing_or_of_another_type_is_named() {
        let none = BTreeMap::new();
        let own = row(&json!({ "id": 1, "query": [], "nil": null, "n": "7", "list": "[1, 2]", "bad": "[1" }), &none);
        assert_eq!(own.text(&["question"]).unwrap_err(), "the row has no `question` (it has: id, query, nil, n, list, bad)");
        assert!(own.text(&["nil"]).unwrap_err().starts_with("the row has nothing in `nil`"));
        assert_eq!(own.text(&["id"]).unwrap_err(), "`id` is not a text");
        assert_eq!(own.count_if(&["query"]).unwrap_err(), "`query` is not a whole number");
        assert_eq!((own.count_if(&["n"]), own.count_if(&["nil"])), (Ok(Some(7)), Ok(None)));
        assert_eq!(own.list_if(&["list"]).unwrap().unwrap().1, [1, 2]);
        assert!(own.list_if(&["bad"]).unwrap_err().starts_with("`bad` is not JSON ("));
        assert_eq!(own.list_if(&["n"]).unwrap_err(), "`n` is not a list");
        let columns = BTreeMap::from([("question".to_owned(), "q".to_owned())]);
        assert_eq!(
            row(&json!({ "question": "x" }), &columns).text(&["question"]).unwrap_err(),
            "the row has no `q` (it has: question)"
        );
    }

    #[test]
    fn cells_are_numbers_where_they_are_written_like_one_and_texts_where_one_is_asked_for() {
        let (none, header) = (BTreeMap::new(), ["a", "b", "c", "d"].map(str::to_owned));
        let row = Row::of_record(&header, ["128", "007", "1.5", "1.50"].into_iter(), &none);
        assert_eq!((row.count_if(&["a"]), row.text(&["a"])), (Ok(Some(128)), Ok("128".to_owned())));
        let fields = Value::Object(row.into_fields());
        assert_eq!(fields, json!({ "a": 128, "b": "007", "c": 1.5, "d": "1.50" }));
    }

    #[test]
    fn counts_are_whole_numbers_only() {
        let values = [json!(3), json!(3.0), json!(" 3 "), json!(3.5), json!(-1), json!("x"), json!(true)];
        assert_eq!(values.each_ref().map(count), [Some(3), Some(3), Some(3), None, None, None, None]);
    }
}
