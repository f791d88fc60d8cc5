//! The standard families of any process, under the names that every dashboard knows.
//!
//! Reading `/proc` is up to the process; only the names are here.

use crate::def::catalog;
use crate::roles::ALL as EVERY_ROLE;

catalog! {
    source: Process, roles: EVERY_ROLE;

    /// Total user and system CPU time spent in seconds.
    CPU_SECONDS: TimeCounter<()> = "process_cpu_seconds_total", per Process;
    /// Resident memory size in bytes.
    RESIDENT_MEMORY: Gauge<()> = "process_resident_memory_bytes", per Process;
    /// Virtual memory size in bytes.
    VIRTUAL_MEMORY: Gauge<()> = "process_virtual_memory_bytes", per Process;
    /// Start time of the process since unix epoch in seconds.
    START_TIME: Gauge<()> = "process_start_time_seconds", per Process;
    /// Number of open file descriptors.
    OPEN_FDS: Gauge<()> = "process_open_fds", per Process;
    /// Maximum number of open file descriptors.
    MAX_FDS: Gauge<()> = "process_max_fds", per Process;
}
