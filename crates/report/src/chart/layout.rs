//! Where the parts of a figure stand.

use crate::chart::canvas::{Canvas, Point};
use crate::chart::figure::{Entry, Figure, Panel, Side};
use crate::chart::style::{LEGEND, TICK};

/// White around everything.
pub const MARGIN: f64 = 24.0;
/// Height of a line of the legend.
pub const ENTRY: f64 = 22.0;
/// Width of a legend's sign, with the gap after it.
pub const SWATCH: f64 = 32.0;
/// Between the entries of a legend in a row.
const ENTRY_GAP: f64 = 22.0;
/// Above a plot, for the panel's title.
const HEADER: f64 = 30.0;
/// Under a plot, for tick labels.
const TICKS: f64 = 26.0;
/// Under the tick labels of the lowest plots, for the axis title.
const AXIS_TITLE: f64 = 20.0;
/// Between panels.
const GAP: (f64, f64) = (26.0, 10.0);
/// The widest that the words of a legend at the right get.
const LEGEND_ROOM: f64 = 210.0;

/// A rectangle in logical pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Frame {
    /// Whether it lies in another one.
    pub fn within(&self, other: &Frame) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }

    /// Whether two share any place.
    pub fn touches(&self, other: &Frame) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

/// The geometry of one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Width and height.
    pub size: Point,
    /// Plot areas, in the order of the panels.
    pub plots: Vec<Frame>,
    /// Upper left corner of each legend entry's line, and the room for its words.
    pub entries: Vec<(Point, f64)>,
}

/// Plot sizes by panels in a row: what a page's width allows.
fn plot_size(columns: usize) -> Point {
    match columns {
        1 => (780.0, 360.0),
        2 => (420.0, 250.0),
        3 => (290.0, 230.0),
        _ => (220.0, 150.0),
    }
}

/// Lays a figure out; text is measured on `ruler`.
pub fn layout(figure: &Figure, ruler: &Canvas) -> Result<Layout, String> {
    let plot = plot_size(figure.columns);
    let mut gutter: f64 = 0.0;
    for panel in &figure.panels {
        gutter = gutter.max(gutter_of(panel, ruler)?);
    }
    let columns = figure.columns.min(figure.panels.len()).max(1);
    let rows = figure.panels.len().div_ceil(columns);
    let pitch = plot.1 + HEADER + TICKS + GAP.1;
    let body = (columns as f64 * (plot.0 + gutter + GAP.0) - GAP.0, rows as f64 * pitch - GAP.1 + AXIS_TITLE);
    let widths = figure.legend.iter().map(|entry| ruler.width(&entry.label, LEGEND)).collect::<Result<Vec<f64>, _>>()?;
    let top = MARGIN + 58.0;
    let legend = legend(&figure.legend, &widths, figure.side, (body.0, top));
    let body_top = top + legend.height;
    let frame = |index: usize| {
        let (row, column) = ((index / columns) as f64, (index % columns) as f64);
        let left = MARGIN + gutter + column * (plot.0 + gutter + GAP.0);
        let top = body_top + HEADER + row * pitch;
        Frame { left, top, right: left + plot.0, bottom: top + plot.1 }
    };
    let size = (2.0 * MARGIN + body.0 + legend.width, MARGIN + body_top + body.1.max(legend.least) - 8.0);
    Ok(Layout { size, plots: (0..figure.panels.len()).map(frame).collect(), entries: legend.entries })
}

fn gutter_of(panel: &Panel, ruler: &Canvas) -> Result<f64, String> {
    let mut widest: f64 = 0.0;
    for (_, label) in &panel.y.ticks {
        widest = widest.max(ruler.width(label, TICK)?);
    }
    Ok(widest + 10.0)
}

struct Legend {
    entries: Vec<(Point, f64)>,
    /// Added above the body.
    height: f64,
    /// Added at its right.
    width: f64,
    /// Least height of the body beside it.
    least: f64,
}

fn legend(entries: &[Entry], widths: &[f64], side: Side, (body, top): Point) -> Legend {
    if entries.is_empty() {
        return Legend { entries: Vec::new(), height: 0.0, width: 0.0, least: 0.0 };
    }
    if side == Side::Right {
        let room = widths.iter().copied().fold(0.0, f64::max).min(LEGEND_ROOM);
        let left = MARGIN + body + GAP.0;
        let place = |index| ((left, top + HEADER + index as f64 * ENTRY), room);
        let least = HEADER + entries.len() as f64 * ENTRY + 8.0;
        return Legend { entries: (0..entries.len()).map(place).collect(), height: 0.0, width: GAP.0 + SWATCH + room, least };
    }
    let (mut x, mut row, mut places) = (0.0, 0.0, Vec::new());
    for width in widths {
        let whole = SWATCH + width;
        if x > 0.0 && x + whole > body {
            (x, row) = (0.0, row + 1.0);
        }
        places.push(((MARGIN + x, top + row * ENTRY), body - SWATCH));
        x += whole + ENTRY_GAP;
    }
    Legend { entries: places, height: (row + 1.0) * ENTRY + 8.0, width: 0.0, least: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::axis::Axis;
    use crate::chart::figure::Swatch;
    use crate::chart::style::{MAIN, Stroke};

    fn figure(panels: usize, columns: usize, side: Side) -> Figure {
        let axis = || Axis::from_zero("", [10_000.0]);
        let panel = Panel { title: String::new(), x: axis(), y: axis(), marks: Vec::new() };
        let entry = |index| Entry::new(format!("concurrency={index}"), Swatch::Line(Stroke::solid(MAIN)));
        Figure {
            name: "x",
            title: String::new(),
            subtitle: String::new(),
            legend: (0..12).map(entry).collect(),
            side,
            panels: vec![panel; panels],
            columns,
        }
    }

    fn laid(panels: usize, columns: usize, side: Side) -> Layout {
        let mut svg = String::new();
        let ruler = Canvas::new(&mut svg, (10.0, 10.0)).unwrap();
        layout(&figure(panels, columns, side), &ruler).unwrap()
    }

    #[test]
    fn nothing_overlaps_and_nothing_is_cut_off() {
        for (panels, columns, side) in
            [(1, 1, Side::Right), (3, 3, Side::Top), (12, 4, Side::Top), (12, 4, Side::Right), (2, 2, Side::Top)]
        {
            let laid = laid(panels, columns, side);
            for (index, plot) in laid.plots.iter().enumerate() {
                assert!(
                    plot.left > MARGIN && plot.right <= laid.size.0 - MARGIN && plot.bottom + TICKS + AXIS_TITLE <= laid.size.1
                );
                for other in &laid.plots[..index] {
                    assert!(plot.left >= other.right || plot.top - HEADER >= other.bottom, "{plot:?} {other:?}");
                }
                for ((x, y), _) in &laid.entries {
                    assert!(*x >= plot.right || y + ENTRY <= plot.top, "{side:?}: a legend covers a plot");
                }
            }
            for ((x, y), room) in &laid.entries {
                assert!(x + SWATCH + room <= laid.size.0 - MARGIN + 0.1 || side == Side::Top);
                assert!(y + ENTRY <= laid.size.1);
            }
        }
    }
}
