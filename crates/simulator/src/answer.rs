//! The answer to a request: random words, or a text of the request, right or wrong.

use crate::prompt::Prompt;
use llmscen_core::seed::Seed;
use llmscen_core::simulator::{AnswerKind, Answers};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// The word that a wrong answer repeats.
const WRONG: &str = " the";

/// The tokens of an answer without its reasoning, escaped for a JSON string; at least one and at most `limit`. None:
/// random words up to the limit. `answer` is the seed of the response.
pub(super) fn tokens(
    answers: &Answers,
    prompt: &Prompt,
    limit: u64,
    answer: Seed,
) -> Option<Vec<String>> {
    let right = match answers.kind {
        AnswerKind::Words => None,
        AnswerKind::Echo => Some(split(&prompt.last_message(), limit)),
        AnswerKind::Json => {
            let text = Value::from(prompt.last_message()).to_string();
            Some(split(&format!("{{\"answer\": {text}}}"), limit))
        }
    };
    let mut rng = ChaCha8Rng::seed_from_u64(answer.child("wrong").0);
    let is_wrong = rng.random::<f64>() < answers.wrong;
    if !is_wrong {
        return right;
    }
    let length = right.map_or(limit, |right| right.len() as u64);
    Some(vec![
        WRONG.to_owned();
        length.saturating_sub(1).max(1) as usize
    ])
}

/// A token per word, with the white space behind it.
fn split(text: &str, limit: u64) -> Vec<String> {
    let escaped = |token: &str| {
        let quoted = Value::from(token).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let words = text.split_inclusive(char::is_whitespace).map(escaped);
    let tokens: Vec<String> = words.take(limit.max(1) as usize).collect();
    if tokens.is_empty() {
        vec![String::new()]
    } else {
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(kind: AnswerKind, wrong: f64, limit: u64) -> Option<Vec<String>> {
        let mut prompt = Prompt::new(true);
        for (role, text) in [("system", "Be brief."), ("user", "Say \"x\"\ntwice.")] {
            let message = json!({ "role": role, "content": text });
            prompt.message(&message).unwrap();
        }
        tokens(&Answers { kind, wrong }, &prompt, limit, Seed(1))
    }

    #[test]
    fn an_answer_is_the_last_message_a_document_or_one_word() {
        let echo = ["Say ", "\\\"x\\\"\\n", "twice."].map(str::to_owned);
        assert_eq!(answer(AnswerKind::Echo, 0.0, 9), Some(echo.to_vec()));
        assert_eq!(answer(AnswerKind::Echo, 0.0, 2), Some(echo[..2].to_vec()));
        assert_eq!(
            answer(AnswerKind::Echo, 1.0, 9),
            Some(vec![" the".into(); 2])
        );
        let document = answer(AnswerKind::Json, 0.0, 9).unwrap().concat();
        let text: String = serde_json::from_str(&format!("\"{document}\"")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document, json!({ "answer": "Say \"x\"\ntwice." }));
        assert_eq!(answer(AnswerKind::Words, 0.0, 9), None);
        assert_eq!(
            answer(AnswerKind::Words, 1.0, 9),
            Some(vec![" the".into(); 8])
        );
        assert_eq!(answer(AnswerKind::Words, 1.0, 1), Some(vec![" the".into()]));
    }
}
