//! Whole-program tests: they run the binary as a user does, against servers on loopback.

mod audit;
mod bad_input;
mod bad_servers;
mod ci;
mod compare;
mod compat;
mod data;
mod early;
mod floors;
mod gates;
mod html;
mod import;
mod lab;
mod live;
#[cfg(feature = "local")]
mod local;
mod manners;
mod mix;
mod outputs;
mod protocols;
mod random_sets;
mod replay;
mod sampled;
mod search;
mod server;
mod sessions;
mod shapes;
mod signals;
mod telemetry;
mod tls;
mod traces;
mod track;
mod transport;
mod truth;
mod verdicts;
mod witness;
