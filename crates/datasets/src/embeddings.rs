//! `embeddings`: texts to embed, one or a batch per request.

use super::error::PromptError;
use super::file::{self, FilePrompts, FormatOptions, Kind, Parse, Row, RowParser};
use super::{Prompts, Setting};
use llmscen_core::dataset::{OnExhausted, Prompt, Session};
use serde_json::Value;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Rows with an `input` (or `text`, or `prompt`), or plain lines.
const KIND: Kind = Kind {
    name: "embeddings",
    formats: FormatOptions::ROWS,
    parse: Parse::Row(parse),
    words: Some(|prompt| prompt.text.clone()),
    expected: "plain lines, or rows such as `{\"input\": \"…\"}`",
    builtin: Some(include_str!("../data/embeddings.jsonl")),
    remote: None,
};

fn parse(row: Row<'_>, _: &RowParser) -> Result<Vec<Prompt>, String> {
    let text = row.text(&["input", "text", "prompt"])?;
    let mut fields = row.into_fields();
    fields.insert("input".into(), text.clone().into());
    Ok(vec![Prompt {
        text,
        fields: fields.into(),
        ..Prompt::default()
    }])
}

/// Opens the file. The last batch of a pass over the rows may be smaller: no batch repeats a row next to new ones.
pub fn open(
    batch: u64,
    setting: &Setting<'_>,
    notes: &mut Vec<String>,
) -> Result<impl Prompts + use<>, PromptError> {
    let batch = batch.max(1);
    let rows = Setting {
        first: setting.first.saturating_mul(batch),
        tokenizer: setting.tokenizer.clone(),
        ..*setting
    };
    let cycle = setting.spec.on_exhausted == OnExhausted::Cycle;
    Ok(Batches {
        rows: file::open(&KIND, &rows, notes)?,
        batch,
        cycle,
    })
}

struct Batches {
    rows: FilePrompts,
    batch: u64,
    cycle: bool,
}

impl Batches {
    /// The rows of a batch; shortened only where the number of rows is known. None after the last batch.
    fn batch_rows(&self, seq: u64) -> Option<Range<u64>> {
        let Some(rows) = self.rows.len() else {
            let first = seq.saturating_mul(self.batch);
            return Some(first..first.saturating_add(self.batch));
        };
        let batches = rows.div_ceil(self.batch).max(1);
        let first = (seq % batches).saturating_mul(self.batch);
        (self.cycle || seq < batches).then(|| first..first.saturating_add(self.batch).min(rows))
    }

    fn read_rows(&self, rows: &Range<u64>) -> Vec<Prompt> {
        rows.clone()
            .map_while(|row| self.rows.session(row))
            .flat_map(|session| session.turns)
            .collect()
    }
}

impl Prompts for Batches {
    fn session(&self, seq: u64) -> Option<Session> {
        let mut rows = self.batch_rows(seq)?;
        let mut prompts = self.read_rows(&rows);
        // Reading may have found the end of the file.
        if self.batch_rows(seq)? != rows {
            rows = self.batch_rows(seq)?;
            prompts = self.read_rows(&rows);
        }
        // A batch that is incomplete because the data cannot be read is not sent.
        if (prompts.len() as u64) < rows.end - rows.start
            && (self.cycle || self.rows.fault().is_some())
        {
            return None;
        }
        join_prompts(prompts, self.batch).map(|prompt| vec![prompt].into())
    }

    fn len(&self) -> Option<u64> {
        self.rows.len().map(|rows| rows.div_ceil(self.batch))
    }

    fn dropped(&self) -> u64 {
        self.rows.dropped()
    }

    fn ready(&self, seq: u64, timeout: Duration) -> bool {
        self.rows.ready(
            seq.saturating_mul(self.batch)
                .saturating_add(self.batch - 1),
            timeout,
        )
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.rows.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.rows.problems()
    }
}

/// Joins the prompts of a batch: `item.input` is the list of their texts, the other fields are those of the first row.
fn join_prompts(mut prompts: Vec<Prompt>, batch: u64) -> Option<Prompt> {
    if batch == 1 {
        return prompts.pop();
    }
    let texts: Vec<String> = prompts.iter().map(|prompt| prompt.text.clone()).collect();
    let tokens = prompts.iter().map(|prompt| prompt.tokens).sum();
    let mut prompt = prompts.into_iter().next()?;
    (prompt.text, prompt.tokens) = (texts.join("\n"), tokens);
    Arc::make_mut(&mut prompt.fields)
        .insert("input".into(), texts.into_iter().map(Value::from).collect());
    Some(prompt)
}

#[cfg(test)]
mod tests {
    use crate::testing::{all, file, opened, spec};
    use llmscen_core::dataset::{DatasetSpec, OnExhausted, Source};
    use serde_json::{Value, json};

    fn inputs(spec: &DatasetSpec, count: u64) -> Vec<Option<Value>> {
        let prompts = opened(spec).unwrap().prompts;
        (0..count)
            .map(|seq| {
                prompts
                    .session(seq)
                    .map(|session| session.turns[0].fields["input"].clone())
            })
            .collect()
    }

    #[test]
    fn a_request_holds_one_text_or_a_list_of_consecutive_ones() {
        let (_dir, path) = file("a.txt", "a\nb\n\nc\nd\ne\n");
        assert_eq!(
            inputs(&spec(Source::Embeddings { batch: 1 }, &path), 2),
            [Some(json!("a")), Some(json!("b"))]
        );
        let mut pairs = spec(Source::Embeddings { batch: 2 }, &path);
        let [ab, cd] = [json!(["a", "b"]), json!(["c", "d"])];
        assert_eq!(
            inputs(&pairs, 4),
            [
                Some(ab.clone()),
                Some(cd.clone()),
                Some(json!(["e"])),
                Some(ab.clone())
            ]
        );
        pairs.on_exhausted = OnExhausted::Stop;
        assert_eq!(
            inputs(&pairs, 4),
            [Some(ab), Some(cd), Some(json!(["e"])), None]
        );
        assert_eq!(opened(&pairs).unwrap().prompts.len(), Some(3));
    }

    #[test]
    fn the_tokens_of_a_batch_are_those_of_its_texts() {
        let rows = [
            json!({ "text": "the sky is blue", "id": 1 }),
            json!({ "input": "the sky", "text": "x" }),
        ];
        let (_dir, path) = file("a.jsonl", format!("{}\n{}\n", rows[0], rows[1]));
        let tokenizer = Some("builtin".to_owned());
        let spec = DatasetSpec {
            tokenizer,
            system: Some("ignored".into()),
            ..spec(Source::Embeddings { batch: 2 }, &path)
        };
        let prompt = all(&spec).remove(0).remove(0);
        assert_eq!(
            (prompt.text.as_str(), prompt.tokens),
            ("the sky is blue\nthe sky", Some(6))
        );
        assert_eq!(
            (&prompt.fields["id"], &prompt.fields["input"]),
            (&json!(1), &json!(["the sky is blue", "the sky"]))
        );
    }
}
