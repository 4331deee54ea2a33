//! The headers that every request to a target carries.

use crate::engine::dial::host_and_port;
use crate::engine::error::EngineError;
use crate::engine::route::Route;
use crate::model::target::Target;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// The headers of every request to `target`. What the scenario names wins over the key, the key over the URL's user.
pub(super) fn headers(target: &Target, route: &Route) -> Result<HeaderMap, EngineError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("llmscen/", env!("CARGO_PKG_VERSION"))));
    let (host, port) = host_and_port(&route.uri);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let authority = if route.uri.port().is_some() { format!("{host}:{port}") } else { host };
    headers.insert(HOST, HeaderValue::from_str(&authority).map_err(|_| EngineError::Header("host".into()))?);
    if let Some(auth) = route.proxy.as_ref().and_then(|proxy| proxy.auth.as_ref()).filter(|_| route.absolute_form()) {
        headers.insert(PROXY_AUTHORIZATION, auth.clone());
    }
    if let Some(user) = basic(&route.uri) {
        headers.insert(AUTHORIZATION, secret_value(AUTHORIZATION.as_str(), &user)?);
    }
    if let Some(key) = &target.api_key {
        let value = format!("Bearer {}", key.expose());
        headers.insert(AUTHORIZATION, secret_value(AUTHORIZATION.as_str(), &value)?);
    }
    for (name, value) in &target.headers {
        let parsed: HeaderName = name.parse().map_err(|_| EngineError::Header(name.clone()))?;
        headers.insert(parsed, secret_value(name, value.expose())?);
    }
    Ok(headers)
}

/// Basic authentication of a URL with `user:password@` in it (RFC 7617).
fn basic(uri: &Uri) -> Option<String> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let plain: Vec<u8> = percent_decode_str(user).collect();
    Some(format!("Basic {}", STANDARD.encode(plain)))
}

fn secret_value(name: &str, value: &str) -> Result<HeaderValue, EngineError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| EngineError::Header(name.to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_url_becomes_basic_authentication() {
        let of = |url: &str| basic(&url.parse().unwrap());
        // The example of RFC 7617, section 2.
        assert_eq!(of("http://Aladdin:open%20sesame@h/").as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(of("http://h/"), None);
    }
}
