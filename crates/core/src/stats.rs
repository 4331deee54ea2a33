//! Statistics. Every function cites its source.

pub mod change_points;
pub mod comparison;
pub mod design;
pub mod distributions;
pub mod interval;
pub mod long_run;
pub mod moments;
pub mod paired;
pub mod quantile;
pub mod quantile_bound;
pub mod sequential;
pub mod share;
pub mod trend;
