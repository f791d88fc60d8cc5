//! What links have to say, and what they are told.

use transfer::{Failure, News};
use types::RequestId;

use crate::event::AbortReason;
use crate::output::{Abort, Outcome, RequestError};
use crate::request::Request;
use crate::step::Core;

impl Core {
    /// News of a request; of one that is elsewhere by now, or not here any more, they mean nothing.
    pub(crate) fn hear(&mut self, id: RequestId, news: News) {
        let now = self.clock.last();
        let Self { scheduler, report, .. } = self;
        match news {
            News::Started => {
                let rank = scheduler.rank_of.get(&id).copied();
                if let Some(request) = rank.and_then(|rank| scheduler.transfer.get_mut(rank)) {
                    request.note_started(now);
                }
            }
            // Which pages are free is not changed by that.
            News::FirstByte | News::Passed(_) => {}
            News::Arrived(times) => {
                scheduler.arrive(id, times, now, &mut report.queue_exits);
                // Where the request was given up at that moment, this is all that comes.
                self.let_go(id);
            }
            News::Wanted { skip_tokens } => {
                scheduler.want(id, skip_tokens, now, &mut report.queue_exits);
            }
            News::Delivered => {
                let rank = scheduler.rank_of.get(&id).copied();
                if let Some(request) = rank.and_then(|rank| scheduler.sending.get_mut(rank)) {
                    request.link_is_over();
                    self.end(id, |_| Outcome::Length);
                }
                self.let_go(id);
            }
            News::Failed(why) => self.transfer_failed(id, why),
            News::Settled => self.let_go(id),
        }
    }

    /// The transfer of a request came to nothing; where the request is through with it, that is no
    /// matter.
    fn transfer_failed(&mut self, id: RequestId, why: Failure) {
        let Some(request) = self.scheduler.find_mut(id) else { return };
        if !request.has_link() {
            return;
        }
        let gave_up = request.sends() && why == Failure::PeerAbort;
        request.link_is_over();
        self.end(id, |request| {
            if gave_up {
                let (stage, reason) = (request.stage(), AbortReason::PeerAbort);
                Outcome::Aborted(Abort { stage, reason })
            } else {
                Outcome::Error(RequestError::Transfer(why))
            }
        });
    }

    /// A link has let go of the pages of a request.
    fn let_go(&mut self, id: RequestId) {
        if self.scheduler.held.release(id) && !self.scheduler.rank_of.contains_key(&id) {
            // One whose end is not told yet is forgotten when it is.
            self.mailbox.forget(std::iter::once(id));
        }
    }

    /// A request ends: its link is told. Whether its pages stay until the link has let go.
    pub(crate) fn part_from_link(&self, request: &mut Request, outcome: &Outcome) -> bool {
        let why = match outcome {
            Outcome::Error(RequestError::Transfer(why)) => *why,
            Outcome::Error(
                RequestError::Model(_) | RequestError::Engine(_) | RequestError::Sink,
            ) => Failure::Internal,
            Outcome::Stop | Outcome::Length | Outcome::Aborted(_) | Outcome::Rejected(_) => {
                Failure::LocalAbort
            }
        };
        let delivered = *outcome == Outcome::Length;
        request.abandon_link(why) && !delivered
    }

    /// The engine ends: nobody will be given a page any more, so none has to be kept.
    pub(crate) fn forget_held(&mut self) {
        self.mailbox.forget(self.scheduler.held.clear().into_iter());
    }
}
