//! Removes secrets from what servers and systems say before it is kept.

use crate::model::target::{Secret, Target};

/// Secrets shorter than this are not looked for: they would strike innocent text.
const SHORTEST: usize = 4;

/// Knows the secrets of one target.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
}

impl Redactor {
    /// A redactor of this target's key and header values. A value such as `Bearer sk-1` hides its last word too.
    pub fn of(target: &Target) -> Redactor {
        let words = target.secrets().flat_map(|secret| {
            let whole = secret.expose();
            [Some(whole), whole.rsplit(' ').next()].into_iter().flatten().map(str::to_owned).collect::<Vec<_>>()
        });
        let mut secrets: Vec<String> = words.filter(|word| word.len() >= SHORTEST).collect();
        secrets.sort_by_key(|word| std::cmp::Reverse(word.len()));
        secrets.dedup();
        Redactor { secrets: secrets.into_iter().map(Secret::new).collect() }
    }

    /// The text without the secrets.
    pub fn clean(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.expose(), "[redacted]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_key_is_removed() {
        let redactor = Redactor { secrets: vec![Secret::new("Bearer sk-123"), Secret::new("sk-123")] };
        assert_eq!(redactor.clean("Incorrect API key: sk-123 (Bearer sk-123)"), "Incorrect API key: [redacted] ([redacted])");
    }
}
