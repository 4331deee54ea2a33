//! The options that make a run one shard of several.

use crate::cli::exit::Exit;
use crate::cli::load_scenarios::Source;
use crate::cli::terminal::Terminal;
use crate::run::context::SharedRun;
use crate::store::shared_store::SharedStore;
use clap::{Args, ValueEnum};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::schedule::shard::{Shard, from_env};
use llmscen_core::target::TargetLocation;
use llmscen_core::units::parse_duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Options of a distributed run.
#[derive(Debug, Args)]
pub struct ShardArgs {
    /// Send one of N parts of the load: I/N, counted from 0, or `auto`: from the variables of Slurm, Kubernetes,
    /// Nomad, MPI or torchrun
    #[arg(long, value_name = "I/N", requires = "via")]
    pub shard: Option<String>,
    /// Folder or bucket that all shards share: file:///scratch/runs, s3://bucket/runs, gs://bucket/runs,
    /// az://container/runs
    #[arg(long, value_name = "URL", requires = "shard")]
    pub via: Option<String>,
    /// Name of this attempt below --via [default: id of the Slurm step or job array]
    #[arg(long = "run", value_name = "KEY", requires = "shard")]
    pub run_key: Option<String>,
    /// Longest wait for other shards, and for the store after a round
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = parse_wait, requires = "shard")]
    pub wait: Duration,
    /// When the report is made
    #[arg(
        long,
        value_enum,
        default_value = "now",
        value_name = "WHEN",
        requires = "shard"
    )]
    pub merge: MergeTime,
}

/// When the report of a distributed run is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MergeTime {
    /// At the end of the run, by shard 0
    Now,
    /// By `llmscen merge`
    Later,
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .map(Duration::from)
        .ok_or_else(|| "expected a time such as 90s or 10m".to_owned())
}

impl ShardArgs {
    /// The shard of this process, and where it meets the others; None for a run of one process. Errors are printed.
    pub fn find(
        &self,
        sources: &[Source],
        env: &BTreeMap<String, String>,
        terminal: &mut Terminal,
    ) -> Result<(Shard, Option<SharedRun>), Exit> {
        self.check_and_open(sources, env).map_err(|why| {
            terminal.error(&why);
            Exit::Scenario
        })
    }

    fn check_and_open(
        &self,
        sources: &[Source],
        env: &BTreeMap<String, String>,
    ) -> Result<(Shard, Option<SharedRun>), String> {
        let (Some(shard), Some(via)) = (&self.shard, &self.via) else {
            return Ok((Shard::default(), None));
        };
        let lookup = |name: &str| env.get(name).cloned();
        let (shard, engine_key) = match shard.as_str() {
            "auto" => {
                let found = from_env(&lookup).map_err(|error| error.to_string())?;
                (found.shard, found.run)
            }
            text => (
                text.parse::<Shard>().map_err(|error| error.to_string())?,
                // The attempt has the engine's id even where the shard is given by hand.
                from_env(&lookup).ok().and_then(|found| found.run),
            ),
        };
        if shard.is_whole() {
            return Ok((shard, None));
        }
        let [source] = sources else {
            return Err(format!(
                "--shard runs one scenario, but {} were given\n  help: start one set of shards per scenario",
                sources.len()
            ));
        };
        let run_key = self.run_key.clone().or(engine_key).ok_or(
            "--run KEY is missing: it names this attempt in the store\n  help: give every shard \
            of one attempt the same new name, such as --run nightly-17",
        )?;
        check_plan(&source.plan, shard, self.merge)?;
        let store = SharedStore::open(via, &run_key, env).map_err(|error| error.to_string())?;
        let shared = SharedRun {
            store: Arc::new(store),
            wait: self.wait,
            nonce: nonce(),
            merge_later: self.merge == MergeTime::Later,
        };
        Ok((shard, Some(shared)))
    }
}

/// A text that differs between any two processes.
fn nonce() -> String {
    let wall = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!("{:x}-{:x}", wall.as_nanos(), std::process::id())
}

/// Refuses what cannot be divided among processes.
fn check_plan(plan: &Plan, shard: Shard, merge: MergeTime) -> Result<(), String> {
    if merge == MergeTime::Later && !plan.searches.is_empty() {
        return Err(
            "--merge later cannot be used with `search`: each probe depends on the result of the \
            one before it\n  help: leave out --merge later"
                .into(),
        );
    }
    plan.cases.iter().try_for_each(|case| {
        check_case(case, shard).map_err(|why| format!("case {}: {why}", case.id))
    })
}

fn check_case(case: &Case, shard: Shard) -> Result<(), String> {
    match &case.target.location {
        TargetLocation::Simulator { .. } => {
            return Err(
                "`url: simulator` starts one server per process\n  help: start `llmscen simulate` \
                once and set `target.url` to its address"
                    .into(),
            );
        }
        TargetLocation::Local(_) => {
            return Err(
                "`api: local` runs a model inside one process\n  help: run without --shard".into(),
            );
        }
        TargetLocation::Urls(_) => {}
    }
    if case.load.stop_when_saturated {
        return Err(
            "`load.stop_when_saturated` cannot be used with --shard: it needs the requests \
        in flight of all shards at one instant\n  help: leave it out, or limit the run with an \
        SLO that has `abort`"
                .into(),
        );
    }
    shard.check_load(&case.load)
}
