//! Start and end times of closed-loop users.
//!
//! A ramp from a to b users over d has n = |b − a| steps, the j-th at (j − ½)·d/n, so that the number of users is the
//! straight line rounded to the nearest integer.

use crate::load::{Load, Shape};
use crate::schedule::shard::Shard;
use crate::stage::{UserStage, bounds};
use crate::units::Nanos;

/// One user starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Time of the change.
    pub at: Nanos,
    /// Whether a user starts; otherwise one ends.
    pub more: bool,
}

/// The changes for one of the `lanes` workers of a shard, in order; none for an open loop. User k, counted from 0,
/// runs on shard k mod N, there on worker (k / N) mod `lanes`, and the last user to start is the first to end. At any
/// time the numbers of users of the shards differ by at most one, so do those of a shard's workers, and all sum up to
/// the requested number.
pub fn changes(load: &Load, shard: Shard, lane: u32, lanes: u32) -> Vec<Change> {
    let mut users = 0u32;
    let change = |(at, more): (Nanos, bool)| {
        let user = if more { users } else { users.saturating_sub(1) };
        users = if more { users + 1 } else { user };
        let shards = shard.count.max(1);
        let is_own = user % shards == shard.index && user / shards % lanes.max(1) == lane;
        is_own.then_some(Change { at, more })
    };
    match &load.shape {
        Shape::Closed { users: count } => starts(*count, load.spread).filter_map(change).collect(),
        Shape::Static { batch } => starts(*batch, Nanos::ZERO).filter_map(change).collect(),
        Shape::Users { stages } => steps(stages).into_iter().filter_map(change).collect(),
        Shape::Open { .. }
        | Shape::Burst
        | Shape::Replay { .. }
        | Shape::Rates { .. }
        | Shape::Classes { .. } => Vec::new(),
    }
}

/// Evenly spaced starts of `users` users, the first at zero.
fn starts(users: u32, spread: Nanos) -> impl Iterator<Item = (Nanos, bool)> {
    (0..users).map(move |user| (part(spread, 2 * u64::from(user), users), true))
}

fn steps(stages: &[UserStage]) -> Vec<(Nanos, bool)> {
    let (mut steps, mut users) = (Vec::new(), 0);
    for ((start, _), stage) in bounds(stages.iter().map(|stage| stage.span)).zip(stages) {
        let jump = stage.from.abs_diff(users);
        steps.extend((0..jump).map(|_| (start, stage.from > users)));
        let climb = stage.to.abs_diff(stage.from);
        let step = |j: u32| {
            (
                start + part(stage.span, 2 * u64::from(j) - 1, climb),
                stage.to > stage.from,
            )
        };
        steps.extend((1..=climb).map(step));
        users = stage.to;
    }
    steps
}

/// `halves` / 2 of the `n`-th part of a span.
fn part(span: Nanos, halves: u64, n: u32) -> Nanos {
    Nanos((u128::from(span.0) * u128::from(halves) / (2 * u128::from(n.max(1)))) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(shape: Shape, spread: u64) -> Load {
        Load {
            spread: Nanos(spread),
            ..Load::new(shape)
        }
    }

    fn stages(stages: &[(u32, u32, u64)]) -> Load {
        let stages = stages.iter().map(|&(from, to, span)| UserStage {
            from,
            to,
            span: Nanos(span),
        });
        load(
            Shape::Users {
                stages: stages.collect(),
            },
            0,
        )
    }

    fn list_changes(load: &Load, lane: u32, lanes: u32) -> Vec<(u64, bool)> {
        changes(load, Shard::default(), lane, lanes)
            .into_iter()
            .map(|change| (change.at.0, change.more))
            .collect()
    }

    #[test]
    fn users_start_evenly_over_a_spread() {
        let four = |spread| list_changes(&load(Shape::Closed { users: 4 }, spread), 0, 1);
        assert_eq!(four(100), [(0, true), (25, true), (50, true), (75, true)]);
        assert_eq!(four(0), [(0, true); 4]);
    }

    #[test]
    fn a_ramp_steps_where_the_line_passes_the_half() {
        assert_eq!(
            list_changes(&stages(&[(1, 3, 100)]), 0, 1),
            [(0, true), (25, true), (75, true)]
        );
        let spike = stages(&[(1, 1, 10), (3, 3, 10), (2, 0, 10)]);
        let known = [
            (0, true),
            (10, true),
            (10, true),
            (20, false),
            (22, false),
            (27, false),
        ];
        assert_eq!(list_changes(&spike, 0, 1), known);
    }

    #[test]
    fn shards_and_their_workers_share_users_evenly() {
        let profile = stages(&[(4, 64, 1000), (7, 7, 10), (9, 0, 500), (0, 5, 50)]);
        let all = list_changes(&profile, 0, 1);
        let lanes = 3;
        for count in 1..=5 {
            for at in all.iter().map(|change| change.0) {
                let users = |changes: Vec<Change>| {
                    let due = changes.iter().filter(|change| change.at.0 <= at);
                    due.map(|change| if change.more { 1 } else { -1 })
                        .sum::<i64>()
                };
                let total = users(changes(&profile, Shard::default(), 0, 1));
                let shards: Vec<i64> = (0..count)
                    .map(|index| {
                        let shard = Shard { index, count };
                        let workers: Vec<i64> = (0..lanes)
                            .map(|lane| users(changes(&profile, shard, lane, lanes)))
                            .collect();
                        assert!(
                            workers[0] - workers[2] <= 1 && workers.is_sorted_by(|a, b| a >= b)
                        );
                        workers.iter().sum()
                    })
                    .collect();
                assert_eq!(shards.iter().sum::<i64>(), total, "{count} shards at {at}");
                assert!(
                    shards[0] - shards[shards.len() - 1] <= 1 && shards.is_sorted_by(|a, b| a >= b)
                );
            }
        }
    }

    #[test]
    fn workers_share_users_evenly() {
        let profile = stages(&[(4, 64, 1000), (7, 7, 10), (9, 0, 500), (0, 5, 50)]);
        let all = list_changes(&profile, 0, 1);
        for lanes in 1..=5 {
            let mut each: Vec<Vec<(u64, bool)>> = (0..lanes)
                .map(|lane| list_changes(&profile, lane, lanes))
                .collect();
            let mut at: Vec<u64> = all.iter().map(|change| change.0).collect();
            at.dedup();
            let count = |changes: &[(u64, bool)], at: u64| {
                changes
                    .iter()
                    .filter(|change| change.0 <= at)
                    .map(|change| if change.1 { 1i64 } else { -1 })
                    .sum::<i64>()
            };
            for at in at {
                let counts: Vec<i64> = each.iter().map(|changes| count(changes, at)).collect();
                assert_eq!(
                    counts.iter().sum::<i64>(),
                    count(&all, at),
                    "{lanes} lanes at {at}"
                );
                assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
            }
            let total: usize = each.iter().map(Vec::len).sum();
            assert_eq!(
                (
                    total,
                    each.iter_mut()
                        .all(|changes| changes.is_sorted_by_key(|change| change.0))
                ),
                (all.len(), true)
            );
        }
    }
}
