//! The copy of one block, past the caches.
//!
//! What is written will be read much later (backups), or is more than caches hold (loads): fetching
//! the target's lines first would only cost memory bandwidth that the forward pass needs.

/// Blocks of fewer bytes are copied as usual.
const LEAST: usize = 1024;

/// Copies `bytes` bytes. All of them are visible to whoever synchronises with this thread later.
///
/// # Safety
/// Both sides are valid for that many bytes and do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LEAST && is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promise, and the processor has AVX2.
        unsafe { stream(from, to, bytes) };
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

/// # Safety
/// As [`copy`]; AVX2; at least 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const STEP: usize = 4 * size_of::<__m256i>();
    // Up to the first aligned address of the target, and what is left at the end, as usual.
    let head = to.align_offset(align_of::<__m256i>());
    let body = (bytes - head) / STEP * STEP;
    // SAFETY: `head`, `body` and the rest add up to `bytes`; the target is aligned from `head` on.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let (from, to) = (from.add(head), to.add(head));
        for at in (0..body).step_by(STEP) {
            let (from, to) = (from.add(at).cast::<__m256i>(), to.add(at).cast::<__m256i>());
            let lines = [0, 1, 2, 3].map(|i| _mm256_loadu_si256(from.add(i)));
            for (i, line) in lines.into_iter().enumerate() {
                _mm256_stream_si256(to.add(i), line);
            }
        }
        let rest = bytes - head - body;
        std::ptr::copy_nonoverlapping(from.add(body), to.add(body), rest);
    }
    // Streamed stores are ordered with nothing; the release that follows must cover them.
    _mm_sfence();
}
