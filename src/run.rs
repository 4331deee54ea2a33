//! Runs a plan: prepare its cases, execute their rounds, collect outcomes, write the outputs.

pub(crate) mod api_keys;
pub(crate) mod audit;
pub(crate) mod aws_credentials;
pub(crate) mod collector;
pub(crate) mod compare;
pub mod error;
pub mod event;
pub mod execution;
pub(crate) mod forecast;
pub mod merge;
pub(crate) mod outputs;
pub mod prepare;
pub(crate) mod process;
pub(crate) mod readiness;
pub mod requests;
pub mod round;
pub(crate) mod search;
pub mod sharding;
pub(crate) mod single_request;
pub(crate) mod worker;
