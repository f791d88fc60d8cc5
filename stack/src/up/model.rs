//! Which model to serve: the one named, the demo model in the cache, or the fixture of a checkout.

use std::path::{Path, PathBuf};

use super::{Failure, exit};
use crate::cli::UpArgs;

/// Below the user's cache folder.
const DEMO_MODEL: &str = "sightline/models/SmolLM2-135M-Instruct.Q4_1.gguf";

/// Below the root of a checkout: a few kilobytes of random weights with a real tokenizer.
const FIXTURE: &str = "tests/fixtures/models/tiny-llama";

/// Room for one request of the demo model's whole context, and little of the machine's memory.
const DEMO_OPTIONS: &[&str] = &["--kv-pool-bytes", "400MiB"];

/// A model that exists, and what the user should know about it.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) path: PathBuf,
    /// Options that suit the demo model; none for another, whose user knows better.
    pub(super) options: &'static [&'static str],
    pub(super) warning: Option<String>,
}

/// Chooses the model; the error is one line that says what to do.
pub(super) fn choose(args: &UpArgs) -> Result<Chosen, Failure> {
    if let Some(path) = &args.model {
        let named = path.to_string_lossy();
        if named == "fake" || named.starts_with("fake:") || path.exists() {
            let demo = path.file_name() == Path::new(DEMO_MODEL).file_name();
            let options = if demo { DEMO_OPTIONS } else { &[] };
            return Ok(Chosen { path: path.clone(), options, warning: None });
        }
        let message = format!(
            "no model at {}: --model takes a GGUF file or a folder with config.json and \
             safetensors",
            path.display()
        );
        return Err(Failure::new(exit::CONFIGURATION, message));
    }
    let cached = cache(args).map(|cache| cache.join(DEMO_MODEL));
    if let Some(path) = &cached
        && path.exists()
    {
        return Ok(Chosen { path: path.clone(), options: DEMO_OPTIONS, warning: None });
    }
    let Some(path) = fixture() else {
        let message = "no model: `make up` fetches the demo model, --model PATH serves another";
        return Err(Failure::new(exit::CONFIGURATION, message));
    };
    let expected = cached.unwrap_or_else(|| PathBuf::from(DEMO_MODEL));
    let warning = format!(
        "the demo model is not at {}; serving a tiny fixture, whose answers are NOISE. `make up` \
         fetches the demo model, --model PATH serves another",
        expected.display()
    );
    Ok(Chosen { path, options: &[], warning: Some(warning) })
}

fn cache(args: &UpArgs) -> Option<PathBuf> {
    let named = args.cache.clone().filter(|path| path.is_absolute());
    named.or_else(|| Some(args.home.as_ref()?.join(".cache")))
}

/// The fixture, where this is run in a checkout or from its target folder.
fn fixture() -> Option<PathBuf> {
    let from_here = std::env::current_dir().ok();
    let from_program = std::env::current_exe().ok();
    let starts = [from_here, from_program];
    let above = starts.iter().flatten().flat_map(|start| start.ancestors());
    above.map(|folder: &Path| folder.join(FIXTURE)).find(|path| path.exists())
}
