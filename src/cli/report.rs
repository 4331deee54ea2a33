//! `llmscen report`: a run again, from its stored rows.

use crate::cli::args::ReportArgs;
use crate::cli::exit::Exit;
use crate::cli::run::{exit_of, show, track};
use crate::cli::sources::{load_one, load_stored};
use crate::cli::terminal::Terminal;
use crate::model::plan::Plan;
use crate::model::report::Report;
use crate::run::error::RunError;
use crate::run::publish::{publish, render};
use crate::run::reckon::reckon;
use crate::run::recover::recover;
use crate::store::{RunDir, journal};
use crate::view::Inconclusive;
use std::collections::BTreeMap;

pub fn report(args: &ReportArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let folder = match RunDir::open(&args.folder) {
        Ok(folder) => folder,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Scenario;
        }
    };
    let Some(mut plan) = load_stored(&folder.path().join("plan.yaml"), env, terminal) else { return Exit::Scenario };
    args.compat.add_to(&mut plan);
    if let Some(other) = &args.slo {
        let Some(judges) = load_one(other, &[], env, terminal) else { return Exit::Scenario };
        if !judge_by(&mut plan, &judges, terminal) {
            return Exit::Scenario;
        }
    }
    match again(&mut plan, &folder, args.inconclusive.in_junit()) {
        Ok(report) => {
            show(&report, terminal);
            if args.track {
                track(&plan, &report, folder.path(), terminal);
            }
            terminal.say(&format!("report: {}", folder.path().join("report.md").display()));
            exit_of(&report, args.inconclusive)
        }
        Err(error) => {
            terminal.error(&error.to_string());
            Exit::Error
        }
    }
}

/// A killed run is brought to its end: its rows are written as tables. A whole one is only rendered again.
fn again(plan: &mut Plan, folder: &RunDir, inconclusive: Inconclusive) -> Result<Report, RunError> {
    let killed = folder.file(journal::FILE).exists();
    let (table, manifest) = recover(plan, folder)?;
    if killed {
        return publish(plan, &table, &manifest, folder, inconclusive);
    }
    let report = reckon(plan, &table, &manifest)?;
    render(plan, &table, &report, folder, inconclusive)?;
    Ok(report)
}

/// Takes the other scenario's assertions for the cases of the same id, or for all cases where it has only one.
fn judge_by(plan: &mut Plan, judges: &Plan, terminal: &mut Terminal) -> bool {
    for case in &mut plan.cases {
        let same =
            judges.cases.iter().find(|other| other.id == case.id).or(judges.cases.first().filter(|_| judges.cases.len() == 1));
        match same {
            Some(other) => {
                case.checks = other.checks.clone();
                // Limits that know of no stages are about each of them, too.
                let staged = !other.load.shape.stages().is_empty();
                case.stage_checks = if staged { other.stage_checks.clone() } else { other.checks.clone() };
            }
            None => {
                terminal.error(&format!("the scenario given with --slo has no case `{}`", case.id));
                return false;
            }
        }
    }
    true
}
