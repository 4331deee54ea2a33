//! The chart of `docs/explanation/error-rates.md`: false PASS over the design effect, before and now.

use crate::virtual_servers::table::Cell;
use std::fmt::Write;

const SIZE: (f64, f64) = (760.0, 400.0);
const PANEL: (f64, f64) = (640.0, 270.0);
const CORNER: (f64, f64) = (70.0, 60.0);
const COLORS: [&str; 2] = ["#8a8f98", "#1f6feb"];
/// What is drawn: requests, the greatest design effect, the greatest percentage.
const REQUESTS: usize = 300;
const EFFECTS: f64 = 64.0;
const MOST: f64 = 100.0;

/// `before`: server, objective and percentage of each cell by the rule that took requests as independent.
pub fn svg(cells: &[Cell], before: &str) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"26\" font-size=\"16\" font-weight=\"600\">False PASS at the truth, {REQUESTS} requests</text>\n",
        SIZE.0, SIZE.1
    );
    for ((name, color), x) in ["as if independent", "design effect"]
        .iter()
        .zip(COLORS)
        .zip([430.0, 590.0])
    {
        let _ = writeln!(
            out,
            "<circle cx=\"{x}\" cy=\"22\" r=\"4\" fill=\"{color}\"/><text x=\"{}\" y=\"26\">{name}</text>",
            x + 10.0
        );
    }
    let x = |effect: f64| CORNER.0 + PANEL.0 * effect.clamp(1.0, EFFECTS).log2() / EFFECTS.log2();
    let y = |percent: f64| CORNER.1 + PANEL.1 * (1.0 - percent / MOST);
    for percent in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        let at = y(percent);
        let _ = writeln!(
            out,
            "<path d=\"M{} {at:.1}h{}\" stroke=\"#e3e6ea\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{percent} %</text>",
            CORNER.0,
            PANEL.0,
            CORNER.0 - 8.0,
            at + 4.0
        );
    }
    let (at, bottom) = (y(5.0), CORNER.1 + PANEL.1);
    let _ = writeln!(
        out,
        "<path d=\"M{} {at:.1}h{}\" stroke=\"#cf222e\" stroke-dasharray=\"5 4\"/>",
        CORNER.0, PANEL.0
    );
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#cf222e\">5 %</text>",
        CORNER.0 - 8.0,
        at + 4.0
    );
    for effect in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{effect}</text>",
            x(effect),
            bottom + 20.0
        );
    }
    let (middle, below) = (CORNER.0 + PANEL.0 / 2.0, bottom + 42.0);
    let _ = writeln!(
        out,
        "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">design effect: samples that carry as much as one</text>"
    );
    let old = |cell: &Cell| {
        let known = before
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{};{};", cell.server, cell.objective)))?;
        known.split(';').next()?.parse::<f64>().ok()
    };
    let drawn: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.n == REQUESTS && cell.effect > 0.0 && !cell.saturated)
        .collect();
    let mut dot = |cell: &Cell, percent: f64, color: &str| {
        let (x, y) = (x(cell.effect), y(percent));
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{color}\" fill-opacity=\"0.8\"/>"
        );
    };
    drawn
        .iter()
        .filter_map(|cell| Some((cell, old(cell)?)))
        .for_each(|(cell, percent)| dot(cell, percent, COLORS[0]));
    drawn
        .iter()
        .for_each(|cell| dot(cell, cell.percent(0), COLORS[1]));
    out + "</svg>\n"
}
