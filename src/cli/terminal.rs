//! stdout and stderr: colors, width, redaction, and escapes.

use crate::run::execution::redactor;
use clap::Args;
use llmscen_core::escape::{escape_controls, escape_controls_in_json};
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_scenario::Warning;
use std::collections::BTreeMap;
use std::io::Write;

/// Columns if the width of the terminal is unknown.
const DEFAULT_WIDTH: usize = 100;

/// Options of all commands.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Print errors only; results still go to stdout
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// No colors, even on a terminal (as NO_COLOR)
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// stdout for data, stderr for everything else.
pub struct Terminal<'a> {
    out: &'a mut (dyn Write + Send),
    err: &'a mut (dyn Write + Send),
    /// Print errors only.
    pub quiet: bool,
    /// Colors on stdout.
    pub out_color: bool,
    /// Colors on stderr.
    pub err_color: bool,
    /// stderr is a terminal that supports a live display.
    pub live: bool,
    /// Columns.
    pub width: usize,
    /// stderr consists of JSON lines for a program.
    pub json: bool,
    /// Something was written to stdout.
    pub has_output: bool,
    /// Whether stdout and stderr are terminals.
    terminals: (bool, bool),
    /// `COLUMNS` sets the width.
    fixed_width: bool,
    /// Removes the secrets of all loaded scenarios.
    redactor: Redactor,
}

impl<'a> Terminal<'a> {
    /// Configures the streams from flags and environment (`NO_COLOR`, `COLUMNS`, `TERM=dumb`).
    pub fn new(
        out: &'a mut (dyn Write + Send),
        err: &'a mut (dyn Write + Send),
        terminals: (bool, bool),
        env: &BTreeMap<String, String>,
        args: &OutputArgs,
    ) -> Terminal<'a> {
        let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
        let dumb = env.get("TERM").is_some_and(|term| term == "dumb");
        let color = !args.no_color && !is_set("NO_COLOR") && !dumb;
        let columns = env.get("COLUMNS").and_then(|columns| columns.parse().ok());
        let size = if terminals.0 || terminals.1 {
            terminal_columns()
        } else {
            None
        };
        Terminal {
            out,
            err,
            quiet: args.quiet,
            out_color: color && terminals.0,
            err_color: color && terminals.1,
            live: terminals.1 && !dumb && !args.quiet,
            width: columns.or(size).unwrap_or(DEFAULT_WIDTH),
            json: false,
            has_output: false,
            terminals,
            fixed_width: columns.is_some(),
            redactor: Redactor::default(),
        }
    }

    /// Updates the width of the terminal, unless `COLUMNS` sets it.
    pub fn update_width(&mut self) {
        let size = if self.fixed_width || !(self.terminals.0 || self.terminals.1) {
            None
        } else {
            terminal_columns()
        };
        self.width = size.unwrap_or(self.width);
    }

    /// Columns of stdout; `None` if it is not a terminal, so that tables keep their natural width.
    pub fn out_width(&self) -> Option<usize> {
        self.terminals.0.then_some(self.width)
    }

    /// Columns of stderr; `None` if it is not a terminal.
    pub fn err_width(&self) -> Option<usize> {
        self.terminals.1.then_some(self.width)
    }

    /// Removes the secrets of this plan from all further output.
    pub fn add_secrets(&mut self, plan: &Plan) {
        self.redactor = std::mem::take(&mut self.redactor).merge(redactor(plan));
    }

    /// Removes the secrets of all loaded scenarios.
    pub fn clean(&self, text: &str) -> String {
        if text.trim_start().starts_with('{') {
            self.redactor.redact_json(text)
        } else {
            self.redactor.redact(text.to_owned())
        }
    }

    /// Prints human-readable text to stdout, without control characters.
    pub fn print(&mut self, text: &str) {
        let shown = escape_controls(text, self.out_color).into_owned();
        self.write_out(&shown);
    }

    /// Prints a command for the CI service to stderr, even if only errors are shown.
    pub fn annotation(&mut self, line: &str) {
        let shown = escape_controls(line, false).into_owned();
        let _ = writeln!(self.err, "{shown}");
    }

    /// Prints data for programs, or a body, to stdout; unchanged if that is not a terminal.
    pub fn print_raw(&mut self, text: &str) {
        let shown = if self.terminals.0 {
            escape_controls(text, false)
        } else {
            text.into()
        };
        self.write_out(&shown);
    }

    /// The only write to stdout. A closed pipe is not an error.
    fn write_out(&mut self, text: &str) {
        self.has_output = true;
        let _ = self.out.write_all(self.clean(text).as_bytes());
        let _ = self.out.flush();
    }

    /// A status line or note on stderr, unless `--quiet` is set.
    pub fn status(&mut self, text: &str) {
        if !self.quiet {
            self.write_message("note", text, text);
        }
    }

    /// A rendered error on stderr, without prefix.
    pub fn diagnostic(&mut self, text: &str) {
        self.write_message("error", text, text);
    }

    /// `error: …` on stderr.
    pub fn error(&mut self, text: &str) {
        let label = if self.err_color {
            "\u{1b}[1;31merror\u{1b}[0m"
        } else {
            "error"
        };
        self.write_message("error", text, &format!("{label}: {text}"));
    }

    /// `warning: …` on stderr, unless `--quiet` is set.
    pub fn warn(&mut self, text: &str) {
        let label = if self.err_color {
            "\u{1b}[1;33mwarning\u{1b}[0m"
        } else {
            "warning"
        };
        if !self.quiet {
            self.write_message("warning", text, &format!("{label}: {text}"));
        }
    }

    /// A note or a warning about a scenario.
    pub fn scenario_warning(&mut self, warning: &Warning) {
        match warning.note {
            true => self.status(&format!("note: {warning}")),
            false => self.warn(&warning.to_string()),
        }
    }

    /// The only write to stderr: one line.
    pub fn err_line(&mut self, text: &str) {
        let clean = self.clean(text);
        let shown = if self.json {
            escape_controls_in_json(&clean)
        } else {
            escape_controls(&clean, self.err_color)
        };
        let _ = writeln!(self.err, "{shown}");
    }

    /// Writes `message` as a JSON event, or `line` for humans.
    fn write_message(&mut self, event: &str, message: &str, line: &str) {
        if self.json {
            self.err_line(
                &serde_json::json!({ "event": event, "message": message.trim_end_matches('\n') })
                    .to_string(),
            );
        } else {
            self.err_line(line.trim_end_matches('\n'));
        }
    }
}

fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
