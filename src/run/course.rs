//! The course of a run: its rounds, one after another, and what they leave.

use crate::run::bench::Bench;
use crate::run::context::Context;
use crate::run::error::RunError;
use crate::run::event::Event;
use crate::run::fail_fast::FailFast;
use crate::run::ledger::Ledger;
use crate::run::line::Walk;
use crate::run::managed::{Managed, Servers};
use crate::run::model::{Models, note_cut, note_model};
use crate::run::observe::Observer;
use crate::run::panics;
use crate::run::part::{Prepared, play, prepare};
use crate::run::readings::Keeper;
use crate::run::replies::{self, Replies};
use crate::run::rows::{Placed, replay, settled};
use crate::run::served::list_models;
use crate::run::stop::{Level, Stop};
use crate::run::turn::{Played, Probing, Turn};
use crate::store::journal::Writer;
use crate::store::{RunDir, bodies, journal, manifest};
use llmscen_analysis::Table;
use llmscen_client::counters::Absurd;
use llmscen_client::route::Route;
use llmscen_core::manifest::{FailedCase, Manifest, Part};
use llmscen_core::plan::{Case, Plan};
use llmscen_core::seed::Seed;
use llmscen_core::telemetry::Recorded;
use llmscen_core::units::Nanos;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One round to play.
pub struct Leg<'a> {
    /// Index of its case in the plan.
    pub index: usize,
    /// Its case.
    pub case: &'a Case,
    /// Its bench.
    pub bench: &'a Bench,
    /// Round of the case, from 0.
    pub round: u32,
    /// How it is a probe.
    pub probe: Option<Probing>,
    /// Its place among the parts of the run, and how many there are.
    pub place: (usize, usize),
}

/// What a run has left so far.
pub struct Course<'a> {
    plan: &'a Plan,
    folder: &'a RunDir,
    context: &'a Context,
    manifest: &'a mut Manifest,
    journal: Option<Writer>,
    /// The rows of the last round, where it was a probe.
    pub probed: Option<Table>,
    /// Why not one request of the last round got any answer, where that is so.
    pub unanswered: Option<String>,
    /// Outcomes that may be missing in the journal.
    unwritten: Vec<Placed>,
    /// By case, what its requests so far say of those that come.
    seen: BTreeMap<usize, FailFast>,
    /// What was sampled, round by round as they ran.
    pub recorded: Vec<Recorded>,
    keeper: Keeper,
    observer: Observer,
    ledger: Ledger,
    replies: Replies,
    /// Replies whose counts cannot be true, by case.
    absurd: BTreeMap<String, Absurd>,
    told: Vec<String>,
    fault: Option<RunError>,
    servers: Servers,
    /// Cases that cannot go on while the others can: their server could not be had, or every request failed alike.
    lost: Vec<(String, RunError)>,
    /// Host and port of targets that went away: nothing is sent to them again.
    gone: Vec<String>,
    models: Models,
    /// Rests of this length stand between two rounds.
    pause: Duration,
    begun: bool,
}

impl<'a> Course<'a> {
    /// Begins with an empty journal.
    pub fn begin(
        plan: &'a Plan,
        folder: &'a RunDir,
        manifest: &'a mut Manifest,
        context: &'a Context,
    ) -> Result<Course<'a>, RunError> {
        let journal = Some(Writer::create(&folder.file(journal::FILE))?);
        let observer = Observer::of(plan, context);
        if let Some(note) = &observer.note {
            manifest.notes.push(note.clone());
            let _ = context.events.send(Event::Note(note.clone()));
        }
        let (told, drain) = (manifest.notes.clone(), plan.quests.first().map(|quest| quest.spec.drain));
        let pause = drain.unwrap_or(plan.pause).into();
        let (servers, lost, gone) = (Servers::new(plan.restart), Vec::new(), Vec::new());
        Ok(Course {
            plan,
            folder,
            context,
            manifest,
            journal,
            probed: None,
            unanswered: None,
            unwritten: Vec::new(),
            seen: BTreeMap::new(),
            recorded: Vec::new(),
            keeper: Keeper::default(),
            observer,
            ledger: Ledger::default(),
            replies: Replies::default(),
            absurd: BTreeMap::new(),
            told,
            fault: None,
            servers,
            lost,
            gone,
            models: Models::default(),
            pause,
            begun: false,
        })
    }

    /// Rests, and plays a round. False where the run is over: interrupted, or unable to go on.
    pub fn play(&mut self, leg: &Leg<'_>) -> bool {
        if self.lost.iter().any(|(case, _)| *case == leg.case.id) {
            return true;
        }
        if address(leg).is_some_and(|address| self.gone.contains(&address)) {
            self.lost.push((leg.case.id.clone(), RunError::NotRun { round: leg.round }));
            return true;
        }
        if std::mem::replace(&mut self.begun, true) {
            rest(self.pause, &self.context.stop);
        }
        if self.context.stop.level() > Level::Run {
            return false;
        }
        let mut servers = std::mem::take(&mut self.servers);
        let played = self.prepared(leg, &servers).and_then(|ready| {
            let server = servers.of((leg.case, leg.round), leg.bench, self.folder, self.context)?;
            self.round(leg, server, ready)
        });
        let stopped = matches!(played, Err(RunError::Interrupted));
        if let Err(fault) = played {
            self.give_up(leg, fault);
        }
        self.servers = servers;
        // A search needs every probe.
        let ended = leg.probe.is_some() && self.lost.iter().any(|(case, _)| *case == leg.case.id);
        self.fault.is_none() && !stopped && !ended
    }

    /// Notes what a case failed by. Other cases go on where they can.
    fn give_up(&mut self, leg: &Leg<'_>, fault: RunError) {
        let per_case = leg.case.target.server.as_ref().is_some_and(|server| server.per_case);
        if matches!(fault, RunError::TargetLost(_)) && !per_case {
            self.gone.extend(address(leg));
        }
        match fault {
            RunError::Interrupted => {}
            fault if fault.is_of_one_case(per_case) => self.lost.push((leg.case.id.clone(), fault)),
            fault => self.fault = Some(fault),
        }
    }

    /// The watch over the first requests of the case, of which some may have been sent in earlier rounds.
    fn fail_fast(&self, leg: &Leg<'_>, planned: Option<u64>) -> Option<FailFast> {
        let rounds = if leg.probe.is_some() { 1 } else { u64::from(self.plan.rounds) };
        // Sessions are planned, and requests are counted.
        let planned = planned.filter(|_| !leg.bench.conversations).map(|planned| planned * rounds);
        (!self.context.keep_going).then(|| self.seen(leg).over(planned))
    }

    fn seen(&self, leg: &Leg<'_>) -> FailFast {
        self.seen.get(&leg.index).cloned().unwrap_or_default()
    }

    fn seed(&self, leg: &Leg<'_>) -> Seed {
        self.plan.seed.child(leg.case.id.as_str()).child(u64::from(leg.round))
    }

    /// What the round begins with. It is made before its server is started, or beside the one that runs, whose end ends it.
    fn prepared(&mut self, leg: &Leg<'_>, servers: &Servers) -> Result<Prepared, RunError> {
        let stop = self.context.stop.below();
        if let Some(server) = servers.current(leg.case, leg.round) {
            server.stops(&stop);
        }
        let walks = self.ledger.walks(leg.case, leg.bench);
        let ready = prepare(leg.case, leg.bench, (&walks, self.seed(leg)), stop);
        ready.map_err(|fault| match fault {
            RunError::Interrupted => servers.lost(leg.case, leg.round).unwrap_or(fault),
            fault => fault,
        })
    }

    fn round(&mut self, leg: &Leg<'_>, server: Option<&Managed>, ready: Prepared) -> Result<(), RunError> {
        let Leg { case, bench, round, .. } = *leg;
        let model = self.models.ready(&case.target, self.plan.seed, self.context)?;
        let Some(journal) = self.journal.take() else { return Ok(()) };
        let seed = self.seed(leg);
        let (walks, planned) = (self.ledger.walks(case, bench), bench.extent(case, seed).0);
        self.announce(leg, planned);
        let spool = self.folder.file(bodies::spool::FILE);
        let kept = (self.plan.report.bodies, spool.as_path());
        let (index, probe, folder, observer) = (leg.index as u32, leg.probe, self.folder, &self.observer);
        let turn = Turn {
            case,
            index,
            round,
            walks: &walks,
            planned,
            seed,
            probe,
            bodies: kept,
            model,
            folder,
            observer,
            server,
            guard: server.map(Managed::guard),
            fail_fast: self.fail_fast(leg, planned),
            seen: self.seen(leg),
        };
        let played = play(&turn, bench, ready, journal, self.context);
        self.keep(leg, (&walks, planned), played);
        Ok(())
    }

    fn keep(&mut self, leg: &Leg<'_>, (walks, planned): (&[Walk], Option<u64>), played: Result<Played, RunError>) {
        let done = match played {
            Ok(done) => done,
            Err(error) => {
                self.fault = Some(error);
                return;
            }
        };
        self.ledger.book(leg.bench, walks, planned, &done.sent);
        self.replies.add(&done.tally.replies);
        if let Some(absurd) = Absurd::joined(self.absurd.remove(&leg.case.id), done.absurd) {
            self.absurd.insert(leg.case.id.clone(), absurd);
        }
        self.journal = Some(done.journal);
        self.manifest.parts.push(done.part);
        leg.bench.tell(&mut self.manifest.notes);
        note_model(self.manifest.parts.last(), &mut self.manifest.notes);
        note_cut(&self.manifest.parts, &leg.case.id, &mut self.manifest.notes);
        list_models(leg.case, leg.bench, done.tally.not_found, &mut self.manifest.served);
        self.unwritten.extend(done.unwritten.into_iter().map(|own| (leg.index as u32, leg.round, own)));
        (self.probed, self.unanswered) = (done.rows, done.tally.unanswered());
        self.seen.insert(leg.index, done.tally.fail_fast);
        self.recorded.push(done.recorded);
        let noted = manifest::write(self.folder, self.manifest).map_err(RunError::from);
        let kept = noted.and_then(|()| self.keeper.keep(self.folder, &self.recorded, Instant::now()));
        if let Some(fault) = done.fault.or(kept.err()) {
            self.give_up(leg, fault);
        }
    }

    /// The parts so far.
    pub fn manifest(&self) -> &Manifest {
        self.manifest
    }

    /// Gives up what comes; the reason ends up in the report.
    pub fn fail(&mut self, fault: RunError) {
        self.fault = Some(fault);
    }

    /// The rows of the whole run as a table, and the fault that ended it before its plan.
    pub fn finish(mut self) -> Result<(Table, Option<RunError>), RunError> {
        self.servers.stop(&self.context.stop);
        let failed = self.lost.iter().map(|(case, fault)| FailedCase { case: case.clone(), why: fault.brief() });
        self.manifest.failed = failed.collect();
        let fault = self.fault.or_else(|| self.lost.into_iter().next().map(|(_, fault)| fault));
        self.manifest.notes.extend(self.ledger.notes());
        self.manifest.notes.extend(self.replies.notes());
        let why = fault.as_ref().map_or_else(String::new, RunError::brief);
        let rows = replay(self.plan, &self.folder.file(journal::FILE), &self.unwritten, &why)?;
        self.manifest.notes.extend(rows.damage.note());
        self.manifest.notes.extend(replies::absurd(&self.absurd));
        for note in self.manifest.notes.iter().filter(|note| !self.told.contains(note)) {
            let _ = self.context.events.send(Event::Note(note.clone()));
        }
        // A panic presses the switch too.
        self.manifest.interrupted = self.context.stop.level() > Level::Run && panics::first().is_none();
        // A round that broke off reported nothing, and its rows are in the journal.
        let known = |part: &Part| self.manifest.parts.iter().any(|own| (&own.case, own.round) == (&part.case, part.round));
        let lost: Vec<Part> = rows.parts.into_iter().filter(|part| !known(part)).collect();
        self.manifest.parts.extend(lost);
        Ok((settled(rows.table, self.plan).beside(self.recorded), fault))
    }

    fn announce(&self, leg: &Leg<'_>, planned: Option<u64>) {
        let load = &leg.case.load;
        let ((part, parts), total) = (leg.place, planned.or(load.requests));
        let seconds = load.lasts().map(Nanos::secs);
        let (case, round) = (leg.case.id.clone(), leg.round);
        let _ = self.context.events.send(Event::CaseStarted { case, round, part, parts, total, seconds });
    }
}

/// Host and port of the target of a round; None for the simulator and for a model in this process.
fn address(leg: &Leg<'_>) -> Option<String> {
    leg.bench.route.as_ref().map(Route::host_and_port)
}

/// The pause between rounds; a signal ends it.
fn rest(pause: Duration, stop: &Stop) {
    let until = Instant::now() + pause;
    while stop.level() == Level::Run && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50).min(until.saturating_duration_since(Instant::now())));
    }
}
