//! Draws lines, shapes and text on an SVG in logical pixels, and renders the SVG to a file or a PNG with the embedded
//! font Inter.
//!
//! plotters rounds coordinates to whole units, so its unit is a quarter of a logical pixel.

use crate::chart::style::{Face, Stroke};
use crate::format::plain;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use resvg::tiny_skia::{self, Pixmap, Transform};
use resvg::usvg::fontdb::{Database, Source};
use resvg::usvg::{Options, Tree};
use std::sync::{Arc, LazyLock};

/// Units of the drawing per logical pixel.
pub const UNITS: f64 = 4.0;
/// plotters sizes a font by its line height of this many ems; SVG sizes it by the em.
const LINE_HEIGHT: f64 = 1.24;
/// plotters places the top of a text this many ems above the baseline.
const ASCENT: f64 = 0.76;
/// Half the height of a capital letter of the embedded font, in ems.
const HALF_CAPITAL: f64 = 0.364;

/// A point in logical pixels, from the upper left corner.
pub type Point = (f64, f64);

/// A drawing.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

/// The part of a text that is at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Left,
    /// Its middle.
    Center,
    /// Its right end.
    Right,
}

fn units(point: Point) -> (i32, i32) {
    (
        (point.0 * UNITS).round() as i32,
        (point.1 * UNITS).round() as i32,
    )
}

fn to_text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<'a> Canvas<'a> {
    /// A white drawing of this width and height.
    pub fn new(svg: &'a mut String, size: Point) -> Result<Canvas<'a>, String> {
        database().ok_or("the embedded font cannot be read")?;
        let (width, height) = units(size);
        let area = SVGBackend::with_string(svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(to_text)?;
        Ok(Canvas { area })
    }

    /// Completes the SVG.
    pub fn finish(self) -> Result<(), String> {
        self.area.present().map_err(to_text)
    }

    /// A line through the points.
    pub fn line(&self, points: &[Point], stroke: Stroke) -> Result<(), String> {
        let style = stroke
            .color
            .stroke_width((stroke.width * UNITS).round() as u32);
        let points: Vec<(i32, i32)> = points.iter().map(|point| units(*point)).collect();
        match stroke.dash {
            None => self
                .area
                .draw(&PathElement::new(points, style))
                .map_err(to_text),
            Some((dash, gap)) => {
                let (dash, gap) = ((dash * UNITS).round() as i32, (gap * UNITS).round() as i32);
                self.area
                    .draw(&DashedPathElement::new(points, dash, gap, style))
                    .map_err(to_text)
            }
        }
    }

    /// A filled rectangle between two corners.
    pub fn fill(&self, corners: [Point; 2], color: RGBColor) -> Result<(), String> {
        self.area
            .draw(&Rectangle::new(corners.map(units), color.filled()))
            .map_err(to_text)
    }

    /// A filled shape with these corners.
    pub fn shape(&self, corners: &[Point], color: RGBColor) -> Result<(), String> {
        let corners: Vec<(i32, i32)> = corners.iter().map(|corner| units(*corner)).collect();
        self.area
            .draw(&Polygon::new(corners, color.filled()))
            .map_err(to_text)
    }

    /// A filled dot.
    pub fn dot(&self, at: Point, radius: f64, color: RGBColor) -> Result<(), String> {
        let radius = (radius * UNITS).round() as i32;
        self.area
            .draw(&Circle::new(units(at), radius, color.filled()))
            .map_err(to_text)
    }

    /// A circle.
    pub fn ring(&self, at: Point, radius: f64, color: RGBColor) -> Result<(), String> {
        let (radius, width) = (
            (radius * UNITS).round() as i32,
            (1.25 * UNITS).round() as u32,
        );
        self.area
            .draw(&Circle::new(units(at), radius, color.stroke_width(width)))
            .map_err(to_text)
    }

    /// A cross of this half width.
    pub fn cross(&self, (x, y): Point, half: f64, color: RGBColor) -> Result<(), String> {
        let stroke = Stroke {
            color,
            width: 1.75,
            dash: None,
        };
        self.line(&[(x - half, y - half), (x + half, y + half)], stroke)?;
        self.line(&[(x - half, y + half), (x + half, y - half)], stroke)
    }

    /// Text, vertically centered on `at` by its capital letters.
    pub fn text(&self, text: &str, at: Point, face: Face, anchor: Anchor) -> Result<(), String> {
        let h_pos = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Center => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        let style = self.style(face).pos(Pos::new(h_pos, VPos::Top));
        let top = at.1 + (HALF_CAPITAL - ASCENT) * face.size;
        self.area
            .draw_text(&plain(text), &style, units((at.0, top)))
            .map_err(to_text)
    }

    /// The width of a text.
    pub fn width(&self, text: &str, face: Face) -> Result<f64, String> {
        let (width, _) = self
            .area
            .estimate_text_size(&plain(text), &self.style(face))
            .map_err(to_text)?;
        Ok(f64::from(width) / UNITS)
    }

    /// The text cut at its end to `max_width`, with an ellipsis.
    pub fn cut_end(&self, text: &str, face: Face, max_width: f64) -> Result<String, String> {
        self.cut(text, face, max_width, |_| 0)
    }

    /// The text cut in its middle to `max_width`: names of cases differ at both ends.
    pub fn cut_middle(&self, text: &str, face: Face, max_width: f64) -> Result<String, String> {
        self.cut(text, face, max_width, |kept| kept / 2)
    }

    /// `tail`: how many of the kept characters follow the ellipsis.
    fn cut(
        &self,
        text: &str,
        face: Face,
        max_width: f64,
        tail: fn(usize) -> usize,
    ) -> Result<String, String> {
        if self.width(text, face)? <= max_width {
            return Ok(text.to_owned());
        }
        let chars: Vec<char> = text.chars().collect();
        let cut_to = |kept: usize| -> String {
            let head = kept - tail(kept);
            let rest = chars.len() - tail(kept);
            chars
                .iter()
                .take(head)
                .chain(&['…'])
                .chain(chars.iter().skip(rest))
                .collect()
        };
        // Binary search for the most characters that fit.
        let mut fits = None;
        let mut too_wide = chars.len();
        while too_wide > fits.map_or(0, |kept| kept + 1) {
            let middle = (fits.map_or(0, |kept| kept + 1) + too_wide) / 2;
            match self.width(&cut_to(middle), face)? <= max_width {
                true => fits = Some(middle),
                false => too_wide = middle,
            }
        }
        Ok(fits.map(cut_to).unwrap_or_default())
    }

    fn style(&self, face: Face) -> TextStyle<'static> {
        let weight = if face.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        FontDesc::new(
            FontFamily::SansSerif,
            face.size * UNITS * LINE_HEIGHT,
            weight,
        )
        .color(&face.color)
    }
}

/// Font families for an SVG file, the most similar to the embedded one first. Text is measured in Inter, the widest.
const FAMILIES: &str = "Inter, Helvetica, Arial, &apos;Liberation Sans&apos;, sans-serif";
/// Round line joins, as in the PNG.
const SVG_STYLE: &str = "<style>polyline { stroke-linejoin: round; stroke-linecap: round } text { \
    font-kerning: normal }</style>";

/// The drawing as a standalone SVG file, sized in logical pixels.
pub fn svg_file(drawing: &str) -> Option<String> {
    let (head, body) = drawing.split_once('>')?;
    let (_, view_box) = head.split_once("viewBox=\"0 0 ")?;
    let (width, height) = view_box.split_once('"')?.0.split_once(' ')?;
    let pixels = |units: &str| Some(units.parse::<f64>().ok()? / UNITS);
    let family = format!("font-family=\"{FAMILIES}\"");
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 \
        {width} {height}\">\n{SVG_STYLE}{}",
        pixels(width)?,
        pixels(height)?,
        body.replace(&format!("font-family=\"{FAMILY}\""), &family)
    ))
}

/// Dots of the PNG per logical pixel.
const DOTS_PER_PIXEL: f32 = 2.0;

/// Renders a drawing to PNG; the same drawing gives the same bytes.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let fontdb = database().ok_or("the embedded font cannot be read")?;
    let style_sheet = Some("polyline { stroke-linejoin: round; stroke-linecap: round }".to_owned());
    let tree = Tree::from_str(
        svg,
        &Options {
            fontdb,
            style_sheet,
            ..Options::default()
        },
    )
    .map_err(|e| e.to_string())?;
    let scale = DOTS_PER_PIXEL / UNITS as f32;
    let size = |length: f32| (length * scale).round() as u32;
    let mut pixels = Pixmap::new(size(tree.size().width()), size(tree.size().height()))
        .ok_or("the drawing has no size")?;
    pixels.fill(tiny_skia::Color::WHITE);
    resvg::render(
        &tree,
        Transform::from_scale(scale, scale),
        &mut pixels.as_mut(),
    );
    encode(&pixels).map_err(|e| e.to_string())
}

/// The drawing has a background, so its pixels need no alpha channel.
fn encode(pixels: &Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let mut rgb = vec![0; pixels.pixels().len() * 3];
    for (rgb, rgba) in rgb.chunks_exact_mut(3).zip(pixels.data().chunks_exact(4)) {
        rgb.copy_from_slice(&rgba[..3]);
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixels.width(), pixels.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // Lines and areas of few colors compress best as they are.
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(bytes)
}

const REGULAR: &[u8] = include_bytes!("font/Inter-Regular.otf");
const SEMI_BOLD: &[u8] = include_bytes!("font/Inter-SemiBold.otf");

/// The font family of the drawings.
pub const FAMILY: &str = "sans-serif";

static FONTS: LazyLock<Option<Arc<Database>>> = LazyLock::new(|| {
    register_font(FAMILY, FontStyle::Normal, REGULAR).ok()?;
    register_font(FAMILY, FontStyle::Bold, SEMI_BOLD).ok()?;
    let mut fonts = Database::new();
    for face in [REGULAR, SEMI_BOLD] {
        fonts.load_font_source(Source::Binary(Arc::new(face)));
    }
    fonts.set_sans_serif_family("Inter");
    Some(Arc::new(fonts))
});

/// The embedded fonts, registered with plotters too. None if the embedded files are broken.
pub fn database() -> Option<Arc<Database>> {
    FONTS.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::style::{INK, PANEL, TICK, TITLE};

    fn drawn(draw: impl Fn(&Canvas)) -> String {
        let mut svg = String::new();
        let canvas = Canvas::new(&mut svg, (100.0, 50.0)).unwrap();
        draw(&canvas);
        canvas.finish().unwrap();
        svg
    }

    #[test]
    fn logical_pixels_become_quarter_units() {
        let svg = drawn(|canvas| {
            canvas
                .line(&[(1.0, 2.0), (3.5, 4.25)], Stroke::solid(INK))
                .unwrap()
        });
        assert!(
            svg.contains(r#"width="400" height="200""#) && svg.contains(r#"points="4,8 14,17 ""#),
            "{svg}"
        );
    }

    #[test]
    fn foreign_text_cannot_break_the_drawing() {
        let svg = drawn(|canvas| {
            canvas
                .text("a\u{0}<b>&\u{1b}", (0.0, 0.0), TICK, Anchor::Left)
                .unwrap()
        });
        assert!(svg.contains("a &lt;b&gt;&amp;\n"), "{svg}");
    }

    #[test]
    fn a_long_text_is_cut_to_the_width() {
        drawn(|canvas| {
            let cut = canvas
                .cut_end("concurrency=16,max_tokens=128", PANEL, 80.0)
                .unwrap();
            assert!(cut.ends_with('…') && cut.starts_with("concurr"), "{cut}");
            assert!(canvas.width(&cut, PANEL).unwrap() <= 80.0);
            assert_eq!(canvas.cut_end("short", PANEL, 80.0).unwrap(), "short");
        });
    }

    #[test]
    fn an_svg_file_is_sized_in_pixels_and_names_common_fonts() {
        let mut drawn = String::new();
        let canvas = Canvas::new(&mut drawn, (100.0, 50.5)).unwrap();
        canvas
            .text("a < b", (10.0, 10.0), TITLE, Anchor::Left)
            .unwrap();
        canvas.finish().unwrap();
        let file = svg_file(&drawn).unwrap();
        assert!(
            file.contains("width=\"100\" height=\"50.5\" viewBox=\"0 0 400 202\""),
            "{file}"
        );
        assert!(
            file.contains("a &lt; b")
                && file.contains(FAMILIES)
                && !file.contains("\"sans-serif\""),
            "{file}"
        );
        assert!(svg_file("no drawing").is_none());
    }

    #[test]
    fn a_png_has_two_dots_per_pixel_and_no_transparency() {
        let svg = r##"<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"><rect width="40" height="40" fill="#000"/></svg>"##;
        let pixels = Pixmap::decode_png(&png(svg).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (40, 20));
        let gray = |x| pixels.pixel(x, 10).map(|p| (p.red(), p.alpha())).unwrap();
        assert_eq!((gray(5), gray(35)), ((0, 255), (255, 255)));
        assert!(png("<svg").is_err());
    }

    #[test]
    fn both_weights_are_one_family() {
        let fonts = database().unwrap();
        let mut faces: Vec<(String, u16)> = fonts
            .faces()
            .map(|face| (face.families[0].0.clone(), face.weight.0))
            .collect();
        faces.sort();
        assert_eq!(
            faces,
            [("Inter".to_owned(), 400), ("Inter".to_owned(), 600)]
        );
    }
}
