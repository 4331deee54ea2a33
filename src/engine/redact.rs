//! Removes secrets from what servers and systems say before it is kept.

use crate::model::target::{Place, Secret, Target};
use crate::scenario::secret::hidden;

/// Secrets shorter than this are not looked for: they would strike innocent text.
const SHORTEST: usize = 4;
const REDACTED: &str = "[redacted]";

/// Knows the secrets of one target.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    /// A redactor of this target's key, header values and what its URL hides. A value such as `Bearer sk-1` hides its last
    /// word too.
    pub fn of(target: &Target) -> Redactor {
        let words = target.secrets().flat_map(|secret| {
            let whole = secret.expose();
            [Some(whole), whole.rsplit(' ').next()].into_iter().flatten().map(str::to_owned).collect::<Vec<_>>()
        });
        let in_url = match &target.place {
            Place::Url(url) => hidden(url).into_iter().map(|range| url[range].to_owned()).collect(),
            Place::Simulator { .. } => Vec::new(),
        };
        let mut secrets: Vec<String> = words.chain(in_url).filter(|word| word.len() >= SHORTEST).collect();
        secrets.sort_by_key(|word| std::cmp::Reverse(word.len()));
        secrets.dedup();
        Redactor { secrets: secrets.into_iter().map(Secret::new).collect() }
    }

    /// The text without the secrets, nor the beginning of one where the text was cut inside it.
    pub fn clean(&self, text: &str) -> String {
        let clean = self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.expose(), REDACTED));
        match self.secrets.iter().filter_map(|secret| cut_at_the_end(&clean, secret.expose())).min() {
            Some(start) => clean[..start].to_owned() + REDACTED,
            None => clean,
        }
    }
}

/// Where in `text` a beginning of `secret` starts that runs to the end of the text.
fn cut_at_the_end(text: &str, secret: &str) -> Option<usize> {
    let beginnings = secret.char_indices().map(|(end, _)| &secret[..end]).filter(|beginning| beginning.len() >= SHORTEST);
    beginnings.rev().find(|beginning| text.ends_with(beginning)).map(|beginning| text.len() - beginning.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_cut_is_removed_too() {
        let redactor = Redactor { secrets: vec![Secret::new("sk-12345678")] };
        assert_eq!(redactor.clean("bad key sk-12345"), "bad key [redacted]");
        assert_eq!(redactor.clean("bad key sk-"), "bad key sk-");
        assert_eq!(redactor.clean("sk-12345 is bad"), "sk-12345 is bad");
    }

    #[test]
    fn an_echoed_key_is_removed() {
        let redactor = Redactor { secrets: vec![Secret::new("Bearer sk-123"), Secret::new("sk-123")] };
        assert_eq!(redactor.clean("Incorrect API key: sk-123 (Bearer sk-123)"), "Incorrect API key: [redacted] ([redacted])");
    }
}
