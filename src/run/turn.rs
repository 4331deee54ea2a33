//! What one round of one case is given, and what it leaves.

use crate::run::error::RunError;
use crate::run::fail_fast::FailFast;
use crate::run::ledger::Sent;
use crate::run::line::Walk;
use crate::run::managed::Managed;
use crate::run::observe::Observer;
use crate::run::tally::Tally;
use crate::store::RunDir;
use crate::store::journal::Writer;
use llmscen_analysis::Table;
use llmscen_client::counters::Absurd;
use llmscen_core::artifacts::Bodies;
use llmscen_core::manifest::Part;
use llmscen_core::outcome::Outcome;
use llmscen_core::plan::Case;
use llmscen_core::seed::Seed;
use llmscen_core::telemetry::Recorded;
use llmscen_local::host::Host;
use std::path::Path;
use std::sync::Arc;

/// Which round of which case.
pub struct Turn<'a> {
    /// The case.
    pub case: &'a Case,
    /// Its index in the plan.
    pub index: u32,
    /// Its round, from 0.
    pub round: u32,
    /// The rows that each line takes.
    pub walks: &'a [Walk],
    /// Its number of sessions, where that is known.
    pub planned: Option<u64>,
    /// Its seed.
    pub seed: Seed,
    /// The server that was started for it.
    pub server: Option<&'a Managed>,
    /// How it is a probe of a search.
    pub probe: Option<Probing>,
    /// The model, where it is in this process.
    pub model: Option<Arc<Host>>,
    /// The folder of the run.
    pub folder: &'a RunDir,
    /// Whose bodies are kept, and the spool that they go to.
    pub bodies: (Bodies, &'a Path),
    /// What is sampled meanwhile.
    pub observer: &'a Observer,
    /// Stops the case if its first requests all fail with the same status; None under `--keep-going`.
    pub fail_fast: Option<FailFast>,
    /// What is known of the case's earlier requests.
    pub seen: FailFast,
    /// The process all of whose descendants are sampled as its managed server.
    pub guard: Option<u32>,
}

/// How a round is a probe of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probing {
    /// Its requests, or its time, over those of the scenario.
    pub share: f64,
    /// It ends early where it is hopeless.
    pub may_stop: bool,
}

/// What a round leaves.
pub struct Played {
    /// When it ran and what the tool saw of itself.
    pub part: Part,
    /// What its requests came to.
    pub tally: Tally,
    /// The rows of a probe.
    pub rows: Option<Table>,
    /// Outcomes that may be missing in the journal.
    pub unwritten: Vec<Outcome>,
    /// Replies whose counts cannot be true.
    pub absurd: Option<Absurd>,
    /// What each line sent.
    pub sent: Vec<Sent>,
    /// What was sampled meanwhile.
    pub recorded: Recorded,
    /// The journal, for the next round.
    pub journal: Writer,
    /// Why the run cannot go on; what was measured by then is here all the same.
    pub fault: Option<RunError>,
}
