//! The library's errors as those of the protocol.

use crate::protocol::{Fault, FaultKind};
use nvml_wrapper::error::NvmlError;

/// What an error of the library means.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the wrapper's list grows; what is not told apart is the driver's own affair"
)]
pub(crate) fn kind(error: &NvmlError) -> FaultKind {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => FaultKind::LibraryMissing,
        NvmlError::DriverNotLoaded => FaultKind::DriverNotLoaded,
        NvmlError::LibRmVersionMismatch => FaultKind::VersionMismatch,
        NvmlError::Uninitialized => FaultKind::Uninitialized,
        NvmlError::NoPermission | NvmlError::OperatingSystem => FaultKind::NoPermission,
        NvmlError::GpuLost => FaultKind::GpuLost,
        NvmlError::ResetRequired => FaultKind::ResetRequired,
        NvmlError::Timeout => FaultKind::Timeout,
        NvmlError::NotSupported
        | NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound => FaultKind::NotSupported,
        _ => FaultKind::Driver,
    }
}

/// The error with the call that met it.
pub(crate) fn of(call: &str, error: &NvmlError) -> Fault {
    Fault::new(kind(error), format!("{call}: {error}"))
}
