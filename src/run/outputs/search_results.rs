//! The results of capacity searches, from rows and parts alone, in the order of the parts, so that the running search
//! and the report of a stored run use the same code.

pub(crate) mod probe_size;

use crate::run::outputs::search_results::probe_size::{reduced, slowdown};
use crate::run::outputs::summarize::judge_sample;
use llmscen_analysis::{CaseFacts, Sample, Table, TableError, WholeReason, judge, sample_round};
use llmscen_core::check::{Check, Ruling, Verdict};
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::metric::Metric;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::halving::Halving;
use llmscen_core::schedule::search::PASSES;
use llmscen_core::search::{
    Candidacy, CapacitySearch, Evidence, ProbeReport, Purpose, SearchReport, groups,
};
use llmscen_core::stats::distributions::probability;

/// z-score of the slowdown above which a queue counts as growing.
const MIN_SLOWDOWN: f64 = 2.0;
/// The greatest probability of a pass where more requests do not decide a verdict; below [`PASSES`].
const UNDECIDED: f64 = 0.94;

/// Searches that compete in one successive halving; without `over`, a single search.
pub(crate) struct Group<'a> {
    pub searches: &'a [CapacitySearch],
    pub halving: Halving,
}

pub(crate) fn groups_of(plan: &Plan) -> Vec<Group<'_>> {
    let group = |range| {
        let searches = &plan.searches[range];
        let gpus = gpus_of(plan, searches);
        Group {
            searches,
            halving: Halving::new(plan.halving, searches, gpus.as_deref()),
        }
    };
    groups(&plan.searches).into_iter().map(group).collect()
}

/// The number of GPUs of each search's target, if all are known.
fn gpus_of(plan: &Plan, searches: &[CapacitySearch]) -> Option<Vec<f64>> {
    let gpus = |search: &CapacitySearch| plan.cases.get(search.first)?.target.gpus.map(f64::from);
    searches.iter().map(gpus).collect()
}

/// The result of one probe.
pub(crate) struct ProbeResult {
    pub evidence: Evidence,
    pub valid: bool,
    pub verdicts: Vec<Verdict>,
    pub sample: Sample,
}

pub(crate) fn evaluate_probe(
    plan: &Plan,
    case: &Case,
    table: &Table,
    part: &Part,
) -> Result<ProbeResult, TableError> {
    let probe_case = part
        .probe
        .map_or_else(|| case.clone(), |probe| reduced(case, probe.share));
    let facts = CaseFacts {
        case: &probe_case,
        parts: std::slice::from_ref(part),
        until: None,
    };
    let sample = sample_round(table, &facts, part.round)?;
    let (_, verdicts, _) = judge_sample(plan, table, &facts, (&sample, 1), &[])?;
    // Less load does not make the others pass: they are judged at the result.
    let of_load = || verdicts.iter().filter(|it| !it.check.is_easier_with_load());
    let has = |ruling: Ruling| of_load().any(|verdict| verdict.ruling == ruling);
    // One objective that is certainly not met is enough to know that the load fails.
    let valid = !has(Ruling::Invalid) || has(Ruling::Fail);
    // An invalid probe says nothing about the server.
    let chance = if valid {
        let judged = || of_load().filter(|verdict| verdict.ruling != Ruling::Invalid);
        let checks: Vec<Check> = judged().map(|verdict| verdict.check.clone()).collect();
        let chance = judge::pass_probability(&checks, &sample);
        // No further requests decide these verdicts: the queue grows, or the probe is too short.
        let is_undecidable = |verdict: &Verdict| {
            let (bound, need) = (verdict.bound, verdict.need);
            verdict.ruling == Ruling::Inconclusive && bound.is_none() && need.is_none()
        };
        let load = judge::LoadKind::of_shape(&case.load.shape);
        let conditions = judge::Conditions::of(&sample, load);
        let is_overloaded = judged().any(|verdict| conditions.is_overloaded(&verdict.check));
        match () {
            () if has(Ruling::Fail) || is_overloaded => chance.min(1.0 - PASSES),
            () if judged().all(|verdict| verdict.ruling == Ruling::Pass) => chance.max(PASSES),
            () if judged().any(is_undecidable) => chance.min(UNDECIDED),
            () => chance,
        }
    } else {
        0.5
    };
    let slowdown = slowdown(&probe_case, &sample).filter(|z| valid && *z > MIN_SLOWDOWN);
    let holds = slowdown.map_or(chance, |z| chance.min(1.0 - probability(z)));
    let requests = sample.requests.len() as u64;
    let is_invalid_goodput = |verdict: &Verdict| {
        verdict.ruling == Ruling::Invalid && verdict.check.subject.goodput_limits().is_some()
    };
    let goodput = match valid && !verdicts.iter().any(is_invalid_goodput) {
        true => goodput(case, &sample)
            .map(|(rate, error)| (rate, error + rate * whole_run_share(&sample)))
            .unwrap_or_default(),
        false => (0.0, f64::MAX.sqrt()),
    };
    Ok(ProbeResult {
        evidence: Evidence {
            pass_probability: holds,
            requests,
            goodput,
        },
        valid,
        verdicts,
        sample,
    })
}

/// Goodput (requests per second) and its standard error, from the share of good requests; None without a goodput
/// objective or without measured time.
fn goodput(case: &Case, sample: &Sample) -> Option<(f64, f64)> {
    let mut checks = case.checks.iter();
    let limits = checks.find_map(|check| check.subject.goodput_limits())?;
    let window: f64 = sample.windows.iter().sum();
    let n = sample.requests.len() as f64;
    let good = judge::goodput_flags(&sample.requests, limits)
        .into_iter()
        .filter(|good| *good)
        .count() as f64;
    let share = (good + 0.5) / (n + 1.0);
    let rate = sample
        .scalars
        .get(&Metric::GoodputRate)
        .copied()
        .unwrap_or(0.0);
    (window > 0.0).then(|| (rate, (share * (1.0 - share) / n).sqrt() * n / window))
}

/// The share of a throughput that its start and drain may hide, where it is over the whole run.
fn whole_run_share(sample: &Sample) -> f64 {
    match sample.requests_window.whole {
        Some(WholeReason::TooShort {
            seconds, duration, ..
        }) => duration / (seconds + duration),
        Some(WholeReason::AboveLittle) | None => 0.0,
    }
}

/// How long a probe sent requests, in seconds.
pub(crate) fn probe_seconds(part: &Part) -> f64 {
    part.sending_until_ns.unwrap_or_default() as f64 / 1e9
}

/// The reports of all searches of a plan, from the stored rows and parts.
///
/// # Errors
/// A frame could not be built.
pub fn search_reports(
    plan: &Plan,
    table: &Table,
    manifest: &Manifest,
) -> Result<Vec<SearchReport>, TableError> {
    let mut reports = Vec::new();
    for group in groups_of(plan) {
        reports.extend(group_reports(plan, group, table, manifest)?);
    }
    Ok(reports)
}

/// The reports of the searches that compete with each other: their probes are replayed in the order in which they ran.
fn group_reports(
    plan: &Plan,
    group: Group<'_>,
    table: &Table,
    manifest: &Manifest,
) -> Result<Vec<SearchReport>, TableError> {
    let Group {
        searches,
        mut halving,
    } = group;
    let mut probes: Vec<Vec<ProbeReport>> = vec![Vec::new(); searches.len()];
    let failure = |candidate: usize| {
        let cases = searches
            .get(candidate)
            .map_or(&[][..], |search| cases_of(plan, search));
        let mut failed = manifest.failed.iter();
        failed.find(|failed| cases.iter().any(|case| case.id == failed.case))
    };
    for part in &manifest.parts {
        let position = |search: &CapacitySearch| {
            let mut cases = cases_of(plan, search).iter();
            cases.position(|case| case.id == part.case)
        };
        let mut found = searches.iter().enumerate();
        let Some((candidate, index)) =
            found.find_map(|(candidate, search)| Some((candidate, position(search)?)))
        else {
            continue;
        };
        let case = &cases_of(plan, &searches[candidate])[index];
        // The candidates before it that should have been probed could not.
        while let Some((wanted, _)) = halving.next_probe()
            && wanted != candidate
            && let Some(failed) = failure(wanted)
        {
            halving.fail(wanted, failed.why.clone());
        }
        let mut result = evaluate_probe(plan, case, table, part)?;
        // The probe that lost its server says nothing about the load.
        let lost = failure(candidate)
            .filter(|failed| (&failed.case, failed.round) == (&part.case, part.round));
        result.valid &=
            lost.is_none() && (manifest.error.is_none() || manifest.parts.last() != Some(part));
        let purpose = halving
            .next_of(candidate)
            .filter(|next| next.index == index)
            .map_or(Purpose::Narrow, |next| next.purpose);
        let evidence = result.valid.then_some(result.evidence);
        halving.record_probe(candidate, index, evidence, probe_seconds(part));
        if let Some(failed) = lost {
            halving.fail(candidate, failed.why.clone());
        }
        probes[candidate].push(probe_report(
            case,
            part,
            searches[candidate].grid[index],
            purpose,
            &result,
        ));
    }
    // A run that ended early has no winner.
    while let Some((wanted, _)) = halving.next_probe()
        && let Some(failed) = failure(wanted)
    {
        halving.fail(wanted, failed.why.clone());
    }
    let gpus = gpus_of(plan, searches);
    let report = |(candidate, mut probes): (usize, Vec<ProbeReport>)| {
        mark_dominated(&mut probes);
        let search = &searches[candidate];
        Some(SearchReport {
            spec: search.spec.clone(),
            labels: search.labels.clone(),
            finding: halving.finding(candidate)?,
            probes,
            candidacy: plan.halving.map(|_| Candidacy {
                group: search.group,
                standings: halving.standings(candidate).to_vec(),
                fate: halving.fate(candidate).cloned(),
                gpus: gpus.as_ref().map(|gpus| gpus[candidate]),
            }),
        })
    };
    Ok(probes.into_iter().enumerate().filter_map(report).collect())
}

/// The possible probes of a search.
fn cases_of<'a>(plan: &'a Plan, search: &CapacitySearch) -> &'a [Case] {
    let cases = search.first..search.first + search.grid.len();
    plan.cases.get(cases).unwrap_or_default()
}

fn probe_report(
    case: &Case,
    part: &Part,
    load: f64,
    purpose: Purpose,
    result: &ProbeResult,
) -> ProbeReport {
    let ProbeResult {
        evidence,
        valid,
        verdicts,
        sample,
    } = result;
    let hopeless = part.probe.is_some_and(|probe| probe.hopeless);
    // A probe that ended early has no rates, and an invalid one none of the server.
    let has_rates = *valid && !hopeless;
    let mean = |metric: Metric| {
        sample
            .distributions
            .get(&metric)
            .map(|distribution| distribution.mean)
    };
    ProbeReport {
        case: case.id.clone(),
        round: part.round,
        load,
        purpose,
        pass_probability: valid.then_some(evidence.pass_probability),
        requests: evidence.requests,
        futile: hopeless,
        verdicts: verdicts.clone(),
        per_user_tps: mean(Metric::DecodeTps).filter(|_| has_rates),
        total_tps: sample
            .scalars
            .get(&Metric::OutputTps)
            .copied()
            .filter(|_| has_rates),
        goodput: goodput(case, sample)
            .map(|(value, _)| value)
            .filter(|_| has_rates),
        dominated: false,
    }
}

/// Marks the probes that are not on the Pareto front: another one is at least as good in both throughputs, and better
/// in one.
fn mark_dominated(probes: &mut [ProbeReport]) {
    let throughputs: Vec<Option<(f64, f64)>> = probes
        .iter()
        .map(|probe| probe.per_user_tps.zip(probe.total_tps))
        .collect();
    let dominates = |a: &(f64, f64), b: &(f64, f64)| a.0 >= b.0 && a.1 >= b.1 && a != b;
    for (probe, throughput) in probes.iter_mut().zip(&throughputs) {
        probe.dominated = throughput.is_some_and(|throughput| {
            throughputs
                .iter()
                .flatten()
                .any(|other| dominates(other, &throughput))
        });
    }
}
