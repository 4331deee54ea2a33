//! How the main metrics of a run differ from those of the last run of the same plan.

use llmscen_core::report::Report;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// The metrics: name, column in results.json, and statistic of a distribution.
const METRICS: [(&str, &str, Option<&str>); 3] = [
    ("TTFT p50", "ttft_ms", Some("p50")),
    ("TPOT p50", "tpot_ms", Some("p50")),
    ("output tok/s", "output_tps", None),
];

/// A sentence about the change since the newest earlier run beside `folder` that ran the same plan and was valid;
/// None without one. Over several cases, the median change.
pub fn change_since_last_run(report: &Report, folder: &Path) -> Option<String> {
    if !report.searches.is_empty() {
        return None;
    }
    let now = read_results(folder)?;
    let (name, before) = earlier_runs(folder).into_iter().find_map(|earlier| {
        let results = read_results(&earlier)?;
        let is_same = results.get("plan_id") == now.get("plan_id");
        let is_valid = ["pass", "fail", "inconclusive"]
            .contains(&results.get("verdict").and_then(Value::as_str)?);
        let name = earlier.file_name()?.to_string_lossy().into_owned();
        (is_same && is_valid).then_some((name, results))
    })?;
    let changes: Vec<String> = METRICS
        .iter()
        .filter_map(|(title, column, stat)| {
            let change = median_change(&before, &now, column, *stat)?;
            Some(format!("{title} {change:+.0}%"))
        })
        .collect();
    (!changes.is_empty()).then(|| {
        format!(
            "Since the last run ({name}): {}. `llmscen compare` tests whether a change is significant.",
            changes.join(", ")
        )
    })
}

fn read_results(folder: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(folder.join("results.json")).ok()?).ok()
}

/// The folders beside this one whose names are earlier, the newest first. Links such as `latest` are omitted.
fn earlier_runs(folder: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(own)) = (folder.parent(), folder.file_name()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut earlier: Vec<PathBuf> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| entry.file_name().as_os_str() < own)
        .map(|entry| entry.path())
        .collect();
    earlier.sort();
    earlier.reverse();
    earlier
}

/// The median over the cases of both runs, in percent.
fn median_change(before: &Value, now: &Value, column: &str, stat: Option<&str>) -> Option<f64> {
    let cases = |results: &Value| results.get("cases").and_then(Value::as_array).cloned();
    let metric = |case: &Value| {
        let metric = case.get("metrics")?.get(column)?;
        stat.map_or(Some(metric), |stat| metric.get(stat))?.as_f64()
    };
    let before = cases(before)?;
    let mut changes: Vec<f64> = cases(now)?
        .iter()
        .filter_map(|case| {
            let old = before.iter().find(|old| old.get("id") == case.get("id"))?;
            let (old, new) = (metric(old)?, metric(case)?);
            (old > 0.0).then(|| 100.0 * (new / old - 1.0))
        })
        .collect();
    changes.sort_by(f64::total_cmp);
    let middle = changes.len() / 2;
    match changes.len() % 2 {
        _ if changes.is_empty() => None,
        0 => Some((changes[middle - 1] + changes[middle]) / 2.0),
        _ => Some(changes[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn results(plan: &str, verdict: &str, ttft: &[f64]) -> Value {
        let case = |(index, ttft): (usize, &f64)| {
            json!({ "id": format!("c{index}"),
            "metrics": { "ttft_ms": { "p50": ttft }, "tpot_ms": null, "output_tps": 100.0 } })
        };
        let cases: Vec<Value> = ttft.iter().enumerate().map(case).collect();
        json!({ "plan_id": plan, "verdict": verdict, "cases": cases })
    }

    fn store(parent: &Path, name: &str, results: &Value) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("results.json"), results.to_string()).unwrap();
        folder
    }

    #[test]
    fn the_newest_valid_run_of_the_same_plan_counts() {
        let parent = tempfile::tempdir().unwrap();
        let run = |name: &str, plan, verdict, ttft: &[f64]| {
            store(parent.path(), name, &results(plan, verdict, ttft))
        };
        let change = |folder: &Path| change_since_last_run(&Report::default(), folder);
        assert_eq!(change(&run("1", "p", "pass", &[10.0, 20.0, 30.0])), None);
        run("2", "p", "fail", &[10.0, 20.0, 40.0]);
        run("3", "p", "invalid", &[99.0, 99.0, 99.0]);
        run("4", "other", "pass", &[99.0, 99.0, 99.0]);
        let last = run("5", "p", "pass", &[11.0, 24.0, 20.0]);
        assert_eq!(
            change(&last).unwrap(),
            "Since the last run (2): TTFT p50 +10%, output tok/s +0%. `llmscen compare` tests \
            whether a change is significant."
        );
        assert_eq!(change(&run("6", "new", "pass", &[1.0])), None);
    }
}
