//! Rerank as vLLM serves it: random scores from 0 to 1, by the seed. All pairs of query and document are one prefill.

use super::{ChoiceText, Protocol, Reply, Times, openai};
use crate::generation::{Call, Generation, Refusal};
use crate::prompt::Prompt;
use llmscen_core::seed::Seed;
use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Rerank;

impl Protocol for Rerank {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/rerank", "/rerank", "/v2/rerank"]
    }

    fn id(&self, number: u64) -> String {
        format!("rerank-sim-{number}")
    }

    fn read(&self, call: &Call<'_>) -> Result<(Generation, Box<dyn Reply>), Refusal> {
        let body = call.body;
        let query = body
            .text("query")?
            .ok_or_else(|| body.wrong("query", "is missing"))?;
        let documents: Option<Vec<String>> = body
            .list("documents", "document")?
            .iter()
            .map(document)
            .collect();
        let documents = documents
            .ok_or_else(|| body.wrong("documents", "must hold texts, or objects with a `text`"))?;
        let most = body
            .count("top_n")?
            .filter(|most| *most > 0)
            .map_or(documents.len(), |most| most as usize);
        let mut prompt = Prompt::new(false);
        documents
            .iter()
            .for_each(|document| prompt.add(pair(query, document)));
        let shown = body.flag("return_documents", true)?;
        let reply = Scores {
            id: call.id.to_owned(),
            seed: call.seed,
            documents,
            most,
            shown,
        };
        Ok((call.pooled(prompt)?, Box::new(reply)))
    }

    fn error(&self, refusal: &Refusal, _id: Option<&str>) -> String {
        openai::error(refusal)
    }
}

fn document(value: &Value) -> Option<String> {
    value
        .as_str()
        .or_else(|| value.get("text")?.as_str())
        .map(str::to_owned)
}

/// Tokens of a query and a document, which form one prompt.
fn pair(query: &str, document: &str) -> u64 {
    let mut prompt = Prompt::new(false);
    prompt.text(query);
    prompt.text(document);
    prompt.tokens()
}

#[derive(Debug)]
struct Scores {
    id: String,
    seed: Seed,
    documents: Vec<String>,
    /// Maximum number of results.
    most: usize,
    /// Results include their document.
    shown: bool,
}

impl Reply for Scores {
    fn full_answer(
        &self,
        generation: &Generation,
        _choices: &[ChoiceText],
        _times: Times,
    ) -> String {
        let score = |index: u64| {
            (self.seed.child("score").child(index).0 >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut scores: Vec<(f64, usize)> = (0..self.documents.len())
            .map(|index| (score(index as u64), index))
            .collect();
        scores.sort_by(|one, two| two.0.total_cmp(&one.0));
        let result = |(score, index): &(f64, usize)| match self
            .documents
            .get(*index)
            .filter(|_| self.shown)
        {
            Some(text) => {
                json!({ "index": index, "document": { "text": text }, "relevance_score": score })
            }
            None => json!({ "index": index, "relevance_score": score }),
        };
        let results: Vec<Value> = scores.iter().take(self.most).map(result).collect();
        let (results, tokens) = (Value::Array(results), generation.prompt.tokens());
        let usage = if generation.usage {
            format!(",\"usage\":{{\"total_tokens\":{tokens}}}")
        } else {
            String::new()
        };
        format!(
            "{{\"id\":\"{}\",\"model\":{}{usage},\"results\":{results}}}",
            self.id, generation.model
        )
    }

    fn broken(&self, _generation: &Generation) -> String {
        openai::error(&Refusal::broken())
    }
}
