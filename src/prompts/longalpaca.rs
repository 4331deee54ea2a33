//! `longalpaca`: rows with an `instruction`.

use super::cache::Remote;
use super::rows::{self, reason};
use super::table::Kind;
use crate::model::prompt::Prompt;
use serde_json::Value;

/// JSONL or a JSON list, as LongAlpaca-12k has it.
pub const KIND: Kind = Kind {
    name: "longalpaca",
    split: rows::json,
    parse: |row| column(row, "instruction"),
    expected: "JSONL or a JSON list of rows such as `{\"instruction\": \"…\"}`",
    builtin: None,
    remote: Some(Remote {
        file: "longalpaca/LongAlpaca-12k.json",
        homes: &[
            "AI-ModelScope/LongAlpaca-12k/resolve/master/LongAlpaca-12k.json",
            "Yukang/LongAlpaca-12k/resolve/main/LongAlpaca-12k.json",
        ],
    }),
};

/// The prompt in one column of a row, the whole row in its fields.
pub fn column(row: &str, name: &str) -> Result<Prompt, String> {
    let fields = match serde_json::from_str(row) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err("the row is not a JSON object".into()),
        Err(error) => return Err(reason(&error)),
    };
    match fields.get(name) {
        Some(Value::String(text)) => Ok(Prompt { text: text.trim().to_owned(), fields, ..Prompt::default() }),
        Some(_) => Err(format!("`{name}` is not a text")),
        None => {
            let seen: Vec<&str> = fields.keys().map(String::as_str).collect();
            Err(format!("the row has no `{name}` (it has: {})", seen.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_the_prompt_and_the_row_its_fields() {
        let prompt = column(r#"{"instruction": " Sum it up. ", "output_tokens": 7}"#, "instruction").unwrap();
        assert_eq!(prompt.text, "Sum it up.");
        assert_eq!(prompt.fields["output_tokens"], 7);
        assert_eq!(prompt.fields.len(), 2);
    }

    #[test]
    fn a_row_of_another_shape_says_what_it_has() {
        let error = |row| column(row, "question").unwrap_err();
        assert_eq!(error(r#"{"id": 1, "query": "x"}"#), "the row has no `question` (it has: id, query)");
        assert_eq!(error(r#"{"question": null}"#), "`question` is not a text");
        assert_eq!(error("[1]"), "the row is not a JSON object");
        assert_eq!(error("Why?"), "not JSON (expected value)");
    }
}
