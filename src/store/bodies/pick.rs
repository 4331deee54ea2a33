//! Which bodies of a sample are kept: a choice that does not depend on the order in which requests ended.

use super::spool::Head;
use std::collections::BTreeSet;

/// The first measured requests of a round, by number.
const FIRST: usize = 10;
/// Requests that failed, by number.
const FAILED: usize = 20;
/// Measured requests that are drawn.
const DRAWN: usize = 20;

/// A sample of the requests of one round. Requests that it wanted for a while, and then not, are left out when it is chosen
/// again from those that it wanted.
#[derive(Debug, Default)]
pub struct Picks {
    first: BTreeSet<(u64, u64, u32)>,
    failed: BTreeSet<(u64, u64, u32)>,
    drawn: BTreeSet<(u64, u64, u32)>,
}

impl Picks {
    /// Takes a request into account; whether the sample wants it, as far as is known by now.
    pub fn wants(&mut self, head: &Head) -> bool {
        let (place, rank) = ((head.seq, head.turn), head.rank);
        let first = head.measured && lowest(&mut self.first, FIRST, (head.seq, place));
        let failed = head.failed && lowest(&mut self.failed, FAILED, (head.seq, place));
        let drawn = head.measured && lowest(&mut self.drawn, DRAWN, (rank, place));
        first | failed | drawn
    }

    /// Whether it is still wanted, now that all were taken into account.
    pub fn keeps(&self, head: &Head) -> bool {
        let by_number = (head.seq, head.seq, head.turn);
        self.first.contains(&by_number)
            || self.failed.contains(&by_number)
            || self.drawn.contains(&(head.rank, head.seq, head.turn))
    }
}

/// Whether the request is one of the `most` lowest by its rank.
fn lowest(chosen: &mut BTreeSet<(u64, u64, u32)>, most: usize, (rank, (seq, turn)): (u64, (u64, u32))) -> bool {
    let own = (rank, seq, turn);
    chosen.insert(own);
    chosen.len() <= most || chosen.pop_last() != Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::seed::Seed;

    fn heads() -> Vec<Head> {
        let rank = |seq: u64| Seed(7).child(seq).0;
        (0..500).map(|seq| Head { seq, rank: rank(seq), measured: seq >= 30, failed: seq % 9 == 0, ..Head::default() }).collect()
    }

    /// What a sample of these keeps in the end, and how many it wanted for a while.
    fn kept(order: impl Iterator<Item = Head>) -> (Vec<u64>, usize) {
        let mut picks = Picks::default();
        let wanted: Vec<Head> = order.filter(|head| picks.wants(head)).collect();
        let mut again = Picks::default();
        wanted.iter().for_each(|head| _ = again.wants(head));
        let mut kept: Vec<u64> = wanted.iter().filter(|head| again.keeps(head)).map(|head| head.seq).collect();
        kept.sort();
        (kept, wanted.len())
    }

    #[test]
    fn the_sample_is_the_same_in_whatever_order_requests_end() {
        let (kept_forwards, _) = kept(heads().into_iter());
        let (kept_backwards, wanted) = kept(heads().into_iter().rev());
        assert_eq!(kept_forwards, kept_backwards);
        assert!(wanted > kept_backwards.len(), "some were wanted for a while only");
        assert!((40..=50).contains(&kept_forwards.len()), "{kept_forwards:?}");
        assert!((30..40).all(|seq| kept_forwards.contains(&seq)), "the first measured ones");
        assert!((0..20).map(|n| 9 * n).all(|seq| kept_forwards.contains(&seq)), "the first that failed, warm-up or not");
        assert!(kept_forwards.iter().any(|seq| *seq > 200 && seq % 9 != 0), "and some of the others");
    }
}
