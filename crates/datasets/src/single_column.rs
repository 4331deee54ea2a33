//! `openqa` and `longalpaca`: rows of any table with the prompt in one column.

use super::cache::Remote;
use super::file::{FormatOptions, Kind, Parse, Row};
use llmscen_core::prompt::Prompt;

/// Rows with a `question`. On the hubs it is the open questions of HC3-Chinese; `path: builtin` is the small English set
/// that ships with this tool.
pub const OPENQA: Kind = Kind {
    name: "openqa",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(|row, _| column(row, "question")),
    words: None,
    expected: "rows such as `{\"question\": \"…\"}`",
    builtin: Some(include_str!("../data/openqa.jsonl")),
    remote: Some(Remote {
        file: "openqa/open_qa.jsonl",
        homes: &[
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
        homes: &[
            "AI-ModelScope/LongAlpaca-12k/resolve/master/LongAlpaca-12k.json",
            "Yukang/LongAlpaca-12k/resolve/main/LongAlpaca-12k.json",
        ],
    }),
};

/// The prompt in one column of a row, the whole row in its fields.
fn column(row: Row<'_>, name: &str) -> Result<Vec<Prompt>, String> {
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
