//! The files of a run that go along.

use super::TrackError;
use llmscen_core::track::Files;
use std::fs;
use std::path::{Path, PathBuf};

/// Files with a row or more for every request.
const ROWS: [&str; 6] = ["requests.parquet", "requests.db", "telemetry.parquet", "histograms.hlog", "server.log", "journal.bin"];
/// Folders that are other tools' own.
const ALIEN: [&str; 1] = ["wandb"];

/// The files below a run folder by their names in it, in order of name.
pub(super) fn list(folder: &Path, wanted: Files) -> Result<Vec<(String, PathBuf)>, TrackError> {
    let mut found = Vec::new();
    if wanted != Files::Nothing {
        walk(folder, "", &mut found)?;
    }
    found.retain(|(name, _)| wanted == Files::All || !ROWS.contains(&name.as_str()));
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, PathBuf)>) -> Result<(), TrackError> {
    let failed = |source| TrackError::File { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, name) = (entry.file_type().map_err(failed)?, entry.file_name().to_string_lossy().into_owned());
        if name.starts_with('.') || prefix.is_empty() && ALIEN.contains(&name.as_str()) {
            continue;
        }
        let inner = format!("{prefix}{name}");
        match () {
            () if kind.is_dir() => walk(&entry.path(), &format!("{inner}/"), found)?,
            () if kind.is_file() => found.push((inner, entry.path())),
            () => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_leave_the_rows_behind() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["report.md", "requests.parquet", "charts/a.png", "wandb/run/x", ".hidden"] {
            fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            fs::write(folder.path().join(name), "x").unwrap();
        }
        let names = |wanted| list(folder.path(), wanted).unwrap().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(Files::Reports), ["charts/a.png", "report.md"]);
        assert_eq!(names(Files::All), ["charts/a.png", "report.md", "requests.parquet"]);
        assert!(names(Files::Nothing).is_empty());
    }
}
