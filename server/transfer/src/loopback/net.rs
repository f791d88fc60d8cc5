//! The network: who is connected, what is on its way, and what becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use types::Time;

use super::dice::Dice;
use super::member::{Member, Role, shake};
use super::wire::{Event, Flight, Lane, Link, Pair};
use super::{FaultPlan, Node};
use crate::codec::{DecodeError, Item};
use crate::failure::Failure;
use crate::frame::FrameHeader;
use crate::handshake::HandshakeError;
use crate::message::Message;
use crate::observe::Side;
use crate::port::{Act, DecodePort, PrefillPort};
use crate::room::{PeerId, PeerName};

pub(super) struct Net {
    pub(super) dice: Dice,
    pub(super) faults: FaultPlan,
    members: Vec<Member>,
    pairs: Vec<Pair>,
    generations: u64,
    events: BTreeMap<(Time, u64), Event>,
    flights: BTreeMap<u64, Flight>,
    /// Numbers for events and flights.
    numbers: u64,
}

impl Net {
    pub(super) const fn new(seed: u64, faults: FaultPlan) -> Self {
        Self {
            dice: Dice::new(seed),
            faults,
            members: Vec::new(),
            pairs: Vec::new(),
            generations: 0,
            events: BTreeMap::new(),
            flights: BTreeMap::new(),
            numbers: 0,
        }
    }

    pub(super) fn add_decode(&mut self, node: Node, port: Arc<DecodePort>) -> usize {
        self.members.push(Member { node, role: Role::Decode(port) });
        self.members.len() - 1
    }

    pub(super) fn add_prefill(&mut self, node: Node, port: Arc<PrefillPort>) -> usize {
        self.members.push(Member { node, role: Role::Prefill(port) });
        self.members.len() - 1
    }

    pub(super) fn connect(
        &mut self,
        now: Time,
        decode: usize,
        prefill: usize,
    ) -> Result<(), HandshakeError> {
        let both = |pair: &Pair| (pair.decode, pair.prefill) == (decode, prefill);
        assert!(!self.pairs.iter().any(both), "the two are connected");
        self.pairs.push(Pair { decode, prefill, link: None });
        self.open(now, self.pairs.len() - 1)
    }

    fn open(&mut self, now: Time, at: usize) -> Result<(), HandshakeError> {
        let (decode, prefill) = (self.pairs[at].decode, self.pairs[at].prefill);
        let (dialer, greeter) = (&self.members[decode], &self.members[prefill]);
        let (Role::Decode(dials), Role::Prefill(greets)) = (&dialer.role, &greeter.role) else {
            assert!(
                matches!(dialer.role, Role::Dead) || matches!(greeter.role, Role::Dead),
                "a decode worker connects to a prefill worker"
            );
            return Err(HandshakeError::NoPeer);
        };
        let shaken = shake(&dialer.node, &greeter.node, &mut self.dice);
        let trouble = shaken.as_ref().err().map(ToString::to_string);
        dialer.role.trouble(&greeter.node.name, trouble.clone());
        greeter.role.trouble(&dialer.node.name, trouble);
        let ready = shaken?;
        let (from, to) = (&greeter.node.name, &dialer.node.name);
        let known = greeter.node.peers.contains(to);
        let to = if known { to.clone() } else { PeerName::other() };
        let decode_peer = dials.with(|end, now| end.connected(now, from.clone(), ready.rooms_max));
        let prefill_peer = greets.with(|end, now| end.connected(now, to));
        let mut lanes = [Lane::new(), Lane::new()];
        for lane in &mut lanes {
            lane.decoder.open(ready.shape.payload_max());
        }
        let [to_prefill, to_decode] = lanes;
        self.generations += 1;
        let (generation, free_at, stalled_until) = (self.generations, now, now);
        self.pairs[at].link = Some(Link {
            generation,
            decode_peer,
            prefill_peer,
            to_prefill,
            to_decode,
            free_at,
            stalled_until,
        });
        Ok(())
    }

    pub(super) fn cut(&mut self, now: Time, decode: usize, prefill: usize) {
        let both = |pair: &Pair| (pair.decode, pair.prefill) == (decode, prefill);
        if let Some(at) = self.pairs.iter().position(both) {
            self.lose(now, at, Failure::PeerGone, Failure::PeerGone);
        }
    }

    pub(super) fn kill(&mut self, now: Time, node: usize) {
        self.members[node].role = Role::Dead;
        for at in 0..self.pairs.len() {
            if [self.pairs[at].decode, self.pairs[at].prefill].contains(&node) {
                self.lose(now, at, Failure::PeerGone, Failure::PeerGone);
            }
        }
        let pairs = &self.pairs;
        // The frames were in its memory; what it read is not given back to anybody.
        self.flights.retain(|_, flight| {
            let pair = &pairs[flight.pair];
            pair.decode != node && pair.prefill != node || {
                let (sends, receives) = (pair.prefill == node, pair.decode == node);
                if sends {
                    flight.job = None;
                }
                if receives {
                    flight.writing = None;
                }
                flight.job.is_some() || flight.writing.is_some()
            }
        });
    }

    /// A connection is lost: each side notices sometime, one of them first.
    fn lose(&mut self, now: Time, at: usize, decode: Failure, prefill: Failure) {
        let Some(link) = self.pairs[at].link.take() else { return };
        let late = self.dice.up_to(self.faults.notice);
        let (first, second) =
            if self.dice.chance(500) { (now, now + late) } else { (now + late, now) };
        let pair = &self.pairs[at];
        let (decode_node, prefill_node) = (pair.decode, pair.prefill);
        let (node, peer, failure) = (decode_node, link.decode_peer, decode);
        self.schedule(first, Event::Lost { node, peer, failure });
        let (node, peer, failure) = (prefill_node, link.prefill_peer, prefill);
        self.schedule(second, Event::Lost { node, peer, failure });
        if let Some(after) = self.faults.reconnect {
            self.schedule(now + late + after, Event::Connect(at));
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.numbers += 1;
        self.events.insert((at, self.numbers), event);
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.events.is_empty() && self.flights.is_empty()
    }

    pub(super) fn next_event(&self, now: Time) -> Option<Time> {
        let deadlines = self.members.iter().filter_map(|member| member.role.deadline()).min();
        let events = self.events.first_key_value().map(|((at, _), _)| *at);
        events.into_iter().chain(deadlines).min().map(|at| at.max(now))
    }

    /// Does everything that is due, until nothing is left to do.
    pub(super) fn turn(&mut self, now: Time) {
        loop {
            let mut busy = false;
            while let Some(entry) = self.events.first_entry().filter(|e| e.key().0 <= now) {
                let event = entry.remove();
                self.happen(now, event);
                busy = true;
            }
            for at in 0..self.members.len() {
                if self.members[at].role.deadline().is_some_and(|due| due <= now) {
                    self.members[at].role.tick();
                    busy = true;
                }
                while let Some(act) = self.members[at].role.poll() {
                    self.act(now, at, act);
                    busy = true;
                }
            }
            for at in 0..self.pairs.len() {
                while self.take_frame(now, at) {
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn act(&mut self, now: Time, node: usize, act: Act) {
        match act {
            Act::Control(peer, message) => self.send(now, node, peer, &message),
            Act::Lost(peer, _) => {
                if let Some((at, _)) = self.find(node, peer) {
                    // This side knows already; it does not mind hearing it again.
                    self.lose(now, at, Failure::PeerGone, Failure::PeerGone);
                }
            }
            // It is counted in the snapshot.
            Act::Violated(..) => {}
        }
    }

    /// The pair in which `node` calls somebody `peer`, and to which side its messages go.
    fn find(&self, node: usize, peer: PeerId) -> Option<(usize, Side)> {
        self.pairs.iter().enumerate().find_map(|(at, pair)| {
            let link = pair.link.as_ref()?;
            if pair.decode == node && link.decode_peer == peer {
                Some((at, Side::Send))
            } else if pair.prefill == node && link.prefill_peer == peer {
                Some((at, Side::Recv))
            } else {
                None
            }
        })
    }

    fn send(&mut self, now: Time, node: usize, peer: PeerId, message: &Message) {
        // A side that has not noticed a loss yet talks into the void.
        let Some((pair, to)) = self.find(node, peer) else { return };
        if self.dice.chance(self.faults.drop) {
            self.lose(now, pair, Failure::PeerGone, Failure::PeerGone);
            return;
        }
        let stalled = self.stall(now);
        let jitter = self.dice.up_to(self.faults.jitter);
        let overtakes = self.dice.chance(self.faults.reorder);
        let Some(link) = &mut self.pairs[pair].link else { return };
        link.stalled_until = link.stalled_until.max(stalled);
        let (generation, stalled) = (link.generation, link.stalled_until);
        let lane = match to {
            Side::Send => &mut link.to_prefill,
            Side::Recv => &mut link.to_decode,
        };
        let mut bytes = lane.encoder.message(message);
        let mut due = now.max(stalled) + self.faults.latency + jitter;
        if !overtakes {
            due = due.max(lane.last_due);
            lane.last_due = due;
        }
        if self.dice.chance(self.faults.corrupt_message) {
            bytes = self.flip(&bytes);
        }
        let copies = 1 + usize::from(self.dice.chance(self.faults.duplicate));
        for _ in 0..copies {
            let bytes = bytes.clone();
            self.schedule(due, Event::Message { pair, generation, to, bytes });
            due = due + self.dice.up_to(self.faults.jitter);
        }
    }

    fn stall(&mut self, now: Time) -> Time {
        if self.dice.chance(self.faults.stall) {
            now + self.dice.up_to(self.faults.stall_for)
        } else {
            now
        }
    }

    /// The bytes with one bit changed.
    fn flip(&mut self, bytes: &[u8]) -> Bytes {
        let mut bytes = bytes.to_vec();
        let bit = self.dice.below(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes.into()
    }

    /// Takes one frame from a prefill worker, if there is any.
    fn take_frame(&mut self, now: Time, at: usize) -> bool {
        let pair = &self.pairs[at];
        let Some(link) = &pair.link else { return false };
        let member = &self.members[pair.prefill];
        let Some(port) = member.role.prefill() else { return false };
        let Some(job) = port.next_frame(link.prefill_peer) else { return false };
        let bytes = job.load(&*member.node.pages);
        let mut head = bytes.head;
        let mut payload = bytes.payload.concat();
        let (generation, taken) = (link.generation, !self.dice.chance(self.faults.refuse));
        if self.dice.chance(self.faults.corrupt_payload) && !payload.is_empty() {
            payload = self.flip(&payload).to_vec();
        }
        if self.dice.chance(self.faults.corrupt_header) {
            let broken = self.flip(&head);
            head.copy_from_slice(&broken);
        }
        let stalled = self.stall(now);
        let breaks = self.dice.chance(self.faults.drop);
        let length = (head.len() + payload.len()) as u64;
        let nanos = u128::from(length) * 1_000_000_000 / u128::from(self.faults.bytes_per_second);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.numbers += 1;
        let number = self.numbers;
        let job = Some((job, bytes));
        let writing = None;
        let flight = Flight { pair: at, generation, job, taken, head, payload, writing };
        self.flights.insert(number, flight);
        let Some(link) = &mut self.pairs[at].link else { return true };
        link.stalled_until = link.stalled_until.max(stalled);
        let start = now.max(link.free_at).max(link.stalled_until);
        let end = start + takes;
        link.free_at = end;
        self.schedule(end, Event::Written(number));
        if taken {
            self.schedule(start + self.faults.latency, Event::Head(number));
            self.schedule(end + self.faults.latency, Event::Tail(number));
        }
        if breaks {
            self.lose(now, at, Failure::PeerGone, Failure::PeerGone);
        }
        true
    }

    fn happen(&mut self, now: Time, event: Event) {
        match event {
            Event::Message { pair, generation, to, bytes } => {
                self.arrive(now, pair, generation, to, &bytes);
            }
            Event::Written(number) => self.written(number),
            Event::Head(number) => self.head(now, number),
            Event::Tail(number) => self.tail(now, number),
            Event::Lost { node, peer, failure } => self.members[node].role.lost(peer, failure),
            Event::Connect(at) => {
                // What does not fit shows in the snapshots.
                if self.pairs[at].link.is_none() {
                    drop(self.open(now, at));
                }
            }
        }
    }

    fn arrive(&mut self, now: Time, at: usize, generation: u64, to: Side, bytes: &[u8]) {
        let pair = &mut self.pairs[at];
        let Some(link) = pair.link.as_mut().filter(|l| l.generation == generation) else { return };
        let (lane, node, peer) = match to {
            Side::Send => (&mut link.to_prefill, pair.prefill, link.prefill_peer),
            Side::Recv => (&mut link.to_decode, pair.decode, link.decode_peer),
        };
        lane.decoder.feed(bytes);
        match lane.decoder.take() {
            Ok(Some(Item::Message(message))) => self.members[node].role.message(peer, message),
            Ok(Some(Item::Frame(..)) | None) => {
                self.broken(now, at, to, &DecodeError::Head { kind: "message" });
            }
            Err(error) => self.broken(now, at, to, &error),
        }
    }

    /// One side cannot read what it gets, and closes the connection.
    fn broken(&mut self, now: Time, at: usize, side: Side, error: &DecodeError) {
        let corrupt = error.is_corruption();
        let why = if corrupt { Failure::Checksum } else { Failure::Protocol };
        match side {
            Side::Send => self.lose(now, at, Failure::PeerGone, why),
            Side::Recv => self.lose(now, at, why, Failure::PeerGone),
        }
    }

    /// The network has a frame, or does not take it: its pages are free.
    fn written(&mut self, number: u64) {
        let Some(flight) = self.flights.get_mut(&number) else { return };
        let Some((job, bytes)) = flight.job.take() else { return };
        let pair = &self.pairs[flight.pair];
        let member = &self.members[pair.prefill];
        let Some(port) = member.role.prefill() else { return };
        let header = FrameHeader::decode(&bytes.head, usize::MAX).expect("we wrote it");
        let now = bytes.payload.concat();
        assert!(header.intact(&now), "a page of {:?} changed while it was sent", job.key());
        let whole = pair.link.as_ref().is_some_and(|link| link.generation == flight.generation);
        let sent = flight.taken && whole;
        drop(bytes);
        if !flight.taken {
            self.flights.remove(&number);
        }
        port.with(|end, now| end.frame_ends(now, job, sent));
    }

    fn head(&mut self, now: Time, number: u64) {
        let Some(flight) = self.flights.get(&number) else { return };
        let (at, head) = (flight.pair, flight.head);
        let pair = &self.pairs[at];
        let Some(link) = pair.link.as_ref().filter(|l| l.generation == flight.generation) else {
            return;
        };
        let peer = link.decode_peer;
        let Some(port) = self.members[pair.decode].role.decode() else { return };
        let most = self.members[pair.decode].node.shape.payload_max();
        match FrameHeader::decode(&head, most) {
            Ok(header) => {
                let writing = port.with(|end, now| end.frame_begins(now, peer, &header));
                if let Some(flight) = self.flights.get_mut(&number) {
                    flight.writing = writing;
                }
            }
            Err(error) => self.broken(now, at, Side::Recv, &error),
        }
    }

    /// What was begun is written to its end, whatever became of the connection: the bytes are in
    /// this worker's hands.
    fn tail(&mut self, now: Time, number: u64) {
        let Some(mut flight) = self.flights.remove(&number) else { return };
        let Some(writing) = flight.writing.take() else { return };
        let member = &self.members[self.pairs[flight.pair].decode];
        let Some(port) = member.role.decode() else { return };
        let header = FrameHeader::decode(&flight.head, usize::MAX).expect("it was read before");
        let intact = header.intact(&flight.payload);
        if intact {
            writing.write(&flight.payload, &*member.node.pages);
        }
        port.with(|end, now| end.frame_ends(now, writing, intact));
        // A broken one does not: whether the peer has it would be nobody's to know.
        if intact && self.dice.chance(self.faults.duplicate) {
            self.numbers += 1;
            let number = self.numbers;
            self.flights.insert(number, flight);
            let again = now + self.dice.up_to(self.faults.jitter);
            self.schedule(again, Event::Head(number));
            self.schedule(again, Event::Tail(number));
        }
    }
}
