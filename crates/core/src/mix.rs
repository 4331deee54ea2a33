//! Mixed traffic: several traffic classes under one load.

use crate::dataset::DatasetSpec;
use crate::load::Shape;
use crate::redact::Secret;
use crate::request::RequestSpec;
use crate::units::Nanos;

/// How often requests of a traffic class are sent.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryLoad {
    /// Its weight: its share is the weight over the sum of all weights.
    Weight(f64),
    /// A separate open loop: [`Shape::Open`] or [`Shape::Rates`].
    Arrivals(Shape),
}

impl EntryLoad {
    /// The weight, or the expected arrivals per second over its stages: it determines the share of the requests.
    pub fn size(&self) -> f64 {
        match self {
            EntryLoad::Weight(weight) => *weight,
            EntryLoad::Arrivals(shape) => {
                let span = shape.end().unwrap_or(Nanos::from_millis(1000));
                shape.expected(span).unwrap_or(0.0) / span.secs().max(f64::MIN_POSITIVE)
            }
        }
    }
}

/// One traffic class of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct MixEntry {
    /// Name, unique in the case; the first part of its requests' group.
    pub name: String,
    /// How often its requests are sent; all classes of a case use the same variant.
    pub load: EntryLoad,
    /// Headers of its requests; override those of the target.
    pub headers: Vec<(String, Secret)>,
    /// The request.
    pub request: RequestSpec,
    /// The prompts.
    pub dataset: DatasetSpec,
}

impl MixEntry {
    /// The group of a request of this class, given its dataset group: `NAME` or `NAME/GROUP`.
    pub fn group(&self, part: Option<&str>) -> String {
        part.map_or_else(|| self.name.clone(), |part| format!("{}/{part}", self.name))
    }
}

/// Whether `group` is `whole` or a subgroup of it.
pub fn is_in_group(group: &str, whole: &str) -> bool {
    group
        .strip_prefix(whole)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_contains_its_subgroups_and_no_other_with_the_same_beginning() {
        let seen =
            ["chat", "chat/96", "chat-2", "cha", "x/chat"].map(|group| is_in_group(group, "chat"));
        assert_eq!(seen, [true, true, false, false, false]);
        assert!(is_in_group("a/b/c", "a/b") && !is_in_group("a", "a/b"));
    }
}
