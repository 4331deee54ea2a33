//! The picture: what stands where, for windows of every size.

use crate::cli::live::lists;
use crate::cli::live::panels::{self, Ink};
use crate::cli::live::state::View;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};

/// From so many columns on the cases stand beside the charts.
const WIDE: u16 = 140;
/// A window smaller than this gets the bare lines alone.
const LEAST: (u16, u16) = (50, 18);

/// Draws the run as it stands `at` seconds after its beginning.
pub fn draw(view: &View, at: f64, color: bool, frame: &mut Frame<'_>) {
    let (ink, area) = (Ink(color), frame.area());
    let [head, plan, part, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    panels::head(view, at, ink, head, frame);
    panels::plan(view, ink, plan, frame);
    panels::part(view, ink, part, frame);
    panels::foot(view, ink, foot, frame);
    if area.width < LEAST.0 || area.height < LEAST.1 {
        panels::bare(view, body, frame);
    } else if area.width >= WIDE {
        let [left, _, right] = Layout::horizontal([Constraint::Fill(3), Constraint::Length(2), Constraint::Fill(2)]).areas(body);
        figures(view, ink, left, frame);
        let [cases, notes] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(1)]).areas(right);
        lists::parts(view, ink, cases, frame);
        lists::notes(view, ink, notes, frame);
    } else {
        let rows = body.height;
        // Half of what is beyond the least goes to the charts, the rest to the lists.
        let (cases, notes) = (4 + rows.saturating_sub(20) / 3, 3 + rows.saturating_sub(20) / 8);
        let [upper, lower, last] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(cases), Constraint::Length(notes)]).areas(body);
        figures(view, ink, upper, frame);
        lists::parts(view, ink, lower, frame);
        lists::notes(view, ink, last, frame);
    }
}

/// The percentiles and the four charts.
fn figures(view: &View, ink: Ink, area: Rect, frame: &mut Frame<'_>) {
    let [top, middle, bottom] = Layout::vertical([Constraint::Length(5), Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let halves = |area| Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let [left, _, right] = halves(top);
    panels::latency(view, ink, left, frame);
    panels::rates(view, ink, right, frame);
    let [left, _, right] = halves(middle);
    panels::tokens(view, ink, left, frame);
    panels::in_flight(view, ink, right, frame);
    let [left, _, right] = halves(bottom);
    panels::ttft(view, ink, left, frame);
    panels::errors(view, ink, right, frame);
}
