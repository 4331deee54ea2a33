//! Whole-program tests: they run the binary as a user does, against servers on loopback.

mod audit;
mod bad_input;
mod bad_servers;
mod early;
mod floors;
mod html;
mod lab;
mod manners;
mod mix;
mod outputs;
mod protocols;
mod replay;
mod search;
mod sessions;
mod shapes;
mod signals;
mod tls;
mod traces;
mod transport;
mod truth;
mod verdicts;
mod witness;
