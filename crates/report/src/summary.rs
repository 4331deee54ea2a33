//! A compact summary in Markdown for the page of a CI job: the verdict, the limits, the main figures.

use crate::cases::cases_without_parts;
use crate::format::{code, prose};
use crate::headline;
use crate::objectives::objectives;
use crate::table::Table;
use llmscen_core::check::Ruling;
use llmscen_core::report::{Report, RunVerdict};

/// Bytes that GitHub takes for one step: 1 MiB.
pub const LIMIT: usize = 1 << 20;

/// Rows of a table before the rest of it is left to the report.
const ROWS: usize = 200;

/// Where the whole report is.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The run folder.
    pub folder: &'a str,
    /// The URL of the CI job's page.
    pub job: Option<&'a str>,
}

/// The summary in at most `room` bytes: rows go first, then tables, then all but the verdict; empty where not even that fits.
pub fn summary(report: &Report, place: &Place<'_>, room: usize) -> String {
    let rows = [ROWS, 50, 10, 0].into_iter().map(|rows| whole(report, place, rows));
    let short = std::iter::once_with(|| format!("{}\n", heading(report)));
    rows.chain(short).find(|text| text.len() <= room).unwrap_or_default()
}

fn heading(report: &Report) -> String {
    let symbol = match report.verdict {
        RunVerdict::Pass => "✅",
        RunVerdict::Fail | RunVerdict::Error => "❌",
        RunVerdict::Inconclusive => "❔",
        RunVerdict::Invalid => "⚠️",
    };
    format!("## {symbol} {}: {}", prose(&report.manifest.name), headline::word(report.verdict))
}

fn whole(report: &Report, place: &Place<'_>, rows: usize) -> String {
    let cut = headline::interruption(report).map(|text| format!("> [!WARNING]\n> {}", prose(&text)));
    let notes = report.manifest.notes.iter().filter(|_| rows > 0).map(|note| format!("- {}", prose(note))).collect::<Vec<_>>();
    let pieces = [Some(heading(report)), Some(prose(&headline::reason(report))), cut]
        .into_iter()
        .chain(limits(report, rows))
        .chain([part(cases_without_parts(report), "cases", rows)])
        .chain([(!notes.is_empty()).then(|| notes.join("\n")), Some(link(place))]);
    pieces.flatten().map(|piece| piece.trim_end().to_owned() + "\n").collect::<Vec<_>>().join("\n") + "\n"
}

/// Those that do not hold, and the others folded. That some loads break their limits is what a search is for.
fn limits(report: &Report, rows: usize) -> Vec<Option<String>> {
    if !report.searches.is_empty() {
        return Vec::new();
    }
    let open = objectives(report, |verdict| verdict.ruling != Ruling::Pass);
    let held = objectives(report, |verdict| verdict.ruling == Ruling::Pass);
    let count = held.rows.len();
    let folded = part(held, "limits", rows).map(|table| match open.rows.is_empty() && count <= 10 {
        true => table,
        false => format!("<details><summary>{count} limits held</summary>\n\n{}\n\n</details>", table.trim_end()),
    });
    vec![part(open, "limits", rows), folded]
}

/// At most so many rows of a table; None without any.
fn part(mut table: Table, name: &str, rows: usize) -> Option<String> {
    let left_out = table.rows.len().saturating_sub(rows);
    table.rows.truncate(rows);
    let more = format!("… and {left_out} more {name} in the report");
    match (table.rows.is_empty(), left_out) {
        (true, 0) => None,
        (true, _) => Some(more),
        (false, 0) => Some(table.markdown() + "\n"),
        (false, _) => Some(format!("{}\n\n{more}", table.markdown())),
    }
}

fn link(place: &Place<'_>) -> String {
    let file = code(&format!("{}/report.md", place.folder));
    match place.job {
        Some(job) => format!("Report: {file}, among the [artefacts of the job]({job}#artifacts) where it uploads them"),
        None => format!("Report: {file}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{failing, no_data, report_of, searched, sweep};

    const PLACE: Place<'static> = Place { folder: "reports/chat/x", job: None };

    #[test]
    fn a_small_run_is_told_in_full() {
        let report = report_of(vec![no_data()], RunVerdict::Fail, 1);
        insta::assert_snapshot!(summary(&report, &PLACE, LIMIT), @r"
        ## ❌ chat: FAIL

        1 of 1 limits broken: `ttft.p99 < 500ms` at `base`, there is no data for it.

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
    fn what_holds_is_folded_beneath_what_does_not() {
        let text = summary(&report_of(vec![failing()], RunVerdict::Fail, 1), &PLACE, LIMIT);
        assert!(text.starts_with("## ❌ chat: FAIL\n\n2 of 2 limits broken; worst:"), "{text}");
        let many = summary(&sweep(12), &PLACE, LIMIT);
        let (open, held) = (many.find("❔ inconclusive").unwrap(), many.find("limits held</summary>").unwrap());
        assert!(open < held && many.contains("</details>"), "{many}");
    }

    #[test]
    fn it_never_takes_more_room_than_there_is() {
        let report = sweep(400);
        let whole = summary(&report, &PLACE, LIMIT);
        assert!(whole.contains("… and 200 more cases in the report"), "{}", &whole[whole.len() - 400..]);
        let mut last = usize::MAX;
        for room in [LIMIT, 40_000, 8_000, 1_500, 100, 40, 3, 0] {
            let length = summary(&report, &PLACE, room).len();
            assert!(length <= room && length <= last, "{room}: {length}");
            last = length;
        }
        assert_eq!(summary(&report, &PLACE, 60), "## ❔ chat: INCONCLUSIVE\n");
    }

    #[test]
    fn a_search_has_its_answer_and_a_job_its_link() {
        let text = summary(&searched(), &Place { job: Some("https://github.com/o/r/actions/runs/7"), ..PLACE }, LIMIT);
        assert!(text.contains("concurrency 16 (97% interval 15 to 17, 4 probes, 400 requests).\n"), "{text}");
        assert!(text.ends_with("`reports/chat/x/report.md`, among the [artefacts of the job](https://github.com/o/r/actions/runs/7#artifacts) where it uploads them\n\n"), "{text}");
    }
}
