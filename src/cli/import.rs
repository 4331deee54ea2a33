//! `llmscen import`: converts the command line or the plan file of another tool to a scenario.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use llmscen_compat::import::{
    Account, FileError, FileFormat, NamedScenario, Tool, import as translate, import_file,
};
use llmscen_scenario::Input;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Tool of the command line after `--` (evalscope, vllm, aiperf, guidellm, sglang, lmdeploy), or a plan file
    #[arg(value_name = "TOOL|FILE")]
    pub source: String,
    /// File to write, instead of stdout
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Format of the plan file, instead of the one that its content has
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), conflicts_with = "line")]
    pub from: Option<FileFormat>,
    /// Only the tests whose name contains one of these texts: a,b
    #[arg(
        long,
        value_name = "TEXT",
        value_delimiter = ',',
        conflicts_with = "line"
    )]
    pub only: Vec<String>,
    /// Write the scenario even if it lacks a part of the load of the plan file
    #[arg(long, conflicts_with = "line")]
    pub lossy: bool,
    /// Command line, after `--`
    #[arg(last = true, value_name = "COMMAND LINE")]
    pub line: Vec<String>,
}

fn format_parser() -> impl TypedValueParser<Value = FileFormat> {
    let parse = |name: String| FileFormat::parse(&name).ok_or("unknown format");
    PossibleValuesParser::new(FileFormat::ALL.map(FileFormat::name)).try_map(parse)
}

/// Writes the scenario and reports the flags or fields that were dropped. An incomplete scenario is written, too.
pub fn import(args: &ImportArgs, terminal: &mut Terminal) -> Exit {
    let converted = if args.line.is_empty() {
        file(args, terminal)
    } else {
        command_line(args).map_err(|why| terminal.error(&why))
    };
    let Ok(Conversion {
        scenarios,
        accounts,
        unit,
    }) = converted
    else {
        return Exit::Scenario;
    };
    let written = match outputs(args.to.as_deref(), scenarios) {
        Ok(outputs) => outputs,
        Err(why) => {
            terminal.error(&why);
            return Exit::Scenario;
        }
    };
    for (path, yaml) in &written {
        if let Err(why) = write_scenario(path.as_deref(), yaml, terminal) {
            terminal.error(&why);
            return Exit::Scenario;
        }
    }
    terminal.status(&summary(&accounts, unit, written.len()));
    let checks = written
        .into_iter()
        .map(|(path, yaml)| check(path, yaml, terminal));
    checks.fold(
        Exit::Pass,
        |worst, exit| {
            if worst == Exit::Pass { exit } else { worst }
        },
    )
}

struct Conversion {
    scenarios: Vec<NamedScenario>,
    accounts: Vec<Account>,
    /// What the accounts are about.
    unit: &'static str,
}

fn command_line(args: &ImportArgs) -> Result<Conversion, String> {
    let Some(tool) = Tool::ALL
        .into_iter()
        .find(|tool| tool.name() == args.source)
    else {
        let known = Tool::ALL.map(Tool::name).join(", ");
        return Err(format!("unknown tool `{}`; known are {known}", args.source));
    };
    let imported = translate(tool, &args.line).map_err(|error| error.to_string())?;
    let (suffix, yaml) = (String::new(), imported.yaml);
    Ok(Conversion {
        scenarios: vec![NamedScenario { suffix, yaml }],
        accounts: imported.accounts,
        unit: "flags",
    })
}

fn file(args: &ImportArgs, terminal: &mut Terminal) -> Result<Conversion, ()> {
    let path = Path::new(&args.source);
    if !path.exists() && Tool::ALL.iter().any(|tool| tool.name() == args.source) {
        terminal.error(&format!(
            "no command line of {0}\n  help: add it after `--`: llmscen import {0} -- …",
            args.source
        ));
        return Err(());
    }
    match import_file(path, args.from, &args.only) {
        Ok(imported) if !args.lossy && imported.accounts.iter().any(|one| one.loses_load) => {
            terminal.error(&losses(&imported.accounts));
            Err(())
        }
        Ok(imported) => Ok(Conversion {
            scenarios: imported.scenarios,
            accounts: imported.accounts,
            unit: "fields",
        }),
        Err(FileError::Faults(faults)) => {
            terminal.diagnostic(&faults.render(terminal.err_color, terminal.width));
            Err(())
        }
        Err(error) => {
            terminal.error(&error.to_string());
            Err(())
        }
    }
}

/// Most losses that an error lists.
const LISTED: usize = 20;

/// The parts of the load that a scenario would lack.
fn losses(accounts: &[Account]) -> String {
    let lost: Vec<&Account> = accounts.iter().filter(|one| one.loses_load).collect();
    let mut text = "parts of the load have no counterpart, so nothing was written:".to_owned();
    for one in lost.iter().take(LISTED) {
        let why = one.note.as_deref().unwrap_or_default();
        let field = one.flag.split(' ').next().unwrap_or_default();
        text.push_str(&format!("\n  {field}: {why}"));
    }
    if lost.len() > LISTED {
        text.push_str(&format!("\n  and {} more", lost.len() - LISTED));
    }
    text + "\n  help: `--lossy` writes the rest; the head of the file lists these parts. `--only TEXT` selects tests."
}

/// The scenarios with the files that they are written to; None is stdout.
fn outputs(
    to: Option<&Path>,
    scenarios: Vec<NamedScenario>,
) -> Result<Vec<(Option<PathBuf>, String)>, String> {
    let several = scenarios.len() > 1;
    let Some(to) = to else {
        if several {
            return Err(format!(
                "the file becomes {} scenarios, because its tests differ in more than single values\n  help: write \
                 them to files with --to FILE, or select tests with --only TEXT",
                scenarios.len()
            ));
        }
        return Ok(scenarios.into_iter().map(|one| (None, one.yaml)).collect());
    };
    let path = |suffix: &str| {
        if suffix.is_empty() {
            return to.to_path_buf();
        }
        let stem = to.file_stem().unwrap_or_default().to_string_lossy();
        to.with_file_name(format!("{stem}-{suffix}.yaml"))
    };
    Ok(scenarios
        .into_iter()
        .map(|one| (Some(path(&one.suffix)), one.yaml))
        .collect())
}

fn write_scenario(to: Option<&Path>, yaml: &str, terminal: &mut Terminal) -> Result<(), String> {
    let Some(path) = to else {
        terminal.print_raw(yaml);
        return Ok(());
    };
    if path.exists() {
        return Err(format!(
            "{} already exists; choose another file or delete it first",
            path.display()
        ));
    }
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    folder
        .and_then(|()| std::fs::write(path, yaml))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Reports the errors and warnings of the scenario.
fn check(path: Option<PathBuf>, yaml: String, terminal: &mut Terminal) -> Exit {
    // `reload`: variables and files that are missing here are not errors of the command line.
    let input = Input {
        path: path.as_deref().unwrap_or(Path::new("scenario.yaml")),
        text: Some(yaml),
        env: &BTreeMap::new(),
        set: &[],
    };
    match llmscen_scenario::reload(&input) {
        Ok(loaded) => {
            loaded
                .warnings
                .iter()
                .for_each(|warning| terminal.scenario_warning(warning));
            Exit::Pass
        }
        Err(faults) => {
            terminal.diagnostic(&faults.render(terminal.err_color, terminal.width));
            Exit::Scenario
        }
    }
}

fn summary(accounts: &[Account], unit: &str, scenarios: usize) -> String {
    let total = accounts.len();
    let dropped = accounts.iter().filter(|account| account.keys.is_empty());
    let dropped: Vec<&str> = dropped.map(|account| account.flag.as_str()).collect();
    let files = match scenarios {
        1 => String::new(),
        many => format!(" to {many} scenarios"),
    };
    match dropped.len() {
        0 => format!("converted all {total} {unit}{files}"),
        count => {
            format!(
                "converted {} of {total} {unit}{files}; reasons are at the top of the file: {}",
                total - count,
                dropped.join(", ")
            )
        }
    }
}
