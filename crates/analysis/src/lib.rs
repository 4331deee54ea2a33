//! Outcomes as a polars frame, and what is taken from it.
//!
//! [`Table::build`] keeps the raw facts of every request, one row each; every figure is taken from those rows and nothing
//! else, so a table that was written and read back gives the same ones. This room is the only door to polars.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cells;
mod chart_data;
mod codec;
mod columns;
mod csv;
mod error;
mod groups;
mod in_flight;
pub mod judge;
mod lateness;
mod local;
mod measured_requests;
mod notes;
mod repeats;
mod request_row;
mod round;
mod sample;
mod scalars;
mod schema;
mod sending;
mod settle;
mod table;
pub mod telemetry;
mod timed_request;

pub use chart_data::{cdfs, pictures, timelines};
pub use csv::cases_csv;
pub use error::FrameError;
pub use groups::groups;
pub use lateness::{Accepted, End, Lateness, lateness};
pub use local::{Worked, speed, worked};
pub use measured_requests::{MeasuredRequest, MeasuredRequests, RequestFields};
pub use notes::{notes, prompt_lengths, token_source};
pub use repeats::repeats;
pub use sample::{Amounts, Flow, Sample, failures, round_sample, sample};
pub use settle::{discarded, truncation};
pub use table::{Builder, Table, Tagged};
pub use timed_request::{TimedRequest, timed_requests};

use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::units::Nanos;

/// What is known of a case besides its rows.
#[derive(Clone, Copy, Debug)]
pub struct CaseFacts<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its parts; those of other cases are passed over.
    pub parts: &'a [Part],
    /// Of a stage, when it ended by plan; None: the load of the case says it.
    pub until: Option<Nanos>,
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
