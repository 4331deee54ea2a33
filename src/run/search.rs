//! Runs a capacity search: each probe is a round of the case with that load, and its rows say where to look next.
//!
//! What was found is computed from rows and parts alone, in the order of the parts. So the same code that reports on a stored
//! run tells the search under way what its last probe showed.

mod probe_size;

use crate::run::audit::{Audited, audit};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::{Context, Execution};
use crate::run::prepare::{DatasetCache, PreparedCase, reach_all};
use crate::run::round::ProbeSize;
use crate::run::search::probe_size::{outrun, reduced, share};
use llmscen_analysis::{CaseFacts, Sample, Table, judge, sample_round};
use llmscen_core::check::{Check, Subject};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::search::Hunt;
use llmscen_core::search::{CapacitySearch, Evidence, Goal, ProbeReport, Purpose, SearchReport};
use llmscen_core::stats::distributions::probability;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Probes in a row whose self-audit may fail before a search is given up: then the tool is the bottleneck, not the server.
const UNSOUND: usize = 3;
/// Scores by which a queue grew from which on it is believed to.
const GROWS: f64 = 2.0;

/// Runs the capacity searches of a plan; the execution keeps the rows of all probes.
pub fn run_search(
    execution: &mut Execution<'_>,
    (mut store, first): (DatasetCache, PreparedCase),
    plan: &Plan,
    context: &Context,
) -> Result<(), RunError> {
    let mut prepared_cases = BTreeMap::from([(opening(plan).0, first)]);
    let mut played = 0;
    for quest in &plan.quests {
        let mut hunt = Hunt::new(&quest.spec, &quest.grid);
        let mut unsound = 0;
        while let Some(probe) = hunt.next() {
            let index = quest.first + probe.index;
            let Some(case) = plan.cases.get(index) else { break };
            let prepared = match prepared_cases.entry(index) {
                Entry::Occupied(own) => own.into_mut(),
                Entry::Vacant(place) => place.insert(store.prepared((index, case), plan, context)?),
            };
            let rounds = execution.manifest().parts.iter().filter(|part| part.case == case.id).count() as u32;
            let share = share(case, quest, probe.part);
            let own = reduced(case, share);
            // A goodput is only as good as the probe is long.
            let probe_size = ProbeSize { share, may_stop: quest.spec.goal == Goal::Slo };
            let input = execution.round_input(index, &own, prepared, rounds, Some(probe_size));
            if !execution.run_round(&input, played, played + 1) {
                return Ok(());
            }
            played += 1;
            let table = execution.probed.take().unwrap_or_default();
            let Some(part) = execution.manifest().parts.last() else { break };
            let own = execution.recorded.iter().filter(|own| own.case == case.id && own.round == rounds).cloned();
            let table = table.with_telemetry(own.collect());
            let shown = shown(plan, case, (&table, part));
            if let Some(why) = execution.unanswered.clone() {
                return Err(RunError::Gone { case: case.id.clone(), requests: shown.evidence.requests, why });
            }
            let holds = shown.valid.then_some(shown.evidence.holds);
            let _ = context.events.send(Event::Probed { case: case.id.clone(), holds });
            match shown.valid {
                true => {
                    unsound = 0;
                    hunt.tell(probe.index, shown.evidence);
                }
                // What measured the tool is no evidence: the same load is probed again.
                false => unsound += 1,
            }
            if unsound == UNSOUND {
                break;
            }
        }
    }
    Ok(())
}

/// The case that the first probe is of, and its index.
pub fn opening(plan: &Plan) -> (usize, Option<&Case>) {
    let first = |quest: &CapacitySearch| Some(quest.first + Hunt::new(&quest.spec, &quest.grid).next()?.index);
    let index = plan.quests.first().and_then(first).unwrap_or_default();
    (index, plan.cases.get(index))
}

/// Readies the first probe, and reaches its target: what is wrong comes out before anything is sent.
pub fn prepare_search(plan: &Plan, context: &Context) -> Result<(DatasetCache, PreparedCase), RunError> {
    let (mut store, (index, Some(case))) = (DatasetCache::default(), opening(plan)) else { return Err(RunError::NothingToSend) };
    let prepared = store.prepared((index, case), plan, context)?;
    reach_all(std::slice::from_ref(case), std::slice::from_ref(&prepared), context)?;
    Ok((store, prepared))
}

/// What one probe showed.
struct Shown {
    evidence: Evidence,
    valid: bool,
    sample: Sample,
}

fn shown(plan: &Plan, case: &Case, (table, part): (&Table, &Part)) -> Shown {
    let own = part.probe.map_or_else(|| case.clone(), |own| reduced(case, own.share));
    let facts = CaseFacts { case: &own, parts: std::slice::from_ref(part), until: None };
    let sample = sample_round(table, &facts, part.round);
    let audited = Audited { case: &own, parts: &[part], rounds: 1, sample: &sample, limits: &plan.audit, seed: plan.seed };
    let valid = audit(&audited).valid;
    // What measured the tool says nothing of the server.
    let chance = if valid { judge::pass_probability(&case.checks, &sample) } else { 0.5 };
    let holds = outrun(&own, &sample).filter(|z| valid && *z > GROWS).map_or(chance, |z| chance.min(1.0 - probability(z)));
    let requests = sample.requests.len() as u64;
    let goodput = goodput(case, &sample).filter(|_| valid).unwrap_or((0.0, f64::from(u8::from(!valid)) * f64::MAX.sqrt()));
    Shown { evidence: Evidence { holds, requests, goodput }, valid, sample }
}

/// Good requests per second and the standard error of that, by the share of good ones; None without a limit that says what a
/// good request is, or without time.
fn goodput(case: &Case, sample: &Sample) -> Option<(f64, f64)> {
    let limits = case.checks.iter().find_map(|check| match &check.subject {
        Subject::Goodput(limits) => Some(limits),
        Subject::Metric { .. } | Subject::Signal { .. } => None,
    })?;
    let window: f64 = sample.windows.iter().sum();
    let n = sample.requests.len() as f64;
    let good = judge::goodput_flags(&sample.requests, limits).into_iter().filter(|good| *good).count() as f64;
    let share = (good + 0.5) / (n + 1.0);
    let rate = sample.scalars.get(&Metric::GoodputRate).copied().unwrap_or(0.0);
    (window > 0.0).then(|| (rate, (share * (1.0 - share) / n).sqrt() * n / window))
}

/// The reports of all searches of a plan, from what is stored.
pub fn reports(plan: &Plan, table: &Table, manifest: &Manifest) -> Vec<SearchReport> {
    plan.quests.iter().map(|quest| report(plan, quest, (table, manifest))).collect()
}

fn report(plan: &Plan, quest: &CapacitySearch, (table, manifest): (&Table, &Manifest)) -> SearchReport {
    let mut hunt = Hunt::new(&quest.spec, &quest.grid);
    let mut probes: Vec<ProbeReport> = Vec::new();
    let cases = plan.cases.get(quest.first..quest.first + quest.grid.len()).unwrap_or_default();
    for part in &manifest.parts {
        let Some(index) = cases.iter().position(|case| case.id == part.case) else { continue };
        let mut seen = shown(plan, &cases[index], (table, part));
        // The probe that found nobody there says nothing of the load.
        seen.valid &= manifest.error.is_none() || manifest.parts.last() != Some(part);
        let purpose = hunt.next().filter(|next| next.index == index).map_or(Purpose::Narrow, |next| next.purpose);
        if seen.valid {
            hunt.tell(index, seen.evidence);
        }
        probes.push(probe((&cases[index], part, quest.grid[index]), purpose, seen));
    }
    mark(&mut probes);
    SearchReport { spec: quest.spec.clone(), labels: quest.labels.clone(), finding: hunt.finding(), probes }
}

fn probe((case, part, load): (&Case, &Part, f64), purpose: Purpose, seen: Shown) -> ProbeReport {
    let conditions = judge::Conditions { valid: seen.valid, load: judge::LoadKind::of_shape(&case.load.shape) };
    let rule = |check: &Check| judge::rule(check, &seen.sample, &conditions);
    let hopeless = part.probe.is_some_and(|own| own.hopeless);
    // What was cut short has no rate, and what measured the tool none of the server's.
    let whole = seen.valid && !hopeless;
    let mean = |metric: Metric| seen.sample.distributions.get(&metric).map(|own| own.mean).filter(|_| whole);
    ProbeReport {
        case: case.id.clone(),
        round: part.round,
        load,
        purpose,
        holds: seen.valid.then_some(seen.evidence.holds),
        requests: seen.evidence.requests,
        hopeless,
        verdicts: case.checks.iter().map(rule).collect(),
        per_user_tps: mean(Metric::DecodeTps),
        total_tps: seen.sample.scalars.get(&Metric::OutputTps).copied().filter(|_| whole),
        goodput: goodput(case, &seen.sample).map(|(value, _)| value).filter(|_| whole),
        dominated: false,
    }
}

/// Marks the probes that another one beats in one speed without losing in the other (Pareto).
fn mark(probes: &mut [ProbeReport]) {
    let speeds: Vec<Option<(f64, f64)>> = probes.iter().map(|probe| probe.per_user_tps.zip(probe.total_tps)).collect();
    let beats = |a: &(f64, f64), b: &(f64, f64)| a.0 >= b.0 && a.1 >= b.1 && a != b;
    for (probe, own) in probes.iter_mut().zip(&speeds) {
        probe.dominated = own.is_some_and(|own| speeds.iter().flatten().any(|other| beats(other, &own)));
    }
}
