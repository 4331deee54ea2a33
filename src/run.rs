//! Runs a plan: prepare its cases, execute their rounds, collect outcomes, write the outputs.
//!
//! The modules are a stair: each uses only modules before it.
//! - `stop`, `panics`, `timestamps`, `process`, `fail_fast`, `progress`, `event`, `context`
//! - `sharding`, `merge`, `error`
//! - `requests`, `telemetry`, `aws_credentials`, `api_keys`, `readiness`, `prepare`
//! - `audit`, `outputs`
//! - `collector`, `resources`, `worker`, `round`, `execution`
//! - `stored_run`, `compare`, `forecast`, `single_request`

pub(crate) mod api_keys;
pub(crate) mod audit;
pub(crate) mod aws_credentials;
pub(crate) mod collector;
pub(crate) mod compare;
pub mod context;
pub mod error;
pub mod event;
pub mod execution;
pub(crate) mod fail_fast;
pub(crate) mod forecast;
pub mod merge;
pub(crate) mod outputs;
pub mod panics;
pub mod prepare;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod readiness;
pub mod requests;
pub(crate) mod resources;
pub mod round;
pub mod sharding;
pub(crate) mod single_request;
pub mod stop;
pub(crate) mod stored_run;
pub mod telemetry;
pub(crate) mod timestamps;
pub(crate) mod worker;
