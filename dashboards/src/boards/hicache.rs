//! Host cache: what each size of a host tier would be worth, and what it would cost.

mod sizing;

use super::common;
use crate::ir::Dashboard;
use metric_catalog::promql::Window;

const NOW: Window = Window::Interval;

/// The board.
pub(super) fn board() -> Dashboard {
    common::board(
        common::HICACHE,
        "Host cache sizing",
        "The hit ratio that the prefix cache would have with a host tier of each size, and what \
         each costs in bytes: estimated exactly from the traffic as it comes, without a restart.",
        vec![sizing::section()],
    )
}
