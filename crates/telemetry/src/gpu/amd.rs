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
mod tests {
    use super::*;
    use std::fs;

    fn program(folder: &Path, name: &str, script: &str) -> BTreeMap<String, String> {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        BTreeMap::from([(
            "PATH".to_owned(),
            format!("/nowhere:{}:/usr/bin:/bin", folder.display()),
        )])
    }

    fn sample(source: &mut dyn TelemetrySource) -> Result<Vec<(String, Option<u32>, f64)>, String> {
        loop {
            let mut all = Vec::new();
            match source.sample(Instant::now(), &mut |value| {
                all.push((value.name.to_owned(), value.device, value.value))
            }) {
                // A process that another test starts in this instant still holds the script open.
                Err(error) if error.contains("Text file busy") => {}
                answer => return answer.map(|()| all),
            }
        }
    }

    #[test]
    fn the_program_on_the_path_is_run_and_its_cost_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Amd::find(&BTreeMap::new()).is_none());
        program(folder.path(), "rocm-smi", "exit 9");
        let printed = r#"[{"gpu":0,"usage":{"gfx_activity":{"value":42,"unit":"%"}}},{"gpu":1,"usage":"N/A"}]"#;
        let mut env = program(folder.path(), "amd-smi", &format!("echo '{printed}'"));
        let amd = Amd::find(&env).unwrap();
        assert_eq!(
            amd.path,
            folder.path().join("amd-smi"),
            "the current program first"
        );
        let mut source = amd.source(Nanos::from_millis(100));
        assert_eq!(source.interval(), MIN_INTERVAL);
        assert_eq!(
            sample(source.as_mut()),
            Ok(vec![("gpu.utilization".into(), Some(0), 0.42)])
        );
        let notes = source.notes();
        assert!(
            notes[0].starts_with("AMD GPUs: `amd-smi` ran for "),
            "{notes:?}"
        );
        env.insert("HIP_VISIBLE_DEVICES".into(), "1".into());
        assert_eq!(
            sample(Amd::find(&env).unwrap().source(MIN_INTERVAL).as_mut()),
            Ok(vec![]),
            "the first is not visible"
        );
        env.insert("HIP_VISIBLE_DEVICES".into(), "-1".into());
        let none = "`HIP_VISIBLE_DEVICES` selects none of the 2 AMD GPUs".to_owned();
        assert_eq!(
            sample(Amd::find(&env).unwrap().source(MIN_INTERVAL).as_mut()),
            Err(none)
        );
    }

    #[test]
    fn a_program_that_fails_hangs_or_prints_anything_else_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for (script, expected) in [
            ("exit 3", "`rocm-smi` failed with exit status: 3"),
            ("echo '[]'", "`rocm-smi` lists no GPU"),
            ("echo WARNING", "`rocm-smi` printed no JSON with GPUs"),
            ("sleep 60", "`rocm-smi` did not exit within 50 ms"),
        ] {
            let amd = Amd::find(&program(folder.path(), "rocm-smi", script)).unwrap();
            // Programs of this test run at once with others: only what hangs is cut short.
            let within = if script.starts_with("sleep") {
                50
            } else {
                60_000
            };
            let mut source = AmdSource {
                program: amd,
                interval: Nanos::from_millis(within),
                samples: 0,
                duration: Duration::ZERO,
                log: GpuLog::default(),
            };
            assert_eq!(sample(&mut source), Err(expected.to_owned()));
        }
    }

    /// `amd-smi metric --json` of ROCm 6 on a Radeon Pro W7700, shortened.
    const METRIC: &str = r#"[
  {"gpu": 0,
   "usage": {"gfx_activity": {"value": 42, "unit": "%"}, "umc_activity": {"value": 1, "unit": "%"},
     "mm_activity": {"value": 0, "unit": "%"}, "vcn_activity": [{"value": 0, "unit": "%"}, "N/A", "N/A", "N/A"]},
   "power": {"socket_power": {"value": 20, "unit": "W"}, "gfx_voltage": {"value": 780, "unit": "mV"},
     "throttle_status": "UNTHROTTLED", "power_management": "ENABLED"},
   "clock": {"gfx_0": {"clk": {"value": 14, "unit": "MHz"}, "min_clk": {"value": 54, "unit": "MHz"}, "clk_locked": "N/A"},
     "gfx_1": {"clk": "N/A"}, "mem_0": {"clk": {"value": 96, "unit": "MHz"}, "max_clk": {"value": 1124, "unit": "MHz"}},
     "vclk_0": {"clk": {"value": 3, "unit": "MHz"}}},
   "temperature": {"edge": {"value": 41, "unit": "C"}, "hotspot": {"value": 43, "unit": "C"}, "mem": {"value": 62, "unit": "C"}},
   "energy": {"total_energy_consumption": {"value": 1234.567, "unit": "J"}},
   "mem_usage": {"total_vram": {"value": 16368, "unit": "MB"}, "used_vram": {"value": 2048, "unit": "MB"}}}
]"#;

    /// The same of ROCm 7 on a machine whose first GPU cannot be read.
    const WRAPPED: &str = r#"WARNING: User is missing the following required groups: render
{"gpu_data": [
  {"gpu": 0, "usage": "N/A", "power": {"socket_power": "N/A", "throttle_status": "N/A"}, "clock": {"gfx_0": {"clk": "N/A"}},
   "mem_usage": "N/A", "temperature": {"edge": "N/A", "hotspot": "N/A"}},
  {"gpu": 3, "usage": {"gfx_activity": {"value": 100, "unit": "%"}}, "power": {"socket_power": "749 W", "throttle_status": "THROTTLED"},
   "clock": {"gfx_0": {"clk": {"value": 2100, "unit": "MHz"}}, "gfx_7": {"clk": {"value": 1900, "unit": "MHz"}}}}
]}
"#;

    /// `rocm-smi … --json` of a Radeon RX 7900 XTX, of one die of an Instinct MI250 and of an Instinct MI350X.
    const ROCM: &str = r#"{
 "card0": {"Temperature (Sensor edge) (C)": "49.0", "Temperature (Sensor junction) (C)": "51.0", "Temperature (Sensor memory) (C)": "62.0",
   "Average Graphics Package Power (W)": "19.0", "GPU use (%)": "7", "VRAM Total Memory (B)": "25753026560",
   "VRAM Total Used Memory (B)": "794341376", "sclk clock speed:": "(800Mhz)", "mclk clock speed:": "(96Mhz)"},
 "card1": {"Temperature (Sensor edge) (c)": "47.0", "Average Graphics Package Power (W)": "N/A (Secondary die)", "GPU memory use (%)": "3"},
 "card2": {"Temperature (Sensor junction) (C)": "60.0", "Current Socket Graphics Package Power (W)": "266.0", "GPU use (%)": "99",
   "GPU Memory Allocated (VRAM%)": "65", "GPU Memory Read/Write Activity (%)": "21", "Memory Activity": "N/A"},
 "system": {"Driver version": "6.14.14"}}"#;

    fn told(text: &str) -> Vec<(u32, Vec<(&'static str, f64)>)> {
        let values = |sample: GpuSample| {
            sample
                .values
                .into_iter()
                .map(|(signal, value)| (signal.name(), value))
                .collect()
        };
        parse_gpus(text)
            .unwrap()
            .into_iter()
            .map(|(device, sample)| (device, values(sample)))
            .collect()
    }

    #[test]
    fn amd_smi_is_read() {
        let [gpu] = told(METRIC).try_into().unwrap();
        let expected = [
            ("gpu.utilization", 0.42),
            ("gpu.memory_utilization", 0.01),
            ("gpu.memory", 2048.0 * 1024.0 * 1024.0),
            ("gpu.power", 20.0),
            ("gpu.clock", 14.0),
            ("gpu.memory_clock", 96.0),
            ("gpu.temperature", 43.0),
        ];
        assert_eq!(gpu, (0, expected.to_vec()));
        let gpu = parse_gpus(METRIC).unwrap().remove(0).1;
        assert_eq!(
            (gpu.energy, gpu.throttle_reasons),
            (Some(1234.567), Some(Vec::new()))
        );
    }

    #[test]
    fn what_it_calls_not_available_is_missing_and_what_stands_before_the_json_is_skipped() {
        let expected = [
            ("gpu.utilization", 1.0),
            ("gpu.power", 749.0),
            ("gpu.clock", 1900.0),
        ];
        assert_eq!(told(WRAPPED), [(0, vec![]), (3, expected.to_vec())]);
        let reasons: Vec<_> = parse_gpus(WRAPPED)
            .unwrap()
            .into_iter()
            .map(|(_, sample)| sample.throttle_reasons)
            .collect();
        assert_eq!(reasons, [None, Some(vec!["throttled"])]);
    }

    #[test]
    fn rocm_smi_is_read_as_it_was_and_as_it_is() {
        let first = [
            ("gpu.utilization", 0.07),
            ("gpu.memory", 794_341_376.0),
            ("gpu.power", 19.0),
            ("gpu.clock", 800.0),
            ("gpu.memory_clock", 96.0),
            ("gpu.temperature", 51.0),
        ];
        let second = [("gpu.memory_utilization", 0.03), ("gpu.temperature", 47.0)];
        let third = [
            ("gpu.utilization", 0.99),
            ("gpu.memory_utilization", 0.21),
            ("gpu.power", 266.0),
            ("gpu.temperature", 60.0),
        ];
        assert_eq!(
            told(ROCM),
            [
                (0, first.to_vec()),
                (1, second.to_vec()),
                (2, third.to_vec())
            ]
        );
    }

    #[test]
    fn other_texts_tell_of_no_gpus() {
        for text in [
            "",
            "ERROR: no driver",
            "{\"system\": {}}",
            "{\"card0\": ",
            "[1",
        ] {
            assert_eq!(parse_gpus(text), None, "{text:?}");
        }
        assert_eq!(parse_gpus("[]"), Some(Vec::new()));
    }

    #[test]
    fn product_names_are_those_of_cards_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for (card, name) in [
            ("card10", "AMD Instinct MI300X OAM\n"),
            ("card2", "AMD Instinct MI355X\n"),
            ("card2-DP-1", "a monitor"),
            ("card0", "\n"),
            ("renderD128", "AMD Instinct MI355X"),
        ] {
            let device = folder.path().join(card).join("device");
            std::fs::create_dir_all(&device).unwrap();
            std::fs::write(device.join("product_name"), name).unwrap();
        }
        assert_eq!(
            product_names(folder.path()),
            ["AMD Instinct MI355X", "AMD Instinct MI300X OAM"]
        );
        assert_eq!(product_names(&folder.path().join("missing")), [""; 0]);
    }
}
