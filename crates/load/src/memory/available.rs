//! How much memory the system still gives.

use std::path::{Path, PathBuf};

/// Where Linux has the control groups of version 2.
const GROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes that this process can still take before the system swaps or ends it: those that the machine has
/// available, or fewer if a control group (version 2) allows fewer. `None` where the system does not say, as on other
/// systems than Linux.
pub fn available_memory() -> Option<u64> {
    if cfg!(target_os = "linux") { available(&|path| std::fs::read_to_string(path).ok()) } else { None }
}

/// The same, from the files that `read` gives.
fn available(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| machine(&text));
    let own = read(Path::new("/proc/self/cgroup")).and_then(|text| own_group(&text));
    let own = own.unwrap_or_else(|| PathBuf::from(GROUPS));
    // Each group is bounded by those around it.
    let groups = own.ancestors().take_while(|group| group.starts_with(GROUPS));
    groups.filter_map(|group| room(group, read)).chain(machine).min()
}

/// `MemAvailable` of /proc/meminfo (proc_meminfo(5)): page cache that can be given up counts as available.
fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The directory of this process's group: `0::PATH` in /proc/self/cgroup (cgroups(7)).
fn own_group(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    // A group outside of what this process sees begins with `..`.
    let inside = !Path::new(path).components().any(|part| part == std::path::Component::ParentDir);
    inside.then(|| Path::new(GROUPS).join(path))
}

/// What `group` allows beyond what it holds: page cache that has not been used lately can be given up.
fn room(group: &Path, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let number = |name: &str| read(&group.join(name))?.trim().parse::<u64>().ok();
    // Without a limit this is `max`.
    let limit = number("memory.max")?;
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse::<u64>().ok());
    let held = number("memory.current")?.saturating_sub(inactive.unwrap_or(0));
    Some(limit.saturating_sub(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Option<u64> {
        available(&|path| {
            files.iter().find(|(name, _)| path == Path::new(name)).map(|(_, text)| (*text).to_owned())
        })
    }

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    4000 kB\n");

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[MEMINFO]), Some(4_096_000));
        let group = |limit, current, stat| {
            [
                MEMINFO,
                ("/proc/self/cgroup", "0::/a/b\n"),
                ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("/sys/fs/cgroup/a/memory.max", limit),
                ("/sys/fs/cgroup/a/memory.current", current),
                ("/sys/fs/cgroup/a/memory.stat", stat),
            ]
        };
        let stat = "anon 5\ninactive_file 300\nactive_file 7\n";
        assert_eq!(found(&group("1000\n", "800\n", stat)), Some(500));
        assert_eq!(found(&group("1000\n", "800\n", "")), Some(200));
        assert_eq!(found(&group("1000\n", "1800\n", "")), Some(0));
        assert_eq!(found(&group("max\n", "800\n", stat)), Some(4_096_000));
        assert_eq!(found(&group("nonsense", "800\n", stat)), Some(4_096_000));
    }

    #[test]
    fn within_a_container_its_own_group_is_the_root() {
        let files = [
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "700"),
            ("/sys/fs/cgroup/memory.current", "100"),
        ];
        assert_eq!(found(&files), Some(600));
        let outside = [("/proc/self/cgroup", "0::/../x\n"), files[1], files[2]];
        assert_eq!(found(&outside), Some(600));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_says() {
        assert!(available_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
