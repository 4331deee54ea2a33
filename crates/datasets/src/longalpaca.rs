//! `longalpaca`: rows with an `instruction`.

use super::cache::Remote;
use super::file::{FormatOptions, Kind, Parse, Row};
use llmscen_core::prompt::Prompt;

/// Rows of any table, such as LongAlpaca-12k.
pub const KIND: Kind = Kind {
    name: "longalpaca",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(|row, _| column(row, "instruction")),
    words: None,
    expected: "rows such as `{\"instruction\": \"…\"}`",
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
pub fn column(row: Row<'_>, name: &str) -> Result<Vec<Prompt>, String> {
    let text = row.text(&[name])?;
    Ok(vec![Prompt { text, fields: row.into_fields().into(), ..Prompt::default() }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn the_column_is_the_prompt_and_the_row_its_fields() {
        let fields = json!({ "instruction": " Sum it up. ", "output_tokens": 7 }).as_object().unwrap().clone();
        let prompt = column(Row::new(fields.clone(), &BTreeMap::new()), "instruction").unwrap().remove(0);
        assert_eq!((prompt.text.as_str(), (*prompt.fields).clone(), prompt.max_tokens), (" Sum it up. ", fields, None));
    }
}
