//! Running token counts: how many tokens each event with content brought.

use std::collections::BTreeMap;

/// The running count beside each event with content, as long as every one of them has one.
#[derive(Debug, Default)]
pub struct Running {
    /// Choice and count.
    seen: Vec<(u32, u32)>,
    /// An event had no count: then none can be told.
    broken: bool,
}

impl Running {
    /// Takes an event with content of this choice, and the count beside it.
    pub fn content(&mut self, choice: u32, count: Option<u64>) {
        match count.and_then(|count| u32::try_from(count).ok()).filter(|_| !self.broken) {
            Some(count) => self.seen.push((choice, count)),
            None => *self = Running { seen: Vec::new(), broken: true },
        }
    }

    /// The tokens in each event; empty where they are not known. `total` is the final count of the request.
    ///
    /// Tokens without text of their own, such as half a character, belong to the event that brings their text; those that
    /// follow the last text belong to none.
    pub fn weights(&self, total: Option<u64>) -> Vec<u32> {
        match self.counts_the_request(total) {
            true => self.of_request(),
            false => self.of_choices(),
        }
        .unwrap_or_default()
    }

    /// Whether the counts are those of all choices together.
    ///
    /// vLLM and SGLang count each choice, others the request. Counts of a request rise with every event, which those of
    /// choices that run side by side do not; where they do all the same, the final count tells: it is their sum.
    pub fn counts_the_request(&self, total: Option<u64>) -> bool {
        let several = self.seen.windows(2).any(|pair| pair[0].0 != pair[1].0);
        if !several || self.of_request().is_none() {
            return false;
        }
        let last: BTreeMap<u32, u32> = self.seen.iter().copied().collect();
        let sum: u64 = last.values().map(|count| u64::from(*count)).sum();
        total.is_none_or(|total| total < sum) || self.of_choices().is_none()
    }

    /// What each count adds to the one before it; None where one adds nothing.
    fn of_request(&self) -> Option<Vec<u32>> {
        let mut before = 0;
        let step = |&(_, count): &(u32, u32)| count.checked_sub(std::mem::replace(&mut before, count)).filter(|step| *step > 0);
        self.seen.iter().map(step).collect()
    }

    /// What each count adds to the one before it of the same choice; None where one falls.
    fn of_choices(&self) -> Option<Vec<u32>> {
        let mut before = BTreeMap::new();
        self.seen.iter().map(|&(choice, count)| count.checked_sub(before.insert(choice, count).unwrap_or(0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(seen: &[(u32, u64)], total: Option<u64>) -> Vec<u32> {
        let mut running = Running::default();
        seen.iter().for_each(|&(choice, count)| running.content(choice, Some(count)));
        running.weights(total)
    }

    #[test]
    fn an_event_weighs_what_the_count_rose_by() {
        assert_eq!(weights(&[(0, 1), (0, 2), (0, 3)], Some(3)), [1, 1, 1]);
        assert_eq!(weights(&[(0, 2), (0, 2), (0, 7)], Some(9)), [2, 0, 5]);
        assert_eq!(weights(&[(3, 2), (3, 4)], None), [2, 2]);
        assert_eq!(weights(&[], Some(3)), [0; 0]);
    }

    #[test]
    fn counts_of_choices_and_of_the_request_are_told_apart() {
        let side_by_side = [(0, 1), (1, 1), (0, 2), (1, 3)];
        assert_eq!(weights(&side_by_side, None), [1, 1, 1, 2]);
        let of_the_request = [(0, 1), (1, 3), (0, 4), (1, 6)];
        assert_eq!(weights(&of_the_request, None), [1, 2, 1, 2]);
        assert_eq!(weights(&of_the_request, Some(7)), [1, 2, 1, 2]);
        assert_eq!(weights(&of_the_request, Some(10)), [1, 3, 3, 3], "4 + 6 is the sum of the choices");
        assert_eq!(weights(&[(0, 1), (0, 2), (1, 1), (1, 2)], Some(4)), [1, 1, 1, 1], "one choice after the other");
    }

    #[test]
    fn one_event_without_a_count_or_a_count_that_falls_leaves_all_unknown() {
        assert_eq!(weights(&[(0, 3), (0, 2)], None), [0; 0]);
        assert_eq!(weights(&[(0, 1), (0, u64::MAX)], None), [0; 0]);
        let mut running = Running::default();
        [Some(1), None, Some(3)].into_iter().for_each(|count| running.content(0, count));
        assert_eq!(running.weights(Some(3)), [0; 0]);
        assert!(!running.counts_the_request(Some(3)));
    }
}
