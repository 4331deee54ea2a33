//! The charts in the folder of a run.

use super::atomic::gone;
use super::error::StoreError;
use super::rundir::RunDir;
use std::fs;
use std::io::{self, ErrorKind};

const CHARTS: &str = "charts";

impl RunDir {
    /// Writes the charts of a report. Those of an earlier one that are not among them go; what is no chart stays.
    ///
    /// # Errors
    /// One of them cannot be written or removed.
    pub fn write_charts(&self, charts: &[(String, &[u8])]) -> Result<(), StoreError> {
        let failed = |source| StoreError::Write { path: self.file(CHARTS), source };
        self.clear_charts(|name| charts.iter().any(|(own, _)| own == name)).map_err(failed)?;
        charts.iter().try_for_each(|(name, bytes)| self.write(&format!("{CHARTS}/{name}"), bytes))
    }

    /// Removes charts, except those to be kept.
    pub(super) fn clear_charts(&self, kept: impl Fn(&str) -> bool) -> io::Result<()> {
        let charts = match fs::read_dir(self.file(CHARTS)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            charts => charts?,
        };
        for chart in charts {
            let path = chart?.path();
            let picture = path.extension().is_some_and(|extension| extension == "png" || extension == "svg");
            if picture && !path.file_name().and_then(|name| name.to_str()).is_some_and(&kept) {
                gone(&path)?;
            }
        }
        Ok(())
    }
}
