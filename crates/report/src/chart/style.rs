//! Colors, strokes and font sizes of all charts. Lengths are in logical pixels.

use plotters::style::RGBColor;

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
/// Subtitles and tick labels.
pub const MUTED: RGBColor = RGBColor(0x5f, 0x67, 0x70);
/// Grid lines.
pub const GRID: RGBColor = RGBColor(0xe4, 0xe7, 0xea);
/// Axis lines.
pub const FRAME: RGBColor = RGBColor(0xa7, 0xae, 0xb5);
/// Warm-up.
pub const SHADE: RGBColor = RGBColor(0xee, 0xf0, 0xf3);
/// A confidence interval.
pub const RANGE: RGBColor = RGBColor(0xd9, 0xe8, 0xf3);
/// Thresholds of objectives.
pub const LIMIT: RGBColor = RGBColor(0x6a, 0x3d, 0x9a);
/// Failures.
pub const ALARM: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// An inconclusive verdict.
pub const INCONCLUSIVE: RGBColor = RGBColor(0x7a, 0x5c, 0x00);
/// The background.
pub const BACKGROUND: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// A single series, and the first of several.
pub const MAIN: RGBColor = RGBColor(0x00, 0x72, 0xb2);

/// Okabe and Ito, "Color Universal Design" (2008), without its yellow, which is invisible on white, and without the
/// red of failures.
const CATEGORIES: [RGBColor; 6] = [
    MAIN,
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x22, 0x26, 0x2b),
];

/// Viridis (Smith and van der Walt, 2015) without its lightest shades, which are invisible on white.
const RAMP: [(f64, f64, f64); 5] = [
    (68.0, 1.0, 84.0),
    (59.0, 82.0, 139.0),
    (33.0, 145.0, 140.0),
    (94.0, 201.0, 98.0),
    (170.0, 205.0, 40.0),
];

/// The time to the first token of a request.
pub const PREFILL: RGBColor = CATEGORIES[1];
/// A cell without a value.
pub const MISSING: RGBColor = RGBColor(0xee, 0xf0, 0xf3);
/// The color scale of value ÷ limit: blue within the limit, orange beyond it.
pub const HEAT: [RGBColor; 7] = [
    RGBColor(0xa9, 0xcd, 0xe8),
    RGBColor(0xcb, 0xe1, 0xf1),
    RGBColor(0xe6, 0xf0, 0xf8),
    RGBColor(0xfb, 0xfc, 0xfd),
    RGBColor(0xfd, 0xe8, 0xd8),
    RGBColor(0xf9, 0xcb, 0xa8),
    RGBColor(0xf0, 0xa3, 0x6b),
];

/// Colors for the quantiles p50, p90, p99.
pub const QUANTILES: [RGBColor; 3] = [MAIN, CATEGORIES[1], CATEGORIES[3]];

/// Color `index` of `count` unordered items: distinct hues for up to six, otherwise a ramp.
pub fn category(index: usize, count: usize) -> RGBColor {
    if count <= CATEGORIES.len() {
        CATEGORIES[index % CATEGORIES.len()]
    } else {
        ramp(index, count)
    }
}

/// Color `index` of `count` ordered items, dark to light in equal lightness steps.
pub fn ramp(index: usize, count: usize) -> RGBColor {
    let position = if count < 2 {
        0.0
    } else {
        index as f64 / (count - 1) as f64
    } * (RAMP.len() - 1) as f64;
    let from = (position.floor() as usize).min(RAMP.len() - 2);
    let (a, b, t) = (RAMP[from], RAMP[from + 1], position - from as f64);
    let mix = |a: f64, b: f64| (a + (b - a) * t).round() as u8;
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// Percentile bands around a median, from the widest to the narrowest.
pub const FAN: [RGBColor; 3] = [
    RGBColor(0xdb, 0xe9, 0xf4),
    RGBColor(0xb3, 0xd1, 0xe8),
    RGBColor(0x80, 0xb4, 0xd9),
];

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stroke {
    /// Color.
    pub color: RGBColor,
    /// Width.
    pub width: f64,
    /// Length of dash and gap; None: solid.
    pub dash: Option<(f64, f64)>,
}

impl Stroke {
    /// A solid line of data.
    pub fn solid(color: RGBColor) -> Stroke {
        Stroke {
            color,
            width: 2.0,
            dash: None,
        }
    }

    /// A dashed line beside the data, such as a mean.
    pub fn dashed(color: RGBColor) -> Stroke {
        Stroke {
            color,
            width: 1.5,
            dash: Some((5.0, 4.0)),
        }
    }

    /// The line of a threshold: its color and its long dashes are those of nothing else.
    pub fn limit() -> Stroke {
        Stroke {
            color: LIMIT,
            width: 1.75,
            dash: Some((10.0, 4.0)),
        }
    }

    /// The line with the width of a grid line.
    pub fn hair(self) -> Stroke {
        Stroke { width: 1.0, ..self }
    }

    /// The line, thinner.
    pub fn thin(self) -> Stroke {
        Stroke {
            width: 1.25,
            ..self
        }
    }
}

/// How a text is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Face {
    /// Size of an em.
    pub size: f64,
    /// Semi-bold instead of regular.
    pub bold: bool,
    /// Color.
    pub color: RGBColor,
}

/// The title of a figure.
pub const TITLE: Face = Face {
    size: 19.0,
    bold: true,
    color: INK,
};
/// The line below it.
pub const SUBTITLE: Face = Face {
    size: 13.0,
    bold: false,
    color: MUTED,
};
/// The title of a panel.
pub const PANEL: Face = Face {
    size: 13.0,
    bold: true,
    color: INK,
};
/// Axis titles.
pub const AXIS: Face = Face {
    size: 12.5,
    bold: false,
    color: MUTED,
};
/// Tick labels.
pub const TICK: Face = Face {
    size: 12.0,
    bold: false,
    color: MUTED,
};
/// Text on a ribbon.
pub const RIBBON: Face = Face {
    size: 12.5,
    bold: true,
    color: BACKGROUND,
};
/// Legend entries.
pub const LEGEND: Face = Face {
    size: 12.5,
    bold: false,
    color: INK,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_of_one_chart_differ() {
        for count in 1..=12 {
            let colors: Vec<RGBColor> = (0..count).map(|index| category(index, count)).collect();
            for (index, color) in colors.iter().enumerate() {
                assert!(!colors[..index].contains(color), "{index} of {count}");
                assert!(![ALARM, LIMIT].contains(color));
            }
        }
    }

    #[test]
    fn the_ramp_runs_from_dark_to_light() {
        let lightness = |c: RGBColor| {
            0.2126 * f64::from(c.0) + 0.7152 * f64::from(c.1) + 0.0722 * f64::from(c.2)
        };
        let steps: Vec<f64> = (0..12).map(|index| lightness(ramp(index, 12))).collect();
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
        assert_eq!(
            (ramp(0, 1), ramp(0, 5)),
            (RGBColor(68, 1, 84), RGBColor(68, 1, 84))
        );
    }
}
