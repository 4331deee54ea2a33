//! The connections that workers open before time zero, and the time that this takes.

use crate::run::requests::RequestQueue;
use async_channel::Receiver;
use llmscen_core::endpoint::EndpointSelector;
use llmscen_core::load::{Load, Shape};
use llmscen_core::plan::Case;
use llmscen_core::schedule::shard::Split;
use llmscen_core::schedule::users::{Change, changes};
use llmscen_core::target::Pool;
use llmscen_core::units::Nanos;
use std::time::Duration;

/// Time before time zero in which the workers start, so that the first request is not late.
const START_TIME: Duration = Duration::from_millis(3);
/// Additional time per connection, and its maximum.
const TIME_PER_CONNECTION: Duration = Duration::from_micros(150);
const MAX_CONNECT_TIME: Duration = Duration::from_secs(3);

/// Connections that the first requests of a worker need: one per user of a closed loop (with stages: per user at time
/// zero), or one per `queued` request of a burst.
pub fn connections_needed(load: &Load, split: &Split, changes: &[Change], queued: usize) -> u64 {
    let at_start = |change: &&Change| {
        change.more && (change.at == Nanos::ZERO || !matches!(load.shape, Shape::Users { .. }))
    };
    let connections = match load.shape {
        Shape::Burst => (queued as u64).min(
            load.max_in_flight
                .map_or(u64::MAX, |limit| split.shard().share(u64::from(limit.of))),
        ),
        _ => changes.iter().filter(at_start).count() as u64,
    };
    connections.min(
        load.planned()
            .map_or(u64::MAX, |planned| split.local_index(planned)),
    )
}

/// The connections that the workers of a shard open to each URL of a target.
pub struct UrlConnections<'a> {
    pub load: &'a Load,
    pub split: Split,
    pub selector: EndpointSelector,
    /// Number of workers.
    pub workers: usize,
}

impl UrlConnections<'_> {
    /// Connections to each URL of a worker that needs this many. Workers of a closed loop share one queue, so the
    /// worker may take any of the first requests: to no URL it needs more than these have.
    pub fn of_worker(&self, index: usize, connections: u64) -> Vec<u64> {
        let urls = self.selector.count();
        if urls == 1 {
            return vec![connections];
        }
        let own = (0..u64::MAX).filter(|seq| self.split.owns(*seq));
        let first: Vec<u64> = if self.load.shape == Shape::Burst {
            let own = own.skip(index).step_by(self.workers.max(1));
            own.take(connections as usize).collect()
        } else {
            let changes = changes(self.load, self.split.shard(), 0, 1);
            let of_all = connections_needed(self.load, &self.split, &changes, 0);
            own.take(of_all as usize).collect()
        };
        let mut counts = vec![0; urls];
        for seq in first {
            counts[self.selector.select(seq, 0)] += 1;
        }
        counts.iter().map(|count| connections.min(*count)).collect()
    }
}

/// At least the number of connections that all workers of a shard open.
pub fn connections_of_all_workers(case: &Case, split: &Split, request_queue: &RequestQueue) -> u64 {
    let queued = request_queue.queues.iter().map(Receiver::len).sum();
    let changes = changes(&case.load, split.shard(), 0, 1);
    let connections = connections_needed(&case.load, split, &changes, queued);
    let urls = case.target.urls().count().max(1);
    connections.saturating_mul(urls.min(request_queue.queues.len()) as u64)
}

/// Time from now to time zero of a case that opens this many connections first.
pub fn lead_time(case: &Case, connections: u64) -> Duration {
    let connect_time = TIME_PER_CONNECTION
        .saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX))
        .min(MAX_CONNECT_TIME);
    if case.target.pool == Pool::KeepAlive {
        START_TIME + connect_time
    } else {
        START_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::endpoint::{Balance, Endpoints};
    use llmscen_core::load::{AtLimit, MaxInFlight};
    use llmscen_core::schedule::shard::Shard;
    use llmscen_core::seed::Seed;
    use llmscen_core::stage::UserStage;

    #[test]
    fn each_url_gets_the_connections_of_its_first_requests() {
        let urls = ["http://a", "http://b"].map(str::to_owned).to_vec();
        let endpoints = Endpoints::new(urls, Balance::RoundRobin).unwrap();
        let connections = |load: &Load, shard, workers, index, connections| {
            let plan = UrlConnections {
                load,
                split: Split::new(shard, &load.shape),
                selector: EndpointSelector::new(Some(&endpoints), Seed(1)),
                workers,
            };
            plan.of_worker(index, connections)
        };
        let whole = Shard::default();
        let users = Load::new(Shape::Closed { users: 7 });
        assert_eq!(connections(&users, whole, 1, 0, 7), [4, 3]);
        // Each of two workers may take any three or four of the seven first requests.
        assert_eq!(connections(&users, whole, 2, 0, 4), [4, 3]);
        assert_eq!(connections(&users, whole, 2, 1, 3), [3, 3]);
        // Users 1, 3 and 5 send the requests 1, 3 and 5.
        let other = Shard { index: 1, count: 2 };
        assert_eq!(connections(&users, other, 1, 0, 3), [0, 3]);
        // The requests of a burst are dealt to the workers: 0, 3, 6, 9 to the first.
        let burst = Load::new(Shape::Burst);
        assert_eq!(connections(&burst, whole, 3, 0, 4), [2, 2]);
        assert_eq!(connections(&burst, whole, 2, 0, 4), [4, 0]);
    }

    #[test]
    fn each_user_needs_a_connection_and_a_burst_one_per_request() {
        let load = |shape, spread| Load {
            requests: Some(9),
            max_in_flight: Some(MaxInFlight {
                of: 3,
                then: AtLimit::Drop,
            }),
            spread,
            ..Load::new(shape)
        };
        let due_on = |shard, load: &Load, worker| {
            let split = Split::new(shard, &load.shape);
            connections_needed(load, &split, &changes(load, shard, worker, 2), 5)
        };
        let due = |load: &Load, worker| due_on(Shard::default(), load, worker);
        let users = load(Shape::Closed { users: 7 }, Nanos::ZERO);
        assert_eq!((due(&users, 0), due(&users, 1)), (4, 3));
        let spread = load(Shape::Closed { users: 7 }, Nanos(1000));
        assert_eq!((due(&spread, 0), due(&spread, 1)), (4, 3));
        let stage = |from, to| UserStage {
            from,
            to,
            span: Nanos(1000),
        };
        let ramp = load(
            Shape::Users {
                stages: [stage(2, 9)].into(),
            },
            Nanos::ZERO,
        );
        assert_eq!((due(&ramp, 0), due(&ramp, 1)), (1, 1));
        assert_eq!(
            due(&load(Shape::Burst, Nanos::ZERO), 0),
            3,
            "no more than max_in_flight"
        );
        // Users 1, 3 and 5, and one of three requests in flight.
        let other = Shard { index: 1, count: 2 };
        assert_eq!((due_on(other, &users, 0), due_on(other, &users, 1)), (2, 1));
        let burst = load(Shape::Burst, Nanos::ZERO);
        assert_eq!(due_on(Shard { index: 0, count: 2 }, &burst, 0), 1);
    }
}
