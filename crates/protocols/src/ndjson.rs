//! Newline-delimited JSON: lines from bytes split anywhere.

use memchr::memchr2;

/// Splits a byte stream into its lines that are not blank. A line that lies whole within one push is not copied.
#[derive(Debug)]
pub struct Lines {
    bound: usize,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    over: bool,
}

impl Lines {
    /// A splitter of lines of at most `bound` bytes.
    pub fn new(bound: usize) -> Lines {
        Lines { bound, line: Vec::new(), over: false }
    }

    /// Whether the bound was broken. Nothing is decoded or kept after that.
    pub fn over(&self) -> bool {
        self.over
    }

    /// Takes further bytes and hands each line that they complete to `sink`.
    pub fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !self.over && !rest.is_empty() {
            let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            let (part, tail) = rest.split_at(end);
            if self.line.len() + part.len() > self.bound {
                (self.over, self.line) = (true, Vec::new());
                return;
            }
            match (tail.split_first(), self.line.is_empty()) {
                (None, _) => return self.line.extend_from_slice(part),
                (Some((_, after)), true) => {
                    give(part, &mut sink);
                    rest = after;
                }
                (Some((_, after)), false) => {
                    self.line.extend_from_slice(part);
                    give(&self.line, &mut sink);
                    self.line.clear();
                    rest = after;
                }
            }
        }
    }

    /// Ends the stream: a last line without its end is complete now.
    pub fn finish(&mut self, mut sink: impl FnMut(&[u8])) {
        give(&self.line, &mut sink);
        self.line.clear();
    }
}

fn give(line: &[u8], sink: &mut impl FnMut(&[u8])) {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if !line.is_empty() {
        sink(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines<'a>(bound: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<String>, bool) {
        let (mut splitter, mut found) = (Lines::new(bound), Vec::new());
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        pieces.into_iter().for_each(|piece| splitter.push(piece, |line| found.push(text(line))));
        splitter.finish(|line| found.push(text(line)));
        (found, splitter.over())
    }

    #[test]
    fn blank_lines_are_skipped_and_the_last_one_needs_no_end() {
        let text = "\u{feff}{\"a\":1}\r\n\n  \r{\"b\":2}\n{}".as_bytes();
        assert_eq!(lines(64, [text]), (vec!["{\"a\":1}".into(), "{\"b\":2}".into(), "{}".into()], false));
        assert_eq!(lines(64, []), (vec![], false));
    }

    #[test]
    fn a_line_past_the_bound_ends_it() {
        assert_eq!(lines(4, [&b"1234\n12345\n1\n"[..]]), (vec!["1234".into()], true));
        assert_eq!(lines(4, [&b"12"[..], b"345"]), (vec![], true));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_lines(text in "[ab\n\r]{0,40}", at in 0usize..40) {
            let at = at.min(text.len());
            prop_assert_eq!(lines(8, [&text.as_bytes()[..at], &text.as_bytes()[at..]]), lines(8, [text.as_bytes()]));
        }
    }
}
