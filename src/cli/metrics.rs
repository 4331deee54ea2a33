//! `--metrics-addr`: an OpenMetrics endpoint for Prometheus, on a thread with a lower priority than the workers.

mod metric_registry;
#[cfg(test)]
mod tests;

pub use crate::cli::metrics::metric_registry::MetricRegistry;

use crate::run::stop::{Level, Stop};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use llmscen_telemetry::process::lower_thread_priority;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Time limit of a connection, which serves one scrape.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A metrics endpoint; it serves until the process ends.
pub struct Endpoint {
    /// The address, with the selected port if 0 was requested.
    pub addr: SocketAddr,
    pub registry: Arc<MetricRegistry>,
    scrapes: Arc<Scrapes>,
}

/// Which runs the scrapes have covered.
#[derive(Default)]
struct Scrapes {
    /// Runs that ended.
    ended: AtomicU64,
    /// Ended runs whose figures a complete scrape contained.
    scraped: AtomicU64,
}

impl Endpoint {
    /// Starts the endpoint.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start(addr: SocketAddr) -> io::Result<Endpoint> {
        let listener = TcpListener::bind(addr)?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let endpoint = Endpoint {
            addr: listener.local_addr()?,
            registry: Arc::default(),
            scrapes: Arc::default(),
        };
        let registry = endpoint.registry.clone();
        let scrapes = endpoint.scrapes.clone();
        std::thread::Builder::new()
            .name("metrics".into())
            .spawn(move || {
                lower_thread_priority();
                runtime.block_on(serve(listener, registry, scrapes))
            })?;
        Ok(endpoint)
    }

    /// The registry has the last figures of a run.
    pub fn note_run_ended(&self) {
        self.scrapes.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until a scrape has the figures of all ended runs, up to `limit`, or for a signal.
    pub fn wait_for_scrape(&self, limit: Duration, stop: &Stop) {
        let ended = self.scrapes.ended.load(Ordering::Acquire);
        let began = Instant::now();
        let is_scraped = || self.scrapes.scraped.load(Ordering::Acquire) == ended;
        while began.elapsed() < limit && !is_scraped() && stop.level() == Level::Run {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

async fn serve(
    listener: TcpListener,
    registry: Arc<MetricRegistry>,
    scrapes: Arc<Scrapes>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                tokio::spawn(serve_scrape(socket, registry.clone(), scrapes.clone()));
            }
            // For example too many open files.
            Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
        }
    }
}

async fn serve_scrape(socket: TcpStream, registry: Arc<MetricRegistry>, scrapes: Arc<Scrapes>) {
    // Ended runs whose figures the response contains.
    let contained = AtomicU64::new(0);
    let service = service_fn(|request: Request<Incoming>| {
        let ended = scrapes.ended.load(Ordering::Acquire);
        let (response, is_scrape) = respond(&request, &registry);
        contained.store(if is_scrape { ended } else { 0 }, Ordering::Release);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .serve_connection(TokioIo::new(socket), service);
    // A scrape counts when it was sent completely; failures are ignored.
    let complete = matches!(
        tokio::time::timeout(CONNECTION_TIMEOUT, connection).await,
        Ok(Ok(()))
    );
    if complete {
        let contained = contained.load(Ordering::Acquire);
        scrapes.scraped.fetch_max(contained, Ordering::AcqRel);
    }
}

/// The response, and whether it contains the metrics.
fn respond<B>(request: &Request<B>, registry: &MetricRegistry) -> (Response<Full<Bytes>>, bool) {
    let plain = |status: StatusCode, text: &'static str| {
        (
            response(status, "text/plain; charset=utf-8", text.into()),
            false,
        )
    };
    if request.uri().path() != "/metrics" {
        return plain(
            StatusCode::NOT_FOUND,
            "not found; metrics are at /metrics\n",
        );
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let (mut response, is_scrape) =
            plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return (response, is_scrape);
    }
    match metric_registry::render_exposition(registry.snapshot()) {
        Ok(text) => (
            response(StatusCode::OK, metric_registry::CONTENT_TYPE, text.into()),
            *request.method() == Method::GET,
        ),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be written\n",
        ),
    }
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
