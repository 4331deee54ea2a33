//! Removes secrets from what servers and systems say before it is kept.

use crate::headers::basic;
use crate::route::Route;
use http::HeaderMap;
use llmscen_core::redact::{self, REDACTED, Redactor};
use llmscen_core::target::Target;
use llmscen_core::url_secrets::is_secret_name;

/// A redactor of this target and of what the requests on this route carry: the URL's user and password as a header says them, and the
/// proxy's.
pub fn redactor_on(target: &Target, route: &Route) -> Redactor {
    let user = basic(&route.uri);
    let proxy = route.proxy.as_ref().and_then(|proxy| proxy.auth.as_ref()).and_then(|auth| auth.to_str().ok());
    let words = user.as_deref().into_iter().chain(proxy).filter_map(|value| value.rsplit(' ').next());
    Redactor::of(target).with(words, redact::SHORTEST)
}

/// Headers as they may be shown, in their order. A value is hidden as a whole where its name says that it is a secret, and
/// where it is one of `named`, whose values the scenario or the data brought: of those in `authorization` the scheme stays.
pub fn shown_headers<'a>(
    redactor: &Redactor,
    headers: &HeaderMap,
    named: impl Iterator<Item = &'a str> + Clone,
) -> Vec<(String, String)> {
    let show = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let text = String::from_utf8_lossy(value.as_bytes());
        let scheme = text.split_once(' ').map(|(scheme, _)| scheme).filter(|_| name.as_str().ends_with("authorization"));
        let shown = match is_secret_name(name.as_str()) || named.clone().any(|own| own.eq_ignore_ascii_case(name.as_str())) {
            true => scheme.map_or_else(|| REDACTED.to_owned(), |scheme| format!("{scheme} {REDACTED}")),
            false => redactor.clean(&text),
        };
        (name.as_str().to_owned(), shown)
    };
    headers.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::target::{Place, Secret};

    fn of(words: &[&str]) -> Redactor {
        Redactor::of_texts(words.iter().copied(), redact::SHORTEST)
    }

    #[test]
    fn headers_hide_what_their_names_call_a_secret_and_what_the_scenario_named() {
        let pairs = [
            ("host", "h:1"),
            ("authorization", "Bearer sk-1"),
            ("x-api-key", "k"),
            ("set-cookie", "id=1"),
            ("x-team", "red"),
            ("x-trace", "has sk-123 inside"),
        ];
        let headers: HeaderMap = pairs.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).into_iter().collect();
        let shown: Vec<String> =
            shown_headers(&of(&["sk-123"]), &headers, ["X-Team"].into_iter()).into_iter().map(|(_, value)| value).collect();
        let hidden = "[redacted]";
        assert_eq!(shown, ["h:1", "Bearer [redacted]", hidden, hidden, hidden, "has [redacted] inside"]);
    }

    fn target(url: &str) -> Target {
        let limit = llmscen_core::units::Nanos(1);
        Target {
            api: llmscen_core::api::Api::OpenaiChat,
            place: Place::Url(url.to_owned()),
            models: Vec::new(),
            api_key: Some(Secret::new("sk-123")),
            headers: Vec::new(),
            timeouts: llmscen_core::target::Timeouts { connect: limit, read: limit, total: limit },
            tls: Default::default(),
            pool: Default::default(),
            version: Default::default(),
            compression: Default::default(),
            request_id: None,
            gpus: None,
            server: None,
            metrics: None,
            hardware: None,
            of_scenario: Default::default(),
        }
    }

    #[test]
    fn what_the_url_and_the_proxy_say_in_base64_is_removed() {
        let url = "http://Aladdin:open%20sesame@h/v1";
        let env = [("HTTP_PROXY".to_owned(), "http://user:word@proxy:3128".to_owned())].into();
        let route = Route::new(url, &Default::default(), &env).unwrap();
        let redactor = redactor_on(&target(url), &route);
        let said = "no: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==, open%20sesame; by proxy Basic dXNlcjp3b3Jk; sk-123";
        assert_eq!(redactor.clean(said), "no: Basic [redacted], [redacted]; by proxy Basic [redacted]; [redacted]");
        assert_eq!(redactor.clean("cut QWxhZGRpbjpv"), "cut [redacted]");
    }
}
