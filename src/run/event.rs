//! The events of a run, for progress displays.

use crate::run::progress::Progress;
use crate::run::stop::Level;
use llmscen_core::early_stop::EarlyStop;
use llmscen_datasets::Progress as DataProgress;
use std::path::PathBuf;

/// An event, or a state to display.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A dataset, a model or a server is being prepared.
    Preparing(Preparing),
    /// The run folder is ready.
    Folder(PathBuf),
    /// A round of a case starts.
    CaseStarted {
        /// Case id.
        case: String,
        /// Its round, from 0.
        round: u32,
        /// Index among the parts of the run, from 0.
        part: usize,
        /// Number of parts of the run.
        parts: usize,
        /// Number of requests, or of sessions for conversations, if known.
        total: Option<u64>,
        /// Duration in seconds, if bounded by time.
        seconds: Option<f64>,
    },
    /// Live metrics of the running round.
    Progress(Progress),
    /// A round of a case ended.
    CaseEnded(Progress),
    /// A probe of a capacity search ended.
    Probed {
        /// Case id.
        case: String,
        /// Probability that every objective is met at this load; None: the probe is invalid.
        holds: Option<f64>,
    },
    /// The run is over; this is the last event.
    Done,
    /// A note for the user.
    Note(String),
    /// The round ends early.
    Ending(EarlyStop),
    /// A signal was received; the level of the switch.
    Stopping(Level),
}

/// A long preparation step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparing {
    /// `downloading`, `counting`, `preparing`, `loading the model` or `starting`.
    pub what: &'static str,
    /// `bytes`, `rows`, `sessions`, `requests` or `s` (elapsed seconds).
    pub unit: &'static str,
    /// Units so far.
    pub done: u64,
    /// Total units, if known.
    pub total: Option<u64>,
}

impl From<DataProgress> for Preparing {
    fn from(progress: DataProgress) -> Preparing {
        match progress {
            DataProgress::Download { bytes, total } => Preparing {
                what: "downloading",
                unit: "bytes",
                done: bytes,
                total,
            },
            DataProgress::Rows { done, total } => Preparing {
                what: "counting",
                unit: "rows",
                done,
                total,
            },
        }
    }
}

impl Preparing {
    /// The step and its object.
    pub fn words(&self) -> String {
        match (self.what, self.unit) {
            ("loading the model", _) => self.what.to_owned(),
            (what, "s") => format!("{what} the server"),
            (what, unit @ ("sessions" | "requests")) => format!("{what} {unit}"),
            (what, _) => format!("{what} the dataset"),
        }
    }
}
