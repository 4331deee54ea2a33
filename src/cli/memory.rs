//! The allocator: where memory ends, the process ends with a message and the exit code of an error, and not by a signal.

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;

/// Exit code of an error that is not a verdict.
const ERROR: i32 = 3;
/// More than any machine has: whoever asks for that asks in error, and is refused.
const ABSURD: usize = 1 << 44;

/// Calls of a few KiB come and go among rows that stay; an allocator that keeps sizes apart fills the holes they leave.
pub struct Allocator;

#[expect(unsafe_code, reason = "an allocator is unsafe by its trait; each call is handed on as it came")]
// SAFETY: every call goes to `MiMalloc` unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        given(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { MiMalloc.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        given(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        given(unsafe { MiMalloc.realloc(pointer, layout, size) }, size)
    }
}

fn given(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && (1..ABSURD).contains(&size) {
        out_of_memory();
    }
    pointer
}

/// Must not allocate. Exit handlers may, so `_exit` skips them.
#[cold]
#[expect(unsafe_code, reason = "no other way ends a process without its handlers")]
fn out_of_memory() -> ! {
    let words = b"error: llmscen is out of memory. Raise its limit (`ulimit -v`, the memory of the container), or send fewer \
requests at a time; `llmscen report` reports what a run has measured so far.\n";
    let _ = std::io::stderr().write_all(words);
    // SAFETY: it never returns, and what is open is left to the system.
    unsafe { libc::_exit(ERROR) }
}
