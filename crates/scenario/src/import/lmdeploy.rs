//! LMDeploy's benchmark scripts, after its release 0.18.

mod engine;
mod generation;
mod restful;
mod throughput;

use super::command::Command;
use super::line::{Takes, taken};

/// The scripts.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        names: &[&["profile_generation.py"], &["profile_generation"]],
        positional: &[taken(&["MODEL_PATH"], Takes::One)],
        flags: generation::FLAGS,
        translate: generation::translate,
    },
    Command {
        names: &[&["profile_throughput.py"], &["profile_throughput"]],
        positional: &[taken(&["DATASET"], Takes::One), taken(&["MODEL_PATH"], Takes::One)],
        flags: throughput::FLAGS,
        translate: throughput::translate,
    },
    Command {
        names: &[&["profile_restful_api.py"], &["profile_restful_api"]],
        positional: &[],
        flags: restful::FLAGS,
        translate: restful::translate,
    },
];
