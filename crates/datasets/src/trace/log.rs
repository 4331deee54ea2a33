//! The requests of a log in the order of their times, single or in sessions.

use super::layout::{EXPECTED, Entry, LogFormat, LoggedRequest};
use super::meaning::{Meaning, Signs};
use super::sessions::{
    self, ChainedTurn, ChildTurn, LogTime, LoggedSession, SessionError, TimedRequest, Unit, Wait,
};
use super::{otel, weka};
use crate::error::PromptError;
use crate::file;
use llmscen_core::dataset::{Layout, TraceRows, TraceSpec, TurnDependencies};
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use serde_json::value::RawValue;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The log of `path: builtin`: a small sample of each layout.
fn builtin(layout: Layout, sessions: bool) -> Option<&'static str> {
    Some(match layout {
        Layout::Auto | Layout::Mooncake if sessions => {
            include_str!("../../data/trace/mooncake-sessions.jsonl")
        }
        Layout::Auto | Layout::Mooncake => include_str!("../../data/trace/mooncake.jsonl"),
        Layout::Azure => include_str!("../../data/trace/azure.csv"),
        Layout::Burstgpt => include_str!("../../data/trace/burstgpt.csv"),
        Layout::Servegen => include_str!("../../data/trace/servegen.csv"),
        Layout::Bailian => include_str!("../../data/trace/bailian.jsonl"),
        Layout::Weka => include_str!("../../data/trace/weka.jsonl"),
        Layout::Otel => include_str!("../../data/trace/otel.jsonl"),
        Layout::Workload => return None,
    })
}

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

/// Reads the arrival times of a log in any layout: those of its requests.
///
/// # Errors
/// The file cannot be read or has no arrival; with `strict`, a row is invalid.
pub fn read_log(path: &Path, spec: &TraceSpec, strict: bool) -> Result<Log, PromptError> {
    let mut notes = Vec::new();
    let reading = Reading {
        strict,
        sessions: false,
    };
    let rows = Rows::read(path, spec, reading, &mut notes)?;
    notes.extend(rows.problem().map(str::to_owned));
    let arrivals = rows.arrivals().unwrap_or_default();
    Ok(Log { arrivals, notes })
}

/// How a log is read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// An invalid row is an error.
    pub strict: bool,
    /// Requests of a session are its turns. Otherwise each request is a session.
    pub sessions: bool,
}

/// The requests of a log that are in its window, and its text.
pub struct Rows {
    path: PathBuf,
    text: String,
    format: LogFormat,
    rows: Vec<Row>,
    /// The wait of each row; empty where each request is a session.
    waits: Vec<Wait>,
    sessions: Vec<Session>,
    dropped: u64,
    /// The note on invalid rows.
    problem: Option<String>,
    /// What the log states about its blocks.
    blocks: LoggedBlocks,
}

/// A request of the log.
struct Row {
    start: usize,
    len: u32,
}

impl Row {
    fn span(&self) -> Range<usize> {
        self.start..self.start + self.len as usize
    }
}

/// A session of the log: its rows, and the arrival of the first one.
struct Session {
    at: Nanos,
    first: u32,
    turns: u32,
    /// What each turn awaits; None where each awaits the turn before it.
    awaited: Option<TurnDependencies>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LoggedBlocks {
    /// Tokens of a block.
    tokens: Option<u64>,
    /// Equal ids in two sessions are not equal text.
    are_local: bool,
}

impl Session {
    fn rows(&self) -> Range<usize> {
        let first = self.first as usize;
        first..first + self.turns as usize
    }
}

/// A turn of a logged session.
pub struct Turn<'a> {
    /// Number of its row in the log.
    pub row: usize,
    pub entry: Entry<'a>,
    pub wait: Wait,
}

/// The sessions that were read, and the rows that were left out.
struct Scan<'a> {
    path: &'a Path,
    text: &'a str,
    strict: bool,
    /// Offset and problem of the rows that were left out.
    invalid: Vec<(usize, String)>,
}

/// Where a row of a log of trees is.
struct Place<'a> {
    span: Range<usize>,
    trace: &'a str,
    id: &'a str,
    parent: Option<&'a str>,
    /// A request, and not only a node between requests.
    is_request: bool,
}

/// A row that names its session. A log may have a million of them.
struct SessionRow {
    span: Range<usize>,
    start: Option<LogTime>,
    /// The delay of a request that follows another one, or its end in a log of times.
    delay_or_end: Option<LogTime>,
}

/// Why reading ends.
enum ScanError {
    /// A row, by its offset.
    Row(usize, String),
    Session(SessionError),
}

impl From<SessionError> for ScanError {
    fn from(error: SessionError) -> ScanError {
        ScanError::Session(error)
    }
}

impl<'a> Scan<'a> {
    fn offset(&self, part: &str) -> usize {
        part.as_ptr() as usize - self.text.as_ptr() as usize
    }

    fn span(&self, part: &str) -> Range<usize> {
        let start = self.offset(part);
        start..start + part.len()
    }

    fn reject(&mut self, row: &str, problem: String) -> Result<(), ScanError> {
        let offset = self.offset(row);
        if self.strict {
            return Err(ScanError::Row(offset, problem));
        }
        self.invalid.push((offset, problem));
        Ok(())
    }

    /// The lines with content.
    fn lines(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    }

    fn rows(&self, format: LogFormat) -> impl Iterator<Item = &'a str> + use<'a> {
        self.lines().skip(usize::from(format.has_header()))
    }

    fn error(&self, error: ScanError) -> PromptError {
        let (offset, problem, expected) = match error {
            ScanError::Row(offset, problem) => (offset, problem, EXPECTED),
            ScanError::Session(error) => (error.offset, error.problem, sessions::EXPECTED),
        };
        row_error(self.path, self.text, offset, problem, expected)
    }

    /// Every request as a session of one turn: its time and place.
    fn requests(&mut self, format: LogFormat) -> Result<Vec<(LogTime, Range<usize>)>, ScanError> {
        let mut requests = Vec::new();
        for line in self.rows(format) {
            let parts = match format {
                LogFormat::Otel => otel::spans(line),
                _ => Ok(vec![line]),
            };
            let parts = match parts {
                Ok(parts) => parts,
                Err(problem) => {
                    self.reject(line, problem)?;
                    continue;
                }
            };
            for part in parts {
                let entry = match format {
                    LogFormat::Otel => otel::parse_request(part),
                    _ => format.parse_entry(part).map(Some),
                };
                let at = entry.and_then(|entry| match entry {
                    None => Ok(None),
                    Some(Entry { at: Some(at), .. }) => Ok(Some(at)),
                    Some(_) => Err("the row has no `timestamp`".to_owned()),
                });
                match at {
                    Ok(at) => requests.extend(at.map(|at| (at, self.span(part)))),
                    Err(problem) => self.reject(part, problem)?,
                }
            }
        }
        Ok(requests)
    }

    /// The sessions of the log, and what it states about its blocks.
    fn sessions(
        &mut self,
        format: LogFormat,
    ) -> Result<(Vec<LoggedSession>, LoggedBlocks), ScanError> {
        let sessions = match format {
            LogFormat::Weka => return self.weka(),
            LogFormat::Otel => self.spans()?,
            LogFormat::Bailian => self.children(format)?,
            _ => self.named_sessions(format)?,
        };
        Ok((sessions, LoggedBlocks::default()))
    }

    fn entries(
        &mut self,
        format: LogFormat,
        visit: &mut dyn FnMut(Entry<'a>, Range<usize>),
    ) -> Result<(), ScanError> {
        for line in self.rows(format) {
            match format.parse_entry(line) {
                Ok(entry) => visit(entry, self.span(line)),
                Err(problem) => self.reject(line, problem)?,
            }
        }
        Ok(())
    }

    fn children(&mut self, format: LogFormat) -> Result<Vec<LoggedSession>, ScanError> {
        let mut rows = Vec::new();
        self.entries(format, &mut |entry, span| {
            rows.extend(entry.at.zip(entry.place.id).map(|(start, id)| ChildTurn {
                span,
                start,
                id,
                parent: entry.place.parent,
            }));
        })?;
        self.reject_orphans(&mut rows, |row| Place {
            span: row.span.clone(),
            trace: "",
            id: &row.id,
            parent: row.parent.as_deref(),
            is_request: true,
        })?;
        Ok(sessions::link_parents(rows)?)
    }

    /// Leaves out the rows below an invalid one. More missing parents than invalid rows are an error of the log.
    fn reject_orphans<T>(
        &mut self,
        rows: &mut Vec<T>,
        place: impl Fn(&T) -> Place<'_>,
    ) -> Result<(), ScanError> {
        if self.invalid.is_empty() {
            return Ok(());
        }
        let text = self.text;
        let places: Vec<Place<'_>> = rows.iter().map(place).collect();
        let indexes: HashMap<(&str, &str), usize> = places
            .iter()
            .enumerate()
            .map(|(index, place)| ((place.trace, place.id), index))
            .collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
        let mut missing: HashSet<(&str, &str)> = HashSet::new();
        let mut below: Vec<usize> = Vec::new();
        for (index, place) in places.iter().enumerate() {
            let Some(parent) = place.parent.map(|parent| (place.trace, parent)) else {
                continue;
            };
            match indexes.get(&parent) {
                Some(parent) => children[*parent].push(index),
                None => {
                    missing.insert(parent);
                    below.push(index);
                }
            }
        }
        if missing.len() > self.invalid.len() {
            return Ok(());
        }
        let mut is_orphan = vec![false; places.len()];
        while let Some(index) = below.pop() {
            is_orphan[index] = true;
            below.extend(children[index].iter().filter(|child| !is_orphan[**child]));
        }
        let orphans = places.iter().zip(&is_orphan);
        for (place, _) in orphans.filter(|(place, is_orphan)| **is_orphan && place.is_request) {
            let parent = place.parent.unwrap_or_default();
            let problem = format!(
                "the parent {parent} of {} is not among the valid rows",
                place.id
            );
            self.reject(&text[place.span.clone()], problem)?;
        }
        let mut is_orphan = is_orphan.into_iter();
        rows.retain(|_| !is_orphan.next().unwrap_or_default());
        Ok(())
    }

    /// Sessions whose rows have the name of the session.
    fn named_sessions(&mut self, format: LogFormat) -> Result<Vec<LoggedSession>, ScanError> {
        let mut names: HashMap<String, usize> = HashMap::new();
        let is_chain = matches!(format, LogFormat::Mooncake);
        let mut groups: Vec<Vec<SessionRow>> = Vec::new();
        self.entries(format, &mut |entry, span| {
            let place = entry.place;
            let next = groups.len();
            let group = match place.session {
                None => next,
                Some(name) => *names.entry(name).or_insert(next),
            };
            if group == next {
                groups.push(Vec::new());
            }
            groups[group].push(SessionRow {
                span,
                start: entry.at,
                delay_or_end: if is_chain { place.delay } else { place.end },
            });
        })?;
        let link = |group: Vec<SessionRow>| {
            let rows = group.into_iter();
            if is_chain {
                return sessions::link_chain(rows.map(|row| ChainedTurn {
                    span: row.span,
                    start: row.start,
                    delay: row.delay_or_end,
                }));
            }
            let timed = rows.filter_map(|row| {
                Some(Unit::Request(TimedRequest {
                    span: row.span,
                    start: row.start?,
                    end: row.delay_or_end,
                }))
            });
            Ok(sessions::link_times(timed.collect()))
        };
        let sessions = groups.into_iter().map(link);
        Ok(sessions
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?)
    }

    fn spans(&mut self) -> Result<Vec<LoggedSession>, ScanError> {
        let mut spans = Vec::new();
        for line in self.rows(LogFormat::Otel) {
            let parts = match otel::spans(line) {
                Ok(parts) => parts,
                Err(problem) => {
                    self.reject(line, problem)?;
                    continue;
                }
            };
            for part in parts {
                match otel::parse_span(part, self.span(part)) {
                    Ok((span, problem)) => {
                        spans.push(span);
                        if let Some(problem) = problem {
                            self.reject(part, problem)?;
                        }
                    }
                    Err(problem) => self.reject(part, problem)?,
                }
            }
        }
        self.reject_orphans(&mut spans, |span| Place {
            span: span.span.clone(),
            trace: &span.trace,
            id: &span.id,
            parent: span.parent.as_deref(),
            is_request: span.request.is_some(),
        })?;
        Ok(sessions::link_spans(spans)?)
    }

    fn weka(&mut self) -> Result<(Vec<LoggedSession>, LoggedBlocks), ScanError> {
        let text = self.text;
        let mut sessions = Vec::new();
        let mut blocks: Option<LoggedBlocks> = None;
        let mut objects = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
        while let Some(object) = {
            let offset = objects.byte_offset();
            objects
                .next()
                .map(|object| object.map_err(|error| (offset, error)))
        } {
            let object = object
                .map_err(|(offset, error)| ScanError::Row(offset, error.to_string()))?
                .get();
            let session: weka::Session<'_> = match serde_json::from_str(object) {
                Ok(session) => session,
                Err(error) => {
                    self.reject(object, error.to_string())?;
                    continue;
                }
            };
            let stated = LoggedBlocks {
                tokens: session.block_size,
                are_local: session.hash_id_scope.as_deref() != Some("global"),
            };
            if *blocks.get_or_insert(stated) != stated {
                let problem =
                    "`block_size` and `hash_id_scope` differ from those of the first session";
                return Err(ScanError::Row(self.offset(object), problem.into()));
            }
            let span = |part: &str| {
                let start = part.as_ptr() as usize - text.as_ptr() as usize;
                start..start + part.len()
            };
            let units = weka::units(
                &session.requests,
                weka::Level::default(),
                &span,
                &mut |row, problem| self.reject(row, problem),
            )?;
            sessions.extend(sessions::link_times(units));
        }
        Ok((sessions, blocks.unwrap_or_default()))
    }
}

fn row_error(
    path: &Path,
    text: &str,
    offset: usize,
    problem: String,
    expected: &'static str,
) -> PromptError {
    PromptError::Row {
        path: path.to_owned(),
        line: line_at(text, offset),
        problem,
        expected,
    }
}

/// The number of the line at an offset.
fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

impl Rows {
    /// Reads a log without its invalid rows.
    pub fn read(
        path: &Path,
        spec: &TraceSpec,
        reading: Reading,
        notes: &mut Vec<String>,
    ) -> Result<Rows, PromptError> {
        let text = if path == Path::new("builtin") {
            let text = builtin(spec.layout, reading.sessions);
            text.ok_or(PromptError::NoBuiltin { kind: "workload" })?
                .to_owned()
        } else {
            file::read_text(path)?
        };
        let mut scan = Scan {
            path,
            text: &text,
            strict: reading.strict,
            invalid: Vec::new(),
        };
        let first = scan.lines().next().ok_or_else(|| PromptError::Empty {
            path: path.to_owned(),
        })?;
        let start = scan.offset(first);
        let format = LogFormat::new(spec.layout, &text[start..])
            .map_err(|problem| scan.error(ScanError::Row(start, problem)))?;
        if matches!(format, LogFormat::Weka) && !reading.sessions {
            return Err(PromptError::Sessions {
                path: path.to_owned(),
                why: "its times count from the start of each session, so its requests cannot be sent by themselves; \
                      add `turns: {}` to a `trace` dataset",
            });
        }
        let mut rows = Rows {
            path: path.to_owned(),
            text: String::new(),
            format,
            rows: Vec::new(),
            waits: Vec::new(),
            sessions: Vec::new(),
            dropped: 0,
            problem: None,
            blocks: LoggedBlocks::default(),
        };
        let read = match reading.sessions {
            false => scan
                .requests(format)
                .map(|requests| rows.add_requests(requests, spec)),
            true => scan.sessions(format).map(|(sessions, blocks)| {
                rows.blocks = blocks;
                rows.add_sessions(sessions, spec);
            }),
        };
        read.map_err(|error| scan.error(error))?;
        let invalid = scan.invalid;
        if !invalid.is_empty() {
            rows.problem = Some(invalid_note(path, &text, &invalid, rows.rows.len()));
        }
        rows.text = text;
        rows.dropped = invalid.len() as u64;
        if rows.sessions.is_empty() {
            let why = match rows.dropped {
                0 => "none is between `start` and `end`".to_owned(),
                dropped => {
                    format!("{dropped} are invalid, and no other is between `start` and `end`")
                }
            };
            return Err(PromptError::NoRows {
                path: path.to_owned(),
                dropped: rows.dropped,
                why,
            });
        }
        if reading.sessions && rows.sessions.iter().all(|session| session.turns == 1) {
            return Err(PromptError::Sessions {
                path: path.to_owned(),
                why: "none of its sessions has a second request; remove `dataset.turns`",
            });
        }
        if rows
            .waits
            .iter()
            .any(|wait| matches!(wait, Wait::SinceStart(_)))
        {
            notes.push(
                "the log has no delay before some turns, and no end of the requests that they \
                 await: their wait is the time between the logged arrivals, service time \
                 included; `dataset.turns.think_time` replaces it"
                    .into(),
            );
        }
        Ok(rows)
    }

    fn add_requests(&mut self, mut requests: Vec<(LogTime, Range<usize>)>, spec: &TraceSpec) {
        requests.sort_by_key(|(at, _)| *at);
        let window = Window::new(requests.first().map(|(at, _)| *at), spec);
        for (at, span) in requests {
            if let Some(at) = window.find(at) {
                self.push_session(at, 1, None);
                self.push_row(span);
            }
        }
    }

    fn add_sessions(&mut self, mut sessions: Vec<LoggedSession>, spec: &TraceSpec) {
        sessions.sort_by_key(|session| session.at);
        let window = Window::new(sessions.first().map(|session| session.at), spec);
        for session in sessions {
            let Some(at) = window.find(session.at) else {
                continue;
            };
            self.push_session(at, session.turns.len() as u32, session.awaited);
            for turn in session.turns {
                self.waits.push(turn.wait);
                self.push_row(turn.span);
            }
        }
    }

    fn push_session(&mut self, at: Nanos, turns: u32, awaited: Option<TurnDependencies>) {
        self.sessions.push(Session {
            at,
            first: self.rows.len() as u32,
            turns,
            awaited,
        });
    }

    fn push_row(&mut self, span: Range<usize>) {
        self.rows.push(Row {
            start: span.start,
            len: span.len() as u32,
        });
    }

    /// Leaves out the sessions whose first request does not pass the filter of prompt lengths.
    pub fn filter(
        &mut self,
        pass: impl Fn(&Entry<'_>) -> bool,
        notes: &mut Vec<String>,
    ) -> Result<(), PromptError> {
        let found = self.sessions.len();
        let mut sessions = std::mem::take(&mut self.sessions);
        sessions.retain(|session| {
            self.entry(session.first as usize)
                .is_some_and(|entry| pass(&entry))
        });
        let dropped = (found - sessions.len()) as u64;
        self.sessions = sessions;
        self.dropped += dropped;
        if self.sessions.is_empty() {
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

    /// Tokens of a block that has an id. Checks that each prompt has as many ids as it has such blocks. The id of the
    /// last block may be absent if the block is not full.
    ///
    /// # Errors
    /// `stated` differs from what the log states, or a row does not fit: the first one, with a length of blocks that
    /// fits all rows.
    pub fn block_tokens(&self, stated: Option<u64>) -> Result<u64, PromptError> {
        let row = |offset, problem| row_error(&self.path, &self.text, offset, problem, EXPECTED);
        let usual = self.blocks.tokens.unwrap_or(self.format.block_tokens());
        let block_tokens = stated.unwrap_or(usual);
        let first = self.rows.first().map_or(0, |row| row.start);
        if block_tokens == 0 {
            return Err(row(first, "`block_size` is 0".into()));
        }
        if self
            .blocks
            .tokens
            .is_some_and(|tokens| tokens != block_tokens)
        {
            return Err(row(
                first,
                format!(
                    "the log states `block_size: {usual}`, and `dataset.trace.block_tokens` is \
                    {block_tokens}; remove the latter"
                ),
            ));
        }
        self.check_blocks(block_tokens)?;
        Ok(block_tokens)
    }

    /// What the rows of sessions are: whole prompts, or what is new. `stated`: by the scenario.
    ///
    /// # Errors
    /// The rows contradict each other, or the scenario.
    pub fn meaning(
        &self,
        stated: Option<TraceRows>,
        block_tokens: u64,
    ) -> Result<Meaning, PromptError> {
        let mut signs = Signs::default();
        for (index, row) in self.rows.iter().enumerate() {
            if let Some(entry) = self.entry(index) {
                signs.add(&entry, row.start, block_tokens);
            }
        }
        let line = |offset| line_at(&self.text, offset);
        let error = |(offset, problem)| {
            row_error(&self.path, &self.text, offset, problem, sessions::EXPECTED)
        };
        let meaning = signs.judge(stated, &line).map_err(error)?;
        // What is new is sent after one reply.
        let overlap = |session: &Session| {
            let awaited = session.awaited.as_ref()?.iter();
            let turn = sessions::first_branch(awaited.map(|awaited| &awaited[..]))?;
            self.rows.get((session.first + turn) as usize)
        };
        match self.sessions.iter().find_map(overlap) {
            Some(row) if meaning.rows == TraceRows::Delta => {
                let problem = "`dataset.trace.rows: delta` needs sessions whose requests follow \
                one another, and this one overlaps another";
                Err(error((row.start, problem.into())))
            }
            _ => Ok(meaning),
        }
    }

    fn check_blocks(&self, block_tokens: u64) -> Result<(), PromptError> {
        let counts = || {
            (0..self.rows.len()).filter_map(|index| match self.entry(index)?.request {
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
            |tokens| match self.blocks.tokens {
                Some(_) => format!("`block_size: {tokens}` fits all rows"),
                None => format!("set `dataset.trace.block_tokens: {tokens}`, which fits all rows"),
            },
        );
        let start = self.rows.get(index).map_or(0, |row| row.start);
        let problem = format!(
            "{ids} hash ids for a prompt of {input} tokens cannot be of blocks of {block_tokens} tokens; {help}"
        );
        Err(row_error(&self.path, &self.text, start, problem, EXPECTED))
    }

    /// Number of sessions in the window.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether equal block ids of two sessions are not equal text.
    pub fn has_local_ids(&self) -> bool {
        self.blocks.are_local
    }

    /// The note on invalid rows.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Number of invalid or filtered rows.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether the log contains lengths, not request bodies.
    pub fn are_lengths(&self) -> bool {
        !matches!(self.format, LogFormat::Workload)
    }

    fn entry(&self, row: usize) -> Option<Entry<'_>> {
        let span = self.rows.get(row)?.span();
        self.format.parse_entry(&self.text[span]).ok()
    }

    /// The first `turns` requests of each session.
    pub fn entries(&self, turns: usize) -> impl Iterator<Item = Entry<'_>> {
        let rows = self.sessions().flat_map(move |rows| rows.take(turns));
        rows.filter_map(|row| self.entry(row))
    }

    /// Whether rows name their session, so that they may be deltas.
    pub fn may_be_deltas(&self) -> bool {
        self.format.names_sessions()
    }

    /// Whether logs of this layout have rows of both kinds.
    pub fn detects_deltas(&self) -> bool {
        matches!(self.format, LogFormat::Mooncake)
    }

    /// The rows of each session.
    fn sessions(&self) -> impl Iterator<Item = Range<usize>> {
        self.sessions.iter().map(Session::rows)
    }

    /// Number of turns of a session; 0: there is no such session.
    pub fn turns(&self, index: usize) -> u32 {
        self.sessions.get(index).map_or(0, |session| session.turns)
    }

    /// The turns that each turn of a session awaits; None where each awaits the one before it.
    pub fn dependencies(&self, index: usize) -> Option<TurnDependencies> {
        self.sessions.get(index)?.awaited.clone()
    }

    /// A turn of a session.
    pub fn turn_of_session(&self, index: usize, turn: u32) -> Option<Turn<'_>> {
        let row = self.sessions.get(index)?.rows().nth(turn as usize)?;
        Some(Turn {
            row,
            entry: self.entry(row)?,
            wait: self
                .waits
                .get(row)
                .copied()
                .unwrap_or(Wait::Logged(Nanos::ZERO)),
        })
    }

    /// Tokens of the leading blocks of each row that rows before it have, session by session; None in a log without
    /// block ids. Where equal ids of two sessions are not equal text, only rows of the same session count. `turns`:
    /// the turns of a session that are sent.
    pub fn repeated_tokens(&self, block_tokens: u64, turns: usize) -> Option<Vec<u64>> {
        let mut repeated = vec![0; self.rows.len()];
        let mut has_blocks = false;
        // The tokens of each block, by the ids up to it. The last block of a prompt may be a part.
        let mut seen: HashMap<Seed, u64> = HashMap::new();
        for session in self.sessions() {
            if self.has_local_ids() {
                seen.clear();
            }
            for row in session.take(turns) {
                let Some(LoggedRequest::Lengths { input, blocks, .. }) =
                    self.entry(row).map(|entry| entry.request)
                else {
                    continue;
                };
                has_blocks |= !blocks.is_empty();
                let (mut chain, mut rest, mut is_repeated) = (Seed(0), input, true);
                for id in blocks {
                    chain = chain.child(id);
                    let own = rest.min(block_tokens);
                    rest -= own;
                    let known = seen.entry(chain).or_default();
                    if is_repeated {
                        repeated[row] += own.min(*known);
                    }
                    is_repeated &= *known == block_tokens;
                    *known = own.max(*known);
                }
            }
        }
        has_blocks.then_some(repeated)
    }

    /// Arrivals of the sessions; None where the log has none.
    pub fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        let arrivals = || self.sessions.iter().map(|session| session.at).collect();
        (!matches!(self.format, LogFormat::Weka)).then(arrivals)
    }

    /// Whether any row has an output length.
    pub fn has_output_lengths(&self) -> bool {
        let known =
            |entry: Entry<'_>| !matches!(entry.request, LoggedRequest::Body { output: None, .. });
        self.entries(usize::MAX).any(known)
    }
}

/// The part of a log between `start` and `end`, relative to its first request.
struct Window {
    origin: LogTime,
    start: Nanos,
    end: Option<Nanos>,
}

impl Window {
    fn new(first: Option<LogTime>, spec: &TraceSpec) -> Window {
        Window {
            origin: first.unwrap_or(0),
            start: spec.start.unwrap_or_default(),
            end: spec.end,
        }
    }

    /// A time since the start of the window; None: it is outside.
    fn find(&self, at: LogTime) -> Option<Nanos> {
        let at = Nanos(u64::try_from(at.saturating_sub(self.origin)).unwrap_or(u64::MAX));
        (at >= self.start && self.end.is_none_or(|end| at <= end)).then(|| at - self.start)
    }
}

/// The note on invalid rows, which describes the first ones.
fn invalid_note(path: &Path, text: &str, invalid: &[(usize, String)], valid: usize) -> String {
    let described: Vec<String> = invalid
        .iter()
        .take(DESCRIBED)
        .map(|(offset, problem)| {
            format!("{}:{}: {problem}", path.display(), line_at(text, *offset))
        })
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
