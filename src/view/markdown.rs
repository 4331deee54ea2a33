//! report.md: the verdict first, then everything it rests on. The words and their order are `templates/report.md`.

use crate::model::check::Ruling;
use crate::model::report::{CaseReport, Report};
use crate::model::units::Unit;
use crate::view::chart::Chart;
use crate::view::escape::{code, prose};
use crate::view::format::{bytes, millis, percent, plain, value};
use crate::view::sheet::{self, Sheet};
use crate::view::{ViewError, absent, groups, headline, local, manners, probes, repeats};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

const TEMPLATE: &str = include_str!("../../templates/report.md");

/// Rulings up to which all of them are shown unfolded.
const OPEN_RULINGS: usize = 30;
/// Cases up to which their percentiles are shown unfolded.
const OPEN_CASES: usize = 3;

#[derive(Serialize)]
struct Page {
    name: String,
    verdict: &'static str,
    reason: String,
    interruption: Option<String>,
    description: Option<String>,
    searches: Vec<probes::Told>,
    slo: Sheet,
    slo_open: Sheet,
    slo_total: usize,
    slo_folded: bool,
    cases: Sheet,
    steady: Sheet,
    repeats: Sheet,
    groups: Sheet,
    local: local::Sheets,
    charts: Vec<Picture>,
    percentiles: Vec<Percentiles>,
    folded: bool,
    failures: Sheet,
    manners: Sheet,
    audit: Sheet,
    audit_limits: String,
    environment: Vec<(String, String)>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Picture {
    file: String,
    title: String,
}

#[derive(Serialize)]
struct Percentiles {
    /// As a heading.
    title: String,
    /// As HTML.
    summary: String,
    low: Option<Sheet>,
    high: Option<Sheet>,
}

/// report.md, with links to these charts, `charts/<name>.png` or `.svg`.
///
/// # Errors
/// [`ViewError::Template`] where the template cannot be rendered.
pub fn markdown(report: &Report, charts: &[Chart]) -> Result<String, ViewError> {
    let mut environment = Environment::new();
    environment.add_template("report", TEMPLATE)?;
    let text = environment.get_template("report")?.render(Serde(page(report, charts)))?;
    Ok(text.trim_end().to_owned() + "\n")
}

fn page(report: &Report, charts: &[Chart]) -> Page {
    let slo = sheet::slo(report, |_| true);
    let slo_total = slo.rows.len();
    Page {
        name: prose(&report.manifest.name),
        verdict: headline::word(report.verdict),
        reason: prose(&headline::reason(report)),
        interruption: headline::interruption(report).as_deref().map(prose),
        description: report.description.as_deref().map(prose),
        searches: probes::told(report),
        slo,
        slo_open: sheet::slo(report, |verdict| verdict.ruling != Ruling::Pass),
        slo_total,
        slo_folded: slo_total > OPEN_RULINGS,
        cases: sheet::cases(report),
        steady: sheet::steady(report),
        repeats: repeats::sheet(report),
        groups: groups::groups(report),
        local: local::sheets(report),
        charts: charts.iter().map(|chart| Picture { file: chart.file(), title: prose(&chart.title) }).collect(),
        percentiles: report.cases.iter().map(percentiles).filter(|case| case.low.is_some() || case.high.is_some()).collect(),
        folded: report.cases.len() > OPEN_CASES,
        failures: sheet::failures(report),
        manners: manners::manners(report),
        audit: sheet::audit(report),
        audit_limits: audit_limits(report),
        environment: environment(report),
        notes: absent::told(report),
    }
}

fn percentiles(case: &CaseReport) -> Percentiles {
    let html = case.id.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Percentiles {
        title: code(&case.id),
        summary: format!("<code>{}</code>", plain(&html)),
        low: sheet::low_is_better(case),
        high: sheet::high_is_better(case),
    }
}

/// What the self-audits were held against, in words.
pub(super) fn audit_limits(report: &Report) -> String {
    let limits = &report.audit;
    format!(
        "schedule lag p99 {}, achieved {} of the offered rate, CPU {} of a core, stall p99 {}",
        millis(limits.lag_p99.millis()),
        percent(limits.achieved),
        percent(limits.cpu),
        millis(limits.stall_p99.millis())
    )
}

fn environment(report: &Report) -> Vec<(String, String)> {
    let (manifest, machine) = (&report.manifest, &report.manifest.machine);
    let elapsed = manifest.elapsed_s.map(|secs| value(secs, Unit::Seconds)).unwrap_or_default();
    let mut pairs = vec![
        ("Run", code(&manifest.run_id)),
        ("Started", prose(&manifest.started_at)),
        ("Took", elapsed),
        ("Seed", code(&manifest.seed.to_string())),
        ("Plan hash", code(&manifest.plan_id)),
        ("llmscen", prose(&manifest.tool_version)),
        ("Host", prose(&machine.host)),
        ("System", prose(&machine.os)),
        ("Kernel", prose(&machine.kernel)),
        ("CPU", prose(&machine.cpu)),
    ];
    if machine.cores > 0 {
        pairs.push(("Size", format!("{} cores, {}", machine.cores, bytes(machine.memory as f64))));
    }
    let told = |(url, what): (&String, &String)| ("Target", [code(url), prose(what)].join(" ").trim_end().to_owned());
    pairs.extend(manifest.targets.iter().map(told));
    pairs.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name.to_owned(), text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::manifest::Part;
    use crate::model::report::RunVerdict;
    use crate::view::fixture::{failing, no_data, report_of, sweep};

    #[test]
    fn a_small_report_reads_from_the_top() {
        let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
        report.manifest.interrupted = true;
        report.manifest.parts = vec![Part { cut_short: Some("SIGTERM".into()), ..Part::default() }];
        let chart = Chart { name: "in_flight", title: "Requests in flight over time".into(), png: vec![0], svg: String::new() };
        insta::assert_snapshot!(markdown(&report, &[chart]).unwrap(), @r"
        # chat: ERROR

        > [!WARNING]
        > **Interrupted.** The run was cut short (SIGTERM); every figure covers only what had ended by then.

        **ERROR**: the run could not be carried out; at `base` 8 of 8 requests ended in `connect`: connection refused.

        Interactive chat, nightly gate

        ## Service-level objectives

        | Case | SLO | Verdict | Observed | Bound | Limit | n | Note |
        | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
        | `base` | `ttft.p99 < 500ms` | ❌ fail | n/a | n/a | 500 ms | 0 | no data |

        ## Cases

        | Case | Load | ok / scheduled | Errors | req/s | Output tok/s | TTFT p50, ms | TTFT p99, ms | ITL p50, ms | ITL p99, ms | TPOT p50, ms | E2E p50, ms | E2E p99, ms |
        | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
        | `base` | burst | 0 / 8 | 100% | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a |

        ## Charts

        ![Requests in flight over time](charts/in_flight.png)

        ## Failures

        | Case | Kind | Count | First message | Where |
        | --- | --- | ---: | --- | --- |
        | `base` | `connect` | 8 | `connection refused` | connecting |

        ## Self-audit

        Is the measurement itself sound? Limits: schedule lag p99 5 ms, achieved 98% of the offered rate, CPU 90% of a core, stall p99 5 ms.

        | Case | Sound | Lag p50 | Lag p99 | Lag max | Achieved / offered | Stall p99 | Stall max | CPU of a core | Memory | Events/s | In/s | Dropped | Reasons |
        | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
        | `base` | **NO** | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | 0 | schedule lag p99 8.1 ms is over 5 ms |

        ## Environment

        | | |
        | --- | --- |
        | Run | `20260102T030405Z-1f2e` |
        | Started | 2026-01-02T03:04:05Z |
        | Took | 83.2 s |
        | Seed | `42` |
        | Plan hash | `5f7c0ffee` |
        | llmscen | 0.1.0 |
        | Host | bench-1 |
        | System | Debian 13 |
        | Kernel | 6.12.0 |
        | CPU | Some CPU @ 3.0 GHz |
        | Size | 16 cores, 64 GiB |
        | Target | `http://127.0.0.1:8000/v1/chat/completions` uvicorn |

        ## Notes

        - every request failed: connect
        - No request succeeded, so most figures do not exist.
        ");
    }

    #[test]
    fn an_empty_report_still_renders() {
        insta::assert_snapshot!(markdown(&Report::default(), &[]).unwrap(), @r"
        # : PASS

        **PASS**: no case ran, so there is nothing to judge.

        ## Service-level objectives

        No limit was set.

        ## Cases

        No case ran.

        ## Environment

        | | |
        | --- | --- |
        | Seed | `0` |
        ");
    }

    #[test]
    fn hostile_words_break_no_table() {
        let mut report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
        report.cases[0].id = "a|b\n`c`<script>".into();
        report.cases[0].load = "x | y\n\n# z".into();
        report.cases[0].verdicts[0].note = Some("|\n<b>`".into());
        report.cases[0].audit.reasons = vec!["| \\| |".into()];
        report.manifest.targets.insert("http://x/|".into(), "nginx|<i>".into());
        let text = markdown(&report, &[]).unwrap();
        let mut width = None;
        for line in text.lines() {
            let pipes = line.replace("\\|", "").matches('|').count();
            width = if line.starts_with('|') { width.or(Some(pipes)) } else { None };
            assert_eq!(width.unwrap_or(pipes), pipes, "{line}");
        }
        assert!(!text.replace("`<script>", "").contains("\n# z") && !text.contains("<b>") && !text.contains("<i>"), "{text}");
        assert!(text.contains(r#"| ```a\|b `c` <img src=x onerror=alert(1)> \| row \| ]]> [31m ``d`` & $x$ \``` |"#), "{text}");
    }

    #[test]
    fn many_cases_are_folded_and_open_limits_come_first() {
        let text = markdown(&sweep(100), &[]).unwrap();
        assert!(text.contains("200 limits, 168 of them not met or not decided:"), "{}", &text[..900]);
        assert_eq!(text.matches("<details>").count(), 101);
        assert_eq!(text.matches("</details>").count(), 101);
        assert!(!markdown(&sweep(2), &[]).unwrap().contains("<details>"));
    }

    #[test]
    fn a_note_that_all_cases_share_is_written_once() {
        let mut report = sweep(12);
        report.manifest.notes = vec!["clock was read once".into()];
        report.cases[3].notes = vec!["odd | one".into()];
        let notes = absent::told(&report);
        assert_eq!(
            notes[..2],
            ["clock was read once", "n/a: reasoning_tokens, cached_tokens: not reported by the server, and not countable."]
        );
        assert_eq!(notes[5], "`concurrency=8`: odd \\| one");
        report.cases.iter_mut().take(6).for_each(|case| case.notes = vec!["six".into()]);
        assert!(
            absent::told(&report)
                .contains(&"`concurrency=1`, `concurrency=2`, `concurrency=4`, `concurrency=8` and 2 more: six".to_owned())
        );
    }
}
