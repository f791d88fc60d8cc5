//! Healthy days: traffic that comes and goes with the sun, clients that leave now and then, and a
//! deploy every day, which restarts every process, one after the other. Nobody is called.
//!
//! Processes that have nothing to do are not rendered anew, since nothing on their pages ages. The
//! test is a day that is a few hours long, scraped and evaluated as in the configuration; with
//! `SIGHTLINE_CLUSTER_WEEK=1` it is seven days of 24 hours, scraped and evaluated every 30 s.

use std::time::Duration;

use types::{Time, TokenId};

use super::alerts::{Folder, promtool};
use super::client::{Client, End};
use super::event::{Event, Which};
use super::incident::{DEFAULTS, OBJECTIVE, worker};
use super::rig::Dice;
use super::telemetry::Watch;
use super::wire::Weather;
use super::world::{Setting, World};

const WEEK: &str = "SIGHTLINE_CLUSTER_WEEK";
/// Between the restarts of two processes: longer than one takes.
const APART: Duration = Duration::from_secs(150);

/// What is replayed.
struct Story {
    day: Duration,
    days: u32,
    /// Between two scrapes, and between two evaluations.
    scrape: Duration,
    evaluation: Duration,
    /// Between two requests, at noon and at midnight.
    noon: Duration,
    midnight: Duration,
}

impl Story {
    /// Between two requests: as much longer than at noon as the sun is lower.
    fn pause(&self, at: Duration) -> Duration {
        let day = self.day.as_secs_f64();
        let height = (1.0 - (at.as_secs_f64() % day / day * std::f64::consts::TAU).cos()) / 2.0;
        let rate = |pause: Duration| pause.as_secs_f64().recip();
        let rate = rate(self.midnight) + height * (rate(self.noon) - rate(self.midnight));
        Duration::from_secs_f64(rate.recip())
    }

    fn lasts(&self) -> Duration {
        self.day * self.days
    }
}

fn client(dice: &mut Dice) -> Client {
    let prompt = (0..dice.size(500, 6_000)).map(|_| TokenId(dice.within(0, 90) as u32)).collect();
    let mut client = Client::new(prompt, dice.size(8, 40));
    client.returns = 1000;
    if dice.chance(10) {
        // It goes away before it has an answer.
        client.patience = dice.micros(1000, 300_000);
    }
    client
}

fn cluster(story: &Story) -> Result<World, String> {
    let weather = Weather { delay: (50, 500), bandwidth: 1 << 30, twice: 0, late: 0, broken: 0 };
    let setting = Setting {
        prefills: vec![worker(DEFAULTS, true); 2],
        decodes: vec![worker(DEFAULTS, false); 2],
        router: router::Config::default(),
        weather,
        local_tokens: 16,
    };
    let watch = Watch::new(story.scrape, story.evaluation, OBJECTIVE)?;
    let mut world = World::watched(setting, 7, Some(watch))?;
    world.poll = Duration::from_secs(2);
    world.lasts = Time::ZERO + story.lasts();
    Ok(world)
}

/// Every process is restarted, in the morning of each day, when there is much to do.
fn deploy(world: &mut World, story: &Story) {
    for day in 0..story.days {
        let morning = Time::ZERO + story.day * day + story.day.mul_f64(0.4);
        for (place, which) in world.all().into_iter().enumerate() {
            let place = u32::try_from(place).expect("a few workers");
            world.agenda.plan(morning + APART * place, Event::Stop(which));
        }
        world.agenda.plan(morning + APART * 5, Event::Reroute);
    }
}

fn live(story: &Story) -> Result<World, String> {
    let mut world = cluster(story)?;
    let mut dice = Dice::new(11);
    deploy(&mut world, story);
    let (mut next, mut over) = (Duration::from_secs(5), 0);
    while world.now.since(Time::ZERO) < story.lasts() || world.open > 0 {
        while next < story.lasts() && next <= world.now.since(Time::ZERO) + story.midnight {
            world.add(client(&mut dice), Time::ZERO + next);
            next += story.pause(next).mul_f64(dice.within(1, 1999) as f64 / 1000.0);
        }
        world.step()?;
        // What has ended needs no room.
        while world.clients.get(over).is_some_and(Client::is_over) {
            let client = &mut world.clients[over];
            client.prompt = Vec::new();
            client.text = Vec::new();
            over += 1;
        }
    }
    Ok(world)
}

#[expect(clippy::print_stdout, reason = "what a passing test has seen is told where it is read")]
fn replay(story: &Story) {
    if promtool().is_none() {
        return;
    }
    let mut world = live(story).expect("healthy days");
    let ended = |end: End| world.ended_with(&end);
    let (answered, left) = (ended(End::Answered), ended(End::Left));
    println!("{answered} answered, {left} left, {} refused", world.tally.refusals);
    assert_eq!(answered + left, world.clients.len(), "all others are answered");
    assert!(left > 0 && left * 20 < answered, "{left} of {answered} left");
    let restarts: u64 = world.lives.values().map(|lives| lives - 1).sum();
    assert_eq!(restarts, u64::from(story.days) * 4, "every worker was restarted every day");
    assert!(world.worker(Which::Prefill(0)).is_some());
    let recording = world.watch.take().expect("it was watched").into_recording();
    let input = recording.input_series();
    let away = |job: &str| {
        let up = |line: &&str| line.contains("'up{") && line.contains(job);
        input.lines().filter(up).all(|line| line.contains(" 0 ") || line.contains(" 0x"))
    };
    for job in ["sightline-prefill", "sightline-decode", "sightline-router"] {
        assert!(away(job), "each {job} was away for a scrape");
    }
    let folder = Folder::new(&format!("days{}", story.days));
    let fired = recording.fired(&folder.0).expect("promtool evaluates the rules");
    println!("fired: {fired:?}");
    assert!(fired.is_empty(), "{fired:#?}");
}

#[test]
fn healthy_days_with_deploys_call_nobody() {
    let seconds = Duration::from_secs;
    #[expect(clippy::disallowed_methods, reason = "a switch of this test only")]
    let week = std::env::var(WEEK).is_ok_and(|value| value == "1");
    replay(&if week {
        Story {
            day: seconds(24 * 3600),
            days: 7,
            scrape: seconds(30),
            evaluation: seconds(30),
            noon: seconds(120),
            midnight: seconds(1800),
        }
    } else {
        Story {
            day: seconds(2 * 3600),
            days: 1,
            scrape: seconds(5),
            evaluation: seconds(15),
            noon: seconds(10),
            midnight: seconds(60),
        }
    });
}
