//! Plans for a machine, or for a device, that is not this one: from `config.json` alone.

use std::path::Path;

use kv_cache::NodeRoom;
use types::Bytes;

use super::shape::{Attention, Shape, config_file};
use crate::cli::{AssumedNuma, KvDtype, PlanArgs, Settings};
use crate::config::{AssumedPools, Class, Finding, Findings, Host, Resolved, resolve};
use crate::source::{Facts, Source};

/// Whether the plan rests on assumptions, so that `serve` with the same flags is not what it is
/// about.
pub(super) fn wanted(args: &PlanArgs) -> bool {
    let (assume, settings) = (&args.assume, &args.settings);
    assume.assume_numa.is_some() || assume.assume_device_tokens.is_some() || is_shape(settings)
}

/// Whether only the configuration can say how large the pools are.
fn is_shape(settings: &Settings) -> bool {
    if is_fake(settings) {
        return false;
    }
    let path = Path::new(&settings.model);
    let alone = path.extension().is_some_and(|extension| extension == "json")
        || (path.is_dir() && config_file(path).is_file() && !has_weights(path));
    alone || settings.machine.kv_dtype.is_some_and(|dtype| dtype != KvDtype::F32)
}

fn is_fake(settings: &Settings) -> bool {
    settings.model == "fake" || settings.model.starts_with("fake:")
}

fn has_weights(folder: &Path) -> bool {
    let Ok(mut entries) = folder.read_dir() else { return false };
    entries.any(|entry| {
        entry.is_ok_and(|entry| entry.path().extension().is_some_and(|ext| ext == "safetensors"))
    })
}

/// The plan, with advice on what it does not know.
pub(super) fn check(args: &PlanArgs) -> Result<Resolved, Findings> {
    let settings = &args.settings;
    let assume = &args.assume;
    let mut host = host(assume.assume_numa);
    let elsewhere = assume.assume_device_tokens.is_some();
    let mut advice = Findings::default();
    let facts = if is_fake(settings) || !(elsewhere || is_shape(settings)) {
        Source::parse(settings)?.inspect(settings)?
    } else {
        let shape = Shape::read(Path::new(&settings.model))?;
        if !elsewhere {
            advice.add(Finding {
                id: "PLAN001",
                class: Class::Advice,
                flag: "--model",
                value: settings.model.clone(),
                reason: "the weights are not there, so that their memory is not counted".to_owned(),
                fix:
                    "a folder with weights, or --assume-device-tokens for a device with memory of \
                      its own"
                        .to_owned(),
            });
        }
        facts(&shape, settings, elsewhere)
    };
    host.assumed = assume.assume_device_tokens.map(|tokens| AssumedPools {
        tokens,
        window_tokens: assume.assume_swa_tokens.unwrap_or_else(|| window_tokens(&facts, tokens)),
    });
    let mut resolved = resolve(settings, &facts, &host)?;
    resolved.advice.append(advice);
    Ok(resolved)
}

/// The machine, as far as nobody says otherwise.
pub(super) fn host(numa: Option<AssumedNuma>) -> Host {
    let host = Host::read(&node_info::Root::default());
    let Some(AssumedNuma { nodes, bytes }) = numa else { return host };
    let total = Some(Bytes(bytes.saturating_mul(u64::from(nodes))));
    Host {
        usable: total,
        available: total,
        group: None,
        numa_nodes: nodes as usize,
        nodes: (0..nodes).map(|node| NodeRoom { node, bytes }).collect(),
        lockable: None,
        ..host
    }
}

/// A model's configuration as the facts that `resolve` takes. `elsewhere`: whether the device is
/// not this server's.
fn facts(shape: &Shape, settings: &Settings, elsewhere: bool) -> Facts {
    let machine = &settings.machine;
    let usual = if elsewhere { shape.published_dtype() } else { KvDtype::F32 };
    let dtype = machine.kv_dtype.unwrap_or(usual);
    let tokens = machine.page_tokens.unwrap_or_else(|| shape.page_tokens()).max(1);
    Facts::planned(
        shape.spec(dtype, tokens, machine.tp_size, false),
        shape.tp_limits().cloned(),
        shape.page_multiple(),
        matches!(shape.attention, Attention::Compressed(_)),
    )
}

/// Tokens of the window's pool where nobody says: a tenth of all where history is compressed, as
/// engines for that model do; as many as all otherwise.
fn window_tokens(facts: &Facts, tokens: usize) -> usize {
    const SHARE: usize = 10;
    if facts.by_ratio_only { tokens / SHARE } else { tokens }
}
