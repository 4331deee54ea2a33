//! Work on a stranger's input with limits on its memory and its time.
//!
//! The work runs on a thread of its own. A template engine does not ask whether it may go on, and an allocator must
//! not unwind, so a thread that exceeds a limit stops for ever within the allocator, and its memory stays in use.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{fmt, thread};

/// Maximum memory of one piece of work, bytes: a text of 64 MiB that grows by doubling takes three times as much.
const MEMORY: usize = 256 << 20;
/// Maximum time of one piece of work.
const TIME: Duration = Duration::from_secs(3);
/// Pieces of work in a process that may exceed a limit: what each took stays in use, so each halves the memory and
/// the time of the later ones, and after these no more is done.
const MAX_EXCEEDED: u32 = 3;
/// Stacks that are tried, bytes. Values that a template nests are dropped by recursion, a level at a time. A level
/// takes at least 64 bytes of memory and up to 500 of stack, and two steps of a template. Pages that are not touched
/// take no memory.
const STACKS: [usize; 3] = [1 << 30, 256 << 20, 64 << 20];
/// Stack from the beginning of a thread to where it may still allocate: values that are written are not nested
/// deeper. A text that grows allocates at powers of two only, so twice as much may be used.
const WRITING_STACK: usize = 24 << 20;
/// How often the caller looks whether the memory is exceeded.
const POLL: Duration = Duration::from_millis(20);

/// Pieces of work in this process that exceeded a limit.
static EXCEEDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Bytes that this thread may still allocate.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// The lowest address that the stack of this thread may reach where it allocates.
    static FLOOR: Cell<usize> = const { Cell::new(0) };
    /// What this thread shares with its caller, if it has a limit.
    static SHARED: Cell<Option<&'static Shared>> = const { Cell::new(None) };
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

#[derive(Debug, Default)]
struct Shared {
    /// The thread has stopped because of its memory.
    is_full: AtomicBool,
    /// The thread has stopped because of its stack.
    is_deep: AtomicBool,
    /// The caller no longer waits.
    is_abandoned: AtomicBool,
}

struct Worker {
    work: Sender<Box<dyn FnOnce() + Send>>,
    shared: &'static Shared,
    /// Maximum memory, bytes: less than [`MEMORY`] where the system does not allow the stack for it.
    memory: usize,
}

/// The name of the threads.
pub const THREAD: &str = "limited";

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// Bytes.
    Memory(usize),
    /// Time.
    Time(Duration),
    /// Nested values, or a value that contains itself.
    Depth,
    /// Others exceeded their limits before.
    Others,
    /// The work panicked, or no thread could be started.
    Failed,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exceeded::Memory(bytes) => {
                write!(
                    f,
                    "takes more than {} of memory",
                    super::size(*bytes as u64)
                )
            }
            Exceeded::Time(time) => write!(f, "takes more than {} s", time.as_secs_f64()),
            Exceeded::Depth => f.write_str("nests values too deep, or a value contains itself"),
            Exceeded::Others => {
                f.write_str("is not processed, because others exceeded their limits")
            }
            Exceeded::Failed => f.write_str("could not be processed"),
        }
    }
}

/// Counts memory that this thread allocates. The allocator of the process calls it before it allocates; beyond the
/// limit of the thread, it does not return.
pub fn count_allocated(bytes: usize) {
    let left = LEFT.try_with(Cell::get).ok().flatten();
    if let Some(left) = left {
        match left.checked_sub(bytes) {
            Some(left) => set_left(left),
            None => stop(|shared| &shared.is_full),
        }
        let shared = SHARED.try_with(Cell::get).ok().flatten();
        if shared.is_some_and(|shared| shared.is_abandoned.load(Ordering::Relaxed)) {
            stop(|shared| &shared.is_abandoned);
        }
        let floor = FLOOR.try_with(Cell::get).unwrap_or_default();
        if address_of_stack() < floor {
            stop(|shared| &shared.is_deep);
        }
    }
}

/// Counts memory that this thread frees.
pub fn count_freed(bytes: usize) {
    let left = LEFT.try_with(Cell::get).ok().flatten();
    if let Some(left) = left {
        set_left(left.saturating_add(bytes));
    }
}

fn set_left(bytes: usize) {
    _ = LEFT.try_with(|left| left.set(Some(bytes)));
}

#[inline(never)]
fn address_of_stack() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

#[cold]
fn stop(reason: fn(&Shared) -> &AtomicBool) -> ! {
    if let Some(shared) = SHARED.try_with(Cell::get).ok().flatten() {
        reason(shared).store(true, Ordering::Relaxed);
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Does a piece of work with limits on its memory and its time. Memory is limited where the allocator of the process
/// counts it.
///
/// # Errors The work exceeded a limit.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exceeded> {
    let exceeded = EXCEEDED.load(Ordering::Relaxed);
    if exceeded >= MAX_EXCEEDED {
        return Err(Exceeded::Others);
    }
    let worker = WORKER.take().map_or_else(Worker::start, Ok);
    let worker = worker.map_err(|_| Exceeded::Failed)?;
    let (memory, time) = (worker.memory >> exceeded, TIME / (1 << exceeded));
    let (result, received) = channel();
    let job = move || {
        set_left(memory);
        let done = work();
        _ = LEFT.try_with(|left| left.set(None));
        _ = result.send(done);
    };
    worker
        .work
        .send(Box::new(job))
        .map_err(|_| Exceeded::Failed)?;
    let mut polls = time.as_millis().div_ceil(POLL.as_millis());
    let exceeded = loop {
        match received.recv_timeout(POLL) {
            Ok(done) => {
                WORKER.set(Some(worker));
                return Ok(done);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Exceeded::Failed),
            Err(RecvTimeoutError::Timeout) => polls = polls.saturating_sub(1),
        }
        if worker.shared.is_full.load(Ordering::Relaxed) {
            break Exceeded::Memory(memory);
        }
        if worker.shared.is_deep.load(Ordering::Relaxed) {
            break Exceeded::Depth;
        }
        if polls == 0 {
            break Exceeded::Time(time);
        }
    };
    worker.shared.is_abandoned.store(true, Ordering::Relaxed);
    EXCEEDED.fetch_add(1, Ordering::Relaxed);
    Err(exceeded)
}

impl Worker {
    fn start() -> std::io::Result<Worker> {
        let mut started = Worker::with_stack(STACKS[0]);
        for size in &STACKS[1..] {
            started = started.or_else(|_| Worker::with_stack(*size));
        }
        started
    }

    fn with_stack(size: usize) -> std::io::Result<Worker> {
        // It outlives the caller where it is abandoned.
        let shared: &'static Shared = Box::leak(Box::default());
        let (work, received) = channel::<Box<dyn FnOnce() + Send>>();
        let serve = move || {
            SHARED.set(Some(shared));
            FLOOR.set(address_of_stack().saturating_sub(WRITING_STACK));
            for work in received {
                work();
            }
        };
        thread::Builder::new()
            .name(THREAD.to_owned())
            .stack_size(size)
            .spawn(serve)?;
        Ok(Worker {
            work,
            shared,
            memory: match size == STACKS[0] {
                true => MEMORY,
                false => size / 8,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_its_result_or_the_limit_that_it_exceeded() {
        assert_eq!(run(|| 7), Ok(7));
        let allocates = || {
            count_allocated(300 << 20);
            7
        };
        assert_eq!(run(allocates), Err(Exceeded::Memory(MEMORY)));
        let frees = || {
            for _ in 0..100 {
                count_allocated(20 << 20);
                count_freed(20 << 20);
            }
            7
        };
        assert_eq!(run(frees), Ok(7));
        let waits = || thread::sleep(Duration::from_secs(60));
        assert_eq!(run(waits), Err(Exceeded::Time(TIME / 2)));
        fn descend(depth: u64) -> u64 {
            count_allocated(1);
            match std::hint::black_box(depth) {
                u64::MAX => 0,
                own => own + descend(own + 1),
            }
        }
        assert_eq!(run(|| descend(0)), Err(Exceeded::Depth));
        assert_eq!(run(|| 8), Err(Exceeded::Others));
        EXCEEDED.store(0, Ordering::Relaxed);
        let panics = || -> u8 { std::panic::resume_unwind(Box::new("")) };
        assert_eq!(run(panics), Err(Exceeded::Failed));
        assert_eq!(run(|| 8), Ok(8));
    }
}
