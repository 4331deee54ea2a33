//! Floor 2. The run folder and its files.
//!
//! While a run goes on its outcomes lie in an append-only journal ([`journal`]); every other file is written whole, or
//! not at all ([`RunDir::write`]).

mod atomic;
pub mod bodies;
mod charts;
mod error;
pub mod hlog;
pub mod journal;
pub mod manifest;
pub mod npy;
mod record;
mod rundir;
pub mod sqlite;

pub use atomic::replace;
pub use error::StoreError;
pub use record::Record;
pub use rundir::{RunDir, Where};
