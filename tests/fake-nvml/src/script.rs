//! The script: where it lies, when it is read again, what its lines say.

use nvml_wrapper_sys::bindings as nvml;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::SystemTime;

/// A return code.
pub(crate) type Code = nvml::nvmlReturn_t;

/// Name of the script, in the folder of the library.
pub(crate) const FILE_NAME: &str = "nvml.script";

/// What tells one version of the file from the next: it is replaced, never rewritten.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Stamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// The lines of one version of the file.
#[derive(Default)]
pub(crate) struct Lines {
    values: HashMap<String, String>,
    /// A line was neither empty nor `key = value`.
    pub(crate) broken: bool,
}

impl Lines {
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.split_once('=') {
                Some((key, value)) => {
                    lines.values.insert(key.trim().to_owned(), value.trim().to_owned());
                }
                None => lines.broken |= !line.is_empty(),
            }
        }
        lines
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// The value of a card's key: the card's own line, or the one for each card.
    pub(crate) fn of(&self, card: &str, key: &str) -> Option<&str> {
        self.get(&format!("{card}.{key}"))
            .or_else(|| if card.contains('/') { None } else { self.get(&format!("*.{key}")) })
    }

    /// What a call is to do instead of answering.
    pub(crate) fn failure(&self, who: &str, function: &str) -> Option<&str> {
        let card = who.split('/').next().unwrap_or_default();
        let who = [who, card, "*"];
        let kinds = if card == "sys" { &who[..1] } else { &who[..] };
        kinds.iter().find_map(|who| {
            let exact = self.get(&format!("fail.{who}.{function}"));
            exact.or_else(|| self.get(&format!("fail.{who}.*")))
        })
    }

    /// Events so far: card and code, oldest first.
    pub(crate) fn xids(&self) -> Vec<(usize, u64)> {
        let words = self.get("xids").unwrap_or_default().split_whitespace();
        let pair = |word: &str| {
            let (card, code) = word.split_once(':')?;
            Some((card.parse().ok()?, code.parse().ok()?))
        };
        words.filter_map(pair).collect()
    }

    pub(crate) fn cards(&self) -> usize {
        self.get("cards").and_then(|count| count.parse().ok()).unwrap_or_default()
    }
}

struct State {
    path: Option<PathBuf>,
    stamp: Option<Stamp>,
    lines: Lines,
}

/// Runs `look` on the script as it is now.
pub(crate) fn with<T>(look: impl FnOnce(&Lines) -> T) -> T {
    let mut state = state();
    let path = state.path.clone();
    if let Some(path) = path {
        let stamp = stamp(&path);
        if stamp != state.stamp {
            // A file that is gone is an empty script: a library without cards.
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            state.lines = Lines::parse(&text);
            state.stamp = stamp;
        }
    }
    look(&state.lines)
}

fn state() -> MutexGuard<'static, State> {
    static STATE: OnceLock<Mutex<State>> = OnceLock::new();
    let fresh = || {
        let path = own_file().and_then(|library| Some(library.parent()?.join(FILE_NAME)));
        Mutex::new(State { path, stamp: None, lines: Lines::default() })
    };
    STATE.get_or_init(fresh).lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp { inode: meta.ino(), bytes: meta.len(), modified: meta.modified().ok() })
}

/// The file that this code was loaded from: a library does not know its own path, the map of the
/// process does.
fn own_file() -> Option<PathBuf> {
    let here = own_file as fn() -> Option<PathBuf> as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = usize::from_str_radix(from, 16).ok()?;
        let to = usize::from_str_radix(to, 16).ok()?;
        let path = &rest[rest.find('/')?..];
        (from..to).contains(&here).then(|| PathBuf::from(path))
    })
}

/// The return code of a name without its prefix; what is no such name is `UNKNOWN`.
pub(crate) fn code(name: &str) -> Code {
    named(name).unwrap_or(nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN)
}

/// The return code of a name without its prefix.
pub(crate) fn named(name: &str) -> Option<Code> {
    const CODES: &[(&str, Code)] = &[
        ("UNINITIALIZED", nvml::nvmlReturn_enum_NVML_ERROR_UNINITIALIZED),
        ("INVALID_ARGUMENT", nvml::nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT),
        ("NOT_SUPPORTED", nvml::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
        ("NO_PERMISSION", nvml::nvmlReturn_enum_NVML_ERROR_NO_PERMISSION),
        ("NOT_FOUND", nvml::nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
        ("INSUFFICIENT_SIZE", nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE),
        ("INSUFFICIENT_POWER", nvml::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_POWER),
        ("DRIVER_NOT_LOADED", nvml::nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED),
        ("TIMEOUT", nvml::nvmlReturn_enum_NVML_ERROR_TIMEOUT),
        ("IRQ_ISSUE", nvml::nvmlReturn_enum_NVML_ERROR_IRQ_ISSUE),
        ("LIBRARY_NOT_FOUND", nvml::nvmlReturn_enum_NVML_ERROR_LIBRARY_NOT_FOUND),
        ("FUNCTION_NOT_FOUND", nvml::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND),
        ("CORRUPTED_INFOROM", nvml::nvmlReturn_enum_NVML_ERROR_CORRUPTED_INFOROM),
        ("GPU_IS_LOST", nvml::nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST),
        ("RESET_REQUIRED", nvml::nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED),
        ("OPERATING_SYSTEM", nvml::nvmlReturn_enum_NVML_ERROR_OPERATING_SYSTEM),
        ("LIB_RM_VERSION_MISMATCH", nvml::nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH),
        ("IN_USE", nvml::nvmlReturn_enum_NVML_ERROR_IN_USE),
        ("MEMORY", nvml::nvmlReturn_enum_NVML_ERROR_MEMORY),
        ("NO_DATA", nvml::nvmlReturn_enum_NVML_ERROR_NO_DATA),
        ("GPU_NOT_FOUND", nvml::nvmlReturn_enum_NVML_ERROR_GPU_NOT_FOUND),
        ("UNKNOWN", nvml::nvmlReturn_enum_NVML_ERROR_UNKNOWN),
    ];
    CODES.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cards_own_line_wins_and_instances_have_only_their_own() {
        let lines = Lines::parse("*.temp = 40 # each\n1.temp = 41\n\n0/2.temp=42\n");
        assert_eq!(lines.of("0", "temp"), Some("40"));
        assert_eq!(lines.of("1", "temp"), Some("41"));
        assert_eq!(lines.of("0/2", "temp"), Some("42"));
        assert_eq!(lines.of("0/3", "temp"), None);
        assert!(!lines.broken);
        assert!(Lines::parse("hang").broken);
    }

    #[test]
    fn the_nearest_failure_wins_and_cards_do_not_touch_the_system() {
        let lines = Lines::parse("fail.*.* = UNKNOWN\nfail.1.* = GPU_IS_LOST\nfail.1.f = hang");
        assert_eq!(lines.failure("1", "f"), Some("hang"));
        assert_eq!(lines.failure("1/0", "g"), Some("GPU_IS_LOST"));
        assert_eq!(lines.failure("0", "f"), Some("UNKNOWN"));
        assert_eq!(lines.failure("sys", "f"), None);
    }

    #[test]
    fn events_keep_their_order() {
        assert_eq!(Lines::parse("xids = 1:79 0:31 1:48").xids(), [(1, 79), (0, 31), (1, 48)]);
    }
}
