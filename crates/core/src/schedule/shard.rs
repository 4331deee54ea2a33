//! Which requests of a plan a shard sends. Every shard walks over the whole plan, so that the union over the shards
//! is the plan of a single process for any number of shards.

use crate::load::{Load, MaxInFlight, Shape};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// One of several processes that send the requests of one plan. The default, 0/1, sends all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of this shard, from 0.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
}

impl Default for Shard {
    fn default() -> Shard {
        Shard { index: 0, count: 1 }
    }
}

impl Shard {
    /// Shard `index` of `count`.
    ///
    /// # Errors
    /// `count` is 0, or `index` is not below it.
    pub fn new(index: u32, count: u32) -> Result<Shard, ShardError> {
        if index < count {
            Ok(Shard { index, count })
        } else {
            Err(ShardError::OutOfRange { index, count })
        }
    }

    /// Whether this process sends the whole plan.
    pub fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Whether this is shard 0, which has the verdict.
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// The share of a total, for limits: the shares of all shards sum to the total and differ by at most one.
    pub fn share(self, total: u64) -> u64 {
        let below =
            |index: u32| u128::from(index) * u128::from(total) / u128::from(self.count.max(1));
        (below(self.index + 1) - below(self.index)) as u64
    }

    /// Checks that a load can be split over this number of shards.
    ///
    /// # Errors
    /// Why it cannot, and what to do.
    pub fn check_load(self, load: &Load) -> Result<(), String> {
        if self.is_whole() {
            return Ok(());
        }
        let count = self.count;
        if matches!(load.shape, Shape::Static { .. }) {
            return Err(
                "`load.static` with `barrier: round` cannot be split over shards: each batch \
                 waits for the last request of the batch before it\n  help: set \
                 load.static.barrier: none, or run without --shard"
                    .to_owned(),
            );
        }
        let too_few = |what: &str, limit: u32, key: &str| {
            format!(
                "{what} is {limit}, less than the number of shards ({count})\n  help: start at \
                 most {limit} shards, or set {key} to at least {count}"
            )
        };
        match (load.shape.users(), load.max_in_flight) {
            (Some(users), _) if users < count => {
                Err(too_few("the number of users", users, "load.concurrency"))
            }
            (_, Some(MaxInFlight { of, .. })) if of < count => {
                Err(too_few("`load.max_in_flight`", of, "load.max_in_flight"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Shard {
    /// Index and count: `3/8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Shard, ShardError> {
        let parsed = text
            .split_once('/')
            .and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        let (index, count) = parsed.ok_or_else(|| ShardError::Syntax(text.to_owned()))?;
        Shard::new(index, count)
    }
}

/// Why there is no shard.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ShardError {
    /// The text is not `INDEX/COUNT`.
    #[error(
        "`{0}` is not a shard\n  help: write --shard INDEX/COUNT, for example 3/8; shards count \
        from 0; or write --shard auto"
    )]
    Syntax(String),
    /// The index is not below the count.
    #[error(
        "there is no shard {index} of {count}: shards count from 0\n  help: {}",
        range_help(*count)
    )]
    OutOfRange {
        /// Index.
        index: u32,
        /// Number of shards.
        count: u32,
    },
    /// A variable is no number, or outside of its range.
    #[error(
        "the environment variable {name} is `{value}`, not a number in the range of a shard\n  \
         help: give the shard by hand: --shard INDEX/COUNT"
    )]
    Variable {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The environment has an index without the number of shards.
    #[error(
        "{index} is set, but not {count}, so the number of shards is unknown\n  help: set {count} \
        to the number of shards"
    )]
    NoCount {
        /// The variable that is set.
        index: &'static str,
        /// The variable that is missing.
        count: &'static str,
    },
    /// The environment names no shard.
    #[error(
        "--shard auto found no shard in the environment (Slurm, Kubernetes, Nomad, MPI, RANK)\n  \
         help: start it with one of them, set LLMSCEN_SHARD and LLMSCEN_SHARDS, or give the shard \
         by hand: --shard INDEX/COUNT"
    )]
    NotFound,
}

fn range_help(count: u32) -> String {
    match count {
        0 => "the number of shards is at least 1".to_owned(),
        count => format!("use 0 to {}", count - 1),
    }
}

/// A shard from the environment of the engine that started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineShard {
    /// The shard.
    pub shard: Shard,
    /// The engine's id of this attempt; None if it exports none that all shards share.
    pub run: Option<String>,
    /// Name of the engine.
    pub engine: &'static str,
}

/// The number of shards where the engine does not export it.
const SHARDS: &str = "LLMSCEN_SHARDS";

/// Variables with index and count, and the engine that sets them. MPI is before Slurm: `mpirun` in one Slurm task
/// sets both.
const ENGINES: [(&str, &str, &str); 4] = [
    ("LLMSCEN_SHARD", SHARDS, "environment"),
    ("JOB_COMPLETION_INDEX", SHARDS, "Kubernetes"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI"),
    ("PMI_RANK", "PMI_SIZE", "PMI"),
];
const SLURM_STEP: (&str, &str, &str) = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "Slurm");
/// Engines after Slurm.
const LATER_ENGINES: [(&str, &str, &str); 2] = [
    ("NOMAD_ALLOC_INDEX", SHARDS, "Nomad"),
    ("RANK", "WORLD_SIZE", "RANK and WORLD_SIZE"),
];

/// The shard that the environment names: `--shard auto`. `lookup`: the value of a variable.
///
/// # Errors
/// The environment names none, or one that does not exist.
pub fn from_env(lookup: &dyn Fn(&str) -> Option<String>) -> Result<EngineShard, ShardError> {
    let environment = Environment(lookup);
    let step = environment
        .has_slurm_step()
        .then(|| environment.pair(SLURM_STEP))
        .transpose()?
        .flatten();
    let several_tasks = step.clone().filter(|step| !step.shard.is_whole());
    for names in ENGINES {
        if let Some(found) = environment.pair(names)? {
            // srun may export PMI_RANK too: then the Slurm step is the same group and has an id.
            let is_step = several_tasks
                .as_ref()
                .is_some_and(|step| step.shard == found.shard);
            return Ok(several_tasks.filter(|_| is_step).unwrap_or(found));
        }
    }
    if let Some(found) = several_tasks.or(environment.slurm_array()?) {
        return Ok(found);
    }
    for names in LATER_ENGINES {
        if let Some(found) = environment.pair(names)? {
            return Ok(found);
        }
    }
    step.ok_or(ShardError::NotFound)
}

/// The environment variables of this process. An empty one counts as not set.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &'static str) -> Result<Option<u32>, ShardError> {
        let parse = |value: String| match value.trim().parse() {
            Ok(number) => Ok(number),
            Err(_) => Err(ShardError::Variable { name, value }),
        };
        self.text(name).map(parse).transpose()
    }

    /// The shard of two variables; None if the first is not set.
    fn pair(
        &self,
        (index, count, engine): (&'static str, &'static str, &'static str),
    ) -> Result<Option<EngineShard>, ShardError> {
        let Some(number) = self.number(index)? else {
            return Ok(None);
        };
        let shards = self
            .number(count)?
            .ok_or(ShardError::NoCount { index, count })?;
        Ok(Some(EngineShard {
            shard: Shard::new(number, shards)?,
            run: (engine == SLURM_STEP.2)
                .then(|| self.slurm_step_run())
                .flatten(),
            engine,
        }))
    }

    /// Whether srun started this process. A batch script has SLURM_PROCID too, but no count of tasks.
    fn has_slurm_step(&self) -> bool {
        self.text(SLURM_STEP.0).is_some() && self.text(SLURM_STEP.1).is_some()
    }

    fn slurm_step_run(&self) -> Option<String> {
        let step = format!(
            "{}.{}",
            self.text("SLURM_JOB_ID")?,
            self.text("SLURM_STEP_ID")?
        );
        Some(self.with_restart(step))
    }

    /// A run key, with the number of restarts of the job: a restarted job is another attempt.
    fn with_restart(&self, run: String) -> String {
        match self.text("SLURM_RESTART_COUNT") {
            Some(restarts) if restarts != "0" => format!("{run}.restart{restarts}"),
            _ => run,
        }
    }

    /// The shard of a task of a Slurm job array; None outside of one.
    fn slurm_array(&self) -> Result<Option<EngineShard>, ShardError> {
        const ID: &str = "SLURM_ARRAY_TASK_ID";
        const COUNT: &str = "SLURM_ARRAY_TASK_COUNT";
        let Some(id) = self.number(ID)? else {
            return Ok(None);
        };
        let count = self.number(COUNT)?.ok_or(ShardError::NoCount {
            index: ID,
            count: COUNT,
        })?;
        let least = self.number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(0);
        let step = self.number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
        let index = id
            .checked_sub(least)
            .filter(|above| above.is_multiple_of(step))
            .ok_or_else(|| ShardError::Variable {
                name: ID,
                value: id.to_string(),
            })?;
        Ok(Some(EngineShard {
            shard: Shard::new(index / step, count)?,
            run: self
                .text("SLURM_ARRAY_JOB_ID")
                .map(|job| self.with_restart(job)),
            engine: "Slurm array",
        }))
    }
}

/// The request numbers of a load that a shard sends: every N-th of an open loop. In a closed loop, requests follow
/// their user: number `seq` belongs to user `seq` modulo the users, and user u to shard u modulo N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    shard: Shard,
    /// Length of the repeating pattern of owners.
    period: u64,
}

impl Split {
    /// The numbers of a load of this shape.
    pub fn new(shard: Shard, shape: &Shape) -> Split {
        let period = if shape.is_closed_loop() {
            shape.users().unwrap_or(1)
        } else {
            shard.count
        };
        Split {
            shard,
            period: u64::from(period.max(1)),
        }
    }

    /// The shard.
    pub fn shard(&self) -> Shard {
        self.shard
    }

    /// The index of the shard that sends request `seq`.
    pub fn owner(&self, seq: u64) -> u32 {
        (seq % self.period % self.count()) as u32
    }

    /// Whether this shard sends request `seq`.
    pub fn owns(&self, seq: u64) -> bool {
        self.owner(seq) == self.shard.index
    }

    /// How many of the shard's numbers are below `seq`.
    pub fn local_index(&self, seq: u64) -> u64 {
        seq / self.period * self.own_below(self.period) + self.own_below(seq % self.period)
    }

    /// How many of the first `users` users are the shard's.
    pub fn users(&self, users: u32) -> u32 {
        self.own_below(u64::from(users)) as u32
    }

    /// How many of the first `n` numbers belong to this shard if every N-th does.
    fn own_below(&self, n: u64) -> u64 {
        n.saturating_sub(u64::from(self.shard.index))
            .div_ceil(self.count())
    }

    fn count(&self) -> u64 {
        u64::from(self.shard.count.max(1))
    }
}

#[cfg(test)]
mod tests;
