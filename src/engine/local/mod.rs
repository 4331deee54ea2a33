//! A model in this process.

pub mod ask;
