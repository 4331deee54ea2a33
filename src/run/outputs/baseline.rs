//! The metrics of a run as a baseline for later runs.

use crate::run::error::RunError;
use crate::run::outputs::recover::{damage_notes, recover};
use crate::run::outputs::summarize::{summarize, with_stages};
use crate::store::{RunDir, find_runs, manifest};
use llmscen_analysis::{Sample, judge};
use llmscen_core::baseline::{Baseline, BaselineCase, BaselineRun, Figure, LEVELS, MAX_ANSWERS};
use llmscen_core::check::{Check, Confidence, NoData, Op, RequestSet, Subject};
use llmscen_core::label::Labels;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::{InvalidReason, Report, RunVerdict};
use llmscen_core::sample::SummaryStatistics;
use llmscen_scenario::{BaselineText, Input};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The baseline of a run folder, or of the newest `runs` below a folder, for a scenario that names the folder.
///
/// # Errors
/// The folder cannot be read, or no run in it is a valid baseline.
pub fn baseline_of_folder(path: &Path, runs: Option<usize>) -> Result<BaselineText, String> {
    let (baseline, notes) = match runs {
        Some(runs) => newest_runs(path, runs)?,
        None => (read_run(path)?, Vec::new()),
    };
    let text = llmscen_report::baseline(&baseline).map_err(|error| error.to_string())?;
    Ok(BaselineText { text, notes })
}

/// The newest `count` runs below a folder that have the plan of the newest one, and notes on the runs left out.
fn newest_runs(path: &Path, count: usize) -> Result<(Baseline, Vec<String>), String> {
    let folders =
        find_runs(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut all: Option<Baseline> = None;
    let mut notes = Vec::new();
    let mut starts: Vec<(String, PathBuf)> = Vec::new();
    for folder in folders {
        match RunDir::open(&folder).and_then(|run| manifest::read(&run)) {
            Ok(manifest) => starts.push((manifest.started_at, folder)),
            Err(error) => notes.push(format!("{} is left out: {error}", folder.display())),
        }
    }
    starts.sort();
    let mut different: Option<(usize, String)> = None;
    for (_, folder) in starts.iter().rev() {
        if all.as_ref().is_some_and(|all| all.runs.len() >= count) {
            break;
        }
        let run = match read_run(folder) {
            Ok(run) => run,
            Err(why) => {
                notes.push(format!("{} is left out: {why}", folder.display()));
                continue;
            }
        };
        let Some(newer) = all.take() else {
            all = Some(run);
            continue;
        };
        if let Some(what) = newer.describe_plan_differences(&run.plan) {
            let (others, _) = different.get_or_insert((0, what));
            *others += 1;
            all = Some(newer);
        } else {
            all = Some(run.with(newer));
        }
    }
    if let Some((others, what)) = different {
        notes.push(format!(
            "runs of other plans are left out of the baseline: {others} (first difference: {what})"
        ));
    }
    match all {
        Some(all) => Ok((all, notes)),
        None => Err(notes
            .pop()
            .unwrap_or_else(|| format!("no run in {}", path.display()))),
    }
}

/// The baseline of one run folder.
fn read_run(path: &Path) -> Result<Baseline, String> {
    let folder = RunDir::open(path).map_err(|error| error.to_string())?;
    let file = folder.file("plan.yaml");
    let input = Input {
        path: &file,
        text: None,
        env: &BTreeMap::new(),
        set: &[],
    };
    let mut plan = llmscen_scenario::reload(&input)
        .map_err(|faults| faults.to_string())?
        .plan;
    let (baseline, objection) =
        baseline_of_run(&mut plan, &folder).map_err(|error| error.to_string())?;
    objection.map_or(Ok(baseline), Err)
}

/// The baseline of a run, and why other runs should not be compared with it, if so.
///
/// # Errors
/// The run folder cannot be read.
pub fn baseline_of_run(
    plan: &mut Plan,
    folder: &RunDir,
) -> Result<(Baseline, Option<String>), RunError> {
    let (table, manifest) = recover(plan, folder)?;
    let objection = objection(plan, &summarize(plan, &table, &manifest)?);
    let mut cases = Vec::new();
    for case in &plan.cases {
        cases.extend(with_stages(case, &table, &manifest, |table, facts, _| {
            let sample = llmscen_analysis::sample_case(table, facts)?;
            Ok(baseline_of_case(facts.case, &sample, facts.parts.len()))
        })?);
    }
    let machine = &manifest.machine;
    let run = BaselineRun {
        run_id: manifest.run_id.clone(),
        started_at: manifest.started_at.clone(),
        tool_version: manifest.tool_version.clone(),
        plan_id: manifest.plan_id.clone(),
        seed: manifest.seed,
        machine: format!("{}, {}, {} cores", machine.host, machine.cpu, machine.cores),
    };
    let baseline = Baseline {
        name: manifest.name.clone(),
        plan: llmscen_scenario::settings(&plan.resolved),
        confidences: LEVELS.to_vec(),
        runs: vec![run],
        cases,
    };
    Ok((baseline, objection))
}

fn objection(plan: &Plan, report: &Report) -> Option<String> {
    if !plan.searches.is_empty() {
        return Some("a capacity search has no cases in common with other runs".into());
    }
    if report.manifest.interrupted {
        return Some(match damage_notes(&report.manifest).next() {
            Some(note) => format!("the run was interrupted; {note}"),
            None => "the run was interrupted".into(),
        });
    }
    if report.manifest.error.is_some() || report.verdict == RunVerdict::Error {
        return Some("the run failed".into());
    }
    let invalid = report.cases.iter().find(|case| !case.audit.valid)?;
    let why = invalid
        .audit
        .reasons
        .first()
        .map_or("", InvalidReason::text);
    Some(format!(
        "the measurement of `{}` is invalid: {why}",
        invalid.id
    ))
}

fn baseline_of_case(case: &Case, sample: &Sample, rounds: usize) -> BaselineCase {
    let mut metrics: Vec<(String, Figure)> = Vec::new();
    for check in all_statistics().chain(case.checks.iter().cloned()) {
        let name = check.figure_name();
        if !metrics.iter().any(|(known, _)| *known == name)
            && let Some(figure) = judge::figure(&check, sample, &LEVELS)
        {
            metrics.push((
                name,
                Figure {
                    runs: vec![Some(figure.value)],
                    ..figure
                },
            ));
        }
    }
    let answers = judge::answers(sample);
    let has_some = (1..=MAX_ANSWERS).contains(&answers.0.len());
    BaselineCase {
        answers: has_some.then(|| Arc::new(answers)),
        id: case.id.clone(),
        labels: case.labels.0.iter().cloned().collect(),
        rounds: rounds as u32,
        scheduled: sample.counts.scheduled,
        ok: sample.counts.ok,
        metrics,
    }
}

/// Every statistic of every metric, as a check without a meaningful threshold.
fn all_statistics() -> impl Iterator<Item = Check> {
    let quantiles = SummaryStatistics::SHARES.map(Stat::Quantile);
    let stats: Vec<Stat> = [Stat::Mean, Stat::Sd, Stat::Min]
        .into_iter()
        .chain(quantiles)
        .chain([Stat::Max])
        .collect();
    let statistics = move |metric: &Metric| match metric.per() {
        Scope::Case => vec![(*metric, None)],
        Scope::Request | Scope::Gap => stats.iter().map(|stat| (*metric, Some(*stat))).collect(),
    };
    let check = |(metric, stat)| Check {
        expr: String::new(),
        subject: Subject::Metric {
            metric,
            stat,
            tags: Vec::new(),
        },
        op: Op::AtMost,
        limit: 0.0,
        relative: None,
        confidence: Confidence::Point,
        when: Labels::default(),
        of: RequestSet::Ok,
        no_data: NoData::Fail,
        abort: None,
        is_default: false,
    };
    Metric::ALL.iter().flat_map(statistics).map(check)
}
