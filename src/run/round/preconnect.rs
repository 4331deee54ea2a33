//! What happens before time zero: workers start, and open the connections that are needed then.

use crate::run::requests::RequestQueue;
use async_channel::Receiver;
use llmscen_core::load::{Load, Shape};
use llmscen_core::plan::Case;
use llmscen_core::schedule::users::{Change, changes};
use llmscen_core::target::Pool;
use llmscen_core::units::Nanos;
use std::time::Duration;

/// Between the decision to start and time zero: workers start meanwhile, so that none is late for the first instant.
const LEAD: Duration = Duration::from_millis(3);
/// What each connection that is needed then adds to it, and all of them at the most.
const EACH: Duration = Duration::from_micros(150);
const MOST: Duration = Duration::from_secs(3);

/// Connections of a worker that its first requests will need: one for each user of a closed loop, of stages one for each user of
/// the beginning, or one for each of the `queued` requests of a burst.
pub fn connections_needed(load: &Load, changes: &[Change], queued: usize) -> u64 {
    let begins = |change: &&Change| change.more && (change.at == Nanos::ZERO || !matches!(load.shape, Shape::Users { .. }));
    let connections = match load.shape {
        Shape::Burst => (queued as u64).min(load.max_in_flight.map_or(u64::MAX, u64::from)),
        _ => changes.iter().filter(begins).count() as u64,
    };
    connections.min(load.planned().unwrap_or(u64::MAX))
}

/// The same of a case over all of its workers, whose queues hold what is in them by now.
pub fn connections_needed_in_all(case: &Case, request_queue: &RequestQueue) -> u64 {
    let queued = request_queue.queues.iter().map(Receiver::len).sum();
    connections_needed(&case.load, &changes(&case.load, 0, 1), queued)
}

/// Time from now to time zero of a case that needs so many connections then.
pub fn lead_time(case: &Case, connections: u64) -> Duration {
    let each = EACH.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX)).min(MOST);
    if case.target.pool == Pool::KeepAlive { LEAD + each } else { LEAD }
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmscen_core::stage::UserStage;

    #[test]
    fn users_need_one_each_and_a_burst_all_of_them() {
        let load = |shape, spread| Load { requests: Some(9), max_in_flight: Some(3), spread, ..Load::bare(shape) };
        let due = |load: &Load, worker| connections_needed(load, &changes(load, worker, 2), 5);
        let users = load(Shape::Closed { users: 7 }, Nanos::ZERO);
        assert_eq!((due(&users, 0), due(&users, 1)), (4, 3));
        let spread = load(Shape::Closed { users: 7 }, Nanos(1000));
        assert_eq!((due(&spread, 0), due(&spread, 1)), (4, 3));
        let stage = |from, to| UserStage { from, to, span: Nanos(1000) };
        let ramp = load(Shape::Users { stages: [stage(2, 9)].into() }, Nanos::ZERO);
        assert_eq!((due(&ramp, 0), due(&ramp, 1)), (1, 1));
        assert_eq!(due(&load(Shape::Burst, Nanos::ZERO), 0), 3, "no more than max_in_flight");
    }
}
