//! The rows of a log in the order of their times.

use super::layout::{EXPECTED, Entry, LogFormat, LoggedRequest};
use crate::error::PromptError;
use crate::file;
use llmscen_core::dataset::TraceSpec;
use llmscen_core::units::Nanos;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log of `path: builtin`.
const BUILTIN: &str = include_str!("../../data/trace.jsonl");

/// Number of invalid rows that are described; all are counted.
const DESCRIBED: usize = 5;

/// Blocks of up to 2¹² tokens are suggested.
const MAX_BLOCK_POWER: u32 = 12;

/// A log of arrivals.
#[derive(Clone, Debug)]
pub struct Log {
    /// Times since the beginning of the window, in order.
    pub arrivals: Arc<[Nanos]>,
    /// Notes for the report.
    pub notes: Vec<String>,
}

/// Reads the arrival times of a log in any layout.
///
/// # Errors
/// The file cannot be read or has no arrival; with `strict`, a row is invalid.
pub fn read_log(path: &Path, spec: &TraceSpec, strict: bool) -> Result<Log, PromptError> {
    let mut notes = Vec::new();
    let arrivals = Rows::read(path, spec, strict, &mut notes)?.arrivals();
    Ok(Log { arrivals, notes })
}

/// The rows of a log that are in its window, and its text.
pub struct Rows {
    path: PathBuf,
    text: String,
    format: LogFormat,
    rows: Vec<(Nanos, Range<usize>)>,
    dropped: u64,
}

impl Rows {
    /// Reads a log without its invalid rows.
    pub fn read(
        path: &Path,
        spec: &TraceSpec,
        strict: bool,
        notes: &mut Vec<String>,
    ) -> Result<Rows, PromptError> {
        let text = if path == Path::new("builtin") {
            BUILTIN.to_owned()
        } else {
            file::read_text(path)?
        };
        let error = |line, problem| PromptError::Row {
            path: path.to_owned(),
            line,
            problem,
            expected: EXPECTED,
        };
        let offset = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
        let mut lines = text
            .lines()
            .zip(1..)
            .map(|(line, number)| (line.trim(), number))
            .filter(|(line, _)| !line.is_empty());
        let mut ahead = lines.clone();
        let (first, number) = ahead.next().ok_or_else(|| PromptError::Empty {
            path: path.to_owned(),
        })?;
        let format =
            LogFormat::new(spec.layout, first).map_err(|problem| error(number, problem))?;
        if format.has_header() {
            lines = ahead;
        }
        let mut rows = Vec::new();
        let mut invalid = Vec::new();
        for (line, number) in lines {
            match format.parse_entry(line) {
                Ok(entry) => rows.push((entry.at, offset(line)..offset(line) + line.len())),
                Err(problem) if strict => return Err(error(number, problem)),
                Err(problem) => invalid.push((number, problem)),
            }
        }
        if !invalid.is_empty() {
            notes.push(invalid_note(path, &invalid, rows.len()));
        }
        let rows = select_window(rows, spec);
        let dropped = invalid.len() as u64;
        if rows.is_empty() {
            let why = format!("{dropped} are invalid, and no other is between `start` and `end`");
            return Err(PromptError::NoRows {
                path: path.to_owned(),
                dropped,
                why,
            });
        }
        Ok(Rows {
            path: path.to_owned(),
            text,
            format,
            rows,
            dropped,
        })
    }

    /// Leaves out the rows that do not pass the filter of prompt lengths.
    pub fn filter(
        &mut self,
        pass: impl Fn(&Entry<'_>) -> bool,
        notes: &mut Vec<String>,
    ) -> Result<(), PromptError> {
        let found = self.rows.len();
        let text = &self.text;
        let format = self.format;
        self.rows.retain(|(_, span)| {
            format
                .parse_entry(&text[span.clone()])
                .is_ok_and(|entry| pass(&entry))
        });
        let dropped = (found - self.rows.len()) as u64;
        self.dropped += dropped;
        if self.rows.is_empty() {
            let why = format!("{dropped} of {found} are outside `prompt_tokens`");
            return Err(PromptError::NoRows {
                path: self.path.clone(),
                dropped,
                why,
            });
        }
        if dropped > 0 {
            notes.push(format!(
                "{dropped} of {found} dataset rows are outside `prompt_tokens` and were left out"
            ));
        }
        Ok(())
    }

    /// Checks that each prompt has as many hash ids as it has blocks of this length. The id of the last block may be absent if the
    /// block is not full.
    ///
    /// # Errors
    /// The first row that does not fit, with a length of blocks that fits all rows.
    pub fn check_blocks(&self, block_tokens: u64) -> Result<(), PromptError> {
        let counts = || {
            (0..self.len()).filter_map(|index| match self.entry(index)?.request {
                LoggedRequest::Lengths { input, blocks, .. } if !blocks.is_empty() => {
                    Some((index, input, blocks.len() as u64))
                }
                _ => None,
            })
        };
        let fits = |tokens: u64, input: u64, ids: u64| {
            (input / tokens..=input.div_ceil(tokens)).contains(&ids)
        };
        let Some((index, input, ids)) =
            counts().find(|(_, input, ids)| !fits(block_tokens, *input, *ids))
        else {
            return Ok(());
        };
        let fits_all = |tokens: &u64| counts().all(|(_, input, ids)| fits(*tokens, input, ids));
        let help = (0..=MAX_BLOCK_POWER).map(|power| 1 << power).find(fits_all);
        let help = help.map_or_else(
            || "no length of blocks fits all rows".to_owned(),
            |tokens| format!("set `dataset.trace.block_tokens: {tokens}`, which fits all rows"),
        );
        let start = self.rows.get(index).map_or(0, |(_, span)| span.start);
        Err(PromptError::Row {
            path: self.path.clone(),
            line: self.text[..start].lines().count() + 1,
            problem: format!(
                "{ids} hash ids for a prompt of {input} tokens cannot be of blocks of {block_tokens} tokens; {help}"
            ),
            expected: EXPECTED,
        })
    }

    /// Number of rows in the window.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Number of invalid or filtered rows.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the log contains lengths, not request bodies.
    pub fn are_lengths(&self) -> bool {
        !matches!(self.format, LogFormat::Workload)
    }

    pub fn entry(&self, index: usize) -> Option<Entry<'_>> {
        let (_, span) = self.rows.get(index)?;
        self.format.parse_entry(&self.text[span.clone()]).ok()
    }

    pub fn arrivals(&self) -> Arc<[Nanos]> {
        self.rows.iter().map(|(at, _)| *at).collect()
    }

    /// Whether any row has an output length.
    pub fn has_output_lengths(&self) -> bool {
        let known =
            |entry: Entry<'_>| !matches!(entry.request, LoggedRequest::Body { output: None, .. });
        (0..self.len()).any(|index| self.entry(index).is_some_and(known))
    }
}

/// The rows inside the window in the order of their times since its beginning.
fn select_window(
    mut rows: Vec<(i128, Range<usize>)>,
    spec: &TraceSpec,
) -> Vec<(Nanos, Range<usize>)> {
    rows.sort_by_key(|(at, _)| *at);
    let Some(origin) = rows.first().map(|(at, _)| *at) else {
        return Vec::new();
    };
    let start = spec.start.unwrap_or_default();
    let after = |at: i128| Nanos(u64::try_from(at - origin).unwrap_or(u64::MAX));
    let inside = |at: &Nanos| *at >= start && spec.end.is_none_or(|end| *at < end);
    rows.into_iter()
        .map(|(at, span)| (after(at), span))
        .filter(|(at, _)| inside(at))
        .map(|(at, span)| (at - start, span))
        .collect()
}

/// The note on invalid rows, which describes the first ones.
fn invalid_note(path: &Path, invalid: &[(usize, String)], valid: usize) -> String {
    let described: Vec<String> = invalid
        .iter()
        .take(DESCRIBED)
        .map(|(line, problem)| format!("{}:{line}: {problem}", path.display()))
        .collect();
    let more = if invalid.len() > DESCRIBED {
        "; …"
    } else {
        ""
    };
    format!(
        "{} of {} rows of the log are invalid and were left out: {}{more}",
        invalid.len(),
        invalid.len() + valid,
        described.join("; ")
    )
}
