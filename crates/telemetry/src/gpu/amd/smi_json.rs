//! What `amd-smi` and `rocm-smi` print. Their keys differ from version to version: what is not found is missing.

use super::super::Card;
use llmscen_core::signal::Signal;
use serde_json::Value;

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
mod tests;
