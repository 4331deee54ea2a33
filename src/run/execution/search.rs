//! Runs a capacity search: each probe is a round of the case with that load, and its result determines the next load.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::rounds::Execution;
use crate::run::outputs::search_results::probe_size::{reduced, share};
use crate::run::outputs::search_results::{
    Group, ProbeResult, evaluate_probe, groups_of, probe_seconds,
};
use crate::run::prepare::DatasetCache;
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::round::ProbeSize;
use llmscen_analysis::TableError;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::search::Goal;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The first probe of a plan's capacity searches, prepared before anything is sent.
pub struct PreparedSearch {
    datasets: DatasetCache,
    /// Index of the case of the first probe.
    pub first_index: usize,
    /// That case.
    pub first_case: PreparedCase,
}

impl PreparedSearch {
    /// Prepares the first probe.
    pub fn new(plan: &Plan, context: &Context) -> Result<PreparedSearch, RunError> {
        let first_index = first_probe_index(plan);
        let case = plan.cases.get(first_index).ok_or(RunError::NothingToSend)?;
        let mut datasets = DatasetCache::default();
        let first_case = datasets.prepare_case(first_index, case, plan, context)?;
        Ok(PreparedSearch {
            datasets,
            first_index,
            first_case,
        })
    }
}

/// The case index of the first probe.
fn first_probe_index(plan: &Plan) -> usize {
    let first = |group: &Group<'_>| {
        let (candidate, probe) = group.halving.clone().next_probe()?;
        Some(group.searches.get(candidate)?.first + probe.index)
    };
    groups_of(plan).first().and_then(first).unwrap_or_default()
}

/// Runs the capacity searches of a plan. In a distributed run, shard 0 chooses the probes.
pub fn run_search(
    execution: &mut Execution<'_>,
    prepared: PreparedSearch,
    plan: &Plan,
    context: &Context,
) -> Result<(), RunError> {
    let PreparedSearch {
        datasets,
        first_index,
        first_case,
    } = prepared;
    let mut prober = Prober {
        plan,
        context,
        datasets,
        prepared_cases: BTreeMap::from([(first_index, first_case)]),
        probes: 0,
    };
    if !execution.leads() {
        while prober.probe(execution, None)? {}
        return Ok(());
    }
    execution.failures.case_failures_are_results = plan.halving.is_some();
    for mut group in groups_of(plan) {
        while let Some((candidate, next)) = group.halving.next_probe() {
            let search = &group.searches[candidate];
            let index = search.first + next.index;
            let Some(case) = plan.cases.get(index) else {
                break;
            };
            let rounds = execution.manifest.parts.iter();
            let round = rounds.filter(|part| part.case == case.id).count() as u32;
            if execution.must_skip(case, round, prober.prepare(index)?) {
                let why = execution.failures.why_failed(case);
                group.halving.fail(candidate, why);
                continue;
            }
            let wanted = WantedProbe {
                index,
                round,
                // A shorter probe would make the goodput less precise.
                size: ProbeSize {
                    share: share(case, search, next.length),
                    may_stop: search.spec.goal == Goal::Slo,
                },
            };
            let parts = execution.manifest.parts.len();
            let goes_on = prober.probe(execution, Some(wanted))?;
            if !goes_on && execution.is_over() {
                return Ok(());
            }
            let seconds = match execution.manifest.parts.get(parts) {
                Some(part) => probe_seconds(part),
                // Its server did not start.
                None => {
                    let why = execution.failures.why_failed(case);
                    group.halving.fail(candidate, why);
                    continue;
                }
            };
            let result = probe_result(execution, plan, case, round)?;
            if let Some(why) = execution.last_probe.unanswered.clone().filter(|_| goes_on) {
                let fault = RunError::Gone {
                    case: case.id.clone(),
                    requests: result.as_ref().map_or(0, |result| result.evidence.requests),
                    why,
                };
                if plan.halving.is_none() {
                    return Err(fault);
                }
                execution.failures.fail_case(case, round, fault);
            }
            let result = result.filter(|_| !execution.failures.has_failed(case));
            let Some(result) = result else {
                // The probe that lost its server says nothing about the load.
                let halving = &mut group.halving;
                halving.record_probe(candidate, next.index, None, seconds);
                halving.fail(candidate, execution.failures.why_failed(case));
                continue;
            };
            let evidence = result.valid.then_some(result.evidence);
            let _ = context.events.send(Event::Probed {
                case: case.id.clone(),
                holds: evidence.map(|evidence| evidence.pass_probability),
            });
            group
                .halving
                .record_probe(candidate, next.index, evidence, seconds);
        }
        execution.failures.case_failures_are_results &= !group.halving.has_failed();
    }
    execution.agree_on_next(None).map(drop)
}

/// A probe that the search asks for.
struct WantedProbe {
    /// Index of its case.
    index: usize,
    /// Its round.
    round: u32,
    size: ProbeSize,
}

/// Runs probes, and prepares the case of each.
struct Prober<'a> {
    plan: &'a Plan,
    context: &'a Context,
    datasets: DatasetCache,
    /// Prepared cases by index.
    prepared_cases: BTreeMap<usize, PreparedCase>,
    /// Probes so far.
    probes: usize,
}

impl Prober<'_> {
    /// Runs the next probe; `wanted`: None on the shards that do not choose. False if the run is over.
    fn probe(
        &mut self,
        execution: &mut Execution<'_>,
        wanted: Option<WantedProbe>,
    ) -> Result<bool, RunError> {
        let may_stop = wanted.as_ref().is_some_and(|wanted| wanted.size.may_stop);
        let wanted = match wanted {
            None => None,
            Some(WantedProbe { index, round, size }) => {
                let prepared = self.prepare(index)?;
                Some(execution.want_round(index, round, Some(size.share), prepared))
            }
        };
        let Some(next) = execution.agree_on_next(wanted)? else {
            return Ok(false);
        };
        let case = self
            .plan
            .cases
            .get(next.case)
            .ok_or(RunError::NothingToSend)?;
        let share = next.probe_share.unwrap_or(1.0);
        let probe_case = reduced(case, share);
        // A shard sees only a part of the probe, so it cannot show that the objectives cannot be met.
        let size = ProbeSize {
            share,
            may_stop: may_stop && !execution.is_sharded(),
        };
        let number = self.probes;
        self.probes += 1;
        let prepared = self.prepare(next.case)?;
        let input = execution.round_input(&next, &probe_case, prepared, Some(size));
        Ok(execution.run_round(&input, number, number + 1))
    }

    fn prepare(&mut self, index: usize) -> Result<&PreparedCase, RunError> {
        match self.prepared_cases.entry(index) {
            Entry::Occupied(prepared) => Ok(prepared.into_mut()),
            Entry::Vacant(entry) => {
                let case = self.plan.cases.get(index).ok_or(RunError::NothingToSend)?;
                let prepared = self
                    .datasets
                    .prepare_case(index, case, self.plan, self.context)?;
                Ok(entry.insert(prepared))
            }
        }
    }
}

/// The result of the round that has just run.
fn probe_result(
    execution: &mut Execution<'_>,
    plan: &Plan,
    case: &Case,
    round: u32,
) -> Result<Option<ProbeResult>, TableError> {
    let rows = execution.last_probe.rows.take().unwrap_or_default();
    let recorded = execution
        .rows
        .recorded
        .iter()
        .filter(|recorded| recorded.case == case.id && recorded.round == round);
    let table = rows.with_telemetry(recorded.cloned().collect());
    let part = execution.manifest.parts.last();
    part.map(|part| evaluate_probe(plan, case, &table, part))
        .transpose()
}
