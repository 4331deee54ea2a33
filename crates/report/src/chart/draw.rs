//! Draws a figure as SVG.

use crate::chart::axis::Axis;
use crate::chart::canvas::{Anchor, Canvas, Point};
use crate::chart::figure::{Cell, Corner, Entry, Figure, Mark, Panel, Swatch};
use crate::chart::layout::{ENTRY_HEIGHT, Frame, Layout, MARGIN, SWATCH_WIDTH, lay_out};
use crate::chart::style::{
    AXIS, FRAME, Face, GRID, LEGEND, PANEL, RIBBON, SUBTITLE, Stroke, TICK, TITLE,
};
use crate::chart::verdict::Ribbon;
use llmscen_core::report::Series;
use plotters::style::RGBColor;

/// Least gap between tick labels.
const TICK_GAP: f64 = 8.0;
/// Padding left and right of a ribbon's text.
const RIBBON_PAD: f64 = 10.0;
/// The widest ribbon, as a share of the chart's width.
const MAX_RIBBON_SHARE: f64 = 0.6;
/// Radius of the dot drawn for a line of one point.
const SINGLE_POINT_RADIUS: f64 = 3.0;

/// The SVG of a figure; its user unit is a quarter of a logical pixel.
pub fn svg(figure: &Figure, ribbon: Option<&Ribbon>) -> Result<String, String> {
    let mut ruler_svg = String::new();
    let layout = lay_out(figure, &Canvas::new(&mut ruler_svg, (1.0, 1.0))?)?;
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, layout.size)?;
    draw_heading(&canvas, figure, ribbon, &layout)?;
    for (index, (panel, frame)) in figure.panels.iter().zip(&layout.plots).enumerate() {
        let is_lowest = index + figure.columns >= figure.panels.len();
        Plot {
            canvas: &canvas,
            panel,
            frame: *frame,
        }
        .draw(is_lowest)?;
    }
    for (entry, (at, text_width)) in figure.legend.iter().zip(&layout.entries) {
        draw_legend_entry(&canvas, entry, *at, *text_width)?;
    }
    canvas.finish()?;
    Ok(svg)
}

fn draw_heading(
    canvas: &Canvas,
    figure: &Figure,
    ribbon: Option<&Ribbon>,
    layout: &Layout,
) -> Result<(), String> {
    let width = layout.size.0 - 2.0 * MARGIN;
    let ribbon_width = match ribbon {
        Some(ribbon) => draw_ribbon(
            canvas,
            ribbon,
            layout.size.0 - MARGIN,
            width * MAX_RIBBON_SHARE,
        )?,
        None => 0.0,
    };
    canvas.text(
        &canvas.cut_end(&figure.title, TITLE, width - ribbon_width)?,
        (MARGIN, MARGIN + 9.0),
        TITLE,
        Anchor::Left,
    )?;
    canvas.text(
        &canvas.cut_end(&figure.subtitle, SUBTITLE, width)?,
        (MARGIN, MARGIN + 34.0),
        SUBTITLE,
        Anchor::Left,
    )
}

/// Draws the ribbon with its right edge at `right`; returns its width with a gap.
fn draw_ribbon(
    canvas: &Canvas,
    ribbon: &Ribbon,
    right: f64,
    max_width: f64,
) -> Result<f64, String> {
    let text = canvas.cut_end(&ribbon.text, RIBBON, max_width - 2.0 * RIBBON_PAD)?;
    let left = right - canvas.width(&text, RIBBON)? - 2.0 * RIBBON_PAD;
    canvas.fill([(left, MARGIN - 3.0), (right, MARGIN + 20.0)], ribbon.color)?;
    canvas.text(
        &text,
        ((left + right) / 2.0, MARGIN + 8.5),
        RIBBON,
        Anchor::Center,
    )?;
    Ok(right - left + RIBBON_PAD)
}

fn draw_legend_entry(
    canvas: &Canvas,
    entry: &Entry,
    (left, top): Point,
    text_width: f64,
) -> Result<(), String> {
    let y = top + ENTRY_HEIGHT / 2.0;
    let middle = (left + 11.0, y);
    match entry.swatch {
        Swatch::Line(stroke) => canvas.line(&[(left, y), (left + 22.0, y)], stroke)?,
        Swatch::Dot(color) => canvas.dot(middle, 4.0, color)?,
        Swatch::Ring(color) => canvas.ring(middle, 6.0, color)?,
        Swatch::Cross(color) => canvas.cross(middle, 4.0, color)?,
        Swatch::Whisker(color) => {
            draw_whisker(canvas, (middle.0, y + 6.0), (middle.0, y - 6.0), color)?
        }
        Swatch::Symbol(text, color) => {
            canvas.text(text, middle, Face { color, ..PANEL }, Anchor::Center)?
        }
        Swatch::Shade(color) => canvas.fill([(left, y - 6.0), (left + 22.0, y + 6.0)], color)?,
    }
    canvas.text(
        &canvas.cut_middle(&entry.label, LEGEND, text_width)?,
        (left + SWATCH_WIDTH, y),
        LEGEND,
        Anchor::Left,
    )
}

/// A line from a point to a bound, which has a cap.
fn draw_whisker(canvas: &Canvas, from: Point, to: Point, color: RGBColor) -> Result<(), String> {
    let stroke = Stroke::solid(color).thin();
    canvas.line(&[from, to], stroke)?;
    canvas.line(&[(to.0 - 4.0, to.1), (to.0 + 4.0, to.1)], stroke)
}

struct Plot<'a, 'b> {
    canvas: &'a Canvas<'b>,
    panel: &'a Panel,
    frame: Frame,
}

impl Plot<'_, '_> {
    fn draw(&self, is_lowest: bool) -> Result<(), String> {
        for mark in self
            .panel
            .marks
            .iter()
            .filter(|mark| matches!(mark, Mark::Band(..)))
        {
            self.draw_mark(mark)?;
        }
        self.draw_vertical_axis()?;
        self.draw_horizontal_axis(is_lowest)?;
        self.draw_header()?;
        for mark in self
            .panel
            .marks
            .iter()
            .filter(|mark| !matches!(mark, Mark::Band(..)))
        {
            self.draw_mark(mark)?;
        }
        Ok(())
    }

    fn draw_header(&self) -> Result<(), String> {
        let (left, y) = (self.frame.left, self.frame.top - 15.0);
        let unit = &self.panel.y.title;
        let title_width = self.frame.right - left - self.canvas.width(unit, AXIS)? - 8.0;
        let title = self
            .canvas
            .cut_middle(&self.panel.title, PANEL, title_width)?;
        self.canvas.text(&title, (left, y), PANEL, Anchor::Left)?;
        let after = if title.is_empty() {
            left
        } else {
            left + self.canvas.width(&title, PANEL)? + 8.0
        };
        self.canvas.text(unit, (after, y), AXIS, Anchor::Left)
    }

    fn draw_vertical_axis(&self) -> Result<(), String> {
        let mut last = f64::INFINITY;
        for (value, label) in &self.panel.y.ticks {
            let y = self.at(0.0, *value).1;
            self.canvas.line(
                &[(self.frame.left, y), (self.frame.right, y)],
                Stroke::solid(GRID).hair(),
            )?;
            if last - y >= TICK.size + 2.0 {
                self.canvas
                    .text(label, (self.frame.left - 8.0, y), TICK, Anchor::Right)?;
                last = y;
            }
        }
        Ok(())
    }

    /// Only the lowest panels of a column have an axis title.
    fn draw_horizontal_axis(&self, is_lowest: bool) -> Result<(), String> {
        let Frame {
            left,
            right,
            bottom,
            ..
        } = self.frame;
        self.canvas.line(
            &[(left, bottom), (right, bottom)],
            Stroke::solid(FRAME).hair(),
        )?;
        for (x, label) in self.fitting_labels()? {
            self.canvas.line(
                &[(x, bottom), (x, bottom + 4.0)],
                Stroke::solid(FRAME).hair(),
            )?;
            self.canvas
                .text(&label, (x, bottom + 14.0), TICK, Anchor::Center)?;
        }
        if !is_lowest {
            return Ok(());
        }
        self.canvas.text(
            &self.panel.x.title,
            ((left + right) / 2.0, bottom + 34.0),
            AXIS,
            Anchor::Center,
        )
    }

    /// Labels from the right, so that the greatest load keeps its label; labels that would touch another are omitted.
    fn fitting_labels(&self) -> Result<Vec<(f64, String)>, String> {
        let (mut kept, mut edge) = (Vec::new(), f64::INFINITY);
        for (value, label) in self.panel.x.ticks.iter().rev() {
            let (x, half) = (
                self.at(*value, 0.0).0,
                self.canvas.width(label, TICK)? / 2.0,
            );
            if x + half + TICK_GAP <= edge {
                kept.push((x, label.clone()));
                edge = x - half;
            }
        }
        Ok(kept)
    }

    fn draw_mark(&self, mark: &Mark) -> Result<(), String> {
        let Frame {
            left,
            top,
            right,
            bottom,
        } = self.frame;
        match mark {
            // A line of one point has no length, so its point is drawn.
            Mark::Line(points, stroke) | Mark::Steps(points, stroke) if points.len() == 1 => self
                .to_pixels(points)
                .into_iter()
                .try_for_each(|at| self.canvas.dot(at, SINGLE_POINT_RADIUS, stroke.color)),
            Mark::Line(points, stroke) => self.canvas.line(&self.to_pixels(points), *stroke),
            Mark::Steps(points, stroke) => {
                self.canvas.line(&steps(&self.to_pixels(points)), *stroke)
            }
            Mark::Dots(points, color, radius) => self
                .to_pixels(points)
                .into_iter()
                .try_for_each(|at| self.canvas.dot(at, *radius, *color)),
            Mark::Rings(points, color, radius) => self
                .to_pixels(points)
                .into_iter()
                .try_for_each(|at| self.canvas.ring(at, *radius, *color)),
            Mark::DiagonalCrosses(points, color) => self
                .to_pixels(points)
                .into_iter()
                .try_for_each(|at| self.canvas.cross(at, 4.0, *color)),
            Mark::EdgeCrosses(times, color) => times.iter().try_for_each(|time| {
                self.canvas
                    .cross((self.at(*time, 0.0).0, top + 7.0), 3.5, *color)
            }),
            Mark::Area(points, color) => {
                let upper = points.iter().map(|(x, _, high)| self.at(*x, *high));
                let corners: Vec<Point> = upper
                    .chain(points.iter().rev().map(|(x, low, _)| self.at(*x, *low)))
                    .collect();
                self.canvas.shape(&corners, *color)
            }
            Mark::Cells(cells) => cells.iter().try_for_each(|cell| self.draw_cell(cell)),
            Mark::Labels(labels, corner) => self.draw_labels(labels, *corner),
            Mark::Texts(texts, color) => texts.iter().try_for_each(|(x, y, text)| {
                let face = Face {
                    color: *color,
                    ..PANEL
                };
                self.canvas
                    .text(text, self.at(*x, *y), face, Anchor::Center)
            }),
            Mark::Whiskers(points, color) => points.iter().try_for_each(|(x, value, bound)| {
                let (from, to) = (self.at(*x, *value), self.at(*x, *bound));
                draw_whisker(self.canvas, from, to, *color)
            }),
            Mark::Band(from, to, color) => {
                let (from, to) = (self.at(*from, 0.0).0, self.at(*to, 0.0).0);
                self.canvas.fill([(from, top), (to, bottom)], *color)
            }
            Mark::VerticalLine(value, stroke) => {
                let x = self.at(*value, 0.0).0;
                self.canvas.line(&[(x, bottom), (x, top)], *stroke)
            }
            Mark::HorizontalLine(value, stroke) => {
                let y = self.at(0.0, *value).1;
                self.canvas.line(&[(left, y), (right, y)], *stroke)
            }
        }
    }

    /// Its edges are on whole dots, so that adjacent cells have no gap.
    fn draw_cell(&self, cell: &Cell) -> Result<(), String> {
        let round = |(x, y): Point| ((x * 2.0).round() / 2.0, (y * 2.0).round() / 2.0);
        let corners = [self.at(cell.x.0, cell.y.1), self.at(cell.x.1, cell.y.0)];
        self.canvas.fill(corners.map(round), cell.color)
    }

    /// Draws each label at the preferred corner of its point, or at the first other corner that is free.
    fn draw_labels(&self, labels: &[(f64, f64, String)], corner: Corner) -> Result<(), String> {
        // Labels of the highest points may extend above the plot.
        let bounds = Frame {
            top: self.frame.top - 8.0,
            ..self.frame
        };
        let offsets = if corner == Corner::Above {
            [-9.0, 10.0]
        } else {
            [10.0, -9.0]
        };
        let mut taken: Vec<Frame> = Vec::new();
        for (x, y, text) in labels {
            let width = self.canvas.width(text, TICK)?;
            let (x, y) = self.at(*x, *y);
            let sides = offsets
                .into_iter()
                .flat_map(|offset| [(x + 9.0, y + offset), (x - 9.0 - width, y + offset)]);
            let frames = sides.map(|(left, y)| Frame {
                left,
                top: y - 7.0,
                right: left + width,
                bottom: y + 7.0,
            });
            let free = |frame: &Frame| {
                frame.is_within(&bounds) && !taken.iter().any(|other| other.overlaps(frame))
            };
            if let Some(frame) = frames.into_iter().find(free) {
                self.canvas
                    .text(text, (frame.left, frame.top + 7.0), TICK, Anchor::Left)?;
                taken.push(frame);
            }
        }
        Ok(())
    }

    fn at(&self, x: f64, y: f64) -> Point {
        let Frame {
            left,
            top,
            right,
            bottom,
        } = self.frame;
        let along = |axis: &Axis, value, from, to| from + axis.position(value) * (to - from);
        (
            along(&self.panel.x, x, left, right),
            along(&self.panel.y, y, bottom, top),
        )
    }

    fn to_pixels(&self, points: &Series) -> Vec<Point> {
        points.iter().map(|(x, y)| self.at(*x, *y)).collect()
    }
}

/// The corners of a line that keeps each value until the next.
fn steps(points: &[Point]) -> Vec<Point> {
    let corners = points
        .windows(2)
        .flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(points.last().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::figure::Side;

    #[test]
    fn a_line_of_one_point_is_a_dot() {
        let (axis, stroke) = (Axis::from_zero("", [4.0]), Stroke::solid(FRAME));
        let marks = |points: &[(f64, f64)]| {
            vec![
                Mark::Line(points.to_vec(), stroke),
                Mark::Steps(points.to_vec(), stroke),
            ]
        };
        let dots = |points: &[(f64, f64)]| {
            let panel = Panel {
                title: String::new(),
                x: axis.clone(),
                y: axis.clone(),
                marks: marks(points),
            };
            let figure = Figure {
                name: "t",
                title: String::new(),
                subtitle: String::new(),
                legend: Vec::new(),
                side: Side::Top,
                panels: vec![panel],
                columns: 1,
            };
            svg(&figure, None).unwrap().matches("<circle").count()
        };
        assert_eq!(
            [
                dots(&[]),
                dots(&[(1.0, 2.0)]),
                dots(&[(1.0, 2.0), (3.0, 2.0)])
            ],
            [0, 2, 0]
        );
    }

    #[test]
    fn a_step_keeps_its_value_until_the_next() {
        assert_eq!(
            steps(&[(0.0, 1.0), (2.0, 3.0)]),
            [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]
        );
        assert_eq!(steps(&[]), []);
    }
}
