//! What host memory asks of the operating system: anonymous maps, NUMA policy, first touch.
//!
//! Every call can fail; nothing here decides whether that is an error.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::HugePages;

/// Bytes touched by one call, so that progress shows and another thread's failure stops it.
pub(crate) const TOUCH: usize = 64 << 20;

/// The calls, so that tests can make one of them fail.
pub(crate) trait System: Send + Sync {
    /// Maps zeroed memory.
    fn map(&self, bytes: usize, huge: HugePages) -> io::Result<Mapping> {
        Mapping::new(bytes, huge)
    }

    /// Demands memory of one node for all pages of the map that come.
    fn bind(&self, map: &Mapping, node: u32) -> io::Result<()> {
        map.bind(node)
    }

    /// Takes the pages of `TOUCH` bytes from `from` on from the system.
    fn touch(&self, map: &Mapping, from: usize) -> io::Result<()> {
        map.touch(from, TOUCH)
    }

    /// Keeps the whole map out of the swap.
    fn lock(&self, map: &Mapping) -> io::Result<()> {
        map.lock()
    }
}

/// The machine itself.
pub(crate) struct Machine;

impl System for Machine {}

/// Anonymous memory of this process; unmapped when dropped.
///
/// Private, so that it counts as memory of the process (`RssAnon`) and not as shared memory, which
/// tools show as cache.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Is told how many bytes there are for as long as they are.
    counter: Option<Arc<AtomicUsize>>,
}

// SAFETY: the map is owned plain memory; who may touch which bytes is the owner's business, and
// every access goes through a raw pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` bytes, whole pages of the kind wanted.
    fn new(bytes: usize, huge: HugePages) -> io::Result<Self> {
        let page = huge.bytes().unwrap_or_else(page_bytes);
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = bytes.max(1).checked_next_multiple_of(page).ok_or_else(too_large)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | huge_flags(huge);
        // SAFETY: a new map at an address that the system chooses.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: NonNull<u8> = NonNull::new(start.cast()).ok_or_else(too_large)?;
        #[cfg(target_os = "linux")]
        if huge == HugePages::Off {
            // SAFETY: the range is the new map. A refusal only costs speed.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { start, bytes, counter: None })
    }

    /// Counts the bytes in `counter` while they are mapped.
    #[cfg(test)]
    pub(crate) fn counted(mut self, counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(self.bytes, Ordering::Relaxed);
        self.counter = Some(Arc::clone(counter));
        self
    }

    /// Bytes mapped: what was asked for, rounded up to whole pages.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The byte at `at`.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        assert!(at < self.bytes, "byte {at} of {}", self.bytes);
        // SAFETY: inside the map, as just checked.
        unsafe { self.start.as_ptr().add(at) }
    }

    fn touch(&self, from: usize, bytes: usize) -> io::Result<()> {
        let end = self.bytes.min(from + bytes);
        #[cfg(target_os = "linux")]
        {
            let start = self.at(from).cast();
            // SAFETY: the range lies in the map, which this type owns; populating changes no byte.
            let failed = unsafe { libc::madvise(start, end - from, libc::MADV_POPULATE_WRITE) };
            let error = io::Error::last_os_error();
            if failed == 0 {
                return Ok(());
            } else if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
        }
        // Systems before 5.14 know no such call.
        for page in (from..end).step_by(page_bytes()) {
            let byte = self.at(page);
            // SAFETY: the byte lies in the map; nobody else knows of it before it was touched. The
            // read keeps what is there.
            unsafe { byte.write_volatile(byte.read_volatile()) };
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is the map.
        let failed = unsafe { libc::mlock(self.start.as_ptr().cast(), self.bytes) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[cfg(target_os = "linux")]
    fn bind(&self, node: u32) -> io::Result<()> {
        const BITS: usize = libc::c_ulong::BITS as usize;
        let mut mask = [0 as libc::c_ulong; 16];
        let node = node as usize;
        let word = mask.get_mut(node / BITS);
        let word = word.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        *word = 1 << (node % BITS);
        // The system takes one bit less than it is told.
        let bits = mask.len() * BITS + 1;
        let start = self.start.as_ptr();
        // SAFETY: the range is the map, the mask has that many bits; no byte changes.
        let failed = unsafe {
            let mode = libc::MPOL_BIND;
            libc::syscall(libc::SYS_mbind, start, self.bytes, mode, mask.as_ptr(), bits, 0)
        };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[cfg(not(target_os = "linux"))]
    fn bind(&self, _: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// On which node up to `samples` pages of the map lie, spread evenly; those that are on none
    /// are left out.
    #[cfg(target_os = "linux")]
    pub(crate) fn nodes(&self, samples: usize) -> io::Result<Vec<u32>> {
        let pages = self.bytes / page_bytes();
        let samples = samples.min(pages).max(1);
        let page = |i: usize| self.at(i * pages / samples * page_bytes());
        let pages: Vec<*mut u8> = (0..samples).map(page).collect();
        let mut nodes = vec![-1 as libc::c_int; samples];
        let none = std::ptr::null::<libc::c_int>();
        // SAFETY: both lists have that many entries; without a list of nodes nothing moves.
        let failed = unsafe {
            let (pages, nodes) = (pages.as_ptr(), nodes.as_mut_ptr());
            libc::syscall(libc::SYS_move_pages, 0, samples, pages, none, nodes, 0)
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(nodes.into_iter().filter_map(|node| u32::try_from(node).ok()).collect())
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn nodes(&self, _: usize) -> io::Result<Vec<u32>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the map is this type's own and nothing borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
        if let Some(counter) = &self.counter {
            counter.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(target_os = "linux")]
const fn huge_flags(huge: HugePages) -> libc::c_int {
    match huge {
        HugePages::Off => 0,
        HugePages::TwoMiB => libc::MAP_HUGETLB | libc::MAP_HUGE_2MB,
        HugePages::OneGiB => libc::MAP_HUGETLB | libc::MAP_HUGE_1GB,
    }
}

#[cfg(not(target_os = "linux"))]
const fn huge_flags(_: HugePages) -> libc::c_int {
    0
}

/// Bytes of a page of the system.
fn page_bytes() -> usize {
    // SAFETY: a question without arguments that matter.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Lets the calling thread run on the processors of `node` only.
///
/// # Errors
/// Where the system has no such node or refuses.
#[cfg(target_os = "linux")]
pub(crate) fn stay_on(node: u32) -> io::Result<()> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    // SAFETY: an empty set is all zeroes.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in list.trim().split(',').filter_map(range).flatten() {
        if cpu < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is below the set's size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
    }
    // SAFETY: the set is a whole one; 0 is the calling thread.
    let failed = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn stay_on(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// `3` or `4-7`.
#[cfg(target_os = "linux")]
fn range(text: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}
