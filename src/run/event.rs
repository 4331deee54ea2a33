//! What a run says while it goes on, for whoever shows it.

use crate::run::collector::live_metrics::LiveTotals;
use crate::run::execution::stop::Level;
use llmscen_core::early_stop::Ending;
use std::path::PathBuf;

/// One thing that happened, or a state to show.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A dataset is being made ready, or a server.
    Preparing(Preparing),
    /// The run folder is ready.
    Folder(PathBuf),
    /// A round of a case begins.
    CaseStarted {
        /// Case id.
        case: String,
        /// Its round, from 0.
        round: u32,
        /// Its place among the parts of the run, from 0.
        part: usize,
        /// Parts of the run.
        parts: usize,
        /// Requests that it will schedule, or sessions of conversations, where that is known.
        total: Option<u64>,
        /// Seconds that it will last, where a duration bounds it.
        seconds: Option<f64>,
    },
    /// How it stands.
    Progress(Progress),
    /// A round of a case is over.
    CaseEnded(Progress),
    /// What the probe of a search that has just ended says of its load.
    Probed {
        /// Case id.
        case: String,
        /// The probability that every limit holds there; None: the probe measured the tool, not the server.
        holds: Option<f64>,
    },
    /// The run is over; nothing more comes.
    Done,
    /// Something a person should know.
    Note(String),
    /// The case ends early by its own decision.
    Ending(Ending),
    /// A signal was heard: the switch stands so.
    Stopping(Level),
}

/// A long step before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preparing {
    /// `downloading` or `counting`, of a dataset; `starting`, of a server.
    pub what: &'static str,
    /// `bytes` or `rows`; `s`: seconds so far.
    pub unit: &'static str,
    /// How many so far.
    pub done: u64,
    /// How many in all, where that is known.
    pub total: Option<u64>,
}

impl Preparing {
    /// What is done to what.
    pub fn words(&self) -> String {
        format!("{} the {}", self.what, if self.unit == "s" { "server" } else { "dataset" })
    }
}

/// The live figures of a round of a case. Counts and rates include its warm-up; spans leave it out once a measured request is
/// over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Requests that are over; of conversations, sessions.
    pub done: u64,
    /// Requests or sessions in all, where that is known.
    pub total: Option<u64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests finished per second since the case began.
    pub rate: f64,
    /// Token events per second since the figure before.
    pub tokens_per_s: f64,
    /// TTFT so far, milliseconds.
    pub ttft_ms_p50: Option<f64>,
    /// TTFT so far, milliseconds.
    pub ttft_ms_p99: Option<f64>,
    /// The median and the p99 of the TTFTs since the figure before, milliseconds.
    pub ttft_ms_latest: Option<(f64, f64)>,
    /// Gap between two token events so far, milliseconds.
    pub itl_ms_p50: Option<f64>,
    /// Gap between two token events so far, milliseconds.
    pub itl_ms_p99: Option<f64>,
    /// End-to-end latency so far, milliseconds.
    pub e2e_ms_p50: Option<f64>,
    /// End-to-end latency so far, milliseconds.
    pub e2e_ms_p99: Option<f64>,
    /// Seconds since the case began.
    pub elapsed_s: f64,
    /// Seconds left, as far as can be told.
    pub left_s: Option<f64>,
    /// What the round has come to, warm-up told apart.
    pub totals: LiveTotals,
}
