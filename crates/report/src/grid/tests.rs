use super::*;
use crate::fixture::{case, failing, no_data, report_of};
use crate::probes::tests::searched;
use llmscen_core::report::RunVerdict;

fn odd() -> Report {
    let mut report = report_of(vec![case(4), failing(), no_data()], RunVerdict::Fail, 1);
    report.cases[1].id = "a,b=\"c\"\td\ne".into();
    report
}

#[test]
fn what_is_read_back_is_what_was_reported() {
    for delimiter in *b",\t" {
        let report = odd();
        let text = separated(&report, delimiter).unwrap();
        let blocks: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(blocks.len(), 2);
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(blocks[0].as_bytes());
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), CASES);
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!((&rows[1][1], &rows[1][4], &rows[1][5]), ("a,b=\"c\" d e", "229", "240"));
        let p99 = report.cases[0].distributions[&Metric::Ttft].quantile(0.99).unwrap();
        assert_eq!(rows[0][11].parse::<f64>().unwrap(), p99, "not a digit is lost");
        assert_eq!(&rows[2][11], "", "what does not exist is empty");
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(blocks[1].as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 5);
        assert_eq!((&rows[0][2], &rows[0][6], &rows[0][7]), ("ttft.p99 < 500ms", "500.0", "ms"));
    }
}

#[test]
fn json_has_a_row_as_an_object() {
    let whole: Value = serde_json::from_str(&objects(&odd()).unwrap()).unwrap();
    assert_eq!((&whole["scenario"], &whole["verdict"], &whole["exit_code"]), (&json!("chat"), &json!("fail"), &json!(1)));
    assert_eq!(whole["cases"].as_array().unwrap().len(), 3);
    assert_eq!(whole["cases"][0].as_object().unwrap().keys().collect::<Vec<_>>(), CASES);
    assert_eq!((&whole["cases"][2]["ttft_p99_ms"], &whole["limits"][4]["observed"]), (&Value::Null, &Value::Null));
    assert!(whole.get("probes").is_none());
}

#[test]
fn a_search_has_its_probes() {
    let grid = &grids(&searched())[2];
    assert_eq!((grid.name, grid.rows.len()), ("probes", 4));
    assert!(grid.rows.iter().all(|row| row.len() == grid.heads.len()));
    assert_eq!(grid.rows[2][3..7], [json!(3), json!("concurrency=16"), json!(16.0), json!("narrow")]);
    assert!(markdown(&searched()).contains("| # | concurrency | For |"), "{}", markdown(&searched()));
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

#[test]
fn an_infinite_value_has_a_word() {
    assert_eq!([number(Some(f64::INFINITY)), number(Some(-1.5)), number(None)], [json!("inf"), json!(-1.5), Value::Null]);
}
