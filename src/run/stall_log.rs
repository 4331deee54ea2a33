//! The stalls of one worker thread, found by the lateness of its ticker.

use llmscen_core::manifest::{Stall, WorkerStalls};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lateness from which on a tick is a stall, nanoseconds.
const LEAST: u64 = 1_000_000;

/// Takes in ticks that are due at equal distances. A tick finds a stall with the probability of its length over that distance, so
/// the sums are taken over ticks: their mean lateness, and the share of late ones, are those of a random instant.
#[derive(Debug, Default)]
pub struct StallLog {
    ticks: u64,
    late: u64,
    lateness: u128,
    /// When the latest tick ran, and the thread's processor time then.
    last: (u64, u64),
    count: u64,
    /// The longest, the shortest of them first.
    longest: BinaryHeap<Reverse<(u64, [u64; 4])>>,
    /// The latest, until a tick is on time again.
    latest: Option<Stall>,
}

impl StallLog {
    /// The tick that was due at `due` runs `late` after it, at `now`, when the thread has used `cpu`. All in nanoseconds.
    pub fn tick(&mut self, due: u64, late: u64, now: u64, cpu: u64) {
        let (before, used) = std::mem::replace(&mut self.last, (now, cpu));
        self.ticks += 1;
        self.lateness += u128::from(late);
        self.late += u64::from(late >= LEAST);
        // Ticks that were missed follow one another at once: one stall is one stall.
        let missed = due < before && self.ticks > 1;
        if let Some(latest) = &mut self.latest {
            latest.after += cpu.saturating_sub(used);
        }
        if missed {
            return;
        }
        self.keep();
        if late < LEAST {
            return;
        }
        // The tick lies anywhere within the stall, which is as long before it as behind it on average; but at the tick before
        // the thread ran.
        let from = due.saturating_sub(late).max(before);
        let busy = cpu.saturating_sub(used).min(now.saturating_sub(from));
        self.latest = Some(Stall { from, to: now, busy, after: 0 });
        self.count += 1;
    }

    fn keep(&mut self) {
        let Some(stall) = self.latest.take() else { return };
        self.longest.push(Reverse((stall.to.saturating_sub(stall.from), stall.into())));
        if self.longest.len() > WorkerStalls::KEPT {
            self.longest.pop();
        }
    }

    /// What the stalls come to.
    pub fn finish(mut self) -> WorkerStalls {
        self.keep();
        let mut longest: Vec<Stall> = self.longest.into_iter().map(|Reverse((_, stall))| stall.into()).collect();
        longest.sort_by_key(|stall| stall.to);
        let all = self.ticks.max(1) as f64;
        let (frozen_ms, shut) = (self.lateness as f64 / 1e6 / all, self.late as f64 / all);
        WorkerStalls { frozen_ms, shut, ticks: self.ticks, count: self.count, longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The stalls of ticks due every 10 ms that ran at these instants, ms; half of the time between two of them was work.
    fn of(ran: &[u64]) -> WorkerStalls {
        let mut log = StallLog::default();
        for (place, now) in ran.iter().enumerate() {
            let due = 10 * place as u64;
            log.tick(due * MS, (now - due) * MS, now * MS, 0);
        }
        log.finish()
    }

    fn spans(own: &WorkerStalls) -> Vec<(u64, u64)> {
        own.longest.iter().map(|stall| (stall.from / MS, stall.to / MS)).collect()
    }

    #[test]
    fn a_silence_is_one_stall_however_many_ticks_it_delayed() {
        // Nothing from 10 to 75: the ticks of 20 to 70 run one after the other.
        let seen = of(&[0, 10, 75, 75, 75, 75, 75, 75, 80, 90]);
        assert_eq!((seen.count, spans(&seen)), (1, vec![(10, 75)]));
        assert_eq!(seen.shut, 0.6, "six of ten ticks");
        assert_eq!(seen.frozen_ms, (55 + 45 + 35 + 25 + 15 + 5) as f64 / 10.0);
    }

    #[test]
    fn a_late_tick_lies_in_the_middle_of_its_stall_at_most_back_to_the_tick_before() {
        let seen = of(&[0, 13, 20, 39, 40]);
        assert_eq!((seen.count, spans(&seen)), (2, vec![(7, 13), (21, 39)]));
        assert_eq!(spans(&of(&[8, 18, 20])), [(0, 8), (8, 18)]);
        assert_eq!(of(&[0, 10, 20]), WorkerStalls { ticks: 3, ..WorkerStalls::default() });
    }

    #[test]
    fn work_before_the_tick_is_known_and_short_stalls_are_dropped_first() {
        let mut log = StallLog::default();
        log.tick(0, 0, 0, 5 * MS);
        log.tick(10 * MS, 20 * MS, 30 * MS, 7 * MS);
        // The missed ticks of 20 and 30, and the first one that is on time.
        log.tick(20 * MS, 10 * MS, 31 * MS, 8 * MS);
        log.tick(30 * MS, MS, 31 * MS, 8 * MS);
        log.tick(40 * MS, 0, 40 * MS, 10 * MS);
        log.tick(50 * MS, 0, 50 * MS, 19 * MS);
        let seen = log.finish();
        assert_eq!(seen.longest, [Stall { from: 0, to: 30 * MS, busy: 2 * MS, after: 3 * MS }]);
        let mut log = StallLog::default();
        for place in 0..3000u64 {
            let late = if place % 3 == 0 { 4 * MS } else { 2 * MS };
            log.tick(place * 10 * MS, late, place * 10 * MS + late, 0);
        }
        let seen = log.finish();
        assert_eq!((seen.count, seen.longest.len(), seen.shut), (3000, WorkerStalls::KEPT, 1.0));
        assert_eq!(seen.longest.iter().filter(|stall| stall.to - stall.from == 8 * MS).count(), 999, "the longest are kept");
        assert!(seen.longest.is_sorted_by_key(|stall| stall.to));
    }
}
