//! A compact Markdown summary for the page of a CI job: verdict, objectives, main metrics.

use crate::cases::cases_without_groups;
use crate::format::{code, prose};
use crate::headline;
use crate::objectives::objectives;
use crate::table::Table;
use llmscen_core::check::Ruling;
use llmscen_core::report::{Report, RunVerdict};

/// The size limit of GitHub's job summaries per step: 1 MiB.
pub const LIMIT: usize = 1 << 20;

/// A longer table is cut.
const MAX_ROWS: usize = 200;

/// Where the full report is.
#[derive(Clone, Copy, Debug)]
pub struct ReportLocation<'a> {
    /// The run folder.
    pub folder: &'a str,
    /// The URL of the CI job's page.
    pub job: Option<&'a str>,
}

/// The summary in at most `max_bytes` bytes. Rows are cut first, then tables, then everything but the verdict; empty
/// if even that is too long.
pub fn summary(report: &Report, location: &ReportLocation<'_>, max_bytes: usize) -> String {
    let rows = [MAX_ROWS, 50, 10, 0]
        .into_iter()
        .map(|rows| summary_with_rows(report, location, rows));
    let verdict_only = std::iter::once_with(|| format!("{}\n", heading(report)));
    rows.chain(verdict_only)
        .find(|text| text.len() <= max_bytes)
        .unwrap_or_default()
}

fn heading(report: &Report) -> String {
    let symbol = match report.verdict {
        RunVerdict::Pass => "✅",
        RunVerdict::Fail | RunVerdict::Error => "❌",
        RunVerdict::Inconclusive => "❔",
        RunVerdict::Invalid => "⚠️",
    };
    format!(
        "## {symbol} {}: {}",
        prose(&report.manifest.name),
        headline::verdict_name(report.verdict)
    )
}

fn summary_with_rows(report: &Report, location: &ReportLocation<'_>, rows: usize) -> String {
    let interruption =
        headline::interruption(report).map(|text| format!("> [!WARNING]\n> {}", prose(&text)));
    let notes = report
        .manifest
        .notes
        .iter()
        .filter(|_| rows > 0)
        .map(|note| format!("- {}", prose(note)))
        .collect::<Vec<_>>();
    let pieces = [
        Some(heading(report)),
        Some(prose(&headline::reason(report))),
        interruption,
    ]
    .into_iter()
    .chain(objective_tables(report, rows))
    .chain([cut_table(cases_without_groups(report), "cases", rows)])
    .chain([
        (!notes.is_empty()).then(|| notes.join("\n")),
        Some(link(location)),
    ]);
    pieces
        .flatten()
        .map(|piece| piece.trim_end().to_owned() + "\n")
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
}

/// The objectives that did not pass, and the others folded. None of a search: its probes are expected to fail.
fn objective_tables(report: &Report, rows: usize) -> Vec<Option<String>> {
    if !report.searches.is_empty() {
        return Vec::new();
    }
    let open = objectives(report, |verdict| verdict.ruling != Ruling::Pass);
    let passed = objectives(report, |verdict| verdict.ruling == Ruling::Pass);
    let count = passed.rows.len();
    let folded = cut_table(passed, "objectives", rows).map(|table| {
        match open.rows.is_empty() && count <= 10 {
            true => table,
            false => format!(
                "<details><summary>{count} objectives passed</summary>\n\n{}\n\n</details>",
                table.trim_end()
            ),
        }
    });
    vec![cut_table(open, "objectives", rows), folded]
}

/// The first rows of a table, and the number of the others; None for an empty table.
fn cut_table(mut table: Table, name: &str, rows: usize) -> Option<String> {
    let omitted = table.rows.len().saturating_sub(rows);
    table.rows.truncate(rows);
    let more = format!("… and {omitted} more {name} in the report");
    match (table.rows.is_empty(), omitted) {
        (true, 0) => None,
        (true, _) => Some(more),
        (false, 0) => Some(table.markdown() + "\n"),
        (false, _) => Some(format!("{}\n\n{more}", table.markdown())),
    }
}

fn link(location: &ReportLocation<'_>) -> String {
    let file = code(&format!("{}/report.md", location.folder));
    match location.job {
        Some(job) => format!(
            "Report: {file}, in the [job artifacts]({job}#artifacts) if the job uploads them"
        ),
        None => format!("Report: {file}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, searched, sweep};

    const LOCATION: ReportLocation<'static> = ReportLocation {
        folder: "reports/chat/x",
        job: None,
    };

    #[test]
    fn a_small_run_is_shown_in_full() {
        let report = report_of(vec![no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(summary(&report, &LOCATION, LIMIT), @r"
        ## ❌ chat: FAIL

        1 of 1 objective failed: `ttft.p99 < 500ms` in `base`, no data.

        | Case | SLO | Verdict | Observed | Bound | Limit | n | Note |
        | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
        | `base` | `ttft.p99 < 500ms` | ❌ fail | n/a | n/a | 500 ms | 0 | no data |

        | Case | Load | ok / scheduled | Errors | req/s | Output tok/s | TTFT p50, ms | TTFT p99, ms | ITL p50, ms | ITL p99, ms | TPOT p50, ms | E2E p50, ms | E2E p99, ms |
        | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
        | `base` | burst | 0 / 8 | 100% | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a |

        Report: `reports/chat/x/report.md`
        ");
    }

    #[test]
    fn passed_objectives_are_folded_below_the_others() {
        let text = summary(
            &report_of(vec![failing()], RunVerdict::Fail, 1),
            &LOCATION,
            LIMIT,
        );
        assert!(
            text.starts_with("## ❌ chat: FAIL\n\n2 of 2 objectives failed. Worst:"),
            "{text}"
        );
        let many = summary(&sweep(12), &LOCATION, LIMIT);
        let (open, passed) = (
            many.find("❔ inconclusive").unwrap(),
            many.find("objectives passed</summary>").unwrap(),
        );
        assert!(open < passed && many.contains("</details>"), "{many}");
    }

    #[test]
    fn it_never_exceeds_its_size_limit() {
        let report = sweep(400);
        let full = summary(&report, &LOCATION, LIMIT);
        assert!(
            full.contains("… and 200 more cases in the report"),
            "{}",
            &full[full.len() - 400..]
        );
        let mut last = usize::MAX;
        for max_bytes in [LIMIT, 40_000, 8_000, 1_500, 100, 40, 3, 0] {
            let length = summary(&report, &LOCATION, max_bytes).len();
            assert!(
                length <= max_bytes && length <= last,
                "{max_bytes}: {length}"
            );
            last = length;
        }
        assert_eq!(
            summary(&report, &LOCATION, 60),
            "## ❔ chat: INCONCLUSIVE\n"
        );
    }

    #[test]
    fn a_search_has_its_result_and_a_job_its_link() {
        let text = summary(
            &searched(),
            &ReportLocation {
                job: Some("https://github.com/o/r/actions/runs/7"),
                ..LOCATION
            },
            LIMIT,
        );
        assert!(
            text.contains(
                "maximum concurrency that meets every objective: 16 (97% CI 15 to 17, \
            limited by `ttft.p99 < 500ms`, 4 probes, 400 requests).\n"
            ),
            "{text}"
        );
        assert!(
            text.ends_with(
                "`reports/chat/x/report.md`, in the [job \
        artifacts](https://github.com/o/r/actions/runs/7#artifacts) if the job uploads them\n\n"
            ),
            "{text}"
        );
    }
}
