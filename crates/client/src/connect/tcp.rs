//! A TCP connection to a name that may have several addresses.

use llmscen_core::outcome::{Failure, FailureKind};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long an address may keep silent before the next one is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);

/// A connection to the first address of the name that answers; the failure names every one that was tried.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Failure> {
    let failed = |why: String| Failure::new(FailureKind::Connect, why).at("connecting");
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> =
        found.map_err(|error| failed(format!("cannot resolve {host}: {}", plain(&error))))?.collect();
    if addresses.is_empty() {
        return Err(failed(format!("{host} has no address")));
    }
    first_of(addresses).await.map_err(|tried| failed(tried.join("; ")))
}

/// The first of these addresses that answers, each tried a little after the one before it; or why none did.
async fn first_of(addresses: Vec<SocketAddr>) -> Result<TcpStream, Vec<String>> {
    if let [address] = addresses[..] {
        // No race, and in a burst no thousand tasks and timers for it.
        return attempt(address).await.map_err(|why| vec![why]);
    }
    let mut waiting = alternating(addresses).into_iter();
    let mut racing = JoinSet::new();
    let mut tried = Vec::new();
    loop {
        match waiting.next() {
            Some(address) => drop(racing.spawn(attempt(address))),
            None if racing.is_empty() => return Err(tried),
            None => {}
        }
        let more = waiting.len() > 0;
        tokio::select! {
            biased;
            ended = racing.join_next() => match ended {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(why))) => tried.push(why),
                Some(Err(error)) => tried.push(error.to_string()),
                None => {}
            },
            () = tokio::time::sleep(STAGGER), if more => {}
        }
    }
}

/// IPv6 and IPv4 in turn, in the resolver's order (RFC 8305, section 4): one broken family must not hold up the other.
fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    std::iter::from_fn(|| {
        let pair: Vec<SocketAddr> = one.next().into_iter().chain(other.next()).collect();
        (!pair.is_empty()).then_some(pair)
    })
    .flatten()
    .collect()
}

async fn attempt(address: SocketAddr) -> Result<TcpStream, String> {
    let opened = TcpStream::connect(address).await.and_then(without_delay);
    opened.map_err(|error| format!("{address}: {}", plain(&error)))
}

fn without_delay(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// An I/O error without the number that the system gives it, and the one that is this side's own in its own words.
fn plain(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE | Errno::NFILE) => return Failure::NO_FILES.into(),
        Some(Errno::ADDRNOTAVAIL) => return Failure::NO_PORTS.into(),
        _ => {}
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use tokio::net::TcpSocket;

    fn refusing() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    #[test]
    fn the_families_take_turns() {
        let parse = |text: &str| -> Vec<SocketAddr> { text.split(' ').map(|one| one.parse().unwrap()).collect() };
        let given = parse("[::1]:1 [::2]:1 [::3]:1 1.0.0.1:1 1.0.0.2:1");
        assert_eq!(alternating(given), parse("[::1]:1 1.0.0.1:1 [::2]:1 1.0.0.2:1 [::3]:1"));
        assert_eq!(alternating(parse("1.0.0.1:1 1.0.0.2:1 [::1]:1")), parse("1.0.0.1:1 [::1]:1 1.0.0.2:1"));
        assert_eq!(alternating(Vec::new()), []);
    }

    #[test]
    fn a_want_of_files_is_told_in_this_sides_own_words() {
        let said = |code: Errno| plain(&io::Error::from_raw_os_error(code.raw_os_error()));
        assert_eq!([Errno::MFILE, Errno::NFILE].map(said), [Failure::NO_FILES; 2]);
        assert_eq!(said(Errno::ADDRNOTAVAIL), Failure::NO_PORTS);
        assert_eq!(said(Errno::CONNREFUSED), "connection refused");
    }

    #[tokio::test]
    async fn every_address_that_refused_is_named() {
        let (one, two) = (refusing(), refusing());
        let tried = first_of(vec![one, two]).await.unwrap_err();
        assert_eq!(tried, [format!("{one}: connection refused"), format!("{two}: connection refused")]);
    }

    #[tokio::test]
    async fn an_address_that_keeps_silent_does_not_hold_up_the_next() {
        // A listener whose queue is full answers no further SYN.
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(0).unwrap();
        let address = silent.local_addr().unwrap();
        let _queued = TcpStream::connect(address).await.unwrap();
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![address, refusing(), good.local_addr().unwrap()];
        let limit = Duration::from_millis(900);
        assert!(tokio::time::timeout(limit, first_of(vec![address])).await.is_err(), "the silent address answered");
        let opened = tokio::time::timeout(Duration::from_secs(20), first_of(addresses)).await.unwrap().unwrap();
        assert_eq!(opened.peer_addr().unwrap(), good.local_addr().unwrap());
    }
}
