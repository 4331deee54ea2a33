//! The panels of the full-screen view.

use crate::cli::live::state::{Part, Second, State, View};
use crate::cli::output::plural;
use crate::run::stop::Level;
use llmscen_report::format::{ABSENT, millis, percent, plain, shorten, thousands};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Axis, Block, Borders, Cell, Chart, Dataset, GraphType, Paragraph, Row, Sparkline, Table, Wrap,
};

/// Styles with or without colors.
#[derive(Clone, Copy, Debug)]
pub struct Palette {
    pub color: bool,
}

impl Palette {
    fn fg(self, color: Color) -> Style {
        if self.color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    fn dim(self) -> Style {
        self.fg(Color::DarkGray)
    }

    /// A block with a title in its top border.
    fn block(self, title: String) -> Block<'static> {
        let title = Line::from(vec![Span::styled(title, bold()), " ".into()]);
        Block::new()
            .borders(Borders::TOP)
            .border_style(self.dim())
            .title(title)
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn right_aligned(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

/// `0:42`, `1:02:03`.
fn format_clock(seconds: f64) -> String {
    let total = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

/// `42 s left`, unless it is almost over or unknown.
fn format_left(left_s: Option<f64>, prefix: &str) -> String {
    let left = left_s.filter(|left| *left >= 0.5);
    left.map_or(String::new(), |left| {
        format!("{prefix}{} left", format_clock(left))
    })
}

/// Columns of a progress bar.
fn bar_width(area: Rect) -> usize {
    usize::from(area.width / 4)
        .max(22)
        .min(usize::from(area.width / 3))
}

/// Draws each panel into an area.
pub struct Painter<'a, 'f> {
    pub view: &'a View,
    pub palette: Palette,
    pub frame: &'a mut Frame<'f>,
}

impl Painter<'_, '_> {
    /// The scenario and the time.
    pub fn head(&mut self, at: f64, area: Rect) {
        let time = format!(
            "{}{}",
            format_clock(at),
            format_left(self.view.left_s(), ", about ")
        );
        let columns = usize::from(area.width).saturating_sub(time.chars().count() + 12);
        let name = Span::styled(shorten(&plain(&self.view.name), columns), bold());
        self.frame.render_widget(
            Line::from(vec![
                Span::styled("llmscen  ", self.palette.fg(Color::Cyan)),
                name,
            ]),
            area,
        );
        self.frame
            .render_widget(Line::from(time).alignment(Alignment::Right), area);
    }

    /// Progress of the plan.
    pub fn plan_progress(&mut self, area: Rect) {
        let view = self.view;
        let finished = view.finished();
        let total = view.parts.len();
        let text = match &view.preparing {
            Some(step) => format!("{}: {} {}", step.words(), step.done, step.unit),
            None if view.search => format!("search, {} done", plural(finished, "probe")),
            None if view.rounds > 1 => {
                let cases = plural(total / view.rounds.max(1) as usize, "case");
                format!("{finished}/{total} done: {cases} × {} rounds", view.rounds)
            }
            None => format!("{finished}/{} done", plural(total, "case")),
        };
        let share = (!view.search && total > 0)
            .then(|| (finished as f64 + view.share_done().unwrap_or(0.0)) / total as f64);
        self.bar("plan", share, &text, area);
    }

    /// Progress of the running case.
    pub fn case_progress(&mut self, area: Rect) {
        let view = self.view;
        let now = &view.now;
        let Some(part) = view.current.and_then(|current| view.parts.get(current)) else {
            let is_over =
                !view.search && view.finished() == view.parts.len() || view.stopping > Level::Run;
            let text = match view.finished() {
                0 => "not started",
                _ if is_over => "writing the report",
                _ => "between rounds",
            };
            return self.bar("case", None, text, area);
        };
        let total = now
            .total
            .filter(|total| now.done <= *total)
            .map_or(String::new(), |total| format!("/{total}"));
        let left = format_left(now.left_s, "  ");
        let round = if view.rounds > 1 {
            format!("  round {}/{}", part.round + 1, view.rounds)
        } else {
            String::new()
        };
        let suffix = format!("{round}  {}{total}{left}", now.done);
        let columns =
            usize::from(area.width).saturating_sub(9 + bar_width(area) + suffix.chars().count());
        self.bar(
            "case",
            view.share_done(),
            &format!("{}{suffix}", shorten(&plain(&part.case), columns)),
            area,
        );
    }

    fn bar(&mut self, name: &str, share: Option<f64>, text: &str, area: Rect) {
        let width = bar_width(area);
        let filled = (share.unwrap_or(0.0) * width as f64).round() as usize;
        self.frame.render_widget(
            Line::from(vec![
                Span::styled(format!("{name}  "), bold()),
                Span::styled("━".repeat(filled.min(width)), self.palette.fg(Color::Cyan)),
                Span::styled("─".repeat(width.saturating_sub(filled)), self.palette.dim()),
                Span::raw(format!("  {text}")),
            ]),
            area,
        );
    }

    /// The keys, or the state of stopping.
    pub fn foot(&mut self, area: Rect) {
        let is_narrow = area.width < 60;
        let draining = plural(self.view.now.in_flight as usize, "request");
        let (text, style) = match self.view.stopping {
            Level::Run if is_narrow => ("q or Ctrl-C: stop".to_owned(), self.palette.dim()),
            Level::Run => (
                "q or Ctrl-C: stop, save and report".to_owned(),
                self.palette.dim(),
            ),
            Level::Drain if is_narrow => (
                "STOPPING; q again: now".to_owned(),
                self.palette.fg(Color::Yellow),
            ),
            Level::Drain => (
                format!("STOPPING: draining {draining}; q again to stop now"),
                self.palette.fg(Color::Yellow),
            ),
            Level::Now => (
                "STOPPING NOW: results so far are saved".to_owned(),
                self.palette.fg(Color::Red),
            ),
        };
        self.frame.render_widget(Line::styled(text, style), area);
    }

    /// Percentiles of the running case.
    pub fn latency(&mut self, area: Rect) {
        let now = &self.view.now;
        let cell = |value: Option<f64>| right_aligned(value.map_or(ABSENT.to_owned(), millis));
        let row = |name: &'static str, p50, p99| Row::new([Cell::from(name), cell(p50), cell(p99)]);
        let rows = [
            row("TTFT", now.ttft_ms_p50, now.ttft_ms_p99),
            row("ITL", now.itl_ms_p50, now.itl_ms_p99),
            row("E2E", now.e2e_ms_p50, now.e2e_ms_p99),
        ];
        let header = Row::new(["", "p50", "p99"].map(|head| right_aligned(head.to_owned())))
            .style(self.palette.dim());
        let widths = [
            Constraint::Length(6),
            Constraint::Length(12),
            Constraint::Length(12),
        ];
        let table = Table::new(rows, widths)
            .header(header)
            .block(self.palette.block("latency".into()));
        self.frame.render_widget(table, area);
    }

    /// Current rates.
    pub fn current_values(&mut self, area: Rect) {
        let now = &self.view.now;
        let error_style = if now.errors > 0 {
            self.palette.fg(Color::Red)
        } else {
            Style::new()
        };
        let values = [
            (now.in_flight.to_string(), "in flight", Style::new()),
            (thousands(now.rate), "requests/s", Style::new()),
            (
                format!("~{}", thousands(now.tokens_per_s)),
                "tokens/s",
                Style::new(),
            ),
            (
                now.errors.to_string(),
                if now.errors == 1 { "error" } else { "errors" },
                error_style,
            ),
        ];
        let lines = values.map(|(value, name, style)| {
            Line::from(Span::styled(format!("{value:>10}  {name}"), style))
        });
        self.frame.render_widget(
            Paragraph::new(lines.to_vec()).block(self.palette.block("now".into())),
            area,
        );
    }

    /// Token events per second over time.
    pub fn tokens_chart(&mut self, area: Rect) {
        self.sparkline("tokens/s", "", Second::tokens_per_s, Color::Cyan, area);
    }

    /// Requests in flight over time.
    pub fn in_flight_chart(&mut self, area: Rect) {
        self.sparkline("in flight", "", Second::in_flight, Color::Blue, area);
    }

    /// Failed requests over time.
    pub fn errors_chart(&mut self, area: Rect) {
        self.sparkline(
            "errors",
            "/s",
            |second| second.errors as f64,
            Color::Red,
            area,
        );
    }

    fn sparkline(
        &mut self,
        title: &str,
        unit: &str,
        value: impl Fn(&Second) -> f64,
        color: Color,
        area: Rect,
    ) {
        let seconds = self.last_seconds(area.width);
        let peak = seconds.iter().map(&value).fold(0.0, f64::max);
        let title = match seconds.is_empty() {
            true => title.to_owned(),
            false => format!(
                "{title} · last {} s · peak {}{unit}",
                seconds.len(),
                thousands(peak)
            ),
        };
        // Thousandths, so that a mean of 0.5 in flight is visible. The newest second is on the right.
        let values = seconds
            .iter()
            .map(|second| (value(second) * 1e3).round() as u64);
        let padding = usize::from(area.width).saturating_sub(seconds.len());
        let data: Vec<u64> = std::iter::repeat_n(0, padding).chain(values).collect();
        let line = Sparkline::default()
            .data(data)
            .style(self.palette.fg(color))
            .block(self.palette.block(title));
        self.frame.render_widget(line, area);
    }

    /// The seconds that fit into a chart with one column per second.
    fn last_seconds(&self, width: u16) -> Vec<Second> {
        let first = self.view.seconds.len().saturating_sub(usize::from(width));
        self.view.seconds.iter().skip(first).copied().collect()
    }

    /// TTFT over time: median and p99 of the requests that ended in each second.
    pub fn ttft_chart(&mut self, area: Rect) {
        let seconds = self.last_seconds(area.width);
        let offset = usize::from(area.width).saturating_sub(seconds.len());
        let points = |value: fn(&Second) -> Option<f64>| -> Vec<(f64, f64)> {
            let values = seconds.iter().enumerate();
            values
                .filter_map(|(index, second)| Some(((offset + index) as f64, value(second)?)))
                .collect()
        };
        let p50 = points(|second| second.ttft_p50);
        let p99 = points(|second| second.ttft_p99);
        let peak = p99.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let title = match peak > 0.0 {
            true => format!(
                "TTFT p50/p99 · last {} s · peak {}",
                seconds.len(),
                millis(peak)
            ),
            false => "TTFT p50/p99".to_owned(),
        };
        let line = |data, color| {
            let line = Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line);
            line.style(self.palette.fg(color)).data(data)
        };
        let axis = |end: f64| Axis::default().bounds([0.0, end]);
        let chart = Chart::new(vec![line(&p99, Color::Yellow), line(&p50, Color::Green)])
            .x_axis(axis(f64::from(area.width.saturating_sub(1).max(1))))
            .y_axis(axis(if peak > 0.0 { peak * 1.05 } else { 1.0 }))
            .legend_position(None)
            .block(self.palette.block(title));
        self.frame.render_widget(chart, area);
    }

    /// Values for a window that is too small for panels.
    pub fn plain_values(&mut self, area: Rect) {
        let now = &self.view.now;
        let percentiles = |name: &str, p50: Option<f64>, p99: Option<f64>| {
            p50.zip(p99)
                .map(|(p50, p99)| format!("{name} p50 {} p99 {}", millis(p50), millis(p99)))
        };
        let lines = [
            Some(format!(
                "{} in flight, {}",
                now.in_flight,
                plural(now.errors as usize, "error")
            )),
            Some(format!(
                "{} requests/s, ~{} tokens/s",
                thousands(now.rate),
                thousands(now.tokens_per_s)
            )),
            percentiles("TTFT", now.ttft_ms_p50, now.ttft_ms_p99),
            percentiles("ITL", now.itl_ms_p50, now.itl_ms_p99),
            percentiles("E2E", now.e2e_ms_p50, now.e2e_ms_p99),
        ];
        let lines: Vec<Line<'_>> = lines.into_iter().flatten().map(Line::from).collect();
        self.frame
            .render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
    }

    /// The cases around the running one.
    pub fn cases(&mut self, area: Rect) {
        let view = self.view;
        let rows = usize::from(area.height).saturating_sub(2);
        let current = view
            .current
            .unwrap_or_else(|| view.finished().saturating_sub(1));
        // Most of the rows show finished cases, a quarter those to come.
        let end = (current + 1 + rows / 4)
            .min(view.parts.len())
            .max(rows.min(view.parts.len()));
        let shown = view
            .parts
            .get(end.saturating_sub(rows)..end)
            .unwrap_or_default();
        let heads = [
            "CASE", "ROUND", "STATE", "DONE", "ERRORS", "TTFT P99", "E2E P99",
        ];
        let header = heads.map(|head| match head {
            "CASE" | "STATE" => Cell::from(head),
            _ => right_aligned(head.to_owned()),
        });
        let widths = [7, 15, 7, 6, 9, 9];
        let case_width =
            usize::from(area.width).saturating_sub(widths.iter().sum::<usize>() + widths.len());
        let rows = shown
            .iter()
            .map(|part| case_row(part, case_width, self.palette));
        let columns = std::iter::once(Constraint::Fill(1))
            .chain(widths.map(|width| Constraint::Length(width as u16)));
        let title = if view.search { "probes" } else { "cases" };
        let header = Row::new(header).style(self.palette.dim());
        self.frame.render_widget(
            Table::new(rows, columns)
                .header(header)
                .block(self.palette.block(title.into())),
            area,
        );
    }

    /// The latest notes.
    pub fn notes(&mut self, area: Rect) {
        let rows = usize::from(area.height).saturating_sub(1);
        let notes = self
            .view
            .notes
            .iter()
            .skip(self.view.notes.len().saturating_sub(rows));
        let width = usize::from(area.width);
        let lines: Vec<Line<'_>> = notes
            .map(|note| Line::from(shorten(&plain(note), width)))
            .collect();
        self.frame.render_widget(
            Paragraph::new(lines).block(self.palette.block("notes".into())),
            area,
        );
    }
}

fn case_row(part: &Part, case_width: usize, palette: Palette) -> Row<'static> {
    let (state, style) = match &part.state {
        State::Waiting => ("waiting".to_owned(), palette.dim()),
        State::Running => ("running".to_owned(), palette.fg(Color::Cyan)),
        State::Ended => ("done".to_owned(), Style::new()),
        State::StoppedEarly(reason) => ((*reason).to_owned(), palette.fg(Color::Red)),
        State::Probed(None) => ("INVALID".to_owned(), palette.fg(Color::Yellow)),
        State::Probed(Some(probability)) => {
            let color = if *probability >= 0.95 {
                Color::Green
            } else if *probability <= 0.05 {
                Color::Red
            } else {
                Color::Yellow
            };
            (
                format!("passes: {}", percent((probability * 1e3).round() / 1e3)),
                palette.fg(color),
            )
        }
    };
    let progress = part.progress.as_ref();
    let cell = |value: Option<String>| right_aligned(value.unwrap_or_default());
    Row::new([
        Cell::from(shorten(&plain(&part.case), case_width)),
        right_aligned((part.round + 1).to_string()),
        Cell::from(Line::styled(state, style)),
        cell(progress.map(|progress| progress.done.to_string())),
        cell(progress.map(|progress| progress.errors.to_string())),
        cell(
            progress
                .and_then(|progress| progress.ttft_ms_p99)
                .map(millis),
        ),
        cell(
            progress
                .and_then(|progress| progress.e2e_ms_p99)
                .map(millis),
        ),
    ])
}
