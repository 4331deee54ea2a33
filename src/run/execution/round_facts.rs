//! Facts of a finished round that its rows do not hold.

use crate::run::collector::tally::Replies;
use crate::run::requests::row_usage::{RowUsage, SentRows};
use crate::run::requests::tool_results::ToolResults;
use crate::run::round::RoundResult;
use llmscen_core::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a report needs of a round besides its rows and its [`Part`]: of a shard's round, or of a round of a run that
/// goes on.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RoundFacts {
    /// Dataset rows sent, per traffic class.
    pub sent: Vec<SentRows>,
    pub replies: Replies,
    pub tool_results: ToolResults,
    /// Think time that `load.max_idle` left out.
    pub skipped_idle: Nanos,
    /// Whether a response had status 404.
    pub not_found: bool,
    /// Whether any request got a response.
    pub answered: bool,
}

impl RoundFacts {
    pub fn new(result: &RoundResult) -> RoundFacts {
        RoundFacts {
            sent: result.sent.clone(),
            replies: result.tally.replies.clone(),
            tool_results: result.tool_results,
            skipped_idle: result.skipped_idle,
            not_found: result.tally.not_found,
            answered: result.tally.answered,
        }
    }

    /// Adds the facts of another shard.
    pub fn add_to(self, result: &mut RoundResult) {
        for (sum, sent) in result.sent.iter_mut().zip(&self.sent) {
            sum.add(sent);
        }
        result.tool_results.add(self.tool_results);
        result.skipped_idle = result.skipped_idle + self.skipped_idle;
        result
            .tally
            .add_shard(&self.replies, self.not_found, self.answered);
    }
}

/// The facts of all rounds of a run so far.
#[derive(Default)]
pub(crate) struct RunFacts {
    pub row_usage: RowUsage,
    replies: Replies,
    /// Tool results that were sent, by case.
    tool_results: BTreeMap<String, ToolResults>,
    /// Think time that `load.max_idle` left out, by case.
    skipped_idle: BTreeMap<String, Nanos>,
}

impl RunFacts {
    /// Adds the facts of a round.
    pub fn add(&mut self, case: &str, facts: &RoundFacts) {
        self.replies.add(&facts.replies);
        let tool_results = self.tool_results.entry(case.to_owned()).or_default();
        tool_results.add(facts.tool_results);
        let skipped_idle = self.skipped_idle.entry(case.to_owned()).or_default();
        *skipped_idle = *skipped_idle + facts.skipped_idle;
    }

    /// Notes for the report.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.row_usage.notes();
        notes.extend(self.replies.notes());
        let tool_results = self.tool_results.iter();
        notes.extend(tool_results.filter_map(|(case, results)| results.note(case)));
        let skipped_idle = self.skipped_idle.iter().filter(|(_, time)| time.0 > 0);
        notes.extend(skipped_idle.map(|(case, time)| {
            format!(
                "{case}: {:.1} s of think time were left out, in which no request was in flight (`load.max_idle`)",
                time.secs()
            )
        }));
        notes
    }
}
