//! The elements of a JSON list. Only quotes and brackets are looked at: whether an element is JSON shows when it is read.

use super::{Finder, Flaw, Span, file, fits};
use memchr::memchr2;

const NO_SEPARATOR: &str = "the JSON list has neither `,` nor `]` after an element";
const NO_ELEMENT: &str = "not JSON (expected value)";
const NO_END: &str = "the JSON list does not end";
const MORE: &str = "there is more text after the JSON list";

enum Place {
    /// Before the list.
    Outside,
    /// Before an element; the first one may be missing.
    Before { first: bool },
    /// In a list, a mapping or a text that began at `start`.
    Inside { start: u64, depth: u32, text: bool, escaped: bool },
    /// In a number or a word.
    Scalar { start: u64 },
    /// Behind an element.
    After,
    /// Behind the list.
    Done,
}

/// The elements of a list.
pub struct List {
    place: Place,
    /// More may follow behind the list: it is a member of a mapping.
    member: bool,
}

impl List {
    /// Begins at the list's own bracket, or at blanks before it.
    pub fn new(member: bool) -> List {
        List { place: Place::Outside, member }
    }

    /// Takes the first bytes of `rest`, which lie at `at`; returns how many.
    fn step(&mut self, rest: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<usize, Flaw> {
        if let Place::Inside { start, depth, text, escaped } = &mut self.place {
            let used = inside(rest, depth, text, escaped);
            if *depth == 0 && !*text {
                file(*start, at + used as u64, rows)?;
                self.place = Place::After;
            }
            return Ok(used);
        }
        if let Place::Scalar { start } = self.place {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b",]".contains(byte);
            let Some(used) = rest.iter().position(ends) else { return Ok(rest.len()) };
            file(start, at + used as u64, rows)?;
            self.place = Place::After;
            return Ok(used);
        }
        let blanks = rest.len() - rest.trim_ascii_start().len();
        let Some(byte) = rest.get(blanks) else { return Ok(blanks) };
        let at = at + blanks as u64;
        self.between(*byte, at).map(|taken| blanks + usize::from(taken)).map_err(|problem| Flaw::new(at, problem))
    }

    /// A byte that is not blank between elements; whether it belongs to no element and is taken.
    fn between(&mut self, byte: u8, at: u64) -> Result<bool, &'static str> {
        let (place, taken) = match (&self.place, byte) {
            (Place::Outside, b'[') => (Place::Before { first: true }, true),
            (Place::Before { first: true }, b']') | (Place::After, b']') => (Place::Done, true),
            (Place::Outside, _) | (Place::Before { .. }, b']' | b',') => return Err(NO_ELEMENT),
            (Place::Before { .. }, b'{' | b'[' | b'"') => {
                (Place::Inside { start: at, depth: 0, text: false, escaped: false }, false)
            }
            (Place::Before { .. }, _) => (Place::Scalar { start: at }, false),
            (Place::After, b',') => (Place::Before { first: false }, true),
            (Place::Done, _) if self.member => (Place::Done, true),
            (Place::Done, _) => return Err(MORE),
            (Place::After | Place::Inside { .. } | Place::Scalar { .. }, _) => return Err(NO_SEPARATOR),
        };
        self.place = place;
        Ok(taken)
    }
}

/// Goes on in an element until it ends or the bytes do; returns how many were taken.
fn inside(bytes: &[u8], depth: &mut u32, text: &mut bool, escaped: &mut bool) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        if std::mem::take(escaped) {
            at += 1;
        } else if *text {
            let Some(next) = memchr2(b'"', b'\\', &bytes[at..]) else { return bytes.len() };
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

impl Finder for List {
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
        let mut used = 0;
        while used < piece.len() {
            if self.member && matches!(self.place, Place::Done) {
                break;
            }
            used += self.step(&piece[used..], at + used as u64, rows)?;
        }
        let begun = match self.place {
            Place::Inside { start, .. } | Place::Scalar { start } => Some(start),
            _ => None,
        };
        fits(begun, at + piece.len() as u64)
    }

    fn end(&mut self, at: u64, _rows: &mut Vec<Span>) -> Result<(), Flaw> {
        if matches!(self.place, Place::Done) { Ok(()) } else { Err(Flaw::new(at, NO_END)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn parts(text: &str) -> Result<Vec<String>, Flaw> {
        let whole = found(List::new(false), text, text.len());
        for piece in 1..text.len() {
            assert_eq!(found(List::new(false), text, piece), whole, "in pieces of {piece}");
        }
        whole
    }

    #[test]
    fn elements_of_every_kind_are_found() {
        let rows = [r#"{"a":1}"#, r#"{"a":[1,{"b":"]}\"\\"}]}"#, "null", r#""x, \" y""#, "[]", "-1.5e3"];
        assert_eq!(parts(&format!(" [\n{} \n] \n", rows.join(",\n"))).unwrap(), rows);
        assert_eq!(parts(&format!("[{}]", rows.join(","))).unwrap(), rows);
        assert_eq!(parts("[]").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_list_inside_a_mapping_ends_with_its_bracket() {
        let mapping = r#"[{"a": 1}, 2], "rest": [3]}"#;
        for piece in 1..mapping.len() {
            assert_eq!(found(List::new(true), mapping, piece).unwrap(), [r#"{"a": 1}"#, "2"]);
        }
    }

    #[test]
    fn a_broken_list_is_found_by_its_place() {
        let flaw = |at, problem| Err(Flaw::new(at, problem));
        assert_eq!(parts("[\n{}\n{}]"), flaw(5, NO_SEPARATOR));
        assert_eq!(parts("[\n{},\n"), flaw(6, NO_END));
        assert_eq!(parts("[{\"a\": \"]"), flaw(9, NO_END));
        assert_eq!(parts("[{}]\n x"), flaw(6, MORE));
        assert_eq!(parts("[{},]"), flaw(4, NO_ELEMENT));
        assert_eq!(parts("[,{}]"), flaw(1, NO_ELEMENT));
    }
}
