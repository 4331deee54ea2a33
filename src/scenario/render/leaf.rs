//! The texts of a request body: each compiled once, evaluated per request.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{Environment, Error, ErrorKind, Expression, UndefinedBehavior, Value as Jinja};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The variables of a template.
pub(crate) const ROOTS: [&str; 8] = ["model", "prompt", "messages", "system", "dialog", "item", "case", "seq"];

/// Expressions borrow their environment, so they share one that lives as long as the program.
static SHARED: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// A compiled text.
pub(crate) enum Leaf {
    /// No variable in it.
    Constant(String),
    /// Exactly one variable, by its path: `{{ item.question }}`. It keeps its type.
    Variable(Vec<String>),
    /// Exactly one expression: it keeps its type.
    Expression(Box<Expression<'static, 'static>>),
    /// Text with expressions in it.
    Text(Box<Environment<'static>>),
}

const NAME: &str = "leaf";

/// Compiles a text. An error names what does not parse.
pub(crate) fn compile(text: &str) -> Result<Leaf, String> {
    let text = sugar(text);
    if !["{{", "{%", "{#"].iter().any(|mark| text.contains(mark)) {
        return Ok(Leaf::Constant(text));
    }
    if let Some(inner) = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
        let path: Vec<String> = inner.trim().split('.').map(str::to_owned).collect();
        if ROOTS.contains(&path[0].as_str()) && path.iter().all(|segment| is_name(segment)) {
            return Ok(Leaf::Variable(path));
        }
        if let Ok(expression) = SHARED.compile_expression_owned(inner.to_owned()) {
            return Ok(Leaf::Expression(Box::new(expression)));
        }
    }
    let mut own = environment();
    own.add_template_owned(NAME, text).map_err(|error| message(&error))?;
    Ok(Leaf::Text(Box::new(own)))
}

impl Leaf {
    /// The variables it needs, dotted where it says so, without what the template sets itself.
    pub fn variables(&self) -> BTreeSet<String> {
        let found = match self {
            Leaf::Constant(_) => return BTreeSet::new(),
            Leaf::Variable(path) => return BTreeSet::from([path.join(".")]),
            Leaf::Expression(expression) => expression.undeclared_variables(true),
            Leaf::Text(own) => own.get_template(NAME).map(|template| template.undeclared_variables(true)).unwrap_or_default(),
        };
        let global = |name: &str| SHARED.globals().any(|(own, _)| own == name);
        found.into_iter().filter(|path| !global(path.split('.').next().unwrap_or(path))).collect()
    }

    /// Its value. `lookup` finds variables by path; `context` holds them all, for expressions.
    pub fn eval(&self, lookup: impl Fn(&[String]) -> Option<Value>, context: impl Fn() -> Jinja) -> Result<Value, String> {
        match self {
            Leaf::Constant(text) => Ok(Value::String(text.clone())),
            Leaf::Variable(path) => lookup(path).ok_or_else(|| format!("`{}` has no value", path.join("."))),
            Leaf::Expression(expression) => {
                let value = expression.eval(context()).map_err(|error| message(&error))?;
                if value.is_undefined() {
                    return Err("an expression has no value".to_owned());
                }
                serde_json::to_value(&value).map_err(|error| error.to_string())
            }
            Leaf::Text(own) => {
                let template = own.get_template(NAME).map_err(|error| message(&error))?;
                template.render(context()).map(Value::String).map_err(|error| message(&error))
            }
        }
    }
}

fn is_name(segment: &str) -> bool {
    segment.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && segment.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn message(error: &Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.keep_trailing_newline(true);
    // The default delimiters never conflict.
    if let Ok(syntax) = syntax.build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    // The built-in filter escapes for HTML; a body wants JSON as it is.
    environment.add_filter("tojson", |value: Serde<Value>, _: Kwargs| {
        serde_json::to_string(&value.0).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
    environment
}

/// `%m` and `%p` become `{{ model }}` and `{{ prompt }}`, `%%` a percent sign; not inside of braces, and not before a letter.
fn sugar(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['%', '{']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let block = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")].into_iter().find(|(open, _)| rest.starts_with(open));
        let ends = |length: usize| !rest[length..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
        let (length, replacement) = match block {
            Some((_, close)) => (rest[2..].find(close).map_or(rest.len(), |end| end + 4), None),
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
    use serde_json::json;

    fn eval(text: &str) -> Result<Value, String> {
        let vars = json!({ "model": "m\"1", "prompt": "say \"hi\"\n{{ x }} %p", "item": { "n": 3, "tags": ["a"] }, "seq": 7 });
        let lookup = |path: &[String]| path.iter().try_fold(&vars, |value, key| value.get(key)).cloned();
        compile(text)?.eval(lookup, || Jinja::from(Serde(&vars)))
    }

    #[test]
    fn one_expression_keeps_its_type_and_text_is_text() {
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
    fn what_has_no_value_is_an_error_and_never_empty() {
        assert_eq!(eval("{{ item.none }}"), Err("`item.none` has no value".into()));
        assert!(eval("a {{ item.none }}").is_err());
        assert!(eval("{{ item.none + 1 }}").is_err());
        assert!(compile("{{ a").is_err());
        assert!(compile("{% if %}").is_err());
    }

    #[test]
    fn the_variables_are_known_before_the_first_request() {
        let names = |text: &str| compile(text).unwrap().variables().into_iter().collect::<Vec<_>>();
        assert_eq!(names("{{ item.a }}"), ["item.a"]);
        assert_eq!(names("{{ case.x | upper }} {% for i in range(3) %}{{ i }}{{ nope }}{% endfor %}"), ["case.x", "nope"]);
        assert_eq!(names("constant"), Vec::<String>::new());
    }
}
