//! RequestHeaders and request target of requests.

use crate::ClientError;
use crate::aws::{AwsSigner, escape_path};
use crate::content_encoding::accept_encoding;
use crate::route::Route;
use base64::Engine;
use base64::prelude::BASE64_STANDARD as STANDARD;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, EXPECT, HOST, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    USER_AGENT,
};
use http::uri::{Authority, Parts, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use llmscen_core::api_key::{ApiKey, ObtainedKey, ObtainedKeys};
use llmscen_core::redact::Secret;
use llmscen_core::target::Target;
use llmscen_protocols::Protocol;
use percent_encoding::percent_decode_str;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

const ACCEPT_STREAM: &str = "text/event-stream, application/x-ndjson, application/json";
const ACCEPT_DOCUMENT: &str = "application/json";

/// Headers in which the supported APIs expect a key.
pub const API_KEY_HEADERS: [HeaderName; 4] = [
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// Headers that belong to the connection on which a request was recorded; they are not sent again.
const CONNECTION_HEADERS: [HeaderName; 13] = [
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

/// The headers that all requests of a worker to a target share.
pub(super) struct RequestHeaders {
    shared: RefCell<SharedHeaders>,
    /// Where newer keys come from; None: the key is fixed.
    keys: Option<ChangingKey>,
    /// The URL of requests, which is signed.
    url: String,
}

struct SharedHeaders {
    streamed: HeaderMap,
    unary: HeaderMap,
    /// The key in them, if it may change.
    key: Option<Arc<ObtainedKey>>,
    /// What signs requests with this key.
    signer: Option<AwsSigner>,
}

/// A key that changes during the run.
struct ChangingKey {
    keys: ObtainedKeys,
    usage: KeyUsage,
}

/// What a key is for.
enum KeyUsage {
    /// It is sent in the headers of the protocol.
    Sent {
        protocol: Arc<dyn Protocol>,
        /// Names of `target.headers`, which replace those of the key.
        fixed: Vec<HeaderName>,
    },
    /// It signs requests to this service of AWS.
    Signs { service: String },
}

impl ChangingKey {
    /// Replaces the key by the latest one, if there is a newer one.
    fn update(&self, shared: &mut SharedHeaders) -> Result<(), ClientError> {
        let Some(key) = self.keys.advance(&mut shared.key) else {
            return Ok(());
        };
        let (protocol, fixed) = match &self.usage {
            KeyUsage::Sent { protocol, fixed } => (protocol, fixed),
            KeyUsage::Signs { service } => {
                shared.signer = key.aws().map(|aws| AwsSigner::new(service, aws));
                return Ok(());
            }
        };
        let key = key.key().map(Secret::expose);
        for (headers, streamed) in [(&mut shared.streamed, true), (&mut shared.unary, false)] {
            for (name, value) in protocol.headers(key, streamed) {
                if !fixed.contains(&parse_name(name)?) {
                    set_header(headers, name, &value)?;
                }
            }
        }
        Ok(())
    }
}

impl RequestHeaders {
    /// The headers of every request to `target`. Later ones replace earlier ones: defaults, the user of the URL, the
    /// protocol with its API key, `target.headers` of the scenario.
    ///
    /// # Errors
    /// A header that HTTP forbids.
    pub fn new(
        target: &Target,
        route: &Route,
        request_target: &RequestTarget,
        protocol: &Arc<dyn Protocol>,
    ) -> Result<RequestHeaders, ClientError> {
        let headers =
            |streamed| target_headers(target, route, request_target, protocol.as_ref(), streamed);
        let mut shared = SharedHeaders {
            streamed: headers(true)?,
            unary: headers(false)?,
            key: None,
            signer: None,
        };
        let names = || target.headers.iter().map(|(name, _)| parse_name(name));
        let usage = match &target.api_key {
            None | Some(ApiKey::Fixed(_)) => None,
            Some(ApiKey::Command(_)) => Some(KeyUsage::Sent {
                protocol: protocol.clone(),
                fixed: names().collect::<Result<_, _>>()?,
            }),
            Some(ApiKey::Aws(signing)) => Some(KeyUsage::Signs {
                service: signing.service.clone(),
            }),
        };
        let keys = target.obtained_keys().cloned().zip(usage);
        let keys = keys.map(|(keys, usage)| ChangingKey { keys, usage });
        if let Some(changing) = &keys {
            changing.update(&mut shared)?;
        }
        Ok(RequestHeaders {
            shared: RefCell::new(shared),
            keys,
            url: request_target.url(None),
        })
    }

    /// The number of the key in the headers of the latest request; 0 if the key does not change.
    pub fn key_number(&self) -> u64 {
        let shared = self.shared.borrow();
        shared.key.as_ref().map_or(0, |key| key.number())
    }

    /// Records that the server refused the key with this number, so that it is renewed.
    pub fn refuse_key(&self, number: u64) {
        if let Some(changing) = &self.keys {
            changing.keys.refuse(number);
        }
    }

    /// Whether requests are signed.
    pub fn signs(&self) -> bool {
        let usage = self.keys.as_ref().map(|changing| &changing.usage);
        matches!(usage, Some(KeyUsage::Signs { .. }))
    }

    /// Signs a POST of this body to the target, if requests are signed.
    ///
    /// # Errors
    /// There are no credentials, or a header cannot be signed.
    pub fn sign_call(
        &self,
        headers: &mut HeaderMap,
        body_sha256: Option<&str>,
        time: SystemTime,
    ) -> Result<(), ClientError> {
        self.sign(headers, &Method::POST, &self.url, body_sha256, time)
    }

    /// Signs a request to `url`, if requests are signed.
    ///
    /// # Errors
    /// There are no credentials, or a header cannot be signed.
    pub fn sign(
        &self,
        headers: &mut HeaderMap,
        method: &Method,
        url: &str,
        body_sha256: Option<&str>,
        time: SystemTime,
    ) -> Result<(), ClientError> {
        if !self.signs() {
            return Ok(());
        }
        let shared = self.shared.borrow();
        let (signer, body_sha256) =
            shared.signer.as_ref().zip(body_sha256).ok_or_else(|| {
                ClientError::Signature("there are no credentials of AWS".to_owned())
            })?;
        let added = signer.sign(method.as_str(), url, headers, body_sha256, time)?;
        for (name, value) in &added {
            headers.insert(name, value.clone());
        }
        Ok(())
    }

    /// The headers of one request: `extra` replaces shared headers, except headers of a recorded connection, and a
    /// recorded API key if the target has a key. `own_key`: a key in `extra` is of the scenario, and replaces that of
    /// the target.
    ///
    /// # Errors
    /// A header in `extra` that HTTP forbids.
    pub fn for_request(
        &self,
        streamed: bool,
        extra: &[(String, String)],
        own_key: bool,
    ) -> Result<HeaderMap, ClientError> {
        let mut shared = self.shared.borrow_mut();
        if let Some(changing) = &self.keys {
            changing.update(&mut shared)?;
        }
        let mut headers = if streamed {
            shared.streamed.clone()
        } else {
            shared.unary.clone()
        };
        drop(shared);
        let signs = self.signs();
        if own_key && !signs {
            API_KEY_HEADERS.iter().for_each(|key| {
                headers.remove(key);
            });
        }
        let has_key = signs || API_KEY_HEADERS.iter().any(|key| headers.contains_key(key));
        // A recorded HTTP/2 request has pseudo-headers such as `:authority`.
        for (name, value) in extra.iter().filter(|(name, _)| !name.starts_with(':')) {
            let parsed = parse_name(name)?;
            let skipped = CONNECTION_HEADERS.contains(&parsed)
                || has_key && API_KEY_HEADERS.contains(&parsed)
                || signs && parsed.as_str().starts_with("x-amz-");
            if !skipped {
                set_header(&mut headers, name, value)?;
            }
        }
        Ok(headers)
    }
}

fn target_headers(
    target: &Target,
    route: &Route,
    request_target: &RequestTarget,
    protocol: &dyn Protocol,
    streamed: bool,
) -> Result<HeaderMap, ClientError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static(if streamed {
            ACCEPT_STREAM
        } else {
            ACCEPT_DOCUMENT
        }),
    );
    headers.insert(
        ACCEPT_ENCODING,
        HeaderValue::from_static(accept_encoding(target.compression)),
    );
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("llmscen/", env!("CARGO_PKG_VERSION"))),
    );
    request_target.set_host(&mut headers)?;
    let proxy = route
        .proxy
        .as_ref()
        .filter(|_| route.absolute_form(target.version));
    if let Some(auth) = proxy.and_then(|proxy| proxy.auth.as_ref()) {
        headers.insert(PROXY_AUTHORIZATION, auth.clone());
    }
    if let Some(user) = basic_auth(&route.uri) {
        set_header(&mut headers, AUTHORIZATION.as_str(), &user)?;
    }
    let key = target.api_key.as_ref().and_then(ApiKey::fixed);
    for (name, value) in protocol.headers(key.map(Secret::expose), streamed) {
        set_header(&mut headers, name, &value)?;
    }
    for (name, value) in &target.headers {
        set_header(&mut headers, name, value.expose())?;
    }
    Ok(headers)
}

/// Sets a header, replacing any of the same name. Headers for the length and framing of the body are ignored: they
/// often describe the recorded body, and the connection sets them itself.
fn set_header(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), ClientError> {
    let parsed = parse_name(name)?;
    if parsed == CONTENT_LENGTH || parsed == TRANSFER_ENCODING {
        return Ok(());
    }
    let mut value =
        HeaderValue::from_str(value).map_err(|_| ClientError::Header(name.to_owned()))?;
    // The value may be a secret: it must not enter the HPACK tables of HTTP/2 or the logs of a library.
    value.set_sensitive(true);
    headers.insert(parsed, value);
    Ok(())
}

fn parse_name(name: &str) -> Result<HeaderName, ClientError> {
    name.parse()
        .map_err(|_| ClientError::Header(name.to_owned()))
}

/// The `authorization` of a URL with `user:password@` (RFC 7617).
pub(super) fn basic_auth(uri: &Uri) -> Option<String> {
    let (user, _) = uri.authority()?.as_str().rsplit_once('@')?;
    let plain: Vec<u8> = percent_decode_str(user).collect();
    Some(format!("Basic {}", STANDARD.encode(plain)))
}

/// The request target (RFC 9112, section 3.2) in the form of each HTTP version.
pub(super) struct RequestTarget {
    http1: Uri,
    parts: Parts,
}

impl RequestTarget {
    /// The request target of `route`.
    pub fn new(target: &Target, route: &Route) -> RequestTarget {
        let mut parts = route.uri.clone().into_parts();
        if target.aws().is_some() {
            parts.path_and_query = parts.path_and_query.map(escape_path_and_query);
        }
        parts.authority = parts.authority.map(|authority| without_user(&authority));
        // The absolute form needs a path.
        parts
            .path_and_query
            .get_or_insert(PathAndQuery::from_static("/"));
        let origin = parts
            .path_and_query
            .clone()
            .map_or_else(Uri::default, Uri::from);
        let absolute = Uri::from_parts(clone_parts(&parts)).unwrap_or_else(|_| origin.clone());
        RequestTarget {
            http1: if route.absolute_form(target.version) {
                absolute
            } else {
                origin
            },
            parts,
        }
    }

    /// Sets URI and version of a request. HTTP/2 has the host in `:authority` instead of a header (RFC 9113, section
    /// 8.3.1).
    ///
    /// # Errors
    /// A host that is not a valid authority.
    pub fn apply<B>(&self, request: &mut Request<B>, version: Version) -> Result<(), ClientError> {
        if version != Version::HTTP_2 {
            *request.uri_mut() = self.http1.clone();
            return Ok(());
        }
        let mut parts = clone_parts(&self.parts);
        if let Some(host) = request.headers_mut().remove(HOST) {
            parts.authority = Some(
                Authority::try_from(host.as_bytes())
                    .map_err(|_| ClientError::Header("host".into()))?,
            );
        }
        *request.uri_mut() =
            Uri::from_parts(parts).map_err(|_| ClientError::Header("host".into()))?;
        *request.version_mut() = version;
        Ok(())
    }

    /// The URL of a request to this path, or to the path of the target.
    pub fn url(&self, path: Option<&str>) -> String {
        let scheme = self.parts.scheme.as_ref().map_or("http", Scheme::as_str);
        let authority = self.parts.authority.as_ref().map_or("", Authority::as_str);
        let own_path = self.parts.path_and_query.as_ref();
        let path = path.or(own_path.map(PathAndQuery::as_str)).unwrap_or("/");
        format!("{scheme}://{authority}{path}")
    }

    /// Sets the `host` header.
    pub fn set_host(&self, headers: &mut HeaderMap) -> Result<(), ClientError> {
        let host = self.parts.authority.as_ref().map_or("", Authority::as_str);
        headers.insert(
            HOST,
            HeaderValue::from_str(host).map_err(|_| ClientError::Header("host".into()))?,
        );
        Ok(())
    }
}

/// The authority without `user:password@`, which belongs into the `authorization` header only.
fn without_user(authority: &Authority) -> Authority {
    let bare = authority
        .as_str()
        .rsplit_once('@')
        .map(|(_, bare)| Authority::try_from(bare));
    bare.and_then(Result::ok)
        .unwrap_or_else(|| authority.clone())
}

fn escape_path_and_query(whole: PathAndQuery) -> PathAndQuery {
    let query = whole.query().map(|query| format!("?{query}"));
    let escaped = escape_path(whole.path()) + &query.unwrap_or_default();
    PathAndQuery::try_from(escaped).unwrap_or(whole)
}

fn clone_parts(parts: &Parts) -> Parts {
    let mut copy = Parts::default();
    copy.scheme.clone_from(&parts.scheme);
    copy.authority.clone_from(&parts.authority);
    copy.path_and_query.clone_from(&parts.path_and_query);
    copy
}

#[cfg(test)]
mod tests;
