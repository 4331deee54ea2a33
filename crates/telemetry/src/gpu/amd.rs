//! AMD's GPUs, by what its management programs print. Each sample starts one: that costs more than all other sources
//! together, so that it is done no more than once a second.

use crate::gpu::{Card, Fleet, Visible};
use crate::source::{SampledValue, TelemetrySource};
use llmscen_core::signal::Signal;
use llmscen_core::telemetry::Source;
use llmscen_core::units::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The programs that are looked for, the present one first, and what they are told to print everything that is wanted.
const PROGRAMS: [(&str, &[&str]); 2] = [
    ("amd-smi", &["metric", "--json"]),
    ("rocm-smi", &["--showuse", "--showmemuse", "--showmeminfo", "vram", "--showpower", "--showtemp", "--showclocks", "--json"]),
];
/// Between two samples at the least.
const LEAST: Nanos = Nanos::from_millis(1000);
/// Between two looks at whether the program has ended.
const LOOK: Duration = Duration::from_millis(5);

/// A program that tells of the AMD GPUs of this machine.
#[derive(Clone, Debug)]
pub struct Amd {
    name: &'static str,
    path: PathBuf,
    arguments: &'static [&'static str],
    env: BTreeMap<String, String>,
    visible: Visible,
}

impl Amd {
    /// The program on the environment's `PATH`, if there is one.
    pub fn find(env: &BTreeMap<String, String>) -> Option<Amd> {
        let path = env.get("PATH")?;
        let found = |name| path.split(':').map(|folder| Path::new(folder).join(name)).find(|path| executable(path));
        let (name, path, arguments) = PROGRAMS.iter().find_map(|(name, arguments)| Some((*name, found(name)?, *arguments)))?;
        let visible = Visible::of(env, &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]);
        Some(Amd { name, path, arguments, env: env.clone(), visible })
    }

    /// Samples them, once a second at the most.
    pub fn source(&self, interval: Nanos) -> Box<dyn TelemetrySource> {
        let (times, took, fleet) = (0, Duration::ZERO, Fleet::default());
        Box::new(Sampled { program: self.clone(), interval: interval.max(LEAST), times, took, fleet })
    }

    /// What it prints, given no more time than `within`.
    fn print(&self, within: Duration) -> Result<String, String> {
        let lost = |error: std::io::Error| format!("`{}` cannot be run: {error}", self.path.display());
        // A file takes more than a pipe holds while nobody reads.
        let mut out = tempfile::tempfile().map_err(lost)?;
        let mut command = Command::new(&self.path);
        command.args(self.arguments).env_clear().envs(&self.env).stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(out.try_clone().map_err(lost)?);
        let mut child = command.spawn().map_err(lost)?;
        let Some(status) = waited(&mut child, within) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{}` did not end within {} ms", self.name, within.as_millis()));
        };
        let text = whole(&mut out).map_err(lost)?;
        if status.success() || !text.trim().is_empty() { Ok(text) } else { Err(format!("`{}` ended with {status}", self.name)) }
    }
}

fn executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|own| own.is_file() && own.permissions().mode() & 0o111 != 0)
}

/// None where it has not ended within that time.
fn waited(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + within;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

fn whole(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Sampled {
    program: Amd,
    interval: Nanos,
    times: u32,
    took: Duration,
    fleet: Fleet,
}

impl TelemetrySource for Sampled {
    fn kind(&self) -> Source {
        Source::Amd
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(SampledValue<'_>)) -> Result<(), String> {
        let (name, visible) = (self.program.name, &self.program.visible);
        let text = self.program.print(self.interval.into())?;
        let mut all = cards(&text).ok_or_else(|| format!("`{name}` printed no JSON that tells of GPUs"))?;
        (self.times, self.took) = (self.times + 1, self.took + at.elapsed());
        let count = all.len();
        all.retain(|(device, _)| visible.shows(*device, ""));
        all.iter().for_each(|(device, card)| self.fleet.tell(*device, card, tell));
        match all.is_empty() {
            true if count == 0 => Err(format!("`{name}` knows no GPU")),
            true => Err(format!("`{}` names none of the {count} AMD GPUs", visible.name())),
            false => Ok(()),
        }
    }

    fn notes(&mut self) -> Vec<String> {
        let cost = self.took.checked_div(self.times).map(|each| {
            let (name, each, interval) = (self.program.name, each.as_millis(), self.interval.secs());
            format!("each sample of the AMD GPUs ran `{name}` for {each} ms on the mean, every {interval} s")
        });
        cost.into_iter().chain(self.fleet.notes(false)).collect()
    }
}

/// Both programs say MB and mean MiB.
const MIB: f64 = 1024.0 * 1024.0;

/// The GPUs of either program's JSON, by number; None where it is no such JSON. Warnings may stand before it.
pub(super) fn cards(text: &str) -> Option<Vec<(u32, Card)>> {
    let start = text.find(['{', '['])?;
    let value: Value = serde_json::Deserializer::from_str(text.get(start..)?).into_iter().next()?.ok()?;
    match value.get("gpu_data").unwrap_or(&value) {
        Value::Array(gpus) => Some(gpus.iter().enumerate().map(|(place, gpu)| numbered(place, gpu)).collect()),
        Value::Object(cards) => {
            let own = |(name, card): (&String, &Value)| Some((name.strip_prefix("card")?.parse().ok()?, rocm_smi(card)));
            Some(cards.iter().filter_map(own).collect::<Vec<_>>()).filter(|cards| !cards.is_empty())
        }
        _ => None,
    }
}

fn numbered(place: usize, gpu: &Value) -> (u32, Card) {
    let number = gpu.get("gpu").and_then(number).unwrap_or(place as f64);
    (number as u32, amd_smi(gpu))
}

/// `22`, `"22"`, `"22 W"`, `"(800Mhz)"` or `{"value": 22, "unit": "W"}`; `"N/A"` is none.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Object(own) => own.get("value").and_then(number),
        Value::String(text) => {
            let text = text.trim_start_matches('(');
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(text.len());
            text.get(..end)?.parse().ok()
        }
        _ => None,
    }
}

/// A GPU of `amd-smi metric --json`.
fn amd_smi(gpu: &Value) -> Card {
    let at = |section: &str, key: &str| gpu.get(section).and_then(|own| own.get(key));
    let of = |section: &str, keys: &[&str]| keys.iter().find_map(|key| number(at(section, key)?));
    let share = |key| of("usage", &[key]).map(|percent| percent / 100.0);
    let mut card = Card::default();
    card.put(Signal::GpuUtilization, share("gfx_activity"));
    card.put(Signal::GpuMemoryUtilization, share("umc_activity"));
    card.put(Signal::GpuMemory, of("mem_usage", &["used_vram"]).map(|mebibytes| mebibytes * MIB));
    card.put(Signal::GpuPower, of("power", &["socket_power", "current_socket_power", "average_socket_power"]));
    card.put(Signal::GpuClock, clock(gpu, "gfx"));
    card.put(Signal::GpuMemoryClock, clock(gpu, "mem"));
    card.put(Signal::GpuTemperature, of("temperature", &["hotspot", "edge"]));
    card.energy = of("energy", &["total_energy_consumption"]);
    card.held = match at("power", "throttle_status").and_then(Value::as_str) {
        Some("THROTTLED") => Some(vec!["throttled"]),
        Some("UNTHROTTLED") => Some(Vec::new()),
        _ => None,
    };
    card
}

/// The least of the clocks `gfx_0`, `gfx_1` …: a GPU may be made of several.
fn clock(gpu: &Value, domain: &str) -> Option<f64> {
    let clocks = gpu.get("clock")?.as_object()?.iter();
    let own = clocks.filter(|(name, _)| name.strip_prefix(domain).is_some_and(|rest| rest.is_empty() || rest.starts_with('_')));
    own.filter_map(|(_, clock)| ["clk", "cur_clk"].iter().find_map(|key| number(clock.get(key)?))).reduce(f64::min)
}

/// A card of `rocm-smi --json`.
fn rocm_smi(gpu: &Value) -> Card {
    let entry =
        |key: &str| gpu.as_object()?.iter().find(|(own, _)| own.eq_ignore_ascii_case(key)).and_then(|(_, own)| number(own));
    let of = |keys: &[&str]| keys.iter().find_map(|key| entry(key));
    let share = |keys: &[&str]| of(keys).map(|percent| percent / 100.0);
    let mut card = Card::default();
    card.put(Signal::GpuUtilization, share(&["GPU use (%)"]));
    card.put(Signal::GpuMemoryUtilization, share(&["GPU Memory Read/Write Activity (%)", "GPU memory use (%)"]));
    card.put(Signal::GpuMemory, of(&["VRAM Total Used Memory (B)"]));
    let power = ["Current Socket Graphics Package Power (W)", "Average Graphics Package Power (W)"];
    card.put(Signal::GpuPower, of(&power));
    card.put(Signal::GpuClock, of(&["sclk clock speed:"]));
    card.put(Signal::GpuMemoryClock, of(&["mclk clock speed:"]));
    let sensors = ["Temperature (Sensor junction) (C)", "Temperature (Sensor edge) (C)"];
    card.put(Signal::GpuTemperature, of(&sensors));
    card
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn program(folder: &Path, name: &str, script: &str) -> BTreeMap<String, String> {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        BTreeMap::from([("PATH".to_owned(), format!("/nowhere:{}:/usr/bin:/bin", folder.display()))])
    }

    fn sample(source: &mut dyn TelemetrySource) -> Result<Vec<(String, Option<u32>, f64)>, String> {
        loop {
            let mut all = Vec::new();
            match source.sample(Instant::now(), &mut |own| all.push((own.name.to_owned(), own.device, own.value))) {
                // A process that another test starts in this instant still holds the script open.
                Err(error) if error.contains("Text file busy") => {}
                answer => return answer.map(|()| all),
            }
        }
    }

    #[test]
    fn the_program_on_the_path_is_asked_and_its_cost_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Amd::find(&BTreeMap::new()).is_none());
        program(folder.path(), "rocm-smi", "exit 9");
        let printed = r#"[{"gpu":0,"usage":{"gfx_activity":{"value":42,"unit":"%"}}},{"gpu":1,"usage":"N/A"}]"#;
        let mut env = program(folder.path(), "amd-smi", &format!("echo '{printed}'"));
        let amd = Amd::find(&env).unwrap();
        assert_eq!(amd.path, folder.path().join("amd-smi"), "the present program first");
        let mut source = amd.source(Nanos::from_millis(100));
        assert_eq!(source.interval(), LEAST);
        assert_eq!(sample(source.as_mut()), Ok(vec![("gpu.utilization".into(), Some(0), 0.42)]));
        let notes = source.notes();
        assert!(notes[0].starts_with("each sample of the AMD GPUs ran `amd-smi` for "), "{notes:?}");
        env.insert("HIP_VISIBLE_DEVICES".into(), "1".into());
        assert_eq!(sample(Amd::find(&env).unwrap().source(LEAST).as_mut()), Ok(vec![]), "the first is not visible");
        env.insert("HIP_VISIBLE_DEVICES".into(), "-1".into());
        let none = "`HIP_VISIBLE_DEVICES` names none of the 2 AMD GPUs".to_owned();
        assert_eq!(sample(Amd::find(&env).unwrap().source(LEAST).as_mut()), Err(none));
    }

    #[test]
    fn a_program_that_fails_hangs_or_talks_nonsense_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for (script, expected) in [
            ("exit 3", "`rocm-smi` ended with exit status: 3"),
            ("echo '[]'", "`rocm-smi` knows no GPU"),
            ("echo WARNING", "`rocm-smi` printed no JSON that tells of GPUs"),
            ("sleep 60", "`rocm-smi` did not end within 50 ms"),
        ] {
            let amd = Amd::find(&program(folder.path(), "rocm-smi", script)).unwrap();
            // Programs of this test run at once with others: only what hangs is cut short.
            let within = if script.starts_with("sleep") { 50 } else { 60_000 };
            let mut source = Sampled {
                program: amd,
                interval: Nanos::from_millis(within),
                times: 0,
                took: Duration::ZERO,
                fleet: Fleet::default(),
            };
            assert_eq!(sample(&mut source), Err(expected.to_owned()));
        }
    }
}

#[cfg(test)]
mod smi_json_tests {
    use super::*;

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
        let values = |card: Card| card.values.into_iter().map(|(signal, value)| (signal.name(), value)).collect();
        cards(text).unwrap().into_iter().map(|(device, card)| (device, values(card))).collect()
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
        let card = cards(METRIC).unwrap().remove(0).1;
        assert_eq!((card.energy, card.held), (Some(1234.567), Some(Vec::new())));
    }

    #[test]
    fn what_it_calls_not_available_is_missing_and_what_stands_before_the_json_is_skipped() {
        let expected = [("gpu.utilization", 1.0), ("gpu.power", 749.0), ("gpu.clock", 1900.0)];
        assert_eq!(told(WRAPPED), [(0, vec![]), (3, expected.to_vec())]);
        let held: Vec<_> = cards(WRAPPED).unwrap().into_iter().map(|(_, card)| card.held).collect();
        assert_eq!(held, [None, Some(vec!["throttled"])]);
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
        let third =
            [("gpu.utilization", 0.99), ("gpu.memory_utilization", 0.21), ("gpu.power", 266.0), ("gpu.temperature", 60.0)];
        assert_eq!(told(ROCM), [(0, first.to_vec()), (1, second.to_vec()), (2, third.to_vec())]);
    }

    #[test]
    fn other_texts_tell_of_no_gpus() {
        for text in ["", "ERROR: no driver", "{\"system\": {}}", "{\"card0\": ", "[1"] {
            assert_eq!(cards(text), None, "{text:?}");
        }
        assert_eq!(cards("[]"), Some(Vec::new()));
    }
}
