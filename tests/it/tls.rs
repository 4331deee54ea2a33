//! HTTPS targets: a custom authority, no trust at all, and any certificate on demand.

use crate::lab::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

fn secure_server(lab: &Lab, answers: usize) -> SocketAddr {
    serve_tls(
        lab,
        CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap(),
        answers,
    )
}

/// A server whose certificate is signed by `ca.pem` in the scratch folder. After this many responses per connection, it only
/// sends a TLS close alert.
pub fn serve_tls(lab: &Lab, params: CertificateParams, answers: usize) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    lab.file("ca.pem", certificate.pem());
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (listener, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(config));
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let config = config.clone();
            std::thread::spawn(move || {
                let mut session = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::Stream::new(&mut session, &mut socket);
                for number in 0..=answers {
                    if read_request(&mut stream).is_none() {
                        return;
                    }
                    if number == answers {
                        stream.conn.send_close_notify();
                        let _ = stream.conn.complete_io(stream.sock);
                        return;
                    }
                    let answer = crate::lab::stream(&[TOKEN, FINISH, "[DONE]"], true);
                    if std::io::Write::write_all(&mut stream, &answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn scenario(address: SocketAddr, tls: &str) -> String {
    plain(
        &format!("https://localhost:{}/v1/chat/completions", address.port()),
        3,
    )
    .replace("model: m,", &format!("model: m, tls: {{ {tls} }},"))
}

#[test]
fn a_custom_authority_is_trusted() {
    let lab = Lab::new();
    let address = secure_server(&lab, 9);
    lab.run(&scenario(address, "ca: ca.pem")).expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 3);
}

#[test]
fn an_unknown_authority_is_refused_as_tls() {
    let lab = Lab::new();
    let address = secure_server(&lab, 9);
    let other = Lab::new();
    secure_server(&other, 9);
    let path = other.path().join("ca.pem");
    let ran = lab
        .run(&scenario(address, &format!("ca: {}", path.display())))
        .expect(3);
    assert!(ran.err.contains("(tls)"), "{}", ran.err);
}

#[test]
fn insecure_accepts_any_certificate() {
    let lab = Lab::new();
    let address = secure_server(&lab, 9);
    lab.run(&scenario(address, "insecure: true")).expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 3);
}

#[test]
fn unverified_certificates_are_noted_on_stderr_and_in_every_report() {
    let lab = Lab::new();
    let address = secure_server(&lab, 9);
    let insecure = scenario(address, "insecure: true") + "report: { formats: [md, html, json] }\n";
    let ran = lab.run(&insecure).expect(0);
    let warnings: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| line.contains("tls.insecure"))
        .collect();
    assert_eq!(warnings.len(), 1, "{}", ran.err);
    assert!(
        warnings[0].starts_with("warning: ") && warnings[0].contains("s.yaml:3:"),
        "{}",
        ran.err
    );
    let note = "TLS certificates of the target are not verified (`target.tls.insecure: true`)";
    let results = lab.results();
    let notes = results["notes"].as_array().unwrap();
    assert!(notes.contains(&note.into()), "{notes:?}");
    assert!(
        lab.text("out/report.md").contains("are not verified"),
        "{}",
        lab.text("out/report.md")
    );
    assert!(lab.text("out/report.html").contains("are not verified"));
    let again = lab.llmscen(&["report", "out"]).expect(0);
    assert!(
        !again.err.contains("tls.insecure"),
        "a report sends nothing: {}",
        again.err
    );
    assert!(lab.text("out/report.md").contains("are not verified"));
    lab.run(&scenario(address, "ca: ca.pem")).expect(0);
    assert!(!lab.text("out/report.md").contains("not verified"));
}

#[test]
fn a_tls_farewell_is_no_byte_of_an_answer() {
    let lab = Lab::new();
    let address = secure_server(&lab, 1);
    lab.run(&scenario(address, "ca: ca.pem")).expect(0);
    let counts = &lab.results()["cases"][0]["counts"];
    assert_eq!(
        (&counts["ok"], &counts["reconnects"]),
        (&3.into(), &2.into()),
        "{counts}"
    );
}
