//! The addresses of the host of a URL: those behind a DNS name are the workers of a fleet.

use reqwest::Url;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Looks up the addresses of a host and port.
pub type Resolver = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Time limit of a look-up.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The resolver of the operating system.
///
/// # Errors
/// The name does not exist, or no name server answers.
pub fn system_resolver(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// The addresses of the host of a URL, sorted.
///
/// # Errors
/// The URL is invalid, its host has no address, or the look-up takes too long.
pub fn addresses(url: &str, resolve: Resolver) -> Result<Vec<SocketAddr>, String> {
    let (host, port) = host_and_port(&Url::parse(url).map_err(|error| error.to_string())?);
    let (sender, found) = channel();
    let name = host.clone();
    std::thread::spawn(move || sender.send(resolve(&name, port)));
    let late = || {
        format!(
            "the address of {host} was not found within {} s",
            TIMEOUT.as_secs()
        )
    };
    let found = found.recv_timeout(TIMEOUT).map_err(|_| late())?;
    let mut addresses = found.map_err(|error| format!("cannot look up {host}: {error}"))?;
    addresses.sort();
    addresses.dedup();
    if addresses.is_empty() {
        return Err(format!("{host} has no address"));
    }
    Ok(addresses)
}

/// `HOST:PORT` of a URL; None if the URL is invalid.
pub fn authority(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let port = url.port_or_known_default().unwrap_or(80);
    Some(format!("{}:{port}", url.host_str()?))
}

/// Without the brackets of an IPv6 address.
fn host_and_port(url: &Url) -> (String, u16) {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    (host.to_owned(), url.port_or_known_default().unwrap_or(80))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_a_host_is_found_once_and_in_order() {
        let resolve: Resolver = |host, port| {
            assert_eq!(host, "decode.svc");
            Ok(vec![
                ([10, 0, 0, 2], port).into(),
                ([10, 0, 0, 1], port).into(),
                ([10, 0, 0, 2], port).into(),
            ])
        };
        let expected = [([10, 0, 0, 1], 8000).into(), ([10, 0, 0, 2], 8000).into()];
        assert_eq!(
            addresses("http://decode.svc:8000/metrics", resolve).unwrap(),
            expected
        );
        let none: Resolver = |_, _| Ok(Vec::new());
        assert_eq!(
            addresses("http://a/", none).unwrap_err(),
            "a has no address"
        );
        let unknown: Resolver = |_, _| Err(io::Error::other("unknown"));
        assert_eq!(
            addresses("http://a/", unknown).unwrap_err(),
            "cannot look up a: unknown"
        );
    }

    #[test]
    fn a_literal_address_is_its_only_one() {
        for (url, address, name) in [
            ("http://127.0.0.1:9/m", "127.0.0.1:9", "127.0.0.1:9"),
            ("http://[::1]/m", "[::1]:80", "[::1]:80"),
        ] {
            let expected: SocketAddr = address.parse().unwrap();
            assert_eq!(addresses(url, system_resolver).unwrap(), [expected]);
            assert_eq!(authority(url).unwrap(), name);
        }
    }
}
