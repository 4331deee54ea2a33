//! The clocks of the shards, and how a time on the clock of one becomes a time on that of another.
//!
//! Every shard counts time on its own monotonic clock since its own start. Time zero of a round is chosen on the
//! clock of shard 0, and `go/K` carries it together with a [`ClockReading`] of that clock: the monotonic clock of the
//! kernel and the wall clock, read together. Shards on the same kernel convert by the kernel's monotonic clock,
//! exactly. The others convert by their wall clocks, each read again in every round, and by the exchange of messages
//! where the kernels' wall clocks are not synchronized. After that, each process runs on its monotonic clock alone.

use crate::run::sharding::messages::Member;
use llmscen_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// While shards join, the wall clock of a kernel steps by less.
const GREATEST_STEP_NS: u64 = 10_000_000_000;

/// The clock that a group waits on.
pub trait GroupClock: Send + Sync {
    /// Time since the start of this process' run, monotonic.
    fn now(&self) -> Nanos;
    /// Waits.
    fn sleep(&self, span: Duration);
    /// The clocks of the kernel, read together with this one.
    fn read(&self) -> ClockReading;
    /// Starts a thread that waits on this clock.
    ///
    /// # Errors
    /// The system provides no thread.
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(name.into()).spawn(work)
    }
}

/// The clocks of one kernel at one instant, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Time since the start of the run.
    pub now: Nanos,
    /// Monotonic clock of the kernel.
    pub monotonic_ns: u64,
    /// Wall clock: time since the Unix epoch.
    pub unix_ns: u64,
    /// Estimated error of the wall clock; None if the kernel does not synchronize it.
    #[serde(default)]
    pub error_ns: Option<u64>,
}

impl ClockReading {
    /// The wall clock at the start of the run.
    pub(crate) fn unix_origin(&self) -> i64 {
        self.unix_ns as i64 - self.now.0 as i64
    }

    /// The kernel's monotonic clock at the start of the run.
    pub(super) fn monotonic_origin(&self) -> i64 {
        self.monotonic_ns as i64 - self.now.0 as i64
    }
}

/// The clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that counts from `origin`.
    pub fn new(origin: Instant) -> SystemClock {
        SystemClock { origin }
    }
}

impl GroupClock for SystemClock {
    fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    fn sleep(&self, span: Duration) {
        thread::sleep(span);
    }

    fn read(&self) -> ClockReading {
        let monotonic = || nanoseconds(rustix::time::ClockId::Monotonic);
        // The wall clock is read between two readings of the other: their middle is the time at which it was read.
        let (before, unix_ns, after) = (
            monotonic(),
            nanoseconds(rustix::time::ClockId::Realtime),
            monotonic(),
        );
        let (now, at) = (self.now(), monotonic());
        let monotonic_ns = before.midpoint(after);
        ClockReading {
            now: Nanos(now.0.saturating_sub(at - monotonic_ns)),
            monotonic_ns,
            unix_ns,
            error_ns: kernel_clock_error(),
        }
    }
}

fn nanoseconds(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Estimated error of the wall clock in nanoseconds, if the kernel synchronizes it (`adjtimex(2)`).
#[cfg(target_os = "linux")]
fn kernel_clock_error() -> Option<u64> {
    // SAFETY: every bit pattern of `timex` is valid, and with `modes: 0` the call only writes to it.
    #[allow(unsafe_code)]
    let (state, status) = unsafe {
        let mut status: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut status), status)
    };
    let synchronized =
        state >= 0 && state != libc::TIME_ERROR && status.status & libc::STA_UNSYNC == 0;
    // Microseconds.
    synchronized.then(|| u64::try_from(status.esterror).unwrap_or(0) * 1000)
}

#[cfg(not(target_os = "linux"))]
fn kernel_clock_error() -> Option<u64> {
    None
}

/// How the clock of a shard relates to that of shard 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Wall clock of this shard minus that of shard 0, as far as known, nanoseconds. Time zero is corrected by it.
    pub offset_ns: i64,
    /// Bound on the error of `offset_ns`, nanoseconds.
    pub bound_ns: u64,
    /// Where both come from.
    pub source: OffsetSource,
}

/// The source of a clock offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffsetSource {
    /// Both shards run on one kernel.
    #[default]
    BootId,
    /// Both kernels synchronize their clocks.
    Kernel,
    /// Messages through the store.
    Exchange,
}

impl OffsetSource {
    /// The best source for two shards.
    pub(super) fn between(first: &Member, other: &Member) -> OffsetSource {
        let same_kernel =
            first.facts.boot_id.is_some() && first.facts.boot_id == other.facts.boot_id;
        // Copies of one virtual machine have equal boot ids, but their clocks go on separately.
        let since_boot =
            |member: &Member| member.clock.unix_ns as i64 - member.clock.monotonic_ns as i64;
        let apart = since_boot(first).abs_diff(since_boot(other));
        if same_kernel && apart < GREATEST_STEP_NS {
            OffsetSource::BootId
        } else if first.clock.error_ns.is_some() && other.clock.error_ns.is_some() {
            OffsetSource::Kernel
        } else {
            OffsetSource::Exchange
        }
    }

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            OffsetSource::BootId => "boot id",
            OffsetSource::Kernel => "kernel",
            OffsetSource::Exchange => "exchange",
        }
    }
}

/// Bounds on the clock of this shard minus that of shard 0, from messages in both directions. No message is read
/// before it is written, so each one bounds the difference from one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OffsetInterval {
    pub least: i64,
    pub greatest: i64,
}

impl Default for OffsetInterval {
    fn default() -> OffsetInterval {
        OffsetInterval {
            least: i64::MIN,
            greatest: i64::MAX,
        }
    }
}

impl OffsetInterval {
    /// A message that this shard sent at `sent` of its clock and shard 0 received at `received` of its own.
    pub fn add_sent(&mut self, sent: i64, received: i64) {
        self.least = self.least.max(sent - received);
    }

    /// A message that shard 0 sent at `sent` of its clock and this shard received at `received` of its own.
    pub fn add_received(&mut self, sent: i64, received: i64) {
        self.greatest = self.greatest.min(received - sent);
    }

    /// Whether messages arrived in both directions.
    pub fn is_closed(&self) -> bool {
        self.least != i64::MIN && self.greatest != i64::MAX
    }

    pub fn middle(&self) -> i64 {
        self.least + (self.greatest - self.least) / 2
    }

    /// The interval of another pair of clocks, of which that of this shard is ahead by `shift` more.
    pub fn shifted(&self, shift: i64) -> OffsetInterval {
        OffsetInterval {
            least: self.least + shift,
            greatest: self.greatest + shift,
        }
    }

    /// The offset: the middle if the interval excludes zero, otherwise zero.
    pub fn offset(&self) -> ClockOffset {
        let (offset_ns, bound_ns) = if self.least > 0 || self.greatest < 0 {
            let width = (self.greatest - self.least).unsigned_abs();
            (self.middle(), width.div_ceil(2))
        } else {
            let bound = self.least.unsigned_abs().max(self.greatest.unsigned_abs());
            (0, bound)
        };
        ClockOffset {
            offset_ns,
            bound_ns,
            source: OffsetSource::Exchange,
        }
    }
}
