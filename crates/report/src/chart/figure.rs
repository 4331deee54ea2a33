//! A figure as data: what is drawn, before anything is drawn.

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
    /// Scenario, what is left out, how to read it.
    pub subtitle: String,
    /// Legend, empty where the panels explain themselves.
    pub legend: Vec<Entry>,
    /// Where the legend stands.
    pub side: Side,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
    /// Panels in a row.
    pub columns: usize,
}

/// Where the legend stands: outside the plot in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In a row under the subtitle.
    Top,
    /// In a column.
    Right,
}

/// A line of the legend.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Words.
    pub label: String,
    /// Its sign.
    pub swatch: Swatch,
}

impl Entry {
    /// An entry.
    pub fn new(label: impl Into<String>, swatch: Swatch) -> Entry {
        Entry { label: label.into(), swatch }
    }
}

/// The sign of a legend entry.
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
}

/// One plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Title; the vertical axis' title follows it.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Marks, the first ones lowest.
    pub marks: Vec<Mark>,
}

/// One thing drawn in a panel, in data units.
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
    Saltires(Series, RGBColor),
    /// A cross above each time, at the upper edge.
    Crosses(Vec<f64>, RGBColor),
    /// A shaded area between two lines over the same places: `(x, low, high)`.
    Area(Vec<(f64, f64, f64)>, RGBColor),
    /// Filled rectangles without gaps: the heat map.
    Cells(Vec<Cell>),
    /// Words beside points, at this corner where they fit; what would cover the words of an earlier point is left out.
    Words(Vec<(f64, f64, String)>, Corner),
    /// A shaded span of the horizontal axis.
    Band(f64, f64, RGBColor),
    /// A vertical line at a value, over the whole height.
    Upright(f64, Stroke),
    /// A horizontal line at a value, over the whole width.
    Level(f64, Stroke),
}

/// Where words stand beside their point, best.
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
    /// From where to where on the horizontal axis.
    pub x: (f64, f64),
    /// Likewise on the vertical one.
    pub y: (f64, f64),
    /// Colour.
    pub color: RGBColor,
}

/// At most about `room` points, so that a long run draws no slower than a short one: each bin keeps its least and its
/// greatest value, hence every spike.
pub fn thin(points: &[(f64, f64)], room: usize) -> Series {
    if points.len() <= room {
        return points.to_vec();
    }
    let size = points.len().div_ceil((room / 2).max(1));
    points.chunks(size).flat_map(extremes).collect()
}

fn extremes(bin: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + use<> {
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let mut ends: Vec<(f64, f64)> = bin.iter().min_by(by_value).into_iter().chain(bin.iter().max_by(by_value)).copied().collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    ends.dedup();
    ends.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_every_spike_and_the_order() {
        let mut points: Series = (0..100_000).map(|index| (f64::from(index), 1.0)).collect();
        points[77_777].1 = 50.0;
        points[5].1 = -3.0;
        let thinned = thin(&points, 2000);
        assert!(thinned.len() <= 2000, "{}", thinned.len());
        assert!(thinned.contains(&(77_777.0, 50.0)) && thinned.contains(&(5.0, -3.0)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert_eq!(thin(&points[..10], 2000), points[..10]);
    }
}
