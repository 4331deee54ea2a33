//! Floor 3. Conducts a plan: prepares, drives, collects, reckons, publishes.

pub mod alarms;
pub mod audit;
pub mod bench;
pub mod calendar;
pub mod collect;
pub mod conduct;
pub mod context;
pub mod drive;
pub mod error;
pub mod event;
pub mod feed;
pub mod forecast;
pub mod gate;
pub mod lanes;
pub mod ledger;
pub mod meter;
pub mod part;
pub mod publish;
pub mod reckon;
pub mod recover;
pub mod rows;
pub mod scribe;
pub mod stop;
pub mod talk;
pub mod timer;
pub mod visit;
