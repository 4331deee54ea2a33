//! The spool: `bodies.bin`, the bodies of a run as they arrive, until requests.db holds them.
//!
//! Like the journal it is made of frames: head (postcard) · request · response. Bodies are compressed in it, so that they are
//! copied as they are.

use crate::store::error::StoreError;
use crate::store::frames::{Frames, HEADER, Scan, frame_at, header, some_of, version};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file in a run folder.
pub const FILE: &str = "bodies.bin";

const MAGIC: &[u8; 8] = b"LLMSCENB";
const VERSION: u32 = 2;

/// What is known of two bodies besides themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Case id.
    pub case: String,
    /// Round, from 0.
    pub round: u32,
    /// Number of the request.
    pub seq: u64,
    /// Its turn, from 0.
    pub turn: u32,
    /// Whether only a sample is kept, which this is a candidate of.
    pub sampled: bool,
    /// Whether it was measured.
    pub measured: bool,
    /// Whether it failed.
    pub failed: bool,
    /// Its place in the draw: the lowest are drawn.
    pub rank: u64,
    /// The request.
    pub request: Extent,
    /// The response; None where none came.
    pub response: Option<Extent>,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes that went over the wire, content codings undone.
    pub whole: u64,
    /// Only its beginning is kept.
    pub cut: bool,
    /// Bytes of the compressed JSON text.
    pub packed: u32,
}

/// Two bodies as compressed JSON text; the response's is empty where none came.
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
    /// Begins a spool, or goes on with the one of the round before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(path: &Path) -> Result<Spool, StoreError> {
        let failed = |source| StoreError::Write { path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed)?;
        let begun = file.metadata().map_err(failed)?.len() > 0;
        let mut spool = Spool { out: Frames::to(path, file) };
        if !begun {
            spool.out.put(&header(MAGIC, VERSION))?;
        }
        Ok(spool)
    }

    /// Adds the bodies of a request.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, head: &Head, packed: &Packed) -> Result<(), StoreError> {
        let mut frame = postcard::to_stdvec(head).map_err(|error| StoreError::Encode { reason: error.to_string() })?;
        frame.extend_from_slice(&packed.request);
        frame.extend_from_slice(&packed.response);
        self.out.add(&frame)
    }

    /// Hands everything to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.out.flush()
    }
}

/// Reads a spool at any place.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
}

impl Reader {
    /// Opens a spool. One that was cut within its first bytes has no bodies.
    ///
    /// # Errors
    /// The file cannot be read, or is no spool of this version.
    pub fn open(path: &Path) -> Result<Reader, StoreError> {
        let failed = |source| StoreError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let reason = match version(MAGIC, &some_of(&mut file, HEADER).map_err(failed)?) {
            Ok(None | Some(VERSION)) => return Ok(Reader { path: path.to_owned(), file }),
            Ok(Some(own)) => format!("it is of version {own}, not {VERSION}"),
            Err(()) => "it is no spool".into(),
        };
        Err(StoreError::Spool { path: path.to_owned(), reason })
    }

    /// The heads of all whole frames, and where each frame begins.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn heads(&mut self) -> Result<Vec<(Head, u64)>, StoreError> {
        self.all().map_err(|source| StoreError::Read { path: self.path.clone(), source })
    }

    /// The bodies in the frame there; None where it is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn bodies(&mut self, at: u64) -> Result<Option<Packed>, StoreError> {
        let frame = frame_at(&mut self.file, at).map_err(|source| StoreError::Read { path: self.path.clone(), source })?;
        Ok(frame.and_then(|frame| {
            let (head, rest) = postcard::take_from_bytes::<Head>(&frame).ok()?;
            let (request, response) = rest.split_at_checked(head.request.packed as usize)?;
            Some(Packed { request: request.to_vec(), response: response.to_vec() })
        }))
    }

    fn all(&mut self) -> io::Result<Vec<(Head, u64)>> {
        let mut scan = Scan::new(self.file.try_clone()?)?;
        let head = |frame: &[u8]| postcard::take_from_bytes::<Head>(frame).ok().map(|(head, _)| head);
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
        let packed = Packed { request: vec![seq as u8; 5], response: b"response".to_vec() };
        let extent = |bytes: &[u8]| Extent { whole: 9, cut: false, packed: bytes.len() as u32 };
        let (request, response) = (extent(&packed.request), Some(extent(&packed.response)));
        (Head { case: "c=1".into(), seq, request, response, ..Head::default() }, packed)
    }

    #[test]
    fn a_spool_that_was_cut_keeps_every_whole_frame() {
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
            heads.iter().map(|(head, _)| head.clone()).collect::<Vec<_>>(),
            (0..3).map(|seq| one(seq).0).collect::<Vec<_>>()
        );
        assert_eq!(reader.bodies(heads[1].1).unwrap(), Some(one(1).1));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[heads[1].1 as usize + 20] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let kept = Reader::open(&path).unwrap().heads().unwrap();
        assert_eq!(kept.iter().map(|(head, _)| head.seq).collect::<Vec<_>>(), [0, 2], "what follows damage is read");
        File::options().write(true).open(&path).unwrap().set_len(size - 1).unwrap();
        assert_eq!(Reader::open(&path).unwrap().heads().unwrap().len(), 1);
        File::options().write(true).open(&path).unwrap().set_len(5).unwrap();
        assert!(Reader::open(&path).unwrap().heads().unwrap().is_empty(), "cut before the first body");
    }

    #[test]
    fn what_is_no_spool_of_this_version_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let why = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Reader::open(&path).unwrap_err().to_string()
        };
        assert!(why(b"LLMSCENB\x63\0\0\0").contains("it is of version 99, not 2; move it away"), "{}", path.display());
        assert!(why(b"something else").contains("bodies.bin holds no bodies that this llmscen reads: it is no spool"));
    }
}
