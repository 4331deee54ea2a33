//! Experiment trackers that a run is reported to, besides its folder.

use crate::target::Secret;

/// The trackers of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// An MLflow server.
    pub mlflow: Option<Mlflow>,
    /// Weights & Biases.
    pub wandb: Option<Wandb>,
}

/// Which files of a run are sent along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Files {
    /// None.
    Nothing,
    /// Reports, charts, results and the plan; not the rows.
    #[default]
    Reports,
    /// The rows too.
    All,
}

/// An MLflow tracking server, spoken to by its REST API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlflow {
    /// Its address: `http://127.0.0.1:5000`.
    pub url: String,
    /// The experiment; it is made where there is none of that name.
    pub experiment: String,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// User name and password, where it wants those.
    pub login: Option<(String, Secret)>,
    /// Tags of every run.
    pub tags: Vec<(String, String)>,
    /// Files sent along.
    pub files: Files,
}

/// Whether Weights & Biases is reached over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WandbMode {
    /// It is, with the client's own login.
    #[default]
    Online,
    /// It is not: the client keeps the run in `wandb/` of the run folder, for `wandb sync`.
    Offline,
}

/// Weights & Biases, by its own Python client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wandb {
    /// The project.
    pub project: String,
    /// The team or user; None: the login's own.
    pub entity: Option<String>,
    /// The key of its client; None: the client's own login.
    pub api_key: Option<Secret>,
    /// Online or offline.
    pub mode: WandbMode,
    /// The interpreter that has the client.
    pub python: String,
    /// Tags of every run.
    pub tags: Vec<String>,
    /// Files sent along.
    pub files: Files,
}
