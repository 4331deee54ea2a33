//! Results in the form of other tools, for the dashboards that read their files.
//!
//! Every figure is what *their* definition says, computed from our rows; `docs/compat.md` names what differs. What we do not
//! have is null or absent, as their form permits.

mod aiperf;
mod evalscope;
#[cfg(test)]
mod fixture;
mod guidellm;
mod lmdeploy;
mod measured;
mod names;
mod spread;
mod vllm;

pub use measured::Measured;

use crate::ViewError;
use llmscen_core::export_format::Peer;
use llmscen_core::foreign::cell;

/// A file to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its path under the folder of its tool.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// Writes results in the form of one tool, case by case: the rows of only one of them need be there at a time.
pub trait Export {
    /// The files of one case.
    ///
    /// # Errors
    /// Where a value cannot be written.
    fn case(&mut self, case: &Measured<'_>) -> Result<Vec<File>, ViewError>;

    /// The files about all cases, once every case was given.
    ///
    /// # Errors
    /// Where a value cannot be written.
    fn end(&mut self) -> Result<Vec<File>, ViewError>;
}

/// The writer of a tool's files.
pub fn export(peer: Peer) -> Box<dyn Export> {
    match peer {
        Peer::Evalscope => Box::<evalscope::Evalscope>::default(),
        Peer::Vllm => Box::<vllm::Vllm>::default(),
        Peer::Aiperf => Box::<aiperf::Aiperf>::default(),
        Peer::Guidellm => Box::<guidellm::Guidellm>::default(),
        Peer::Lmdeploy => Box::<lmdeploy::Lmdeploy>::default(),
    }
}

/// Lines of fields as Python's `csv` module writes them.
fn csv(lines: &[Vec<String>]) -> Result<Vec<u8>, ViewError> {
    let mut out = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).flexible(true).from_writer(Vec::new());
    lines.iter().try_for_each(|line| out.write_record(line.iter().map(|text| cell(text).into_owned())))?;
    Ok(out.into_inner().map_err(|error| csv::Error::from(error.into_error()))?)
}
