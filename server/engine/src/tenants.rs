//! Who has been served how much: a counter of tokens per tenant.
//!
//! A tenant is active while it has a request here. One that becomes active is lifted to the least
//! counter among the active, so that nobody saves up a right to the whole machine by being away.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Most tenants that are remembered while they have no request here. Beyond it, those who were
/// served least are forgotten, which costs others the least.
const IDLE_MAX: usize = 4096;

/// A tenant that is active, by its place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(usize);

#[derive(Debug)]
struct Tenant {
    name: Option<Arc<str>>,
    /// Tokens of its prompts and answers so far, and what it was lifted by.
    served: u64,
    /// Requests here, wherever they are.
    requests: usize,
    /// `served` as the order of the active or idle has it; never more than `served`.
    listed: u64,
}

/// The table. As large as the number of active tenants, which the queue and the running batch
/// bound, and [`IDLE_MAX`] more.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    tenants: Vec<Tenant>,
    free: Vec<usize>,
    by_name: HashMap<Option<Arc<str>>, usize>,
    active: BTreeSet<(u64, usize)>,
    idle: BTreeSet<(u64, usize)>,
    /// The least counter of the active, when it was last looked at; never falls.
    floor: u64,
}

impl Tenants {
    /// A request of `name` came.
    pub(crate) fn enter(&mut self, name: Option<&Arc<str>>) -> Slot {
        let floor = self.raise_floor();
        let name = name.cloned();
        let index = match self.by_name.get(&name) {
            Some(index) => *index,
            None => self.add(name),
        };
        let tenant = &mut self.tenants[index];
        if tenant.requests == 0 {
            self.idle.remove(&(tenant.listed, index));
            tenant.served = tenant.served.max(floor);
            tenant.listed = tenant.served;
            self.active.insert((tenant.listed, index));
        }
        tenant.requests += 1;
        Slot(index)
    }

    /// A request of this tenant ended.
    pub(crate) fn leave(&mut self, Slot(index): Slot) {
        let tenant = &mut self.tenants[index];
        tenant.requests -= 1;
        if tenant.requests > 0 {
            return;
        }
        self.active.remove(&(tenant.listed, index));
        tenant.listed = tenant.served;
        self.idle.insert((tenant.listed, index));
        let floor = self.raise_floor();
        // Whoever is at the floor would be lifted to it anyway.
        while let Some(&(served, least)) = self.idle.first()
            && (served <= floor || self.idle.len() > IDLE_MAX)
        {
            self.idle.pop_first();
            let name = self.tenants[least].name.take();
            self.by_name.remove(&name);
            self.free.push(least);
        }
    }

    /// Tokens were computed for this tenant.
    pub(crate) fn charge(&mut self, Slot(index): Slot, tokens: u64) {
        self.tenants[index].served += tokens;
    }

    /// What this tenant has been served, lifts included.
    pub(crate) fn served(&self, Slot(index): Slot) -> u64 {
        self.tenants[index].served
    }

    /// Tenants in the table.
    #[cfg(test)]
    pub(crate) fn known(&self) -> (usize, usize) {
        (self.active.len(), self.idle.len())
    }

    fn add(&mut self, name: Option<Arc<str>>) -> usize {
        let tenant = Tenant { name: name.clone(), served: 0, requests: 0, listed: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.tenants[index] = tenant;
                index
            }
            None => {
                self.tenants.push(tenant);
                self.tenants.len() - 1
            }
        };
        self.by_name.insert(name, index);
        index
    }

    /// The least counter of the active. Their order is put right only where it is looked at: each
    /// entry that is behind is moved once per look, for charges that came since.
    fn raise_floor(&mut self) -> u64 {
        while let Some(&(listed, index)) = self.active.first() {
            let served = self.tenants[index].served;
            if listed == served {
                self.floor = self.floor.max(served);
                break;
            }
            self.active.pop_first();
            self.active.insert((served, index));
            self.tenants[index].listed = served;
        }
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    #[test]
    fn a_newcomer_is_lifted_to_the_least_of_the_active() {
        let mut tenants = Tenants::default();
        let (a, b) = (tenants.enter(Some(&name("a"))), tenants.enter(Some(&name("b"))));
        tenants.charge(a, 1000);
        tenants.charge(b, 300);
        let c = tenants.enter(None);
        assert_eq!(tenants.served(c), 300);
        // Being away saves nothing up, and costs nothing either.
        tenants.charge(c, 50);
        tenants.leave(c);
        assert_eq!(tenants.known(), (2, 1));
        let c = tenants.enter(None);
        assert_eq!(tenants.served(c), 350);
        tenants.leave(c);
        tenants.charge(b, 5000);
        let c = tenants.enter(None);
        assert_eq!(tenants.served(c), 1000);
    }

    #[test]
    fn tenants_without_requests_are_remembered_only_where_it_matters() {
        let mut tenants = Tenants::default();
        for id in 0..3 * IDLE_MAX {
            let slot = tenants.enter(Some(&name(&id.to_string())));
            tenants.charge(slot, 10);
            tenants.leave(slot);
        }
        let (active, idle) = tenants.known();
        assert!(active == 0 && idle <= IDLE_MAX, "{idle}");
        // One that is served while all others are away raises the floor above them.
        let slot = tenants.enter(Some(&name("busy")));
        tenants.charge(slot, 1 << 20);
        tenants.leave(slot);
        let other = tenants.enter(Some(&name("other")));
        tenants.charge(other, 1 << 30);
        tenants.leave(other);
        assert!(tenants.known().1 <= IDLE_MAX);
        assert!(tenants.by_name.len() <= IDLE_MAX && tenants.tenants.len() <= IDLE_MAX + 2);
    }
}
