//! Prompts that are changed on their way out.

use super::{PromptError, Prompts};
use llmscen_core::prompt::Session;
use llmscen_core::units::Nanos;
use std::sync::Arc;
use std::time::Duration;

/// A change of sessions. Equal sessions and numbers give equal changes.
pub trait Edit: Send + Sync {
    /// Changes the session that is number `index` of all that the dataset gives.
    fn edit(&self, session: &mut Session, index: u64);
}

/// A dataset whose sessions are changed, and nothing else.
pub struct Edited<E> {
    /// The dataset.
    pub inner: Box<dyn Prompts>,
    /// The change.
    pub edit: E,
    /// Number of the dataset's first session.
    pub first: u64,
}

impl<E: Edit> Prompts for Edited<E> {
    fn session(&self, seq: u64) -> Option<Session> {
        let mut session = self.inner.session(seq)?;
        self.edit.edit(&mut session, self.first.wrapping_add(seq));
        Some(session)
    }

    fn len(&self) -> Option<u64> {
        self.inner.len()
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    fn ready(&self, seq: u64, most: Duration) -> bool {
        self.inner.ready(seq, most)
    }

    fn fault(&self) -> Option<Arc<PromptError>> {
        self.inner.fault()
    }

    fn problems(&self) -> Vec<String> {
        self.inner.problems()
    }

    fn arrivals(&self) -> Option<Arc<[Nanos]>> {
        self.inner.arrivals()
    }
}
