//! Downloads from a hub.

use super::Progress;
use reqwest::{Client, Response, Url, header, redirect};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// The environment variable of the hub.
pub const HUB_VARIABLE: &str = "LLMSCEN_HUB";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time without data.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 5;
/// Bytes between two progress reports.
const PROGRESS_BYTES: u64 = 256 * 1024;

/// A download that failed, and alternatives to it.
#[derive(Debug, thiserror::Error)]
#[error("cannot download {url} to {file}{}: {problem}\n  {purpose}", if *.damaged { " (the cached copy is damaged)" } else { "" })]
pub struct FetchError {
    /// Requested addresses.
    pub url: String,
    /// Path in the cache.
    pub file: PathBuf,
    /// The cached copy is damaged.
    pub damaged: bool,
    /// Cause.
    pub problem: Problem,
    /// Purpose of the file.
    pub purpose: Purpose,
}

/// The purpose of a file. It is displayed as the alternatives to the download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Purpose {
    /// The prompts.
    #[error(
        "set `dataset.path` to a file (`path: builtin` is a small built-in openqa set), or set {HUB_VARIABLE} to a hub that \
         this machine can reach"
    )]
    Dataset,
    /// The tokenizer.
    #[error(
        "no such file or folder; set `dataset.tokenizer` (or `target.model` of `api: local`) to a tokenizer.json or a model \
         folder, or set {HUB_VARIABLE} to a hub that this machine can reach; a gated model must be a local folder"
    )]
    Tokenizer,
    /// A local model.
    #[error(
        "no such file or folder, and the model is not in the Hugging Face cache (HF_HOME); download the model elsewhere and set \
         `target.model` to its folder (required for a gated model), or set {HUB_VARIABLE} to a hub that this machine can reach"
    )]
    Model,
}

/// What went wrong with a download.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The address or the client is invalid.
    #[error("{0}")]
    Client(String),
    /// No connection, or it was lost.
    #[error("{0}")]
    Connection(String),
    /// The server returned another status than 200.
    #[error("the server answered {0}")]
    Status(u16),
    /// A web page instead of data: a login portal, or the wrong address.
    #[error("the server sent a web page instead of the file")]
    Page,
    /// The digest of the content differs from that of the server.
    #[error("the received file has the SHA-256 {digest}, but the server announced {announced}")]
    Digest {
        /// Digest of the server.
        announced: String,
        /// Digest of the content.
        digest: String,
    },
    /// The file on the hub has changed since the first download.
    #[error(
        "the file on the hub has changed (SHA-256 {digest}, first download {known}); delete its `.sha256` file in the cache to \
         accept the new one"
    )]
    Changed {
        /// Digest of the first download.
        known: String,
        /// Digest of this download.
        digest: String,
    },
    /// The cache cannot be written.
    #[error("cannot write the file: {0}")]
    Disk(std::io::Error),
}

/// Downloads the first of `urls` that exists into `sink` and compares it with the digest of the server, where it sends one.
/// Returns its SHA-256. The error contains the failed address.
pub fn download(
    urls: &[String],
    sink: &mut (dyn Write + Send),
    progress: &dyn Fn(Progress),
) -> Result<String, (String, Problem)> {
    for url in urls {
        match download_in_thread(url, sink, progress) {
            Ok(digest) => return Ok(digest),
            Err(Problem::Status(404)) => {}
            Err(problem) => return Err((url.clone(), problem)),
        }
    }
    Err((urls.join(" or "), Problem::Status(404)))
}

/// Uses a separate thread, because a runtime may already run on the calling one, where the progress callback must be called.
fn download_in_thread(
    url: &str,
    sink: &mut (dyn Write + Send),
    progress: &dyn Fn(Progress),
) -> Result<String, Problem> {
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .map_err(|error| Problem::Client(error.to_string()))?
                .block_on(download_url(url, sink, &send))
        });
        receive.iter().for_each(progress);
        worker
            .join()
            .unwrap_or_else(|_| Err(Problem::Client("the download stopped unexpectedly".into())))
    })
}

async fn download_url(
    url: &str,
    sink: &mut (dyn Write + Send),
    progress: &mpsc::Sender<Progress>,
) -> Result<String, Problem> {
    let mut url = Url::parse(url).map_err(|error| Problem::Client(error.to_string()))?;
    let mut announced = None;
    for _ in 0..MAX_REDIRECTS {
        let response = build_client(&url)?
            .get(url.clone())
            .send()
            .await
            .map_err(|error| Problem::Connection(innermost(&error)))?;
        announced = announced.or_else(|| announced_digest(&response));
        match response.status().as_u16() {
            200 => return check_digest(write_body(response, sink, progress).await?, announced),
            301 | 302 | 303 | 307 | 308 => url = redirect_target(&url, &response)?,
            status => return Err(Problem::Status(status)),
        }
    }
    Err(Problem::Connection(format!(
        "more than {MAX_REDIRECTS} redirects"
    )))
}

/// Redirects are followed by [`download_url`], because hubs send the digest with the redirect.
fn build_client(url: &Url) -> Result<Client, Problem> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT);
    let builder = if is_loopback(url) {
        builder.no_proxy()
    } else {
        builder
    };
    builder
        .build()
        .map_err(|error| Problem::Client(innermost(&error)))
}

/// Proxies are not used for loopback addresses.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn redirect_target(from: &Url, response: &Response) -> Result<Url, Problem> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let location =
        location.ok_or_else(|| Problem::Connection("a redirect without a `location`".into()))?;
    from.join(location)
        .map_err(|error| Problem::Connection(format!("a redirect to {location}: {error}")))
}

/// The SHA-256 that Hugging Face and ModelScope send for large files. An `ETag` may be any other hash.
fn announced_digest(response: &Response) -> Option<String> {
    let tag = response
        .headers()
        .get("x-linked-etag")?
        .to_str()
        .ok()?
        .trim_start_matches("W/")
        .trim_matches('"');
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| tag.to_ascii_lowercase())
}

/// Writes the body to `sink`; returns its SHA-256.
async fn write_body(
    mut response: Response,
    sink: &mut (dyn Write + Send),
    progress: &mpsc::Sender<Progress>,
) -> Result<String, Problem> {
    let kind = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    if kind.starts_with("text/html") {
        return Err(Problem::Page);
    }
    let total = response.content_length();
    let mut digest = Sha256::new();
    let mut received = 0;
    let mut reported = 0;
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| Problem::Connection(innermost(&error)))?
    {
        sink.write_all(&chunk).map_err(Problem::Disk)?;
        digest.update(&chunk);
        received += chunk.len() as u64;
        if received >= reported + PROGRESS_BYTES || Some(received) == total {
            reported = received;
            let _ = progress.send(Progress::Download {
                bytes: received,
                total,
            });
        }
    }
    Ok(hex(&digest.finalize()))
}

fn check_digest(digest: String, announced: Option<String>) -> Result<String, Problem> {
    match announced {
        Some(announced) if digest != announced => Err(Problem::Digest { announced, digest }),
        _ => Ok(digest),
    }
}

/// The innermost error, which reqwest hides behind "error sending request".
fn innermost(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

/// Hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_bypass_proxies() {
        for url in [
            "http://localhost:8/x",
            "http://127.0.0.1/x",
            "http://127.9.9.9/x",
            "http://[::1]:8/x",
            "http://a.localhost/",
        ] {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in [
            "http://localhost.example.com/",
            "https://10.0.0.1/",
            "http://[2001:db8::1]/",
        ] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
