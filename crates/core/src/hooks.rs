//! Hooks: actions around the rounds of a case, beside its load, and after the last load of a server.

use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The hooks of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hooks {
    /// Before the first round of the run, and before its server starts.
    pub before_run: Vec<Action>,
    /// After each start of the server, or before the first round of a variant.
    pub before_variant: Vec<Action>,
    /// Before each round.
    pub before_case: Vec<Action>,
    /// After each round.
    pub after_case: Vec<Action>,
    /// Repeated while requests are sent.
    pub beside: Vec<Repeated>,
    /// After the last round on the server, which is still running.
    pub then: Vec<Command>,
    /// What happens with a case that fails.
    pub on_fail: Option<ProfiledRerun>,
}

/// A failed case is sent once more between these actions. That round is no part of any figure.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfiledRerun {
    /// Starts the profiler.
    pub before: Vec<Action>,
    /// Stops it.
    pub after: Vec<Action>,
    /// Maximum number of cases of a run.
    pub max: u32,
}

impl Hooks {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        *self == Hooks::default()
    }
}

/// One action. A failure is an exit status other than 0, an HTTP status other than 200 to 299, or its timeout.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What it does.
    pub step: Step,
    /// Maximum time.
    pub timeout: Nanos,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Runs a command by `sh -c`.
    Run(String),
    /// Sends an HTTP request to the server.
    Call {
        /// `GET` or `POST`.
        method: Method,
        /// A whole URL.
        url: String,
        /// The JSON body.
        body: Option<Value>,
    },
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
}

impl Step {
    /// The step in one line.
    pub fn describe(&self) -> String {
        match self {
            Step::Run(command) => command.lines().next().unwrap_or_default().to_owned(),
            Step::Call { method, url, .. } => {
                let verb = match method {
                    Method::Get => "GET",
                    Method::Post => "POST",
                };
                format!("{verb} {url}")
            }
        }
    }
}

/// An action that is repeated while requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// The action.
    pub action: Action,
    /// Time from one start to the next; a late action delays the next one.
    pub every: Nanos,
}

/// A command after the load, whose exit status is an objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Its name in the report.
    pub name: String,
    /// The command, run by `sh -c`.
    pub command: String,
    /// Maximum time.
    pub timeout: Nanos,
}

/// A case that failed and was sent once more with the profiler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProfiledCase {
    /// Its id.
    pub case: String,
    /// Number of requests of the extra round; None if it was not run.
    pub requests: Option<u64>,
    /// The folder of the profile, if it is known.
    pub folder: Option<String>,
    /// Why there is no profile, or why it may be incomplete.
    pub failure: Option<String>,
}

/// The result of a command after the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Its name.
    pub name: String,
    /// The last case on the same server.
    pub case: String,
    /// Its exit status; None if it was killed or did not start.
    pub exit_code: Option<i32>,
    /// Why it failed; None if it succeeded.
    pub failure: Option<String>,
    /// Elapsed seconds.
    pub seconds: f64,
    /// The file of its output in the run folder.
    pub log: String,
}
