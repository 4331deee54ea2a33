//! The store that all shards of a run share: a folder or a bucket.
//!
//! Every object has one writer. Calls block until they succeed, fail or reach a time limit, so that no thread hangs
//! with its store.

use crate::store::atomic;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, ClientOptions, MultipartUpload, ObjectStore, ObjectStoreExt as _, PutMode,
    RetryConfig,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

/// Limit of a call with a small object, retries included.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The same for one part of a large file.
const PART_LIMIT: Duration = Duration::from_secs(60);
/// Limit of one HTTP request. A part at 3 Mbit/s takes as long.
const REQUEST_LIMIT: Duration = Duration::from_secs(25);
/// A file is copied in parts of this size, in bytes. S3 accepts no smaller part than 5 MiB.
const PART: u64 = 8 << 20;
/// S3 accepts 10,000 parts.
const MAX_PARTS: u64 = 9_000;

/// The objects of one run. Keys are relative to the run, for example `hello/3`.
pub trait Objects: Send + Sync {
    /// Writes an object unless it exists.
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Creation, SharedStoreError>;
    /// Writes or replaces an object. Unlike one that is created or uploaded, it may be lost if the machine of a
    /// folder fails.
    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), SharedStoreError>;
    /// Reads an object; none if it does not exist.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStoreError>;
    /// The full keys below `prefix/`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>, SharedStoreError>;
    /// Copies a local file of any size to the store.
    fn upload(&self, key: &str, file: &Path) -> Result<(), SharedStoreError>;
    /// Copies an object of any size to a local file, which appears when it is complete.
    fn download(&self, key: &str, file: &Path) -> Result<(), SharedStoreError>;
    /// Whether the store is a folder.
    fn is_folder(&self) -> bool;
    /// URL of the run in the store, for messages. It contains no credentials.
    fn url(&self) -> String;
}

/// What [`Objects::create`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// The object is new.
    Created,
    /// It existed, with this content. After a retried request this can be the content of the caller.
    Exists(Vec<u8>),
}

/// Why the shared store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedStoreError {
    /// The URL of the store is wrong.
    #[error(
        "`{url}` is no store: {reason}; pass file:///FOLDER, s3://BUCKET/PREFIX, \
        gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
    )]
    Url {
        /// The URL, without credentials.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The key of the run is wrong.
    #[error("`{key}` is no run key: {reason}; pass a name such as nightly-17")]
    RunKey {
        /// The key, escaped.
        key: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The store cannot be opened with these settings.
    #[error("cannot open the store {url}: {reason}; {help}")]
    Open {
        /// URL of the store.
        url: String,
        /// Why.
        reason: String,
        /// What to do.
        help: &'static str,
    },
    /// An object cannot be written, read or listed.
    #[error("cannot {action} {object}: {reason}; {help}")]
    Access {
        /// `write`, `read` or `list`.
        action: &'static str,
        /// URL of the object.
        object: String,
        /// Why.
        reason: String,
        /// What to do.
        help: &'static str,
        /// Whether the same call may succeed later.
        transient: bool,
    },
    /// The local end of a copy cannot be read or written.
    #[error("cannot copy {path}: {source}; check that the file is readable and the disk not full")]
    LocalFile {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl SharedStoreError {
    /// Whether the same call may succeed later: the store did not respond, or could not do it now.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            SharedStoreError::Access {
                transient: true,
                ..
            }
        )
    }
}

/// A folder or bucket, opened for one run.
pub struct SharedStore {
    objects: Arc<dyn ObjectStore>,
    folder: Option<Arc<Folder>>,
    url: String,
    help: &'static str,
    /// Values that no message may show.
    secrets: Vec<String>,
    runtime: Handle,
    /// The thread of the runtime ends when this is dropped.
    _running: oneshot::Sender<()>,
}

impl std::fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedStore({})", self.url)
    }
}

impl SharedStore {
    /// Opens the store at `url` for the run `run`. Credentials and endpoints are read from `env`, with the names of
    /// the cloud's own tools. A bucket is not contacted; a folder must exist.
    pub fn open(
        url: &str,
        run: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<SharedStore, SharedStoreError> {
        // An error means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let location = Location::parse(url)?;
        check_run_key(run)?;
        let secrets = secrets(env, location.scheme);
        let failed = |reason: String| SharedStoreError::Open {
            url: location.to_string(),
            reason: redact(reason, &secrets),
            help: location.scheme.help(),
        };
        let (runtime, running) = start_runtime().map_err(|error| failed(error.to_string()))?;
        let (objects, folder) = open_objects(&location, run, env).map_err(failed)?;
        Ok(SharedStore {
            objects,
            folder: folder.map(Arc::new),
            url: format!("{location}/{run}"),
            help: location.scheme.help(),
            secrets,
            runtime,
            _running: running,
        })
    }

    /// Runs `task` on the thread of the runtime, for at most `limit`.
    fn call<T: Send + 'static>(
        &self,
        limit: Duration,
        task: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, Failure> {
        let (send, result) = mpsc::sync_channel(1);
        let task = self.runtime.spawn(async move {
            // There is no receiver after the limit.
            let _ = send.send(task.await);
        });
        let result = result.recv_timeout(limit).map_err(|_| {
            task.abort();
            Failure::Timeout(limit)
        })?;
        result.map_err(Failure::Store)
    }

    /// The same for a task that needs the object `key`, or the folder `key` if it is listed.
    fn access<T: Send + 'static, F>(
        &self,
        key: &str,
        limit: Duration,
        task: impl FnOnce(Arc<dyn ObjectStore>, Key) -> F + Send + 'static,
    ) -> Result<T, Failure>
    where
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (objects, folder, key) = (self.objects.clone(), self.folder.clone(), Key::from(key));
        self.call(limit, async move {
            if let Some(folder) = folder {
                let key = key.clone();
                tokio::task::spawn_blocking(move || folder.refresh(key.as_ref()))
                    .await?
                    .map_err(|error| object_store::Error::Generic {
                        store: "folder",
                        source: error.into(),
                    })?;
            }
            task(objects, key).await
        })
    }

    /// The error of a call with the object `key`.
    fn error(&self, action: &'static str, key: &str, failure: Failure) -> SharedStoreError {
        let transient = failure.is_transient();
        SharedStoreError::Access {
            action,
            object: format!("{}/{key}", self.url),
            reason: redact(failure.reason(), &self.secrets),
            help: if transient {
                "check that the store can be reached from this host"
            } else {
                self.help
            },
            transient,
        }
    }

    /// Copies an object to `out` part by part, each with its own limit and retries.
    fn read_parts(&self, key: &str, out: &mut impl Write) -> io::Result<()> {
        let read = |failure| io::Error::other(self.error("read", key, failure));
        let size = self
            .access(key, CALL_LIMIT, |objects, key| async move {
                objects.head(&key).await
            })
            .map_err(read)?
            .size;
        for start in (0..size).step_by(PART as usize) {
            let (objects, key) = (self.objects.clone(), Key::from(key));
            let part = self
                .call(PART_LIMIT, async move {
                    objects.get_range(&key, start..size.min(start + PART)).await
                })
                .map_err(read)?;
            out.write_all(&part)?;
        }
        Ok(())
    }
}

impl Objects for SharedStore {
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Creation, SharedStoreError> {
        let content = bytes.to_vec();
        let created = self.access(key, CALL_LIMIT, |objects, key| async move {
            objects
                .put_opts(&key, content.into(), PutMode::Create.into())
                .await
        });
        match created {
            Ok(_) => Ok(Creation::Created),
            Err(Failure::Store(object_store::Error::AlreadyExists { .. })) => {
                match self.get(key)? {
                    Some(existing) => Ok(Creation::Exists(existing)),
                    None => Err(self.error("write", key, Failure::Vanished)),
                }
            }
            Err(failure) => Err(self.error("write", key, failure)),
        }
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), SharedStoreError> {
        let (content, folder) = (bytes.to_vec(), self.folder.clone());
        self.access(key, CALL_LIMIT, |objects, key| async move {
            let objects = folder.map_or(objects, |folder| folder.unsynced.clone());
            objects.put(&key, content.into()).await
        })
        .map(drop)
        .map_err(|failure| self.error("write", key, failure))
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStoreError> {
        let content = self.access(key, CALL_LIMIT, |objects, key| async move {
            objects.get(&key).await?.bytes().await
        });
        match content {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(failure) if failure.is_missing_object() => Ok(None),
            Err(failure) => Err(self.error("read", key, failure)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SharedStoreError> {
        let keys = self.access(prefix, CALL_LIMIT, |objects, prefix| async move {
            let (mut folders, mut keys) = (vec![prefix], Vec::new());
            while let Some(folder) = folders.pop() {
                let listed = objects.list_with_delimiter(Some(&folder)).await?;
                folders.extend(listed.common_prefixes);
                keys.extend(
                    listed
                        .objects
                        .into_iter()
                        .map(|object| object.location.to_string()),
                );
            }
            keys.sort_unstable();
            Ok(keys)
        });
        keys.map_err(|failure| self.error("list", prefix, failure))
    }

    fn upload(&self, key: &str, file: &Path) -> Result<(), SharedStoreError> {
        let local = |source| SharedStoreError::LocalFile {
            path: file.to_path_buf(),
            source,
        };
        let write = |failure| self.error("write", key, failure);
        let mut input = File::open(file).map_err(local)?;
        let part_size = PART.max(input.metadata().map_err(local)?.len() / MAX_PARTS);
        let mut upload = self
            .access(key, CALL_LIMIT, |objects, key| async move {
                objects.put_multipart(&key).await
            })
            .map_err(write)?;
        loop {
            let mut part = Vec::new();
            let length = (&mut input).take(part_size).read_to_end(&mut part);
            let sent = match length {
                Ok(0) => break,
                Ok(_) => self
                    .call(PART_LIMIT, upload.put_part(part.into()))
                    .map_err(write),
                Err(source) => Err(local(source)),
            };
            if let Err(error) = sent {
                // The parts would otherwise be charged for. If this fails too, the error above is the one to report.
                let _ = self.call(CALL_LIMIT, async move { upload.abort().await });
                return Err(error);
            }
        }
        self.call(PART_LIMIT, async move { upload.complete().await })
            .map(drop)
            .map_err(write)
    }

    fn download(&self, key: &str, file: &Path) -> Result<(), SharedStoreError> {
        atomic::replace(file, |out| self.read_parts(key, out)).map_err(|error| {
            // Errors of the store pass through `io::Error`.
            error
                .downcast::<SharedStoreError>()
                .unwrap_or_else(|source| SharedStoreError::LocalFile {
                    path: file.to_path_buf(),
                    source,
                })
        })
    }

    fn is_folder(&self) -> bool {
        self.folder.is_some()
    }

    fn url(&self) -> String {
        self.url.clone()
    }
}

/// Why a call failed.
enum Failure {
    Store(object_store::Error),
    Timeout(Duration),
    /// An object existed and was gone when it was read.
    Vanished,
}

impl Failure {
    fn is_missing_object(&self) -> bool {
        matches!(self, Failure::Store(object_store::Error::NotFound { .. }))
            && !self.is_missing_bucket()
    }

    /// S3, Azure and Google, in this order.
    fn is_missing_bucket(&self) -> bool {
        let Failure::Store(error) = self else {
            return false;
        };
        let text = error.to_string();
        [
            "NoSuchBucket",
            "ContainerNotFound",
            "The specified bucket does not exist",
        ]
        .iter()
        .any(|name| text.contains(name))
    }

    fn is_transient(&self) -> bool {
        let Failure::Store(error) = self else {
            return true;
        };
        if let object_store::Error::NotFound { .. } = error {
            return !self.is_missing_bucket();
        }
        if !matches!(error, object_store::Error::Generic { .. }) {
            return false;
        }
        causes(error).any(|cause| {
            let http = cause.downcast_ref::<HttpError>().map(HttpError::kind);
            let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
            let text = cause.to_string();
            let status = http_status(&text);
            http.is_some_and(|kind| kind != HttpErrorKind::Unknown)
                || io.is_some_and(|kind| !PERMANENT.contains(&kind))
                || status.is_some_and(|status| matches!(status, 408 | 429 | 500 | 502..))
                // S3 may report an internal error late, with status 200.
                || text.starts_with("Server returned error response: ")
        })
    }

    fn reason(&self) -> String {
        match self {
            Failure::Store(_) if self.is_missing_bucket() => "the bucket does not exist".into(),
            Failure::Store(object_store::Error::NotFound { .. }) => "no such object".into(),
            Failure::Store(error) => {
                let text = innermost(error);
                match http_status(&text) {
                    Some(status) => format!("HTTP {status}{}", s3_reason(&text)),
                    None => text,
                }
            }
            Failure::Timeout(limit) => format!("no answer within {} s", limit.as_secs()),
            Failure::Vanished => "it was deleted".into(),
        }
    }
}

/// Errors of a folder that do not pass by themselves.
const PERMANENT: [ErrorKind; 5] = [
    ErrorKind::PermissionDenied,
    ErrorKind::ReadOnlyFilesystem,
    ErrorKind::NotADirectory,
    ErrorKind::IsADirectory,
    ErrorKind::InvalidFilename,
];

/// The status in the message of an HTTP error; its type is private to `object_store`.
fn http_status(text: &str) -> Option<u16> {
    let status = text.strip_prefix("Server returned non-2xx status code: ")?;
    status.get(..3)?.parse().ok()
}

/// ` (CODE: MESSAGE)` of an XML error body.
fn s3_reason(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!(" ({code}: {message})"),
        (Some(code), None) => format!(" ({code})"),
        _ => String::new(),
    }
}

/// An error and its causes, the first cause last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The message of the first cause.
fn innermost(error: &object_store::Error) -> String {
    causes(error)
        .last()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// A runtime on a thread of its own, which ends when the sender is dropped. A call may come from any thread, also
/// from a task of another runtime.
fn start_runtime() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        // A folder that hangs blocks this many threads at most.
        .max_blocking_threads(8)
        .thread_name("store")
        .build()?;
    let handle = runtime.handle().clone();
    let (running, dropped) = oneshot::channel::<()>();
    std::thread::Builder::new()
        .name("store".into())
        .spawn(move || {
            // The only result is that the sender is gone.
            let _ = runtime.block_on(dropped);
            runtime.shutdown_background();
        })?;
    Ok((handle, running))
}

/// Opens the folder or bucket. The error is the reason.
fn open_objects(
    location: &Location,
    run: &str,
    env: &BTreeMap<String, String>,
) -> Result<(Arc<dyn ObjectStore>, Option<Folder>), String> {
    let Location {
        scheme,
        bucket,
        path,
    } = location;
    if *scheme == Scheme::File {
        let files = LocalFileSystem::new_with_prefix(path).map_err(|error| innermost(&error))?;
        let unsynced = Arc::new(PrefixStore::new(files.clone(), run));
        let folder = Folder::open(Path::new(path), run, unsynced);
        let objects = PrefixStore::new(files.with_fsync(true), run);
        return Ok((
            Arc::new(objects),
            Some(folder.map_err(|error| error.to_string())?),
        ));
    }
    let client = ClientOptions::new()
        // Only an endpoint that the user names is plain HTTP.
        .with_allow_http(true)
        .with_connect_timeout(CALL_LIMIT)
        .with_timeout(REQUEST_LIMIT);
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 5,
        retry_timeout: PART_LIMIT / 2,
    };
    // The builders have the same methods but no common trait.
    macro_rules! build {
        ($builder:ty, $with_bucket:ident) => {
            settings(env, *scheme)
                .fold(
                    <$builder>::new().with_client_options(client),
                    |builder, (name, value)| match name.parse() {
                        Ok(key) => builder.with_config(key, value),
                        Err(_) => builder,
                    },
                )
                .$with_bucket(bucket)
                .with_retry(retry)
                .build()
                .map(|objects| Arc::new(objects) as Arc<dyn ObjectStore>)
        };
    }
    let objects = match scheme {
        Scheme::Gs => build!(GoogleCloudStorageBuilder, with_bucket_name),
        Scheme::Az => build!(MicrosoftAzureBuilder, with_container_name),
        Scheme::S3 | Scheme::File => build!(AmazonS3Builder, with_bucket_name),
    };
    let root = format!("{path}/{run}");
    let objects = PrefixStore::new(
        objects.map_err(|error| innermost(&error))?,
        root.trim_start_matches('/'),
    );
    Ok((Arc::new(objects), None))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    File,
    S3,
    Gs,
    Az,
}

impl Scheme {
    const ALL: [Scheme; 4] = [Scheme::File, Scheme::S3, Scheme::Gs, Scheme::Az];

    fn name(self) -> &'static str {
        match self {
            Scheme::File => "file",
            Scheme::S3 => "s3",
            Scheme::Gs => "gs",
            Scheme::Az => "az",
        }
    }

    /// Prefix of its environment variables.
    fn env_prefix(self) -> &'static str {
        match self {
            Scheme::File => "",
            Scheme::S3 => "AWS_",
            Scheme::Gs => "GOOGLE_",
            Scheme::Az => "AZURE_",
        }
    }

    /// What to check if the store refuses a call.
    fn help(self) -> &'static str {
        match self {
            Scheme::File => "check that the folder exists and this user may write to it",
            Scheme::S3 => {
                "check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL"
            }
            Scheme::Gs => "check the bucket and GOOGLE_APPLICATION_CREDENTIALS",
            Scheme::Az => {
                "check the container, AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
            }
        }
    }
}

/// A parsed `--via`.
#[derive(Debug, PartialEq, Eq)]
struct Location {
    scheme: Scheme,
    /// Bucket or container; empty for a folder.
    bucket: String,
    /// Folder, or prefix in the bucket; without a slash at its end.
    path: String,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.bucket)?;
        match (self.scheme, self.path.is_empty()) {
            (Scheme::File, _) | (_, true) => f.write_str(&self.path),
            _ => write!(f, "/{}", self.path),
        }
    }
}

impl Location {
    fn parse(url: &str) -> Result<Location, SharedStoreError> {
        Location::parse_parts(url).map_err(|reason| SharedStoreError::Url {
            url: without_credentials(url),
            reason,
        })
    }

    fn parse_parts(url: &str) -> Result<Location, String> {
        if url.starts_with('/') {
            return folder_location(url.to_string());
        }
        let (name, rest) = url
            .split_once("://")
            .ok_or("it is neither a URL nor an absolute path")?;
        let scheme = Scheme::ALL
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .ok_or_else(|| format!("unknown scheme `{}`", name.escape_debug()))?;
        if rest.contains(['@', '?', '#']) {
            return Err(
                "`@`, `?` and `#` are not supported, and credentials belong in the environment"
                    .into(),
            );
        }
        if scheme == Scheme::File {
            let path = reqwest::Url::parse(url)
                .ok()
                .and_then(|url| url.to_file_path().ok());
            let path = path.and_then(|path| path.into_os_string().into_string().ok());
            return folder_location(path.ok_or("its path is not absolute; write file:///FOLDER")?);
        }
        let (bucket, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        if bucket.is_empty() {
            return Err("the bucket is missing".into());
        }
        if bucket.chars().chain(path.chars()).any(char::is_control) || Key::parse(path).is_err() {
            return Err("the prefix cannot be part of an object's name".into());
        }
        Ok(Location {
            scheme,
            bucket: bucket.to_string(),
            path: path.to_string(),
        })
    }
}

fn folder_location(path: String) -> Result<Location, String> {
    if path.chars().any(char::is_control) {
        return Err("control characters are not supported".into());
    }
    Ok(Location {
        scheme: Scheme::File,
        bucket: String::new(),
        path: path.trim_end_matches('/').to_string(),
    })
}

/// A URL for a message: user information and the query are cut off.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!(
        "{}{separator}{}",
        scheme.escape_debug(),
        rest.escape_debug()
    )
}

/// Checks that the objects of a run are below the URL of the store.
fn check_run_key(run: &str) -> Result<(), SharedStoreError> {
    let reason = if run.is_empty() {
        "it is empty"
    } else if run.chars().any(char::is_control) {
        "it contains a control character"
    } else if run.split('/').any(|part| matches!(part, "" | "." | "..")) {
        "a part of it is empty, `.` or `..`"
    } else if Key::parse(run).is_err() || run.contains(['#', '?', '@']) {
        "it contains a character that object names cannot have"
    } else {
        return Ok(());
    };
    Err(SharedStoreError::RunKey {
        key: run.escape_debug().to_string(),
        reason,
    })
}

/// The settings of the environment for a store, by their names in lower case.
fn settings(
    env: &BTreeMap<String, String>,
    scheme: Scheme,
) -> impl Iterator<Item = (String, &String)> {
    env.iter()
        .filter(move |(name, _)| name.starts_with(scheme.env_prefix()))
        .map(|(name, value)| {
            let name = match name.as_str() {
                // The names of Azure's command line.
                "AZURE_STORAGE_ACCOUNT" => "AZURE_STORAGE_ACCOUNT_NAME",
                "AZURE_STORAGE_KEY" => "AZURE_STORAGE_ACCOUNT_KEY",
                name => name,
            };
            (name.to_ascii_lowercase(), value)
        })
}

/// Values of the environment that no message may show.
fn secrets(env: &BTreeMap<String, String>, scheme: Scheme) -> Vec<String> {
    if scheme == Scheme::File {
        return Vec::new();
    }
    let mut secrets: Vec<String> = settings(env, scheme)
        .filter(|(name, value)| {
            let named = ["key", "secret", "token", "password"]
                .iter()
                .any(|word| name.contains(word));
            // A URL may contain a password.
            (named || value.contains('@')) && value.len() >= 4
        })
        .map(|(_, value)| value.clone())
        .collect();
    // One may contain another.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets
}

fn redact(text: String, secrets: &[String]) -> String {
    secrets
        .iter()
        .fold(text, |text, secret| text.replace(secret.as_str(), "***"))
}

/// A folder of the file system, often of a network.
struct Folder {
    /// Without symlinks.
    path: PathBuf,
    run: String,
    device: u64,
    /// An open folder is not unmounted.
    _open: File,
    /// For objects that are replaced all the time: syncing them would delay other writers of the disk.
    unsynced: Arc<dyn ObjectStore>,
}

impl Folder {
    fn open(path: &Path, run: &str, unsynced: Arc<dyn ObjectStore>) -> io::Result<Folder> {
        let path = fs::canonicalize(path)?;
        let open = File::open(&path)?;
        if !open.metadata()?.is_dir() {
            return Err(ErrorKind::NotADirectory.into());
        }
        Ok(Folder {
            device: device(&path)?,
            run: run.to_string(),
            path,
            _open: open,
            unsynced,
        })
    }

    /// Makes the file system ask its server for an object, or a folder of objects, and what is above it: NFS
    /// otherwise remembers for half a minute that an object did not exist.
    fn refresh(&self, key: &str) -> io::Result<()> {
        let object = self.path.join(&self.run).join(key);
        if self.revalidate(object.parent().unwrap_or(&self.path))? {
            // It need not exist.
            let _ = device(&object);
        }
        Ok(())
    }

    /// Whether the folder exists. An error if the store itself is gone, so that it is not created on the local disk
    /// on the local disk.
    fn revalidate(&self, folder: &Path) -> io::Result<bool> {
        match device(folder) {
            Ok(device) if device == self.device => Ok(true),
            Ok(_) => Err(io::Error::other("another file system is mounted there")),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Err(_) if folder == self.path => Err(io::Error::other(
                "the folder of the store is gone, perhaps unmounted",
            )),
            Err(_) => match folder.parent() {
                Some(parent) if self.revalidate(parent)? => Ok(device(folder).is_ok()),
                _ => Ok(false),
            },
        }
    }
}

/// Device of a folder, as its server knows it now.
#[cfg(target_os = "linux")]
fn device(folder: &Path) -> io::Result<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
    let found = statx(
        CWD,
        folder,
        AtFlags::STATX_FORCE_SYNC,
        StatxFlags::BASIC_STATS,
    )?;
    Ok(makedev(found.stx_dev_major, found.stx_dev_minor))
}

#[cfg(not(target_os = "linux"))]
fn device(folder: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(fs::metadata(folder)?.dev())
}

#[cfg(test)]
mod tests;
