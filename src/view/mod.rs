//! Floor 2. Renders reports: strings and PNG bytes, never files.
//!
//! Every renderer is a pure function of a [`crate::model::report::Report`]: the same report gives the same bytes.

mod absent;
pub mod chart;
mod error;
mod escape;
#[cfg(test)]
mod fixture;
pub mod format;
mod groups;
pub mod headline;
mod html;
mod json;
mod junit;
mod manners;
mod markdown;
mod probes;
pub mod search;
mod sheet;
mod table;
mod terminal;

pub use chart::{Chart, charts};
pub use error::ViewError;
pub use html::html;
pub use json::{json, results_schema};
pub use junit::{Inconclusive, junit};
pub use markdown::markdown;
pub use probes::probe_table;
pub use terminal::{case_table, plan_table, slo_table, verdict_line};
