use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use types::{Priority, TokenId};

use super::*;
use crate::handshake::{Hello, Proof, Ready, Refused, Welcome};
use crate::message::{Answer, CachedTokens, Offer, Rejected, RemoteTimes};
use crate::shape::{PartShape, Shape};
use crate::{Failure, OFFER_TOKENS_MAX, PAYLOAD_BYTES};

fn rooms() -> impl Strategy<Value = Room> {
    any::<u128>().prop_map(Room)
}

/// What the wire keeps of a duration.
fn durations() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_micros)
}

fn failures() -> impl Strategy<Value = Failure> {
    proptest::sample::select(&Failure::ALL[..])
}

fn shapes() -> impl Strategy<Value = Shape> {
    let part = (".{0,8}", any::<u16>(), vec(any::<u16>(), 0..5), any::<u32>(), any::<bool>());
    let part = part.prop_map(|(name, pool, layers, layer_bytes, replicated)| PartShape {
        name,
        pool,
        layers,
        layer_bytes,
        replicated,
    });
    (".{0,20}", any::<u32>(), ".{0,8}", any::<u16>(), vec(part, 0..4)).prop_map(
        |(model, page_tokens, kv_dtype, ranks, parts)| Shape {
            model,
            page_tokens,
            kv_dtype,
            ranks,
            parts,
        },
    )
}

fn handshakes() -> impl Strategy<Value = Message> {
    prop_oneof![
        (any::<u16>(), any::<bool>(), any::<[u8; 32]>(), any::<Option<[u8; 16]>>()).prop_map(
            |(protocol, secret, nonce, joins)| {
                Message::Hello(Hello { protocol, secret, nonce, joins })
            }
        ),
        (any::<u16>(), any::<[u8; 32]>(), any::<[u8; 32]>()).prop_map(
            |(protocol, nonce, proof)| Message::Welcome(Welcome { protocol, nonce, proof })
        ),
        (any::<[u8; 32]>(), ".{0,30}", shapes())
            .prop_map(|(proof, name, shape)| Message::Proof(Proof { proof, name, shape })),
        (any::<[u8; 16]>(), any::<u32>(), shapes())
            .prop_map(|(link, rooms_max, shape)| Message::Ready(Ready { link, rooms_max, shape })),
        ".{0,100}".prop_map(|reason| Message::Refused(Refused { reason })),
    ]
}

fn offers() -> impl Strategy<Value = Message> {
    let texts = (".{0,40}", any::<Option<String>>(), any::<Option<String>>());
    let rest = (rooms(), vec(any::<u32>(), 1..200), vec(any::<u8>(), 0..40), -100_i64..=100);
    (texts, rest).prop_map(|((request, traceparent, tenant), rest)| {
        let (room, tokens, namespace, level) = rest;
        let short = |text: String| text.chars().take(60).collect();
        Message::Offer(Offer {
            room,
            request,
            traceparent: traceparent.map(short),
            tokens: tokens.into_iter().map(TokenId).collect(),
            namespace,
            priority: Priority::new(level).unwrap(),
            tenant: tenant.map(short),
        })
    })
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![
        durations().prop_map(|drain| Answer::Accepted { drain }),
        (any::<u8>(), durations(), any::<u64>(), any::<u64>()).prop_map(
            |(reason, retry_after, value, limit)| {
                Answer::Rejected(Rejected { reason, retry_after, value, limit })
            }
        ),
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let sent = (rooms(), any::<u32>(), durations(), durations(), any::<[u64; 3]>());
    prop_oneof![
        offers(),
        (rooms(), answers()).prop_map(|(room, answer)| Message::Answer { room, answer }),
        (rooms(), any::<u64>()).prop_map(|(room, skip_tokens)| Message::Land { room, skip_tokens }),
        rooms().prop_map(|room| Message::Started { room }),
        sent.prop_map(|(room, frames, queued, prefill, [device, host, storage])| {
            let cached = CachedTokens { device, host, storage };
            Message::Sent { room, frames, times: RemoteTimes { queued, prefill, cached } }
        }),
        (rooms(), any::<u32>(), any::<u8>()).prop_map(|(room, frame, broken)| Message::Again {
            room,
            frame,
            broken
        }),
        rooms().prop_map(|room| Message::Received { room }),
        (rooms(), failures()).prop_map(|(room, failure)| Message::Abort { room, failure }),
        (rooms(), failures()).prop_map(|(room, failure)| Message::Ended { room, failure }),
        any::<u64>().prop_map(|number| Message::Ping { number }),
        any::<u64>().prop_map(|number| Message::Pong { number }),
    ]
}

fn frames() -> impl Strategy<Value = (FrameHeader, Vec<u8>)> {
    let numbers = (rooms(), any::<u32>(), any::<[u16; 5]>(), any::<u32>());
    (numbers, vec(any::<u8>(), 0..300)).prop_map(|((room, seq, shorts, first_page), payload)| {
        let [rank, part, first_layer, layers, pages] = shorts;
        let length = payload.len() as u32;
        let checksum = payload_checksum(payload.chunks(7));
        let header = FrameHeader {
            length,
            room,
            seq,
            rank,
            part,
            first_layer,
            layers,
            first_page,
            pages,
            checksum,
        };
        (header, payload)
    })
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let frame = frames().prop_map(|(header, payload)| Item::Frame(header, payload.into()));
    vec(prop_oneof![messages().prop_map(Item::Message), frame], 0..8)
}

fn encode(items: &[Item]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let mut bytes = Vec::new();
    for item in items {
        match item {
            Item::Message(message) => bytes.extend(encoder.message(message)),
            Item::Frame(header, payload) => {
                bytes.extend(header.encode());
                bytes.extend(payload);
            }
        }
    }
    bytes
}

fn opened() -> Decoder {
    let mut decoder = Decoder::new();
    decoder.open(PAYLOAD_BYTES);
    decoder
}

/// Everything in `bytes`, and why there is no more.
fn decode(mut decoder: Decoder, bytes: &[u8]) -> (Vec<Item>, Option<DecodeError>) {
    let mut items = Vec::new();
    decoder.feed(bytes);
    loop {
        match decoder.take() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, None),
            Err(error) => return (items, Some(error)),
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read_in_any_portions(
        items in items(),
        cuts in vec(1_usize..120, 1..40),
    ) {
        let bytes = encode(&items);
        let mut decoder = opened();
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        for cut in cuts.iter().cycle() {
            while let Some(item) = decoder.take().unwrap() {
                read.push(item);
            }
            if rest.is_empty() {
                break;
            }
            // Never more than it says is missing: it must not wait for what will not come.
            let missing = decoder.missing().unwrap();
            prop_assert!(missing > 0);
            let (now, later) = rest.split_at((*cut).min(missing).min(rest.len()));
            decoder.feed(now);
            rest = later;
        }
        prop_assert_eq!(read, items);
    }

    #[test]
    fn a_handshake_is_read(messages in vec(handshakes(), 1..5)) {
        let items: Vec<Item> = messages.into_iter().map(Item::Message).collect();
        prop_assert_eq!(decode(Decoder::new(), &encode(&items)), (items.clone(), None));
        // After the handshake there is none.
        let (read, error) = decode(opened(), &encode(&items));
        let after = matches!(error, Some(DecodeError::Handshake { when: "after", .. }));
        prop_assert!(read.is_empty() && after, "{:?}", error);
    }

    #[test]
    fn nothing_else_comes_before_the_handshake(items in items()) {
        prop_assume!(!items.is_empty());
        let (read, error) = decode(Decoder::new(), &encode(&items));
        let before = matches!(error, Some(DecodeError::Handshake { when: "before", .. }));
        prop_assert!(read.is_empty() && before, "{:?}", error);
    }

    #[test]
    fn a_flipped_bit_is_noticed(item in items(), at: prop::sample::Index) {
        prop_assume!(!item.is_empty());
        let mut bytes = encode(&item);
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (read, error) = decode(opened(), &bytes);
        let broken = |item: &Item| match item {
            Item::Message(_) => false,
            Item::Frame(header, payload) => !header.intact(payload),
        };
        // Either the stream ends with an error, or exactly one frame is not intact.
        prop_assert!(error.is_some() != (read.iter().filter(|i| broken(i)).count() == 1));
        // What was read before is right, and nothing is waited for.
        let same = read.iter().zip(&item).filter(|(one, other)| one != other).count();
        prop_assert!(same <= 1 && (error.is_some() || read.len() == item.len()));
    }

    #[test]
    fn any_bytes_are_no_panic(bytes: Vec<u8>, kind in 0_u8..30, open: bool, ours: bool) {
        let mut all = bytes.clone();
        if ours {
            // Right checksums around wrong content: what a hostile peer can do.
            all = vec![0; MESSAGE_HEADER_BYTES];
            all[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            all[4] = kind;
            all[16..24].copy_from_slice(&xxh3_64(&bytes).to_le_bytes());
            let head = xxh3_64(&all[..24]);
            all[24..32].copy_from_slice(&head.to_le_bytes());
            all.extend(&bytes);
        }
        let (read, error) = decode(if open { opened() } else { Decoder::new() }, &all);
        if let Some(error) = error {
            prop_assert!(!error.to_string().is_empty());
        }
        // What is read is what would be written.
        prop_assert!(!ours || read.is_empty() || encode(&read) == all[..encode(&read).len()]);
    }

    #[test]
    fn a_frame_header_is_64_bytes(frame in frames(), at in 0_usize..64, bit in 0_u8..8) {
        let (header, payload) = frame;
        let mut bytes = header.encode();
        prop_assert_eq!(FrameHeader::decode(&bytes, payload.len()), Ok(header));
        prop_assert!(header.intact(&payload));
        bytes[at] ^= 1 << bit;
        prop_assert!(FrameHeader::decode(&bytes, PAYLOAD_BYTES).is_err());
    }
}

/// A head with right checksums, as a peer may make it.
fn head(kind: u8, length: u32, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; MESSAGE_HEADER_BYTES];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4] = kind;
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let checksum = xxh3_64(&bytes[..24]);
    bytes[24..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn lengths_are_bounded_before_anything_is_waited_for() {
    let check = |decoder, bytes: &[u8], expected: &str| {
        let (_, error) = decode(decoder, bytes);
        assert_eq!(error.unwrap().to_string(), expected);
    };
    let limit = OFFER_TOKENS_MAX * 4 + 4096 + 3 * 256 + 64;
    check(
        opened(),
        &head(16, u32::MAX, 0),
        &format!("a message says it has 4294967295 bytes, more than {limit}"),
    );
    check(opened(), &head(23, 129, 0), "a message says it has 129 bytes, more than 128");
    check(
        Decoder::new(),
        &head(3, 300 << 10, 0),
        "a message says it has 307200 bytes, more than 262144",
    );
    check(opened(), &head(99, 0, 0), "there is no message of kind 99");
    check(Decoder::new(), &head(16, 100, 0), "kind 16 has no place before the handshake");
    check(opened(), &head(25, 8, 3), "message 3 came where message 0 was due");
    let frame = FrameHeader {
        length: PAYLOAD_BYTES as u32 + 1,
        room: Room(1),
        seq: 0,
        rank: 0,
        part: 0,
        first_layer: 0,
        layers: 1,
        first_page: 0,
        pages: 1,
        checksum: 0,
    };
    let expected =
        format!("a frame says it has {} bytes, more than {PAYLOAD_BYTES}", PAYLOAD_BYTES + 1);
    check(opened(), &frame.encode(), &expected);
}

#[test]
fn a_body_names_the_field_that_is_wrong() {
    let read = |kind, body: &[u8]| body::read(kind, body).unwrap_err().to_string();
    assert_eq!(read(25, &[0; 7]), "ends inside of number");
    assert_eq!(read(25, &[0; 9]), "has 1 bytes too many");
    assert_eq!(read(23, &[77; 17]), "failure is 77");
    assert_eq!(read(17, &[2; 17]), "answer is 2");
    assert_eq!(read(21, &[0; 16 + 4]), "ends inside of broken");
    assert_eq!(read(5, &[1, 0, 0, 0, 255]), "reason is not UTF-8");
    let mut offer = vec![0; 16 + 4 + 1 + 4];
    offer.extend(101_i32.to_le_bytes());
    assert_eq!(read(16, &offer), "priority is 101");
    let mut offer = vec![0; 16 + 4 + 1 + 4 + 4 + 1];
    offer.extend(0_u32.to_le_bytes());
    assert_eq!(read(16, &offer), "number of tokens is 0");
}

#[test]
fn a_decoder_keeps_saying_what_is_wrong() {
    let mut decoder = opened();
    decoder.feed(&head(99, 0, 0));
    let first = decoder.take();
    assert_eq!(first, Err(DecodeError::Kind(99)));
    decoder.feed(&Encoder::new().message(&Message::Ping { number: 1 }));
    assert_eq!(decoder.take(), first);
    assert!(decoder.missing().is_err());
}

#[test]
fn numbers_of_messages_are_checked_where_they_must_be() {
    let mut encoder = Encoder::new();
    let [a, b] = [1, 2].map(|number| encoder.message(&Message::Ping { number }));
    let twice = [a.clone(), b.clone(), b.clone()].concat();
    let (read, error) = decode(opened(), &twice);
    assert_eq!((read.len(), error), (2, Some(DecodeError::Order { expected: 2, found: 1 })));
    let mut decoder = Decoder::unordered();
    decoder.open(PAYLOAD_BYTES);
    assert_eq!(decode(decoder, &[b.clone(), a, b].concat()).0.len(), 3);
}

#[test]
fn only_changed_bytes_are_corruption() {
    let corrupt = |error: DecodeError| error.is_corruption();
    assert!(corrupt(DecodeError::Checksum(1)) && corrupt(DecodeError::Head { kind: "frame" }));
    assert!(!corrupt(DecodeError::Kind(9)));
    assert!(!corrupt(DecodeError::Order { expected: 1, found: 2 }));
}
