//! A case by the parts of its dataset, where the data tells parts apart: the lengths of a speed benchmark, the groups of a
//! shared prefix.

use crate::frame::distribution;
use crate::frame::sample::values;
use crate::model::metric::Metric;
use crate::model::report::GroupReport;
use crate::model::sample::{Row, Sample};
use crate::stats::moments;
use std::collections::BTreeMap;

/// Groups up to which they are told one by one; the `group` column of the rows has all of them.
const MOST: usize = 64;
/// The metrics that are told of a group.
const METRICS: [Metric; 7] = [
    Metric::PromptTokens,
    Metric::OutputTokens,
    Metric::CachedTokens,
    Metric::Ttft,
    Metric::Tpot,
    Metric::DecodeTps,
    Metric::E2e,
];

/// The groups of a sample, numbers in their order and before names; none where there are more than 64.
pub fn groups(sample: &Sample) -> Vec<GroupReport> {
    let mut found: BTreeMap<(u64, &str), Vec<Row>> = BTreeMap::new();
    for row in &sample.rows {
        if let Some(name) = row.group.as_deref() {
            found.entry((name.parse().unwrap_or(u64::MAX), name)).or_default().push(row.clone());
        }
        if found.len() > MOST {
            return Vec::new();
        }
    }
    found.into_iter().map(|((_, name), rows)| group(name, &rows)).collect()
}

fn group(name: &str, rows: &[Row]) -> GroupReport {
    let spread = |metric: Metric| Some((metric, distribution::of(values(rows, metric))?));
    GroupReport {
        name: name.to_owned(),
        scheduled: rows.len() as u64,
        ok: rows.iter().filter(|row| row.ok).count() as u64,
        output_tps_per_user: moments::mean(&rows.iter().filter_map(Row::user_tps).collect::<Vec<_>>()),
        distributions: METRICS.into_iter().filter_map(spread).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(group: Option<&str>, e2e: f64) -> Row {
        let values = BTreeMap::from([(Metric::E2e, e2e)]);
        Row { ok: e2e > 0.0, group: group.map(str::to_owned), output_tokens: Some(10.0), values, ..Row::default() }
    }

    #[test]
    fn lengths_stand_in_their_order_and_failures_count() {
        let rows =
            vec![row(Some("2048"), 400.0), row(Some("96"), 100.0), row(Some("96"), 200.0), row(Some("96"), 0.0), row(None, 1.0)];
        let seen = groups(&Sample { rows, ..Sample::default() });
        let told: Vec<_> = seen.iter().map(|group| (group.name.as_str(), group.ok, group.scheduled)).collect();
        assert_eq!(told, [("96", 2, 3), ("2048", 1, 1)]);
        // 10 tokens in 0.1 s and in 0.2 s.
        assert_eq!(seen[0].output_tps_per_user, Some(75.0));
        assert_eq!(seen[0].distributions[&Metric::E2e].quantile(0.5), Some(100.0));
    }

    #[test]
    fn very_many_groups_are_left_to_the_rows() {
        let many = |count: usize| (0..count).map(|n| row(Some(&format!("prefix-{n}")), 1.0)).collect();
        let told = |count| groups(&Sample { rows: many(count), ..Sample::default() }).len();
        assert_eq!((told(64), told(65)), (64, 0));
    }
}
