//! Classifies a failed exchange, and whether its request may be sent again.

use crate::http1::Http1Error;
use crate::pool::{ExchangeError, Lease, no_h2};
use crate::websocket::WebSocketError;
use h2::Reason;
use http::Response;
use http::header::LOCATION;
use llmscen_core::outcome::{Failure, FailureKind};
use llmscen_core::units::Nanos;
use std::error::Error;

const NO_RESPONSE: &str = "the server closed the connection before it responded";

/// A request without a response head.
pub(super) struct NoResponse {
    pub failure: Failure,
    /// The server did not process it, and a new connection may succeed.
    pub resend: bool,
}

/// Classifies a request on `lease` without a response head. `last_read`: when its connection had last received bytes
/// of a response before the request.
pub(super) fn classify_no_response(
    lease: &Lease,
    last_read: Nanos,
    error: &ExchangeError,
) -> NoResponse {
    let cause = error_chain(error);
    let (kind, why, resend) = match lease.is_exclusive() {
        true if lease.reads_messages() => {
            classify_websocket(lease, lease.data_read.latest() != last_read, error)
        }
        true => classify_http1(
            lease,
            lease.data_read.latest() != last_read,
            is_malformed(error),
        ),
        false if !lease.is_version_confirmed() => {
            return NoResponse {
                failure: no_h2(&cause),
                resend: lease.reused,
            };
        }
        false => classify_http2(lease, h2_error(error)),
    };
    NoResponse {
        failure: Failure::new(kind, format!("{why}: {cause}")),
        resend,
    }
}

/// Kind, reason, and whether to send the request again.
fn classify_http1(
    lease: &Lease,
    has_bytes: bool,
    malformed: bool,
) -> (FailureKind, &'static str, bool) {
    // A reused connection may have been closed by the server before the request arrived.
    let resend = lease.reused && !has_bytes;
    match has_bytes {
        _ if malformed => (FailureKind::Decode, "not an HTTP response", resend),
        true => (
            FailureKind::Truncated,
            "the connection ended inside the headers",
            resend,
        ),
        false => (FailureKind::Connect, NO_RESPONSE, resend),
    }
}

/// As above. A close frame is no response.
fn classify_websocket(
    lease: &Lease,
    has_bytes: bool,
    error: &ExchangeError,
) -> (FailureKind, &'static str, bool) {
    match error {
        _ if is_malformed(error) => (FailureKind::Decode, "not a message of a WebSocket", false),
        ExchangeError::WebSocket(WebSocketError::EarlyResponse) => (
            FailureKind::Decode,
            "the server began its response before all audio was sent",
            false,
        ),
        ExchangeError::WebSocket(WebSocketError::Closed(frame)) => {
            // Other codes may be the server's answer to this message, which must not be sent twice.
            let is_going_away = frame
                .as_ref()
                .is_none_or(|frame| matches!(u16::from(frame.code), 1000 | 1001 | 1012));
            (
                FailureKind::Connect,
                NO_RESPONSE,
                lease.reused && is_going_away,
            )
        }
        _ if has_bytes => (
            FailureKind::Truncated,
            "the connection ended inside the first message",
            false,
        ),
        _ => (FailureKind::Connect, NO_RESPONSE, lease.reused),
    }
}

/// As above. Bytes on the connection may belong to other streams, so they do not count.
fn classify_http2(lease: &Lease, error: Option<&h2::Error>) -> (FailureKind, &'static str, bool) {
    match error {
        // The server has not processed it (RFC 9113, section 8.7).
        Some(error) if is_refused_stream(error) => (
            FailureKind::Connect,
            "the server accepted no further stream",
            true,
        ),
        Some(error) if error.is_reset() && error.is_remote() => (
            FailureKind::Connect,
            "the server reset the stream before it responded",
            false,
        ),
        Some(error) if error.is_library() => (FailureKind::Decode, "not an HTTP/2 response", false),
        _ => (FailureKind::Connect, NO_RESPONSE, lease.reused),
    }
}

fn is_refused_stream(error: &h2::Error) -> bool {
    error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM)
}

/// The failure of an incomplete body.
pub(super) fn body_failure(error: &ExchangeError) -> Failure {
    let malformed = is_malformed(error) || h2_error(error).is_some_and(h2::Error::is_library);
    let kind = if malformed {
        FailureKind::Decode
    } else {
        FailureKind::Truncated
    };
    Failure::new(
        kind,
        format!("the connection broke: {}", error_chain(error)),
    )
}

/// Whether the bytes are not HTTP.
fn is_malformed(error: &ExchangeError) -> bool {
    match error {
        ExchangeError::Http1(error) => {
            matches!(error, Http1Error::Malformed(_) | Http1Error::Framing(_))
        }
        ExchangeError::WebSocket(error) => matches!(error, WebSocketError::Malformed(_)),
        ExchangeError::Http2(error) => error.is_parse(),
    }
}

fn h2_error(error: &ExchangeError) -> Option<&h2::Error> {
    match error {
        ExchangeError::Http1(_) | ExchangeError::WebSocket(_) => None,
        ExchangeError::Http2(error) => error.source()?.downcast_ref(),
    }
}

/// An error and its causes in one line.
fn error_chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (**cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

const REDACTED: &str = "[redacted]";

/// A message with the target of a redirect; `None` if the response is not one.
pub(super) fn describe_redirect(response: &Response<()>) -> Option<String> {
    let location = response
        .headers()
        .get(LOCATION)
        .filter(|_| response.status().is_redirection())?;
    let location = redact_location(&String::from_utf8_lossy(location.as_bytes()));
    Some(format!(
        "the server redirects to {location}; redirects are not followed"
    ))
}

/// A `location` without user, password and query, which may contain tokens.
pub fn redact_location(location: &str) -> String {
    let (address, query) = location.split_at(location.find(['?', '#']).unwrap_or(location.len()));
    let start = address.find("//").map_or(0, |slashes| slashes + 2);
    let end = address[start..]
        .find('/')
        .map_or(address.len(), |slash| start + slash);
    let user = address[start..end]
        .rfind('@')
        .filter(|_| start > 0)
        .map(|at| start + at);
    let address = user.map_or_else(
        || address.to_owned(),
        |at| format!("{}{REDACTED}{}", &address[..start], &address[at..]),
    );
    let query = query
        .get(..1)
        .filter(|_| query.len() > 1)
        .map(|mark| format!("{mark}{REDACTED}"));
    address + &query.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_shown_without_user_and_query() {
        for (location, expected) in [
            (
                "https://b.example/v1/chat/completions",
                "https://b.example/v1/chat/completions",
            ),
            (
                "https://u:p4ss@b.example/x?token=t0k#frag",
                "https://[redacted]@b.example/x?[redacted]",
            ),
            ("//t0k@b.example", "//[redacted]@b.example"),
            ("/login?next=/v1", "/login?[redacted]"),
            ("/a@b", "/a@b"),
            ("https://b.example?", "https://b.example"),
            ("#t0k", "#[redacted]"),
            ("", ""),
        ] {
            assert_eq!(redact_location(location), expected);
        }
    }

    #[test]
    fn only_a_redirect_with_a_location_is_described() {
        let redirect = |status: u16| {
            let response = Response::builder()
                .status(status)
                .header(LOCATION, "/x")
                .body(())
                .unwrap();
            describe_redirect(&response)
        };
        assert_eq!(
            redirect(307).as_deref(),
            Some("the server redirects to /x; redirects are not followed")
        );
        assert_eq!(redirect(201), None);
        assert_eq!(
            describe_redirect(&Response::builder().status(302).body(()).unwrap()),
            None
        );
    }
}
