//! The exit codes: an interface that CI pipelines gate on.

use std::process::ExitCode;

/// How the program ends. The worst of several runs wins, in the order of [`Exit::severity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: every limit holds.
    Pass,
    /// 1: a limit is broken.
    Fail,
    /// 2: the scenario or the command line is wrong.
    Scenario,
    /// 3: the run could not be carried out.
    Error,
    /// 4: the measurement is not sound.
    Invalid,
    /// 5: too few samples to say.
    Inconclusive,
    /// 130: interrupted; what there was is saved and reported.
    Interrupted,
}

impl Exit {
    /// The number.
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

    /// The meaning of a report's exit code.
    pub fn of_code(code: u8) -> Exit {
        let all = [Exit::Pass, Exit::Fail, Exit::Scenario, Exit::Invalid, Exit::Inconclusive, Exit::Interrupted];
        all.into_iter().find(|exit| exit.code() == code).unwrap_or(Exit::Error)
    }

    /// 130 > 2 > 3 > 4 > 1 > 5 > 0: an interruption and a wrong scenario say that nothing else can be relied on.
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

    /// The worse of two.
    pub fn worst(self, other: Exit) -> Exit {
        if other.severity() > self.severity() { other } else { self }
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
    fn every_code_is_documented_and_parses_back() {
        for (exit, code) in [
            (Exit::Pass, 0),
            (Exit::Fail, 1),
            (Exit::Scenario, 2),
            (Exit::Error, 3),
            (Exit::Invalid, 4),
            (Exit::Inconclusive, 5),
            (Exit::Interrupted, 130),
        ] {
            assert_eq!((exit.code(), Exit::of_code(code)), (code, exit));
        }
        assert_eq!(Exit::of_code(77), Exit::Error);
    }

    #[test]
    fn the_worst_wins() {
        let order = [Exit::Pass, Exit::Inconclusive, Exit::Fail, Exit::Invalid, Exit::Error];
        for pair in order.windows(2) {
            assert_eq!(pair[0].worst(pair[1]), pair[1]);
            assert_eq!(pair[1].worst(pair[0]), pair[1]);
        }
    }
}
