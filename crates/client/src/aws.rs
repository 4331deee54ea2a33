//! Signatures of AWS (SigV4) on requests.

use crate::ClientError;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName, HeaderValue};
use llmscen_core::api_key::AwsCredentials;
use llmscen_core::redact::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};
use std::time::SystemTime;

/// Headers that a proxy may change, beside those that `aws-sigv4` omits. They are sent, but not signed.
const UNSIGNED: [HeaderName; 4] = [ACCEPT, ACCEPT_ENCODING, CONNECTION, PROXY_AUTHORIZATION];
/// Characters that AWS escapes in a path: all but the unreserved ones (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The SHA-256 of a body in hexadecimal, as a signature contains it.
pub fn body_sha256(body: &[u8]) -> String {
    Sha256::digest(body)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A path with every reserved character escaped, such as the `:` of a model id. A signature escapes the sent path
/// again; some services compute it from the path that they have decoded, and both are the same only for such a path.
pub(crate) fn escape_path(path: &str) -> String {
    let escape = |segment: &str| {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        utf8_percent_encode(&decoded, ESCAPED).to_string()
    };
    let segments: Vec<String> = path.split('/').map(escape).collect();
    segments.join("/")
}

/// Signs requests with the credentials of a service in a region.
pub struct AwsSigner {
    service: String,
    region: String,
    credentials: Credentials,
}

impl AwsSigner {
    /// A signer.
    pub fn new(service: &str, credentials: &AwsCredentials) -> AwsSigner {
        let token = credentials.session_token.as_ref();
        AwsSigner {
            service: service.to_owned(),
            region: credentials.region.clone(),
            credentials: Credentials::new(
                credentials.access_key_id.expose(),
                credentials.secret_access_key.expose(),
                token.map(|token| token.expose().to_owned()),
                None,
                "llmscen",
            ),
        }
    }

    /// The headers that sign a request to `url` with these headers at this time.
    ///
    /// # Errors
    /// The URL or a header cannot be signed.
    pub fn sign(
        &self,
        method: &str,
        url: &str,
        headers: &HeaderMap,
        body_sha256: &str,
        time: SystemTime,
    ) -> Result<HeaderMap, ClientError> {
        let identity = self.credentials.clone().into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(time)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| ClientError::Signature(error.to_string()))?
            .into();
        let signed = headers
            .iter()
            .filter(|(name, _)| !UNSIGNED.contains(name))
            .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = SignableBody::Precomputed(body_sha256.to_owned());
        let signature = SignableRequest::new(method, url, signed, body)
            .and_then(|request| sign(request, &params))
            .map_err(|error| ClientError::Signature(error.to_string()))?;
        let mut added = HeaderMap::new();
        for (name, value) in signature.output().headers() {
            let parsed: HeaderName = name
                .parse()
                .map_err(|_| ClientError::Header(name.to_owned()))?;
            let mut value =
                HeaderValue::from_str(value).map_err(|_| ClientError::Header(name.to_owned()))?;
            value.set_sensitive(true);
            added.insert(parsed, value);
        }
        Ok(added)
    }

    /// The same for a client that takes headers as text.
    ///
    /// # Errors
    /// The URL or a header cannot be signed.
    pub fn sign_text(
        &self,
        method: &str,
        url: &str,
        body: &[u8],
        time: SystemTime,
    ) -> Result<Vec<(String, Secret)>, ClientError> {
        let added = self.sign(method, url, &HeaderMap::new(), &body_sha256(body), time)?;
        let text = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), Secret::new(value.to_str().ok()?)))
        };
        Ok(added.iter().filter_map(text).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    /// The time of AWS's test suite: 2015-08-30T12:36:00Z.
    const SUITE_TIME: Duration = Duration::from_secs(1_440_938_160);

    fn suite_signer(token: Option<&str>) -> AwsSigner {
        let credentials = AwsCredentials {
            access_key_id: Secret::new("AKIDEXAMPLE"),
            secret_access_key: Secret::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: token.map(Secret::new),
            region: "us-east-1".to_owned(),
        };
        AwsSigner::new("service", &credentials)
    }

    fn sign_at(
        signer: &AwsSigner,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> HeaderMap {
        let mut all = HeaderMap::new();
        all.insert("host", HeaderValue::from_static("example.amazonaws.com"));
        for (name, value) in headers {
            all.insert(*name, value.parse().unwrap());
        }
        let url = format!("https://example.amazonaws.com{path}");
        let time = UNIX_EPOCH + SUITE_TIME;
        signer
            .sign(method, &url, &all, &body_sha256(b""), time)
            .unwrap()
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
        headers.get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn signatures_are_those_of_the_published_test_suite() {
        let header: &[(&str, &str)] = &[("my-header1", "value1")];
        for (case, method, path, headers, signature) in [
            (
                "get-vanilla",
                "GET",
                "/",
                &[][..],
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                "POST",
                "/",
                &[],
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-header-key-sort",
                "POST",
                "/",
                header,
                "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
            ),
            (
                "get-vanilla-query-order-key-case",
                "GET",
                "/?Param2=value2&Param1=value1",
                &[],
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "get-relative-normalized",
                "GET",
                "/example/..",
                &[],
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
        ] {
            let names = match headers {
                [] => "host;x-amz-date",
                _ => "host;my-header1;x-amz-date",
            };
            let signed = sign_at(&suite_signer(None), method, path, headers);
            assert_eq!(
                text(&signed, "authorization"),
                format!(
                    "AWS4-HMAC-SHA256 \
                    Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                    SignedHeaders={names}, Signature={signature}"
                ),
                "{case}"
            );
            assert_eq!(text(&signed, "x-amz-date"), "20150830T123600Z", "{case}");
            assert_eq!(signed.len(), 2, "{case}");
        }
    }

    #[test]
    fn the_colon_of_a_model_id_is_escaped_twice_as_botocore_does() {
        let path = escape_path("/model/openai.gpt-oss-20b-1:0/invoke");
        assert_eq!(path, "/model/openai.gpt-oss-20b-1%3A0/invoke");
        assert_eq!(escape_path(&path), path);
        assert_eq!(escape_path("/a%2Fb/é~_.-/"), "/a%2Fb/%C3%A9~_.-/");
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("host", "example.amazonaws.com"),
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("accept-encoding", "identity"),
            ("user-agent", "llmscen"),
            ("authorization", "Basic dTpw"),
        ] {
            headers.insert(name, value.parse().unwrap());
        }
        let url = format!("https://example.amazonaws.com{path}");
        let (body, time) = (body_sha256(b"{\"a\":1}"), UNIX_EPOCH + SUITE_TIME);
        let signer = suite_signer(Some("sess/ion+token=="));
        let signed = signer.sign("POST", &url, &headers, &body, time).unwrap();
        assert_eq!(text(&signed, "x-amz-security-token"), "sess/ion+token==");
        assert_eq!(
            text(&signed, "authorization"),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
             Signature=21d09650beb50b0c597cf251ee8e804fff55db73016ae5a9938e6a740f7d133b"
        );
        assert!(signed.values().all(HeaderValue::is_sensitive));
    }

    #[test]
    fn a_later_attempt_has_a_new_date() {
        let dates = [0, 60].map(|later| {
            let time = UNIX_EPOCH + SUITE_TIME + Duration::from_secs(later);
            let url = "https://example.amazonaws.com/";
            let signed =
                suite_signer(None).sign("GET", url, &HeaderMap::new(), &body_sha256(b""), time);
            text(&signed.unwrap(), "x-amz-date").to_owned()
        });
        assert_eq!(dates, ["20150830T123600Z", "20150830T123700Z"]);
    }
}
