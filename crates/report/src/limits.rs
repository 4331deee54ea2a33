//! The limits of a plan, presets spelled out and multiples worked out.

use crate::format::title;
use crate::relative;
use llmscen_core::check::{Check, Confidence};
use llmscen_core::plan::Plan;

/// Lines at the most: a sweep against a baseline has a limit of its own for each case.
const MOST: usize = 24;

/// Every different limit on a line of its own, under a heading; empty where there is none.
pub fn plan_limits(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for case in &plan.cases {
        for check in case.checks.iter().chain(&case.stage_checks) {
            let of = check.relative.map(|_| format!("{}: ", case.id)).unwrap_or_default();
            let line = format!("  {of}{}", words(check));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if lines.is_empty() { String::new() } else { format!("limits:\n{}\n", lines.join("\n")) }
}

fn words(check: &Check) -> String {
    let sure = match check.confidence {
        Confidence::Point => ", compared as a point".to_owned(),
        Confidence::Level(level) => format!(" at {}% confidence", (level * 1e4).round() / 1e2),
    };
    let multiple = relative::words(check).map(|words| format!(", {words}")).unwrap_or_default();
    format!("{}{sure}{multiple}", title(check))
}
