//! `prompt`: the same prompt for every request.

use super::error::PromptError;
use super::{Prompts, Setting, message};
use llmscen_core::prompt::{Prompt, Session};

struct Same(Prompt);

/// Takes the text unchanged: what `@file` names has been read with the scenario.
pub fn open(text: &str, setting: &Setting<'_>) -> Result<impl Prompts + use<>, PromptError> {
    let mut prompt = Prompt { text: text.to_owned(), ..Prompt::default() };
    if let Some(tokenizer) = &setting.tokenizer {
        prompt.tokens = message::tokens_of(&prompt, tokenizer, setting.spec.system.as_deref());
        prompt.approximate = tokenizer.approximate();
    }
    if !setting.admits(prompt.tokens) {
        return Err(PromptError::Filtered { tokens: prompt.tokens.unwrap_or(0) });
    }
    Ok(Same(prompt))
}

impl Prompts for Same {
    fn session(&self, _seq: u64) -> Option<Session> {
        Some(Session { turns: vec![self.0.clone()] })
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn dropped(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use crate::{CacheDir, Opened, PromptError, open};
    use llmscen_core::dataset::{DatasetSpec, Source};
    use llmscen_core::seed::Seed;

    fn opened(text: &str, max_tokens: Option<u64>) -> Result<Opened, PromptError> {
        let spec = DatasetSpec { max_tokens, ..DatasetSpec::of(Source::Prompt(text.to_owned())) };
        open(&spec, Seed(1), 0, &CacheDir { dir: "unused".into(), hub: String::new() }, &|_| ())
    }

    #[test]
    fn every_request_gets_the_same_prompt() {
        let prompts = opened("Write a haiku.", None).unwrap().prompts;
        assert_eq!(prompts.session(0), prompts.session(1_000_000));
        assert_eq!(prompts.session(0).unwrap().turns[0].text, "Write a haiku.");
        assert_eq!((prompts.len(), prompts.dropped()), (None, 0));
    }

    #[test]
    fn an_at_sign_is_text_by_now() {
        let prompts = opened("@/nowhere/p.txt", None).unwrap().prompts;
        assert_eq!(prompts.session(0).unwrap().turns[0].text, "@/nowhere/p.txt");
    }

    #[test]
    fn a_prompt_outside_the_filter_is_an_error_not_an_empty_dataset() {
        let error = opened("the sky is blue", Some(3)).unwrap_err().to_string();
        assert_eq!(error, "the prompt has 4 tokens, outside `prompt_tokens`");
        assert_eq!(opened("the sky is blue", Some(4)).unwrap().prompts.session(0).unwrap().turns[0].tokens, Some(4));
    }
}
