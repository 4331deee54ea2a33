//! Progress displays: the trait, a bar or plain lines, and the texts of events.

use crate::cli::metrics::MetricRegistry;
use crate::cli::output::plural;
use crate::cli::terminal::Terminal;
use crate::run::event::{Event, Preparing};
use crate::run::progress::Progress;
use crate::run::stop::{Level, Stop};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use llmscen_core::early_stop::EarlyStop;
use llmscen_core::plan::Plan;
use llmscen_report::format::{plain, shorten};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Interval between updates of the display.
pub const TICK: Duration = Duration::from_millis(50);

/// A progress display.
pub trait Display {
    /// Shows an event.
    fn show(&mut self, event: &Event);
    /// Called at least every [`TICK`].
    fn tick(&mut self) {}
    /// The run is over.
    fn finish(&mut self) {}
}

/// The run whose progress is shown.
pub struct WatchedRun<'a> {
    pub plan: &'a Plan,
    /// When the command began.
    pub began: Instant,
    /// Stops the run.
    pub stop: &'a Stop,
    /// Sends events to the display.
    pub events: &'a Sender<Event>,
    /// The metrics of the endpoint.
    pub registry: Option<&'a MetricRegistry>,
}

/// Notes and warnings only.
pub struct NotesOnly<'a, 'b>(pub &'a mut Terminal<'b>);

impl Display for NotesOnly<'_, '_> {
    fn show(&mut self, event: &Event) {
        if matches!(
            event,
            Event::Note(_) | Event::Ending(_) | Event::Stopping(_)
        ) {
            permanent_line(event, "")
                .iter()
                .for_each(|text| self.0.status(text));
        }
    }
}

/// Interval between plain progress lines.
const PLAIN_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two lines on the requests that are prepared.
const PREPARING_INTERVAL: Duration = Duration::from_secs(2);

/// A progress bar, or plain lines.
pub struct LineDisplay<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    bar: Option<ProgressBar>,
    /// Of the current round.
    title: String,
    /// Duration of the current round, if time bounds it.
    seconds: Option<f64>,
    last_line: Instant,
}

impl<'a, 'b> LineDisplay<'a, 'b> {
    pub fn new(terminal: &'a mut Terminal<'b>) -> LineDisplay<'a, 'b> {
        LineDisplay {
            terminal,
            bar: None,
            title: String::new(),
            seconds: None,
            last_line: Instant::now(),
        }
    }

    fn start_round(&mut self, title: String, total: u64, seconds: Option<f64>) {
        self.remove_bar();
        self.title = title;
        self.seconds = seconds.filter(|_| total == 0);
        self.last_line = Instant::now();
        if self.terminal.live {
            let length = if total > 0 {
                total
            } else {
                self.seconds.map_or(0, |seconds| (seconds * 10.0) as u64)
            };
            self.bar = Some(new_bar(self.terminal.width, length));
        } else {
            let amount = if total > 0 {
                plural(total as usize, "request")
            } else {
                String::from("limited by time")
            };
            self.print_line(&format!("{}  {amount}", self.title));
        }
    }

    fn update_round(&mut self, progress: &Progress) {
        match &self.bar {
            Some(bar) => {
                let columns = message_columns(self.terminal.width, &self.title);
                let position = if self.seconds.is_some() {
                    (progress.elapsed_s * 10.0) as u64
                } else {
                    progress.done
                };
                bar.set_position(position);
                bar.set_prefix(shorten(
                    &self.title,
                    self.terminal
                        .width
                        .saturating_sub(BAR_COLUMNS + 1 + SPARE_COLUMNS),
                ));
                bar.set_message(format_progress(progress, columns));
            }
            None if self.last_line.elapsed() >= PLAIN_INTERVAL => {
                self.last_line = Instant::now();
                self.print_line(&format!(
                    "{}  {}",
                    self.title,
                    format_progress(progress, usize::MAX)
                ));
            }
            None => {}
        }
    }

    fn update_preparation(&mut self, step: &Preparing) {
        let amount = match step.unit {
            "bytes" => format!("{:.1} MiB", step.done as f64 / 1_048_576.0),
            unit => format!("{} {unit}", step.done),
        };
        if self.terminal.live {
            let width = self.terminal.width;
            let bar = self.bar.get_or_insert_with(|| new_bar(width, 0));
            bar.set_length(step.total.unwrap_or(0));
            bar.set_prefix(step.words());
            bar.set_position(step.done);
            bar.set_message(amount);
        } else if step.total == Some(step.done) && step.unit == "bytes" {
            self.print_line(&format!("downloaded the dataset ({amount})"));
        } else if step.unit == "s" && step.total.is_none() {
            if step.done == 0 || self.last_line.elapsed() >= PLAIN_INTERVAL {
                self.last_line = Instant::now();
                let so_far = if step.done == 0 {
                    String::new()
                } else {
                    format!(", {amount}")
                };
                self.print_line(&(step.words() + &so_far));
            }
        } else if matches!(step.unit, "sessions" | "requests")
            && self.last_line.elapsed() >= PREPARING_INTERVAL
            && step.total != Some(step.done)
        {
            self.last_line = Instant::now();
            let of = step.total.map(|total| format!(" of {total}"));
            let of = of.unwrap_or_default();
            self.print_line(&format!("{}, {}{of}", step.words(), step.done));
        }
        if step.total == Some(step.done) {
            self.remove_bar();
        }
    }

    /// Prints a line above the bar.
    fn print_line(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.terminal.status(text)),
            None => self.terminal.status(text),
        }
    }

    fn remove_bar(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Display for LineDisplay<'_, '_> {
    fn show(&mut self, event: &Event) {
        match event {
            Event::Preparing(step) => self.update_preparation(step),
            Event::CaseStarted { total, seconds, .. } => {
                self.start_round(round_title(event), total.unwrap_or(0), *seconds)
            }
            Event::Progress(progress) => self.update_round(progress),
            Event::CaseEnded(_) => self.remove_bar(),
            _ => {}
        }
        permanent_line(event, &self.title)
            .iter()
            .for_each(|text| self.print_line(text));
    }

    fn finish(&mut self) {
        self.remove_bar();
    }
}

/// `[2/12] CASE` of a round that starts; empty for other events.
pub fn round_title(event: &Event) -> String {
    match event {
        Event::CaseStarted {
            case, part, parts, ..
        } => format!("[{}/{parts}] {}", part + 1, plain(case)),
        _ => String::new(),
    }
}

/// The permanent line of an event, if it has one. `title`: of the current round.
pub fn permanent_line(event: &Event, title: &str) -> Option<String> {
    match event {
        Event::Folder(path) => Some(format!("run folder: {}", path.display())),
        // An interrupted round has no time left.
        Event::CaseEnded(last) => Some(format!(
            "{title}  {}",
            format_progress(
                &Progress {
                    left_s: None,
                    ..last.clone()
                },
                usize::MAX
            )
        )),
        Event::Note(note) => Some(format!("note: {}", plain(note))),
        Event::Ending(EarlyStop::Aborted(lost)) => Some(plain(&format!("`{}`: {lost}", lost.expr))),
        Event::Ending(EarlyStop::Saturated(saturated)) => Some(plain(&saturated.to_string())),
        Event::Ending(EarlyStop::TargetLost(lost)) => Some(plain(&lost.to_string())),
        Event::Ending(EarlyStop::AllFailed(failed)) => Some(plain(&failed.to_string())),
        Event::Stopping(Level::Now) => Some(
            "stopping now: requests in flight are cancelled, results so far are saved".to_owned(),
        ),
        Event::Stopping(_) => Some(
            "stopping: no new requests; waiting for requests in flight (Ctrl-C again to stop now)"
                .to_owned(),
        ),
        Event::Preparing(_)
        | Event::CaseStarted { .. }
        | Event::Progress(_)
        | Event::Probed { .. }
        | Event::Done => None,
    }
}

/// Columns of the bar itself.
const BAR_COLUMNS: usize = 24;
/// Free columns at the end of a line: some terminals wrap when the last one is written.
const SPARE_COLUMNS: usize = 1;

fn new_bar(width: usize, length: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(8));
    let template = match width {
        150.. => "{prefix} {bar:24.cyan/dim} {msg}",
        NARROW.. => "{prefix}\n{bar:24.cyan/dim} {msg}",
        _ => "{bar:24.cyan/dim} {prefix}\n{msg}",
    };
    // The template is valid, so the default style is never used.
    bar.with_style(
        ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("━━─"),
    )
}

/// Below this width, the numbers have a separate line.
const NARROW: usize = 112;

/// Columns for the numbers besides the rest of their line.
fn message_columns(width: usize, title: &str) -> usize {
    let taken = match width {
        150.. => BAR_COLUMNS + 2 + title.chars().count(),
        NARROW.. => BAR_COLUMNS + 1,
        _ => 0,
    };
    width.saturating_sub(taken + SPARE_COLUMNS)
}

/// `120/200  8 in flight  41.2 req/s  ~1.3k tok/s  TTFT p50 12 ms p99 40 ms  0 errors  3 s left`. Tokens are content
/// events, a lower bound. The least important items are omitted to fit into `columns`.
fn format_progress(progress: &Progress, columns: usize) -> String {
    let total = progress
        .total
        .filter(|total| progress.done <= *total)
        .map_or(String::new(), |total| format!("/{total}"));
    let ttft = |(p50, p99)| format!("TTFT p50 {p50:.0} ms p99 {p99:.0} ms");
    let tokens = match progress.tokens_per_s {
        rate if rate >= 10_000.0 => format!("{:.1}k", rate / 1000.0),
        rate => format!("{rate:.0}"),
    };
    let left = progress
        .left_s
        .filter(|left| *left >= 0.5)
        .map(|left| format!("{left:.0} s left"));
    // With the rank of omission: the highest goes first, 0 stays.
    let items = [
        (0, Some(format!("{}{total}", progress.done))),
        (4, Some(format!("{} in flight", progress.in_flight))),
        (5, Some(format!("{:.1} req/s", progress.rate))),
        (3, Some(format!("~{tokens} tok/s"))),
        (2, progress.ttft_ms_p50.zip(progress.ttft_ms_p99).map(ttft)),
        (0, Some(plural(progress.errors as usize, "error"))),
        (1, left),
    ];
    let mut items: Vec<(u8, String)> = items
        .into_iter()
        .filter_map(|(rank, text)| Some((rank, text?)))
        .collect();
    let line = |items: &[(u8, String)]| {
        items
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<Vec<_>>()
            .join("  ")
    };
    while line(&items).chars().count() > columns {
        let Some(highest) = items
            .iter()
            .map(|(rank, _)| *rank)
            .max()
            .filter(|rank| *rank > 0)
        else {
            break;
        };
        items.retain(|(rank, _)| *rank != highest);
    }
    line(&items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_case_names_are_removed() {
        let case = "a\u{1b}[2J\nb\u{7}".to_owned();
        let started = Event::CaseStarted {
            case: case.clone(),
            round: 0,
            part: 0,
            parts: 2,
            total: None,
            seconds: None,
        };
        assert_eq!(round_title(&started), "[1/2] a [2J b");
        assert_eq!(
            permanent_line(&Event::Note(format!("`{case}` drifts")), "").unwrap(),
            "note: `a [2J b ` drifts"
        );
    }

    #[test]
    fn a_progress_line_has_all_known_values() {
        let mut progress = Progress {
            done: 120,
            total: Some(200),
            in_flight: 8,
            errors: 1,
            rate: 41.23,
            tokens_per_s: 12_345.0,
            ..Progress::default()
        };
        assert_eq!(
            format_progress(&progress, usize::MAX),
            "120/200  8 in flight  41.2 req/s  ~12.3k tok/s  1 error"
        );
        progress.ttft_ms_p50 = Some(12.2);
        progress.ttft_ms_p99 = Some(40.0);
        progress.left_s = Some(3.0);
        progress.total = None;
        let all = "120  8 in flight  41.2 req/s  ~12.3k tok/s  TTFT p50 12 ms p99 40 ms  1 error  3 s left";
        assert_eq!(format_progress(&progress, all.len()), all);
        progress.total = Some(100);
        assert_eq!(
            format_progress(&progress, all.len()),
            all,
            "a warm-up by time sends more than was counted"
        );
    }

    #[test]
    fn a_narrow_line_keeps_the_most_important_values() {
        let progress = Progress {
            done: 12_345,
            total: Some(20_000),
            in_flight: 256,
            errors: 17,
            rate: 1234.5,
            tokens_per_s: 12_345.0,
            ttft_ms_p50: Some(1234.0),
            ttft_ms_p99: Some(5678.0),
            left_s: Some(123.0),
            ..Progress::default()
        };
        let at = |width: usize| format_progress(&progress, message_columns(width, "[1/1] base"));
        assert_eq!(
            at(76),
            "12345/20000  TTFT p50 1234 ms p99 5678 ms  17 errors  123 s left"
        );
        assert_eq!(
            at(81),
            "12345/20000  ~12.3k tok/s  TTFT p50 1234 ms p99 5678 ms  17 errors  123 s left"
        );
        assert_eq!(at(50), "12345/20000  17 errors  123 s left");
        assert_eq!(at(10), "12345/20000  17 errors");
        for width in 40..200 {
            let taken = width - message_columns(width, "[1/1] base") - SPARE_COLUMNS;
            assert!(
                taken + at(width).chars().count() < width,
                "{width}: {}",
                at(width)
            );
        }
    }
}
