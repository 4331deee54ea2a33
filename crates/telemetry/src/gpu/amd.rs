//! AMD's GPUs, by what its management programs print. Each sample starts one: that costs more than all other sources
//! together, so that it is done no more than once a second.

mod smi_json;

use super::Fleet;
use super::visible::Visible;
use crate::source::{Source, Told};
use llmscen_core::telemetry::Teller;
use llmscen_core::units::Nanos;
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
    pub fn source(&self, interval: Nanos) -> Box<dyn Source> {
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

impl Source for Sampled {
    fn teller(&self) -> Teller {
        Teller::Amd
    }

    fn interval(&self) -> Nanos {
        self.interval
    }

    fn sample(&mut self, at: Instant, tell: &mut dyn FnMut(Told<'_>)) -> Result<(), String> {
        let (name, visible) = (self.program.name, &self.program.visible);
        let text = self.program.print(self.interval.into())?;
        let mut all = smi_json::cards(&text).ok_or_else(|| format!("`{name}` printed no JSON that tells of GPUs"))?;
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

    fn sample(source: &mut dyn Source) -> Result<Vec<(String, Option<u32>, f64)>, String> {
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
