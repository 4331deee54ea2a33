//! The SVG that is written: what was drawn, in logical pixels and with a type that every reader has.

use crate::chart::canvas::UNITS;
use crate::chart::font::FAMILY;

/// Families in the order of likeness to the embedded one, by which the text was measured; Inter is the widest.
const FAMILIES: &str = "Inter, Helvetica, Arial, &apos;Liberation Sans&apos;, sans-serif";
/// Joins without corners, as in the PNG.
const STYLE: &str = "<style>polyline { stroke-linejoin: round; stroke-linecap: round } text { font-kerning: normal }</style>";

/// A drawing as a file of its own, sized in logical pixels: text stays text.
pub fn file(drawn: &str) -> Option<String> {
    let (head, body) = drawn.split_once('>')?;
    let (_, seen) = head.split_once("viewBox=\"0 0 ")?;
    let (width, height) = seen.split_once('"')?.0.split_once(' ')?;
    let pixels = |units: &str| Some(units.parse::<f64>().ok()? / UNITS);
    let family = format!("font-family=\"{FAMILIES}\"");
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\">\n{STYLE}{}",
        pixels(width)?,
        pixels(height)?,
        body.replace(&format!("font-family=\"{FAMILY}\""), &family)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::canvas::{Anchor, Canvas};
    use crate::chart::style::TITLE;

    #[test]
    fn it_is_sized_in_pixels_and_names_types_that_readers_have() {
        let mut drawn = String::new();
        let canvas = Canvas::new(&mut drawn, (100.0, 50.5)).unwrap();
        canvas.text("a < b", (10.0, 10.0), TITLE, Anchor::Left).unwrap();
        canvas.finish().unwrap();
        let file = file(&drawn).unwrap();
        assert!(file.contains("width=\"100\" height=\"50.5\" viewBox=\"0 0 400 202\""), "{file}");
        assert!(file.contains("a &lt; b") && file.contains(FAMILIES) && !file.contains("\"sans-serif\""), "{file}");
        assert!(super::file("no drawing").is_none());
    }
}
