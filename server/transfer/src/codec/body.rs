//! The bodies of messages, field by field.

use std::time::Duration;

use types::{Priority, TokenId};

use crate::failure::Failure;
use crate::handshake::{Hello, Proof, Ready, Refused, Welcome};
use crate::message::{Answer, CachedTokens, Message, Offer, Rejected, RemoteTimes};
use crate::room::Room;
use crate::shape::{PartShape, Shape};
use crate::{OFFER_TOKENS_MAX, PARTS_MAX};

pub(crate) const TEXT_MAX: usize = 256;
pub(crate) const NAMESPACE_MAX: usize = 4096;
pub(crate) const REASON_MAX: usize = 1024;
const PART_NAME_MAX: usize = 64;
const MODEL_MAX: usize = 128;
const DTYPE_MAX: usize = 32;
const LAYERS_MAX: usize = 4096;
/// Of a message with a shape.
const SHAPE_MESSAGE_MAX: usize = 256 << 10;

/// What is wrong with the body of a message whose checksum is right: the peer's software.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It ends inside a field.
    #[error("ends inside of {0}")]
    Ends(&'static str),
    /// Bytes are left over.
    #[error("has {0} bytes too many")]
    Extra(usize),
    /// A text or a list is too long.
    #[error("{field} has length {length}, more than {limit}")]
    TooLong {
        /// Which one.
        field: &'static str,
        /// What it says.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// A field has a value that nothing has.
    #[error("{field} is {value}")]
    Value {
        /// Which one.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// A text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Text(&'static str),
}

/// The number of a message's kind.
pub(super) const fn kind(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => 1,
        Message::Welcome(_) => 2,
        Message::Proof(_) => 3,
        Message::Ready(_) => 4,
        Message::Refused(_) => 5,
        Message::Offer(_) => 16,
        Message::Answer { .. } => 17,
        Message::Land { .. } => 18,
        Message::Started { .. } => 19,
        Message::Sent { .. } => 20,
        Message::Again { .. } => 21,
        Message::Received { .. } => 22,
        Message::Abort { .. } => 23,
        Message::Ended { .. } => 24,
        Message::Ping { .. } => 25,
        Message::Pong { .. } => 26,
    }
}

/// Whether a kind belongs to the handshake.
pub(super) const fn is_handshake(kind: u8) -> bool {
    kind <= 5
}

/// Most bytes of the body of a message of a kind; `None` where there is no such kind.
pub(super) const fn limit(kind: u8) -> Option<usize> {
    match kind {
        1 | 2 => Some(128),
        3 | 4 => Some(SHAPE_MESSAGE_MAX),
        5 => Some(REASON_MAX + 4),
        16 => Some(OFFER_TOKENS_MAX * 4 + NAMESPACE_MAX + 3 * TEXT_MAX + 64),
        17..=26 => Some(128),
        _ => None,
    }
}

/// Appends the body of a message.
pub(super) fn write(message: &Message, out: &mut Vec<u8>) {
    let mut out = Writer(out);
    match message {
        Message::Hello(hello) => {
            out.u16(hello.protocol);
            out.bool(hello.secret);
            out.raw(&hello.nonce);
            out.bool(hello.joins.is_some());
            out.raw(hello.joins.as_ref().map_or(&[][..], |link| link));
        }
        Message::Welcome(welcome) => {
            out.u16(welcome.protocol);
            out.raw(&welcome.nonce);
            out.raw(&welcome.proof);
        }
        Message::Proof(proof) => {
            out.raw(&proof.proof);
            out.text(&proof.name, TEXT_MAX);
            out.shape(&proof.shape);
        }
        Message::Ready(ready) => {
            out.raw(&ready.link);
            out.u32(ready.rooms_max);
            out.shape(&ready.shape);
        }
        Message::Refused(refused) => out.text(&refused.reason, REASON_MAX),
        Message::Offer(offer) => out.offer(offer),
        Message::Answer { room, answer } => {
            out.room(*room);
            out.answer(answer);
        }
        Message::Land { room, skip_tokens } => {
            out.room(*room);
            out.u64(*skip_tokens);
        }
        Message::Started { room } | Message::Received { room } => out.room(*room),
        Message::Sent { room, frames, times } => {
            out.room(*room);
            out.u32(*frames);
            out.duration(times.queued);
            out.duration(times.prefill);
            let cached = &times.cached;
            for tokens in [cached.device, cached.host, cached.storage] {
                out.u64(tokens);
            }
        }
        Message::Again { room, frame, broken } => {
            out.room(*room);
            out.u32(*frame);
            out.u8(*broken);
        }
        Message::Abort { room, failure } | Message::Ended { room, failure } => {
            out.room(*room);
            out.u8(failure.code());
        }
        Message::Ping { number } | Message::Pong { number } => out.u64(*number),
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    fn u16(&mut self, value: u16) {
        self.raw(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.raw(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.raw(&value.to_le_bytes());
    }

    /// Microseconds; saturates after 584,000 years.
    fn duration(&mut self, value: Duration) {
        self.u64(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    fn room(&mut self, room: Room) {
        self.raw(&room.0.to_le_bytes());
    }

    fn count(&mut self, count: usize, limit: usize) {
        assert!(count <= limit, "{count} elements, at most {limit}");
        self.u32(u32::try_from(count).expect("below a limit that fits"));
    }

    fn bytes(&mut self, bytes: &[u8], limit: usize) {
        self.count(bytes.len(), limit);
        self.raw(bytes);
    }

    fn text(&mut self, text: &str, limit: usize) {
        self.bytes(text.as_bytes(), limit);
    }

    fn optional(&mut self, text: Option<&String>) {
        self.bool(text.is_some());
        if let Some(text) = text {
            self.text(text, TEXT_MAX);
        }
    }

    fn offer(&mut self, offer: &Offer) {
        self.room(offer.room);
        self.text(&offer.request, TEXT_MAX);
        self.optional(offer.traceparent.as_ref());
        self.bytes(&offer.namespace, NAMESPACE_MAX);
        self.raw(&offer.priority.level().to_le_bytes());
        self.optional(offer.tenant.as_ref());
        self.count(offer.tokens.len(), OFFER_TOKENS_MAX);
        self.0.reserve(offer.tokens.len() * 4);
        offer.tokens.iter().for_each(|token| self.u32(token.0));
    }

    fn answer(&mut self, answer: &Answer) {
        match answer {
            Answer::Accepted { drain } => {
                self.u8(1);
                self.duration(*drain);
            }
            Answer::Rejected(rejected) => {
                self.u8(0);
                self.u8(rejected.reason);
                self.duration(rejected.retry_after);
                self.u64(rejected.value);
                self.u64(rejected.limit);
            }
        }
    }

    fn shape(&mut self, shape: &Shape) {
        self.text(&shape.model, MODEL_MAX);
        self.u32(shape.page_tokens);
        self.text(&shape.kv_dtype, DTYPE_MAX);
        self.u16(shape.ranks);
        self.count(shape.parts.len(), PARTS_MAX);
        for part in &shape.parts {
            self.text(&part.name, PART_NAME_MAX);
            self.u16(part.pool);
            self.u32(part.layer_bytes);
            self.bool(part.replicated);
            self.count(part.layers.len(), LAYERS_MAX);
            part.layers.iter().for_each(|layer| self.u16(*layer));
        }
    }
}

/// The message of a kind in a body. Allocates no more than the body's own length.
pub(super) fn read(kind: u8, body: &[u8]) -> Result<Message, BodyError> {
    let mut body = Reader(body);
    let message = body.message(kind)?;
    if body.0.is_empty() { Ok(message) } else { Err(BodyError::Extra(body.0.len())) }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn message(&mut self, kind: u8) -> Result<Message, BodyError> {
        Ok(match kind {
            1 => Message::Hello(Hello {
                protocol: self.u16("protocol")?,
                secret: self.bool("secret")?,
                nonce: self.array("nonce")?,
                joins: if self.bool("joins")? { Some(self.array("joins")?) } else { None },
            }),
            2 => Message::Welcome(Welcome {
                protocol: self.u16("protocol")?,
                nonce: self.array("nonce")?,
                proof: self.array("proof")?,
            }),
            3 => Message::Proof(Proof {
                proof: self.array("proof")?,
                name: self.text("name", TEXT_MAX)?,
                shape: self.shape()?,
            }),
            4 => Message::Ready(Ready {
                link: self.array("link")?,
                rooms_max: self.u32("rooms_max")?,
                shape: self.shape()?,
            }),
            5 => Message::Refused(Refused { reason: self.text("reason", REASON_MAX)? }),
            16 => Message::Offer(self.offer()?),
            17 => Message::Answer { room: self.room()?, answer: self.answer()? },
            18 => Message::Land { room: self.room()?, skip_tokens: self.u64("skip_tokens")? },
            19 => Message::Started { room: self.room()? },
            20 => Message::Sent {
                room: self.room()?,
                frames: self.u32("frames")?,
                times: self.times()?,
            },
            21 => Message::Again {
                room: self.room()?,
                frame: self.u32("frame")?,
                broken: self.u8("broken")?,
            },
            22 => Message::Received { room: self.room()? },
            23 => Message::Abort { room: self.room()?, failure: self.failure()? },
            24 => Message::Ended { room: self.room()?, failure: self.failure()? },
            25 => Message::Ping { number: self.u64("number")? },
            26 => Message::Pong { number: self.u64("number")? },
            other => return Err(BodyError::Value { field: "kind", value: other.into() }),
        })
    }

    fn take(&mut self, bytes: usize, field: &'static str) -> Result<&'a [u8], BodyError> {
        let (head, tail) = self.0.split_at_checked(bytes).ok_or(BodyError::Ends(field))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], BodyError> {
        Ok(self.take(N, field)?.try_into().expect("as many as were taken"))
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, BodyError> {
        Ok(self.array::<1>(field)?[0])
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, BodyError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, BodyError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, BodyError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    fn bool(&mut self, field: &'static str) -> Result<bool, BodyError> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(BodyError::Value { field, value: other.into() }),
        }
    }

    fn duration(&mut self, field: &'static str) -> Result<Duration, BodyError> {
        Ok(Duration::from_micros(self.u64(field)?))
    }

    fn room(&mut self) -> Result<Room, BodyError> {
        Ok(Room(u128::from_le_bytes(self.array("room")?)))
    }

    fn count(&mut self, field: &'static str, limit: usize) -> Result<usize, BodyError> {
        let length = self.u32(field)? as usize;
        if length > limit {
            return Err(BodyError::TooLong { field, length, limit });
        }
        Ok(length)
    }

    fn bytes(&mut self, field: &'static str, limit: usize) -> Result<&'a [u8], BodyError> {
        let length = self.count(field, limit)?;
        self.take(length, field)
    }

    fn text(&mut self, field: &'static str, limit: usize) -> Result<String, BodyError> {
        let bytes = self.bytes(field, limit)?;
        let text = std::str::from_utf8(bytes).map_err(|_| BodyError::Text(field))?;
        Ok(text.to_owned())
    }

    fn optional(&mut self, field: &'static str) -> Result<Option<String>, BodyError> {
        if self.bool(field)? { self.text(field, TEXT_MAX).map(Some) } else { Ok(None) }
    }

    /// A list of numbers of `N` bytes each. The bytes are there before anything is allocated.
    fn list<const N: usize>(
        &mut self,
        field: &'static str,
        limit: usize,
    ) -> Result<&'a [[u8; N]], BodyError> {
        let length = self.count(field, limit)?;
        let (elements, _) = self.take(length * N, field)?.as_chunks();
        Ok(elements)
    }

    fn offer(&mut self) -> Result<Offer, BodyError> {
        let room = self.room()?;
        let request = self.text("request", TEXT_MAX)?;
        let traceparent = self.optional("traceparent")?;
        let namespace = self.bytes("namespace", NAMESPACE_MAX)?.to_vec();
        let level = i64::from(i32::from_le_bytes(self.array("priority")?));
        let priority = Priority::new(level)
            .map_err(|_| BodyError::Value { field: "priority", value: level })?;
        let tenant = self.optional("tenant")?;
        let tokens = self.list::<4>("tokens", OFFER_TOKENS_MAX)?;
        if tokens.is_empty() {
            return Err(BodyError::Value { field: "number of tokens", value: 0 });
        }
        let tokens = tokens.iter().map(|token| TokenId(u32::from_le_bytes(*token))).collect();
        Ok(Offer { room, request, traceparent, tokens, namespace, priority, tenant })
    }

    fn answer(&mut self) -> Result<Answer, BodyError> {
        if self.bool("answer")? {
            return Ok(Answer::Accepted { drain: self.duration("drain")? });
        }
        Ok(Answer::Rejected(Rejected {
            reason: self.u8("reason")?,
            retry_after: self.duration("retry_after")?,
            value: self.u64("value")?,
            limit: self.u64("limit")?,
        }))
    }

    fn times(&mut self) -> Result<RemoteTimes, BodyError> {
        let (queued, prefill) = (self.duration("queued")?, self.duration("prefill")?);
        let [device, host, storage] =
            [self.u64("device")?, self.u64("host")?, self.u64("storage")?];
        Ok(RemoteTimes { queued, prefill, cached: CachedTokens { device, host, storage } })
    }

    fn failure(&mut self) -> Result<Failure, BodyError> {
        let code = self.u8("failure")?;
        Failure::from_code(code).ok_or(BodyError::Value { field: "failure", value: code.into() })
    }

    fn shape(&mut self) -> Result<Shape, BodyError> {
        let model = self.text("model", MODEL_MAX)?;
        let page_tokens = self.u32("page_tokens")?;
        let kv_dtype = self.text("kv_dtype", DTYPE_MAX)?;
        let ranks = self.u16("ranks")?;
        let count = self.count("parts", PARTS_MAX)?;
        let parts = (0..count).map(|_| self.part()).collect::<Result<_, _>>()?;
        Ok(Shape { model, page_tokens, kv_dtype, ranks, parts })
    }

    fn part(&mut self) -> Result<PartShape, BodyError> {
        let name = self.text("part", PART_NAME_MAX)?;
        let pool = self.u16("pool")?;
        let layer_bytes = self.u32("layer_bytes")?;
        let replicated = self.bool("replicated")?;
        let layers = self.list::<2>("layers", LAYERS_MAX)?;
        let layers = layers.iter().map(|layer| u16::from_le_bytes(*layer)).collect();
        Ok(PartShape { name, pool, layers, layer_bytes, replicated })
    }
}
