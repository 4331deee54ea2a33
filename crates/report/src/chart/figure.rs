//! A chart as data, before it is drawn.

use crate::chart::axis::Axis;
use crate::chart::style::Stroke;
use llmscen_core::report::Series;
use plotters::style::RGBColor;

/// One chart: panels under one title and one legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// File stem.
    pub name: &'static str,
    /// Title.
    pub title: String,
    /// Scenario, what is omitted, how to read the chart.
    pub subtitle: String,
    /// Legend; empty if the panels need none.
    pub legend: Vec<Entry>,
    /// Position of the legend.
    pub side: Side,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels per row.
    pub columns: usize,
}

/// Position of the legend, outside the plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In a row under the subtitle.
    Top,
    /// In a column.
    Right,
}

/// An entry of the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Text.
    pub label: String,
    /// Symbol.
    pub swatch: Swatch,
}

impl Entry {
    /// An entry with its symbol.
    pub fn new(label: impl Into<String>, swatch: Swatch) -> Entry {
        Entry {
            label: label.into(),
            swatch,
        }
    }
}

/// The symbol of a legend entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Swatch {
    /// A line.
    Line(Stroke),
    /// A dot.
    Dot(RGBColor),
    /// A circle.
    Ring(RGBColor),
    /// A cross.
    Cross(RGBColor),
    /// A shaded area.
    Shade(RGBColor),
    /// A line with a cap.
    Whisker(RGBColor),
    /// A character.
    Symbol(&'static str, RGBColor),
}

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Title, followed by the title of the vertical axis.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks, in drawing order.
    pub marks: Vec<Mark>,
}

/// A mark of a panel, in data units.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A line from point to point.
    Line(Series, Stroke),
    /// A line that holds each value until the next.
    Steps(Series, Stroke),
    /// A dot at each point; the radius in logical pixels.
    Dots(Series, RGBColor, f64),
    /// A circle around each point; the radius in logical pixels.
    Rings(Series, RGBColor, f64),
    /// A cross at each point.
    DiagonalCrosses(Series, RGBColor),
    /// A cross at each time, at the upper edge.
    EdgeCrosses(Vec<f64>, RGBColor),
    /// A shaded area between two lines: `(x, low, high)`.
    Area(Vec<(f64, f64, f64)>, RGBColor),
    /// Filled rectangles without gaps.
    Cells(Vec<Cell>),
    /// Labels beside points, if possible at this corner; a label that would cover an earlier one is omitted.
    Labels(Vec<(f64, f64, String)>, Corner),
    /// A text centered at each point, in bold.
    Texts(Vec<(f64, f64, String)>, RGBColor),
    /// A line from each point to its confidence bound: `(x, value, bound)`.
    Whiskers(Vec<(f64, f64, f64)>, RGBColor),
    /// A shaded span of the horizontal axis.
    Band(f64, f64, RGBColor),
    /// A vertical line at a value, over the full height.
    VerticalLine(f64, Stroke),
    /// A horizontal line at a value, over the full width.
    HorizontalLine(f64, Stroke),
}

/// The preferred position of a label beside its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corner {
    /// To the right and above.
    Above,
    /// To the right and below.
    Below,
}

/// A filled rectangle, in data units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Range on the horizontal axis.
    pub x: (f64, f64),
    /// Range on the vertical axis.
    pub y: (f64, f64),
    /// Color.
    pub color: RGBColor,
}

/// Reduces a series to about `max_points`: each bin keeps its least and its greatest value, so that every spike stays.
pub fn downsample(points: &[(f64, f64)], max_points: usize) -> Series {
    if points.len() <= max_points {
        return points.to_vec();
    }
    let size = points.len().div_ceil((max_points / 2).max(1));
    points.chunks(size).flat_map(extremes).collect()
}

fn extremes(bin: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + use<> {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let mut ends: Vec<(f64, f64)> = bin
        .iter()
        .min_by(by_value)
        .into_iter()
        .chain(bin.iter().max_by(by_value))
        .copied()
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    ends.dedup();
    ends.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downsampling_keeps_every_spike_and_the_order() {
        let mut points: Series = (0..100_000).map(|index| (f64::from(index), 1.0)).collect();
        points[77_777].1 = 50.0;
        points[5].1 = -3.0;
        let reduced = downsample(&points, 2000);
        assert!(reduced.len() <= 2000, "{}", reduced.len());
        assert!(reduced.contains(&(77_777.0, 50.0)) && reduced.contains(&(5.0, -3.0)));
        assert!(reduced.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(downsample(&points[..10], 2000), points[..10]);
    }
}
