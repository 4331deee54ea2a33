//! Foreign text inside Markdown: it may be shown, it may not be markup.

use crate::format::plain;

/// A code span that is safe in a table cell: one line, a fence longer than any run of backticks in it, pipes escaped.
/// Empty for empty text, because Markdown has no empty code span.
pub fn code(text: &str) -> String {
    let text = plain(text);
    if text.is_empty() {
        return text;
    }
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{}{pad}{fence}", text.replace('|', "\\|"))
}

fn longest_run(text: &str, wanted: char) -> usize {
    text.split(|c| c != wanted).map(str::len).max().unwrap_or(0)
}

/// Prose in which nothing is markup but code spans that close: our own notes use them, a server's words may too.
pub fn prose(text: &str) -> String {
    let text = plain(text);
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return markless(&text);
    }
    let render = |(index, part): (usize, &&str)| if index % 2 == 1 { code(part) } else { markless(part) };
    parts.iter().enumerate().map(render).collect()
}

fn markless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let chars: Vec<char> = text.chars().collect();
    for (index, &c) in chars.iter().enumerate() {
        let inside_word = |at: Option<usize>| at.and_then(|at| chars.get(at)).is_some_and(|c| c.is_alphanumeric());
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '_' if inside_word(index.checked_sub(1)) && inside_word(Some(index + 1)) => out.push(c),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '$' | '~' | '#' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_span_holds_whatever_it_is_given() {
        let table = [
            ("plain", "`plain`"),
            ("a|b", "`a\\|b`"),
            ("a `b` c", "``a `b` c``"),
            ("``x", "``` ``x ```"),
            ("a\n| b |", "`a \\| b \\|`"),
            ("<img src=x>", "`<img src=x>`"),
            ("", ""),
            ("\u{0}\u{1b}", ""),
        ];
        for (text, span) in table {
            assert_eq!(code(text), span, "{text:?}");
        }
    }

    #[test]
    fn prose_keeps_words_and_closed_code_and_loses_markup() {
        let table = [
            ("output_tps of _x_", "output_tps of \\_x\\_"),
            ("needs `target.gpus`.", "needs `target.gpus`."),
            ("an open ` tick", "an open \\` tick"),
            ("<b> & *c* | $d$ [e](f)", "&lt;b> &amp; \\*c\\* \\| \\$d\\$ \\[e\\](f)"),
            ("line\nbreak", "line break"),
        ];
        for (text, safe) in table {
            assert_eq!(prose(text), safe, "{text:?}");
        }
    }
}
