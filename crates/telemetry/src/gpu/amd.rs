//! AMD GPUs, sampled with the programs `amd-smi` and `rocm-smi`. A sample starts a program, which costs more than all
//! other sources together, so there is at most one sample per second.

use crate::gpu::{GpuLog, GpuSample, VisibleGpus, count_names};
use crate::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The programs with their arguments, the current one first.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("amd-smi", &["metric", "--json"]),
    (
        "rocm-smi",
        &[
            "--showuse",
            "--showmemuse",
            "--showmeminfo",
            "vram",
            "--showpower",
            "--showtemp",
            "--showclocks",
            "--json",
        ],
    ),
];
const MIN_INTERVAL: Nanos = Nanos::from_millis(1000);
/// Interval of the checks whether the program has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A program that reports the AMD GPUs of this machine.
#[derive(Clone, Debug)]
pub struct Amd {
    name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
    env: BTreeMap<String, String>,
    visible: VisibleGpus,
}

/// The graphics cards of Linux.
pub(super) const CARDS: &str = "/sys/class/drm";

/// The product names of the cards whose driver has one (amdgpu), in the order of the cards.
pub(super) fn product_names(cards: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(cards).into_iter().flatten().flatten();
    let is_card = |name: &String| {
        let number = name.strip_prefix("card").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let mut cards: Vec<(usize, PathBuf)> = entries
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .filter(|(name, _)| is_card(name))
        .map(|(name, path)| (name.len(), path))
        .collect();
    cards.sort();
    let name = |(_, card): (usize, PathBuf)| {
        let text = std::fs::read_to_string(card.join("device/product_name")).ok()?;
        let name = text.trim().to_owned();
        (!name.is_empty()).then_some(name)
    };
    cards.into_iter().filter_map(name).collect()
}

impl Amd {
    /// The names of the GPUs of this machine, each with its number.
    pub fn describe(&self) -> Option<String> {
        count_names(product_names(Path::new(CARDS)))
    }

    /// The program on the environment's `PATH`, if there is one.
    pub fn find(env: &BTreeMap<String, String>) -> Option<Amd> {
        let path = env.get("PATH")?;
        let found = |name| {
            path.split(':')
                .map(|folder| Path::new(folder).join(name))
                .find(|path| is_executable(path))
        };
        let (name, path, arguments) = PROGRAMS
            .iter()
            .find_map(|(name, arguments)| Some((*name, found(name)?, *arguments)))?;
        let visible = VisibleGpus::from_env(
            env,
            &[
                "ROCR_VISIBLE_DEVICES",
                "HIP_VISIBLE_DEVICES",
                "CUDA_VISIBLE_DEVICES",
            ],
        );
        Some(Amd {
            name,
            path,
            arguments,
            env: env.clone(),
            visible,
        })
    }

    /// The source with this interval, which is at least 1 s.
    pub fn source(&self, interval: Nanos) -> Box<dyn TelemetrySource> {
        Box::new(AmdSource {
            program: self.clone(),
            interval: interval.max(MIN_INTERVAL),
            samples: 0,
            duration: Duration::ZERO,
            log: GpuLog::default(),
        })
    }

    /// The output of the program.
    fn run(&self, timeout: Duration) -> Result<String, String> {
        let run_error =
            |error: std::io::Error| format!("cannot run `{}`: {error}", self.path.display());
        // A pipe that is not read meanwhile would block the program.
        let mut out = tempfile::tempfile().map_err(run_error)?;
        let mut command = Command::new(&self.path);
        command
            .args(self.arguments)
            .env_clear()
            .envs(&self.env)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command.stdout(out.try_clone().map_err(run_error)?);
        let mut child = command.spawn().map_err(run_error)?;
        let Some(status) = wait_with_timeout(&mut child, timeout) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "`{}` did not exit within {} ms",
                self.name,
                timeout.as_millis()
            ));
        };
        let mut bytes = Vec::new();
        out.rewind()
            .and_then(|()| out.read_to_end(&mut bytes))
            .map_err(run_error)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.success() || !text.trim().is_empty() {
            Ok(text)
        } else {
            Err(format!("`{}` failed with {status}", self.name))
        }
    }
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// None where the process has not ended in time.
fn wait_with_timeout(child: &mut Child, timeout: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + timeout;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

struct AmdSource {
    program: Amd,
    interval: Nanos,
    samples: u32,
    /// Of all samples together.
    duration: Duration,
    log: GpuLog,
}

impl TelemetrySource for AmdSource {
    fn kind(&self) -> Source {
        Source::Amd
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(
        &mut self,
        at: Instant,
        emit: &mut dyn FnMut(SampledValue<'_>),
    ) -> Result<(), String> {
        let name = self.program.name;
        let visible = &self.program.visible;
        let text = self.program.run(self.interval.into())?;
        let mut gpus =
            parse_gpus(&text).ok_or_else(|| format!("`{name}` printed no JSON with GPUs"))?;
        self.samples += 1;
        self.duration += at.elapsed();
        let count = gpus.len();
        gpus.retain(|(device, _)| visible.contains(*device, ""));
        gpus.iter()
            .for_each(|(device, sample)| self.log.record(*device, sample, emit));
        match gpus.is_empty() {
            true if count == 0 => Err(format!("`{name}` lists no GPU")),
            true => Err(format!(
                "`{}` selects none of the {count} AMD GPUs",
                visible.variable()
            )),
            false => Ok(()),
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let cost = self.duration.checked_div(self.samples).map(|mean| {
            let name = self.program.name;
            format!(
                "AMD GPUs: `{name}` ran for {} ms (mean) every {} s",
                mean.as_millis(),
                self.interval.secs()
            )
        });
        cost.into_iter().chain(self.log.notes(false)).collect()
    }
}

/// Both programs print MB and mean MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// The GPUs in the JSON of either program, by number; None where there is no such JSON. Warnings may precede it.
fn parse_gpus(text: &str) -> Option<Vec<(u32, GpuSample)>> {
    let start = text.find(['{', '['])?;
    let value: Value = serde_json::Deserializer::from_str(text.get(start..)?)
        .into_iter()
        .next()?
        .ok()?;
    match value.get("gpu_data").unwrap_or(&value) {
        Value::Array(gpus) => Some(
            gpus.iter()
                .enumerate()
                .map(|(index, gpu)| parse_numbered_gpu(index, gpu))
                .collect(),
        ),
        Value::Object(cards) => {
            let parse = |(name, card): (&String, &Value)| {
                Some((
                    name.strip_prefix("card")?.parse().ok()?,
                    parse_rocm_smi(card),
                ))
            };
            Some(cards.iter().filter_map(parse).collect::<Vec<_>>())
                .filter(|cards| !cards.is_empty())
        }
        _ => None,
    }
}

fn parse_numbered_gpu(index: usize, gpu: &Value) -> (u32, GpuSample) {
    let number = gpu
        .get("gpu")
        .and_then(parse_number)
        .unwrap_or(index as f64);
    (number as u32, parse_amd_smi(gpu))
}

/// The number in `22`, `"22"`, `"22 W"`, `"(800Mhz)"` or `{"value": 22, "unit": "W"}`; None for `"N/A"`.
fn parse_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Object(fields) => fields.get("value").and_then(parse_number),
        Value::String(text) => {
            let text = text.trim_start_matches('(');
            let end = text
                .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-')
                .unwrap_or(text.len());
            text.get(..end)?.parse().ok()
        }
        _ => None,
    }
}

/// A GPU of `amd-smi metric --json`.
fn parse_amd_smi(gpu: &Value) -> GpuSample {
    let field = |section: &str, key: &str| gpu.get(section).and_then(|section| section.get(key));
    let first = |section: &str, keys: &[&str]| {
        keys.iter()
            .find_map(|key| parse_number(field(section, key)?))
    };
    let share = |key| first("usage", &[key]).map(|percent| percent / 100.0);
    let mut sample = GpuSample::default();
    sample.push(Signal::GpuUtilization, share("gfx_activity"));
    sample.push(Signal::GpuMemoryUtilization, share("umc_activity"));
    sample.push(
        Signal::GpuMemory,
        first("mem_usage", &["used_vram"]).map(|mebibytes| mebibytes * MIB),
    );
    sample.push(
        Signal::GpuPower,
        first(
            "power",
            &[
                "socket_power",
                "current_socket_power",
                "average_socket_power",
            ],
        ),
    );
    sample.push(Signal::GpuClock, slowest_clock(gpu, "gfx"));
    sample.push(Signal::GpuMemoryClock, slowest_clock(gpu, "mem"));
    sample.push(
        Signal::GpuTemperature,
        first("temperature", &["hotspot", "edge"]),
    );
    sample.energy = first("energy", &["total_energy_consumption"]);
    sample.throttle_reasons = match field("power", "throttle_status").and_then(Value::as_str) {
        Some("THROTTLED") => Some(vec!["throttled"]),
        Some("UNTHROTTLED") => Some(Vec::new()),
        _ => None,
    };
    sample
}

/// The slowest of the clocks `gfx_0`, `gfx_1` …, of which a GPU may have several.
fn slowest_clock(gpu: &Value, domain: &str) -> Option<f64> {
    let clocks = gpu.get("clock")?.as_object()?.iter();
    let clocks = clocks.filter(|(name, _)| {
        name.strip_prefix(domain)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    });
    clocks
        .filter_map(|(_, clock)| {
            ["clk", "cur_clk"]
                .iter()
                .find_map(|key| parse_number(clock.get(key)?))
        })
        .reduce(f64::min)
}

/// A card of `rocm-smi --json`.
fn parse_rocm_smi(gpu: &Value) -> GpuSample {
    let field = |key: &str| {
        let (_, value) = gpu
            .as_object()?
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(key))?;
        parse_number(value)
    };
    let first = |keys: &[&str]| keys.iter().find_map(|key| field(key));
    let share = |keys: &[&str]| first(keys).map(|percent| percent / 100.0);
    let mut sample = GpuSample::default();
    sample.push(Signal::GpuUtilization, share(&["GPU use (%)"]));
    sample.push(
        Signal::GpuMemoryUtilization,
        share(&["GPU Memory Read/Write Activity (%)", "GPU memory use (%)"]),
    );
    sample.push(Signal::GpuMemory, first(&["VRAM Total Used Memory (B)"]));
    let power = [
        "Current Socket Graphics Package Power (W)",
        "Average Graphics Package Power (W)",
    ];
    sample.push(Signal::GpuPower, first(&power));
    sample.push(Signal::GpuClock, first(&["sclk clock speed:"]));
    sample.push(Signal::GpuMemoryClock, first(&["mclk clock speed:"]));
    let sensors = [
        "Temperature (Sensor junction) (C)",
        "Temperature (Sensor edge) (C)",
    ];
    sample.push(Signal::GpuTemperature, first(&sensors));
    sample
}

#[cfg(test)]
mod tests;
