//! Why a run cannot go on.

use crate::store::StoreError;
use llmscen_analysis::FrameError;
use llmscen_client::ClientError;
use llmscen_client::server::ServerError;
use llmscen_core::early_stop::{AllFailed, Ending, TargetLost};
use llmscen_core::outcome::Failure;
use llmscen_datasets::PromptError;
use llmscen_datasets::token::TokenError;
use llmscen_local::error::LocalError;
use llmscen_report::ViewError;
use llmscen_scenario::render::RenderError;
use llmscen_simulator::SimError;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// What ends a run before its verdict. A failed request is none of these.
#[derive(Debug, Error)]
pub enum RunError {
    /// The protocol cannot be spoken as the scenario describes it.
    #[error("{0}")]
    Protocol(String),
    /// Nobody answers at the target.
    #[error("cannot reach the target {url}: {} ({})\n  tried {attempts} time{} within {seconds:.1} s; is the server up, and the url right?", failure.message, failure.kind, if *attempts == 1 { "" } else { "s" })]
    Unreachable {
        /// The target.
        url: String,
        /// The last attempt's failure.
        failure: Failure,
        /// Attempts.
        attempts: u32,
        /// Seconds that they took.
        seconds: f64,
    },
    /// A search whose server answers no more.
    #[error("target lost: none of the {requests} requests of the probe `{case}` was answered ({why})")]
    Gone {
        /// The probe's case.
        case: String,
        /// Its requests.
        requests: u64,
        /// The last failure.
        why: String,
    },
    /// The target went away while a case was measured.
    #[error("{0}")]
    TargetLost(TargetLost),
    /// Every request of a case failed with the same HTTP status.
    #[error("{0}")]
    AllFailed(AllFailed),
    /// A round was not begun, since an earlier one had lost its target. Rounds count from 0.
    #[error("{}not run: target lost", if *round == 0 { String::new() } else { format!("round {} ", round + 1) })]
    NotRun {
        /// The round.
        round: u32,
    },
    /// A server under management cannot be had, or was lost.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A signal came before there was anything to save.
    #[error("interrupted before the first request; nothing was measured")]
    Interrupted,
    /// The dataset ended before the requests did, with `on_exhausted: fail`.
    #[error("the dataset ended after {rows} rows; lower `load.requests`, or set `dataset.on_exhausted` to `cycle` or `stop`")]
    Exhausted {
        /// Usable rows.
        rows: u64,
    },
    /// The plan or the data gives not a single request.
    #[error("there is nothing to send: the plan or the dataset holds no request")]
    NothingToSend,
    /// A replay without a log.
    #[error("there are no arrivals to replay: name a file in `load.trace.path`, or take a dataset of `kind: trace`")]
    NoArrivals,
    /// Conversations where single requests were expected: their replies were not kept.
    #[error(
        "session {seq} of the dataset has {turns} turns and the first one has one; `dataset.turns: {{}}` plays them as conversations"
    )]
    Conversation {
        /// Its number.
        seq: u64,
        /// Its turns.
        turns: u32,
    },
    /// A session that is shorter than it was.
    #[error("session {seq} of the dataset is no longer what it was at its first turn; was the file changed meanwhile?")]
    Session {
        /// Its number.
        seq: u64,
    },
    /// The limit on open files is too low for the load.
    #[error(
        "{connections} requests in flight need {wanted} open files, but this process may open {allowed}; raise the limit with `ulimit -n {wanted}`"
    )]
    OpenFiles {
        /// Requests in flight at the most.
        connections: u64,
        /// Open files that they need.
        wanted: u64,
        /// Open files that the system allows.
        allowed: u64,
    },
    /// The system gives no thread or runtime.
    #[error("cannot start a worker: {0}")]
    Thread(std::io::Error),
    /// A worker ended by a defect of this program.
    #[error("the {0} thread ended unexpectedly; this is a defect of llmscen, and what was measured so far is reported")]
    Panicked(&'static str),
    /// A task ended by a defect of this program, or for lack of memory.
    #[error("{0}; this is a defect of llmscen or a lack of memory, and what was measured so far is reported")]
    Defect(&'static str),
    /// The target cannot be spoken to.
    #[error(transparent)]
    Engine(#[from] ClientError),
    /// A prompt cannot be had.
    #[error(transparent)]
    Prompts(#[from] PromptError),
    /// The data cannot be read on.
    #[error(transparent)]
    Data(Arc<PromptError>),
    /// A body cannot be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// The tokenizer cannot be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The simulator cannot start.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// The model cannot be loaded into this process.
    #[error(transparent)]
    Model(#[from] LocalError),
    /// The run folder cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The rows cannot be analysed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The stored rows of a run cannot be read.
    #[error("cannot read {path}: {source}; restore the file from a copy, or run the scenario again")]
    Rows {
        /// The file.
        path: PathBuf,
        /// Why.
        source: FrameError,
    },
    /// A report cannot be drawn.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl RunError {
    /// The error that a round's own decision to end is, if it is one.
    pub fn of_ending(ending: &Ending) -> Option<RunError> {
        match ending {
            Ending::TargetLost(lost) => Some(RunError::TargetLost(lost.clone())),
            Ending::AllFailed(failed) => Some(RunError::AllFailed(failed.clone())),
            Ending::Aborted(_) | Ending::Saturated(_) => None,
        }
    }

    /// Whether a file of a stored run is the reason.
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

    /// Whether it ends the one case alone; `per_case`: its server is its own.
    pub fn is_of_one_case(&self, per_case: bool) -> bool {
        match self {
            RunError::Server(_) => per_case,
            RunError::TargetLost(_) | RunError::AllFailed(_) | RunError::NotRun { .. } => true,
            _ => false,
        }
    }

    /// What happened in one line, without the lines of a server's log, which lies in the run folder.
    pub fn brief(&self) -> String {
        let whole = self.to_string();
        match self {
            RunError::Server(ServerError::ExitedEarly { .. } | ServerError::NotReady { .. } | ServerError::Exited { .. }) => {
                whole.lines().next().unwrap_or_default().to_owned()
            }
            _ => whole.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_brief_lines_are_told_apart_and_logs_left_out() {
        let taken = RunError::from(ServerError::AddressInUse { address: "h:1".into() });
        assert!(
            taken.brief().ends_with("cannot bind it; help: stop the other process or change the port in `target.url`"),
            "{}",
            taken.brief()
        );
        let log = vec!["a secret".to_owned()];
        let early = ServerError::ExitedEarly { how: "exit status 7".into(), after_s: 0.0123, log, file: "server.log".into() };
        assert_eq!(RunError::from(early).brief(), "the server exited 12 ms after its start, before it was ready: exit status 7");
    }
}
