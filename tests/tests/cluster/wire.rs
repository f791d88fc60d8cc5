//! The connections between prefill and decode workers: delays, losses, and what is carried.

use std::time::Duration;

use transfer::{Act, Failure, FrameHeader, Message, PeerId, PeerName, Side};
use types::Time;

use super::event::{Event, To, Which};
use super::worker::{Port, Worker};
use super::world::World;

/// How links behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    /// One way.
    pub(crate) delay: (u64, u64),
    /// Bytes per second.
    pub(crate) bandwidth: u64,
    /// Of a thousand control messages, so many come twice.
    pub(crate) twice: u64,
    /// Of a thousand control messages, so many are overtaken.
    pub(crate) late: u64,
    /// Of a thousand frames, so many arrive broken.
    pub(crate) broken: u64,
}

/// The connections of one pair.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) prefill: usize,
    pub(crate) decode: usize,
    /// Counts the connections; what belongs to an earlier one is lost.
    pub(crate) epoch: u64,
    /// What the ends call each other: the prefill worker at the decode end, and the reverse.
    pub(crate) at_decode: Option<PeerId>,
    pub(crate) at_prefill: Option<PeerId>,
    /// Nothing comes through, and nobody has been told.
    pub(crate) silent: bool,
    /// When the last thing sent that way arrives: nothing overtakes on a connection.
    to_decode: Time,
    to_prefill: Time,
    frames: Time,
}

impl Wire {
    pub(crate) const fn new(prefill: usize, decode: usize) -> Self {
        Self {
            prefill,
            decode,
            epoch: 0,
            at_decode: None,
            at_prefill: None,
            silent: false,
            to_decode: Time::ZERO,
            to_prefill: Time::ZERO,
            frames: Time::ZERO,
        }
    }

    pub(crate) const fn is_down(&self) -> bool {
        self.at_decode.is_none() && self.at_prefill.is_none()
    }
}

impl World {
    /// A decode worker connects, where both are alive and nothing connects them.
    pub(crate) fn connect(&mut self, wire: usize) {
        let Wire { prefill, decode, .. } = self.wires[wire];
        if !self.wires[wire].is_down() {
            return;
        }
        let (Some(sender), Some(receiver)) = (&self.prefills[prefill], &self.decodes[decode])
        else {
            self.agenda.plan(self.now + Duration::from_millis(500), Event::Connect(wire));
            return;
        };
        sender.clock.reach(self.now);
        receiver.clock.reach(self.now);
        let name = |which| self.names[&which].clone();
        let (Port::Prefill(sends), Port::Decode(receives)) = (&sender.port, &receiver.port) else {
            unreachable!("a pair");
        };
        let at_prefill = sends.with(|end, now| end.connected(now, name(Which::Decode(decode))));
        let at_decode =
            receives.with(|end, now| end.connected(now, name(Which::Prefill(prefill)), 1024));
        let now = self.now;
        let wire = &mut self.wires[wire];
        wire.epoch += 1;
        (wire.at_prefill, wire.at_decode) = (Some(at_prefill), Some(at_decode));
        wire.silent = false;
        (wire.to_decode, wire.to_prefill, wire.frames) = (now, now, now);
        self.attend(Which::Prefill(prefill));
        self.attend(Which::Decode(decode));
    }

    /// A connection breaks.
    pub(crate) fn cut(&mut self, wire: usize, silent: bool) {
        let now = self.now;
        if self.wires[wire].is_down() {
            return;
        }
        if silent {
            self.wires[wire].silent = true;
            return;
        }
        let epoch = self.wires[wire].epoch;
        self.wires[wire].silent = true;
        for to in [To::Prefill, To::Decode] {
            let at = now + self.dice.micros(0, 50_000);
            self.agenda.plan(at, Event::Lost { wire, epoch, to });
        }
    }

    /// One end learns that its connections are gone.
    pub(crate) fn lose(&mut self, wire: usize, epoch: u64, to: To) {
        if self.wires[wire].epoch != epoch {
            return;
        }
        let Wire { prefill, decode, at_decode, at_prefill, .. } = self.wires[wire];
        match to {
            To::Decode => {
                if let (Some(peer), Some(worker)) = (at_decode, &self.decodes[decode])
                    && let Port::Decode(port) = &worker.port
                {
                    worker.clock.reach(self.now);
                    port.with(|end, now| end.lost(now, peer, Failure::PeerGone));
                }
                self.forget(wire, To::Decode);
                self.attend(Which::Decode(decode));
            }
            To::Prefill => {
                if let (Some(peer), Some(worker)) = (at_prefill, &self.prefills[prefill])
                    && let Port::Prefill(port) = &worker.port
                {
                    worker.clock.reach(self.now);
                    port.with(|end, now| end.lost(now, peer, Failure::PeerGone));
                }
                self.forget(wire, To::Prefill);
                self.attend(Which::Prefill(prefill));
            }
        }
    }

    /// An end has given up a connection: the other learns it, and it is made anew.
    fn forget(&mut self, wire: usize, to: To) {
        let now = self.now;
        let state = &mut self.wires[wire];
        let (gone, other) = match to {
            To::Decode => (state.at_decode.take(), To::Prefill),
            To::Prefill => (state.at_prefill.take(), To::Decode),
        };
        if gone.is_none() {
            return;
        }
        state.silent = true;
        let epoch = state.epoch;
        if state.is_down() {
            self.agenda.plan(now + self.dice.micros(1000, 500_000), Event::Connect(wire));
        } else {
            let at = now + self.dice.micros(0, 50_000);
            self.agenda.plan(at, Event::Lost { wire, epoch, to: other });
        }
    }

    /// Carries out what an end wants.
    pub(crate) fn act(&mut self, which: Which, act: Act) -> Result<(), String> {
        match act {
            Act::Control(peer, message) => self.control(which, peer, &message),
            Act::Lost(peer, _) => {
                if let Some((wire, to)) = self.wire_at(which, peer) {
                    self.forget(wire, to);
                }
            }
            Act::Violated(_, room, violation) => {
                self.tally.violations += 1;
                // Only messages that come twice or late look like that.
                if self.weather.twice == 0 && self.weather.late == 0 {
                    return Err(format!("{which:?} was told nonsense in {room:?}: {violation:?}"));
                }
            }
        }
        Ok(())
    }

    /// The wire whose end at `which` is called `peer`, and that end.
    fn wire_at(&self, which: Which, peer: PeerId) -> Option<(usize, To)> {
        let at = |wire: &Wire| match which {
            Which::Prefill(own) => wire.prefill == own && wire.at_prefill == Some(peer),
            Which::Decode(own) => wire.decode == own && wire.at_decode == Some(peer),
        };
        let to = match which {
            Which::Prefill(_) => To::Prefill,
            Which::Decode(_) => To::Decode,
        };
        self.wires.iter().position(at).map(|wire| (wire, to))
    }

    fn control(&mut self, from: Which, peer: PeerId, message: &Message) {
        let Some((wire, _)) = self.wire_at(from, peer) else { return };
        let Weather { delay: (low, high), twice, late, .. } = self.weather;
        let (now, epoch) = (self.now, self.wires[wire].epoch);
        if self.wires[wire].silent {
            return;
        }
        let to = match from {
            Which::Prefill(_) => To::Decode,
            Which::Decode(_) => To::Prefill,
        };
        let copies = 1 + u64::from(self.dice.chance(twice));
        for _ in 0..copies {
            let mut at = now + self.dice.micros(low, high);
            if !self.dice.chance(late) {
                let state = &mut self.wires[wire];
                let last = match to {
                    To::Decode => &mut state.to_decode,
                    To::Prefill => &mut state.to_prefill,
                };
                at = at.max(*last);
                *last = at;
            }
            let message = message.clone();
            self.agenda.plan(at, Event::Message { wire, epoch, to, message });
        }
    }

    /// A control message comes.
    pub(crate) fn deliver(&mut self, wire: usize, epoch: u64, to: To, message: Message) {
        let Wire { prefill, decode, at_decode, at_prefill, silent, .. } = self.wires[wire];
        if self.wires[wire].epoch != epoch || silent {
            return;
        }
        let which = match to {
            To::Decode => Which::Decode(decode),
            To::Prefill => Which::Prefill(prefill),
        };
        let Some(worker) = self.worker(which) else { return };
        worker.clock.reach(self.now);
        match (&worker.port, at_decode, at_prefill) {
            (Port::Decode(port), Some(peer), _) => {
                port.with(|end, now| end.on_message(now, peer, message));
            }
            (Port::Prefill(port), _, Some(peer)) => {
                port.with(|end, now| end.on_message(now, peer, message));
            }
            (Port::Decode(_) | Port::Prefill(_), _, _) => {}
        }
        self.attend(which);
    }

    /// Frames that are computed leave.
    pub(crate) fn send_frames(&mut self, prefill: usize) {
        for wire in 0..self.wires.len() {
            if self.wires[wire].prefill != prefill {
                continue;
            }
            let Some(peer) = self.wires[wire].at_prefill else { continue };
            loop {
                let Some(Worker { port: Port::Prefill(port), pages, .. }) = &self.prefills[prefill]
                else {
                    return;
                };
                let Some(job) = port.next_frame(peer) else { break };
                let bytes = job.load(&**pages);
                let payload = bytes.payload.iter().flat_map(|part| part.to_vec()).collect();
                let header = FrameHeader::decode(&bytes.head, transfer::PAYLOAD_BYTES);
                let header = header.expect("it was just encoded");
                drop(bytes);
                port.with(|end, now| end.frame_ends(now, job, true));
                self.carry(wire, header, payload);
            }
        }
    }

    fn carry(&mut self, wire: usize, header: FrameHeader, mut payload: Vec<u8>) {
        let Weather { delay: (low, high), bandwidth, broken, .. } = self.weather;
        if self.wires[wire].silent {
            return;
        }
        if self.dice.chance(broken) && !payload.is_empty() {
            let at = self.dice.size(0, payload.len() - 1);
            payload[at] ^= 1 << self.dice.within(0, 7);
            self.tally.broken_frames += 1;
        }
        let time = Duration::from_nanos(payload.len() as u64 * 1_000_000_000 / bandwidth);
        let delay = self.dice.micros(low, high);
        let (now, state) = (self.now, &mut self.wires[wire]);
        let at = (state.frames + time).max(now + delay + time);
        state.frames = at;
        let epoch = state.epoch;
        self.agenda.plan(at, Event::Frame { wire, epoch, header, payload });
    }

    /// Pages come.
    pub(crate) fn take_frame(
        &mut self,
        wire: usize,
        epoch: u64,
        header: &FrameHeader,
        payload: &[u8],
    ) {
        let Wire { decode, at_decode, silent, .. } = self.wires[wire];
        if self.wires[wire].epoch != epoch || silent {
            return;
        }
        let (Some(peer), Some(worker)) = (at_decode, &self.decodes[decode]) else { return };
        let Port::Decode(port) = &worker.port else { unreachable!("a decode worker") };
        worker.clock.reach(self.now);
        port.with(|end, now| end.on_frame(now, peer, header, payload, &*worker.pages));
        self.attend(Which::Decode(decode));
    }

    /// The transfers that ended on one side, in every life.
    pub(crate) fn note_ends(&mut self, which: Which) {
        let Some(worker) = self.worker(which) else { return };
        let ends = std::mem::take(&mut *super::rig::lock(&worker.ends.0));
        for end in ends {
            let count = match end.side {
                Side::Send => &mut self.tally.sent,
                Side::Recv => &mut self.tally.received,
            };
            match end.result {
                Ok(()) => count.ok += 1,
                Err(why) => *count.failed.entry(why.label()).or_default() += 1,
            }
        }
    }

    /// A name out of the configuration.
    pub(crate) fn peer_name(which: Which) -> PeerName {
        match which {
            Which::Prefill(index) => PeerName::new(&format!("prefill-{index}:8001")),
            Which::Decode(index) => PeerName::new(&format!("decode-{index}:8002")),
        }
    }
}
