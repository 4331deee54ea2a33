//! Mixed traffic: several traffic classes under one load.

use crate::dataset::DatasetSpec;
use crate::load::Shape;
use crate::plan::Case;
use crate::request::RequestSpec;
use crate::stage::six_digits;

/// How often requests of a traffic class are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EntryLoad {
    /// Its weight: its share is the weight over the sum of all weights.
    Weight(f64),
    /// A separate open loop, in mean arrivals per second.
    Rate(f64),
}

impl EntryLoad {
    /// The weight or rate, which determines the share of the requests.
    pub fn size(self) -> f64 {
        match self {
            EntryLoad::Weight(size) | EntryLoad::Rate(size) => size,
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
    group.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Case {
    /// Each traffic class as a case without a mix; a case without a mix yields itself.
    pub fn traffic_classes(&self) -> Vec<Case> {
        if self.mix.is_empty() {
            return vec![self.clone()];
        }
        let line = |entry: &MixEntry| Case {
            request: entry.request.clone(),
            dataset: entry.dataset.clone(),
            mix: Vec::new(),
            ..self.clone()
        };
        self.mix.iter().map(line).collect()
    }

    /// The traffic classes that a group may belong to: the one that it names, or all of them.
    pub fn classes_for_group(&self, group: Option<&str>) -> Vec<Case> {
        let index = self.entry_for_group(group).and_then(|found| self.mix.iter().position(|entry| entry.name == found.name));
        match index {
            Some(index) => self.traffic_classes().into_iter().skip(index).take(1).collect(),
            None => self.traffic_classes(),
        }
    }

    /// The traffic class that a group belongs to.
    pub fn entry_for_group(&self, group: Option<&str>) -> Option<&MixEntry> {
        self.mix.iter().find(|entry| group.is_some_and(|group| is_in_group(group, &entry.name)))
    }

    /// The request settings of a group.
    pub fn request_for_group(&self, group: Option<&str>) -> &RequestSpec {
        self.entry_for_group(group).map_or(&self.request, |entry| &entry.request)
    }

    /// The expected share of the requests of a traffic class, 0..=1.
    pub fn expected_share(&self, entry: &MixEntry) -> f64 {
        entry.load.size() / self.mix.iter().map(|entry| entry.load.size()).sum::<f64>()
    }

    /// Whether any of its datasets may contain conversations.
    pub fn has_conversations(&self) -> bool {
        match self.mix.as_slice() {
            [] => self.dataset.turns.is_some(),
            mix => mix.iter().any(|entry| entry.dataset.turns.is_some()),
        }
    }

    /// The mix as text: `chat 75%, summarise 25%`, or `chat 5/s, summarise 1/s`. None without a mix.
    pub fn describe_mix(&self) -> Option<String> {
        let each = |entry: &MixEntry| match entry.load {
            EntryLoad::Weight(_) => format!("{} {}%", entry.name, six_digits((self.expected_share(entry) * 1e4).round() / 1e2)),
            EntryLoad::Rate(rate) => format!("{} {}/s", entry.name, six_digits(rate)),
        };
        (!self.mix.is_empty()).then(|| self.mix.iter().map(each).collect::<Vec<_>>().join(", "))
    }

    /// Load and mix as text: `concurrency 16; chat 75%, summarise 25%`.
    pub fn describe_load(&self) -> String {
        [Some(self.load.shape.to_string()), self.describe_mix()].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Name and rate of each traffic class; None if the classes share one load.
    pub fn entry_rates(&self) -> Option<Vec<(&str, f64)>> {
        let rate = |entry: &MixEntry| if let EntryLoad::Rate(rate) = entry.load { Some(rate) } else { None };
        let rates: Option<Vec<(&str, f64)>> = self.mix.iter().map(|own| Some((own.name.as_str(), rate(own)?))).collect();
        rates.filter(|rates| !rates.is_empty() && matches!(self.load.shape, Shape::Open { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_contains_its_subgroups_and_no_other_with_the_same_beginning() {
        let seen = ["chat", "chat/96", "chat-2", "cha", "x/chat"].map(|group| is_in_group(group, "chat"));
        assert_eq!(seen, [true, true, false, false, false]);
        assert!(is_in_group("a/b/c", "a/b") && !is_in_group("a", "a/b"));
    }
}
