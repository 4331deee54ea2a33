//! `validate`, `plan`, `schema`, `init`: everything that sends nothing.

use crate::cli::args::Sources;
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{self, Source};
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::forecast::{Forecast, describe_logits, forecast};
use llmscen_core::plan::Plan;
use llmscen_report::format::plain;
use llmscen_scenario::Input;
use llmscen_scenario::render::RenderError;
use std::collections::BTreeMap;
use std::path::Path;

pub fn validate(args: &Sources, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(plans) = load_scenarios::load(args, env, terminal) else { return Exit::Scenario };
    for Source { path, plan } in &plans {
        terminal.data(&format!("{}: ok, {}\n", path.display(), extent(plan)));
    }
    Exit::Pass
}

/// What a plan holds: its cases, or the values that may be probed, of which a search visits a few.
fn extent(plan: &Plan) -> String {
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let Some(quest) = plan.quests.first() else {
        let checks: usize = plan.cases.iter().map(|case| case.checks.len()).sum();
        return format!("{}, {}", plural(plan.cases.len(), "case"), plural(checks, "assertion"));
    };
    let searches = match plan.quests.len() {
        1 => "a search".to_owned(),
        many => format!("{many} searches"),
    };
    let checks = plan.cases.get(quest.first).map_or(0, |case| case.checks.len());
    let (spec, values) = (&quest.spec, plural(quest.grid.len(), "value"));
    let range = format!("{} from {} to {}", spec.vary, spec.low, spec.high);
    format!("{searches} of {range} ({values}), {}", plural(checks, "assertion"))
}

pub fn plan(args: &Sources, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(plans) = load_scenarios::load(args, env, terminal) else { return Exit::Scenario };
    let cache = crate::cli::run::cache(env);
    for source in &plans {
        match forecast(&source.plan, &cache) {
            Ok(forecast) => show(source, &forecast, terminal),
            Err(RunError::Render(error)) => {
                unrendered(&error, &Input { path: &source.path, text: None, env, set: &args.set }, terminal);
                return Exit::Scenario;
            }
            Err(error) => {
                terminal.error(&error.to_string());
                return Exit::Error;
            }
        }
    }
    Exit::Pass
}

/// A template that fails with the first row of the data, at its place in the scenario where that is known.
fn unrendered(error: &RenderError, input: &Input<'_>, terminal: &mut Terminal) {
    let fault = match error {
        RenderError::Leaf { at, message } => llmscen_scenario::template_fault(input, at, message),
        RenderError::Length(_) | RenderError::Shape => None,
    };
    match fault {
        Some(faults) => terminal.complain(&faults.render(terminal.err_color, terminal.width)),
        None => terminal.error(&error.to_string()),
    }
}

fn show(source: &Source, forecast: &Forecast, terminal: &mut Terminal) {
    let plan = &source.plan;
    terminal.data(&llmscen_report::plan_table(plan, terminal.out_width(), terminal.out_color));
    terminal.data(&format!("\n{}", llmscen_report::plan_limits(plan)));
    terminal.data(&format!("requests: {}\nexpected time: {}\n", forecast.requests, forecast.time));
    for (entry, body) in &forecast.first_bodies {
        let of = entry.as_ref().map(|name| format!(", `{name}`")).unwrap_or_default();
        terminal.data(&format!("first request of `{}`{of}:\n{body}\n", plan.cases[0].id));
    }
    for warning in describe_logits(plan).iter().chain(&forecast.undecidable).chain(&forecast.short_data) {
        terminal.warn(&plain(warning));
    }
}

pub fn schema(results: bool, markdown: bool, terminal: &mut Terminal) -> Exit {
    let text = match (results, markdown) {
        (true, _) => llmscen_report::results_schema().to_owned(),
        (_, true) => llmscen_scenario::markdown(),
        (false, false) => format!("{:#}\n", llmscen_scenario::json_schema()),
    };
    terminal.foreign(&text);
    Exit::Pass
}

const FIRST: &str = include_str!("first.yaml");

pub fn init(path: &Path, terminal: &mut Terminal) -> Exit {
    let written = std::fs::File::create_new(path).and_then(|mut file| std::io::Write::write_all(&mut file, FIRST.as_bytes()));
    match written {
        Ok(()) => {
            terminal.say(&format!("wrote {0}; try: llmscen run {0}", path.display()));
            Exit::Pass
        }
        Err(error) => {
            terminal.error(&format!("cannot write {}: {error}", path.display()));
            Exit::Scenario
        }
    }
}
