//! Redirects: named, never followed. A key must not go to a host that the scenario does not name.

use http::Response;
use http::header::LOCATION;

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
