//! The allocator. Out of memory, the process exits with a message and exit code 3 instead of a signal.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;

/// [`crate::cli::Exit::Error`].
const EXIT_CODE: i32 = 3;
/// Larger requests are bugs of the caller, such as a corrupt length; they fail without ending the process.
const MAX_PLAUSIBLE_SIZE: usize = 1 << 44;

/// mimalloc: short-lived requests of a few KiB alternate with records that stay, and size classes avoid fragmentation.
pub struct Allocator;

#[expect(
    unsafe_code,
    reason = "the trait is unsafe; each call is forwarded unchanged"
)]
// SAFETY: every call goes to `MiMalloc` unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check_allocated(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check_allocated(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check_allocated(unsafe { MiMalloc.realloc(pointer, layout, size) }, size)
    }
}

fn check_allocated(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && (1..MAX_PLAUSIBLE_SIZE).contains(&size) {
        out_of_memory();
    }
    pointer
}

/// Must not allocate. Exit handlers may allocate, so `_exit` skips them.
#[cold]
#[expect(
    unsafe_code,
    reason = "no other way ends a process without its handlers"
)]
fn out_of_memory() -> ! {
    let message = b"error: llmscen is out of memory\n  help: raise its limit (`ulimit -v`, container memory) or lower the load; \
results so far are saved: llmscen report RUN_DIR\n";
    let _ = std::io::stderr().write_all(message);
    // SAFETY: never returns; the system closes open files.
    unsafe { libc::_exit(EXIT_CODE) }
}
