//! Commands and their arguments.

use crate::fault::{Mistake, Review};
use crate::schema_table::Leaf;
use crate::tree::{Data, Entry, Node};
use crate::values::{expect, expect_some};
use serde_json::json;

pub(crate) static COMMAND: Leaf = Leaf {
    expected: "a command, or a list of its words",
    sweepable: true,
    schema: || {
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "minItems": 1,
        "items": { "type": ["string", "number"] } }] })
    },
    check: check_command,
};

pub(crate) static ARGUMENT: Leaf = Leaf {
    expected: "a value, a list of them, `true` or `false`",
    sweepable: true,
    schema: || {
        let one = json!({ "type": ["string", "number", "boolean", "null"] });
        json!({ "anyOf": [one, { "type": "array", "items": { "type": ["string", "number"] } }] })
    },
    check: |node, review| {
        let examples = "`64`, `true` for the flag alone, or `[a, b]` for several values";
        expect_some(
            values(node),
            node,
            "one value, a list of values, `true` or `false`",
            examples,
            review,
        );
    },
};

fn check_command(node: &Node, review: &mut Review) {
    match &node.data {
        Data::Text(text) if shell_words::split(text).is_err() => {
            let mistake = Mistake::new(
                node.at,
                "this command cannot be split into words",
                "a quote is not closed",
            );
            review.push(mistake.help(
                "It is split like in a shell, but no shell runs it; a list \
            of words needs no quotes.",
            ));
        }
        _ if command(node).is_none() => {
            expect(
                node,
                "a command, or a list of its words",
                "`vllm serve m --port 8000` or `[vllm, serve, m]`",
                review,
            );
        }
        _ => {}
    }
}

/// The words of a command; never empty.
pub(crate) fn command(node: &Node) -> Option<Vec<String>> {
    let words = match &node.data {
        Data::Text(text) => shell_words::split(text).ok()?,
        Data::List(items) => items.iter().map(word).collect::<Option<Vec<_>>>()?,
        _ => return None,
    };
    words
        .first()
        .is_some_and(|program| !program.is_empty())
        .then_some(words)
}

/// A word: text, or a number as written.
fn word(node: &Node) -> Option<String> {
    match node.data {
        Data::Int(_) | Data::Float(_) => Some(
            node.text()
                .map_or_else(|| node.json().to_string(), |text| text.into_owned()),
        ),
        Data::Text(ref text) => Some(text.clone()),
        _ => None,
    }
}

/// The style of arguments that are settings of the simulator: `max_num_seqs: 64` is
/// `--set target.simulator.max_num_seqs=64`.
pub(crate) const SIMULATOR_SETTING: &str = "setting";

/// The flag and its values: `max_num_seqs: 64` is `--max-num-seqs 64`, `true` the flag alone, `false` nothing. A name
/// with a leading dash is used unchanged; a single letter gets one dash.
pub(crate) fn argument(entry: &Entry, style: &str) -> Vec<String> {
    let Some(Some(values)) = values(&entry.value) else {
        return Vec::new();
    };
    let name = &entry.key;
    if style == SIMULATOR_SETTING && !name.starts_with('-') {
        let value = entry.value.json();
        let value = value.as_str().map_or(value.to_string(), str::to_owned);
        return vec![
            "--set".to_owned(),
            format!("target.simulator.{name}={value}"),
        ];
    }
    let flag = match name {
        name if name.starts_with('-') => name.clone(),
        name if name.chars().count() == 1 => format!("-{name}"),
        name => match style {
            "snake" => format!("--{}", name.replace('-', "_")),
            "as_is" => format!("--{name}"),
            _ => format!("--{}", name.replace('_', "-")),
        },
    };
    std::iter::once(flag).chain(values).collect()
}

/// The values after the flag. Inner None: the flag is omitted.
fn values(node: &Node) -> Option<Option<Vec<String>>> {
    match &node.data {
        Data::Null | Data::Bool(false) => Some(None),
        Data::Bool(true) => Some(Some(Vec::new())),
        Data::List(items) => items
            .iter()
            .map(word)
            .collect::<Option<Vec<_>>>()
            .map(|all| Some(all).filter(|all| !all.is_empty())),
        _ => Some(Some(vec![word(node)?])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn read(text: &str) -> Node {
        parse(0, 0, text, &mut Review::default()).unwrap()
    }

    #[test]
    fn commands_are_split_like_in_a_shell() {
        let words = |text| command(&read(text)).map(|words| words.join("|"));
        assert_eq!(
            words("vllm serve 'my model' --port 8000").as_deref(),
            Some("vllm|serve|my model|--port|8000")
        );
        assert_eq!(words("[a, 'b c', 7, 0.5]").as_deref(), Some("a|b c|7|0.5"));
        assert_eq!(
            words(r#"'sh -c "echo $HOME > x; y"'"#).as_deref(),
            Some("sh|-c|echo $HOME > x; y")
        );
        for bad in ["\"a 'b\"", "[]", "''", "7", "[a, [b]]", "{a: b}"] {
            assert_eq!(words(bad), None, "{bad}");
        }
    }

    #[test]
    fn arguments_become_flags() {
        let styled = |text, style| {
            read(text)
                .entries()
                .iter()
                .flat_map(|entry| argument(entry, style))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let flags = |text| styled(text, "kebab");
        assert_eq!(
            flags("{max_num_seqs: 64, enforce_eager: true, n: 2}"),
            "--max-num-seqs 64 --enforce-eager -n 2"
        );
        assert_eq!(
            flags("{a: false, b: null, c: [], --as_is: x, dtype: float16}"),
            "--as_is x --dtype float16"
        );
        assert_eq!(
            flags("{lora-modules: [a=x, b=y], gpu_memory_utilization: 0.9}"),
            "--lora-modules a=x b=y --gpu-memory-utilization 0.9"
        );
        assert_eq!(values(&read("{a: b}")), None);
        let mixed = "{tp_size: 2, ep-size: 4, --x_y-z: 1, n: 2}";
        let flags = ["kebab", "snake", "as_is"].map(|style| styled(mixed, style));
        assert_eq!(
            flags,
            [
                "--tp-size 2 --ep-size 4 --x_y-z 1 -n 2",
                "--tp_size 2 --ep_size 4 --x_y-z 1 -n 2",
                "--tp_size 2 --ep-size 4 --x_y-z 1 -n 2"
            ]
        );
    }
}
