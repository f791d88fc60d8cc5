//! The memory policy of a process: the first line of `numa_maps`, and no more of it.

use crate::numa::strict_list;
use crate::read::{self, Bad};
use crate::{FactError, FactKind, Root};

/// What is read of the file. It holds the address, the policy, and a list of nodes of any machine
/// that is not made of holes.
const HEAD: usize = 64;

/// How the kernel chooses the node of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// No policy: the node of the CPU that touches it first.
    Default,
    /// The node of the CPU, asked for by name.
    Local,
    /// These nodes and no others.
    Bind,
    /// One node after the other.
    Interleave,
    /// One node after the other, by weight.
    WeightedInterleave,
    /// This node, another where it is full.
    Prefer,
    /// One of these nodes, another where they are full.
    PreferMany,
}

impl Mode {
    /// The kernel's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Local => "local",
            Self::Bind => "bind",
            Self::Interleave => "interleave",
            Self::WeightedInterleave => "weighted interleave",
            Self::Prefer => "prefer",
            Self::PreferMany => "prefer (many)",
        }
    }

    /// Longer words first: `prefer` begins `prefer (many)`.
    const ALL: [Self; 7] = [
        Self::Default,
        Self::Local,
        Self::Bind,
        Self::Interleave,
        Self::WeightedInterleave,
        Self::PreferMany,
        Self::Prefer,
    ];

    /// Whether it names nodes.
    const fn has_nodes(self) -> bool {
        match self {
            Self::Default | Self::Local => false,
            Self::Bind
            | Self::Interleave
            | Self::WeightedInterleave
            | Self::Prefer
            | Self::PreferMany => true,
        }
    }
}

/// The policy of the first mapping of a process, which is that of the process: nobody gives the
/// text of a program one of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mempolicy {
    /// How.
    pub mode: Mode,
    /// Which nodes it names, ascending; empty for modes that name none. `None` where the list is
    /// longer than what is read.
    pub nodes: Option<Vec<u32>>,
}

pub(crate) fn read(root: &Root, pid: &str) -> Result<Option<Mempolicy>, FactError> {
    let folder = root.proc(pid);
    let path = folder.join("numa_maps");
    let mut head = [0; HEAD];
    let length = match read::head(&path, &mut head) {
        Ok(length) => length,
        // A kernel without nodes has no such file for a process that is there.
        Err(error) if error.kind() == FactKind::Missing && folder.exists() => return Ok(None),
        Err(error) => return Err(error),
    };
    parse(&head[..length]).map_err(|bad| bad.at(&path))
}

/// `7f00a000 bind=static:0-1 file=/bin/x mapped=2 N0=2`: an address, the policy, whatever else.
pub(crate) fn parse(head: &[u8]) -> Result<Option<Mempolicy>, Bad> {
    if head.is_empty() {
        return Ok(None);
    }
    // What follows the policy may be cut in the middle of a letter.
    let text = String::from_utf8_lossy(head);
    let line = text.split('\n').next().unwrap_or_default();
    let whole = line.len() < text.len();
    let bad = || Bad::new("memory policy", line);
    let (address, policy) = line.split_once(' ').ok_or_else(bad)?;
    u64::from_str_radix(address, 16).map_err(|_| bad())?;
    let known = |mode: &Mode| policy.strip_prefix(mode.name()).map(|rest| (*mode, rest));
    let (mode, rest) = Mode::ALL.iter().find_map(known).ok_or_else(bad)?;
    // Flags, `=static`, come before the nodes.
    let rest = match rest.strip_prefix('=') {
        Some(flags) => &flags[flags.find([':', ' ']).unwrap_or(flags.len())..],
        None => rest,
    };
    if !mode.has_nodes() {
        let ends = rest.is_empty() || rest.starts_with(' ');
        return ends.then_some(Some(Mempolicy { mode, nodes: Some(Vec::new()) })).ok_or_else(bad);
    }
    let nodes = match rest.strip_prefix(':').map(|rest| (rest, rest.split_once(' '))) {
        Some((_, Some((nodes, _)))) => Some(nodes),
        Some((nodes, None)) if whole => Some(nodes),
        // The list, or what comes before it, goes on beyond what is read.
        _ if !whole && head.len() == HEAD => None,
        _ => return Err(bad()),
    };
    let nodes = nodes.map(|nodes| strict_list(nodes).ok_or_else(bad)).transpose()?;
    Ok(Some(Mempolicy { mode, nodes }))
}
