//! Append-only files of frames: the journal and the spool of bodies.
//!
//! ```text
//! name (8 bytes) · version u32     then frames:   mark (4 bytes) · length u32 · crc32 u32 · crc32 of these 12 bytes · payload
//! ```
//! Integers are little-endian. The head has a separate checksum, so that the length is valid even if the payload is
//! damaged. After a damaged head, the next one is found by its mark. In both cases the reading time is linear, and
//! frames after the damage are read.

use super::error::StoreError;
use memchr::memmem::Finder;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Length of the file header.
pub(super) const HEADER: u64 = 12;
/// Bytes that are rare in payloads.
const MARK: [u8; 4] = [0xF7, b'L', b'S', 0xC1];
const HEAD: usize = 16;
/// Maximum payload; a record of ten million token events is shorter.
const MAX_PAYLOAD: u32 = 64 << 20;
/// Size of the read and write buffers.
const BUFFER: usize = 1 << 16;

/// The header of a file of this kind and version.
pub(super) fn header(name: &[u8; 8], version: u32) -> Vec<u8> {
    [name.as_slice(), &version.to_le_bytes()].concat()
}

/// The version in a header. Err: a file of another kind. None: a header that ends before the version.
pub(super) fn read_version(name: &[u8; 8], header: &[u8]) -> Result<Option<u32>, ()> {
    let (found, version) = header.split_at(header.len().min(name.len()));
    if name.starts_with(found) {
        Ok(read_u32(version))
    } else {
        Err(())
    }
}

/// Appends frames to a file.
#[derive(Debug)]
pub(super) struct Frames {
    path: PathBuf,
    out: BufWriter<File>,
}

impl Frames {
    pub(super) fn new(path: &Path, file: File) -> Frames {
        Frames {
            path: path.to_owned(),
            out: BufWriter::with_capacity(BUFFER, file),
        }
    }

    /// Appends bytes without a frame.
    pub(super) fn write_raw(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.out
            .write_all(bytes)
            .map_err(|source| StoreError::Write {
                path: self.path.clone(),
                source,
            })
    }

    /// Appends a frame.
    pub(super) fn append(&mut self, payload: &[u8]) -> Result<(), StoreError> {
        let length = u32::try_from(payload.len())
            .ok()
            .filter(|length| *length <= MAX_PAYLOAD);
        let length = length.ok_or_else(|| StoreError::Encode {
            reason: "longer than 64 MiB".into(),
        })?;
        let mut head = [
            MARK,
            length.to_le_bytes(),
            crc32fast::hash(payload).to_le_bytes(),
        ]
        .concat();
        head.extend(crc32fast::hash(&head).to_le_bytes());
        self.write_raw(&head)?;
        self.write_raw(payload)
    }

    /// Passes all buffered data to the operating system.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush().map_err(|source| StoreError::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Flushes and syncs to disk.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.out
            .get_ref()
            .sync_all()
            .map_err(|source| StoreError::Write {
                path: self.path,
                source,
            })
    }
}

/// The bytes of a file that could not be read although complete frames follow them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Number of damaged places.
    pub gaps: u64,
    /// Total number of bytes.
    pub bytes: u64,
    /// Offset of the first place.
    pub first: u64,
}

impl Damage {
    /// The note for the report on this file; None without damage.
    pub fn note(&self, file: &str) -> Option<String> {
        let places = if self.gaps == 1 {
            "1 place".to_owned()
        } else {
            format!("{} places", self.gaps)
        };
        (self.gaps > 0).then(|| {
            format!(
                "{file} is damaged in {places}: {} bytes cannot be read, the first at byte {}; \
                 the requests stored there are missing, those after them are included",
                self.bytes, self.first
            )
        })
    }
}

/// Reads the frames that a file had when it was opened. At most one frame is in memory.
#[derive(Debug)]
pub(super) struct Scan {
    source: io::Take<File>,
    mark: Finder<'static>,
    buffer: Vec<u8>,
    /// Offset of the next frame in the buffer.
    from: usize,
    /// Offset of the next frame in the file.
    at: u64,
    /// Bytes since the last complete frame that belong to none.
    lost: u64,
    damage: Damage,
}

impl Scan {
    /// Starts after the header.
    pub(super) fn new(mut file: File) -> io::Result<Scan> {
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(HEADER))?;
        let source = file.take(size.saturating_sub(HEADER));
        Ok(Scan {
            source,
            mark: Finder::new(&MARK),
            buffer: Vec::new(),
            from: 0,
            at: HEADER,
            lost: 0,
            damage: Damage::default(),
        })
    }

    /// The next payload that `decode` accepts, and the offset of its frame; None at the end. A rejected payload
    /// counts as damage.
    pub(super) fn next<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Option<(u64, T)>> {
        loop {
            let Some(FrameHead { length, sum }) = parse_head(self.peek(HEAD)?) else {
                if !self.seek_mark()? {
                    return Ok(None);
                }
                continue;
            };
            let frame_length = HEAD + length as usize;
            let frame = self.peek(frame_length)?;
            let Some(payload) = frame.get(HEAD..frame_length) else {
                let rest = frame.len();
                self.skip_damaged(rest);
                return Ok(None);
            };
            let decoded = if crc32fast::hash(payload) == sum {
                decode(payload)
            } else {
                None
            };
            let Some(decoded) = decoded else {
                self.skip_damaged(frame_length);
                continue;
            };
            let offset = self.at;
            self.close_damage();
            self.advance(frame_length);
            return Ok(Some((offset, decoded)));
        }
    }

    /// The damage before the last complete frame.
    pub(super) fn damage(&self) -> Damage {
        self.damage
    }

    /// Bytes after the last complete frame.
    pub(super) fn left_out(&self) -> u64 {
        self.lost
    }

    /// Advances to the next mark; false if there is none.
    fn seek_mark(&mut self) -> io::Result<bool> {
        let ahead = self.peek(BUFFER)?.len();
        let rest = self.buffer.get(self.from + 1..).unwrap_or_default();
        match self.mark.find(rest) {
            Some(position) => self.skip_damaged(position + 1),
            // The last bytes may be the start of a mark.
            None if ahead > MARK.len() => self.skip_damaged(ahead + 1 - MARK.len()),
            None => {
                self.skip_damaged(ahead);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn skip_damaged(&mut self, bytes: usize) {
        self.lost += bytes as u64;
        self.advance(bytes);
    }

    /// Adds the skipped bytes to the damage, once a complete frame follows them.
    fn close_damage(&mut self) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let first = if self.damage.gaps == 0 {
                self.at - lost
            } else {
                self.damage.first
            };
            self.damage = Damage {
                gaps: self.damage.gaps + 1,
                bytes: self.damage.bytes + lost,
                first,
            };
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.from += bytes;
        self.at += bytes as u64;
    }

    /// At least `count` of the next bytes; fewer only at the end of the file.
    fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        let buffered = self.buffer.len() - self.from;
        if buffered < count && self.source.limit() > 0 {
            self.buffer.drain(..self.from);
            self.from = 0;
            let more = (count - buffered).max(BUFFER) as u64;
            self.source
                .by_ref()
                .take(more)
                .read_to_end(&mut self.buffer)?;
        }
        Ok(self.buffer.get(self.from..).unwrap_or_default())
    }
}

/// The payload of the frame at this offset; None if there is none, or if it is damaged.
pub(super) fn read_frame(file: &mut (impl Read + Seek), at: u64) -> io::Result<Option<Vec<u8>>> {
    file.seek(SeekFrom::Start(at))?;
    let Some(FrameHead { length, sum }) = parse_head(&read_up_to(file, HEAD as u64)?) else {
        return Ok(None);
    };
    let payload = read_up_to(file, length.into())?;
    Ok((payload.len() == length as usize && crc32fast::hash(&payload) == sum).then_some(payload))
}

/// Length and checksum of a payload.
struct FrameHead {
    length: u32,
    sum: u32,
}

/// None if the bytes do not start with a valid head.
fn parse_head(bytes: &[u8]) -> Option<FrameHead> {
    let (head, head_sum) = bytes.get(..HEAD)?.split_at(HEAD - 4);
    let length = read_u32(head.get(4..)?)?;
    let sum = read_u32(head.get(8..)?)?;
    let is_valid = head.starts_with(&MARK)
        && read_u32(head_sum)? == crc32fast::hash(head)
        && length <= MAX_PAYLOAD;
    is_valid.then_some(FrameHead { length, sum })
}

/// At most `n` bytes; fewer only at the end of the file.
pub(super) fn read_up_to(source: &mut impl Read, n: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(n).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|four| u32::from_le_bytes(*four))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8; 8] = b"LLMSCENT";

    /// The bytes of a file with these payloads, and the offset of each frame.
    fn file(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let mut frames = Frames::new(&path, File::create(&path).unwrap());
        frames.write_raw(&header(NAME, 1)).unwrap();
        let mut offsets = Vec::new();
        for payload in payloads {
            frames.flush().unwrap();
            offsets.push(std::fs::metadata(&path).unwrap().len() as usize);
            frames.append(payload).unwrap();
        }
        frames.finish().unwrap();
        (std::fs::read(&path).unwrap(), offsets)
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

    fn payloads() -> Vec<Vec<u8>> {
        vec![
            vec![1; 30],
            MARK.repeat(9),
            Vec::new(),
            vec![3; 70_000],
            vec![4; 3],
        ]
    }

    #[test]
    fn a_flipped_bit_damages_only_its_frame() {
        let (bytes, offsets) = file(&payloads());
        assert_eq!(read(&bytes), (payloads(), Damage::default(), 0));
        let near = |at: usize| offsets.iter().any(|offset| at.abs_diff(*offset) < 40);
        for at in (HEADER as usize..bytes.len()).filter(|at| near(*at)) {
            let hit = offsets.iter().rposition(|offset| *offset <= at).unwrap();
            let end = offsets.get(hit + 1).copied().unwrap_or(bytes.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let mut kept = payloads();
            kept.remove(hit);
            let lost = (end - offsets[hit]) as u64;
            let last = hit + 1 == offsets.len();
            let damage = if last {
                Damage::default()
            } else {
                Damage {
                    gaps: 1,
                    bytes: lost,
                    first: offsets[hit] as u64,
                }
            };
            assert_eq!(
                read(&damaged),
                (kept, damage, if last { lost } else { 0 }),
                "byte {at}"
            );
        }
    }

    #[test]
    fn removed_or_inserted_bytes_damage_only_the_frames_around_them() {
        let (bytes, offsets) = file(&payloads());
        let cut = [&bytes[..offsets[1] + 20], &bytes[offsets[1] + 25..]].concat();
        let (kept, damage, left) = read(&cut);
        assert!(
            kept.contains(&payloads()[0])
                && kept.contains(&payloads()[4])
                && kept.contains(&payloads()[3]),
            "{damage:?}"
        );
        assert_eq!((damage.gaps, damage.first, left), (1, offsets[1] as u64, 0));
        let grown = [&bytes[..offsets[3]], &[7; 1000], &bytes[offsets[3]..]].concat();
        assert_eq!(
            read(&grown),
            (
                payloads(),
                Damage {
                    gaps: 1,
                    bytes: 1000,
                    first: offsets[3] as u64
                },
                0
            )
        );
    }

    #[test]
    fn a_file_of_marks_is_read_in_linear_time() {
        // None of these heads has a valid checksum.
        let bytes = [header(NAME, 1), MARK.repeat(1 << 20)].concat();
        assert_eq!(read(&bytes), (Vec::new(), Damage::default(), 4 << 20));
        // Valid heads of damaged frames of 1 MiB, which are skipped at once.
        let mut head = [MARK, (1u32 << 20).to_le_bytes(), [0; 4]].concat();
        head.extend(crc32fast::hash(&head).to_le_bytes());
        let bytes = [header(NAME, 1), head.repeat(1 << 18)].concat();
        let (kept, damage, left) = read(&bytes);
        assert_eq!((kept.len(), damage, left), (0, Damage::default(), 4 << 20));
    }
}
