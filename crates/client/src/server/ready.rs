//! Readiness of a managed server: its port, a URL, or its log.

use super::log::LogSearch;
use super::{Server, ServerExit};
use crate::ClientError;
use crate::clock::Clock;
use crate::connect::Dialer;
use crate::route::{Route, host_and_port};
use llmscen_core::target::{HttpVersion, Readiness, Tls};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// First interval between checks: a small server is ready within milliseconds.
const MIN_INTERVAL: Duration = Duration::from_millis(5);
/// Longest interval between checks of a port or a log.
const MAX_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the port to open after the server is ready: a log line may come too early.
const PORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How readiness is checked.
pub struct ReadinessProbe<'a> {
    /// The condition.
    pub readiness: &'a Readiness,
    /// Target URL of the requests.
    pub url: &'a str,
    /// How certificates are checked.
    pub tls: &'a Tls,
    /// Interval between requests to a readiness URL.
    pub interval: Duration,
    /// Total time limit.
    pub timeout: Duration,
}

/// Startup times of a server, since its process was requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadyTimes {
    /// Until its port accepted a connection.
    pub port_open: Option<Duration>,
    /// Until it was ready.
    pub ready: Duration,
}

/// Why a server is not ready.
#[derive(Clone, Debug, PartialEq)]
pub enum NotReady {
    /// It exited.
    Ended(ServerExit),
    /// Timeout: the condition, and what was observed instead.
    Timeout(String),
}

/// An address of the server at which another process listens already.
///
/// # Errors
/// An invalid URL.
pub async fn find_listener(probe: &ReadinessProbe<'_>) -> Result<Option<String>, ClientError> {
    let urls = [
        Some(probe.url),
        if let Readiness::Url(url) = probe.readiness {
            Some(url.as_str())
        } else {
            None
        },
    ];
    for url in urls.into_iter().flatten() {
        let (host, port) = parse_address(url, probe.tls)?;
        if is_open(&host, port).await {
            return Ok(Some(format!("{host}:{port}")));
        }
    }
    Ok(None)
}

/// Waits until the server is ready, has exited, or the time limit is reached; `on_check` is called after each check.
///
/// # Errors
/// An invalid URL; the inner result states why the server is not ready.
pub async fn wait_until_ready(
    server: &Server,
    probe: &ReadinessProbe<'_>,
    on_check: &dyn Fn(),
) -> Result<Result<ReadyTimes, NotReady>, ClientError> {
    let mut check = match probe.readiness {
        Readiness::Url(url) => {
            ReadinessCheck::Url(Box::new(Route::new(url, probe.tls, &BTreeMap::new())?))
        }
        Readiness::Log(text) => ReadinessCheck::Log(LogSearch::new(server.log(), text), text),
    };
    let (host, port) = parse_address(probe.url, probe.tls)?;
    let port_opens = async {
        let mut interval = MIN_INTERVAL;
        while !is_open(&host, port).await {
            on_check();
            pause(&mut interval, MAX_INTERVAL).await;
        }
        server.asked.elapsed()
    };
    let mut last_error = String::from("no response");
    let gets_ready = async {
        let max_interval = if matches!(check, ReadinessCheck::Url(_)) {
            probe.interval.max(MIN_INTERVAL)
        } else {
            MAX_INTERVAL
        };
        let mut interval = MIN_INTERVAL;
        loop {
            match check.run().await {
                Ok(()) => return server.asked.elapsed(),
                Err(why) => last_error = why,
            }
            on_check();
            pause(&mut interval, max_interval).await;
        }
    };
    let both = async {
        tokio::pin!(port_opens);
        let mut port_open = None;
        tokio::pin!(gets_ready);
        let ready = loop {
            tokio::select! {
                ready = &mut gets_ready => break ready,
                at = &mut port_opens, if port_open.is_none() => port_open = Some(at),
            }
        };
        if port_open.is_none() {
            port_open = timeout(PORT_TIMEOUT, port_opens).await.ok();
        }
        ReadyTimes { port_open, ready }
    };
    let result = tokio::select! {
        biased;
        ended = server.exited() => Err(NotReady::Ended(ended)),
        times = timeout(probe.timeout.saturating_sub(server.asked.elapsed()),
            both) => times.map_err(|_| NotReady::Timeout(String::new())),
    };
    Ok(result.map_err(|why| {
        if let NotReady::Timeout(_) = why {
            NotReady::Timeout(check.describe(&last_error))
        } else {
            why
        }
    }))
}

/// Waits for `interval`, and increases it.
async fn pause(interval: &mut Duration, max: Duration) {
    sleep(*interval).await;
    *interval = (*interval * 3 / 2).min(max);
}

enum ReadinessCheck<'a> {
    Url(Box<Route>),
    Log(LogSearch, &'a str),
}

impl ReadinessCheck<'_> {
    async fn run(&mut self) -> Result<(), String> {
        match self {
            ReadinessCheck::Log(search, _) => search.found().then_some(()).ok_or_else(String::new),
            ReadinessCheck::Url(route) => match timeout(ATTEMPT_TIMEOUT, get_status(route)).await {
                Ok(Ok(200..=299)) => Ok(()),
                Ok(Ok(status)) => Err(format!("the last status was {status}")),
                Ok(Err(why)) => Err(why),
                Err(_) => Err(format!(
                    "the last response took longer than {} s",
                    ATTEMPT_TIMEOUT.as_secs()
                )),
            },
        }
    }

    /// The condition and the last error.
    fn describe(&self, last_error: &str) -> String {
        match self {
            ReadinessCheck::Url(route) => {
                let uri = &route.uri;
                let (host, port) = host_and_port(uri);
                format!(
                    "GET {}://{host}:{port}{} returned no status from 200 to 299 ({last_error})",
                    uri.scheme_str().unwrap_or("http"),
                    uri.path()
                )
            }
            ReadinessCheck::Log(_, text) => format!("`{text}` did not appear in its log"),
        }
    }
}

fn parse_address(url: &str, tls: &Tls) -> Result<(String, u16), ClientError> {
    Ok(host_and_port(&Route::new(url, tls, &BTreeMap::new())?.uri))
}

/// Whether the address accepts a connection; nothing is sent on it.
async fn is_open(host: &str, port: u16) -> bool {
    matches!(
        timeout(ATTEMPT_TIMEOUT, TcpStream::connect((host, port))).await,
        Ok(Ok(_))
    )
}

/// The status of a GET request.
async fn get_status(route: &Route) -> Result<u16, String> {
    let dialer = Dialer::new(
        route.clone(),
        HttpVersion::Http1,
        Clock::new(Instant::now()),
    );
    let mut connection = dialer
        .dial()
        .await
        .map_err(|failure| format!("the last attempt: {}", failure.message))?;
    let uri = &route.uri;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| {
        authority.as_str().rsplit('@').next().unwrap_or_default()
    });
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    let broken = |error: std::io::Error| format!("the last attempt: {error}");
    connection
        .transport
        .write_all(request.as_bytes())
        .await
        .map_err(broken)?;
    connection.transport.flush().await.map_err(broken)?;
    let mut head = [0; 12];
    connection
        .transport
        .read_exact(&mut head)
        .await
        .map_err(broken)?;
    // "HTTP/1.1 200"
    let code = std::str::from_utf8(&head)
        .ok()
        .and_then(|text| text.strip_prefix("HTTP/1.")?.get(2..)?.parse().ok());
    code.ok_or_else(|| "the response is not HTTP".to_owned())
}
