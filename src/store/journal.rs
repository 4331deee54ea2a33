//! The journal: `journal.bin`, every outcome of a run as it arrives, a frame ([`super::frames`]) of postcard each. Postcard
//! writes fields in order, without names.
//!
//! The owner calls [`Writer::flush`] at least twice a second. What was flushed survives `kill -9`, since the kernel has
//! it; what came later may be missing, and a frame that was cut in two is left out by the [`Reader`].

use super::error::StoreError;
pub use super::frames::Damage;
use super::frames::{Frames, HEADER, Scan, header, some_of, version};
use llmscen_core::manifest::Part;
use llmscen_core::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "journal.bin";

const MAGIC: &[u8; 8] = b"LLMSCENJ";
const VERSION: u32 = 6;

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A round of a case begins.
    Started {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// Its time zero, in nanoseconds after the run's start.
        origin_ns: u64,
    },
    /// A request ended.
    Outcome {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// What happened.
        outcome: Outcome,
    },
    /// A round of a case is over.
    Ended {
        /// What is known of it.
        part: Part,
    },
}

/// Appends records.
#[derive(Debug)]
pub struct Writer {
    out: Frames,
    frame: Vec<u8>,
}

impl Writer {
    /// Begins a journal; a file that is there already is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let file = File::create(path).map_err(|source| StoreError::Write { path: path.to_owned(), source })?;
        let mut writer = Writer { out: Frames::to(path, file), frame: Vec::new() };
        writer.out.put(&header(MAGIC, VERSION))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a record. It is safe from a crash of this process once it has been flushed.
    ///
    /// # Errors
    /// The file cannot be written, or the record not be encoded.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.frame.clear();
        let encoded = |error: postcard::Error| StoreError::Encode { reason: error.to_string() };
        self.frame = postcard::to_extend(record, std::mem::take(&mut self.frame)).map_err(encoded)?;
        self.out.add(&self.frame)
    }

    /// Hands everything to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush()
    }

    /// Flushes, and waits until the disk has it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), StoreError> {
        self.out.finish()
    }
}

/// Reads every whole record of a journal. A journal that is still being written is read as it stood when it was opened.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    scan: Scan,
    ended: bool,
    /// Bytes of a header that was cut off.
    cut: u64,
}

impl Reader {
    /// Opens a journal.
    ///
    /// # Errors
    /// The file cannot be read, is no journal, or is one of another version. One that was cut off inside its header
    /// merely holds nothing.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let failed = |source| StoreError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let beginning = some_of(&mut file, HEADER).map_err(failed)?;
        let (ended, cut) = match version(MAGIC, &beginning) {
            Err(()) => return Err(StoreError::NotAJournal { path: path.to_owned() }),
            Ok(None) => (true, beginning.len() as u64),
            Ok(Some(VERSION)) => (false, 0),
            Ok(Some(found)) => return Err(StoreError::Version { path: path.to_owned(), found, known: VERSION }),
        };
        Ok(Reader { path: path.to_owned(), scan: Scan::new(file).map_err(failed)?, ended, cut })
    }

    /// Bytes at the end that hold no whole record, once the iterator has ended; 0 after a clean end.
    pub fn left_out(&self) -> u64 {
        self.cut + self.scan.left_out()
    }

    /// What was damaged before the last whole record.
    pub fn damage(&self) -> Damage {
        self.scan.damage()
    }
}

impl Iterator for Reader {
    type Item = Result<Record, StoreError>;

    /// Records that are damaged are passed over; an error is one of the disk, and the last item.
    fn next(&mut self) -> Option<Result<Record, StoreError>> {
        if self.ended {
            return None;
        }
        let next = self.scan.next(|payload| postcard::from_bytes(payload).ok());
        let next = next.map_err(|source| StoreError::Read { path: self.path.clone(), source }).transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next.map(|read| read.map(|(_, record)| record))
    }
}

#[cfg(test)]
mod tests;
