//! The spool: `bodies.bin`, the bodies of a run in the order of their arrival, until they are in requests.db.
//!
//! Like the journal it consists of frames: head (postcard) · request · response. Bodies are compressed as in
//! requests.db.

use crate::store::error::StoreError;
use crate::store::frames::{Frames, HEADER, Scan, header, read_frame, read_up_to, read_version};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "bodies.bin";

const MAGIC: &[u8; 8] = b"LLMSCENB";
const VERSION: u32 = 2;

/// The facts of a request whose bodies are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// Number of the request.
    pub seq: u64,
    /// Turn, from 0.
    pub turn: u32,
    /// Whether only a sample is stored, for which this is a candidate.
    pub sampled: bool,
    /// Whether it was measured.
    pub measured: bool,
    /// Whether it failed.
    pub failed: bool,
    /// Random rank: the lowest ranks are sampled.
    pub rank: u64,
    /// Extent of the request body.
    pub request: Extent,
    /// Extent of the response body; None without a response.
    pub response: Option<Extent>,
}

/// The length of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Length in bytes, without content encoding.
    pub length: u64,
    /// Whether only the beginning is stored.
    pub cut: bool,
    /// Length of the compressed JSON text.
    pub packed: u32,
}

/// Request and response body as compressed JSON text; that of the response is empty without a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// The request.
    pub request: Vec<u8>,
    /// The response.
    pub response: Vec<u8>,
}

/// Appends bodies.
#[derive(Debug)]
pub struct Spool {
    out: Frames,
}

impl Spool {
    /// Creates a spool, or opens the one of the round before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(path: &Path) -> Result<Spool, StoreError> {
        let failed = |source| StoreError::Write {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let has_header = file.metadata().map_err(failed)?.len() > 0;
        let mut spool = Spool {
            out: Frames::new(path, file),
        };
        if !has_header {
            spool.out.write_raw(&header(MAGIC, VERSION))?;
        }
        Ok(spool)
    }

    /// Adds the bodies of a request.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, head: &Head, packed: &Packed) -> Result<(), StoreError> {
        let mut frame = postcard::to_stdvec(head).map_err(|error| StoreError::Encode {
            reason: error.to_string(),
        })?;
        frame.extend_from_slice(&packed.request);
        frame.extend_from_slice(&packed.response);
        self.out.append(&frame)
    }

    /// Adds the bodies of another spool.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn add_all(&mut self, other: &Path) -> Result<(), StoreError> {
        let mut reader = Reader::open(other)?;
        for (head, at) in reader.heads()? {
            if let Some(packed) = reader.bodies(at)? {
                self.add(&head, &packed)?;
            }
        }
        self.flush()
    }

    /// Passes all buffered data to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush()
    }
}

/// Reads a spool.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
}

impl Reader {
    /// Opens a spool. A spool with an incomplete header has no bodies.
    ///
    /// # Errors
    /// The file cannot be read, or is not a spool of this version.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let failed = |source| StoreError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let reason = match read_version(MAGIC, &read_up_to(&mut file, HEADER).map_err(failed)?) {
            Ok(None | Some(VERSION)) => {
                return Ok(Reader {
                    path: path.to_owned(),
                    file,
                });
            }
            Ok(Some(found)) => format!("it has version {found}, not {VERSION}"),
            Err(()) => "it is not a spool".into(),
        };
        Err(StoreError::Spool {
            path: path.to_owned(),
            reason,
        })
    }

    /// The heads of all complete frames, and the offset of each frame.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn heads(&mut self) -> Result<Vec<(Head, u64)>, StoreError> {
        self.scan_heads().map_err(|source| StoreError::Read {
            path: self.path.clone(),
            source,
        })
    }

    /// The bodies in the frame at this offset; None if there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn bodies(&mut self, at: u64) -> Result<Option<Packed>, StoreError> {
        let frame = read_frame(&mut self.file, at).map_err(|source| StoreError::Read {
            path: self.path.clone(),
            source,
        })?;
        Ok(frame.and_then(|frame| {
            let (head, rest) = postcard::take_from_bytes::<Head>(&frame).ok()?;
            let (request, response) = rest.split_at_checked(head.request.packed as usize)?;
            Some(Packed {
                request: request.to_vec(),
                response: response.to_vec(),
            })
        }))
    }

    fn scan_heads(&mut self) -> io::Result<Vec<(Head, u64)>> {
        let mut scan = Scan::new(self.file.try_clone()?)?;
        let head = |frame: &[u8]| {
            postcard::take_from_bytes::<Head>(frame)
                .ok()
                .map(|(head, _)| head)
        };
        let mut heads = Vec::new();
        while let Some((at, head)) = scan.next(head)? {
            heads.push((head, at));
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(seq: u64) -> (Head, Packed) {
        let packed = Packed {
            request: vec![seq as u8; 5],
            response: b"response".to_vec(),
        };
        let extent = |bytes: &[u8]| Extent {
            length: 9,
            cut: false,
            packed: bytes.len() as u32,
        };
        let (request, response) = (extent(&packed.request), Some(extent(&packed.response)));
        (
            Head {
                case: "c=1".into(),
                seq,
                request,
                response,
                ..Head::default()
            },
            packed,
        )
    }

    #[test]
    fn a_truncated_spool_keeps_every_complete_frame() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for seq in 0..3 {
            let mut spool = Spool::append(&path).unwrap();
            let (head, packed) = one(seq);
            spool.add(&head, &packed).unwrap();
            spool.flush().unwrap();
        }
        let size = std::fs::metadata(&path).unwrap().len();
        let mut reader = Reader::open(&path).unwrap();
        let heads = reader.heads().unwrap();
        assert_eq!(
            heads
                .iter()
                .map(|(head, _)| head.clone())
                .collect::<Vec<_>>(),
            (0..3).map(|seq| one(seq).0).collect::<Vec<_>>()
        );
        assert_eq!(reader.bodies(heads[1].1).unwrap(), Some(one(1).1));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[heads[1].1 as usize + 20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let kept = Reader::open(&path).unwrap().heads().unwrap();
        assert_eq!(
            kept.iter().map(|(head, _)| head.seq).collect::<Vec<_>>(),
            [0, 2],
            "frames after the damage are read"
        );
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(size - 1)
            .unwrap();
        assert_eq!(Reader::open(&path).unwrap().heads().unwrap().len(), 1);
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(5)
            .unwrap();
        assert!(
            Reader::open(&path).unwrap().heads().unwrap().is_empty(),
            "truncated before the first body"
        );
    }

    #[test]
    fn a_file_that_is_not_a_spool_of_this_version_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let why = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Reader::open(&path).unwrap_err().to_string()
        };
        assert!(
            why(b"LLMSCENB\x63\0\0\0").contains("it has version 99, not 2; move it away"),
            "{}",
            path.display()
        );
        assert!(
            why(b"something else")
                .contains("bodies.bin has no bodies that this llmscen can read: it is not a spool")
        );
    }
}
