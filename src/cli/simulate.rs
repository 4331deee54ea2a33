//! `llmscen simulate`: the built-in simulated server, until a signal.

use crate::cli::args::SimulateArgs;
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use crate::run::stop::{Level, Stop};
use llmscen_core::seed::Seed;
use llmscen_core::simulator::Simulator;
use llmscen_core::target::TargetLocation;
use llmscen_scenario::Input;
use llmscen_simulator::Truth;
use llmscen_simulator::truth::write_jsonl;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

/// The scenario of a command without one, so that `--set` works.
const DEFAULT_SCENARIO: &str = "version: 1\nname: simulate\ntarget: { api: simulator }\ndataset: \
    { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\n";

pub fn simulate(
    args: &SimulateArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Exit {
    let Some((config, seed)) = load_config(args, env, terminal) else {
        return Exit::Scenario;
    };
    // Opened first, so that an invalid path is an error before anything is served.
    let truth_file = match args.truth.as_deref().map(create_file).transpose() {
        Ok(file) => file,
        Err(why) => {
            terminal.error(&why);
            return Exit::Scenario;
        }
    };
    let truth = if truth_file.is_some() {
        Truth::since(Instant::now())
    } else {
        Truth::off()
    };
    let server = match llmscen_simulator::start(&config, seed, args.listen, truth) {
        Ok(server) => server,
        Err(error) => {
            terminal.error(&error.to_string());
            return Exit::Error;
        }
    };
    terminal.status("the simulator is listening (Ctrl-C to stop)");
    terminal.print(&format!("http://{}\n", server.addr()));
    let stop = Stop::default();
    let (events, inbox) = mpsc::channel();
    if let Err(error) = crate::cli::signals::listen(stop.clone(), events) {
        terminal.error(&format!("cannot listen for signals: {error}"));
        return Exit::Error;
    }
    while stop.level() == Level::Run && inbox.recv().is_ok() {}
    truth_file.map_or(Exit::Pass, |file| write_truth(&server, file, terminal))
}

fn create_file(path: &Path) -> Result<File, String> {
    File::create(path).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn load_config(
    args: &SimulateArgs,
    env: &BTreeMap<String, String>,
    terminal: &mut Terminal,
) -> Option<(Simulator, Seed)> {
    let text = args.scenario.is_none().then(|| DEFAULT_SCENARIO.to_owned());
    let path = args
        .scenario
        .as_deref()
        .unwrap_or(Path::new("simulate.yaml"));
    let plan = match llmscen_scenario::load(&Input {
        path,
        text,
        env,
        set: &args.set,
    }) {
        Ok(loaded) => loaded.plan,
        Err(faults) => {
            terminal.diagnostic(&faults.render(terminal.err_color, terminal.width));
            return None;
        }
    };
    let found = plan
        .cases
        .iter()
        .find_map(|case| match &case.target.location {
            TargetLocation::Simulator { server, .. } => Some((**server).clone()),
            TargetLocation::Urls(_) | TargetLocation::Local(_) => None,
        });
    if found.is_none() {
        terminal.error(&format!(
            "{} has no case whose target is the simulator",
            path.display()
        ));
    }
    found.map(|config| (config, plan.seed))
}

fn write_truth(server: &llmscen_simulator::Running, file: File, terminal: &mut Terminal) -> Exit {
    match write_jsonl(&server.truth().all(), std::io::BufWriter::new(file)) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            terminal.error(&format!("cannot write the file of --truth: {error}"));
            Exit::Error
        }
    }
}
