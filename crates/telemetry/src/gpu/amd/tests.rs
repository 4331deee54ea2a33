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
    let printed =
        r#"[{"gpu":0,"usage":{"gfx_activity":{"value":42,"unit":"%"}}},{"gpu":1,"usage":"N/A"}]"#;
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

/// The output of ROCm 7 on a machine whose first GPU cannot be read.
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
