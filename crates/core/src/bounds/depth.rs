//! How deep a text nests, counted before a parser that recurses sees it.

use std::ops::Range;

/// Operators of a template within each other. Parsing takes a stack that grows with them.
const DEEPEST: usize = 100;
/// What a bracket or a block counts: the parser calls itself about a dozen times for it.
const BRACKET: usize = 3;

/// Refuses a template that nests too deep.
///
/// # Errors
/// The place of the piece that is one too many, and what is wrong.
pub fn check_depth(text: &str) -> Result<(), (Range<usize>, String)> {
    let mut depth = Depth { text: text.as_bytes(), at: 0, blocks: Vec::new(), open: vec![0] };
    depth.template().map_err(|at| (at, format!("the template nests or chains more than {DEEPEST} operators")))
}

/// Longest JSONPath, in bytes, and brackets and negations within each other.
const PATH: (usize, usize) = (4096, 20);

/// Refuses a JSONPath that is too long or nests too deep.
///
/// # Errors
/// The place where it is, and what it is.
pub fn check_path(text: &str) -> Result<(), (Range<usize>, String)> {
    if text.len() > PATH.0 {
        return Err((0..1, format!("longer than {}", super::size(PATH.0 as u64))));
    }
    let (depth, at) = brackets(text);
    if depth > PATH.1 { Err((at..at + 1, format!("nested more than {} deep", PATH.1))) } else { Ok(()) }
}

/// The deepest nesting of brackets in a text, and the place of the deepest. A `!` nests what follows it.
fn brackets(text: &str) -> (usize, usize) {
    let (mut depth, mut deepest) = (0usize, (0, 0));
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max((depth, at));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// Words that put an expression into another one.
const WORDS: [&[u8]; 7] = [b"not", b"and", b"or", b"if", b"else", b"is", b"in"];
/// Operators of two characters.
const DOUBLE: [&[u8]; 6] = [b"==", b"!=", b"<=", b">=", b"//", b"**"];
/// Blocks that have an end.
const BLOCKS: [&[u8]; 10] =
    [b"if", b"for", b"with", b"macro", b"call", b"filter", b"block", b"autoescape", b"raw", b"generation"];

struct Depth<'t> {
    text: &'t [u8],
    at: usize,
    /// Of each open block, how much it adds: an `elif` is a block within the one before.
    blocks: Vec<usize>,
    /// Of each open bracket of an expression, the operators of the element that is read.
    open: Vec<usize>,
}

impl Depth<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn template(&mut self) -> Result<(), Range<usize>> {
        while let Some(found) = memchr::memchr(b'{', self.rest()) {
            self.at += found;
            let sign = self.rest().get(1).copied();
            self.at += 1;
            match sign {
                Some(b'{') => {
                    self.at += 1;
                    self.expression(b"}}")?;
                }
                Some(b'%') => {
                    self.at += 1;
                    self.block()?;
                }
                Some(b'#') => {
                    let end = memchr::memmem::find(self.rest(), b"#}").unwrap_or(self.rest().len());
                    self.at += end;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn block(&mut self) -> Result<(), Range<usize>> {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'-' || *byte == b'+';
        self.at += self.rest().iter().take_while(|byte| blank(byte)).count();
        let start = self.at;
        let word = self.word().to_vec();
        if word.starts_with(b"end") {
            self.blocks.pop();
        } else if word == b"elif" {
            if let Some(own) = self.blocks.last_mut() {
                *own += BRACKET;
            }
        } else if BLOCKS.contains(&word.as_slice()) || word == b"set" && !self.assigns() {
            self.blocks.push(BRACKET);
        }
        self.fits(start)?;
        self.expression(b"%}")
    }

    /// Whether a `set` has its value in the tag itself.
    fn assigns(&self) -> bool {
        let end = memchr::memmem::find(self.rest(), b"%}").unwrap_or(self.rest().len());
        self.rest()[..end].contains(&b'=')
    }

    fn word(&mut self) -> &[u8] {
        let length =
            self.rest().iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte >= 0x80).count();
        self.at += length;
        &self.text[self.at - length..self.at]
    }

    fn fits(&self, start: usize) -> Result<(), Range<usize>> {
        let depth = self.blocks.iter().sum::<usize>() + self.open.iter().sum::<usize>();
        if depth > DEEPEST { Err(start..self.at.max(start + 1)) } else { Ok(()) }
    }

    /// Reads up to the closing sign, or to the end.
    fn expression(&mut self, end: &[u8]) -> Result<(), Range<usize>> {
        self.open = vec![0];
        while let Some(&byte) = self.rest().first() {
            if self.open.len() == 1 && self.rest().starts_with(end) {
                self.at += 2;
                break;
            }
            let start = self.at;
            let mut operator = false;
            match byte {
                b'"' | b'\'' => self.quoted(byte),
                b'(' | b'[' | b'{' => {
                    self.at += 1;
                    self.open.push(BRACKET);
                    operator = true;
                }
                b')' | b']' | b'}' => {
                    self.at += 1;
                    if self.open.len() > 1 {
                        self.open.pop();
                        operator = true;
                    }
                }
                b',' | b':' => {
                    self.at += 1;
                    if self.open.len() > 1
                        && let Some(own) = self.open.last_mut()
                    {
                        *own = BRACKET;
                    }
                }
                b'_' | 0x80.. | b'a'..=b'z' | b'A'..=b'Z' => operator = WORDS.contains(&self.word()),
                b'0'..=b'9' => {
                    self.word();
                }
                _ => {
                    let double = self.rest().get(..2).is_some_and(|two| DOUBLE.contains(&two));
                    self.at += if double { 2 } else { 1 };
                    operator = !byte.is_ascii_whitespace();
                }
            }
            if operator {
                // The bracket itself is counted where it opens, the operators after it in its element.
                if !matches!(byte, b'(' | b'[' | b'{')
                    && let Some(own) = self.open.last_mut()
                {
                    *own += 1;
                }
                self.fits(start)?;
            }
        }
        self.open = vec![0];
        Ok(())
    }

    fn quoted(&mut self, quote: u8) {
        self.at += 1;
        while let Some(&byte) = self.rest().first() {
            self.at += if byte == b'\\' { 2.min(self.rest().len()) } else { 1 };
            if byte == quote {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_texts_of_every_shape_are_found_before_they_are_parsed() {
        let many = |piece: &str| piece.repeat(20_000);
        for text in [
            format!("{{{{ {}x }}}}", many("not ")),
            format!("{{{{ a{} }}}}", many(".b")),
            format!("{{{{ {}x }}}}", many("-")),
            format!("{{{{ {}x{} }}}}", many("("), many(")")),
            format!("{{{{ {}x{} }}}}", many("["), many("]")),
            format!("{{{{ {}1{} }}}}", many("{'a': "), many("}")),
            format!("{{{{ x{} }}}}", many("|upper")),
            format!("{{{{ x{} }}}}", many(" + x")),
            format!("{{{{ x{} }}}}", many("(1)")),
            format!("{{{{ x{} }}}}", many(" if x else x")),
            format!("{{{{ {}x{} }}}}", many("f(x, "), many(")")),
            format!("{}{}", many("{% if x %}"), many("{% endif %}")),
            format!("{}{}", many("{%- for x in y %}"), many("{% endfor %}")),
            format!("{{% if x %}}{}{{% endif %}}", many("{% elif y %}")),
            format!("{}{}", many("{% set x %}"), many("{% endset %}")),
        ] {
            let (at, message) = check_depth(&text).unwrap_err();
            assert!(at.end <= text.len() && at.start < 4000, "{at:?} of {}", &text[..40]);
            assert_eq!(message, "the template nests or chains more than 100 operators");
        }
    }

    #[test]
    fn long_texts_that_are_flat_pass() {
        let text =
            format!("{{{{ [{}] }}}}{}", "a.b + 1, ".repeat(5000), "{% if x.y %}{{ '((((' }}{% endif %}{{ a }}".repeat(5000));
        assert_eq!(check_depth(&text), Ok(()));
        assert_eq!(check_depth("{{ 'a"), Ok(()));
        assert_eq!(check_depth(&format!("{{{{ {}x }}}}", "a == 'b' or ".repeat(49))), Ok(()));
        assert_eq!(check_depth("{% if '\\"), Ok(()));
        assert_eq!(check_depth(&format!("{{{{ a }}}} {} {{{{ b }}}}", "-.-".repeat(500))), Ok(()));
    }

    #[test]
    fn brackets_are_counted() {
        assert_eq!(brackets("a[b(c)]"), (2, 3));
        assert_eq!(brackets("]]a"), (0, 0));
    }
}
