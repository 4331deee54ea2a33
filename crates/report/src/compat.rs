//! Results in the form of other tools, for the dashboards that read their files.
//!
//! Every figure is what *their* definition says, computed from our rows; `docs/compat.md` names what differs. What we do not
//! have is null or absent, as their form permits.

mod aiperf;
mod evalscope;
mod guidellm;
mod lmdeploy;
mod measured;
mod vllm;

pub use measured::Measured;

use crate::ViewError;
use llmscen_core::export_format::Peer;
use llmscen_core::foreign::cell;
use llmscen_core::seed::Seed;
use std::collections::BTreeSet;

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

/// Names that were given.
#[derive(Debug, Default)]
struct Names(BTreeSet<String>);

impl Names {
    /// This name, or one that tells it from those given before: `a`, `a_2`, `a_3`.
    fn fresh(&mut self, wanted: &str) -> String {
        let others = (2..).map(|number| format!("{wanted}_{number}"));
        let name = std::iter::once(wanted.to_owned()).chain(others).find(|name| !self.0.contains(name));
        let name = name.unwrap_or_else(|| wanted.to_owned());
        self.0.insert(name.clone());
        name
    }
}

/// Bytes of a name at the most: several of them may stand in one file name, of which file systems take 255.
const LONGEST: usize = 72;

/// A text as one name: what is no letter, digit, `.`, `-`, `=`, `,` or `_` becomes `_`, and it begins with none of the first
/// two. Of a long text the beginning, and a digest of all of it.
fn slug(text: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || ".-=,_".contains(c) { c } else { '_' };
    let name: String = text.chars().map(plain).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "_".to_owned(),
        name if name.len() <= LONGEST => name.to_owned(),
        name => {
            let fits = name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= LONGEST - 9).last();
            format!("{}-{:08x}", &name[..fits.unwrap_or(0)], Seed(0).child(text).0 as u32)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let mut names = Names::default();
        assert_eq!(["a", "b", "a", "a"].map(|wanted| names.fresh(wanted)), ["a", "b", "a_2", "a_3"]);
    }

    #[test]
    fn long_names_are_cut_and_still_told_apart() {
        let names = ["x", "y"].map(|end| slug(&format!("{}{end}", "字".repeat(200))));
        assert!(names.iter().all(|name| name.len() <= 72) && names[0] != names[1], "{names:?}");
    }

    #[test]
    fn no_name_leaves_its_folder() {
        assert_eq!(slug("rate=8/s,model=org/m 7b"), "rate=8_s,model=org_m_7b");
        assert_eq!((slug("../x"), slug(".."), slug("-v")), ("_x".into(), "_".into(), "v".into()));
    }
}
