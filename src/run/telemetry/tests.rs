use super::*;
use crate::store::RunLocation;
use llmscen_core::telemetry::{Source, TelemetrySample};
use llmscen_scenario::Input;
use std::collections::BTreeMap;
use std::path::Path;

fn sources(section: &str, server: Option<u32>) -> Vec<Source> {
    target_sources("", section, server)
}

fn target_sources(target: &str, section: &str, server: Option<u32>) -> Vec<Source> {
    let text = format!(
        "version: 1\nname: t\ntarget: {{ url: simulator{target} }}\ndataset: {{ kind: prompt, text: x }}\n\
         load: {{ concurrency: 1, requests: 1 }}\ntelemetry: {section}\n"
    );
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan;
    let observer = Observer {
        spec: plan.telemetry,
        nvidia: None,
        amd: None,
        note: None,
        samples_target: true,
        resolve: system_resolver,
    };
    let address = Some(([127, 0, 0, 1], 9).into());
    observer
        .sources(&plan.cases[0], server, address)
        .0
        .iter()
        .map(|source| source.kind())
        .collect()
}

#[test]
fn a_round_has_the_sources_of_its_scenario() {
    assert_eq!(sources("{}", None), [Source::Tool, Source::Host]);
    assert_eq!(
        sources("{ gpu: false }", Some(1)),
        [Source::Tool, Source::Host, Source::Process]
    );
    assert_eq!(sources("{ host: false }", Some(1)), []);
    assert_eq!(sources("{ interval: off }", Some(1)), []);
    let remote = "{ gpu: false, host: false, dcgm: \"http://127.0.0.1:9/\" }";
    assert_eq!(
        target_sources(", metrics: simulator", remote, None),
        [Source::Dcgm, Source::Prometheus]
    );
    assert_eq!(
        target_sources(", metrics: simulator", "{ interval: off }", None),
        [Source::Prometheus]
    );
}

#[test]
fn the_metrics_of_the_simulator_are_read_at_its_address() {
    let text = "version: 1\nname: t\ntarget: { url: simulator, metrics: simulator }\ndataset: \
                { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\ntelemetry: \
                { host: false }\n";
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input).unwrap().plan;
    let TargetLocation::Simulator { server, .. } = &plan.cases[0].target.location else {
        panic!("no simulator")
    };
    let running = llmscen_simulator::start(
        server,
        plan.seed,
        ([127, 0, 0, 1], 0).into(),
        llmscen_simulator::Truth::off(),
    )
    .unwrap();
    let observer = Observer {
        samples_target: true,
        spec: plan.telemetry,
        nvidia: None,
        amd: None,
        note: None,
        resolve: system_resolver,
    };
    let mut samples = Vec::new();
    for mut source in observer
        .sources(&plan.cases[0], None, Some(running.addr()))
        .0
    {
        source
            .sample(std::time::Instant::now(), &mut |value| {
                samples.push((value.name.to_owned(), value.value))
            })
            .unwrap();
        assert!(source.notes()[0].starts_with("vLLM does not export `vllm:prefix_cache_hits`"));
    }
    for (name, value) in [
        ("up", 1.0),
        ("server.running", 0.0),
        ("server.kv_cache_usage", 0.0),
        ("server.output_tps", 0.0),
    ] {
        assert!(
            samples.contains(&(name.to_owned(), value)),
            "{name} is not in {samples:?}"
        );
    }
}

#[test]
fn every_address_of_a_host_name_is_a_worker_with_its_role() {
    let text = "version: 1\nname: t\ntarget: { url: 'http://h/v1/chat/completions', model: m, metrics: [\
                { url: 'http://prefill:8000/metrics', role: prefill },\
                { url: 'http://prefill:8000/gpus', role: prefill },\
                { url: 'http://decode.svc:8000/metrics', role: decode, addresses: all },\
                { url: 'http://gone.svc/metrics', addresses: all } ] }\n\
                dataset: { kind: prompt, text: x }\nload: { concurrency: 1, requests: 1 }\n";
    let input = Input {
        path: Path::new("t.yaml"),
        text: Some(text.to_owned()),
        env: &BTreeMap::new(),
        set: &[],
    };
    let plan = llmscen_scenario::load(&input)
        .unwrap_or_else(|faults| panic!("{}", faults.render(false, 120)))
        .plan;
    let resolve: Resolver = |host, port| match host {
        "decode.svc" => Ok(vec![
            ([10, 0, 0, 2], port).into(),
            ([10, 0, 0, 1], port).into(),
        ]),
        _ => Ok(Vec::new()),
    };
    let (pages, notes) = page_locations(&plan.cases[0].target, None, resolve);
    let found: Vec<_> = pages
        .iter()
        .map(|page| {
            (
                page.worker.as_deref().unwrap(),
                page.role.as_deref().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("prefill:8000", "prefill"),
            ("prefill:8000#2", "prefill"),
            ("10.0.0.1:8000", "decode"),
            ("10.0.0.2:8000", "decode"),
        ]
    );
    assert_eq!(notes, ["http://gone.svc/metrics: gone.svc has no address"]);
}

#[test]
fn a_file_that_took_long_to_write_is_not_written_again_at_once() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let folder = RunDir::create(&RunLocation {
        explicit: Some(&path),
        dir: parent.path(),
        name: "t",
        started: "",
        force: false,
    });
    let folder = folder.unwrap();
    let reading = TelemetrySample {
        at_ns: 1,
        source: Source::Host,
        name: "host.cpu".into(),
        labels: "".into(),
        device: None,
        value: 0.5,
    };
    let round = |round| TelemetryRecord {
        case: "a".into(),
        round,
        readings: vec![reading.clone()],
    };
    let stored_rounds = || {
        telemetry::read(std::fs::read(path.join(READINGS)).unwrap())
            .unwrap()
            .len()
    };
    let mut checkpoint = TelemetryCheckpoint::default();
    let now = Instant::now();
    checkpoint.write(&folder, &[round(0)], now).unwrap();
    checkpoint.set_due(now, Duration::from_secs(1));
    let two = [round(0), round(1)];
    checkpoint
        .write(&folder, &two, now + Duration::from_millis(20_999))
        .unwrap();
    assert_eq!(stored_rounds(), 1);
    checkpoint
        .write(&folder, &two, now + Duration::from_secs(21))
        .unwrap();
    assert_eq!(stored_rounds(), 2);
}

#[test]
fn no_samples_make_no_file() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("run");
    let at = RunLocation {
        explicit: Some(&path),
        dir: parent.path(),
        name: "t",
        started: "",
        force: false,
    };
    write_telemetry(&RunDir::create(&at).unwrap(), &[TelemetryRecord::default()]).unwrap();
    assert!(!path.join(READINGS).exists());
}
