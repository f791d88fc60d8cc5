//! Entries that stand for several tokens: made when the last token of a window comes, from the rows
//! of all its tokens, and where windows overlap of the tokens before.
//!
//! The rows of tokens that may still be needed are kept in a ring in the window's page of their
//! token. A window never reaches across pages, and overlapping ones only into the page before, so a
//! prefix that ends where a page ends has all it needs in its last page.

use kernels::{Activations, Linear, ThreadPool, forward_all, mix_rows, rms_norm_in_place};
use memory_pool::Compute;
use types::PageId;

use super::pools::{Block, Entries, HISTORY, WINDOW};
use super::rope::{Angles, Frequencies};
use crate::runner::{Batch, PageList};

pub(super) struct Compressor {
    pub(super) value: Box<dyn Linear>,
    pub(super) gate: Box<dyn Linear>,
    /// Added to the gate of a token by its number in its window: `ratio` rows.
    pub(super) bias: Vec<f32>,
    pub(super) norm: Vec<f32>,
    pub(super) ratio: usize,
    /// Whether an entry also takes the tokens of the window before: then rows have two halves, one
    /// for the next window and one for their own.
    pub(super) overlaps: bool,
}

/// Rows of the batch.
#[derive(Default)]
pub(super) struct Rows {
    value: Vec<f32>,
    gate: Vec<f32>,
}

#[derive(Default)]
pub(super) struct Scratch {
    made: Vec<f32>,
    positions: Vec<u32>,
    angles: Angles,
}

/// What is the same for all compressors of a step.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) batch: &'a Batch,
    pub(super) positions: &'a [u32],
    pub(super) frequencies: &'a Frequencies,
    pub(super) rms_eps: f32,
    pub(super) page_tokens: usize,
    pub(super) threads: &'a ThreadPool,
}

/// What one slice reads.
#[derive(Clone, Copy)]
struct Reading<'a> {
    rows: &'a Rows,
    memory: &'a Compute,
    state: Block,
    pages: PageList<'a>,
    page_tokens: usize,
    /// Index of the slice's first row, and its position.
    first: usize,
    start: usize,
}

impl Compressor {
    /// Values of an entry.
    fn dim(&self) -> usize {
        self.norm.len()
    }

    /// Values of a row.
    fn width(&self) -> usize {
        if self.overlaps { 2 * self.dim() } else { self.dim() }
    }

    /// Rows that a page keeps.
    fn ring(&self) -> usize {
        if self.overlaps { 2 * self.ratio } else { self.ratio }
    }

    /// Computes the rows of all tokens.
    pub(super) fn project(&self, step: Step<'_>, x: &Activations, rows: &mut Rows) {
        let width = self.width();
        rows.value.resize(x.rows() * width, 0.0);
        rows.gate.resize(x.rows() * width, 0.0);
        let outputs = [&mut *rows.value, &mut *rows.gate];
        forward_all([&*self.value, &*self.gate], x, outputs, step.threads);
        for (gate, position) in rows.gate.chunks_exact_mut(width).zip(step.positions) {
            let bias = &self.bias[*position as usize % self.ratio * width..][..width];
            for (gate, bias) in gate.iter_mut().zip(bias) {
                *gate += bias;
            }
        }
    }

    /// Writes the entries that the tokens of all slices finish, and what later ones need.
    pub(super) fn store(
        &self,
        step: Step<'_>,
        rows: &Rows,
        at: Entries,
        memory: &mut Compute,
        scratch: &mut Scratch,
    ) {
        // One slice after the other: several may be of one request.
        for slice in 0..step.batch.slices.len() {
            self.make(step, slice, rows, at, memory, scratch);
            self.keep(step, slice, rows, at.state, memory);
        }
    }

    /// Makes the entries of one slice.
    fn make(
        &self,
        step: Step<'_>,
        slice: usize,
        rows: &Rows,
        at: Entries,
        memory: &mut Compute,
        scratch: &mut Scratch,
    ) {
        let Step { batch, page_tokens, threads, .. } = step;
        let (dim, ratio) = (self.dim(), self.ratio);
        let (start, end) = (batch.slices[slice].start, batch.slices[slice].end());
        let windows = start / ratio..end / ratio;
        if windows.is_empty() {
            return;
        }
        let Scratch { made, positions, angles } = scratch;
        let reading = Reading {
            rows,
            memory,
            state: at.state,
            pages: batch.pages(slice, WINDOW),
            page_tokens,
            first: batch.slices[slice].first,
            start,
        };
        made.resize(windows.len() * dim, 0.0);
        threads.for_each_row(made, dim, 1, |index, out| {
            self.mix(reading, windows.start + index, out);
        });
        rms_norm_in_place(made, &self.norm, step.rms_eps, threads);
        positions.clear();
        positions.extend(windows.clone().map(|window| (window * ratio) as u32));
        angles.fill(step.frequencies, positions);
        angles.rotate(made, dim, false, threads);
        let pages = batch.pages(slice, HISTORY);
        for (window, row) in windows.zip(made.chunks_exact(dim)) {
            let page = pages.page_of(window * ratio, page_tokens);
            let slot = window * ratio % page_tokens / ratio;
            let block = memory.block_mut::<f32>(at.rows.part, page, at.rows.layer);
            block[slot * dim..(slot + 1) * dim].copy_from_slice(row);
        }
    }

    /// One entry before its norm.
    fn mix(&self, reading: Reading<'_>, window: usize, out: &mut [f32]) {
        let (dim, ratio) = (self.dim(), self.ratio);
        let own = window * ratio;
        if !self.overlaps {
            mix_rows(ratio, |i| self.row(reading, own + i), out);
            return;
        }
        // The first window has none before it.
        let before = if window == 0 { 0 } else { ratio };
        let row = |i: usize| {
            let (value, gate) = self.row(reading, own + i - before);
            if i < before { (&value[..dim], &gate[..dim]) } else { (&value[dim..], &gate[dim..]) }
        };
        mix_rows(before + ratio, row, out);
    }

    /// Value and gate of the token at `position`.
    fn row<'a>(&self, reading: Reading<'a>, position: usize) -> (&'a [f32], &'a [f32]) {
        let width = self.width();
        if position >= reading.start {
            let at = (reading.first + position - reading.start) * width;
            let Rows { value, gate } = reading.rows;
            return (&value[at..at + width], &gate[at..at + width]);
        }
        let page = reading.pages.page_of(position, reading.page_tokens);
        let block = reading.memory.block::<f32>(reading.state.part, page, reading.state.layer);
        block[position % self.ring() * 2 * width..][..2 * width].split_at(width)
    }

    /// Keeps the rows of one slice's last tokens in each page.
    fn keep(&self, step: Step<'_>, slice: usize, rows: &Rows, at: Block, memory: &mut Compute) {
        let (width, ring, page_tokens) = (self.width(), self.ring(), step.page_tokens);
        let pages = step.batch.pages(slice, WINDOW);
        let slice = &step.batch.slices[slice];
        for (row, position) in (slice.first..).zip(slice.start..slice.end()) {
            let later = position + ring;
            let overwritten = later < slice.end() && later / page_tokens == position / page_tokens;
            if overwritten {
                continue;
            }
            let page: PageId = pages.page_of(position, page_tokens);
            let block = memory.block_mut::<f32>(at.part, page, at.layer);
            let kept = &mut block[position % ring * 2 * width..][..2 * width];
            let (value, gate) = kept.split_at_mut(width);
            value.copy_from_slice(&rows.value[row * width..(row + 1) * width]);
            gate.copy_from_slice(&rows.gate[row * width..(row + 1) * width]);
        }
    }

    pub(super) fn list_linears<'a>(&'a self, all: &mut Vec<&'a dyn Linear>) {
        all.extend([&*self.value, &*self.gate]);
    }
}
