//! `--metrics-addr`: an OpenMetrics endpoint for Prometheus, on a thread of its own that gives way to the lanes.

mod metric_registry;
#[cfg(test)]
mod tests;

pub use crate::cli::metrics::metric_registry::MetricRegistry;

use crate::run::execution::stop::{Level, Stop};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use llmscen_telemetry::process::stand_behind;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// A connection serves one scrape, and no longer than this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rest after a connection that could not be accepted.
const REST: Duration = Duration::from_millis(100);

/// A running endpoint; it serves until the process ends.
pub struct Endpoint {
    /// Where it listens; the port that was taken, where 0 was asked for.
    pub addr: SocketAddr,
    /// Its figures.
    pub board: Arc<MetricRegistry>,
    scrapes: Arc<AtomicU64>,
}

impl Endpoint {
    /// Listens and serves.
    ///
    /// # Errors
    /// Where the address cannot be taken, or no thread can be had.
    pub fn start(addr: SocketAddr) -> io::Result<Endpoint> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let endpoint = Endpoint { addr: listener.local_addr()?, board: Arc::default(), scrapes: Arc::default() };
        let (board, scrapes) = (endpoint.board.clone(), endpoint.scrapes.clone());
        std::thread::Builder::new().name("metrics".into()).spawn(move || {
            stand_behind();
            runtime.block_on(serve(listener, board, scrapes))
        })?;
        Ok(endpoint)
    }

    /// Stays until somebody has scraped once more, `most` at the longest, or a signal comes.
    pub fn linger(&self, most: Duration, stop: &Stop) {
        let (before, began) = (self.scrapes.load(Ordering::Acquire), Instant::now());
        let over = || self.scrapes.load(Ordering::Acquire) > before || stop.level() > Level::Run;
        while began.elapsed() < most && !over() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

async fn serve(listener: TcpListener, board: Arc<MetricRegistry>, scrapes: Arc<AtomicU64>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                tokio::spawn(scrape(socket, board.clone(), scrapes.clone()));
            }
            // Such as too many open files: the run needs them more.
            Err(_) => tokio::time::sleep(REST).await,
        }
    }
}

async fn scrape(socket: TcpStream, board: Arc<MetricRegistry>, scrapes: Arc<AtomicU64>) {
    let served = AtomicBool::new(false);
    let answer = service_fn(|request: Request<Incoming>| {
        let (answer, figures) = answer(&request, &board);
        served.store(figures, Ordering::Release);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(socket), answer);
    // A scraper that went away, or that takes too long, is nothing to the run. One that was served is counted when it has it all.
    let whole = matches!(tokio::time::timeout(PATIENCE, connection).await, Ok(Ok(())));
    if whole && served.load(Ordering::Acquire) {
        scrapes.fetch_add(1, Ordering::AcqRel);
    }
}

/// The answer, and whether it gave the figures.
fn answer<B>(request: &Request<B>, board: &MetricRegistry) -> (Response<Full<Bytes>>, bool) {
    let plain = |status: StatusCode, text: &'static str| (response(status, "text/plain; charset=utf-8", text.into()), false);
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "not found; the metrics are at /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let (mut refused, figures) = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return (refused, figures);
    }
    match metric_registry::render_exposition(board.read()) {
        Ok(text) => (response(StatusCode::OK, metric_registry::CONTENT_TYPE, text.into()), *request.method() == Method::GET),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"),
    }
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
