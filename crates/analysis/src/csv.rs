//! Writes cases.csv, one row per case.

use crate::error::TableError;
use crate::request_row::source_name;
use llmscen_core::escape::escape_csv_cell;
use llmscen_core::metric::{Metric, Scope, Stat};
use llmscen_core::report::CaseReport;
use llmscen_core::sample::SummaryStatistics;
use std::io::Write;

/// A column: its name, and the text of a case.
struct Column<'a> {
    name: String,
    text: Box<CaseText<'a>>,
}

/// The text of a case; None: an empty cell.
type CaseText<'a> = dyn Fn(&CaseReport) -> Option<String> + 'a;
/// A statistic of a distribution.
type Statistic = dyn Fn(&SummaryStatistics) -> Option<f64>;

impl<'a> Column<'a> {
    fn new(
        name: impl Into<String>,
        text: impl Fn(&CaseReport) -> Option<String> + 'a,
    ) -> Column<'a> {
        Column {
            name: name.into(),
            text: Box::new(text),
        }
    }

    /// A column of what the user wrote.
    fn free(name: &str, text: impl Fn(&CaseReport) -> Option<String> + 'a) -> Column<'a> {
        Column::new(escape_csv_cell(name), move |case| {
            text(case).map(|text| escape_csv_cell(&text).into_owned())
        })
    }

    fn number(
        name: impl Into<String>,
        number: impl Fn(&CaseReport) -> Option<f64> + 'a,
    ) -> Column<'a> {
        // The debug form keeps the `.0` of a whole number, so that readers see one type.
        Column::new(name, move |case| {
            number(case).map(|number| format!("{number:?}"))
        })
    }
}

/// Writes id, swept values, counts, every case-level metric, and every distribution in flat columns such as
/// `ttft_ms_p99`. Missing values are empty.
///
/// # Errors
/// `out` cannot be written to.
pub fn cases_csv(cases: &[CaseReport], out: impl Write) -> Result<(), TableError> {
    let mut columns = label_columns(cases);
    columns.extend(count_columns());
    for &metric in Metric::ALL {
        if metric.per() == Scope::Case {
            columns.push(Column::number(metric.column(), move |case| {
                case.scalars.get(&metric).copied()
            }));
        }
    }
    for &metric in Metric::ALL {
        if metric.per() != Scope::Case {
            columns.extend(distribution_columns(metric));
        }
    }
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(|column| &column.name))?;
    for case in cases {
        let texts = columns.iter().map(|column| (column.text)(case));
        writer.write_record(texts.map(Option::unwrap_or_default))?;
    }
    writer.flush().map_err(csv::Error::from)?;
    Ok(())
}

fn label_columns(cases: &[CaseReport]) -> Vec<Column<'_>> {
    let mut paths: Vec<&str> = Vec::new();
    for (path, _) in cases.iter().flat_map(|case| &case.labels.0) {
        if !paths.contains(&path.as_str()) {
            paths.push(path);
        }
    }
    let labels = paths.into_iter().map(|path| {
        Column::free(path, move |case| {
            case.labels.get(path).map(ToString::to_string)
        })
    });
    let id = Column::free("case", |case| Some(case.id.clone()));
    let load = Column::free("load", |case| Some(case.load.clone()));
    [id].into_iter().chain(labels).chain([load]).collect()
}

fn count_columns() -> [Column<'static>; 12] {
    let count = |name: &str, get: fn(&CaseReport) -> u64| {
        Column::new(name, move |case| Some(get(case).to_string()))
    };
    [
        count("rounds", |case| u64::from(case.rounds)),
        count("scheduled", |case| case.counts.scheduled),
        count("ok", |case| case.counts.ok),
        count("failed", |case| case.counts.failed),
        count("abandoned", |case| case.counts.abandoned),
        count("dropped", |case| case.counts.dropped),
        count("warmup", |case| case.counts.warmup),
        count("cooldown", |case| case.counts.cooldown),
        count("reconnects", |case| case.counts.reconnects),
        count("retries", |case| case.counts.retries),
        Column::new("token_source", |case| {
            case.token_source.map(|source| source_name(source).into())
        }),
        Column::new("valid", |case| Some(case.audit.valid.to_string())),
    ]
}

fn distribution_columns(metric: Metric) -> Vec<Column<'static>> {
    let column = |stat: &str, get: Box<Statistic>| {
        Column::number(format!("{}_{stat}", metric.column()), move |case| {
            case.distributions.get(&metric).and_then(&get)
        })
    };
    let n = Column::new(format!("{}_n", metric.column()), move |case| {
        let distribution = case.distributions.get(&metric)?;
        Some(distribution.n.to_string())
    });
    let quantiles = SummaryStatistics::SHARES.iter().map(|&share| {
        let name = Stat::Quantile(share).to_string();
        column(
            &name,
            Box::new(move |distribution| distribution.quantile(share)),
        )
    });
    [
        n,
        column("mean", Box::new(|distribution| Some(distribution.mean))),
        column("sd", Box::new(|distribution| distribution.sd)),
        column("min", Box::new(|distribution| Some(distribution.min))),
    ]
    .into_iter()
    .chain(quantiles)
    .chain([column(
        "max",
        Box::new(|distribution| Some(distribution.max)),
    )])
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::label::{Labels, Scalar};
    use llmscen_core::report::TokenSource;
    use std::collections::BTreeMap;

    fn csv(cases: &[CaseReport]) -> Vec<Vec<String>> {
        let mut bytes = Vec::new();
        cases_csv(cases, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| line.split(',').map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn every_figure_has_its_column_and_what_is_absent_is_empty() {
        let spread = SummaryStatistics {
            n: 2,
            mean: 1.5,
            sd: None,
            min: 1.0,
            max: 2.0,
            quantiles: (1..=13).map(f64::from).collect(),
        };
        let full = CaseReport {
            id: "concurrency=8".into(),
            labels: Labels(vec![("load.concurrency".into(), Scalar::Int(8))]),
            load: "concurrency 8".into(),
            scalars: BTreeMap::from([(Metric::ErrorRate, 0.25)]),
            distributions: BTreeMap::from([(Metric::Ttft, spread)]),
            token_source: Some(TokenSource::Events),
            ..CaseReport::default()
        };
        let lines = csv(&[
            full,
            CaseReport {
                id: "base".into(),
                ..CaseReport::default()
            },
        ]);
        let cell = |row: usize, name: &str| {
            let at = lines[0]
                .iter()
                .position(|head| head == name)
                .unwrap_or_else(|| panic!("no column {name}"));
            lines[row][at].as_str()
        };
        assert_eq!(
            lines[0][..4],
            ["case", "load.concurrency", "load", "rounds"]
        );
        assert_eq!(
            (cell(1, "load.concurrency"), cell(2, "load.concurrency")),
            ("8", "")
        );
        assert_eq!(
            (
                cell(1, "error_rate"),
                cell(2, "error_rate"),
                cell(1, "token_source")
            ),
            ("0.25", "", "events")
        );
        let flat = ["n", "mean", "sd", "min", "p1", "p50", "p99", "p99.9", "max"];
        let known = ["2", "1.5", "", "1.0", "1.0", "5.0", "12.0", "13.0", "2.0"];
        assert_eq!(flat.map(|stat| cell(1, &format!("ttft_ms_{stat}"))), known);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    }

    #[test]
    fn no_text_is_a_formula_for_a_spreadsheet() {
        let labels = Labels(vec![
            ("vars.x".into(), Scalar::Text("@SUM(A1)".into())),
            ("vars.n".into(), Scalar::Int(-5)),
        ]);
        let odd = CaseReport {
            id: "=1+1".into(),
            labels,
            load: "-x".into(),
            ..CaseReport::default()
        };
        assert_eq!(csv(&[odd])[1][..4], ["'=1+1", "'@SUM(A1)", "-5", "'-x"]);
    }

    #[test]
    fn a_comma_in_a_label_is_quoted() {
        let odd = CaseReport {
            id: "models=a,b".into(),
            ..CaseReport::default()
        };
        let mut bytes = Vec::new();
        cases_csv(&[odd], &mut bytes).unwrap();
        assert!(
            String::from_utf8(bytes)
                .unwrap()
                .lines()
                .nth(1)
                .unwrap()
                .starts_with("\"models=a,b\",")
        );
    }
}
