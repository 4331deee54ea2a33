//! What was drawn, as an SVG file and as a PNG, in the embedded type: Inter, subset. Fonts of the system are never used.

use crate::chart::canvas::UNITS;
use plotters::style::{FontStyle, register_font};
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};
use std::sync::{Arc, LazyLock};

/// Families in the order of likeness to the embedded one, by which the text was measured; Inter is the widest.
const FAMILIES: &str = "Inter, Helvetica, Arial, &apos;Liberation Sans&apos;, sans-serif";
/// Joins without corners, as in the PNG.
const SVG_STYLE: &str = "<style>polyline { stroke-linejoin: round; stroke-linecap: round } text { font-kerning: normal }</style>";

/// A drawing as a file of its own, sized in logical pixels: text stays text.
pub fn svg_file(drawn: &str) -> Option<String> {
    let (head, body) = drawn.split_once('>')?;
    let (_, seen) = head.split_once("viewBox=\"0 0 ")?;
    let (width, height) = seen.split_once('"')?.0.split_once(' ')?;
    let pixels = |units: &str| Some(units.parse::<f64>().ok()? / UNITS);
    let family = format!("font-family=\"{FAMILIES}\"");
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\">\n{SVG_STYLE}{}",
        pixels(width)?,
        pixels(height)?,
        body.replace(&format!("font-family=\"{FAMILY}\""), &family)
    ))
}

/// Dots of the PNG to a logical pixel.
const DOTS: f32 = 2.0;

/// Renders an SVG whose user unit is a fraction of a logical pixel; the same SVG gives the same bytes.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let fontdb = database().ok_or("the embedded font cannot be read")?;
    let style_sheet = Some("polyline { stroke-linejoin: round; stroke-linecap: round }".to_owned());
    let tree = Tree::from_str(svg, &Options { fontdb, style_sheet, ..Options::default() }).map_err(|e| e.to_string())?;
    let scale = DOTS / UNITS as f32;
    let size = |length: f32| (length * scale).round() as u32;
    let mut pixels = Pixmap::new(size(tree.size().width()), size(tree.size().height())).ok_or("the picture has no size")?;
    pixels.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| e.to_string())
}

const REGULAR: &[u8] = include_bytes!("font/Inter-Regular.otf");
const SEMI_BOLD: &[u8] = include_bytes!("font/Inter-SemiBold.otf");

/// The family name that drawings ask for.
pub const FAMILY: &str = "sans-serif";

static FONTS: LazyLock<Option<Arc<Database>>> = LazyLock::new(|| {
    register_font(FAMILY, FontStyle::Normal, REGULAR).ok()?;
    register_font(FAMILY, FontStyle::Bold, SEMI_BOLD).ok()?;
    let mut fonts = Database::new();
    fonts.load_font_data(REGULAR.to_vec());
    fonts.load_font_data(SEMI_BOLD.to_vec());
    fonts.set_sans_serif_family("Inter");
    Some(Arc::new(fonts))
});

/// The fonts for the rasteriser, after they are known to the drawing side too. None: the embedded files are broken.
pub fn database() -> Option<Arc<Database>> {
    FONTS.clone()
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
        let file = svg_file(&drawn).unwrap();
        assert!(file.contains("width=\"100\" height=\"50.5\" viewBox=\"0 0 400 202\""), "{file}");
        assert!(file.contains("a &lt; b") && file.contains(FAMILIES) && !file.contains("\"sans-serif\""), "{file}");
        assert!(svg_file("no drawing").is_none());
    }

    #[test]
    fn a_picture_has_two_dots_a_pixel_and_no_transparency() {
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
        let mut faces: Vec<(String, u16)> = fonts.faces().map(|face| (face.families[0].0.clone(), face.weight.0)).collect();
        faces.sort();
        assert_eq!(faces, [("Inter".to_owned(), 400), ("Inter".to_owned(), 600)]);
    }
}
