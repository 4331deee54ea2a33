//! The tables that `run` and `report` print with `--format`: raw values in CSV, TSV or JSON, or those of report.md in
//! Markdown.

use crate::cases::{cases, cases_without_groups};
use crate::objectives::objectives;
use crate::search::probes;
use crate::table::Table;
use crate::{ReportError, format, headline};
use llmscen_core::report::Report;
use llmscen_core::search::SearchReport;
use serde_json::{Map, json};

/// The cases, the objectives, and the probes of searches, each with its key in JSON.
fn tables(report: &Report) -> Vec<(&'static str, Table)> {
    let searches: Vec<(usize, &SearchReport)> = report.searches.iter().enumerate().collect();
    let probes = (!searches.is_empty()).then(|| ("probes", probes(report, &searches)));
    [
        ("cases", cases(report)),
        ("limits", objectives(report, |_| true)),
    ]
    .into_iter()
    .chain(probes)
    .collect()
}

/// All tables, each with a line of keys, separated by empty lines. `delimiter`: `,` or a tab.
///
/// # Errors
/// [`ReportError::Csv`] if a row cannot be written.
pub fn csv(report: &Report, delimiter: u8) -> Result<String, ReportError> {
    let tables: Result<Vec<String>, ReportError> = tables(report)
        .iter()
        .map(|(_, table)| table.csv(delimiter))
        .collect();
    Ok(tables?.join("\n"))
}

/// One object with the verdict and each table as a list of objects.
///
/// # Errors
/// [`ReportError::Json`] if a value cannot be serialized.
pub fn json(report: &Report) -> Result<String, ReportError> {
    let mut document = Map::new();
    document.insert("scenario".to_owned(), json!(report.manifest.name));
    document.insert("verdict".to_owned(), serde_json::to_value(report.verdict)?);
    document.insert("exit_code".to_owned(), json!(report.exit_code));
    document.insert("reason".to_owned(), json!(headline::reason(report)));
    document.extend(
        tables(report)
            .into_iter()
            .map(|(key, table)| (key.to_owned(), table.json())),
    );
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// The verdict and the tables of `report.md`.
pub fn markdown(report: &Report) -> String {
    let verdict = format!(
        "**{}**: {}",
        headline::verdict_name(report.verdict),
        format::prose(&headline::reason(report))
    );
    let objectives = match report.searches.is_empty() {
        true => vec![objectives(report, |_| true)],
        false => report
            .searches
            .iter()
            .enumerate()
            .map(|search| probes(report, &[search]))
            .collect(),
    };
    let tables = std::iter::once(cases_without_groups(report))
        .chain(objectives)
        .filter(|table| !table.rows.is_empty());
    tables
        .map(|table| table.markdown() + "\n")
        .chain([verdict + "\n"])
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{case, failing, no_data, report_of, searched};
    use llmscen_core::metric::Metric;
    use llmscen_core::report::RunVerdict;
    use serde_json::Value;

    const CASES: [&str; 17] = [
        "scenario",
        "case",
        "entry",
        "load",
        "ok",
        "scheduled",
        "error_rate_share",
        "requests_per_s",
        "output_tokens_per_s",
        "token_source",
        "ttft_p50_ms",
        "ttft_p99_ms",
        "itl_p50_ms",
        "itl_p99_ms",
        "tpot_p50_ms",
        "e2e_p50_ms",
        "e2e_p99_ms",
    ];

    const PROBES: [&str; 12] = [
        "scenario",
        "search",
        "vary",
        "probe",
        "case",
        "load",
        "purpose",
        "n",
        "verdict",
        "holds_share",
        "output_tokens_per_s",
        "goodput_requests_per_s",
    ];

    fn report_with_special_characters() -> Report {
        let mut report = report_of(vec![case(4), failing(), no_data()], RunVerdict::Fail, 1);
        report.cases[1].id = "a,b=\"c\"\td\ne".into();
        report
    }

    #[test]
    fn csv_reads_back_as_reported() {
        for delimiter in *b",\t" {
            let report = report_with_special_characters();
            let text = csv(&report, delimiter).unwrap();
            let blocks: Vec<&str> = text.split("\n\n").collect();
            assert_eq!(blocks.len(), 2);
            let mut reader = ::csv::ReaderBuilder::new()
                .delimiter(delimiter)
                .from_reader(blocks[0].as_bytes());
            assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), CASES);
            let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
            assert_eq!(
                (&rows[1][1], &rows[1][4], &rows[1][5]),
                ("a,b=\"c\" d e", "229", "240")
            );
            let p99 = report.cases[0].distributions[&Metric::Ttft]
                .quantile(0.99)
                .unwrap();
            assert_eq!(
                rows[0][11].parse::<f64>().unwrap(),
                p99,
                "all digits are kept"
            );
            assert_eq!(&rows[2][11], "", "a missing value is empty");
            let mut reader = ::csv::ReaderBuilder::new()
                .delimiter(delimiter)
                .from_reader(blocks[1].as_bytes());
            let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
            assert_eq!(rows.len(), 5);
            assert_eq!(
                (&rows[0][2], &rows[0][6], &rows[0][7]),
                ("ttft.p99 < 500ms", "500", "ms")
            );
        }
    }

    #[test]
    fn json_has_a_row_as_an_object() {
        let document: Value =
            serde_json::from_str(&json(&report_with_special_characters()).unwrap()).unwrap();
        assert_eq!(
            (
                &document["scenario"],
                &document["verdict"],
                &document["exit_code"]
            ),
            (&json!("chat"), &json!("fail"), &json!(1))
        );
        assert_eq!(document["cases"].as_array().unwrap().len(), 3);
        assert_eq!(
            document["cases"][0]
                .as_object()
                .unwrap()
                .keys()
                .collect::<Vec<_>>(),
            CASES
        );
        assert_eq!(
            (
                &document["cases"][2]["ttft_p99_ms"],
                &document["limits"][4]["observed"]
            ),
            (&Value::Null, &Value::Null)
        );
        assert!(document.get("probes").is_none());
    }

    #[test]
    fn a_search_has_its_probes() {
        let read: Value = serde_json::from_str(&json(&searched()).unwrap()).unwrap();
        let probes = read["probes"].as_array().unwrap();
        let keys = probes[2]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>();
        assert_eq!((probes.len(), keys), (4, PROBES.to_vec()));
        let probe = ["probe", "case", "load", "purpose"].map(|key| probes[2][key].clone());
        assert_eq!(
            probe,
            [
                json!(3),
                json!("concurrency=16"),
                json!(16.0),
                json!("narrow")
            ]
        );
        assert!(
            markdown(&searched()).contains("| # | concurrency | Phase |"),
            "{}",
            markdown(&searched())
        );
    }

    #[test]
    fn markdown_has_the_tables_of_the_report() {
        let text = markdown(&report_of(vec![no_data()], RunVerdict::Error, 3));
        insta::assert_snapshot!(text, @r"
        | Case | Load | ok / scheduled | Errors | req/s | Output tok/s | TTFT p50, ms | TTFT p99, ms | ITL p50, ms | ITL p99, ms | TPOT p50, ms | E2E p50, ms | E2E p99, ms |
        | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
        | `base` | burst | 0 / 8 | 100% | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a | n/a |

        | Case | SLO | Verdict | Observed | Bound | Limit | n | Note |
        | --- | --- | --- | ---: | ---: | ---: | ---: | --- |
        | `base` | `ttft.p99 < 500ms` | ❌ fail | n/a | n/a | 500 ms | 0 | no data |

        **ERROR**: no request succeeded: 8 of 8 in `base` failed with `connect`: connection refused.
        ");
    }
}
