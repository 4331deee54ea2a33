//! From a plan to its report, as a list of steps.

use crate::frame::Table;
use crate::model::ending::Ending;
use crate::model::load::Shape;
use crate::model::plan::{Case, Plan};
use crate::model::report::{Manifest, Part, Report};
use crate::model::target::Place;
use crate::model::units::Nanos;
use crate::run::bench::{Bench, reach_all};
use crate::run::calendar;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::ledger::Ledger;
use crate::run::part::{Turn, play};
use crate::run::publish::publish;
use crate::run::rows::{Rows, table};
use crate::run::stop::{Level, Stop};
use crate::store::journal::Writer;
use crate::store::{RunDir, Where, journal, manifest};
use crate::telemetry::machine::machine;
use crate::telemetry::process::allow_open_files;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Open files besides connections.
const SPARE_FILES: u64 = 128;

/// A run that came to its end, whatever the verdict.
pub struct Conducted {
    /// The report.
    pub report: Report,
    /// The run folder.
    pub folder: PathBuf,
    /// Why the run could not go on; the report holds what was measured by then.
    pub fault: Option<RunError>,
}

/// Runs a plan.
pub fn conduct(plan: &Plan, context: &Context) -> Result<Conducted, RunError> {
    let benches = Bench::of_plan(plan, context)?;
    reach_all(plan, &benches, context)?;
    make_room(plan)?;
    let mut manifest = begin(plan, &benches, context);
    let folder = open_folder(plan, &manifest, context)?;
    let (table, fault) = perform(plan, &benches, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::to_string);
    match (publish(plan, &table, &manifest, &folder, context.inconclusive), fault) {
        (Ok(report), fault) => Ok(Conducted { report, folder: folder.path().to_owned(), fault }),
        // A full disk also stops the report: what came first is the reason.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

fn make_room(plan: &Plan) -> Result<(), RunError> {
    let (wanted, connections) = plan.cases.iter().map(open_files).max().unwrap_or_default();
    let allowed = allow_open_files(wanted);
    if allowed >= wanted { Ok(()) } else { Err(RunError::OpenFiles { connections, wanted, allowed }) }
}

/// Open files that a case needs at the most, and the connections among them: one file each, two where the simulator in
/// this process holds the other end.
fn open_files(case: &Case) -> (u64, u64) {
    let connections = match (&case.load.shape, case.load.max_in_flight) {
        (Shape::Burst, None) => case.load.planned().unwrap_or(0),
        (shape, most) => u64::from(shape.users().or(most).unwrap_or(0)),
    };
    let ends = match case.target.place {
        Place::Url(_) => 1,
        Place::Simulator { .. } => 2,
    };
    (connections * ends + SPARE_FILES, connections)
}

fn begin(plan: &Plan, benches: &[Bench], context: &Context) -> Manifest {
    let notes = notes(benches);
    for note in &notes {
        let _ = context.events.send(Event::Note(note.clone()));
    }
    Manifest {
        run_id: calendar::run_id(&plan.id, context.wall_ns),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        name: plan.name.clone(),
        plan_id: plan.id.clone(),
        seed: plan.seed.0,
        started_at: calendar::rfc3339(context.wall_ns),
        started_unix_ns: context.wall_ns,
        machine: machine(),
        only: context.only.clone(),
        notes,
        ..Manifest::default()
    }
}

/// What is known of the datasets by now. Cases that share one share its notes.
fn notes(benches: &[Bench]) -> Vec<String> {
    let own = |bench: &Bench| bench.notes.iter().cloned().chain(bench.prompts.problems()).collect::<Vec<_>>();
    let mut notes: Vec<String> = benches.iter().flat_map(own).collect();
    notes.sort();
    notes.dedup();
    notes
}

fn open_folder(plan: &Plan, manifest: &Manifest, context: &Context) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&Where {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &calendar::folder_name(context.wall_ns),
        force: context.force,
    })?;
    folder.write("plan.yaml", plan.resolved.as_bytes())?;
    manifest::write(&folder, manifest)?;
    let _ = context.events.send(Event::Folder(folder.path().to_owned()));
    Ok(folder)
}

/// Plays every round of every case, interleaved, and keeps the rows, up to the fault that ends the run before its plan.
fn perform(
    plan: &Plan,
    benches: &[Bench],
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut journal = Writer::create(&folder.file(journal::FILE))?;
    let (mut rows, mut fault, told) = (Rows::new(), None, manifest.notes.clone());
    let parts = plan.cases.len() * plan.rounds as usize;
    let mut ledger = Ledger::default();
    for (number, (round, index)) in order(plan).enumerate() {
        if given_up(&plan.cases[index], manifest) {
            continue;
        }
        if number > 0 {
            rest(plan.pause.into(), &context.stop);
        }
        if context.stop.level() > Level::Run {
            break;
        }
        let (case, bench) = (&plan.cases[index], &benches[index]);
        let seed = plan.seed.child(case.id.as_str()).child(u64::from(round));
        let (first, planned) = (ledger.first(case, bench), bench.extent(case, seed).0);
        announce(case, planned, (number, parts), context);
        let turn = Turn { case, index: index as u32, round, first, planned, seed };
        let done = match play(&turn, bench, journal, context) {
            Ok(done) => done,
            Err(error) => {
                fault = Some(error);
                break;
            }
        };
        ledger.book(case, bench, (first, planned), &done.outcomes);
        journal = done.journal;
        manifest.parts.push(done.part);
        manifest.notes = notes(benches);
        rows.insert((turn.index, round), done.outcomes);
        let noted = manifest::write(folder, manifest);
        fault = done.fault.or(noted.err().map(RunError::from));
        if fault.is_some() {
            break;
        }
    }
    manifest.notes.extend(ledger.notes());
    for note in manifest.notes.iter().filter(|note| !told.contains(note)) {
        let _ = context.events.send(Event::Note(note.clone()));
    }
    manifest.interrupted = context.stop.level() > Level::Run;
    Ok((table(plan, &rows)?, fault))
}

/// Whether a limit of the case was lost in an earlier round: more of them decide nothing.
fn given_up(case: &Case, manifest: &Manifest) -> bool {
    let lost = |part: &Part| part.case == case.id && matches!(part.ending, Some(Ending::Aborted(_)));
    manifest.parts.iter().any(lost)
}

/// Rounds outside, cases inside: drift of the server strikes all cases alike.
fn order(plan: &Plan) -> impl Iterator<Item = (u32, usize)> + use<> {
    let cases = plan.cases.len();
    (0..plan.rounds).flat_map(move |round| (0..cases).map(move |index| (round, index)))
}

fn announce(case: &Case, planned: Option<u64>, (part, parts): (usize, usize), context: &Context) {
    let total = planned.or(case.load.requests);
    let seconds = case.load.lasts().map(Nanos::secs);
    let _ = context.events.send(Event::CaseStarted { case: case.id.clone(), part, parts, total, seconds });
}

/// The pause between cases; a signal ends it.
fn rest(pause: Duration, stop: &Stop) {
    let until = Instant::now() + pause;
    while stop.level() == Level::Run && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{self, Input};
    use std::collections::BTreeMap;

    fn plan(target: &str, load: &str) -> Plan {
        let text = format!("version: 1\nname: t\ntarget: {target}\ndataset: {{ kind: prompt, text: x }}\nload: {load}\n");
        let input = Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        scenario::load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan
    }

    #[test]
    fn a_connection_is_one_open_file_and_two_where_the_simulator_is_in_this_process() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        for (target, load, files) in [
            (url, "{ concurrency: 1000, requests: 5000 }", 1000),
            ("{ api: simulator }", "{ concurrency: 1000, requests: 5000 }", 2000),
            (url, "{ rate: burst, requests: 300, warmup: 20 }", 320),
            (url, "{ rate: 5/s, duration: 9s, max_in_flight: 7 }", 7),
        ] {
            assert_eq!(open_files(&plan(target, load).cases[0]).0 - SPARE_FILES, files, "{load}");
        }
    }
}
