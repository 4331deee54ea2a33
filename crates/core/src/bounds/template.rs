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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::check_depth;

    /// The stack that a thread has.
    fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
        std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn the_deepest_templates_that_pass_parse_on_the_stack_of_a_thread() {
        let shapes: [(&str, &str, &str, &str, &str); 14] = [
            ("{{ ", "not ", "x", "", " }}"),
            ("{{ ", "-", "x", "", " }}"),
            ("{{ ", "", "x", ".b", " }}"),
            ("{{ ", "(", "x", ")", " }}"),
            ("{{ ", "[", "x", "]", " }}"),
            ("{{ ", "{'a': ", "x", "}", " }}"),
            ("{{ ", "f(1, ", "x", ")", " }}"),
            ("{{ ", "", "x", "|upper", " }}"),
            ("{{ ", "", "x", " + x", " }}"),
            ("{{ ", "", "x", " if x else x", " }}"),
            ("{{ ", "x[", "x", "]", " }}"),
            ("", "{% if x %}", "x", "{% endif %}", ""),
            ("", "{% for x in y %}", "x", "{% endfor %}", ""),
            ("{% if x %}", "", "x", "{% elif y %}", "{% endif %}"),
        ];
        for (begin, open, inner, close, end) in shapes {
            let text = |n: usize| format!("{begin}{}{inner}{}{end}", open.repeat(n), close.repeat(n));
            let most = (1..200).take_while(|n| check_depth(&text(*n)).is_ok()).last().unwrap();
            assert!((20..=100).contains(&most), "{open}{close}: {most}");
            let deepest = text(most);
            on_a_small_stack(move || {
                let mut environment = environment();
                // The engine's own bound may be lower.
                if environment.add_template_owned("t", deepest).is_ok() {
                    environment.get_template("t").unwrap().undeclared_variables(true);
                }
            });
        }
    }

    #[test]
    fn macros_that_call_themselves_end_on_the_stack_of_a_thread() {
        on_a_small_stack(|| {
            let mut environment = environment();
            environment.add_template("t", "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}").unwrap();
            let error = render(&environment.get_template("t").unwrap(), Value::UNDEFINED).unwrap_err();
            assert!(error.to_string().contains("recursion"), "{error}");
        });
    }
}
