//! Which proxy stands between this machine and the target, by the usual environment variables.

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// The proxy for one target.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Where the proxy is.
    pub uri: Uri,
    /// Its `Proxy-Authorization`.
    pub auth: Option<HeaderValue>,
    /// The variable that names it.
    pub variable: String,
}

/// `http://proxy:3128 (from HTTP_PROXY)`, without a user or a password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.uri.scheme_str().unwrap_or("http"), self.uri.authority().map_or("", |own| own.as_str()));
        let host = authority.rsplit('@').next().unwrap_or_default();
        write!(f, "{scheme}://{host} (from {})", self.variable)
    }
}

/// The proxy that `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` (or their lower-case twins) name for this
/// target. Never one for loopback, whatever they say: a benchmark of this machine must not leave it.
pub fn proxy_for(target: &Uri, env: &BTreeMap<String, String>) -> Option<Proxy> {
    if is_loopback(target.host()?) {
        return None;
    }
    let read = |name: &str| env.get_key_value(name).or_else(|| env.get_key_value(&name.to_lowercase()));
    let none = read("NO_PROXY").map_or("", |(_, value)| value);
    let own = if target.scheme_str() == Some("https") { "HTTPS_PROXY" } else { "HTTP_PROXY" };
    [own, "ALL_PROXY"].into_iter().filter_map(read).find_map(|(variable, value)| {
        let found = Matcher::builder().all(value.as_str()).no(none).build().intercept(target)?;
        Some(Proxy { uri: found.uri().clone(), auth: found.basic_auth().cloned(), variable: variable.clone() })
    })
}

/// Whether a host name or address means this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_unspecified(),
        Err(_) => bare.eq_ignore_ascii_case("localhost") || bare.to_ascii_lowercase().ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(target: &str, env: &[(&str, &str)]) -> Option<String> {
        let env = env.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        proxy_for(&target.parse().unwrap(), &env).map(|proxy| proxy.to_string())
    }

    #[test]
    fn loopback_never_goes_through_a_proxy() {
        let env = [("HTTP_PROXY", "http://proxy:3128"), ("ALL_PROXY", "http://proxy:3128")];
        for target in
            ["http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:80/", "http://127.9.9.9/", "http://a.localhost/"]
        {
            assert_eq!(proxy(target, &env), None, "{target}");
        }
        assert_eq!(proxy("http://llm.example/v1", &env).as_deref(), Some("http://proxy:3128 (from HTTP_PROXY)"));
    }

    #[test]
    fn the_scheme_and_the_exceptions_count() {
        let env = [("https_proxy", "http://secure:1"), ("NO_PROXY", "inner.example")];
        assert_eq!(proxy("https://llm.example/", &env).as_deref(), Some("http://secure:1 (from https_proxy)"));
        assert_eq!(proxy("http://llm.example/", &env), None);
        assert_eq!(proxy("https://inner.example/", &env), None);
    }

    #[test]
    fn the_variable_is_named_and_credentials_are_not() {
        let env = [("ALL_PROXY", "http://u:p4ss@all:1"), ("HTTP_PROXY", "plain:2"), ("HTTPS_PROXY", "")];
        assert_eq!(proxy("http://h.example/", &env).as_deref(), Some("http://plain:2 (from HTTP_PROXY)"));
        assert_eq!(proxy("https://h.example/", &env).as_deref(), Some("http://all:1 (from ALL_PROXY)"));
    }
}
