//! The embedded type: Inter, subset; no font of the system is ever asked for.

use plotters::style::{FontStyle, register_font};
use resvg::usvg::fontdb::Database;
use std::sync::{Arc, LazyLock};

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

    #[test]
    fn both_weights_are_one_family() {
        let fonts = database().unwrap();
        let mut faces: Vec<(String, u16)> = fonts.faces().map(|face| (face.families[0].0.clone(), face.weight.0)).collect();
        faces.sort();
        assert_eq!(faces, [("Inter".to_owned(), 400), ("Inter".to_owned(), 600)]);
    }
}
