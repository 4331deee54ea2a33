//! Renders reports: strings and PNG bytes, never files.
//!
//! Every renderer is a pure function of a [`llmscen_core::report::Report`]: the same report gives the same bytes.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod baseline;
mod baseline_table;
pub mod chart;
pub mod compare;
pub mod compat;
pub mod correlation;
mod dataset_end;
mod doubt;
mod error;
mod escape;
mod failed;
#[cfg(test)]
mod fixture;
pub mod format;
pub mod grid;
mod groups;
pub mod headline;
mod html;
mod json;
mod junit;
mod limits;
pub mod local;
mod markdown;
mod missing_values;
mod names;
mod noise;
mod percentiles;
mod probes;
mod relative;
pub mod repeats;
mod retry;
pub mod search;
mod server;
mod sheet;
pub mod summary;
mod table;
mod telemetry;
mod terminal;

pub use baseline::baseline;
pub use baseline_table::baseline_table;
pub use chart::{Chart, charts};
pub use error::ViewError;
pub use escape::prose;
pub use html::html;
pub use json::{json, results_schema};
pub use junit::{Inconclusive, junit};
pub use limits::plan_limits;
pub use markdown::markdown;
pub use noise::{NOISE_KEY, NOISE_SCHEMA, noise_json, noise_table};
pub use probes::probe_table;
pub use server::server_lines;
pub use telemetry::lines as telemetry_lines;
pub use terminal::{case_table, plan_table, slo_table, verdict_line};
