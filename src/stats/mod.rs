//! Floor 1. Small statistical functions, each with its source.

pub mod adjust;
pub mod batches;
pub mod bootstrap;
pub mod claim;
pub mod components;
pub mod design;
pub mod drift;
pub mod effect;
pub mod fisher;
pub mod interval;
pub mod knee;
pub mod ks;
pub mod linear;
pub mod looks;
pub mod moments;
pub mod normal;
pub mod quantile;
pub mod quantity;
pub mod relative;
pub mod sen;
pub mod sequential;
pub mod share;
pub mod student;
pub mod tail;
pub mod trend;
pub mod worth;
