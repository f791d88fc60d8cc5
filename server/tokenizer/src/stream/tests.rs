use std::sync::Arc;

use proptest::prelude::*;
use types::TokenId;

use super::{StreamDecoder, append_lossy};
use crate::pieces::{Entry, Kind, Pieces, Spelling, byte_alphabet};

/// 256 single bytes, then some tokens of several bytes, then a special one.
fn pieces() -> Arc<Pieces> {
    let alphabet = byte_alphabet();
    let spell = |bytes: &[u8]| -> String {
        bytes.iter().map(|&byte| alphabet[usize::from(byte)]).collect()
    };
    let parts: [&[u8]; 6] =
        [b"hello", "é".as_bytes(), b"\xf0\x9f", b"\x8c\x8a", b"a\xe6\xbd", b"\xae\xf0"];
    let mut texts: Vec<String> = (0..=255).map(|byte| spell(&[byte])).collect();
    texts.extend(parts.iter().map(|bytes| spell(bytes)));
    texts.push("<|end|>".to_owned());
    let last = texts.len() - 1;
    let entries: Vec<Entry<'_>> = texts
        .iter()
        .enumerate()
        .map(|(id, text)| Entry {
            id: u32::try_from(id).expect("small"),
            text,
            kind: if id == last { Kind::Special } else { Kind::Normal },
        })
        .collect();
    Arc::new(Pieces::new(&entries, Spelling::ByteLevel).expect("a valid vocabulary"))
}

const SPECIAL: u32 = 262;

fn streamed(ids: &[u32], skip_special: bool) -> (Vec<String>, String) {
    let mut decoder = StreamDecoder::new(pieces(), skip_special);
    let mut shown: Vec<String> = ids.iter().map(|&id| decoder.push(TokenId(id))).collect();
    shown.push(decoder.flush());
    let whole = shown.concat();
    (shown, whole)
}

#[test]
fn a_character_appears_with_its_last_byte() {
    let (shown, _) = streamed(&[258, 259, 260, 261], true);
    // The wave is complete with its second half; the third character with the byte AE, and what
    // follows it stays incomplete to the end.
    assert_eq!(shown, ["", "🌊", "a", "潮", "\u{fffd}"]);
}

#[test]
fn special_tokens_are_left_out_where_asked() {
    assert_eq!(streamed(&[256, SPECIAL, 256], true).1, "hellohello");
    assert_eq!(streamed(&[256, SPECIAL, 256], false).1, "hello<|end|>hello");
    // Skipping one does not end the character around it.
    assert_eq!(streamed(&[258, SPECIAL, 259], true).1, "🌊");
}

#[test]
fn an_id_without_a_token_adds_nothing() {
    assert_eq!(streamed(&[256, 263, u32::MAX, 256], true).1, "hellohello");
}

#[test]
fn the_table_of_bytes_is_a_bijection() {
    let alphabet: std::collections::HashSet<char> = byte_alphabet().into_iter().collect();
    assert_eq!(alphabet.len(), 256);
    assert_eq!(byte_alphabet()[usize::from(b' ')], 'Ġ');
    assert_eq!(byte_alphabet()[usize::from(b'\n')], 'Ċ');
    assert_eq!(byte_alphabet()[0xff], 'ÿ');
}

proptest! {
    #[test]
    fn streaming_equals_decoding_at_once(ids in prop::collection::vec(0u32..264, 0..60)) {
        let pieces = pieces();
        let bytes: Vec<u8> = ids
            .iter()
            .filter(|&&id| id != SPECIAL)
            .flat_map(|&id| pieces.bytes(TokenId(id)).unwrap_or_default().to_vec())
            .collect();
        let (shown, whole) = streamed(&ids, true);
        prop_assert_eq!(whole, String::from_utf8_lossy(&bytes));
        // Nothing is held back longer than a character can be.
        let before_flush: usize = shown[..ids.len()].iter().map(String::len).sum();
        prop_assert!(before_flush + 3 >= bytes.iter().filter(|byte| byte.is_ascii()).count());
    }

    #[test]
    fn at_most_three_bytes_are_undecided(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let mut text = String::new();
        let rest = append_lossy(&bytes, &mut text);
        prop_assert!(rest.len() <= 3);
        text.push_str(&String::from_utf8_lossy(rest));
        prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}
