//! Files of frames that are appended as a run goes on: the journal, and the bodies.
//!
//! ```text
//! name (8 bytes) · version u32     then frames:   mark (4 bytes) · length u32 · crc32 u32 · crc32 of these 12 bytes · payload
//! ```
//! Integers are little-endian. The head has a checksum of its own, so that its length can be trusted where the payload is
//! damaged; where the head is damaged the next one is found by its mark. Either way every byte is looked at a fixed number of
//! times, and what follows the damage is read.

use super::error::StoreError;
use memchr::memmem::Finder;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Length of what a file begins with.
pub(super) const HEADER: u64 = 12;
/// Bytes that are rare in what frames hold.
const MARK: [u8; 4] = [0xF7, b'L', b'S', 0xC1];
const HEAD: usize = 16;
/// Longer frames cannot be written: a record of ten million token events is shorter.
const LONGEST: u32 = 64 << 20;
/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// What a file of a kind and version begins with.
pub(super) fn header(name: &[u8; 8], version: u32) -> Vec<u8> {
    [name.as_slice(), &version.to_le_bytes()].concat()
}

/// The version of a file that begins so; Err: it is of another kind. None: it was cut off before its version.
pub(super) fn version(name: &[u8; 8], beginning: &[u8]) -> Result<Option<u32>, ()> {
    let (found, version) = beginning.split_at(beginning.len().min(name.len()));
    if name.starts_with(found) { Ok(number(version)) } else { Err(()) }
}

/// Appends frames to a file.
#[derive(Debug)]
pub(super) struct Frames {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Frames {
    pub(super) fn to(path: &Path, file: File) -> Frames {
        Frames { path: path.to_owned(), out: BufWriter::with_capacity(PIECE, file) }
    }

    /// Adds bytes as they are.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.out.write_all(bytes).map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }

    /// Adds a frame.
    pub(super) fn add(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| StoreError::Encode { reason: "it is longer than 64 MiB".into() })?;
        let mut head = [MARK, length.to_le_bytes(), crc32fast::hash(payload).to_le_bytes()].concat();
        head.extend(crc32fast::hash(&head).to_le_bytes());
        self.put(&head)?;
        self.put(payload)
    }

    /// Hands everything to the operating system.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush().map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }

    /// Flushes, and waits until the disk has it.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.out.get_ref().sync_all().map_err(|source| StoreError::Write { path: self.path, source })
    }
}

/// Bytes of a file of frames that could not be read although frames follow them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Places.
    pub gaps: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Where the first one begins.
    pub first: u64,
}

impl Damage {
    /// What a report says of it; None where there is none.
    pub fn note(&self) -> Option<String> {
        let places = if self.gaps == 1 { "1 place".to_owned() } else { format!("{} places", self.gaps) };
        (self.gaps > 0).then(|| {
            format!(
                "{} is damaged in {places}: {} bytes cannot be read, the first at byte {}; the requests stored there are missing, \
                 those after them are included",
                super::journal::FILE, self.bytes, self.first
            )
        })
    }
}

/// Reads the frames of a file as it was when it was opened. At most one frame is in memory.
#[derive(Debug)]
pub(super) struct Scan {
    source: io::Take<File>,
    mark: Finder<'static>,
    buffer: Vec<u8>,
    /// Where in the buffer the next frame is looked for, and where that is in the file.
    from: usize,
    at: u64,
    /// Bytes since the last whole frame that are part of none.
    lost: u64,
    damage: Damage,
}

impl Scan {
    /// Begins behind the header.
    pub(super) fn new(mut file: File) -> io::Result<Scan> {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(HEADER))?;
        let source = file.take(size.saturating_sub(HEADER));
        let (buffer, damage) = (Vec::new(), Damage::default());
        Ok(Scan { source, mark: Finder::new(&MARK), buffer, from: 0, at: HEADER, lost: 0, damage })
    }

    /// The next payload for which `take` has a use, and where its frame begins; None at the end. One without use is damage.
    pub(super) fn next<T>(&mut self, take: impl Fn(&[u8]) -> Option<T>) -> io::Result<Option<(u64, T)>> {
        loop {
            let Some((length, sum)) = head(self.peek(HEAD)?) else {
                if !self.seek_mark()? {
                    return Ok(None);
                }
                continue;
            };
            let whole = HEAD + length as usize;
            let frame = self.peek(whole)?;
            let Some(payload) = frame.get(HEAD..whole) else {
                let rest = frame.len();
                self.lose(rest);
                return Ok(None);
            };
            let taken = if crc32fast::hash(payload) == sum { take(payload) } else { None };
            let Some(taken) = taken else {
                self.lose(whole);
                continue;
            };
            let begin = self.at;
            self.close();
            self.pass(whole);
            return Ok(Some((begin, taken)));
        }
    }

    /// What was damaged before the last whole frame.
    pub(super) fn damage(&self) -> Damage {
        self.damage
    }

    /// Bytes after the last whole frame.
    pub(super) fn left_out(&self) -> u64 {
        self.lost
    }

    /// Goes to the next mark; false where there is none.
    fn seek_mark(&mut self) -> io::Result<bool> {
        let ahead = self.peek(PIECE)?.len();
        let rest = self.buffer.get(self.from + 1..).unwrap_or_default();
        match self.mark.find(rest) {
            Some(place) => self.lose(place + 1),
            // The last bytes may be the beginning of a mark.
            None if ahead > MARK.len() => self.lose(ahead + 1 - MARK.len()),
            None => {
                self.lose(ahead);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn lose(&mut self, bytes: usize) {
        self.lost += bytes as u64;
        self.pass(bytes);
    }

    /// A whole frame follows what was lost.
    fn close(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let first = if self.damage.gaps == 0 { self.at - lost } else { self.damage.first };
            self.damage = Damage { gaps: self.damage.gaps + 1, bytes: self.damage.bytes + lost, first };
        }
    }

    fn pass(&mut self, bytes: usize) {
        self.from += bytes;
        self.at += bytes as u64;
    }

    /// The next bytes, `wanted` or more; fewer only at the end of the file.
    fn peek(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let held = self.buffer.len() - self.from;
        if held < wanted && self.source.limit() > 0 {
            self.buffer.drain(..self.from);
            self.from = 0;
            let more = (wanted - held).max(PIECE) as u64;
            self.source.by_ref().take(more).read_to_end(&mut self.buffer)?;
        }
        Ok(self.buffer.get(self.from..).unwrap_or_default())
    }
}

/// The payload of the frame there; None where none is, or it is damaged.
pub(super) fn frame_at(file: &mut (impl Read + Seek), at: u64) -> io::Result<Option<Vec<u8>>> {
    file.seek(SeekFrom::Start(at))?;
    let Some((length, sum)) = head(&some_of(file, HEAD as u64)?) else { return Ok(None) };
    let payload = some_of(file, length.into())?;
    Ok((payload.len() == length as usize && crc32fast::hash(&payload) == sum).then_some(payload))
}

/// Length and checksum of the payload; None: no head begins here.
fn head(bytes: &[u8]) -> Option<(u32, u32)> {
    let (own, sum) = bytes.get(..HEAD)?.split_at(HEAD - 4);
    let (length, payload) = (number(own.get(4..)?)?, number(own.get(8..)?)?);
    (own.starts_with(&MARK) && number(sum)? == crc32fast::hash(own) && length <= LONGEST).then_some((length, payload))
}

/// At most `n` bytes; fewer only at the end of the file.
pub(super) fn some_of(source: &mut impl Read, n: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(n).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8; 8] = b"LLMSCENT";

    /// The bytes of a file with these payloads, and where each frame begins.
    fn file(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let mut frames = Frames::to(&path, File::create(&path).unwrap());
        frames.put(&header(NAME, 1)).unwrap();
        let mut places = Vec::new();
        for payload in payloads {
            frames.flush().unwrap();
            places.push(std::fs::metadata(&path).unwrap().len() as usize);
            frames.add(payload).unwrap();
        }
        frames.finish().unwrap();
        (std::fs::read(&path).unwrap(), places)
    }

    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Damage, u64) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut scan = Scan::new(file).unwrap();
        let mut payloads = Vec::new();
        while let Some((_, payload)) = scan.next(|payload| Some(payload.to_vec())).unwrap() {
            payloads.push(payload);
        }
        (payloads, scan.damage(), scan.left_out())
    }

    fn few() -> Vec<Vec<u8>> {
        vec![vec![1; 30], MARK.repeat(9), Vec::new(), vec![3; 70_000], vec![4; 3]]
    }

    #[test]
    fn a_flip_of_any_bit_costs_the_frame_around_it_and_no_other() {
        let (bytes, places) = file(&few());
        assert_eq!(read(&bytes), (few(), Damage::default(), 0));
        let near = |at: usize| places.iter().any(|place| at.abs_diff(*place) < 40);
        for at in (HEADER as usize..bytes.len()).filter(|at| near(*at)) {
            let hit = places.iter().rposition(|place| *place <= at).unwrap();
            let end = places.get(hit + 1).copied().unwrap_or(bytes.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let mut kept = few();
            kept.remove(hit);
            let lost = (end - places[hit]) as u64;
            let last = hit + 1 == places.len();
            let damage = if last { Damage::default() } else { Damage { gaps: 1, bytes: lost, first: places[hit] as u64 } };
            assert_eq!(read(&damaged), (kept, damage, if last { lost } else { 0 }), "byte {at}");
        }
    }

    #[test]
    fn bytes_that_were_taken_out_or_put_in_cost_what_is_around_them() {
        let (bytes, places) = file(&few());
        let cut = [&bytes[..places[1] + 20], &bytes[places[1] + 25..]].concat();
        let (kept, damage, left) = read(&cut);
        assert!(kept.contains(&few()[0]) && kept.contains(&few()[4]) && kept.contains(&few()[3]), "{damage:?}");
        assert_eq!((damage.gaps, damage.first, left), (1, places[1] as u64, 0));
        let grown = [&bytes[..places[3]], &[7; 1000], &bytes[places[3]..]].concat();
        assert_eq!(read(&grown), (few(), Damage { gaps: 1, bytes: 1000, first: places[3] as u64 }, 0));
    }

    #[test]
    fn a_file_of_nothing_but_marks_is_read_in_linear_time() {
        // A head that names a long frame is believed for its own checksum only: none here is.
        let bytes = [header(NAME, 1), MARK.repeat(1 << 20)].concat();
        assert_eq!(read(&bytes), (Vec::new(), Damage::default(), 4 << 20));
        // Heads that are whole, each of a frame of 1 MiB: damaged ones are passed over, not read again from their second byte.
        let mut head = [MARK, (1u32 << 20).to_le_bytes(), [0; 4]].concat();
        head.extend(crc32fast::hash(&head).to_le_bytes());
        let bytes = [header(NAME, 1), head.repeat(1 << 18)].concat();
        let (kept, damage, left) = read(&bytes);
        assert_eq!((kept.len(), damage, left), (0, Damage::default(), 4 << 20));
    }
}
