//! Why a value is missing that somebody relies on: the card does not have it, or its call failed.

use crate::groups::{ECC_ERRORS, VOLATILE_UNCORRECTED};
use crate::protocol::{Problem, Slow};
use crate::reading::{Call, FIELD_VALUES, name};
use nvml_wrapper::sys_exports::field_id as id;

/// A value of [`Slow`] that is missed when its call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// [`crate::protocol::Ecc::uncorrected`] since the driver was loaded.
    UncorrectedErrors,
    /// [`crate::protocol::Rows::failed`].
    RowFailed,
    /// [`crate::protocol::Rows::pending`].
    RowPending,
    /// [`Slow::retire_pending`].
    RetirePending,
    /// [`Slow::recovery_action`].
    RecoveryAction,
}

impl Wanted {
    const fn call(self) -> Call {
        match self {
            Self::UncorrectedErrors => (ECC_ERRORS, VOLATILE_UNCORRECTED),
            Self::RowFailed => (FIELD_VALUES, id::NVML_FI_DEV_REMAPPED_FAILURE),
            Self::RowPending => (FIELD_VALUES, id::NVML_FI_DEV_REMAPPED_PENDING),
            Self::RetirePending => (FIELD_VALUES, id::NVML_FI_DEV_RETIRED_PENDING),
            Self::RecoveryAction => (FIELD_VALUES, id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
        }
    }
}

impl Slow {
    /// What failed when this value was asked for. `None` where it is there, and where the card does
    /// not support it.
    #[must_use]
    pub fn problem(&self, of: Wanted) -> Option<&Problem> {
        let call = of.call();
        // The call for many fields may fail as a whole.
        let names = [name(call), name((call.0, 0))];
        self.problems.iter().find(|problem| names.contains(&problem.call))
    }
}
