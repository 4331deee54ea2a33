//! llmscen: a declarative scenario runner for the performance of LLM inference.
//!
//! A Scenario is compiled to a Plan; a Plan is many Cases; a Case makes Calls; a Call becomes an Outcome; Outcomes become
//! a Frame; a Frame gives Samples; a Sample and its Checks give Verdicts; all of it becomes a Report. Every folder is one
//! of those steps, and imports only from the floors below its own; rooms on one floor do not know each other:
//!
//! ```text
//! 4  cli                                               clap, terminal, exit codes
//! 3  run                                               conducts a Plan
//! 2  prompts engine sim telemetry store view track     touch the world: files, sockets, pixels
//! 1  scenario  pace  wire  token  frame  judge         pure: same input, same output
//!    stats  bounds                                     arithmetic that judge and frame stand on; limits on input
//! 0  model                                             the words everyone shares
//! ```
//!
//! `tests/it/floors.rs` holds the source to this drawing.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bounds;
pub mod cli;
pub mod engine;
pub mod frame;
pub mod judge;
pub mod model;
pub mod pace;
pub mod prompts;
pub mod run;
pub mod scenario;
pub mod sim;
pub mod stats;
pub mod store;
pub mod telemetry;
pub mod token;
pub mod track;
pub mod view;
pub mod wire;

#[global_allocator]
static ALLOCATOR: cli::memory::Allocator = cli::memory::Allocator;
