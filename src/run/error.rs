//! Errors that end a run.

use crate::run::merge::MergeError;
use crate::run::sharding::ShardingError;
use crate::store::StoreError;
use llmscen_analysis::TableError;
use llmscen_client::ClientError;
use llmscen_client::server::ServerError;
use llmscen_compat::export::ExportError;
use llmscen_core::api::Api;
use llmscen_core::early_stop::{AllFailed, EarlyStop, TargetLost};
use llmscen_core::outcome::Failure;
use llmscen_datasets::PromptError;
use llmscen_datasets::token::TokenError;
use llmscen_local::error::LocalError;
use llmscen_report::ReportError;
use llmscen_requests::answers::CompileError;
use llmscen_requests::render::RenderError;
use llmscen_simulator::SimError;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why a run cannot go on. A failed request is not an error.
#[derive(Debug, Error)]
pub enum RunError {
    /// The scenario configures the protocol in an unsupported way.
    #[error("{0}")]
    Protocol(String),
    /// The target cannot be reached.
    #[error(
        "cannot connect to {url}: {} ({})\n  tried {attempts} time{} in {seconds:.1} s; check that \
        the server is running and that host and port are right",
        failure.message, failure.kind, if *attempts == 1 { "" } else { "s" }
    )]
    Unreachable {
        /// The target.
        url: String,
        /// The last attempt's failure.
        failure: Failure,
        /// Number of attempts.
        attempts: u32,
        /// Time from the first attempt to the last, seconds.
        seconds: f64,
    },
    /// The conditions of `target.ready` were not met in time.
    #[error("the target was not ready after {seconds} s:\n  {}", missing.join("\n  "))]
    NotReady {
        /// Time limit in seconds.
        seconds: f64,
        /// What was not ready, one line each.
        missing: Vec<String>,
    },
    /// A query of `target.metrics` cannot be evaluated.
    #[error(
        "{place}: the query of `target.metrics` failed: {why}\n  help: fix the query, or check \
        that {url} is a Prometheus server that runs"
    )]
    Query {
        /// Its place in the scenario.
        place: String,
        /// The Prometheus server.
        url: String,
        /// The reason.
        why: String,
    },
    /// The command for the key of requests failed before the first request.
    #[error(
        "cannot get the key of the target: {command}: {why}\n  help: run the command in a shell; \
         `target.api_key.command` must print the key and nothing else"
    )]
    NoKey {
        /// The command, without secrets.
        command: String,
        /// Why.
        why: String,
    },
    /// No credentials of AWS before the first request.
    #[error("cannot sign requests: {0}")]
    NoAwsCredentials(String),
    /// The server of a capacity search stopped responding.
    #[error(
        "target lost: the server stopped responding; all {requests} requests of probe `{case}` failed ({why})"
    )]
    Gone {
        /// Case of the probe.
        case: String,
        /// Requests of the probe.
        requests: u64,
        /// The last failure.
        why: String,
    },
    /// The target could not be reached any more during a case.
    #[error("{0}")]
    TargetLost(TargetLost),
    /// Every request of a case failed with the same HTTP status.
    #[error("{0}")]
    AllFailed(AllFailed),
    /// A round was not started, since its target or its managed server failed before.
    #[error("{}not run: {why}", if *round == 0 { String::new() } else { format!("round {} ", round + 1) })]
    NotRun {
        /// Round, from 0.
        round: u32,
        /// What failed.
        why: String,
    },
    /// `--continue` for a run that cannot go on.
    #[error("cannot continue the run in {}: {why}", folder.display())]
    CannotContinue {
        /// The run folder.
        folder: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// A managed server did not start, or exited.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// An action before a round failed.
    #[error("`{point}` of `{case}` failed: {why}")]
    Hook {
        /// `before_variant` or `before_case`.
        point: &'static str,
        /// The case.
        case: String,
        /// The action and its failure.
        why: String,
    },
    /// An action before the run failed.
    #[error("`before_run` failed: {0}")]
    BeforeRun(String),
    /// A signal came before the first request.
    #[error("interrupted before the first request; nothing was measured")]
    Interrupted,
    /// The dataset ended before the load, with `on_exhausted: fail`.
    #[error(
        "the dataset ended after {rows} rows; lower `load.requests`, or set \
        `dataset.on_exhausted` to `cycle` or `stop`"
    )]
    Exhausted {
        /// Usable rows.
        rows: u64,
    },
    /// The plan or the dataset has no request.
    #[error("nothing to send: the plan or the dataset has no request")]
    NothingToSend,
    /// A replay without a trace.
    #[error("no arrivals to replay; set `load.trace.path`, or use a dataset of `kind: trace`")]
    NoArrivals,
    /// A conversation in a dataset whose first session has one turn, so that replies are not kept.
    #[error(
        "session {seq} of the dataset has {turns} turns, but the first session has one; set \
        `dataset.turns: {{}}` to send conversations"
    )]
    Conversation {
        /// Number of the session.
        seq: u64,
        /// Number of its turns.
        turns: u32,
    },
    /// A session has fewer turns than before.
    #[error(
        "the dataset file changed during the run (session {seq}); run again with the final file"
    )]
    Session {
        /// Number of the session.
        seq: u64,
    },
    /// A session with branches, where the server keeps one line of turns per connection.
    #[error(
        "session {seq} of the dataset has branches, sub-agents or whole prompts, and with `api: \
        {api}` the server keeps the conversation of a connection, which has one turn after the \
        other; use `openai-responses`"
    )]
    Branches {
        /// Number of the session.
        seq: u64,
        /// The protocol.
        api: Api,
    },
    /// A turn continues a response without an id.
    #[error(
        "the response to turn {turn} of the session (0-based) has no id, which `history: previous_response_id` sends"
    )]
    NoResponseId {
        /// The turn, from 0.
        turn: u32,
    },
    /// The limit on open files is too low for the load.
    #[error(
        "{connections} requests in flight need {wanted} open files, but this process may open \
        {allowed}; raise the limit with `ulimit -n {wanted}`"
    )]
    OpenFiles {
        /// Maximum number of requests in flight.
        connections: u64,
        /// Number of open files they need.
        wanted: u64,
        /// Number of open files that the system allows.
        allowed: u64,
    },
    /// The system provides no thread, runtime or timer.
    #[error("cannot start the thread of a worker: {0}")]
    Thread(std::io::Error),
    /// A thread panicked.
    #[error(
        "internal error: the {0} thread panicked. This is a bug in llmscen; please report it. \
        Results so far are saved"
    )]
    Panicked(&'static str),
    /// A thread or task panicked while requests were sent; the message names it.
    #[error(
        "internal error: {0}. This is a bug in llmscen or a lack of memory. Results so far are saved"
    )]
    Defect(&'static str),
    /// The HTTP client cannot be set up for the target.
    #[error(transparent)]
    Engine(#[from] ClientError),
    /// The dataset cannot be opened.
    #[error(transparent)]
    Prompts(#[from] PromptError),
    /// The dataset cannot be read further.
    #[error(transparent)]
    Data(Arc<PromptError>),
    /// A request body cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The checks of answers cannot be compiled.
    #[error(transparent)]
    Answers(#[from] CompileError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The simulator cannot start.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The local model cannot be loaded.
    #[error(transparent)]
    Model(#[from] LocalError),
    /// The run folder cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request table cannot be built or read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The stored request table of a run cannot be read.
    #[error(
        "cannot read {path}: {source}; restore the file from a copy, or run the scenario again"
    )]
    Rows {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TableError,
    },
    /// Shard 0 starts a server that the shards on other hosts cannot reach.
    #[error(
        "the shards run on several hosts, but the managed server of `{case}` listens at \
         {address}, which only the host of shard 0 reaches\n  help: set `target.url` and the \
         server's options to an address of that host"
    )]
    LoopbackServer {
        /// Case id.
        case: String,
        /// Host and port of the server.
        address: String,
    },
    /// The temporary folder of a shard cannot be created.
    #[error(
        "cannot create a folder for the rows of this shard: {0}\n  help: set TMPDIR or --output to a writable folder"
    )]
    ShardFolder(std::io::Error),
    /// The shards of a run cannot start or go on together.
    #[error(transparent)]
    Sharding(ShardingError),
    /// The records of shards cannot be merged.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// A report cannot be rendered.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A file in the format of another tool.
    #[error(transparent)]
    Export(#[from] ExportError),
}

impl From<ShardingError> for RunError {
    fn from(error: ShardingError) -> RunError {
        match error {
            ShardingError::Interrupted => RunError::Interrupted,
            error => RunError::Sharding(error),
        }
    }
}

impl RunError {
    /// The error for an early end of a round, if it is one.
    pub fn from_ending(ending: &EarlyStop) -> Option<RunError> {
        match ending {
            EarlyStop::TargetLost(lost) => Some(RunError::TargetLost(lost.clone())),
            EarlyStop::AllFailed(failed) => Some(RunError::AllFailed(failed.clone())),
            EarlyStop::Aborted(_) | EarlyStop::Saturated(_) => None,
        }
    }

    /// Whether a file of a stored run is the cause.
    pub fn is_of_stored_file(&self) -> bool {
        use StoreError::{Damaged, Manifest, NotAJournal, NotARun, Read, Spool, Version};
        match self {
            RunError::Rows { .. } => true,
            RunError::Store(error) => {
                matches!(
                    error,
                    Damaged { .. }
                        | Manifest { .. }
                        | NotAJournal { .. }
                        | NotARun { .. }
                        | Read { .. }
                        | Spool { .. }
                        | Version { .. }
                )
            }
            _ => false,
        }
    }

    /// Whether cases of other targets can go on.
    pub fn affects_one_target(&self) -> bool {
        matches!(
            self,
            RunError::Server(_)
                | RunError::Hook { .. }
                | RunError::TargetLost(_)
                | RunError::AllFailed(_)
                | RunError::NotRun { .. }
        )
    }

    /// The error in one line, with the last line of the log of a managed server.
    pub fn brief_with_log(&self) -> String {
        let last = match self {
            RunError::Server(
                ServerError::ExitedEarly { log, .. }
                | ServerError::NotReady { log, .. }
                | ServerError::Exited { log, .. },
            ) => log.iter().rev().find(|line| !line.trim().is_empty()),
            _ => None,
        };
        match last {
            Some(line) => format!("{}; its log ends with: {}", self.brief(), line.trim()),
            None => self.brief(),
        }
    }

    /// The error in one line, without the lines of a server log, which is in the run folder.
    pub fn brief(&self) -> String {
        let message = self.to_string();
        match self {
            RunError::Server(
                ServerError::ExitedEarly { .. }
                | ServerError::NotReady { .. }
                | ServerError::Exited { .. },
            ) => message.lines().next().unwrap_or_default().to_owned(),
            _ => message
                .lines()
                .map(str::trim)
                .collect::<Vec<_>>()
                .join("; "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brief_form_joins_lines_and_leaves_out_logs() {
        let taken = RunError::from(ServerError::AddressInUse {
            address: "h:1".into(),
        });
        let help =
            "cannot bind it; help: stop the other process or change the port in `target.url`";
        assert!(taken.brief().ends_with(help), "{}", taken.brief());
        let log = vec!["a secret".to_owned()];
        let early = ServerError::ExitedEarly {
            how: "exit status 7".into(),
            after_s: 0.0123,
            log,
            file: "server.log".into(),
        };
        assert_eq!(
            RunError::from(early).brief(),
            "the server exited 12 ms after its start, before it was ready: exit status 7"
        );
    }
}
