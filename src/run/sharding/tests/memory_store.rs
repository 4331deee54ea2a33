//! A store in memory, with the faults of real ones.

use super::virtual_time::VirtualClock;
use crate::run::sharding::clock::GroupClock as _;
use crate::store::shared_store::{Creation, Objects, SharedStoreError};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Default)]
pub struct Memory {
    pub objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// World times in seconds between which no call works.
    pub down: Mutex<Option<(u64, u64)>>,
}

/// The store as one process uses it.
pub struct MemoryStore {
    pub memory: Arc<Memory>,
    pub clock: Arc<VirtualClock>,
    /// Time until a written object is visible, and time to read one.
    pub write_delay: Duration,
    pub read_delay: Duration,
    /// Bytes that are lost at the end of large files.
    pub truncated: usize,
    pub bucket: bool,
}

impl MemoryStore {
    fn check(&self) -> Result<(), SharedStoreError> {
        let now = self.clock.world.now() / 1_000_000_000;
        let down = *self.memory.down.lock().unwrap();
        let is_down = down.is_some_and(|(from, to)| (from..to).contains(&now));
        if is_down || self.clock.dead.load(Ordering::Relaxed) {
            return Err(SharedStoreError::Access {
                action: "use",
                object: self.url(),
                reason: "no route to host".into(),
                help: "check the network",
                transient: true,
            });
        }
        Ok(())
    }

    fn wait(&self, delay: Duration) {
        if !delay.is_zero() {
            self.clock.sleep(delay);
        }
    }
}

impl Objects for MemoryStore {
    fn create(&self, key: &str, bytes: &[u8]) -> Result<Creation, SharedStoreError> {
        self.wait(self.write_delay);
        self.check()?;
        let mut objects = self.memory.objects.lock().unwrap();
        match objects.get(key) {
            Some(found) => Ok(Creation::Exists(found.clone())),
            None => {
                objects.insert(key.into(), bytes.into());
                Ok(Creation::Created)
            }
        }
    }

    fn put(&self, key: &str, bytes: &[u8]) -> Result<(), SharedStoreError> {
        self.wait(self.write_delay);
        self.check()?;
        let mut objects = self.memory.objects.lock().unwrap();
        objects.insert(key.into(), bytes.into());
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStoreError> {
        self.check()?;
        let found = self.memory.objects.lock().unwrap().get(key).cloned();
        self.wait(self.read_delay);
        Ok(found)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SharedStoreError> {
        self.check()?;
        let prefix = format!("{prefix}/");
        let objects = self.memory.objects.lock().unwrap();
        let keys = objects.keys().filter(|key| key.starts_with(&prefix));
        let keys = keys.cloned().collect();
        drop(objects);
        self.wait(self.read_delay);
        Ok(keys)
    }

    fn upload(&self, key: &str, file: &Path) -> Result<(), SharedStoreError> {
        let mut bytes = fs::read(file).unwrap();
        bytes.truncate(bytes.len() - self.truncated);
        self.put(key, &bytes)
    }

    fn download(&self, key: &str, file: &Path) -> Result<(), SharedStoreError> {
        let bytes = self.get(key)?.unwrap_or_default();
        fs::write(file, bytes).unwrap();
        Ok(())
    }

    fn is_folder(&self) -> bool {
        !self.bucket
    }

    fn url(&self) -> String {
        "file:///runs/a".into()
    }
}
