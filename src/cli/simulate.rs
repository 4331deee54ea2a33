//! `llmscen simulate`: the built-in server on a port, until a signal ends it.

use crate::cli::args::SimulateArgs;
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use crate::run::execution::stop::{Level, Stop};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::target::Place;
use llmscen_scenario::Input;
use llmscen_simulator::Truth;
use llmscen_simulator::truth::write_jsonl;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

/// Stands in where no scenario is given, so that `--set` works on it.
const BARE: &str = "version: 1\nname: simulate\ntarget: { api: simulator }\ndataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\n";

pub fn simulate(args: &SimulateArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some((config, seed)) = configuration(args, env, terminal) else { return Exit::Scenario };
    // Opened first: a path that cannot be written is said now, not when everything has been served.
    let record = match args.truth.as_deref().map(create).transpose() {
        Ok(record) => record,
        Err(why) => {
            terminal.error(&why);
            return Exit::Scenario;
        }
    };
    let truth = if record.is_some() { Truth::since(Instant::now()) } else { Truth::off() };
    let server = match llmscen_simulator::start(&config, seed, args.listen, truth) {
        Ok(server) => server,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Error;
        }
    };
    terminal.say("the simulator is listening (Ctrl-C ends it)");
    terminal.data(&format!("http://{}\n", server.addr()));
    let stop = Stop::default();
    let (events, heard) = mpsc::channel();
    if let Err(error) = crate::cli::signals::listen(stop.clone(), events) {
        terminal.error(&format!("cannot listen for signals: {error}"));
        return Exit::Error;
    }
    while stop.level() == Level::Run && heard.recv().is_ok() {}
    record.map_or(Exit::Pass, |file| write_truth(&server, file, terminal))
}

fn create(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn configuration(args: &SimulateArgs, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Option<(Simulator, Seed)> {
    let text = args.scenario.is_none().then(|| BARE.to_owned());
    let path = args.scenario.as_deref().unwrap_or(Path::new("simulate.yaml"));
    let plan = match llmscen_scenario::load(&Input { path, text, env, set: &args.set }) {
        Ok(loaded) => loaded.plan,
        Err(faults) => {
            terminal.complain(&faults.render(terminal.err_color, terminal.width));
            return None;
        }
    };
    let found = plan.cases.iter().find_map(|case| match &case.target.place {
        Place::Simulator { server, .. } => Some((**server).clone()),
        Place::Url(_) | Place::Local(_) => None,
    });
    if found.is_none() {
        terminal.error(&format!("{} has no case whose target is the simulator", path.display()));
    }
    found.map(|config| (config, plan.seed))
}

fn write_truth(server: &llmscen_simulator::Running, file: File, terminal: &mut Terminal) -> Exit {
    match write_jsonl(&server.truth().all(), std::io::BufWriter::new(file)) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            terminal.error(&format!("cannot write what was served: {error}"));
            Exit::Error
        }
    }
}
