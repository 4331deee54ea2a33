//! The events of a run, for progress displays.

use crate::run::collector::live_metrics::LiveTotals;
use crate::run::execution::stop::Level;
use llmscen_core::early_stop::EarlyStop;
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
    /// `downloading`, `counting`, `loading the model` or `starting`.
    pub what: &'static str,
    /// `bytes`, `rows` or `s` (elapsed seconds).
    pub unit: &'static str,
    /// Units so far.
    pub done: u64,
    /// Total units, if known.
    pub total: Option<u64>,
}

impl Preparing {
    /// The step and its object.
    pub fn words(&self) -> String {
        match (self.what, self.unit) {
            ("loading the model", _) => self.what.to_owned(),
            (what, "s") => format!("{what} the server"),
            (what, _) => format!("{what} the dataset"),
        }
    }
}

/// The live metrics of a round. Counts and rates include the warm-up; latencies exclude it once a measured request has finished.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Finished requests, or sessions for conversations.
    pub done: u64,
    /// Planned requests or sessions, if known.
    pub total: Option<u64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Failed requests.
    pub errors: u64,
    /// Finished requests per second since the start of the round.
    pub rate: f64,
    /// Token events per second since the previous event.
    pub tokens_per_s: f64,
    /// Median TTFT so far, milliseconds.
    pub ttft_ms_p50: Option<f64>,
    /// TTFT p99 so far, milliseconds.
    pub ttft_ms_p99: Option<f64>,
    /// Median and p99 of the TTFTs since the previous event, milliseconds.
    pub ttft_ms_latest: Option<(f64, f64)>,
    /// Median ITL so far, milliseconds.
    pub itl_ms_p50: Option<f64>,
    /// ITL p99 so far, milliseconds.
    pub itl_ms_p99: Option<f64>,
    /// Median end-to-end latency so far, milliseconds.
    pub e2e_ms_p50: Option<f64>,
    /// End-to-end latency p99 so far, milliseconds.
    pub e2e_ms_p99: Option<f64>,
    /// Seconds since the start of the round.
    pub elapsed_s: f64,
    /// Estimated remaining seconds.
    pub left_s: Option<f64>,
    /// Totals of the round, with the warm-up counted separately.
    pub totals: LiveTotals,
}
