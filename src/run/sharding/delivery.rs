//! The end of a round: each shard delivers its records, and shard 0 gathers them.

use crate::run::sharding::clock::{OffsetInterval, OffsetSource};
use crate::run::sharding::error::{ShardingError, format_wait};
use crate::run::sharding::exchange::{Responder, exchange};
use crate::run::sharding::messages::{DeliveredFile, Delivery};
use crate::run::sharding::{
    GroupRound, MissingShard, RoundOutput, RunningRound, ShardDone, ShardGroup,
};
use crate::run::stop::Level;
use crate::store::checksums::sha256;
use crate::store::shared_store::{Objects, SharedStoreError};
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Pauses between attempts to read a delivery that is incomplete.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Two clocks drift apart by at most this share of the time, without a step of either.
const GREATEST_DRIFT: f64 = 1e-4;
/// A wall clock that moves by less against the monotonic one has not stepped.
const LEAST_STEP_NS: u64 = 1_000_000;

impl ShardGroup {
    pub(super) fn deliver(
        &self,
        round: &RunningRound,
        output: &RoundOutput,
    ) -> Result<(), ShardingError> {
        let settings = &self.access.settings;
        let mut files = BTreeMap::new();
        for (name, path) in &output.files {
            let (sha256, size) = digest_file(path)?;
            let key = object_key(name, round.number, self.access.index(), path);
            self.access
                .retry(Level::Now, || settings.store.upload(&key, path))?;
            files.insert(name.clone(), DeliveredFile { key, sha256, size });
        }
        let delivery = Delivery {
            nonce: settings.nonce.clone(),
            host: settings.hello.host.clone(),
            part: output.part.clone(),
            row_count: output.row_count,
            files,
            offset: round.offset,
            late: round.late,
            clock_step_ns: self.find_clock_step(round),
        };
        let key = format!("done/{}/{}", round.number, self.access.index());
        self.access.create(Level::Now, &key, &delivery)
    }

    /// The same with an error that names the local files.
    pub(super) fn deliver_or_explain(
        &self,
        round: &RunningRound,
        output: &RoundOutput,
    ) -> Result<(), ShardingError> {
        self.deliver(round, output).map_err(|error| match error {
            ShardingError::Store(why) => ShardingError::NotDelivered {
                index: self.access.index(),
                url: self.access.settings.store.url(),
                why,
                folder: (output.files.first())
                    .and_then(|(_, path)| path.parent())
                    .map(PathBuf::from)
                    .unwrap_or_default(),
                wait: self.access.settings.wait,
            },
            error => error,
        })
    }

    /// By how much the clock that time zero was converted with has changed during the round.
    fn find_clock_step(&self, round: &RunningRound) -> Option<i64> {
        let now = self.access.settings.clock.read();
        match round.offset.source {
            OffsetSource::BootId => None,
            OffsetSource::Kernel => {
                let step = now.unix_origin() - round.clock.unix_origin();
                let bound = round.offset.bound_ns.max(LEAST_STEP_NS);
                (step.unsigned_abs() > bound).then_some(step)
            }
            OffsetSource::Exchange => {
                let limit = self.access.now() + self.access.settings.wait.into();
                let name = format!("{}-end", round.number);
                let end = exchange(&self.access, &self.monitor, &name, Some(limit)).ok()?;
                let elapsed = end.own.now.since(round.clock.now);
                find_step(&round.interval, end.interval, elapsed)
            }
        }
    }

    pub(super) fn gather(
        &self,
        round: &RunningRound,
        folder: &Path,
    ) -> Result<GroupRound, ShardingError> {
        let access = &self.access;
        let begin = access.now();
        let mut responder = Responder::new(
            format!("{}-end", round.number),
            self.exchanging_shards(),
            begin,
        );
        let mut pending: BTreeMap<u32, Pending> = (0..access.count())
            .map(|index| (index, Pending::default()))
            .collect();
        let mut done = Vec::new();
        loop {
            let pause = responder.answer(access, Level::Now)?;
            let delivered = access.list_shards(Level::Now, &format!("done/{}", round.number))?;
            for index in delivered {
                let due = |pending: &&mut Pending| access.now() >= pending.due;
                let Some(waiting) = pending.get_mut(&index).filter(due) else {
                    continue;
                };
                match self.fetch(round.number, index, folder)? {
                    Ok(shard) => {
                        done.push(shard);
                        pending.remove(&index);
                    }
                    Err(problem) => waiting.try_later(problem, access.now()),
                }
            }
            let given_up = |index: &u32| {
                let last = self.monitor.last_in_round(*index).max(begin);
                self.monitor.is_given_up(*index)
                    || Duration::from(access.now().since(last)) >= access.settings.wait
            };
            if pending.keys().all(given_up) || access.settings.stop.level() >= Level::Now {
                break;
            }
            access.settings.clock.sleep(pause);
        }
        done.sort_by_key(|shard| shard.index);
        let missing = pending
            .into_iter()
            .map(|(index, pending)| self.describe_missing(index, pending.problem))
            .collect();
        Ok(GroupRound {
            done,
            missing,
            stops: self.monitor.stops_of(round.number),
        })
    }

    fn describe_missing(&self, index: u32, problem: Option<String>) -> MissingShard {
        let consequence = "its last rows are missing: the load was below plan";
        let reason = match (problem, self.monitor.loss(index)) {
            (Some(problem), _) => format!("shard {index}: {problem}; {consequence}"),
            (None, Some(loss)) => match loss.zero {
                Some(zero) => {
                    let into = loss.at.since(zero).secs();
                    format!("shard {index} was lost {into:.0} s into the round; {consequence}")
                }
                None => format!("shard {index} was lost; {consequence}"),
            },
            (None, None) => {
                let wait = format_wait(self.access.settings.wait);
                format!("shard {index} delivered no records within {wait}; {consequence}")
            }
        };
        MissingShard {
            index,
            host: self.monitor.host(index),
            reason,
        }
    }

    /// The delivery of a shard with local copies of its files, or what is wrong with it.
    fn fetch(
        &self,
        number: u32,
        index: u32,
        folder: &Path,
    ) -> Result<Result<ShardDone, String>, ShardingError> {
        let access = &self.access;
        let key = format!("done/{number}/{index}");
        let delivery = match access.read::<Delivery>(Level::Now, &key) {
            Ok(Some(delivery)) => delivery,
            Ok(None) => return Ok(Err("its record of the round is not visible".into())),
            Err(error @ ShardingError::Unreadable { .. }) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let path = |name: &str, file: &DeliveredFile| {
            let mut path = folder.join(format!("{name}-{index}"));
            if let Some(extension) = Path::new(&file.key).extension() {
                path.set_extension(extension);
            }
            path
        };
        match delivery.fetch(&*access.settings.store, index, path) {
            Ok(shard) => Ok(Ok(shard)),
            // A full disk is an error of shard 0; anything else may pass until `--wait` is over.
            Err(FetchError::Store(error @ SharedStoreError::LocalFile { .. })) => Err(error.into()),
            Err(FetchError::File(error)) => Err(error),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

/// Why the files of a delivery cannot be copied.
#[derive(Debug, Error)]
pub(crate) enum FetchError {
    /// A file is not what the shard delivered.
    #[error("{key} was altered or truncated: its {what} differs")]
    Altered {
        /// The object.
        key: String,
        /// `size` or `SHA-256`.
        what: &'static str,
    },
    /// The store cannot be used, or the local folder not be written.
    #[error(transparent)]
    Store(#[from] SharedStoreError),
    /// A local file cannot be read.
    #[error(transparent)]
    File(#[from] ShardingError),
}

impl Delivery {
    /// Copies the files to `path` of their name, and checks them.
    pub(crate) fn fetch(
        self,
        store: &dyn Objects,
        index: u32,
        path: impl Fn(&str, &DeliveredFile) -> PathBuf,
    ) -> Result<ShardDone, FetchError> {
        let mut files = Vec::new();
        for (name, file) in &self.files {
            let local = path(name, file);
            store.download(&file.key, &local)?;
            let (sha256, size) = digest_file(&local)?;
            let what = match (size == file.size, sha256 == file.sha256) {
                (true, true) => None,
                (false, _) => Some("size"),
                (true, false) => Some("SHA-256"),
            };
            if let Some(what) = what {
                let key = file.key.clone();
                return Err(FetchError::Altered { key, what });
            }
            files.push((name.clone(), local));
        }
        Ok(self.received(index, files))
    }
}

/// A shard that has not delivered.
#[derive(Default)]
struct Pending {
    problem: Option<String>,
    /// Next attempt to read its delivery.
    due: Nanos,
    pause: Duration,
}

impl Pending {
    fn try_later(&mut self, problem: String, now: Nanos) {
        self.problem = Some(problem);
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.due = now + self.pause.into();
    }
}

/// The change of the difference of two clocks from one interval to the next, if it is greater than both bounds and
/// their drift.
pub(super) fn find_step(
    before: &OffsetInterval,
    after: OffsetInterval,
    elapsed: Nanos,
) -> Option<i64> {
    let drift = (elapsed.0 as f64 * GREATEST_DRIFT) as i64;
    if !before.is_closed() || !after.is_closed() {
        return None;
    }
    let apart = after.least > before.greatest + drift || after.greatest < before.least - drift;
    apart.then(|| after.middle() - before.middle())
}

/// `rows/2/5.parquet`
fn object_key(name: &str, number: u32, index: u32, path: &Path) -> String {
    let extension = path
        .extension()
        .map(|extension| extension.to_string_lossy());
    let extension = extension.map(|extension| format!(".{extension}"));
    format!("{name}/{number}/{index}{}", extension.unwrap_or_default())
}

fn digest_file(path: &Path) -> Result<(String, u64), ShardingError> {
    let digest = || -> std::io::Result<(String, u64)> {
        Ok((sha256(File::open(path)?)?, fs::metadata(path)?.len()))
    };
    digest().map_err(|error| ShardingError::File {
        path: path.to_owned(),
        why: error.to_string(),
    })
}
