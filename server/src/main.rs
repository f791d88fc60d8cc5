//! Entry point: everything is in the library, so that `sightline` can run it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    server::cli::run(std::env::args_os().collect())
}
