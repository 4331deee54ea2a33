//! What a baseline lets one see, for a terminal and for programs.

use crate::ViewError;
use crate::format::{ABSENT, value};
use crate::table::{Cell, Column, Screen, Tint, render};
use llmscen_core::baseline::Baseline;
use llmscen_core::metric::Metric;
use llmscen_core::baseline::Noise;
use llmscen_core::units::Unit;
use serde_json::json;

/// The format's name and version, the value of `schema`.
pub const NOISE_SCHEMA: &str = "llmscen/baseline-doctor/1";

const COLUMNS: [Column; 9] = [
    Column::words("CASE", 0),
    Column::words("METRIC", 0).at_least(14),
    Column::numbers("MEAN", 3),
    Column::numbers("RUNS", 2),
    Column::numbers("SPREAD", 0),
    Column::numbers("1 RUN", 0),
    Column::numbers("3 A SIDE", 0),
    Column::numbers("5 A SIDE", 1),
    Column::numbers("RUNS FOR 5%", 0),
];

/// The table. `width`: columns of the terminal, None where there is none.
pub fn noise_table(all: &[Noise], width: Option<usize>, color: bool) -> String {
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    render(&COLUMNS, &rows, Screen { width, color })
}

fn row(own: &Noise) -> Vec<Cell> {
    let size = |size: f64| if own.share { format!("{:.2} pp", size * 100.0) } else { format!("{:.1}%", size * 100.0) };
    let least = |least: Option<f64>| least.map_or_else(|| ABSENT.to_owned(), size);
    let cells = [
        own.case.clone(),
        own.figure.clone(),
        value(own.mean, unit_of(&own.figure)),
        own.runs.to_string(),
        size(own.sd),
        least(own.one),
        least(own.three),
        least(own.five),
        own.needed.map_or_else(|| "> 100".to_owned(), |runs| runs.to_string()),
    ];
    cells.into_iter().map(|text| (text, Tint::None)).collect()
}

/// The unit of a figure by its name.
pub(super) fn unit_of(name: &str) -> Unit {
    let metric = name.split(['.', '{', ' ']).next().and_then(Metric::parse);
    metric.map_or(Unit::Share, Metric::unit)
}

/// How the table reads.
pub const NOISE_KEY: &str = "SPREAD: standard deviation between the runs. 1 RUN, 3 A SIDE, 5 A SIDE: the least change that one run beside \
     this baseline, or that many runs a side, show with 80 % probability (two-sided, 5 %). RUNS FOR 5%: runs a side that show \
     a change of 5 %. pp: percentage points.";

/// The same for programs, indented, with a final newline.
///
/// # Errors
/// [`ViewError::Json`] where a value cannot be written.
pub fn noise_json(of: &Baseline, all: &[Noise]) -> Result<String, ViewError> {
    let document = json!({
        "schema": NOISE_SCHEMA,
        "name": of.name,
        "runs": of.runs,
        "confidence": 0.95,
        "power": 0.8,
        "metrics": all,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Noise> {
        let own = Noise {
            case: "concurrency=16,max_tokens=128".into(),
            figure: "ttft.p95".into(),
            share: false,
            runs: 10,
            mean: 213.4,
            sd: 0.0213,
            one: Some(0.068),
            three: Some(0.065),
            five: Some(0.043),
            needed: Some(5),
        };
        let good = Noise { figure: "goodput(ttft < 500ms)".into(), share: true, mean: 0.991, needed: None, ..own.clone() };
        vec![own, good]
    }

    #[test]
    fn the_table_fits_a_narrow_terminal_and_uses_a_wide_one() {
        for width in [80, 160] {
            let text = noise_table(&all(), Some(width), false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(text.contains("RUNS FOR 5%") && text.contains("2.1%") && text.contains("> 100"), "{text}");
        }
        let wide = noise_table(&all(), Some(160), false);
        assert!(wide.contains("213 ms") && wide.contains("6.80 pp") && wide.contains("5 A SIDE"), "{wide}");
    }

    #[test]
    fn programs_get_shares() {
        let text = noise_json(&Baseline::default(), &all()).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["schema"], &read["metrics"][0]["sd"]), (&json!(NOISE_SCHEMA), &json!(0.0213)));
        assert_eq!(
            (&read["metrics"][0]["runs_for_5_percent"], &read["metrics"][1]["runs_for_5_percent"]),
            (&json!(5), &json!(null))
        );
    }
}
