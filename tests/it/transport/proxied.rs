//! Targets behind a proxy: the binary, a proxy on loopback, and a name that only the proxy resolves.

use super::negotiated::identity;
use super::server::{Act, Server, event};
use crate::lab::{self, FINISH, Lab, Ran, TOKEN, plain};
use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A proxy that keeps the head of the first request per connection, tunnels every CONNECT to one address, and responds
/// to other requests itself.
struct Proxy {
    addr: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(target: Option<SocketAddr>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy {
            addr: listener.local_addr().unwrap(),
            heads: Arc::default(),
        };
        let heads = proxy.heads.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let heads = heads.clone();
                std::thread::spawn(move || pass(client, target, &heads));
            }
        });
        proxy
    }

    /// Runs the scenario with this proxy in the environment.
    fn run(&self, lab: &Lab, scenario: &str, variable: &str) -> Ran {
        lab.file("s.yaml", scenario);
        let mut command = lab.command(&["run", "s.yaml", "--output", "out", "--force"]);
        command.env(variable, format!("http://user:pass@{}", self.addr));
        Ran::of(command.output().unwrap())
    }
}

fn pass(
    mut client: TcpStream,
    target: Option<SocketAddr>,
    heads: &Mutex<Vec<String>>,
) -> Option<()> {
    let head = head(&mut client)?;
    heads.lock().unwrap().push(head.clone());
    match (head.starts_with("CONNECT "), target) {
        (true, Some(target)) => {
            let mut server = TcpStream::connect(target).ok()?;
            client
                .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                .ok()?;
            let (mut up, mut down) = (client.try_clone().ok()?, server.try_clone().ok()?);
            std::thread::spawn(move || {
                let _ = copy(&mut up, &mut down);
                down.shutdown(Shutdown::Write)
            });
            copy(&mut server, &mut client).ok()?;
            client.shutdown(Shutdown::Both).ok()
        }
        (true, None) => client
            .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            .ok(),
        (false, _) => {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            client.read_exact(&mut vec![0; length]).ok()?;
            client
                .write_all(&lab::stream(&[TOKEN, FINISH, "[DONE]"], true))
                .ok()
        }
    }
}

fn head(client: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn good(_: usize) -> Vec<Act> {
    vec![
        Act::Head(""),
        event(TOKEN),
        event(FINISH),
        event("[DONE]"),
        Act::End,
    ]
}

const AUTH: &str = "\r\nproxy-authorization: Basic dXNlcjpwYXNz\r\n";

#[test]
fn a_secure_target_is_reached_through_a_tunnel() {
    let lab = Lab::new();
    let server = Server::start(100, Some(identity(&lab, "llm.example", &["h2"])), good);
    let proxy = Proxy::start(Some(server.addr));
    let scenario = plain("https://llm.example/v1/chat/completions", 3)
        .replace("model: m,", "model: m, tls: { ca: ca.pem },");
    proxy.run(&lab, &scenario, "HTTPS_PROXY").expect(0);
    assert_eq!(lab.results()["cases"][0]["counts"]["ok"], 3);
    assert_eq!(server.seen.requests_to("/v1/chat/completions"), 3);
    for head in proxy.heads.lock().unwrap().iter() {
        assert!(
            head.starts_with("CONNECT llm.example:443 HTTP/1.1\r\n") && head.contains(AUTH),
            "{head}"
        );
    }
}

#[test]
fn a_plain_target_is_asked_for_by_its_whole_address() {
    let (lab, proxy) = (Lab::new(), Proxy::start(None));
    proxy
        .run(
            &lab,
            &plain("http://u:p@llm.example:81/v1/chat/completions", 3),
            "HTTP_PROXY",
        )
        .expect(0);
    let results = lab.results();
    assert_eq!(results["cases"][0]["counts"]["ok"], 3);
    let through = format!("through the proxy http://{} (from HTTP_PROXY)", proxy.addr);
    let url = "http://u:[redacted]@llm.example:81/v1/chat/completions";
    assert_eq!(results["targets"], serde_json::json!({ url: &through }));
    assert!(
        lab.text("out/report.md").contains(&through)
            && !lab.text("out/report.md").contains("pass@")
    );
    let heads = proxy.heads.lock().unwrap();
    let (sent, identifying): (Vec<_>, Vec<_>) =
        heads.iter().partition(|head| head.starts_with("POST "));
    assert_eq!((sent.len(), identifying.is_empty()), (3, false));
    for head in sent {
        assert!(
            head.starts_with("POST http://llm.example:81/v1/chat/completions HTTP/1.1\r\n"),
            "{head}"
        );
    }
    for head in heads.iter() {
        assert!(
            head.contains(AUTH) && head.contains("\r\nhost: llm.example:81\r\n"),
            "{head}"
        );
        assert!(head.contains("\r\nauthorization: Basic dTpw\r\n"), "{head}");
    }
}

#[test]
fn a_proxy_that_refuses_is_named_without_its_password() {
    let (lab, proxy) = (Lab::new(), Proxy::start(None));
    let ran = proxy
        .run(
            &lab,
            &plain("https://llm.example/v1/chat/completions", 1),
            "ALL_PROXY",
        )
        .expect(3);
    assert!(
        ran.err
            .contains("refused CONNECT llm.example:443 with status 403 Forbidden"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .contains(&format!("the proxy http://{} (from ALL_PROXY)", proxy.addr))
            && !ran.err.contains("pass"),
        "{}",
        ran.err
    );
}
