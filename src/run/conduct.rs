//! From a plan to its report, as a list of steps.

use crate::run::bench::{Bench, Store, reach_all};
use crate::run::calendar;
use crate::run::context::Context;
use crate::run::course::{Course, Leg};
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::publish::publish;
use crate::run::reached::targets;
use crate::run::search;
use crate::run::secrets::redactor;
use crate::store::{RunDir, Where, manifest};
use llmscen_analysis::Table;
use llmscen_core::early_stop::Ending;
use llmscen_core::load::Shape;
use llmscen_core::manifest::{Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::report::Report;
use llmscen_core::target::Place;
use llmscen_telemetry::host::machine;
use llmscen_telemetry::process::allow_open_files;
use std::path::{Path, PathBuf};

/// Open files besides connections.
const SPARE_FILES: u64 = 128;
/// Asked for where nobody knows how many connections there will be: as many as Linux gives a process unless told otherwise.
const MANY_FILES: u64 = 1 << 20;

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
    let ready = Ready::of(plan, context)?;
    make_room(plan)?;
    let mut manifest = begin(plan, ready.notes(), context);
    let folder = open_folder(plan, &manifest, context)?;
    let (table, fault) = perform(plan, ready, &folder, &mut manifest, context)?;
    manifest.elapsed_s = Some(context.origin.elapsed().as_secs_f64());
    manifest.error = fault.as_ref().map(RunError::brief);
    let manifest = redactor(plan).clean_all(manifest);
    match (publish(plan, &table, &manifest, &folder, context.inconclusive), fault) {
        (Ok(report), fault) => Ok(Conducted { report, folder: folder.path().to_owned(), fault }),
        // A full disk also stops the report: what came first is the reason.
        (Err(_), Some(fault)) | (Err(fault), None) => Err(fault),
    }
}

fn make_room(plan: &Plan) -> Result<(), RunError> {
    let (wanted, connections) = plan.cases.iter().map(open_files).max().unwrap_or_default();
    let allowed = allow_open_files(if plan.cases.iter().any(boundless) { wanted.max(MANY_FILES) } else { wanted });
    if allowed >= wanted { Ok(()) } else { Err(RunError::OpenFiles { connections, wanted, allowed }) }
}

/// Whether its connections are as many as are in flight, and nothing bounds those.
fn boundless(case: &Case) -> bool {
    !case.load.shape.closed() && case.load.max_in_flight.is_none()
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
        Place::Local(_) => 0,
        Place::Simulator { .. } => 2,
    };
    (connections * ends + SPARE_FILES, connections)
}

fn begin(plan: &Plan, notes: Vec<String>, context: &Context) -> Manifest {
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
        targets: targets(plan, &context.env),
        only: context.only.clone(),
        notes: unchecked(plan).into_iter().chain(notes).collect(),
        ..Manifest::default()
    }
}

/// Says that the certificates of the target prove nothing, where the scenario wants it so.
fn unchecked(plan: &Plan) -> Option<String> {
    let insecure = plan.cases.iter().any(|case| case.target.tls.insecure);
    insecure.then(|| "TLS certificates of the target are not verified (`target.tls.insecure: true`)".to_owned())
}

fn open_folder(plan: &Plan, manifest: &Manifest, context: &Context) -> Result<RunDir, RunError> {
    let folder = RunDir::create(&Where {
        explicit: context.output.as_deref(),
        dir: Path::new(&plan.report.dir),
        name: &plan.name,
        started: &calendar::folder_name(context.wall_ns),
        force: context.force,
    })?;
    let folder = folder.hiding(redactor(plan));
    folder.write("plan.yaml", plan.resolved.as_bytes())?;
    // The report of this run is to be judged by the same baseline again, whatever becomes of the file.
    if let Some(text) = plan.baseline.as_ref().and_then(|baseline| baseline.text.as_ref()) {
        folder.write("baseline.json", text.as_bytes())?;
    }
    folder.seal()?;
    manifest::write(&folder, manifest)?;
    let _ = context.events.send(Event::Folder(folder.path().to_owned()));
    Ok(folder)
}

/// Plays every round of every case, interleaved, and keeps the rows, up to the fault that ends the run before its plan.
fn perform(
    plan: &Plan,
    ready: Ready,
    folder: &RunDir,
    manifest: &mut Manifest,
    context: &Context,
) -> Result<(Table, Option<RunError>), RunError> {
    let mut course = Course::begin(plan, folder, manifest, context)?;
    match ready {
        Ready::Search(first) => {
            if let Err(fault) = search::seek(&mut course, *first, plan, context) {
                course.fail(fault);
            }
        }
        Ready::Cases(benches) => {
            let parts = plan.cases.len() * plan.rounds as usize;
            for (number, (round, index)) in order(plan).enumerate() {
                if given_up(&plan.cases[index], course.manifest()) {
                    continue;
                }
                let (case, bench, place) = (&plan.cases[index], &benches[index], (number, parts));
                if !course.play(&Leg { index, case, bench, round, probe: None, place }) {
                    break;
                }
            }
        }
    }
    course.finish()
}

/// What must be ready before anything is sent.
enum Ready {
    /// Every case.
    Cases(Vec<Bench>),
    /// The first probe of a search, and what was opened for it.
    Search(Box<(Store, Bench)>),
}

impl Ready {
    fn of(plan: &Plan, context: &Context) -> Result<Ready, RunError> {
        if !plan.quests.is_empty() {
            return search::ready(plan, context).map(Box::new).map(Ready::Search);
        }
        let benches = Bench::of_plan(plan, context)?;
        reach_all(&plan.cases, &benches, context)?;
        Ok(Ready::Cases(benches))
    }

    fn notes(&self) -> Vec<String> {
        let benches = match self {
            Ready::Cases(benches) => benches.as_slice(),
            Ready::Search(first) => std::slice::from_ref(&first.1),
        };
        let mut notes = Vec::new();
        benches.iter().for_each(|bench| bench.tell(&mut notes));
        notes
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;

    fn plan(target: &str, load: &str) -> Plan {
        let text = format!("version: 1\nname: t\ntarget: {target}\ndataset: {{ kind: prompt, text: x }}\nload: {load}\n");
        let input = Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        llmscen_scenario::load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan
    }

    #[test]
    fn only_a_load_that_nothing_bounds_asks_for_every_file() {
        let url = "{ url: \"http://h/v1/chat/completions\", model: m }";
        let of = |load| boundless(&plan(url, load).cases[0]);
        assert!(of("{ rate: 5/s, duration: 9s }"));
        assert!(!of("{ rate: 5/s, duration: 9s, max_in_flight: 7 }") && !of("{ concurrency: 8, requests: 9 }"));
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
