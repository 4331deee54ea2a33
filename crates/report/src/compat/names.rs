//! Names of files: readable, safe on every file system, each given once.

use llmscen_core::seed::Seed;
use std::collections::BTreeSet;

/// Names that were given.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// This name, or one that tells it from those given before: `a`, `a_2`, `a_3`.
    pub(super) fn fresh(&mut self, wanted: &str) -> String {
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
pub(super) fn slug(text: &str) -> String {
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
