//! Memory shared by the threads of one parallel region, and aligned storage for packed weights.
//!
//! Nothing here decides who writes where: callers split the index space.

#[cfg(target_arch = "x86_64")]
pub(crate) use aligned::AlignedBytes;

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that several threads write at disjoint places.
pub struct SharedOut<'a, T> {
    data: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: the pointer comes from an exclusive borrow that outlives every use, and writers keep to
// disjoint ranges (the contract of `slice`), so moving it between threads is a split borrow.
unsafe impl<T: Send> Send for SharedOut<'_, T> {}
// SAFETY: as above; a shared reference gives access only through `slice`, whose contract it is.
unsafe impl<T: Send> Sync for SharedOut<'_, T> {}

impl<'a, T> SharedOut<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { data: data.as_mut_ptr(), len: data.len(), life: PhantomData }
    }

    /// The part `range` of the slice.
    ///
    /// # Safety
    /// No two live results, on any thread, may overlap.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the caller's promise")]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "range outside the buffer");
        // SAFETY: the range lies inside the borrowed slice (just checked), and the caller promises
        // that no other live reference overlaps it.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(range.start), range.len()) }
    }
}

#[cfg(target_arch = "x86_64")]
mod aligned {
    use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
    use std::ptr::NonNull;

    /// Vector loads of packed weights should not cross cache lines.
    const LINE: usize = 64;
    /// Large matrices start on a huge page, to spare translation misses on every pass.
    const HUGE_PAGE: usize = 2 << 20;

    /// Zeroed bytes aligned to a cache line, or to a huge page when large.
    pub(crate) struct AlignedBytes {
        data: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: the allocation is owned and its bytes are plain data.
    unsafe impl Send for AlignedBytes {}
    // SAFETY: shared access only reads.
    unsafe impl Sync for AlignedBytes {}

    impl AlignedBytes {
        pub(crate) fn zeroed(len: usize) -> Self {
            let align = if len >= HUGE_PAGE { HUGE_PAGE } else { LINE };
            let layout = Layout::from_size_align(len.max(1), align)
                .expect("packed weights are about as large as the stored ones, which exist");
            // SAFETY: the size is not 0.
            let Some(data) = NonNull::new(unsafe { alloc(layout) }) else {
                handle_alloc_error(layout)
            };
            #[cfg(target_os = "linux")]
            if align == HUGE_PAGE {
                // SAFETY: the range is this allocation. A refusal only costs speed.
                unsafe { libc::madvise(data.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
            }
            // SAFETY: the allocation has that many bytes.
            unsafe { data.write_bytes(0, layout.size()) };
            Self { data, layout }
        }

        pub(crate) fn as_slice(&self) -> &[u8] {
            // SAFETY: all bytes were initialised, and the borrow keeps the allocation.
            unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.layout.size()) }
        }

        pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
            // SAFETY: as above, and the borrow is exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.layout.size()) }
        }
    }

    impl Drop for AlignedBytes {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout in `zeroed`.
            unsafe { dealloc(self.data.as_ptr(), self.layout) };
        }
    }
}
