//! A whole response: one JSON document.

use crate::assembly::Assembly;
use crate::{Decoder, Events, Reply};
use llmscen_core::outcome::{Failure, FailureKind, Finish};

/// The largest document that is buffered, in bytes.
const BODY_BOUND: usize = 64 << 20;

/// Gathers a document and reads it at its end. A finish reason is reported where there is one, and not required.
pub struct Whole<A> {
    bound: usize,
    body: Vec<u8>,
    over: bool,
    assembly: A,
}

impl<A: Assembly> Whole<A> {
    /// A decoder at the beginning of a document.
    pub fn new(assembly: A) -> Whole<A> {
        Whole::bounded(BODY_BOUND, assembly)
    }

    /// A decoder that takes documents of up to `bound` bytes.
    pub fn bounded(bound: usize, assembly: A) -> Whole<A> {
        Whole { bound, body: Vec::new(), over: false, assembly }
    }

    fn ending(&mut self, broken: Option<Failure>) -> Result<Finish, Failure> {
        if self.over {
            let message = format!("the body is larger than {} MiB", self.bound >> 20);
            return Err(Failure::new(FailureKind::Decode, message));
        }
        if let Some(failure) = broken {
            return Err(failure);
        }
        self.assembly.whole(&self.body)?;
        self.assembly.ending(false)
    }
}

impl<A: Assembly> Decoder for Whole<A> {
    fn push(&mut self, bytes: &[u8], _events: &mut Events) {
        if self.over || self.body.len() + bytes.len() > self.bound {
            self.over = true;
            self.body = Vec::new();
            return;
        }
        self.body.extend_from_slice(bytes);
    }

    fn finish(mut self: Box<Self>, _events: &mut Events, broken: Option<Failure>) -> Reply {
        let end = self.ending(broken);
        self.assembly.reply(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;
    use crate::replay::decode;
    use llmscen_core::api::Api;

    fn run(body: &str, broken: Option<Failure>) -> Reply {
        let (events, reply) = decode(Api::OpenaiCompletions, Shape::Whole, [body.as_bytes()], broken);
        assert_eq!(events, Events::default());
        reply
    }

    fn end(body: &str) -> String {
        match run(body, None).end {
            Ok(finish) => finish.reason,
            Err(failure) => format!("{}: {}", failure.kind, failure.message),
        }
    }

    #[test]
    fn a_reply_needs_choices_and_content_but_no_reason() {
        assert_eq!(end(r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#), "stop");
        assert_eq!(end(r#"{"choices":[{"text":"a"}]}"#), "");
        assert_eq!(end(r#"{"choices":[]}"#), "decode: the reply has no choices");
        assert_eq!(end(r#"{"object":"list"}"#), "decode: the reply has no choices");
        assert_eq!(end(r#"{"error":{"message":"no"}}"#), "stream_error: no");
        assert_eq!(end(""), "decode: the JSON cannot be read (EOF while parsing a value at line 1 column 0): ");
        assert_eq!(end("<html>"), "decode: the JSON cannot be read (expected value at line 1 column 1): <html>");
    }

    #[test]
    fn counted_tokens_without_text_and_reason_are_empty_and_the_counts_are_kept() {
        let reply = run(r#"{"choices":[{"text":""}],"usage":{"completion_tokens":4}}"#, None);
        assert_eq!(reply.end.unwrap_err().kind, FailureKind::Empty);
        assert_eq!(reply.usage.output, Some(4));
    }

    #[test]
    fn a_broken_body_is_not_read() {
        let reset = Failure::new(FailureKind::Truncated, "reset");
        assert_eq!(run(r#"{"choices":[{"text":"a"}]}"#, Some(reset.clone())).end, Err(reset));
    }

    #[test]
    fn a_body_past_the_bound_is_dropped() {
        let mut whole = Box::new(Whole::bounded(3 << 20, crate::tally::Tally::new(false)));
        let mut events = Events::default();
        whole.push(&[b' '; 2 << 20], &mut events);
        whole.push(&[b' '; 2 << 20], &mut events);
        assert_eq!(whole.body.capacity(), 0);
        assert_eq!(whole.finish(&mut events, None).end.unwrap_err().message, "the body is larger than 3 MiB");
    }
}
