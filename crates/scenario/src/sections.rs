//! The sections of a scenario: their schema tables, and how they are decoded.

pub(crate) mod baseline;
pub(crate) mod condition;
pub(crate) mod dataset;
pub(crate) mod expect;
pub(crate) mod hooks;
pub(crate) mod load;
pub(crate) mod local;
pub(crate) mod mix;
pub(crate) mod patch;
pub(crate) mod reference;
pub(crate) mod remote_data;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod scenario;
pub(crate) mod search;
pub(crate) mod server;
pub(crate) mod simulator;
pub(crate) mod slo;
pub(crate) mod target;
pub(crate) mod telemetry;
