//! A position in the text of an assertion, and a syntax error in it.

use crate::fault::Mistake;
use crate::tree::Span;
use llmscen_core::check::Op;
use std::ops::Range;

/// The longer ones first, so that `<=` is not read as `<`.
const OPS: [Op; 6] = [
    Op::AtMost,
    Op::AtLeast,
    Op::Equal,
    Op::Unequal,
    Op::Less,
    Op::More,
];

/// A syntax error of an assertion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckError {
    /// Byte range in the text.
    pub range: Range<usize>,
    pub message: String,
    /// Text under the underline.
    pub label: String,
    pub help: Option<String>,
}

impl CheckError {
    pub fn new(
        range: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> CheckError {
        CheckError {
            range,
            message: message.into(),
            label: label.into(),
            help: None,
        }
    }

    pub fn help(self, help: impl Into<String>) -> CheckError {
        CheckError {
            help: Some(help.into()),
            ..self
        }
    }

    /// The error at a place in a file.
    pub fn into_mistake(self, at: Span) -> Mistake {
        let mistake = Mistake::new(at, self.message, self.label);
        self.help.into_iter().fold(mistake, Mistake::help)
    }
}

/// Reads tokens from left to right and skips spaces around them.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a str) -> Cursor<'a> {
        let mut cursor = Cursor { text, at: 0 };
        cursor.skip();
        cursor
    }

    fn skip(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> (&'a str, Range<usize>) {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        let range = self.at..self.at + length;
        self.at += length;
        self.skip();
        (&rest[..length], range)
    }

    pub fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Bytes of the next character, 0 at the end.
    pub fn width(&self) -> usize {
        self.peek().map_or(0, char::len_utf8)
    }

    /// A name: letters, digits and `_`.
    pub fn word(&mut self) -> (&'a str, Range<usize>) {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// A tag: a name, or that of a header.
    pub fn tag(&mut self) -> (&'a str, Range<usize>) {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    }

    /// A statistic: letters, digits and the point of `p99.9`.
    pub fn stat(&mut self) -> (&'a str, Range<usize>) {
        self.take(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_')
    }

    /// A number, which may have a sign.
    pub fn number(&mut self) -> (&'a str, Range<usize>) {
        self.take(|c| c.is_ascii_digit() || c == '.' || c == '-' || c == '+')
    }

    pub fn unit(&mut self) -> (&'a str, Range<usize>) {
        self.take(|c| c.is_alphabetic() || matches!(c, '%' | '/' | '°'))
    }

    /// The text up to one of `signs`, trimmed.
    pub fn until(&mut self, signs: &[char]) -> (&'a str, Range<usize>) {
        let (text, range) = self.take(|c| !signs.contains(&c));
        let trimmed = text.trim_end();
        (trimmed, range.start..range.start + trimmed.len())
    }

    /// Skips `sign` if it is next.
    pub fn eat(&mut self, sign: char) -> bool {
        let found = self.peek() == Some(sign);
        if found {
            self.at += sign.len_utf8();
            self.skip();
        }
        found
    }

    /// Skips `sign`, which must be next.
    pub fn expect(&mut self, sign: char, context: &str) -> Result<(), CheckError> {
        if self.eat(sign) {
            return Ok(());
        }
        let at = self.visible(self.at..self.at + self.width());
        Err(CheckError::new(
            at,
            format!("`{sign}` is missing {context}"),
            format!("expected `{sign}`"),
        ))
    }

    /// A comparison operator.
    pub fn op(&mut self) -> Result<Op, CheckError> {
        if let Some(op) = OPS
            .into_iter()
            .find(|op| self.text[self.at..].starts_with(op.symbol()))
        {
            self.at += op.symbol().len();
            self.skip();
            return Ok(op);
        }
        let at = self.visible(self.at..self.at + self.width());
        let error = CheckError::new(
            at,
            "a comparison is missing",
            "expected `<`, `<=`, `>`, `>=`, `==` or `!=`",
        );
        Err(match self.peek() {
            Some('=') => error.help("Equality is `==`."),
            Some('{') => error.help("Put tags before the statistic: `ttft{model=a}.p99`."),
            _ => error,
        })
    }

    /// The range of the next character.
    pub fn next_range(&self) -> Range<usize> {
        self.at..self.at + self.width()
    }

    /// The range of the remaining text.
    pub fn rest(&self) -> Option<Range<usize>> {
        (self.at < self.text.len()).then(|| self.at..self.text.trim_end().len())
    }

    /// Fails where text remains after a `noun`.
    pub fn expect_end(&self, noun: &str) -> Result<(), CheckError> {
        match self.rest() {
            None => Ok(()),
            Some(range) => Err(CheckError::new(
                range,
                format!("text after the end of the {noun}"),
                "unexpected text",
            )),
        }
    }

    /// A range that can be underlined: at the end of the text the last character.
    pub fn visible(&self, range: Range<usize>) -> Range<usize> {
        if !range.is_empty() {
            return range;
        }
        let rest = &self.text[range.start..];
        match rest.chars().next() {
            Some(next) => range.start..range.start + next.len_utf8(),
            None => {
                self.text
                    .char_indices()
                    .next_back()
                    .map_or(0, |(start, _)| start)..self.text.len()
            }
        }
    }
}
