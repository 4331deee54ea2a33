//! The one monotonic clock of a case.

use llmscen_core::units::Nanos;
use std::time::{Duration, Instant};

/// Nanoseconds since the start of the case.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose zero is `origin`.
    pub fn starting(origin: Instant) -> Clock {
        Clock { origin }
    }

    /// The present instant.
    pub fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    /// The instant `at` on the system's monotonic clock, for timers.
    pub fn instant(&self, at: Nanos) -> Instant {
        self.origin + Duration::from(at)
    }
}
