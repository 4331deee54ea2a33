//! The repetitions (rounds) of a case: their table, and notes about trends over them.

use crate::cases::metric_cell;
use crate::format::{ABSENT, percent};
use crate::table::{Cell, Column, Columns, Table};
use llmscen_core::report::{CaseReport, Change, Report, RoundVariance};
use serde_json::{Value, json};

/// The table shows the values of the first rounds; results.json has all.
const SHOWN_ROUNDS: usize = 10;

/// `5 rounds, each on a restarted server`.
pub(super) fn describe_rounds(case: &CaseReport) -> String {
    match (case.rounds, case.restarted) {
        (1, _) => "1 round".to_owned(),
        (rounds, false) => format!("{rounds} rounds"),
        (rounds, true) => format!("{rounds} rounds, each on a restarted server"),
    }
}

/// `5 rounds, each on a restarted server.`; None if the server was not restarted between rounds.
pub(super) fn restarts(report: &Report) -> Option<String> {
    let restarted: Vec<&CaseReport> = report.cases.iter().filter(|case| case.restarted).collect();
    let longest = restarted.iter().max_by_key(|case| case.rounds)?;
    Some(format!(
        "{}. Differences between rounds include differences between server starts.",
        describe_rounds(longest)
    ))
}

/// The metrics of the cases with two or more rounds, round by round.
pub(super) fn rounds_table(report: &Report) -> Table {
    type Repeat<'a> = (usize, &'a CaseReport, &'a RoundVariance);
    let repeated = report.cases.iter().enumerate();
    let repeats = repeated
        .filter(|(_, case)| case.rounds > 1)
        .flat_map(|(index, case)| {
            let repeats = case.repeats.iter();
            repeats.map(move |repeat| (index, case, repeat))
        });
    let optional = |text: Option<String>, value: Option<f64>| {
        Cell::figure(text.unwrap_or_else(|| ABSENT.to_owned()), value)
    };
    let text = |head: &str| Column::text().markdown(head);
    let number = |head: &str| Column::number().markdown(head);
    Columns::<Repeat<'_>>::new()
        .add_case(text("Case"))
        .add(text("Metric"), |(.., repeat)| {
            let (name, unit) = (repeat.metric.name(), repeat.metric.unit().symbol());
            Cell::prose(&format!("`{name}`, {unit}"))
        })
        .add(number("Rounds"), |(.., repeat)| {
            Cell::count(repeat.rounds.len() as u64)
        })
        .add(number("By round"), |(_, case, repeat)| {
            let shown = repeat.rounds.iter().take(SHOWN_ROUNDS);
            let shown = shown.map(|value| metric_cell(case, repeat.metric, *value).text);
            let more = (repeat.rounds.len() > SHOWN_ROUNDS).then(|| "…".to_owned());
            let all: Vec<String> = shown.chain(more).collect();
            Cell::figure(all.join(" · "), None::<f64>)
        })
        .add(number("SD between"), |(.., repeat)| {
            Cell::number(repeat.between_sd)
        })
        .add(number("SD within"), |(.., repeat)| {
            Cell::number(repeat.within_sd)
        })
        .add(number("Trend"), |(.., repeat)| {
            let share = repeat.over_rounds.map(|change| change.share);
            optional(share.map(signed), share)
        })
        .add(number("Trend p"), |(.., repeat)| {
            let p = repeat.over_rounds.map(|change| change.p_value);
            optional(p.map(format_p), p)
        })
        .add(number("n"), |(.., repeat)| Cell::count(repeat.n))
        .add(number("Effective n"), |(.., repeat)| {
            let effective = repeat.effective_n;
            optional(effective.map(|it| format!("{it:.0}")), effective)
        })
        .table(repeats)
}

fn signed(share: f64) -> String {
    format!("{}{}", if share > 0.0 { "+" } else { "" }, percent(share))
}

fn format_p(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

fn p_equation(p: f64) -> String {
    if p < 0.001 {
        "p < 0.001".to_owned()
    } else {
        format!("p = {p:.3}")
    }
}

/// The `repeats` of a case in results.json.
pub(super) fn json(case: &CaseReport) -> Vec<Value> {
    let change = |change: Option<Change>| {
        change.map(|it| json!({ "share": it.share, "p_value": it.p_value, "n": it.n }))
    };
    let repeat = |repeat: &RoundVariance| {
        json!({
            "metric": repeat.metric.column(),
            "rounds": repeat.rounds,
            "between_sd": repeat.between_sd,
            "within_sd": repeat.within_sd,
            "over_rounds": change(repeat.over_rounds),
            "over_time": change(repeat.over_time),
            "n": repeat.n,
            "effective_n": repeat.effective_n,
        })
    };
    case.repeats.iter().map(repeat).collect()
}

/// Warnings about metrics that drift from round to round, or change within the rounds.
pub fn remarks(repeats: &[RoundVariance]) -> Vec<String> {
    let drifts = repeats.iter().filter_map(|repeat| {
        let change = repeat.reported_round_trend()?;
        Some(format!(
            "`{}` drifts from round to round: {} from the first to the last of {} (Mann-Kendall \
             {}). The rounds did not measure the same conditions: find out what changed on the \
             server or its host before you use their mean.",
            repeat.metric,
            signed(change.share),
            change.n,
            p_equation(change.p_value)
        ))
    });
    let creeps = repeats.iter().filter_map(|repeat| {
        let change = repeat.reported_time_trend()?;
        let p = p_equation(change.p_value);
        Some(format!(
            "`{}` changes within a round: about {} from start to end (Mann-Kendall {p}). Either the warm-up is too \
             short, or the load does not reach a steady state.",
            repeat.metric,
            signed(change.share),
        ))
    });
    drifts.chain(creeps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{report_of, sweep};
    use llmscen_core::metric::Metric;
    use llmscen_core::report::RunVerdict;

    fn repeat() -> RoundVariance {
        RoundVariance {
            metric: Metric::Ttft,
            rounds: vec![Some(100.0), None, Some(125.5)],
            between_sd: Some(8.25),
            within_sd: Some(30.0),
            over_rounds: Some(Change {
                share: 0.255,
                p_value: 1.0 / 60.0,
                n: 5,
            }),
            over_time: Some(Change {
                share: -0.1,
                p_value: 0.0001,
                n: 60,
            }),
            n: 600,
            effective_n: Some(150.2),
        }
    }

    #[test]
    fn only_clear_and_large_trends_are_reported() {
        let lines = remarks(&[repeat()]);
        assert!(
            lines[0].starts_with(
                "`ttft` drifts from round to round: +25.5% from the first to the last of 5 (Mann-Kendall p = 0.017)"
            )
        );
        assert!(lines[1].starts_with(
            "`ttft` changes within a round: about -10% from start to end (Mann-Kendall p < 0.001)"
        ));
        assert_eq!(lines.len(), 2);
        let small = |share| {
            Some(Change {
                share,
                p_value: 0.001,
                n: 9,
            })
        };
        let small_trend = RoundVariance {
            over_rounds: small(0.019),
            over_time: small(-0.019),
            effective_n: Some(300.0),
            ..repeat()
        };
        assert_eq!(remarks(&[small_trend]), [""; 0]);
        let unsure = |p_value| {
            Some(Change {
                share: 0.5,
                p_value,
                n: 9,
            })
        };
        let unsure = RoundVariance {
            over_rounds: unsure(0.021),
            over_time: unsure(0.011),
            effective_n: None,
            ..repeat()
        };
        assert_eq!(remarks(&[unsure]), [""; 0]);
    }

    #[test]
    fn the_table_has_only_cases_of_several_rounds() {
        let mut report = sweep(2);
        for (case, rounds) in report.cases.iter_mut().zip([1, 3]) {
            (case.rounds, case.repeats) = (rounds, vec![repeat()]);
        }
        let known = [
            "`ttft`, ms",
            "3",
            "100 · n/a · 126",
            "8.25",
            "30",
            "+25.5%",
            "0.017",
            "600",
            "150",
        ];
        let rows = rounds_table(&report).markdown_rows();
        assert_eq!(
            (rows.len(), &rows[0][1..]),
            (1, &known.map(str::to_owned)[..])
        );
        assert!(
            rounds_table(&report_of(Vec::new(), RunVerdict::Pass, 0))
                .rows
                .is_empty()
        );
    }

    #[test]
    fn results_json_has_every_round() {
        let mut report = sweep(1);
        report.cases[0].repeats = vec![repeat()];
        let ttft = &json(&report.cases[0])[0];
        assert_eq!(
            (&ttft["metric"], &ttft["rounds"]),
            (&json!("ttft_ms"), &json!([100.0, null, 125.5]))
        );
        assert_eq!(
            (&ttft["over_time"]["share"], &ttft["over_rounds"]["n"]),
            (&json!(-0.1), &json!(5))
        );
    }
}
