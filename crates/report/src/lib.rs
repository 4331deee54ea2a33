//! Renders a [`llmscen_core::report::Report`] as terminal tables, Markdown, HTML, JSON, JUnit, CSV and charts.
//!
//! The renderers return strings and bytes and write no files. The same report gives the same bytes.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answers;
mod audit;
mod baseline;
mod capacity;
mod cases;
pub mod chart;
mod commands;
pub mod compare;
mod dimensions;
mod environment;
mod findings;
#[cfg(test)]
mod fixture;
pub mod format;
pub mod headline;
pub mod history;
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
mod replies;
pub mod screen;
mod search;
mod server;
pub mod shards;
pub mod summary;
mod table;
pub mod tables;
mod telemetry;
mod workers;

pub use baseline::{NOISE_KEY, NOISE_SCHEMA, baseline, baseline_table, noise_json, noise_table};
pub use cases::case_table;
pub use chart::{Chart, charts};
pub use format::prose;
pub use headline::verdict_line;
pub use html::html;
pub use json::{SCHEMA_NAME, json, results_schema};
pub use junit::{Inconclusive, junit};
pub use markdown::markdown;
pub use notes::correlation_lines;
pub use objectives::slo_table;
pub use plan::{plan_distributions, plan_endpoints, plan_limits, plan_reruns, plan_table};

use thiserror::Error;

/// A report could not be rendered.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The Markdown or HTML template.
    #[error(
        "cannot render the report template: {0}; use another report format. This is a bug in llmscen"
    )]
    Template(#[from] minijinja::Error),
    /// junit.xml.
    #[error("cannot write junit.xml: {0}")]
    Junit(#[from] quick_junit::SerializeError),
    /// results.json.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A table in CSV or TSV.
    #[error("cannot write the tables: {0}")]
    Csv(#[from] csv::Error),
    /// A chart as SVG or PNG.
    #[error(
        "cannot draw chart `{name}`: {reason}; remove `png` and `svg` from `report.formats` to skip charts"
    )]
    Chart {
        /// File stem of the chart.
        name: &'static str,
        /// The error of the renderer.
        reason: String,
    },
}
