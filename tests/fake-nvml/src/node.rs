//! The half for tests: a library of one's own, and its script.

use crate::script;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

/// The name under which programs look for NVML.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// What the compilation calls it.
const BUILT: &str = "libfake_nvml.so";

/// A node's NVML: a folder with a copy of the library and its script, removed when this is dropped.
///
/// Copies do not share state, also within one process: a loader knows libraries by their file.
#[derive(Debug)]
pub struct Node {
    folder: PathBuf,
    lines: Mutex<BTreeMap<String, String>>,
}

impl Node {
    /// A node without cards, whose driver works.
    ///
    /// # Panics
    /// Where the library was not built beside the test program, or files cannot be written: a test
    /// has nothing to do then.
    pub fn empty() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let unique = LAST.fetch_add(1, Ordering::Relaxed);
        let name = format!("fake-nvml-{}-{unique}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let node = Self { folder, lines: Mutex::default() };
        let built = built();
        let copied = std::fs::copy(&built, node.library());
        assert!(copied.is_ok(), "{}: {copied:?}", built.display());
        node.set("cards", 0);
        node
    }

    /// A node with `count` healthy data-centre cards that differ in index, uuid, PCI address and
    /// energy, and are otherwise alike: half busy, ECC on, MIG off, 18 links up.
    pub fn with_cards(count: usize) -> Self {
        let node = Self::empty();
        let mut lines = node.lines();
        for line in HEALTHY.lines().filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=').expect("the lines below are of this form");
            lines.insert(format!("*.{}", key.trim()), value.trim().to_owned());
        }
        for link in 0..18 {
            lines.insert(format!("*.nvmlDeviceGetNvLinkState.{link}"), "1".to_owned());
            for kind in 0..5 {
                let key = format!("*.nvmlDeviceGetNvLinkErrorCounter.{link}.{kind}");
                lines.insert(key, "0".to_owned());
            }
        }
        for card in 0..count {
            let uuid = format!("GPU-{card:08x}-5167-4717-8000-{card:012x}");
            let address = format!("00000000:{:02X}:00.0", 0x17 + 0x10 * card);
            for (key, value) in [
                ("nvmlDeviceGetIndex", card.to_string()),
                ("nvmlDeviceGetMinorNumber", card.to_string()),
                ("nvmlDeviceGetUUID", uuid),
                ("nvmlDeviceGetPciInfo", address),
                ("nvmlDeviceGetTotalEnergyConsumption", (123_456_000 + card).to_string()),
            ] {
                lines.insert(format!("{card}.{key}"), value);
            }
        }
        lines.insert("cards".to_owned(), count.to_string());
        node.write(&lines);
        drop(lines);
        node
    }

    /// Path of the library, to be loaded.
    pub fn library(&self) -> PathBuf {
        self.folder.join(LIBRARY)
    }

    /// The folder with the library and the script, for programs that search by name.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets a line of the script.
    pub fn set(&self, key: &str, value: impl Display) {
        let mut lines = self.lines();
        lines.insert(key.to_owned(), value.to_string());
        self.write(&lines);
    }

    /// Takes a line of the script away.
    pub fn unset(&self, key: &str) {
        let mut lines = self.lines();
        lines.remove(key);
        self.write(&lines);
    }

    /// Makes a function fail on a card: a return code's name, `hang`, `sleep MILLISECONDS` or
    /// `crash`. The card may be `*`, `sys` for calls without one, and the function `*`.
    pub fn fail(&self, card: impl Display, function: &str, how: &str) {
        self.set(&format!("fail.{card}.{function}"), how);
    }

    /// Takes a failure back.
    pub fn heal(&self, card: impl Display, function: &str) {
        self.unset(&format!("fail.{card}.{function}"));
    }

    /// Delivers an Xid event to whoever waits for the card's.
    pub fn xid(&self, card: usize, code: u64) {
        let mut lines = self.lines();
        let events = lines.entry("xids".to_owned()).or_default();
        events.push_str(&format!(" {card}:{code}"));
        self.write(&lines);
    }

    /// Hides entry points, as the library of an older driver lacks them. Only before the library is
    /// loaded: whoever has it open keeps what it found.
    ///
    /// # Panics
    /// Where the library has no such entry point.
    pub fn hide(&self, functions: &[&str]) {
        let mut bytes = std::fs::read(self.library()).expect("written by this node");
        for function in functions {
            let name = [b"\0", function.as_bytes(), b"\0"].concat();
            let mut hidden = 0;
            let mut from = 0;
            // A loader finds a symbol by comparing names: one that differs is not there.
            while let Some(at) = find(&bytes[from..], &name) {
                bytes[from + at + 1] = b'_';
                from += at + 1;
                hidden += 1;
            }
            assert!(hidden > 0, "{function} is no entry point of the library");
        }
        std::fs::write(self.library(), bytes).expect("written by this node");
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Replaces the script at once: nobody reads half of it.
    fn write(&self, lines: &BTreeMap<String, String>) {
        let text: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let fresh = self.folder.join("nvml.script.new");
        std::fs::write(&fresh, text).expect("the temporary folder is writable");
        std::fs::rename(&fresh, self.folder.join(script::FILE_NAME)).expect("same folder");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // What remains of a temporary folder hurts nobody.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The library lies where the compiler put the crates that the test program is made of: beside a
/// test, and in `deps` beside a program.
fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a path");
    let folder = program.parent().expect("a file is in a folder");
    let places = [folder.join(BUILT), folder.join("deps").join(BUILT)];
    let found = places.iter().find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("{BUILT} is in none of {places:?}")).clone()
}

/// Keys of a healthy card. Fields: 29, 30 and 31 retired pages; 74 to 79 and 269 to 271 throttle
/// times in nanoseconds; 82 memory temperature; 142 to 145 remapped rows; 186 power; 197 and 198
/// PCIe bytes; 230 recovery action.
const HEALTHY: &str = "
nvmlDeviceGetName = NVIDIA H200
nvmlDeviceGetSerial = 1650000000000
nvmlDeviceGetVbiosVersion = 96.00.A0.00.01
nvmlDeviceGetBrand = 14
nvmlDeviceGetArchitecture = 9
nvmlDeviceGetCudaComputeCapability = 9 0
nvmlDeviceGetUtilizationRates = 50 25
nvmlDeviceGetMemoryInfo = 150754820096 75000000000 650117120
nvmlDeviceGetBAR1MemoryInfo = 274877906944 1048576
nvmlDeviceGetTemperature.0 = 55
nvmlDeviceGetTemperatureThreshold.0 = 95
nvmlDeviceGetTemperatureThreshold.1 = 92
nvmlDeviceGetPowerUsage = 412345
nvmlDeviceGetEnforcedPowerLimit = 700000
nvmlDeviceGetPowerManagementLimit = 700000
nvmlDeviceGetClockInfo.0 = 1980
nvmlDeviceGetClockInfo.1 = 1980
nvmlDeviceGetClockInfo.2 = 3201
nvmlDeviceGetMaxClockInfo.0 = 1980
nvmlDeviceGetMaxClockInfo.1 = 1980
nvmlDeviceGetMaxClockInfo.2 = 3201
nvmlDeviceGetCurrentClocksThrottleReasons = 4
nvmlDeviceGetSupportedClocksThrottleReasons = 511
nvmlDeviceGetPcieReplayCounter = 3
nvmlDeviceGetCurrPcieLinkGeneration = 5
nvmlDeviceGetMaxPcieLinkGeneration = 5
nvmlDeviceGetCurrPcieLinkWidth = 16
nvmlDeviceGetMaxPcieLinkWidth = 16
nvmlDeviceGetPerformanceState = 0
nvmlDeviceGetPersistenceMode = 1
nvmlDeviceGetComputeMode = 0
nvmlDeviceGetEccMode = 1 1
nvmlDeviceGetMigMode = 0 0
nvmlDeviceGetTotalEccErrors.0.0 = 7
nvmlDeviceGetTotalEccErrors.1.0 = 0
nvmlDeviceGetTotalEccErrors.0.1 = 12
nvmlDeviceGetTotalEccErrors.1.1 = 1
nvmlDeviceGetRemappedRows = 2 1 0 0
nvmlDeviceGetSupportedEventTypes = 10
processes =
field.29 = 0
field.30 = 0
field.31 = 0
field.74 = 1500000000
field.75 = 0
field.76 = 0
field.77 = 0
field.78 = 0
field.79 = 0
field.82 = 64
field.94 = 3
field.142 = 2
field.143 = 1
field.144 = 0
field.145 = 0
field.186 = 420000
field.197 = 7000000000
field.198 = 9000000000
field.230 = 0
field.269 = 0
field.270 = 250000000
field.271 = 0
";
