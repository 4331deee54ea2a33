//! What is sampled beside a round: which sources it has, and where their readings go.

use crate::run::error::RunError;
use crate::run::execution::Context;
use crate::run::round::metrics_url;
use crate::store::{READINGS, RunDir};
use llmscen_analysis::telemetry;
use llmscen_core::plan::{Case, Plan};
use llmscen_core::target::Place;
use llmscen_core::telemetry::{Recorded, Scrape, TelemetrySpec};
use llmscen_core::units::Nanos;
use llmscen_telemetry::TelemetrySource;
use llmscen_telemetry::dcgm::Dcgm;
use llmscen_telemetry::gpu::VisibleGpus;
use llmscen_telemetry::gpu::amd::Amd;
use llmscen_telemetry::gpu::nvml::Nvidia;
use llmscen_telemetry::host::Host;
use llmscen_telemetry::process::SelfProcess;
use llmscen_telemetry::prometheus::Prometheus;
use llmscen_telemetry::sampler::Sampler;
use llmscen_telemetry::tree::{Members, ProcessTree};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What a run samples; its GPUs are looked for once.
pub struct Observer {
    spec: TelemetrySpec,
    nvidia: Option<Nvidia>,
    amd: Option<Amd>,
    /// Why no GPU is sampled where one could be.
    pub note: Option<String>,
}

impl Observer {
    /// Looks for GPUs, unless the run does not want them, or reaches nothing but its own simulator, which uses none.
    pub fn of(plan: &Plan, context: &Context) -> Observer {
        let spec = plan.telemetry.clone();
        let wanted = spec.gpu && spec.dcgm.is_none();
        let mut observer = Observer { spec, nvidia: None, amd: None, note: None };
        if !wanted || observer.spec.interval == Nanos::ZERO || plan.cases.iter().all(simulated) {
            return observer;
        }
        match Nvidia::find(&VisibleGpus::from_env(&context.env, &["CUDA_VISIBLE_DEVICES"])) {
            Ok(found) => observer.nvidia = Some(found),
            Err(why) => {
                observer.amd = Amd::find(&context.env);
                let none = format!("no GPU is sampled: {why}, and neither `amd-smi` nor `rocm-smi` is on PATH");
                observer.note = observer.amd.is_none().then_some(none);
            }
        }
        observer
    }

    /// Starts to sample a round of that case. `server` is the process below which its managed server is,
    /// `simulator` where its simulator listens.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(&self, case: &Case, server: Option<u32>, simulator: Option<SocketAddr>) -> Result<Sampler, RunError> {
        Sampler::start(self.sources(case, server, simulator)).map_err(RunError::Thread)
    }

    /// The sources of a round, those that take long last.
    fn sources(&self, case: &Case, server: Option<u32>, simulator: Option<SocketAddr>) -> Vec<Box<dyn TelemetrySource>> {
        let mut sources = self.near(case, server);
        let each = Some(self.spec.interval).filter(|each| *each > Nanos::ZERO);
        let exporter = self.spec.dcgm.clone().zip(each);
        let exporter = exporter.map(|(url, interval)| Dcgm::new(&Scrape { url, interval, headers: Vec::new() }));
        sources.extend(exporter.map(|source| Box::new(source) as Box<dyn TelemetrySource>));
        if let Some(page) = &case.target.metrics {
            let page = Scrape { url: metrics_url(&page.url, simulator), ..page.clone() };
            let asked = case.target.models.iter().map(|model| model.name.clone()).collect();
            sources.push(Box::new(Prometheus::new(&page, &case.target.tls, asked)));
        }
        sources
    }

    /// The sources on this machine.
    fn near(&self, case: &Case, server: Option<u32>) -> Vec<Box<dyn TelemetrySource>> {
        let mut sources = Vec::new();
        if self.spec.interval > Nanos::ZERO {
            let members = self.system(server, &mut sources);
            self.gpus(case, members, &mut sources);
        }
        sources
    }

    /// This tool, this machine and the managed server below the process that watches over it; who belongs to the server.
    fn system(&self, server: Option<u32>, sources: &mut Vec<Box<dyn TelemetrySource>>) -> Option<Members> {
        let each = self.spec.interval;
        if self.spec.host {
            sources.push(Box::new(SelfProcess::new(each)));
            sources.push(Box::new(Host::new(each)));
        }
        let tree = ProcessTree::new(server.filter(|_| self.spec.host)?, each);
        let members = tree.members();
        sources.push(Box::new(tree));
        Some(members)
    }

    fn gpus(&self, case: &Case, server: Option<Members>, sources: &mut Vec<Box<dyn TelemetrySource>>) {
        if !simulated(case) {
            sources.extend(self.nvidia.as_ref().map(|gpus| gpus.source(self.spec.interval, server)));
            sources.extend(self.amd.as_ref().map(|gpus| gpus.source(self.spec.interval)));
        }
    }
}

fn simulated(case: &Case) -> bool {
    matches!(case.target.place, Place::Simulator { .. })
}

/// Times as long as the writing took, it is not written again: the file holds all rounds and is written anew each time. So it
/// takes less than 5 % of the time; a run that is killed lacks what was sampled since.
const REST: u32 = 20;

/// Writes the file as the run goes on.
#[derive(Debug, Default)]
pub struct TelemetryCheckpoint {
    /// When it may be written next; None: at once.
    due: Option<Instant>,
}

impl TelemetryCheckpoint {
    /// Writes the rounds so far, in the order in which they ran, unless that was done a moment ago; [`write`] does at the end.
    /// True where it was written.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&mut self, folder: &RunDir, recorded: &[Recorded], now: Instant) -> Result<bool, RunError> {
        if self.due.is_some_and(|due| now < due) {
            return Ok(false);
        }
        let began = Instant::now();
        write_telemetry(folder, recorded)?;
        self.rest(now, began.elapsed());
        Ok(true)
    }

    /// After a writing that began at `now` and took so long.
    fn rest(&mut self, now: Instant, took: Duration) {
        self.due = now.checked_add(took.saturating_mul(REST + 1));
    }
}

/// Writes what the rounds have recorded into the run folder, whole or not at all; nothing where nothing was read.
///
/// # Errors
/// It cannot be written.
pub fn write_telemetry(folder: &RunDir, recorded: &[Recorded]) -> Result<(), RunError> {
    if recorded.iter().all(|own| own.readings.is_empty()) {
        return Ok(());
    }
    Ok(folder.write_listed(READINGS, &telemetry::write(recorded)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Where;
    use llmscen_core::telemetry::{Reading, Source};
    use llmscen_scenario::Input;
    use std::collections::BTreeMap;
    use std::path::Path;

    fn sources(section: &str, server: Option<u32>) -> Vec<Source> {
        told_by("", section, server)
    }

    fn told_by(target: &str, section: &str, server: Option<u32>) -> Vec<Source> {
        let text = format!(
            "version: 1\nname: t\ntarget: {{ url: simulator{target} }}\ndataset: {{ kind: prompt, text: x }}\n\
             load: {{ concurrency: 1, requests: 1 }}\ntelemetry: {section}\n"
        );
        let input = Input { path: Path::new("t.yaml"), text: Some(text), env: &BTreeMap::new(), set: &[] };
        let plan = llmscen_scenario::load(&input).unwrap_or_else(|faults| panic!("{}", faults.render(false, 120))).plan;
        let observer = Observer { spec: plan.telemetry, nvidia: None, amd: None, note: None };
        let address = Some(([127, 0, 0, 1], 9).into());
        observer.sources(&plan.cases[0], server, address).iter().map(|source| source.kind()).collect()
    }

    #[test]
    fn a_round_has_the_sources_that_its_scenario_wants() {
        assert_eq!(sources("{}", None), [Source::Tool, Source::Host]);
        assert_eq!(sources("{ gpu: false }", Some(1)), [Source::Tool, Source::Host, Source::Process]);
        assert_eq!(sources("{ host: false }", Some(1)), []);
        assert_eq!(sources("{ interval: off }", Some(1)), []);
        let pages = "{ gpu: false, host: false, dcgm: \"http://127.0.0.1:9/\" }";
        assert_eq!(told_by(", metrics: simulator", pages, None), [Source::Dcgm, Source::Prometheus]);
        assert_eq!(told_by(", metrics: simulator", "{ interval: off }", None), [Source::Prometheus]);
    }

    #[test]
    fn the_page_of_the_simulator_is_read_where_it_listens() {
        let text = "version: 1\nname: t\ntarget: { url: simulator, metrics: simulator }\ndataset: { kind: prompt, text: x }\n\
                    load: { concurrency: 1, requests: 1 }\ntelemetry: { host: false }\n";
        let input = Input { path: Path::new("t.yaml"), text: Some(text.to_owned()), env: &BTreeMap::new(), set: &[] };
        let plan = llmscen_scenario::load(&input).unwrap().plan;
        let Place::Simulator { server, .. } = &plan.cases[0].target.place else { panic!("no simulator") };
        let running =
            llmscen_simulator::start(server, plan.seed, ([127, 0, 0, 1], 0).into(), llmscen_simulator::Truth::off()).unwrap();
        let observer = Observer { spec: plan.telemetry, nvidia: None, amd: None, note: None };
        let mut told = Vec::new();
        for mut source in observer.sources(&plan.cases[0], None, Some(running.addr())) {
            source.sample(std::time::Instant::now(), &mut |value| told.push((value.name.to_owned(), value.value))).unwrap();
            assert!(source.notes()[0].starts_with("vLLM does not export `vllm:prefix_cache_hits`"));
        }
        for (name, value) in [("up", 1.0), ("server.running", 0.0), ("server.kv_cache_usage", 0.0), ("server.output_tps", 0.0)] {
            assert!(told.contains(&(name.to_owned(), value)), "{name} is not in {told:?}");
        }
    }

    #[test]
    fn a_file_that_took_long_is_not_written_again_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let folder = RunDir::create(&Where { explicit: Some(&path), dir: place.path(), name: "t", started: "", force: false });
        let folder = folder.unwrap();
        let reading =
            Reading { at_ns: 1, source: Source::Host, name: "host.cpu".into(), labels: "".into(), device: None, value: 0.5 };
        let round = |round| Recorded { case: "a".into(), round, readings: vec![reading.clone()] };
        let held = || telemetry::read(std::fs::read(path.join(READINGS)).unwrap()).unwrap().len();
        let (mut checkpoint, now) = (TelemetryCheckpoint::default(), Instant::now());
        assert!(checkpoint.keep(&folder, &[round(0)], now).unwrap());
        checkpoint.rest(now, Duration::from_secs(1));
        let two = [round(0), round(1)];
        assert!(!checkpoint.keep(&folder, &two, now + Duration::from_millis(20_999)).unwrap());
        assert_eq!(held(), 1);
        assert!(checkpoint.keep(&folder, &two, now + Duration::from_secs(21)).unwrap());
        assert_eq!(held(), 2);
    }

    #[test]
    fn nothing_that_was_read_makes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let at = Where { explicit: Some(&path), dir: place.path(), name: "t", started: "", force: false };
        write_telemetry(&RunDir::create(&at).unwrap(), &[Recorded::default()]).unwrap();
        assert!(!path.join(READINGS).exists());
    }
}
