//! The one command and its console, as a user meets them: `sightline up` in real processes and a
//! real browser.

mod alerts;
mod browser;
mod lifecycle;
mod node;
mod pair;
mod up;
mod webdriver;
