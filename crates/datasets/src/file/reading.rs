//! The bytes of one row as a session, or why it is left out.

use super::format_detection::{Format, Taste};
use super::row::{Row, reason};
use crate::cache::Remote;
use crate::error::PromptError;
use crate::token::Tokenizer;
use crate::{admits, message};
use llmscen_core::dataset::{CommandSpec, DatasetSpec, Source};
use llmscen_core::prompt::{Prompt, Session};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// How the rows of one kind are read.
pub struct Kind {
    /// Its name in a scenario.
    pub name: &'static str,
    /// Which formats it reads.
    pub taste: Taste,
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
    /// From a line as it stands.
    Line(fn(&str) -> Result<Prompt, String>),
    /// From columns.
    Row(fn(Row<'_>, &Reading) -> Result<Vec<Prompt>, String>),
}

/// What reading a row needs.
pub struct Reading {
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
    /// It does not fit: lines behind its first one, and what is wrong.
    Misfit(usize, String),
    /// It is not UTF-8 from this byte on.
    Garbled(usize),
}

/// What is said of a row.
pub enum Told {
    /// Nothing.
    Nothing,
    /// This, in the report.
    Note(String),
    /// It ends the data.
    Fault(PromptError),
}

impl Reading {
    /// The command that prints the rows, where one does. It is read only as far as rows are needed.
    pub fn command(&self) -> Option<&CommandSpec> {
        if let Source::Command(command) = &self.spec.source { Some(command) } else { None }
    }

    /// Reads a row. The number of its tokens, where it was counted before, is not counted again.
    pub fn judge(&self, bytes: &[u8], known: Option<u64>) -> Verdict {
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => return Verdict::Garbled(error.valid_up_to()),
        };
        let turns = match self.parsed(text) {
            Ok(turns) => turns,
            Err((line, problem)) => return Verdict::Misfit(line, problem),
        };
        if self.spec.one_text && !turns.iter().all(message::is_one_text) {
            return Verdict::Misfit(0, "the row is more than one text, which is all that the protocol takes".into());
        }
        self.finished(turns, known).map_or(Verdict::Outside, Verdict::Usable)
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
                Ok(list @ Value::Array(_)) if self.kind.taste.bare => {
                    alone(self.kind.taste.lists.first().unwrap_or(&"messages"), list)
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
    fn finished(&self, mut turns: Vec<Prompt>, known: Option<u64>) -> Option<Session> {
        if let Some(most) = self.spec.turns.as_ref().and_then(|turns| turns.max) {
            turns.truncate(most as usize);
        }
        let first = turns.first_mut()?;
        if first.body.is_none() && first.messages.is_none() && first.text.trim().is_empty() {
            return None;
        }
        // What a later turn holds depends on the replies before it, so that only the first one can be counted here.
        if let Some(tokenizer) = &self.tokenizer {
            first.tokens = known.or_else(|| self.count(tokenizer, first));
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
