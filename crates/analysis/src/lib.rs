//! The request table and everything computed from it: metrics, samples, verdicts, comparisons, chart data.
//!
//! [`Table::build`] keeps the raw values of every request in a polars frame, one row each. All metrics are computed
//! from those rows alone, so a table that was written and read back gives the same ones.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer_cache;
mod answers;
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
mod output_lengths;
mod planned_load;
mod repeats;
mod reply_account;
mod request_row;
mod round;
mod sample;
mod scalars;
mod schema;
mod sending;
mod settle;
mod shards;
mod table;
pub mod telemetry;
mod timed_request;

pub use answer_cache::RepeatedPrompts;
pub use answers::answers_report;
pub use chart_data::{cdfs, chart_data, timelines};
pub use codec::StoredSize;
pub use columns::TaggedOutcome;
pub use csv::cases_csv;
pub use error::TableError;
pub use groups::{endpoint_reports, group_reports, header_reports};
pub use lateness::{Accepted, End, Lateness, idle_factor, measure_lateness, slow_down};
pub use local::{BatchMetrics, batch_metrics, speed_table};
pub use measured_requests::{
    MeasuredRequest, MeasuredRequests, RequestFields, RequestsBuilder, with_live_request,
};
pub use notes::{prompt_lengths, token_notes, token_source, window_notes};
pub use output_lengths::{finish_reasons, output_lengths};
pub use repeats::round_variances;
pub use reply_account::reply_account;
pub use sample::{Sample, failure_examples, sample_case, sample_round};
pub use sending::{Amounts, Flow, PER_USER, ThroughputWindow, Unit, WholeReason};
pub use settle::{discarded_start, truncation};
pub use shards::{ShardSample, shard_samples};
pub use table::{Builder, RowKey, Table};
pub use timed_request::{TimedRequest, timed_requests};

use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::units::Nanos;

/// A case with its manifest entries.
#[derive(Clone, Copy, Debug)]
pub struct CaseFacts<'a> {
    /// The case.
    pub case: &'a Case,
    /// The manifest's parts; those of other cases are skipped.
    pub parts: &'a [Part],
    /// The planned end of a stage; None for a case, whose load determines it.
    pub until: Option<Nanos>,
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;
