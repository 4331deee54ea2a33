//! Finds the rows of a text while it is read.

use llmscen_core::bounds;
use memchr::{memchr, memchr2, memchr3};

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    pub len: u32,
}

/// A text that violates its format.
#[derive(Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Offset of the flaw.
    pub at: u64,
    pub problem: String,
}

impl Flaw {
    pub fn new(at: u64, problem: &str) -> Flaw {
        Flaw {
            at,
            problem: problem.to_owned(),
        }
    }
}

/// Finds rows in a text that is read in pieces of any size.
pub trait RowSplitter: Send {
    /// Processes the piece at an offset, and adds the rows that end in it.
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw>;

    /// The text ends at an offset.
    fn end(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw>;
}

fn push_row(start: u64, end: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
    check_length(Some(start), end)?;
    let len = u32::try_from(end - start).map_err(|_| Flaw::new(start, "a row of 4 GiB or more"))?;
    rows.push(Span { start, len });
    Ok(())
}

/// Checks the length of a row from `start` to `end`, so that a text without line ends does not fill the disk or the
/// memory.
fn check_length(start: Option<u64>, end: u64) -> Result<(), Flaw> {
    let Some(start) = start.filter(|start| end - start > bounds::ROW) else {
        return Ok(());
    };
    Err(Flaw::new(
        start,
        &format!("the row is longer than {}", bounds::size(bounds::ROW)),
    ))
}

/// Lines that are not blank, without their line ends (`\n` or `\r\n`).
#[derive(Default)]
pub struct Lines {
    line: Option<PartialLine>,
}

/// A line whose end has not been read.
struct PartialLine {
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
        let line = self.line.get_or_insert(PartialLine {
            start: at,
            end: at,
            blank: true,
            after_cr: false,
        });
        line.end = at + part.len() as u64;
        line.blank &= part.trim_ascii().is_empty();
        line.after_cr = *last == b'\r';
    }

    /// Ends the line, by a line feed or the end of the text.
    fn close(&mut self, line_feed: bool, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        match self.line.take() {
            Some(line) if !line.blank => push_row(
                line.start,
                line.end - u64::from(line_feed && line.after_cr),
                rows,
            ),
            _ => Ok(()),
        }
    }
}

impl RowSplitter for Lines {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let mut rest = piece;
        let mut at = at;
        while let Some(end) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            self.grow(line, at);
            self.close(true, rows)?;
            rest = &after[1..];
            at += end as u64 + 1;
        }
        self.grow(rest, at);
        check_length(
            self.line.as_ref().map(|line| line.start),
            at + rest.len() as u64,
        )
    }

    fn end(&mut self, _at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        self.close(false, rows)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum CsvState {
    /// At the beginning of a field.
    Start,
    /// In a field without quotes.
    Plain,
    /// Between quotes.
    Quoted,
    /// After a quote between quotes: the closing one, or the first half of an escaped one.
    Quote,
}

/// Records of CSV, with the header. Empty lines are skipped.
pub struct CsvRecords {
    delimiter: u8,
    state: CsvState,
    /// Offset of the current record.
    start: Option<u64>,
}

impl CsvRecords {
    pub fn new(delimiter: u8) -> CsvRecords {
        CsvRecords {
            delimiter,
            state: CsvState::Start,
            start: None,
        }
    }

    fn close(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let start = self.start.replace(at + 1).unwrap_or(at);
        self.state = CsvState::Start;
        if at > start {
            push_row(start, at, rows)
        } else {
            Ok(())
        }
    }
}

impl RowSplitter for CsvRecords {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        // Not zero where a byte order mark precedes the first record.
        self.start.get_or_insert(at);
        let mut used = 0;
        while let Some(&byte) = piece.get(used) {
            match self.state {
                CsvState::Quoted => match memchr(b'"', &piece[used..]) {
                    Some(next) => (used, self.state) = (used + next + 1, CsvState::Quote),
                    None => break,
                },
                CsvState::Quote if byte == b'"' => {
                    (used, self.state) = (used + 1, CsvState::Quoted)
                }
                CsvState::Quote => self.state = CsvState::Plain,
                CsvState::Start if byte == b'"' => {
                    (used, self.state) = (used + 1, CsvState::Quoted)
                }
                CsvState::Start | CsvState::Plain => {
                    match memchr3(self.delimiter, b'\n', b'\r', &piece[used..]) {
                        Some(next) => {
                            used += next + 1;
                            match piece.get(used - 1) == Some(&self.delimiter) {
                                true => self.state = CsvState::Start,
                                false => self.close(at + used as u64 - 1, rows)?,
                            }
                        }
                        None => {
                            self.state = CsvState::Plain;
                            break;
                        }
                    }
                }
            }
        }
        check_length(self.start, at + piece.len() as u64)
    }

    fn end(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        if self.state == CsvState::Quoted {
            return Err(Flaw::new(
                self.start.unwrap_or(at),
                "a quote in this record is not closed",
            ));
        }
        self.close(at, rows)
    }
}

const NO_SEPARATOR: &str = "the JSON list has neither `,` nor `]` after an element";
const NO_ELEMENT: &str = "not JSON (expected value)";
const NO_END: &str = "the JSON list does not end";
const MORE: &str = "there is more text after the JSON list";

enum ListState {
    /// Before the list.
    Outside,
    /// Before an element; the first one may be missing.
    Before { first: bool },
    /// In a list, a mapping or a text that begins at `start`.
    Inside {
        start: u64,
        depth: u32,
        text: bool,
        escaped: bool,
    },
    /// In a number or a word.
    Scalar { start: u64 },
    /// After an element.
    After,
    /// After the list.
    Done,
}

/// The elements of a JSON list. Only quotes and brackets are checked here; elements are checked when they are parsed.
pub struct JsonList {
    state: ListState,
    /// The list is a member of a mapping, so more text may follow.
    member: bool,
}

impl JsonList {
    /// The text begins with the bracket of the list, or blanks before it.
    pub fn new(member: bool) -> JsonList {
        JsonList {
            state: ListState::Outside,
            member,
        }
    }

    /// Processes the first bytes of `rest`, which are at offset `at`; returns their number.
    fn step(&mut self, rest: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<usize, Flaw> {
        if let ListState::Inside {
            start,
            depth,
            text,
            escaped,
        } = &mut self.state
        {
            let used = skip_inside(rest, depth, text, escaped);
            if *depth == 0 && !*text {
                push_row(*start, at + used as u64, rows)?;
                self.state = ListState::After;
            }
            return Ok(used);
        }
        if let ListState::Scalar { start } = self.state {
            let is_end = |byte: &u8| byte.is_ascii_whitespace() || b",]".contains(byte);
            let Some(used) = rest.iter().position(is_end) else {
                return Ok(rest.len());
            };
            push_row(start, at + used as u64, rows)?;
            self.state = ListState::After;
            return Ok(used);
        }
        let blanks = rest.len() - rest.trim_ascii_start().len();
        let Some(byte) = rest.get(blanks) else {
            return Ok(blanks);
        };
        let at = at + blanks as u64;
        self.between(*byte, at)
            .map(|consumed| blanks + usize::from(consumed))
            .map_err(|problem| Flaw::new(at, problem))
    }

    /// Processes a byte between elements that is not blank; false where the byte is the beginning of an element.
    fn between(&mut self, byte: u8, at: u64) -> Result<bool, &'static str> {
        let (state, consumed) = match (&self.state, byte) {
            (ListState::Outside, b'[') => (ListState::Before { first: true }, true),
            (ListState::Before { first: true }, b']') | (ListState::After, b']') => {
                (ListState::Done, true)
            }
            (ListState::Outside, _) | (ListState::Before { .. }, b']' | b',') => {
                return Err(NO_ELEMENT);
            }
            (ListState::Before { .. }, b'{' | b'[' | b'"') => (
                ListState::Inside {
                    start: at,
                    depth: 0,
                    text: false,
                    escaped: false,
                },
                false,
            ),
            (ListState::Before { .. }, _) => (ListState::Scalar { start: at }, false),
            (ListState::After, b',') => (ListState::Before { first: false }, true),
            (ListState::Done, _) if self.member => (ListState::Done, true),
            (ListState::Done, _) => return Err(MORE),
            (ListState::After | ListState::Inside { .. } | ListState::Scalar { .. }, _) => {
                return Err(NO_SEPARATOR);
            }
        };
        self.state = state;
        Ok(consumed)
    }
}

/// Skips the rest of an element, or all bytes; returns their number.
fn skip_inside(bytes: &[u8], depth: &mut u32, text: &mut bool, escaped: &mut bool) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        if std::mem::take(escaped) {
            at += 1;
        } else if *text {
            let Some(next) = memchr2(b'"', b'\\', &bytes[at..]) else {
                return bytes.len();
            };
            (*text, *escaped) = (bytes[at + next] == b'\\', bytes[at + next] == b'\\');
            at += next + 1;
        } else {
            match bytes[at] {
                b'"' => *text = true,
                b'{' | b'[' => *depth += 1,
                b'}' | b']' => *depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        if *depth == 0 && !*text {
            break;
        }
    }
    at
}

impl RowSplitter for JsonList {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let mut used = 0;
        while used < piece.len() {
            if self.member && matches!(self.state, ListState::Done) {
                break;
            }
            used += self.step(&piece[used..], at + used as u64, rows)?;
        }
        let begun = match self.state {
            ListState::Inside { start, .. } | ListState::Scalar { start } => Some(start),
            _ => None,
        };
        check_length(begun, at + piece.len() as u64)
    }

    fn end(&mut self, at: u64, _rows: &mut Vec<Span>) -> Result<(), Flaw> {
        if matches!(self.state, ListState::Done) {
            Ok(())
        } else {
            Err(Flaw::new(at, NO_END))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a text that is read in pieces of this size.
    fn found(
        mut splitter: impl RowSplitter,
        text: &str,
        piece: usize,
    ) -> Result<Vec<String>, Flaw> {
        let mut rows = Vec::new();
        for (index, part) in text.as_bytes().chunks(piece).enumerate() {
            splitter.push(part, (index * piece) as u64, &mut rows)?;
        }
        splitter.end(text.len() as u64, &mut rows)?;
        let row = |span: Span| text[span.start as usize..][..span.len as usize].to_owned();
        Ok(rows.into_iter().map(row).collect())
    }

    #[test]
    fn lines_lose_only_their_ends_whatever_the_pieces() {
        let text = "one\r\n\n  two  words \t\n \r\n\r inner\rreturn\r\r\nlast \r";
        for piece in 1..=text.len() {
            assert_eq!(
                found(Lines::default(), text, piece).unwrap(),
                ["one", "  two  words \t", "\r inner\rreturn\r", "last \r"],
                "{piece}"
            );
        }
    }

    fn csv_rows(text: &str) -> Result<Vec<String>, Flaw> {
        let rows = found(CsvRecords::new(b','), text, text.len());
        for piece in 1..text.len() {
            assert_eq!(
                found(CsvRecords::new(b','), text, piece),
                rows,
                "in pieces of {piece}"
            );
        }
        rows
    }

    #[test]
    fn line_ends_between_quotes_do_not_end_a_record() {
        let rows = [
            "a,b",
            "1,\"two\nlines, \"\"quoted\"\"\"",
            "5\" pipe,x\"y",
            "\"\",",
            "\"q\"tail,\"\r\n\"",
        ];
        assert_eq!(csv_rows(&rows.join("\n")).unwrap(), rows);
        assert_eq!(
            csv_rows(&format!("{}\r\n\r\n", rows.join("\r\n"))).unwrap(),
            rows
        );
    }

    #[test]
    fn an_unclosed_quote_is_reported_at_its_record() {
        assert_eq!(
            csv_rows("a,b\n1,\"x\n2,y\n"),
            Err(Flaw::new(4, "a quote in this record is not closed"))
        );
    }

    fn list_rows(text: &str) -> Result<Vec<String>, Flaw> {
        let rows = found(JsonList::new(false), text, text.len());
        for piece in 1..text.len() {
            assert_eq!(
                found(JsonList::new(false), text, piece),
                rows,
                "in pieces of {piece}"
            );
        }
        rows
    }

    #[test]
    fn elements_of_every_kind_are_found() {
        let rows = [
            r#"{"a":1}"#,
            r#"{"a":[1,{"b":"]}\"\\"}]}"#,
            "null",
            r#""x, \" y""#,
            "[]",
            "-1.5e3",
        ];
        assert_eq!(
            list_rows(&format!(" [\n{} \n] \n", rows.join(",\n"))).unwrap(),
            rows
        );
        assert_eq!(list_rows(&format!("[{}]", rows.join(","))).unwrap(), rows);
        assert_eq!(list_rows("[]").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_list_inside_a_mapping_ends_with_its_bracket() {
        let mapping = r#"[{"a": 1}, 2], "rest": [3]}"#;
        for piece in 1..mapping.len() {
            assert_eq!(
                found(JsonList::new(true), mapping, piece).unwrap(),
                [r#"{"a": 1}"#, "2"]
            );
        }
    }

    #[test]
    fn a_broken_list_is_reported_with_its_offset() {
        let flaw = |at, problem| Err(Flaw::new(at, problem));
        assert_eq!(list_rows("[\n{}\n{}]"), flaw(5, NO_SEPARATOR));
        assert_eq!(list_rows("[\n{},\n"), flaw(6, NO_END));
        assert_eq!(list_rows("[{\"a\": \"]"), flaw(9, NO_END));
        assert_eq!(list_rows("[{}]\n x"), flaw(6, MORE));
        assert_eq!(list_rows("[{},]"), flaw(4, NO_ELEMENT));
        assert_eq!(list_rows("[,{}]"), flaw(1, NO_ELEMENT));
    }
}
