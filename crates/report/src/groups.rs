//! The table of a case's parts: entries of a mix, and what the data tells apart.

use crate::escape::code;
use crate::format::{ABSENT, number, percent};
use crate::sheet::{Sheet, marked};
use llmscen_core::metric::Metric;
use llmscen_core::report::{CaseReport, GroupReport, Report};

const HEADS: [&str; 18] = [
    "Case",
    "Part",
    ">ok / scheduled",
    ">Errors",
    ">req/s",
    ">Output tok/s",
    ">Prompt tokens",
    ">Output tokens",
    ">TTFT p50, ms",
    ">TTFT p99, ms",
    ">ITL p50, ms",
    ">ITL p99, ms",
    ">TPOT, ms",
    ">Decode tok/s",
    ">tok/s per user",
    ">E2E p50, ms",
    ">E2E p99, ms",
    ">Sent / offered, req/s",
];

/// One row per case and group. The rates are shown where some case has arrivals by a plan.
pub fn groups(report: &Report) -> Sheet {
    let all = || report.cases.iter().flat_map(|case| case.groups.iter().map(move |group| (case, group)));
    let offered = all().any(|(_, group)| group.scalars.contains_key(&Metric::RateOffered));
    let rows = all().map(|(case, group)| {
        let rate = |metric| group.scalars.get(&metric).map_or_else(|| ABSENT.to_owned(), |rate| number(*rate));
        let rates = format!("{} / {}", rate(Metric::RateAchieved), rate(Metric::RateOffered));
        row(case, group).into_iter().chain(offered.then_some(rates)).collect()
    });
    Sheet::new(HEADS.get(..HEADS.len() - usize::from(!offered)).unwrap_or(&HEADS), rows.collect())
}

fn row(case: &CaseReport, group: &GroupReport) -> Vec<String> {
    let scalar = |metric| marked(case, metric, group.scalars.get(&metric).copied());
    let at = |metric, share| marked(case, metric, group.distributions.get(&metric).and_then(|seen| seen.quantile(share)));
    vec![
        code(&case.id),
        code(&group.name),
        format!("{} / {}", group.ok, group.scheduled),
        group.scalars.get(&Metric::ErrorRate).map_or_else(|| ABSENT.to_owned(), |share| percent(*share)),
        scalar(Metric::RequestThroughput),
        scalar(Metric::OutputTps),
        at(Metric::PromptTokens, 0.50),
        at(Metric::OutputTokens, 0.50),
        at(Metric::Ttft, 0.50),
        at(Metric::Ttft, 0.99),
        at(Metric::Itl, 0.50),
        at(Metric::Itl, 0.99),
        at(Metric::Tpot, 0.50),
        at(Metric::DecodeTps, 0.50),
        scalar(Metric::OutputTpsPerUser),
        at(Metric::E2e, 0.50),
        at(Metric::E2e, 0.99),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, report_of};

    #[test]
    fn every_group_is_a_row_and_what_is_missing_is_not_a_number() {
        let part = GroupReport {
            name: "96".into(),
            scheduled: 3,
            ok: 2,
            entry: true,
            scalars: [(Metric::OutputTpsPerUser, 75.0), (Metric::ErrorRate, 0.25)].into(),
            distributions: case(4).distributions.into_iter().filter(|(metric, _)| *metric == Metric::Ttft).collect(),
        };
        let cells = |part: &GroupReport| {
            let cases = vec![CaseReport { groups: vec![part.clone()], ..case(4) }, case(8)];
            let sheet = groups(&report_of(cases, Default::default(), 0));
            assert_eq!((sheet.rows.len(), sheet.rows[0].len(), sheet.rule.len()), (1, sheet.head.len(), sheet.head.len()));
            sheet.rows[0].clone()
        };
        let seen = cells(&part);
        assert_eq!(seen[1..7], ["`96`", "2 / 3", "25%", "n/a", "n/a", "n/a"]);
        assert_eq!((seen[14].as_str(), seen[15].as_str(), seen.len()), ("75", "n/a", 17));
        let scalars = [(Metric::RateOffered, 8.0), (Metric::RateAchieved, 6.0)].into();
        assert_eq!(cells(&GroupReport { scalars, ..part })[17], "6 / 8");
    }
}
