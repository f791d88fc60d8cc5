//! The standard families of any process, under the names that every dashboard knows.
//!
//! Reading `/proc` is up to the process; only the names are here.

use crate::def::catalog;
use crate::labels::Role;

catalog! {
    source: Process, roles: &[Role::Unified];

    /// Total user and system CPU time spent in seconds.
    CPU_SECONDS: TimeCounter<()> = "process_cpu_seconds_total";
    /// Resident memory size in bytes.
    RESIDENT_MEMORY: Gauge<()> = "process_resident_memory_bytes";
    /// Virtual memory size in bytes.
    VIRTUAL_MEMORY: Gauge<()> = "process_virtual_memory_bytes";
    /// Start time of the process since unix epoch in seconds.
    START_TIME: Gauge<()> = "process_start_time_seconds";
    /// Number of open file descriptors.
    OPEN_FDS: Gauge<()> = "process_open_fds";
    /// Maximum number of open file descriptors.
    MAX_FDS: Gauge<()> = "process_max_fds";
}
