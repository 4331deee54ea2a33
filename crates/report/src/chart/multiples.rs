//! Small multiples: the same picture of each case, side by side.

use crate::chart::axis::Axis;
use crate::chart::figure::{Mark, Panel};
use crate::chart::pick::{Picked, pick, shown};
use llmscen_core::report::{CaseReport, Report};

/// Panels in one chart at the most.
const ROOM: usize = 12;

/// One panel's content.
pub struct Picture {
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks.
    pub marks: Vec<Mark>,
}

/// Panels of at most twelve cases that pass `has`, and what is to be said of the others. `alone`: the title of a panel that is
/// the only one. `draw` is told how many panels there are.
pub fn multiples(
    report: &Report,
    alone: &str,
    has: impl Fn(&CaseReport) -> bool,
    draw: impl Fn(&CaseReport, usize) -> Option<Picture>,
) -> (Vec<Panel>, String) {
    let (picked, found) = pick(report, ROOM, has);
    let panel = |Picked { case, title, .. }: &Picked<'_>| {
        let Picture { x, y, marks } = draw(case, picked.len())?;
        let title = if picked.len() == 1 { alone.to_owned() } else { title.clone() };
        Some(Panel { title, x, y, marks })
    };
    let panels: Vec<Panel> = picked.iter().filter_map(panel).collect();
    let remark = shown(panels.len(), found, "cases");
    (panels, remark)
}
