//! Memory that this process may use.

use crate::proc::{Proc, parse_kib};
use crate::process::memory_reserved;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// Bytes that this process may still use before the system swaps or kills it: the available memory of the machine, or
/// the limit of a control group above this process or of its data (`ulimit -d`) if that is lower. None where the
/// system reports none.
pub fn usable_memory() -> Option<u64> {
    let used = memory_reserved().unwrap_or_default();
    let of_data = getrlimit(Resource::Data)
        .current
        .map(|limit| limit.saturating_sub(used));
    usable_under(Path::new("/"))
        .into_iter()
        .chain(of_data)
        .min()
}

fn usable_under(root: &Path) -> Option<u64> {
    let mut proc = Proc::new(root);
    let available = proc
        .read("meminfo")
        .ok()
        .and_then(|text| parse_kib(&text, "MemAvailable"));
    let groups = proc.read("self/cgroup").unwrap_or_default();
    groups
        .lines()
        .flat_map(|line| limit_files(root, line))
        .filter_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        .chain(available)
        .min()
}

/// The limit files of a control group and of those above it, for a line of `/proc/self/cgroup`: `0::/a/b` (version 2)
/// or `4:memory:/a/b` (version 1). A container that does not see its own path has the files at the root.
fn limit_files(root: &Path, line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
    else {
        return Vec::new();
    };
    let (top, file) = if controllers.is_empty() {
        ("sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let top = root.join(top);
    let group = top.join(path.trim_start_matches('/'));
    group
        .ancestors()
        .take_while(|folder| folder.starts_with(&top))
        .map(|folder| folder.join(file))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usable(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        usable_under(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 4000 kB\n");

    #[test]
    fn the_lowest_limit_counts() {
        assert_eq!(usable(&[MEMINFO]), Some(4_096_000));
        let second = |group: &str, limit: &str| {
            usable(&[
                MEMINFO,
                ("proc/self/cgroup", "0::/job/task\n"),
                (&format!("sys/fs/cgroup/{group}memory.max"), limit),
            ])
        };
        assert_eq!(second("job/task/", "1000000\n"), Some(1_000_000));
        assert_eq!(second("job/", "1000000\n"), Some(1_000_000));
        assert_eq!(second("", "1000000\n"), Some(1_000_000));
        assert_eq!(second("job/", "max\n"), Some(4_096_000));
        assert_eq!(second("other/", "1000000\n"), Some(4_096_000));
        let first = [
            MEMINFO,
            ("proc/self/cgroup", "9:cpu,cpuacct:/a\n4:memory:/docker/7\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
        ];
        assert_eq!(usable(&first), Some(2_000_000));
        assert_eq!(usable(&[]), None);
    }
}
