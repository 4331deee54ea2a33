//! Merges the rows and the facts of the shards of a distributed run.

use crate::memory::scratch;
use crate::run::sharding::{GroupRound, ShardDone, ShardingError};
use llmscen_analysis::{Builder, RowKey, StoredSize, Table, TableError, telemetry};
use llmscen_core::load::{Shape, Warmup};
use llmscen_core::manifest::{Part, ShardPart, Vitals};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::RoundExtent;
use llmscen_core::schedule::shard::{Shard, Split};
use llmscen_core::telemetry::TelemetryRecord;
use llmscen_telemetry::memory::usable_memory;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Names of files that a shard delivers.
const ROWS: &str = "rows";
const TELEMETRY: &str = "telemetry";

/// Memory of a report without rows, in bytes. It is never in the scratch file.
const FIXED_MEMORY: u64 = 110_000_000;
/// Memory of a report per token event and per row, in bytes, as measured by `cargo bench --bench report`.
const MEMORY_PER_EVENT: u64 = 46;
const MEMORY_PER_ROW: u64 = 500;

/// A file with rows of one shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardRows {
    /// Number of the shard, from 0.
    pub index: u32,
    /// The file.
    pub path: PathBuf,
}

/// Why rows of shards cannot be merged.
#[derive(Debug, Error)]
pub enum MergeError {
    /// A file cannot be opened.
    #[error("cannot read the rows of shard {shard}: {path}: {source}")]
    Open {
        /// Number of the shard.
        shard: u32,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file is not a request table.
    #[error("cannot read the rows of shard {shard}: {path}: {source}; copy the file again")]
    Rows {
        /// Number of the shard.
        shard: u32,
        /// The file.
        path: PathBuf,
        /// Why.
        source: TableError,
    },
    /// The rows of all shards cannot be joined.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Two rows have the same key.
    #[error(
        "request {seq}{} of round {round} of case `{case}` is in the rows of {}; each request \
         belongs to one shard: start every shard once, with its own number", turn_text(*turn), shards_text(*shards)
    )]
    Duplicate {
        /// Case id.
        case: String,
        /// Round, from 0.
        round: u32,
        /// Request number.
        seq: u64,
        /// Turn, from 0.
        turn: u32,
        /// The two shards.
        shards: (u32, u32),
    },
    /// A row of a case that the plan does not have.
    #[error("the rows of shard {shard} have a case `{case}`, which the plan does not have")]
    Case {
        /// Number of the shard.
        shard: u32,
        /// Case id.
        case: String,
    },
    /// A file has another number of rows than its shard delivered.
    #[error("{path} has {found} rows, but shard {shard} delivered {expected}; copy the file again")]
    Count {
        /// Number of the shard.
        shard: u32,
        /// The file.
        path: PathBuf,
        /// Number of rows in the file.
        found: u64,
        /// Number of rows that the shard delivered.
        expected: u64,
    },
    /// An object is not what its shard delivered.
    #[error(
        "{key} at {url} was altered or truncated: its {what} differs from that in {done}\n  help: \
         copy the object again, or pass the local folder of the shard: --rows DIR"
    )]
    Altered {
        /// The object.
        key: String,
        /// The store.
        url: String,
        /// `size` or `SHA-256`.
        what: &'static str,
        /// The object that describes it.
        done: String,
    },
    /// A shard stored rows, but did not finish.
    #[error(
        "shard {shard} did not finish to store round {number}: {rows} at {url} has no {done}\n  \
         help: wait until the shard has ended, or pass its local folder: --rows DIR"
    )]
    Unfinished {
        /// Number of the shard.
        shard: u32,
        /// Number of the round over all cases, from 0.
        number: u32,
        /// The object with the rows.
        rows: String,
        /// The missing object.
        done: String,
        /// The store.
        url: String,
    },
    /// The store has no run.
    #[error(
        "{url} has no run: {missing} does not exist; pass the URL of the store and the key of the run, such as \
         s3://bench/runs/nightly-17"
    )]
    NoRun {
        /// The store.
        url: String,
        /// The missing object.
        missing: &'static str,
    },
    /// The folder of `--rows` is not that of a shard of the run.
    #[error("{folder} (--rows) {why}; pass the local folder of a shard of this run")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}; choose a writable folder with --output")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The store cannot be used, or has the objects of different runs.
    #[error(transparent)]
    Sharding(#[from] ShardingError),
    /// The merged rows fit neither into memory nor on the disk.
    #[error(
        "{rows} requests with {token_events} token events need {} of memory, but this process may \
         use {}, and a scratch file in {folder} cannot have the rest: {why}\n  help: merge on a \
         machine with {}, or choose a folder on a large disk with --output: {command}",
        memory_text(*needed), memory_text(*usable), memory_text(*needed)
    )]
    Memory {
        /// Requests.
        rows: u64,
        /// Token events.
        token_events: u64,
        /// Memory that the merge needs, in bytes.
        needed: u64,
        /// Memory that this process may use, in bytes.
        usable: u64,
        /// Folder of the scratch file.
        folder: PathBuf,
        /// Why there can be no scratch file.
        why: io::Error,
        /// The command line of the merge.
        command: String,
    },
}

fn turn_text(turn: u32) -> String {
    if turn == 0 {
        String::new()
    } else {
        format!(" (turn {})", turn + 1)
    }
}

fn shards_text((first, second): (u32, u32)) -> String {
    if first == second {
        format!("shard {first} twice")
    } else {
        format!("both shard {first} and shard {second}")
    }
}

/// Bytes in GB with one decimal, or in whole MB below one GB.
fn memory_text(bytes: u64) -> String {
    if bytes < 1_000_000_000 {
        format!("{} MB", bytes / 1_000_000)
    } else {
        format!("{:.1} GB", bytes as f64 / 1e9)
    }
}

// Rounds.

/// One round of a case, with what its shards delivered.
#[derive(Debug, Default)]
pub struct ShardedRound {
    /// Case id.
    pub case: String,
    /// Round of the case, from 0.
    pub round: u32,
    /// What the shards delivered.
    pub group: GroupRound,
}

/// The rows and the facts of all shards.
#[derive(Debug, Default)]
pub struct MergedRounds {
    /// The rows, with the telemetry of shard 0.
    pub table: Table,
    /// One part per round, in the order of the rounds.
    pub parts: Vec<Part>,
}

/// Merges the rounds of a run, for which [`reserve_memory`] found memory. `shards`: how many the run had.
///
/// # Errors
/// A file cannot be read or does not have the delivered rows, or a request occurs twice.
pub fn merge_rounds(
    plan: &Plan,
    rounds: &[ShardedRound],
    shards: u32,
) -> Result<MergedRounds, MergeError> {
    let files = check_counts(rounds)?;
    let cases = plan.cases.iter().map(|case| case.id.as_str());
    let table = merge_tables(cases, files.keys())?;
    let part = |round: &ShardedRound| Part {
        case: round.case.clone(),
        round: round.round,
        ..round.group.part()
    };
    let mut parts: Vec<Part> = rounds.iter().map(part).collect();
    note_missing_numbers(plan, &table, shards, &mut parts);
    let recorded = read_telemetry(rounds)?;
    Ok(MergedRounds {
        table: table.mark_starts(plan)?.with_telemetry(recorded),
        parts,
    })
}

/// The files with rows, and how many rows the shards delivered in each. A local file of a shard has the rows of all
/// rounds.
fn row_files(rounds: &[ShardedRound]) -> BTreeMap<ShardRows, u64> {
    let mut files: BTreeMap<ShardRows, u64> = BTreeMap::new();
    for done in rounds.iter().flat_map(|round| &round.group.done) {
        if let Some(path) = done.file(ROWS) {
            let file = ShardRows {
                index: done.index,
                path: path.to_owned(),
            };
            *files.entry(file).or_default() += done.row_count;
        }
    }
    files
}

/// Checks that each file has the rows that its shard delivered.
fn check_counts(rounds: &[ShardedRound]) -> Result<BTreeMap<ShardRows, u64>, MergeError> {
    let files = row_files(rounds);
    for (file, expected) in &files {
        let found = stored_size(file)?.rows;
        if found != *expected {
            return Err(MergeError::Count {
                shard: file.index,
                path: file.path.clone(),
                found,
                expected: *expected,
            });
        }
    }
    Ok(files)
}

/// Notes on each shard how many of its planned requests are missing, which makes the round invalid.
fn note_missing_numbers(plan: &Plan, table: &Table, shards: u32, parts: &mut [Part]) {
    for missing in missing_numbers(plan, table, parts) {
        note_missing(plan, &missing, shards, parts);
    }
}

/// A shard that was late sent nothing, which has a reason of its own.
fn note_missing(plan: &Plan, missing: &MissingNumbers, shards: u32, parts: &mut [Part]) {
    let part = parts
        .iter_mut()
        .find(|part| (&part.case, part.round) == (&missing.case, missing.round));
    let case = plan.cases.iter().find(|case| case.id == missing.case);
    let (Some(part), Some(case)) = (part, case) else {
        return;
    };
    let whole = Shard {
        index: 0,
        count: shards.max(1),
    };
    let split = Split::new(whole, &case.load.shape);
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    for seq in missing
        .ranges
        .iter()
        .flat_map(|(from, until)| *from..*until)
    {
        *counts.entry(split.owner(seq)).or_default() += 1;
    }
    for shard in part.shards.iter_mut().filter(|shard| !shard.late) {
        if let Some(count) = counts.get(&shard.index) {
            let (requests, are) = if *count == 1 {
                ("request", "is")
            } else {
                ("requests", "are")
            };
            let note = format!("{count} of its planned {requests} {are} missing");
            shard.lost = Some(match shard.lost.take() {
                Some(why) => format!("{why}; {note}"),
                None => format!("shard {}: {note}", shard.index),
            });
        }
    }
}

/// The telemetry of shard 0, which samples the targets. That of the other shards is of their own machines.
fn read_telemetry(rounds: &[ShardedRound]) -> Result<Vec<TelemetryRecord>, MergeError> {
    let mut files: Vec<&Path> = rounds
        .iter()
        .flat_map(|round| &round.group.done)
        .filter(|done| done.index == 0)
        .filter_map(|done| done.file(TELEMETRY))
        .collect();
    files.dedup();
    let mut recorded = Vec::new();
    for path in files {
        let bytes = std::fs::read(path).map_err(|source| MergeError::Open {
            shard: 0,
            path: path.to_owned(),
            source,
        })?;
        recorded.extend(telemetry::read(bytes).map_err(|source| MergeError::Rows {
            shard: 0,
            path: path.to_owned(),
            source,
        })?);
    }
    Ok(recorded)
}

// Rows.

/// One table of the rows of these files, ordered by case, round, seq and turn. `cases`: ids of the plan, in order.
///
/// # Errors
/// A file cannot be read, two rows have the same key, or a row belongs to no case of the plan.
pub fn merge_tables<'a>(
    cases: impl IntoIterator<Item = &'a str>,
    files: impl IntoIterator<Item = &'a ShardRows>,
) -> Result<Table, MergeError> {
    let cases: Vec<&str> = cases.into_iter().collect();
    let mut builder = Builder::with_cases(cases.iter().copied());
    for file in files {
        let rows = open(file)?;
        builder
            .append_parquet(rows)
            .map_err(|source| unreadable(file, source))?;
    }
    let table = builder.finish()?;
    check_keys(&table, &cases)?;
    Ok(table)
}

fn open(file: &ShardRows) -> Result<BufReader<File>, MergeError> {
    let opened = File::open(&file.path).map_err(|source| MergeError::Open {
        shard: file.index,
        path: file.path.clone(),
        source,
    });
    opened.map(BufReader::new)
}

fn unreadable(file: &ShardRows, source: TableError) -> MergeError {
    MergeError::Rows {
        shard: file.index,
        path: file.path.clone(),
        source,
    }
}

/// Checks that each key occurs once, in a case of the plan.
fn check_keys(table: &Table, cases: &[&str]) -> Result<(), MergeError> {
    let mut before: Option<RowKey<'_>> = None;
    for key in table.row_keys() {
        let is_same = |before: &RowKey<'_>| {
            (before.case, before.round, before.seq, before.turn)
                == (key.case, key.round, key.seq, key.turn)
        };
        if let Some(before) = before.filter(is_same) {
            return Err(MergeError::Duplicate {
                case: key.case.to_owned(),
                round: key.round,
                seq: key.seq,
                turn: key.turn,
                shards: (before.shard.min(key.shard), before.shard.max(key.shard)),
            });
        }
        if before.is_none_or(|before| before.case != key.case) && !cases.contains(&key.case) {
            return Err(MergeError::Case {
                shard: key.shard,
                case: key.case.to_owned(),
            });
        }
        before = Some(key);
    }
    Ok(())
}

/// Request numbers of a round that the plan has and the rows do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingNumbers {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// The missing numbers as ranges, from and until, ascending.
    pub ranges: Vec<(u64, u64)>,
}

impl MissingNumbers {
    /// How many numbers are missing.
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(from, until)| until - from).sum()
    }
}

/// The missing numbers of the rounds whose numbers the plan determines: open loops, and closed loops that end after a
/// number of requests, unless they ended early.
pub fn missing_numbers(plan: &Plan, table: &Table, parts: &[Part]) -> Vec<MissingNumbers> {
    /// The next expected number of a round, and the missing ones before it.
    type Gaps = (u64, Vec<(u64, u64)>);
    let mut gaps: BTreeMap<(&str, u32), Gaps> = BTreeMap::new();
    // How many cool down depends on the server.
    for key in table.row_keys().filter(|key| !key.cools_down) {
        let (next, ranges) = gaps.entry((key.case, key.round)).or_default();
        if key.seq > *next {
            ranges.push((*next, key.seq));
        }
        *next = key.seq + 1;
    }
    let missing = |part: &Part| {
        let case = plan.cases.iter().find(|case| case.id == part.case)?;
        let (next, mut ranges) = gaps
            .get(&(part.case.as_str(), part.round))
            .cloned()
            .unwrap_or_default();
        let planned = planned_sessions(plan, case, part)?.unwrap_or(next);
        if planned > next {
            ranges.push((next, planned));
        }
        (!ranges.is_empty()).then(|| MissingNumbers {
            case: part.case.clone(),
            round: part.round,
            ranges,
        })
    };
    parts.iter().filter_map(missing).collect()
}

/// The number of sessions of a round if the plan determines which numbers it has: `Some(None)` if only that they have
/// no gap, as in the replay of a trace.
fn planned_sessions(plan: &Plan, case: &Case, part: &Part) -> Option<Option<u64>> {
    let ended_early = part.ending.is_some()
        || part.cut_short.is_some()
        || part.dataset_ended
        || part.probe.is_some()
        || case.load.turn_limit.is_some();
    if ended_early {
        return None;
    }
    let load = &case.load;
    match load.shape {
        Shape::Users { .. } => None,
        Shape::Closed { .. } | Shape::Static { .. } => {
            let by_count = load.duration.is_none() && matches!(load.warmup, Warmup::Requests(_));
            load.planned().filter(|_| by_count).map(Some)
        }
        Shape::Open { .. }
        | Shape::Rates { .. }
        | Shape::Classes { .. }
        | Shape::Burst
        | Shape::Replay { .. } => {
            let seed = plan
                .seed
                .child(case.id.as_str())
                .child(u64::from(part.round));
            Some(RoundExtent::new(case, seed, None).sessions)
        }
    }
}

// Facts.

/// One part of the parts that shards recorded of the same round, each with the number of its shard. Merging is
/// associative: a part may be the result of an earlier merge, whose number is ignored.
pub fn merge_parts(parts: &[(u32, &Part)]) -> Part {
    let mut parts: Vec<(Vec<ShardPart>, &Part)> = parts
        .iter()
        .map(|(index, part)| (shards_of(*index, part), *part))
        .collect();
    parts.sort_by_key(|(shards, _)| shards.first().map(|shard| shard.index));
    let all = || parts.iter().map(|(_, part)| *part);
    let Some(first) = all().next() else {
        return Part::default();
    };
    let mut shards: Vec<ShardPart> = parts
        .iter()
        .flat_map(|(shards, _)| shards)
        .cloned()
        .collect();
    shards.sort_by_key(|shard| shard.index);
    let vitals: Vec<&Vitals> = shards
        .iter()
        .filter_map(|shard| shard.vitals.as_ref())
        .collect();
    Part {
        measured_from_ns: all().map(|part| part.measured_from_ns).min().unwrap_or(0),
        sending_until_ns: all().filter_map(|part| part.sending_until_ns).max(),
        cut_short: join(all().filter_map(|part| part.cut_short.as_deref())),
        ending: all().find_map(|part| part.ending.clone()),
        // Each shard reads all rows of the dataset, but sends only its own.
        rows_dropped: all().map(|part| part.rows_dropped).max().unwrap_or(0),
        rows_repeated: all().map(|part| part.rows_repeated).sum(),
        dataset_ended: all().any(|part| part.dataset_ended),
        vitals: merge_vitals(&vitals),
        missing_telemetry: all().flat_map(|part| &part.missing_telemetry).fold(
            Vec::new(),
            |mut notes, note| {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
                notes
            },
        ),
        shards,
        ..first.clone()
    }
}

impl GroupRound {
    /// The record of the round over all shards, with those that were lost.
    pub fn part(&self) -> Part {
        let done: Vec<(u32, Part)> = self
            .done
            .iter()
            .map(|done| (done.index, done.part_of_shard()))
            .collect();
        let done: Vec<(u32, &Part)> = done.iter().map(|(index, part)| (*index, part)).collect();
        let mut part = merge_parts(&done);
        let lost = self.missing.iter().map(|missing| ShardPart {
            index: missing.index,
            host: missing.host.clone(),
            lost: Some(missing.reason.clone()),
            ..ShardPart::default()
        });
        part.shards.extend(lost);
        part.shards.sort_by_key(|shard| shard.index);
        let early_stop = || self.stops.iter().find_map(|stop| stop.early_stop.clone());
        part.ending = part.ending.or_else(early_stop);
        part
    }

    /// The files with rows.
    pub fn rows(&self) -> Vec<ShardRows> {
        let rows = |done: &ShardDone| {
            let path = done.file(ROWS)?;
            Some(ShardRows {
                index: done.index,
                path: path.to_owned(),
            })
        };
        self.done.iter().filter_map(rows).collect()
    }
}

impl ShardDone {
    /// The local copy of a file.
    pub fn file(&self, name: &str) -> Option<&Path> {
        self.files
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, path)| path.as_path())
    }

    /// The record of the round, with what is known of this shard.
    fn part_of_shard(&self) -> Part {
        Part {
            shards: vec![ShardPart {
                index: self.index,
                host: self.host.clone(),
                offset_ns: self.offset.offset_ns,
                bound_ns: self.offset.bound_ns,
                offset_source: self.offset.source.name().to_owned(),
                late: self.late,
                clock_step_ns: self.clock_step_ns,
                requests: self.row_count,
                vitals: self.part.vitals.clone(),
                lost: None,
            }],
            ..self.part.clone()
        }
    }
}

/// The shards of a part, ordered by number.
fn shards_of(index: u32, part: &Part) -> Vec<ShardPart> {
    if part.shards.is_empty() {
        return vec![ShardPart {
            index,
            vitals: part.vitals.clone(),
            ..ShardPart::default()
        }];
    }
    let mut shards = part.shards.clone();
    shards.sort_by_key(|shard| shard.index);
    shards
}

/// Different texts, in order.
fn join<'a>(texts: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut joined: Vec<&str> = Vec::new();
    for text in texts.flat_map(|text| text.split("; ")) {
        if !joined.contains(&text) {
            joined.push(text);
        }
    }
    (!joined.is_empty()).then(|| joined.join("; "))
}

fn merge_vitals(all: &[&Vitals]) -> Option<Vitals> {
    let worst = |value: fn(&Vitals) -> f64| all.iter().map(|own| value(own)).fold(0.0, f64::max);
    let sum = |value: fn(&Vitals) -> f64| all.iter().map(|own| value(own)).sum::<f64>();
    let stalls: Option<Vec<_>> = all.iter().map(|own| own.stalls.clone()).collect();
    (!all.is_empty()).then(|| Vitals {
        stall_ms_p99: worst(|own| own.stall_ms_p99),
        stall_ms_max: worst(|own| own.stall_ms_max),
        stall_ms_sure: all
            .iter()
            .filter_map(|own| own.stall_ms_sure)
            .reduce(f64::max),
        stalls: stalls.map(|stalls| stalls.concat()),
        cpu_shares: all
            .iter()
            .flat_map(|own| &own.cpu_shares)
            .copied()
            .collect(),
        memory_peak: all.iter().map(|own| own.memory_peak).max().unwrap_or(0),
        events_per_s: sum(|own| own.events_per_s),
        bytes_in_per_s: sum(|own| own.bytes_in_per_s),
        bytes_out_per_s: sum(|own| own.bytes_out_per_s),
    })
}

// Memory.

/// Memory that a report of so many rows and token events needs, in bytes.
fn memory_needed(rows: u64, token_events: u64) -> u64 {
    FIXED_MEMORY + MEMORY_PER_EVENT * token_events + MEMORY_PER_ROW * rows
}

fn stored_size(file: &ShardRows) -> Result<StoredSize, MergeError> {
    let rows = open(file)?;
    StoredSize::read(rows).map_err(|source| unreadable(file, source))
}

/// Ensures memory for the merge of these rounds, whose size is in the footers of their files. If the memory of this
/// process is too small, large blocks are in a scratch file in this folder from now on, which the returned text says.
/// `memory`: what the process may use at most; None for all that is available. `command`: the command line that
/// merges the rounds elsewhere.
///
/// # Errors
/// There is neither the memory nor the disk space, or a file cannot be read.
pub fn reserve_memory(
    rounds: &[ShardedRound],
    folder: &Path,
    memory: Option<u64>,
    command: &str,
) -> Result<Option<String>, MergeError> {
    let mut total = StoredSize::default();
    for file in row_files(rounds).keys() {
        let size = stored_size(file)?;
        total.rows += size.rows;
        total.token_events += size.token_events;
    }
    let usable = usable_memory().into_iter().chain(memory).min();
    reserve_within(total, usable, folder, command, scratch::open)
}

fn reserve_within(
    size: StoredSize,
    usable: Option<u64>,
    folder: &Path,
    command: &str,
    open_scratch: impl FnOnce(&Path, u64) -> io::Result<()>,
) -> Result<Option<String>, MergeError> {
    let StoredSize { rows, token_events } = size;
    let needed = memory_needed(rows, token_events);
    let Some(usable) = usable.filter(|usable| *usable < needed) else {
        return Ok(None);
    };
    let opened = if usable < FIXED_MEMORY {
        let least = memory_text(FIXED_MEMORY);
        Err(io::Error::other(format!(
            "at least {least} must be in memory"
        )))
    } else {
        // A block that grows is in the file twice, and the report is on the same disk.
        open_scratch(folder, needed + needed / 2)
    };
    match opened {
        Ok(()) => Ok(Some(format!(
            "the merge needs {} of memory; this process may use {}, so the rest is in a scratch file in {}",
            memory_text(needed),
            memory_text(usable),
            folder.display()
        ))),
        Err(why) => Err(MergeError::Memory {
            rows,
            token_events,
            needed,
            usable,
            folder: folder.to_owned(),
            why,
            command: command.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
