//! What GPUs tell, whoever made them.

use crate::source::SampledValue;
use llmscen_core::signal::Signal;
use std::collections::{BTreeMap, BTreeSet};

pub mod amd;
pub mod nvml;

/// What every GPU is asked for.
const ASKED: [Signal; 9] = [
    Signal::GpuUtilization,
    Signal::GpuMemoryUtilization,
    Signal::GpuMemory,
    Signal::GpuMemoryServer,
    Signal::GpuPower,
    Signal::GpuClock,
    Signal::GpuMemoryClock,
    Signal::GpuTemperature,
    Signal::GpuThrottled,
];
/// What a GPU has used since its driver was loaded, in joules. Energy per token is made of the power, which every GPU tells.
const ENERGY: &str = "gpu.energy_joules";
/// Whether a reason for running slower holds, 0 or 1, by `reason`.
const REASON: &str = "gpu.throttle_reason";

/// What one GPU told at once.
#[derive(Clone, Debug, Default, PartialEq)]
struct Card {
    /// What it told, in the unit of the signal.
    values: Vec<(Signal, f64)>,
    /// Joules that it has used so far.
    energy: Option<f64>,
    /// Why it runs slower than it could, in words; None where it does not tell.
    held: Option<Vec<&'static str>>,
}

impl Card {
    /// Takes in a value, where there is one.
    fn put(&mut self, signal: Signal, value: Option<f64>) {
        self.values.extend(value.map(|value| (signal, value)));
    }
}

/// The GPUs of a round: what they have told so far.
#[derive(Debug, Default)]
struct Fleet {
    seen: BTreeMap<u32, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    samples: u64,
    told: BTreeSet<Signal>,
    held: u64,
    reasons: BTreeMap<&'static str, u64>,
}

impl Fleet {
    /// Tells what a GPU told.
    fn tell(&mut self, device: u32, card: &Card, tell: &mut dyn FnMut(SampledValue<'_>)) {
        let seen = self.seen.entry(device).or_default();
        seen.samples += 1;
        let mut own = |name: &str, labels: &str, value: f64| tell(SampledValue { name, labels, device: Some(device), value });
        for (signal, value) in &card.values {
            seen.told.insert(*signal);
            own(signal.name(), "", *value);
        }
        if let Some(energy) = card.energy {
            own(ENERGY, "", energy);
        }
        let Some(held) = &card.held else { return };
        seen.told.insert(Signal::GpuThrottled);
        seen.held += u64::from(!held.is_empty());
        own(Signal::GpuThrottled.name(), "", if held.is_empty() { 0.0 } else { 1.0 });
        for reason in held {
            *seen.reasons.entry(reason).or_default() += 1;
        }
        for reason in seen.reasons.keys() {
            own(REASON, &format!("reason={reason}"), f64::from(u8::from(held.contains(reason))));
        }
    }

    /// What they never told, and what held them back. The server's memory is asked for where there is a managed server.
    fn notes(&self, server: bool) -> Vec<String> {
        let mut silent: BTreeMap<Vec<&str>, Vec<String>> = BTreeMap::new();
        for (device, seen) in &self.seen {
            let asked = ASKED.iter().filter(|signal| server || **signal != Signal::GpuMemoryServer);
            let missing: Vec<&str> = asked.filter(|signal| !seen.told.contains(signal)).map(|signal| signal.name()).collect();
            silent.entry(missing).or_default().push(device.to_string());
        }
        let silent = silent.into_iter().filter(|(missing, _)| !missing.is_empty());
        let untold = silent.map(|(missing, devices)| format!("GPU {} did not tell {}", devices.join(", "), missing.join(", ")));
        let held = self.seen.iter().filter(|(_, seen)| seen.held > 0).map(|(device, seen)| {
            let reasons: Vec<String> = seen.reasons.iter().map(|(reason, times)| format!("{reason} ({times})")).collect();
            let reasons = reasons.join(", ");
            format!("GPU {device} ran slower than it could in {} of {} samples: {reasons}", seen.held, seen.samples)
        });
        untold.chain(held).collect()
    }
}

/// What `CUDA_VISIBLE_DEVICES` says, or its like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Visible {
    /// The variable; empty: none is set, and all GPUs are.
    name: String,
    named: Vec<String>,
}

impl Visible {
    /// By the first of these variables that is set. As CUDA has it, the list ends where it names no GPU, such as `-1`.
    pub fn of(env: &BTreeMap<String, String>, names: &[&str]) -> Visible {
        let found = names.iter().find_map(|name| Some((*name, env.get(*name)?)));
        let Some((name, list)) = found else { return Visible::default() };
        let valid = |own: &&str| own.parse::<u32>().is_ok() || own.starts_with("GPU-") || own.starts_with("MIG-");
        Visible { name: name.to_owned(), named: list.split(',').map(str::trim).take_while(valid).map(str::to_owned).collect() }
    }

    /// Whether a GPU is among them: by its number, or by the beginning of its UUID. Of a slice of a GPU it is not known whose it
    /// is: then every GPU may be.
    pub fn shows(&self, index: u32, uuid: &str) -> bool {
        let own = |name: &String| match name.parse::<u32>() {
            Ok(number) => number == index,
            Err(_) => name.starts_with("MIG-") || uuid.starts_with(name.as_str()),
        };
        self.name.is_empty() || self.named.iter().any(own)
    }

    /// The variable that says so; empty where none does.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fleet: &mut Fleet, device: u32, card: &Card) -> Vec<String> {
        let mut all = Vec::new();
        fleet.tell(device, card, &mut |own| {
            let labels = if own.labels.is_empty() { String::new() } else { format!("{{{}}}", own.labels) };
            all.push(format!("{}{labels}@{}={}", own.name, own.device.unwrap(), own.value));
        });
        all
    }

    #[test]
    fn a_gpu_tells_what_it_knows_and_its_silence_and_its_brakes_are_noted() {
        let mut fleet = Fleet::default();
        let values = ASKED.iter().filter(|own| **own != Signal::GpuThrottled).map(|signal| (*signal, 1.0)).collect();
        let held = Card { values, energy: Some(7.5), held: Some(vec!["power_cap"]) };
        let all = told(&mut fleet, 0, &held);
        assert_eq!(all.len(), 11);
        assert_eq!(&all[8..], ["gpu.energy_joules@0=7.5", "gpu.throttled@0=1", "gpu.throttle_reason{reason=power_cap}@0=1"]);
        let free = Card { held: Some(Vec::new()), ..Card::default() };
        assert_eq!(told(&mut fleet, 0, &free), ["gpu.throttled@0=0", "gpu.throttle_reason{reason=power_cap}@0=0"]);
        assert_eq!(told(&mut fleet, 3, &free), ["gpu.throttled@3=0"], "a reason that never held is none");
        told(&mut fleet, 5, &free);
        let rest = "gpu.memory, gpu.power, gpu.clock, gpu.memory_clock, gpu.temperature";
        let silent = format!("GPU 3, 5 did not tell gpu.utilization, gpu.memory_utilization, {rest}");
        let brakes = "GPU 0 ran slower than it could in 1 of 2 samples: power_cap (1)".to_owned();
        assert_eq!(fleet.notes(false), [silent.clone(), brakes]);
        assert_eq!(fleet.notes(true)[0], silent.replace("gpu.memory,", "gpu.memory, gpu.memory_server,"));
    }
}

#[cfg(test)]
mod visible_tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_or_uuid_up_to_the_first_that_is_none() {
        let of = |list: &str| {
            Visible::of(&BTreeMap::from([("CUDA_VISIBLE_DEVICES".into(), list.into())]), &["X", "CUDA_VISIBLE_DEVICES"])
        };
        let shown = |list: &str| (0..4).filter(|index| of(list).shows(*index, &format!("GPU-{index}ab-cd"))).collect::<Vec<_>>();
        for (list, own) in [
            ("0, 2", vec![0, 2]),
            ("GPU-3ab,1", vec![1, 3]),
            ("1,-1,2", vec![1]),
            ("", vec![]),
            ("-1", vec![]),
            ("MIG-5f0b2d-1", vec![0, 1, 2, 3]),
        ] {
            assert_eq!(shown(list), own, "{list:?}");
        }
        assert!(Visible::of(&BTreeMap::new(), &["CUDA_VISIBLE_DEVICES"]).shows(7, "GPU-7"), "without the variable all are");
        assert_eq!(of("0").name(), "CUDA_VISIBLE_DEVICES");
    }
}
