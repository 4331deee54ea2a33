//! What a run knows of its targets.

use crate::run::error::RunError;
use crate::run::fail_fast::FailFast;
use crate::run::requests::prepared_case::PreparedCase;
use llmscen_client::route::Route;
use llmscen_core::plan::Case;
use llmscen_core::target::{ManagedServer, Restart};
use std::collections::{BTreeMap, BTreeSet};

/// The targets of a run in progress.
#[derive(Default)]
pub(crate) struct Targets {
    /// State of the fail-fast check after the earlier rounds, by case index.
    pub fail_fast: BTreeMap<usize, FailFast>,
    /// URLs of targets that were asked for their engine and version.
    pub identified: BTreeSet<String>,
    /// Host and port of targets that were lost: nothing more is sent to them.
    lost_addresses: Vec<String>,
    /// Managed servers that did not start or were lost, and why: their cases are not run.
    lost_servers: Vec<(ManagedServer, String)>,
}

impl Targets {
    /// Why nothing more can be sent to the target of a case; None if something can.
    pub fn why_lost(&self, case: &Case, prepared: &PreparedCase) -> Option<String> {
        let server = case.target.server.as_ref();
        let lost_server = self
            .lost_servers
            .iter()
            .find(|(lost, _)| server == Some(lost));
        let is_target_lost = || {
            let mut addresses = addresses(prepared).peekable();
            addresses.peek().is_some() && addresses.all(|one| self.lost_addresses.contains(&one))
        };
        match lost_server {
            Some((_, why)) => Some(why.clone()),
            None => is_target_lost().then(|| "target lost".to_owned()),
        }
    }

    /// Records which target a round has lost, if any.
    pub fn record_loss(&mut self, case: &Case, prepared: &PreparedCase, fault: &RunError) {
        match &case.target.server {
            // The next round has its own start.
            Some(server) if server.restart == Restart::Case => {}
            Some(server) if matches!(fault, RunError::TargetLost(_) | RunError::Server(_)) => {
                self.lost_servers
                    .push((server.clone(), fault.brief_with_log()));
            }
            None if matches!(fault, RunError::TargetLost(_)) => {
                self.lost_addresses.extend(addresses(prepared));
            }
            _ => {}
        }
    }
}

/// Host and port of each URL of a case; none for the simulator and a local model.
fn addresses(prepared: &PreparedCase) -> impl Iterator<Item = String> {
    prepared.routes.iter().map(Route::host_and_port)
}
