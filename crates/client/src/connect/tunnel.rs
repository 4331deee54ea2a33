//! A way through a proxy that lets everything pass.

use crate::connect::Transport;
use crate::proxy::Proxy;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use llmscen_core::outcome::{Failure, FailureKind};

/// Asks the proxy at the other end of `socket` to pass everything through to `authority` (RFC 9110, section 9.3.6).
pub(super) async fn through<T: Transport + 'static>(socket: T, proxy: &Proxy, authority: &str) -> Result<T, Failure> {
    let refused = |why: String| Failure::new(FailureKind::Connect, format!("the proxy {proxy}: {why}")).at("connecting");
    let mut request = Request::connect(authority).header(header::HOST, authority);
    if let Some(auth) = &proxy.auth {
        request = request.header(header::PROXY_AUTHORIZATION, auth);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| refused(error.to_string()))?;
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = shaken.map_err(|error| refused(error.to_string()))?;
    let sending = async {
        let status = sender.send_request(request).await.map_err(|error| refused(error.to_string()))?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(refused(format!("answered {status} to CONNECT {authority}"))),
        }
    };
    let passing = async { connection.without_shutdown().await.map_err(|error| refused(error.to_string())) };
    // A proxy that refuses may keep the connection open: the refusal ends the wait.
    let ((), parts) = tokio::try_join!(sending, passing)?;
    Ok(parts.io.into_inner())
}
