//! The table of every section. It is built once; each output format renders the columns that have a head for it.

mod terminal;

pub(crate) use terminal::Screen;

use crate::ReportError;
use crate::format::{ABSENT, code, number, plain, prose};
use llmscen_core::check::Ruling;
use llmscen_core::escape::escape_csv_cell as guard_formula;
use llmscen_core::report::{CaseReport, RunVerdict};
use minijinja::HtmlEscape;
use serde_json::{Map, Value, json};

/// A table. A row has a cell for every column, whichever formats show the column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// Columns, in the same order in every format.
    pub(crate) columns: Vec<Column>,
    /// Rows.
    pub(crate) rows: Vec<Row>,
    /// Whether a click on a head sorts the HTML table.
    pub(crate) is_sortable: bool,
}

/// A column: its head in each format that shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    is_numeric: bool,
    /// Whether HTML shows it on demand only.
    is_rare: bool,
    markdown: Option<String>,
    html: Option<String>,
    terminal: Option<TerminalColumn>,
    /// Key in CSV and JSON.
    key: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
struct TerminalColumn {
    head: String,
    /// 0: always shown. The column with the greatest rank is dropped first.
    rank: u8,
    /// Its texts are not cut shorter than this.
    min_width: usize,
}

impl Column {
    const fn new(is_numeric: bool) -> Column {
        Column {
            is_numeric,
            is_rare: false,
            markdown: None,
            html: None,
            terminal: None,
            key: None,
        }
    }

    /// A text column that no format shows yet.
    pub(crate) const fn text() -> Column {
        Column::new(false)
    }

    /// A column of numbers, aligned to the right, that no format shows yet.
    pub(crate) const fn number() -> Column {
        Column::new(true)
    }

    /// Shows the column in Markdown and HTML.
    pub(crate) fn documents(self, head: &str) -> Column {
        self.markdown(head).html(head)
    }

    /// Shows the column in Markdown.
    pub(crate) fn markdown(self, head: &str) -> Column {
        Column {
            markdown: Some(head.to_owned()),
            ..self
        }
    }

    /// Shows the column in HTML.
    pub(crate) fn html(self, head: &str) -> Column {
        Column {
            html: Some(head.to_owned()),
            ..self
        }
    }

    /// In HTML, shows the column on demand only.
    pub(crate) fn rare(self) -> Column {
        Column {
            is_rare: true,
            ..self
        }
    }

    /// Shows the column in a terminal. `rank`: 0 is always shown, the greatest is dropped first.
    pub(crate) fn terminal(self, head: &str, rank: u8) -> Column {
        Column {
            terminal: Some(TerminalColumn {
                head: head.to_owned(),
                rank,
                min_width: terminal::MIN_WIDTH,
            }),
            ..self
        }
    }

    /// In a terminal, drops other columns before its texts are cut shorter than this.
    pub(crate) fn at_least(mut self, width: usize) -> Column {
        if let Some(terminal) = &mut self.terminal {
            terminal.min_width = width;
        }
        self
    }

    /// Exports the column under this key in CSV and JSON.
    pub(crate) fn key(self, key: &'static str) -> Column {
        Column {
            key: Some(key),
            ..self
        }
    }
}

/// The columns of a table of `T`, each with the cell that an item has in it.
pub(crate) struct Columns<'a, T>(Vec<(Column, CellOf<'a, T>)>);

type CellOf<'a, T> = Box<dyn Fn(&T) -> Cell + 'a>;

impl<'a, T> Columns<'a, T> {
    /// No column yet.
    pub(crate) fn new() -> Columns<'a, T> {
        Columns(Vec::new())
    }

    /// Adds a column.
    pub(crate) fn add(self, column: Column, cell: impl Fn(&T) -> Cell + 'a) -> Columns<'a, T> {
        self.add_if(true, column, cell)
    }

    /// Adds a column where `is_shown`.
    pub(crate) fn add_if(
        mut self,
        is_shown: bool,
        column: Column,
        cell: impl Fn(&T) -> Cell + 'a,
    ) -> Columns<'a, T> {
        if is_shown {
            self.0.push((column, Box::new(cell)));
        }
        self
    }

    /// A row for each item.
    pub(crate) fn table(self, items: impl IntoIterator<Item = T>) -> Table {
        self.table_with(items, |_, row| row)
    }

    /// A row for each item, which `finish` completes.
    pub(crate) fn table_with(
        self,
        items: impl IntoIterator<Item = T>,
        finish: impl Fn(&T, Row) -> Row,
    ) -> Table {
        let row = |item: T| {
            let cells = self.0.iter().map(|(_, cell)| cell(&item)).collect();
            finish(&item, Row::new(cells))
        };
        let rows = items.into_iter().map(row).collect();
        Table::new(self.0.into_iter().map(|(column, _)| column).collect(), rows)
    }
}

/// What a row of a table about cases is about.
pub(crate) trait OfCase {
    /// The case, with its index in the report.
    fn case(&self) -> (usize, &CaseReport);
}

impl OfCase for (usize, &CaseReport) {
    fn case(&self) -> (usize, &CaseReport) {
        *self
    }
}

impl<T> OfCase for (usize, &CaseReport, T) {
    fn case(&self) -> (usize, &CaseReport) {
        (self.0, self.1)
    }
}

impl<'a, T: OfCase> Columns<'a, T> {
    /// Adds the column of the case.
    pub(crate) fn add_case(self, column: Column) -> Columns<'a, T> {
        self.add(column, |item| {
            let (index, case) = item.case();
            Cell::case(index, &case.id)
        })
    }

    /// A row for each item, marked with its case.
    pub(crate) fn table_by_case(self, items: impl IntoIterator<Item = T>) -> Table {
        self.table_with(items, |item, row| row.case(&item.case().1.id))
    }
}

/// A row, with its case, metric or objective.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// Cells, one for each column.
    pub(crate) cells: Vec<Cell>,
    /// Whether it is a traffic class of the case above it.
    pub(crate) is_group: bool,
    case: Option<String>,
    metric: Option<String>,
    objective: Option<String>,
}

impl Row {
    /// A row of cells.
    pub(crate) fn new(cells: Vec<Cell>) -> Row {
        Row {
            cells,
            ..Row::default()
        }
    }

    /// Sets the case.
    pub(crate) fn case(self, id: &str) -> Row {
        Row {
            case: Some(id.to_owned()),
            ..self
        }
    }

    /// Sets the metric.
    pub(crate) fn metric(self, name: &str) -> Row {
        Row {
            metric: Some(name.to_owned()),
            ..self
        }
    }

    /// Marks the row as a traffic class of the case above it.
    pub(crate) fn group(self) -> Row {
        Row {
            is_group: true,
            ..self
        }
    }

    /// Sets the objective.
    pub(crate) fn objective(self, expression: &str) -> Row {
        Row {
            objective: Some(expression.to_owned()),
            ..self
        }
    }
}

/// How the text of a cell is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text in which closed code spans are code.
    Prose,
    Code,
    /// Text without any formatting.
    Key,
    Number,
    /// A verdict; Markdown and HTML add its symbol.
    Verdict,
}

/// The color of a cell in a terminal and in HTML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Emphasis {
    #[default]
    None,
    Pass,
    Fail,
    Inconclusive,
    Invalid,
    Muted,
}

impl Emphasis {
    /// The CSS class.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Emphasis::None => "",
            Emphasis::Pass => "pass",
            Emphasis::Fail => "fail",
            Emphasis::Inconclusive => "inconclusive",
            Emphasis::Invalid => "invalid",
            Emphasis::Muted => "muted",
        }
    }

    /// A symbol for readers who cannot see the color.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Emphasis::Pass => "✓",
            Emphasis::Fail => "✗",
            Emphasis::Inconclusive => "?",
            Emphasis::Invalid => "⚠",
            Emphasis::None | Emphasis::Muted => "",
        }
    }

    fn emoji(self) -> &'static str {
        match self {
            Emphasis::Pass => "✅",
            Emphasis::Fail => "❌",
            Emphasis::Inconclusive => "❔",
            Emphasis::Invalid => "⚠️",
            Emphasis::None | Emphasis::Muted => "",
        }
    }
}

impl From<RunVerdict> for Emphasis {
    fn from(verdict: RunVerdict) -> Emphasis {
        match verdict {
            RunVerdict::Pass => Emphasis::Pass,
            RunVerdict::Fail | RunVerdict::Error => Emphasis::Fail,
            RunVerdict::Inconclusive => Emphasis::Inconclusive,
            RunVerdict::Invalid => Emphasis::Invalid,
        }
    }
}

impl From<Ruling> for Emphasis {
    fn from(ruling: Ruling) -> Emphasis {
        match ruling {
            Ruling::Pass => Emphasis::Pass,
            Ruling::Fail => Emphasis::Fail,
            Ruling::Inconclusive => Emphasis::Inconclusive,
            Ruling::Invalid => Emphasis::Invalid,
        }
    }
}

/// A cell: a raw value and its formatted text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell {
    kind: Kind,
    /// Formatted, before any medium escapes it.
    pub(crate) text: String,
    /// For CSV, JSON and the attributes of HTML; null where there is no value.
    pub(crate) value: Value,
    emphasis: Emphasis,
    /// The text in a terminal, if it differs.
    terminal: Option<String>,
    /// The text in Markdown, already escaped, if it differs.
    markdown: Option<String>,
    /// Metric and statistic of the value, attributes of the HTML cell.
    metric: String,
    stat: String,
    /// The URL fragment that the cell links to.
    link: Option<String>,
}

/// A raw value of a cell. Infinite numbers become words, since JSON has no infinity.
pub(crate) trait RawValue {
    fn into_value(self) -> Value;
}

impl RawValue for Option<f64> {
    fn into_value(self) -> Value {
        match self {
            Some(value) if value.is_infinite() => json!(if value > 0.0 { "inf" } else { "-inf" }),
            value => json!(value),
        }
    }
}

impl RawValue for f64 {
    fn into_value(self) -> Value {
        Some(self).into_value()
    }
}

impl RawValue for &str {
    fn into_value(self) -> Value {
        json!(self)
    }
}

impl RawValue for u64 {
    fn into_value(self) -> Value {
        json!(self)
    }
}

impl Cell {
    fn new(kind: Kind, text: String, value: Value) -> Cell {
        Cell {
            kind,
            text,
            value,
            emphasis: Emphasis::None,
            terminal: None,
            markdown: None,
            metric: String::new(),
            stat: String::new(),
            link: None,
        }
    }

    /// Text in which closed code spans are code.
    pub(crate) fn prose(text: &str) -> Cell {
        Cell::new(Kind::Prose, text.to_owned(), json!(text))
    }

    /// Text in code style.
    pub(crate) fn code(text: &str) -> Cell {
        Cell::new(Kind::Code, text.to_owned(), json!(text))
    }

    /// The id of the case at this index of the report, linked to its section.
    pub(crate) fn case(index: usize, id: &str) -> Cell {
        Cell {
            link: Some(case_anchor(index)),
            ..Cell::code(id)
        }
    }

    /// The value of a swept key; the first one of a row links to the case at this index.
    pub(crate) fn key(value: &str, case: Option<usize>) -> Cell {
        Cell {
            link: case.map(case_anchor),
            ..Cell::new(Kind::Key, value.to_owned(), json!(value))
        }
    }

    /// A formatted number and its value.
    pub(crate) fn figure(text: impl Into<String>, value: impl RawValue) -> Cell {
        Cell::new(Kind::Number, text.into(), value.into_value())
    }

    /// A number with three significant digits; its unit is in the head of the column.
    pub(crate) fn number(value: Option<f64>) -> Cell {
        Cell::figure(value.map_or_else(|| ABSENT.to_owned(), number), value)
    }

    /// A count.
    pub(crate) fn count(value: u64) -> Cell {
        Cell::figure(value.to_string(), value)
    }

    /// A verdict: with its symbol in Markdown and HTML, in capitals in a terminal.
    pub(crate) fn verdict(text: &str, emphasis: Emphasis) -> Cell {
        Cell::new(Kind::Verdict, text.to_owned(), json!(text)).emphasized(emphasis)
    }

    /// The verdict of an objective.
    pub(crate) fn ruling(ruling: Ruling) -> Cell {
        Cell::verdict(ruling.name(), ruling.into())
    }

    /// A cell for CSV and JSON only.
    pub(crate) fn raw(value: Value) -> Cell {
        Cell::new(Kind::Prose, String::new(), value)
    }

    /// Sets the metric and statistic, which become attributes of the HTML cell.
    pub(crate) fn with_stat(self, metric: &str, stat: &str) -> Cell {
        Cell {
            metric: metric.to_owned(),
            stat: stat.to_owned(),
            ..self
        }
    }

    /// Sets the emphasis.
    pub(crate) fn emphasized(self, emphasis: Emphasis) -> Cell {
        Cell { emphasis, ..self }
    }

    /// Replaces the raw value.
    pub(crate) fn with_value(self, value: impl RawValue) -> Cell {
        Cell {
            value: value.into_value(),
            ..self
        }
    }

    /// Replaces the text in a terminal.
    pub(crate) fn in_terminal(self, text: String) -> Cell {
        Cell {
            terminal: Some(text),
            ..self
        }
    }

    /// Replaces the text in Markdown, which must already be escaped.
    pub(crate) fn in_markdown(self, text: String) -> Cell {
        Cell {
            markdown: Some(text),
            ..self
        }
    }

    fn to_markdown(&self) -> String {
        match (&self.markdown, self.kind) {
            (Some(text), _) => text.clone(),
            (None, Kind::Prose) => prose(&self.text),
            (None, Kind::Code) => code(&self.text),
            (None, Kind::Key) => prose(&self.text),
            (None, Kind::Number) => self.text.clone(),
            (None, Kind::Verdict) => format!("{} {}", self.emphasis.emoji(), self.text),
        }
    }

    /// `is_rare`: whether its column is shown on demand only.
    fn to_html(&self, is_rare: bool) -> String {
        let text = match self.kind {
            Kind::Prose => prose_html(&self.text),
            Kind::Code => code_html(&self.text),
            Kind::Key => HtmlEscape(&plain(&self.text)).to_string(),
            Kind::Number => HtmlEscape(&self.text).to_string(),
            Kind::Verdict => format!("{} {}", self.emphasis.symbol(), HtmlEscape(&self.text)),
        };
        let layout = match self.kind {
            Kind::Number => "n",
            Kind::Verdict => "judgement",
            Kind::Prose | Kind::Code if plain(&self.text).chars().count() > MAX_LINE => "long",
            Kind::Prose | Kind::Code | Kind::Key => "",
        };
        let rare = if is_rare { "more" } else { "" };
        let classes = [layout, self.emphasis.class(), rare]
            .into_iter()
            .filter(|class| !class.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        let value = self
            .value
            .as_f64()
            .filter(|_| self.kind == Kind::Number)
            .map(|value| json!(value).to_string())
            .unwrap_or_default();
        let attributes: String = [
            ("class", &classes),
            ("data-metric", &self.metric),
            ("data-stat", &self.stat),
            ("data-value", &value),
        ]
        .into_iter()
        .map(|(name, value)| attribute(name, Some(value).filter(|value| !value.is_empty())))
        .collect();
        match &self.link {
            Some(link) => format!("<td{attributes}><a href=\"#{link}\">{text}</a></td>"),
            None => format!("<td{attributes}>{text}</td>"),
        }
    }

    fn to_csv(&self) -> String {
        match &self.value {
            Value::Null => String::new(),
            Value::String(text) => guard_formula(&plain(text)).into_owned(),
            // serde_json writes whole floats as `500.0`.
            Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
            other => other.to_string(),
        }
    }
}

/// An HTML cell with a longer text wraps.
const MAX_LINE: usize = 40;

/// The URL fragment of a case's section in the HTML page.
pub(crate) fn case_anchor(index: usize) -> String {
    format!("case-{index}")
}

fn attribute(name: &str, value: Option<&String>) -> String {
    value
        .map(|value| format!(" {name}=\"{}\"", HtmlEscape(value)))
        .unwrap_or_default()
}

fn code_html(text: &str) -> String {
    format!("<code>{}</code>", HtmlEscape(&plain(text)))
}

/// Text as HTML: closed code spans become `<code>`, a single backtick stays.
pub(crate) fn prose_html(text: &str) -> String {
    let text = plain(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return HtmlEscape(&text).to_string();
    }
    let parts = parts
        .iter()
        .enumerate()
        .filter(|(_, part)| !part.is_empty());
    parts
        .map(|(index, part)| {
            if index % 2 == 1 {
                code_html(part)
            } else {
                HtmlEscape(part).to_string()
            }
        })
        .collect()
}

impl Table {
    /// A table of rows.
    pub(crate) fn new(columns: Vec<Column>, rows: Vec<Row>) -> Table {
        Table {
            columns,
            rows,
            is_sortable: false,
        }
    }

    /// In HTML, a click on a head sorts the table.
    pub(crate) fn sortable(self) -> Table {
        Table {
            is_sortable: true,
            ..self
        }
    }

    /// Removes the first column.
    pub(crate) fn without_first_column(mut self) -> Table {
        self.columns.drain(..self.columns.len().min(1));
        self.rows
            .iter_mut()
            .for_each(|row| drop(row.cells.drain(..row.cells.len().min(1))));
        self
    }

    /// Removes the column with this head of HTML.
    pub(crate) fn without(mut self, head: &str) -> Table {
        let found = self
            .columns
            .iter()
            .position(|column| column.html.as_deref() == Some(head));
        if let Some(index) = found {
            self.columns.remove(index);
            self.rows
                .iter_mut()
                .for_each(|row| drop(row.cells.remove(index)));
        }
        self
    }

    /// The rows whose metric is asked for, and the others.
    pub(crate) fn partition(self, is_asked: impl Fn(&str) -> bool) -> (Table, Table) {
        let (some, others) = self
            .rows
            .into_iter()
            .partition(|row| row.metric.as_deref().is_some_and(&is_asked));
        let table = |rows| Table {
            columns: self.columns.clone(),
            rows,
            is_sortable: self.is_sortable,
        };
        (table(some), table(others))
    }

    /// The table for a terminal, with a final newline; empty without rows.
    pub(crate) fn terminal(&self, screen: Screen) -> String {
        terminal::render(self, screen)
    }

    /// The table in Markdown, without a final newline; empty without rows.
    pub(crate) fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown: Vec<(usize, &Column, &str)> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(index, column)| Some((index, column, column.markdown.as_deref()?)))
            .collect();
        let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let heads = line(shown.iter().map(|(.., head)| (*head).to_owned()).collect());
        let heads = if shown.iter().all(|(.., head)| head.is_empty()) {
            heads.replace("  ", " ")
        } else {
            heads
        };
        let rule = line(
            shown
                .iter()
                .map(|(_, column, _)| if column.is_numeric { "---:" } else { "---" }.to_owned())
                .collect(),
        );
        let rows = self.rows.iter().map(|row| {
            line(
                shown
                    .iter()
                    .map(|(index, ..)| row.cells[*index].to_markdown())
                    .collect(),
            )
        });
        [heads, rule]
            .into_iter()
            .chain(rows)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The table in HTML with this accessible label; empty without rows.
    pub(crate) fn html(&self, label: &str) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown: Vec<usize> = (0..self.columns.len())
            .filter(|index| self.columns[*index].html.is_some())
            .collect();
        let head = |index: &usize| {
            let column = &self.columns[*index];
            let class = match (column.is_numeric, column.is_rare) {
                (true, true) => " class=\"n more\"",
                (true, false) => " class=\"n\"",
                (false, true) => " class=\"more\"",
                (false, false) => "",
            };
            format!(
                "<th scope=\"col\"{class}>{}</th>",
                HtmlEscape(column.html.as_deref().unwrap_or_default())
            )
        };
        let row = |row: &Row| {
            let attributes = [
                ("data-case", &row.case),
                ("data-metric", &row.metric),
                ("data-slo", &row.objective),
            ]
            .map(|(name, value)| attribute(name, value.as_ref()));
            let cells: String = shown
                .iter()
                .map(|index| row.cells[*index].to_html(self.columns[*index].is_rare))
                .collect();
            format!("<tr{}>{cells}</tr>\n", attributes.concat())
        };
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
            aria-label=\"{}\"><table{}>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>",
            HtmlEscape(label),
            if self.is_sortable {
                " class=\"sorts\""
            } else {
                ""
            },
            shown.iter().map(head).collect::<String>(),
            self.rows.iter().map(row).collect::<String>()
        )
    }

    fn keys(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.columns
            .iter()
            .enumerate()
            .filter_map(|(index, column)| Some((index, column.key?)))
    }

    /// The raw values, separated by `delimiter`, below a line of keys.
    ///
    /// # Errors
    /// [`ReportError::Csv`] where a row cannot be written.
    pub(crate) fn csv(&self, delimiter: u8) -> Result<String, ReportError> {
        let mut writer = csv::WriterBuilder::new()
            .delimiter(delimiter)
            .from_writer(Vec::new());
        writer.write_record(self.keys().map(|(_, key)| key))?;
        for row in &self.rows {
            writer.write_record(self.keys().map(|(index, _)| row.cells[index].to_csv()))?;
        }
        let bytes = writer
            .into_inner()
            .map_err(|error| ReportError::Csv(error.into_error().into()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The raw values as a list of objects.
    pub(crate) fn json(&self) -> Value {
        let object = |row: &Row| {
            self.keys()
                .map(|(index, key)| (key.to_owned(), row.cells[index].value.clone()))
                .collect::<Map<_, _>>()
        };
        Value::Array(self.rows.iter().map(object).map(Value::Object).collect())
    }

    /// The cell of a row under this head of Markdown or HTML.
    #[cfg(test)]
    pub(crate) fn cell(&self, row: usize, head: &str) -> &Cell {
        let found = self
            .columns
            .iter()
            .position(|column| [&column.markdown, &column.html].contains(&&Some(head.to_owned())));
        &self.rows[row].cells[found.unwrap()]
    }

    /// The rows in Markdown, each as the texts of its cells.
    #[cfg(test)]
    pub(crate) fn markdown_rows(&self) -> Vec<Vec<String>> {
        let shown = |row: &Row| {
            assert_eq!(row.cells.len(), self.columns.len());
            let cells = row
                .cells
                .iter()
                .zip(&self.columns)
                .filter(|(_, column)| column.markdown.is_some());
            cells.map(|(cell, _)| cell.to_markdown()).collect()
        };
        self.rows.iter().map(shown).collect()
    }

    /// The heads in Markdown.
    #[cfg(test)]
    pub(crate) fn markdown_heads(&self) -> Vec<&str> {
        self.columns
            .iter()
            .filter_map(|column| column.markdown.as_deref())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_code_spans_are_code_and_a_single_backtick_stays() {
        assert_eq!(
            prose_html("needs `a<b` now"),
            "needs <code>a&lt;b</code> now"
        );
        assert_eq!(prose_html("a ` b\n"), "a ` b");
    }

    #[test]
    fn a_raw_value_is_written_as_results_json_writes_it() {
        let html = |value: Option<f64>| Cell::figure("x", value).to_html(false);
        assert_eq!(
            html(Some(0.1 + 0.2)),
            "<td class=\"n\" data-value=\"0.30000000000000004\">x</td>"
        );
        assert!(html(Some(3.0)).contains(" data-value=\"3.0\""));
        let plain = "<td class=\"n\">x</td>";
        assert_eq!(
            [html(None), html(Some(f64::NAN)), html(Some(f64::INFINITY))],
            [plain; 3]
        );
    }

    #[test]
    fn an_infinite_value_is_a_word() {
        let values = [Some(f64::INFINITY), Some(-1.5), None].map(RawValue::into_value);
        assert_eq!(values, [json!("inf"), json!(-1.5), Value::Null]);
    }

    #[test]
    fn a_format_shows_the_columns_that_have_a_head_for_it() {
        let columns = vec![
            Column::text()
                .documents("Case")
                .terminal("CASE", 0)
                .key("case"),
            Column::number().html("n").key("n"),
            Column::text().markdown("Verdict").terminal("VERDICT", 0),
        ];
        let row = Row::new(vec![
            Cell::code("a|b"),
            Cell::count(3),
            Cell::ruling(Ruling::Fail),
        ])
        .case("a|b");
        let table = Table::new(columns, vec![row]);
        assert_eq!(
            table.markdown(),
            "| Case | Verdict |\n| --- | --- |\n| `a\\|b` | ❌ fail |"
        );
        assert_eq!(
            table.terminal(Screen {
                width: None,
                color: false
            }),
            "CASE  VERDICT\na|b   FAIL\n"
        );
        assert_eq!(table.csv(b',').unwrap(), "case,n\na|b,3\n");
        let whole = Cell::figure("500 ms", 500.0);
        assert_eq!(
            (
                whole.to_csv().as_str(),
                Cell::figure("", 0.05).to_csv().as_str()
            ),
            ("500", "0.05")
        );
        assert_eq!(table.json(), json!([{ "case": "a|b", "n": 3 }]));
        let html = table.html("Cases");
        assert!(
            html.contains(
                "<tr data-case=\"a|b\"><td><code>a|b</code></td><td class=\"n\" \
            data-value=\"3.0\">3</td></tr>"
            ),
            "{html}"
        );
        assert!(
            html.contains("<th scope=\"col\">Case</th><th scope=\"col\" class=\"n\">n</th>"),
            "{html}"
        );
    }
}
