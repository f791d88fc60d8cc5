//! Slow start: a worker that has just come back gets a growing share of what it could get, so that
//! one whose caches are cold is not swamped by all who see its empty queue.

use std::time::Duration;

use types::Time;

/// The share that a worker begins with.
const FIRST: f64 = 0.1;

/// The share of a worker that is ready since `since`, 0 to 1.
pub(crate) fn share(since: Option<Time>, now: Time, over: Duration) -> f64 {
    let Some(since) = since else { return 1.0 };
    let past = now.since(since);
    if past >= over {
        return 1.0;
    }
    FIRST + (1.0 - FIRST) * past.as_secs_f64() / over.as_secs_f64()
}

/// Keeps of `slots` those that take part this time: each with the probability of its share, as a
/// part of the largest one. Where all are new, all take part, and so does somebody always.
///
/// `draw` gives numbers that nobody expects; it is not called where all have the same share.
pub(crate) fn thin(slots: &mut Vec<u16>, share: impl Fn(u16) -> f64, draw: impl FnMut() -> u64) {
    let largest = slots.iter().map(|slot| share(*slot)).fold(0.0, f64::max);
    let mut draw = draw;
    // Who has the largest share always stays.
    slots.retain(|slot| {
        let part = share(*slot) / largest;
        part >= 1.0 || (draw() >> 11) as f64 / (1_u64 << 53) as f64 <= part
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::ZERO + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_share_grows_to_all_and_stays_there() {
        let over = Duration::from_secs(10);
        let of = |now: f64| (share(Some(at(5.0)), at(now), over) * 100.0).round();
        assert_eq!([5.0, 10.0, 14.9, 15.0, 99.0].map(of), [10.0, 55.0, 99.0, 100.0, 100.0]);
        assert_eq!(share(None, at(5.0), over), 1.0, "it was always there");
        assert_eq!(share(Some(at(5.0)), at(5.0), Duration::ZERO), 1.0);
    }

    #[test]
    fn somebody_always_stays_and_new_ones_stay_by_their_share() {
        let mut number = 0_u64;
        let mut draw = || {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            number
        };
        let mut stayed = 0;
        for _ in 0..1000 {
            let mut slots = vec![0, 1, 2];
            thin(&mut slots, |slot| if slot == 1 { 0.3 } else { 1.0 }, &mut draw);
            assert!(slots.contains(&0) && slots.contains(&2));
            stayed += usize::from(slots.contains(&1));
        }
        assert!((250..350).contains(&stayed), "{stayed} of 1000 at a share of 0.3");
        let mut slots = vec![4, 7];
        thin(&mut slots, |_| 0.1, || panic!("all are new alike"));
        assert_eq!(slots, [4, 7]);
    }
}
