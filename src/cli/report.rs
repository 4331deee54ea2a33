//! `llmscen report`: rebuilds the reports of a run from its stored records.

use crate::cli::args::ReportArgs;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_slo_override, load_stored, note_unchecked};
use crate::cli::output::{Summary, exit_of, print_report};
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::execution::redactor;
use crate::run::outputs::recover::recover;
use crate::run::outputs::summarize::summarize;
use crate::run::outputs::{publish, render};
use crate::store::{RunDir, journal, manifest};
use crate::tracking::{RunSummary, send_to_trackers};
use llmscen_core::check::VERDICT_RULES;
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::Plan;
use llmscen_core::report::Report;
use llmscen_report::Inconclusive;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the GPUs that a run recorded: `NVIDIA H200` of `8 x NVIDIA H200`. Of several kinds the first.
fn recorded_gpu(folder: &RunDir) -> Option<String> {
    let gpus = manifest::read(folder).ok()?.machine.gpu?;
    let first = gpus.split(", ").next()?;
    let name = first.split_once(" x ").map_or(first, |(_, name)| name);
    Some(name.to_owned())
}

pub fn report(args: &ReportArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    // The claim fails if the run is still in progress.
    let folder = match RunDir::open(&args.folder).and_then(RunDir::claim) {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    let stored = folder.path().join("plan.yaml");
    note_unchecked(&folder, terminal);
    let Some(mut plan) = load_stored(&stored, env, terminal) else {
        return Exit::Scenario;
    };
    let folder = folder.with_redactor(redactor(&plan));
    args.results.compat.add_to(&mut plan);
    let slo = match &args.slo {
        Some(path) => {
            match load_slo_override(path, &stored, recorded_gpu(&folder), env, terminal) {
                Some(plan) => Some(SloOverride { path, plan }),
                None => return Exit::Scenario,
            }
        }
        None => None,
    };
    if let Some(slo) = slo
        .as_ref()
        .filter(|slo| slo.plan.cases.iter().all(|case| case.checks.is_empty()))
    {
        terminal.error(&format!("{} defines no `slo`", slo.path.display()));
        return Exit::Scenario;
    }
    let summary = match Summary::open(args.results.summary.as_deref(), env, terminal) {
        Ok(summary) => summary,
        Err(exit) => return exit,
    };
    match rebuild_report(
        &mut plan,
        &folder,
        slo.as_ref(),
        args.results.inconclusive.junit_result(),
    ) {
        Ok((report, folder)) => {
            print_report(&report, folder.path(), None, &args.results, terminal);
            let changed = report
                .manifest
                .notes
                .iter()
                .filter(|note| note.starts_with(RULES_CHANGED));
            changed.for_each(|note| terminal.status(note));
            if args.track {
                upload_to_trackers(&plan, &report, folder.path(), terminal);
            }
            summary.append(&report, folder.path(), terminal);
            exit_of(&report, args.results.inconclusive)
        }
        Err(Failure::SloMismatch(why)) => {
            terminal.error(&why);
            Exit::Scenario
        }
        Err(Failure::Run(error)) => {
            terminal.error(&error.to_string());
            if error.is_of_stored_file() {
                Exit::Scenario
            } else {
                Exit::Error
            }
        }
    }
}

/// The objectives of `--slo`.
struct SloOverride<'a> {
    path: &'a Path,
    plan: Plan,
}

/// Why there is no report.
enum Failure {
    /// The objectives of `--slo` do not fit the run.
    SloMismatch(String),
    Run(RunError),
}

impl<E: Into<RunError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Run(error.into())
    }
}

/// Completes an interrupted run, whose tables are not written yet; renders a complete one again. Returns the report
/// and its folder: a judgment by other limits is written beside the stored one, never over it.
fn rebuild_report(
    plan: &mut Plan,
    folder: &RunDir,
    slo: Option<&SloOverride<'_>>,
    inconclusive: Inconclusive,
) -> Result<(Report, RunDir), Failure> {
    let interrupted = !folder.is_complete()?;
    let (table, manifest) = recover(plan, folder)?;
    let completed = match interrupted {
        true => Some(publish(plan, &table, &manifest, folder, inconclusive)?),
        false => None,
    };
    if !folder.is_sealed() {
        folder.seal()?;
    }
    // A crash may have left the journal behind.
    folder.remove(journal::FILE)?;
    let Some(slo) = slo else {
        if let Some(report) = completed {
            return Ok((report, folder.clone()));
        }
        let mut report = summarize(plan, &table, &manifest)?;
        let changed = describe_changed_verdicts(folder, &report);
        report.manifest.notes.extend(changed);
        render(plan, &table, &report, folder, inconclusive)?;
        return Ok((report, folder.clone()));
    };
    replace_objectives(plan, slo, &manifest).map_err(Failure::SloMismatch)?;
    let mut report = summarize(plan, &table, &manifest)?;
    report.manifest.notes.push(format!(
        "judged against `slo` from `{}` (--slo), not from the original scenario",
        slo.path.display()
    ));
    let judged = folder.judged(slo.path);
    // Records do not depend on limits.
    plan.report.store.clear();
    render(plan, &table, &report, &judged, inconclusive)?;
    Ok((report, judged))
}

/// Prefix of the note about changed verdicts.
const RULES_CHANGED: &str = "the verdict rules changed since this run";
/// Changed verdicts that the note lists.
const MAX_LISTED: usize = 5;

/// A note about stored verdicts that differ because the verdict rules changed.
fn describe_changed_verdicts(folder: &RunDir, report: &Report) -> Option<String> {
    let stored: Value = serde_json::from_slice(&folder.read("results.json").ok()?).ok()?;
    let rules = stored
        .get("verdict_rules")
        .and_then(Value::as_u64)
        .unwrap_or(1);
    if rules >= VERDICT_RULES {
        return None;
    }
    let mut changed = Vec::new();
    for case in &report.cases {
        let stored_cases = array(&stored, "cases");
        let Some(old) = stored_cases
            .iter()
            .find(|old| text(old, "id") == Some(&case.id))
        else {
            continue;
        };
        for (verdict, old) in case.verdicts.iter().zip(array(old, "slo")) {
            let (Some(expr), Some(before)) = (text(old, "expr"), text(old, "verdict")) else {
                continue;
            };
            let now = verdict.ruling.name();
            if expr == verdict.check.expr && before != now {
                changed.push(format!(
                    "`{expr}` of `{}` was {before} and is {now}",
                    case.id
                ));
            }
        }
    }
    if changed.is_empty() {
        return None;
    }
    let more = match changed.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    changed.truncate(MAX_LISTED);
    Some(format!("{RULES_CHANGED}: {}{more}", changed.join(", ")))
}

fn array<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    object
        .get(key)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key).and_then(Value::as_str)
}

/// Replaces the objectives of each case with those of the other scenario's case of the same id, or of its only case.
/// Cases that never ran need none.
fn replace_objectives(
    plan: &mut Plan,
    slo: &SloOverride<'_>,
    manifest: &Manifest,
) -> Result<(), String> {
    let others = &slo.plan.cases;
    let file = slo.path.display();
    for case in plan.cases.iter_mut() {
        let same_id = others.iter().find(|other| other.id == case.id);
        let Some(other) = same_id.or(others.first().filter(|_| others.len() == 1)) else {
            if !manifest.parts.iter().any(|part| part.case == case.id) {
                continue;
            }
            let available = others
                .iter()
                .map(|other| other.id.as_str())
                .collect::<Vec<_>>()
                .join("  ");
            return Err(format!(
                "{file} has no case `{}` of the run; it has: {available}. Use the same matrix, or \
                a single case for all",
                case.id
            ));
        };
        // A relative objective belongs to one case, and cannot judge another case or the stages of a load.
        let has_stages = !other.load.shape.stages().is_empty();
        let is_foreign = same_id.is_none() || !has_stages && !case.load.shape.stages().is_empty();
        if let Some(check) = other
            .checks
            .iter()
            .find(|check| is_foreign && check.relative.is_some())
        {
            return Err(format!(
                "{file}: `{}` is relative to values of `{}` and cannot judge `{}`; use the same matrix and load",
                check.expr, other.id, case.id
            ));
        }
        case.checks = other.checks.clone();
        // Objectives of a load without stages apply to each stage, too.
        case.stage_checks = if has_stages {
            other.stage_checks.clone()
        } else {
            other.checks.clone()
        };
    }
    Ok(())
}

/// Uploads the results to trackers. A failed upload is a warning.
pub fn upload_to_trackers(plan: &Plan, report: &Report, folder: &Path, terminal: &mut Terminal) {
    let summary = RunSummary::new(plan, report).redacted(&redactor(plan));
    for result in send_to_trackers(&plan.report.track, &summary, folder) {
        match result {
            Ok(location) => terminal.status(&format!("tracked: {location}")),
            Err(error) => terminal.warn(&error.to_string()),
        }
    }
}
