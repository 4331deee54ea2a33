//! `validate`, `plan`, `schema`: commands that send no requests.

use crate::cli::display::{Display, LineDisplay};
use crate::cli::exit::Exit;
use crate::cli::load_scenarios::{Hub, Source, Sources, load_all};
use crate::cli::output::plural;
use crate::cli::terminal::Terminal;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::forecast::{DataAccess, Forecast, describe_logits, forecast};
use llmscen_core::plan::Plan;
use llmscen_datasets::CacheDir;
use llmscen_report::format::plain;
use llmscen_requests::render::RenderError;
use llmscen_scenario::Input;
use std::cell::RefCell;
use std::collections::BTreeMap;

pub fn validate(args: &Sources, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(plans) = load_all(args, env, Hub::Skip, terminal) else {
        return Exit::Scenario;
    };
    for Source { path, plan, .. } in &plans {
        terminal.print(&format!(
            "{}: ok, {}\n",
            path.display(),
            describe_plan(plan)
        ));
    }
    Exit::Pass
}

/// Number of cases and objectives, or the range of a search.
fn describe_plan(plan: &Plan) -> String {
    let Some(search) = plan.searches.first() else {
        let checks: usize = plan.cases.iter().map(|case| case.checks.len()).sum();
        return format!(
            "{}, {}",
            plural(plan.cases.len(), "case"),
            plural(checks, "assertion")
        );
    };
    let searches = match plan.searches.len() {
        1 => "a search".to_owned(),
        many if plan.halving.is_some() => format!("a successive halving over {many} searches"),
        many => format!("{many} searches"),
    };
    let checks = plan
        .cases
        .get(search.first)
        .map_or(0, |case| case.checks.len());
    let spec = &search.spec;
    let values = plural(search.grid.len(), "value");
    let range = format!("{} from {} to {}", spec.vary, spec.low, spec.high);
    format!(
        "{searches} of {range} ({values}), {}",
        plural(checks, "assertion")
    )
}

pub fn plan(args: &Sources, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Exit {
    let Some(plans) = load_all(args, env, Hub::Pin, terminal) else {
        return Exit::Scenario;
    };
    let cache = crate::cli::run::cache_dir(env);
    for source in &plans {
        match forecast_with_display(&source.plan, &cache, terminal) {
            Ok(forecast) => print_plan(source, &forecast, terminal),
            Err(RunError::Render(error)) => {
                print_render_error(
                    &error,
                    &Input {
                        path: &source.path,
                        text: None,
                        env,
                        set: &args.set,
                    },
                    terminal,
                );
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

/// Shows the progress of downloads.
fn forecast_with_display(
    plan: &Plan,
    cache: &CacheDir,
    terminal: &mut Terminal,
) -> Result<Forecast, RunError> {
    let display = RefCell::new(LineDisplay::new(terminal));
    let data = DataAccess {
        cache,
        progress: &|progress| {
            let event = Event::Preparing(progress.into());
            display.borrow_mut().show(&event);
        },
    };
    let forecast = forecast(plan, &data);
    display.borrow_mut().finish();
    forecast
}

/// Prints the error of a template that fails with the first row of the data, with its position in the scenario if
/// known.
fn print_render_error(error: &RenderError, input: &Input<'_>, terminal: &mut Terminal) {
    match llmscen_scenario::render_fault(input, error) {
        Some(faults) => terminal.diagnostic(&faults.render(terminal.err_color, terminal.width)),
        None => terminal.error(&error.to_string()),
    }
}

fn print_plan(source: &Source, forecast: &Forecast, terminal: &mut Terminal) {
    let plan = &source.plan;
    terminal.print(&llmscen_report::plan_table(
        plan,
        terminal.out_width(),
        terminal.out_color,
    ));
    terminal.print(&format!(
        "\n{}{}{}",
        llmscen_report::plan_endpoints(plan),
        llmscen_report::plan_distributions(plan),
        llmscen_report::plan_limits(plan) + &llmscen_report::plan_reruns(plan)
    ));
    terminal.print(&format!(
        "requests: {}\nexpected time: {}\n",
        forecast.requests, forecast.time
    ));
    if let Some(starts) = &forecast.starts {
        terminal.print(&format!("server starts: {starts}\n"));
    }
    for (entry, body) in &forecast.first_bodies {
        let class = entry
            .as_ref()
            .map(|name| format!(", `{name}`"))
            .unwrap_or_default();
        terminal.print(&format!(
            "first request of `{}`{class}:\n{body}\n",
            plan.cases[0].id
        ));
    }
    for warning in describe_logits(plan)
        .iter()
        .chain(&forecast.undecidable)
        .chain(&forecast.short_data)
        .chain(&forecast.data_notes)
    {
        terminal.warn(&plain(warning));
    }
}

pub fn schema(results: bool, markdown: bool, terminal: &mut Terminal) -> Exit {
    let text = match (results, markdown) {
        (true, _) => llmscen_report::results_schema().to_owned(),
        (_, true) => llmscen_scenario::markdown(),
        (false, false) => format!("{:#}\n", llmscen_scenario::json_schema()),
    };
    terminal.print_raw(&text);
    Exit::Pass
}
