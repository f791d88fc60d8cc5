//! All slots in one place, and what is known in all of them at one moment.
//!
//! A collector's owner adds one line here: the field, the type of its facts, and its name. What is
//! composed from facts (the page, the verdict, the joins) is handed a [`Facts`] and reads no slot.

use crate::config::Config;
use crate::gpu::{GpuFacts, KmsgFacts, PciFacts, SlowFacts};
use crate::hostcache::CacheFacts;
use crate::http::Loaded;
use crate::maintenance::Maintenance;
use crate::node::{NumaFacts, PressureFacts, RdmaFacts};
use crate::service::group::GroupFacts;
use crate::service::probe::ProbeFacts;
use crate::service::unit::UnitFacts;
use crate::slot::{CollectorName, Now, Slot, Status, View};

macro_rules! slots {
    ($($(#[$doc:meta])+ $field:ident: $facts:ty = $name:ident;)+) => {
        /// Where every collector leaves what it read. Clones share the places.
        #[derive(Debug, Clone)]
        pub struct Slots {
            $($(#[$doc])+ pub $field: Slot<$facts>),+
        }

        impl Slots {
            /// Empty ones, with the intervals of the configuration.
            #[must_use]
            pub fn new(config: &Config) -> Self {
                let slot = |name| (name, config.interval(name));
                Self {
                    $($field: {
                        let (name, interval) = slot(CollectorName::$name);
                        Slot::new(name, interval)
                    }),+
                }
            }

            /// As if no collector had anything to collect here.
            #[cfg(test)]
            pub(crate) fn silence_for_test(&self) {
                $(self.$field.unsupported("not in this test");)+
            }

            /// What is known at `now`.
            #[must_use]
            pub fn view(&self, now: Now) -> Facts {
                Facts { now, $($field: self.$field.view(now)),+ }
            }
        }

        /// What is known at one moment.
        #[derive(Debug, Clone)]
        pub struct Facts {
            /// The moment.
            pub now: Now,
            $($(#[$doc])+ pub $field: View<$facts>),+
        }

        impl Facts {
            /// How every collector does, in the order of [`CollectorName`].
            #[must_use]
            pub fn statuses(&self) -> Vec<&Status> {
                let mut all = vec![$(&self.$field.status),+];
                all.sort_by_key(|status| status.name);
                all
            }
        }
    };
}

slots! {
    /// Cards. The facts carry their own times: look at the last ones, whatever became of the
    /// collection.
    gpu: GpuFacts = Gpu;
    /// How reading the slow values of cards goes.
    gpu_slow: SlowFacts = GpuSlow;
    /// Cards that the bus has.
    pci: PciFacts = Pci;
    /// Errors of cards in the kernel's log.
    kmsg: KmsgFacts = Kmsg;
    /// Units of services.
    systemd: UnitFacts = Systemd;
    /// Health URLs of services.
    probe: ProbeFacts = Probe;
    /// Memory of services.
    cgroup: GroupFacts = Cgroup;
    /// Host caches of services.
    hostcache: CacheFacts = Hostcache;
    /// Memory of NUMA nodes.
    numa: NumaFacts = Numa;
    /// Pressure stall information.
    pressure: PressureFacts = Pressure;
    /// RDMA ports.
    rdma: RdmaFacts = Rdma;
    /// Planned work on this node.
    maintenance: Maintenance = Maintenance;
    /// The exporter's own web configuration.
    web_config: Loaded = WebConfig;
}
