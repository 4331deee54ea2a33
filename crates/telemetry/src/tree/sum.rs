//! A count of several processes, which goes on growing while they come and go.

/// What the processes of a tree counted together, from the first sample on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sum(u64);

impl Sum {
    /// Adds what was counted since the last sample: `now` is what those alive stand at, `before` what those alive then stood
    /// at, and `living` the part of it of those that still are.
    ///
    /// A process that ended and was waited for is counted by its parent from then on. One that nobody waits for takes its
    /// count with it; then what the others did is added, and what it did last is lost.
    pub fn grow(&mut self, now: u64, before: u64, living: u64) -> u64 {
        self.0 += now.checked_sub(before).unwrap_or_else(|| now.saturating_sub(living));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_falls() {
        let mut sum = Sum::default();
        assert_eq!(sum.grow(100, 0, 0), 100, "the first sample: all so far");
        assert_eq!(sum.grow(130, 100, 100), 130);
        assert_eq!(sum.grow(140, 130, 70), 140, "60 were waited for by somebody who counts them now");
        assert_eq!(sum.grow(75, 140, 70), 145, "70 went unseen, the rest did 5");
        assert_eq!(sum.grow(10, 75, 20), 145);
    }
}
