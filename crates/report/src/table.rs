//! Tables in a terminal: aligned columns that fit a width by leaving the least ones out.

use crate::format::{plain, shorten};
use std::collections::BTreeSet;

/// What stands between two columns.
const GAP: usize = 2;
/// The narrowest that a column of words is cut to, where it does not say otherwise.
const LEAST: usize = 12;

/// A colour of the terminal's own sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// As the rest.
    None,
    /// Good.
    Green,
    /// Bad.
    Red,
    /// Doubtful.
    Yellow,
    /// Of lesser rank.
    Dim,
}

impl Tint {
    /// The text in this colour.
    pub fn wrap(self, text: &str) -> String {
        let code = match self {
            Tint::None => return text.to_owned(),
            Tint::Green => "32",
            Tint::Red => "31",
            Tint::Yellow => "33",
            Tint::Dim => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// A column: its head, whether numbers stand in it, and how soon it gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Head.
    pub head: &'static str,
    /// Aligned to the right.
    pub right: bool,
    /// 0: always kept; the greater, the sooner it is left out.
    pub rank: u8,
    /// The narrowest that its words are cut to.
    pub least: usize,
}

impl Column {
    /// A column of words.
    pub const fn words(head: &'static str, rank: u8) -> Column {
        Column { head, right: false, rank, least: LEAST }
    }

    /// The same with words that mean nothing when cut shorter: other columns give way first.
    pub const fn at_least(self, least: usize) -> Column {
        Column { least, ..self }
    }

    /// A column of numbers.
    pub const fn numbers(head: &'static str, rank: u8) -> Column {
        Column { head, right: true, rank, least: LEAST }
    }
}

/// A cell.
pub type Cell = (String, Tint);

/// Where the text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns of the terminal; None: not a terminal, so nothing is left out and no rule is drawn.
    pub width: Option<usize>,
    /// Colours.
    pub color: bool,
}

/// The table as lines with a final newline; empty without rows.
pub fn render(columns: &[Column], rows: &[Vec<Cell>], screen: Screen) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().map(|(text, tint)| (plain(text), *tint)).collect()).collect();
    let natural: Vec<usize> = columns.iter().enumerate().map(|(index, column)| natural(column, index, &rows)).collect();
    let cut: Vec<usize> =
        columns.iter().zip(&natural).map(|(own, whole)| if own.right { *whole } else { own.least.min(*whole) }).collect();
    let apart: Vec<usize> = columns.iter().enumerate().map(|(index, own)| apart(own, index, cut[index], &rows)).collect();
    // Names that look the same are worse than fewer figures, but not than a table that is too wide.
    let fits = |kept: &[usize]| screen.width.is_none_or(|width| total(&apart, kept) <= width);
    let (kept, least) = Some(kept(columns, &apart, screen.width))
        .filter(|kept| fits(kept))
        .map_or_else(|| (kept(columns, &cut, screen.width), &cut), |kept| (kept, &apart));
    let widths = fitted(&natural, least, &kept, screen.width);
    let head: Vec<Cell> = columns.iter().map(|column| (column.head.to_owned(), Tint::Dim)).collect();
    let line = |row: &[Cell]| {
        let cells = kept.iter().zip(&widths).map(|(&index, &width)| pad(&row[index], columns[index].right, width, screen.color));
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
    };
    let rule = screen.width.map(|_| "─".repeat(widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)));
    let rule = rule.map(|rule| if screen.color { Tint::Dim.wrap(&rule) } else { rule } + "\n").unwrap_or_default();
    let body: String = rows.iter().map(|row| line(row)).collect();
    format!("{}{rule}{body}", line(&head))
}

fn natural(column: &Column, index: usize, rows: &[Vec<Cell>]) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(index)).map(|(text, _)| text.chars().count());
    cells.chain([column.head.chars().count()]).max().unwrap_or(0)
}

/// The narrowest that a column may be: words in a column that is always kept still differ when they are cut.
fn apart(column: &Column, index: usize, least: usize, rows: &[Vec<Cell>]) -> usize {
    if column.right || column.rank > 0 {
        return least;
    }
    let texts: BTreeSet<&str> = rows.iter().filter_map(|row| row.get(index)).map(|(text, _)| text.as_str()).collect();
    let differ = |width: &usize| texts.iter().map(|text| shorten(text, *width)).collect::<BTreeSet<_>>().len() == texts.len();
    (least..).find(differ).unwrap_or(least)
}

fn total(widths: &[usize], kept: &[usize]) -> usize {
    kept.iter().map(|index| widths[*index]).sum::<usize>() + GAP * kept.len().saturating_sub(1)
}

/// The columns that stay, once words are as narrow as they may be.
fn kept(columns: &[Column], least: &[usize], width: Option<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    while width.is_some_and(|width| total(least, &kept) > width) {
        let Some(&last) =
            kept.iter().filter(|index| columns[**index].rank > 0).max_by_key(|index| (columns[**index].rank, **index))
        else {
            break;
        };
        kept.retain(|index| *index != last);
    }
    kept
}

/// Widths of the kept columns: the widest words give way first.
fn fitted(natural: &[usize], least: &[usize], kept: &[usize], width: Option<usize>) -> Vec<usize> {
    let mut widths: Vec<usize> = kept.iter().map(|index| natural[*index]).collect();
    let Some(room) = width else { return widths };
    let gaps = GAP * widths.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > room {
        let words = (0..widths.len()).filter(|place| widths[*place] > least[kept[*place]]);
        let Some(widest) = words.max_by_key(|place| widths[*place]) else { break };
        widths[widest] -= 1;
    }
    widths
}

fn pad((text, tint): &Cell, right: bool, width: usize, color: bool) -> String {
    let text = shorten(text, width);
    let space = " ".repeat(width.saturating_sub(text.chars().count()));
    let text = if color { tint.wrap(&text) } else { text };
    if right { space + &text } else { text + &space }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [Column::words("CASE", 0), Column::numbers("P99", 0), Column::words("NOTE", 2)];

    fn rows() -> Vec<Vec<Cell>> {
        let row = |case: &str, p99: &str, note: &str| {
            vec![(case.into(), Tint::None), (p99.into(), Tint::Red), (note.into(), Tint::None)]
        };
        vec![row("concurrency=1", "8 ms", ""), row("concurrency=16", "1.24 s", "needs about 299 samples")]
    }

    fn drawn(width: Option<usize>, color: bool) -> String {
        render(&COLUMNS, &rows(), Screen { width, color })
    }

    #[test]
    fn columns_line_up() {
        let text = "CASE               P99  NOTE\n─────────────────────────────────────────────────\nconcurrency=1     8 ms\nconcurrency=16  1.24 s  needs about 299 samples\n";
        let rule = "─".repeat(14 + 2 + 6 + 2 + 23);
        let wanted = text.replace("─────────────────────────────────────────────────", &rule);
        assert_eq!(drawn(Some(80), false), wanted);
        assert_eq!(drawn(None, false), wanted.replace(&format!("{rule}\n"), ""));
    }

    #[test]
    fn words_give_way_then_columns() {
        let narrow = drawn(Some(40), false);
        assert!(
            narrow.contains("concurrency=16  1.24 s  needs about 299…\n")
                && narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
        assert_eq!(drawn(Some(24), false).lines().next(), Some("CASE               P99"));
        assert_eq!(drawn(Some(5), false).lines().last(), Some("concurrency…  1.24 s"));
    }

    #[test]
    fn names_stay_different_while_a_column_can_give_way() {
        let row = |case: &str| vec![(case.into(), Tint::None), ("1.24 s".into(), Tint::None), ("needs more".into(), Tint::None)];
        let rows = [row("concurrency=16,max_tokens=64"), row("concurrency=16,max_tokens=128")];
        let cases = |width| -> Vec<String> {
            let text = render(&COLUMNS, &rows, Screen { width: Some(width), color: false });
            text.lines().skip(2).map(str::to_owned).collect()
        };
        assert_eq!(cases(40), ["concurrency=16,max_tokens=64   1.24 s", "concurrency=16,max_tokens=128  1.24 s"]);
        assert_eq!(cases(24), ["concurrency=16,…  1.24 s", "concurrency=16,…  1.24 s"]);
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let strip = |text: &str| {
            ["\u{1b}[31m", "\u{1b}[2m", "\u{1b}[0m"].iter().fold(text.to_owned(), |text, code| text.replace(code, ""))
        };
        let bare: Vec<String> = strip(&drawn(Some(80), true)).lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(bare, drawn(Some(80), false).lines().collect::<Vec<_>>());
        assert!(drawn(Some(80), true).contains("\u{1b}[31m1.24 s\u{1b}[0m"));
    }

    #[test]
    fn foreign_text_moves_no_cursor() {
        let row = vec![("a\u{1b}[2Jb\n".into(), Tint::None), (String::new(), Tint::None), (String::new(), Tint::None)];
        let text = render(&COLUMNS, &[row], Screen { width: None, color: false });
        assert_eq!(text.lines().last(), Some("a [2Jb"));
        assert_eq!(render(&COLUMNS, &[], Screen { width: None, color: true }), "");
    }
}
