//! What can go wrong while rendering.

use thiserror::Error;

/// A report could not be rendered. None of these is the measured server's doing.
#[derive(Debug, Error)]
pub enum ViewError {
    /// The Markdown template.
    #[error("the report template could not be rendered: {0}; use another report format, and report this as a defect")]
    Template(#[from] minijinja::Error),
    /// JUnit.
    #[error("junit.xml could not be written: {0}")]
    Junit(#[from] quick_junit::SerializeError),
    /// results.json, and the files in the form of other tools.
    #[error("JSON could not be written: {0}")]
    Json(#[from] serde_json::Error),
    /// A table in CSV or TSV.
    #[error("the tables could not be written: {0}")]
    Csv(#[from] csv::Error),
    /// A chart.
    #[error("chart `{name}` could not be drawn: {reason}; leave `png` and `svg` out of `report.formats` to go without charts")]
    Chart {
        /// File stem of the chart.
        name: &'static str,
        /// The renderer's words.
        reason: String,
    },
}
