//! The chart of the first table: events per second of CPU time over the number of streams, both axes logarithmic.

use std::fmt::Write;

/// One point: streams, and the floor's and the client's events per second of CPU time.
pub type Point = (u64, f64, f64);

const SIZE: (f64, f64) = (880.0, 360.0);
const PANEL: (f64, f64) = (340.0, 240.0);
const LEFT: [f64; 2] = [70.0, 500.0];
const TOP: f64 = 70.0;
const COLORS: [&str; 2] = ["#8a8f98", "#1f6feb"];

/// Both panels as SVG.
pub fn svg(unpaced: &[Point], paced: &[Point]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"26\" font-size=\"16\" font-weight=\"600\">Events per second of CPU time</text>\n",
        SIZE.0, SIZE.1
    );
    for (at, (name, color)) in [
        ("floor: counts the ends of events", COLORS[0]),
        ("llmscen: a whole run", COLORS[1]),
    ]
    .iter()
    .enumerate()
    {
        let x = 420.0 + 240.0 * at as f64;
        let _ = writeln!(
            out,
            "<path d=\"M{x} 22h22\" stroke=\"{color}\" stroke-width=\"2.5\"/><text x=\"{}\" y=\"26\">{name}</text>",
            x + 28.0
        );
    }
    panel(&mut out, LEFT[0], "unpaced", unpaced);
    panel(
        &mut out,
        LEFT[1],
        "10 ms between events (100 ms at 8192 streams)",
        paced,
    );
    out + "</svg>\n"
}

fn panel(out: &mut String, left: f64, title: &str, points: &[Point]) {
    let most = points
        .iter()
        .map(|point| point.1.max(point.2))
        .fold(1.0, f64::max)
        .log10()
        .ceil();
    let least = points
        .iter()
        .map(|point| point.1.min(point.2))
        .fold(f64::MAX, f64::min)
        .log10()
        .floor();
    let widest = points.iter().map(|point| point.0).max().unwrap_or(1).max(2) as f64;
    let x = |streams: u64| left + PANEL.0 * (streams as f64).log2() / widest.log2();
    let y = |rate: f64| TOP + PANEL.1 * (most - rate.log10()) / (most - least).max(1.0);
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"{}\" font-weight=\"600\">{title}</text>",
        TOP - 14.0
    );
    for power in least as i32..=most as i32 {
        let at = y(10f64.powi(power));
        let label = [
            "1", "10", "100", "1 k", "10 k", "100 k", "1 M", "10 M", "100 M",
        ]
        .get(power.max(0) as usize)
        .unwrap_or(&"");
        let _ = writeln!(
            out,
            "<path d=\"M{left} {at:.1}h{}\" stroke=\"#e3e6ea\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            PANEL.0,
            left - 8.0,
            at + 4.0
        );
    }
    for point in points {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(point.0),
            TOP + PANEL.1 + 18.0,
            point.0
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">streams</text>",
        left + PANEL.0 / 2.0,
        TOP + PANEL.1 + 38.0
    );
    for (color, rate) in COLORS
        .iter()
        .zip([|point: &Point| point.1, |point: &Point| point.2])
    {
        let path: Vec<String> = points
            .iter()
            .map(|point| format!("{:.1} {:.1}", x(point.0), y(rate(point))))
            .collect();
        let _ = writeln!(
            out,
            "<path d=\"M{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2.5\"/>",
            path.join("L")
        );
        for point in points {
            let _ = writeln!(
                out,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"{color}\"/>",
                x(point.0),
                y(rate(point))
            );
        }
    }
}
