//! Why host memory cannot be made, and what was made differently.

use std::io;

use types::Bytes;

use super::HugePages;

/// What was done with a slab when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlabStep {
    /// Address space was asked for.
    Map,
    /// It was bound to a NUMA node.
    Bind,
    /// Its memory was taken.
    Touch,
    /// It was kept out of the swap.
    Lock,
}

/// Why host memory cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A node, or none, is needed for every rank.
    #[error("{nodes} NUMA nodes given for {ranks} ranks; give one per rank, at least one")]
    Ranks {
        /// Ranks asked for.
        ranks: usize,
        /// Entries given.
        nodes: usize,
    },
    /// A page cannot be addressed.
    #[error("a page of {part} has more bytes than this machine can address")]
    TooLarge {
        /// The part.
        part: &'static str,
    },
    /// The system refused a slab.
    #[error(
        "host memory of {part}, rank {rank}, slab {slab} ({bytes}{}): {}: {source}",
        on(*node),
        advice(*step)
    )]
    Slab {
        /// The part.
        part: &'static str,
        /// The rank.
        rank: usize,
        /// The slab's number among those of the part and rank.
        slab: usize,
        /// Its NUMA node, where one was asked for.
        node: Option<u32>,
        /// Its bytes.
        bytes: Bytes,
        /// What failed.
        step: SlabStep,
        /// The system's reason.
        source: io::Error,
    },
}

fn on(node: Option<u32>) -> String {
    node.map_or_else(String::new, |node| format!(" on NUMA node {node}"))
}

const fn advice(step: SlabStep) -> &'static str {
    match step {
        SlabStep::Map => "cannot be mapped; a smaller host tier fits",
        SlabStep::Bind => "cannot be bound to the node; name one that this process may use",
        SlabStep::Touch => "the memory is not there; a smaller host tier fits",
        SlabStep::Lock => "cannot be locked; raise the memlock limit or switch locking off",
    }
}

/// Something that was asked for and is done differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostNote {
    /// The system binds no memory to nodes: it has one node, or this process may not.
    Unbound {
        /// The system's reason.
        reason: String,
    },
    /// The system has not enough reserved large pages; usual ones are used instead.
    UsualPages {
        /// What was asked for.
        wanted: HugePages,
        /// The system's reason.
        reason: String,
    },
}

impl std::fmt::Display for HostNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unbound { reason } => {
                write!(f, "host memory is not bound to NUMA nodes: {reason}")
            }
            Self::UsualPages { wanted, reason } => {
                let wanted = match wanted {
                    HugePages::Off => "usual",
                    HugePages::TwoMiB => "2 MiB",
                    HugePages::OneGiB => "1 GiB",
                };
                write!(f, "no reserved pages of {wanted} for host memory, usual ones: {reason}")
            }
        }
    }
}
