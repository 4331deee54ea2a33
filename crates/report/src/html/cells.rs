//! Tables as HTML has them: cells of plain words, the raw value beside what is shown of it.

use crate::format::{ABSENT, number, plain};
use crate::missing_values::mark;
use llmscen_core::metric::{Metric, Stat};
use llmscen_core::report::CaseReport;
use serde::Serialize;

/// A stretch of text, as code or as prose. The template escapes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Piece {
    code: bool,
    text: String,
}

/// Prose whose closed code spans are code; a tick that closes nothing is a tick.
pub fn rich(text: &str) -> Vec<Piece> {
    let text = plain(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return vec![Piece { code: false, text }];
    }
    let pieces = parts.iter().enumerate().map(|(index, part)| Piece { code: index % 2 == 1, text: (*part).to_owned() });
    pieces.filter(|piece| !piece.text.is_empty()).collect()
}

/// Characters of a cell that are not broken into lines.
const ONE_LINE: usize = 40;

/// One cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    pieces: Vec<Piece>,
    /// The raw value, written as results.json writes it.
    value: Option<String>,
    metric: Option<String>,
    stat: Option<String>,
    /// How it is laid out: a number, or words too long for one line; and the ruling that colours it.
    class: Option<&'static str>,
    tone: Option<&'static str>,
    /// Fragment that it leads to.
    link: Option<String>,
}

/// The class of words that are too long for one line.
fn long(text: &str) -> Option<&'static str> {
    (text.chars().count() > ONE_LINE).then_some("long")
}

impl Cell {
    /// Words in which code spans are code.
    pub fn prose(text: &str) -> Cell {
        Cell { pieces: rich(text), class: long(text), ..Cell::default() }
    }

    /// Code.
    pub fn code(text: &str) -> Cell {
        Cell { pieces: vec![Piece { code: true, text: plain(text) }], class: long(text), ..Cell::default() }
    }

    /// A figure: what is shown of it, and its raw value.
    pub fn figure(shown: String, raw: Option<f64>) -> Cell {
        let value = raw.and_then(|raw| serde_json::to_string(&raw).ok()).filter(|text| text != "null");
        Cell { pieces: vec![Piece { code: false, text: shown }], value, class: Some("n"), ..Cell::default() }
    }

    /// The same cell of this metric and statistic, by which it is found.
    pub fn of(self, metric: &str, stat: &str) -> Cell {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Cell { metric: some(metric), stat: some(stat), ..self }
    }

    /// The same cell in the colour of a ruling.
    pub fn toned(self, tone: &'static str) -> Cell {
        Cell { tone: Some(tone), ..self }
    }

    /// The same cell as a link within the page.
    pub fn leading(self, to: String) -> Cell {
        Cell { link: Some(to), ..self }
    }
}

/// A metric of a case that has one value.
pub fn scalar(case: &CaseReport, metric: Metric) -> Cell {
    let value = case.scalars.get(&metric).copied();
    Cell::figure(shown(case, metric, value), value).of(metric.column(), "")
}

/// A quantile of a case.
pub fn quantile(case: &CaseReport, metric: Metric, share: f64) -> Cell {
    let value = case.distributions.get(&metric).and_then(|seen| seen.quantile(share));
    Cell::figure(shown(case, metric, value), value).of(metric.column(), &Stat::Quantile(share).to_string())
}

/// A figure of this metric as text, marked where it is doubtful.
pub fn shown(case: &CaseReport, metric: Metric, value: Option<f64>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{}{}", mark(case, metric), number(value)))
}

/// A head: its words, and whether numbers stand under it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    text: String,
    numeric: bool,
}

/// A row, and what its cells have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The case it is about.
    pub case: Option<String>,
    /// The metric it is about.
    pub metric: Option<String>,
    /// The limit it is about.
    pub slo: Option<String>,
    /// Cells.
    pub cells: Vec<Cell>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    head: Vec<Head>,
    /// Rows.
    pub rows: Vec<Row>,
    /// Whether its heads sort it.
    sorts: bool,
}

impl Table {
    /// A table whose heads tell the alignment: those that begin with `>` stand over numbers.
    pub fn new(heads: &[&str], rows: Vec<Row>) -> Table {
        let head = |head: &&str| Head { text: head.trim_start_matches('>').to_owned(), numeric: head.starts_with('>') };
        Table { head: heads.iter().map(head).collect(), rows, sorts: false }
    }

    /// The same table without its first column.
    pub fn narrower(mut self) -> Table {
        self.head.drain(..self.head.len().min(1));
        self.rows.iter_mut().for_each(|row| drop(row.cells.drain(..row.cells.len().min(1))));
        self
    }

    /// The same table with heads that sort it.
    pub fn sorting(self) -> Table {
        Table { sorts: true, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_ticks_are_code_and_open_ones_are_ticks() {
        let told = |text: &str| rich(text).into_iter().map(|piece| (piece.code, piece.text)).collect::<Vec<_>>();
        assert_eq!(told("needs `a<b` now"), [(false, "needs ".into()), (true, "a<b".into()), (false, " now".into())]);
        assert_eq!(told("a ` b\n"), [(false, "a ` b".to_owned())]);
    }

    #[test]
    fn a_raw_value_is_written_as_results_json_writes_it() {
        let raw = |value| Cell::figure(String::new(), value).value;
        assert_eq!((raw(Some(0.1 + 0.2)), raw(Some(3.0))), (Some("0.30000000000000004".into()), Some("3.0".into())));
        assert_eq!((raw(None), raw(Some(f64::NAN))), (None, None));
    }
}
