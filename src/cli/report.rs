//! `llmscen report`: a run again, from its stored rows.

use crate::cli::args::ReportArgs;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{load_judges, load_stored, note_unchecked};
use crate::cli::output::{Summary, show};
use crate::cli::run::exit_of;
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::execution::redactor;
use crate::run::outputs::recover::recover;
use crate::run::outputs::summarize::summarize;
use crate::run::outputs::{publish, render};
use crate::store::{RunDir, journal};
use crate::tracking::{RunSummary, send_to_trackers};
use llmscen_core::check::{VERDICT_RULES, Verdict};
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::Report;
use llmscen_report::Inconclusive;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub fn report(args: &ReportArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    // The report of a run that goes on would take its place.
    let folder = match RunDir::open(&args.folder).and_then(RunDir::claim) {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    let stored = folder.path().join("plan.yaml");
    note_unchecked(&folder, terminal);
    let Some(mut plan) = load_stored(&stored, env, terminal) else { return Exit::Scenario };
    let folder = folder.with_redactor(redactor(&plan));
    args.compat.add_to(&mut plan);
    let judges = match &args.slo {
        Some(path) => match load_judges(path, &stored, env, terminal) {
            Some(plan) => Some(Judges { path, plan }),
            None => return Exit::Scenario,
        },
        None => None,
    };
    if let Some(Judges { path, .. }) =
        judges.as_ref().filter(|judges| judges.plan.cases.iter().all(|case| case.checks.is_empty()))
    {
        terminal.error(&format!("{} defines no `slo`", path.display()));
        return Exit::Scenario;
    }
    let summary = match Summary::open(args.show.summary.as_deref(), env, terminal) {
        Ok(summary) => summary,
        Err(exit) => return exit,
    };
    match again(&mut plan, &folder, judges.as_ref(), args.inconclusive.in_junit()) {
        Ok(report) => {
            show(&report, args.show.format, terminal);
            let changed = report.manifest.notes.iter().filter(|note| note.starts_with(RULES_CHANGED));
            changed.for_each(|note| terminal.say(note));
            if args.track {
                track_run(&plan, &report, folder.path(), terminal);
            }
            terminal.say(&format!("report: {}", folder.path().join("report.md").display()));
            summary.add(&report, folder.path(), terminal);
            exit_of(&report, args.inconclusive)
        }
        Err(Refused::Judges(why)) => {
            terminal.error(&why);
            Exit::Scenario
        }
        Err(Refused::Run(error)) => {
            terminal.error(&error.to_string());
            if error.is_of_stored_file() { Exit::Scenario } else { Exit::Error }
        }
    }
}

/// The scenario whose limits are used instead.
struct Judges<'a> {
    path: &'a Path,
    plan: Plan,
}

/// Why there is no report.
enum Refused {
    /// The scenario of `--slo` does not fit the run.
    Judges(String),
    /// Something else.
    Run(RunError),
}

impl<E: Into<RunError>> From<E> for Refused {
    fn from(error: E) -> Refused {
        Refused::Run(error.into())
    }
}

/// A killed run is brought to its end: its rows are written as tables. A whole one is only rendered again.
fn again(plan: &mut Plan, folder: &RunDir, judges: Option<&Judges<'_>>, inconclusive: Inconclusive) -> Result<Report, Refused> {
    let killed = !folder.is_complete()?;
    let (table, manifest) = recover(plan, folder)?;
    let report = match killed {
        true => publish(plan, &table, &manifest, folder, inconclusive)?,
        false => summarize(plan, &table, &manifest),
    };
    if !folder.is_sealed() {
        folder.seal()?;
    }
    // Where a crash left it behind.
    folder.remove(journal::FILE)?;
    let report = match judges {
        // What is stored stays the run's own: only this report is told by whom it is judged.
        Some(judges) => {
            judge_by(plan, judges, &manifest).map_err(Refused::Judges)?;
            let mut report = summarize(plan, &table, &manifest);
            report.manifest.notes.push(judged_by(judges.path));
            report
        }
        None if killed => return Ok(report),
        None => {
            let mut report = report;
            report.manifest.notes.extend(changed_verdicts(folder, &report));
            report
        }
    };
    render(plan, &table, &report, folder, inconclusive)?;
    Ok(report)
}

/// How the verdicts begin that changed with the rules.
const RULES_CHANGED: &str = "the verdict rules changed since this run";
/// Changed verdicts that are named.
const NAMED: usize = 5;

/// Which stored verdicts differ because they follow older rules; None where none do.
fn changed_verdicts(folder: &RunDir, report: &Report) -> Option<String> {
    let stored: Value = serde_json::from_slice(&folder.read("results.json").ok()?).ok()?;
    let rules = stored.get("verdict_rules").and_then(Value::as_u64).unwrap_or(1);
    let list = |of: &Value, name: &str| of.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let word = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).map(str::to_owned);
    let cases = list(&stored, "cases");
    let changed = report.cases.iter().flat_map(|case| {
        let old = cases.iter().find(|old| word(old, "id").as_deref() == Some(&case.id)).map(|old| list(old, "slo"));
        let differs = |(verdict, old): (&Verdict, Value)| {
            let before = word(&old, "verdict")?;
            let (same, now) = (word(&old, "expr")? == verdict.check.expr, verdict.ruling.name());
            (same && before != now).then(|| format!("`{}` of `{}` was {before} and is {now}", verdict.check.expr, case.id))
        };
        case.verdicts.iter().zip(old.unwrap_or_default()).filter_map(differs).collect::<Vec<_>>()
    });
    let changed: Vec<String> = changed.collect();
    let more = match changed.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<&str> = changed.iter().take(NAMED).map(String::as_str).collect();
    (rules < VERDICT_RULES && !changed.is_empty()).then(|| format!("{RULES_CHANGED}: {}{more}", named.join(", ")))
}

fn judged_by(path: &Path) -> String {
    format!("judged against `slo` from `{}` (--slo), not from the original scenario", path.display())
}

/// Takes the other scenario's assertions for the cases of the same id, or for all cases where it has only one. Cases that never
/// ran need none.
fn judge_by(plan: &mut Plan, judges: &Judges<'_>, manifest: &Manifest) -> Result<(), String> {
    let others = &judges.plan.cases;
    let ran = |case: &Case| manifest.parts.iter().any(|part| part.case == case.id);
    for case in plan.cases.iter_mut() {
        let same = others.iter().find(|other| other.id == case.id);
        let only = others.first().filter(|_| others.len() == 1);
        match same.or(only) {
            Some(other) => {
                // What a limit is relative to belongs to one case, and is no measure for another one or for a stage.
                let staged = !other.load.shape.stages().is_empty();
                let foreign = same.is_none() || !staged && !case.load.shape.stages().is_empty();
                if let Some(check) = other.checks.iter().find(|check| foreign && check.relative.is_some()) {
                    return Err(format!(
                        "{}: `{}` is relative to what is known of `{}`, and cannot judge `{}`; give it the same matrix and load",
                        judges.path.display(),
                        check.expr,
                        other.id,
                        case.id
                    ));
                }
                case.checks = other.checks.clone();
                // Limits that know of no stages are about each of them, too.
                case.stage_checks = if staged { other.stage_checks.clone() } else { other.checks.clone() };
            }
            None if ran(case) => {
                let known = others.iter().map(|other| other.id.as_str()).collect::<Vec<_>>().join("  ");
                return Err(format!(
                    "{} has no case `{}`, which the run has; it has: {known}. Give it the same matrix, or one case whose limits \
                     are about every case",
                    judges.path.display(),
                    case.id
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// Tells them of a run. One that does not listen is said, and changes nothing else.
pub fn track_run(plan: &Plan, report: &Report, folder: &Path, terminal: &mut Terminal) {
    for told in send_to_trackers(&plan.report.track, &RunSummary::new(plan, report).redacted(&redactor(plan)), folder) {
        match told {
            Ok(place) => terminal.say(&format!("tracked: {place}")),
            Err(error) => terminal.warn(&error.to_string()),
        }
    }
}
