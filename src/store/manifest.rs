//! manifest.json: the facts of a run besides its rows.

use crate::store::error::StoreError;
use crate::store::rundir::{MANIFEST, RunDir};
use llmscen_core::manifest::Manifest;

/// Writes the manifest and updates its checksum.
///
/// # Errors
/// The folder cannot be written.
pub fn write(run: &RunDir, manifest: &Manifest) -> Result<(), StoreError> {
    run.write_listed(MANIFEST, &encode(manifest)?)
}

/// The manifest as JSON.
///
/// # Errors
/// It cannot be encoded.
pub fn encode(manifest: &Manifest) -> Result<Vec<u8>, StoreError> {
    let mut text = serde_json::to_vec_pretty(manifest).map_err(|error| StoreError::Encode {
        reason: error.to_string(),
    })?;
    text.push(b'\n');
    Ok(text)
}

/// Reads the manifest.
///
/// # Errors
/// It is missing or invalid.
pub fn read(run: &RunDir) -> Result<Manifest, StoreError> {
    let bytes = run.read(MANIFEST)?;
    serde_json::from_slice(&bytes).map_err(|error| StoreError::Manifest {
        path: run.file(MANIFEST),
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::manifest::{Machine, Part, Vitals};
    use std::collections::BTreeMap;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        let part = Part {
            case: "base".into(),
            vitals: Some(Vitals {
                cpu_shares: vec![0.5],
                ..Vitals::default()
            }),
            ..Part::default()
        };
        let manifest = Manifest {
            run_id: "r1".into(),
            seed: u64::MAX,
            elapsed_s: Some(1.5),
            machine: Machine {
                host: "h".into(),
                cores: 2,
                ..Machine::default()
            },
            targets: BTreeMap::from([("http://x".into(), "vllm 0.9".into())]),
            parts: vec![part],
            ..Manifest::default()
        };
        write(&run, &manifest).unwrap();
        assert_eq!(read(&run).unwrap(), manifest);
        let text = String::from_utf8(run.read(MANIFEST).unwrap()).unwrap();
        assert!(
            text.starts_with("{\n  \"run_id\": \"r1\",\n") && text.ends_with("}\n"),
            "{text}"
        );
    }

    #[test]
    fn an_invalid_or_missing_manifest_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        let path = dir.path().join("manifest.json").display().to_string();
        assert!(
            read(&run)
                .unwrap_err()
                .to_string()
                .starts_with(&format!("cannot read {path}: No such file"))
        );
        run.write(MANIFEST, b"{}").unwrap();
        let error = read(&run).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "{path} is not a manifest of this version of llmscen: missing field `run_id`"
            )),
            "{error}"
        );
    }
}
