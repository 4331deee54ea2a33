//! Draws a figure as SVG.

use crate::chart::axis::Axis;
use crate::chart::canvas::{Anchor, Canvas, Point};
use crate::chart::figure::{Cell, Corner, Entry, Figure, Mark, Panel, Swatch};
use crate::chart::layout::{ENTRY, Frame, Layout, MARGIN, SWATCH, layout};
use crate::chart::style::{AXIS, FRAME, GRID, LEGEND, PANEL, RIBBON, SUBTITLE, Stroke, TICK, TITLE};
use crate::chart::verdict::Ribbon;
use llmscen_core::report::Series;

/// Room that a tick label leaves to its neighbour.
const TICK_GAP: f64 = 8.0;
/// Left and right of a ribbon's words.
const RIBBON_PAD: f64 = 10.0;
/// The widest that a ribbon gets, of the width of the picture.
const RIBBON_SHARE: f64 = 0.6;
/// Radius of the dot that stands for a line of one point.
const LONE: f64 = 3.0;

/// The SVG of a figure; its user unit is a quarter of a logical pixel.
pub fn svg(figure: &Figure, ribbon: Option<&Ribbon>) -> Result<String, String> {
    let mut scrap = String::new();
    let plan = layout(figure, &Canvas::new(&mut scrap, (1.0, 1.0))?)?;
    let mut svg = String::new();
    let canvas = Canvas::new(&mut svg, plan.size)?;
    heading(&canvas, (figure, ribbon), &plan)?;
    for (index, (panel, frame)) in figure.panels.iter().zip(&plan.plots).enumerate() {
        let lowest = index + figure.columns >= figure.panels.len();
        Plot { canvas: &canvas, panel, frame: *frame }.draw(lowest)?;
    }
    for (entry, (at, room)) in figure.legend.iter().zip(&plan.entries) {
        legend_entry(&canvas, entry, *at, *room)?;
    }
    canvas.finish()?;
    Ok(svg)
}

fn heading(canvas: &Canvas, (figure, ribbon): (&Figure, Option<&Ribbon>), plan: &Layout) -> Result<(), String> {
    let room = plan.size.0 - 2.0 * MARGIN;
    let beside = ribbon.map_or(Ok(0.0), |ribbon| self::ribbon(canvas, ribbon, (plan.size.0 - MARGIN, room * RIBBON_SHARE)))?;
    canvas.text(&canvas.fitting(&figure.title, TITLE, room - beside)?, (MARGIN, MARGIN + 9.0), TITLE, Anchor::Left)?;
    canvas.text(&canvas.fitting(&figure.subtitle, SUBTITLE, room)?, (MARGIN, MARGIN + 34.0), SUBTITLE, Anchor::Left)
}

/// A ribbon that ends at the right edge; the room that it takes.
fn ribbon(canvas: &Canvas, ribbon: &Ribbon, (right, room): (f64, f64)) -> Result<f64, String> {
    let text = canvas.fitting(&ribbon.text, RIBBON, room - 2.0 * RIBBON_PAD)?;
    let left = right - canvas.width(&text, RIBBON)? - 2.0 * RIBBON_PAD;
    canvas.fill([(left, MARGIN - 3.0), (right, MARGIN + 20.0)], ribbon.color)?;
    canvas.text(&text, ((left + right) / 2.0, MARGIN + 8.5), RIBBON, Anchor::Center)?;
    Ok(right - left + RIBBON_PAD)
}

fn legend_entry(canvas: &Canvas, entry: &Entry, (left, top): Point, room: f64) -> Result<(), String> {
    let y = top + ENTRY / 2.0;
    let middle = (left + 11.0, y);
    match entry.swatch {
        Swatch::Line(stroke) => canvas.line(&[(left, y), (left + 22.0, y)], stroke)?,
        Swatch::Dot(color) => canvas.dot(middle, 4.0, color)?,
        Swatch::Ring(color) => canvas.ring(middle, 6.0, color)?,
        Swatch::Cross(color) => canvas.cross(middle, 4.0, color)?,
        Swatch::Shade(color) => canvas.fill([(left, y - 6.0), (left + 22.0, y + 6.0)], color)?,
    }
    canvas.text(&canvas.fitting_name(&entry.label, LEGEND, room)?, (left + SWATCH, y), LEGEND, Anchor::Left)
}

struct Plot<'a, 'b> {
    canvas: &'a Canvas<'b>,
    panel: &'a Panel,
    frame: Frame,
}

impl Plot<'_, '_> {
    fn draw(&self, lowest: bool) -> Result<(), String> {
        for mark in self.panel.marks.iter().filter(|mark| matches!(mark, Mark::Band(..))) {
            self.mark(mark)?;
        }
        self.vertical_axis()?;
        self.horizontal_axis(lowest)?;
        self.header()?;
        for mark in self.panel.marks.iter().filter(|mark| !matches!(mark, Mark::Band(..))) {
            self.mark(mark)?;
        }
        Ok(())
    }

    fn header(&self) -> Result<(), String> {
        let (left, y) = (self.frame.left, self.frame.top - 15.0);
        let unit = &self.panel.y.title;
        let room = self.frame.right - left - self.canvas.width(unit, AXIS)? - 8.0;
        let title = self.canvas.fitting_name(&self.panel.title, PANEL, room)?;
        self.canvas.text(&title, (left, y), PANEL, Anchor::Left)?;
        let after = if title.is_empty() { left } else { left + self.canvas.width(&title, PANEL)? + 8.0 };
        self.canvas.text(unit, (after, y), AXIS, Anchor::Left)
    }

    fn vertical_axis(&self) -> Result<(), String> {
        let mut last = f64::INFINITY;
        for (value, label) in &self.panel.y.ticks {
            let y = self.at(0.0, *value).1;
            self.canvas.line(&[(self.frame.left, y), (self.frame.right, y)], Stroke::solid(GRID).hair())?;
            if last - y >= TICK.size + 2.0 {
                self.canvas.text(label, (self.frame.left - 8.0, y), TICK, Anchor::Right)?;
                last = y;
            }
        }
        Ok(())
    }

    fn horizontal_axis(&self, lowest: bool) -> Result<(), String> {
        let Frame { left, right, bottom, .. } = self.frame;
        self.canvas.line(&[(left, bottom), (right, bottom)], Stroke::solid(FRAME).hair())?;
        for (x, label) in self.labels_that_fit()? {
            self.canvas.line(&[(x, bottom), (x, bottom + 4.0)], Stroke::solid(FRAME).hair())?;
            self.canvas.text(&label, (x, bottom + 14.0), TICK, Anchor::Center)?;
        }
        if !lowest {
            return Ok(());
        }
        self.canvas.text(&self.panel.x.title, ((left + right) / 2.0, bottom + 34.0), AXIS, Anchor::Center)
    }

    /// Labels from the right, for the greatest load is the one to be read; those that would touch a neighbour are left out.
    fn labels_that_fit(&self) -> Result<Vec<(f64, String)>, String> {
        let (mut kept, mut edge) = (Vec::new(), f64::INFINITY);
        for (value, label) in self.panel.x.ticks.iter().rev() {
            let (x, half) = (self.at(*value, 0.0).0, self.canvas.width(label, TICK)? / 2.0);
            if x + half + TICK_GAP <= edge {
                kept.push((x, label.clone()));
                edge = x - half;
            }
        }
        Ok(kept)
    }

    fn mark(&self, mark: &Mark) -> Result<(), String> {
        let Frame { left, top, right, bottom } = self.frame;
        match mark {
            // A line of one point has no length, but its value is there to be seen.
            Mark::Line(points, stroke) | Mark::Steps(points, stroke) if points.len() == 1 => {
                self.all(points).into_iter().try_for_each(|at| self.canvas.dot(at, LONE, stroke.color))
            }
            Mark::Line(points, stroke) => self.canvas.line(&self.all(points), *stroke),
            Mark::Steps(points, stroke) => self.canvas.line(&steps(&self.all(points)), *stroke),
            Mark::Dots(points, color, radius) => {
                self.all(points).into_iter().try_for_each(|at| self.canvas.dot(at, *radius, *color))
            }
            Mark::Rings(points, color, radius) => {
                self.all(points).into_iter().try_for_each(|at| self.canvas.ring(at, *radius, *color))
            }
            Mark::Saltires(points, color) => self.all(points).into_iter().try_for_each(|at| self.canvas.cross(at, 4.0, *color)),
            Mark::Crosses(times, color) => {
                times.iter().try_for_each(|time| self.canvas.cross((self.at(*time, 0.0).0, top + 7.0), 3.5, *color))
            }
            Mark::Area(points, color) => {
                let upper = points.iter().map(|(x, _, high)| self.at(*x, *high));
                let corners: Vec<Point> = upper.chain(points.iter().rev().map(|(x, low, _)| self.at(*x, *low))).collect();
                self.canvas.shape(&corners, *color)
            }
            Mark::Cells(cells) => cells.iter().try_for_each(|cell| self.cell(cell)),
            Mark::Words(words, corner) => self.words(words, *corner),
            Mark::Band(from, to, color) => {
                let (from, to) = (self.at(*from, 0.0).0, self.at(*to, 0.0).0);
                self.canvas.fill([(from, top), (to, bottom)], *color)
            }
            Mark::Upright(value, stroke) => {
                let x = self.at(*value, 0.0).0;
                self.canvas.line(&[(x, bottom), (x, top)], *stroke)
            }
            Mark::Level(value, stroke) => {
                let y = self.at(0.0, *value).1;
                self.canvas.line(&[(left, y), (right, y)], *stroke)
            }
        }
    }

    /// Its edges stand on whole dots, so that neighbours meet without a seam.
    fn cell(&self, cell: &Cell) -> Result<(), String> {
        let whole = |(x, y): Point| ((x * 2.0).round() / 2.0, (y * 2.0).round() / 2.0);
        let corners = [self.at(cell.x.0, cell.y.1), self.at(cell.x.1, cell.y.0)];
        self.canvas.fill(corners.map(whole), cell.color)
    }

    /// At the corner of each point that is asked for, or at the next one with room.
    fn words(&self, words: &[(f64, f64, String)], corner: Corner) -> Result<(), String> {
        // A panel's head has room for what stands beside its highest point.
        let room = Frame { top: self.frame.top - 8.0, ..self.frame };
        let down = if corner == Corner::Above { [-9.0, 10.0] } else { [10.0, -9.0] };
        let mut taken: Vec<Frame> = Vec::new();
        for (x, y, text) in words {
            let (width, (x, y)) = (self.canvas.width(text, TICK)?, self.at(*x, *y));
            let sides = down.into_iter().flat_map(|down| [(x + 9.0, y + down), (x - 9.0 - width, y + down)]);
            let frames = sides.map(|(left, y)| Frame { left, top: y - 7.0, right: left + width, bottom: y + 7.0 });
            let free = |frame: &Frame| frame.within(&room) && !taken.iter().any(|other| other.touches(frame));
            if let Some(frame) = frames.into_iter().find(free) {
                self.canvas.text(text, (frame.left, frame.top + 7.0), TICK, Anchor::Left)?;
                taken.push(frame);
            }
        }
        Ok(())
    }

    fn at(&self, x: f64, y: f64) -> Point {
        let Frame { left, top, right, bottom } = self.frame;
        let along = |axis: &Axis, value, from, to| from + axis.place(value) * (to - from);
        (along(&self.panel.x, x, left, right), along(&self.panel.y, y, bottom, top))
    }

    fn all(&self, points: &Series) -> Vec<Point> {
        points.iter().map(|(x, y)| self.at(*x, *y)).collect()
    }
}

/// Each value held until the next one begins.
fn steps(points: &[Point]) -> Vec<Point> {
    let corners = points.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(points.last().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::figure::Side;

    #[test]
    fn a_line_of_one_point_is_a_dot() {
        let (axis, stroke) = (Axis::from_zero("", [4.0]), Stroke::solid(FRAME));
        let marks = |points: &[(f64, f64)]| vec![Mark::Line(points.to_vec(), stroke), Mark::Steps(points.to_vec(), stroke)];
        let dots = |points: &[(f64, f64)]| {
            let panel = Panel { title: String::new(), x: axis.clone(), y: axis.clone(), marks: marks(points) };
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
        assert_eq!([dots(&[]), dots(&[(1.0, 2.0)]), dots(&[(1.0, 2.0), (3.0, 2.0)])], [0, 2, 0]);
    }

    #[test]
    fn a_step_holds_its_value_until_the_next() {
        assert_eq!(steps(&[(0.0, 1.0), (2.0, 3.0)]), [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
        assert_eq!(steps(&[]), []);
    }
}
