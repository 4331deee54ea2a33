//! A run as its shards left it in the store, or on their own disks if they could not store it.

use crate::run::merge::{MergeError, ShardedRound};
use crate::run::outputs::recover::recover;
use crate::run::sharding::delivery::FetchError;
use crate::run::sharding::join::check_alike;
use crate::run::sharding::messages::{
    BASELINE, DeliveredFile, Delivery, Go, Hello, MANIFEST, Next, PLAN,
};
use crate::run::sharding::{
    GroupRound, MissingShard, RunEnd, ShardDone, ShardingError, StopReason,
};
use crate::run::timestamps;
use crate::store::shared_store::Objects;
use crate::store::{RunDir, manifest};
use llmscen_core::manifest::{Machine, Manifest, Part};
use llmscen_core::plan::Plan;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const WITHOUT_END: &str =
    "shard 0 ended before the run; requests that the shards stored are included";

/// A run in the store.
pub struct StoredRun<'a> {
    store: &'a dyn Objects,
    hellos: BTreeMap<u32, Hello>,
}

/// The local folder of a shard that could not store its records.
pub struct LocalShard {
    index: u32,
    rounds: Vec<(String, u32, ShardDone)>,
}

impl StoredRun<'_> {
    /// Opens the run of a store.
    ///
    /// # Errors
    /// The store has no run, or the shards did not run the same plan with the same data.
    pub fn open(store: &dyn Objects) -> Result<StoredRun<'_>, MergeError> {
        let mut hellos = BTreeMap::new();
        for key in list(store, "hello")? {
            let index = key
                .strip_prefix("hello/")
                .and_then(|text| text.parse().ok());
            if let (Some(index), Some(hello)) = (index, read::<Hello>(store, &key)?) {
                hellos.insert(index, hello);
            }
        }
        let run = StoredRun { store, hellos };
        if run.hellos.is_empty() {
            return Err(run.not_there("hello/0"));
        }
        check_alike(&run.hellos)?;
        Ok(run)
    }

    fn not_there(&self, missing: &'static str) -> MergeError {
        MergeError::NoRun {
            url: self.store.url(),
            missing,
        }
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        let counts = self.hellos.values().map(|hello| hello.shards);
        let known = self.hellos.keys().map(|index| index + 1);
        counts.chain(known).max().unwrap_or(1)
    }

    /// Writes the plan, and its baseline if it has one, to a folder.
    ///
    /// # Errors
    /// The store has no plan, or the folder cannot be written.
    pub fn write_plan(&self, folder: &Path) -> Result<PathBuf, MergeError> {
        let plan = get(self.store, PLAN)?.ok_or_else(|| self.not_there(PLAN))?;
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            match fs::write(&path, bytes) {
                Ok(()) => Ok(path),
                Err(source) => Err(MergeError::Write { path, source }),
            }
        };
        if let Some(baseline) = get(self.store, BASELINE)? {
            write(BASELINE, &baseline)?;
        }
        write(PLAN, &plan)
    }

    /// The manifest of the run, without its parts. Cases that `--only` excluded are removed from the plan.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn manifest(&self, plan: &mut Plan) -> Result<Manifest, MergeError> {
        let mut manifest = match read::<Manifest>(self.store, MANIFEST)? {
            Some(manifest) => manifest,
            None => self.basic_manifest(plan),
        };
        plan.select_cases(&manifest.filter);
        manifest.parts.clear();
        manifest.shard = None;
        manifest.attempt = None;
        let stops = self.stops("stop")?;
        manifest.interrupted = stops.iter().any(|stop| stop.interrupted);
        match self.end()? {
            Some(end) if !end.success && !manifest.interrupted => manifest.error = Some(end.reason),
            Some(_) => {}
            None => {
                manifest.interrupted = true;
                manifest.notes.push(WITHOUT_END.to_owned());
            }
        }
        Ok(manifest)
    }

    /// Whether every round of the plan is there with the rows of every shard, although shard 0 stored no end of the
    /// run: the store did not take it.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn ended_with_all(&self, plan: &Plan, parts: &[Part]) -> Result<bool, MergeError> {
        let is_lost = |part: &Part| part.shards.iter().any(|shard| shard.lost.is_some());
        let all_rounds = parts.len() == plan.cases.len() * plan.rounds as usize;
        let all = plan.searches.is_empty() && all_rounds && !parts.iter().any(is_lost);
        Ok(all && self.end()?.is_none() && self.stops("stop")?.is_empty())
    }

    /// What the objects of the shards tell about the run.
    fn basic_manifest(&self, plan: &Plan) -> Manifest {
        let first = self.hellos.values().next().cloned().unwrap_or_default();
        let started = u64::try_from(first.clock.unix_origin()).unwrap_or_default();
        Manifest {
            run_id: timestamps::run_id(&plan.id, started),
            tool_version: first.version,
            name: plan.name.clone(),
            labels: plan.labels.clone(),
            plan_id: plan.id.clone(),
            seed: plan.seed.0,
            started_at: timestamps::rfc3339(started),
            started_unix_ns: started,
            machine: Machine {
                host: first.facts.host,
                cores: first.facts.cores,
                ..Machine::default()
            },
            ..Manifest::default()
        }
    }

    /// How shard 0 ended the run; None if it did not.
    fn end(&self) -> Result<Option<RunEnd>, MergeError> {
        for key in list(self.store, "next")? {
            if let Some(end) = read::<Next>(self.store, &key)?.and_then(|next| next.end) {
                return Ok(Some(end));
            }
        }
        for key in list(self.store, "go")? {
            if let Some(end) = read::<Go>(self.store, &key)?.and_then(|go| go.end) {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    fn stops(&self, prefix: &str) -> Result<Vec<StopReason>, MergeError> {
        let mut stops = Vec::new();
        for key in list(self.store, prefix)? {
            stops.extend(read::<StopReason>(self.store, &key)?);
        }
        Ok(stops)
    }

    /// The rounds that shards delivered, with their files in `folder`. A shard in `local` takes its records from its
    /// own disk.
    ///
    /// # Errors
    /// A file was altered, or stored by a shard that did not finish; or the store or the folder cannot be used.
    pub fn rounds(
        &self,
        plan: &Plan,
        folder: &Path,
        mut local: Vec<LocalShard>,
    ) -> Result<Vec<ShardedRound>, MergeError> {
        let keys: Vec<String> = list(self.store, "done")?
            .into_iter()
            .chain(list(self.store, "rows")?)
            .collect();
        let number = |key: &String| key.split('/').nth(1)?.parse::<u32>().ok();
        let numbers: BTreeSet<u32> = keys.iter().filter_map(number).collect();
        let mut rounds = Vec::new();
        for number in numbers {
            let (known, mut group) = self.gather(number, folder, &local)?;
            let announced = read::<Next>(self.store, &format!("next/{number}"))?
                .and_then(|next| next.round)
                .and_then(|next| Some((plan.cases.get(next.case)?.id.clone(), next.round)));
            let Some((case, round)) = known.or(announced) else {
                continue;
            };
            for shard in &mut local {
                let is_round = |own: &(String, u32, ShardDone)| (&own.0, own.1) == (&case, round);
                if let Some(position) = shard.rounds.iter().position(is_round) {
                    let (.., done) = shard.rounds.swap_remove(position);
                    group.missing.retain(|missing| missing.index != shard.index);
                    group.done.push(done);
                }
            }
            group.done.sort_by_key(|done| done.index);
            rounds.push(ShardedRound { case, round, group });
        }
        // Rounds of which no shard stored anything.
        for (case, round, done) in local.into_iter().flat_map(|shard| shard.rounds) {
            let known = rounds
                .iter()
                .position(|known: &ShardedRound| (&known.case, known.round) == (&case, round));
            match known.and_then(|position| rounds.get_mut(position)) {
                Some(known) => known.group.done.push(done),
                None => rounds.push(ShardedRound {
                    case,
                    round,
                    group: GroupRound {
                        done: vec![done],
                        ..GroupRound::default()
                    },
                }),
            }
        }
        Ok(rounds)
    }

    /// What the shards stored of a round, with its case and number if they did.
    fn gather(
        &self,
        number: u32,
        folder: &Path,
        local: &[LocalShard],
    ) -> Result<(Option<(String, u32)>, GroupRound), MergeError> {
        let stops = self.stops(&format!("stop/{number}"))?;
        let mut known = None;
        let mut group = GroupRound::default();
        for index in 0..self.shards() {
            let key = format!("done/{number}/{index}");
            if let Some(delivery) = read::<Delivery>(self.store, &key)? {
                known = Some((delivery.part.case.clone(), delivery.part.round));
                if !local.iter().any(|shard| shard.index == index) {
                    let path = |name: &str, _: &DeliveredFile| {
                        folder.join(format!("{number}-{name}-{index}"))
                    };
                    let fetched = delivery.fetch(self.store, index, path);
                    let done = fetched.map_err(|error| match error {
                        FetchError::Altered { key, what } => MergeError::Altered {
                            key,
                            url: self.store.url(),
                            what,
                            done: format!("done/{number}/{index}"),
                        },
                        FetchError::Store(error) => ShardingError::from(error).into(),
                        FetchError::File(error) => error.into(),
                    })?;
                    group.done.push(done);
                }
                continue;
            }
            if local.iter().any(|shard| shard.index == index) {
                continue;
            }
            let rows = format!("rows/{number}/{index}.parquet");
            if list(self.store, &format!("rows/{number}"))?.contains(&rows) {
                return Err(MergeError::Unfinished {
                    shard: index,
                    number,
                    rows,
                    done: key,
                    url: self.store.url(),
                });
            }
            let lost = stops.iter().find(|stop| stop.lost == Some(index));
            let reason = match lost {
                Some(stop) => stop.reason.clone(),
                None => format!("shard {index} delivered no records: the load was below plan"),
            };
            group.missing.push(MissingShard {
                index,
                host: self.host(index),
                reason,
            });
        }
        group.stops = stops;
        Ok((known, group))
    }

    fn host(&self, index: u32) -> String {
        self.hellos
            .get(&index)
            .map(|hello| hello.facts.host.clone())
            .unwrap_or_default()
    }

    /// Reads the local folder of a shard (`--rows`) and writes its rows to `scratch`.
    ///
    /// # Errors
    /// It is not the folder of a shard of this run, or cannot be read.
    pub fn open_local(
        &self,
        plan: &Plan,
        folder: &Path,
        scratch: &Path,
    ) -> Result<LocalShard, MergeError> {
        let refused = |why: String| MergeError::Folder {
            folder: folder.to_owned(),
            why,
        };
        // The error of a shard names the folder of a round, which is in the run folder.
        let mut above = folder.ancestors().take(3);
        let root = above.find(|above| above.join(MANIFEST).exists());
        let run =
            RunDir::open(root.unwrap_or(folder)).map_err(|error| refused(error.to_string()))?;
        let stored = manifest::read(&run).map_err(|error| refused(error.to_string()))?;
        let Some(shard) = stored.shard else {
            return Err(refused("has no records of a single shard".into()));
        };
        let hello = self.hellos.get(&shard.index);
        if shard.count != self.shards() || hello.is_none_or(|hello| hello.plan_id != stored.plan_id)
        {
            return Err(refused("has the records of another plan".into()));
        }
        if hello.is_some_and(|hello| Some(&hello.nonce) != stored.attempt.as_ref()) {
            return Err(refused("has the records of another attempt".into()));
        }
        let (table, stored) =
            recover(&mut plan.clone(), &run).map_err(|error| refused(error.to_string()))?;
        let path = scratch.join(format!("local-{}.parquet", shard.index));
        let written = File::create(&path)
            .and_then(|file| table.write_parquet(file).map_err(std::io::Error::other));
        written.map_err(|source| MergeError::Write {
            path: path.clone(),
            source,
        })?;
        let mut counts: BTreeMap<(&str, u32), u64> = BTreeMap::new();
        for key in table.row_keys() {
            *counts.entry((key.case, key.round)).or_default() += 1;
        }
        let rounds = stored.parts.into_iter().map(|part| {
            let row_count = counts
                .get(&(part.case.as_str(), part.round))
                .copied()
                .unwrap_or_default();
            let done = ShardDone {
                index: shard.index,
                host: stored.machine.host.clone(),
                row_count,
                files: vec![("rows".to_owned(), path.clone())],
                offset: Default::default(),
                late: false,
                clock_step_ns: None,
                part: part.clone(),
            };
            (part.case, part.round, done)
        });
        Ok(LocalShard {
            index: shard.index,
            rounds: rounds.collect(),
        })
    }
}

fn list(store: &dyn Objects, prefix: &str) -> Result<Vec<String>, ShardingError> {
    Ok(store.list(prefix)?)
}

fn get(store: &dyn Objects, key: &str) -> Result<Option<Vec<u8>>, ShardingError> {
    Ok(store.get(key)?)
}

/// An object; None if it does not exist.
fn read<T: DeserializeOwned>(store: &dyn Objects, key: &str) -> Result<Option<T>, ShardingError> {
    let Some(bytes) = get(store, key)? else {
        return Ok(None);
    };
    let parsed = serde_json::from_slice(&bytes);
    parsed.map(Some).map_err(|error| ShardingError::Unreadable {
        key: key.to_owned(),
        url: store.url(),
        why: error.to_string(),
    })
}
