//! Runs a plan from its preparation to its report: the order of cases and rounds, and their results.

pub(crate) mod continuation;
pub(crate) mod failures;
pub(crate) mod group;
pub(crate) mod hooks;
pub(crate) mod plan_digest;
pub(crate) mod round_facts;
pub(crate) mod rounds;
pub(crate) mod search;
pub(crate) mod targets;

use crate::run::api_keys::KeyRenewal;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::execution::continuation::{Continuation, FinishedRounds, is_aborted};
use crate::run::execution::group::{GroupRun, remove_merged_files};
use crate::run::execution::hooks::is_last_on_server;
use crate::run::execution::rounds::{Execution, describe_profiled};
use crate::run::execution::search::{PreparedSearch, run_search};
use crate::run::outputs::publish;
use crate::run::prepare::{describe_targets, prepare_cases, raise_open_file_limit, reach_all};
use crate::run::requests::prepared_case::PreparedCase;
use crate::run::sharding::ShardingError;
use crate::run::stop::Level;
use crate::run::timestamps;
use crate::store::{RunDir, RunLocation, manifest};
use llmscen_analysis::Table;
use llmscen_core::manifest::Manifest;
use llmscen_core::plan::{Case, Plan, PlannedRound};
use llmscen_core::redact::Redactor;
use llmscen_core::report::Report;
use llmscen_core::target::Cost;
use llmscen_report::prose;
use llmscen_telemetry::host::machine;
use std::collections::BTreeSet;
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

/// Runs a plan, or shard 0 of it, and makes the report.
///
/// # Errors
/// The run could not start, or its results cannot be written. A later fault is part of the result.
pub fn run_plan(plan: &Plan, context: &Context) -> Result<CompletedRun, RunError> {
    let continued = context
        .continued
        .as_deref()
        .map(|path| Continuation::open(plan, path))
        .transpose()?;
    let started = StartedRun::new(plan, continued, context)?;
    let mut manifest = started.manifest.clone();
    let folder = started.folder.clone();
    let (table, fault) = execute_rounds(plan, started, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor(plan).redact_value(manifest);
    let published = publish(plan, &table, &manifest, &folder, context.inconclusive);
    let published = published.and_then(|report| {
        if context.shared.is_some() {
            remove_merged_files(&folder)?;
        }
        Ok(report)
    });
    match (published, fault) {
        (Ok(report), fault) => Ok(CompletedRun {
            report,
            folder: folder.path().to_owned(),
            fault,
        }),
        // The first fault is the cause: a full disk, for example, also prevents the report.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

/// Runs one shard of a plan and delivers its rows to the store; another process makes the report.
///
/// # Errors
/// The shard could not run, or its rows could not be delivered.
pub fn run_shard(plan: &Plan, context: &Context) -> Result<(), RunError> {
    let started = StartedRun::new(plan, None, context)?;
    let mut manifest = started.manifest.clone();
    let (_, fault) = execute_rounds(plan, started, &mut manifest, context)?;
    match fault {
        // Shard 0 has the verdict on these, and its report takes longer than the others run.
        Some(RunError::Sharding(ShardingError::EndedByFirst(_))) => Ok(()),
        Some(fault) if fault.affects_one_target() => Ok(()),
        fault => fault.map_or(Ok(()), Err),
    }
}

/// A run before its first round.
struct StartedRun {
    prepared: PreparedRun,
    group: Option<GroupRun>,
    manifest: Manifest,
    folder: RunDir,
    /// What an earlier process has measured.
    finished: FinishedRounds,
    keys: KeyRenewal,
}

impl StartedRun {
    /// Prepares every case, obtains keys, meets the other shards, and creates the run folder, unless an earlier run
    /// goes on.
    fn new(
        plan: &Plan,
        continued: Option<Continuation>,
        context: &Context,
    ) -> Result<StartedRun, RunError> {
        let mut keys = KeyRenewal::default();
        context.stop.set_preparing(true);
        let prepared = PreparedRun::new(plan, context).and_then(|prepared| {
            raise_open_file_limit(plan, context.shard)?;
            keys = KeyRenewal::start(plan, context)?;
            Ok(prepared)
        });
        context.stop.set_preparing(false);
        let (prepared, group) = match &context.shared {
            None => (prepared?, None),
            Some(shared) => {
                let (prepared, group) = GroupRun::join(plan, prepared, shared, context)?;
                (prepared, Some(group))
            }
        };
        let mut manifest = new_manifest(plan, prepared.notes(plan), context);
        let reached = reach_all(prepared.cases(plan), context);
        let mut finished = FinishedRounds::default();
        let folder = match continued {
            None => reached.and_then(|()| create_folder(plan, &manifest, redactor(plan), context)),
            Some(continued) => reached.map(|()| {
                let folder = continued.folder.with_redactor(redactor(plan));
                manifest.notes.push(continued.finished.note(plan));
                manifest.targets.extend(continued.manifest.targets);
                manifest.served = continued.manifest.served;
                manifest.parts = continued.manifest.parts;
                manifest.profiled = continued.manifest.profiled;
                manifest.then = continued.manifest.then;
                let profiled = manifest.profiled.iter().map(describe_profiled);
                manifest.notes.extend(profiled);
                finished = continued.finished;
                let _ = context.events.send(Event::Folder(folder.path().to_owned()));
                folder
            }),
        };
        let stored = folder.and_then(|folder| match &group {
            Some(group) if group.leads() => group.store_plan(plan, &manifest).map(|()| folder),
            _ => Ok(folder),
        });
        match stored {
            Ok(folder) => Ok(StartedRun {
                prepared,
                group,
                manifest,
                folder,
                finished,
                keys,
            }),
            Err(fault) => {
                if let Some(mut group) = group {
                    group.fail(&fault);
                }
                Err(fault)
            }
        }
    }
}

/// What is prepared before the first request.
pub(crate) enum PreparedRun {
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
        Ok(PreparedRun::Cases(prepared_cases))
    }

    /// The prepared cases.
    pub(crate) fn cases<'a>(&'a self, plan: &'a Plan) -> Vec<(&'a Case, &'a PreparedCase)> {
        match self {
            PreparedRun::Cases(prepared_cases) => plan.cases.iter().zip(prepared_cases).collect(),
            PreparedRun::Search(search) => plan
                .cases
                .get(search.first_index)
                .map(|case| (case, &search.first_case))
                .into_iter()
                .collect(),
        }
    }

    fn notes(&self, plan: &Plan) -> Vec<String> {
        let mut notes = Vec::new();
        for (_, prepared) in self.cases(plan) {
            prepared.add_notes(&mut notes);
        }
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
        labels: plan.labels.clone(),
        plan_id: plan.id.clone(),
        seed: plan.seed.0,
        started_at: timestamps::rfc3339(context.wall_ns),
        started_unix_ns: context.wall_ns,
        machine: machine(),
        targets: describe_targets(plan, &context.env),
        filter: context.filter.clone(),
        shard: (!context.shard.is_whole()).then_some(context.shard),
        attempt: context.shared.as_ref().map(|shared| shared.nonce.clone()),
        notes: note_insecure_tls(plan)
            .into_iter()
            .chain(note_costs(plan))
            .chain(notes)
            .collect(),
        ..Manifest::default()
    }
}

/// The prices that costs are computed from.
fn note_costs(plan: &Plan) -> Option<String> {
    let costs = plan
        .cases
        .iter()
        .filter_map(|case| case.target.cost.as_ref());
    let describe = |cost: &Cost| {
        let per = if cost.per_gpu { " and GPU" } else { "" };
        format!("{} {} per hour{per}", cost.per_hour, cost.currency)
    };
    let prices: BTreeSet<String> = costs.map(describe).collect();
    let prices: Vec<String> = prices.into_iter().collect();
    (!prices.is_empty()).then(|| {
        format!(
            "Costs are at the measured load of a target that is never idle, at {}.",
            prices.join(" or ")
        )
    })
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
    started: StartedRun,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let StartedRun {
        prepared,
        group,
        folder,
        finished,
        keys,
        ..
    } = started;
    let mut execution = Execution::new(plan, &folder, manifest, group, context)?;
    execution.restore(&prepared.cases(plan), finished);
    let result = match prepared {
        PreparedRun::Search(search) => run_search(&mut execution, *search, plan, context),
        PreparedRun::Cases(prepared_cases) => run_cases(&mut execution, &prepared_cases, plan),
    };
    match result {
        Ok(()) => {}
        // A signal to another shard, between two rounds.
        Err(RunError::Interrupted) if context.stop.level() == Level::Run => context.stop.press(),
        Err(RunError::Interrupted) => {}
        Err(fault) => execution.failures.fault = Some(fault),
    }
    execution.manifest.notes.extend(keys.stop());
    execution.finish()
}

/// Runs every round of every case.
fn run_cases(
    execution: &mut Execution<'_>,
    prepared_cases: &[PreparedCase],
    plan: &Plan,
) -> Result<(), RunError> {
    let parts = plan.cases.len() * plan.rounds as usize;
    let mut planned = plan.rounds_in_order().into_iter().enumerate();
    loop {
        let found = planned.find(|&(_, PlannedRound { round, case })| {
            let prepared = &prepared_cases[case];
            let case = &plan.cases[case];
            !is_aborted(&case.id, execution.manifest)
                && !execution.has_finished(case, round)
                && !execution.must_skip(case, round, prepared)
        });
        let number = found.map_or(0, |(number, _)| number);
        let wanted = found.map(|(_, PlannedRound { round, case })| {
            execution.want_round(case, round, None, &prepared_cases[case])
        });
        let Some(next) = execution.agree_on_next(wanted)? else {
            break;
        };
        let (Some(case), Some(prepared)) =
            (plan.cases.get(next.case), prepared_cases.get(next.case))
        else {
            break;
        };
        let input = execution.round_input(&next, case, prepared, None);
        if !execution.run_round(&input, number, parts) {
            return Ok(());
        }
        if case.target.server.is_some() && is_last_on_server(plan, next.case, next.round) {
            execution.profile_failed_cases(prepared_cases, Some(case));
        }
    }
    // Servers that the run does not start, and those whose last round was not run.
    execution.profile_failed_cases(prepared_cases, None);
    Ok(())
}

/// Removes the secrets of a plan, also in their Markdown-escaped form.
pub fn redactor(plan: &Plan) -> Redactor {
    plan.redactor().with_encoding(prose)
}
