//! Where the rows of a text lie, found while it streams by.

mod csv;
mod lines;
mod list;

use llmscen_core::bounds;

pub use csv::Records;
pub use lines::Lines;
pub use list::List;

/// Bytes of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u64,
    /// Bytes.
    pub len: u32,
}

/// A text that is not what it began as.
#[derive(Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Offset of the flaw.
    pub at: u64,
    /// What is wrong.
    pub problem: String,
}

impl Flaw {
    /// A flaw at an offset.
    pub fn new(at: u64, problem: &str) -> Flaw {
        Flaw { at, problem: problem.to_owned() }
    }
}

/// Finds rows in a text that arrives in pieces of any size.
pub trait Finder: Send {
    /// Takes the piece that lies at an offset, and files the rows that end in it.
    fn push(&mut self, piece: &[u8], at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw>;

    /// The text ends at an offset.
    fn end(&mut self, at: u64, rows: &mut Vec<Span>) -> Result<(), Flaw>;
}

/// Files a row, if it is not too long.
fn file(start: u64, end: u64, rows: &mut Vec<Span>) -> Result<(), Flaw> {
    fits(Some(start), end)?;
    let len = u32::try_from(end - start).map_err(|_| Flaw::new(start, "a row of 4 GiB or more"))?;
    rows.push(Span { start, len });
    Ok(())
}

/// Whether a row that began at `start` may still go on at `end`: a text without a line end must not fill the disk or the memory.
fn fits(start: Option<u64>, end: u64) -> Result<(), Flaw> {
    let Some(start) = start.filter(|start| end - start > bounds::ROW) else { return Ok(()) };
    Err(Flaw::new(start, &format!("the row is longer than {}", bounds::size(bounds::ROW))))
}

/// The rows of a text that arrives in pieces of this size, for tests: the size must not matter.
#[cfg(test)]
fn found(mut finder: impl Finder, text: &str, piece: usize) -> Result<Vec<String>, Flaw> {
    let mut rows = Vec::new();
    for (index, part) in text.as_bytes().chunks(piece).enumerate() {
        finder.push(part, (index * piece) as u64, &mut rows)?;
    }
    finder.end(text.len() as u64, &mut rows)?;
    let row = |span: Span| text[span.start as usize..][..span.len as usize].to_owned();
    Ok(rows.into_iter().map(row).collect())
}
