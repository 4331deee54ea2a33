//! Joining: every shard writes its hello, and shard 0 compares them all.

use crate::run::sharding::access::StoreAccess;
use crate::run::sharding::error::ShardingError;
use crate::run::sharding::heartbeat::Monitor;
use crate::run::sharding::messages::{Hello, Member, Members};
use crate::run::sharding::{GroupSettings, ShardGroup};
use crate::run::stop::Level;
use crate::store::shared_store::Creation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn join(settings: GroupSettings) -> Result<ShardGroup, ShardingError> {
    let access = StoreAccess::new(Arc::new(settings));
    let settings = access.settings.clone();
    write_hello(&access)?;
    let monitor = Arc::new(Monitor::new(access.clone()));
    let thread = {
        let monitor = monitor.clone();
        settings
            .clock
            .spawn("heartbeats", Box::new(move || monitor.run()))
            .map_err(|error| ShardingError::Thread(error.to_string()))?
    };
    let mut group = ShardGroup {
        access,
        monitor,
        thread: Some(thread),
        members: Vec::new(),
        next: 0,
        announced: false,
        ended: false,
        is_stop_recorded: false,
        round: None,
        late_rounds: 0,
        notes: Vec::new(),
    };
    let members = if settings.shard.is_first() {
        group.collect_members()
    } else {
        group.await_members()
    };
    match members {
        Ok(members) => {
            let hosts = members.iter().map(|member| member.facts.host.clone());
            group.monitor.begin(hosts.collect());
            group.members = members;
            Ok(group)
        }
        Err(error) => {
            group.close();
            Err(error)
        }
    }
}

pub(super) fn report_failure(settings: &GroupSettings, reason: &str) {
    let index = settings.shard.index;
    let mut hello = describe(settings);
    hello.failed = Some(reason.to_owned());
    let write = |key: &str, bytes: serde_json::Result<Vec<u8>>| {
        // The others end without it too, after `--wait`.
        if let Ok(bytes) = bytes {
            let _ = settings.store.create(key, &bytes);
        }
    };
    write(&format!("hello/{index}"), serde_json::to_vec(&hello));
    if settings.shard.is_first() {
        let failed = Members {
            nonce: settings.nonce.clone(),
            error: Some(preparation_error(index, &hello).to_string()),
            ..Members::default()
        };
        write("members", serde_json::to_vec(&failed));
    }
}

fn write_hello(access: &StoreAccess) -> Result<(), ShardingError> {
    let key = hello_key(access.index());
    let hello = describe(&access.settings);
    let bytes = access.render(&key, &hello)?;
    let store = &access.settings.store;
    match access.retry(Level::Drain, || store.create(&key, &bytes))? {
        Creation::Exists(other) if other != bytes => Err(access.started_twice()),
        Creation::Created | Creation::Exists(_) => Ok(()),
    }
}

fn hello_key(index: u32) -> String {
    format!("hello/{index}")
}

fn describe(settings: &GroupSettings) -> Hello {
    Hello {
        nonce: settings.nonce.clone(),
        shards: settings.shard.count,
        version: settings.plan.version.clone(),
        plan_id: settings.plan.plan_id.clone(),
        digest: settings.plan.finish(),
        facts: settings.hello.clone(),
        clock: settings.clock.read(),
        failed: None,
    }
}

fn preparation_error(index: u32, hello: &Hello) -> ShardingError {
    ShardingError::Preparation {
        index,
        host: hello.facts.host.clone(),
        reason: hello.failed.clone().unwrap_or_default(),
    }
}

impl ShardGroup {
    /// Ends the heartbeats of a group that has not formed.
    fn close(&mut self) {
        self.ended = true;
        if let Some(thread) = self.thread.take()
            && self.monitor.leave()
        {
            let _ = thread.join();
        }
    }

    /// Whether `--wait` has passed since `begin`.
    pub(super) fn waited_too_long(&self, begin: llmscen_core::units::Nanos) -> bool {
        Duration::from(self.access.now().since(begin)) >= self.access.settings.wait
    }

    pub(super) fn missing_error(&self, what: String, present: &[u32]) -> ShardingError {
        let count = self.access.count();
        ShardingError::Missing {
            what,
            count,
            missing: (0..count)
                .filter(|index| !present.contains(index))
                .collect(),
            wait: self.access.settings.wait,
            url: self.access.settings.store.url(),
        }
    }

    fn collect_members(&self) -> Result<Vec<Member>, ShardingError> {
        let found = self.collect_hellos();
        let (members, error) = match &found {
            Ok(members) => (members.clone(), None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let result = Members {
            nonce: self.access.settings.nonce.clone(),
            members,
            error,
        };
        // The others wait for it after an interruption too.
        let written = self.access.create(Level::Now, "members", &result);
        let members = found?;
        written?;
        Ok(members)
    }

    fn collect_hellos(&self) -> Result<Vec<Member>, ShardingError> {
        let begin = self.access.now();
        let mut hellos = BTreeMap::new();
        loop {
            let listed = self.access.list_shards(Level::Drain, "hello")?;
            let new = listed
                .into_iter()
                .filter(|index| !hellos.contains_key(index));
            let read = self
                .access
                .read_shards::<Hello>(Level::Drain, "hello", new)?;
            hellos.extend(read);
            if let Some((index, hello)) = hellos.iter().find(|(_, hello)| hello.failed.is_some()) {
                return Err(preparation_error(*index, hello));
            }
            check_alike(&hellos)?;
            // Equal numbers, but not that of this shard, cannot be: its own hello is among them.
            let count = self.access.count();
            if let Some(index) = hellos.keys().find(|index| **index >= count) {
                return Err(ShardingError::StartedTwice { index: *index });
            }
            if hellos.len() == self.access.count() as usize {
                let members = hellos.into_values().map(|hello| Member {
                    facts: hello.facts,
                    clock: hello.clock,
                });
                return Ok(members.collect());
            }
            self.monitor.check_stop()?;
            if self.waited_too_long(begin) {
                let present: Vec<u32> = hellos.keys().copied().collect();
                return Err(self.missing_error("joined".into(), &present));
            }
            self.access.settings.clock.sleep(self.access.poll);
        }
    }

    fn await_members(&self) -> Result<Vec<Member>, ShardingError> {
        let begin = self.access.now();
        loop {
            if let Some(found) = self.access.read::<Members>(Level::Drain, "members")? {
                return match found.error {
                    Some(error) => Err(ShardingError::FoundByFirst(error)),
                    None => Ok(found.members),
                };
            }
            self.monitor.check_stop()?;
            if self.waited_too_long(begin) {
                let present = self.access.list_shards(Level::Drain, "hello")?;
                return Err(self.missing_error("joined".into(), &present));
            }
            self.access.settings.clock.sleep(self.access.poll);
        }
    }

    /// Another process may have taken the number of this shard, in a store without exclusive creation.
    pub(super) fn check_identity(&self) -> Result<(), ShardingError> {
        let key = hello_key(self.access.index());
        let hello: Option<Hello> = self.access.read(Level::Drain, &key)?;
        match hello {
            Some(hello) if hello.nonce != self.access.settings.nonce => {
                Err(self.access.started_twice())
            }
            _ => Ok(()),
        }
    }
}

/// Checks that all shards run the same plan with the same data.
///
/// # Errors
/// [`ShardingError::Unequal`] names the shards of each value.
pub(crate) fn check_alike(hellos: &BTreeMap<u32, Hello>) -> Result<(), ShardingError> {
    let compare = |what, help, value: &dyn Fn(&Hello) -> String| {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (index, hello) in hellos {
            let member = format!("{index} ({})", hello.facts.host);
            groups.entry(value(hello)).or_default().push(member);
        }
        if groups.len() <= 1 {
            return Ok(());
        }
        let groups = groups.into_iter().map(|(value, members)| {
            let noun = if members.len() == 1 {
                "shard"
            } else {
                "shards"
            };
            (value, format!("{noun} {}", members.join(", ")))
        });
        Err(ShardingError::Unequal {
            what,
            groups: groups.collect(),
            help,
        })
    };
    let short = |text: &str| text.chars().take(12).collect::<String>();
    compare(
        "their number",
        "start all shards with the same N in `--shard i/N`",
        &|hello| hello.shards.to_string(),
    )?;
    compare(
        "the llmscen version",
        "install the same build on all hosts",
        &|hello| hello.version.clone(),
    )?;
    compare(
        "the plan",
        "start all shards with the same scenario file, options and environment variables",
        &|hello| short(&hello.plan_id),
    )?;
    compare(
        "the first requests",
        "the plans are equal, so compare datasets, tokenizers and builds on the hosts",
        &|hello| short(&hello.digest),
    )
}
