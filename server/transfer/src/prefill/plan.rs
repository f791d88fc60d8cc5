//! Which frames a transfer is made of: chunk by chunk, and inside of a chunk layer by layer as they
//! are computed.

use std::collections::{BTreeMap, VecDeque};

use memory_pool::{LayerProgress, ProgressState};
use types::{PageId, PoolId};

use crate::FRAME_PAGES_MAX;
use crate::ends::{Bits, Layout};
use crate::link::Chunk;
use crate::plant::{self, Plant};

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameSpec {
    pub(super) rank: u16,
    pub(super) part: u16,
    pub(super) first_layer: u16,
    pub(super) layers: u16,
    pub(super) first_page: u32,
    pub(super) pages: u16,
    /// The number of its chunk in the transfer.
    chunk: usize,
}

/// A run of pages of one part on one rank, and how far it is planned.
#[derive(Debug)]
struct Task {
    part: u16,
    rank: u16,
    first_page: u32,
    pages: u32,
    /// The first layer (of the part's own) of which not all pages are planned.
    layer: u16,
    /// Layers that are being planned together, and pages of them that are.
    group: Option<(u16, u32)>,
}

/// A chunk that is not planned to its end.
#[derive(Debug)]
struct Open {
    number: usize,
    progress: Option<LayerProgress>,
    tasks: Vec<Task>,
}

/// A chunk whose pages are not all read.
#[derive(Debug)]
struct Fence {
    fence: u64,
    /// Frames that are planned and not read.
    frames: usize,
    /// Whether all its frames are planned.
    planned: bool,
}

/// A chunk's forward pass failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PassFailed;

#[derive(Debug, Default)]
pub(super) struct Plan {
    chunks: VecDeque<Open>,
    fences: VecDeque<Fence>,
    /// How many fences were passed.
    passed: usize,
    pages: BTreeMap<(PoolId, u32), PageId>,
    frames: Vec<FrameSpec>,
    /// Frames that were read at least once.
    read: Bits,
    /// Whether the last chunk was given.
    closed: bool,
}

impl Plan {
    /// Adds a chunk.
    ///
    /// # Panics
    /// After the last one, and where a page was given before: the engine's mistakes.
    pub(super) fn add(&mut self, layout: &Layout, chunk: Chunk) {
        assert!(!self.closed, "no chunk follows the last one");
        self.closed = chunk.last;
        for (pool, index, page) in &chunk.pages {
            let index = u32::try_from(*index).expect("a sequence has fewer pages than 2^32");
            let before = self.pages.insert((*pool, index), *page);
            assert!(before.is_none(), "page {index} of pool {pool} is sent once");
        }
        let number = self.passed + self.fences.len();
        let tasks = tasks(layout, &chunk.pages);
        let progress = chunk.progress;
        self.fences.push_back(Fence { fence: chunk.fence, frames: 0, planned: false });
        self.chunks.push_back(Open { number, progress, tasks });
    }

    /// The next frame whose rows are computed; `None` until there are more. No frame is planned
    /// ahead: whoever takes one begins to send it.
    ///
    /// # Errors
    /// Where a forward pass failed.
    pub(super) fn next(
        &mut self,
        layout: &Layout,
        payload_max: usize,
    ) -> Result<Option<u32>, PassFailed> {
        while let Some(chunk) = self.chunks.front_mut() {
            let (layers, state) = match &chunk.progress {
                // What is read after a look at the state is at least as far.
                Some(progress) => {
                    let state = progress.state();
                    (progress.layers(), state)
                }
                None => (usize::MAX, ProgressState::Finished),
            };
            let over = match state {
                ProgressState::Running => false,
                ProgressState::Finished => true,
                ProgressState::Failed => return Err(PassFailed),
            };
            let task = chunk
                .tasks
                .iter_mut()
                .filter(|task| task.ready(layout, layers) > 0)
                .min_by_key(|task| task.model_layer(layout));
            if let Some(task) = task {
                let frame = task.frame(layout, layers, payload_max, chunk.number);
                self.fences[chunk.number - self.passed].frames += 1;
                self.frames.push(frame);
                return Ok(Some(u32::try_from(self.frames.len() - 1).expect("few frames")));
            }
            if !over {
                return Ok(None);
            }
            self.fences[chunk.number - self.passed].planned = true;
            self.chunks.pop_front();
        }
        Ok(None)
    }

    /// Whether the forward passes of all chunks up to the last one are over.
    ///
    /// # Errors
    /// Where one of them failed.
    pub(super) fn is_computed(&self) -> Result<bool, PassFailed> {
        let mut computed = self.closed;
        for chunk in &self.chunks {
            match chunk.progress.as_ref().map(LayerProgress::state) {
                Some(ProgressState::Failed) => return Err(PassFailed),
                Some(ProgressState::Running) => computed = false,
                Some(ProgressState::Finished) | None => {}
            }
        }
        Ok(computed)
    }

    /// Whether every frame of the transfer is planned.
    pub(super) fn is_planned(&self) -> bool {
        self.closed && self.chunks.is_empty()
    }

    /// Whether a chunk is given and not planned to its end.
    pub(super) fn is_open(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Whether every frame was read.
    pub(super) fn is_read(&self) -> bool {
        self.is_planned() && self.read.len() == self.frames.len()
    }

    /// How many frames are planned: numbers below this are known.
    pub(super) fn frames(&self) -> u32 {
        u32::try_from(self.frames.len()).expect("few frames")
    }

    /// A planned frame.
    pub(super) fn frame(&self, seq: u32) -> FrameSpec {
        self.frames[seq as usize]
    }

    /// Whether a frame was read before.
    pub(super) fn was_read(&self, seq: u32) -> bool {
        self.read.has(seq as usize)
    }

    /// The pages of a frame.
    pub(super) fn pages(&self, layout: &Layout, frame: &FrameSpec) -> Vec<PageId> {
        let pool = layout.parts[usize::from(frame.part)].pool;
        let indices = frame.first_page..frame.first_page + u32::from(frame.pages);
        indices.map(|index| self.pages[&(pool, index)]).collect()
    }

    /// A frame was read out of its pages.
    pub(super) fn read(&mut self, seq: u32) {
        if self.read.insert(seq as usize) {
            let chunk = self.frames[seq as usize].chunk;
            self.fences[chunk - self.passed].frames -= 1;
        }
    }

    /// The last fence that is passed and was not told.
    pub(super) fn passed(&mut self) -> Option<u64> {
        let mut last = None;
        while let Some(fence) = self.fences.front() {
            if !fence.planned || fence.frames > 0 {
                break;
            }
            last = Some(fence.fence);
            self.fences.pop_front();
            self.passed += 1;
        }
        last
    }

    /// Nothing more is read: what is planned is all there will be.
    pub(super) fn drop_pages(&mut self) {
        self.chunks.clear();
        self.pages.clear();
    }
}

/// One task per run of consecutive pages, part and rank that sends.
fn tasks(layout: &Layout, pages: &[(PoolId, usize, PageId)]) -> Vec<Task> {
    let mut indices: Vec<(PoolId, u32)> = pages
        .iter()
        .map(|(pool, index, _)| (*pool, u32::try_from(*index).expect("checked when added")))
        .collect();
    indices.sort_unstable();
    let mut tasks = Vec::new();
    for run in indices.chunk_by(|one, next| one.0 == next.0 && one.1 + 1 == next.1) {
        let (pool, first_page) = run[0];
        let pages = u32::try_from(run.len()).expect("no more than indices");
        for (at, part) in layout.parts.iter().enumerate().filter(|(_, part)| part.pool == pool) {
            let part_number = u16::try_from(at).expect("parts are few");
            for rank in 0..layout.senders(part) {
                let (layer, group) = (0, None);
                tasks.push(Task { part: part_number, rank, first_page, pages, layer, group });
            }
        }
    }
    tasks
}

impl Task {
    /// Layers that can be planned: computed, or begun.
    fn ready(&self, layout: &Layout, layers: usize) -> u16 {
        if let Some((group, _)) = self.group {
            return group;
        }
        let layers = if plant::is(Plant::SendEarly) { usize::MAX } else { layers };
        let ready = layout.parts[usize::from(self.part)].layers_within(layers);
        u16::try_from(ready).expect("layers are few").saturating_sub(self.layer)
    }

    /// The model's layer that comes next; what is earlier goes first.
    fn model_layer(&self, layout: &Layout) -> usize {
        layout.parts[usize::from(self.part)].layers[usize::from(self.layer)]
    }

    /// The next frame: as many of the computed layers as fit, for as many pages as fit.
    fn frame(
        &mut self,
        layout: &Layout,
        layers: usize,
        payload_max: usize,
        chunk: usize,
    ) -> FrameSpec {
        let layer_bytes = layout.parts[usize::from(self.part)].layer_bytes.max(1);
        let (group, done) = self.group.unwrap_or_else(|| {
            let most = u16::try_from((payload_max / layer_bytes).max(1)).unwrap_or(u16::MAX);
            (self.ready(layout, layers).min(most), 0)
        });
        let fit = (payload_max / (layer_bytes * usize::from(group))).clamp(1, FRAME_PAGES_MAX);
        let pages = (self.pages - done).min(u32::try_from(fit).expect("at most 256"));
        let frame = FrameSpec {
            rank: self.rank,
            part: self.part,
            first_layer: self.layer,
            layers: group,
            first_page: self.first_page + done,
            pages: u16::try_from(pages).expect("at most 256"),
            chunk,
        };
        if done + pages == self.pages {
            self.layer += group;
            self.group = None;
        } else {
            self.group = Some((group, done + pages));
        }
        frame
    }
}
