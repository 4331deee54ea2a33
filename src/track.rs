//! Floor 2. Tells experiment trackers of a run: parameters, metrics, files.
//!
//! A tracker that cannot be reached never changes what a run says: everything lies in the run folder by then, and
//! `llmscen report RUN_DIR --track` tells it again.

mod error;
mod files;
mod mlflow;
mod parcel;
mod wandb;

pub use error::TrackError;
pub use parcel::{Entry, Parcel};

use llmscen_core::track::Track;
use std::path::Path;

/// Tells every tracker, and returns where each keeps the run, or why it does not.
pub fn tell(track: &Track, parcel: &Parcel, folder: &Path) -> Vec<Result<String, TrackError>> {
    let mlflow = track.mlflow.as_ref().map(|own| mlflow::tell(own, parcel, folder));
    let wandb = track.wandb.as_ref().map(|own| wandb::tell(own, parcel, folder));
    mlflow.into_iter().chain(wandb).collect()
}
