//! `/proc/self`: what this process uses.

use std::fs;

use crate::{FactError, Root, read as file};

/// Clock ticks per second in `/proc/*/stat`: a constant of the kernel's interface (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers of one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Process {
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Unix time of the start.
    pub start_seconds: f64,
    /// Memory mapped.
    pub virtual_bytes: u64,
    /// Memory resident, file-backed pages included.
    pub resident_bytes: u64,
    /// Threads alive.
    pub threads: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// Soft limit of open file descriptors; 0 where it is unlimited or unknown.
    pub max_files: u64,
}

pub(crate) fn read(root: &Root) -> Result<Process, FactError> {
    let path = root.proc("self/stat");
    let stat = file::text(&path)?;
    let missing = |field| FactError::Field { path: path.clone(), field };
    // The command name may hold spaces and brackets: fields are counted after the last bracket.
    let rest = stat.rsplit_once(')').map(|(_, rest)| rest).ok_or_else(|| missing("comm"))?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize, name: &'static str| {
        fields.get(index).and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| missing(name))
    };
    // Positions as in proc(5), counted from the state, which is field 3 there.
    let ticks = number(11, "utime")?.saturating_add(number(12, "stime")?);
    let boot = file::text(&root.proc("stat")).ok().and_then(|text| boot_time(&text)).unwrap_or(0);
    Ok(Process {
        cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
        start_seconds: boot as f64 + number(19, "starttime")? as f64 / TICKS_PER_SECOND,
        virtual_bytes: number(20, "vsize")?,
        resident_bytes: number(21, "rss")?.saturating_mul(root.page_bytes()),
        threads: number(17, "num_threads")?,
        open_files: fs::read_dir(root.proc("self/fd")).map_or(0, |dir| dir.count() as u64),
        max_files: file::text(&root.proc("self/limits")).map_or(0, |text| max_files(&text)),
    })
}

fn boot_time(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn max_files(limits: &str) -> u64 {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next())
        .and_then(|soft| soft.parse().ok())
        .unwrap_or(0)
}
