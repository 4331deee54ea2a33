//! Differences between the environments of two runs: labels, versions, machine and servers.

use llmscen_core::history::Results;
use llmscen_core::manifest::{Machine, Manifest};
use std::collections::{BTreeMap, BTreeSet};

/// What a run measured, and where.
pub(crate) struct Environment<'a> {
    labels: &'a BTreeMap<String, String>,
    tool_version: &'a str,
    machine: &'a Machine,
    targets: &'a BTreeMap<String, String>,
}

impl<'a> From<&'a Manifest> for Environment<'a> {
    fn from(manifest: &'a Manifest) -> Environment<'a> {
        Environment {
            labels: &manifest.labels,
            tool_version: &manifest.tool_version,
            machine: &manifest.machine,
            targets: &manifest.targets,
        }
    }
}

impl<'a> From<&'a Results> for Environment<'a> {
    fn from(results: &'a Results) -> Environment<'a> {
        Environment {
            labels: &results.labels,
            tool_version: &results.tool_version,
            machine: &results.machine,
            targets: &results.targets,
        }
    }
}

/// A difference.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnvironmentChange {
    /// `commit`, `host`, `server`.
    pub what: String,
    /// ` at URL` for a server; otherwise empty.
    pub at: String,
    /// Value in the earlier run.
    pub before: String,
    /// Value in the later run.
    pub after: String,
}

/// The differences: labels first.
pub(crate) fn changes(a: &Environment<'_>, b: &Environment<'_>) -> Vec<EnvironmentChange> {
    let names: BTreeSet<&String> = a.labels.keys().chain(b.labels.keys()).collect();
    let labels = names.into_iter().map(|name| {
        let value = |it: &Environment<'_>| it.labels.get(name).cloned();
        (name.clone(), value(a), value(b))
    });
    let property = |name: &str, value: &dyn Fn(&Environment<'_>) -> Option<String>| {
        (name.to_owned(), value(a), value(b))
    };
    let properties = [
        property("version of llmscen", &|it| Some(it.tool_version.to_owned())),
        property("host", &|it| Some(describe_host(it.machine))),
        property("GPU", &|it| it.machine.gpu.clone()),
        property("GPU driver", &|it| it.machine.gpu_driver.clone()),
        property("CUDA", &|it| it.machine.cuda.clone()),
        property("GPU application clock", &|it| it.machine.gpu_clock.clone()),
    ];
    let change = |what: String, at: String, before: Option<String>, after: Option<String>| {
        let [before, after] =
            [before, after].map(|value| value.unwrap_or_else(|| "not set".to_owned()));
        (before != after).then_some(EnvironmentChange {
            what,
            at,
            before,
            after,
        })
    };
    let servers = b.targets.iter().filter_map(|(url, server)| {
        let before = a.targets.get(url)?;
        let [before, after] =
            [before, server].map(|it| Some(it.clone()).filter(|it| !it.is_empty()));
        change("server".to_owned(), format!(" at {url}"), before, after)
    });
    labels
        .chain(properties)
        .filter_map(|(what, before, after)| change(what, String::new(), before, after))
        .chain(servers)
        .collect()
}

fn describe_host(machine: &Machine) -> String {
    format!(
        "{} ({}, {} cores, {} {})",
        machine.host, machine.cpu, machine.cores, machine.os, machine.kernel
    )
}
