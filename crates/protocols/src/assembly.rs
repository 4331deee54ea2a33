//! What the messages of one response add up to, in one protocol.

use crate::sse::Event;
use crate::{Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};

/// Gathers the messages of one response. It never panics, whatever they hold.
pub trait Assembly: Send {
    /// Takes one event of a stream, its data not empty: adds its content to `events`, and sets `events.done` at the
    /// protocol's own end marker. An event named `error` does not come here.
    ///
    /// # Errors
    /// `stream_error` with the server's words where it reports an error; `decode` where this is not the protocol's message.
    fn event(&mut self, event: Event<'_>, events: &mut Events) -> Result<(), Failure>;

    /// Takes an event that has a name and no data; to most protocols it says nothing.
    fn bare(&mut self, _name: &[u8], _events: &mut Events) {}

    /// Takes a whole reply. The errors are those of an event.
    fn whole(&mut self, body: &[u8]) -> Result<(), Failure>;

    /// How a response ended whose body is complete, streamed or whole.
    ///
    /// # Errors
    /// `truncated`, `decode`, `empty` or `stream_error`: what the protocol demands of a complete response and is not there.
    fn ending(&self, streamed: bool) -> Result<Finish, Failure>;

    /// The tokens in each event with content so far, where the server's running count tells them all; otherwise empty.
    fn weights(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The reply, with this end.
    fn reply(self, end: Result<Finish, Failure>) -> Reply;
}

/// A `decode` failure that shows the beginning of what cannot be read.
pub fn unreadable(error: &serde_json::Error, json: &[u8]) -> Failure {
    let start: String = String::from_utf8_lossy(json).chars().take(200).collect();
    Failure::new(FailureKind::Decode, format!("the JSON cannot be read ({error}): {start}"))
}

/// How a complete response ended. A model may stop before its first token: that is no failure where the server gives a reason.
///
/// # Errors
/// `empty`: neither content nor a finish reason.
pub fn complete(reason: Option<&str>, content: bool) -> Result<Finish, Failure> {
    match reason.filter(|reason| !reason.is_empty()) {
        None if !content => {
            Err(Failure::new(FailureKind::Empty, "the response is complete, but has neither content nor a finish reason"))
        }
        reason => Ok(Finish { reason: reason.unwrap_or_default().to_owned() }),
    }
}
