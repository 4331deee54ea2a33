//! Where the results of a run go besides its reports: stored forms, files in the formats of other tools, experiment
//! trackers.

use crate::redact::Secret;
use serde::{Deserialize, Serialize};

/// A file format in which the per-request records of a run are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    /// requests.parquet; always written, because reports are rendered from it.
    Parquet,
    /// requests.db, an SQLite database.
    Sqlite,
    /// histograms.hlog, an HdrHistogram log.
    Hlog,
}

/// Which requests have their request and response bodies stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bodies {
    /// None.
    #[default]
    None,
    /// A sample: the first requests, failed requests, and a random selection.
    Sample,
    /// Every failed request.
    Failed,
    /// Every request that was sent.
    All,
}

/// Another benchmark tool whose result file format can be written too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// `evalscope perf`.
    Evalscope,
    /// `vllm bench serve`.
    Vllm,
    /// NVIDIA AIPerf.
    Aiperf,
    /// GuideLLM.
    Guidellm,
    /// LMDeploy's profiling scripts.
    Lmdeploy,
    /// The benchmark report of llm-d.
    LlmD,
    /// InferenceX, formerly InferenceMAX.
    InferenceX,
}

impl ExportFormat {
    /// All formats, in the order in which their files are written.
    pub const ALL: [ExportFormat; 7] = [
        ExportFormat::Evalscope,
        ExportFormat::Vllm,
        ExportFormat::Aiperf,
        ExportFormat::Guidellm,
        ExportFormat::Lmdeploy,
        ExportFormat::LlmD,
        ExportFormat::InferenceX,
    ];

    /// The name in `report.compat`, also used as folder name.
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Evalscope => "evalscope",
            ExportFormat::Vllm => "vllm",
            ExportFormat::Aiperf => "aiperf",
            ExportFormat::Guidellm => "guidellm",
            ExportFormat::Lmdeploy => "lmdeploy",
            ExportFormat::LlmD => "llm-d",
            ExportFormat::InferenceX => "inferencex",
        }
    }

    /// Parses [`ExportFormat::name`].
    pub fn parse(name: &str) -> Option<ExportFormat> {
        ExportFormat::ALL
            .into_iter()
            .find(|peer| peer.name() == name)
    }
}

/// The experiment trackers that a run is uploaded to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trackers {
    /// An MLflow server.
    pub mlflow: Option<Mlflow>,
    /// Weights & Biases.
    pub wandb: Option<Wandb>,
}

/// Which files of a run are uploaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UploadFiles {
    /// None.
    Nothing,
    /// Reports, charts, results and the plan, without the per-request records.
    #[default]
    Reports,
    /// The per-request records too.
    All,
}

/// An MLflow tracking server, reached by its REST API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlflow {
    /// Base URL: `http://127.0.0.1:5000`.
    pub url: String,
    /// The experiment name; created if it does not exist.
    pub experiment: String,
    /// Sent as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// User name and password for basic authentication.
    pub login: Option<(String, Secret)>,
    /// Tags of every run.
    pub tags: Vec<(String, String)>,
    /// Files to upload.
    pub files: UploadFiles,
}

/// Whether Weights & Biases receives the run over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WandbMode {
    /// Upload, with the login of the Python client.
    #[default]
    Online,
    /// No upload: the client stores the run in `wandb/` of the run folder, for `wandb sync`.
    Offline,
}

/// Weights & Biases, through its Python client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wandb {
    /// The project.
    pub project: String,
    /// The team or user; None: the default of the login.
    pub entity: Option<String>,
    /// The API key; None: the stored login of the client.
    pub api_key: Option<Secret>,
    /// Online or offline.
    pub mode: WandbMode,
    /// The Python interpreter that has the client installed.
    pub python: String,
    /// Tags of every run.
    pub tags: Vec<String>,
    /// Files to upload.
    pub files: UploadFiles,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        assert_eq!(
            ExportFormat::ALL.map(|peer| ExportFormat::parse(peer.name())),
            ExportFormat::ALL.map(Some)
        );
        assert_eq!(ExportFormat::parse("k6"), None);
    }
}
