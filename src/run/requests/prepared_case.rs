//! A case with everything that its requests are rendered from.

use crate::run::requests::traffic_class::{TrafficClass, distinct_datasets};
use llmscen_client::route::Route;
use llmscen_core::plan::Case;
use llmscen_core::schedule::RoundExtent;
use llmscen_core::seed::Seed;
use llmscen_core::units::Nanos;
use llmscen_protocols::{Markers, Protocol};
use std::sync::Arc;

/// A case that is ready to run.
pub struct PreparedCase {
    /// Traffic classes, in the order of the mix; one without a mix.
    pub classes: Vec<Arc<TrafficClass>>,
    /// Protocol of the target.
    pub protocol: Arc<dyn Protocol>,
    /// The markers of reasoning in answers.
    pub markers: Markers,
    /// Notes on the datasets.
    pub notes: Vec<String>,
    /// Arrivals of a replay.
    pub arrivals: Option<Arc<[Nanos]>>,
    /// Whether sessions may have several turns, so that the text of replies is kept.
    pub conversations: bool,
    /// A route to each URL of the target; none for a local model, and for the simulator, which is started with each
    /// round.
    pub routes: Vec<Route>,
    /// Prefix of request ids, from the ids of plan and case.
    pub stem: String,
}

impl PreparedCase {
    /// Adds the notes on the datasets that are known so far, sorted. Cases that share a dataset share its notes.
    pub fn add_notes(&self, notes: &mut Vec<String>) {
        let problems = distinct_datasets(&self.classes)
            .into_iter()
            .flat_map(|class| class.prompts.problems());
        notes.extend(self.notes.iter().cloned().chain(problems));
        notes.sort();
        notes.dedup();
    }

    /// Dataset rows left out so far.
    pub fn dropped_rows(&self) -> u64 {
        distinct_datasets(&self.classes)
            .iter()
            .map(|class| class.prompts.dropped())
            .sum()
    }

    /// The extent of one round of this case.
    pub fn extent(&self, case: &Case, seed: Seed) -> RoundExtent {
        RoundExtent::new(case, seed, self.arrivals.as_ref())
    }
}
