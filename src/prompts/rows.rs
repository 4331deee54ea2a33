//! Where the rows of a text lie: lines, or the elements of a JSON list.

use super::text::line_at;
use serde::de::IgnoredAny;
use std::ops::Range;

/// A text that is not what it began as.
#[derive(Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Line of the flaw, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// The lines that are not blank, without the blanks around them.
pub fn lines(text: &str) -> Vec<Range<usize>> {
    let start = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| start(line)..start(line) + line.len()).collect()
}

/// The elements of a JSON list where the text is one, otherwise its lines (JSONL).
pub fn json(text: &str) -> Result<Vec<Range<usize>>, Flaw> {
    if !text.trim_start().starts_with('[') {
        return Ok(lines(text));
    }
    let flaw = |at: usize, problem: &str| Flaw { line: line_at(&text.as_bytes()[..at]), problem: problem.to_owned() };
    let mut rows = Vec::new();
    let mut at = skip(text, 0) + 1;
    loop {
        at = skip(text, at);
        if rows.is_empty() && text[at..].starts_with(']') {
            return ended(text, at + 1, rows);
        }
        let end = at + element(&text[at..]).map_err(|inner| Flaw { line: flaw(at, "").line + inner.line - 1, ..inner })?;
        rows.push(at..end);
        at = skip(text, end);
        match text.as_bytes().get(at) {
            Some(b',') => at += 1,
            Some(b']') => return ended(text, at + 1, rows),
            Some(_) => return Err(flaw(at, "the JSON list has neither `,` nor `]` after an element")),
            None => return Err(flaw(at, "the JSON list does not end")),
        }
    }
}

fn ended(text: &str, at: usize, rows: Vec<Range<usize>>) -> Result<Vec<Range<usize>>, Flaw> {
    let rest = skip(text, at);
    if rest == text.len() {
        return Ok(rows);
    }
    Err(Flaw { line: line_at(&text.as_bytes()[..rest]), problem: "there is more text after the JSON list".into() })
}

/// Length of the JSON value that `text` begins with.
fn element(text: &str) -> Result<usize, Flaw> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(_)) => Ok(values.byte_offset()),
        Some(Err(error)) => Err(Flaw { line: error.line(), problem: reason(&error) }),
        None => Err(Flaw { line: 1, problem: "the JSON list does not end".into() }),
    }
}

/// What serde_json says, without its own line and column.
pub fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cut = text.rfind(" at line ").unwrap_or(text.len());
    format!("not JSON ({})", &text[..cut])
}

fn skip(text: &str, at: usize) -> usize {
    text.len() - text[at..].trim_ascii_start().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Result<Vec<&str>, Flaw> {
        json(text).map(|rows| rows.into_iter().map(|row| &text[row]).collect())
    }

    fn flaw(line: usize, problem: &str) -> Flaw {
        Flaw { line, problem: problem.into() }
    }

    #[test]
    fn lines_lose_blanks_and_carriage_returns() {
        let text = "one\r\n\n  two  \n \nthree";
        let parts: Vec<&str> = lines(text).into_iter().map(|row| &text[row]).collect();
        assert_eq!(parts, ["one", "two", "three"]);
    }

    #[test]
    fn a_list_and_lines_give_the_same_rows() {
        let rows = [r#"{"a":1}"#, r#"{"a":[1,{"b":"]"}]}"#, "null"];
        assert_eq!(parts(&rows.join("\n")).unwrap(), rows);
        assert_eq!(parts(&format!(" [\n{}\n] \n", rows.join(",\n"))).unwrap(), rows);
        assert_eq!(parts("[]").unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn a_broken_list_is_found_by_line() {
        assert_eq!(parts("[\n{},\n{\n\"a\" 1}]"), Err(flaw(4, "not JSON (expected `:`)")));
        assert_eq!(parts("[\n{}\n{}]"), Err(flaw(3, "the JSON list has neither `,` nor `]` after an element")));
        assert_eq!(parts("[\n{},\n"), Err(flaw(3, "the JSON list does not end")));
        assert_eq!(parts("[{}]\n x"), Err(flaw(2, "there is more text after the JSON list")));
        assert_eq!(parts("[{},]"), Err(flaw(1, "not JSON (expected value)")));
    }
}
