//! The texts of a request body: compiled once, evaluated per request.

use llmscen_core::bounds::{self, Formula, Template};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value as Jinja};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

/// The variables of a template.
pub const ROOTS: [&str; 8] = [
    "model", "prompt", "messages", "system", "dialog", "item", "case", "seq",
];

/// Expressions borrow their environment, so they share a static one.
static SHARED: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// A compiled text.
pub enum Leaf {
    /// Without a variable.
    Constant(String),
    /// A single variable, such as `{{ item.question }}`. It keeps its type.
    Variable(Vec<String>),
    /// A single expression. It keeps its type.
    Expression(Formula),
    /// Text with expressions.
    Text(Template),
}

/// An error in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafError {
    /// What is wrong.
    pub message: String,
    /// Byte range in the text, where it is known.
    pub range: Option<Range<usize>>,
}

impl From<&str> for LeafError {
    fn from(message: &str) -> LeafError {
        LeafError {
            message: message.to_owned(),
            range: None,
        }
    }
}

impl From<Error> for LeafError {
    fn from(error: Error) -> LeafError {
        let message = match error.kind() {
            ErrorKind::OutOfFuel => "the template exceeds the maximum number of steps".to_owned(),
            kind => error
                .detail()
                .map_or_else(|| kind.to_string(), str::to_owned),
        };
        LeafError {
            message,
            range: error.range(),
        }
    }
}

/// Compiles a text.
///
/// # Errors
/// A syntax error.
pub fn compile(written: &str) -> Result<Leaf, LeafError> {
    let text = sugar(written);
    // A range in the rewritten text does not apply to the original.
    let same = text == written;
    compile_text(text).map_err(|error| LeafError {
        range: error.range.filter(|_| same),
        ..error
    })
}

fn compile_text(text: String) -> Result<Leaf, LeafError> {
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return Ok(Leaf::Constant(text));
    }
    bounds::check_depth(&text).map_err(|(range, message)| LeafError {
        message,
        range: Some(range),
    })?;
    if let Some(inner) = text
        .strip_prefix("{{")
        .and_then(|rest| rest.strip_suffix("}}"))
    {
        let path: Vec<String> = inner.trim().split('.').map(str::to_owned).collect();
        if ROOTS.contains(&path[0].as_str()) && path.iter().all(|segment| is_name(segment)) {
            return Ok(Leaf::Variable(path));
        }
        if let Ok(expression) = Formula::new(&SHARED, inner) {
            return Ok(Leaf::Expression(expression));
        }
    }
    Ok(Leaf::Text(Template::new(environment(), text)?))
}

impl Leaf {
    /// The variables that it reads, dotted, without those that the template sets.
    pub fn variables(&self) -> BTreeSet<String> {
        let found = match self {
            Leaf::Constant(_) => return BTreeSet::new(),
            Leaf::Variable(path) => return BTreeSet::from([path.join(".")]),
            Leaf::Expression(expression) => expression.undeclared_variables(),
            Leaf::Text(template) => template.undeclared_variables(),
        };
        let global = |name: &str| SHARED.globals().any(|(known, _)| known == name);
        found
            .into_iter()
            .filter(|path| !global(path.split('.').next().unwrap_or(path)))
            .collect()
    }

    /// The error that occurs with any data: an unknown filter or test, or an error of a trial with sample values.
    /// None where the sample values may be the cause. `written` is the source text.
    pub fn trial(&self, written: &str) -> Option<LeafError> {
        if let Err(error) = known_names(written) {
            return Some(error);
        }
        let names = self.variables();
        let roots: Vec<&str> = names
            .iter()
            .map(|path| path.split('.').next().unwrap_or(path))
            .collect();
        if roots.iter().any(|root| ["item", "case"].contains(root)) {
            return None;
        }
        let message = json!({ "role": "user", "content": "text" });
        let sample = json!({ "model": "model", "prompt": "text", "messages": [message], "system": "text",
            "dialog": [message],
            "seq": 0, "item": {}, "case": {} });
        let context = || Jinja::from(Serde(&sample));
        let (error, shift) = match self {
            Leaf::Constant(_) | Leaf::Variable(_) => return None,
            Leaf::Expression(expression) => (expression.eval(context()).err()?, 2),
            Leaf::Text(template) => (template.render(context()).err()?, 0),
        };
        let always = [
            ErrorKind::OutOfFuel,
            ErrorKind::WriteFailure,
            ErrorKind::UnknownFunction,
            ErrorKind::MissingArgument,
            ErrorKind::TooManyArguments,
        ];
        let known = roots.iter().all(|root| ["model", "seq"].contains(root));
        let error = (known || always.contains(&error.kind())).then(|| LeafError::from(error))?;
        let range = error.range.filter(|_| sugar(written) == written);
        Some(LeafError {
            range: range.map(|range| range.start + shift..range.end + shift),
            ..error
        })
    }

    /// Evaluates it. `lookup` finds variables by path; `context` has all of them, for expressions.
    pub fn eval(
        &self,
        lookup: impl Fn(&[String]) -> Option<Value>,
        context: impl Fn() -> Jinja,
    ) -> Result<Value, LeafError> {
        match self {
            Leaf::Constant(text) => Ok(Value::String(text.clone())),
            Leaf::Variable(path) => lookup(path)
                .ok_or_else(|| format!("`{}` has no value", path.join(".")).as_str().into()),
            Leaf::Expression(expression) => {
                let value = expression.eval(context()).map_err(shifted)?;
                value.ok_or_else(|| "an expression has no value".into())
            }
            Leaf::Text(template) => Ok(Value::String(template.render(context())?)),
        }
    }
}

fn is_name(segment: &str) -> bool {
    segment.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && segment
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// An expression starts after `{{`.
fn shifted(error: Error) -> LeafError {
    let error = LeafError::from(error);
    LeafError {
        range: error.range.map(|range| range.start + 2..range.end + 2),
        ..error
    }
}

/// Rejects unknown filters and tests, also in branches that the trial does not take.
fn known_names(text: &str) -> Result<(), LeafError> {
    for (range, test) in names(text) {
        let name = &text[range.clone()];
        let (expression, unknown, what) = match test {
            true => (format!("0 is {name}"), ErrorKind::UnknownTest, "test"),
            false => (format!("0|{name}"), ErrorKind::UnknownFilter, "filter"),
        };
        let found = SHARED
            .compile_expression(&expression)
            .and_then(|trial| trial.eval(()));
        if found.is_err_and(|error| error.kind() == unknown) {
            return Err(LeafError {
                message: format!("unknown {what} `{name}`"),
                range: Some(range),
            });
        }
    }
    Ok(())
}

/// Bytes of the quoted text at the start of `rest`.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    let end = rest[1..].find(|c| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |end| end + 2)
}

/// The names after `|` and `is` in a template, and whether each is a test.
fn names(text: &str) -> Vec<(Range<usize>, bool)> {
    let mut names = Vec::new();
    let mut inside = false;
    let mut at = 0;
    let mut expected = None;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        // Measuring words outside of expressions would take quadratic time.
        let word = if inside { rest } else { "" };
        let length = word
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(word.len());
        match c {
            '{' if !inside && (rest.starts_with("{{") || rest.starts_with("{%")) => {
                inside = true;
                at += 2;
            }
            _ if !inside && rest.starts_with("{#") => {
                at += rest.find("#}").map_or(rest.len(), |end| end + 2)
            }
            '}' | '%' if rest.starts_with("}}") || rest.starts_with("%}") => {
                inside = false;
                at += 2;
            }
            '"' | '\'' if inside => {
                at += quoted(rest, c);
                expected = None;
            }
            _ if inside && length > 0 => {
                let word = &rest[..length];
                match (expected.take(), word) {
                    (Some(true), "not") => expected = Some(true),
                    (Some(test), _) => names.push((at..at + length, test)),
                    (None, "is") => expected = Some(true),
                    (None, _) => {}
                }
                at += length;
            }
            _ => {
                if inside && !c.is_whitespace() {
                    expected = (c == '|').then_some(false);
                }
                at += c.len_utf8();
            }
        }
    }
    names
}

fn environment() -> Environment<'static> {
    let mut environment = bounds::environment();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.keep_trailing_newline(true);
    // The default delimiters never conflict.
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
    // The built-in filter escapes HTML; a body needs plain JSON.
    environment.add_filter("tojson", |value: Serde<Value>, _: Kwargs| {
        serde_json::to_string(&value.0)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment
}

/// Replaces `%m` by `{{ model }}`, `%p` by `{{ prompt }}` and `%%` by `%`; not inside of braces, and not before a
/// letter.
fn sugar(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['%', '{']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let block = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")]
            .into_iter()
            .find(|(open, _)| rest.starts_with(open));
        let ends =
            |length: usize| !rest[length..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let (length, replacement) = match block {
            Some((_, close)) => (
                rest[2..].find(close).map_or(rest.len(), |end| end + 4),
                None,
            ),
            None if rest.starts_with("%%") => (2, Some("%")),
            None if rest.starts_with("%m") && ends(2) => (2, Some("{{ model }}")),
            None if rest.starts_with("%p") && ends(2) => (2, Some("{{ prompt }}")),
            None => (1, None),
        };
        out.push_str(replacement.unwrap_or(&rest[..length]));
        rest = &rest[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eval(text: &str) -> Result<Value, LeafError> {
        let vars = json!({ "model": "m\"1", "prompt": "say \"hi\"\n{{ x }} %p", "item": { "n": 3,
            "tags": ["a"] }, "seq": 7 });
        let lookup = |path: &[String]| {
            path.iter()
                .try_fold(&vars, |value, key| value.get(key))
                .cloned()
        };
        compile(text)?.eval(lookup, || Jinja::from(Serde(&vars)))
    }

    #[test]
    fn long_plain_text_is_scanned_once() {
        assert!(names(&"x".repeat(1 << 20)).is_empty());
    }

    #[test]
    fn single_expression_keeps_its_type() {
        for (text, value) in [
            ("plain", json!("plain")),
            ("{{ prompt }}", json!("say \"hi\"\n{{ x }} %p")),
            ("%p", json!("say \"hi\"\n{{ x }} %p")),
            ("%m is 100%% %model 5%", json!("m\"1 is 100% %model 5%")),
            ("{{ item.tags }}", json!(["a"])),
            ("{{ item.n }}", json!(3)),
            ("{{ item.n + 1 }}", json!(4)),
            ("{{ seq }}: {{ item.tags | tojson }}", json!("7: [\"a\"]")),
            ("{% if item.n > 2 %}big{% endif %}", json!("big")),
            ("{{ {'a': item.n} }}", json!({ "a": 3 })),
            ("{{ '<&>' | tojson }}", json!("\"<&>\"")),
        ] {
            assert_eq!(eval(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn missing_value_is_an_error_and_not_empty_text() {
        assert_eq!(
            eval("{{ item.none }}"),
            Err("`item.none` has no value".into())
        );
        assert!(eval("a {{ item.none }}").is_err());
        assert!(eval("{{ item.none + 1 }}").is_err());
        assert!(compile("{{ a").is_err());
        assert!(compile("{% if %}").is_err());
    }

    #[test]
    fn template_errors_are_found_before_the_first_request() {
        fn found(text: &str) -> (String, Option<&str>) {
            let error = match compile(text) {
                Err(error) => Some(error),
                Ok(leaf) => leaf.trial(text),
            };
            error.map_or_else(Default::default, |error| {
                (error.message, error.range.map(|range| &text[range]))
            })
        }
        let deep = format!("{{{{ {}true }}}}", "not ".repeat(20_000));
        assert_eq!(
            found(&deep).0,
            "the template nests or chains more than 100 operators"
        );
        let deep = format!("a {{{{ prompt{} }}}}", ".b".repeat(50_000));
        assert_eq!(
            found(&deep).0,
            "the template nests or chains more than 100 operators"
        );
        assert_eq!(
            found("{{ prompt | shout }}"),
            ("unknown filter `shout`".into(), Some("shout"))
        );
        assert_eq!(
            found("{% if prompt is odder %}x{% endif %}"),
            ("unknown test `odder`".into(), Some("odder"))
        );
        assert_eq!(
            found("a {% if false %}{{ item.x | nope }}{% endif %}"),
            ("unknown filter `nope`".into(), Some("nope"))
        );
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert_eq!(
            found(endless).0,
            "the template exceeds the maximum number of steps"
        );
        let long = "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}";
        assert_eq!(found(long).0, "the template makes more than 64 MiB of text");
        assert_eq!(found("{{ seq / 0 }}").1, Some("seq / 0"));
        for fine in [
            "{{ 'it\\'s | x' }}",
            "{{ prompt | int }}",
            "{{ system.name }}",
            "{{ item.x is not none }}",
            "a | b {{ seq }}",
        ] {
            assert_eq!(found(fine), (String::new(), None), "{fine}");
        }
    }

    #[test]
    fn variables_are_known_before_the_first_request() {
        let names = |text: &str| {
            compile(text)
                .unwrap()
                .variables()
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(names("{{ item.a }}"), ["item.a"]);
        assert_eq!(
            names("{{ case.x | upper }} {% for i in range(3) %}{{ i }}{{ nope }}{% endfor %}"),
            ["case.x", "nope"]
        );
        assert_eq!(names("constant"), Vec::<String>::new());
    }
}
