//! Downloads from a hub.

use super::Progress;
use llmscen_core::model_hub::HuggingFace;
use llmscen_core::url_secrets::redact_url;
use reqwest::{Client, Response, Url, header, redirect};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
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
/// Bytes of a file that are read at once.
const CHUNK: usize = 64 * 1024;
/// Bytes between two progress reports.
const PROGRESS_BYTES: u64 = 256 * 1024;

/// A download that failed, and alternatives to it.
#[derive(Debug, thiserror::Error)]
#[error("cannot download {} to {file}{}: {problem}\n  {purpose}", redact_url(.url),
    if *.damaged { " (the cached copy is damaged)" } else { "" })]
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
        "set `dataset.path` to a file (`path: builtin` is a small built-in openqa set), or set \
         {HUB_VARIABLE} to a hub that this machine can reach"
    )]
    Dataset,
    /// The tokenizer.
    #[error(
        "no such file or folder; set `dataset.tokenizer` (or `target.model` of `api: local`) to a \
         tokenizer.json or a model folder, or set {HUB_VARIABLE} to a hub that this machine can \
         reach; a gated model needs HF_TOKEN and {HUB_VARIABLE}=https://huggingface.co/datasets, \
         or a local folder"
    )]
    Tokenizer,
    /// A local model.
    #[error(
        "no such file or folder, and the model is not in the Hugging Face cache (HF_HOME); \
         download the model elsewhere and set `target.model` to its folder, or set {HUB_VARIABLE} \
         to a hub that this machine can reach; a gated model needs HF_TOKEN and \
         {HUB_VARIABLE}=https://huggingface.co/datasets, or a local folder"
    )]
    Model,
    /// Data of the hub by name.
    #[error(
        "set HF_ENDPOINT to a mirror that this machine can reach, or `dataset.path` to a local file"
    )]
    HubData,
    /// Data by their URL.
    #[error("download it elsewhere and set `dataset.path` to the file")]
    UrlData,
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
    /// The hub refused access.
    #[error(
        "the server answered {status}; the repository is gated or private, or does not exist ({})",
        if *.token {
            "the token that was sent has no access: request it on the page of the repository"
        } else {
            "no token was found in HF_TOKEN, HF_TOKEN_PATH or HF_HOME/token"
        }
    )]
    Refused {
        /// HTTP status.
        status: u16,
        /// A token was sent.
        token: bool,
    },
    /// Downloads are turned off.
    #[error("HF_HUB_OFFLINE is set, and the file is not on this machine")]
    Offline,
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
    /// The content differs from that of the plan.
    #[error("the received file has the SHA-256 {digest}, but the plan has {pinned}")]
    Pinned {
        /// Digest in the plan.
        pinned: String,
        /// Digest of the content.
        digest: String,
    },
    /// The file on the hub has changed since the first download.
    #[error(
        "the file on the hub has changed (SHA-256 {digest}, first download {known}); delete its \
         `.sha256` file in the cache to accept the new one"
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

/// What is downloaded, and how.
#[derive(Clone, Copy)]
pub struct Download<'a> {
    /// Addresses of the file; the first one that exists is used.
    pub urls: &'a [String],
    /// Token, and whether downloads are allowed.
    pub hugging_face: &'a HuggingFace,
    /// The SHA-256 of the file in the plan.
    pub pinned: Option<&'a str>,
}

/// The first bytes of a file.
#[derive(Clone, Default)]
pub struct Received {
    pub bytes: u64,
    pub digest: Sha256,
}

impl Received {
    /// All bytes of a stream.
    pub fn read(stream: &mut impl Read) -> io::Result<Received> {
        let mut received = Received::default();
        let mut chunk = vec![0; CHUNK];
        loop {
            match stream.read(&mut chunk)? {
                0 => return Ok(received),
                count => {
                    received.bytes += count as u64;
                    received.digest.update(&chunk[..count]);
                }
            }
        }
    }

    /// The SHA-256 in hex.
    pub fn sha256(self) -> String {
        hex(&self.digest.finalize())
    }
}

/// A complete file.
struct Fetched {
    digest: String,
    /// All bytes are from one response, or the digest is known.
    confirmed: bool,
}

/// The destination of a download.
pub trait Sink: Write + Send {
    /// What an interrupted download left. Later bytes are written after it.
    fn resume(&mut self) -> io::Result<Received>;
    /// Removes all bytes.
    fn clear(&mut self) -> io::Result<()>;
}

impl Sink for Vec<u8> {
    fn resume(&mut self) -> io::Result<Received> {
        self.clear();
        Ok(Received::default())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}

impl Sink for File {
    fn resume(&mut self) -> io::Result<Received> {
        self.rewind()?;
        Received::read(self)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.set_len(0)?;
        self.rewind()
    }
}

impl Download<'_> {
    /// Downloads into `sink`, after the bytes that it has, and compares the file with the digests of the plan and of
    /// the server, where they are known. Returns its SHA-256. The error contains the failed address.
    pub fn run(
        &self,
        sink: &mut dyn Sink,
        progress: &dyn Fn(Progress),
    ) -> Result<String, (String, Problem)> {
        if self.hugging_face.offline {
            return Err((self.urls.join(" or "), Problem::Offline));
        }
        for url in self.urls {
            match self.run_in_thread(url, sink, progress) {
                Ok(digest) => return Ok(digest),
                Err(Problem::Status(404)) => {}
                Err(problem) => return Err((url.clone(), problem)),
            }
        }
        Err((self.urls.join(" or "), Problem::Status(404)))
    }

    /// Uses a separate thread, because a runtime may already run on the calling one, where the progress callback must
    /// be called.
    fn run_in_thread(
        &self,
        url: &str,
        sink: &mut dyn Sink,
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
                    .block_on(self.fetch(url, sink, &send))
            });
            receive.iter().for_each(progress);
            worker.join().unwrap_or_else(|_| {
                Err(Problem::Client("the download stopped unexpectedly".into()))
            })
        })
    }

    async fn fetch(
        &self,
        url: &str,
        sink: &mut dyn Sink,
        progress: &mpsc::Sender<Progress>,
    ) -> Result<String, Problem> {
        let left = sink.resume().map_err(Problem::Disk)?;
        if left.bytes > 0 {
            let digest = left.clone().sha256();
            if self.pinned == Some(&digest) {
                return Ok(digest);
            }
            // Bytes that belong to another version of the file, or that nothing confirms, are downloaded again.
            match self.fetch_rest(url, sink, left, progress).await {
                Ok(Fetched {
                    digest,
                    confirmed: true,
                }) => return Ok(digest),
                Ok(_) | Err(Problem::Digest { .. } | Problem::Pinned { .. }) => {}
                Err(Problem::Status(206 | 416)) => {}
                Err(problem) => return Err(problem),
            }
            sink.clear().map_err(Problem::Disk)?;
        }
        let fetched = self.fetch_rest(url, sink, Received::default(), progress);
        Ok(fetched.await?.digest)
    }

    /// Downloads the bytes after those that are `left`.
    async fn fetch_rest(
        &self,
        url: &str,
        sink: &mut dyn Sink,
        left: Received,
        progress: &mpsc::Sender<Progress>,
    ) -> Result<Fetched, Problem> {
        let mut url = Url::parse(url).map_err(|error| Problem::Client(error.to_string()))?;
        let mut announced = None;
        for _ in 0..MAX_REDIRECTS {
            let token = self.token_for(&url);
            let mut request = build_client(&url)?.get(url.clone());
            if left.bytes > 0 {
                request = request.header(header::RANGE, format!("bytes={}-", left.bytes));
            }
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request
                .send()
                .await
                .map_err(|error| Problem::Connection(innermost(&error)))?;
            announced = announced.or_else(|| announced_digest(&response));
            match response.status().as_u16() {
                200 => {
                    sink.clear().map_err(Problem::Disk)?;
                    let digest = write_body(response, sink, Received::default(), progress).await?;
                    return self.check_digest(digest, announced, true);
                }
                206 if starts_at(&response, left.bytes) => {
                    let digest = write_body(response, sink, left, progress).await?;
                    return self.check_digest(digest, announced, false);
                }
                301 | 302 | 303 | 307 | 308 => url = redirect_target(&url, &response)?,
                status @ (401 | 403) if self.is_hugging_face(&url) => {
                    return Err(Problem::Refused {
                        status,
                        token: token.is_some(),
                    });
                }
                status => return Err(Problem::Status(status)),
            }
        }
        Err(Problem::Connection(format!(
            "more than {MAX_REDIRECTS} redirects"
        )))
    }

    /// The token, only for the hub itself: a redirect leads to storage of another host, which must not receive it.
    fn token_for(&self, url: &Url) -> Option<&str> {
        let token = self.hugging_face.token.as_ref()?;
        self.is_hugging_face(url).then(|| token.expose())
    }

    fn is_hugging_face(&self, url: &Url) -> bool {
        Url::parse(&self.hugging_face.endpoint).is_ok_and(|hub| hub.origin() == url.origin())
    }

    /// `complete`: all bytes are from one response.
    fn check_digest(
        &self,
        digest: String,
        announced: Option<String>,
        complete: bool,
    ) -> Result<Fetched, Problem> {
        let confirmed = complete || announced.is_some() || self.pinned.is_some();
        match (announced, self.pinned) {
            (Some(announced), _) if digest != announced => {
                Err(Problem::Digest { announced, digest })
            }
            (_, Some(pinned)) if digest != pinned => Err(Problem::Pinned {
                pinned: pinned.to_owned(),
                digest,
            }),
            _ => Ok(Fetched { digest, confirmed }),
        }
    }
}

/// Whether a partial response begins at this byte.
fn starts_at(response: &Response, byte: u64) -> bool {
    response
        .headers()
        .get(header::CONTENT_RANGE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|range| range.starts_with(&format!("bytes {byte}-")))
}

/// Redirects are followed by [`Download::fetch_rest`], because hubs send the digest with the redirect.
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
        .map_err(|error| Problem::Connection(format!("a redirect to an invalid address: {error}")))
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

/// Writes the body to `sink`, after the bytes that are `left`; returns the SHA-256 of all.
async fn write_body(
    mut response: Response,
    sink: &mut dyn Sink,
    left: Received,
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
    let Received {
        bytes: mut received,
        mut digest,
    } = left;
    let total = response.content_length().map(|rest| received + rest);
    let mut reported = received;
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
