//! Removes secrets from what servers and systems say before it is kept.

use crate::engine::headers::basic;
use crate::engine::route::Route;
use crate::model::target::{Place, Secret, Target};
use crate::scenario::secret::{hidden, is_secret_name};
use http::HeaderMap;

/// Secrets shorter than this are not looked for: they would strike innocent text.
const SHORTEST: usize = 4;
/// The same of recorded headers, most of which are none: their short values are ordinary words.
const SHORTEST_RECORDED: usize = 8;
const REDACTED: &str = "[redacted]";

/// Knows the secrets of one target.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<Hidden>,
}

/// A text that must not be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hidden {
    secret: Secret,
    /// Bytes of its beginning that are taken for it where the text was cut.
    shortest: usize,
}

impl Redactor {
    /// A redactor of this target's key, header values and what its URL hides. A value such as `Bearer sk-1` hides its last
    /// word too.
    pub fn of(target: &Target) -> Redactor {
        let words = target.secrets().flat_map(|secret| whole_and_last(secret.expose()));
        let in_url = match &target.place {
            Place::Url(url) => hidden(url).into_iter().map(|range| &url[range]).collect(),
            Place::Simulator { .. } | Place::Local(_) => Vec::new(),
        };
        Redactor::default().with(words.chain(in_url), SHORTEST)
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
        self.clone().with(own.iter().flat_map(|(_, value)| whole_and_last(value)), SHORTEST_RECORDED)
    }

    /// The same, and the values of a command's own flags.
    pub fn behind(&self, flags: &[(String, String)]) -> Redactor {
        self.clone().with(flags.iter().flat_map(|(_, value)| whole_and_last(value)), SHORTEST)
    }

    /// The same, and the secrets as they are spelled inside a JSON string.
    pub fn in_json(&self) -> Redactor {
        let spelled = |hidden: &Hidden| {
            let secret = hidden.secret.expose();
            let text = serde_json::Value::from(secret).to_string();
            let inside = text.get(1..text.len() - 1).filter(|inside| *inside != secret)?;
            Some((inside.to_owned(), hidden.shortest))
        };
        let spelled: Vec<(String, usize)> = self.secrets.iter().filter_map(spelled).collect();
        spelled.iter().fold(self.clone(), |all, (word, shortest)| all.with(std::iter::once(word.as_str()), *shortest))
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

    /// The longest first, so that none leaves a part of another.
    fn with<'a>(mut self, words: impl Iterator<Item = &'a str>, shortest: usize) -> Redactor {
        let words = words.filter(|word| word.len() >= shortest);
        self.secrets.extend(words.map(|word| Hidden { secret: Secret::new(word), shortest }));
        self.secrets.sort_by(|a, b| {
            let (one, other) = (a.secret.expose(), b.secret.expose());
            other.len().cmp(&one.len()).then_with(|| one.cmp(other)).then(a.shortest.cmp(&b.shortest))
        });
        self.secrets.dedup_by(|later, first| later.secret == first.secret);
        self
    }

    /// The text without the secrets, nor the beginning of one where the text was cut inside it.
    pub fn clean(&self, text: &str) -> String {
        let clean = self.secrets.iter().fold(text.to_owned(), |text, hidden| text.replace(hidden.secret.expose(), REDACTED));
        match self.secrets.iter().filter_map(|hidden| hidden.cut_at_the_end(&clean)).min() {
            Some(start) => clean[..start].to_owned() + REDACTED,
            None => clean,
        }
    }
}

/// A header's value, and its last word: the key after a scheme such as `Bearer`.
fn whole_and_last(value: &str) -> impl Iterator<Item = &str> {
    std::iter::once(value).chain(value.rsplit(' ').next())
}

impl Hidden {
    /// Where in `text` a beginning of the secret starts that runs to the end of the text.
    fn cut_at_the_end(&self, text: &str) -> Option<usize> {
        let secret = self.secret.expose();
        let beginnings =
            secret.char_indices().map(|(end, _)| &secret[..end]).filter(|beginning| beginning.len() >= self.shortest);
        beginnings.rev().find(|beginning| text.ends_with(beginning)).map(|beginning| text.len() - beginning.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Redactor {
        Redactor::default().with(words.iter().copied(), SHORTEST)
    }

    #[test]
    fn a_key_that_was_cut_is_removed_too() {
        let redactor = of(&["sk-12345678"]);
        assert_eq!(redactor.clean("bad key sk-12345"), "bad key [redacted]");
        assert_eq!(redactor.clean("bad key sk-"), "bad key sk-");
        assert_eq!(redactor.clean("sk-12345 is bad"), "sk-12345 is bad");
    }

    #[test]
    fn an_echoed_key_is_removed() {
        let redactor = of(&["sk-123", "Bearer sk-123"]);
        assert_eq!(redactor.clean("Incorrect API key: sk-123 (Bearer sk-123)"), "Incorrect API key: [redacted] ([redacted])");
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

    #[test]
    fn a_secret_that_json_spells_otherwise_is_removed_from_json_too() {
        let redactor = of(&["pass\"word\\"]).in_json();
        assert_eq!(redactor.clean(r#"{"key": "pass\"word\\"} pass"word\"#), r#"{"key": "[redacted]"} [redacted]"#);
        assert_eq!(of(&["plain"]).in_json().secrets, of(&["plain"]).secrets);
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
