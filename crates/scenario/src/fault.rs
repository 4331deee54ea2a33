//! Errors and warnings of a scenario, with their place and a remedy.

mod page;

use crate::fault::page::{Page, clipped, fits_snippet, shortened, shortened_help};
use crate::remote_use::RemoteUse;
use crate::source::{COMMAND_LINE, Sources};
use crate::tree::Span;
use llmscen_core::remote_data::PinData;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

/// An error before it is rendered with its source text.
#[derive(Clone, Debug, PartialEq)]
pub struct Mistake {
    message: String,
    at: Span,
    label: String,
    also: Vec<(Span, String)>,
    help: Option<String>,
    section: String,
    /// The environment variable that is not set.
    variable: Option<String>,
    /// Further places with the same cause.
    again: Vec<Span>,
}

impl Mistake {
    /// An error at a place; `label` is the text under the underline.
    pub fn new(at: Span, message: impl Into<String>, label: impl Into<String>) -> Mistake {
        Mistake {
            message: message.into(),
            at,
            label: label.into(),
            also: Vec::new(),
            help: None,
            section: String::new(),
            variable: None,
            again: Vec::new(),
        }
    }

    /// Adds what to do about it.
    pub fn help(mut self, help: impl Into<String>) -> Mistake {
        self.help = Some(help.into());
        self
    }

    /// Adds a second place, where there is one.
    pub(crate) fn also_if(self, at: Option<Span>, label: &str) -> Mistake {
        match at {
            Some(at) => self.also(at, label),
            None => self,
        }
    }

    /// Adds a second place.
    pub(crate) fn also(mut self, at: Span, label: impl Into<String>) -> Mistake {
        self.also.push((at, label.into()));
        self
    }
}

/// Converts a run folder, or the newest runs below a folder if their number is given, to a baseline, or returns why
/// that is impossible.
pub type Figures = fn(&Path, Option<usize>) -> Result<BaselineText, String>;

/// The text of a baseline that was made from run folders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineText {
    /// The text, as in a baseline file.
    pub text: String,
    /// Which runs were left out, and why.
    pub notes: Vec<String>,
}

/// Returns why the local model at a path is not supported.
pub type Supports = fn(&Path) -> Result<(), String>;

/// Returns the name of the GPUs of this machine, if it has any.
pub type FindGpu = fn() -> Option<String>;

/// Output of the variables replaced so far, which is bounded: a few lines can expand to more than the memory holds.
#[derive(Debug, Default)]
pub(crate) struct Expanded {
    /// Bytes of text; each value adds a fixed number.
    pub bytes: usize,
    /// Depth of nesting.
    pub depth: usize,
    /// Whether exceeding the bound was reported.
    pub is_reported: bool,
}

/// Collects errors and warnings while a scenario is compiled, with the texts they point into.
#[derive(Debug, Default)]
pub(crate) struct Review {
    pub sources: Sources,
    /// Paths set by `--set`.
    pub fixed: Vec<String>,
    /// The top-level key under inspection; errors are attributed to it.
    pub section: String,
    /// The key under inspection.
    pub key: String,
    /// A base file is missing, so required keys may be in it.
    pub partial: bool,
    /// Converts a run folder to a baseline.
    pub figures: Option<Figures>,
    /// Checks a local model.
    pub supports: Option<Supports>,
    /// Finds the GPUs of this machine.
    pub find_gpu: Option<FindGpu>,
    /// Their name, once a condition has asked for it.
    pub machine_gpu: Option<Option<String>>,
    /// Looks up data of the hub.
    pub pin_data: Option<PinData>,
    /// The data of the hub that datasets name.
    pub remote_uses: Vec<RemoteUse>,
    /// Size of the replaced variables.
    pub expanded: Expanded,
    /// The Hugging Face cache directory.
    pub hugging_face: Option<PathBuf>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    warned: HashSet<Warning>,
    /// Texts in which a variable is not set.
    lacking: HashSet<Span>,
}

impl Review {
    /// The name of the GPUs of this machine.
    pub fn gpu_of_machine(&mut self) -> Option<String> {
        let find = self.find_gpu;
        let found = || find.and_then(|find| find());
        self.machine_gpu.get_or_insert_with(found).clone()
    }

    /// Whether the text of a stored plan has the name of a variable in place of its value, so that its form cannot be
    /// checked.
    pub fn is_unset(&self, text: &str) -> bool {
        self.sources.stored && text.contains("${")
    }

    /// Reports an error, except in a text in which a variable is not set: that is a consequence.
    pub fn push(&mut self, mistake: Mistake) {
        if !self.lacking.contains(&mistake.at) {
            self.record(mistake);
        }
    }

    /// Adds a help to the errors after the first `count` that have none.
    pub fn help_since(&mut self, count: usize, help: impl Fn() -> String) {
        let new = self.mistakes.iter_mut().skip(count);
        for mistake in new.filter(|mistake| mistake.help.is_none()) {
            mistake.help = Some(help());
        }
    }

    /// Adds a line to the help of the errors after the first `count`.
    pub fn explain_since(&mut self, count: usize, line: &str) {
        for mistake in self.mistakes.iter_mut().skip(count) {
            let help = mistake.help.take();
            mistake.help =
                Some(help.map_or_else(|| line.to_owned(), |help| format!("{help}\n{line}")));
        }
    }

    /// Reports that the variable `name` in the text at `at` is not set.
    pub fn lacks(&mut self, at: Span, name: &str, mistake: Mistake) {
        self.record(Mistake {
            variable: Some(name.to_owned()),
            ..mistake
        });
        self.lacking.insert(at);
    }

    /// Whether a variable in the text at `at` is not set.
    pub fn lacks_value(&self, at: Span) -> bool {
        self.lacking.contains(&at)
    }

    /// Marks a text as incomplete if the text it refers to is.
    pub fn inherit(&mut self, from: Span, to: Span) {
        if self.lacking.contains(&from) {
            self.lacking.insert(to);
        }
    }

    fn record(&mut self, mistake: Mistake) {
        self.mistakes.push(Mistake {
            section: self.section.clone(),
            ..mistake
        });
    }

    /// Reports a warning.
    pub fn warn(&mut self, at: Span, message: impl Into<String>) {
        self.remark(at, message.into(), false);
    }

    /// Reports a note.
    pub fn note(&mut self, at: Span, message: impl Into<String>) {
        self.remark(at, message.into(), true);
    }

    fn remark(&mut self, at: Span, message: String, note: bool) {
        let (line, column) = self.sources.line_and_column(at);
        let warning = Warning {
            file: self.sources.name(at.file).to_owned(),
            line,
            column,
            message,
            note,
        };
        if self.warned.insert(warning.clone()) {
            self.warnings.push(warning);
        }
    }

    /// Whether a section has no known errors.
    pub fn is_section_clean(&self, section: &str) -> bool {
        self.mistakes
            .iter()
            .all(|mistake| mistake.section != section)
    }

    /// Drops all errors, because the next one explains them.
    pub fn clear_errors(&mut self) {
        self.mistakes.clear();
    }

    /// Whether there are far more errors than are shown; suggestions for further ones would only cost time.
    pub fn is_flooded(&self) -> bool {
        self.mistakes.len() > 4 * MOST_SHOWN
    }

    /// Number of errors so far.
    pub fn count(&self) -> usize {
        self.mistakes.len()
    }

    /// Whether there are no errors.
    pub fn is_clean(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// The errors in the order of the text, without duplicates.
    pub fn faults(self) -> Faults {
        let mut mistakes = self.mistakes;
        mistakes.sort_by_key(|mistake| mistake.at);
        let mut known = HashSet::new();
        mistakes.retain(|mistake| known.insert((mistake.at, mistake.message.clone())));
        Faults {
            faults: join_variables(mistakes)
                .into_iter()
                .map(|mistake| Fault::new(mistake, &self.sources))
                .collect(),
        }
    }

    /// The warnings in the order in which they were found.
    pub fn into_warnings(self) -> Vec<Warning> {
        self.warnings
    }
}

/// A warning or a note about a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Warning {
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The text.
    pub message: String,
    /// Whether it is a note: context, no action needed.
    pub note: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.file, self.line, self.column, self.message
        )
    }
}

/// An error with its source text, as a diagnostic.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    message: String,
    labels: Vec<LabeledSpan>,
    help: Option<String>,
    page: Page,
    line: usize,
    column: usize,
}

impl Fault {
    fn new(mut mistake: Mistake, sources: &Sources) -> Fault {
        let page = Page::new(
            sources.name(mistake.at.file),
            sources.masked_text(mistake.at.file),
        );
        let label =
            |label: String, at: Span| (Some(shortened(label)), clipped(page.text(), at.range()));
        let again = (!mistake.again.is_empty()).then(|| repeated(&mistake, sources));
        let primary = mistake.at;
        let shown = |at: Span| clipped(page.text(), at.range());
        let near = |at: Span| {
            at.file == primary.file && fits_snippet(page.text(), shown(primary), shown(at))
        };
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            mistake.also.into_iter().partition(|(at, _)| near(*at));
        let (words, range) = label(mistake.label, mistake.at);
        let first = LabeledSpan::new_primary_with_span(words, range);
        let others = here.into_iter().map(|(at, words)| label(words, at));
        let labels: Vec<LabeledSpan> = std::iter::once(first)
            .chain(others.map(|(words, range)| LabeledSpan::new_with_span(words, range)))
            .collect();
        let remote = elsewhere.into_iter().map(|(at, label)| {
            format!(
                "{label}: {}:{}",
                sources.name(at.file),
                sources.line_and_column(at).0
            )
        });
        let help: Vec<String> = again
            .into_iter()
            .chain(mistake.help.take())
            .chain(remote)
            .collect();
        let (line, column) = sources.line_and_column(mistake.at);
        Fault {
            message: shortened(mistake.message),
            labels,
            help: (!help.is_empty()).then(|| shortened_help(help.join("\n"))),
            page,
            line,
            column,
        }
    }

    /// Whether it is about an argument, so that there is no text to point at.
    fn is_of_command_line(&self) -> bool {
        self.file() == COMMAND_LINE
    }

    /// The message, one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The file, as it was named.
    pub fn file(&self) -> &str {
        self.page.name()
    }

    /// Line, from 1.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> usize {
        self.column
    }
}

impl Diagnostic for Fault {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.page)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// Errors that are shown; the rest are only counted.
const MOST_SHOWN: usize = 50;

/// A count with thousands separators: `19,950`.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let rest = digits.as_bytes()[first..]
        .chunks(3)
        .map(String::from_utf8_lossy);
    std::iter::once(String::from(&digits[..first]))
        .chain(rest.map(String::from))
        .collect::<Vec<_>>()
        .join(",")
}

/// All errors of a scenario, in the order of its text; never empty.
#[derive(Clone, Debug)]
pub struct Faults {
    faults: Vec<Fault>,
}

impl Faults {
    /// Iterates over the errors.
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.faults.iter()
    }

    /// Number of errors.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a list of faults is never empty"
    )]
    pub fn len(&self) -> usize {
        self.faults.len()
    }

    /// Renders the first errors for a terminal of `width` columns, followed by a line with their total number.
    pub fn render(&self, color: bool, width: usize) -> String {
        let theme = if color {
            GraphicalTheme::unicode()
        } else {
            GraphicalTheme::unicode_nocolor()
        };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(width)
            .with_links(false)
            .with_context_lines(1);
        let mut text = String::new();
        for fault in self.faults.iter().take(MOST_SHOWN) {
            if fault.is_of_command_line() {
                text += &plain(fault, color);
                continue;
            }
            // Writing to a String cannot fail, and a snippet that cannot be drawn must not hide the message.
            if handler.render_report(&mut text, fault).is_err() {
                text.push_str(&format!("  × {fault}\n"));
            }
            text.push('\n');
        }
        let more = self.faults.len().saturating_sub(MOST_SHOWN);
        if more > 0 {
            text += &format!(
                "… and {} more {}\n",
                grouped(more),
                if more == 1 { "error" } else { "errors" }
            );
        }
        text + &self.count_line()
    }

    fn count_line(&self) -> String {
        let shown: Vec<&Fault> = self
            .faults
            .iter()
            .filter(|fault| !fault.is_of_command_line())
            .collect();
        let mut files: Vec<&str> = shown.iter().map(|fault| fault.file()).collect();
        files.dedup();
        match shown.len() {
            0 => String::new(),
            1 => format!("1 error in {}. No request was sent.\n", files.join(", ")),
            many => format!(
                "{} errors in {}. No request was sent.\n",
                grouped(many),
                files.join(", ")
            ),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self
            .faults
            .iter()
            .map(|fault| format!("{}:{}:{}: {fault}", fault.file(), fault.line, fault.column));
        f.write_str(&lines.collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for Faults {}

/// Merges the errors of one variable that is not set into one.
fn join_variables(mistakes: Vec<Mistake>) -> Vec<Mistake> {
    let mut joined: Vec<Mistake> = Vec::new();
    let mut first: HashMap<String, usize> = HashMap::new();
    for mistake in mistakes {
        match mistake.variable.as_ref().and_then(|name| first.get(name)) {
            Some(index) => joined[*index].again.push(mistake.at),
            None => {
                first.extend(mistake.variable.clone().map(|name| (name, joined.len())));
                joined.push(mistake);
            }
        }
    }
    joined
}

/// Lists the places of an error: line numbers, with the file name where it is another file.
fn repeated(mistake: &Mistake, sources: &Sources) -> String {
    let spans: Vec<Span> = std::iter::once(mistake.at)
        .chain(mistake.again.iter().copied())
        .collect();
    let place = |at: &Span| {
        let line = sources.line_and_column(*at).0;
        if at.file == mistake.at.file {
            format!("line {line}")
        } else {
            format!("{}:{line}", sources.name(at.file))
        }
    };
    let mut places: Vec<String> = spans.iter().map(place).collect();
    places.dedup();
    format!("Used in {} places: {}.", spans.len(), places.join(", "))
}

/// An error of the command line, which has no source text.
fn plain(fault: &Fault, color: bool) -> String {
    let word = if color {
        "\u{1b}[1;31merror\u{1b}[0m"
    } else {
        "error"
    };
    let help = fault
        .help
        .iter()
        .flat_map(|help| help.lines())
        .map(|line| format!("  help: {line}\n"));
    format!("{word}: {}\n{}", fault.message, help.collect::<String>())
}
