//! What both ends must have in common: the model, and how its KV lies in pages.

use memory_pool::PageBytes;

/// A part of a pool as it goes over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartShape {
    /// Its name, at most 64 bytes.
    pub name: String,
    /// Its pool.
    pub pool: u16,
    /// The model's layers whose rows it holds, ascending.
    pub layers: Vec<u16>,
    /// Bytes of one page in one layer, on one rank.
    pub layer_bytes: u32,
    /// Whether every rank holds the same bytes.
    pub replicated: bool,
}

/// A worker's model and layout. Two workers can exchange KV where these fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The fingerprint of configuration and weights, as text; at most 128 bytes.
    pub model: String,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// The type of the KV numbers; at most 32 bytes.
    pub kv_dtype: String,
    /// Tensor-parallel ranks.
    pub ranks: u16,
    /// The parts of all pools, in the model's order; at most [`PARTS_MAX`](crate::PARTS_MAX).
    pub parts: Vec<PartShape>,
}

impl Shape {
    /// Of a worker whose pages are `pages`.
    ///
    /// # Panics
    /// Where a number of the layout does not fit its field: no model has 65,536 layers.
    #[must_use]
    pub fn of(model: &str, page_tokens: u32, kv_dtype: &str, pages: &dyn PageBytes) -> Self {
        let short = |value: usize| u16::try_from(value).expect("layers, ranks: below 65,536");
        let part = |part: &memory_pool::LinkPart| PartShape {
            name: part.name.to_owned(),
            pool: part.pool.0,
            layers: part.layers.iter().map(|layer| short(*layer)).collect(),
            layer_bytes: u32::try_from(part.layer_bytes).expect("a layer of a page is below 4 GiB"),
            replicated: part.replicated,
        };
        Self {
            model: model.to_owned(),
            page_tokens,
            kv_dtype: kv_dtype.to_owned(),
            ranks: short(pages.ranks()),
            parts: pages.parts().iter().map(part).collect(),
        }
    }
}

/// Why two workers cannot exchange KV. Says what both have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: the prefill worker has {prefill}, the decode worker has {decode}")]
pub struct Mismatch {
    /// What does not fit.
    pub what: String,
    /// The prefill worker's.
    pub prefill: String,
    /// The decode worker's.
    pub decode: String,
}

impl Shape {
    /// The largest payload of a frame between workers of this shape.
    #[must_use]
    pub fn payload_max(&self) -> usize {
        let largest = self.parts.iter().map(|part| part.layer_bytes as usize).max();
        largest.unwrap_or(0).max(crate::PAYLOAD_BYTES)
    }

    /// Whether a prefill worker of the first shape can send to a decode worker of the second.
    /// Different numbers of ranks are possible only where every part is held whole by each rank.
    ///
    /// # Errors
    /// The first thing that does not fit.
    pub fn fit(prefill: &Self, decode: &Self) -> Result<(), Mismatch> {
        let same = |what: &str, prefill: &dyn ToString, decode: &dyn ToString| {
            let (prefill, decode) = (prefill.to_string(), decode.to_string());
            let what = what.to_owned();
            if prefill == decode { Ok(()) } else { Err(Mismatch { what, prefill, decode }) }
        };
        same("model", &prefill.model, &decode.model)?;
        same("page size in tokens", &prefill.page_tokens, &decode.page_tokens)?;
        same("KV type", &prefill.kv_dtype, &decode.kv_dtype)?;
        same("names of the pools' parts", &prefill.names(), &decode.names())?;
        for (one, other) in prefill.parts.iter().zip(&decode.parts) {
            let what = |what: &str| format!("{what} of part {}", one.name);
            same(&what("pool"), &one.pool, &other.pool)?;
            same(&what("layers"), &list(&one.layers), &list(&other.layers))?;
            same(&what("replication"), &one.replicated, &other.replicated)?;
            if !one.replicated {
                let ranks = format!("ranks (part {} is split over them)", one.name);
                same(&ranks, &prefill.ranks, &decode.ranks)?;
            }
            same(&what("bytes a layer of a page"), &one.layer_bytes, &other.layer_bytes)?;
            if one.layer_bytes as usize > crate::LAYER_BYTES_MAX {
                let both = one.layer_bytes.to_string();
                let limit = crate::LAYER_BYTES_MAX;
                let what = format!("{}, at most {limit}", what("bytes a layer of a page"));
                return Err(Mismatch { what, prefill: both.clone(), decode: both });
            }
        }
        let nobody = prefill.ranks == 0 || decode.ranks == 0;
        if nobody {
            let (prefill, decode) = (prefill.ranks.to_string(), decode.ranks.to_string());
            return Err(Mismatch { what: "ranks, at least 1".to_owned(), prefill, decode });
        }
        Ok(())
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        format!("[{}]", names.join(", "))
    }
}

/// At most twelve numbers, and how many there are.
fn list(numbers: &[u16]) -> String {
    let shown: Vec<String> = numbers.iter().take(12).map(u16::to_string).collect();
    let more = if numbers.len() > 12 { ", .." } else { "" };
    // Equal texts must mean equal lists.
    let hash = xxhash_rust::xxh3::xxh3_64(
        &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>(),
    );
    let tail = if more.is_empty() { String::new() } else { format!(" #{hash:016x}") };
    format!("[{}{more}] ({}){tail}", shown.join(", "), numbers.len())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn shape(ranks: u16, replicated: bool) -> Shape {
        let part = |name: &str, pool, layers: &[u16], layer_bytes, replicated| PartShape {
            name: name.to_owned(),
            pool,
            layers: layers.to_vec(),
            layer_bytes,
            replicated,
        };
        Shape {
            model: "tiny-1f2e".to_owned(),
            page_tokens: 16,
            kv_dtype: "f32".to_owned(),
            ranks,
            parts: vec![
                part("kv", 0, &[0, 2, 5], 24, replicated),
                part("swa", 1, &[1, 3, 4], 8, true),
            ],
        }
    }

    #[test]
    fn equal_shapes_fit_and_unequal_ranks_only_where_all_is_replicated() {
        for ranks in [1, 2, 4] {
            assert_eq!(Shape::fit(&shape(ranks, false), &shape(ranks, false)), Ok(()));
            assert_eq!(Shape::fit(&shape(ranks, true), &shape(2, true)), Ok(()));
        }
        let error = Shape::fit(&shape(4, false), &shape(2, false)).unwrap_err().to_string();
        let expected = "ranks (part kv is split over them): the prefill worker has 4, the decode \
                        worker has 2";
        assert_eq!(error, expected);
        assert!(Shape::fit(&shape(0, true), &shape(0, true)).is_err());
    }

    #[test]
    fn a_mismatch_names_what_both_have() {
        let check = |change: &dyn Fn(&mut Shape), expected: [&str; 3]| {
            let mut other = shape(2, false);
            change(&mut other);
            let error = Shape::fit(&shape(2, false), &other).unwrap_err();
            assert_eq!([&*error.what, &*error.prefill, &*error.decode], expected);
            let text = error.to_string();
            assert!(text.contains(expected[1]) && text.contains(expected[2]), "{text}");
        };
        check(&|s| s.model = "other".into(), ["model", "tiny-1f2e", "other"]);
        check(&|s| s.page_tokens = 8, ["page size in tokens", "16", "8"]);
        check(&|s| s.kv_dtype = "f16".into(), ["KV type", "f32", "f16"]);
        let names = "names of the pools' parts";
        check(&|s| drop(s.parts.pop()), [names, "[kv, swa]", "[kv]"]);
        check(&|s| s.parts.reverse(), [names, "[kv, swa]", "[swa, kv]"]);
        check(&|s| s.parts[1].pool = 0, ["pool of part swa", "1", "0"]);
        let layers = ["layers of part kv", "[0, 2, 5] (3)", "[0, 2] (2)"];
        check(&|s| s.parts[0].layers.truncate(2), layers);
        check(&|s| s.parts[0].replicated = true, ["replication of part kv", "false", "true"]);
        let bytes = "bytes a layer of a page of part swa";
        check(&|s| s.parts[1].layer_bytes = 9, [bytes, "8", "9"]);
        let mut large = shape(1, false);
        large.parts[0].layer_bytes = u32::MAX;
        let error = Shape::fit(&large, &large).unwrap_err();
        assert_eq!(error.what, "bytes a layer of a page of part kv, at most 16777216");
    }

    #[test]
    fn long_lists_of_layers_that_differ_late_are_told_apart() {
        let (mut one, mut other) = (shape(1, true), shape(1, true));
        one.parts[0].layers = (0..60).collect();
        other.parts[0].layers = (0..60).map(|layer| layer + u16::from(layer == 59)).collect();
        assert!(Shape::fit(&one, &one).is_ok());
        assert_eq!(Shape::fit(&one, &other).unwrap_err().what, "layers of part kv");
    }

    #[test]
    fn a_large_layer_makes_large_frames() {
        let mut large = shape(1, true);
        assert_eq!(large.payload_max(), crate::PAYLOAD_BYTES);
        large.parts[1].layer_bytes = 3 << 20;
        assert_eq!(large.payload_max(), 3 << 20);
    }
}
