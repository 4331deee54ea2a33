//! The URLs of a target, and the one that each request is sent to.

use crate::seed::Seed;
use crate::url_secrets::redact_url;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::IpAddr;
use std::sync::Arc;

/// How requests are distributed over the URLs of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Requests in turn, by their number in the plan; so do the turns of a session.
    #[default]
    RoundRobin,
    /// Drawn from the seed for each request.
    Random,
    /// Sessions in turn: all turns of a session are sent to one URL.
    Session,
}

impl Balance {
    /// Every choice.
    pub const ALL: [Balance; 3] = [Balance::RoundRobin, Balance::Random, Balance::Session];

    /// The name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Balance::RoundRobin => "round_robin",
            Balance::Random => "random",
            Balance::Session => "session",
        }
    }
}

/// The URLs that requests are posted to: one or several different ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    first: String,
    others: Vec<String>,
    /// The name of each URL; empty for one URL.
    names: Vec<Arc<str>>,
    /// How requests are distributed over them.
    pub balance: Balance,
}

impl Endpoints {
    /// One URL.
    pub fn one(url: impl Into<String>) -> Endpoints {
        Endpoints {
            first: url.into(),
            others: Vec::new(),
            names: Vec::new(),
            balance: Balance::default(),
        }
    }

    /// Several URLs. None without a URL.
    pub fn new(urls: Vec<String>, balance: Balance) -> Option<Endpoints> {
        let names = if urls.len() > 1 {
            names(&urls)
        } else {
            Vec::new()
        };
        let mut urls = urls.into_iter();
        Some(Endpoints {
            first: urls.next()?,
            others: urls.collect(),
            names,
            balance,
        })
    }

    /// The first URL.
    pub fn first(&self) -> &str {
        &self.first
    }

    /// All URLs.
    pub fn urls(&self) -> impl Iterator<Item = &str> + Clone {
        let others = self.others.iter().map(String::as_str);
        std::iter::once(self.first.as_str()).chain(others)
    }

    /// The names of several URLs in rows, limits and reports; empty for one URL.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }
}

/// Names of URLs: host and port; the URL without its secrets where several have the same host and port; with a number
/// where these are equal, too.
fn names(urls: &[String]) -> Vec<Arc<str>> {
    let hosts: Vec<String> = urls.iter().map(|url| host_and_port(url)).collect();
    let is_unique = |host: &String| hosts.iter().filter(|other| *other == host).count() == 1;
    let name = |(url, host): (&String, &String)| {
        if is_unique(host) {
            host.clone()
        } else {
            redact_url(url)
        }
    };
    let names: Vec<String> = urls.iter().zip(&hosts).map(name).collect();
    let number = |(index, name): (usize, &String)| -> Arc<str> {
        let is_equal = |other: &&String| *other == name;
        match names.iter().filter(is_equal).count() {
            1 => name.as_str().into(),
            _ => {
                let before = names.iter().take(index).filter(is_equal).count();
                format!("{name}#{}", before + 1).into()
            }
        }
    };
    names.iter().enumerate().map(number).collect()
}

/// The parts of a URL as they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlParts<'a> {
    /// `http` without one.
    pub scheme: &'a str,
    /// User and password, where they are written.
    pub user: Option<&'a str>,
    /// Host and port.
    pub authority: &'a str,
    /// The host without the brackets of an IPv6 address.
    pub host: &'a str,
    /// The port, where it is written.
    pub port: Option<&'a str>,
    /// What follows the authority.
    pub path: &'a str,
}

impl<'a> UrlParts<'a> {
    /// Splits a URL. Nothing is checked.
    pub fn of(url: &'a str) -> UrlParts<'a> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        UrlParts {
            scheme,
            user,
            authority,
            host: host.trim_matches(['[', ']']),
            port,
            path,
        }
    }

    /// The port; that of the scheme if none is written.
    pub fn port_or_usual(&self) -> &'a str {
        let is_secure = ["https", "wss"]
            .iter()
            .any(|scheme| self.scheme.eq_ignore_ascii_case(scheme));
        self.port.unwrap_or(if is_secure { "443" } else { "80" })
    }
}

/// `HOST:PORT` of a URL, the host in lower case; the port is that of the scheme if the URL names none.
pub fn host_and_port(url: &str) -> String {
    let parts = UrlParts::of(url);
    let authority = parts.authority.to_ascii_lowercase();
    match parts.port {
        Some(_) => authority,
        None => format!("{authority}:{}", parts.port_or_usual()),
    }
}

/// Whether a host name or address means this machine.
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_unspecified(),
        Err(_) => {
            bare.eq_ignore_ascii_case("localhost")
                || bare.to_ascii_lowercase().ends_with(".localhost")
        }
    }
}

/// Selects the URL of each request of a round. It depends on the number of the request alone, so it is the same for
/// any number of workers and shards.
#[derive(Clone, Copy, Debug)]
pub struct EndpointSelector {
    count: u64,
    balance: Balance,
    seed: Seed,
}

impl EndpointSelector {
    /// The selector of a round with this seed; `endpoints`: None without a URL.
    pub fn new(endpoints: Option<&Endpoints>, seed: Seed) -> EndpointSelector {
        EndpointSelector {
            count: endpoints.map_or(1, |endpoints| 1 + endpoints.others.len() as u64),
            balance: endpoints.map_or(Balance::default(), |endpoints| endpoints.balance),
            seed: seed.child("endpoint"),
        }
    }

    /// Number of URLs.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The index of the URL of a request, or of a turn of a session; both from 0.
    pub fn select(&self, seq: u64, turn: u32) -> usize {
        if self.count < 2 {
            return 0;
        }
        let index = match self.balance {
            Balance::RoundRobin => seq.wrapping_add(u64::from(turn)) % self.count,
            Balance::Session => seq % self.count,
            Balance::Random => {
                let seed = self.seed.child(seq).child(u64::from(turn));
                ChaCha8Rng::seed_from_u64(seed.0).random_range(0..self.count)
            }
        };
        index as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_the_port_of_its_scheme() {
        let parts = |url| {
            let parts = UrlParts::of(url);
            (
                parts.authority,
                parts.host,
                parts.port_or_usual(),
                parts.path,
            )
        };
        assert_eq!(parts("http://h/v1?a=1"), ("h", "h", "80", "/v1?a=1"));
        assert_eq!(
            parts("https://u:p@[::1]/x:y@z"),
            ("[::1]", "::1", "443", "/x:y@z")
        );
        assert_eq!(parts("wss://H:8443#f"), ("H:8443", "H", "8443", "#f"));
        assert_eq!(host_and_port("wss://H/v1/realtime"), "h:443");
    }

    fn endpoints(urls: &[&str], balance: Balance) -> Endpoints {
        let urls = urls.iter().map(|url| (*url).to_owned()).collect();
        Endpoints::new(urls, balance).unwrap()
    }

    #[test]
    fn names_differ_where_hosts_and_public_parts_are_equal() {
        let names = |urls: &[&str]| -> Vec<String> {
            let endpoints = endpoints(urls, Balance::RoundRobin);
            endpoints
                .names()
                .iter()
                .map(|name| name.to_string())
                .collect()
        };
        assert_eq!(names(&["http://a", "http://B:81/x"]), ["a:80", "b:81"]);
        assert_eq!(
            names(&["http://a/x", "http://a/y"]),
            ["http://a/x", "http://a/y"]
        );
        let accounts = names(&["http://a/v1?api_key=s3cret1", "http://a/v1?api_key=s3cret2"]);
        let [first, second] = accounts.as_slice() else {
            panic!("{accounts:?}")
        };
        assert!(
            first.ends_with("#1") && second.ends_with("#2"),
            "{accounts:?}"
        );
        assert!(!accounts.concat().contains("s3cret"), "{accounts:?}");
    }

    const THREE: [&str; 3] = ["http://a", "http://b", "http://c"];

    #[test]
    fn each_balance_selects_exactly_these_urls() {
        let selected = |balance, turn| {
            let selector = EndpointSelector::new(Some(&endpoints(&THREE, balance)), Seed(7));
            (0..8)
                .map(|seq| selector.select(seq, turn))
                .collect::<Vec<_>>()
        };
        assert_eq!(selected(Balance::RoundRobin, 0), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(selected(Balance::RoundRobin, 1), [1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(selected(Balance::Session, 0), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(selected(Balance::Session, 5), [0, 1, 2, 0, 1, 2, 0, 1]);
        assert_eq!(selected(Balance::Random, 0), [0, 0, 0, 2, 2, 0, 1, 0]);
        assert_eq!(selected(Balance::Random, 1), [2, 1, 0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn random_selection_uses_every_url_equally_often() {
        let selector = EndpointSelector::new(Some(&endpoints(&THREE, Balance::Random)), Seed(1));
        let mut counts = [0; 3];
        (0..9000).for_each(|seq| counts[selector.select(seq, 0)] += 1);
        assert!(
            counts.iter().all(|count| (2850..3150).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_target_with_one_url_always_uses_it() {
        let one = Endpoints::one("http://a");
        let selectors = [
            EndpointSelector::new(Some(&one), Seed(1)),
            EndpointSelector::new(None, Seed(1)),
        ];
        assert!(selectors.iter().all(|one| one.select(5, 2) == 0));
        assert!(one.names().is_empty());
    }

    #[test]
    fn urls_are_named_by_host_and_port_without_secrets() {
        let names = |urls: &[&str]| {
            let endpoints = endpoints(urls, Balance::default());
            let names = endpoints.names().iter();
            names.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&[
                "http://u:p4ss@A/v1",
                "https://a/v1",
                "http://[::1]:8000/v1",
                "http://[::1]/v1"
            ]),
            ["a:80", "a:443", "[::1]:8000", "[::1]:80"]
        );
        assert_eq!(
            names(&["http://g:1/x/v1", "http://u:p4ss@g:1/y/v1", "http://h:1/"]),
            ["http://g:1/x/v1", "http://u:[redacted]@g:1/y/v1", "h:1"]
        );
    }
}
