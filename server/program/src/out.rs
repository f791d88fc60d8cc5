//! Standard output and complaints: the only place that writes there. Logs go to standard error.

use std::io::{self, Write};

/// Writes `text` and a line end, at once.
///
/// # Errors
/// Standard output is closed or full.
pub fn line(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Writes `text` and a line end to standard error: for messages before logging is set up.
pub fn complain(text: &str) {
    // Nobody is left to tell when standard error is closed.
    drop(writeln!(io::stderr().lock(), "{text}"));
}
