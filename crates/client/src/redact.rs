//! Removes secrets from messages and headers before they are stored or shown.

use crate::headers::basic_auth;
use crate::route::Route;
use http::HeaderMap;
use llmscen_core::redact::{self, REDACTED, Redactor};
use llmscen_core::target::Target;
use llmscen_core::url_secrets::is_secret_name;

/// A redactor for the secrets of `target`, and for the credentials of URLs and proxies as they appear in headers
/// (Base64).
pub fn target_redactor(target: &Target, routes: &[Route]) -> Redactor {
    let users: Vec<String> = routes
        .iter()
        .filter_map(|route| basic_auth(&route.uri))
        .collect();
    let proxies = routes.iter().filter_map(|route| {
        let auth = route.proxy.as_ref()?.auth.as_ref()?;
        auth.to_str().ok()
    });
    let credentials = users
        .iter()
        .map(String::as_str)
        .chain(proxies)
        .filter_map(|value| value.rsplit(' ').next());
    target.redactor().with(credentials, redact::SHORTEST)
}

/// Headers without secrets, in their order. A value is replaced if the name is that of a secret, or one of `named`,
/// whose values come from the scenario or the dataset. The scheme of an `authorization` stays.
pub fn redact_headers<'a>(
    redactor: &Redactor,
    headers: &HeaderMap,
    named: impl Iterator<Item = &'a str> + Clone,
) -> Vec<(String, String)> {
    let show = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let text = String::from_utf8_lossy(value.as_bytes());
        let scheme = text
            .split_once(' ')
            .map(|(scheme, _)| scheme)
            .filter(|_| name.as_str().ends_with("authorization"));
        let shown = match is_secret_name(name.as_str())
            || named
                .clone()
                .any(|other| other.eq_ignore_ascii_case(name.as_str()))
        {
            true => scheme.map_or_else(
                || REDACTED.to_owned(),
                |scheme| format!("{scheme} {REDACTED}"),
            ),
            false => redactor.redact_truncated(&text),
        };
        (name.as_str().to_owned(), shown)
    };
    headers.iter().map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::tests::target;
    use llmscen_core::api_key::ApiKey;
    use llmscen_core::redact::Secret;
    use llmscen_core::target::TargetLocation;

    #[test]
    fn secret_headers_and_headers_of_the_scenario_are_hidden() {
        let pairs = [
            ("host", "h:1"),
            ("authorization", "Bearer sk-1"),
            ("x-api-key", "k"),
            ("set-cookie", "id=1"),
            ("x-team", "red"),
            ("x-trace", "has sk-123 inside"),
        ];
        let headers: HeaderMap = pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .into_iter()
            .collect();
        let redactor = Redactor::from_texts(["sk-123"].into_iter(), redact::SHORTEST);
        let shown = redact_headers(&redactor, &headers, ["X-Team"].into_iter());
        let shown: Vec<String> = shown.into_iter().map(|(_, value)| value).collect();
        let hidden = "[redacted]";
        assert_eq!(
            shown,
            [
                "h:1",
                "Bearer [redacted]",
                hidden,
                hidden,
                hidden,
                "has [redacted] inside"
            ]
        );
    }

    #[test]
    fn base64_credentials_of_url_and_proxy_are_removed() {
        let url = "http://Aladdin:open%20sesame@h/v1";
        let env = [(
            "HTTP_PROXY".to_owned(),
            "http://user:word@proxy:3128".to_owned(),
        )]
        .into();
        let route = Route::new(url, &Default::default(), &env).unwrap();
        let target = Target {
            api_key: Some(ApiKey::Fixed(Secret::new("sk-123"))),
            location: TargetLocation::url(url),
            ..target()
        };
        let redactor = target_redactor(&target, std::slice::from_ref(&route));
        let message = "no: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==, open%20sesame; by proxy Basic dXNlcjp3b3Jk; sk-123";
        assert_eq!(
            redactor.redact_truncated(message),
            "no: Basic [redacted], [redacted]; by proxy Basic [redacted]; [redacted]"
        );
        assert_eq!(
            redactor.redact_truncated("cut QWxhZGRpbjpv"),
            "cut [redacted]"
        );
    }
}
