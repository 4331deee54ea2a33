//! What the rounds recorded, as a file of the run folder while it runs.

use crate::run::error::RunError;
use crate::store::{READINGS, RunDir};
use llmscen_analysis::telemetry;
use llmscen_core::telemetry::Recorded;
use std::time::{Duration, Instant};

/// Times as long as the writing took, it is not written again: the file holds all rounds and is written anew each time. So it
/// takes less than 5 % of the time; a run that is killed lacks what was sampled since.
const REST: u32 = 20;

/// Writes the file as the run goes on.
#[derive(Debug, Default)]
pub struct Keeper {
    /// When it may be written next; None: at once.
    due: Option<Instant>,
}

impl Keeper {
    /// Writes the rounds so far, in the order in which they ran, unless that was done a moment ago; [`write`] does at the end.
    /// True where it was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&mut self, folder: &RunDir, recorded: &[Recorded], now: Instant) -> Result<bool, RunError> {
        if self.due.is_some_and(|due| now < due) {
            return Ok(false);
        }
        let began = Instant::now();
        write(folder, recorded)?;
        self.rest(now, began.elapsed());
        Ok(true)
    }

    /// After a writing that began at `now` and took so long.
    fn rest(&mut self, now: Instant, took: Duration) {
        self.due = now.checked_add(took.saturating_mul(REST + 1));
    }
}

/// Writes what the rounds have recorded into the run folder, whole or not at all; nothing where nothing was read.
///
/// # Errors
/// It cannot be written.
pub fn write(folder: &RunDir, recorded: &[Recorded]) -> Result<(), RunError> {
    if recorded.iter().all(|own| own.readings.is_empty()) {
        return Ok(());
    }
    Ok(folder.write_listed(READINGS, &telemetry::write(recorded)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Where;
    use llmscen_core::telemetry::{Reading, Source};

    #[test]
    fn a_file_that_took_long_is_not_written_again_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let folder = RunDir::create(&Where { explicit: Some(&path), dir: place.path(), name: "t", started: "", force: false });
        let folder = folder.unwrap();
        let reading =
            Reading { at_ns: 1, source: Source::Host, name: "host.cpu".into(), labels: "".into(), device: None, value: 0.5 };
        let round = |round| Recorded { case: "a".into(), round, readings: vec![reading.clone()] };
        let held = || telemetry::read(std::fs::read(path.join(READINGS)).unwrap()).unwrap().len();
        let (mut keeper, now) = (Keeper::default(), Instant::now());
        assert!(keeper.keep(&folder, &[round(0)], now).unwrap());
        keeper.rest(now, Duration::from_secs(1));
        let two = [round(0), round(1)];
        assert!(!keeper.keep(&folder, &two, now + Duration::from_millis(20_999)).unwrap());
        assert_eq!(held(), 1);
        assert!(keeper.keep(&folder, &two, now + Duration::from_secs(21)).unwrap());
        assert_eq!(held(), 2);
    }

    #[test]
    fn nothing_that_was_read_makes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let at = Where { explicit: Some(&path), dir: place.path(), name: "t", started: "", force: false };
        write(&RunDir::create(&at).unwrap(), &[Recorded::default()]).unwrap();
        assert!(!path.join(READINGS).exists());
    }
}
