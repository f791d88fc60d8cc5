//! `/proc/PID/status`: locked, pinned and resident memory of a process.

use crate::memory::kib;
use crate::numa::strict_list;
use crate::read::{self, Bad};
use crate::{FactError, Root};

/// Memory of a process, in bytes. What this kernel does not tell is `None`; a process without
/// memory of its own (a thread of the kernel, a zombie) has none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// `VmLck`: locked by `mlock`.
    pub locked: Option<u64>,
    /// `VmPin`: pinned for devices, as RDMA does.
    pub pinned: Option<u64>,
    /// `VmRSS`.
    pub resident: Option<u64>,
    /// `Mems_allowed_list`: the nodes its control group lets it use, ascending. It does not show
    /// what `numactl --membind` asked for; [`Root::mempolicy`] does.
    pub mems_allowed: Option<Vec<u32>>,
}

pub(crate) fn read(root: &Root, pid: u32) -> Result<ProcessStatus, FactError> {
    let path = root.proc(pid.to_string()).join("status");
    read::required_with(&path, parse)
}

/// `VmLck:         0 kB`, a field a line.
pub(crate) fn parse(text: &str) -> Result<ProcessStatus, Bad> {
    let mut status = ProcessStatus::default();
    let mut named = false;
    for line in text.lines() {
        let (name, value) = line.split_once(':').ok_or_else(|| Bad::new("line", line))?;
        let (field, place) = match name {
            "VmLck" => ("VmLck", &mut status.locked),
            "VmPin" => ("VmPin", &mut status.pinned),
            "VmRSS" => ("VmRSS", &mut status.resident),
            "Mems_allowed_list" => {
                let nodes = strict_list(value);
                let bad = || Bad::new("Mems_allowed_list", value.trim());
                status.mems_allowed = Some(nodes.ok_or_else(bad)?);
                continue;
            }
            _ => {
                named |= name == "Name";
                continue;
            }
        };
        *place = Some(kib(value).ok_or_else(|| Bad::new(field, value.trim()))?);
    }
    if named { Ok(status) } else { Err(Bad::missing("Name")) }
}
