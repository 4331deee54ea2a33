//! Splits a text at its variables.

use crate::tree::Part;
use std::ops::Range;

/// Sections that `{{ … }}` in a request body may refer to.
const SECTIONS: [&str; 5] = ["vars", "target", "request", "dataset", "load"];

/// A piece of a text.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Piece {
    /// Its range in the text.
    pub range: Range<usize>,
    pub meaning: Meaning,
}

/// The meaning of a piece.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Meaning {
    /// Literal text.
    AsIs,
    /// The text of an escape sequence.
    Literal(String),
    /// An environment variable.
    Env {
        name: String,
        /// The default, also of an empty variable.
        default: Option<String>,
    },
    /// A reference to the scenario.
    Ref(String),
    /// A part that is already replaced.
    Known(Part),
    /// A syntax error: message and help.
    Wrong(String, String),
}

/// The pieces of a text whose variables, except references to swept fields, are already replaced.
pub(super) fn from_parts(parts: &[Part]) -> Vec<Piece> {
    let meaning = |part: &Part| match part {
        Part::Ref(path) => Meaning::Ref(path.clone()),
        known => Meaning::Known(known.clone()),
    };
    parts
        .iter()
        .map(|part| Piece {
            range: 0..0,
            meaning: meaning(part),
        })
        .collect()
}

/// The pieces of a text. In a `body` the braces of the renderer are literal.
pub(super) fn from_text(text: &str, body: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut done = 0;
    let mut at = 0;
    let last_close = text.rfind("}}");
    while let Some(found) = text[at..].find(['$', '{']).map(|offset| at + offset) {
        let rest = &text[found..];
        let piece = if rest.starts_with("$${") {
            Some((3, Meaning::Literal("${".to_owned())))
        } else if rest.starts_with("${") {
            Some(variable(rest))
        } else if rest.starts_with("{{") && !(body && last_close.is_none_or(|last| last < found)) {
            reference(rest, body)
        } else {
            None
        };
        let Some((length, meaning)) = piece else {
            at = found + if rest.starts_with("{{") { 2 } else { 1 };
            continue;
        };
        if done < found {
            pieces.push(Piece {
                range: done..found,
                meaning: Meaning::AsIs,
            });
        }
        at = found + length;
        done = at;
        pieces.push(Piece {
            range: found..at,
            meaning,
        });
    }
    if done < text.len() {
        pieces.push(Piece {
            range: done..text.len(),
            meaning: Meaning::AsIs,
        });
    }
    pieces
}

/// Parses `${NAME}` or `${NAME:-default}` at the start of `text`; the default may contain variables.
fn variable(text: &str) -> (usize, Meaning) {
    let help = "Write ${NAME} or ${NAME:-default}; `$${` is a literal `${`.".to_owned();
    let Some(end) = closing(text) else {
        return (
            text.len(),
            Meaning::Wrong("`${` without `}`".to_owned(), help),
        );
    };
    let inner = &text[2..end];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inner, None),
    };
    let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let meaning = if fits {
        Meaning::Env {
            name: name.to_owned(),
            default,
        }
    } else {
        Meaning::Wrong(
            format!("`{name}` is not the name of an environment variable"),
            help,
        )
    };
    (end + 1, meaning)
}

fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return Some(index),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Parses `{{ vars.x }}` at the start of `text`. None where it belongs to the renderer.
fn reference(text: &str, body: bool) -> Option<(usize, Meaning)> {
    let help = "Write {{ vars.x }} with a plain path; {{ \"{{\" }} is two braces.".to_owned();
    let Some(end) = text.find("}}") else {
        return (!body).then(|| {
            (
                text.len(),
                Meaning::Wrong("`{{` without `}}`".to_owned(), help),
            )
        });
    };
    let inner = text[2..end].trim();
    let path = !inner.is_empty()
        && inner.split('.').all(|segment| {
            !segment.is_empty()
                && segment
                    .chars()
                    .all(|c| c.is_alphanumeric() || "_-".contains(c))
        });
    let meaning = if body {
        let (root, rest) = inner.split_once('.')?;
        let ours = path && !rest.is_empty() && SECTIONS.contains(&root);
        ours.then(|| Meaning::Ref(inner.to_owned()))?
    } else if path {
        Meaning::Ref(inner.to_owned())
    } else {
        let quoted = ['"', '\'']
            .iter()
            .find_map(|quote| inner.strip_prefix(*quote)?.strip_suffix(*quote));
        match quoted {
            Some(literal) => Meaning::Literal(literal.to_owned()),
            None => Meaning::Wrong(format!("`{inner}` is not a reference"), help),
        }
    };
    Some((end + 2, meaning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meanings(text: &str, body: bool) -> Vec<Meaning> {
        from_text(text, body)
            .into_iter()
            .map(|piece| piece.meaning)
            .collect()
    }

    fn env(name: &str, default: Option<&str>) -> Meaning {
        Meaning::Env {
            name: name.into(),
            default: default.map(Into::into),
        }
    }

    #[test]
    fn variables_references_and_escapes_are_distinguished() {
        assert_eq!(
            meanings("a ${B} c", false),
            [Meaning::AsIs, env("B", None), Meaning::AsIs]
        );
        assert_eq!(
            meanings("${A:-${B:-c}}", false),
            [env("A", Some("${B:-c}"))]
        );
        assert_eq!(
            meanings("$${A} $5 {x}", false),
            [Meaning::Literal("${".into()), Meaning::AsIs]
        );
        assert_eq!(
            meanings("{{ vars.x }}", false),
            [Meaning::Ref("vars.x".into())]
        );
        assert_eq!(
            meanings("{{ \"{{\" }}", false),
            [Meaning::Literal("{{".into())]
        );
        assert!(matches!(
            meanings("{{ a | b }}", false)[..],
            [Meaning::Wrong(..)]
        ));
        assert!(matches!(meanings("${A", false)[..], [Meaning::Wrong(..)]));
        assert!(matches!(
            meanings("${A:?x}", false)[..],
            [Meaning::Wrong(..)]
        ));
    }

    #[test]
    fn braces_of_the_renderer_stay_in_bodies() {
        assert_eq!(
            meanings("{{ prompt }} {{ vars.x }}", true),
            [Meaning::AsIs, Meaning::Ref("vars.x".into())]
        );
        assert_eq!(meanings("{{ item.a | upper }} {{", true), [Meaning::AsIs]);
        assert_eq!(meanings("{{ vars.x | upper }}", true), [Meaning::AsIs]);
    }
}
