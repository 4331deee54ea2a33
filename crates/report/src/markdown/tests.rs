use super::*;
use crate::fixture::{failing, no_data, report_of, sweep};
use llmscen_core::manifest::Part;
use llmscen_core::report::{Cause, RunVerdict};

#[test]
fn a_small_report_starts_with_its_verdict() {
    let mut report = report_of(vec![no_data()], RunVerdict::Error, 3);
    report.manifest.interrupted = true;
    report.manifest.parts = vec![Part {
        cut_short: Some("SIGTERM".into()),
        ..Part::default()
    }];
    let chart = Chart {
        name: "in_flight",
        title: "Requests in flight over time".into(),
        png: vec![0],
        svg: String::new(),
    };
    insta::assert_snapshot!(markdown(&report, &[chart]).unwrap(), @r"
    # chat: ERROR

    > [!WARNING]
    > **Interrupted.** Run interrupted (SIGTERM). Results cover only the requests that finished.

    **ERROR**: no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.

    Interactive chat, nightly gate

    ## Service-level objectives

    | Case | SLO | Verdict | Observed | Bound | Limit | n | Note |
    | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
    | `base` | `ttft.p99 < 500ms` | ❌ fail | n/a | n/a | 500 ms | 0 | no data |

    ## Findings

    - ✗ `ttft.p99 < 500ms` fails (no data).
    - ✗ 8 of 8 requests failed: 8 `connect`.
    - Not measured: server queue and KV cache (set `target.metrics`), GPU, host CPU.

    ## Cases

    | Case | Load | ok / scheduled | Errors | req/s | Output tok/s | TTFT p50, ms | TTFT p99, ms | ITL p50, ms | ITL p99, ms | TPOT p50, ms | E2E p50, ms | E2E p99, ms |
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
    | `base` | burst | 0 / 8 | 100% | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a |

    ## Failures

    | Case | Kind | Count | First message | Where |
    | --- | --- | ---: | --- | --- |
    | `base` | `connect` | 8 | `connection refused` | connecting |

    ## Charts

    ![Requests in flight over time](charts/in_flight.png)

    ## Self-audit

    A verdict that the load generator may have changed is INVALID. Thresholds: achieved rate at least 98% of the offered rate, users idle at most 10% of the time, workers stalled at most 5% of the time, CPU at most 90% of a core, unique prompts cached at most 1%. Send delays up to 1 ms at p99 and stalls up to 1 ms are ignored.

    | Case | Verdicts | Send delay p50 | Send delay p99 | Send delay max | Achieved / offered | Users idle | Workers stalled | Stall max | CPU per core | Dropped | Held | Reasons |
    | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
    | `base` | all valid | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | 0 | 0 | schedule lag p99 8.1 ms is over 5 ms |

    ## Environment

    | | |
    | --- | --- |
    | Run | `20260102T030405Z-1f2e` |
    | Started | 2026-01-02T03:04:05Z |
    | Duration | 83.2 s |
    | Seed | `42` |
    | Plan hash | `5f7c0ffee` |
    | llmscen | 0.1.0 |
    | Host | bench-1 |
    | OS | Debian 13 |
    | Kernel | 6.12.0 |
    | CPU | Some CPU @ 3.0 GHz |
    | Cores, memory | 16 cores, 64 GiB |
    | Target | `http://127.0.0.1:8000/v1/chat/completions` uvicorn |

    ## Notes

    - every request failed: connect
    - No request succeeded, so most metrics are missing.
    ");
}

#[test]
fn an_empty_report_still_renders() {
    insta::assert_snapshot!(markdown(&Report::default(), &[]).unwrap(), @r"
    # : PASS

    **PASS**: no case ran.

    ## Service-level objectives

    No objective was set.

    ## Cases

    No case ran.

    ## Environment

    | | |
    | --- | --- |
    | Seed | `0` |
    ");
}

#[test]
fn hostile_text_does_not_break_tables() {
    let mut report = report_of(vec![failing(), no_data()], RunVerdict::Fail, 1);
    report.cases[0].id = "a|b\n`c`<script>".into();
    report.cases[0].load = "x | y\n\n# z".into();
    report.cases[0].verdicts[0].note = Some("|\n<b>`".into());
    report.cases[0].audit.reasons = vec![Cause::LoadGenerator.reason("| \\| |")];
    report
        .manifest
        .targets
        .insert("http://x/|".into(), "nginx|<i>".into());
    let text = markdown(&report, &[]).unwrap();
    let mut width = None;
    for line in text.lines() {
        let pipes = line.replace("\\|", "").matches('|').count();
        width = if line.starts_with('|') {
            width.or(Some(pipes))
        } else {
            None
        };
        assert_eq!(width.unwrap_or(pipes), pipes, "{line}");
    }
    assert!(
        !text.replace("`<script>", "").contains("\n# z")
            && !text.contains("<b>")
            && !text.contains("<i>"),
        "{text}"
    );
    assert!(
        text.contains(
            r#"| ```a\|b `c` <img src=x onerror=alert(1)> \| row \| ]]> [31m ``d`` & $x$ \``` |"#
        ),
        "{text}"
    );
}

#[test]
fn many_cases_are_folded_and_objectives_not_passed_come_first() {
    let text = markdown(&sweep(100), &[]).unwrap();
    assert!(
        text.contains("200 objectives, 168 of them not passed:"),
        "{}",
        &text[..900]
    );
    // The objectives, and for each case its percentiles, with further metrics and the percentile table in them.
    assert_eq!(text.matches("<details>").count(), 301);
    assert_eq!(text.matches("</details>").count(), 301);
    let few = markdown(&sweep(2), &[]).unwrap();
    let tables = "\n\n<details><summary>Percentile table</summary>\n\n| Percentile | TTFT, ms | \
    ITL, ms | TPOT, ms | Latency, ms | Input tokens |";
    assert_eq!(
        (
            few.matches("<details>").count(),
            few.matches(tables).count()
        ),
        (4, 2),
        "{few}"
    );
}

#[test]
fn a_note_shared_by_all_cases_is_written_once() {
    let mut report = sweep(12);
    report.manifest.notes = vec!["clock was read once".into()];
    report.cases[3].notes = vec!["odd | one".into()];
    for case in &mut report.cases {
        case.notes.push("odd, all of them".into());
    }
    let notes = notes::markdown_notes(&report);
    assert_eq!(notes[..2], ["clock was read once", "odd, all of them"]);
    assert_eq!(notes[2..], ["`concurrency=8`: odd \\| one"]);
    report
        .cases
        .iter_mut()
        .take(6)
        .for_each(|case| case.notes = vec!["six".into()]);
    assert!(
        notes::markdown_notes(&report).contains(
            &"`concurrency=1`, `concurrency=2`, `concurrency=4`, `concurrency=8` and 2 more: six"
                .to_owned()
        )
    );
}

#[test]
fn the_report_shows_verdicts_that_the_load_generator_may_have_changed() {
    use llmscen_core::check::Ruling;
    use llmscen_core::report::ObjectiveAudit;
    let mut report = sweep(1);
    let case = &mut report.cases[0];
    let audit = |measured, slow, fast, reasons: &[&str]| ObjectiveAudit {
        expr: "x".into(),
        measured,
        slow,
        fast,
        observed: [Some(480.0), Some(480.0), Some(460.0)],
        reasons: reasons
            .iter()
            .map(|why| Cause::LoadGenerator.reason(why))
            .collect(),
    };
    let (pass, fail) = (Some(Ruling::Pass), Some(Ruling::Fail));
    case.audit.objectives = vec![
        audit(Ruling::Fail, fail, pass, &["it would pass"]),
        audit(Ruling::Pass, pass, pass, &[]),
    ];
    case.verdicts[0].ruling = Ruling::Invalid;
    let text = markdown(&report, &[]).unwrap();
    assert!(
        text.contains("2 objectives were judged three times")
            && text.contains("1 of 2 had the same verdict each time"),
        "{text}"
    );
    let row = "| `concurrency=1` | `ttft.p99 < 500ms` | FAIL 480 ms | FAIL 480 ms | PASS 460 ms | it would pass |";
    assert!(
        text.contains(row) && text.matches("it would pass").count() == 1,
        "{text}"
    );
    assert!(text.contains("| **1 of 2 INVALID** |"), "{text}");
}
