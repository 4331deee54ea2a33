//! The server under test: its address, connection settings and credentials, and how a managed server is started.

use crate::api::Api;
use crate::api_key::{ApiKey, AwsSigning, ObtainedKeys};
use crate::endpoint::Endpoints;
use crate::local::Local;
use crate::redact::{DISTINCT, Redactor, SHORTEST, Secret, whole_and_last};
use crate::simulator::Simulator;
use crate::telemetry::{Hardware, MetricsKind, MetricsSource};
use crate::units::Nanos;
use crate::url_secrets::secrets_in_url;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where the requests of a case go.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetLocation {
    /// Running servers, by the URLs that requests are posted to.
    Urls(Endpoints),
    /// The built-in simulator, started for the run on a loopback port.
    Simulator {
        /// Settings.
        server: Box<Simulator>,
        /// The path that requests are posted to; None: the usual one of the API.
        path: Option<String>,
    },
    /// A model in this process.
    Local(Local),
}

impl TargetLocation {
    /// A running server, by the URL that requests are posted to.
    pub fn url(url: impl Into<String>) -> TargetLocation {
        TargetLocation::Urls(Endpoints::one(url))
    }

    /// The URLs that requests are posted to; None for the simulator and for a local model.
    pub fn endpoints(&self) -> Option<&Endpoints> {
        match self {
            TargetLocation::Urls(endpoints) => Some(endpoints),
            TargetLocation::Simulator { .. } | TargetLocation::Local(_) => None,
        }
    }
}

/// A model and its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShare {
    /// The name in the request.
    pub name: String,
    /// Its weight among the models of the case; weights need not sum to one.
    pub weight: f64,
}

/// Timeouts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Opening a connection, TLS included.
    pub connect: Nanos,
    /// Waiting for the next byte.
    pub read: Nanos,
    /// From one event of a stream to the next, after the first content; None: no limit.
    pub event: Option<Nanos>,
    /// From `sent` to `end`.
    pub total: Nanos,
}

/// TLS settings: verification of the server's certificate, and client certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file of additional trusted authorities.
    pub ca: Option<String>,
    /// A PEM file with the client certificate chain.
    pub cert: Option<String>,
    /// A PEM file with the client certificate's key.
    pub key: Option<String>,
    /// Accept any certificate.
    pub insecure: bool,
}

/// Whether connections are reused, and when they are opened.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// Connections are reused; those of closed-loop users or of a burst are opened before the start.
    #[default]
    KeepAlive,
    /// Connections are reused, and opened on demand.
    OnDemand,
    /// Every request opens a new connection.
    PerRequest,
}

/// The HTTP version.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
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

/// The requested compression of responses. Compressed responses are decoded in any case.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// None, because compressing costs server time that would be measured.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
    /// Either.
    Any,
}

/// The server under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The API.
    pub api: Api,
    /// Where requests go.
    pub location: TargetLocation,
    /// The requested models; never empty.
    pub models: Vec<ModelShare>,
    /// Sent as `Authorization: Bearer …`, or what signs requests.
    pub api_key: Option<ApiKey>,
    /// Additional headers, in order. Values may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// The header for a unique id of each request; None: no id is sent.
    pub request_id: Option<String>,
    /// The header for an id of each session; None: no id is sent.
    pub session_id: Option<String>,
    /// A token of the server that the next turn of a session sends back.
    pub session_token: Option<SessionToken>,
    /// Names of response headers that are kept with each request.
    pub keep_headers: Vec<String>,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// TLS settings.
    pub tls: Tls,
    /// Connection reuse.
    pub pool: Pool,
    /// HTTP version.
    pub version: HttpVersion,
    /// Requests are messages on WebSockets, which HTTP/1.1 opens.
    pub websocket: bool,
    /// Requested compression.
    pub compression: Compression,
    /// Number of GPUs of the target, for per-GPU metrics.
    pub gpus: Option<u32>,
    /// The name of its GPUs; None: not known.
    pub gpu: Option<String>,
    /// Its price.
    pub cost: Option<Cost>,
    /// What a server that is already running must answer before the run; None: its port alone.
    pub ready: Option<Awaited>,
    /// The managed server; None: the server is already running.
    pub server: Option<ManagedServer>,
    /// Its metrics: pages, and queries of Prometheus servers.
    pub metrics: Vec<MetricsSource>,
    /// Peak performance of its hardware.
    pub hardware: Option<Hardware>,
    /// All secrets of the scenario, for redaction only.
    pub scenario_secrets: Arc<[Secret]>,
}

/// A token that a response names and the next turn of its session sends back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionToken {
    /// The response header.
    pub from: String,
    /// The request header.
    pub to: String,
}

/// The conditions under which a server that the run does not start is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// URLs that must answer with a status from 200 to 299.
    pub urls: Vec<String>,
    /// Models that `/v1/models` must list.
    pub models: Vec<String>,
    /// Number of addresses of the hosts of the metrics pages that must answer with the page of a worker.
    pub pages: Option<u32>,
    /// Maximum time.
    pub timeout: Nanos,
}

/// The price of a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Price per hour.
    pub per_hour: f64,
    /// Whether it is the price of one GPU; otherwise of the whole target.
    pub per_gpu: bool,
    /// Currency, such as `USD`.
    pub currency: String,
}

impl Target {
    /// A chat target at a URL, of model `m`, with a time limit of a minute and no other settings.
    pub fn chat(url: &str) -> Target {
        let limit = Nanos::from_millis(60_000);
        Target {
            api: Api::OpenaiChat,
            location: TargetLocation::url(url),
            models: vec![ModelShare {
                name: "m".to_owned(),
                weight: 1.0,
            }],
            api_key: None,
            headers: Vec::new(),
            request_id: None,
            session_id: None,
            session_token: None,
            keep_headers: Vec::new(),
            timeouts: Timeouts {
                connect: limit,
                read: limit,
                event: None,
                total: limit,
            },
            tls: Tls::default(),
            pool: Pool::default(),
            version: HttpVersion::default(),
            websocket: false,
            compression: Compression::default(),
            gpus: None,
            gpu: None,
            cost: None,
            ready: None,
            server: None,
            metrics: Vec::new(),
            hardware: None,
            scenario_secrets: Arc::default(),
        }
    }

    /// The keys that are obtained during the run, if there are any.
    pub fn obtained_keys(&self) -> Option<&ObtainedKeys> {
        self.api_key.as_ref().and_then(ApiKey::obtained)
    }

    /// The HTTP version of its connections.
    pub fn http_version(&self) -> HttpVersion {
        if self.websocket {
            HttpVersion::Http1
        } else {
            self.version
        }
    }

    /// How its requests are signed, if they are.
    pub fn aws(&self) -> Option<&AwsSigning> {
        match &self.api_key {
            Some(ApiKey::Aws(signing)) => Some(signing),
            _ => None,
        }
    }

    /// Its URLs; none for the simulator and for a local model.
    pub fn urls(&self) -> impl Iterator<Item = &str> + Clone {
        self.location
            .endpoints()
            .into_iter()
            .flat_map(Endpoints::urls)
    }

    /// The names of its URLs, if there are several; empty otherwise.
    pub fn endpoint_names(&self) -> &[Arc<str>] {
        self.location.endpoints().map_or(&[], Endpoints::names)
    }

    /// The headers of requests other than those of the load: its headers, and its key.
    pub fn request_headers(&self) -> Vec<(String, Secret)> {
        let mut headers = self.headers.clone();
        let is_key = |(name, _): &(String, Secret)| name.eq_ignore_ascii_case("authorization");
        if let Some(key) = self
            .api_key
            .as_ref()
            .filter(|_| !headers.iter().any(is_key))
            .and_then(ApiKey::current)
        {
            let value = Secret::new(format!("Bearer {}", key.expose()));
            headers.push(("Authorization".to_owned(), value));
        }
        headers
    }

    /// Its metrics pages.
    pub fn pages(&self) -> impl Iterator<Item = &MetricsSource> {
        self.metrics.iter().filter(|source| source.is_page())
    }

    /// The roles of its metrics pages, sorted.
    pub fn roles(&self) -> BTreeSet<&str> {
        self.pages()
            .filter_map(|page| page.role.as_deref())
            .collect()
    }

    /// The GPUs of a role; None if those of one of its pages are unknown.
    pub fn gpus_of_role(&self, role: Option<&str>) -> Option<u32> {
        let of_role = self.pages().filter(|page| page.role.as_deref() == role);
        let gpus: Option<u32> = of_role.map(|page| page.gpus).sum();
        gpus.filter(|gpus| *gpus > 0)
    }

    /// Whether its samples name the worker: with a single page, all are of the target.
    pub fn has_workers(&self) -> bool {
        let is_labelled = |page: &MetricsSource| {
            page.role.is_some()
                || page.kind
                    == MetricsKind::Page {
                        all_addresses: true,
                    }
        };
        self.pages().count() > 1 || self.pages().any(is_labelled)
    }

    /// The price per second, in the currency of `cost`; None if it is unknown.
    pub fn cost_per_second(&self) -> Option<f64> {
        let cost = self.cost.as_ref()?;
        let count = if cost.per_gpu {
            f64::from(self.gpus?)
        } else {
            1.0
        };
        Some(cost.per_hour * count / 3600.0)
    }

    /// A redactor for its key, header values, URL credentials, and the secrets of the scenario. For a value such as
    /// `Bearer sk-1`, the last word is a secret too.
    pub fn redactor(&self) -> Redactor {
        let words = self
            .secrets()
            .flat_map(|secret| whole_and_last(secret.expose()));
        let urls = self
            .urls()
            .chain(self.metrics.iter().map(|source| source.scrape.url.as_str()));
        let in_urls: Vec<String> = urls.flat_map(secrets_in_url).collect();
        let words = words.chain(in_urls.iter().map(String::as_str));
        let of_scenario = self.scenario_secrets.iter().map(Secret::expose);
        let redactor = Redactor::from_texts(words, SHORTEST).with(of_scenario, DISTINCT);
        match self.obtained_keys() {
            Some(keys) => redactor.with_obtained(keys),
            None => redactor,
        }
    }

    /// Every secret of this target in the scenario, for redacting responses.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        let key = self.api_key.as_ref().and_then(ApiKey::fixed);
        key.into_iter()
            .chain(self.headers.iter().map(|(_, value)| value))
            .chain(
                self.server
                    .iter()
                    .flat_map(|server| server.env.iter().map(|(_, value)| value)),
            )
            .chain(
                self.metrics
                    .iter()
                    .flat_map(|source| source.scrape.headers.iter().map(|(_, value)| value)),
            )
    }
}

/// How to detect that a managed server is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A GET of this URL returns a status of 200 to 299.
    Url(String),
    /// A line of its log contains this text.
    Log(String),
}

/// When a managed server is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// Never: one start serves the run.
    Never,
    /// For cases that need another command or environment: one start serves all rounds of the cases with the same
    /// server.
    #[default]
    Variant,
    /// For each round; the cases with the same server share it.
    Round,
    /// For each round of each case.
    Case,
}

/// A server that the run starts and stops.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagedServer {
    /// The program and its arguments, including `args`, run without a shell.
    pub command: Vec<String>,
    /// Additional environment variables. Values may be secrets.
    pub env: Vec<(String, Secret)>,
    /// Working folder; None: that of this process.
    pub cwd: Option<String>,
    /// How to detect readiness.
    pub ready: Readiness,
    /// Timeout for readiness.
    pub timeout: Nanos,
    /// Interval of the readiness checks.
    pub interval: Nanos,
    /// The log file in the run folder.
    pub log: String,
    /// When it is started again.
    pub restart: Restart,
    /// Time to exit after SIGTERM before it is killed.
    pub grace: Nanos,
}

/// Startup of a managed server: times since the start of its process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Startup {
    /// Process id.
    pub pid: u32,
    /// The command, secrets removed.
    #[serde(default)]
    pub command: String,
    /// The log file in the run folder.
    #[serde(default)]
    pub log: String,
    /// Process creation.
    pub spawned: Nanos,
    /// The port accepted a connection; None if the address is unknown.
    pub port_open: Option<Nanos>,
    /// Ready.
    pub ready: Nanos,
    /// `ready` + (first token − sent) of the first answered request: the time to the first token without the load
    /// generator's delay between readiness and sending.
    pub first_token: Option<Nanos>,
}

/// An unexpected exit of a managed server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerEnd {
    /// Nanoseconds since the round's time zero; negative: before it.
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
