//! Data types, scheduling and statistics that every crate shares. No clock and no network.
//!
//! A [`plan::Plan`] is a list of [`plan::Case`]s. Each request yields an [`outcome::Outcome`], and each case a
//! [`report::CaseReport`].
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod api;
pub mod api_key;
pub mod artifacts;
pub mod baseline;
pub mod bounds;
pub mod check;
pub mod compare;
pub mod dataset;
pub mod distribution;
pub mod early_stop;
pub mod endpoint;
pub mod escape;
pub mod expect;
pub mod finish_reason;
pub mod history;
pub mod hooks;
pub mod label;
pub mod load;
pub mod local;
pub mod manifest;
pub mod metric;
pub mod mix;
pub mod model_hub;
pub mod outcome;
pub mod plan;
pub mod quantity;
pub mod redact;
pub mod remote_data;
pub mod report;
pub mod request;
pub mod requested_length;
pub mod sample;
pub mod schedule;
pub mod search;
pub mod seed;
pub mod signal;
pub mod simulator;
pub mod stage;
pub mod stats;
pub mod target;
pub mod telemetry;
pub mod token_account;
pub mod units;
pub mod url_secrets;
