//! Weights & Biases, through its Python client: it has no stable public API.

use crate::tracking::{CaseSummary, RunSummary, TrackError, list_files};
use llmscen_core::artifacts::{Wandb, WandbMode};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The Python script that calls the client.
const SCRIPT: &str = include_str!("wandb.py");

/// Uploads a run. Returns its location.
pub(super) fn send_to_wandb(
    spec: &Wandb,
    summary: &RunSummary,
    folder: &Path,
) -> Result<String, TrackError> {
    let files = list_files(folder, spec.files)?;
    let folder = folder.canonicalize().map_err(|source| TrackError::File {
        path: folder.to_owned(),
        source,
    })?;
    let input = json!({
        "project": spec.project,
        "entity": spec.entity,
        "mode": if spec.mode == WandbMode::Offline { "offline" } else { "online" },
        "dir": folder,
        "tags": spec.tags,
        "run_id": summary.run_id,
        "verdict": summary.verdict,
        "whole": entry(&summary.run),
        "cases": summary.cases.iter().map(entry).collect::<Vec<_>>(),
        "files": files.iter().map(|(name, _)| json!([name, folder.join(name)])).collect::<Vec<_>>(),
    });
    let mut command = Command::new(&spec.python);
    command
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(key) = &spec.api_key {
        command.env("WANDB_API_KEY", key.expose());
    }
    let started = command.spawn();
    let mut child = started.map_err(|source| TrackError::Python {
        python: spec.python.clone(),
        source,
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the client has exited, its stderr has the reason.
        let _ = stdin.write_all(input.to_string().as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|source| TrackError::Python {
            python: spec.python.clone(),
            source,
        })?;
    let last_line = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .map(str::to_owned)
    };
    match output.status.success() {
        true => Ok(format!(
            "wandb: {}",
            last_line(&output.stdout).unwrap_or_default()
        )),
        false => Err(TrackError::Client(
            last_line(&output.stderr).unwrap_or_else(|| output.status.to_string()),
        )),
    }
}

fn entry(entry: &CaseSummary) -> Value {
    json!({ "name": entry.name, "params": entry.params, "metrics": entry.metrics })
}
