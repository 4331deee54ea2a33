//! The allocator. Out of memory, the process exits with a message and exit code 3 instead of a signal.

pub mod scratch;

use llmscen_core::bounds::{count_allocated, count_freed};
use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::ptr;

/// [`crate::cli::Exit::Error`].
const EXIT_CODE: i32 = 3;
/// Larger requests are bugs of the caller, such as a corrupt length; they fail without ending the process.
const MAX_PLAUSIBLE_SIZE: usize = 1 << 44;

/// mimalloc: short-lived requests of a few KiB alternate with records that stay, and size classes avoid
/// fragmentation. Large blocks are in the scratch file while there is one.
pub struct Allocator;

#[expect(
    unsafe_code,
    reason = "the trait is unsafe; a block goes back to the allocator that it came from"
)]
// SAFETY: a block of the scratch file is recognized by its address, and every other block is one of `MiMalloc`.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        scratch::allocate(layout)
            .unwrap_or_else(|| check_allocated(unsafe { MiMalloc.alloc(layout) }, layout.size()))
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_freed(layout.size());
        if scratch::contains(pointer, layout) {
            scratch::free(pointer, layout);
        } else {
            unsafe { MiMalloc.dealloc(pointer, layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        scratch::allocate(layout).unwrap_or_else(|| {
            check_allocated(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
        })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller ensures that `size` is valid for this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !scratch::contains(pointer, layout) && !scratch::takes(new) {
            count_allocated(size);
            count_freed(layout.size());
            return check_allocated(unsafe { MiMalloc.realloc(pointer, layout, size) }, size);
        }
        if scratch::extend(pointer, layout, new) {
            return pointer;
        }
        // SAFETY: both blocks have at least the lesser of both sizes.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                ptr::copy_nonoverlapping(pointer, moved, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            moved
        }
    }
}

fn check_allocated(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && (1..MAX_PLAUSIBLE_SIZE).contains(&size) {
        exit_with(OUT_OF_MEMORY);
    }
    pointer
}

const OUT_OF_MEMORY: &[u8] = b"error: llmscen is out of memory\n  help: raise its limit (`ulimit \
    -v`, container memory) or lower the load; results so far are saved: llmscen report RUN_DIR\n";

/// Must not allocate. Exit handlers may allocate, so `_exit` skips them.
#[cold]
#[expect(
    unsafe_code,
    reason = "no other way ends a process without its handlers"
)]
fn exit_with(message: &[u8]) -> ! {
    let _ = std::io::stderr().write_all(message);
    // SAFETY: never returns; the system closes open files.
    unsafe { libc::_exit(EXIT_CODE) }
}
