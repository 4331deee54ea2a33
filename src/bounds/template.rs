//! Environments of templates that come from outside, and their rendering.

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Template, Value};
use std::io::{self, Write};

/// Instructions of one rendering. A chat template takes about a hundred per message.
const FUEL: u64 = 5_000_000;
/// Macros within macros; each counts four.
const RECURSION: usize = 120;
/// Longest text that a template may make.
const OUTPUT: usize = 64 << 20;

/// An environment whose templates end: with bounded instructions and recursion, and nothing escaped.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment
}

/// Renders a template to a text of bounded length.
///
/// # Errors
/// What the template engine reports, or that the text is too long.
pub fn render(template: &Template<'_, '_>, context: Value) -> Result<String, Error> {
    let mut text = Bounded { bytes: Vec::new(), full: false };
    let rendered = template.render_captured_to(context, &mut text);
    if text.full {
        let message = format!("the template makes more than {} of text", super::size(OUTPUT as u64));
        return Err(Error::new(ErrorKind::WriteFailure, message));
    }
    drop(rendered?);
    Ok(String::from_utf8(text.bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.full |= self.bytes.len() + part.len() > OUTPUT;
        if self.full {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
