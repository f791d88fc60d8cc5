//! Memory shared by the threads of one parallel region, and aligned storage for packed weights.
//!
//! Nothing here decides who writes where: callers split the index space.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that several threads write at disjoint places.
pub(crate) struct SharedOut<'a, T> {
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
