//! The parts of the picture, each in its own rectangle.

use crate::cli::live::state::{Part, Second, State, View};
use crate::run::execution::stop::Level;
use llmscen_report::format::{ABSENT, millis, percent, plain, shorten, thousands};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Borders, Cell, Chart, Dataset, GraphType, Paragraph, Row, Sparkline, Table, Wrap};

/// Whether there are colours.
#[derive(Clone, Copy, Debug)]
pub struct Ink(pub bool);

impl Ink {
    /// In this colour.
    pub fn of(self, color: Color) -> Style {
        if self.0 { Style::new().fg(color) } else { Style::new() }
    }

    /// Of lesser rank.
    pub fn dim(self) -> Style {
        if self.0 { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// `0:42`, `1:02:03`.
fn clock(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// A line above, with a name.
pub fn panel(title: String, ink: Ink) -> Block<'static> {
    Block::new().borders(Borders::TOP).border_style(ink.dim()).title(Line::from(vec![Span::styled(title, bold()), " ".into()]))
}

/// The scenario, and the time.
pub fn head(view: &View, at: f64, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let left = view.left_s().filter(|left| *left >= 0.5).map(|left| format!(", about {} left", clock(left)));
    let time = format!("{}{}", clock(at), left.unwrap_or_default());
    let room = usize::from(area.width).saturating_sub(time.chars().count() + 12);
    let name =
        Line::from(vec![Span::styled("llmscen  ", ink.of(Color::Cyan)), Span::styled(shorten(&plain(&view.name), room), bold())]);
    frame.render_widget(name, area);
    frame.render_widget(Line::from(time).alignment(Alignment::Right), area);
}

/// How far the plan is.
pub fn plan(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let (ended, all) = (view.ended(), view.parts.len());
    let words = match &view.preparing {
        Some(step) => format!("{}: {} {}", step.words(), step.done, step.unit),
        None if view.search => format!("search, {ended} probes ended"),
        None if view.rounds > 1 => {
            let cases = all / view.rounds.max(1) as usize;
            format!("{ended} of {all} ended: {cases} {} × {} rounds", if cases == 1 { "case" } else { "cases" }, view.rounds)
        }
        None => format!("{ended} of {all} {} ended", if all == 1 { "case" } else { "cases" }),
    };
    let share = (!view.search && all > 0).then(|| (ended as f64 + view.share().unwrap_or(0.0)) / all as f64);
    bar("plan", share, &words, ink, area, frame);
}

/// How far the part that runs is.
pub fn part(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let now = &view.now;
    let Some(own) = view.current.and_then(|current| view.parts.get(current)) else {
        let over = !view.search && view.ended() == view.parts.len() || view.stopping > Level::Run;
        let words = match view.ended() {
            0 => "not begun",
            _ if over => "writing the report",
            _ => "between two rounds",
        };
        return bar("case", None, words, ink, area, frame);
    };
    let total = now.total.filter(|total| now.done <= *total).map_or(String::new(), |total| format!("/{total}"));
    let left = now.left_s.filter(|left| *left >= 0.5).map_or(String::new(), |left| format!("  {} left", clock(left)));
    let round = if view.rounds > 1 { format!("  round {}/{}", own.round + 1, view.rounds) } else { String::new() };
    let behind = format!("{round}  {}{total}{left}", now.done);
    let room = usize::from(area.width).saturating_sub(9 + bar_width(area) + behind.chars().count());
    bar("case", view.share(), &format!("{}{behind}", shorten(&plain(&own.case), room)), ink, area, frame);
}

/// Columns of a bar.
fn bar_width(area: Rect) -> usize {
    usize::from(area.width / 4).max(22).min(usize::from(area.width / 3))
}

fn bar(name: &str, share: Option<f64>, words: &str, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let width = bar_width(area);
    let full = (share.unwrap_or(0.0) * width as f64).round() as usize;
    frame.render_widget(
        Line::from(vec![
            Span::styled(format!("{name}  "), bold()),
            Span::styled("━".repeat(full.min(width)), ink.of(Color::Cyan)),
            Span::styled("─".repeat(width.saturating_sub(full)), ink.dim()),
            Span::raw(format!("  {words}")),
        ]),
        area,
    );
}

/// What the keys do, or what they have done.
pub fn foot(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let line = match view.stopping {
        Level::Run if area.width < 60 => Line::styled("q or Ctrl-C: stop", ink.dim()),
        Level::Drain if area.width < 60 => Line::styled("STOPPING; q again: at once", ink.of(Color::Yellow)),
        Level::Run => Line::styled("q or Ctrl-C: stop, with what there is saved and reported", ink.dim()),
        Level::Drain => {
            Line::styled("STOPPING: requests in flight get their grace; q again stops at once", ink.of(Color::Yellow))
        }
        Level::Now => Line::styled("STOPPING AT ONCE: what there is gets saved", ink.of(Color::Red)),
    };
    frame.render_widget(line, area);
}

/// Percentiles of the part that runs.
pub fn latency(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let now = &view.now;
    let figure = |value: Option<f64>| Cell::from(Line::from(value.map_or(ABSENT.to_owned(), millis)).alignment(Alignment::Right));
    let row = |name: &'static str, p50, p99| Row::new([Cell::from(name), figure(p50), figure(p99)]);
    let rows = [
        row("TTFT", now.ttft_ms_p50, now.ttft_ms_p99),
        row("ITL", now.itl_ms_p50, now.itl_ms_p99),
        row("E2E", now.e2e_ms_p50, now.e2e_ms_p99),
    ];
    let head = ["", "p50", "p99"].map(|head| Cell::from(Line::from(head).alignment(Alignment::Right)));
    let widths = [Constraint::Length(6), Constraint::Length(12), Constraint::Length(12)];
    let table = Table::new(rows, widths).header(Row::new(head).style(ink.dim())).block(panel("latency".into(), ink));
    frame.render_widget(table, area);
}

/// What happens now.
pub fn rates(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let now = &view.now;
    let bad = if now.errors > 0 { ink.of(Color::Red) } else { Style::new() };
    let figures = [
        (format!("{}", now.in_flight), "in flight", Style::new()),
        (thousands(now.rate), "requests/s", Style::new()),
        (format!("~{}", thousands(now.tokens_per_s)), "tokens/s", Style::new()),
        (format!("{}", now.errors), if now.errors == 1 { "error" } else { "errors" }, bad),
    ];
    let line =
        |(figure, name, style): (String, &'static str, Style)| Line::from(Span::styled(format!("{figure:>10}  {name}"), style));
    frame.render_widget(Paragraph::new(figures.map(line).to_vec()).block(panel("now".into(), ink)), area);
}

/// The last seconds that a chart of this width has room for: one a column, the newest on the right.
fn latest(view: &View, width: u16) -> Vec<Second> {
    let from = view.seconds.len().saturating_sub(usize::from(width));
    view.seconds.iter().skip(from).copied().collect()
}

fn span_of(seconds: &[Second]) -> String {
    format!("last {} s", seconds.len())
}

fn columns(seconds: &[Second], of: impl Fn(&Second) -> f64, width: u16) -> Vec<u64> {
    // Thousandths, so that a mean of 0.5 in flight is not nothing.
    let values = seconds.iter().map(|second| (of(second) * 1e3).round() as u64);
    std::iter::repeat_n(0, usize::from(width).saturating_sub(seconds.len())).chain(values).collect()
}

fn sparkline(
    view: &View,
    (title, unit): (&str, &str),
    of: impl Fn(&Second) -> f64,
    style: Style,
    (ink, area): (Ink, Rect),
    frame: &mut Frame<'_>,
) {
    let seconds = latest(view, area.width);
    let most = seconds.iter().map(&of).fold(0.0, f64::max);
    let title = match seconds.is_empty() {
        true => title.to_owned(),
        false => format!("{title}, {}, most {}{unit}", span_of(&seconds), thousands(most)),
    };
    let line = Sparkline::default().data(columns(&seconds, of, area.width)).style(style).block(panel(title, ink));
    frame.render_widget(line, area);
}

/// Token events per second over time.
pub fn tokens(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    sparkline(view, ("tokens/s", ""), Second::tokens_per_s, ink.of(Color::Cyan), (ink, area), frame);
}

/// Requests in flight over time.
pub fn in_flight(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    sparkline(view, ("in flight", ""), Second::in_flight, ink.of(Color::Blue), (ink, area), frame);
}

/// Failed requests over time.
pub fn errors(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    sparkline(view, ("errors", " a second"), |second| second.errors as f64, ink.of(Color::Red), (ink, area), frame);
}

/// TTFT over time: the median and the p99 of what ended in each second.
pub fn ttft(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let seconds = latest(view, area.width);
    let offset = usize::from(area.width).saturating_sub(seconds.len());
    let points = |of: fn(&Second) -> Option<f64>| -> Vec<(f64, f64)> {
        let known = seconds.iter().enumerate().filter_map(|(place, second)| Some(((offset + place) as f64, of(second)?)));
        known.collect()
    };
    let (p50, p99) = (points(|second| second.ttft_p50), points(|second| second.ttft_p99));
    let most = p99.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let title = match most > 0.0 {
        true => format!("TTFT p50/p99, {}, most {}", span_of(&seconds), millis(most)),
        false => "TTFT p50/p99".to_owned(),
    };
    let line =
        |data, color| Dataset::default().marker(Marker::Braille).graph_type(GraphType::Line).style(ink.of(color)).data(data);
    let axis = |most: f64| Axis::default().bounds([0.0, most]);
    let chart = Chart::new(vec![line(&p99, Color::Yellow), line(&p50, Color::Green)])
        .x_axis(axis(f64::from(area.width.saturating_sub(1).max(1))))
        .y_axis(axis(if most > 0.0 { most * 1.05 } else { 1.0 }))
        .legend_position(None)
        .block(panel(title, ink));
    frame.render_widget(chart, area);
}

/// All that a small window has room for.
pub fn bare(view: &View, area: Rect, frame: &mut Frame<'_>) {
    let now = &view.now;
    let errors = if now.errors == 1 { "error" } else { "errors" };
    let pair = |name: &str, p50: Option<f64>, p99: Option<f64>| {
        p50.zip(p99).map(|(p50, p99)| format!("{name} p50 {} p99 {}", millis(p50), millis(p99)))
    };
    let lines = [
        Some(format!("{} in flight, {} {errors}", now.in_flight, now.errors)),
        Some(format!("{} requests/s, ~{} tokens/s", thousands(now.rate), thousands(now.tokens_per_s))),
        pair("TTFT", now.ttft_ms_p50, now.ttft_ms_p99),
        pair("ITL", now.itl_ms_p50, now.itl_ms_p99),
        pair("E2E", now.e2e_ms_p50, now.e2e_ms_p99),
    ];
    let lines: Vec<Line<'_>> = lines.into_iter().flatten().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), area);
}

/// The parts around the one that runs.
pub fn parts(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let rows = usize::from(area.height).saturating_sub(2);
    let here = view.current.unwrap_or_else(|| view.ended().saturating_sub(1));
    // What is to come matters less than what has been seen.
    let last = (here + 1 + rows / 4).min(view.parts.len()).max(rows.min(view.parts.len()));
    let shown = view.parts.get(last.saturating_sub(rows)..last).unwrap_or_default();
    let heads = ["CASE", "ROUND", "STATE", "DONE", "ERRORS", "TTFT P99", "E2E P99"];
    let right = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    let head = heads.iter().enumerate().map(|(place, head)| match place {
        0 | 2 => Cell::from(*head),
        _ => right((*head).to_owned()),
    });
    let widths = [7, 15, 7, 6, 9, 9].map(Constraint::Length);
    let widths = std::iter::once(Constraint::Fill(1)).chain(widths);
    let width = usize::from(area.width).saturating_sub(7 + 15 + 7 + 6 + 9 + 9 + 6);
    let rows = shown.iter().map(|part| part_row(part, width, ink));
    let title = if view.search { "probes" } else { "cases" };
    let table = Table::new(rows, widths).header(Row::new(head).style(ink.dim())).block(panel(title.into(), ink));
    frame.render_widget(table, area);
}

fn part_row(part: &Part, width: usize, ink: Ink) -> Row<'static> {
    let (word, style) = match &part.state {
        State::Waiting => ("to come".to_owned(), ink.dim()),
        State::Running => ("runs".to_owned(), ink.of(Color::Cyan)),
        State::Ended => ("ended".to_owned(), Style::new()),
        State::Given(word) => ((*word).to_owned(), ink.of(Color::Red)),
        State::Probed(None) => ("INVALID".to_owned(), ink.of(Color::Yellow)),
        State::Probed(Some(holds)) => {
            let color = if *holds >= 0.95 {
                Color::Green
            } else if *holds <= 0.05 {
                Color::Red
            } else {
                Color::Yellow
            };
            (format!("holds {}", percent((holds * 1e3).round() / 1e3)), ink.of(color))
        }
    };
    let right = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
    let seen = part.figures.as_ref();
    let figure = |value: Option<String>| right(value.unwrap_or_default());
    Row::new([
        Cell::from(shorten(&plain(&part.case), width)),
        right((part.round + 1).to_string()),
        Cell::from(Line::styled(word, style)),
        figure(seen.map(|seen| seen.done.to_string())),
        figure(seen.map(|seen| seen.errors.to_string())),
        figure(seen.and_then(|seen| seen.ttft_ms_p99).map(millis)),
        figure(seen.and_then(|seen| seen.e2e_ms_p99).map(millis)),
    ])
}

/// The last notes.
pub fn notes(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let rows = usize::from(area.height).saturating_sub(1);
    let lines = view.notes.iter().skip(view.notes.len().saturating_sub(rows));
    let width = usize::from(area.width);
    let lines: Vec<Line<'_>> = lines.map(|note| Line::from(shorten(&plain(note), width))).collect();
    frame.render_widget(Paragraph::new(lines).block(panel("notes".into(), ink)), area);
}
