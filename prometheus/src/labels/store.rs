//! What happens at the store behind the host tier.

use super::*;

closed! {
    /// What became of reading a page from the store.
    StoreRead: "result" {
        /// It was read.
        Hit = "hit",
        /// There is none.
        Absent = "absent",
        /// The store took too long.
        Timeout = "timeout",
        /// The store failed.
        Error = "error",
        /// It ends too early; it was deleted.
        Truncated = "truncated",
        /// Its checksum does not hold; it was deleted.
        Corrupt = "corrupt",
        /// Something that no server wrote is in its place.
        Foreign = "foreign",
        /// It is of another model.
        Model = "model",
        /// It has another layout, or other parts.
        Layout = "layout",
        /// It is of other tokens.
        Collision = "collision",
    }
    /// What became of writing a page to the store.
    StoreWrite: "result" {
        /// It was written.
        Written = "written",
        /// It was there already.
        Present = "present",
        /// Too many pages wait to be written.
        QueueFull = "queue_full",
        /// The store is full of what cannot be given up.
        NoRoom = "no_room",
        /// The store took too long.
        Timeout = "timeout",
        /// The store failed.
        Error = "error",
        /// The server stops.
        Closed = "closed",
        /// Too many orders wait before the store.
        Busy = "busy",
    }
    /// Which way bytes go.
    StoreOperation: "operation" {
        /// From the store.
        Read = "read",
        /// To the store.
        Write = "write",
    }
    /// Why an object of the store was deleted.
    StoreDeletion: "reason" {
        /// Room was needed.
        Capacity = "capacity",
        /// It was broken.
        Broken = "broken",
    }
    /// What happened to a prefix that might be in the store.
    StorePrefix: "event" {
        /// It was looked for.
        LookedUp = "looked_up",
        /// Enough of it was there to be worth a load.
        Found = "found",
        /// The request stopped waiting for it.
        Timeout = "timeout",
        /// The host tier had no room for it.
        NoHostRoom = "no_host_room",
        /// Too many orders wait before the store.
        Busy = "busy",
    }
    /// How far pages came that were to be read.
    StorePages: "step" {
        /// They were asked for.
        Asked = "asked",
        /// They came in time.
        Arrived = "arrived",
        /// They became pages of the host tier.
        Entered = "entered",
    }
    /// Where a request is that waits for its pages.
    StoreWait: "state" {
        /// They are being looked for or read.
        Reading = "reading",
        /// It waits for others that read the same, or for its turn.
        Queued = "queued",
    }
}
