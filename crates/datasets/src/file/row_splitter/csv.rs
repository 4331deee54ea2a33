//! The records of a CSV text: quoted fields may hold line ends.

use super::{Finder, Flaw, Span, file, fits};
use memchr::{memchr, memchr3};

#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// At the beginning of a field.
    Start,
    /// In a field without quotes.
    Plain,
    /// Between quotes.
    Quoted,
    /// Behind a quote between quotes: the end of them, or the first half of a quote.
    Quote,
}

/// Records, the header among them; empty lines are none.
pub struct Records {
    delimiter: u8,
    place: Place,
    /// Where the record that has begun begins.
    start: Option<u64>,
}

impl Records {
    /// Records whose fields are parted by this byte.
    pub fn new(delimiter: u8) -> Records {
        Records { delimiter, place: Place::Start, start: None }
    }

    fn close(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let start = self.start.replace(at + 1).unwrap_or(at);
        self.place = Place::Start;
        if at > start { file(start, at, rows) } else { Ok(()) }
    }
}

impl Finder for Records {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        // Not zero where a byte order mark stands before the first record.
        self.start.get_or_insert(at);
        let mut used = 0;
        while let Some(&byte) = piece.get(used) {
            match self.place {
                Place::Quoted => match memchr(b'"', &piece[used..]) {
                    Some(next) => (used, self.place) = (used + next + 1, Place::Quote),
                    None => break,
                },
                Place::Quote if byte == b'"' => (used, self.place) = (used + 1, Place::Quoted),
                Place::Quote => self.place = Place::Plain,
                Place::Start if byte == b'"' => (used, self.place) = (used + 1, Place::Quoted),
                Place::Start | Place::Plain => match memchr3(self.delimiter, b'\n', b'\r', &piece[used..]) {
                    Some(next) => {
                        used += next + 1;
                        match piece.get(used - 1) == Some(&self.delimiter) {
                            true => self.place = Place::Start,
                            false => self.close(at + used as u64 - 1, rows)?,
                        }
                    }
                    None => {
                        self.place = Place::Plain;
                        break;
                    }
                },
            }
        }
        fits(self.start, at + piece.len() as u64)
    }

    fn end(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        if self.place == Place::Quoted {
            return Err(Flaw::new(self.start.unwrap_or(at), "a quote in this record does not end"));
        }
        self.close(at, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn parts(text: &str) -> Result<Vec<String>, Flaw> {
        let whole = found(Records::new(b','), text, text.len());
        for piece in 1..text.len() {
            assert_eq!(found(Records::new(b','), text, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn line_ends_between_quotes_do_not_end_a_record() {
        let rows = ["a,b", "1,\"two\nlines, \"\"quoted\"\"\"", "5\" pipe,x\"y", "\"\",", "\"q\"tail,\"\r\n\""];
        assert_eq!(parts(&rows.join("\n")).unwrap(), rows);
        assert_eq!(parts(&format!("{}\r\n\r\n", rows.join("\r\n"))).unwrap(), rows);
    }

    #[test]
    fn a_quote_that_does_not_end_is_found_where_its_record_begins() {
        assert_eq!(parts("a,b\n1,\"x\n2,y\n"), Err(Flaw::new(4, "a quote in this record does not end")));
    }
}
