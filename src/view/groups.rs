//! The table of speeds by part of the dataset.

use crate::model::metric::Metric;
use crate::model::report::{CaseReport, GroupReport, Report};
use crate::view::escape::code;
use crate::view::sheet::{Sheet, marked};

/// One row per case and group.
pub fn groups(report: &Report) -> Sheet {
    let heads = [
        "Case",
        "Part",
        ">ok / scheduled",
        ">Prompt tokens",
        ">Output tokens",
        ">TTFT, ms",
        ">TPOT, ms",
        ">Decode tok/s",
        ">tok/s per user",
        ">E2E, ms",
    ];
    Sheet::new(&heads, report.cases.iter().flat_map(|case| case.groups.iter().map(move |group| row(case, group))).collect())
}

fn row(case: &CaseReport, group: &GroupReport) -> Vec<String> {
    let median = |metric| marked(case, metric, group.distributions.get(&metric).and_then(|seen| seen.quantile(0.50)));
    vec![
        code(&case.id),
        code(&group.name),
        format!("{} / {}", group.ok, group.scheduled),
        median(Metric::PromptTokens),
        median(Metric::OutputTokens),
        median(Metric::Ttft),
        median(Metric::Tpot),
        median(Metric::DecodeTps),
        marked(case, Metric::OutputTpsPerUser, group.output_tps_per_user),
        median(Metric::E2e),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixture::{case, report_of};

    #[test]
    fn every_group_is_a_row_and_what_is_missing_is_not_a_number() {
        let part = GroupReport {
            name: "96".into(),
            scheduled: 3,
            ok: 2,
            output_tps_per_user: Some(75.0),
            distributions: case(4).distributions.into_iter().filter(|(metric, _)| *metric == Metric::Ttft).collect(),
        };
        let sheet = groups(&report_of(vec![CaseReport { groups: vec![part], ..case(4) }, case(8)], Default::default(), 0));
        assert_eq!(sheet.rows.len(), 1);
        let cells: Vec<&str> = sheet.rows[0].iter().map(String::as_str).collect();
        assert_eq!(cells[1..5], ["`96`", "2 / 3", "n/a", "n/a"]);
        assert_eq!((cells[8], cells[9]), ("75", "n/a"));
    }
}
