//! Runs a plan from its preparation to its report: the order of cases and rounds, and their results.

pub(crate) mod local_model;
pub(crate) mod managed_server;
pub mod panics;
pub(crate) mod rounds;
pub mod stop;
pub(crate) mod timestamps;

use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::rounds::Execution;
use crate::run::outputs::publish;
use crate::run::prepare::{
    Context, PreparedCase, describe_targets, prepare_cases, raise_open_file_limit, reach_all,
};
use crate::run::search::{PreparedSearch, run_search};
use crate::store::{RunDir, RunLocation, manifest};
use llmscen_analysis::Table;
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::redact::Redactor;
use llmscen_core::report::Report;
use llmscen_report::prose;
use llmscen_telemetry::host::machine;
use std::path::{Path, PathBuf};

/// A finished run, whatever its verdict.
pub struct CompletedRun {
    /// The report.
    pub report: Report,
    /// Run folder.
    pub folder: PathBuf,
    /// Why the run could not go on; the report covers the measurements up to then.
    pub fault: Option<RunError>,
}

/// Runs a plan.
///
/// # Errors
/// The run could not start, or its results cannot be written. A later fault is part of the result.
pub fn run_plan(plan: &Plan, context: &Context) -> Result<CompletedRun, RunError> {
    let prepared = PreparedRun::new(plan, context)?;
    raise_open_file_limit(plan, context.shard)?;
    let mut manifest = new_manifest(plan, prepared.notes(), context);
    let redactor = redactor(plan);
    let folder = create_folder(plan, &manifest, redactor.clone(), context)?;
    let (table, fault) = execute_rounds(plan, prepared, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor.redact_value(manifest);
    match (
        publish(plan, &table, &manifest, &folder, context.inconclusive),
        fault,
    ) {
        (Ok(report), fault) => Ok(CompletedRun {
            report,
            folder: folder.path().to_owned(),
            fault,
        }),
        // The first fault is the cause: a full disk, for example, also prevents the report.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

/// What is prepared before the first request.
enum PreparedRun {
    /// Every case.
    Cases(Vec<PreparedCase>),
    /// The first probe of a capacity search.
    Search(Box<PreparedSearch>),
}

impl PreparedRun {
    fn new(plan: &Plan, context: &Context) -> Result<PreparedRun, RunError> {
        if !plan.searches.is_empty() {
            return PreparedSearch::new(plan, context)
                .map(Box::new)
                .map(PreparedRun::Search);
        }
        let prepared_cases = prepare_cases(plan, context)?;
        reach_all(&plan.cases, &prepared_cases, context)?;
        Ok(PreparedRun::Cases(prepared_cases))
    }

    fn notes(&self) -> Vec<String> {
        let prepared_cases = match self {
            PreparedRun::Cases(prepared_cases) => prepared_cases.as_slice(),
            PreparedRun::Search(search) => std::slice::from_ref(&search.first_case),
        };
        let mut notes = Vec::new();
        prepared_cases
            .iter()
            .for_each(|prepared| prepared.add_notes(&mut notes));
        notes
    }
}

fn new_manifest(plan: &Plan, notes: Vec<String>, context: &Context) -> Manifest {
    for note in &notes {
        let _ = context.events.send(Event::Note(note.clone()));
    }
    Manifest {
        run_id: timestamps::run_id(&plan.id, context.wall_ns),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        name: plan.name.clone(),
        plan_id: plan.id.clone(),
        seed: plan.seed.0,
        started_at: timestamps::rfc3339(context.wall_ns),
        started_unix_ns: context.wall_ns,
        machine: machine(),
        targets: describe_targets(plan, &context.env),
        only: context.only.clone(),
        shard: (!context.shard.is_whole()).then_some(context.shard),
        notes: note_insecure_tls(plan).into_iter().chain(notes).collect(),
        ..Manifest::default()
    }
}

fn note_insecure_tls(plan: &Plan) -> Option<String> {
    let insecure = plan.cases.iter().any(|case| case.target.tls.insecure);
    insecure.then(|| {
        "TLS certificates of the target are not verified (`target.tls.insecure: true`)".to_owned()
    })
}

/// Creates the run folder and writes what is known at the start.
fn create_folder(
    plan: &Plan,
    manifest: &Manifest,
    redactor: Redactor,
    context: &Context,
) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&RunLocation {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &timestamps::folder_name(context.wall_ns),
        force: context.force,
    })?;
    let folder = folder.with_redactor(redactor);
    folder.write("plan.yaml", plan.resolved.as_bytes())?;
    // A later report compares with the same baseline, even if the original file has changed.
    if let Some(text) = plan
        .baseline
        .as_ref()
        .and_then(|baseline| baseline.text.as_ref())
    {
        folder.write("baseline.json", text.as_bytes())?;
    }
    folder.seal()?;
    manifest::write(&folder, manifest)?;
    let _ = context.events.send(Event::Folder(folder.path().to_owned()));
    Ok(folder)
}

/// Runs every round of every case, up to the fault that ends the run early. Returns the rows.
fn execute_rounds(
    plan: &Plan,
    prepared: PreparedRun,
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut execution = Execution::new(plan, folder, manifest, context)?;
    match prepared {
        PreparedRun::Search(search) => {
            if let Err(fault) = run_search(&mut execution, *search, plan, context) {
                execution.fault = Some(fault);
            }
        }
        PreparedRun::Cases(prepared_cases) => {
            let parts = plan.cases.len() * plan.rounds as usize;
            for (number, (round, index)) in round_order(plan).enumerate() {
                let case = &plan.cases[index];
                if is_aborted(case, execution.manifest) {
                    continue;
                }
                let input = execution.round_input(index, case, &prepared_cases[index], round, None);
                if !execution.run_round(&input, number, parts) {
                    break;
                }
            }
        }
    }
    execution.finish()
}

/// The round and the case index of each part of a run. Cases alternate within a round, so that drift of the server affects all cases
/// alike.
fn round_order(plan: &Plan) -> impl Iterator<Item = (u32, usize)> + use<> {
    let cases = plan.cases.len();
    (0..plan.rounds).flat_map(move |round| (0..cases).map(move |index| (round, index)))
}

/// Whether an earlier round of the case was aborted, so that further rounds cannot change the verdict.
fn is_aborted(case: &Case, manifest: &Manifest) -> bool {
    let aborted =
        |part: &Part| part.case == case.id && matches!(part.ending, Some(EarlyStop::Aborted(_)));
    manifest.parts.iter().any(aborted)
}

/// Removes the secrets of a plan, also in their Markdown-escaped form.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().with_encoding(prose)
}
