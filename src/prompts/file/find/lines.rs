//! Lines that are not blank.

use super::{Finder, Flaw, Span, file};
use memchr::memchr;

/// Lines, without the blanks around them.
#[derive(Default)]
pub struct Lines {
    /// From the first byte that is not blank to behind the last one, of the line that has begun.
    line: Option<(u64, u64)>,
}

impl Lines {
    fn grow(&mut self, part: &[u8], at: u64) {
        let body = part.trim_ascii_start();
        let start = at + (part.len() - body.len()) as u64;
        let body = body.trim_ascii_end();
        if !body.is_empty() {
            self.line = Some((self.line.map_or(start, |(first, _)| first), start + body.len() as u64));
        }
    }

    fn close(&mut self, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        self.line.take().map_or(Ok(()), |(start, end)| file(start, end, rows))
    }
}

impl Finder for Lines {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let (mut rest, mut at) = (piece, at);
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            self.grow(line, at);
            self.close(rows)?;
            (rest, at) = (after, at + line.len() as u64);
        }
        self.grow(rest, at);
        Ok(())
    }

    fn end(&mut self, _at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        self.close(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn lines_lose_blanks_and_carriage_returns_however_they_arrive() {
        let text = "one\r\n\n  two  words  \n \nthree";
        for piece in 1..=text.len() {
            assert_eq!(found(Lines::default(), text, piece).unwrap(), ["one", "two  words", "three"], "{piece}");
        }
    }
}
