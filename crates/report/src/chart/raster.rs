//! SVG to PNG.

use crate::chart::canvas::UNITS;
use crate::chart::font;
use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Dots of the PNG to a logical pixel.
const DOTS: f32 = 2.0;

/// Renders an SVG whose user unit is a fraction of a logical pixel; the same SVG gives the same bytes.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let fontdb = font::database().ok_or("the embedded font cannot be read")?;
    let style_sheet = Some("polyline { stroke-linejoin: round; stroke-linecap: round }".to_owned());
    let tree = Tree::from_str(svg, &Options { fontdb, style_sheet, ..Options::default() }).map_err(|e| e.to_string())?;
    let scale = DOTS / UNITS as f32;
    let size = |length: f32| (length * scale).round() as u32;
    let mut pixels = Pixmap::new(size(tree.size().width()), size(tree.size().height())).ok_or("the picture has no size")?;
    pixels.fill(Color::WHITE);
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_two_dots_a_pixel_and_no_transparency() {
        let svg = r##"<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"><rect width="40" height="40" fill="#000"/></svg>"##;
        let pixels = Pixmap::decode_png(&png(svg).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (40, 20));
        let gray = |x| pixels.pixel(x, 10).map(|p| (p.red(), p.alpha())).unwrap();
        assert_eq!((gray(5), gray(35)), ((0, 255), (255, 255)));
        assert!(png("<svg").is_err());
    }
}
