//! The lists of the picture: the cases or probes, and the notes.

use crate::cli::live::panels::{Ink, panel};
use crate::cli::live::state::{Part, State, View};
use llmscen_report::format::{millis, percent, plain, shorten};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

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
