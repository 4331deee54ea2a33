//! Downloads from a hub.

use super::Progress;
use super::cache::{HUB_VARIABLE, hex};
use reqwest::{Client, Response, Url, header, redirect};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

/// Being offline must show within seconds.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest silence of a hub.
const SILENCE: Duration = Duration::from_secs(30);
/// Redirects followed: hub, its content network, one to spare.
const HOPS: usize = 5;
/// Bytes between two words of progress.
const STRIDE: u64 = 256 * 1024;

/// A download that failed, and the ways around it.
#[derive(Debug, thiserror::Error)]
#[error("cannot download {url} to {file}{}: {problem}\n  {what}", if *.damaged { " (the copy there is damaged)" } else { "" })]
pub struct FetchError {
    /// What was requested.
    pub url: String,
    /// Where it would have been kept.
    pub file: PathBuf,
    /// A copy is there that is not what it was.
    pub damaged: bool,
    /// What went wrong.
    pub problem: Problem,
    /// What it was for.
    pub what: What,
}

/// What a file is for. Shown as the ways around its download.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum What {
    /// The prompts.
    #[error(
        "give the dataset a `path` (`path: builtin` is the small openqa set that ships with this tool), or name a hub that can \
         be reached in {HUB_VARIABLE}"
    )]
    Dataset,
    /// The tokenizer.
    #[error(
        "there is no file or folder of that name here; name a tokenizer.json or a model folder in `dataset.tokenizer`, or in \
         `target.model` where it is the model of `api: local` (of a \
         gated model there is no other way), or a hub that can be reached in {HUB_VARIABLE}"
    )]
    Tokenizer,
    /// A model that runs in this process.
    #[error(
        "there is no file or folder of that name here, and no such model in the Hugging Face cache (HF_HOME); where there is no \
         network, download the model elsewhere and name its folder in `target.model` (of a gated model there is no other way), or \
         name a hub that can be reached in {HUB_VARIABLE}"
    )]
    Model,
}

/// What went wrong with a download.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The address is none, or the client could not be made.
    #[error("{0}")]
    Client(String),
    /// No connection, or it broke.
    #[error("{0}")]
    Connection(String),
    /// The server answered, but not with the file.
    #[error("the server answered {0}")]
    Status(u16),
    /// A web page instead of data: a login portal, or the wrong address.
    #[error("the server sent a web page instead of the file")]
    Page,
    /// The server sent another digest than that of its bytes.
    #[error("the bytes that arrived have the SHA-256 {digest}, but the server announced {announced}")]
    Digest {
        /// What the server said.
        announced: String,
        /// What came.
        digest: String,
    },
    /// The hub's file is no longer the one of the first download.
    #[error(
        "the hub now has another file (SHA-256 {digest}) than at the first download ({known}); remove the `.sha256` file \
         beside it to accept that"
    )]
    Changed {
        /// Recorded at the first download.
        known: String,
        /// What came now.
        digest: String,
    },
    /// The cache cannot be written.
    #[error("it could not be kept: {0}")]
    Disk(std::io::Error),
}

/// Downloads the first of `urls` that exists into `sink` and checks it against the digest that the server announces, if it does.
/// Returns its SHA-256. The error comes with the address that it is about.
pub fn download(
    urls: &[String],
    sink: &mut (dyn Write + Send),
    progress: &dyn Fn(Progress),
) -> Result<String, (String, Problem)> {
    for url in urls {
        match on_own_thread(url, sink, progress) {
            Ok(digest) => return Ok(digest),
            Err(Problem::Status(404)) => {}
            Err(problem) => return Err((url.clone(), problem)),
        }
    }
    Err((urls.join(" or "), Problem::Status(404)))
}

/// A runtime may already run on the calling thread, and the progress callback must stay there.
fn on_own_thread(url: &str, sink: &mut (dyn Write + Send), progress: &dyn Fn(Progress)) -> Result<String, Problem> {
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| Problem::Client(error.to_string()))?.block_on(get(url, sink, &send))
        });
        receive.iter().for_each(progress);
        worker.join().unwrap_or_else(|_| Err(Problem::Client("the download stopped unexpectedly".into())))
    })
}

async fn get(url: &str, sink: &mut (dyn Write + Send), progress: &mpsc::Sender<Progress>) -> Result<String, Problem> {
    let mut url = Url::parse(url).map_err(|error| Problem::Client(error.to_string()))?;
    let mut announced = None;
    for _ in 0..HOPS {
        let response = client(&url)?.get(url.clone()).send().await.map_err(|error| Problem::Connection(cause(&error)))?;
        announced = announced.or_else(|| digest_of(&response));
        match response.status().as_u16() {
            200 => return checked(body(response, sink, progress).await?, announced),
            301 | 302 | 303 | 307 | 308 => url = target(&url, &response)?,
            status => return Err(Problem::Status(status)),
        }
    }
    Err(Problem::Connection(format!("more than {HOPS} redirects")))
}

/// A client for one address. Redirects are followed by hand, because hubs announce the digest on the redirect.
fn client(url: &Url) -> Result<Client, Problem> {
    // The error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().redirect(redirect::Policy::none()).connect_timeout(CONNECT).read_timeout(SILENCE);
    let builder = if is_loopback(url) { builder.no_proxy() } else { builder };
    builder.build().map_err(|error| Problem::Client(cause(&error)))
}

/// Proxy variables are meant for the world outside.
fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.ends_with(".localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

fn target(from: &Url, response: &Response) -> Result<Url, Problem> {
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or_else(|| Problem::Connection("a redirect without a target".into()))?;
    from.join(location).map_err(|error| Problem::Connection(format!("a redirect to {location}: {error}")))
}

/// Hugging Face and ModelScope put the SHA-256 of large files here; an `ETag` may be any other hash.
fn digest_of(response: &Response) -> Option<String> {
    let tag = response.headers().get("x-linked-etag")?.to_str().ok()?.trim_start_matches("W/").trim_matches('"');
    (tag.len() == 64 && tag.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| tag.to_ascii_lowercase())
}

/// Writes the body to `sink`; returns its SHA-256.
async fn body(
    mut response: Response,
    sink: &mut (dyn Write + Send),
    progress: &mpsc::Sender<Progress>,
) -> Result<String, Problem> {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/html") {
        return Err(Problem::Page);
    }
    let total = response.content_length();
    let (mut digest, mut arrived, mut told) = (Sha256::new(), 0, 0);
    while let Some(chunk) = response.chunk().await.map_err(|error| Problem::Connection(cause(&error)))? {
        sink.write_all(&chunk).map_err(Problem::Disk)?;
        digest.update(&chunk);
        arrived += chunk.len() as u64;
        if arrived >= told + STRIDE || Some(arrived) == total {
            told = arrived;
            // Nobody listens once the caller is gone, and then nothing is lost.
            let _ = progress.send(Progress::Download { bytes: arrived, total });
        }
    }
    Ok(hex(&digest.finalize()))
}

fn checked(digest: String, announced: Option<String>) -> Result<String, Problem> {
    match announced {
        Some(announced) if digest != announced => Err(Problem::Digest { announced, digest }),
        _ => Ok(digest),
    }
}

/// The innermost reason, which reqwest hides behind "error sending request".
fn cause(error: &dyn Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_stay_away_from_loopback_only() {
        for url in ["http://localhost:8/x", "http://127.0.0.1/x", "http://127.9.9.9/x", "http://[::1]:8/x", "http://a.localhost/"]
        {
            assert!(is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
        for url in ["http://localhost.example.com/", "https://10.0.0.1/", "http://[2001:db8::1]/"] {
            assert!(!is_loopback(&Url::parse(url).unwrap()), "{url}");
        }
    }
}
