//! Access to the objects of a group: JSON, retries, and waits that a signal ends.

use crate::run::sharding::GroupSettings;
use crate::run::sharding::error::ShardingError;
use crate::run::stop::Level;
use crate::store::shared_store::{Creation, SharedStoreError};
use llmscen_core::units::Nanos;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Pauses between attempts to reach the store.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Objects of a bucket that are read at a time.
const BUCKET_READERS: usize = 16;

/// The objects of the group, as this shard uses them.
#[derive(Clone)]
pub(super) struct StoreAccess {
    pub settings: Arc<GroupSettings>,
    /// Interval at which an object is looked for.
    pub poll: Duration,
}

impl StoreAccess {
    pub fn new(settings: Arc<GroupSettings>) -> StoreAccess {
        let least = if settings.store.is_folder() { 20 } else { 100 };
        // With N shards, about 500 requests per second in all.
        let poll = Duration::from_millis(2) * settings.shard.count;
        StoreAccess {
            poll: poll.clamp(Duration::from_millis(least), Duration::from_secs(2)),
            settings,
        }
    }

    pub fn now(&self) -> Nanos {
        self.settings.clock.now()
    }

    pub fn index(&self) -> u32 {
        self.settings.shard.index
    }

    pub fn count(&self) -> u32 {
        self.settings.shard.count
    }

    /// The last attempt's error if the store does not work for `--wait`. A switch at `level` ends the attempts.
    pub fn retry<T>(
        &self,
        level: Level,
        mut attempt: impl FnMut() -> Result<T, SharedStoreError>,
    ) -> Result<T, ShardingError> {
        let begin = self.now();
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(error) => {
                    let waited = self.now().since(begin);
                    if !error.is_transient() || Duration::from(waited) >= self.settings.wait {
                        return Err(error.into());
                    }
                }
            }
            self.pause(level, pause)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, in steps of the poll interval.
    pub fn pause(&self, level: Level, span: Duration) -> Result<(), ShardingError> {
        let end = self.now() + span.into();
        loop {
            if self.settings.stop.level() >= level {
                return Err(ShardingError::Interrupted);
            }
            let rest = Duration::from(end.since(self.now()));
            if rest.is_zero() {
                return Ok(());
            }
            self.settings.clock.sleep(rest.min(self.poll));
        }
    }

    pub fn read<T: DeserializeOwned>(
        &self,
        level: Level,
        key: &str,
    ) -> Result<Option<T>, ShardingError> {
        let bytes = self.retry(level, || self.settings.store.get(key))?;
        bytes.map(|bytes| self.parse(key, &bytes)).transpose()
    }

    /// Calls `get` for each key. A bucket takes long for one object, so that several are read at a time.
    pub fn for_each<T: Send>(&self, keys: &[String], get: impl Fn(&str) -> T + Sync) -> Vec<T> {
        let call = |keys: &[String]| keys.iter().map(|key| get(key)).collect::<Vec<T>>();
        if self.settings.store.is_folder() {
            return call(keys);
        }
        thread::scope(|scope| {
            let chunks = keys.chunks(keys.len().div_ceil(BUCKET_READERS).max(1));
            let readers: Vec<_> = chunks.map(|keys| scope.spawn(|| call(keys))).collect();
            let results = readers.into_iter().map(|reader| match reader.join() {
                Ok(values) => values,
                Err(panic) => resume_unwind(panic),
            });
            results.flatten().collect()
        })
    }

    /// The objects of these shards below `prefix`, as far as they are visible.
    pub fn read_shards<T: DeserializeOwned + Send>(
        &self,
        level: Level,
        prefix: &str,
        shards: impl Iterator<Item = u32>,
    ) -> Result<Vec<(u32, T)>, ShardingError> {
        let shards: Vec<u32> = shards.collect();
        let keys: Vec<String> = (shards.iter())
            .map(|index| format!("{prefix}/{index}"))
            .collect();
        let objects = self.for_each(&keys, |key| self.read(level, key));
        let visible = shards
            .into_iter()
            .zip(objects)
            .filter_map(|(index, object)| Some(object.transpose()?.map(|object| (index, object))));
        visible.collect()
    }

    pub fn parse<T: DeserializeOwned>(&self, key: &str, bytes: &[u8]) -> Result<T, ShardingError> {
        serde_json::from_slice(bytes).map_err(|error| ShardingError::Unreadable {
            key: key.to_owned(),
            url: self.settings.store.url(),
            why: error.to_string(),
        })
    }

    /// Writes an object that has one writer. If it exists, another process has the number of this shard, unless a
    /// retried request finds the object of its first attempt.
    pub fn create(
        &self,
        level: Level,
        key: &str,
        object: &impl Serialize,
    ) -> Result<(), ShardingError> {
        let bytes = self.render(key, object)?;
        match self.retry(level, || self.settings.store.create(key, &bytes))? {
            Creation::Exists(other) if other != bytes => Err(self.started_twice()),
            Creation::Created | Creation::Exists(_) => Ok(()),
        }
    }

    pub fn render(&self, key: &str, object: &impl Serialize) -> Result<Vec<u8>, ShardingError> {
        serde_json::to_vec(object).map_err(|error| ShardingError::Unreadable {
            key: key.to_owned(),
            url: self.settings.store.url(),
            why: error.to_string(),
        })
    }

    pub fn started_twice(&self) -> ShardingError {
        ShardingError::StartedTwice {
            index: self.index(),
        }
    }

    /// The shards that have an object below `prefix`, ascending.
    pub fn list_shards(&self, level: Level, prefix: &str) -> Result<Vec<u32>, ShardingError> {
        let keys = self.retry(level, || self.settings.store.list(prefix))?;
        let mut shards: Vec<u32> = keys
            .iter()
            .filter_map(|key| key.rsplit('/').next()?.parse().ok())
            .collect();
        shards.sort_unstable();
        Ok(shards)
    }
}
