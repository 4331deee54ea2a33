//! When a server is ready: its port, its URL, its log.

use super::log::Watch;
use super::{Ended, Server};
use crate::clock::Clock;
use crate::connect::{Dialer, host_and_port};
use crate::error::EngineError;
use crate::route::Route;
use llmscen_core::server::Readiness;
use llmscen_core::target::{HttpVersion, Tls};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Between two looks, at first: a small server is there within milliseconds.
const FIRST: Duration = Duration::from_millis(5);
/// Between two looks at a port or a log at the most.
const LONGEST: Duration = Duration::from_millis(50);
/// One attempt may take so long.
const ATTEMPT: Duration = Duration::from_secs(5);
/// A port that is not open once a server is ready is waited for so long: a log may say so too early.
const LAST: Duration = Duration::from_secs(1);

/// What a server is waited for.
pub struct ReadinessProbe<'a> {
    /// When it is ready.
    pub readiness: &'a Readiness,
    /// Where requests will be posted to.
    pub url: &'a str,
    /// How certificates are checked.
    pub tls: &'a Tls,
    /// How often a URL is asked.
    pub interval: Duration,
    /// How long all of it may take.
    pub timeout: Duration,
}

/// When a server came to what, from the instant at which its process was asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadyTimes {
    /// Its port took a connection.
    pub port_open: Option<Duration>,
    /// It was ready.
    pub ready: Duration,
}

/// Why it did not.
#[derive(Clone, Debug, PartialEq)]
pub enum NotReady {
    /// It ended.
    Ended(Ended),
    /// The time was up: what was waited for, and what came instead.
    Late(String),
}

/// The addresses at which the server will listen and something does already.
///
/// # Errors
/// A URL that is none.
pub async fn answers(probe: &ReadinessProbe<'_>) -> Result<Option<String>, EngineError> {
    let urls = [Some(probe.url), if let Readiness::Url(url) = probe.readiness { Some(url.as_str()) } else { None }];
    for url in urls.into_iter().flatten() {
        let (host, port) = place(url, probe.tls)?;
        if open(&host, port).await {
            return Ok(Some(format!("{host}:{port}")));
        }
    }
    Ok(None)
}

/// Waits until the server is ready, has ended, or has had its time; `beat` is told of each look.
///
/// # Errors
/// A URL that is none; and inside: why it is not ready.
pub async fn ready(
    server: &Server,
    probe: &ReadinessProbe<'_>,
    beat: &dyn Fn(),
) -> Result<Result<ReadyTimes, NotReady>, EngineError> {
    let mut check = match probe.readiness {
        Readiness::Url(url) => ReadinessCheck::Url(Route::new(url, probe.tls, &BTreeMap::new())?),
        Readiness::Log(text) => ReadinessCheck::Log(Watch::new(server.log(), text), text),
    };
    let (host, port) = place(probe.url, probe.tls)?;
    let port_opens = async {
        let mut step = FIRST;
        while !open(&host, port).await {
            beat();
            pause(&mut step, LONGEST).await;
        }
        server.asked.elapsed()
    };
    let mut said = String::from("nothing answered");
    let gets_ready = async {
        let longest = if matches!(check, ReadinessCheck::Url(_)) { probe.interval.max(FIRST) } else { LONGEST };
        let mut step = FIRST;
        loop {
            match check.look().await {
                Ok(()) => return server.asked.elapsed(),
                Err(why) => said = why,
            }
            beat();
            pause(&mut step, longest).await;
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
            port_open = timeout(LAST, port_opens).await.ok();
        }
        ReadyTimes { port_open, ready }
    };
    let came = tokio::select! {
        biased;
        ended = server.over() => Err(NotReady::Ended(ended)),
        came = timeout(probe.timeout.saturating_sub(server.asked.elapsed()), both) => came.map_err(|_| NotReady::Late(String::new())),
    };
    Ok(came.map_err(|not| if let NotReady::Late(_) = not { NotReady::Late(check.waited_for(&said)) } else { not }))
}

/// Waits, longer each time.
async fn pause(step: &mut Duration, longest: Duration) {
    sleep(*step).await;
    *step = (*step * 3 / 2).min(longest);
}

/// How it is seen that a server is ready.
enum ReadinessCheck<'a> {
    Url(Route),
    Log(Watch, &'a str),
}

impl ReadinessCheck<'_> {
    async fn look(&mut self) -> Result<(), String> {
        match self {
            ReadinessCheck::Log(watch, _) => watch.found().then_some(()).ok_or_else(String::new),
            ReadinessCheck::Url(route) => match timeout(ATTEMPT, status(route)).await {
                Ok(Ok(200..=299)) => Ok(()),
                Ok(Ok(status)) => Err(format!("the last answer was status {status}")),
                Ok(Err(why)) => Err(why),
                Err(_) => Err(format!("the last answer took longer than {} s", ATTEMPT.as_secs())),
            },
        }
    }

    fn waited_for(&self, said: &str) -> String {
        match self {
            ReadinessCheck::Url(route) => {
                let uri = &route.uri;
                let (host, port) = host_and_port(uri);
                format!(
                    "a GET of {}://{host}:{port}{} found no status of 200 to 299, {said}",
                    uri.scheme_str().unwrap_or("http"),
                    uri.path()
                )
            }
            ReadinessCheck::Log(_, text) => format!("its log never held `{text}`"),
        }
    }
}

fn place(url: &str, tls: &Tls) -> Result<(String, u16), EngineError> {
    Ok(host_and_port(&Route::new(url, tls, &BTreeMap::new())?.uri))
}

/// Whether a connection is taken there; nothing is sent on it.
async fn open(host: &str, port: u16) -> bool {
    matches!(timeout(ATTEMPT, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

/// The status of a GET.
async fn status(route: &Route) -> Result<u16, String> {
    let dialer = Dialer::new(route.clone(), HttpVersion::Http1, Clock::starting(Instant::now()));
    let mut line = dialer.dial().await.map_err(|failure| format!("the last attempt: {}", failure.message))?;
    let uri = &route.uri;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = uri.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
    let broken = |error: std::io::Error| format!("the last attempt: {error}");
    line.transport.write_all(request.as_bytes()).await.map_err(broken)?;
    line.transport.flush().await.map_err(broken)?;
    let mut head = [0; 12];
    line.transport.read_exact(&mut head).await.map_err(broken)?;
    // "HTTP/1.1 200"
    let code = std::str::from_utf8(&head).ok().and_then(|text| text.strip_prefix("HTTP/1.")?.get(2..)?.parse().ok());
    code.ok_or_else(|| "what answers there speaks no HTTP".to_owned())
}
