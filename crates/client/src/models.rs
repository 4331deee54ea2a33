//! Which models a target serves, by `GET /v1/models`.

use crate::exchange::Line;
use crate::http1::Pulled;
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, StatusCode, Uri};
use serde_json::Value;
use std::time::Duration;

/// The whole exchange takes so long at most.
const PATIENCE: Duration = Duration::from_secs(3);
/// Bytes of the answer, models, and characters of a name that are taken.
const BODY: usize = 1 << 20;
const MODELS: usize = 50;
const NAME: usize = 100;

/// The names of the models that the target lists; None where it does not answer the question.
pub(super) async fn served(line: &Line) -> Option<Vec<String>> {
    tokio::time::timeout(PATIENCE, asked(line)).await.ok()?
}

async fn asked(line: &Line) -> Option<Vec<String>> {
    let mut lease = line.pool.lease_fresh().await.ok()?;
    let mut request = Request::new(Bytes::new());
    *request.headers_mut() = line.headers.of(false, &[]).ok()?;
    request.headers_mut().remove(CONTENT_TYPE);
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    line.address.write(&mut request, lease.version()).ok()?;
    // The host stays the target's, and a redirect is not followed: no other host may see the key.
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(models_path(request.uri().path())).ok()?);
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    let response = lease.send(request).await.ok()?;
    if response.status() != StatusCode::OK {
        return None;
    }
    let mut body = Vec::new();
    while body.len() < BODY && lease.pull(&mut |bytes: &[u8]| body.extend_from_slice(bytes)).await.ok()? != Pulled::End {}
    names(&body)
}

/// The list of models beside a path: `/v1/models` for `/v1/chat/completions`, with what stands before the `/v1`.
fn models_path(path: &str) -> String {
    let root = path.rfind("/v1/").or_else(|| path.strip_suffix("/v1").map(str::len)).and_then(|at| path.get(..at));
    format!("{}/v1/models", root.unwrap_or_default())
}

fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let ids = list.get("data")?.as_array()?.iter().filter_map(|model| model.get("id")?.as_str());
    Some(ids.take(MODELS).map(|id| id.chars().take(NAME).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_beside_the_path_of_the_requests() {
        for (path, list) in [
            ("/v1/chat/completions", "/v1/models"),
            ("/openai/v1/chat/completions", "/openai/v1/models"),
            ("/v1", "/v1/models"),
            ("/api/chat", "/v1/models"),
            ("/", "/v1/models"),
        ] {
            assert_eq!(models_path(path), list, "{path}");
        }
    }

    #[test]
    fn names_come_from_the_list_and_from_nothing_else() {
        let of = |body: &str| names(body.as_bytes());
        assert_eq!(of(r#"{"object":"list","data":[{"id":"a"},{"no":1},{"id":"b"}]}"#), Some(vec!["a".into(), "b".into()]));
        assert_eq!([of("<html>"), of("[]"), of(r#"{"data":{}}"#)], [None, None, None]);
        assert_eq!(of(&format!(r#"{{"data":[{{"id":"{}"}}]}}"#, "x".repeat(900))).map(|all| all[0].len()), Some(NAME));
    }
}
