//! The journal: `journal.bin`, every outcome of a run as it arrives.
//!
//! ```text
//! "LLMSCENJ" · version u32     then frames:   length u32 · crc32 u32 · record (postcard)      integers little-endian
//! ```
//! The owner calls [`Writer::flush`] at least twice a second. What was flushed survives `kill -9`, since the kernel has
//! it; what came later may be missing, and a frame that was cut in two is left out by the [`Reader`].

use super::error::StoreError;
use super::record::Record;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Take, Write};
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "journal.bin";

const MAGIC: &[u8; 8] = b"LLMSCENJ";
const VERSION: u32 = 4;
const HEADER: usize = 12;
/// Longer frames are damage: a record of ten million token events is shorter.
const LONGEST: u32 = 64 << 20;

/// Appends records.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
    frame: Vec<u8>,
}

impl Writer {
    /// Begins a journal; a file that is there already is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn create(path: &Path) -> Result<Writer, StoreError> {
        let failed = |source| StoreError::Write { path: path.to_owned(), source };
        let file = File::create(path).map_err(failed)?;
        let mut writer = Writer { path: path.to_owned(), out: BufWriter::with_capacity(1 << 16, file), frame: Vec::new() };
        writer.put(&[MAGIC, VERSION.to_le_bytes().as_slice()].concat())?;
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
        let length = u32::try_from(self.frame.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| StoreError::Encode { reason: "it is longer than 64 MiB".into() })?;
        self.put(&length.to_le_bytes())?;
        self.put(&crc32fast::hash(&self.frame).to_le_bytes())?;
        let frame = std::mem::take(&mut self.frame);
        let written = self.put(&frame);
        self.frame = frame;
        written
    }

    /// Hands everything to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush().map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }

    /// Flushes, and waits until the disk has it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.out.get_ref().sync_all().map_err(|source| StoreError::Write { path: self.path, source })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.out.write_all(bytes).map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }
}

/// Reads a journal from its beginning, as far as it is whole. A journal that is still being written is read as it stood
/// when it was opened.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    source: Take<BufReader<File>>,
    size: u64,
    whole: u64,
    ended: bool,
}

impl Reader {
    /// Opens a journal.
    ///
    /// # Errors
    /// The file cannot be read, is no journal, or is one of another version. One that was cut off inside its header
    /// merely holds nothing.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let failed = |source| StoreError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut source = BufReader::with_capacity(1 << 16, file).take(size);
        let header = some_of(&mut source, HEADER as u64).map_err(failed)?;
        let (magic, version) = header.split_at(header.len().min(MAGIC.len()));
        if !MAGIC.starts_with(magic) {
            return Err(StoreError::NotAJournal { path: path.to_owned() });
        }
        match number(version) {
            None => Ok(Reader { path: path.to_owned(), source, size, whole: 0, ended: true }),
            Some(VERSION) => Ok(Reader { path: path.to_owned(), source, size, whole: HEADER as u64, ended: false }),
            Some(found) => Err(StoreError::Version { path: path.to_owned(), found, known: VERSION }),
        }
    }

    /// Bytes at the end that hold no whole record, once the iterator has ended; 0 after a clean end.
    pub fn left_out(&self) -> u64 {
        self.size - self.whole
    }

    /// The next frame's record; None at the end, and for one that is cut off or damaged.
    fn frame(&mut self) -> io::Result<Option<Record>> {
        let head = some_of(&mut self.source, 8)?;
        let (Some(length), Some(sum)) = (number(&head), head.get(4..).and_then(number)) else { return Ok(None) };
        if length > LONGEST {
            return Ok(None);
        }
        let frame = some_of(&mut self.source, u64::from(length))?;
        if frame.len() != length as usize || crc32fast::hash(&frame) != sum {
            return Ok(None);
        }
        let record = postcard::from_bytes(&frame).ok();
        self.whole += record.as_ref().map_or(0, |_| 8 + u64::from(length));
        Ok(record)
    }
}

impl Iterator for Reader {
    type Item = Result<Record, StoreError>;

    /// Ends at the first frame that is not whole; an error is one of the disk, and the last item.
    fn next(&mut self) -> Option<Result<Record, StoreError>> {
        if self.ended {
            return None;
        }
        let next = self.frame().map_err(|source| StoreError::Read { path: self.path.clone(), source }).transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// At most `n` bytes; fewer only at the end of the file.
pub(super) fn some_of(source: &mut impl Read, n: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(n).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::Call;
    use crate::model::manifest::Part;
    use crate::model::outcome::{Failure, FailureKind, Finish, Outcome, Phase, Timeline};
    use crate::model::units::Nanos;
    use crate::store::record::tests::record;
    use proptest::prelude::*;
    use std::io::{Seek, SeekFrom};

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
    fn a_damaged_byte_ends_the_journal_before_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let records = few();
        let sizes = written(&path, &records);
        let bytes = std::fs::read(&path).unwrap();
        for at in sizes[1]..sizes[2] {
            let mut damaged = bytes.clone();
            damaged[at as usize] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(read(&path), (records[..1].to_vec(), bytes.len() as u64 - sizes[1]), "damaged at {at}");
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
        assert!(version.ends_with("is a journal of version 7, this llmscen reads version 4; use the llmscen that wrote it"));
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
