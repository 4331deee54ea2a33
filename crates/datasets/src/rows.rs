//! `rows`: any table, by the columns that the scenario names.

use super::file::{FormatOptions, Kind, Parse, Row, RowParser};
use super::messages;
use llmscen_core::prompt::Prompt;

/// Rows with a `prompt` (or `text`) or `messages`, and as they come `system` and `output_tokens`.
pub const KIND: Kind = Kind {
    name: "rows",
    formats: FormatOptions { plain_lines: false, bare_lists: false, list_columns: &["messages", "tools"] },
    parse: Parse::Row(parse),
    words: None,
    expected: "rows with a `prompt` or `messages`; `dataset.columns` names the columns that hold them",
    builtin: None,
    remote: None,
};

/// Fields that hold the prompt.
const PROMPT: [&str; 2] = ["prompt", "text"];

fn parse(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let columns = &parser.spec.columns;
    // A row may have both: what the scenario names is meant.
    let named = columns.contains_key("messages") && !columns.contains_key("prompt");
    if named || row.get(&PROMPT).is_none() {
        let list = row.list_if(&["messages"])?;
        let missing = || if named { row.missing_field(&["messages"]) } else { row.missing_field(&[PROMPT[0], "messages"]) };
        let (_, list) = list.ok_or_else(missing)?;
        return messages::prompts(row, &list, parser);
    }
    let (text, system, max_tokens) =
        (row.text(&PROMPT)?, row.text_if(&["system"])?, row.count_if(&["output_tokens", "max_tokens"])?);
    Ok(vec![Prompt { text, system, max_tokens, fields: row.into_fields().into(), ..Prompt::default() }])
}

#[cfg(test)]
mod tests {
    use crate::testing::{all, file, opened, spec};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use serde_json::json;

    #[test]
    fn a_row_is_a_prompt_with_what_stands_beside_it() {
        let row = json!({ "prompt": " Why? ", "system": "Be terse.", "output_tokens": 12, "lang": "en" });
        let (_dir, path) = file("a.jsonl", row.to_string());
        let prompt = all(&spec(Source::Rows, &path)).remove(0).remove(0);
        assert_eq!((prompt.text.as_str(), prompt.system.as_deref(), prompt.max_tokens), (" Why? ", Some("Be terse."), Some(12)));
        assert_eq!((prompt.messages, &prompt.fields["lang"]), (None, &json!("en")));
    }

    #[test]
    fn messages_stand_in_for_a_prompt_also_as_text_in_a_table() {
        let list = r#"[{"role": "user", "content": "x"}]"#;
        let (_dir, path) = file("a.csv", format!("id,messages\n1,\"{}\"\n", list.replace('"', "\"\"")));
        let prompt = all(&spec(Source::Rows, &path)).remove(0).remove(0);
        assert_eq!((prompt.text.as_str(), json!(prompt.messages)), ("x", serde_json::from_str(list).unwrap()));
        let (_dir, path) = file("a.jsonl", json!({ "prompt": "p", "talk": [{ "role": "user", "content": "x" }] }).to_string());
        let columns = [("messages".to_owned(), "talk".to_owned())].into();
        assert_eq!(
            all(&DatasetSpec { columns, ..spec(Source::Rows, &path) })[0][0].text,
            "x",
            "the column that is named is meant"
        );
    }

    #[test]
    fn a_row_without_either_says_what_it_has() {
        let (_dir, path) = file("a.jsonl", r#"{"id": 1, "ask": "x"}"#);
        let error = opened(&spec(Source::Rows, &path)).unwrap_err().to_string();
        assert!(
            error.contains("the row has no `prompt` or `messages` (fields: id, ask); the row was left out; expected rows with"),
            "{error}"
        );
    }
}
