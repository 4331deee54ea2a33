//! Removes secrets from what servers and systems say before it is kept.

use crate::engine::headers::basic;
use crate::engine::route::Route;
use crate::model::redact::REDACTED;
pub use crate::model::redact::Redactor;
use crate::model::target::{Place, Secret, Target};
use crate::scenario::secret::{in_url, is_secret_name};
use http::HeaderMap;

/// Secrets shorter than this are not looked for: they would strike innocent text.
const SHORTEST: usize = 4;
/// The same for values that are secrets only by their origin.
const SHORTEST_BY_ORIGIN: usize = 8;

impl Redactor {
    /// A redactor of this target's key, header values, what its URLs hide, and the secrets of the whole scenario. A value such
    /// as `Bearer sk-1` hides its last word too.
    pub fn of(target: &Target) -> Redactor {
        let words = target.secrets().flat_map(|secret| whole_and_last(secret.expose()));
        let url = match &target.place {
            Place::Url(url) => Some(url.as_str()),
            Place::Simulator { .. } | Place::Local(_) => None,
        };
        let urls = url.into_iter().chain(target.metrics.as_ref().map(|page| page.url.as_str()));
        let in_urls: Vec<String> = urls.flat_map(in_url).collect();
        let words = words.chain(in_urls.iter().map(String::as_str));
        let of_scenario = target.of_scenario.iter().map(Secret::expose);
        Redactor::of_texts(words, SHORTEST).with(of_scenario, SHORTEST_BY_ORIGIN)
    }

    /// The same, and what the requests on this route carry: the URL's user and password as a header says them, and the
    /// proxy's.
    pub fn on(target: &Target, route: &Route) -> Redactor {
        let user = basic(&route.uri);
        let proxy = route.proxy.as_ref().and_then(|proxy| proxy.auth.as_ref()).and_then(|auth| auth.to_str().ok());
        let words = user.as_deref().into_iter().chain(proxy).filter_map(|value| value.rsplit(' ').next());
        Redactor::of(target).with(words, SHORTEST)
    }

    /// The same, and the values of a call's own headers.
    pub fn and(&self, own: &[(String, String)]) -> Redactor {
        if own.is_empty() {
            return self.clone();
        }
        self.clone().with(own.iter().flat_map(|(_, value)| whole_and_last(value)), SHORTEST_BY_ORIGIN)
    }

    /// The same, and the values of a command's own flags.
    pub fn behind(&self, flags: &[(String, String)]) -> Redactor {
        self.clone().with(flags.iter().flat_map(|(_, value)| whole_and_last(value)), SHORTEST)
    }

    /// Headers as they may be shown, in their order. A value is hidden as a whole where its name says that it is a secret, and
    /// where it is one of `named`, whose values the scenario or the data brought: of those in `authorization` the scheme stays.
    pub fn headers<'a>(&self, headers: &HeaderMap, named: impl Iterator<Item = &'a str> + Clone) -> Vec<(String, String)> {
        let show = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            let text = String::from_utf8_lossy(value.as_bytes());
            let scheme = text.split_once(' ').map(|(scheme, _)| scheme).filter(|_| name.as_str().ends_with("authorization"));
            let shown = match is_secret_name(name.as_str()) || named.clone().any(|own| own.eq_ignore_ascii_case(name.as_str())) {
                true => scheme.map_or_else(|| REDACTED.to_owned(), |scheme| format!("{scheme} {REDACTED}")),
                false => self.clean(&text),
            };
            (name.as_str().to_owned(), shown)
        };
        headers.iter().map(show).collect()
    }
}

/// A header's value, and its last word: the key after a scheme such as `Bearer`.
fn whole_and_last(value: &str) -> impl Iterator<Item = &str> {
    std::iter::once(value).chain(value.rsplit(' ').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Redactor {
        Redactor::of_texts(words.iter().copied(), SHORTEST)
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
            of(&["sk-123"]).headers(&headers, ["X-Team"].into_iter()).into_iter().map(|(_, value)| value).collect();
        let hidden = "[redacted]";
        assert_eq!(shown, ["h:1", "Bearer [redacted]", hidden, hidden, hidden, "has [redacted] inside"]);
    }

    fn target(url: &str) -> Target {
        let limit = crate::model::units::Nanos(1);
        Target {
            api: crate::model::api::Api::OpenaiChat,
            place: Place::Url(url.to_owned()),
            models: Vec::new(),
            api_key: Some(Secret::new("sk-123")),
            headers: Vec::new(),
            timeouts: crate::model::target::Timeouts { connect: limit, read: limit, total: limit },
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
        let redactor = Redactor::on(&target(url), &route);
        let said = "no: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==, open%20sesame; by proxy Basic dXNlcjp3b3Jk; sk-123";
        assert_eq!(redactor.clean(said), "no: Basic [redacted], [redacted]; by proxy Basic [redacted]; [redacted]");
        assert_eq!(redactor.clean("cut QWxhZGRpbjpv"), "cut [redacted]");
    }

    #[test]
    fn long_values_of_a_calls_own_headers_are_removed() {
        let own = [("authorization", "Bearer recorded-key"), ("x-a", "1234567"), ("x-b", "12345678"), ("x-c", "some other word")];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let redactor = of(&["sk-123"]).and(&own);
        let said = "recorded-key (Bearer recorded-key), 1234567, 12345678, word, some other word, sk-123";
        assert_eq!(redactor.clean(said), "[redacted] ([redacted]), 1234567, [redacted], word, [redacted], [redacted]");
        assert_eq!(redactor.clean("cut recorded"), "cut [redacted]");
        assert_eq!(redactor.clean("cut recorde"), "cut recorde");
        assert_eq!(of(&["sk-123"]).and(&[]).secrets, of(&["sk-123"]).secrets);
    }
}
