//! The store behind the host tier: opened before weights are read, and handed to the engine.
//!
//! Pages of a store belong to one model, by the content of its files, and to one way of laying out
//! their bytes ([`LAYOUT`]); so another model, or a version of this program that computes them
//! otherwise, finds nothing instead of something wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::{Places, Reading, Storage, StorageBusy, StoredPages};
use kv_store::{
    HostPages, KvStore, OpenError, PartShape, Scope, StorageTier, StoreOptions, StoreUrl,
    TierPages, TierPlace,
};
use memory_pool::HostMemory;
use types::{Bytes, Clock, PageId, PoolId};

use crate::config::{Class, Finding, Resolved, StorePlan};
use crate::source::Source;
use program::exit::Exit;

/// The version of what the bytes of a page mean. To be raised whenever their order or the way they
/// are computed changes: for other positions, other rotations, other roundings of a compressed row.
pub(crate) const LAYOUT: u32 = 1;

/// How long the end of the process waits for pages on their way to the store.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// A store that is open.
pub(crate) struct Opened {
    /// For the engine.
    pub(crate) storage: Box<dyn Storage>,
    /// For telemetry.
    pub(crate) store: KvStore,
}

/// Opens the store of `resolved` over the host tier's memory.
///
/// # Errors
/// The place cannot be used, or the files of the model cannot be read.
pub(crate) fn open(
    resolved: &Resolved,
    plan: &StorePlan,
    source: &Source,
    memory: &Arc<HostMemory>,
    clock: Clock,
) -> Result<Opened, Finding> {
    if let StoreUrl::File(folder) = &plan.url {
        writable(folder).map_err(|error| unusable(plan, class(&error), &error.to_string()))?;
    }
    let started = clock.now();
    let model = fingerprint(source, resolved.threads)?;
    let time = clock.now().since(started);
    tracing::info!(
        seconds = time.as_secs_f64(),
        fingerprint = %model[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "The model's files have been hashed for the store."
    );
    let host = Host::new(Arc::clone(memory));
    let scope = Scope {
        model,
        layout: LAYOUT,
        ranks: u32::try_from(resolved.tp_size).unwrap_or(u32::MAX),
        page_tokens: u32::try_from(resolved.page_tokens).unwrap_or(u32::MAX),
        parts: host.shapes(),
    };
    let page: u64 = scope.parts.iter().map(|part| part.bytes).sum();
    let mut options = StoreOptions::new(plan.max_bytes, clock);
    options.credentials.clone_from(&plan.credentials);
    options.queue_bytes = Bytes(options.queue_bytes.0.max(page.saturating_mul(4)));
    let wake = Wake::default();
    let woken = wake.clone();
    let progress = Box::new(move || woken.wake());
    let place = TierPlace::Url(plan.url.clone());
    let tier = StorageTier::open(place, scope, options, Arc::new(host), progress);
    let tier = tier.map_err(|error| unusable(plan, class_of(&error), &error.to_string()))?;
    tracing::info!(
        store = %plan.url,
        max_bytes = plan.max_bytes.0,
        prefetch = plan.policy.as_str(),
        "The store behind the host tier is open."
    );
    let store = tier.store();
    Ok(Opened { storage: Box::new(Adapter { tier: Some(tier), wake }), store })
}

/// Whether a file can be made in `folder`, which is made where it is missing. The store finds out
/// too, but not in the words of the system.
fn writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(format!("probe-{}", std::process::id()));
    std::fs::write(&file, b"")?;
    std::fs::remove_file(&file)
}

fn class(error: &std::io::Error) -> Class {
    use std::io::ErrorKind;
    if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::AlreadyExists) {
        return Class::Configuration;
    }
    match Exit::of_io(error) {
        Exit::Permission => Class::Permission,
        Exit::Temporary => Class::Temporary,
        Exit::Configuration => Class::Configuration,
        Exit::Ok | Exit::Usage | Exit::Host | Exit::Internal | Exit::Peer => Class::Host,
    }
}

fn class_of(error: &OpenError) -> Class {
    match error {
        OpenError::Scope(_)
        | OpenError::TooSmall { .. }
        | OpenError::SmallQueue { .. }
        | OpenError::NotBuilt { .. }
        | OpenError::NoCredentials(_) => Class::Configuration,
        OpenError::Thread(_) => Class::Host,
        // A folder was tried before; what is left is a service that does not answer as it should.
        OpenError::Backend { .. } => Class::Temporary,
    }
}

fn unusable(plan: &StorePlan, class: Class, reason: &str) -> Finding {
    let fix = match (&plan.url, class) {
        (StoreUrl::S3 { .. }, Class::Configuration) => {
            "a build with the feature l3-s3, or --kv-store file:///FOLDER".to_owned()
        }
        (StoreUrl::S3 { .. }, _) => {
            "the address of a bucket that answers, to whose objects the credentials in the \
             environment give rights to read, write, list and delete"
                .to_owned()
        }
        (StoreUrl::File(_), _) => "--kv-store file:///FOLDER with a folder of its own that this \
                                   process may write to"
            .to_owned(),
    };
    let reason = reason.to_owned();
    Finding { id: "KVS009", class, flag: "--kv-store", value: plan.url.to_string(), reason, fix }
}

/// Everything in the files that weights and their meaning come from.
fn fingerprint(source: &Source, threads: usize) -> Result<[u8; 32], Finding> {
    let path = match source {
        Source::Path(path) => path,
        Source::Fake(_) => unreachable!("refused before: it has no bytes"),
    };
    let read = || {
        let files = files(path)?;
        let files: Vec<_> =
            files.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
        kv_store::fingerprint(&files, threads)
    };
    read().map_err(|error| Finding {
        id: "KVS010",
        class: class(&error),
        flag: "--model",
        value: path.display().to_string(),
        reason: format!("a store needs the content of all files of the model: {error}"),
        fix: "files that this process may read, or no --kv-store".to_owned(),
    })
}

/// The configuration and the weights in a folder, by name; or the one file.
pub(crate) fn files(path: &Path) -> std::io::Result<Vec<(String, PathBuf)>> {
    if !path.is_dir() {
        // The same file under another name is the same model.
        return Ok(vec![("model".to_owned(), path.to_owned())]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        let counts =
            path.ends_with("config.json") || path.extension() == Some("safetensors".as_ref());
        if counts && let Some(name) = path.file_name() {
            files.push((name.to_string_lossy().into_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

/// Host memory, and which rank and part of it each part of the scope is.
struct Host {
    memory: Arc<HostMemory>,
    parts: Vec<(usize, usize, PoolId, PartShape)>,
}

impl Host {
    fn new(memory: Arc<HostMemory>) -> Self {
        let ranks = memory.bytes().iter().map(|part| part.rank + 1).max().unwrap_or(0);
        let mut parts = Vec::new();
        for rank in 0..ranks {
            for (part, (layout, pool)) in memory.parts().enumerate() {
                let shape = PartShape {
                    rank: u16::try_from(rank).expect("at most 64 ranks"),
                    name: layout.name.to_owned(),
                    bytes: layout.page_bytes() as u64,
                };
                parts.push((rank, part, pool, shape));
            }
        }
        Self { memory, parts }
    }

    fn shapes(&self) -> Vec<PartShape> {
        self.parts.iter().map(|(_, _, _, shape)| shape.clone()).collect()
    }
}

impl HostPages for Host {
    fn pool(&self, part: usize) -> PoolId {
        self.parts[part].2
    }

    fn read(&self, part: usize, page: PageId, to: &mut [u8]) {
        let (rank, part, ..) = self.parts[part];
        self.memory.read_page(rank, part, page, to);
    }

    fn write(&self, part: usize, page: PageId, from: &[u8]) {
        let (rank, part, ..) = self.parts[part];
        self.memory.write_page(rank, part, page, from);
    }
}

/// Wakes the engine, once there is one.
#[derive(Clone, Default)]
struct Wake(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Wake {
    fn wake(&self) {
        if let Some(wake) = self.0.get() {
            wake();
        }
    }
}

/// The store as the engine takes it.
struct Adapter {
    /// There until it is dropped.
    tier: Option<StorageTier>,
    wake: Wake,
}

impl Adapter {
    fn tier(&self) -> &StorageTier {
        self.tier.as_ref().expect("only dropping takes it")
    }
}

fn pages(pages: StoredPages) -> TierPages {
    let StoredPages { namespace, tokens, first } = pages;
    TierPages { namespace: namespace.bytes().to_vec(), tokens, first }
}

fn reading<E>(reading: Result<kv_store::Reading, E>) -> Result<Box<dyn Reading>, StorageBusy> {
    match reading {
        Ok(reading) => Ok(Box::new(Read(reading))),
        Err(_) => Err(StorageBusy),
    }
}

impl Storage for Adapter {
    fn woken_by(&mut self, wake: Box<dyn Fn() + Send + Sync>) {
        assert!(self.wake.0.set(wake).is_ok(), "there is one engine");
    }

    fn backup(
        &mut self,
        id: u64,
        stored: StoredPages,
        places: Vec<Places>,
    ) -> Result<(), StorageBusy> {
        self.tier().backup(id, pages(stored), places).map_err(|_| StorageBusy)
    }

    fn backups_done(&mut self, ids: &mut Vec<u64>) {
        self.tier().backups_done(ids);
    }

    fn look(&mut self, stored: StoredPages, tail: usize) -> Result<Box<dyn Reading>, StorageBusy> {
        reading(self.tier().look(pages(stored), tail))
    }

    fn fetch(
        &mut self,
        stored: StoredPages,
        places: Vec<Places>,
    ) -> Result<Box<dyn Reading>, StorageBusy> {
        reading(self.tier().fetch(pages(stored), places))
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        if let Some(tier) = self.tier.take() {
            let store = tier.store();
            tier.close(CLOSE_LIMIT);
            let stats = store.stats();
            tracing::info!(
                objects = stats.entries,
                bytes = stats.held_bytes,
                written = stats.writes,
                dropped = stats.drops.iter().sum::<u64>(),
                "The store is closed."
            );
        }
    }
}

/// See [`Reading`].
struct Read(kv_store::Reading);

impl Reading for Read {
    fn there(&self) -> (usize, bool) {
        self.0.there()
    }

    fn stop(self: Box<Self>) -> usize {
        self.0.stop()
    }
}
