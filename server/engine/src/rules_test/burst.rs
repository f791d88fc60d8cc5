//! A burst of equal prompts: first tokens leave one after the other, and answers go on between.

use std::time::Duration;

use types::Time;

use super::rig::{Job, Rig, bounds};
use crate::{EngineConfig, Scheduling};

#[test]
fn first_tokens_leave_as_each_prompt_of_a_burst_ends() {
    // A prompt takes four steps of 512 tokens; answers take up to seven tokens of a step.
    let (burst, prompt) = (8_u32, 2048);
    let config = EngineConfig {
        max_batch_tokens: 512,
        prefill_chunk: 512,
        ..bounds(16, Scheduling::default())
    };
    let mut rig = Rig::new(config);
    let ids: Vec<_> = (0..burst).map(|_| rig.submit(&Job::plain(prompt, 400))).collect();
    rig.finish();
    let log = rig.log();
    let firsts: Vec<_> = log.firsts.iter().map(|(id, _)| *id).collect();
    assert_eq!(firsts, ids, "in the order of arrival");
    let total = log.firsts[burst as usize - 1].1.since(Time::ZERO);
    // A step: 2 ms, 0.5 ms a prompt token, 1 ms a decode row.
    let step = Duration::from_millis(2 + 256 + 8);
    for (place, (id, at)) in (1..).zip(&log.firsts) {
        let due = total * place / burst;
        let off = at.since(Time::ZERO).abs_diff(due);
        assert!(off <= 2 * step, "first token {place} of {id} at {at:?}, due at {due:?}");
    }
    // Nobody's answer stops while the others' prompts are computed.
    let longest = log.gaps.iter().max().copied().unwrap_or_default();
    assert!(longest <= step, "a gap of {longest:?} between two tokens");
}
