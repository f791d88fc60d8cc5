//! `sightline-exporter`: the command line.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if exporter::gpu::is_worker(&arguments) {
        return exporter::gpu::work();
    }
    ExitCode::SUCCESS
}
