//! A scratch file for data that are larger than memory. Large blocks of memory are parts of the file, so the system
//! can write them to disk, and read them again, as it does with swap space.

use std::alloc::Layout;
use std::io;
use std::path::Path;

static SCRATCH: map::Map = map::Map::new();

/// Blocks below this size, in bytes, are not in the file.
pub(super) const MIN_BLOCK: usize = 1 << 20;

/// Creates the scratch file in this folder. From now on, every large block of this process is in the file. The file
/// has no name: the space is free again when the process ends, however it ends.
///
/// # Errors
/// The folder has less free space than `bytes`, is in memory itself, or has a file system that cannot reserve space
/// in a file.
pub fn open(folder: &Path, bytes: u64) -> io::Result<()> {
    SCRATCH.open(folder, bytes)
}

/// Whether a block with this layout belongs in the file.
pub(super) fn takes(layout: Layout) -> bool {
    layout.size() >= MIN_BLOCK && SCRATCH.is_open()
}

/// Whether the file contains a block that was allocated with this layout.
pub(super) fn contains(pointer: *mut u8, layout: Layout) -> bool {
    layout.size() >= MIN_BLOCK && SCRATCH.contains(pointer.addr())
}

/// A block of zeros in the file; None if it belongs elsewhere. If the disk is full, the process ends: memory would
/// not last either.
pub(super) fn allocate(layout: Layout) -> Option<*mut u8> {
    takes(layout).then(|| SCRATCH.allocate(layout)).flatten()
}

/// Gives the space of a block back to the file system.
pub(super) fn free(pointer: *mut u8, layout: Layout) {
    SCRATCH.free(pointer.addr(), layout.size());
}

/// Changes the size of a block in place. False if the block must move.
pub(super) fn extend(pointer: *mut u8, old: Layout, new: Layout) -> bool {
    contains(pointer, old) && takes(new) && SCRATCH.resize(pointer.addr(), old.size(), new.size())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the mapping is a raw address range")]
mod map {
    use crate::memory::exit_with;
    use rustix::fd::{AsFd, BorrowedFd};
    use rustix::fs::{FallocateFlags, fallocate, fstatfs, fstatvfs, ftruncate};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::process::{Resource, getrlimit};
    use std::alloc::Layout;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::path::Path;
    use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};
    use std::{io, ptr};

    /// Addresses per byte that is in use at once: no block gets the addresses of a freed one. The file is sparse.
    const ADDRESSES: u64 = 256;
    const MAX_LENGTH: u64 = 1 << 43;
    /// A mapping is aligned to a page, which has at least this size in bytes.
    const PAGE: usize = 4096;
    /// `f_type` of file systems in memory (linux/magic.h).
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    const DISK_FULL: &[u8] = b"error: the disk of the scratch file is full\n  help: free space on \
    it, or choose a folder on another disk with --output\n";
    /// Sizes and addresses are multiples, in bytes. Every page size of Linux divides it.
    const UNIT: usize = 1 << 16;

    /// A mapped file, which is never closed.
    pub(super) struct Map {
        /// Start of the mapping; null until there is one.
        base: AtomicPtr<u8>,
        /// Its length in bytes.
        length: AtomicUsize,
        /// Offset of the next block.
        next: AtomicUsize,
        file: AtomicI32,
    }

    impl Map {
        pub(super) const fn new() -> Map {
            Map {
                base: AtomicPtr::new(ptr::null_mut()),
                length: AtomicUsize::new(0),
                next: AtomicUsize::new(0),
                file: AtomicI32::new(-1),
            }
        }

        pub(super) fn open(&self, folder: &Path, bytes: u64) -> io::Result<()> {
            if self.is_open() {
                return Ok(());
            }
            let file = tempfile::tempfile_in(folder)?;
            if IN_MEMORY.contains(&(fstatfs(&file)?.f_type as u64)) {
                return Err(io::Error::other("the folder is in memory itself (tmpfs)"));
            }
            let space = fstatvfs(&file)?;
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            if free < bytes {
                let free = free as f64 / 1e9;
                return Err(io::Error::other(format!(
                    "the disk has {free:.1} GB of free space"
                )));
            }
            let length = bytes.max(1 << 20).saturating_mul(ADDRESSES).min(MAX_LENGTH);
            // A longer file than the limit would end the process by a signal.
            if getrlimit(Resource::Fsize)
                .current
                .is_some_and(|limit| limit < length)
            {
                return Err(io::Error::other(
                    "the size of files is limited (`ulimit -f`)",
                ));
            }
            let named = |step: &str, error: io::Error| io::Error::other(format!("{step}: {error}"));
            ftruncate(&file, length)
                .map_err(|error| named("no sparse file can be created", error.into()))?;
            reserve(&file, 0, UNIT)
                .and_then(|()| punch(&file, 0, UNIT))
                .map_err(|error| named("no space can be reserved in a file", error.into()))?;
            let length = length as usize;
            // SAFETY: a new mapping of a file that has no name, so no other process changes it.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED | libc::MAP_NORESERVE,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                return Err(named("the file cannot be mapped (`ulimit -v`?)", error));
            }
            self.length.store(length, Ordering::Relaxed);
            self.file.store(file.into_raw_fd(), Ordering::Relaxed);
            self.base.store(base.cast(), Ordering::Release);
            Ok(())
        }

        pub(super) fn is_open(&self) -> bool {
            !self.base.load(Ordering::Acquire).is_null()
        }

        pub(super) fn contains(&self, address: usize) -> bool {
            self.is_open()
                && self
                    .offset(address)
                    .is_some_and(|offset| offset < self.length())
        }

        pub(super) fn allocate(&self, layout: Layout) -> Option<*mut u8> {
            let size = whole_units(layout.size()).filter(|_| layout.align() <= PAGE)?;
            let next = |offset: usize| offset.checked_add(size).filter(|end| *end <= self.length());
            let offset = self
                .next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
                .ok()?;
            // A write to a page without space on the disk would end the process by a signal.
            if reserve(self.file(), offset, size).is_err() {
                exit_with(DISK_FULL);
            }
            // SAFETY: the block is within the mapping.
            Some(unsafe { self.base.load(Ordering::Acquire).add(offset) })
        }

        pub(super) fn free(&self, address: usize, size: usize) {
            if let Some((offset, size)) = self.offset(address).zip(whole_units(size)) {
                let _ = punch(self.file(), offset, size);
            }
        }

        pub(super) fn resize(&self, address: usize, old: usize, new: usize) -> bool {
            let sizes = whole_units(old).zip(whole_units(new));
            let Some((offset, (old, new))) = self.offset(address).zip(sizes) else {
                return false;
            };
            if new <= old {
                let _ = punch(self.file(), offset + new, old - new);
                return true;
            }
            // Only the newest block can grow.
            let grow = |next: usize| {
                (next == offset + old && offset + new <= self.length()).then_some(offset + new)
            };
            self.next
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow)
                .is_ok()
                && reserve(self.file(), offset + old, new - old).is_ok()
        }

        fn length(&self) -> usize {
            self.length.load(Ordering::Relaxed)
        }

        fn offset(&self, address: usize) -> Option<usize> {
            address.checked_sub(self.base.load(Ordering::Acquire).addr())
        }

        fn file(&self) -> BorrowedFd<'_> {
            // SAFETY: the file is open if there is a mapping, and is never closed.
            unsafe { BorrowedFd::borrow_raw(self.file.load(Ordering::Relaxed)) }
        }
    }

    fn whole_units(size: usize) -> Option<usize> {
        size.checked_next_multiple_of(UNIT)
    }

    fn reserve(file: impl AsFd, offset: usize, size: usize) -> Result<(), Errno> {
        let (file, flags) = (file.as_fd(), FallocateFlags::empty());
        retry_on_intr(|| fallocate(file, flags, offset as u64, size as u64))
    }

    fn punch(file: impl AsFd, offset: usize, size: usize) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = file.as_fd();
        match size {
            0 => Ok(()),
            _ => retry_on_intr(|| fallocate(file, flags, offset as u64, size as u64)),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn opened() -> Map {
            let (map, folder) = (Map::new(), tempfile::tempdir().unwrap());
            map.open(folder.path(), 1 << 20).unwrap();
            map
        }

        fn layout(size: usize) -> Layout {
            Layout::from_size_align(size, 64).unwrap()
        }

        /// The bytes of a block.
        fn bytes<'a>(block: *mut u8, size: usize) -> &'a mut [u8] {
            // SAFETY: the map of the test has a block of this size.
            unsafe { std::slice::from_raw_parts_mut(block, size) }
        }

        fn disk_blocks(map: &Map) -> u64 {
            rustix::fs::fstat(map.file()).unwrap().st_blocks as u64
        }

        #[test]
        fn blocks_keep_their_bytes_and_the_newest_one_grows_in_place() {
            let map = opened();
            let [first, second] = [(); 2].map(|()| map.allocate(layout(100_000)).unwrap());
            bytes(first, 100_000).fill(1);
            assert!(bytes(second, 100_000).iter().all(|byte| *byte == 0));
            bytes(second, 100_000).fill(2);
            assert!(!map.resize(first.addr(), 100_000, 200_000));
            assert!(map.resize(second.addr(), 100_000, 3_000_000));
            bytes(second, 3_000_000)[100_000..].fill(3);
            assert!(bytes(first, 100_000).iter().all(|byte| *byte == 1));
            assert!(bytes(second, 100_000).iter().all(|byte| *byte == 2));
            assert!(map.contains(first.addr()) && map.contains(second.addr()));
            assert!(!map.contains(std::ptr::from_ref(&map).addr()));
        }

        #[test]
        fn a_freed_or_shortened_block_needs_no_space_on_the_disk() {
            let map = opened();
            let empty = disk_blocks(&map);
            let block = map.allocate(layout(8 << 20)).unwrap();
            bytes(block, 8 << 20).fill(1);
            assert!(disk_blocks(&map) >= empty + (8 << 20) / 512);
            assert!(map.resize(block.addr(), 8 << 20, 1 << 20));
            assert!(disk_blocks(&map) < empty + (2 << 20) / 512);
            assert!(bytes(block, 1 << 20).iter().all(|byte| *byte == 1));
            map.free(block.addr(), 1 << 20);
            assert_eq!(disk_blocks(&map), empty);
        }

        #[test]
        fn too_little_free_space_is_an_error() {
            let (map, folder) = (Map::new(), tempfile::tempdir().unwrap());
            let error = map.open(folder.path(), u64::MAX).unwrap_err().to_string();
            assert!(
                error.starts_with("the disk has ") && error.ends_with(" GB of free space"),
                "{error}"
            );
            assert!(!map.is_open() && !map.contains(0));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod map {
    use std::alloc::Layout;
    use std::io;
    use std::path::Path;

    pub(super) struct Map;

    impl Map {
        pub(super) const fn new() -> Map {
            Map
        }

        pub(super) fn open(&self, _: &Path, _: u64) -> io::Result<()> {
            Err(io::Error::other(
                "scratch files for memory exist on Linux only",
            ))
        }

        pub(super) fn is_open(&self) -> bool {
            false
        }

        pub(super) fn contains(&self, _: usize) -> bool {
            false
        }

        pub(super) fn allocate(&self, _: Layout) -> Option<*mut u8> {
            None
        }

        pub(super) fn free(&self, _: usize, _: usize) {}

        pub(super) fn resize(&self, _: usize, _: usize, _: usize) -> bool {
            false
        }
    }
}
