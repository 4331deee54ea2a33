//! The layout of a chart.

use crate::chart::canvas::{Canvas, Point};
use crate::chart::figure::{Entry, Figure, Panel, Side};
use crate::chart::style::{LEGEND, TICK};

/// White around everything.
pub const MARGIN: f64 = 24.0;
/// Height of a legend entry.
pub const ENTRY_HEIGHT: f64 = 22.0;
/// Width of a legend symbol with the gap after it.
pub const SWATCH_WIDTH: f64 = 32.0;
/// Between legend entries in a row.
const ENTRY_GAP: f64 = 22.0;
/// Above a plot, for the panel's title.
const HEADER: f64 = 30.0;
/// Under a plot, for tick labels.
const TICKS: f64 = 26.0;
/// Under the tick labels of the lowest plots, for the axis title.
const AXIS_TITLE: f64 = 20.0;
/// Horizontal gap between panels.
const GAP_X: f64 = 26.0;
/// Vertical gap between panels.
const GAP_Y: f64 = 10.0;
/// The widest text of a legend at the right.
const MAX_LEGEND_WIDTH: f64 = 210.0;

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
    /// Whether it is inside another one.
    pub fn is_within(&self, other: &Frame) -> bool {
        self.left >= other.left
            && self.right <= other.right
            && self.top >= other.top
            && self.bottom <= other.bottom
    }

    /// Whether the two overlap.
    pub fn overlaps(&self, other: &Frame) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }
}

/// The geometry of one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Width and height.
    pub size: Point,
    /// Plot areas, in the order of the panels.
    pub plots: Vec<Frame>,
    /// Upper left corner of each legend entry, and the width of its text.
    pub entries: Vec<(Point, f64)>,
}

/// Size of a plot by panels per row, so that a row fits a page.
fn plot_size(columns: usize) -> Point {
    match columns {
        1 => (780.0, 360.0),
        2 => (420.0, 250.0),
        3 => (290.0, 230.0),
        _ => (220.0, 150.0),
    }
}

/// Computes the layout of a figure; text is measured on `ruler`.
pub fn lay_out(figure: &Figure, ruler: &Canvas) -> Result<Layout, String> {
    let plot = plot_size(figure.columns);
    let mut gutter: f64 = 0.0;
    for panel in &figure.panels {
        gutter = gutter.max(tick_label_width(panel, ruler)?);
    }
    let columns = figure.columns.min(figure.panels.len()).max(1);
    let rows = figure.panels.len().div_ceil(columns);
    let pitch = plot.1 + HEADER + TICKS + GAP_Y;
    let body_width = columns as f64 * (plot.0 + gutter + GAP_X) - GAP_X;
    let body_height = rows as f64 * pitch - GAP_Y + AXIS_TITLE;
    let widths = figure
        .legend
        .iter()
        .map(|entry| ruler.width(&entry.label, LEGEND))
        .collect::<Result<Vec<f64>, _>>()?;
    let top = MARGIN + 58.0;
    let legend = lay_out_legend(&figure.legend, &widths, figure.side, body_width, top);
    let body_top = top + legend.height;
    let frame = |index: usize| {
        let (row, column) = ((index / columns) as f64, (index % columns) as f64);
        let left = MARGIN + gutter + column * (plot.0 + gutter + GAP_X);
        let top = body_top + HEADER + row * pitch;
        Frame {
            left,
            top,
            right: left + plot.0,
            bottom: top + plot.1,
        }
    };
    let width = 2.0 * MARGIN + body_width + legend.width;
    let height = MARGIN + body_top + body_height.max(legend.min_body_height) - 8.0;
    Ok(Layout {
        size: (width, height),
        plots: (0..figure.panels.len()).map(frame).collect(),
        entries: legend.entries,
    })
}

/// Width of the tick labels of the vertical axis, with a gap.
fn tick_label_width(panel: &Panel, ruler: &Canvas) -> Result<f64, String> {
    let mut widest: f64 = 0.0;
    for (_, label) in &panel.y.ticks {
        widest = widest.max(ruler.width(label, TICK)?);
    }
    Ok(widest + 10.0)
}

struct LegendLayout {
    entries: Vec<(Point, f64)>,
    /// Height above the body.
    height: f64,
    /// Width to the right of the body.
    width: f64,
    /// Least height of the body beside the legend.
    min_body_height: f64,
}

/// `body_width`: of all panels; `top`: of the legend.
fn lay_out_legend(
    entries: &[Entry],
    widths: &[f64],
    side: Side,
    body_width: f64,
    top: f64,
) -> LegendLayout {
    if entries.is_empty() {
        return LegendLayout {
            entries: Vec::new(),
            height: 0.0,
            width: 0.0,
            min_body_height: 0.0,
        };
    }
    if side == Side::Right {
        let text_width = widths
            .iter()
            .copied()
            .fold(0.0, f64::max)
            .min(MAX_LEGEND_WIDTH);
        let left = MARGIN + body_width + GAP_X;
        let position = |index| {
            (
                (left, top + HEADER + index as f64 * ENTRY_HEIGHT),
                text_width,
            )
        };
        let min_body_height = HEADER + entries.len() as f64 * ENTRY_HEIGHT + 8.0;
        return LegendLayout {
            entries: (0..entries.len()).map(position).collect(),
            height: 0.0,
            width: GAP_X + SWATCH_WIDTH + text_width,
            min_body_height,
        };
    }
    let mut x = 0.0;
    let mut row = 0.0;
    let mut positions = Vec::new();
    for width in widths {
        let entry_width = SWATCH_WIDTH + width;
        if x > 0.0 && x + entry_width > body_width {
            x = 0.0;
            row += 1.0;
        }
        positions.push((
            (MARGIN + x, top + row * ENTRY_HEIGHT),
            body_width - SWATCH_WIDTH,
        ));
        x += entry_width + ENTRY_GAP;
    }
    LegendLayout {
        entries: positions,
        height: (row + 1.0) * ENTRY_HEIGHT + 8.0,
        width: 0.0,
        min_body_height: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::axis::Axis;
    use crate::chart::figure::Swatch;
    use crate::chart::style::{MAIN, Stroke};

    fn figure(panels: usize, columns: usize, side: Side) -> Figure {
        let axis = || Axis::from_zero("", [10_000.0]);
        let panel = Panel {
            title: String::new(),
            x: axis(),
            y: axis(),
            marks: Vec::new(),
        };
        let entry = |index| {
            Entry::new(
                format!("concurrency={index}"),
                Swatch::Line(Stroke::solid(MAIN)),
            )
        };
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

    fn layout_of(panels: usize, columns: usize, side: Side) -> Layout {
        let mut svg = String::new();
        let ruler = Canvas::new(&mut svg, (10.0, 10.0)).unwrap();
        lay_out(&figure(panels, columns, side), &ruler).unwrap()
    }

    #[test]
    fn nothing_overlaps_and_nothing_is_cut_off() {
        for (panels, columns, side) in [
            (1, 1, Side::Right),
            (3, 3, Side::Top),
            (12, 4, Side::Top),
            (12, 4, Side::Right),
            (2, 2, Side::Top),
        ] {
            let layout = layout_of(panels, columns, side);
            for (index, plot) in layout.plots.iter().enumerate() {
                assert!(
                    plot.left > MARGIN
                        && plot.right <= layout.size.0 - MARGIN
                        && plot.bottom + TICKS + AXIS_TITLE <= layout.size.1
                );
                for other in &layout.plots[..index] {
                    assert!(
                        plot.left >= other.right || plot.top - HEADER >= other.bottom,
                        "{plot:?} {other:?}"
                    );
                }
                for ((x, y), _) in &layout.entries {
                    assert!(
                        *x >= plot.right || y + ENTRY_HEIGHT <= plot.top,
                        "{side:?}: a legend covers a plot"
                    );
                }
            }
            for ((x, y), text_width) in &layout.entries {
                assert!(
                    x + SWATCH_WIDTH + text_width <= layout.size.0 - MARGIN + 0.1
                        || side == Side::Top
                );
                assert!(y + ENTRY_HEIGHT <= layout.size.1);
            }
        }
    }
}
