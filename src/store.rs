//! The run folder and its files.
//!
//! During a run, outcomes are appended to a journal ([`journal`]). All other files are written atomically
//! ([`RunDir::write`]). Files that are read back have checksums, and a folder has one writer at a time.

mod atomic;
pub mod bodies;
pub(crate) mod checksums;
mod error;
mod frames;
pub mod hlog;
pub mod journal;
pub mod manifest;
pub mod npy;
mod rundir;
pub mod shared_store;
pub mod sqlite;

pub use crate::store::atomic::replace;
pub use crate::store::error::StoreError;
pub use crate::store::frames::Damage;
pub use crate::store::journal::Record;
pub use crate::store::rundir::{
    DATABASE, EARLIER, FACTS, HOOKS_LOG, READINGS, ROWS, RunDir, RunLocation, THEN_LOG, find_runs,
};
