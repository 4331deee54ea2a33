//! Stored responses, which later requests continue by their id.

use crate::prompt::Prompt;
use std::collections::{HashMap, VecDeque};

/// Maximum size of all of them, in bytes.
const MAX_BYTES: usize = 256 << 20;

/// The newest responses: of each its prompt, followed by its answer.
#[derive(Debug, Default)]
pub(super) struct StoredResponses {
    prompts: HashMap<String, Prompt>,
    /// Ids, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

impl StoredResponses {
    /// The prompt of a response, followed by its answer.
    pub(super) fn get(&self, id: &str) -> Option<Prompt> {
        self.prompts.get(id).cloned()
    }

    /// Stores a response with a new id, and removes the oldest ones beyond the maximum.
    pub(super) fn insert(&mut self, id: &str, prompt: Prompt) {
        self.bytes += memory(id, &prompt);
        self.order.push_back(id.to_owned());
        self.prompts.insert(id.to_owned(), prompt);
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(prompt) = self.prompts.remove(&oldest) {
                self.bytes -= memory(&oldest, &prompt);
            }
        }
    }
}

fn memory(id: &str, prompt: &Prompt) -> usize {
    2 * (size_of::<String>() + id.len()) + prompt.memory()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_responses_are_removed_beyond_the_maximum() {
        let mut stored = StoredResponses::default();
        let mut large = Prompt::new(true);
        large.text(&"x".repeat(MAX_BYTES / 3));
        for id in ["a", "b", "c"] {
            stored.insert(id, large.clone());
        }
        assert_eq!(stored.get("a"), None);
        assert_eq!(stored.get("b").as_ref(), Some(&large));
        assert_eq!(stored.get("c").as_ref(), Some(&large));
        assert!(stored.bytes <= MAX_BYTES);
    }
}
