//! Lines that are not blank.

use super::{Finder, Flaw, Span, file, fits};
use memchr::memchr;

/// Lines without their line ends (`\n` or `\r\n`).
#[derive(Default)]
pub struct Lines {
    line: Option<Begun>,
}

/// A line whose end has not arrived.
struct Begun {
    start: u64,
    end: u64,
    /// Only blanks so far.
    blank: bool,
    /// The last byte is a carriage return.
    after_cr: bool,
}

impl Lines {
    fn grow(&mut self, part: &[u8], at: u64) {
        let Some(last) = part.last() else { return };
        let line = self.line.get_or_insert(Begun { start: at, end: at, blank: true, after_cr: false });
        line.end = at + part.len() as u64;
        line.blank &= part.trim_ascii().is_empty();
        line.after_cr = *last == b'\r';
    }

    /// Files the line, which a line feed ended, or the end of the text.
    fn close(&mut self, fed: bool, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        match self.line.take() {
            Some(line) if !line.blank => file(line.start, line.end - u64::from(fed && line.after_cr), rows),
            _ => Ok(()),
        }
    }
}

impl Finder for Lines {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let (mut rest, mut at) = (piece, at);
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            self.grow(line, at);
            self.close(true, rows)?;
            (rest, at) = (&after[1..], at + end as u64 + 1);
        }
        self.grow(rest, at);
        fits(self.line.as_ref().map(|line| line.start), at + rest.len() as u64)
    }

    fn end(&mut self, _at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        self.close(false, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn lines_lose_their_ends_and_nothing_else_however_they_arrive() {
        let text = "one\r\n\n  two  words \t\n \r\n\r inner\rreturn\r\r\nlast \r";
        for piece in 1..=text.len() {
            assert_eq!(
                found(Lines::default(), text, piece).unwrap(),
                ["one", "  two  words \t", "\r inner\rreturn\r", "last \r"],
                "{piece}"
            );
        }
    }
}
