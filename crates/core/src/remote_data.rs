//! Datasets that are downloaded: `https://host/prompts.jsonl`, and those of the Hugging Face hub by name:
//! `hub:org/name/file.parquet`, or `hub:org/name` with a split.

use crate::url_secrets::is_url;
use std::collections::BTreeMap;
use std::fmt;

/// Prefix of names of the hub.
pub const PREFIX: &str = "hub:";

/// The data that a scenario names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemoteReference {
    /// Files of the hub.
    Hub(HubReference),
    /// One file.
    Url(String),
}

impl RemoteReference {
    /// The reference of a dataset's path. None: it is a path on this machine, or a name of the hub in another form.
    pub fn parse(path: &str) -> Option<RemoteReference> {
        if is_web_url(path) {
            return Some(RemoteReference::Url(path.to_owned()));
        }
        HubReference::parse(path).map(RemoteReference::Hub)
    }
}

/// Whether a path of a dataset is the address of a file.
pub fn is_web_url(path: &str) -> bool {
    (path.starts_with("https://") || path.starts_with("http://")) && is_url(path)
}

impl fmt::Display for RemoteReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemoteReference::Hub(reference) => reference.fmt(f),
            RemoteReference::Url(url) => f.write_str(url),
        }
    }
}

/// Data of the hub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HubReference {
    /// `org/name`.
    pub repo: String,
    /// A file of the repository; None: the files of the split.
    pub file: Option<String>,
    /// Branch, tag or commit; None: the default branch.
    pub revision: Option<String>,
    /// Subset (configuration) of the dataset; None: the only one, or the default one.
    pub subset: Option<String>,
    /// Split; None: the only one.
    pub split: Option<String>,
}

impl HubReference {
    /// The reference of `hub:org/name` or `hub:org/name/file`. None: the name is not of this form.
    pub fn parse(name: &str) -> Option<HubReference> {
        let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '/');
        let (owner, dataset, file) = (parts.next()?, parts.next()?, parts.next());
        let is_word = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        (is_word(owner) && is_word(dataset) && file.is_none_or(is_path)).then(|| HubReference {
            repo: format!("{owner}/{dataset}"),
            file: file.map(str::to_owned),
            revision: None,
            subset: None,
            split: None,
        })
    }
}

/// Whether a path names a file below a folder.
pub fn is_path(path: &str) -> bool {
    path.split('/')
        .all(|segment| !["", ".", ".."].contains(&segment))
        && !path.contains(['\\', '\0'])
}

/// `hub:org/name/file`, with the parts that are set: `hub:org/name subset=main split=test`.
impl fmt::Display for HubReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.repo)?;
        if let Some(file) = &self.file {
            write!(f, "/{file}")?;
        }
        for (name, value) in [
            ("subset", &self.subset),
            ("split", &self.split),
            ("revision", &self.revision),
        ] {
            if let Some(value) = value {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

/// The exact files of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataPin {
    /// Commit of the repository; None for a file by its address.
    pub commit: Option<String>,
    /// The files in the order in which they are read: path in the repository, or name of the file → SHA-256 in hex.
    pub files: Vec<(String, String)>,
}

/// The data of a dataset that is downloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteData {
    /// What the scenario names.
    pub reference: RemoteReference,
    /// Its files, once they are looked up.
    pub pin: Option<DataPin>,
}

/// Why a reference cannot be pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinError {
    /// A part of the reference does not exist.
    Unknown {
        /// `file`, `subset`, `split` or `revision`.
        part: &'static str,
        /// Its value.
        value: String,
        /// Values that exist.
        available: Vec<String>,
    },
    /// A part is needed, because several values exist.
    Ambiguous {
        /// `subset` or `split`.
        part: &'static str,
        /// The values.
        available: Vec<String>,
    },
    /// The repository has no file that llmscen reads.
    NoData {
        /// Files that exist.
        available: Vec<String>,
    },
    /// The server cannot be reached, or refuses the request.
    Failed(String),
}

/// Looks up the files of a reference; the map is the environment.
pub type PinData = fn(&RemoteReference, &BTreeMap<String, String>) -> Result<DataPin, PinError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_written() {
        let reference = HubReference::parse("hub:org/na.me-1/data/x.parquet").unwrap();
        assert_eq!(
            (reference.repo.as_str(), reference.file.as_deref()),
            ("org/na.me-1", Some("data/x.parquet"))
        );
        let split = HubReference {
            subset: Some("main".into()),
            split: Some("test".into()),
            revision: Some("v1".into()),
            ..HubReference::parse("hub:org/name").unwrap()
        };
        assert_eq!(
            split.to_string(),
            "hub:org/name subset=main split=test revision=v1"
        );
        for bad in [
            "org/name",
            "hub:name",
            "hub:org/",
            "hub:/name",
            "hub:org/name/",
            "hub:org/name/../x",
            "hub:org/name//x",
            "hub:../name/x",
            "hub:org/na me",
        ] {
            assert_eq!(HubReference::parse(bad), None, "{bad}");
        }
    }
}
