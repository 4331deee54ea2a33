//! `llmscen merge`: makes the report of a distributed run from what its shards stored.

use crate::cli::args::MergeArgs;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::load_stored_quietly;
use crate::cli::output::{Summary, annotate, exit_of, print_report};
use crate::cli::report::upload_to_trackers;
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::execution::redactor;
use crate::run::merge::{MergeError, merge_rounds, reserve_memory};
use crate::run::outputs::publish;
use crate::run::stored_run::StoredRun;
use crate::run::timestamps;
use crate::store::bodies::{Spool, spool};
use crate::store::shared_store::{Objects, SharedStore};
use crate::store::{RunDir, RunLocation};
use std::collections::BTreeMap;
use std::path::Path;

pub fn merge(args: &MergeArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let opened = args
        .run
        .trim_end_matches('/')
        .rsplit_once('/')
        .ok_or_else(|| {
            "pass the store and the key of the run: file:///shared/runs/nightly-17".to_owned()
        })
        .and_then(|(url, key)| SharedStore::open(url, key, env).map_err(|error| error.to_string()));
    let store = match opened {
        Ok(store) => store,
        Err(why) => {
            terminal.error(&why);
            return Exit::Scenario;
        }
    };
    merge_stored(&store, args, env, terminal).unwrap_or_else(|failure| match failure {
        Failure::Reported(exit) => exit,
        Failure::Run(error) => {
            terminal.error(&error.to_string());
            Exit::Error
        }
    })
}

/// Why there is no report.
enum Failure {
    /// The error was printed.
    Reported(Exit),
    Run(RunError),
}

impl<E: Into<RunError>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Run(error.into())
    }
}

fn merge_stored(
    store: &dyn Objects,
    args: &MergeArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Result<Exit, Failure> {
    let run = StoredRun::open(store)?;
    let summary =
        Summary::open(args.results.summary.as_deref(), env, terminal).map_err(Failure::Reported)?;
    let plan_folder = tempfile::tempdir().map_err(|source| MergeError::Write {
        path: std::env::temp_dir(),
        source,
    })?;
    let stored_plan = run.write_plan(plan_folder.path())?;
    let mut plan = load_stored_quietly(&stored_plan, env, terminal)
        .ok_or(Failure::Reported(Exit::Scenario))?;
    args.results.compat.add_to(&mut plan);
    let mut manifest = run.manifest(&mut plan)?;
    let folder = RunDir::create(&RunLocation {
        explicit: args.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &timestamps::folder_name(manifest.started_unix_ns),
        force: args.force,
    })?
    .with_redactor(redactor(&plan));
    run.write_plan(folder.path())?;
    // The rows may be too large for the folder of temporary files.
    let scratch = tempfile::Builder::new()
        .prefix(".merge-")
        .tempdir_in(folder.path())
        .map_err(|source| MergeError::Write {
            path: folder.path().to_owned(),
            source,
        })?;
    let local = args
        .rows
        .iter()
        .map(|rows| run.open_local(&plan, rows, scratch.path()))
        .collect::<Result<Vec<_>, MergeError>>()?;
    let rounds = run.rounds(&plan, scratch.path(), local)?;
    let reserved = reserve_memory(&rounds, folder.path(), args.memory, &command_line(args))?;
    if let Some(scratch) = reserved {
        terminal.status(&scratch);
    }
    let merged = merge_rounds(&plan, &rounds, run.shards())?;
    manifest.parts = merged.parts;
    if manifest.interrupted && run.ended_with_all(&plan, &manifest.parts)? {
        manifest.interrupted = false;
    }
    let bodies = folder.file(spool::FILE);
    let delivered = rounds.iter().flat_map(|round| &round.group.done);
    for path in delivered.filter_map(|done| done.file("bodies")) {
        Spool::append(&bodies)?.add_all(path)?;
    }
    let report = publish(
        &plan,
        &merged.table,
        &manifest,
        &folder,
        args.results.inconclusive.junit_result(),
    )?;
    print_report(&report, folder.path(), None, &args.results, terminal);
    annotate(&report, env, terminal);
    upload_to_trackers(&plan, &report, folder.path(), terminal);
    summary.append(&report, folder.path(), terminal);
    Ok(exit_of(&report, args.results.inconclusive))
}

/// The command line, to be repeated on another machine.
fn command_line(args: &MergeArgs) -> String {
    let mut words = vec!["llmscen merge".to_owned(), args.run.clone()];
    let folders = args.output.iter().map(|folder| ("--output", folder));
    for (option, folder) in folders.chain(args.rows.iter().map(|folder| ("--rows", folder))) {
        words.push(format!("{option} {}", folder.display()));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests;
