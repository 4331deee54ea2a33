//! `rerank`: a query with documents to rank.

use super::file::{FormatOptions, Kind, Parse, Row, RowParser};
use llmscen_core::dataset::{Prompt, Source};
use serde_json::Value;

/// Rows with a `query` and `documents`, or with `positive` and `negative` documents as in MTEB. The request
/// contains `item.query` and `item.documents`. The tokens of the query and all documents are counted.
pub const KIND: Kind = Kind {
    name: "rerank",
    formats: FormatOptions {
        plain_lines: false,
        bare_lists: false,
        list_columns: &["documents", "positive", "negative", "passages"],
    },
    parse: Parse::Row(parse),
    words: Some(query_and_documents),
    expected: "rows such as `{\"query\": \"…\", \"documents\": [\"…\"]}` or with `positive` and `negative`",
    builtin: Some(include_str!("../data/rerank.jsonl")),
    remote: None,
};

const DOCUMENTS: [&str; 2] = ["documents", "passages"];

fn parse(row: Row<'_>, parser: &RowParser) -> Result<Vec<Prompt>, String> {
    let query = row.text(&["query", "question"])?;
    let mut documents = match row.get(&DOCUMENTS) {
        Some((name, value)) => parse_documents(&name, value)?,
        None => [row.get(&["positive"]), row.get(&["negative"])]
            .into_iter()
            .flatten()
            .map(|(name, value)| parse_documents(&name, value))
            .collect::<Result<Vec<_>, _>>()?
            .concat(),
    };
    if documents.is_empty() {
        return Err(if row.get(&DOCUMENTS).is_some() {
            "the row has no documents".into()
        } else {
            row.missing_field(&DOCUMENTS[..1])
        });
    }
    if let Source::Rerank {
        documents: Some(max),
    } = parser.spec.source
    {
        documents.truncate(usize::try_from(max).unwrap_or(usize::MAX));
    }
    let mut fields = row.into_fields();
    fields.insert("query".into(), query.clone().into());
    fields.insert("documents".into(), Value::Array(documents));
    Ok(vec![Prompt {
        text: query,
        fields: fields.into(),
        ..Prompt::default()
    }])
}

/// A list of texts or of mappings with a `text`, or a single one. They are sent unchanged.
fn parse_documents(name: &str, value: &Value) -> Result<Vec<Value>, String> {
    let parsed;
    let list = match value {
        Value::Array(list) => list.as_slice(),
        Value::String(text) if text.trim_start().starts_with('[') => {
            parsed =
                serde_json::from_str::<Vec<Value>>(text).unwrap_or_else(|_| vec![value.clone()]);
            &parsed
        }
        one => std::slice::from_ref(one),
    };
    let is_document =
        |value: &Value| value.is_string() || value.get("text").is_some_and(Value::is_string);
    if list.iter().all(is_document) {
        Ok(list.to_vec())
    } else {
        Err(format!(
            "`{name}` has an element that is neither a text nor a mapping with `text`"
        ))
    }
}

fn query_and_documents(prompt: &Prompt) -> String {
    let documents = prompt
        .fields
        .get("documents")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let documents =
        documents.filter_map(|value| value.as_str().or_else(|| value.get("text")?.as_str()));
    std::iter::once(prompt.text.as_str())
        .chain(documents)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use crate::testing::{all, file, opened, spec};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use serde_json::{Value, json};

    fn documents(row: &Value, most: Option<u64>) -> Value {
        let (_dir, path) = file("a.jsonl", row.to_string());
        let prompt = all(&spec(Source::Rerank { documents: most }, &path))
            .remove(0)
            .remove(0);
        assert_eq!(
            (prompt.text.as_str(), &prompt.fields["query"]),
            (row["query"].as_str().unwrap(), &row["query"])
        );
        prompt.fields["documents"].clone()
    }

    #[test]
    fn documents_stand_in_a_list_or_as_positive_and_negative_ones() {
        let plain = json!({ "query": " q ", "documents": ["a", { "text": "b", "id": 2 }, "c"] });
        assert_eq!(documents(&plain, None), plain["documents"]);
        assert_eq!(
            documents(&plain, Some(2)),
            json!(["a", { "text": "b", "id": 2 }])
        );
        let mteb = json!({ "query": "q", "positive": ["a"], "negative": ["b", "c"] });
        assert_eq!(documents(&mteb, Some(9)), json!(["a", "b", "c"]));
        assert_eq!(
            documents(
                &json!({ "query": "q", "positive": "a", "negative": "[\"b\"]" }),
                None
            ),
            json!(["a", "b"])
        );
    }

    #[test]
    fn tokens_are_those_of_the_query_and_the_documents_that_are_sent() {
        let (_dir, path) = file(
            "a.jsonl",
            json!({ "query": "the sky", "documents": ["the sea", "the sky is blue"] }).to_string(),
        );
        let count = |documents| {
            let spec = DatasetSpec {
                tokenizer: Some("builtin".into()),
                ..spec(Source::Rerank { documents }, &path)
            };
            all(&spec)[0][0].tokens.unwrap()
        };
        let builtin = crate::token::Tokenizer::builtin();
        assert_eq!(
            Some(count(None)),
            builtin.count("the sky\nthe sea\nthe sky is blue")
        );
        assert_eq!(Some(count(Some(1))), builtin.count("the sky\nthe sea"));
    }

    #[test]
    fn rows_without_documents_do_not_fit() {
        for (row, problem) in [
            (
                json!({ "query": "q" }),
                "the row has no `documents` (fields: query)",
            ),
            (
                json!({ "query": "q", "documents": [] }),
                "the row has no documents",
            ),
            (
                json!({ "query": "q", "documents": [1] }),
                "`documents` has an element that is neither a text nor a mapping with `text`",
            ),
            (
                json!({ "documents": ["a"] }),
                "the row has no `query` or `question` (fields: documents)",
            ),
        ] {
            let (_dir, path) = file("a.jsonl", row.to_string());
            let strict = DatasetSpec {
                strict: true,
                ..spec(Source::Rerank { documents: None }, &path)
            };
            let error = opened(&strict).unwrap_err().to_string();
            assert!(
                error.contains(&format!(":1: {problem}; expected")),
                "{error}"
            );
        }
    }
}
