//! The journal: `journal.bin`, every outcome of a run as it arrives, a frame ([`super::frames`]) of postcard each.
//!
//! The owner calls [`Writer::flush`] at least twice a second. What was flushed survives `kill -9`, since the kernel has
//! it; what came later may be missing, and a frame that was cut in two is left out by the [`Reader`].

use super::error::StoreError;
pub use super::frames::Damage;
use super::frames::{Frames, HEADER, Scan, header, some_of, version};
use super::record::Record;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "journal.bin";

const MAGIC: &[u8; 8] = b"LLMSCENJ";
const VERSION: u32 = 6;

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
mod tests {
    use super::*;
    use crate::store::record::tests::record;
    use llmscen_core::call::Call;
    use llmscen_core::manifest::Part;
    use llmscen_core::outcome::{Failure, FailureKind, Finish, Outcome, Phase, Timeline};
    use llmscen_core::units::Nanos;
    use proptest::prelude::*;
    use std::io::{Seek, SeekFrom, Write as _};

    fn outcome(seq: u64, end: Result<Finish, Failure>) -> Record {
        let timeline = Timeline { tokens: (1..4).map(|n| Nanos(seq * 1000 + n)).collect(), ..Timeline::default() };
        let blank = Call { seq, model: "m".into(), streamed: true, ..Call::default() }.outcome(Phase::Measured);
        let outcome = Outcome { timeline, status: Some(200), reads: 3, response_id: Some("id".into()), end, ..blank };
        Record::Outcome { case: 1, round: 0, outcome }
    }

    fn few() -> Vec<Record> {
        vec![
            Record::Started { case: 1, round: 0, origin_ns: 5 },
            outcome(0, Ok(Finish { reason: "stop".into() })),
            outcome(1, Err(Failure::new(FailureKind::Truncated, "cut").at("after 3 events"))),
            Record::Ended { part: Part { case: "c=1".into(), sending_until_ns: Some(9), ..Part::default() } },
        ]
    }

    /// Writes the records; the size of the file after the header and after each.
    fn written(path: &Path, records: &[Record]) -> Vec<u64> {
        let mut writer = Writer::create(path).unwrap();
        let mut sizes = vec![std::fs::metadata(path).unwrap().len()];
        for record in records {
            writer.append(record).unwrap();
            writer.flush().unwrap();
            sizes.push(std::fs::metadata(path).unwrap().len());
        }
        writer.finish().unwrap();
        sizes
    }

    fn read(path: &Path) -> (Vec<Record>, u64) {
        let mut reader = Reader::open(path).unwrap();
        let records = reader.by_ref().map(Result::unwrap).collect();
        (records, reader.left_out())
    }

    #[test]
    fn a_journal_cut_anywhere_keeps_every_whole_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let records = few();
        let sizes = written(&path, &records);
        assert_eq!(read(&path), (records.clone(), 0));
        let file = File::options().write(true).open(&path).unwrap();
        for cut in (0..*sizes.last().unwrap()).rev() {
            file.set_len(cut).unwrap();
            let whole = sizes.iter().filter(|size| **size <= cut).count().saturating_sub(1);
            let kept = sizes.iter().copied().filter(|size| *size <= cut).max().unwrap_or(0);
            assert_eq!(read(&path), (records[..whole].to_vec(), cut - kept), "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_byte_costs_its_own_record_and_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let records = few();
        let sizes = written(&path, &records);
        let bytes = std::fs::read(&path).unwrap();
        let others = [&records[..1], &records[2..]].concat();
        for at in sizes[1]..sizes[2] {
            let mut damaged = bytes.clone();
            damaged[at as usize] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let mut reader = Reader::open(&path).unwrap();
            let kept: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
            assert_eq!((kept, reader.left_out()), (others.clone(), 0), "damaged at {at}");
            assert_eq!(reader.damage(), Damage { gaps: 1, bytes: sizes[2] - sizes[1], first: sizes[1] }, "damaged at {at}");
        }
    }

    #[test]
    fn what_was_not_flushed_is_what_a_crash_costs() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut writer = Writer::create(&path).unwrap();
        let records = few();
        writer.append(&records[0]).unwrap();
        writer.flush().unwrap();
        writer.append(&records[1]).unwrap();
        assert_eq!(read(&path), (records[..1].to_vec(), 0));
        writer.flush().unwrap();
        assert_eq!(read(&path), (records[..2].to_vec(), 0));
    }

    #[test]
    fn other_files_and_other_versions_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        written(&path, &few());
        let mut file = File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(8)).unwrap();
        file.write_all(&7u32.to_le_bytes()).unwrap();
        let version = Reader::open(&path).unwrap_err().to_string();
        assert!(version.ends_with("is a journal of version 7, this llmscen reads version 6; use the llmscen that wrote it"));
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(Reader::open(&path), Err(StoreError::NotAJournal { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Reader::open(&path), Err(StoreError::Read { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn records_come_back_in_order(records in proptest::collection::vec(record(), 0..20)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(FILE);
            written(&path, &records);
            prop_assert_eq!(read(&path), (records, 0));
        }
    }
}
