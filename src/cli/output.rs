//! What is shown of a report when it is done: the tables on stdout, and the summary of a CI job.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::{Args, ValueEnum};
use llmscen_core::report::Report;
use llmscen_report::summary::{LIMIT, Place, summary};
use llmscen_report::{ViewError, tables};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How results are shown.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The form of the result tables on stdout
    #[arg(long, value_enum, default_value = "table", value_name = "FORM")]
    pub format: Form,
    /// Append a Markdown summary to this file; without it, to the file that $GITHUB_STEP_SUMMARY names
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
}

/// The form of the result tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Aligned columns, for people
    Table,
    /// Comma-separated, raw numbers, for spreadsheets
    Csv,
    /// Tab-separated, raw numbers, to paste
    Tsv,
    /// One object, a row as an object each
    Json,
    /// GitHub tables, as in report.md
    Md,
}

/// The tables at the end of a run, and the verdict in one line; what is no table goes to stderr where stdout is for a program.
pub fn show(report: &Report, form: Form, terminal: &mut Terminal) {
    let text = match form {
        Form::Table => return table(report, terminal),
        Form::Csv => tables::csv(report, b','),
        Form::Tsv => tables::csv(report, b'\t'),
        Form::Json => tables::json(report),
        Form::Md => Ok(tables::markdown(report)),
    };
    match text {
        // Nothing but an empty line ends a block for whoever reads it.
        Ok(text) if terminal.begun && form != Form::Json => terminal.foreign(&format!("\n{text}")),
        Ok(text) => terminal.foreign(&text),
        Err(error) => terminal.error(&ViewError::to_string(&error)),
    }
    if matches!(form, Form::Csv | Form::Tsv) && !terminal.json {
        terminal.say(&llmscen_report::verdict_line(report, terminal.err_color));
    }
}

fn table(report: &Report, terminal: &mut Terminal) {
    let (width, color) = (terminal.out_width(), terminal.out_color);
    terminal.data(&llmscen_report::case_table(report, width, color));
    terminal.data(&llmscen_report::telemetry_lines(report));
    llmscen_report::local::lines(report).iter().for_each(|line| terminal.data(&format!("{line}\n")));
    terminal.data(&llmscen_report::local::speed_table(report, width, color));
    // That some loads break their limits is what a search is for, and each probe says which.
    let limits = if report.searches.is_empty() { llmscen_report::slo_table } else { llmscen_report::probe_table };
    terminal.data(&limits(report, width, color));
    llmscen_report::correlation_lines(report).iter().for_each(|line| terminal.data(&format!("{line}\n")));
    terminal.data(&llmscen_report::server_lines(report));
    terminal.data(&llmscen_report::verdict_line(report, color));
}

/// Where the summaries of all runs of a command go.
pub struct Summary {
    file: Option<(PathBuf, File)>,
    /// The page of the CI job, where its artefacts are.
    job: Option<String>,
}

impl Summary {
    /// The file that was asked for, or else that of the CI job, where there is one. A job's file that cannot be written is no
    /// reason not to run.
    ///
    /// # Errors
    /// Where the file that was asked for cannot be written; that was said.
    pub fn open(asked: Option<&Path>, env: &BTreeMap<String, String>, terminal: &mut Terminal) -> Result<Summary, Exit> {
        let set = |name: &str| env.get(name).filter(|value| !value.is_empty());
        let given = set("GITHUB_STEP_SUMMARY").map(PathBuf::from);
        let job = || {
            Some(format!("{}/{}/actions/runs/{}", set("GITHUB_SERVER_URL")?, set("GITHUB_REPOSITORY")?, set("GITHUB_RUN_ID")?))
        };
        let Some(path) = asked.map(Path::to_owned).or(given) else { return Ok(Summary { file: None, job: None }) };
        match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => Ok(Summary { file: Some((path, file)), job: job() }),
            Err(error) if asked.is_some() => {
                terminal.error(&format!("cannot write the summary {} (--summary): {error}", path.display()));
                Err(Exit::Scenario)
            }
            Err(error) => {
                terminal.warn(&unwritten(&path, &error));
                Ok(Summary { file: None, job: None })
            }
        }
    }

    /// Appends the summary of a report.
    pub fn add(&self, report: &Report, folder: &Path, terminal: &mut Terminal) {
        let Some((path, file)) = &self.file else { return };
        let folder = folder.display().to_string();
        let written = file.metadata().and_then(|known| {
            let room = LIMIT.saturating_sub(known.len().try_into().unwrap_or(usize::MAX));
            let text = terminal.clean(&summary(report, &Place { folder: &folder, job: self.job.as_deref() }, room));
            (&mut &*file).write_all(text.as_bytes())
        });
        if let Err(error) = written {
            terminal.warn(&unwritten(path, &error));
        }
    }
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("the summary {} was not written: {error}", path.display())
}

/// A JSON document indented, and any other text unchanged.
pub fn indented(text: &str) -> String {
    let document = serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    document.map_or_else(|| text.to_owned(), |value| format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_indented_and_texts_are_not() {
        assert_eq!(indented(r#"{"b":1.0,"a":[]}"#), "{\n  \"b\": 1.0,\n  \"a\": []\n}");
        assert_eq!(indented("data: {}\n\n"), "data: {}\n\n");
        assert_eq!(indented("12"), "12");
    }
}
