//! The local model: loaded once, shared by the cases that name it, and freed before another one is loaded.

use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::stop::{Level, Stop};
use crate::store::{RunDir, StoreError, npy};
use llmscen_client::clock::Clock;
use llmscen_core::load::Shape;
use llmscen_core::local::{Local, LocalRound};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::seed::Seed;
use llmscen_core::target::{Target, TargetLocation};
#[cfg(not(feature = "local"))]
use llmscen_local::error::LocalError;
use llmscen_local::host::{Gather, Host, Keep, Loading, Logits, Session};
use llmscen_telemetry::process::memory_now;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the switch is checked while a model is loaded.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a busy model is checked.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The loaded model, if any: memory holds one at a time.
#[derive(Default)]
pub struct LocalModels(Option<LoadedModel>);

struct LoadedModel {
    name: String,
    spec: Local,
    host: Arc<Host>,
}

impl LocalModels {
    /// The model of a target, loaded unless it is the last one used; None if the target is a server. Random weights
    /// are drawn from `seed`. Waits until requests that an earlier round cancelled no longer occupy the model.
    ///
    /// # Errors
    /// It cannot be loaded, or the switch was pressed meanwhile.
    pub fn load(
        &mut self,
        target: &Target,
        seed: Seed,
        context: &Context,
    ) -> Result<Option<Arc<Host>>, RunError> {
        let (TargetLocation::Local(spec), Some(model)) = (&target.location, target.models.first())
        else {
            return Ok(None);
        };
        // Batch size and logits are settings of a case, not of the model.
        let spec = Local {
            batch: 0,
            logits: false,
            ..spec.clone()
        };
        if let Some(loaded) = &self.0
            && loaded.name == model.name
            && loaded.spec == spec
        {
            wait_until_idle(&loaded.host, &context.stop)?;
            return Ok(Some(loaded.host.clone()));
        }
        if let Some(host) = self
            .0
            .take()
            .and_then(|loaded| Arc::into_inner(loaded.host))
        {
            host.free();
        }
        let preparing = Preparing {
            what: "loading the model",
            unit: "bytes",
            done: 0,
            total: None,
        };
        let _ = context.events.send(Event::Preparing(preparing));
        let loading = start_loading(
            model.name.clone(),
            spec.clone(),
            seed.child("weights"),
            context,
        )?;
        let host = Arc::new(wait_until_loaded(loading, &context.stop)?);
        self.0 = Some(LoadedModel {
            name: model.name.clone(),
            spec,
            host: host.clone(),
        });
        Ok(Some(host))
    }
}

/// Checks whether the model at `path` is supported.
///
/// # Errors
/// Names the file, the key and the unsupported value.
pub fn check_model(path: &Path) -> Result<(), String> {
    #[cfg(feature = "local")]
    llmscen_local::model::check(path).map_err(|error| error.to_string())?;
    let _ = path;
    Ok(())
}

#[cfg(feature = "local")]
fn start_loading(
    name: String,
    spec: Local,
    seed: Seed,
    context: &Context,
) -> Result<Loading, RunError> {
    use llmscen_core::local::Loaded;
    use llmscen_datasets::Progress;
    use llmscen_local::error::LocalError;
    use llmscen_local::host::Resident;
    use llmscen_telemetry::process::{memory_peak, memory_reserved, reset_memory_peak};
    let cache = context.cache.clone();
    let env = context.env.clone();
    let events = context.events.clone();
    let load = move || {
        let folder = llmscen_datasets::hub_model(&name, &cache, &env, &|progress| {
            let Progress::Download { bytes, total } = progress else {
                return;
            };
            let _ = events.send(Event::Preparing(Preparing {
                what: "downloading",
                unit: "bytes",
                done: bytes,
                total,
            }));
        });
        let folder = folder.map_err(|error| LocalError::Download {
            reason: error.to_string(),
        })?;
        let path = folder
            .as_ref()
            .map_or_else(|| name.clone(), |folder| folder.display().to_string());
        let (model, mut loaded) = llmscen_local::model::Model::load(&path, &spec, seed)?;
        loaded.notes.extend(
            folder.map(|folder| format!("`{name}`: the files in {} are used", folder.display())),
        );
        Ok((
            model,
            Loaded {
                model: name,
                ..loaded
            },
        ))
    };
    let memory = Resident {
        anew: reset_memory_peak,
        peak: memory_peak,
        now: memory_now,
        reserved: memory_reserved,
    };
    Loading::start(load, memory).map_err(RunError::Thread)
}

#[cfg(not(feature = "local"))]
fn start_loading(
    name: String,
    _spec: Local,
    _seed: Seed,
    _context: &Context,
) -> Result<Loading, RunError> {
    Err(LocalError::NotThere { name }.into())
}

fn wait_until_loaded(mut loading: Loading, stop: &Stop) -> Result<Host, RunError> {
    loop {
        loading = match loading.wait(STOP_POLL_INTERVAL) {
            Ok(Ok(host)) => return Ok(host),
            Ok(Err(_)) if stop.level() > Level::Run => return Err(RunError::Interrupted),
            Ok(Err(loading)) => loading,
            Err(error) => return Err(error.map_or(RunError::Panicked("model"), RunError::Model)),
        }
    }
}

/// Waits until the model has ended the batches of the round before: a cancelled batch still runs to the end of its
/// layer, and would delay the first batch of this round.
fn wait_until_idle(host: &Host, stop: &Stop) -> Result<(), RunError> {
    while !host.is_idle() {
        if stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
        std::thread::sleep(IDLE_POLL_INTERVAL);
    }
    Ok(())
}

/// A local model and its session for one round.
#[derive(Clone)]
pub struct ModelSession {
    /// Thread of the model.
    pub host: Arc<Host>,
    /// Session of the round.
    pub session: Arc<Session>,
}

impl ModelSession {
    /// The session of a round of `case`. It ends when one of the switches is pressed.
    pub fn new(
        host: Arc<Host>,
        case: &Case,
        clock: Clock,
        logits_writer: Option<&Arc<LogitsWriter>>,
        switches: [Stop; 3],
    ) -> ModelSession {
        let (batch, logits) = match &case.target.location {
            TargetLocation::Local(spec) => (spec.batch, spec.logits),
            TargetLocation::Urls(_) | TargetLocation::Simulator { .. } => (1, false),
        };
        let gather = match case.load.shape {
            Shape::Static { batch } => Gather::Full(batch),
            _ => Gather::Waiting(batch),
        };
        let is_over = move || switches.iter().any(|switch| switch.level() > Level::Run);
        let keep = logits_writer
            .filter(|_| logits)
            .cloned()
            .map(|logits_writer| {
                Box::new(move |logits: &Logits<'_>| logits_writer.write(logits)) as Keep
            });
        ModelSession {
            host,
            session: Arc::new(Session::new(clock, gather, Box::new(is_over), keep)),
        }
    }

    /// What the model did in the round.
    pub fn describe(&self) -> LocalRound {
        let batches = self.session.batches();
        LocalRound {
            loaded: self.host.loaded.clone(),
            memory_peak: batches
                .iter()
                .map(|batch| batch.memory)
                .max()
                .unwrap_or_else(memory_now),
            cut: self.session.cut(),
            device_memory_peak: batches.iter().filter_map(|batch| batch.device_memory).max(),
            batches,
        }
    }
}

/// Adds the notes on the model of a part, each once.
pub fn note_model(part: Option<&Part>, notes: &mut Vec<String>) {
    let model_notes = part
        .and_then(|part| part.local.as_ref())
        .into_iter()
        .flat_map(|local| &local.loaded.notes);
    for note in model_notes {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
}

/// Notes how many replies of a case ended at the model's token limit: one note per case, updated by each round.
pub fn note_cut(parts: &[Part], case: &str, notes: &mut Vec<String>) {
    let local = parts
        .iter()
        .filter(|part| part.case == case)
        .filter_map(|part| part.local.as_ref());
    let cut: u64 = local.map(|local| local.cut).sum();
    if cut > 0 {
        let prefix = format!(
            "`{case}`: replies shorter than requested because of the model's token limit: "
        );
        notes.retain(|note| !note.starts_with(&prefix));
        notes.push(format!("{prefix}{cut}"));
    }
}

/// Writes the logits of a round.
pub struct LogitsWriter {
    folder: RunDir,
    case: String,
    round: u32,
    /// Pressed after a write error, so that nothing more is sent.
    halt: Stop,
    fault: Mutex<Option<StoreError>>,
}

impl LogitsWriter {
    /// The writer of a round of a case with this index in the plan.
    pub fn new(folder: &RunDir, index: usize, case: &Case, round: u32, halt: Stop) -> LogitsWriter {
        let case = npy::folder_name(index as u32, &case.id);
        LogitsWriter {
            folder: folder.clone(),
            case,
            round,
            halt,
            fault: Mutex::default(),
        }
    }

    fn write(&self, logits: &Logits<'_>) {
        let turn = if logits.turn > 0 {
            format!("-{}", logits.turn)
        } else {
            String::new()
        };
        let name = format!("{}/{}-{}{turn}.npy", self.case, self.round, logits.seq);
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_none() {
            *fault = npy::write(&self.folder, &name, logits.values, logits.vocabulary)
                .inspect_err(|_| self.halt.press())
                .err();
        }
    }

    /// The first write error.
    pub fn take_fault(&self) -> Option<RunError> {
        self.fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .map(RunError::from)
    }
}
