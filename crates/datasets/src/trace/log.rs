//! A log as rows in the order of their time.

use super::layout::{Ask, EXPECTED, Entry, Form};
use crate::error::PromptError;
use crate::file;
use llmscen_core::dataset::TraceSpec;
use llmscen_core::units::Nanos;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log behind `path: builtin`.
const BUILTIN: &str = include_str!("../../data/trace.jsonl");

/// Rows that do not fit and are named one by one; the others are counted.
const NAMED: usize = 5;

/// A log of arrivals.
#[derive(Clone, Debug)]
pub struct Log {
    /// The instants, counted from the beginning of the window, in order.
    pub arrivals: Arc<[Nanos]>,
    /// What a reader of the report must know.
    pub notes: Vec<String>,
}

/// The arrivals of a log, from a file of any layout, gzip undone; whatever it says besides is not read.
///
/// # Errors
/// A file that cannot be read or holds no arrival; with `strict`, a row that does not fit.
pub fn read(path: &Path, spec: &TraceSpec, strict: bool) -> Result<Log, PromptError> {
    let mut notes = Vec::new();
    let arrivals = Rows::read(path, spec, strict, &mut notes)?.arrivals();
    Ok(Log { arrivals, notes })
}

/// The rows of a log that are in its window, and its text.
pub struct Rows {
    path: PathBuf,
    text: String,
    form: Form,
    rows: Vec<(Nanos, Range<usize>)>,
    dropped: u64,
}

impl Rows {
    /// Reads a log and leaves out the rows that do not fit.
    pub fn read(path: &Path, spec: &TraceSpec, strict: bool, notes: &mut Vec<String>) -> Result<Rows, PromptError> {
        let text = if path == Path::new("builtin") { BUILTIN.to_owned() } else { file::read_text(path)? };
        let wrong = |line, problem| PromptError::Row { path: path.to_owned(), line, problem, expected: EXPECTED };
        let start = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let mut lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number)).filter(|(line, _)| !line.is_empty());
        let mut ahead = lines.clone();
        let (first, number) = ahead.next().ok_or_else(|| PromptError::Empty { path: path.to_owned() })?;
        let form = Form::new(spec.layout, first).map_err(|problem| wrong(number, problem))?;
        if form.headed() {
            lines = ahead;
        }
        let (mut rows, mut bad) = (Vec::new(), Vec::new());
        for (line, number) in lines {
            match form.entry(line) {
                Ok(entry) => rows.push((entry.at, start(line)..start(line) + line.len())),
                Err(problem) if strict => return Err(wrong(number, problem)),
                Err(problem) => bad.push((number, problem)),
            }
        }
        if !bad.is_empty() {
            notes.push(left_out(path, &bad, rows.len()));
        }
        let rows = window(rows, spec);
        let dropped = bad.len() as u64;
        if rows.is_empty() {
            let why = format!("{dropped} do not fit, and none that does lies between `start` and `end`");
            return Err(PromptError::NoRows { path: path.to_owned(), dropped, why });
        }
        Ok(Rows { path: path.to_owned(), text, form, rows, dropped })
    }

    /// Leaves out the rows that do not pass the filter on prompt lengths.
    pub fn keep(&mut self, pass: impl Fn(&Entry<'_>) -> bool, notes: &mut Vec<String>) -> Result<(), PromptError> {
        let (found, text, form) = (self.rows.len(), &self.text, self.form);
        self.rows.retain(|(_, span)| form.entry(&text[span.clone()]).is_ok_and(|entry| pass(&entry)));
        let dropped = (found - self.rows.len()) as u64;
        self.dropped += dropped;
        if self.rows.is_empty() {
            let why = format!("{dropped} of {found} are outside `prompt_tokens`");
            return Err(PromptError::NoRows { path: self.path.clone(), dropped, why });
        }
        if dropped > 0 {
            notes.push(format!("{dropped} of {found} dataset rows are outside `prompt_tokens` and were left out"));
        }
        Ok(())
    }

    /// Rows in the window.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rows that do not fit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the log has lengths, not requests.
    pub fn lengths(&self) -> bool {
        !matches!(self.form, Form::Workload)
    }

    /// What a row says.
    pub fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (_, span) = self.rows.get(index)?;
        self.form.entry(&self.text[span.clone()]).ok()
    }

    /// When each row arrived.
    pub fn arrivals(&self) -> Arc<[Nanos]> {
        self.rows.iter().map(|(at, _)| *at).collect()
    }

    /// Whether some row says how long its output was.
    pub fn outputs(&self) -> bool {
        let known = |entry: Entry<'_>| !matches!(entry.ask, Ask::Whole { output: None, .. });
        (0..self.len()).any(|index| self.entry(index).is_some_and(known))
    }
}

/// The rows in order of time, those outside the window left out; time zero is where the window begins.
fn window(mut rows: Vec<(i128, Range<usize>)>, spec: &TraceSpec) -> Vec<(Nanos, Range<usize>)> {
    rows.sort_by_key(|(at, _)| *at);
    let Some(origin) = rows.first().map(|(at, _)| *at) else { return Vec::new() };
    let start = spec.start.unwrap_or_default();
    let after = |at: i128| Nanos(u64::try_from(at - origin).unwrap_or(u64::MAX));
    let inside = |at: &Nanos| *at >= start && spec.end.is_none_or(|end| *at < end);
    rows.into_iter()
        .map(|(at, span)| (after(at), span))
        .filter(|(at, _)| inside(at))
        .map(|(at, span)| (at - start, span))
        .collect()
}

/// What is said of rows that do not fit, the first ones by file and line.
fn left_out(path: &Path, bad: &[(usize, String)], good: usize) -> String {
    let named: Vec<String> =
        bad.iter().take(NAMED).map(|(line, problem)| format!("{}:{line}: {problem}", path.display())).collect();
    let more = if bad.len() > NAMED { "; …" } else { "" };
    format!("{} of {} rows of the log do not fit and were left out: {}{more}", bad.len(), bad.len() + good, named.join("; "))
}
