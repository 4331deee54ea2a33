//! A TCP connection to a name that may have several addresses.

use llmscen_core::outcome::{Failure, FailureKind};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Delay before the next address is tried in parallel (RFC 8305, section 5).
const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address of `host` that accepts. The failure names every address that was tried.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Connect, why).at("connecting");
    let resolved = tokio::net::lookup_host((host, port)).await;
    let resolved = resolved.map_err(|error| {
        failed(format!(
            "cannot resolve {host}: {}",
            describe_io_error(&error)
        ))
    })?;
    let addresses: Vec<SocketAddr> = resolved.collect();
    if addresses.is_empty() {
        return Err(failed(format!("{host} has no address")));
    }
    connect_any(addresses)
        .await
        .map_err(|errors| failed(errors.join("; ")))
}

/// Connects to the first address that accepts, starting attempts with a delay between them; or returns the error of
/// each.
async fn connect_any(addresses: Vec<SocketAddr>) -> Result<TcpStream, Vec<String>> {
    if let [address] = addresses[..] {
        // No race is needed, and a burst of connections needs no task and timer each.
        return connect_address(address).await.map_err(|why| vec![why]);
    }
    let mut waiting = interleave_families(addresses).into_iter();
    let mut racing = JoinSet::new();
    let mut errors = Vec::new();
    loop {
        match waiting.next() {
            Some(address) => drop(racing.spawn(connect_address(address))),
            None if racing.is_empty() => return Err(errors),
            None => {}
        }
        let more = waiting.len() > 0;
        tokio::select! {
            biased;
            ended = racing.join_next() => match ended {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(why))) => errors.push(why),
                Some(Err(error)) => errors.push(error.to_string()),
                None => {}
            },
            () = tokio::time::sleep(CONNECTION_ATTEMPT_DELAY), if more => {}
        }
    }
}

/// IPv6 and IPv4 in turn, in the resolver's order (RFC 8305, section 4), so that one broken family does not delay the
/// other.
fn interleave_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let v6_first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (preferred, other): (Vec<_>, Vec<_>) = addresses
        .into_iter()
        .partition(|address| address.is_ipv6() == v6_first);
    let longest = preferred.len().max(other.len());
    (0..longest)
        .flat_map(|index| preferred.get(index).into_iter().chain(other.get(index)))
        .copied()
        .collect()
}

async fn connect_address(address: SocketAddr) -> Result<TcpStream, String> {
    let opened = TcpStream::connect(address)
        .await
        .and_then(|socket| socket.set_nodelay(true).map(|()| socket));
    opened.map_err(|error| format!("{address}: {}", describe_io_error(&error)))
}

/// An I/O error without its number. Shortages of this machine have messages of their own, since the server is not at
/// fault.
fn describe_io_error(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => return Failure::NO_FILES.into(),
        Some(Errno::ADDRNOTAVAIL) => return Failure::NO_PORTS.into(),
        _ => {}
    }
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or(&text)
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tokio::net::TcpSocket;

    fn refusing() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
    }

    #[test]
    fn address_families_alternate() {
        let parse = |text: &str| -> Vec<SocketAddr> {
            text.split(' ')
                .map(|address| address.parse().unwrap())
                .collect()
        };
        let given = parse("[::1]:1 [::2]:1 [::3]:1 1.0.0.1:1 1.0.0.2:1");
        assert_eq!(
            interleave_families(given),
            parse("[::1]:1 1.0.0.1:1 [::2]:1 1.0.0.2:1 [::3]:1")
        );
        assert_eq!(
            interleave_families(parse("1.0.0.1:1 1.0.0.2:1 [::1]:1")),
            parse("1.0.0.1:1 [::1]:1 1.0.0.2:1")
        );
        assert_eq!(interleave_families(Vec::new()), []);
    }

    #[test]
    fn a_shortage_of_files_or_ports_on_this_machine_is_named() {
        let described =
            |code: Errno| describe_io_error(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert_eq!(
            [Errno::MFILE, Errno::NFILE].map(described),
            [Failure::NO_FILES; 2]
        );
        assert_eq!(described(Errno::ADDRNOTAVAIL), Failure::NO_PORTS);
        assert_eq!(described(Errno::CONNREFUSED), "connection refused");
    }

    #[tokio::test]
    async fn every_address_that_refused_is_named() {
        let (one, two) = (refusing(), refusing());
        let errors = connect_any(vec![one, two]).await.unwrap_err();
        assert_eq!(
            errors,
            [
                format!("{one}: connection refused"),
                format!("{two}: connection refused")
            ]
        );
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_delay_the_next() {
        // A listener whose queue is full answers no further SYN.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        let _queued = TcpStream::connect(address).await.unwrap();
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![address, refusing(), good.local_addr().unwrap()];
        let limit = Duration::from_millis(900);
        assert!(
            tokio::time::timeout(limit, connect_any(vec![address]))
                .await
                .is_err(),
            "the silent address accepted"
        );
        let opened = tokio::time::timeout(Duration::from_secs(20), connect_any(addresses))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(opened.peer_addr().unwrap(), good.local_addr().unwrap());
    }
}
