//! `sightline-server health`: asks a running server whether it is ready.

use crate::cli::HealthArgs;
use crate::peer;
use program::exit::Exit;
use program::out;

/// More is no answer of a probe.
const BODY_MAX: usize = 64 * 1024;

/// Prints the answer of `/readyz`; `Exit::Ok` when it is 200, `Exit::Temporary` otherwise.
#[must_use]
pub(crate) fn run(args: &HealthArgs) -> Exit {
    match peer::get(&args.address, "/readyz", args.timeout.0, BODY_MAX) {
        Ok(answer) => {
            let printed = out::line(String::from_utf8_lossy(&answer.body).trim());
            if answer.status == 200 && printed.is_ok() { Exit::Ok } else { Exit::Temporary }
        }
        Err(error) => {
            out::complain(&format!("error: --address {}: {error}", args.address));
            Exit::Temporary
        }
    }
}
