//! Floor 2. The run folder and its files.
//!
//! While a run goes on its outcomes lie in an append-only journal ([`journal`]); every other file is written whole, or
//! not at all ([`RunDir::write`]). The files that are read back have checksums, and a folder has one writer at a time.

mod atomic;
pub mod bodies;
mod charts;
mod checksums;
mod error;
mod frames;
pub mod hlog;
pub mod journal;
mod lock;
pub mod manifest;
pub mod npy;
mod rundir;
pub mod sqlite;

pub use atomic::replace;
pub use checksums::{READINGS, ROWS};
pub use error::StoreError;
pub use frames::Damage;
pub use journal::Record;
pub use rundir::{RunDir, Where};
