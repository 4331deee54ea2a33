//! The two streams, and what may be written to them.

use crate::cli::args::Look;
use crate::run::execution::redactor;
use llmscen_core::foreign::{escaped, escaped_in_json};
use llmscen_core::plan::Plan;
use llmscen_core::redact::Redactor;
use llmscen_scenario::Warning;
use std::collections::BTreeMap;
use std::io::Write;

/// Columns where the terminal does not tell.
const WIDTH: usize = 100;

/// stdout for data, stderr for everything else.
pub struct Terminal<'a> {
    out: &'a mut (dyn Write + Send),
    err: &'a mut (dyn Write + Send),
    /// Say nothing but errors.
    pub quiet: bool,
    /// Colours on stdout.
    pub out_color: bool,
    /// Colours on stderr.
    pub err_color: bool,
    /// stderr is a terminal: live display is possible.
    pub live: bool,
    /// Columns.
    pub width: usize,
    /// What goes to stderr are JSON lines, for a program that reads them.
    pub json: bool,
    /// Something was written to stdout.
    pub begun: bool,
    terminals: (bool, bool),
    /// `COLUMNS` says how wide it is.
    told: bool,
    /// Strikes the secrets of the scenarios that were read.
    redactor: Redactor,
}

impl<'a> Terminal<'a> {
    /// Streams with the look that flags and environment (`NO_COLOR`, `COLUMNS`, `TERM=dumb`) ask for.
    pub fn new(
        out: &'a mut (dyn Write + Send),
        err: &'a mut (dyn Write + Send),
        terminals: (bool, bool),
        env: &BTreeMap<String, String>,
        look: &Look,
    ) -> Terminal<'a> {
        let set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
        let dumb = env.get("TERM").is_some_and(|term| term == "dumb");
        let color = !look.no_color && !set("NO_COLOR") && !dumb;
        let told = env.get("COLUMNS").and_then(|columns| columns.parse().ok());
        let size = if terminals.0 || terminals.1 { terminal_columns() } else { None };
        Terminal {
            out,
            err,
            quiet: look.quiet,
            out_color: color && terminals.0,
            err_color: color && terminals.1,
            live: terminals.1 && !dumb && !look.quiet,
            width: told.or(size).unwrap_or(WIDTH),
            json: false,
            begun: false,
            terminals,
            told: told.is_some(),
            redactor: Redactor::default(),
        }
    }

    /// Looks again how wide the terminal is, unless the environment says it.
    pub fn measure(&mut self) {
        let size = if self.told || !(self.terminals.0 || self.terminals.1) { None } else { terminal_columns() };
        self.width = size.unwrap_or(self.width);
    }

    /// Columns of stdout; None where it is no terminal, and tables keep their natural width.
    pub fn out_width(&self) -> Option<usize> {
        self.terminals.0.then_some(self.width)
    }

    /// The same of stderr.
    pub fn err_width(&self) -> Option<usize> {
        self.terminals.1.then_some(self.width)
    }

    /// From now on the secrets of this plan are struck from all that is written.
    pub fn hide(&mut self, plan: &Plan) {
        self.redactor = std::mem::take(&mut self.redactor).joined(redactor(plan));
    }

    /// A text without the secrets of the scenarios that were read.
    pub fn clean(&self, text: &str) -> String {
        if text.trim_start().starts_with('{') { self.redactor.clean_json(text) } else { self.redactor.strike(text.to_owned()) }
    }

    /// Words and tables for a person, to stdout: nothing in them acts on a terminal, now or when they are read from a file.
    pub fn data(&mut self, text: &str) {
        let shown = escaped(text, self.out_color).into_owned();
        self.put(&shown);
    }

    /// Data for programs, and bodies as they were, to stdout: unchanged unless that is a terminal.
    pub fn foreign(&mut self, text: &str) {
        let shown = if self.terminals.0 { escaped(text, false) } else { text.into() };
        self.put(&shown);
    }

    /// The door to stdout. A reader that has gone away is no error.
    fn put(&mut self, text: &str) {
        self.begun = true;
        let _ = self.out.write_all(self.clean(text).as_bytes());
        let _ = self.out.flush();
    }

    /// A line for the person who watches, to stderr, unless they asked for quiet.
    pub fn say(&mut self, text: &str) {
        if !self.quiet {
            self.tell("note", text, text);
        }
    }

    /// A line that must be said, to stderr.
    pub fn complain(&mut self, text: &str) {
        self.tell("error", text, text);
    }

    /// `error: …` in red where there are colours.
    pub fn error(&mut self, text: &str) {
        let word = if self.err_color { "\u{1b}[1;31merror\u{1b}[0m" } else { "error" };
        self.tell("error", text, &format!("{word}: {text}"));
    }

    /// `warning: …` in yellow where there are colours.
    pub fn warn(&mut self, text: &str) {
        let word = if self.err_color { "\u{1b}[1;33mwarning\u{1b}[0m" } else { "warning" };
        if !self.quiet {
            self.tell("warning", text, &format!("{word}: {text}"));
        }
    }

    /// A note or a warning about a scenario.
    pub fn remark(&mut self, warning: &Warning) {
        match warning.note {
            true => self.say(&format!("note: {warning}")),
            false => self.warn(&warning.to_string()),
        }
    }

    /// The door to stderr: one line.
    pub fn line(&mut self, text: &str) {
        let clean = self.clean(text);
        let shown = if self.json { escaped_in_json(&clean) } else { escaped(&clean, self.err_color) };
        let _ = writeln!(self.err, "{shown}");
    }

    /// The bare words as an event for a program, or the dressed ones for a person.
    fn tell(&mut self, event: &str, bare: &str, dressed: &str) {
        if self.json {
            self.line(&serde_json::json!({ "event": event, "message": bare.trim_end_matches('\n') }).to_string());
        } else {
            self.line(dressed.trim_end_matches('\n'));
        }
    }
}

fn terminal_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
