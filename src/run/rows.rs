//! The outcomes of a run by case and round, whether they were just measured or come from a journal.

use crate::frame::{Table, Tagged};
use crate::model::load::Warmup;
use crate::model::outcome::{Outcome, Phase};
use crate::model::plan::{Case, Plan};
use crate::model::units::Nanos;
use crate::run::error::RunError;
use std::collections::BTreeMap;

/// Outcomes by the index of their case in the plan and their round.
pub type Rows = BTreeMap<(u32, u32), Vec<Outcome>>;

/// The rows as a table, in plan order.
pub fn table(plan: &Plan, rows: &Rows) -> Result<Table, RunError> {
    let tagged = rows.iter().flat_map(|((index, round), outcomes)| {
        let case = plan.cases.get(*index as usize).map_or("", |case| case.id.as_str());
        outcomes.iter().map(move |outcome| Tagged { case, round: *round, shard: 0, outcome })
    });
    Ok(Table::build(tagged)?)
}

/// The first instant of measuring in one round: the end of a warm-up by time, else the first measured request.
pub fn measured_from(case: &Case, outcomes: &[Outcome]) -> Nanos {
    match case.load.warmup {
        Warmup::Span(span) => span,
        Warmup::Requests(_) => {
            let measured = outcomes.iter().filter(|outcome| outcome.phase == Phase::Measured);
            measured.map(|outcome| outcome.timeline.intended).min().unwrap_or_default()
        }
    }
}
