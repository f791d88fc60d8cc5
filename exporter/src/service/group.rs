//! Memory of services: their control groups, locked bytes, and where the kernel takes their memory
//! from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use node_info::{Cgroup, FactKind, Mempolicy, Mode, Root};

use super::kills::{Counted, Kills};
use super::unit::UnitFacts;
use crate::config::Service;
use crate::slot::Now;
use crate::slot::{CollectError, Slot};

/// Processes of a group that are looked at.
const PROCESSES_MAX: usize = 256;

/// Memory of one service.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Its control group.
    pub group: Option<Cgroup>,
    /// Kills for lack of memory, of all its groups and starts; `None` where nobody has counted.
    pub oom_kills: Option<u64>,
    /// Locked bytes of its processes.
    pub locked: Option<u64>,
    /// The policy of its main process; of the first other one that has a policy, where that has
    /// none: scripts start servers with one.
    pub policy: Option<Mempolicy>,
    /// Why the policy may not be read, where the system says so: others' processes need
    /// `CAP_SYS_PTRACE`. No failure of the collector.
    pub hidden_policy: Option<String>,
    /// What could not be read, and should be.
    pub problems: Vec<CollectError>,
}

impl Usage {
    /// The one node that its memory is taken from, if it is bound to one.
    #[must_use]
    pub fn bound_to(&self) -> Option<u32> {
        let policy = self.policy.as_ref().filter(|policy| policy.mode == Mode::Bind)?;
        match policy.nodes.as_deref() {
            Some([node]) => Some(*node),
            Some(_) | None => None,
        }
    }
}

/// Memory by the name of the service; one is missing that has no control group and no process now,
/// and whose kills nobody counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GroupFacts(pub BTreeMap<String, Usage>);

impl GroupFacts {
    /// What could not be read of any service.
    pub fn problems(&self) -> impl Iterator<Item = &CollectError> {
        self.0.values().flat_map(|usage| &usage.problems)
    }
}

/// Reads memory of services. Blocks.
#[derive(Debug)]
pub struct Groups {
    /// Where the kernel's files are.
    pub root: Root,
    /// What runs here.
    pub services: Vec<Service>,
    /// Tells which group and process belong to a unit.
    pub units: Slot<UnitFacts>,
    /// What was counted so far, by the name of the service.
    pub kills: BTreeMap<String, Kills>,
}

impl Groups {
    /// Reads all of them, each on its own.
    ///
    /// # Errors
    /// No service could be read that should be. Unsupported where none has a unit or a group, and
    /// where this node has no such control groups.
    pub fn collect(&mut self, now: Now) -> Result<GroupFacts, CollectError> {
        let units = self.units.view(now).facts;
        let mut facts = BTreeMap::new();
        let (mut failed, mut wanted, mut any) = (None, 0, false);
        for service in &self.services {
            if service.unit.is_none() && service.cgroup.is_none() {
                continue;
            }
            wanted += 1;
            let unit = units.as_ref().and_then(|units| units.unit(&service.name));
            let own = unit.and_then(|unit| unit.group.as_ref().map(PathBuf::from));
            let (path, pid) = (service.cgroup.clone().or(own), unit.and_then(|unit| unit.main_pid));
            let may_be_gone = path.is_some() || unit.is_some();
            let found = self.read(path, pid);
            any |= matches!(found, Ok(Some(_)));
            let kills = self.kills.entry(service.name.clone()).or_default();
            kills.seen(unit, counted(&found, may_be_gone), now);
            match found {
                Ok(None) if kills.sum().is_none() => {}
                Ok(usage) => {
                    let usage = Usage { oom_kills: kills.sum(), ..usage.unwrap_or_default() };
                    drop(facts.insert(service.name.clone(), usage));
                }
                Err(error) => {
                    let problems = vec![error.clone()];
                    let usage = Usage { oom_kills: kills.sum(), problems, ..Usage::default() };
                    facts.insert(service.name.clone(), usage);
                    failed = Some(error);
                }
            }
        }
        match failed {
            _ if wanted == 0 => {
                Err(CollectError::unsupported("no service has a unit or a control group"))
            }
            Some(error) if !any => Err(error),
            Some(_) | None => Ok(GroupFacts(facts)),
        }
    }

    fn read(
        &self,
        path: Option<PathBuf>,
        main_pid: Option<u32>,
    ) -> Result<Option<Usage>, CollectError> {
        let mut usage = Usage::default();
        if let Some(path) = path {
            match self.root.cgroup(&path) {
                Ok(group) => {
                    usage.problems.extend(group.problems.iter().cloned().map(CollectError::from));
                    usage.group = Some(group);
                }
                // It ended meanwhile, or does not run.
                Err(error) if error.kind() == FactKind::Missing => {}
                Err(error) if main_pid.is_none() => return Err(error.into()),
                Err(error) => usage.problems.push(error.into()),
            }
        }
        let others = usage.group.as_ref().and_then(|group| group.processes.clone());
        let mut pids: Vec<u32> = main_pid.into_iter().collect();
        pids.extend(others.unwrap_or_default().into_iter().filter(|pid| Some(*pid) != main_pid));
        pids.truncate(PROCESSES_MAX);
        if usage.group.is_none() && pids.is_empty() {
            return Ok(None);
        }
        for pid in pids {
            self.add(pid, &mut usage);
        }
        Ok(Some(usage))
    }

    /// What one of its processes adds.
    fn add(&self, pid: u32, usage: &mut Usage) {
        match self.root.process_status(pid) {
            Ok(status) => {
                if let Some(locked) = status.locked {
                    usage.locked = Some(usage.locked.unwrap_or_default().saturating_add(locked));
                }
            }
            Err(error) if error.kind() == FactKind::Missing => return,
            Err(error) => usage.problem(error.into()),
        }
        let free = |mode| matches!(mode, Mode::Default | Mode::Local);
        if usage.policy.as_ref().is_some_and(|policy| !free(policy.mode)) {
            return;
        }
        match self.root.mempolicy(pid) {
            Ok(Some(policy)) => {
                if usage.policy.is_none() || !free(policy.mode) {
                    usage.policy = Some(policy);
                }
            }
            Ok(None) => {}
            Err(error) if error.kind() == FactKind::Missing => {}
            Err(error) if error.kind() == FactKind::Permission => {
                usage.hidden_policy = Some(error.to_string());
            }
            Err(error) => usage.problem(error.into()),
        }
    }
}

/// What was found of the kills of a group.
fn counted(found: &Result<Option<Usage>, CollectError>, may_be_gone: bool) -> Counted {
    let Ok(usage) = found else { return Counted::Unknown };
    match usage.as_ref().and_then(|usage| usage.group.as_ref()) {
        Some(group) => group.events.map_or(Counted::Unknown, |events| Counted::So(events.oom_kill)),
        None if !may_be_gone => Counted::Unknown,
        None if usage.as_ref().is_some_and(|usage| !usage.problems.is_empty()) => Counted::Unknown,
        None => Counted::Gone,
    }
}

impl Usage {
    fn problem(&mut self, problem: CollectError) {
        /// One of each process would be said otherwise.
        const MOST: usize = 8;
        if self.problems.len() < MOST {
            self.problems.push(problem);
        }
    }
}
