//! Who comes later cannot tell whether rows were computed here or came from elsewhere.

use proptest::prelude::*;
use types::{Bytes, Pages, TokenId};

use super::{Checked, Text, check, ids, namespace, text};
use crate::{CacheOptions, Lookup, PageTable, PoolSet, PoolSpec, Retention};

/// Room for everything: what is evicted depends on how much there is.
const PAGES: Pages = Pages(1000);

#[derive(Debug, Clone)]
struct Case {
    page_tokens: usize,
    window: Option<usize>,
    retention: Retention,
    /// What was computed before, in chunks of so many tokens.
    earlier: Vec<(Text, usize)>,
    prompt: Text,
    chunk: usize,
    /// Tokens of the prompt that are computed here after the others have come.
    less: usize,
    /// Tokens of the answer.
    answer: usize,
    /// Whether it ends before others ask.
    ends: bool,
    later: Vec<Text>,
}

fn case() -> impl Strategy<Value = Case> {
    let retention = prop::sample::select(vec![Retention::Tail, Retention::TailBranch]);
    let window = prop::option::weighted(0.8, 1..12_usize);
    let shape = (1..5_usize, window, retention);
    let request = (text(), 1..20_usize, 1..3_usize, 0..12_usize, any::<bool>());
    let earlier = prop::collection::vec((text(), 1..20_usize), 0..4);
    let later = prop::collection::vec(text(), 1..12);
    (shape, request, earlier, later).prop_map(|(shape, request, earlier, later)| {
        let (page_tokens, window, retention) = shape;
        let (prompt, chunk, less, answer, ends) = request;
        Case { page_tokens, window, retention, earlier, prompt, chunk, less, answer, ends, later }
    })
}

impl Case {
    fn set(&self) -> PoolSet {
        let spec = |name, window| PoolSpec {
            name,
            page_tokens: self.page_tokens,
            page_bytes: Bytes(1),
            capacity: PAGES,
            window,
        };
        let mut specs = vec![spec("kv", None)];
        specs.extend(self.window.map(|window| spec("swa", Some(window))));
        let options = CacheOptions { enabled: true, host: None, retention: self.retention };
        let set = PoolSet::new(specs, options);
        for (text, chunk) in &self.earlier {
            let tokens = ids(&text.tokens());
            let mut table = set.table();
            let found = table.attach_prefix(&namespace(0), &tokens, Lookup::First).tokens;
            go_on(&mut table, &tokens, found, *chunk);
        }
        set
    }
}

/// Computes what is left of `tokens`.
fn go_on(table: &mut PageTable, tokens: &[TokenId], mut computed: usize, chunk: usize) {
    while computed < tokens.len() {
        computed = (computed + chunk).min(tokens.len());
        table.grow_to(computed).expect("there is room for everything");
        table.publish(&namespace(0), tokens, computed);
    }
}

fn compare(case: &Case) -> Checked {
    let [here, elsewhere] = [case.set(), case.set()];
    let prompt = ids(&case.prompt.tokens());
    let computed = prompt.len().saturating_sub(case.less);
    let mut one = here.table();
    let found = one.attach_prefix(&namespace(0), &prompt, Lookup::First).tokens;
    go_on(&mut one, &prompt[..computed.max(found)], found, case.chunk);
    let mut other = elsewhere.table();
    let landed = other.land(&namespace(0), &prompt, computed, Lookup::First);
    let landed = landed.expect("there is room for everything").prefix_tokens;
    // It needs fewer windows than whoever computes.
    prop_assert!(landed >= found || case.less > 1);
    other.publish(&namespace(0), &prompt, computed);

    let (length, mut whole) = (prompt.len(), prompt);
    whole.extend((0..case.answer as u32).map(|token| TokenId(token % 3)));
    for (table, start) in [(&mut one, computed.max(found)), (&mut other, computed)] {
        go_on(table, &whole, start, 1);
    }
    for pool in 0..here.specs().len() as u16 {
        let [(first, pages), (late, pages_too)] =
            [&one, &other].map(|table| table.pages(types::PoolId(pool)));
        prop_assert_eq!((first, pages.len()), (late, pages_too.len()));
    }
    check::consistent(&elsewhere, &[&other])?;
    if case.ends {
        drop((one, other));
    }
    // Of windows, those before the prompt's end have come. Who branches off before that can tell,
    // where windows at branches are kept.
    let all = case.window.is_none() || case.retention == Retention::Tail;
    let goes_on = |text: &Vec<TokenId>| text.starts_with(&whole[..length]);
    let later = case.later.iter().map(|text| ids(&text.tokens()));
    let later = later.filter(|text| all || goes_on(text));
    let behind = (length..=whole.len()).map(|end| {
        let mut text = whole[..end].to_vec();
        text.push(TokenId(7));
        text
    });
    for text in later.chain(behind) {
        let [one, other] = [&here, &elsewhere].map(|set| set.cached_prefix(&namespace(0), &text));
        prop_assert_eq!(one, other, "{:?}", text);
    }
    let kv = |set: &PoolSet| {
        let stats = set.stats().next().expect("a pool");
        (stats.used_active, stats.used_cached)
    };
    prop_assert_eq!(kv(&here), kv(&elsewhere));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn who_comes_later_cannot_tell_where_rows_were_computed(case in case()) {
        compare(&case)?;
    }
}
