//! Tells the trackers of a plan.

use crate::cli::terminal::Terminal;
use crate::run::execution::redactor;
use crate::track::{Parcel, tell};
use llmscen_core::plan::Plan;
use llmscen_core::report::Report;
use std::path::Path;

/// Tells them of a run. One that does not listen is said, and changes nothing else.
pub fn track(plan: &Plan, report: &Report, folder: &Path, terminal: &mut Terminal) {
    for told in tell(&plan.report.track, &Parcel::of(plan, report).hiding(&redactor(plan)), folder) {
        match told {
            Ok(place) => terminal.say(&format!("tracked: {place}")),
            Err(error) => terminal.warn(&error.to_string()),
        }
    }
}
