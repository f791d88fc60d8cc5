//! How the process ends: the one list of exit codes.

use std::process::ExitCode;

/// Why the process stopped, as a supervisor sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// A clean stop, or an answer that is yes.
    Ok = 0,
    /// The command line is wrong. The same call fails again.
    Usage = 64,
    /// This host cannot satisfy the configuration: too little memory, a device is missing.
    Host = 69,
    /// A defect of the program, or a part of it failed.
    Internal = 70,
    /// Not now, perhaps later: a port is in use, a peer does not answer.
    Temporary = 75,
    /// A peer is no Sightline server, speaks another version or serves another model.
    Peer = 76,
    /// The system refuses: a privileged port, an unreadable file.
    Permission = 77,
    /// The configuration contradicts itself or the model.
    Configuration = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl Exit {
    /// The code of an error from opening a file or a socket.
    #[must_use]
    pub fn of_io(error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let kind = error.kind();
        if kind == ErrorKind::PermissionDenied {
            Self::Permission
        } else if kind == ErrorKind::AddrInUse {
            Self::Temporary
        } else if kind == ErrorKind::AddrNotAvailable {
            Self::Host
        } else if kind == ErrorKind::NotFound || kind == ErrorKind::InvalidInput {
            Self::Configuration
        } else {
            Self::Internal
        }
    }
}
