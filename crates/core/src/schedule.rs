//! When requests are due: seeds in, due times out. No clock, no runtime: an instant is always an argument.

pub mod arrival;
pub mod backoff;
pub mod due;
pub mod mix;
pub mod quota;
pub mod rates;
pub mod search;
pub mod users;
pub mod wait;
