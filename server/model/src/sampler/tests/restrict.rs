//! Constraints and the least length.

use std::collections::HashSet;

use super::*;

/// Allows one set of tokens per place (an empty set stands for all), and is complete behind the
/// last.
struct Script {
    places: Vec<Vec<u32>>,
    mask: TokenMask,
    accepted: usize,
}

impl Constraint for Script {
    fn mask(&mut self) -> Result<Option<&TokenMask>, ConstraintError> {
        let Some(place) = self.places.get(self.accepted) else {
            return Err(ConstraintError("the script has ended".to_owned()));
        };
        if place.is_empty() {
            return Ok(None);
        }
        self.mask.clear();
        place.iter().for_each(|token| self.mask.allow(TokenId(*token)));
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        let place = self.places.get(self.accepted);
        let fits = place.is_some_and(|place| place.is_empty() || place.contains(&token.0));
        self.accepted += 1;
        if fits { Ok(()) } else { Err(ConstraintError(format!("{token} does not fit"))) }
    }

    fn is_complete(&self) -> bool {
        self.accepted == self.places.len()
    }
}

fn scripted(params: SamplingParams, stops: &[u32], places: &[&[u32]]) -> Sampler {
    let stops: Vec<TokenId> = stops.iter().copied().map(TokenId).collect();
    let places = places.iter().map(|place| place.to_vec()).collect();
    let script = Script { places, mask: TokenMask::none(50), accepted: 0 };
    Sampler::new(params, &stops, Some(Box::new(script)), &[], 50, 9)
}

/// Token 40 is the likeliest, then 39, and so on down to 0; those above 40 are unlikely.
fn falling() -> Vec<f32> {
    (0..50u8).map(|id| if id > 40 { -5.0 } else { f32::from(id) * 0.1 }).collect()
}

fn next(sampler: &mut Sampler) -> Result<u32, RunError> {
    sampler.sample(&falling()).map(|sampled| sampled.token.0)
}

#[test]
fn a_constraint_decides_what_may_come() {
    let greedy = SamplingParams { logprobs: Some(1), ..SamplingParams::default() };
    let mut sampler = scripted(greedy, &[48, 49], &[&[3, 7], &[], &[12]]);
    let first = sampler.sample(&falling()).unwrap();
    assert_eq!(first.token, TokenId(7));
    // Log-probabilities know nothing of the mask.
    assert_eq!(sampler.top()[0].0, TokenId(40));
    assert!(first.logprob.unwrap() < sampler.top()[0].1 - 3.0);
    assert_eq!(next(&mut sampler).unwrap(), 40);
    assert_eq!(next(&mut sampler).unwrap(), 12);
    // Complete: the best of the stop tokens, which the constraint is not told.
    assert_eq!(next(&mut sampler).unwrap(), 48);
    assert_eq!(next(&mut sampler).unwrap(), 48);
}

#[test]
fn draws_stay_within_the_mask() {
    for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.99, 0.0), (0, 1.0, 0.01)] {
        let warm =
            SamplingParams { temperature: 2.0, top_k, top_p, min_p, ..SamplingParams::default() };
        let place: &[u32] = &[1, 20, 33];
        let places = vec![place; 200];
        let mut sampler = scripted(warm, &[49], &places);
        let drawn: HashSet<u32> = (0..200).map(|_| next(&mut sampler).unwrap()).collect();
        assert!(drawn.iter().all(|token| place.contains(token)), "{drawn:?}");
        assert!(drawn.len() > 1);
    }
}

#[test]
fn a_constraint_that_fails_or_leaves_nothing_is_an_error() {
    let mut sampler = scripted(SamplingParams::default(), &[], &[&[1]]);
    assert_eq!(next(&mut sampler).unwrap(), 1);
    let error = next(&mut sampler).unwrap_err().to_string();
    assert_eq!(error, "the constraint of the answer: the script has ended");
    let mut sampler = scripted(SamplingParams::default(), &[], &[&[1000]]);
    let error = next(&mut sampler).unwrap_err().to_string();
    assert!(error.contains("no token of the vocabulary is allowed"), "{error}");
}

#[test]
fn stop_tokens_wait_for_the_least_length() {
    let params = SamplingParams { min_tokens: 3, ..SamplingParams::default() };
    let stops = [TokenId(40), TokenId(39), TokenId(40), TokenId(5000)];
    let mut sampler = Sampler::new(params, &stops, None, &[], 50, 0);
    let answer: Vec<u32> = (0..5).map(|_| next(&mut sampler).unwrap()).collect();
    assert_eq!(answer, [38, 38, 38, 40, 40]);
}

/// A structure that is complete before the least length ends all the same.
#[test]
fn the_least_length_yields_to_the_constraint() {
    let params = SamplingParams { min_tokens: 10, ..SamplingParams::default() };
    let mut sampler = scripted(params.clone(), &[41], &[&[2, 41], &[41], &[3]]);
    assert_eq!(next(&mut sampler).unwrap(), 2);
    assert_eq!(next(&mut sampler).unwrap(), 41);
    let mut sampler = scripted(params, &[41], &[&[2, 41]]);
    assert_eq!(next(&mut sampler).unwrap(), 2);
    assert_eq!(next(&mut sampler).unwrap(), 41);
}

/// Values that are no numbers turn their parameters off instead of spoiling the row.
#[test]
fn parameters_that_are_no_numbers_are_off() {
    let odd = SamplingParams {
        temperature: 1.0,
        top_p: f32::NAN,
        min_p: f32::INFINITY,
        repetition_penalty: f32::NAN,
        presence_penalty: f32::NAN,
        frequency_penalty: f32::NEG_INFINITY,
        logit_bias: vec![(TokenId(3), f32::NAN)],
        ..SamplingParams::default()
    };
    let warm = SamplingParams { temperature: 1.0, ..SamplingParams::default() };
    let (mut odd, mut warm) = (plain(odd, 50, 4), plain(warm, 50, 4));
    for _ in 0..100 {
        assert_eq!(next(&mut odd).unwrap(), next(&mut warm).unwrap());
    }
    // A tiny penalty makes a logit huge, not infinite.
    let tiny = SamplingParams { repetition_penalty: 1e-38, ..SamplingParams::default() };
    let mut sampler = Sampler::new(tiny, &[], None, &[TokenId(7)], 50, 0);
    assert_eq!((next(&mut sampler).unwrap(), next(&mut sampler).unwrap()), (7, 7));
}
