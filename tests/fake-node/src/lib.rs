//! Writes the `proc`, `sys` and control group files of a node that is not at hand, for tests, and
//! changes them while a program reads them.
//!
//! Everything is generated; nothing is a copy of a machine. A file is replaced in one step, as the
//! kernel's files change. The folder goes with the [`Tree`]. Whatever cannot be written panics: a
//! test on half a node would prove nothing.
#![forbid(unsafe_code)]

mod cgroup;
mod cpu;
mod memory;
mod pci;
mod rdma;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

pub use cgroup::Group;
pub use memory::NodeShape;

/// What a node is made of. Begin with [`Shape::two_socket`], [`Shape::small`] or
/// [`Shape::default`] (nothing at all) and change what the test is about.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// NUMA nodes, in any order, ids as they come.
    pub nodes: Vec<NodeShape>,
    /// Cards, spread over the nodes that have CPUs.
    pub gpus: usize,
    /// RDMA devices of one port each, spread likewise.
    pub hcas: usize,
    /// Whether `/proc/pressure` is there.
    pub psi: bool,
    /// Whether the kernel tells what interrupts take, and when all tasks waited for a CPU.
    pub psi_since_5_13: bool,
    /// Whether the control groups are of version 1.
    pub cgroup_v1: bool,
}

impl Shape {
    /// A server for models: 2 sockets of 96 CPUs and 1 TiB, 8 cards, 2 RDMA ports.
    #[must_use]
    pub fn two_socket() -> Self {
        let node = |id: u32| NodeShape::new(id, 1 << 40).cpus(id * 96..id * 96 + 96);
        Self { nodes: vec![node(0), node(1)], gpus: 8, hcas: 2, ..Self::bare() }
    }

    /// A small virtual machine: one node, 2 CPUs, 24 GiB, no card, no RDMA.
    #[must_use]
    pub fn small() -> Self {
        Self { nodes: vec![NodeShape::new(0, 24 << 30).cpus(0..2)], ..Self::bare() }
    }

    /// Two sockets of which the second has the id 2, and memory without CPUs on node 5.
    #[must_use]
    pub fn sparse() -> Self {
        let nodes = vec![
            NodeShape::new(0, 256 << 30).cpus(0..32),
            NodeShape::new(2, 256 << 30).cpus(32..64),
            NodeShape::new(5, 64 << 30),
        ];
        Self { nodes, gpus: 2, hcas: 1, ..Self::bare() }
    }

    /// A kernel of today on a machine without anything.
    fn bare() -> Self {
        Self { psi: true, psi_since_5_13: true, ..Self::default() }
    }

    /// Writes it.
    #[must_use]
    pub fn build(self) -> Tree {
        Tree::new(self)
    }
}

/// The files of a node, in a folder that goes with this value.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    shape: Shape,
    /// Whether somebody may read it: files are replaced, not written over.
    live: bool,
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

impl Tree {
    /// [`Shape::two_socket`], written.
    #[must_use]
    pub fn two_socket() -> Self {
        Shape::two_socket().build()
    }

    /// [`Shape::small`], written.
    #[must_use]
    pub fn small() -> Self {
        Shape::small().build()
    }

    /// [`Shape::sparse`], written.
    #[must_use]
    pub fn sparse() -> Self {
        Shape::sparse().build()
    }

    fn new(shape: Shape) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sightline-fake-node-{}-{next}", std::process::id());
        let mut tree = Self { root: std::env::temp_dir().join(name), shape, live: false };
        fs::create_dir(&tree.root).expect("a new folder for the tree");
        for folder in ["proc", "sys/fs/cgroup", "dev"] {
            fs::create_dir_all(tree.root.join(folder)).expect("folder");
        }
        tree.shape.nodes.sort_unstable_by_key(|node| node.id);
        cpu::write(&tree);
        memory::write(&tree);
        cgroup::write(&tree);
        pci::write(&tree);
        rdma::write(&tree);
        tree.live = true;
        tree
    }

    /// What stands for `/`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// What stands for `/proc`.
    #[must_use]
    pub fn procfs(&self) -> PathBuf {
        self.root.join("proc")
    }

    /// What stands for `/sys`.
    #[must_use]
    pub fn sysfs(&self) -> PathBuf {
        self.root.join("sys")
    }

    /// What stands for `/sys/fs/cgroup`.
    #[must_use]
    pub fn cgroupfs(&self) -> PathBuf {
        self.root.join("sys/fs/cgroup")
    }

    /// The shape as it is now.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Writes a file, its folders with it, in one step. `path` is relative to the root:
    /// `proc/meminfo`.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.root.join(path);
        // A folder of processes or of devices is listed while this goes on; this name is skipped.
        let next = path.with_file_name(".next");
        let target = if self.live { &next } else { &path };
        if fs::write(target, &text).is_err() {
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folder");
            fs::write(target, &text).expect("file");
        }
        if self.live {
            fs::rename(&next, &path).expect("file in its place");
        }
    }

    /// The text of a file.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        fs::read_to_string(self.root.join(path)).expect("a file of the tree")
    }

    /// Removes a file, or a folder with all in it.
    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = self.root.join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).expect("a folder of the tree");
        } else {
            fs::remove_file(path).expect("a file of the tree");
        }
    }

    /// Puts a pipe in the place of a file: whoever opens it waits until [`Tree::end_fifo`].
    pub fn fifo(&self, path: impl AsRef<Path>) {
        let path = self.root.join(path);
        drop(fs::remove_file(&path));
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
            .expect("a pipe in the tree");
    }

    /// Puts a file in the place of a pipe. Who waited for the pipe reads nothing from it; who comes
    /// later reads the file.
    pub fn end_fifo(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let at = self.root.join(path.as_ref());
        // Open for both, so that this does not wait either. Readers wait on until it is closed, so
        // none of them opens the pipe again.
        let pipe = fs::File::options().read(true).write(true).open(at).expect("a pipe of the tree");
        self.write(path, text);
        drop(pipe);
    }
}
