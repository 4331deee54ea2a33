//! Whether a server that does not answer plain HTTP speaks TLS.

use crate::connect::tcp::connect;
use crate::tls::client_config;
use llmscen_core::target::Tls;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long the server has for the first bytes of a handshake.
const LIMIT: Duration = Duration::from_secs(1);
/// The first byte of a TLS record that is an alert or a part of a handshake, and its major version (RFC 8446, section 5.1).
const RECORDS: [[u8; 2]; 2] = [[21, 3], [22, 3]];

/// Whether the server answers the beginning of a TLS handshake with TLS. Many close the connection without a byte when they
/// get plain HTTP, so that only this tells.
pub(super) async fn speaks_tls(host: &str, port: u16) -> bool {
    tokio::time::timeout(LIMIT, answered(host, port)).await.ok().flatten().is_some_and(|first| RECORDS.contains(&first))
}

async fn answered(host: &str, port: u16) -> Option<[u8; 2]> {
    let config = client_config(&Tls { insecure: true, ..Tls::default() }).ok()?;
    let mut hello = Vec::new();
    let name = ServerName::try_from(host.to_owned()).ok()?;
    ClientConnection::new(config, name).ok()?.write_tls(&mut hello).ok()?;
    let mut socket = connect(host, port).await.ok()?;
    socket.write_all(&hello).await.ok()?;
    let mut first = [0; 2];
    socket.read_exact(&mut first).await.ok()?;
    Some(first)
}
