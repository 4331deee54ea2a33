//! Output at the end of a run: result tables on stdout, and the summary of a CI job.

use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use llmscen_core::artifacts::ExportFormat;
use llmscen_core::plan::Plan;
use llmscen_core::report::Report;
use llmscen_report::screen::{ScreenOptions, annotations, screen};
use llmscen_report::summary::{LIMIT, ReportLocation, summary};
use llmscen_report::{ReportError, tables};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Options of the results.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Format of the result tables on stdout
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    pub format: Format,
    /// Print the tables of all cases and objectives before the summary
    #[arg(long, short)]
    pub verbose: bool,
    /// Append a Markdown summary to this file [default: $GITHUB_STEP_SUMMARY]
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
    /// Exit status of an inconclusive verdict
    #[arg(long, value_enum, default_value = "fail", value_name = "HOW")]
    pub inconclusive: Inconclusive,
    #[command(flatten)]
    pub compat: Compat,
}

/// How an inconclusive verdict is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Inconclusive {
    /// Exit code 5, a failure in junit.xml
    Fail,
    /// Exit code 0, skipped in junit.xml
    Pass,
}

impl Inconclusive {
    /// The result in junit.xml: skipped if the exit code is 0, failed otherwise.
    pub fn junit_result(self) -> llmscen_report::Inconclusive {
        match self {
            Inconclusive::Fail => llmscen_report::Inconclusive::Failure,
            Inconclusive::Pass => llmscen_report::Inconclusive::Skipped,
        }
    }
}

/// The exit code of a report, with `--inconclusive` applied.
pub fn exit_of(report: &Report, inconclusive: Inconclusive) -> Exit {
    match Exit::from_code(report.exit_code) {
        Exit::Inconclusive if inconclusive == Inconclusive::Pass => Exit::Pass,
        exit => exit,
    }
}

/// Exports for other tools.
#[derive(Debug, Default, Args)]
pub struct Compat {
    /// Also write the results in the format of these tools, to compat/: evalscope,vllm
    #[arg(long = "compat", value_name = "TOOL", value_delimiter = ',', value_parser = tool_parser())]
    pub tools: Vec<ExportFormat>,
}

impl Compat {
    /// Adds the tools to those of the scenario.
    pub fn add_to(&self, plan: &mut Plan) {
        let compat = &mut plan.report.compat;
        *compat = ExportFormat::ALL
            .into_iter()
            .filter(|peer| compat.contains(peer) || self.tools.contains(peer))
            .collect();
    }
}

fn tool_parser() -> impl TypedValueParser<Value = ExportFormat> {
    let parse = |name: String| ExportFormat::parse(&name).ok_or("unknown tool");
    PossibleValuesParser::new(ExportFormat::ALL.map(ExportFormat::name)).try_map(parse)
}

/// Formats of tables on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns
    Table,
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
    /// JSON
    Json,
    /// Markdown tables
    Md,
}

/// Prints the results: on one screen, or as tables for programs. In CSV and TSV the verdict goes to stderr. `since`:
/// how the run differs from the last one.
pub fn print_report(
    report: &Report,
    folder: &Path,
    since: Option<&str>,
    args: &ResultArgs,
    terminal: &mut Terminal,
) {
    let format = args.format;
    let text = match format {
        Format::Table => return print_screen(report, folder, since, args.verbose, terminal),
        Format::Csv => tables::csv(report, b','),
        Format::Tsv => tables::csv(report, b'\t'),
        Format::Json => tables::json(report),
        Format::Md => Ok(tables::markdown(report)),
    };
    match text {
        // An empty line separates the tables of several runs.
        Ok(text) if terminal.has_output && format != Format::Json => {
            terminal.print_raw(&format!("\n{text}"))
        }
        Ok(text) => terminal.print_raw(&text),
        Err(error) => terminal.error(&ReportError::to_string(&error)),
    }
    if terminal.json {
        return;
    }
    if matches!(format, Format::Csv | Format::Tsv) {
        terminal.status(&llmscen_report::verdict_line(report, terminal.err_color));
    }
    terminal.status(&format!("report: {}", report_page(folder)));
}

/// The page to open first: report.html, else report.md, else the folder.
fn report_page(folder: &Path) -> String {
    let pages = ["report.html", "report.md"].map(|name| folder.join(name));
    let page = pages.into_iter().find(|page| page.is_file());
    page.unwrap_or_else(|| folder.to_owned())
        .display()
        .to_string()
}

/// One screen, after the tables with everything if they are asked for.
fn print_screen(
    report: &Report,
    folder: &Path,
    since: Option<&str>,
    verbose: bool,
    terminal: &mut Terminal,
) {
    let (width, color) = (terminal.out_width(), terminal.out_color);
    if terminal.has_output {
        terminal.print("\n");
    }
    if verbose {
        terminal.print(&llmscen_report::case_table(report, width, color));
        terminal.print(&llmscen_report::slo_table(report, width, color));
        llmscen_report::correlation_lines(report)
            .iter()
            .for_each(|line| terminal.print(&format!("{line}\n")));
        terminal.print("\n");
    }
    let location = report_page(folder);
    let options = ScreenOptions {
        width,
        color,
        change: since,
        location: &location,
    };
    terminal.print(&screen(report, &options));
}

/// Writes the open objectives as annotations of a GitHub Actions job.
pub fn annotate(report: &Report, env: &BTreeMap<String, String>, terminal: &mut Terminal) {
    if env
        .get("GITHUB_ACTIONS")
        .is_none_or(|value| value != "true")
        || terminal.json
    {
        return;
    }
    for (is_error, text) in annotations(report) {
        let level = if is_error { "error" } else { "warning" };
        let text = escape_annotation(&terminal.clean(&text));
        let title = &report.manifest.name;
        terminal.annotation(&format!("::{level} title=llmscen {title}::{text}"));
    }
}

/// Percent-encodes what ends a workflow command.
fn escape_annotation(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// The file for the summaries of all runs of a command.
pub struct Summary {
    file: Option<(PathBuf, File)>,
    /// URL of the CI job, which lists its artifacts.
    job: Option<String>,
}

impl Summary {
    /// Opens the file of `--summary`, or that of the CI job. If the file of the job cannot be written, this only warns.
    ///
    /// # Errors
    /// The file of `--summary` cannot be written; the error is already printed.
    pub fn open(
        requested: Option<&Path>,
        env: &BTreeMap<String, String>,
        terminal: &mut Terminal,
    ) -> Result<Summary, Exit> {
        let variable = |name: &str| env.get(name).filter(|value| !value.is_empty());
        let default = variable("GITHUB_STEP_SUMMARY").map(PathBuf::from);
        let job = || {
            let server = variable("GITHUB_SERVER_URL")?;
            let repository = variable("GITHUB_REPOSITORY")?;
            Some(format!(
                "{server}/{repository}/actions/runs/{}",
                variable("GITHUB_RUN_ID")?
            ))
        };
        let Some(path) = requested.map(Path::to_owned).or(default) else {
            return Ok(Summary {
                file: None,
                job: None,
            });
        };
        match OpenOptions::new().create(true).append(true).open(&path) {
            Ok(file) => Ok(Summary {
                file: Some((path, file)),
                job: job(),
            }),
            Err(error) if requested.is_some() => {
                terminal.error(&format!(
                    "cannot write the summary {} (--summary): {error}",
                    path.display()
                ));
                Err(Exit::Scenario)
            }
            Err(error) => {
                terminal.warn(&not_written(&path, &error));
                Ok(Summary {
                    file: None,
                    job: None,
                })
            }
        }
    }

    /// Appends the summary of a report.
    pub fn append(&self, report: &Report, folder: &Path, terminal: &mut Terminal) {
        let Some((path, file)) = &self.file else {
            return;
        };
        let folder = folder.display().to_string();
        let written = file.metadata().and_then(|metadata| {
            let free = LIMIT.saturating_sub(metadata.len().try_into().unwrap_or(usize::MAX));
            let text = terminal.clean(&summary(
                report,
                &ReportLocation {
                    folder: &folder,
                    job: self.job.as_deref(),
                },
                free,
            ));
            (&mut &*file).write_all(text.as_bytes())
        });
        if let Err(error) = written {
            terminal.warn(&not_written(path, &error));
        }
    }
}

fn not_written(path: &Path, error: &io::Error) -> String {
    format!("the summary {} was not written: {error}", path.display())
}

/// `1 case`, `2 cases`.
pub fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Indents a JSON document; other text is unchanged.
pub fn indent_json(text: &str) -> String {
    let document = serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .filter(|value| value.is_object() || value.is_array());
    document.map_or_else(|| text.to_owned(), |value| format!("{value:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::report::RunVerdict;

    #[test]
    fn only_inconclusive_may_be_mapped_to_pass() {
        let report = |code| Report {
            exit_code: code,
            verdict: RunVerdict::Inconclusive,
            ..Report::default()
        };
        assert_eq!(exit_of(&report(5), Inconclusive::Fail), Exit::Inconclusive);
        assert_eq!(exit_of(&report(5), Inconclusive::Pass), Exit::Pass);
        assert_eq!(exit_of(&report(4), Inconclusive::Pass), Exit::Invalid);
    }

    #[test]
    fn only_json_documents_are_indented() {
        assert_eq!(
            indent_json(r#"{"b":1.0,"a":[]}"#),
            "{\n  \"b\": 1.0,\n  \"a\": []\n}"
        );
        assert_eq!(indent_json("data: {}\n\n"), "data: {}\n\n");
        assert_eq!(indent_json("12"), "12");
    }
}
