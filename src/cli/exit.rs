//! Exit codes: an interface for CI pipelines.

use std::process::ExitCode;

/// Result of a command. Several runs exit with the worst one, in the order of [`Exit::severity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: every objective is met.
    Pass,
    /// 1: an objective failed.
    Fail,
    /// 2: the scenario or the command line is wrong.
    Scenario,
    /// 3: the run failed.
    Error,
    /// 4: the measurement is invalid.
    Invalid,
    /// 5: inconclusive.
    Inconclusive,
    /// 130: interrupted; results so far are saved and reported.
    Interrupted,
}

impl Exit {
    /// The exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Fail => 1,
            Exit::Scenario => 2,
            Exit::Error => 3,
            Exit::Invalid => 4,
            Exit::Inconclusive => 5,
            Exit::Interrupted => 130,
        }
    }

    /// The result with this exit code.
    pub fn from_code(code: u8) -> Exit {
        let exits = [
            Exit::Pass,
            Exit::Fail,
            Exit::Scenario,
            Exit::Invalid,
            Exit::Inconclusive,
            Exit::Interrupted,
        ];
        exits
            .into_iter()
            .find(|exit| exit.code() == code)
            .unwrap_or(Exit::Error)
    }

    /// 130 > 2 > 3 > 4 > 1 > 5 > 0: after an interruption or a wrong scenario, other results are unreliable.
    fn severity(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Inconclusive => 1,
            Exit::Fail => 2,
            Exit::Invalid => 3,
            Exit::Error => 4,
            Exit::Scenario => 5,
            Exit::Interrupted => 6,
        }
    }

    /// The worse of the two.
    pub fn worst(self, other: Exit) -> Exit {
        if other.severity() > self.severity() {
            other
        } else {
            self
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_parses_back() {
        for (exit, code) in [
            (Exit::Pass, 0),
            (Exit::Fail, 1),
            (Exit::Scenario, 2),
            (Exit::Error, 3),
            (Exit::Invalid, 4),
            (Exit::Inconclusive, 5),
            (Exit::Interrupted, 130),
        ] {
            assert_eq!((exit.code(), Exit::from_code(code)), (code, exit));
        }
        assert_eq!(Exit::from_code(77), Exit::Error);
    }

    #[test]
    fn the_worst_wins() {
        let order = [
            Exit::Pass,
            Exit::Inconclusive,
            Exit::Fail,
            Exit::Invalid,
            Exit::Error,
        ];
        for pair in order.windows(2) {
            assert_eq!(pair[0].worst(pair[1]), pair[1]);
            assert_eq!(pair[1].worst(pair[0]), pair[1]);
        }
    }
}
