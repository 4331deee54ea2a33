//! llmscen: a declarative scenario runner for the performance of LLM inference.
//!
//! A scenario (YAML) is compiled to a plan, a list of cases. A case sends requests and records one outcome for each.
//! Outcomes become the rows of one table, from which summaries, verdicts and reports are computed. Each of these
//! steps is a crate of the workspace. This one runs a plan ([`run`]), stores and uploads its results ([`store`],
//! [`tracking`]), and is the command line ([`cli`]).
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod memory;
pub mod run;
pub mod store;
pub mod tracking;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;
