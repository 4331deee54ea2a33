//! The words that everyone shares: plain data, no I/O, no clocks.
//!
//! What will run is a [`plan::Plan`] of [`plan::Case`]s; what happened to one request is an [`outcome::Outcome`];
//! what is said about a case in the end is a [`report::CaseReport`].
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod artifacts;
pub mod baseline;
pub mod bounds;
pub mod call;
pub mod chart_data;
pub mod check;
pub mod compare;
pub mod dataset;
pub mod early_stop;
pub mod export_format;
pub mod foreign;
pub mod labels;
pub mod load;
pub mod local;
pub mod manifest;
pub mod metric;
pub mod mix;
pub mod model_hub;
pub mod outcome;
pub mod plan;
pub mod prompt;
pub mod redact;
pub mod report;
pub mod request;
pub mod round_variance;
pub mod sample;
pub mod schedule;
pub mod search;
pub mod seed;
pub mod server;
pub mod signal;
pub mod simulator;
pub mod stage;
pub mod stats;
pub mod target;
pub mod telemetry;
pub mod track;
pub mod units;
pub mod url_secrets;
