//! Selection of the HTTP version, and errors if the two sides do not agree.

use super::server::{Act, Server, event};
use super::*;
use crate::lab::{self, FINISH, Lab, TOKEN, plain};
use llmscen_core::target::HttpVersion;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A server's side of TLS that offers these protocols, and its authority in the folder's `ca.pem`.
pub fn identity(lab: &Lab, name: &str, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    lab.file("ca.pem", certificate.pem());
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ));
    let builder = builder
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    Arc::new(config)
}

fn good(_: usize) -> Vec<Act> {
    vec![
        Act::Head(""),
        event(TOKEN),
        Act::Wait(PAUSE_MS),
        event(TOKEN),
        event(FINISH),
        event("[DONE]"),
        Act::End,
    ]
}

fn secure(lab: &Lab, server: &Server, version: HttpVersion) -> Target {
    let tls = Tls {
        ca: Some(lab.path().join("ca.pem").display().to_string()),
        ..Tls::default()
    };
    Target {
        version,
        tls,
        ..target(&format!(
            "https://localhost:{}/v1/chat/completions",
            server.addr.port()
        ))
    }
}

#[test]
fn tls_agrees_on_http_2_and_all_share_it() {
    let lab = Lab::new();
    let server = Server::start(
        100,
        Some(identity(&lab, "localhost", &["h2", "http/1.1"])),
        good,
    );
    for version in [HttpVersion::Auto, HttpVersion::Http2] {
        let outcomes = on_worker(&secure(&lab, &server, version), async |engine| {
            engine.reach().await.unwrap();
            send_all(&engine, 8).await
        });
        for outcome in &outcomes {
            assert_ok(outcome, 2);
            assert_paced(outcome);
        }
    }
    // Each engine opened one to see that the target is there, and one for its calls.
    assert_eq!(server.seen.count(), (4, 16));
    assert!(
        server.seen.heads.lock().unwrap()[0]
            .0
            .starts_with("https://localhost:")
    );
}

#[test]
fn the_binary_speaks_http_2_over_tls_by_itself() {
    let lab = Lab::new();
    let server = Server::start(100, Some(identity(&lab, "localhost", &["h2"])), good);
    let url = format!(
        "https://localhost:{}/v1/chat/completions",
        server.addr.port()
    );
    let scenario = plain(&url, 12)
        .replace("model: m,", "model: m, tls: { ca: ca.pem },")
        .replace("concurrency: 1", "concurrency: 4");
    lab.run(&scenario).expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 12);
    assert_eq!(server.seen.requests_to("/v1/chat/completions"), 12);
}

#[test]
fn http_1_never_offers_http_2() {
    let lab = Lab::new();
    let server = Server::start(100, Some(identity(&lab, "localhost", &["h2"])), good);
    let outcome = send_one(&secure(&lab, &server, HttpVersion::Http1));
    assert_failed(
        &outcome,
        FailureKind::Tls,
        "supports none of the offered HTTP versions",
    );
}

#[test]
fn a_server_without_http_2_is_told_from_one_that_is_away() {
    let lab = Lab::new();
    for protocols in [&["http/1.1"][..], &[]] {
        let server = Server::start(100, Some(identity(&lab, "localhost", protocols)), good);
        let outcome = send_one(&secure(&lab, &server, HttpVersion::Http2));
        assert_failed(
            &outcome,
            FailureKind::Tls,
            "set `target.http.version` to `auto`",
        );
    }
    let answer = lab::response("400 Bad Request", "text/plain", "what is PRI?");
    let server = lab::Server::start(move |stream, _| lab::send(stream, &answer));
    let target = Target {
        version: HttpVersion::Http2,
        ..target(&server.url())
    };
    let (reached, outcome) = on_worker(&target, async |engine| {
        (engine.reach().await, send(&engine, call(0)).await.outcome)
    });
    let failure = reached.unwrap_err();
    assert_eq!(
        (failure.kind, failure.at.as_str()),
        (FailureKind::Connect, "connecting")
    );
    assert!(
        failure.message.contains("does not seem to support HTTP/2"),
        "{}",
        failure.message
    );
    assert_failed(
        &outcome,
        FailureKind::Connect,
        "does not seem to support HTTP/2",
    );
}

#[test]
fn plain_http_is_http_1_unless_told_otherwise() {
    let server = lab::Server::start(|stream, _| {
        lab::send(stream, &lab::stream(&[TOKEN, FINISH, "[DONE]"], true))
    });
    for version in [HttpVersion::Auto, HttpVersion::Http1] {
        assert_ok(
            &send_one(&Target {
                version,
                ..target(&server.url())
            }),
            1,
        );
    }
}
