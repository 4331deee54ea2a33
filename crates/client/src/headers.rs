//! The headers of requests to a target.

use crate::content_encoding::accepted;
use crate::error::EngineError;
use crate::route::Route;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::uri::{Authority, Parts, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version};
use llmscen_core::target::{HttpVersion, Secret, Target};
use llmscen_protocols::Protocol;
use percent_encoding::percent_decode_str;

const EVENTS: &str = "text/event-stream, application/x-ndjson, application/json";
const DOCUMENT: &str = "application/json";

/// Where services of these protocols look for a key.
const KEYS: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// What a recorded request tells of its own connection, which is not this one.
const TRANSPORT: [HeaderName; 13] = [
    HOST,
    ACCEPT_ENCODING,
    CONTENT_ENCODING,
    CONNECTION,
    TRAILER,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHORIZATION,
    TE,
    UPGRADE,
    EXPECT,
    TRANSFER_ENCODING,
];

/// The headers that the requests to a target have in common.
pub(super) struct Headers {
    streamed: HeaderMap,
    whole: HeaderMap,
}

impl Headers {
    /// The headers of every request to `target`. What the scenario names wins over the protocol and its key, the key over
    /// the URL's user, the protocol over what is usual.
    ///
    /// # Errors
    /// A header that HTTP forbids.
    pub fn new(target: &Target, route: &Route, address: &Address, protocol: &dyn Protocol) -> Result<Headers, EngineError> {
        let of = |streamed| common(target, route, address, protocol, streamed);
        Ok(Headers { streamed: of(true)?, whole: of(false)? })
    }

    /// The headers of one request: these, and its own over them, but for those of the connection that it was recorded on,
    /// and of another's key where the target has its own.
    ///
    /// # Errors
    /// A header of its own that HTTP forbids.
    pub fn of(&self, streamed: bool, own: &[(String, String)]) -> Result<HeaderMap, EngineError> {
        let mut headers = if streamed { self.streamed.clone() } else { self.whole.clone() };
        let keyed = KEYS.iter().any(|key| headers.contains_key(key));
        // A recording of HTTP/2 holds `:authority` and the like.
        for (name, value) in own.iter().filter(|(name, _)| !name.starts_with(':')) {
            let parsed = parse(name)?;
            let stays = TRANSPORT.contains(&parsed) || keyed && KEYS.contains(&parsed);
            if !stays {
                put(&mut headers, name, value)?;
            }
        }
        Ok(headers)
    }
}

fn common(
    target: &Target,
    route: &Route,
    address: &Address,
    protocol: &dyn Protocol,
    streamed: bool,
) -> Result<HeaderMap, EngineError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static(if streamed { EVENTS } else { DOCUMENT }));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted(target.compression)));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("llmscen/", env!("CARGO_PKG_VERSION"))));
    address.host(&mut headers)?;
    let proxy = route.proxy.as_ref().filter(|_| route.absolute_form(target.version));
    if let Some(auth) = proxy.and_then(|proxy| proxy.auth.as_ref()) {
        headers.insert(PROXY_AUTHORIZATION, auth.clone());
    }
    if let Some(user) = basic(&route.uri) {
        put(&mut headers, AUTHORIZATION.as_str(), &user)?;
    }
    for (name, value) in protocol.headers(target.api_key.as_ref().map(Secret::expose), streamed) {
        put(&mut headers, name, &value)?;
    }
    for (name, value) in &target.headers {
        put(&mut headers, name, value.expose())?;
    }
    Ok(headers)
}

/// Puts a header in the place of any of its name. How long the body is, and how it is framed, is known only here: recorded
/// headers often tell it of another body.
fn put(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), EngineError> {
    let parsed = parse(name)?;
    if parsed == CONTENT_LENGTH || parsed == TRANSFER_ENCODING {
        return Ok(());
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| EngineError::Header(name.to_owned()))?;
    // Any of them may be a secret: none is kept in the tables of HTTP/2, nor printed by a library.
    value.set_sensitive(true);
    headers.insert(parsed, value);
    Ok(())
}

fn parse(name: &str) -> Result<HeaderName, EngineError> {
    name.parse().map_err(|_| EngineError::Header(name.to_owned()))
}

/// Basic authentication of a URL with `user:password@` in it (RFC 7617).
pub(super) fn basic(uri: &Uri) -> Option<String> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let plain: Vec<u8> = percent_decode_str(user).collect();
    Some(format!("Basic {}", STANDARD.encode(plain)))
}

/// The URI of a target in the forms that the versions of HTTP ask for.
pub(super) struct Address {
    http1: Uri,
    parts: Parts,
}

impl Address {
    /// The target at the end of `route`.
    pub fn new(route: &Route, version: HttpVersion) -> Address {
        let mut parts = route.uri.clone().into_parts();
        parts.authority = parts.authority.map(|authority| without_user(&authority));
        // An absolute URI has a path.
        parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
        let origin = parts.path_and_query.clone().map_or_else(Uri::default, Uri::from);
        let absolute = Uri::from_parts(copy(&parts)).unwrap_or_else(|_| origin.clone());
        Address { http1: if route.absolute_form(version) { absolute } else { origin }, parts }
    }

    /// Writes it into the head of a request. In HTTP/2 the host is no header but the `:authority` (RFC 9113, section 8.3.1).
    ///
    /// # Errors
    /// A host that no authority can hold.
    pub fn write<B>(&self, request: &mut Request<B>, version: Version) -> Result<(), EngineError> {
        if version != Version::HTTP_2 {
            *request.uri_mut() = self.http1.clone();
            return Ok(());
        }
        let mut parts = copy(&self.parts);
        if let Some(host) = request.headers_mut().remove(HOST) {
            parts.authority = Some(Authority::try_from(host.as_bytes()).map_err(|_| EngineError::Header("host".into()))?);
        }
        *request.uri_mut() = Uri::from_parts(parts).map_err(|_| EngineError::Header("host".into()))?;
        *request.version_mut() = version;
        Ok(())
    }

    /// Adds the `host` header.
    pub fn host(&self, headers: &mut HeaderMap) -> Result<(), EngineError> {
        let host = self.parts.authority.as_ref().map_or("", Authority::as_str);
        headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| EngineError::Header("host".into()))?);
        Ok(())
    }
}

/// A user and a password are for the `authorization` header alone.
fn without_user(authority: &Authority) -> Authority {
    let bare = authority.as_str().rsplit_once('@').map(|(_, bare)| Authority::try_from(bare));
    bare.and_then(Result::ok).unwrap_or_else(|| authority.clone())
}

fn copy(parts: &Parts) -> Parts {
    let mut copy = Parts::default();
    copy.scheme.clone_from(&parts.scheme);
    copy.authority.clone_from(&parts.authority);
    copy.path_and_query.clone_from(&parts.path_and_query);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::request::Framing;
    use llmscen_core::target::{Compression, Place, Timeouts};
    use llmscen_core::units::Nanos;
    use llmscen_protocols::Decoder;
    use serde_json::Value;

    /// A protocol that has its key in a header of its own.
    struct Keyed;

    impl Protocol for Keyed {
        fn body(&self, _: bool) -> Value {
            Value::Null
        }

        fn headers(&self, key: Option<&str>, stream: bool) -> Vec<(&'static str, String)> {
            let key = key.map(|key| ("x-api-key", key.to_owned()));
            key.into_iter().chain(stream.then(|| ("x-sse", "enable".to_owned()))).collect()
        }

        fn decoder(&self, _: Framing, _: bool) -> Box<dyn Decoder> {
            unreachable!("nothing is read here")
        }
    }

    fn of(key: Option<&str>, named: &[(&str, &str)], compression: Compression) -> Result<Headers, EngineError> {
        at("http://user:word@h:1/v1", key, named, compression)
    }

    fn at(url: &str, key: Option<&str>, named: &[(&str, &str)], compression: Compression) -> Result<Headers, EngineError> {
        let limit = Nanos(1);
        let target = Target {
            api: llmscen_core::api::Api::OpenaiChat,
            place: Place::Url(String::new()),
            models: Vec::new(),
            api_key: key.map(Secret::new),
            headers: named.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))).collect(),
            timeouts: Timeouts { connect: limit, read: limit, total: limit },
            tls: Default::default(),
            pool: Default::default(),
            version: Default::default(),
            compression,
            request_id: None,
            gpus: None,
            server: None,
            metrics: None,
            hardware: None,
            of_scenario: Default::default(),
        };
        let route = Route::new(url, &Default::default(), &Default::default()).unwrap();
        Headers::new(&target, &route, &Address::new(&route, target.version), &Keyed)
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines.retain(|line| !line.starts_with("user-agent"));
        lines
    }

    #[test]
    fn each_voice_has_its_rank() {
        let headers = of(Some("k"), &[("X-SSE", "off"), ("authorization", "mine")], Compression::Any).unwrap();
        let own = [("accept".to_owned(), "a/b".to_owned()), ("X-SSE".to_owned(), "on".to_owned())];
        assert_eq!(
            lines(&headers.of(true, &own).unwrap()),
            [
                "accept-encoding: zstd, gzip",
                "accept: a/b",
                "authorization: mine",
                "content-type: application/json",
                "host: h:1",
                "x-api-key: k",
                "x-sse: on",
            ]
        );
        let headers = of(None, &[("content-length", "7")], Compression::None).unwrap();
        assert_eq!(
            lines(&headers.of(false, &[("Transfer-Encoding".to_owned(), "chunked".to_owned())]).unwrap()),
            [
                "accept-encoding: identity",
                "accept: application/json",
                "authorization: Basic dXNlcjp3b3Jk",
                "content-type: application/json",
                "host: h:1",
            ]
        );
        assert_eq!(headers.of(true, &[]).unwrap()[ACCEPT], EVENTS);
    }

    #[test]
    fn a_recorded_request_keeps_its_connection_and_its_key_to_itself() {
        let mut own = [
            ("Host", "old:80"),
            (":authority", "old:80"),
            ("Content-Encoding", "gzip"),
            ("Api-Key", "old"),
            ("Accept-Encoding", "br"),
            ("Connection", "close"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "close"),
            ("Proxy-Authorization", "Basic b2xk"),
            ("TE", "gzip"),
            ("Upgrade", "h2c"),
            ("Expect", "100-continue"),
            ("Content-Length", "7"),
            ("Transfer-Encoding", "chunked"),
            ("Authorization", "Bearer old"),
            ("X-Api-Key", "old"),
            ("X-User", "u1"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let common = ["accept-encoding: identity", "accept: application/json"];
        let rest = ["content-type: application/json", "host: h:1"];
        let sent = |url: &str, key, named: &[(&str, &str)], own: &[(String, String)]| {
            lines(&at(url, key, named, Compression::None).unwrap().of(false, own).unwrap())
        };
        let with = |auth: &[&'static str], keys: &[&'static str]| [&common, auth, &rest, keys].concat();
        let plain = "http://h:1/v1";
        // A target without a key takes the recorded ones.
        assert_eq!(
            sent(plain, None, &[], &own),
            with(&["api-key: old", "authorization: Bearer old"], &["x-api-key: old", "x-user: u1"])
        );
        // A key of the protocol, of the scenario's headers, of the URL.
        assert_eq!(sent(plain, Some("k"), &[], &own), with(&[], &["x-api-key: k", "x-user: u1"]));
        let named = [("Authorization", "mine")];
        assert_eq!(sent(plain, None, &named, &own), with(&["authorization: mine"], &["x-user: u1"]));
        let of_url = "authorization: Basic dXNlcjp3b3Jk";
        assert_eq!(sent("http://user:word@h:1/v1", None, &[], &own), with(&[of_url], &["x-user: u1"]));
        // What is not sent is not looked at, but for its name.
        own[1].1 = "\n".to_owned();
        assert_eq!(sent(plain, Some("k"), &[], &own), with(&[], &["x-api-key: k", "x-user: u1"]));
    }

    #[test]
    fn what_http_forbids_is_refused_without_its_value() {
        let headers = of(None, &[], Compression::Gzip).unwrap();
        for (name, value) in [("a b", "secret"), ("", "secret"), ("a", "secret\r\nb: c"), ("a", "\0")] {
            let error = headers.of(true, &[(name.to_owned(), value.to_owned())]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the header `{name}` cannot be sent")), "{error}");
            assert!(!error.contains("secret"), "{error}");
            assert!(of(None, &[(name, value)], Compression::Gzip).is_err());
        }
    }

    #[test]
    fn the_user_of_a_url_becomes_basic_authentication() {
        let of = |url: &str| basic(&url.parse().unwrap());
        // The example of RFC 7617, section 2.
        assert_eq!(of("http://Aladdin:open%20sesame@h/").as_deref(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        assert_eq!(of("http://h/"), None);
    }
}

#[cfg(test)]
mod address_tests {
    use super::*;
    use std::collections::BTreeMap;

    fn head(url: &str, (version, spoken): (HttpVersion, Version), host: Option<&str>, proxy: bool) -> (String, Option<String>) {
        let env = if proxy { BTreeMap::from([("HTTP_PROXY".into(), "http://proxy:1".into())]) } else { BTreeMap::new() };
        let address = Address::new(&Route::new(url, &Default::default(), &env).unwrap(), version);
        let mut request = Request::new(());
        address.host(request.headers_mut()).unwrap();
        if let Some(host) = host {
            request.headers_mut().insert(HOST, HeaderValue::from_str(host).unwrap());
        }
        address.write(&mut request, spoken).unwrap();
        (request.uri().to_string(), request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned()))
    }

    #[test]
    fn each_version_gets_its_form_and_no_form_tells_the_user() {
        let (one, two) = ((HttpVersion::Auto, Version::HTTP_11), (HttpVersion::Http2, Version::HTTP_2));
        let host = |host: &str| Some(host.to_owned());
        assert_eq!(head("http://u:p@h:8000/v1?a=1", one, None, false), ("/v1?a=1".into(), host("h:8000")));
        assert_eq!(head("http://u:p@h/v1", one, None, true), ("http://h/v1".into(), host("h")));
        assert_eq!(head("http://u:p@h/v1", two, None, true), ("http://h/v1".into(), None));
        assert_eq!(head("http://h/v1", two, Some("other:1"), false), ("http://other:1/v1".into(), None));
        assert_eq!(head("http://[::1]:80", one, None, false), ("/".into(), host("[::1]:80")));
    }
}
