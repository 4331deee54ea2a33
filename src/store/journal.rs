//! The journal: `journal.bin`, every outcome of a run in the order of arrival. Each is a frame ([`super::frames`]) in
//! postcard format, which writes fields in order, without names.
//!
//! The collector calls [`Writer::flush`] at least twice a second. Flushed records survive `kill -9`; later ones may
//! be missing, and the
//! [`Reader`] ignores an incomplete last frame.

use super::error::StoreError;
pub use super::frames::Damage;
use super::frames::{Frames, HEADER, Scan, header, read_up_to, read_version};
use llmscen_core::manifest::Part;
use llmscen_core::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "journal.bin";

const MAGIC: &[u8; 8] = b"LLMSCENJ";
const VERSION: u32 = 10;
/// Still read, with the number of fields that its outcomes lack at their end: `prompt_hash`, in version 8 the five of
/// `reply` too, in version 7 `held_until` and the fields after it, in version 6 `endpoint` too.
const EARLIER_VERSIONS: [(u32, usize); 4] = [(9, 1), (8, 6), (7, 13), (6, 14)];

/// One entry of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A round of a case starts.
    Started {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// Time zero of the round, in nanoseconds after the start of the run.
        origin_ns: u64,
    },
    /// A request ended.
    Outcome {
        /// Index of the case in the plan.
        case: u32,
        /// Round, from 0.
        round: u32,
        /// Its outcome.
        outcome: Outcome,
    },
    /// A round of a case ended.
    Ended {
        /// Facts of the round.
        part: Part,
    },
}

/// Writes a journal.
#[derive(Debug)]
pub struct Writer {
    out: Frames,
    frame: Vec<u8>,
}

impl Writer {
    /// Creates a journal; an existing file is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let file = File::create(path).map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        })?;
        let mut writer = Writer {
            out: Frames::new(path, file),
            frame: Vec::new(),
        };
        writer.out.write_raw(&header(MAGIC, VERSION))?;
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a record. After the next flush it survives a crash of this process.
    ///
    /// # Errors
    /// The file cannot be written, or the record cannot be encoded.
    pub fn append(&mut self, record: &Record) -> Result<(), StoreError> {
        self.frame.clear();
        let encode_error = |error: postcard::Error| StoreError::Encode {
            reason: error.to_string(),
        };
        self.frame =
            postcard::to_extend(record, std::mem::take(&mut self.frame)).map_err(encode_error)?;
        self.out.append(&self.frame)
    }

    /// Passes all buffered data to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush()
    }

    /// Flushes and syncs to disk.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), StoreError> {
        self.out.finish()
    }
}

/// Reads the complete records that a journal had when it was opened.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    scan: Scan,
    /// Number of fields at the end of an outcome that its version lacks.
    missing_fields: usize,
    ended: bool,
    /// Bytes of an incomplete header.
    incomplete_header: u64,
}

impl Reader {
    /// Opens a journal.
    ///
    /// # Errors
    /// The file cannot be read, is not a journal, or has another version. A journal with an incomplete header is empty.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let failed = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let header = read_up_to(&mut file, HEADER).map_err(failed)?;
        let (missing_fields, incomplete_header) = match read_version(MAGIC, &header) {
            Err(()) => {
                return Err(StoreError::NotAJournal {
                    path: path.to_owned(),
                });
            }
            Ok(None) => (None, header.len() as u64),
            Ok(Some(found)) => {
                let missing_fields = missing_fields(found).ok_or_else(|| StoreError::Version {
                    path: path.to_owned(),
                    found,
                    known: VERSION,
                })?;
                (Some(missing_fields), 0)
            }
        };
        Ok(Reader {
            path: path.to_owned(),
            scan: Scan::new(file).map_err(failed)?,
            missing_fields: missing_fields.unwrap_or_default(),
            ended: missing_fields.is_none(),
            incomplete_header,
        })
    }

    /// Bytes after the last complete record, once the iterator has ended.
    pub fn left_out(&self) -> u64 {
        self.incomplete_header + self.scan.left_out()
    }

    /// The damage before the last complete record.
    pub fn damage(&self) -> Damage {
        self.scan.damage()
    }
}

/// Number of fields that outcomes of a version lack; None for a version that is not read.
fn missing_fields(version: u32) -> Option<usize> {
    std::iter::once((VERSION, 0))
        .chain(EARLIER_VERSIONS)
        .find_map(|(known, fields)| (known == version).then_some(fields))
}

impl Iterator for Reader {
    type Item = Result<Record, StoreError>;

    /// Skips damaged records. An error of the disk is the last item.
    fn next(&mut self) -> Option<Result<Record, StoreError>> {
        if self.ended {
            return None;
        }
        let missing_fields = self.missing_fields;
        let next = self.scan.next(|payload| match missing_fields {
            0 => postcard::from_bytes(payload).ok(),
            // A zero is an absent value, or a number; records without these fields ignore it.
            fields => postcard::from_bytes(&[payload, &vec![0; fields]].concat()).ok(),
        });
        let next = next
            .map_err(|source| StoreError::Read {
                path: self.path.clone(),
                source,
            })
            .transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next.map(|read| read.map(|(_, record)| record))
    }
}

#[cfg(test)]
mod tests;
