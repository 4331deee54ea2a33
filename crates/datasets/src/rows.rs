//! `rows`, `openqa` and `longalpaca`: rows of a table with the prompt in a column.

use super::cache::Remote;
use super::conversations;
use super::file::{FormatOptions, Kind, Parse, Row, RowParser};
use llmscen_core::dataset::Prompt;

/// Rows with a `prompt` (or `text`) or `messages`, and optionally `system` and `output_tokens`.
pub const ROWS: Kind = Kind {
    name: "rows",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: false,
        list_columns: &["messages", "tools"],
    },
    parse: Parse::Row(parse_row),
    words: None,
    expected: "rows with a `prompt` or `messages`; `dataset.columns` names the columns that hold them",
    builtin: None,
    remote: None,
};

/// Fields of the prompt, in order of preference.
const PROMPT: [&str; 2] = ["prompt", "text"];

fn parse_row(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let columns = &parser.spec.columns;
    // A row may have both: the one that the scenario names is used.
    let named = columns.contains_key("messages") && !columns.contains_key("prompt");
    if named || row.get(&PROMPT).is_none() {
        let list = row.list_if(&["messages"])?;
        let missing = || {
            if named {
                row.missing_field(&["messages"])
            } else {
                row.missing_field(&[PROMPT[0], "messages"])
            }
        };
        let (column, list) = list.ok_or_else(missing)?;
        return conversations::messages_prompts(row, &column, &list, parser);
    }
    let text = row.text(&PROMPT)?;
    let system = row.text_if(&["system"])?;
    let max_tokens = row.count_if(&["output_tokens", "max_tokens"])?;
    Ok(vec![Prompt {
        text,
        system,
        max_tokens,
        fields: row.into_fields().into(),
        ..Prompt::default()
    }])
}

/// Rows with a `question`. Without a path it is the open questions of HC3-Chinese; `path: builtin` is a small English
/// set.
pub const OPENQA: Kind = Kind {
    name: "openqa",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(|row, _| column(row, "question")),
    words: None,
    expected: "rows such as `{\"question\": \"…\"}`",
    builtin: Some(include_str!("../data/openqa.jsonl")),
    remote: Some(Remote {
        file: "openqa/open_qa.jsonl",
        hub_paths: &[
            "AI-ModelScope/HC3-Chinese/resolve/master/open_qa.jsonl",
            "Hello-SimpleAI/HC3-Chinese/resolve/main/open_qa.jsonl",
        ],
    }),
};

/// Rows with an `instruction`, such as LongAlpaca-12k.
pub const LONGALPACA: Kind = Kind {
    name: "longalpaca",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(|row, _| column(row, "instruction")),
    words: None,
    expected: "rows such as `{\"instruction\": \"…\"}`",
    builtin: None,
    remote: Some(Remote {
        file: "longalpaca/LongAlpaca-12k.json",
        hub_paths: &[
            "AI-ModelScope/LongAlpaca-12k/resolve/master/LongAlpaca-12k.json",
            "Yukang/LongAlpaca-12k/resolve/main/LongAlpaca-12k.json",
        ],
    }),
};

/// The prompt in one column of a row, the whole row in its fields.
fn column(row: Row<'_>, name: &str) -> Result<Vec<Prompt>, String> {
    let text = row.text(&[name])?;
    Ok(vec![Prompt {
        text,
        fields: row.into_fields().into(),
        ..Prompt::default()
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{all, file, opened, spec};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn a_row_is_a_prompt_with_its_other_fields() {
        let row =
            json!({ "prompt": " Why? ", "system": "Be terse.", "output_tokens": 12, "lang": "en" });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let prompt = all(&spec(Source::Rows, &path)).remove(0).remove(0);
        assert_eq!(
            (
                prompt.text.as_str(),
                prompt.system.as_deref(),
                prompt.max_tokens
            ),
            (" Why? ", Some("Be terse."), Some(12))
        );
        assert_eq!(
            (prompt.messages, &prompt.fields["lang"]),
            (None, &json!("en"))
        );
    }

    #[test]
    fn messages_replace_a_prompt_also_as_text_in_a_table() {
        let list = r#"[{"role": "user", "content": "x"}]"#;
        let (_dir, path) = file(
            "a.csv",
            format!("id,messages\n1,\"{}\"\n", list.replace('"', "\"\"")),
        );
        let prompt = all(&spec(Source::Rows, &path)).remove(0).remove(0);
        assert_eq!(
            (prompt.text.as_str(), json!(prompt.messages)),
            ("x", serde_json::from_str(list).unwrap())
        );
        let (_dir, path) = file(
            "a.jsonl",
            json!({ "prompt": "p", "talk": [{ "role": "user", "content": "x" }] }).to_string(),
        );
        let columns = [("messages".to_owned(), "talk".to_owned())].into();
        assert_eq!(
            all(&DatasetSpec {
                columns,
                ..spec(Source::Rows, &path)
            })[0][0]
                .text,
            "x",
            "the column that the scenario names is used"
        );
    }

    #[test]
    fn the_group_is_the_value_of_a_column() {
        let rows = [
            json!({ "prompt": "a", "meta": { "topic": "math" } }),
            json!({ "prompt": "b", "meta": {} }),
            json!({ "prompt": "c", "meta": { "topic": 7 } }),
            json!({ "prompt": "d", "meta": { "topic": "" } }),
        ];
        let (_dir, path) = file("a.jsonl", rows.map(|row| row.to_string()).join("\n"));
        let spec = DatasetSpec {
            group: Some("meta.topic".into()),
            ..spec(Source::Rows, &path)
        };
        let groups: Vec<Option<String>> = all(&spec)
            .into_iter()
            .map(|turns| turns[0].group.clone())
            .collect();
        assert_eq!(groups, [Some("math".to_owned()), Some("7".to_owned())]);
        let strict = DatasetSpec {
            strict: true,
            ..spec
        };
        let error = opened(&strict).unwrap_err().to_string();
        assert!(
            error.contains(&format!(
                "{path}:2: the row has no `meta.topic`, which `dataset.group` \
            names (fields: prompt, meta)"
            )),
            "{error}"
        );
    }

    #[test]
    fn the_error_of_a_row_without_either_lists_its_fields() {
        let (_dir, path) = file("a.jsonl", r#"{"id": 1, "ask": "x"}"#);
        let error = opened(&spec(Source::Rows, &path)).unwrap_err().to_string();
        assert!(
            error.contains(
                "the row has no `prompt` or `messages` (fields: id, ask); the row was \
            left out; expected rows with"
            ),
            "{error}"
        );
    }

    #[test]
    fn the_column_is_the_prompt_and_the_row_its_fields() {
        let fields = json!({ "instruction": " Sum it up. ", "output_tokens": 7 })
            .as_object()
            .unwrap()
            .clone();
        let prompt = column(Row::new(fields.clone(), &BTreeMap::new()), "instruction")
            .unwrap()
            .remove(0);
        assert_eq!(
            (
                prompt.text.as_str(),
                (*prompt.fields).clone(),
                prompt.max_tokens
            ),
            (" Sum it up. ", fields, None)
        );
    }
}
