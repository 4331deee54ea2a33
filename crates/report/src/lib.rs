//! Renders reports: strings and PNG bytes, never files.
//!
//! Every renderer is a pure function of a [`llmscen_core::report::Report`]: the same report gives the same bytes.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod baseline;
mod cases;
pub mod chart;
pub mod compare;
pub mod compat;
#[cfg(test)]
mod fixture;
pub mod format;
pub mod headline;
mod html;
mod json;
mod junit;
pub mod local;
mod markdown;
mod notes;
mod objectives;
mod percentiles;
mod plan;
pub mod repeats;
pub mod search;
mod server;
pub mod summary;
mod table;
pub mod tables;
mod telemetry;

pub use baseline::{NOISE_KEY, NOISE_SCHEMA, baseline, baseline_table, noise_json, noise_table};
pub use cases::case_table;
pub use chart::{Chart, charts};
pub use format::prose;
pub use headline::verdict_line;
pub use html::html;
pub use json::{json, results_schema};
pub use junit::{Inconclusive, junit};
pub use markdown::markdown;
pub use notes::correlation_lines;
pub use objectives::slo_table;
pub use plan::{plan_limits, plan_table};
pub use search::probe_table;
pub use server::server_lines;
pub use telemetry::lines as telemetry_lines;

use thiserror::Error;

/// A report could not be rendered. None of these is the measured server's doing.
#[derive(Debug, Error)]
pub enum ViewError {
    /// The Markdown template.
    #[error("the report template could not be rendered: {0}; use another report format, and report this as a defect")]
    Template(#[from] minijinja::Error),
    /// JUnit.
    #[error("junit.xml could not be written: {0}")]
    Junit(#[from] quick_junit::SerializeError),
    /// results.json, and the files in the form of other tools.
    #[error("JSON could not be written: {0}")]
    Json(#[from] serde_json::Error),
    /// A table in CSV or TSV.
    #[error("the tables could not be written: {0}")]
    Csv(#[from] csv::Error),
    /// A chart.
    #[error("chart `{name}` could not be drawn: {reason}; leave `png` and `svg` out of `report.formats` to go without charts")]
    Chart {
        /// File stem of the chart.
        name: &'static str,
        /// The renderer's words.
        reason: String,
    },
}
