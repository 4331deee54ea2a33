//! The GPUs that the environment leaves to programs.

use std::collections::BTreeMap;

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
