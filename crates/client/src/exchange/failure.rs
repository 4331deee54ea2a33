//! How a broken exchange is named, and whether its request may go out once more.

use crate::http1::Fault;
use crate::pool::{Broken, Lease, no_h2};
use h2::Reason;
use http::Response;
use http::header::LOCATION;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::units::Nanos;
use std::error::Error;

/// A request to which no head of a response came.
pub(super) struct Unanswered {
    /// Why.
    pub failure: Failure,
    /// The server cannot have begun to answer it, and another connection may do better.
    pub again: bool,
}

/// Names why no head came on `lease`, of whose connection the last byte of an answer had come at `before`.
pub(super) fn unanswered(lease: &Lease, before: Nanos, error: &Broken) -> Unanswered {
    let words = chain(error);
    let (kind, why, again) = match lease.alone() {
        true => on_a_connection(lease, lease.heard.latest() != before, is_unreadable(error)),
        false if !lease.proven() => return Unanswered { failure: no_h2(&words), again: lease.reused },
        false => on_a_stream(lease, h2_error(error)),
    };
    Unanswered { failure: Failure::new(kind, format!("{why}: {words}")), again }
}

fn on_a_connection(lease: &Lease, answered: bool, unreadable: bool) -> (FailureKind, &'static str, bool) {
    let again = lease.reused && !answered;
    match answered {
        _ if unreadable => (FailureKind::Decode, "not an HTTP response", again),
        true => (FailureKind::Truncated, "the connection ended inside the headers", again),
        false => (FailureKind::Connect, "the server closed the connection before it answered", again),
    }
}

/// Other requests hear from the server on the same connection; of this one's answer nothing has come.
fn on_a_stream(lease: &Lease, error: Option<&h2::Error>) -> (FailureKind, &'static str, bool) {
    match error {
        // RFC 9113, section 8.7: nothing was done with it, whatever the connection.
        Some(error) if refused(error) => (FailureKind::Connect, "the server accepted no further stream", true),
        Some(error) if error.is_reset() && error.is_remote() => {
            (FailureKind::Connect, "the server reset the stream before it answered", false)
        }
        Some(error) if error.is_library() => (FailureKind::Decode, "not an HTTP/2 response", false),
        _ => (FailureKind::Connect, "the server closed the connection before it answered", lease.reused),
    }
}

fn refused(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM)
}

/// Why a body broke off.
pub(super) fn body_failure(error: &Broken) -> Failure {
    let unreadable = is_unreadable(error) || h2_error(error).is_some_and(h2::Error::is_library);
    let kind = if unreadable { FailureKind::Decode } else { FailureKind::Truncated };
    Failure::new(kind, format!("the connection broke: {}", chain(error)))
}

/// What came is no HTTP.
fn is_unreadable(error: &Broken) -> bool {
    match error {
        Broken::Whole(fault) => matches!(fault, Fault::Unreadable(_) | Fault::Framing(_)),
        Broken::Stream(error) => error.is_parse(),
    }
}

fn h2_error(error: &Broken) -> Option<&h2::Error> {
    match error {
        Broken::Whole(_) => None,
        Broken::Stream(error) => error.source()?.downcast_ref(),
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (**cause).source());
    causes.fold(error.to_string(), |words, cause| format!("{words}: {cause}"))
}

const REDACTED: &str = "[redacted]";

/// Where the server redirects to, in words; None for a response that is not a redirect.
pub(super) fn redirected(response: &Response<()>) -> Option<String> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    let location = shown_location(&String::from_utf8_lossy(location.as_bytes()));
    Some(format!("the server redirects to {location}; redirects are not followed"))
}

/// A location without its user, its password and its query: login pages put tokens there.
pub fn shown_location(location: &str) -> String {
    let (address, query) = location.split_at(location.find(['?', '#']).unwrap_or(location.len()));
    let start = address.find("//").map_or(0, |at| at + 2);
    let end = address[start..].find('/').map_or(address.len(), |at| start + at);
    let user = address[start..end].rfind('@').filter(|_| start > 0).map(|at| start + at);
    let address = user.map_or_else(|| address.to_owned(), |at| format!("{}{REDACTED}{}", &address[..start], &address[at..]));
    let query = query.get(..1).filter(|_| query.len() > 1).map(|mark| format!("{mark}{REDACTED}"));
    address + &query.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_shown_without_user_and_query() {
        for (location, expected) in [
            ("https://b.example/v1/chat/completions", "https://b.example/v1/chat/completions"),
            ("https://u:p4ss@b.example/x?token=t0k#frag", "https://[redacted]@b.example/x?[redacted]"),
            ("//t0k@b.example", "//[redacted]@b.example"),
            ("/login?next=/v1", "/login?[redacted]"),
            ("/a@b", "/a@b"),
            ("https://b.example?", "https://b.example"),
            ("#t0k", "#[redacted]"),
            ("", ""),
        ] {
            assert_eq!(shown_location(location), expected);
        }
    }

    #[test]
    fn only_a_redirect_with_a_location_has_one() {
        let of = |status: u16| {
            let response = Response::builder().status(status).header(LOCATION, "/x").body(()).unwrap();
            redirected(&response)
        };
        assert_eq!(of(307).as_deref(), Some("the server redirects to /x; redirects are not followed"));
        assert_eq!(of(201), None);
        assert_eq!(redirected(&Response::builder().status(302).body(()).unwrap()), None);
    }
}
