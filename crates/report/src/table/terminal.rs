//! Tables in a terminal: aligned columns. In a narrow terminal the least important columns are dropped.

use crate::format::{plain, shorten};
use crate::table::{Cell, Column, Emphasis, Kind, Table};
use std::collections::BTreeSet;

/// Spaces between two columns.
const GAP: usize = 2;
/// The width below which a text column is not cut, unless the column sets its own.
pub(super) const MIN_WIDTH: usize = 12;

/// The terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    /// Width in characters; None: not a terminal, so no column is dropped and no rule is drawn.
    pub(crate) width: Option<usize>,
    /// Whether colors are shown.
    pub(crate) color: bool,
}

impl Emphasis {
    /// The text in the color of the emphasis, one of the 16 ANSI colors.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Emphasis::None => return text.to_owned(),
            Emphasis::Pass => "32",
            Emphasis::Fail => "31",
            Emphasis::Inconclusive | Emphasis::Invalid => "33",
            Emphasis::Muted => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// A column with the texts of its cells.
struct Layout<'a> {
    head: &'a str,
    is_numeric: bool,
    rank: u8,
    min_width: usize,
    /// One for each row.
    texts: Vec<(String, Emphasis)>,
}

impl<'a> Layout<'a> {
    fn new(column: &'a Column, index: usize, table: &Table) -> Option<Layout<'a>> {
        let shown = column.terminal.as_ref()?;
        let cells = table.rows.iter().filter_map(|row| row.cells.get(index));
        let texts = cells
            .map(|cell| (plain(&terminal_text(cell)), cell.emphasis))
            .collect();
        Some(Layout {
            head: &shown.head,
            is_numeric: column.is_numeric,
            rank: shown.rank,
            min_width: shown.min_width,
            texts,
        })
    }

    fn natural_width(&self) -> usize {
        self.texts
            .iter()
            .map(|(text, _)| text.chars().count())
            .chain([self.head.chars().count()])
            .max()
            .unwrap_or(0)
    }

    /// The width from which the texts of a column that is always shown differ when cut; at least `min_width`.
    fn distinct_width(&self, min_width: usize) -> usize {
        if self.is_numeric || self.rank > 0 {
            return min_width;
        }
        let texts: BTreeSet<&str> = self.texts.iter().map(|(text, _)| text.as_str()).collect();
        let differ = |width: &usize| {
            texts
                .iter()
                .map(|text| shorten(text, *width))
                .collect::<BTreeSet<_>>()
                .len()
                == texts.len()
        };
        (min_width..).find(differ).unwrap_or(min_width)
    }
}

fn terminal_text(cell: &Cell) -> String {
    match (&cell.terminal, cell.kind) {
        (Some(text), _) => text.clone(),
        (None, Kind::Verdict) => cell.text.to_uppercase(),
        (None, _) => cell.text.clone(),
    }
}

/// The table as lines with a final newline; empty without rows.
pub(super) fn render(table: &Table, screen: Screen) -> String {
    if table.rows.is_empty() {
        return String::new();
    }
    let columns: Vec<Layout<'_>> = table
        .columns
        .iter()
        .enumerate()
        .filter_map(|(index, column)| Layout::new(column, index, table))
        .collect();
    let natural: Vec<usize> = columns.iter().map(Layout::natural_width).collect();
    let cut: Vec<usize> = columns
        .iter()
        .zip(&natural)
        .map(|(column, natural)| {
            if column.is_numeric {
                *natural
            } else {
                column.min_width.min(*natural)
            }
        })
        .collect();
    let distinct: Vec<usize> = columns
        .iter()
        .zip(&cut)
        .map(|(column, min_width)| column.distinct_width(*min_width))
        .collect();
    // Drop columns rather than cut names until they look alike, but keep the table within the width.
    let fits = |kept: &[usize]| {
        screen
            .width
            .is_none_or(|width| total_width(&distinct, kept) <= width)
    };
    let (kept, min_widths) = Some(kept_columns(&columns, &distinct, screen.width))
        .filter(|kept| fits(kept))
        .map_or_else(
            || (kept_columns(&columns, &cut, screen.width), &cut),
            |kept| (kept, &distinct),
        );
    let widths = fit_widths(&natural, min_widths, &kept, screen.width);
    let line = |cell: &dyn Fn(&Layout<'_>) -> (String, Emphasis)| {
        let cells = kept.iter().zip(&widths).map(|(&index, &width)| {
            pad(
                &cell(&columns[index]),
                columns[index].is_numeric,
                width,
                screen.color,
            )
        });
        cells
            .collect::<Vec<_>>()
            .join(&" ".repeat(GAP))
            .trim_end()
            .to_owned()
            + "\n"
    };
    let head = line(&|column| (column.head.to_owned(), Emphasis::Muted));
    let rule = screen
        .width
        .map(|_| "─".repeat(widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)));
    let paint = |rule: String| {
        if screen.color {
            Emphasis::Muted.paint(&rule)
        } else {
            rule
        }
    };
    let rule = rule.map(|rule| paint(rule) + "\n").unwrap_or_default();
    let body: String = (0..table.rows.len())
        .map(|row| line(&|column| column.texts[row].clone()))
        .collect();
    format!("{head}{rule}{body}")
}

fn total_width(widths: &[usize], kept: &[usize]) -> usize {
    kept.iter().map(|index| widths[*index]).sum::<usize>() + GAP * kept.len().saturating_sub(1)
}

/// The columns that fit if each has its minimum width.
fn kept_columns(columns: &[Layout<'_>], min_widths: &[usize], width: Option<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    while width.is_some_and(|width| total_width(min_widths, &kept) > width) {
        let Some(&last) = kept
            .iter()
            .filter(|index| columns[**index].rank > 0)
            .max_by_key(|index| (columns[**index].rank, **index))
        else {
            break;
        };
        kept.retain(|index| *index != last);
    }
    kept
}

/// Widths of the kept columns; the widest are cut first.
fn fit_widths(
    natural: &[usize],
    min_widths: &[usize],
    kept: &[usize],
    width: Option<usize>,
) -> Vec<usize> {
    let mut widths: Vec<usize> = kept.iter().map(|index| natural[*index]).collect();
    let Some(width) = width else { return widths };
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        let cuttable = (0..widths.len()).filter(|index| widths[*index] > min_widths[kept[*index]]);
        let Some(widest) = cuttable.max_by_key(|index| widths[*index]) else {
            break;
        };
        widths[widest] -= 1;
    }
    widths
}

fn pad((text, emphasis): &(String, Emphasis), right: bool, width: usize, color: bool) -> String {
    let text = shorten(text, width);
    let space = " ".repeat(width.saturating_sub(text.chars().count()));
    let text = if color { emphasis.paint(&text) } else { text };
    if right { space + &text } else { text + &space }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Row;

    fn columns() -> Vec<Column> {
        vec![
            Column::text().terminal("CASE", 0),
            Column::number().terminal("P99", 0),
            Column::text().terminal("NOTE", 2),
        ]
    }

    fn row(case: &str, p99: &str, note: &str) -> Row {
        Row::new(vec![
            Cell::prose(case),
            Cell::figure(p99, None::<f64>).emphasized(Emphasis::Fail),
            Cell::prose(note),
        ])
    }

    fn drawn(width: Option<usize>, color: bool) -> String {
        let rows = vec![
            row("concurrency=1", "8 ms", ""),
            row("concurrency=16", "1.24 s", "needs about 299 samples"),
        ];
        render(&Table::new(columns(), rows), Screen { width, color })
    }

    #[test]
    fn columns_line_up() {
        let text = "CASE               P99  \
        NOTE\n─────────────────────────────────────────────────\nconcurrency=1     8 \
        ms\nconcurrency=16  1.24 s  needs about 299 samples\n";
        let rule = "─".repeat(14 + 2 + 6 + 2 + 23);
        let expected = text.replace("─────────────────────────────────────────────────", &rule);
        assert_eq!(drawn(Some(80), false), expected);
        assert_eq!(
            drawn(None, false),
            expected.replace(&format!("{rule}\n"), "")
        );
    }

    #[test]
    fn texts_are_cut_first_and_then_columns_dropped() {
        let narrow = drawn(Some(40), false);
        assert!(
            narrow.contains("concurrency=16  1.24 s  needs about 299…\n")
                && narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
        assert_eq!(
            drawn(Some(24), false).lines().next(),
            Some("CASE               P99")
        );
        assert_eq!(
            drawn(Some(5), false).lines().last(),
            Some("concurrency…  1.24 s")
        );
    }

    #[test]
    fn names_stay_different_while_a_column_can_be_dropped() {
        let row = |case: &str| row(case, "1.24 s", "needs more");
        let rows = vec![
            row("concurrency=16,max_tokens=64"),
            row("concurrency=16,max_tokens=128"),
        ];
        let table = Table::new(columns(), rows);
        let cases = |width| -> Vec<String> {
            let text = render(
                &table,
                Screen {
                    width: Some(width),
                    color: false,
                },
            );
            text.lines().skip(2).map(str::to_owned).collect()
        };
        assert_eq!(
            cases(40),
            [
                "concurrency=16,max_tokens=64   1.24 s",
                "concurrency=16,max_tokens=128  1.24 s"
            ]
        );
        assert_eq!(
            cases(24),
            ["concurrency=16,…  1.24 s", "concurrency=16,…  1.24 s"]
        );
    }

    #[test]
    fn color_changes_nothing_but_color() {
        let strip = |text: &str| {
            ["\u{1b}[31m", "\u{1b}[2m", "\u{1b}[0m"]
                .iter()
                .fold(text.to_owned(), |text, code| text.replace(code, ""))
        };
        let bare: Vec<String> = strip(&drawn(Some(80), true))
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        assert_eq!(bare, drawn(Some(80), false).lines().collect::<Vec<_>>());
        assert!(drawn(Some(80), true).contains("\u{1b}[31m1.24 s\u{1b}[0m"));
    }

    #[test]
    fn control_characters_are_removed() {
        let text = render(
            &Table::new(columns(), vec![row("a\u{1b}[2Jb\n", "", "")]),
            Screen {
                width: None,
                color: false,
            },
        );
        assert_eq!(text.lines().last(), Some("a [2Jb"));
        assert_eq!(
            render(
                &Table::new(columns(), Vec::new()),
                Screen {
                    width: None,
                    color: true
                }
            ),
            ""
        );
    }
}
