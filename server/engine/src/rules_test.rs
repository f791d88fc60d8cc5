//! The rules among requests, one by one, on virtual time: who goes first, who gives way, who has
//! waited or run for too long, and what that costs the others.

mod burst;
mod disagg;
mod fair;
mod fcfs;
mod limits;
mod preempt;
mod rig;
