//! The one command and its console, as a user meets them: `sightline up` in real processes and a
//! real browser.

mod alerts;
mod browser;
mod incident;
mod lifecycle;
mod made_up;
mod node;
mod operate;
mod pair;
mod pure;
mod up;
mod webdriver;
