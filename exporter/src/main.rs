//! Entry point: everything is in the library.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if exporter::gpu::is_worker(&arguments) {
        return exporter::gpu::work();
    }
    exporter::cli::run(arguments)
}
