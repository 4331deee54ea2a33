//! The server under test: its address, connection settings and credentials, and how a managed server is started.

use crate::api::Api;
use crate::local::Local;
use crate::simulator::Simulator;
use crate::telemetry::{Hardware, Scrape};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Text that must never reach a log, a report or a file: it prints as `[redacted]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret itself; only for the wire, and for finding it in what a server echoes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Where the requests of a case go.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// A server that runs already, by the URL that requests are posted to.
    Url(String),
    /// The built-in simulator, started for the run on a loopback port.
    Simulator {
        /// Its parameters.
        server: Box<Simulator>,
        /// The path that requests are posted to; None: the usual one of the protocol.
        path: Option<String>,
    },
    /// A model in this process.
    Local(Local),
}

/// One of the models that requests name, and its share of them.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShare {
    /// The name placed in the request.
    pub name: String,
    /// Its weight among the models of the case; weights need not sum to one.
    pub weight: f64,
}

/// How long each step of a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From asking for a connection to having it, TLS included.
    pub connect: Nanos,
    /// The longest silence while waiting for the next byte.
    pub read: Nanos,
    /// From `sent` to `end`.
    pub total: Nanos,
}

/// How the target's certificate is checked, and what this side shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of further authorities to trust.
    pub ca: Option<String>,
    /// A PEM file with this client's certificate chain.
    pub cert: Option<String>,
    /// A PEM file with that certificate's key.
    pub key: Option<String>,
    /// Accept any certificate.
    pub insecure: bool,
}

/// Whether connections outlive a request, and when they are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// Connections are used again; those of a closed loop's users, or of a burst, are opened before the start.
    #[default]
    KeepAlive,
    /// Connections are used again, and opened when a request needs one.
    OnDemand,
    /// Every request opens its own.
    PerRequest,
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub enum HttpVersion {
    /// HTTP/2 where the TLS handshake agrees on it (ALPN), otherwise HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2; over plain TCP with prior knowledge (RFC 9113, section 3.3).
    #[serde(rename = "2")]
    Http2,
}

/// Which compression of responses is requested. Compressed responses are read whatever was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// None: compressing costs the server time that would be measured.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
    /// Either.
    Any,
}

/// The server under test, as a case sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The protocol.
    pub api: Api,
    /// Where it is.
    pub place: Place,
    /// The models named in requests; never empty.
    pub models: Vec<ModelShare>,
    /// Sent as `Authorization: Bearer …`.
    pub api_key: Option<Secret>,
    /// Further headers, in order. Their values may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// The header in which each request carries an id of its own; None: it carries none.
    pub request_id: Option<String>,
    /// Limits in time.
    pub timeouts: Timeouts,
    /// Certificates.
    pub tls: Tls,
    /// Connection reuse.
    pub pool: Pool,
    /// HTTP version.
    pub version: HttpVersion,
    /// Requested compression.
    pub compression: Compression,
    /// GPUs behind the target, for per-GPU figures.
    pub gpus: Option<u32>,
    /// The server that is started for it, and stopped; None: it runs already.
    pub server: Option<ManagedServer>,
    /// Its metrics page.
    pub metrics: Option<Scrape>,
    /// What its hardware could do at most.
    pub hardware: Option<Hardware>,
    /// Secrets of the whole scenario by where they came from; not for the wire.
    pub of_scenario: Arc<[Secret]>,
}

impl Target {
    /// Every secret of this target, for the redaction of what a server echoes.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.api_key
            .iter()
            .chain(self.headers.iter().map(|(_, value)| value))
            .chain(self.server.iter().flat_map(|own| own.env.iter().map(|(_, value)| value)))
            .chain(self.metrics.iter().flat_map(|own| own.headers.iter().map(|(_, value)| value)))
    }
}

/// How a server says that it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A GET of this URL is answered with a status of 200 to 299.
    Url(String),
    /// A line of its log holds this text.
    Log(String),
}

/// A server that the run starts and stops.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedServer {
    /// The program and its arguments, those of `args` among them; no shell reads them.
    pub command: Vec<String>,
    /// Environment variables over those of this process. Their values may be secrets.
    pub env: Vec<(String, Secret)>,
    /// Its working folder; None: this process's.
    pub cwd: Option<String>,
    /// When it is ready.
    pub ready: Readiness,
    /// How long it may take until then.
    pub timeout: Nanos,
    /// How often it is queried.
    pub interval: Nanos,
    /// The file in the run folder that its output goes to.
    pub log: String,
    /// Started anew for every round of every case.
    pub per_case: bool,
    /// How long it may take to end once it was signaled; then it is killed.
    pub grace: Nanos,
}

/// When a server came to what, from its process's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// Its process id.
    pub pid: u32,
    /// The command, secrets removed.
    #[serde(default)]
    pub command: String,
    /// The file in the run folder that holds its log.
    #[serde(default)]
    pub log: String,
    /// From asking the system for the process to having it.
    pub spawned: Nanos,
    /// Its port took a connection; None where no address of it is known.
    pub port_open: Option<Nanos>,
    /// It was ready.
    pub ready: Nanos,
    /// Ready, and then the first token of the request that was answered first as the server alone would have had it: `ready`
    /// + (first token − sent). What this program does between ready and sending is no part of it.
    pub first_token: Option<Nanos>,
}

/// How a server ended by itself while it was needed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerEnd {
    /// In nanoseconds after the part's time zero; negative: before it.
    pub at_ns: i64,
    /// `exit status 1`, `signal 9`.
    pub how: String,
    /// The last lines of its log, secrets removed.
    pub log: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        assert_eq!(format!("{:?}", Secret::new("sk-123")), "[redacted]");
    }
}
