//! What it costs to sample: `cargo bench --bench telemetry`.
//!
//! Each source is sampled many times on one thread; what is printed is that thread's processor time for one sample, and the
//! share of one core that it is at a sample each second.

use llmscen_core::target::Tls;
use llmscen_core::telemetry::Scrape;
use llmscen_core::units::Nanos;
use llmscen_telemetry::TelemetrySource;
use llmscen_telemetry::host::Host;
use llmscen_telemetry::process::SelfProcess;
use llmscen_telemetry::prometheus::{PageLocation, Prometheus};
use llmscen_telemetry::tree::ProcessTree;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Instant;

const SAMPLES: u32 = 1000;
const SECOND: Nanos = Nanos::from_millis(1000);
/// Processes of the tree that is sampled: a shell, and what it starts.
const CHILDREN: usize = 8;

fn main() {
    let listed = std::fs::read_dir("/proc").map_or(0, |all| {
        all.flatten()
            .filter(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.parse::<u32>().is_ok())
            })
            .count()
    });
    println!(
        "{listed} processes on this machine, {} in the tree; {SAMPLES} samples each\n",
        CHILDREN + 1
    );
    println!("| source | CPU ms a sample | share of a core at 1 s |");
    println!("|---|---|---|");
    let server = server();
    let mut all: Vec<(&str, Box<dyn TelemetrySource>)> = vec![
        ("tool", Box::new(SelfProcess::new(SECOND))),
        ("host", Box::new(Host::new(SECOND))),
        ("tree", Box::new(ProcessTree::new(server.0.id(), SECOND))),
        ("metrics page", Box::new(metrics(page()))),
    ];
    let costs: Vec<f64> = all
        .iter_mut()
        .map(|(_, source)| cost(source.as_mut()))
        .collect();
    for ((name, _), millis) in all.iter().zip(&costs) {
        row(name, *millis);
    }
    row("all", costs.iter().sum());
}

fn row(name: &str, millis: f64) {
    println!("| {name} | {millis:.3} | {:.3} % |", millis / 10.0);
}

/// Processor time of one sample in milliseconds, after the first, which looks at every process there is.
fn cost(source: &mut dyn TelemetrySource) -> f64 {
    let mut told = 0;
    let mut sample = || {
        source
            .sample(Instant::now(), &mut |_| told += 1)
            .expect("the source can be read")
    };
    sample();
    let before = spent();
    (0..SAMPLES).for_each(|_| sample());
    let after = spent();
    assert!(told > SAMPLES);
    (after - before) / f64::from(SAMPLES)
}

fn spent() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn metrics(url: String) -> Prometheus {
    let scrape = Scrape {
        url,
        interval: SECOND,
        headers: Vec::new(),
    };
    let page = PageLocation {
        scrape,
        address: None,
        worker: None,
        role: None,
    };
    Prometheus::new(&[page], &Tls::default(), Vec::new(), Vec::new())
}

/// Where a server on loopback sends a page of vLLM with three engines, some 1900 lines, again and again on one connection.
fn page() -> String {
    let one = std::fs::read_to_string("tests/wire/metrics/vllm_cpu.pressed.txt")
        .expect("the recorded page");
    let body: String = (0..3)
        .map(|engine| one.replace("engine=\"0\"", &format!("engine=\"{engine}\"")))
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!(
        "http://{}/metrics",
        listener.local_addr().expect("an address")
    );
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut head = [0; 4096];
        while stream.read(&mut head).is_ok_and(|read| read > 0)
            && stream.write_all(answer.as_bytes()).is_ok()
        {}
    });
    url
}

/// Ends with the bench, and takes its children along: they end when their input does.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn server() -> Own {
    let script = format!(
        "exec 3<&0; for i in {}; do cat <&3 >/dev/null & done; wait",
        ["x"; CHILDREN].join(" ")
    );
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .stdin(std::process::Stdio::piped());
    let own = Own(command.spawn().expect("a shell"));
    std::thread::sleep(std::time::Duration::from_millis(500));
    own
}
