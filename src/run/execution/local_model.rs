//! The model of this process: loaded once, kept for the cases that name it, and let go for another one.

use crate::run::error::RunError;
use crate::run::event::{Event, Preparing};
use crate::run::execution::Context;
use crate::run::execution::stop::{Level, Stop};
use crate::run::round::RoundInput;
use crate::run::worker::engine::Engine;
use crate::store::{RunDir, StoreError, npy};
use llmscen_client::clock::Clock;
use llmscen_client::http::{Http, Setting};
use llmscen_client::route::Route;
use llmscen_core::load::Shape;
use llmscen_core::local::{Local, LocalPart};
use llmscen_core::manifest::Part;
use llmscen_core::plan::Case;
use llmscen_core::seed::Seed;
use llmscen_core::target::{Place, Target};
use llmscen_local::adapter::Adapter;
#[cfg(not(feature = "local"))]
use llmscen_local::error::LocalError;
use llmscen_local::host::{Gather, Host, Keep, Loading, Logits, Session};
use llmscen_telemetry::process::memory_now;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// While a model is loaded, the switch is looked at this often.
const LOOK: Duration = Duration::from_millis(50);
/// While it ends what was given up, whether it has is looked at this often.
const SOON: Duration = Duration::from_millis(2);

/// The model that is loaded, if one is: one has room at a time.
#[derive(Default)]
pub struct LocalModels(Option<(String, Local, Arc<Host>)>);

impl LocalModels {
    /// The model of a target, loaded now where it is another one than before; None where the target is a server.
    /// Random weights are drawn from `seed`. Its thread is idle: what an earlier round gave up is waited for.
    ///
    /// # Errors
    /// It cannot be loaded, or the switch was pressed meanwhile.
    pub fn ready(&mut self, target: &Target, seed: Seed, context: &Context) -> Result<Option<Arc<Host>>, RunError> {
        let (Place::Local(spec), Some(model)) = (&target.place, target.models.first()) else { return Ok(None) };
        // What a case asks of it changes nothing of the model.
        let spec = Local { batch: 0, logits: false, ..spec.clone() };
        if let Some((name, own, host)) = &self.0
            && (name, own) == (&model.name, &spec)
        {
            idle(host, &context.stop)?;
            return Ok(Some(host.clone()));
        }
        if let Some(host) = self.0.take().and_then(|(.., host)| Arc::into_inner(host)) {
            host.free();
        }
        let preparing = Preparing { what: "loading the model", unit: "bytes", done: 0, total: None };
        let _ = context.events.send(Event::Preparing(preparing));
        let host = Arc::new(wait(start(model.name.clone(), spec.clone(), seed.child("weights"), context)?, &context.stop)?);
        self.0 = Some((model.name.clone(), spec, host.clone()));
        Ok(Some(host))
    }
}

/// Why the model at `path` cannot be computed with.
///
/// # Errors
/// Names the file, the key and what about it is not supported.
pub fn supports(path: &Path) -> Result<(), String> {
    #[cfg(feature = "local")]
    llmscen_local::model::check(path).map_err(|error| error.to_string())?;
    let _ = path;
    Ok(())
}

#[cfg(feature = "local")]
fn start(name: String, spec: Local, seed: Seed, context: &Context) -> Result<Loading, RunError> {
    use llmscen_core::local::Loaded;
    use llmscen_datasets::Progress;
    use llmscen_local::error::LocalError;
    use llmscen_local::host::Resident;
    use llmscen_telemetry::process::{memory_anew, memory_peak, memory_reserved};
    let (cache, env, events) = (context.cache.clone(), context.env.clone(), context.events.clone());
    let load = move || {
        let folder = llmscen_datasets::hub_model(&name, &cache, &env, &|progress| {
            let Progress::Download { bytes, total } = progress else { return };
            let _ = events.send(Event::Preparing(Preparing { what: "downloading", unit: "bytes", done: bytes, total }));
        });
        let folder = folder.map_err(|error| LocalError::Download { reason: error.to_string() })?;
        let path = folder.as_ref().map_or_else(|| name.clone(), |folder| folder.display().to_string());
        let (model, mut loaded) = llmscen_local::model::Model::load(&path, &spec, seed)?;
        loaded.notes.extend(folder.map(|folder| format!("`{name}`: the files in {} are used", folder.display())));
        Ok((model, Loaded { model: name, ..loaded }))
    };
    let memory = Resident { anew: memory_anew, peak: memory_peak, now: memory_now, reserved: memory_reserved };
    Loading::start(load, memory).map_err(RunError::Thread)
}

#[cfg(not(feature = "local"))]
fn start(name: String, _spec: Local, _seed: Seed, _context: &Context) -> Result<Loading, RunError> {
    Err(LocalError::NotThere { name }.into())
}

fn wait(mut loading: Loading, stop: &Stop) -> Result<Host, RunError> {
    loop {
        loading = match loading.wait(LOOK) {
            Ok(Ok(host)) => return Ok(host),
            Ok(Err(_)) if stop.level() > Level::Run => return Err(RunError::Interrupted),
            Ok(Err(loading)) => loading,
            Err(error) => return Err(error.map_or(RunError::Panicked("model"), RunError::Model)),
        }
    }
}

/// Waits until the model has done with what an earlier round handed over: a batch that was given up goes on to the next layer,
/// and would delay the first one of this round.
fn idle(host: &Host, stop: &Stop) -> Result<(), RunError> {
    while !host.is_idle() {
        if stop.level() > Level::Run {
            return Err(RunError::Interrupted);
        }
        std::thread::sleep(SOON);
    }
    Ok(())
}

/// A round as the model's thread sees it; it is over when one of these switches is pressed.
pub fn local_session(case: &Case, clock: Clock, logits_writer: Option<&Arc<LogitsWriter>>, over: [Stop; 3]) -> Session {
    let (batch, logits) = match &case.target.place {
        Place::Local(spec) => (spec.batch, spec.logits),
        Place::Url(_) | Place::Simulator { .. } => (1, false),
    };
    let gather = match case.load.shape {
        Shape::Static { batch } => Gather::Full(batch),
        _ => Gather::Waiting(batch),
    };
    let over = move || over.iter().any(|switch| switch.level() > Level::Run);
    let keep = logits_writer
        .filter(|_| logits)
        .cloned()
        .map(|logits_writer| Box::new(move |logits: &Logits<'_>| logits_writer.keep(logits)) as Keep);
    Session::new(clock, gather, Box::new(over), keep)
}

/// A model in this process, and the round as its thread sees it.
pub type Own = (Arc<Host>, Arc<Session>);

/// What a worker sends its calls to: what is at the end of the route, or a model in this process.
pub fn open_engine(target: &Target, (route, own): (Option<&Route>, Option<Own>), setting: Setting) -> Result<Engine, RunError> {
    match (route, own) {
        (_, Some(own)) => Ok(Engine::Local(seat(target, own, setting))),
        (Some(route), None) => Ok(Engine::Http(Box::new(Http::new(target, route, setting)?))),
        (None, None) => Err(RunError::NothingToSend),
    }
}

/// A worker's place with the model.
fn seat(target: &Target, (host, session): Own, setting: Setting) -> Adapter {
    Adapter {
        host,
        session,
        gauges: setting.gauges,
        total: target.timeouts.total,
        seed: setting.manners.seed,
        keep_text: setting.keep_text,
        keep_bodies: setting.keep_bodies,
    }
}

/// What the model did in a round.
pub fn describe_local(host: &Host, session: &Session) -> LocalPart {
    let batches = session.batches();
    LocalPart {
        loaded: host.loaded.clone(),
        memory_peak: batches.iter().map(|batch| batch.memory).max().unwrap_or_else(memory_now),
        cut: session.cut(),
        device_memory_peak: batches.iter().filter_map(|batch| batch.device_memory).max(),
        batches,
    }
}

/// Notes, once, what a reader must know of the model of a part.
pub fn note_model(part: Option<&Part>, notes: &mut Vec<String>) {
    let own = part.and_then(|part| part.local.as_ref()).into_iter().flat_map(|local| &local.loaded.notes);
    for note in own {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
}

/// Notes, once for each case, how many of its replies the model had no room to end.
pub fn note_cut(parts: &[Part], case: &str, notes: &mut Vec<String>) {
    let own = parts.iter().filter(|part| part.case == case).filter_map(|part| part.local.as_ref());
    let cut: u64 = own.map(|local| local.cut).sum();
    if cut > 0 {
        let before = format!("`{case}`: replies cut at the model's limit of tokens, and shorter than they were asked for: ");
        notes.retain(|note| !note.starts_with(&before));
        notes.push(format!("{before}{cut}"));
    }
}

/// Where the logits of a round go.
pub struct LogitsWriter {
    folder: RunDir,
    case: String,
    round: u32,
    /// Pressed where one cannot be written: nothing more is sent then.
    halt: Stop,
    fault: Mutex<Option<StoreError>>,
}

impl LogitsWriter {
    /// Those of a round.
    pub fn new(input: &RoundInput<'_>, halt: Stop) -> LogitsWriter {
        let case = npy::folder(input.index as u32, &input.case.id);
        LogitsWriter { folder: input.folder.clone(), case, round: input.round, halt, fault: Mutex::default() }
    }

    fn keep(&self, logits: &Logits<'_>) {
        let turn = if logits.turn > 0 { format!("-{}", logits.turn) } else { String::new() };
        let name = format!("{}/{}-{}{turn}.npy", self.case, self.round, logits.seq);
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_none() {
            *fault = npy::write(&self.folder, &name, logits.values, logits.vocabulary).inspect_err(|_| self.halt.press()).err();
        }
    }

    /// Why not all of them are there.
    pub fn fault(&self) -> Option<RunError> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take().map(RunError::from)
    }
}
