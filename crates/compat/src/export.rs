//! Exports in the file formats of other load testing tools, for dashboards that read them.
//!
//! Every value follows the definition of the other tool; `docs/how-to/export.md` lists the differences. Values that
//! llmscen does not measure are null or absent, as the format permits.

mod aiperf;
mod evalscope;
#[cfg(test)]
mod fixture;
mod guidellm;
mod inferencex;
mod llm_d;
mod lmdeploy;
mod measured;
mod vllm;

pub use measured::Measured;

use llmscen_core::artifacts::ExportFormat;
use llmscen_core::escape::escape_csv_cell;
use llmscen_core::seed::Seed;
use std::collections::BTreeSet;

/// Why an export cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A value in JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A table in CSV.
    #[error("cannot write the tables: {0}")]
    Csv(#[from] csv::Error),
}

/// An exported file.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its path in the folder of the tool.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// An export for one tool. Cases are added one by one, so that only one has its requests in memory.
pub trait Export {
    /// Adds a case and returns its files.
    ///
    /// # Errors
    /// If a value cannot be serialized.
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ExportError>;

    /// The files about all cases, after the last case.
    ///
    /// # Errors
    /// If a value cannot be serialized.
    fn end(&mut self) -> Result<Vec<File>, ExportError>;
}

/// The export for a tool.
pub fn export(peer: ExportFormat) -> Box<dyn Export> {
    match peer {
        ExportFormat::Evalscope => Box::<evalscope::Evalscope>::default(),
        ExportFormat::Vllm => Box::<vllm::Vllm>::default(),
        ExportFormat::Aiperf => Box::<aiperf::Aiperf>::default(),
        ExportFormat::Guidellm => Box::<guidellm::Guidellm>::default(),
        ExportFormat::Lmdeploy => Box::<lmdeploy::Lmdeploy>::default(),
        ExportFormat::LlmD => Box::<llm_d::LlmD>::default(),
        ExportFormat::InferenceX => Box::<inferencex::InferenceX>::default(),
    }
}

/// A CSV file as Python's `csv` module writes it.
fn csv(lines: &[Vec<String>]) -> Result<Vec<u8>, ExportError> {
    let mut out = csv::WriterBuilder::new()
        .terminator(csv::Terminator::CRLF)
        .flexible(true)
        .from_writer(Vec::new());
    lines.iter().try_for_each(|line| {
        out.write_record(line.iter().map(|text| escape_csv_cell(text).into_owned()))
    })?;
    Ok(out
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))?)
}

/// File names in use.
#[derive(Debug, Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// The name, with a number if it is in use: `a`, `a_2`, `a_3`.
    fn unique(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        for number in 2.. {
            if self.0.insert(unique.clone()) {
                break;
            }
            unique = format!("{name}_{number}");
        }
        unique
    }
}

/// The longest name in bytes: a file name may have several of them, and file systems allow 255 bytes.
const MAX_NAME: usize = 72;

/// A text as a safe file name: letters, digits and `.-=,_` stay, other characters become `_`, and leading `.` and `-`
/// are removed. A long text is cut and gets a digest of the full text.
fn slug(text: &str) -> String {
    let safe = |c: char| {
        if c.is_alphanumeric() || ".-=,_".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = text.chars().map(safe).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "_".to_owned(),
        name if name.len() <= MAX_NAME => name.to_owned(),
        name => {
            let fits = name
                .char_indices()
                .map(|(at, c)| at + c.len_utf8())
                .take_while(|end| *end <= MAX_NAME - 9)
                .last();
            format!(
                "{}-{:08x}",
                &name[..fits.unwrap_or(0)],
                Seed(0).child(text).0 as u32
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names = Names::default();
        assert_eq!(
            ["a", "b", "a", "a"].map(|name| names.unique(name)),
            ["a", "b", "a_2", "a_3"]
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let names = ["x", "y"].map(|end| slug(&format!("{}{end}", "字".repeat(200))));
        assert!(
            names.iter().all(|name| name.len() <= 72) && names[0] != names[1],
            "{names:?}"
        );
    }

    #[test]
    fn no_name_escapes_its_folder() {
        assert_eq!(slug("rate=8/s,model=org/m 7b"), "rate=8_s,model=org_m_7b");
        assert_eq!(
            (slug("../x"), slug(".."), slug("-v")),
            ("_x".into(), "_".into(), "v".into())
        );
    }
}
