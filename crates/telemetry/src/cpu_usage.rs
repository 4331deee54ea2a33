//! Processor time that grows, as what it was used at.

use std::time::{Duration, Instant};

/// Between two readings at the least: the system counts some processor time in steps of 10 ms.
pub(super) const LEAST: Duration = Duration::from_millis(50);

/// How fast a count grows between two readings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    before: Option<(Instant, f64)>,
}

impl Pace {
    /// Growth per second since the last reading; None for the first, and where the last is too near to tell.
    pub fn since(&mut self, at: Instant, count: f64) -> Option<f64> {
        let Some((from, before)) = self.before else {
            self.before = Some((at, count));
            return None;
        };
        let span = at.checked_duration_since(from).filter(|span| *span >= LEAST)?;
        self.before = Some((at, count));
        Some((count - before).max(0.0) / span.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_needs_two_readings_that_lie_apart() {
        let (begin, mut pace) = (Instant::now(), Pace::default());
        let at = |millis| begin + Duration::from_millis(millis);
        let seen = [(0, 1.0), (49, 9.0), (100, 1.5), (140, 9.0), (200, 1.5), (300, 1.0)].map(|(ms, n)| pace.since(at(ms), n));
        assert_eq!(seen, [None, None, Some(5.0), None, Some(0.0), Some(0.0)], "a count that falls has not grown");
    }
}
