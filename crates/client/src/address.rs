//! Where a request goes, as its own head says it.

use crate::error::EngineError;
use crate::route::Route;
use http::header::HOST;
use http::uri::{Authority, Parts, PathAndQuery};
use http::{HeaderMap, HeaderValue, Request, Uri, Version};
use llmscen_core::target::HttpVersion;

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
