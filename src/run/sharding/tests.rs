//! Groups of threads as shards, in virtual time.

mod memory_store;
mod virtual_time;

use super::*;
use crate::run::stop::Level;
use crate::store::shared_store::SharedStore;
use llmscen_core::early_stop::Aborted;
use memory_store::{Memory, MemoryStore};
use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tempfile::TempDir;
use virtual_time::{VirtualClock, World};

const SECOND: u64 = 1_000_000_000;
const LEAD: Duration = Duration::from_millis(500);

/// One shard of a test, on its own thread.
struct Bed {
    settings: GroupSettings,
    clock: Arc<VirtualClock>,
    memory: Arc<Memory>,
    folder: Arc<TempDir>,
}

/// What a shard saw of one round.
#[derive(Debug)]
struct Seen {
    start: GroupStart,
    /// World time of its time zero.
    zero: i64,
    level: Level,
    gathered: Option<GroupRound>,
    /// World time when the switch was seen, or the round ended.
    ended: u64,
}

struct Lab {
    world: Arc<World>,
    memory: Arc<Memory>,
    folder: Arc<TempDir>,
    count: u32,
}

impl Lab {
    fn new(count: u32) -> Lab {
        Lab {
            world: Arc::default(),
            memory: Arc::default(),
            folder: Arc::new(tempfile::tempdir().unwrap()),
            count,
        }
    }

    fn bed(&self, index: u32) -> Bed {
        self.bed_with(index, |_, _| ())
    }

    fn bed_with(
        &self,
        index: u32,
        change: impl FnOnce(&mut VirtualClock, &mut MemoryStoreFaults),
    ) -> Bed {
        // Every process counts from its own start.
        let mut clock = VirtualClock::new(&self.world, -i64::from(index + 1) * 7_000_003);
        let mut faults = MemoryStoreFaults::default();
        change(&mut clock, &mut faults);
        let clock = Arc::new(clock);
        let store = MemoryStore {
            memory: self.memory.clone(),
            clock: clock.clone(),
            write_delay: faults.write_delay,
            read_delay: faults.read_delay,
            truncated: faults.truncated,
            bucket: faults.bucket,
        };
        let mut plan = PlanDigest::new("plan-1", "1.0.0");
        plan.add_case("c=1");
        let settings = GroupSettings {
            shard: Shard::new(index, self.count).unwrap(),
            store: Arc::new(store),
            wait: Duration::from_secs(60),
            nonce: format!("nonce-{index}"),
            clock: clock.clone(),
            stop: Stop::default(),
            hello: HostFacts {
                host: format!("host-{index}"),
                boot_id: Some("boot".into()),
                cores: 4,
            },
            plan,
        };
        Bed {
            settings,
            clock,
            memory: self.memory.clone(),
            folder: self.folder.clone(),
        }
    }

    fn spawn<T: Send + 'static>(
        &self,
        bed: Bed,
        work: impl FnOnce(Bed) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.world.spawn(move || work(bed))
    }

    /// Runs all shards with the same work.
    fn run<T: Send + 'static>(&self, work: fn(Bed) -> T) -> Vec<T> {
        let threads = (0..self.count).map(|index| self.spawn(self.bed(index), work));
        self.finish(threads.collect())
    }

    fn finish<T>(&self, threads: Vec<JoinHandle<T>>) -> Vec<T> {
        self.world.start();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    }
}

#[derive(Default)]
struct MemoryStoreFaults {
    write_delay: Duration,
    read_delay: Duration,
    truncated: usize,
    bucket: bool,
}

fn planned(round: u32) -> NextRound {
    NextRound {
        case: 1,
        round,
        probe_share: Some(0.25),
        row_marks: vec![3, 9],
    }
}

impl Bed {
    fn index(&self) -> u32 {
        self.settings.shard.index
    }

    fn join(self) -> Result<(ShardGroup, Arc<VirtualClock>, Arc<TempDir>), ShardingError> {
        let Bed {
            settings,
            clock,
            folder,
            ..
        } = self;
        Ok((ShardGroup::join(settings)?, clock, folder))
    }

    /// Rounds of 60 s. `at`: called each 100 ms of a round with the seconds since the start of the world.
    fn rounds_with(
        self,
        rounds: u32,
        decide: fn() -> Option<Decide>,
        mut at: impl FnMut(u64, &VirtualClock, &Stop) -> bool,
    ) -> Result<Vec<Seen>, ShardingError> {
        let index = self.index();
        let run_stop = self.settings.stop.clone();
        let (mut group, clock, folder) = self.join()?;
        let mut seen = Vec::new();
        for round in 0.. {
            let next = (index == 0 && round < rounds).then(|| planned(round));
            let Some(next) = group.agree_on_next(next)? else {
                break;
            };
            assert_eq!(next, planned(round));
            let start = group.start_round(LEAD)?;
            let stop = run_stop.child();
            let counts = RoundCounts {
                done: u64::from(index) + 1,
                ..RoundCounts::default()
            };
            group.watch_round(stop.clone(), Arc::new(Mutex::new(counts)), decide());
            while stop.level() == Level::Run
                && clock.now() < start.zero + Nanos::from_millis(60_000)
            {
                clock.sleep(Duration::from_millis(100));
                if !at(clock.world.now() / SECOND, &clock, &run_stop) {
                    std::mem::forget(group);
                    return Ok(seen);
                }
            }
            let level = stop.level();
            let ended = clock.world.now();
            let path = folder.path().join(format!("local-{index}-{round}.parquet"));
            fs::write(&path, format!("rows of shard {index} in round {round}")).unwrap();
            group.finish_round(&RoundOutput {
                files: vec![("rows".into(), path)],
                row_count: 10,
                part: Part::default(),
            })?;
            let gathered = group.gather_round(folder.path())?;
            seen.push(Seen {
                start,
                zero: clock.in_world(start.zero),
                level,
                gathered,
                ended,
            });
        }
        group.leave(RunEnd {
            success: true,
            reason: String::new(),
        });
        Ok(seen)
    }

    fn rounds(self, rounds: u32) -> Result<Vec<Seen>, ShardingError> {
        self.rounds_with(rounds, || None, |_, _, _| true)
    }
}

fn text<T: std::fmt::Debug>(result: &Result<T, ShardingError>) -> String {
    result.as_ref().unwrap_err().to_string()
}

#[test]
fn all_rounds_start_at_one_time_zero_and_are_gathered() {
    for count in [1, 2, 4, 16] {
        let lab = Lab::new(count);
        let results = lab.run(|bed| bed.rounds(2).unwrap());
        for round in 0..2 {
            let zeros: Vec<i64> = results.iter().map(|seen| seen[round].zero).collect();
            assert_eq!(zeros, vec![zeros[0]; count as usize], "{count}");
            assert!(results.iter().all(|seen| !seen[round].start.late));
            assert!(results.iter().all(|seen| seen[round].level == Level::Run));
            let gathered = results[0][round].gathered.as_ref().unwrap();
            assert_eq!(gathered.missing, []);
            assert_eq!(gathered.stops, []);
            let indices: Vec<u32> = gathered.done.iter().map(|shard| shard.index).collect();
            assert_eq!(indices, (0..count).collect::<Vec<_>>());
            assert!(gathered.done.iter().all(|shard| shard.row_count == 10));
        }
        assert!(
            results
                .iter()
                .skip(1)
                .all(|seen| seen[1].gathered.is_none())
        );
        let last = lab
            .folder
            .path()
            .join(format!("rows-{}.parquet", count - 1));
        let expected = format!("rows of shard {} in round 1", count - 1);
        assert_eq!(fs::read_to_string(last).unwrap(), expected);
        // The margin follows the end of the slowest shard's preparation, here none: 1 s and the time to open
        // connections.
        let first = results[0][0].zero;
        assert!((1_500_000_000..1_600_000_000).contains(&first), "{first}");
    }
}

#[test]
fn objects_of_a_bucket_are_read_by_several_threads() {
    let lab = Lab::new(40);
    let threads = (0..40).map(|index| {
        let bed = lab.bed_with(index, |_, faults| faults.bucket = true);
        lab.spawn(bed, |bed| bed.rounds(1).unwrap())
    });
    let results = lab.finish(threads.collect());
    let gathered = results[0][0].gathered.as_ref().unwrap();
    assert_eq!((gathered.done.len(), &*gathered.missing), (40, &[][..]));
    assert!(
        results
            .iter()
            .all(|seen| seen[0].zero == results[0][0].zero)
    );
}

#[test]
fn a_missing_shard_ends_the_join_of_all() {
    let lab = Lab::new(8);
    let beds = [0, 1, 3, 4, 6].map(|index| lab.spawn(lab.bed(index), |bed| bed.rounds(1)));
    for result in lab.finish(beds.into()) {
        assert_eq!(
            text(&result),
            "5 of 8 shards joined within 1 min; missing: 2, 5, 7\n  help: start them, or check \
            that file:///runs/a is one store shared by all hosts"
        );
    }
}

#[test]
fn a_shard_that_joins_late_is_awaited() {
    let lab = Lab::new(2);
    let threads = vec![
        lab.spawn(lab.bed(0), |bed| bed.rounds(1)),
        lab.spawn(lab.bed(1), |bed| {
            bed.clock.sleep(Duration::from_secs(5));
            bed.rounds(1)
        }),
    ];
    let results = lab.finish(threads);
    assert!(results.iter().all(|seen| seen.as_ref().unwrap().len() == 1));
}

#[test]
fn a_shard_that_was_started_twice_is_an_error_of_the_second() {
    let lab = Lab::new(2);
    let second = |mut bed: Bed| {
        bed.settings.nonce = "another".into();
        bed.clock.sleep(Duration::from_millis(1));
        bed.rounds(1)
    };
    let threads = vec![
        lab.spawn(lab.bed(0), |bed| bed.rounds(1)),
        lab.spawn(lab.bed(1), |bed| bed.rounds(1)),
        lab.spawn(lab.bed(1), second),
    ];
    let results = lab.finish(threads);
    let problem = text(&results[2]);
    assert!(
        problem.starts_with("shard 1 was started twice\n"),
        "{problem}"
    );
    assert!(
        results[..2]
            .iter()
            .all(|seen| seen.as_ref().unwrap().len() == 1)
    );
}

#[test]
fn another_hello_is_found_before_a_round() {
    let lab = Lab::new(1);
    let bed = lab.bed(0);
    let threads = vec![lab.spawn(bed, |bed| {
        let memory = bed.memory.clone();
        let (mut group, ..) = bed.join().unwrap();
        let mut objects = memory.objects.lock().unwrap();
        let hello = String::from_utf8(objects["hello/0"].clone()).unwrap();
        // A store without exclusive creation, in which the second process came later.
        objects.insert("hello/0".into(), hello.replace("nonce-0", "other").into());
        drop(objects);
        group.agree_on_next(Some(planned(0))).unwrap();
        group.start_round(LEAD).map(|_| ())
    })];
    assert!(text(&lab.finish(threads)[0]).starts_with("shard 0 was started twice"));
}

#[test]
fn shards_that_differ_are_named_on_both_sides() {
    type Change = fn(&mut Bed);
    let changes: [(Change, &str); 4] = [
        (
            |bed| bed.settings.shard.count = 4,
            "the shards differ in their number: 3 on shards 0 (host-0), 2 (host-2); 4 on shard 1 (host-1)",
        ),
        (
            |bed| bed.settings.plan = PlanDigest::new("plan-1", "1.0.1"),
            "the shards differ in the llmscen version: 1.0.0 on shards 0 (host-0), 2 (host-2); \
            1.0.1 on shard 1 (host-1)",
        ),
        (
            |bed| bed.settings.plan = PlanDigest::new("plan-2", "1.0.0"),
            "the shards differ in the plan: plan-1 on shards 0 (host-0), 2 (host-2); plan-2 on shard 1 (host-1)",
        ),
        (
            |bed| {
                bed.settings.plan.add_request(&ComparedRequest {
                    seq: 0,
                    due: None,
                    body: b"{}",
                });
            },
            "the shards differ in the first requests: ",
        ),
    ];
    for (change, expected) in changes {
        let lab = Lab::new(3);
        let threads = (0..3).map(|index| {
            let mut bed = lab.bed(index);
            if index == 1 {
                change(&mut bed);
            }
            // Shard 0 is last, so that it finds all.
            let start = Duration::from_millis(if index == 0 { 10 } else { 0 });
            lab.spawn(bed, move |bed| {
                bed.clock.sleep(start);
                bed.rounds(1)
            })
        });
        for result in lab.finish(threads.collect()) {
            let problem = text(&result);
            assert!(problem.starts_with(expected), "{problem}");
            assert!(problem.contains("\n  help: "), "{problem}");
        }
        assert!(lab.world.now() < SECOND);
    }
}

#[test]
fn a_failed_preparation_ends_all_at_once() {
    for failed in [0, 2] {
        let lab = Lab::new(3);
        let threads = (0..3).map(|index| {
            lab.spawn(lab.bed(index), move |bed| {
                if bed.index() == failed {
                    bed.clock.sleep(Duration::from_secs(5));
                    ShardGroup::report_failure(&bed.settings, "the dataset has no rows");
                    return None;
                }
                Some(text(&bed.rounds(1)))
            })
        });
        let results = lab.finish(threads.collect());
        let expected =
            format!("shard {failed} (host-{failed}) could not prepare: the dataset has no rows");
        assert_eq!(
            results.into_iter().flatten().collect::<Vec<_>>(),
            [expected.clone(), expected]
        );
        assert!(lab.world.now() < 6 * SECOND);
    }
}

#[test]
fn an_interrupted_shard_ends_the_wait_of_all() {
    for pressed in 0..3 {
        // Shard 3 never joins.
        let lab = Lab::new(4);
        let threads = (0..3).map(|index| {
            lab.spawn(lab.bed(index), move |bed| {
                let world = bed.clock.world.clone();
                if bed.index() == pressed {
                    let stop = bed.settings.stop.clone();
                    let clock = bed.clock.clone();
                    world.spawn(move || {
                        clock.sleep(Duration::from_secs(10));
                        stop.press();
                    });
                }
                (text(&bed.rounds(1)), world.now())
            })
        });
        let results = lab.finish(threads.collect());
        for (index, (problem, ended)) in results.into_iter().enumerate() {
            if index as u32 == pressed {
                assert_eq!(problem, "interrupted while waiting for the other shards");
                assert!(ended < 10 * SECOND + 200_000_000, "{ended}");
            } else {
                // Shard 0 writes for all that it was interrupted.
                assert!(problem.contains("interrupted"), "{problem}");
                assert!(ended < 13 * SECOND, "{ended}");
            }
        }
    }
}

#[test]
fn a_signal_in_a_round_drains_all_shards_and_ends_the_run() {
    for pressed in 0..3 {
        let lab = Lab::new(3);
        let threads = (0..3).map(|index| {
            lab.spawn(lab.bed(index), move |bed| {
                let press = bed.index() == pressed;
                let at = move |now: u64, _: &VirtualClock, stop: &Stop| {
                    if press && now == 20 && stop.level() == Level::Run {
                        stop.press();
                    }
                    true
                };
                bed.rounds_with(3, || None, at).unwrap()
            })
        });
        let results = lab.finish(threads.collect());
        for seen in &results {
            assert_eq!(seen.len(), 1);
            assert_eq!(seen[0].level, Level::Drain);
            assert!(seen[0].ended < 25 * SECOND, "{}", seen[0].ended);
        }
        let gathered = results[0][0].gathered.as_ref().unwrap();
        assert_eq!((gathered.done.len(), gathered.missing.len()), (3, 0));
        let stops: Vec<_> = (gathered.stops.iter())
            .map(|stop| (stop.index, stop.interrupted, &*stop.host))
            .collect();
        assert_eq!(stops, [(pressed, true, &*format!("host-{pressed}"))]);
    }
}

#[test]
fn a_shard_that_dies_in_a_round_is_named_and_ends_the_run() {
    let lab = Lab::new(4);
    let threads = (0..4).map(|index| {
        lab.spawn(lab.bed(index), move |bed| {
            let dies = bed.index() == 2;
            let at = move |now: u64, clock: &VirtualClock, _: &Stop| {
                let dead = dies && now >= 31;
                clock.dead.store(dead, Relaxed);
                !dead
            };
            bed.rounds_with(2, || None, at).unwrap()
        })
    });
    let results = lab.finish(threads.collect());
    let gathered = results[0][0].gathered.as_ref().unwrap();
    let missing = MissingShard {
        index: 2,
        host: "host-2".into(),
        reason: "shard 2 was lost 30 s into the round; its last rows are missing: the load was below plan".into(),
    };
    assert_eq!(gathered.missing, [missing]);
    assert_eq!(
        gathered
            .done
            .iter()
            .map(|shard| shard.index)
            .collect::<Vec<_>>(),
        [0, 1, 3]
    );
    assert_eq!(gathered.stops[0].lost, Some(2));
    for seen in [&results[0], &results[1], &results[3]] {
        assert_eq!((seen.len(), seen[0].level), (1, Level::Drain));
        assert!(seen[0].ended < 45 * SECOND, "{}", seen[0].ended);
    }
}

#[test]
fn without_shard_0_the_others_drain_deliver_and_end_with_an_error() {
    let lab = Lab::new(3);
    let memory = lab.memory.clone();
    let threads = (0..3).map(|index| {
        lab.spawn(lab.bed(index), move |bed| {
            let dies = bed.index() == 0;
            let at = move |now: u64, clock: &VirtualClock, _: &Stop| {
                let dead = dies && now >= 30;
                clock.dead.store(dead, Relaxed);
                !dead
            };
            bed.rounds_with(2, || None, at).map(|_| ())
        })
    });
    let results = lab.finish(threads.collect());
    for result in &results[1..] {
        assert_eq!(
            text(result),
            "shard 0 (host-0) was lost: no heartbeat for 10 s\n  help: the records are stored; \
            `llmscen merge file:///runs/a` makes the report"
        );
    }
    let objects = memory.objects.lock().unwrap();
    assert!(objects.contains_key("done/0/1") && objects.contains_key("rows/0/2.parquet"));
    assert!(lab.world.now() < 45 * SECOND, "{}", lab.world.now());
}

#[test]
fn a_shard_that_stands_still_for_3_s_is_not_lost() {
    for paused in 0..3 {
        let lab = Lab::new(3);
        let threads = (0..3).map(|index| {
            lab.spawn(lab.bed(index), move |bed| {
                let pauses = bed.index() == paused;
                let at = move |now: u64, clock: &VirtualClock, _: &Stop| {
                    if pauses && now == 20 {
                        clock.paused_until.store(23 * SECOND, Relaxed);
                    }
                    true
                };
                bed.rounds_with(1, || None, at).unwrap()
            })
        });
        let results = lab.finish(threads.collect());
        assert!(results.iter().all(|seen| seen[0].level == Level::Run));
        assert_eq!(results[0][0].gathered.as_ref().unwrap().missing, []);
    }
}

#[test]
fn an_outage_of_the_store_in_the_round_has_no_effect() {
    let lab = Lab::new(3);
    // The round runs until 61.5 s, so that the records must wait for the store too.
    *lab.memory.down.lock().unwrap() = Some((10, 70));
    let results = lab.run(|bed| bed.rounds(1).unwrap());
    assert!(results.iter().all(|seen| seen[0].level == Level::Run));
    let gathered = results[0][0].gathered.as_ref().unwrap();
    assert_eq!(
        (gathered.done.len(), &*gathered.missing, &*gathered.stops),
        (3, &[][..], &[][..])
    );
}

#[test]
fn after_too_long_an_outage_the_error_names_the_local_records() {
    let lab = Lab::new(2);
    *lab.memory.down.lock().unwrap() = Some((10, 1000));
    let folder = lab.folder.path().display().to_string();
    for (index, result) in lab.run(|bed| bed.rounds(1)).iter().enumerate() {
        assert_eq!(
            text(result),
            format!(
                "cannot store the records of shard {index} at file:///runs/a within 1 min: cannot \
                use file:///runs/a: no route to host; check the network\n  help: they are in \
                {folder}; once the store works: `llmscen merge file:///runs/a --rows {folder}`"
            )
        );
    }
}

#[test]
fn records_that_differ_from_their_description_are_missing() {
    let lab = Lab::new(2);
    let threads = vec![
        lab.spawn(lab.bed(0), |bed| bed.rounds(2).unwrap()),
        lab.spawn(lab.bed_with(1, |_, faults| faults.truncated = 3), |bed| {
            bed.rounds(2).unwrap()
        }),
    ];
    let results = lab.finish(threads);
    let gathered = results[0][0].gathered.as_ref().unwrap();
    assert_eq!(gathered.done.len(), 1);
    let reason = &gathered.missing[0].reason;
    assert_eq!(
        reason,
        "shard 1: rows/0/1.parquet was altered or truncated: its size differs; its last rows are \
        missing: the load was below plan"
    );
    assert_eq!((results[0].len(), results[1].len()), (1, 1));
}

#[test]
fn an_early_stop_of_shard_0_drains_the_round_of_all_but_not_the_run() {
    let lab = Lab::new(3);
    let decide: fn() -> Option<Decide> = || {
        Some(Box::new(|counts| {
            let done: Vec<u64> = counts.values().map(|counts| counts.done).collect();
            (done == [1, 2, 3]).then(|| EarlyStop::Aborted(Aborted::default()))
        }))
    };
    let threads = (0..3).map(|index| {
        lab.spawn(lab.bed(index), move |bed| {
            let decide = if bed.index() == 0 { decide } else { || None };
            bed.rounds_with(2, decide, |_, _, _| true).unwrap()
        })
    });
    let results = lab.finish(threads.collect());
    for seen in &results {
        let levels: Vec<Level> = seen.iter().map(|seen| seen.level).collect();
        assert_eq!(levels, [Level::Drain; 2]);
        let lasted = seen[0].ended as i64 - seen[0].zero;
        assert!(lasted < 6_000_000_000, "{lasted}");
    }
    let gathered = results[0][0].gathered.as_ref().unwrap();
    assert_eq!(
        gathered.stops[0].early_stop,
        Some(EarlyStop::Aborted(Aborted::default()))
    );
    assert_eq!((gathered.done.len(), gathered.missing.len()), (3, 0));
}

/// A shard on another kernel, whose clocks are related to shard 0 by messages only.
fn on_own_kernel(lab: &Lab, index: u32, skew_ms: i64, write_ms: u64, read_ms: u64) -> Bed {
    let mut bed = lab.bed_with(index, |clock, faults| {
        clock.kernel += u64::from(index) * 1_234_567_890;
        clock.skew.store(skew_ms * 1_000_000, Relaxed);
        faults.write_delay = Duration::from_millis(write_ms);
        faults.read_delay = Duration::from_millis(read_ms);
    });
    bed.settings.hello.boot_id = Some(format!("boot-{index}"));
    bed
}

#[test]
fn the_exchange_bounds_the_offset_of_unsynchronized_clocks() {
    for (skew_ms, write_ms, read_ms) in [(200, 0, 0), (-200, 30, 1), (200, 2, 45), (0, 8, 3)] {
        let lab = Lab::new(2);
        let threads = vec![
            lab.spawn(on_own_kernel(&lab, 0, 0, 1, 1), |bed| {
                bed.rounds(2).unwrap()
            }),
            lab.spawn(on_own_kernel(&lab, 1, skew_ms, write_ms, read_ms), |bed| {
                bed.rounds(2).unwrap()
            }),
        ];
        let results = lab.finish(threads);
        for (first, other) in results[0].iter().zip(&results[1]) {
            let done = &first.gathered.as_ref().unwrap().done[1];
            let offset = done.offset;
            assert_eq!(offset.source, OffsetSource::Exchange);
            let error = (offset.offset_ns - skew_ms * 1_000_000).unsigned_abs();
            assert!(error <= offset.bound_ns, "{skew_ms}: {offset:?}");
            assert!(offset.bound_ns < 50_000_000, "{skew_ms}: {offset:?}");
            assert_eq!(offset.offset_ns == 0, skew_ms == 0);
            assert_eq!(done.clock_step_ns, None);
            let apart = (first.zero - other.zero).unsigned_abs();
            assert!(apart <= offset.bound_ns, "{apart} {offset:?}");
        }
    }
}

#[test]
fn synchronized_kernels_are_related_by_their_wall_clocks() {
    let lab = Lab::new(2);
    let synchronized = |index, skew_ms: i64| {
        let mut bed = lab.bed_with(index, |clock, _| {
            clock.skew.store(skew_ms * 1_000_000, Relaxed);
            clock.error_ns = Some(3_000_000);
        });
        bed.settings.hello.boot_id = None;
        bed
    };
    let threads = vec![
        lab.spawn(synchronized(0, 0), |bed| bed.rounds(1).unwrap()),
        lab.spawn(synchronized(1, 4), |bed| {
            let at = |now: u64, clock: &VirtualClock, _: &Stop| {
                if now == 30 {
                    clock.skew.store(54_000_000, Relaxed);
                }
                true
            };
            bed.rounds_with(1, || None, at).unwrap()
        }),
    ];
    let results = lab.finish(threads);
    let done = &results[0][0].gathered.as_ref().unwrap().done;
    let kernel = |bound_ns| ClockOffset {
        offset_ns: 0,
        bound_ns,
        source: OffsetSource::Kernel,
    };
    assert_eq!(
        (done[0].offset, done[1].offset),
        (kernel(0), kernel(6_000_000))
    );
    // Its wall clock is 4 ms ahead, so that its time zero is as much earlier, and steps by 50 ms in the round.
    assert_eq!(results[0][0].zero - results[1][0].zero, 4_000_000);
    assert_eq!(
        (done[0].clock_step_ns, done[1].clock_step_ns),
        (None, Some(50_000_000))
    );
}

#[test]
fn a_process_that_stood_still_in_the_round_shows_as_a_clock_step() {
    let interval = |least, greatest| OffsetInterval { least, greatest };
    let before = interval(-1_000_000, 1_000_000);
    let round = Nanos::from_millis(60_000);
    let step = |least, greatest| delivery::find_step(&before, interval(least, greatest), round);
    // 60 s allow a drift of 6 ms.
    assert_eq!(step(7_000_000, 9_000_000), None);
    assert_eq!(step(7_000_002, 9_000_000), Some(8_000_001));
    assert_eq!(step(-9_000_000, -7_000_002), Some(-8_000_001));
}

#[test]
fn a_late_reader_says_so_and_the_next_margin_doubles() {
    let lab = Lab::new(2);
    let slow = lab.bed_with(1, |_, faults| {
        faults.read_delay = Duration::from_millis(1200)
    });
    let threads = vec![
        lab.spawn(lab.bed(0), |bed| bed.rounds(3).unwrap()),
        lab.spawn(slow, |bed| bed.rounds(3).unwrap()),
    ];
    let results = lab.finish(threads);
    let late: Vec<bool> = results[1].iter().map(|seen| seen.start.late).collect();
    let reported = results[0]
        .iter()
        .map(|seen| seen.gathered.as_ref().unwrap().done[1].late);
    assert_eq!(reported.collect::<Vec<_>>(), late);
    assert!(late[0] && !late[2], "{late:?}");
    assert!(results[0].iter().all(|seen| !seen.start.late));
}

#[test]
fn fields_of_later_builds_are_ignored_and_other_objects_are_errors() {
    let lab = Lab::new(2);
    let threads = vec![lab.spawn(lab.bed(1), |bed| {
        let memory = bed.memory.clone();
        let put = |key: &str, text: &str| {
            memory.objects.lock().unwrap().insert(key.into(), text.into());
        };
        let member = |host| format!(r#"{{"facts":{{"host":"{host}","cores":1,"gpus":8}},"clock":{{"now":0,"monotonic_ns":0,"unix_ns":0}},"later":1}}"#);
        put("members", &format!(r#"{{"nonce":"n","members":[{},{}],"later":{{}}}}"#, member("a"), member("b")));
        put("next/0", r#"{"nonce":"n","round":{"case":4,"round":2,"later":[1]}}"#);
        put("next/1", "{");
        let (mut group, ..) = bed.join().unwrap();
        let next = group.agree_on_next(None).unwrap().unwrap();
        assert_eq!((next.case, next.round, group.spans_hosts()), (4, 2, true));
        group.next = 1;
        text(&group.agree_on_next(None))
    })];
    let problem = lab.finish(threads).remove(0);
    assert!(
        problem.starts_with("cannot read next/1 at file:///runs/a: EOF"),
        "{problem}"
    );
}

#[test]
fn an_error_of_shard_0_ends_the_others() {
    let lab = Lab::new(2);
    let threads = (0..2).map(|index| {
        lab.spawn(lab.bed(index), |bed| {
            if bed.index() > 0 {
                return text(&bed.rounds(1));
            }
            let (mut group, ..) = bed.join().unwrap();
            group.agree_on_next(Some(planned(0))).unwrap();
            group.leave(RunEnd {
                success: false,
                reason: "the server exited".into(),
            });
            String::new()
        })
    });
    let results = lab.finish(threads.collect());
    assert_eq!(results[1], "shard 0 ended the run: the server exited");
}

#[test]
fn the_digest_covers_the_plan_and_its_requests() {
    let digest = |case: &str, seq, due, body: &[u8]| {
        let mut digest = PlanDigest::new("plan", "1");
        digest.add_case(case);
        digest.add_request(&ComparedRequest { seq, due, body });
        digest.finish()
    };
    let base = digest("a", 1, Some(Nanos(5)), b"{}");
    assert_eq!(base.len(), 64);
    let others = [
        digest("b", 1, Some(Nanos(5)), b"{}"),
        digest("a", 2, Some(Nanos(5)), b"{}"),
        digest("a", 1, Some(Nanos(6)), b"{}"),
        digest("a", 1, None, b"{}"),
        digest("a", 1, Some(Nanos(5)), b"{ }"),
    ];
    assert!(others.iter().all(|other| *other != base));
    assert_eq!(compared_numbers(Some(3)), [0, 1, 2]);
    assert_eq!(compared_numbers(Some(40)), (0..40).collect::<Vec<_>>());
    let spread = compared_numbers(Some(1_000_000));
    assert_eq!((spread.len(), spread[31], spread[63]), (64, 31, 999_999));
    assert!(spread.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(compared_numbers(None).last(), Some(&4095));
}

#[test]
fn a_group_runs_on_a_real_folder_and_clock() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}", folder.path().display());
    let lab = Lab::new(3);
    let shard = |index: u32| {
        let store = SharedStore::open(&url, "run-1", &BTreeMap::new()).unwrap();
        let mut bed = lab.bed(index);
        bed.settings.store = Arc::new(store);
        bed.settings.clock = Arc::new(SystemClock::new(Instant::now()));
        thread::spawn(move || {
            let origin = bed.settings.clock.read();
            let (mut group, _, local) = bed.join().unwrap();
            group
                .agree_on_next((index == 0).then(|| planned(0)))
                .unwrap();
            let start = group.start_round(Duration::ZERO).unwrap();
            let path = local.path().join(format!("local-{index}.parquet"));
            fs::write(&path, [index as u8; 100]).unwrap();
            let output = RoundOutput {
                files: vec![("rows".into(), path)],
                row_count: 1,
                part: Part::default(),
            };
            group.finish_round(&output).unwrap();
            let gathered = group.gather_round(local.path()).unwrap();
            assert_eq!(group.agree_on_next(None).unwrap(), None);
            group.leave(RunEnd {
                success: true,
                reason: String::new(),
            });
            // On the monotonic clock of the kernel.
            (
                origin.monotonic_origin() + start.zero.0 as i64,
                start.late,
                gathered,
            )
        })
    };
    let threads: Vec<_> = (0..3).map(shard).collect();
    let results: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    for (zero, late, _) in &results {
        // Reading the clocks takes some time.
        assert!(
            zero.abs_diff(results[0].0) < 1_000_000,
            "{zero} {}",
            results[0].0
        );
        assert!(!late);
    }
    let gathered = results[0].2.as_ref().unwrap();
    let contents = gathered
        .done
        .iter()
        .map(|shard| fs::read(&shard.files[0].1).unwrap());
    assert_eq!(
        contents.collect::<Vec<_>>(),
        [vec![0; 100], vec![1; 100], vec![2; 100]]
    );
}

#[test]
fn at_the_barrier_a_signal_ends_the_wait_and_a_shard_that_is_not_ready_is_named() {
    for pressed in [Some(0), Some(1), None] {
        let lab = Lab::new(3);
        let threads = (0..3).map(|index| {
            lab.spawn(lab.bed(index), move |bed| {
                let (world, clock, stop) = (
                    bed.clock.world.clone(),
                    bed.clock.clone(),
                    bed.settings.stop.clone(),
                );
                let (mut group, ..) = bed.join().unwrap();
                group
                    .agree_on_next((index == 0).then(|| planned(0)))
                    .unwrap();
                if index == 2 {
                    clock.sleep(Duration::from_secs(90));
                }
                if pressed == Some(index) {
                    world.spawn(move || {
                        clock.sleep(Duration::from_secs(10));
                        stop.press();
                    });
                }
                let problem = text(&group.start_round(LEAD));
                (problem, world.now())
            })
        });
        let results = lab.finish(threads.collect());
        for (index, (problem, ended)) in results.iter().take(2).enumerate() {
            let (expected, limit) = match pressed {
                Some(pressed) if pressed as usize == index => ("interrupted while waiting", 10_100),
                Some(1) => ("shard 1 (host-1) ended the run: interrupted", 13_000),
                Some(_) => ("shard 0 ", 13_000),
                None if index == 0 => (
                    "2 of 3 shards were ready for round 1 within 1 min; missing: 2",
                    61_000,
                ),
                None => ("shard 0 ended the run: it ended with an error", 62_000),
            };
            assert!(problem.starts_with(expected), "{problem}");
            assert!(*ended < limit * 1_000_000, "{ended} {problem}");
        }
    }
}

#[test]
fn a_folder_that_shows_objects_late_is_noted() {
    for (write_s, expected) in [
        (4, vec![]),
        (
            6,
            vec![
                "an object at file:///runs/a became visible after 6 s; mount the folder with `lookupcache=positive`",
            ],
        ),
    ] {
        let lab = Lab::new(2);
        let notes = |bed: Bed| {
            let first = (bed.index() == 0).then(|| planned(0));
            let (mut group, ..) = bed.join().unwrap();
            group.agree_on_next(first).unwrap();
            group.start_round(LEAD).unwrap();
            let notes = group.notes();
            group.leave(RunEnd {
                success: true,
                reason: String::new(),
            });
            notes
        };
        let slow = lab.bed_with(1, |_, faults| {
            faults.write_delay = Duration::from_secs(write_s)
        });
        let threads = vec![lab.spawn(lab.bed(0), notes), lab.spawn(slow, notes)];
        assert_eq!(lab.finish(threads), [expected, vec![]]);
    }
}
