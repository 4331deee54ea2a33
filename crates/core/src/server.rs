//! A server under management: how it is started, when it is ready, and how long that took.

use crate::target::Secret;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

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
