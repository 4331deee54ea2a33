use super::*;
use crate::exchange::tests::target;
use llmscen_core::api_key::KeyCommand;
use llmscen_core::request::Framing;
use llmscen_core::target::{Compression, HttpVersion};
use llmscen_core::units::Nanos;
use llmscen_protocols::{DecodeOptions, Decoder};
use serde_json::Value;
use std::collections::BTreeMap;

/// A protocol with the API key in `x-api-key`.
struct Keyed;

impl Protocol for Keyed {
    fn body(&self, _: bool) -> Value {
        Value::Null
    }

    fn headers(&self, key: Option<&str>, stream: bool) -> Vec<(&'static str, String)> {
        let key = key.map(|key| ("x-api-key", key.to_owned()));
        key.into_iter()
            .chain(stream.then(|| ("x-sse", "enable".to_owned())))
            .collect()
    }

    fn decoder(&self, _: Framing, _: &DecodeOptions) -> Box<dyn Decoder> {
        unreachable!("no response is decoded")
    }
}

fn headers(
    key: Option<&str>,
    named: &[(&str, &str)],
    compression: Compression,
) -> Result<RequestHeaders, ClientError> {
    headers_at("http://user:word@h:1/v1", key, named, compression)
}

fn headers_at(
    url: &str,
    key: Option<&str>,
    named: &[(&str, &str)],
    compression: Compression,
) -> Result<RequestHeaders, ClientError> {
    let target = Target {
        api_key: key.map(|key| ApiKey::Fixed(Secret::new(key))),
        headers: named
            .iter()
            .map(|(name, value)| (name.to_string(), Secret::new(*value)))
            .collect(),
        compression,
        ..target()
    };
    let route = Route::new(url, &Default::default(), &Default::default()).unwrap();
    RequestHeaders::new(
        &target,
        &route,
        &RequestTarget::new(&target, &route),
        &(Arc::new(Keyed) as Arc<dyn Protocol>),
    )
}

#[test]
fn the_next_request_has_the_newest_key_and_headers_of_the_scenario_stay() {
    let keys = ObtainedKeys::default();
    let command = KeyCommand {
        argv: vec!["print-key".to_owned()],
        every: Nanos::from_millis(1),
        keys: keys.clone(),
    };
    let of = |named: &[(&str, &str)]| {
        let named = named.iter();
        let target = Target {
            api_key: Some(ApiKey::Command(command.clone())),
            headers: named
                .map(|(name, value)| (name.to_string(), Secret::new(*value)))
                .collect(),
            ..target()
        };
        let route = Route::new("http://h:1/v1", &Default::default(), &Default::default());
        let route = route.unwrap();
        let request_target = RequestTarget::new(&target, &route);
        let protocol: Arc<dyn Protocol> = Arc::new(Keyed);
        RequestHeaders::new(&target, &route, &request_target, &protocol).unwrap()
    };
    let key = |headers: &RequestHeaders, streamed| {
        let headers = headers.for_request(streamed, &[], false).unwrap();
        headers
            .get("x-api-key")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let headers = of(&[]);
    assert_eq!((key(&headers, true), headers.key_number()), (None, 0));
    keys.add("one");
    assert_eq!(key(&headers, true).as_deref(), Some("one"));
    assert_eq!(headers.key_number(), 1);
    keys.add("two");
    assert_eq!(key(&headers, false).as_deref(), Some("two"));
    assert_eq!(key(&headers, true).as_deref(), Some("two"));
    assert_eq!(headers.key_number(), 2);
    headers.refuse_key(2);
    assert!(keys.is_refused());
    assert_eq!(
        key(&of(&[("X-Api-Key", "mine")]), true).as_deref(),
        Some("mine")
    );
}

fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines.retain(|line| !line.starts_with("user-agent"));
    lines
}

#[test]
fn later_sources_of_a_header_replace_earlier_ones() {
    let shared = headers(
        Some("k"),
        &[("X-SSE", "off"), ("authorization", "mine")],
        Compression::Any,
    )
    .unwrap();
    let extra = [
        ("accept".to_owned(), "a/b".to_owned()),
        ("X-SSE".to_owned(), "on".to_owned()),
    ];
    assert_eq!(
        lines(&shared.for_request(true, &extra, false).unwrap()),
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
    let shared = headers(None, &[("content-length", "7")], Compression::None).unwrap();
    assert_eq!(
        lines(
            &shared
                .for_request(
                    false,
                    &[("Transfer-Encoding".to_owned(), "chunked".to_owned())],
                    false,
                )
                .unwrap()
        ),
        [
            "accept-encoding: identity",
            "accept: application/json",
            "authorization: Basic dXNlcjp3b3Jk",
            "content-type: application/json",
            "host: h:1",
        ]
    );
    assert_eq!(
        shared.for_request(true, &[], false).unwrap()[ACCEPT],
        ACCEPT_STREAM
    );
}

#[test]
fn headers_of_a_recorded_connection_and_key_are_not_sent() {
    let mut extra = [
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
    let sent = |url: &str, key, named: &[(&str, &str)], extra: &[(String, String)]| {
        lines(
            &headers_at(url, key, named, Compression::None)
                .unwrap()
                .for_request(false, extra, false)
                .unwrap(),
        )
    };
    let with = |auth: &[&'static str], keys: &[&'static str]| [&common, auth, &rest, keys].concat();
    let plain = "http://h:1/v1";
    // A target without a key takes the recorded ones.
    assert_eq!(
        sent(plain, None, &[], &extra),
        with(
            &["api-key: old", "authorization: Bearer old"],
            &["x-api-key: old", "x-user: u1"]
        )
    );
    // The key of a traffic class replaces that of the target, whatever its header is.
    let own = [("Authorization".to_owned(), "Bearer own".to_owned())];
    let shared = headers_at(plain, Some("k"), &[], Compression::None).unwrap();
    assert_eq!(
        lines(&shared.for_request(false, &own, true).unwrap()),
        with(&["authorization: Bearer own"], &[])
    );
    // A key of the protocol, of the scenario's headers, of the URL.
    assert_eq!(
        sent(plain, Some("k"), &[], &extra),
        with(&[], &["x-api-key: k", "x-user: u1"])
    );
    let named = [("Authorization", "mine")];
    assert_eq!(
        sent(plain, None, &named, &extra),
        with(&["authorization: mine"], &["x-user: u1"])
    );
    let url_auth = "authorization: Basic dXNlcjp3b3Jk";
    assert_eq!(
        sent("http://user:word@h:1/v1", None, &[], &extra),
        with(&[url_auth], &["x-user: u1"])
    );
    // Values of headers that are not sent are not checked.
    extra[1].1 = "\n".to_owned();
    assert_eq!(
        sent(plain, Some("k"), &[], &extra),
        with(&[], &["x-api-key: k", "x-user: u1"])
    );
}

#[test]
fn invalid_headers_are_refused_without_showing_the_value() {
    let shared = headers(None, &[], Compression::Gzip).unwrap();
    for (name, value) in [
        ("a b", "secret"),
        ("", "secret"),
        ("a", "secret\r\nb: c"),
        ("a", "\0"),
    ] {
        let error = shared
            .for_request(true, &[(name.to_owned(), value.to_owned())], false)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(&format!("the header `{name}` cannot be sent")),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
        assert!(headers(None, &[(name, value)], Compression::Gzip).is_err());
    }
}

#[test]
fn the_user_of_a_url_becomes_basic_authentication() {
    let auth = |url: &str| basic_auth(&url.parse().unwrap());
    // The example of RFC 7617, section 2.
    assert_eq!(
        auth("http://Aladdin:open%20sesame@h/").as_deref(),
        Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
    );
    assert_eq!(auth("http://h/"), None);
}

fn head(
    url: &str,
    version: HttpVersion,
    used: Version,
    host: Option<&str>,
    proxy: bool,
) -> (String, Option<String>) {
    let env = if proxy {
        BTreeMap::from([("HTTP_PROXY".into(), "http://proxy:1".into())])
    } else {
        BTreeMap::new()
    };
    let target = Target {
        version,
        ..target()
    };
    let route = Route::new(url, &Default::default(), &env).unwrap();
    let request_target = RequestTarget::new(&target, &route);
    let mut request = Request::new(());
    request_target.set_host(request.headers_mut()).unwrap();
    if let Some(host) = host {
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_str(host).unwrap());
    }
    request_target.apply(&mut request, used).unwrap();
    (
        request.uri().to_string(),
        request
            .headers()
            .get(HOST)
            .map(|host| host.to_str().unwrap().to_owned()),
    )
}

#[test]
fn each_http_version_has_its_form_without_the_user() {
    let http1 = |url, host, proxy| head(url, HttpVersion::Auto, Version::HTTP_11, host, proxy);
    let http2 = |url, host, proxy| head(url, HttpVersion::Http2, Version::HTTP_2, host, proxy);
    let host = |host: &str| Some(host.to_owned());
    assert_eq!(
        http1("http://u:p@h:8000/v1?a=1", None, false),
        ("/v1?a=1".into(), host("h:8000"))
    );
    assert_eq!(
        http1("http://u:p@h/v1", None, true),
        ("http://h/v1".into(), host("h"))
    );
    assert_eq!(
        http2("http://u:p@h/v1", None, true),
        ("http://h/v1".into(), None)
    );
    assert_eq!(
        http2("http://h/v1", Some("other:1"), false),
        ("http://other:1/v1".into(), None)
    );
    assert_eq!(
        http1("http://[::1]:80", None, false),
        ("/".into(), host("[::1]:80"))
    );
}
