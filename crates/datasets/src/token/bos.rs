//! The BOS token of plain text: exactly one where the model's files ask for it.

use super::Tokenizer;
use serde_json::{Map, Value, json};
use tokenizers::PostProcessorWrapper;

/// What the special tokens around a text are found with.
const TEXT: &str = "a";

impl Tokenizer {
    /// The same with the BOS token in front of plain text, or without it, whatever its post-processor does. Unchanged where
    /// nothing is said (`adds` is None), or where the token is not known.
    pub(super) fn with_bos(mut self, adds: Option<bool>, bos: Option<u32>) -> Tokenizer {
        let (Some(adds), Some(bos)) = (adds, bos) else { return self };
        let Some((mut before, after)) = self.special_tokens() else { return self };
        match (adds, before.first() == Some(&bos)) {
            (true, false) => before.insert(0, bos),
            (false, true) => _ = before.remove(0),
            _ => return self,
        }
        if let Some(processor) = self.post_processor(&before, &after) {
            self.inner.with_post_processor(Some(processor));
        }
        self
    }

    /// The tokens of a prompt that no chat template made: with the special tokens around it, but never with two BOS tokens where
    /// the text begins with one itself. None where the tokenizer refuses it.
    pub fn encode_prompt(&self, text: &str) -> Option<Vec<u32>> {
        let mut ids = self.encode(text, true)?;
        let twice = matches!(ids.as_slice(), [first, second, ..] if first == second);
        if twice && self.special_tokens().is_some_and(|(before, _)| before.as_slice() == ids.get(..1).unwrap_or_default()) {
            ids.remove(0);
        }
        Some(ids)
    }

    /// The special tokens in front of a plain text and behind it.
    fn special_tokens(&self) -> Option<(Vec<u32>, Vec<u32>)> {
        let (whole, plain) = (self.encode(TEXT, true)?, self.encode(TEXT, false)?);
        let at = whole.windows(plain.len().max(1)).position(|ids| ids == plain)?;
        Some((whole.get(..at)?.to_vec(), whole.get(at + plain.len()..)?.to_vec()))
    }

    fn post_processor(&self, before: &[u32], after: &[u32]) -> Option<PostProcessorWrapper> {
        let name = |id: &u32| self.inner.id_to_token(*id);
        let special = |ids: &[u32], kind: u32| {
            let piece = |id: &u32| Some(json!({ "SpecialToken": { "id": name(id)?, "type_id": kind } }));
            ids.iter().map(piece).collect::<Option<Vec<Value>>>()
        };
        let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
        let single = [special(before, 0)?, vec![text("A", 0)], special(after, 0)?].concat();
        let pair = [single.clone(), vec![text("B", 1)], special(after, 1)?].concat();
        let known = |id: &u32| Some((name(id)?, json!({ "id": name(id)?, "ids": [id], "tokens": [name(id)?] })));
        let tokens: Map<String, Value> = before.iter().chain(after).filter_map(known).collect();
        let template = json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens });
        serde_json::from_value(template).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::trained::CHATML;

    /// Tokens of `text` by a folder whose tokenizer_config.json and post-processor are these.
    fn encoded(config: Value, processor: Value, text: &str) -> (Vec<u32>, u32) {
        let folder = CHATML.folder("byte-level");
        let path = folder.path().join("tokenizer.json");
        let mut tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        tokenizer["post_processor"] = processor;
        std::fs::write(&path, tokenizer.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let bos = tokenizer.inner.token_to_id("<|end|>").unwrap();
        (tokenizer.encode_prompt(text).unwrap(), bos)
    }

    fn template(bos: u32) -> Value {
        json!({ "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<|end|>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 0 } }],
            "special_tokens": { "<|end|>": { "id": "<|end|>", "ids": [bos], "tokens": ["<|end|>"] } } })
    }

    #[test]
    fn the_configuration_decides_over_the_post_processor() {
        let config = |adds: Value| json!({ "add_bos_token": adds, "bos_token": { "content": "<|end|>" } });
        let (plain, bos) = encoded(config(Value::Null), Value::Null, "one two");
        let with = [vec![bos], plain.clone()].concat();
        assert_eq!(encoded(config(json!(true)), Value::Null, "one two").0, with);
        assert_eq!(encoded(config(Value::Null), template(bos), "one two").0, with, "what the post-processor says");
        assert_eq!(encoded(config(json!(true)), template(bos), "one two").0, with, "not twice");
        assert_eq!(encoded(config(json!(false)), template(bos), "one two").0, plain);
    }

    #[test]
    fn a_text_that_begins_with_bos_gets_no_second_one() {
        let config = json!({ "add_bos_token": true, "bos_token": "<|end|>" });
        let (ids, bos) = encoded(config.clone(), Value::Null, "<|end|>one");
        assert_eq!(ids.iter().filter(|id| **id == bos).count(), 1, "{ids:?}");
        let (own, _) = encoded(config, Value::Null, "<|end|><|end|>one");
        assert_eq!(own.iter().filter(|id| **id == bos).count(), 2, "what the text itself has twice stays");
    }
}
