//! Starts every collector.

use std::io;
use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::facts::Slots;
use crate::http::auth::Checker;
use crate::http::{InForce, Loaded, reload};
use crate::service::fetch::Client;
use crate::slot::{Now, Stop, run_blocking};
use crate::{gpu, hostcache, maintenance, node, service};

/// What collectors are started with.
pub(super) struct Parts<'a> {
    pub(super) config: &'a Arc<Config>,
    pub(super) slots: &'a Slots,
    pub(super) web: &'a InForce,
    pub(super) checker: &'a Checker,
    pub(super) client: &'a Client,
    pub(super) tasks: &'a TaskTracker,
    pub(super) stop: &'a Stop,
}

impl Parts<'_> {
    /// Starts them; gives what makes the cards free and takes them back.
    pub(super) fn start(self) -> io::Result<gpu::Handle> {
        let Self { config, slots, client, tasks, stop, .. } = self;
        node::start(config, slots, stop)?;
        service::start(config, slots, client, tasks, stop)?;
        hostcache::start(config, slots, client, tasks, stop)?;
        self.maintenance()?;
        self.web_config()?;
        gpu::start(config, slots, stop)
    }

    fn maintenance(&self) -> io::Result<()> {
        let slot = &self.slots.maintenance;
        let Some(path) = self.config.maintenance.clone() else {
            slot.unsupported("no --maintenance file");
            return Ok(());
        };
        run_blocking(slot.clone(), self.stop.clone(), move || {
            maintenance::read(&path, Now::read().wall)
        })
    }

    fn web_config(&self) -> io::Result<()> {
        let slot = &self.slots.web_config;
        let Some(path) = self.config.web_config.clone() else {
            slot.unsupported("no --web.config.file");
            return Ok(());
        };
        let (web, checker) = (self.web.clone(), self.checker.clone());
        let mut loaded = Loaded { reloads: 0 };
        run_blocking(slot.clone(), self.stop.clone(), move || {
            reload(&path, &web, &checker, &mut loaded)
        })
    }
}
