//! Limits for templates and JSONPaths: nesting is counted before a recursive parser runs, and rendering is bounded.

use crate::bounds::limited::{Exceeded, run};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Expression, Value};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Maximum instructions of one rendering. A chat template takes about a hundred per message.
const FUEL: u64 = 2_000_000;
/// Maximum recursion; each nested macro counts four.
const RECURSION: usize = 120;
/// Maximum size of the rendered text, bytes.
const OUTPUT: usize = 64 << 20;

/// A template environment with limits on instructions and recursion, and without HTML escaping.
pub fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    // Otherwise an error has the values of the template, which must not leave the thread that made them.
    environment.set_debug(false);
    environment.set_recursion_limit(RECURSION);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment
}

/// A compiled template. A rendering has limits on its memory and its time.
pub struct Template {
    environment: Arc<Environment<'static>>,
    limits: Limits,
}

/// Whether work with a template needs limits, and the first one that it exceeded: then it is not tried again.
#[derive(Default)]
struct Limits {
    is_plain: bool,
    exceeded: OnceLock<Exceeded>,
}

/// The name of the template in its environment.
const NAME: &str = "template";

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Template").finish()
    }
}

impl Template {
    /// Compiles a template, whose depth is checked before (see [`check_depth`]).
    ///
    /// # Errors The template has a syntax error.
    pub fn new(mut environment: Environment<'static>, text: String) -> Result<Template, Error> {
        let limits = Limits {
            is_plain: is_plain(&text),
            ..Limits::default()
        };
        environment.add_template_owned(NAME, text)?;
        Ok(Template {
            environment: Arc::new(environment),
            limits,
        })
    }

    /// Renders the template to a text of limited length.
    ///
    /// # Errors The template engine reports an error, or a limit is exceeded.
    pub fn render(&self, context: Value) -> Result<String, Error> {
        let environment = self.environment.clone();
        self.limits.keep(move || render(&environment, context))
    }

    /// The variables that it reads, dotted, without those that it sets.
    pub fn undeclared_variables(&self) -> HashSet<String> {
        let template = self.environment.get_template(NAME);
        template.map_or_else(|_| HashSet::new(), |own| own.undeclared_variables(true))
    }
}

/// A compiled expression. An evaluation has limits on its memory and its time.
pub struct Formula {
    expression: Arc<Expression<'static, 'static>>,
    limits: Limits,
}

impl Formula {
    /// Compiles an expression, whose depth is checked before (see [`check_depth`]).
    ///
    /// # Errors The expression has a syntax error.
    pub fn new(environment: &'static Environment<'static>, text: &str) -> Result<Formula, Error> {
        Ok(Formula {
            expression: Arc::new(environment.compile_expression_owned(text.to_owned())?),
            limits: Limits {
                is_plain: is_plain_expression(text),
                ..Limits::default()
            },
        })
    }

    /// The value as JSON; None if it is undefined.
    ///
    /// # Errors The template engine reports an error, a limit is exceeded, or JSON has no such value.
    pub fn eval(&self, context: Value) -> Result<Option<serde_json::Value>, Error> {
        let expression = self.expression.clone();
        self.limits.keep(move || {
            let value = expression.eval(context)?;
            if value.is_undefined() {
                return Ok(None);
            }
            serde_json::to_value(&value)
                .map(Some)
                .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
        })
    }

    /// The variables that it reads, dotted.
    pub fn undeclared_variables(&self) -> HashSet<String> {
        self.expression.undeclared_variables(true)
    }
}

impl Limits {
    fn keep<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.is_plain {
            return work();
        }
        let done = match self.exceeded.get() {
            Some(exceeded) => Err(*exceeded),
            None => run(work),
        };
        done.unwrap_or_else(|exceeded| {
            let kind = match exceeded {
                Exceeded::Failed => ErrorKind::InvalidOperation,
                _ => {
                    _ = self.exceeded.set(exceeded);
                    ErrorKind::WriteFailure
                }
            };
            Err(Error::new(kind, format!("the template {exceeded}")))
        })
    }
}

/// Whether a template only inserts variables, so that its text is not much longer than they are.
fn is_plain(text: &str) -> bool {
    !text.contains("{%")
        && text.split("{{").skip(1).all(|rest| {
            let end = rest.find("}}").unwrap_or(rest.len());
            is_plain_expression(&rest[..end])
        })
}

/// Whether an expression is a variable, with at most two filters that lengthen a text by a small factor.
fn is_plain_expression(text: &str) -> bool {
    const FILTERS: [&str; 8] = [
        "tojson", "trim", "upper", "lower", "int", "float", "length", "string",
    ];
    let mut parts = text.split('|');
    let path = parts.next().unwrap_or_default();
    let is_path = |c: char| c.is_ascii_alphanumeric() || " _.[]-".contains(c);
    let filters: Vec<&str> = parts.map(|part| part.trim_matches([' ', '-'])).collect();
    path.chars().all(is_path)
        && filters.len() <= 2
        && filters.iter().all(|filter| FILTERS.contains(filter))
}

fn render(environment: &Environment<'_>, context: Value) -> Result<String, Error> {
    let template = environment.get_template(NAME)?;
    let mut text = Bounded {
        bytes: Vec::new(),
        full: false,
    };
    let rendered = template.render_captured_to(context, &mut text);
    if text.full {
        let message = format!(
            "the template makes more than {} of text",
            super::size(OUTPUT as u64)
        );
        return Err(Error::new(ErrorKind::WriteFailure, message));
    }
    drop(rendered?);
    Ok(String::from_utf8(text.bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
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

/// Maximum nesting of operators in a template: the parser's stack grows with it.
const MAX_NESTING: usize = 100;
/// Nesting that a bracket or a block counts for: the parser recurses about a dozen times for each.
const BRACKET: usize = 3;

/// Checks that a template does not nest too deep for its recursive parser.
///
/// # Errors The byte range of the first token beyond the limit, and a message.
pub fn check_depth(text: &str) -> Result<(), (Range<usize>, String)> {
    let mut depth = Depth {
        text: text.as_bytes(),
        at: 0,
        blocks: Vec::new(),
        open: vec![0],
    };
    depth.template().map_err(|at| {
        (
            at,
            format!("the template nests or chains more than {MAX_NESTING} operators"),
        )
    })
}

/// Maximum length of a JSONPath, bytes.
const MAX_PATH_BYTES: usize = 4096;
/// Maximum nesting of brackets in a JSONPath.
const MAX_PATH_NESTING: usize = 20;

/// Checks that a JSONPath is not too long and does not nest too deep.
///
/// # Errors The byte range of the first violation, and a message.
pub fn check_path(text: &str) -> Result<(), (Range<usize>, String)> {
    if text.len() > MAX_PATH_BYTES {
        return Err((
            0..1,
            format!("longer than {}", super::size(MAX_PATH_BYTES as u64)),
        ));
    }
    let (depth, at) = brackets(text);
    if depth > MAX_PATH_NESTING {
        Err((
            at..at + 1,
            format!("nested more than {} deep", MAX_PATH_NESTING),
        ))
    } else {
        Ok(())
    }
}

/// The deepest nesting of brackets in a text, and its byte position.
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

/// Keywords that nest expressions.
const WORDS: [&[u8]; 7] = [b"not", b"and", b"or", b"if", b"else", b"is", b"in"];
/// Operators of two characters.
const DOUBLE: [&[u8]; 6] = [b"==", b"!=", b"<=", b">=", b"//", b"**"];
/// Blocks with an end tag.
const BLOCKS: [&[u8]; 10] = [
    b"if",
    b"for",
    b"with",
    b"macro",
    b"call",
    b"filter",
    b"block",
    b"autoescape",
    b"raw",
    b"generation",
];

struct Depth<'t> {
    text: &'t [u8],
    at: usize,
    /// Nesting that each open block adds: an `elif` is parsed as a block within the previous one.
    blocks: Vec<usize>,
    /// Operators in the current element of each open bracket of an expression.
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
        self.check_limit(start)?;
        self.expression(b"%}")
    }

    /// Whether a `set` tag contains its value (`{% set x = 1 %}`).
    fn assigns(&self) -> bool {
        let end = memchr::memmem::find(self.rest(), b"%}").unwrap_or(self.rest().len());
        self.rest()[..end].contains(&b'=')
    }

    fn word(&mut self) -> &[u8] {
        let length = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_' || **byte >= 0x80)
            .count();
        self.at += length;
        &self.text[self.at - length..self.at]
    }

    fn check_limit(&self, start: usize) -> Result<(), Range<usize>> {
        let depth = self.blocks.iter().sum::<usize>() + self.open.iter().sum::<usize>();
        if depth > MAX_NESTING {
            Err(start..self.at.max(start + 1))
        } else {
            Ok(())
        }
    }

    /// Reads an expression up to the closing delimiter, or to the end of the text.
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
                b'_' | 0x80.. | b'a'..=b'z' | b'A'..=b'Z' => {
                    operator = WORDS.contains(&self.word())
                }
                b'0'..=b'9' => {
                    self.word();
                }
                _ => {
                    let double = self
                        .rest()
                        .get(..2)
                        .is_some_and(|two| DOUBLE.contains(&two));
                    self.at += if double { 2 } else { 1 };
                    operator = !byte.is_ascii_whitespace();
                }
            }
            if operator {
                // A bracket is counted when it opens; the operators inside count in its element.
                if !matches!(byte, b'(' | b'[' | b'{')
                    && let Some(own) = self.open.last_mut()
                {
                    *own += 1;
                }
                self.check_limit(start)?;
            }
        }
        self.open = vec![0];
        Ok(())
    }

    fn quoted(&mut self, quote: u8) {
        self.at += 1;
        while let Some(&byte) = self.rest().first() {
            self.at += if byte == b'\\' {
                2.min(self.rest().len())
            } else {
                1
            };
            if byte == quote {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `work` with the default stack size of a thread.
    fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
        std::thread::Builder::new()
            .stack_size(2 << 20)
            .spawn(work)
            .unwrap()
            .join()
            .unwrap();
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
            let text =
                |n: usize| format!("{begin}{}{inner}{}{end}", open.repeat(n), close.repeat(n));
            let most = (1..200)
                .take_while(|n| check_depth(&text(*n)).is_ok())
                .last()
                .unwrap();
            assert!((20..=100).contains(&most), "{open}{close}: {most}");
            let deepest = text(most);
            on_a_small_stack(move || {
                // The engine's limit may be lower.
                if let Ok(template) = Template::new(environment(), deepest) {
                    template.undeclared_variables();
                }
            });
        }
    }

    #[test]
    fn macros_that_call_themselves_end_on_the_stack_of_a_thread() {
        let text = "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}";
        let template = Template::new(environment(), text.to_owned()).unwrap();
        let error = template.render(Value::UNDEFINED).unwrap_err();
        assert!(error.to_string().contains("recursion"), "{error}");
    }

    #[test]
    fn only_templates_that_insert_variables_are_rendered_without_a_limit() {
        for text in [
            "Q: {{ prompt }} (a | b)",
            "{{- item.a[0] | tojson -}}",
            "{{ a|trim|tojson }}{{ b }}",
        ] {
            assert!(is_plain(text), "{text}");
        }
        for text in [
            "{% set x = 1 %}",
            "{{ a ~ a }}",
            "{{ a + a }}",
            "{{ a * 9 }}",
            "{{ a | replace('', a) }}",
            "{{ a.replace('', a) }}",
            "{{ a|tojson|tojson|tojson }}",
            "{{ [a, a] }}",
            "{{ '}}' ~ a }}",
            "{{ range(9) }}",
        ] {
            assert!(!is_plain(text), "{text}");
        }
    }

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
            assert!(
                at.end <= text.len() && at.start < 4000,
                "{at:?} of {}",
                &text[..40]
            );
            assert_eq!(
                message,
                "the template nests or chains more than 100 operators"
            );
        }
    }

    #[test]
    fn long_texts_that_are_flat_pass() {
        let text = format!(
            "{{{{ [{}] }}}}{}",
            "a.b + 1, ".repeat(5000),
            "{% if x.y %}{{ '((((' }}{% endif %}{{ a }}".repeat(5000)
        );
        assert_eq!(check_depth(&text), Ok(()));
        assert_eq!(check_depth("{{ 'a"), Ok(()));
        assert_eq!(
            check_depth(&format!("{{{{ {}x }}}}", "a == 'b' or ".repeat(49))),
            Ok(())
        );
        assert_eq!(check_depth("{% if '\\"), Ok(()));
        assert_eq!(
            check_depth(&format!("{{{{ a }}}} {} {{{{ b }}}}", "-.-".repeat(500))),
            Ok(())
        );
    }

    #[test]
    fn brackets_are_counted() {
        assert_eq!(brackets("a[b(c)]"), (2, 3));
        assert_eq!(brackets("]]a"), (0, 0));
    }
}
