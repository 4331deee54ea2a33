use super::*;

/// The plan of a text that must be sound.
pub(crate) fn plan(yaml: &str) -> Plan {
    load_text(yaml, &[], &[]).unwrap_or_else(|faults| panic!("{}", faults.render(false, 100))).plan
}

fn load_text(yaml: &str, env: &[(&str, &str)], set: &[(&str, &str)]) -> Result<Loaded, Faults> {
    let env = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let set: Vec<_> = set.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    load(&Input { path: Path::new("t.yaml"), text: Some(yaml.to_owned()), env: &env, set: &set })
}

/// Loads a file in an empty environment.
pub(crate) fn load_file(path: &Path) -> Result<Loaded, Faults> {
    load(&Input { path, text: None, env: &BTreeMap::new(), set: &[] })
}
