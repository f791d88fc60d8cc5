//! Finding, loading and initialising the library.

use crate::fault;
use crate::protocol::{CARDS_MAX, Fault, FaultKind, Hello};
use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::InitFlags;
use nvml_wrapper::error::NvmlError;
use std::path::{Path, PathBuf};

/// Where NVIDIA's packages and containers put the library; names without a folder go through the
/// loader's own search.
pub const DEFAULT_LIBRARIES: &[&str] = &[
    "libnvidia-ml.so.1",
    "libnvidia-ml.so",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1",
    "/usr/lib64/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
];

/// The library, loaded for as long as this process lives: threads may be inside, so nobody may
/// unload it. Cards that are broken are not touched by the initialisation.
pub(crate) fn open(libraries: &[PathBuf]) -> Result<(&'static Nvml, Hello), Fault> {
    let defaults: Vec<PathBuf>;
    let libraries = if libraries.is_empty() {
        defaults = DEFAULT_LIBRARIES.iter().map(PathBuf::from).collect();
        &defaults
    } else {
        libraries
    };
    let mut tried = Vec::new();
    for path in libraries {
        match initialise(path) {
            Ok(nvml) => {
                let nvml: &'static Nvml = Box::leak(Box::new(nvml));
                return greet(nvml, path).map(|hello| (nvml, hello));
            }
            // No such file: the next one. A library that is there speaks for the driver.
            Err(NvmlError::LibloadingError(error)) => tried.push(error.to_string()),
            Err(error) => {
                let call = format!("nvmlInit of {}", path.display());
                return Err(fault::of(&call, &error));
            }
        }
    }
    Err(Fault::new(FaultKind::LibraryMissing, tried.join("; ")))
}

/// Prefers an initialisation that neither wants a card nor attaches one, and takes the plain one
/// where the library or the driver does not have it.
fn initialise(path: &Path) -> Result<Nvml, NvmlError> {
    let mut builder = Nvml::builder();
    let builder = builder.lib_path(path.as_os_str());
    let gentle = builder.flags(InitFlags::NO_GPUS | InitFlags::NO_ATTACH).init();
    match gentle {
        Err(
            NvmlError::FailedToLoadSymbol(_)
            | NvmlError::FunctionNotFound
            | NvmlError::InvalidArg
            | NvmlError::NotSupported,
        ) => builder.flags(InitFlags::empty()).init(),
        other => other,
    }
}

fn greet(nvml: &'static Nvml, path: &Path) -> Result<Hello, Fault> {
    let mut cards = nvml.device_count().map_err(|error| fault::of("nvmlDeviceGetCount", &error))?;
    if cards == 0 && attach(nvml).is_ok() {
        // A driver may show its cards only to those who attach them.
        cards = nvml.device_count().map_err(|error| fault::of("nvmlDeviceGetCount", &error))?;
    }
    Ok(Hello {
        library: path.display().to_string(),
        driver_version: nvml.sys_driver_version().ok(),
        library_version: nvml.sys_nvml_version().ok(),
        cuda_version: nvml.sys_cuda_driver_version().ok(),
        cards: cards.min(CARDS_MAX),
    })
}

/// Initialises once more without flags; the library counts initialisations.
fn attach(nvml: &Nvml) -> Result<(), NvmlError> {
    let init = nvml.lib().nvmlInit_v2.as_ref();
    let init = init.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    // SAFETY: the function takes nothing, and may be called by anyone at any time.
    nvml_wrapper::error::nvml_try(unsafe { init() })
}

/// Takes the initialisations back. Only when no thread is inside the library.
pub(crate) fn close(nvml: &Nvml) {
    if let Ok(shutdown) = nvml.lib().nvmlShutdown.as_ref() {
        // SAFETY: no thread is inside; once more than was initialised is an error, not a harm.
        unsafe { while nvml_wrapper::error::nvml_try(shutdown()).is_ok() {} }
    }
}
