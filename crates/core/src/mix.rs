//! Mixed traffic: several kinds of requests under one load.

use crate::dataset::DatasetSpec;
use crate::load::Shape;
use crate::plan::Case;
use crate::request::RequestSpec;
use crate::stage::six_digits;

/// How often requests of an entry leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pull {
    /// Its share of the requests, over the sum of all weights.
    Weight(f64),
    /// Its own open loop, in mean arrivals per second.
    Rate(f64),
}

impl Pull {
    /// The number, whatever it counts: the shares of entries come from it.
    pub fn size(self) -> f64 {
        match self {
            Pull::Weight(size) | Pull::Rate(size) => size,
        }
    }
}

/// One kind of requests in a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name, unique in the case; the group of its requests begins with it.
    pub name: String,
    /// How often its requests leave; of one sort in all entries of a case.
    pub pull: Pull,
    /// What its requests say.
    pub request: RequestSpec,
    /// Its prompts.
    pub dataset: DatasetSpec,
}

impl Entry {
    /// The group of a request of this entry whose dataset has this part: `NAME` or `NAME/part`.
    pub fn group(&self, part: Option<&str>) -> String {
        part.map_or_else(|| self.name.clone(), |part| format!("{}/{part}", self.name))
    }
}

/// Whether a group is this one, or a part of it.
pub fn within(group: &str, whole: &str) -> bool {
    group.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Case {
    /// The entries of its mix, each as a case without one; of a case without a mix, the case itself.
    pub fn lines(&self) -> Vec<Case> {
        if self.mix.is_empty() {
            return vec![self.clone()];
        }
        let line = |entry: &Entry| Case {
            request: entry.request.clone(),
            dataset: entry.dataset.clone(),
            mix: Vec::new(),
            ..self.clone()
        };
        self.mix.iter().map(line).collect()
    }

    /// The lines that a group may belong to: that of the entry which it names, or all of them.
    pub fn lines_of(&self, group: Option<&str>) -> Vec<Case> {
        let own = self.entry_of(group).and_then(|own| self.mix.iter().position(|entry| entry.name == own.name));
        match own {
            Some(index) => self.lines().into_iter().skip(index).take(1).collect(),
            None => self.lines(),
        }
    }

    /// The entry that a group belongs to.
    pub fn entry_of(&self, group: Option<&str>) -> Option<&Entry> {
        self.mix.iter().find(|entry| group.is_some_and(|group| within(group, &entry.name)))
    }

    /// What the requests of a group say.
    pub fn request_of(&self, group: Option<&str>) -> &RequestSpec {
        self.entry_of(group).map_or(&self.request, |entry| &entry.request)
    }

    /// The share of the requests that an entry has on average, 0..=1.
    pub fn share_of(&self, entry: &Entry) -> f64 {
        entry.pull.size() / self.mix.iter().map(|entry| entry.pull.size()).sum::<f64>()
    }

    /// Whether some of its data may hold conversations.
    pub fn talks(&self) -> bool {
        match self.mix.as_slice() {
            [] => self.dataset.turns.is_some(),
            mix => mix.iter().any(|entry| entry.dataset.turns.is_some()),
        }
    }

    /// What is mixed, in words: `chat 75%, summarise 25%`, or `chat 5/s, summarise 1/s`. None without a mix.
    pub fn mix_words(&self) -> Option<String> {
        let each = |entry: &Entry| match entry.pull {
            Pull::Weight(_) => format!("{} {}%", entry.name, six_digits((self.share_of(entry) * 1e4).round() / 1e2)),
            Pull::Rate(rate) => format!("{} {}/s", entry.name, six_digits(rate)),
        };
        (!self.mix.is_empty()).then(|| self.mix.iter().map(each).collect::<Vec<_>>().join(", "))
    }

    /// The load in words, with what is mixed: `concurrency 16; chat 75%, summarise 25%`.
    pub fn load_words(&self) -> String {
        [Some(self.load.shape.to_string()), self.mix_words()].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The open loops of its entries, by name and rate; None where they share one load.
    pub fn rates(&self) -> Option<Vec<(&str, f64)>> {
        let rate = |entry: &Entry| if let Pull::Rate(rate) = entry.pull { Some(rate) } else { None };
        let rates: Option<Vec<(&str, f64)>> = self.mix.iter().map(|own| Some((own.name.as_str(), rate(own)?))).collect();
        rates.filter(|rates| !rates.is_empty() && matches!(self.load.shape, Shape::Open { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_holds_its_parts_and_no_other_that_begins_alike() {
        let seen = ["chat", "chat/96", "chat-2", "cha", "x/chat"].map(|group| within(group, "chat"));
        assert_eq!(seen, [true, true, false, false, false]);
        assert!(within("a/b/c", "a/b") && !within("a", "a/b"));
    }
}
